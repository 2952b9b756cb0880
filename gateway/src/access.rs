//! The access log: one line for each request, formed on the worker and handed to the log in batches.
//!
//! A line never holds prompt or answer text, a query string or a key: there is no field for them. Invariant: a worker
//! that logs neither waits nor makes a system call other than, once a batch, the one that wakes the log's thread.

use std::net::SocketAddr;

use zerohop_ring::Nanos;

use crate::{
    api::Dialect,
    error::ErrorKind,
    log::{Format, Level, Line, Log},
    metrics::{dialect_name, error_name},
};

/// A batch is handed over as soon as it is this long,
pub const BATCH_BYTES: usize = 32 * 1024;
/// or its first line is this old.
pub const BATCH_NANOS: Nanos = 100_000_000;

/// Longer paths are cut; they are the client's text.
const MAX_PATH: usize = 256;
/// Longer names of models, tenants and methods are cut.
const MAX_NAME: usize = 128;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was answered.
    Ok,
    /// The client left before the reply was complete.
    ClientGone,
    /// The client was told of an error.
    Error(ErrorKind),
}

/// What is logged of a request.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// When it was answered: seconds and nanoseconds since 1970.
    pub time: (u64, u32),
    /// Its id.
    pub request_id: &'a str,
    /// The client's address.
    pub peer: SocketAddr,
    /// The method as it was written; empty if none was understood.
    pub method: &'a str,
    /// The path without the query; empty if none was understood.
    pub path: &'a str,
    /// The reply's status; 499 if the client left before there was one.
    pub status: u16,
    /// The dialect of the reply, where the route has one.
    pub dialect: Option<Dialect>,
    /// The model that was asked, by its id in the configuration.
    pub model: Option<&'a str>,
    /// Who asked.
    pub tenant: Option<&'a str>,
    /// The reply was a stream.
    pub stream: bool,
    /// Length of the prompt in tokens, once known.
    pub input_tokens: Option<u32>,
    /// Length of the answer in tokens, once there is one.
    pub output_tokens: Option<u32>,
    /// Bytes of the request, head included.
    pub bytes_in: u64,
    /// Bytes of the reply, head included.
    pub bytes_out: u64,
    /// How long it took.
    pub times: Times,
    /// How it ended.
    pub outcome: Outcome,
    /// A check or a scrape that comes every few seconds: its line has level debug.
    pub routine: bool,
}

/// Durations of a request in nanoseconds; `None` where the stage was not reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// From the last byte of the request to its meaning.
    pub parse: Option<Nanos>,
    /// In the engine's queue.
    pub queue: Option<Nanos>,
    /// From the last byte of the request to the first token.
    pub first_token: Option<Nanos>,
    /// From the first byte of the request to the last of the reply.
    pub total: Nanos,
}

impl Record<'_> {
    /// Faults of ours are warnings, routine is for debugging, everything else is information.
    #[must_use]
    pub fn level(&self) -> Level {
        match (self.status, self.routine) {
            (500.., _) => Level::Warn,
            (_, true) => Level::Debug,
            _ => Level::Info,
        }
    }

    /// Appends the line.
    pub fn write(&self, out: &mut Vec<u8>, format: Format) {
        let mut line = Line::start(out, format, self.level(), self.time.0, self.time.1);
        let (method, path) = (cut(self.method, MAX_NAME), cut(self.path, MAX_PATH));
        match format {
            Format::Json => {
                line.message("request");
                line.text("request_id", self.request_id);
                line.display("peer", self.peer);
                line.text("method", method);
                line.text("path", path);
                line.number("status", u64::from(self.status));
                line.text("outcome", self.outcome.name());
                line.flag("stream", self.stream);
            }
            Format::Human => {
                line.bare(if method.is_empty() { "-" } else { method });
                line.bare(if path.is_empty() { "-" } else { path });
                line.bare(&self.status.to_string());
                line.bare(self.outcome.name());
            }
        }
        line.millis("total_ms", self.times.total);
        self.write_details(&mut line);
        if format == Format::Human {
            line.display("peer", self.peer);
            line.text("request_id", self.request_id);
        }
        line.end();
    }

    fn write_details(&self, line: &mut Line<'_>) {
        let durations = [
            ("parse_ms", self.times.parse),
            ("queue_ms", self.times.queue),
            ("first_token_ms", self.times.first_token),
        ];
        for (name, nanos) in durations {
            if let Some(nanos) = nanos {
                line.millis(name, nanos);
            }
        }
        let names = [
            ("dialect", self.dialect.map(|it| dialect_name(Some(it)))),
            ("model", self.model),
            ("tenant", self.tenant),
        ];
        for (name, text) in names {
            if let Some(text) = text {
                line.text(name, cut(text, MAX_NAME));
            }
        }
        for (name, tokens) in [
            ("input_tokens", self.input_tokens),
            ("output_tokens", self.output_tokens),
        ] {
            if let Some(tokens) = tokens {
                line.number(name, u64::from(tokens));
            }
        }
        line.number("bytes_in", self.bytes_in);
        line.number("bytes_out", self.bytes_out);
    }
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientGone => "client_gone",
            Self::Error(kind) => error_name(kind),
        }
    }
}

/// The beginning of a text, up to `max` bytes and the end of a character.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// A worker's end of the log: it gathers lines and hands them over in batches.
#[derive(Debug)]
pub struct AccessLog {
    log: Log,
    batch: Vec<u8>,
    lines: u64,
    /// When the batch must go.
    due: Option<Nanos>,
}

impl AccessLog {
    /// A worker's own way into this log.
    #[must_use]
    pub fn new(log: Log) -> Self {
        Self {
            log,
            batch: Vec::new(),
            lines: 0,
            due: None,
        }
    }

    /// Logs a request at this moment of the worker's clock.
    pub fn record(&mut self, record: &Record<'_>, now: Nanos) {
        if !self.log.enabled(record.level()) {
            return;
        }
        record.write(&mut self.batch, self.log.format());
        self.lines += 1;
        self.due.get_or_insert(now.saturating_add(BATCH_NANOS));
        if self.batch.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// When [`Self::flush_due`] has something to do: a worker that sleeps must wake by then.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Hands the batch over if it is due.
    pub fn flush_due(&mut self, now: Nanos) {
        if self.due.is_some_and(|due| due <= now) {
            self.flush();
        }
    }

    /// Hands the batch over now.
    pub fn flush(&mut self) {
        self.due = None;
        if self.lines > 0 {
            let batch = std::mem::replace(&mut self.batch, self.log.empty_batch());
            self.log.send(batch, std::mem::take(&mut self.lines));
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
