//! The stored form of an answer, and replies made of it again.
//!
//! One JSON document serves both dialects, as a document and as a stream: the texts are escaped as replies have them,
//! with the places where the stream was cut. [`Recorder`] writes it beside the live reply, [`Stored`] reads it, and
//! [`Stored::body`] makes the bytes that the live reply wrote. Nothing here knows keys, ages or a clock. Invariants: a
//! replayed body is the live one, byte for byte but for the framing of chunks; it depends on the stored form and on
//! [`Shape`] alone; no bytes that are read can end in a panic or in a body that is no JSON.
//!
//! The fields, in this order and without blanks, `v` being the version of the form:
//!
//! ```json
//! {"v":1,"id":"<32 hex digits>","created":0,"version":"<of the model>",
//!  "input_tokens":0,"cached_tokens":0,"output_tokens":0,"began":[0,0],
//!  "finish":"end_turn","stop_sequence":null,"stop_token":null,
//!  "text_bytes":0,"text_cuts":[],"text":"",
//!  "calls":[{"id":"<32 hex digits>","name":"","bytes":0,"cuts":[],"arguments":""}]}
//! ```
//!
//! `began` is what the stream told at its start of the prompt: its tokens, and those that came from the prefix cache.
//! Lengths are in bytes of the escaped text; cuts are the lengths of the pieces of a stream.

mod read;
mod record;
mod recorded;
mod render;

pub use self::{
    read::{Damaged, Stored},
    record::Recorder,
    recorded::{Named, Recorded},
    render::{Shape, hit},
};

use zerohop_engine::Finish;

/// Longest stored form in bytes. A longer answer is not recorded.
pub const MAX_BYTES: usize = 1 << 20;
/// Most pieces of a stream: each becomes an event of some 300 bytes, so that a replay stays near 10 MB. An answer of more
/// pieces is not recorded.
pub const MAX_PIECES: usize = 1 << 15;

/// What the form calls the reasons to end; [`Finish::Stop`] and [`Finish::StopToken`] have a field of their own beside.
fn finish_word(finish: &Finish) -> &'static str {
    match finish {
        Finish::EndOfTurn => "end_turn",
        Finish::Stop(_) => "stop_sequence",
        Finish::StopToken(_) => "stop_token",
        Finish::ToolCalls => "tool_calls",
        Finish::MaxTokens => "max_tokens",
        Finish::ContextFull => "context_full",
    }
}

#[cfg(test)]
mod tests;
