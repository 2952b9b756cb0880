//! The Chat Completions API's shapes: the completion, the chunks of a stream.
//!
//! Only writes. Invariants: `prompt_tokens` includes what came from the cache; all chunks of a stream share id, time,
//! model and fingerprint.

use zerohop_engine::{Finish, Logprob, Usage};

use super::{
    ReplyMeta,
    choice::{Called, Choice, Words},
    logprobs, write_id,
};
use crate::{
    api::StreamOptions,
    http::Chunk,
    json::{self, Writer},
};

/// `functions`: calls are told in the words of old.
pub(super) fn reason(finish: &Finish, functions: bool) -> &'static str {
    match finish {
        Finish::ToolCalls if functions => "function_call",
        Finish::EndOfTurn | Finish::Stop(_) | Finish::StopToken(_) => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::MaxTokens | Finish::ContextFull => "length",
    }
}

/// From the first brace to the list of choices.
fn head(meta: &ReplyMeta, object: &str, out: &mut Vec<u8>) {
    let mut writer = Writer(out);
    writer.raw(r#"{"id":"#);
    meta.write_id(&mut writer, "chatcmpl-");
    writer
        .raw(r#","object":""#)
        .raw(object)
        .raw(r#"","created":"#)
        .number(meta.created);
    writer.raw(r#","model":"#).string(&meta.model);
    writer.raw(r#","service_tier":"default","system_fingerprint":"fp_"#);
    json::escaped(out, &meta.model_version);
    Writer(out).raw(r#"","choices":["#);
}

pub(super) fn write_usage(usage: Usage, out: &mut Vec<u8>) {
    Writer(out)
        .raw(r#"{"prompt_tokens":"#)
        .number(usage.input_tokens)
        .raw(r#","completion_tokens":"#)
        .number(usage.output_tokens)
        .raw(r#","total_tokens":"#)
        .number(u64::from(usage.input_tokens) + u64::from(usage.output_tokens))
        .raw(r#","prompt_tokens_details":{"cached_tokens":"#)
        .number(usage.cached_tokens)
        .raw(r#","audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0"#)
        .raw(r#","accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}"#);
}

/// The completion as a whole.
pub(super) fn document(meta: &ReplyMeta, choices: &[Choice], usage: Usage, out: &mut Vec<u8>) {
    head(meta, "chat.completion", out);
    for (index, choice) in choices.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        message(index, choice, meta.places.functions, out);
        let mut writer = Writer(out);
        writer.raw(r#","logprobs":"#);
        if meta.logprobs {
            writer
                .raw(r#"{"content":["#)
                .raw(&choice.logprobs)
                .raw(r#"],"refusal":null}"#);
        } else {
            writer.raw("null");
        }
        writer
            .raw(r#","finish_reason":"#)
            .string_or_null(
                choice
                    .finish
                    .as_ref()
                    .map(|finish| reason(finish, meta.places.functions)),
            )
            .raw("}");
    }
    Writer(out).raw(r#"],"usage":"#);
    write_usage(usage, out);
    Writer(out).raw("}");
}

/// A choice up to and including its message, which has no text where tools are called without a word.
fn message(index: usize, choice: &Choice, functions: bool, out: &mut Vec<u8>) {
    let mut writer = Writer(out);
    writer
        .raw(r#"{"index":"#)
        .number(index as u64)
        .raw(r#","message":{"role":"assistant","content":"#);
    if choice.text.is_empty() && !choice.calls.is_empty() {
        writer.raw("null");
    } else {
        writer.raw("\"").raw(&choice.text).raw("\"");
    }
    writer.raw(r#","refusal":null,"annotations":[]"#);
    if functions {
        // There is one at most.
        if let Some(call) = choice.calls.first() {
            writer.raw(r#","function_call":"#);
            write_function(call, &call.arguments, &mut writer);
        }
        writer.raw("}");
        return;
    }
    for (index, call) in choice.calls.iter().enumerate() {
        writer.raw(if index == 0 { r#","tool_calls":["# } else { "," }).raw("{");
        write_call(call, &call.arguments, &mut writer);
        writer.raw("}");
    }
    writer.raw(if choice.calls.is_empty() { "}" } else { "]}" });
}

/// The inside of a call, with these arguments.
fn write_call(call: &Called, arguments: &str, writer: &mut Writer<'_>) {
    writer.raw(r#""id":"#);
    write_id(call.id, writer, "call_");
    writer.raw(r#","type":"function","function":"#);
    write_function(call, arguments, writer);
}

/// The name of what is called, with these arguments.
fn write_function(call: &Called, arguments: &str, writer: &mut Writer<'_>) {
    writer
        .raw(r#"{"name":"#)
        .string(&call.name)
        .raw(r#","arguments":"#)
        .string(arguments)
        .raw("}");
}

/// What every chunk begins with, up to and including the bracket of its choices.
pub(super) fn chunk_head(meta: &ReplyMeta) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    head(meta, "chat.completion.chunk", &mut out);
    out
}

/// The chunks of one answer.
pub(super) struct Stream<'a> {
    head: &'a [u8],
    options: StreamOptions,
    index: usize,
    /// Calls are told in the words of old.
    functions: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(head: &'a [u8], options: StreamOptions, functions: bool, index: usize) -> Self {
        Self {
            head,
            options,
            index,
            functions,
        }
    }

    /// One chunk: its only choice has this delta, written by `fill`, and this reason.
    fn chunk(
        &self,
        finish: Option<&str>,
        logprobs: Option<&[Logprob]>,
        chunk: &mut Chunk<'_>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        chunk.data_with(|out| {
            let mut writer = Writer(out);
            writer.raw(self.head).raw(r#"{"index":"#).number(self.index as u64);
            writer.raw(r#","delta":{"#).with(fill).raw(r#"},"logprobs":"#);
            match logprobs {
                None => writer.raw("null"),
                Some(tokens) => {
                    let mut entries = Vec::new();
                    logprobs::entries(&mut entries, tokens);
                    writer.raw(r#"{"content":["#).raw(entries).raw(r#"],"refusal":null}"#)
                }
            };
            writer.raw(r#","finish_reason":"#).string_or_null(finish).raw("}]");
            // With usage asked for, all chunks but the last say that theirs is not it.
            writer.raw(if self.options.include_usage {
                r#","usage":null}"#
            } else {
                "}"
            });
        });
    }

    /// The chunk before the first text.
    pub(super) fn start(&self, chunk: &mut Chunk<'_>) {
        self.chunk(None, None, chunk, |out| {
            Writer(out).raw(r#""role":"assistant","content":"","refusal":null"#);
        });
    }

    /// More text, with the log probabilities of its tokens if those are told.
    pub(super) fn text(&self, text: Words<'_>, logprobs: Option<&[Logprob]>, chunk: &mut Chunk<'_>) {
        self.chunk(None, logprobs, chunk, |out| {
            Writer(out).raw(r#""content":""#);
            text.write(out);
            Writer(out).raw("\"");
        });
    }

    /// The last one of these calls begins.
    pub(super) fn call(&self, calls: &[Called], chunk: &mut Chunk<'_>) {
        if let Some((call, before)) = calls.split_last() {
            self.chunk(None, None, chunk, |out| {
                let mut writer = Writer(out);
                if self.functions {
                    writer.raw(r#""function_call":"#);
                    write_function(call, "", &mut writer);
                    return;
                }
                writer
                    .raw(r#""tool_calls":[{"index":"#)
                    .number(before.len() as u64)
                    .raw(",");
                write_call(call, "", &mut writer);
                writer.raw("}]");
            });
        }
    }

    /// More of the arguments of the last one of these calls.
    pub(super) fn arguments(&self, text: Words<'_>, calls: &[Called], chunk: &mut Chunk<'_>) {
        self.chunk(None, None, chunk, |out| {
            let mut writer = Writer(out);
            if self.functions {
                writer
                    .raw(r#""function_call":{"arguments":""#)
                    .with(|out| text.write(out))
                    .raw(r#""}"#);
                return;
            }
            writer
                .raw(r#""tool_calls":[{"index":"#)
                .number(calls.len().saturating_sub(1) as u64)
                .raw(r#","function":{"arguments":""#)
                .with(|out| text.write(out))
                .raw(r#""}}]"#);
        });
    }

    /// The chunk behind the last text or call of the answer.
    pub(super) fn finish(&self, finish: &Finish, chunk: &mut Chunk<'_>) {
        self.chunk(Some(reason(finish, self.functions)), None, chunk, |_| {});
    }

    /// What is behind the last answer.
    pub(super) fn end(&self, usage: Usage, chunk: &mut Chunk<'_>) {
        if self.options.include_usage {
            chunk.data_with(|out| {
                Writer(out).raw(self.head).raw(r#"],"usage":"#);
                write_usage(usage, out);
                Writer(out).raw("}");
            });
        }
        chunk.data(b"[DONE]");
    }
}
