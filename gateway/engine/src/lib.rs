//! Language models in ONNX Runtime, inside this process: find the library, load a model directory, and generate for
//! many sequences at once.
//!
//! The way in is [`Engine::submit`](Submit::submit) with a [`Job`]; the way out is a [`Mailbox`] of [`Mail`] for each
//! worker. This crate knows no sockets, no HTTP and no dialect.
//!
//! Invariant: the same job (prompt, sampling, seed) gives the same tokens, and the same input the same vector, alone and
//! in any batch.
// Unsafe code is in `ort_sys` alone.
#![deny(unsafe_code)]

mod admission;
mod answer;
mod batch;
mod calls;
mod cuda;
mod drawing;
mod driver;
mod encoder;
mod engine;
mod extent;
mod head;
mod history;
mod job;
mod kv;
mod logprob;
mod mask;
mod memory;
mod model;
#[allow(unsafe_code)]
mod ort_sys;
mod outbox;
mod pace;
mod prefix;
mod prep;
mod probe;
mod runtime;
mod sample;
mod sequence;
mod stats;
mod steps;
mod stop;
mod telling;

pub use answer::{AnswerError, answer};
pub use encoder::{Encoder, EncoderConfig, EncoderEngine, EncoderInfo, MAX_INPUTS};
pub use engine::{Engine, EngineConfig, EngineInfo, StartError};
pub use job::{
    Conversation, Echo, Embed, Event, Finish, Form, Generate, Input, Job, JobHandle, JobKind, Logprob, Mail, Mailbox,
    Message, Part, Prompt, Rejected, Role, Sampling, Submit, Ticket, Tool, ToolCall, ToolChoice, Tools, Usage, mailbox,
};
pub use mask::{
    Allow, Fired, Grammars, Lint, MAX_RULES, MAX_TRIGGER, Rule, RuleError, RuleFile, RuleSet, TextClass, TextSet, Walk,
    Warning, When,
};
pub use model::{Chat, Draw, Kind, Model, ModelOptions, Problem, Provider, Report, check_template_argument, inspect};
pub use probe::{MaskTime, mask_times};
pub use runtime::{FoundBy, OLDEST_MINOR, Runtime, RuntimeError};
pub use stats::{BUCKETS, Histogram, Stats};
