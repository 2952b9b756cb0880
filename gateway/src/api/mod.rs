//! The internal request: what both dialects mean. The wire forms live in [`anthropic`] and [`openai`].
//!
//! A body is read in one of two ways. The direct pass walks over the validated text and reads what the dialect's schema
//! asks for, without a list of tokens. Wherever it meets something wrong, or only unusual, it stops without an answer,
//! and the body is read from the start by way of the tape (a parser that is known to be right, and a walk over its
//! tokens), which alone refuses bodies and words the refusal. So the direct pass can make a request faster but cannot
//! change what a client hears. Rules on single fields exist once, for both ways; tests hold the ways against each other.
//!
//! Nothing here performs I/O. Invariant: a [`ChatRequest`] is complete and in range; what the gateway cannot honour was
//! refused while it was made, never dropped.

pub mod anthropic;
mod cursor;
mod fault;
mod fields;
mod locate;
mod names;
mod number;
pub mod openai;
mod tape;

pub(crate) use fault::brackets;
pub use fields::Ignored;
pub use tape::Scratch;

use zerohop_engine::Conversation;

/// Which API a request speaks; the reply has the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `/v1/messages` and relatives.
    Anthropic,
    /// `/v1/chat/completions` and relatives.
    OpenAi,
}

/// A request for an answer, in either dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The dialect of the reply.
    pub dialect: Dialect,
    /// The model's name as the client wrote it; the reply repeats it.
    pub model: String,
    /// System text and turns; neighbours of one role are merged.
    pub conversation: Conversation,
    /// 0 (greedy) to 2; `None`: the default of the dialect, 1.
    pub temperature: Option<f32>,
    /// Above 0, at most 1.
    pub top_p: Option<f32>,
    /// At least 1.
    pub top_k: Option<u32>,
    /// `None`: the worker draws one.
    pub seed: Option<u64>,
    /// At least 1; `None` (OpenAI only): to the end of the context.
    pub max_tokens: Option<u32>,
    /// Stop texts, none of them empty.
    pub stop: Vec<String>,
    /// How to stream; `None`: one JSON document.
    pub stream: Option<StreamOptions>,
}

/// How a stream is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// OpenAI: a last chunk with usage. Anthropic streams always carry it.
    pub include_usage: bool,
}

/// A request for the length of a prompt (`/v1/messages/count_tokens`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountRequest {
    /// The model's name as the client wrote it.
    pub model: String,
    /// The prompt.
    pub conversation: Conversation,
}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[path = "differential_tests.rs"]
mod differential;
