//! Engine events to reply bytes, in the dialect of the request.
//!
//! A [`Reply`] is a small state machine that appends to the worker's send buffer; it sends nothing and reads no clock.
//! The text of an answer is escaped once, as it comes, and both dialects put the same escaped bytes between their own
//! prepared head and foot. Invariants: nothing is written before the engine has begun, so that a fault until then has a
//! status of its own; after [`Progress::Done`] or [`Progress::DoneClose`] nothing more is written.

mod anthropic;
mod choice;
mod completions;
pub mod embeddings;
mod logprobs;
pub mod models;
mod note;
mod openai;
pub mod stored;

pub use self::{completions::CompletionReply, note::CacheNote};

use zerohop_engine::{Event, Part, Usage};

use self::choice::{Choice, Saying, Words};
use crate::{
    api::{Dialect, Places, StreamOptions, VectorFormat, brackets},
    date::HttpDate,
    error::{ApiError, ErrorKind},
    http::{
        Chunk, ReplyHead, RequestId, StreamFraming, Version,
        request_id::{IdSource, base62},
        write::{stream_head, whole_with},
    },
    json::Writer,
};

const JSON: &str = "application/json";

/// What a reply takes from its request's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The request's version.
    pub version: Version,
    /// Whether the connection may go on after the reply.
    pub keep_alive: bool,
    /// The request was `HEAD`.
    pub head_only: bool,
    /// Sent in the headers, and in the body where the dialect has a place for it.
    pub request_id: RequestId,
}

impl Connection {
    /// Appends a whole JSON reply; `fill` appends the body.
    pub fn json(&self, status: u16, date: &HttpDate, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) -> Progress {
        self.json_noted(status, date, &[], out, fill)
    }

    /// The same, with further fields in the head.
    fn json_noted(
        &self,
        status: u16,
        date: &HttpDate,
        extra: &[(&str, &str)],
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Progress {
        whole_with(out, &self.head(status, date, extra), JSON, fill);
        self.after()
    }

    /// Appends a whole error reply.
    pub fn error(&self, error: &ApiError, dialect: Dialect, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let headers = error.headers();
        let extra: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        whole_with(out, &self.head(error.status(), date, &extra), JSON, |out| {
            error.body(dialect, &self.request_id, out);
        });
        self.after()
    }

    /// The head of a reply with this status.
    #[must_use]
    pub fn head<'a>(&'a self, status: u16, date: &'a HttpDate, extra: &'a [(&'a str, &'a str)]) -> ReplyHead<'a> {
        ReplyHead {
            status,
            request_id: &self.request_id,
            date,
            version: self.version,
            keep_alive: self.keep_alive,
            head_only: self.head_only,
            extra,
        }
    }

    fn after(&self) -> Progress {
        if self.keep_alive {
            Progress::Done
        } else {
            Progress::DoneClose
        }
    }
}

/// Where a reply stands after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Events are still to come.
    More,
    /// The reply is complete; the connection goes on.
    Done,
    /// The reply is complete or broken off; close the connection when these bytes are sent.
    DoneClose,
}

/// What a reply is told of its request.
#[derive(Debug, Clone)]
pub struct ReplyMeta {
    /// Whose shapes.
    pub dialect: Dialect,
    /// 128 bits that name the answer: `msg_…`, `chatcmpl-…`.
    pub id: (u64, u64),
    /// The model's name as the client wrote it.
    pub model: String,
    /// Which build of the model answers; OpenAI's `system_fingerprint` is made of it.
    pub model_version: String,
    /// Now, in seconds since 1970.
    pub created: u64,
    /// How to stream; `None`: one document.
    pub stream: Option<StreamOptions>,
    /// Answers to the one prompt, at least 1; more than that in the OpenAI dialect only.
    pub choices: u32,
    /// Log probabilities are told (OpenAI only).
    pub logprobs: bool,
    /// Where in the request stands what an engine may refuse.
    pub places: Places,
    /// Where it goes.
    pub connection: Connection,
}

impl ReplyMeta {
    /// The answer's id with this prefix.
    fn write_id(&self, writer: &mut Writer<'_>, prefix: &str) {
        write_id(self.id, writer, prefix);
    }
}

/// An id with this prefix.
fn write_id(id: (u64, u64), writer: &mut Writer<'_>, prefix: &str) {
    writer.raw("\"").raw(prefix).raw(base62(id.0, id.1)).raw("\"");
}

