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
    /// The result of a call that the model asked for.
    Tool,
}

/// One message as the chat template sees it. Its text is data: control tokens spelled in it stay text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: String,
    /// Of an assistant: the calls that it made behind the text.
    pub calls: Vec<ToolCall>,
    /// Of a tool: the id of the call whose result this is.
    pub call_id: Option<String>,
}

impl Message {
    /// A message of text alone.
    #[must_use]
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            calls: Vec::new(),
            call_id: None,
        }
    }
}

/// A call of a tool in an earlier answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolCall {
    /// Its id, as the client repeats it.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tool {
    /// Unique in its request; never empty.
    pub name: String,
    /// For the model; may be empty.
    pub description: String,
    /// The JSON Schema of its arguments, as text, byte for byte the client's.
    pub parameters: String,
    /// Refuse a schema that cannot be guaranteed, instead of guaranteeing as much as can be.
    pub strict: bool,
}

/// Whether tools are called.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None is called.
    None,
    /// At least one is called.
    Required,
    /// This one is called, once.
    Named(String),
}

/// The tools of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tools {
    /// In the client's order.
    pub list: Vec<Tool>,
    /// Whether they are called.
    pub choice: ToolChoice,
    /// Whether one answer may hold several calls.
    pub parallel: bool,
}

impl Tools {
    /// Bytes of all that a client wrote into them.
    pub(crate) fn bytes(&self) -> usize {
        let tool = |tool: &Tool| tool.name.len() + tool.description.len() + tool.parameters.len();
        self.list.iter().map(tool).sum()
    }
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            choice: ToolChoice::Auto,
            parallel: true,
        }
    }
}

/// A whole prompt before templating. Neighbours of one role are already merged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Conversation {
    /// In order; never empty. If the last one is the assistant's, the model continues it.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Tools,
    /// What the chat template is told beside them: a JSON object as text, each of whose names [`check_template_argument`]
    /// takes. Empty: nothing.
    ///
    /// [`check_template_argument`]: crate::check_template_argument
    pub template_arguments: String,
}

impl Conversation {
    /// Bytes of all that a client wrote into it.
    pub(crate) fn bytes(&self) -> usize {
        let call = |call: &ToolCall| call.id.len() + call.name.len() + call.arguments.len();
        let message = |message: &Message| message.content.len() + message.calls.iter().map(call).sum::<usize>();
        let messages = self.messages.iter().map(message).sum::<usize>();
        messages + self.tools.bytes() + self.template_arguments.len()
    }
}

impl From<Vec<Message>> for Conversation {
    fn from(messages: Vec<Message>) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }
}

/// What a model answers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Prompt {
    /// Messages, to be written by the model's chat template.
    Chat(Conversation),
    /// Text to be continued as it stands, behind the token that begins a text if the model has one.
    Text(String),
    /// Tokens to be continued as they stand. Never empty.
    Tokens(Vec<u32>),
}

/// What form the text of an answer must have. Every form is guaranteed, unless the answer is cut short.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// Any text.
    #[default]
    Free,
    /// A JSON object.
    Object,
    /// JSON by this schema (JSON Schema 2020-12, as text).
    Schema(String),
    /// Text that this regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Text that this Lark grammar produces.
    Grammar(String),
}

/// How the next token is drawn. The order: bias and penalties on the logits, the mask, temperature, then `top_k`,
/// `top_p` and `min_p` on the probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many most probable tokens; `None` keeps all.
    pub top_k: Option<u32>,
    /// Keep tokens at least this probable, relative to the most probable one; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that the prompt or the answer has; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Subtracted from a token's logit for each time that the answer has it.
    pub frequency_penalty: f32,
    /// Subtracted from a token's logit if the answer has it.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens; each id at most once.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of this job's own random stream.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// Whether the prompt is part of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Echo {
    /// It is not.
    #[default]
    None,
    /// Its text is, with the log probabilities of its tokens if those are asked for.
    Prompt,
}

/// What an answer is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Generate {
    /// What it answers.
    pub prompt: Prompt,
    /// How to draw.
    pub sampling: Sampling,
    /// Stop after this many tokens; `None`: when the context is full.
    pub max_tokens: Option<u32>,
    /// Before this many tokens neither an end token nor a stop token is drawn, unless the form of the answer leaves nothing
    /// else, and stop texts do not count: the text of these tokens is not searched.
    pub min_tokens: u32,
    /// Texts at which to stop; none of them is part of the answer. None is empty.
    pub stop: Vec<String>,
    /// Tokens at which to stop, beside the model's own; none of them is part of the answer.
    pub stop_tokens: Vec<u32>,
    /// The model's own end tokens do not stop it.
    pub ignore_eos: bool,
    /// The form of the answer's text; does not bind calls of tools.
    pub form: Form,
    /// Tell the log probability of each token, and of this many most probable ones beside it.
    pub logprobs: Option<u32>,
    /// Whether the prompt is told as well.
    pub echo: Echo,
}

