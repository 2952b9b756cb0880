//! The Messages API's shapes: the message, the events of a stream.
//!
//! Only writes. Invariants: `input_tokens` leaves out what came from the cache (the API's total is the sum); an answer
//! without text has no text block, since clients may not send an empty one back; the input of a call is a JSON object,
//! even where the answer was cut short within it.

use zerohop_engine::{Finish, Usage};

use super::{
    ReplyMeta,
    choice::{Called, Choice, Saying, Words},
    write_id,
};
use crate::{api::is_object, http::Chunk, json::Writer};

/// `stop_reason` and `stop_sequence`.
fn reason(finish: &Finish) -> (&'static str, Option<&str>) {
    match finish {
        Finish::EndOfTurn | Finish::StopToken(_) => ("end_turn", None),
        Finish::ToolCalls => ("tool_use", None),
        Finish::Stop(stop) => ("stop_sequence", Some(stop)),
        Finish::MaxTokens => ("max_tokens", None),
        Finish::ContextFull => ("model_context_window_exceeded", None),
    }
}

/// From the first brace of a message to its content.
fn message_head(meta: &ReplyMeta, out: &mut Vec<u8>) {
    let mut writer = Writer(out);
    writer.raw(r#"{"id":"#);
    meta.write_id(&mut writer, "msg_");
    writer
        .raw(r#","type":"message","role":"assistant","model":"#)
        .string(&meta.model)
        .raw(r#","content":"#);
}

fn stop(finish: Option<&Finish>, writer: &mut Writer<'_>) {
    let (reason, sequence) = finish.map(reason).unzip();
    writer.raw(r#""stop_reason":"#).string_or_null(reason);
    writer.raw(r#","stop_sequence":"#).string_or_null(sequence.flatten());
    writer.raw(r#","stop_details":null,"container":null"#);
}

/// What both a message's usage and a stream's last one have.
fn tokens(usage: Usage, writer: &mut Writer<'_>) {
    writer
        .raw(r#""input_tokens":"#)
        .number(usage.input_tokens.saturating_sub(usage.cached_tokens))
        .raw(r#","cache_creation_input_tokens":0,"cache_read_input_tokens":"#)
        .number(usage.cached_tokens)
        .raw(r#","output_tokens":"#)
        .number(usage.output_tokens)
        .raw(r#","output_tokens_details":{"thinking_tokens":0},"server_tool_use":null"#);
}

/// From behind the content to the last brace of a message.
fn message_foot(finish: Option<&Finish>, usage: Usage, out: &mut Vec<u8>) {
    let mut writer = Writer(out);
    writer.raw(",");
    stop(finish, &mut writer);
    writer.raw(r#","usage":{"#);
    tokens(usage, &mut writer);
    writer.raw(r#","cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0}"#);
    writer.raw(r#","service_tier":"standard"}}"#);
}

/// The message as a whole, from its only answer.
pub(super) fn document(meta: &ReplyMeta, choices: &[Choice], usage: Usage, out: &mut Vec<u8>) {
    message_head(meta, out);
    out.push(b'[');
    let mut finish = None;
    for choice in choices {
        finish = choice.finish.as_ref();
        if !choice.text.is_empty() {
            Writer(out)
                .raw(r#"{"type":"text","text":""#)
                .raw(&choice.text)
                .raw(r#"","citations":null}"#);
        }
        for call in &choice.calls {
            if !out.ends_with(b"[") {
                out.push(b',');
            }
            let whole = is_object(&call.arguments);
            tool_use(call, if whole { &call.arguments } else { "{}" }, out);
        }
    }
    out.push(b']');
    message_foot(finish, usage, out);
}

/// A block that calls a tool; `input` is JSON.
fn tool_use(call: &Called, input: &str, out: &mut Vec<u8>) {
    let mut writer = Writer(out);
    writer.raw(r#"{"type":"tool_use","id":"#);
    write_id(call.id, &mut writer, "toolu_");
    writer
        .raw(r#","name":"#)
        .string(&call.name)
        .raw(r#","input":"#)
        .raw(input)
        .raw(r#","caller":{"type":"direct"}}"#);
}

/// The events before the first text.
pub(super) fn start(meta: &ReplyMeta, usage: Usage, chunk: &mut Chunk<'_>) {
    chunk.event_with("message_start", |out| {
        Writer(out).raw(r#"{"type":"message_start","message":"#);
        message_head(meta, out);
        Writer(out).raw("[]");
        message_foot(None, usage, out);
        Writer(out).raw("}");
    });
}

/// The event that only says that the stream lives.
pub(super) fn ping(chunk: &mut Chunk<'_>) {
    chunk.event("ping", br#"{"type":"ping"}"#);
}

/// More text; the first one opens the block.
pub(super) fn text(text: Words<'_>, choice: &mut Choice, chunk: &mut Chunk<'_>) {
    if choice.saying != Saying::Text {
        open(choice, chunk, |_, out| {
            Writer(out).raw(r#"{"type":"text","text":"","citations":null}"#);
        });
        choice.saying = Saying::Text;
    }
    delta(choice, chunk, r#"{"type":"text_delta","text":""#, text);
}

/// A call begins: a block of its own.
pub(super) fn call(name: &str, id: (u64, u64), choice: &mut Choice, chunk: &mut Chunk<'_>) {
    close(choice, chunk);
    choice.call(name, id);
    open(choice, chunk, |choice, out| {
        choice
            .calls
            .iter()
            .next_back()
            .into_iter()
            .for_each(|call| tool_use(call, "{}", out));
    });
}

/// More of a call's input.
pub(super) fn arguments(text: Words<'_>, choice: &Choice, chunk: &mut Chunk<'_>) {
    delta(choice, chunk, r#"{"type":"input_json_delta","partial_json":""#, text);
}

/// The next block begins; `fill` writes it as it is at first.
fn open(choice: &mut Choice, chunk: &mut Chunk<'_>, fill: impl FnOnce(&Choice, &mut Vec<u8>)) {
    chunk.event_with("content_block_start", |out| {
        Writer(out)
            .raw(r#"{"type":"content_block_start","index":"#)
            .number(choice.blocks)
            .raw(r#","content_block":"#)
            .with(|out| fill(choice, out))
            .raw("}");
    });
    if choice.blocks == 0 {
        ping(chunk);
    }
    choice.blocks += 1;
}

/// More of the block that is open; `head` goes up to the quote before its text.
fn delta(choice: &Choice, chunk: &mut Chunk<'_>, head: &str, text: Words<'_>) {
    chunk.event_with("content_block_delta", |out| {
        Writer(out)
            .raw(r#"{"type":"content_block_delta","index":"#)
            .number(choice.blocks.saturating_sub(1))
            .raw(r#","delta":"#)
            .raw(head)
            .with(|out| text.write(out))
            .raw(r#""}}"#);
    });
}

/// The block that is open ends, if one is.
fn close(choice: &Choice, chunk: &mut Chunk<'_>) {
    if let Some(index) = choice.blocks.checked_sub(1) {
        chunk.event_with("content_block_stop", |out| {
            Writer(out)
                .raw(r#"{"type":"content_block_stop","index":"#)
                .number(index)
                .raw("}");
        });
    }
}

/// The events behind the last text or call.
pub(super) fn finish(finish: &Finish, usage: Usage, choice: &Choice, chunk: &mut Chunk<'_>) {
    close(choice, chunk);
    chunk.event_with("message_delta", |out| {
        let mut writer = Writer(out);
        writer.raw(r#"{"type":"message_delta","delta":{"#);
        stop(Some(finish), &mut writer);
        writer.raw(r#"},"usage":{"#);
        tokens(usage, &mut writer);
        writer.raw("}}");
    });
    chunk.event("message_stop", br#"{"type":"message_stop"}"#);
}
