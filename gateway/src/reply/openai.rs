//! The Chat Completions API's shapes: the completion, the chunks of a stream.
//!
//! Only writes. Invariants: `prompt_tokens` includes what came from the cache; all chunks of a stream share id, time,
//! model and fingerprint.

use zerohop_engine::{Finish, Usage};

use super::ReplyMeta;
use crate::{
    api::StreamOptions,
    http::Chunk,
    json::{self, Writer},
};

fn reason(finish: &Finish) -> &'static str {
    match finish {
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

fn write_usage(usage: Usage, out: &mut Vec<u8>) {
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

/// The completion as a whole; `text` is escaped.
pub(super) fn document(meta: &ReplyMeta, text: &[u8], finish: &Finish, usage: Usage, out: &mut Vec<u8>) {
    head(meta, "chat.completion", out);
    Writer(out)
        .raw(r#"{"index":0,"message":{"role":"assistant","content":""#)
        .raw(text)
        .raw(r#"","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":""#)
        .raw(reason(finish))
        .raw(r#""}],"usage":"#);
    write_usage(usage, out);
    Writer(out).raw("}");
}

/// What every chunk begins with, up to and including the bracket of its choices.
pub(super) fn chunk_head(meta: &ReplyMeta) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    head(meta, "chat.completion.chunk", &mut out);
    out
}

/// One chunk: its only choice has this delta, written by `fill`, and this reason.
fn choice(
    head: &[u8],
    options: StreamOptions,
    finish: Option<&str>,
    chunk: &mut Chunk<'_>,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    chunk.data_with(|out| {
        Writer(out).raw(head).raw(r#"{"index":0,"delta":{"#);
        fill(out);
        Writer(out)
            .raw(r#"},"logprobs":null,"finish_reason":"#)
            .string_or_null(finish)
            .raw("}]");
        // With usage asked for, all chunks but the last say that theirs is not it.
        Writer(out).raw(if options.include_usage {
            r#","usage":null}"#
        } else {
            "}"
        });
    });
}

/// The chunk before the first text.
pub(super) fn start(head: &[u8], options: StreamOptions, chunk: &mut Chunk<'_>) {
    choice(head, options, None, chunk, |out| {
        Writer(out).raw(r#""role":"assistant","content":"","refusal":null"#);
    });
}

/// More text.
pub(super) fn delta(head: &[u8], options: StreamOptions, text: &str, chunk: &mut Chunk<'_>) {
    choice(head, options, None, chunk, |out| {
        Writer(out).raw(r#""content":""#);
        json::escaped(out, text);
        Writer(out).raw("\"");
    });
}

/// The chunks behind the last text.
pub(super) fn finish(head: &[u8], options: StreamOptions, finish: &Finish, usage: Usage, chunk: &mut Chunk<'_>) {
    choice(head, options, Some(reason(finish)), chunk, |_| {});
    if options.include_usage {
        chunk.data_with(|out| {
            Writer(out).raw(head).raw(r#"],"usage":"#);
            write_usage(usage, out);
            Writer(out).raw("}");
        });
    }
    chunk.data(b"[DONE]");
}