/// How far a reply has come.
#[derive(Debug)]
enum State {
    /// Nothing is written.
    Waiting,
    /// A document: nothing is written, the text is being gathered.
    Gathering,
    /// A stream: its head is out.
    Streaming(StreamFraming),
    /// Everything is written; this is how it ended.
    Over(Progress),
}

/// A reply in the making.
#[derive(Debug)]
pub struct Reply {
    meta: ReplyMeta,
    state: State,
    choices: Vec<Choice>,
    /// What all answers that are complete have used, with the prompt once.
    usage: Option<Usage>,
    /// What every chunk of an OpenAI stream begins with.
    chunk_head: Vec<u8>,
    /// Of a reply that is vectors: how they are written, and about how many bytes they will take.
    vectors: Option<(VectorFormat, usize)>,
    /// What the head tells of the cache of answers.
    note: CacheNote,
}

impl Reply {
    /// A reply to which nothing has happened.
    #[must_use]
    pub fn new(meta: ReplyMeta) -> Self {
        Self {
            state: State::Waiting,
            choices: (0..meta.choices).map(|_| Choice::default()).collect(),
            usage: None,
            chunk_head: Vec::new(),
            meta,
            vectors: None,
            note: CacheNote::NONE,
        }
    }

    /// The same, for vectors that will take about `bytes`.
    #[must_use]
    pub fn of_vectors(meta: ReplyMeta, format: VectorFormat, bytes: usize) -> Self {
        Self {
            vectors: Some((format, bytes)),
            ..Self::new(meta)
        }
    }

    /// Has the head of an answer tell this of the cache; errors tell nothing of it. Without effect once the head is out.
    pub fn tell(&mut self, note: CacheNote) {
        self.note = note;
    }

    /// Forgets what an engine told of an answer that is to be made anew; false if some of it has left already.
    #[must_use]
    pub fn begin_again(&mut self) -> bool {
        if !matches!(self.state, State::Waiting | State::Gathering) {
            return false;
        }
        self.state = State::Waiting;
        self.choices = (0..self.meta.choices).map(|_| Choice::default()).collect();
        self.usage = None;
        true
    }

    /// What names the call that began last, of a reply of one answer.
    fn last_call(&self) -> Option<(u64, u64)> {
        let choice = self.choices.last()?;
        choice.calls.last().map(|call| call.id)
    }

