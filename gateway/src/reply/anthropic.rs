//! The Messages API's shapes: the message, the events of a stream.
//!
//! Only writes. Invariants: `input_tokens` leaves out what came from the cache (the API's total is the sum); an answer
//! without text has no content block, since clients may not send an empty one back.

use zerohop_engine::{Finish, Usage};

use super::ReplyMeta;
use crate::{
    http::Chunk,
    json::{self, Writer},
};

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

/// The message as a whole; `text` is escaped.
pub(super) fn document(meta: &ReplyMeta, text: &[u8], finish: &Finish, usage: Usage, out: &mut Vec<u8>) {
    message_head(meta, out);
    if text.is_empty() {
        Writer(out).raw("[]");
    } else {
        Writer(out)
            .raw(r#"[{"type":"text","text":""#)
            .raw(text)
            .raw(r#"","citations":null}]"#);
    }
    message_foot(Some(finish), usage, out);
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
pub(super) fn delta(text: &str, first: bool, chunk: &mut Chunk<'_>) {
    if first {
        chunk.event(
            "content_block_start",
            br#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":null}}"#,
        );
        ping(chunk);
    }
    chunk.event_with("content_block_delta", |out| {
        Writer(out).raw(r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""#);
        json::escaped(out, text);
        Writer(out).raw(r#""}}"#);
    });
}

/// The events behind the last text; `begun`: there was some.
pub(super) fn finish(finish: &Finish, usage: Usage, begun: bool, chunk: &mut Chunk<'_>) {
    if begun {
        chunk.event("content_block_stop", br#"{"type":"content_block_stop","index":0}"#);
    }
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