impl Generate {
    /// A free answer of any length, by the defaults.
    #[must_use]
    pub fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            sampling: Sampling::default(),
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            ignore_eos: false,
            form: Form::Free,
            logprobs: None,
            echo: Echo::None,
        }
    }
}

/// What is turned into vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Embed {
    /// One vector each: texts or tokens. Never empty.
    pub inputs: Vec<Input>,
    /// Keep this many of a vector's numbers, for models that allow it; `None` keeps all.
    pub dimensions: Option<u32>,
}

/// One input of [`Embed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Text, to be tokenised as the model wants it.
    Text(String),
    /// Tokens as they are.
    Tokens(Vec<u32>),
}

/// Chosen by the submitter, returned with every event of the job; the engine does not look into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub enum JobKind {
    /// Only the length of a prompt in tokens: [`Event::Counted`].
    Count(Conversation),
    /// An answer.
    Generate(Box<Generate>),
    /// Vectors: [`Event::Embedded`].
    Embed(Embed),
}

/// A unit of work for an engine.
#[derive(Debug)]
pub struct Job {
    /// Comes back with each event.
    pub ticket: Ticket,
    /// Index of the mailbox (that is, of the worker) to which the events go.
    pub mailbox: usize,
    /// What is wanted.
    pub kind: JobKind,
    /// Give up with [`Event::TimedOut`] when it is not done by then; `None`: the engine's own limit alone.
    pub deadline: Option<Instant>,
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
    /// This stop token was drawn.
    StopToken(u32),
    /// Tools are called, and their results are waited for.
    ToolCalls,
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

/// A token with its log probability under the model, before penalties, masks and temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprob {
    /// Which.
    pub token: u32,
    /// The bytes that it stands for; perhaps part of a character, perhaps none.
    pub bytes: Vec<u8>,
    /// Natural logarithm, at most 0, and -9999 where the model gives the token no probability; `None` for the first token
    /// of a prompt, which nothing precedes.
    pub logprob: Option<f32>,
    /// The most probable tokens, best first.
    pub top: Vec<(u32, Vec<u8>, f32)>,
}

/// What of a request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The messages: the chat template refuses them.
    Messages,
    /// The text or tokens of a prompt that is no conversation, or the inputs to be embedded.
    Prompt,
    /// The form of the answer.
    Form,
    /// The schema of the tool at this index.
    Tool(usize),
    /// The tool that is to be called.
    ToolChoice,
    /// What the chat template is told beside messages and tools.
    TemplateArguments,
    /// A biased token.
    LogitBias,
    /// A stop token.
    StopTokens,
    /// The length of a vector.
    Dimensions,
    /// The model: it makes no answers, or no vectors.
    Model,
}

/// What happens to a job, in order: `Started`, perhaps `Echo`, any number of `Text`, then perhaps of `Call` and its
/// `Arguments`, `Finished`; or `Counted` or `Embedded`; or `TooLong`, `Refused`, `TimedOut` or `Failed` at any point.
#[derive(Debug, Clone, PartialEq)]
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
    /// The prompt, if it was asked for.
    Echo {
        /// Its text.
        text: String,
        /// Of all its tokens, if they were asked for.
        logprobs: Vec<Logprob>,
    },
    /// More of the answer; never empty, never cut inside a character.
    Text {
        /// The text.
        text: String,
        /// How many tokens it stands for (several when deltas were joined): those of which some text is out by now, and was
        /// not before. Tokens whose text a stop text has cut away are in none.
        tokens: u32,
        /// Of these tokens, if they were asked for.
        logprobs: Vec<Logprob>,
    },
    /// A call of a tool begins; what follows is its arguments.
    Call {
        /// Which tool; one of the request's.
        name: String,
    },
    /// More of the arguments of the call. All of a call together are one JSON object, unless the answer is cut short.
    Arguments {
        /// Part of a JSON text.
        text: String,
        /// How many tokens it stands for.
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
    /// Answer to [`JobKind::Embed`].
    Embedded {
        /// One for each input, in order; each of length 1.
        vectors: Vec<Vec<f32>>,
        /// Of all inputs together.
        input_tokens: u32,
    },
    /// The prompt does not fit.
    TooLong {
        /// Length of the prompt; of a very long one a lower bound.
        input_tokens: u32,
        /// What would fit.
        limit: u32,
    },
    /// This model cannot serve the request, whoever asks and whenever: the client's fault.
    Refused {
        /// What is at fault.
        part: Part,
        /// In words, for the client.
        reason: String,
    },
    /// The deadline passed.
    TimedOut,
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
        !matches!(
            self,
            Self::Started { .. } | Self::Echo { .. } | Self::Text { .. } | Self::Call { .. } | Self::Arguments { .. }
        )
    }
}

/// An event on its way to a worker.
#[derive(Debug, Clone, PartialEq)]
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
