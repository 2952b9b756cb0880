//! Engine events to reply bytes, in the dialect of the request.
//!
//! A [`Reply`] is a small state machine that appends to the worker's send buffer; it sends nothing and reads no clock.
//! The text of an answer is escaped once, as it comes, and both dialects put the same escaped bytes between their own
//! prepared head and foot. Invariants: nothing is written before the engine has begun, so that a fault until then has a
//! status of its own; after [`Progress::Done`] or [`Progress::DoneClose`] nothing more is written.

mod anthropic;
pub mod models;
mod openai;

use zerohop_engine::{Event, Finish, Usage};

use crate::{
    api::{Dialect, StreamOptions},
    date::HttpDate,
    error::{ApiError, ErrorKind},
    http::{
        Chunk, ReplyHead, RequestId, StreamFraming, Version,
        request_id::base62,
        write::{stream_head, whole_with},
    },
    json::{self, Writer},
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
        whole_with(out, &self.head(status, date, &[]), JSON, fill);
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
    /// Where it goes.
    pub connection: Connection,
}

impl ReplyMeta {
    /// The answer's id with this prefix.
    fn write_id(&self, writer: &mut Writer<'_>, prefix: &str) {
        writer.raw("\"").raw(prefix).raw(base62(self.id.0, self.id.1)).raw("\"");
    }
}

/// How far a reply has come.
#[derive(Debug)]
enum State {
    /// Nothing is written.
    Waiting,
    /// A document: nothing is written, the text is being gathered.
    Gathering,
    /// A stream: its head is out.
    Streaming {
        framing: StreamFraming,
        /// Whether text was sent.
        begun: bool,
    },
    /// Everything is written; this is how it ended.
    Over(Progress),
}

/// A reply in the making.
#[derive(Debug)]
pub struct Reply {
    meta: ReplyMeta,
    state: State,
    /// The escaped text of a document so far.
    text: Vec<u8>,
    /// What every chunk of an OpenAI stream begins with.
    chunk_head: Vec<u8>,
}

impl Reply {
    /// A reply to which nothing has happened.
    #[must_use]
    pub fn new(meta: ReplyMeta) -> Self {
        Self {
            meta,
            state: State::Waiting,
            text: Vec::new(),
            chunk_head: Vec::new(),
        }
    }

    /// Whether the reply's head is on its way, so that a fault can no longer have a status.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        matches!(self.state, State::Streaming { .. })
    }

    /// Appends what this event adds to the reply. Any number of events may be appended before the buffer is sent.
    pub fn on(&mut self, event: &Event, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let progress = match (event, &self.state) {
            (_, &State::Over(end)) => end,
            (
                &Event::Started {
                    input_tokens,
                    cached_tokens,
                    ..
                },
                State::Waiting,
            ) => {
                let usage = Usage {
                    input_tokens,
                    cached_tokens,
                    output_tokens: 0,
                };
                self.start(usage, date, out)
            }
            (Event::Text { text, .. }, State::Gathering) => {
                json::escaped(&mut self.text, text);
                Progress::More
            }
            (Event::Text { text, .. }, &State::Streaming { framing, begun }) => self.delta(text, framing, begun, out),
            (Event::Finished { finish, usage }, State::Gathering) => self.document(finish, *usage, date, out),
            (Event::Finished { finish, usage }, &State::Streaming { framing, begun }) => {
                self.finish(finish, *usage, framing, begun, out)
            }
            (&Event::Counted { input_tokens }, State::Waiting) => self.meta.connection.json(200, date, out, |out| {
                Writer(out).raw(r#"{"input_tokens":"#).number(input_tokens).raw("}");
            }),
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
        match event {
            &Event::TooLong { input_tokens, limit } => {
                ApiError::prompt_too_long(self.meta.dialect, input_tokens, limit)
            }
            Event::Refused { reason, .. } => {
                let message = match self.meta.dialect {
                    Dialect::Anthropic => format!("messages: {reason}"),
                    Dialect::OpenAi => format!("Invalid 'messages': {reason}"),
                };
                ApiError::new(ErrorKind::InvalidRequest, message).at("messages")
            }
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

    /// Ends the reply with an error: a document with a status while nothing is written, an error event after that. A
    /// broken stream is not ended as a whole one would be.
    pub fn fail(&mut self, error: &ApiError, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let end = match self.state {
            State::Over(end) => end,
            State::Waiting | State::Gathering => self.meta.connection.error(error, self.meta.dialect, date, out),
            State::Streaming { framing, .. } => {
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

    /// Bytes of the answer that are kept until it is told.
    #[must_use]
    pub fn held(&self) -> usize {
        self.text.capacity()
    }

    /// Appends what keeps a silent stream alive: `ping` or a comment. Nothing in any other state.
    pub fn keep_alive(&self, out: &mut Vec<u8>) {
        if let State::Streaming { framing, .. } = self.state {
            let mut chunk = Chunk::open(out, framing);
            match self.meta.dialect {
                Dialect::Anthropic => anthropic::ping(&mut chunk),
                Dialect::OpenAi => chunk.comment("keep-alive"),
            }
        }
    }

    fn start(&mut self, usage: Usage, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let Some(options) = self.meta.stream else {
            self.state = State::Gathering;
            return Progress::More;
        };
        let framing = stream_head(out, &self.meta.connection.head(200, date, &[]));
        let mut chunk = Chunk::open(out, framing);
        match self.meta.dialect {
            Dialect::Anthropic => anthropic::start(&self.meta, usage, &mut chunk),
            Dialect::OpenAi => {
                self.chunk_head = openai::chunk_head(&self.meta);
                openai::start(&self.chunk_head, options, &mut chunk);
            }
        }
        self.state = State::Streaming { framing, begun: false };
        Progress::More
    }

    fn delta(&mut self, text: &str, framing: StreamFraming, begun: bool, out: &mut Vec<u8>) -> Progress {
        let mut chunk = Chunk::open(out, framing);
        match self.meta.dialect {
            Dialect::Anthropic => anthropic::delta(text, !begun, &mut chunk),
            Dialect::OpenAi => openai::delta(&self.chunk_head, self.options(), text, &mut chunk),
        }
        self.state = State::Streaming { framing, begun: true };
        Progress::More
    }

    fn finish(
        &self,
        finish: &Finish,
        usage: Usage,
        framing: StreamFraming,
        begun: bool,
        out: &mut Vec<u8>,
    ) -> Progress {
        let mut chunk = Chunk::open(out, framing);
        match self.meta.dialect {
            Dialect::Anthropic => anthropic::finish(finish, usage, begun, &mut chunk),
            Dialect::OpenAi => openai::finish(&self.chunk_head, self.options(), finish, usage, &mut chunk),
        }
        chunk.close_last();
        match framing {
            StreamFraming::UntilClose => Progress::DoneClose,
            StreamFraming::Chunked | StreamFraming::NoBody => self.meta.connection.after(),
        }
    }

    fn document(&mut self, finish: &Finish, usage: Usage, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let text = std::mem::take(&mut self.text);
        out.reserve(text.len() + 2048);
        self.meta
            .connection
            .json(200, date, out, |out| match self.meta.dialect {
                Dialect::Anthropic => anthropic::document(&self.meta, &text, finish, usage, out),
                Dialect::OpenAi => openai::document(&self.meta, &text, finish, usage, out),
            })
    }

    fn options(&self) -> StreamOptions {
        self.meta.stream.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