    /// Whether the reply's head is on its way, so that a fault can no longer have a status.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        matches!(self.state, State::Streaming(_))
    }

    /// Appends what this event adds to the reply, of the answer with this index. Any number of events may be appended
    /// before the buffer is sent. Calls of tools get their ids from `ids`.
    pub fn on(
        &mut self,
        index: usize,
        event: &Event,
        ids: &mut IdSource,
        date: &HttpDate,
        out: &mut Vec<u8>,
    ) -> Progress {
        let takes = self.choices.get(index).is_some_and(|choice| choice.takes(event));
        let progress = match (event, &self.state) {
            (_, &State::Over(end)) => end,
            (
                &Event::Started {
                    input_tokens,
                    cached_tokens,
                    ..
                },
                _,
            ) if takes => {
                let usage = Usage {
                    input_tokens,
                    cached_tokens,
                    output_tokens: 0,
                };
                self.start(index, usage, date, out)
            }
            (Event::Finished { .. }, _) if takes => self.finish(index, event, date, out),
            (_, State::Gathering) if takes => {
                let choice = &mut self.choices[index];
                if let Event::Call { name } = event {
                    choice.call(name, ids.bits());
                }
                choice.gather(event, self.meta.logprobs);
                Progress::More
            }
            (_, &State::Streaming(framing)) if takes => self.delta(index, event, ids, framing, out),
            (&Event::Counted { input_tokens }, State::Waiting) => self.meta.connection.json(200, date, out, |out| {
                Writer(out).raw(r#"{"input_tokens":"#).number(input_tokens).raw("}");
            }),
            (Event::Embedded { vectors, input_tokens }, State::Waiting) if self.vectors.is_some() => {
                let format = self.vectors.take().map(|(format, _)| format).unwrap_or_default();
                self.meta.connection.json(200, date, out, |out| {
                    embeddings::document(&self.meta, vectors, format, *input_tokens, out);
                })
            }
            (fault, _) => {
                let error = self.fault(fault);
                self.fail(&error, date, out)
            }
        };
        if progress != Progress::More {
            self.state = State::Over(progress);
        }
        progress
    }

    /// What the client hears of an event that is no part of an answer.
    #[cold]
    fn fault(&self, event: &Event) -> ApiError {
        let embeds = self.vectors.is_some();
        match event {
            &Event::TooLong { input_tokens, limit } if embeds => {
                let message = format!(
                    "This model's maximum context length is {limit} tokens. However, one of your inputs has \
                     {input_tokens} tokens. Please reduce the length of the inputs."
                );
                ApiError::new(ErrorKind::ContextLength, message).at("input")
            }
            Event::Refused { part, reason } if embeds => {
                let place = match part {
                    Part::Model => "model",
                    Part::Dimensions => "dimensions",
                    _ => "input",
                };
                let message = match self.meta.dialect {
                    Dialect::Anthropic => format!("{place}: {reason}"),
                    Dialect::OpenAi => format!("Invalid '{place}': {reason}."),
                };
                ApiError::new(ErrorKind::InvalidRequest, message).at(place)
            }
            &Event::TooLong { input_tokens, limit } => {
                ApiError::prompt_too_long(self.meta.dialect, input_tokens, limit)
            }
            Event::Refused { part, reason } => self.refused(*part, reason),
            Event::TimedOut => ApiError::new(ErrorKind::Deadline, "the answer was not complete in time"),
            // The engine's reason is for the log. An order of events that it promises not to send is its fault as well.
            Event::Failed { .. }
            | Event::Started { .. }
            | Event::Echo { .. }
            | Event::Text { .. }
            | Event::Call { .. }
            | Event::Arguments { .. }
            | Event::Embedded { .. }
            | Event::Finished { .. }
            | Event::Counted { .. } => ApiError::new(ErrorKind::Internal, "Internal server error"),
        }
    }

    /// What cannot be served, told at its place in the request.
    fn refused(&self, part: Part, reason: &str) -> ApiError {
        let path = self.meta.places.path(part, self.meta.dialect);
        // A form that the client did not ask for is that of its tools' calls.
        let path = if path.is_empty() { "tools".into() } else { path };
        let message = match self.meta.dialect {
            Dialect::Anthropic => format!("{path}: {reason}"),
            Dialect::OpenAi => format!("Invalid '{}': {reason}", brackets(&path)),
        };
        ApiError::new(ErrorKind::InvalidRequest, message).at(path)
    }

    /// Ends the reply with an error: a document with a status while nothing is written, an error event after that. A
    /// broken stream is not ended as a whole one would be.
    pub fn fail(&mut self, error: &ApiError, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let end = match self.state {
            State::Over(end) => end,
            State::Waiting | State::Gathering => self.meta.connection.error(error, self.meta.dialect, date, out),
            State::Streaming(framing) => {
                let mut chunk = Chunk::open(out, framing);
                let fill = |out: &mut Vec<u8>| error.body(self.meta.dialect, &self.meta.connection.request_id, out);
                match self.meta.dialect {
                    Dialect::Anthropic => chunk.event_with("error", fill),
                    Dialect::OpenAi => chunk.data_with(fill),
                }
                Progress::DoneClose
            }
        };
        self.state = State::Over(end);
        end
    }

    /// Bytes of the answer that are kept until it is told, or that it will take.
    #[must_use]
    pub fn held(&self) -> usize {
        self.choices.iter().map(Choice::held).sum::<usize>() + self.promised()
    }

    /// Bytes that vectors will take when they come.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.vectors.map_or(0, |(_, bytes)| bytes)
    }

    /// Appends what keeps a silent stream alive: `ping` or a comment. Nothing in any other state.
    pub fn keep_alive(&self, out: &mut Vec<u8>) {
        if let State::Streaming(framing) = self.state {
            let mut chunk = Chunk::open(out, framing);
            match self.meta.dialect {
                Dialect::Anthropic => anthropic::ping(&mut chunk),
                Dialect::OpenAi => chunk.comment("keep-alive"),
            }
        }
    }

    fn start(&mut self, index: usize, usage: Usage, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        self.choices[index].begin();
        let Some(options) = self.meta.stream else {
            self.state = State::Gathering;
            return Progress::More;
        };
        let framing = match self.state {
            State::Streaming(framing) => framing,
            _ => stream_head(out, &self.meta.connection.head(200, date, &self.note.text().fields())),
        };
        self.state = State::Streaming(framing);
        let mut chunk = Chunk::open(out, framing);
        match self.meta.dialect {
            Dialect::Anthropic => anthropic::start(&self.meta, usage, &mut chunk),
            Dialect::OpenAi => {
                if self.chunk_head.is_empty() {
                    self.chunk_head = openai::chunk_head(&self.meta);
                }
                let functions = self.meta.places.functions;
                openai::Stream::new(&self.chunk_head, options, functions, index).start(&mut chunk);
            }
        }
        Progress::More
    }

    fn delta(
        &mut self,
        index: usize,
        event: &Event,
        ids: &mut IdSource,
        framing: StreamFraming,
        out: &mut Vec<u8>,
    ) -> Progress {
        let (options, functions) = (self.options(), self.meta.places.functions);
        let choice = &mut self.choices[index];
        let mut chunk = Chunk::open(out, framing);
        match (self.meta.dialect, event) {
            (Dialect::Anthropic, Event::Text { text, .. }) => anthropic::text(Words::Plain(text), choice, &mut chunk),
            (Dialect::Anthropic, Event::Call { name }) => anthropic::call(name, ids.bits(), choice, &mut chunk),
            (Dialect::Anthropic, Event::Arguments { text, .. }) => {
                anthropic::arguments(Words::Plain(text), choice, &mut chunk)
            }
            (Dialect::OpenAi, Event::Text { text, logprobs, .. }) => {
                let logprobs = self.meta.logprobs.then_some(&**logprobs);
                openai::Stream::new(&self.chunk_head, options, functions, index).text(
                    Words::Plain(text),
                    logprobs,
                    &mut chunk,
                );
                choice.saying = Saying::Text;
            }
            (Dialect::OpenAi, Event::Call { name }) => {
                choice.call(name, ids.bits());
                openai::Stream::new(&self.chunk_head, options, functions, index).call(&choice.calls, &mut chunk);
            }
            (Dialect::OpenAi, Event::Arguments { text, .. }) => {
                openai::Stream::new(&self.chunk_head, options, functions, index).arguments(
                    Words::Plain(text),
                    &choice.calls,
                    &mut chunk,
                );
            }
            // No other event is taken here.
            _ => {}
        }
        Progress::More
    }

    /// An answer is complete; the reply is when all are.
    fn finish(&mut self, index: usize, event: &Event, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let Event::Finished { finish, usage } = event else {
            return Progress::More;
        };
        self.choices[index].finish = Some(finish.clone());
        let usage = *self.usage.insert(match self.usage {
            None => *usage,
            // Each of them computed the prompt, or found it in the cache when another had: it is counted once, and so
            // is as much of it as none had to compute.
            Some(all) => Usage {
                input_tokens: all.input_tokens.max(usage.input_tokens),
                cached_tokens: all.cached_tokens.min(usage.cached_tokens),
                output_tokens: all.output_tokens.saturating_add(usage.output_tokens),
            },
        });
        let whole = self.choices.iter().all(|choice| choice.finish.is_some());
        match self.state {
            State::Streaming(framing) => {
                let choice = &self.choices[index];
                let mut chunk = Chunk::open(out, framing);
                match self.meta.dialect {
                    Dialect::Anthropic => anthropic::finish(finish, usage, choice, &mut chunk),
                    Dialect::OpenAi => {
                        let stream =
                            openai::Stream::new(&self.chunk_head, self.options(), self.meta.places.functions, index);
                        stream.finish(finish, &mut chunk);
                        if whole {
                            stream.end(usage, &mut chunk);
                        }
                    }
                }
                if !whole {
                    return Progress::More;
                }
                chunk.close_last();
                match framing {
                    StreamFraming::UntilClose => Progress::DoneClose,
                    StreamFraming::Chunked | StreamFraming::NoBody => self.meta.connection.after(),
                }
            }
            _ if whole => self.document(usage, date, out),
            _ => Progress::More,
        }
    }

    fn document(&mut self, usage: Usage, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let choices = std::mem::take(&mut self.choices);
        out.reserve(choices.iter().map(Choice::held).sum::<usize>() + 2048);
        let note = self.note.text();
        self.meta
            .connection
            .json_noted(200, date, &note.fields(), out, |out| match self.meta.dialect {
                Dialect::Anthropic => anthropic::document(&self.meta, &choices, usage, out),
                Dialect::OpenAi => openai::document(&self.meta, &choices, usage, out),
            })
    }

    fn options(&self) -> StreamOptions {
        self.meta.stream.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
