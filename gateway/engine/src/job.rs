//! What goes into an engine and what comes out: jobs, events, and the mailbox between an engine and a worker.
//!
//! Nothing here computes. Invariant: for each accepted job exactly one final event ([`Event::is_final`]) is delivered,
//! and nothing after it, unless the job was cancelled by dropping its [`JobHandle`]: then nothing more need come.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// The client's side.
    User,
    /// The model's side.
    Assistant,
}

/// One message as the chat template sees it. Its text is data: control tokens spelled in it stay text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: String,
}

/// A whole prompt before templating. Neighbours of one role are already merged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Conversation {
    /// In order; never empty. If the last one is the assistant's, the model continues it.
    pub messages: Vec<Message>,
}

/// How the next token is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many most probable tokens; `None` keeps all.
    pub top_k: Option<u32>,
    /// Seed of this job's own random stream.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            seed: 0,
        }
    }
}

/// Chosen by the submitter, returned with every event of the job; the engine does not look into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// What is wanted of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum JobKind {
    /// Only its length in tokens: [`Event::Counted`].
    Count,
    /// An answer.
    Generate {
        /// How to draw.
        sampling: Sampling,
        /// Stop after this many tokens; `None`: until the context is full.
        max_tokens: Option<u32>,
        /// Texts at which to stop; none of them is part of the answer. None is empty.
        stop: Vec<String>,
    },
}

/// A unit of work for an engine.
#[derive(Debug)]
pub struct Job {
    /// Comes back with each event.
    pub ticket: Ticket,
    /// Index of the mailbox (that is, of the worker) to which the events go.
    pub mailbox: usize,
    /// The prompt.
    pub conversation: Conversation,
    /// What is wanted.
    pub kind: JobKind,
}

/// Why a job was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull {
        /// When a place is expected to be free, from the measured service time and the length of the queue.
        retry_after: Duration,
    },
    /// The engine is stopping or has failed.
    #[error("the engine is not running")]
    NotRunning,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    EndOfTurn,
    /// This stop text was found.
    Stop(String),
    /// `max_tokens` were generated.
    MaxTokens,
    /// The model's context is full.
    ContextFull,
}

/// Tokens that a job used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Of the prompt, cached ones included.
    pub input_tokens: u32,
    /// Of the prompt, taken from the prefix cache.
    pub cached_tokens: u32,
    /// Generated, the end token not counted.
    pub output_tokens: u32,
}

/// What happens to a job, in order: `Started`, any number of `Text`, `Finished`; or `Counted`; or `TooLong` or `Failed`
/// at any point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The prompt was computed; the first token follows.
    Started {
        /// Length of the prompt.
        input_tokens: u32,
        /// How much of it came from the prefix cache.
        cached_tokens: u32,
        /// From acceptance to the start of the first prefill chunk.
        queued: Duration,
    },
    /// More of the answer; never empty, never cut inside a character.
    Text {
        /// The text.
        text: String,
        /// How many tokens it stands for (several when deltas were joined).
        tokens: u32,
    },
    /// The answer is complete.
    Finished {
        /// Why.
        finish: Finish,
        /// What it used.
        usage: Usage,
    },
    /// Answer to [`JobKind::Count`].
    Counted {
        /// Length of the prompt.
        input_tokens: u32,
    },
    /// The prompt does not fit.
    TooLong {
        /// Length of the prompt; of a very long one a lower bound.
        input_tokens: u32,
        /// What would fit.
        limit: u32,
    },
    /// The prompt cannot be rendered by this model's chat template.
    Unrenderable {
        /// The template's own message.
        reason: String,
    },
    /// The engine failed; the reason is for the log.
    Failed {
        /// For the operator.
        reason: String,
    },
}

impl Event {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Started { .. } | Self::Text { .. })
    }
}

/// An event on its way to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Of which job.
    pub ticket: Ticket,
    /// What happened.
    pub event: Event,
    /// When, by the engine: for `Started` when the prompt's computing began, else when the event was made (of joined
    /// deltas the last). For durations only, which are then the engine's own, whenever the worker reads the mail.
    pub at: Instant,
}

/// The submitter's hold on a job. Dropping it cancels the job: the engine stops at its next token.
#[derive(Debug)]
pub struct JobHandle {
    cancelled: Arc<AtomicBool>,
}

impl JobHandle {
    /// A handle and the flag that it raises when dropped.
    #[must_use]
    pub fn new() -> (Self, Arc<AtomicBool>) {
        let cancelled = Arc::new(AtomicBool::new(false));
        (
            Self {
                cancelled: Arc::clone(&cancelled),
            },
            cancelled,
        )
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Release);
    }
}

/// Where jobs are handed in. The product's maker is [`crate::Engine`]; a simulation scripts its own.
pub trait Submit: Send + Sync {
    /// Hands a job in. Never blocks: everything that takes time happens in the engine's threads.
    ///
    /// # Errors
    /// [`Rejected`], with nothing kept of the job and no event to come.
    fn submit(&self, job: Job) -> Result<JobHandle, Rejected>;
}

/// The engine's end of the ring to one worker: one producer, one consumer, bounded. When it is full the engine keeps
/// the events with their sequence (deltas are joined) and tries again at its next step; it never waits.
pub struct Mailbox {
    /// Where mail goes.
    pub mail: rtrb::Producer<Mail>,
    /// Wakes the worker; called once for a batch of mail.
    pub wake: Box<dyn Fn() + Send>,
}

/// A mailbox with room for `capacity` mails, and the worker's end of it.
#[must_use]
pub fn mailbox(capacity: usize, wake: Box<dyn Fn() + Send>) -> (Mailbox, rtrb::Consumer<Mail>) {
    let (mail, receive) = rtrb::RingBuffer::new(capacity);
    (Mailbox { mail, wake }, receive)
}
