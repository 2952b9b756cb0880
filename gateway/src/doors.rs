//! Doors for measurements and fuzzing: each way of reading a body by itself.
//!
//! No part of the product uses them, and they promise nothing. Invariant: [`Way::Product`] is what a worker calls.

pub use zerohop_simd::Level;

use crate::{
    api::{ChatRequest, CountRequest, Ignored, Scratch, anthropic, openai},
    error::ApiError,
};

/// A way of reading a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// What a worker does: one pass, and the tape where that has doubts.
    Product,
    /// The one pass alone; where it has doubts there is no answer.
    Direct,
    /// The tape alone, which is the reference.
    Tape,
}

/// Scratch memory for the pass with these instructions; a worker takes the best.
#[must_use]
pub fn scratch(level: Level) -> Scratch {
    Scratch::at(level)
}

/// What was read, or why it was refused; `None` only of [`Way::Direct`].
pub type Read<T> = Option<Result<(T, Ignored), ApiError>>;

/// `POST /v1/messages`
pub fn messages(way: Way, body: &[u8], scratch: &mut Scratch, strict: bool) -> Read<ChatRequest> {
    match way {
        Way::Product => Some(anthropic::messages(body, scratch, strict)),
        Way::Direct => anthropic::messages_directly(body, scratch, strict).map(Ok),
        Way::Tape => Some(anthropic::messages_by_tape(body, scratch, strict)),
    }
}

/// `POST /v1/messages/count_tokens`
pub fn count_tokens(way: Way, body: &[u8], scratch: &mut Scratch, strict: bool) -> Read<CountRequest> {
    match way {
        Way::Product => Some(anthropic::count_tokens(body, scratch, strict)),
        Way::Direct => anthropic::count_tokens_directly(body, scratch, strict).map(Ok),
        Way::Tape => Some(anthropic::count_tokens_by_tape(body, scratch, strict)),
    }
}

/// `POST /v1/chat/completions`
pub fn chat(way: Way, body: &[u8], scratch: &mut Scratch, strict: bool) -> Read<ChatRequest> {
    match way {
        Way::Product => Some(openai::chat(body, scratch, strict)),
        Way::Direct => openai::chat_directly(body, scratch, strict).map(Ok),
        Way::Tape => Some(openai::chat_by_tape(body, scratch, strict)),
    }
}
