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
pub mod embeddings;
mod fault;
mod fields;
mod locate;
mod names;
mod number;
pub mod openai;
mod prompt;
mod source;
mod tape;
mod wishes;

pub use embeddings::{EmbedRequest, VectorFormat};
pub(crate) use fault::brackets;
pub use fields::Ignored;
pub(crate) use locate::is_object;
pub use tape::Scratch;
pub(crate) use tape::{Entries, Json, Value};
pub use wishes::MAX_CHOICES;

use std::borrow::Cow;

use zerohop_engine::{Conversation, Form, Part};

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
    /// `None` (OpenAI only): to the end of the context. 0 (Anthropic only): the prompt is computed and nothing said.
    pub max_tokens: Option<u32>,
    /// Stop texts, none of them empty.
    pub stop: Vec<String>,
    /// How to stream; `None`: one JSON document.
    pub stream: Option<StreamOptions>,
    /// What few requests ask for; `None`: nothing of it.
    pub extras: Option<Box<Extras>>,
}

/// What few requests ask for. The default asks for nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Extras {
    /// Answers to the one prompt, 1 to [`MAX_CHOICES`].
    pub choices: u32,
    /// 0 to 1; 0 keeps all.
    pub min_p: f32,
    /// 0.01 to 2; 1 changes nothing.
    pub repetition_penalty: f32,
    /// -2 to 2.
    pub frequency_penalty: f32,
    /// -2 to 2.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens, -100 to 100; each id at most once, in rising order.
    pub logit_bias: Vec<(u32, f32)>,
    /// At most `max_tokens`.
    pub min_tokens: u32,
    /// Tokens at which to stop.
    pub stop_tokens: Vec<u32>,
    /// The model's own end tokens do not stop it.
    pub ignore_eos: bool,
    /// Tell log probabilities, with this many most probable tokens (0 to 20) beside each.
    pub logprobs: Option<u32>,
    /// The form of the answer.
    pub form: Form,
    /// Where in the body what an engine may refuse stands.
    pub places: Places,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            choices: 1,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            min_tokens: 0,
            stop_tokens: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            form: Form::Free,
            places: Places::default(),
        }
    }
}

/// Where in the body of a request something stands that only an engine can judge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// The path of the form, with dots; empty if there is none.
    pub form: &'static str,
    /// The index in the body of each tool, if not all tools of the body are offered.
    pub tools: Vec<usize>,
    /// The tools came as `functions`, so the answer tells its call as `function_call`.
    pub functions: bool,
}

impl Places {
    /// Where the choice among the tools stands.
    #[must_use]
    pub fn tool_choice(&self) -> &'static str {
        match self.functions {
            true => "function_call",
            false => "tool_choice",
        }
    }

    /// The path of what an engine refused, with dots.
    #[must_use]
    pub fn path(&self, part: Part, dialect: Dialect) -> Cow<'static, str> {
        match part {
            Part::Messages => "messages".into(),
            Part::Prompt => "prompt".into(),
            Part::Form => self.form.into(),
            Part::Tool(index) => {
                let index = self.tools.get(index).copied().unwrap_or(index);
                match dialect {
                    Dialect::OpenAi if self.functions => format!("functions.{index}.parameters").into(),
                    Dialect::Anthropic => format!("tools.{index}.input_schema").into(),
                    Dialect::OpenAi => format!("tools.{index}.function.parameters").into(),
                }
            }
            Part::ToolChoice => self.tool_choice().into(),
            Part::TemplateArguments => "chat_template_kwargs".into(),
            Part::LogitBias => "logit_bias".into(),
            Part::StopTokens => "stop_token_ids".into(),
            Part::Dimensions => "dimensions".into(),
            Part::Model => "model".into(),
        }
    }
}

/// How a stream is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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

/// What every request for a model says.
pub trait Asks {
    /// The model's name as the client wrote it.
    fn model(&self) -> &str;
    /// Whether the reply is a stream.
    fn streams(&self) -> bool {
        false
    }
}

impl Asks for ChatRequest {
    fn model(&self) -> &str {
        &self.model
    }
    fn streams(&self) -> bool {
        self.stream.is_some()
    }
}

impl Asks for openai::CompletionRequest {
    fn model(&self) -> &str {
        &self.model
    }
    fn streams(&self) -> bool {
        self.stream.is_some()
    }
}

impl Asks for CountRequest {
    fn model(&self) -> &str {
        &self.model
    }
}

impl Asks for EmbedRequest {
    fn model(&self) -> &str {
        &self.model
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[path = "differential_tests.rs"]
mod differential;
