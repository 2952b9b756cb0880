//! The log: lines for the operator, written by a thread of its own so that nobody who logs ever waits.
//!
//! There is no global log: whoever logs holds a [`Log`]. Lines are formed by the caller and go through a bounded queue;
//! when that is full they are dropped, counted, and the loss is logged once the writer moves again. Invariant: nobody who
//! logs waits for the sink; while the sink takes what it is given, every line is written whole, and those of one caller
//! in their order, or not at all.

use std::{
    fmt,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::{date, json, put};

/// Batches that may wait for the writer; with [`crate::access::BATCH_BYTES`] that is about 8 MiB at most.
const QUEUE: usize = 256;
/// Emptied vectors that are kept for reuse.
const SPARE: usize = 16;

/// How grave a line is; a log writes its own level and the graver ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something is broken.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What an operator wants to know, every answered request included.
    Info,
    /// What helps to find a fault.
    Debug,
}

impl Level {
    /// The name in JSON lines and in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Five letters for human lines.
    fn column(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN ",
            Self::Info => "INFO ",
            Self::Debug => "DEBUG",
        }
    }
}

/// The form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// For a person at a terminal.
    Human,
}

impl Format {
    /// Human lines on a terminal, JSON otherwise.
    #[must_use]
    pub fn auto(sink: &impl std::io::IsTerminal) -> Self {
        if sink.is_terminal() { Self::Human } else { Self::Json }
    }
}

/// The value of a field of an operator's line.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// Text.
    Text(&'a str),
    /// A number.
    Number(u64),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Seconds and nanoseconds since 1970.
pub type Clock = fn() -> (u64, u32);

/// The system's clock; before 1970 it stands at 0.
#[must_use]
pub fn system_clock() -> (u64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_nanos())
}

/// A way into the log; clones lead into the same one.
#[derive(Debug, Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    level: AtomicU8,
    style: Style,
    queue: Sender<Batch>,
    /// Emptied vectors on their way back.
    spare: Receiver<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// What lines of a log look like.
#[derive(Debug, Clone, Copy)]
struct Style {
    format: Format,
    clock: Clock,
}

#[derive(Debug)]
enum Batch {
    Lines(Vec<u8>, u64),
    /// Nothing comes behind this.
    Stop,
}

/// The writing thread.
#[derive(Debug)]
pub struct LogWriter {
    queue: Sender<Batch>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Log {
    /// Starts a log into `sink`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        sink: impl Write + Send + 'static,
        format: Format,
        level: Level,
        clock: Clock,
    ) -> std::io::Result<(Self, LogWriter)> {
        let (queue, lines) = bounded(QUEUE);
        let (give_spare, spare) = bounded(SPARE);
        let (alive, ended) = bounded(0);
        let style = Style { format, clock };
        let dropped = Arc::new(AtomicU64::new(0));
        let shared = Arc::new(Shared {
            level: AtomicU8::new(level as u8),
            style,
            queue: queue.clone(),
            spare,
            dropped: Arc::clone(&dropped),
        });
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || {
            let _alive: Sender<()> = alive;
            write_all(sink, style, &lines, &give_spare, &dropped);
        })?;
        Ok((Self { shared }, LogWriter { queue, ended, thread }))
    }

    /// Whether lines of this level are written.
    #[must_use]
    pub fn enabled(&self, level: Level) -> bool {
        level as u8 <= self.shared.level.load(Ordering::Relaxed)
    }

    /// Writes lines of this level and graver ones from now on.
    pub fn set_level(&self, level: Level) {
        self.shared.level.store(level as u8, Ordering::Relaxed);
    }

    /// The form of the lines.
    #[must_use]
    pub fn format(&self) -> Format {
        self.shared.style.format
    }

    /// Lines lost so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// A line of level error.
    pub fn error(&self, message: fmt::Arguments<'_>) {
        self.line(Level::Error, message, &[]);
    }

    /// A line of level warn.
    pub fn warn(&self, message: fmt::Arguments<'_>) {
        self.line(Level::Warn, message, &[]);
    }

    /// A line of level info.
    pub fn info(&self, message: fmt::Arguments<'_>) {
        self.line(Level::Info, message, &[]);
    }

    /// A line of level debug.
    pub fn debug(&self, message: fmt::Arguments<'_>) {
        self.line(Level::Debug, message, &[]);
    }

    /// A line with fields. Their names must be plain words of ours; the message and their values may be any text.
    pub fn line(&self, level: Level, message: fmt::Arguments<'_>, fields: &[(&str, Value<'_>)]) {
        if self.enabled(level) {
            let mut out = self.empty_batch();
            self.shared.style.write_line(&mut out, level, message, fields);
            self.send(out, 1);
        }
    }

    /// An empty vector, a used one if there is one.
    pub(crate) fn empty_batch(&self) -> Vec<u8> {
        self.shared.spare.try_recv().unwrap_or_default()
    }

    /// Hands over finished lines; drops them if the queue is full or the writer has ended.
    pub(crate) fn send(&self, batch: Vec<u8>, lines: u64) {
        if self.shared.queue.try_send(Batch::Lines(batch, lines)).is_err() {
            self.shared.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

impl Style {
    fn write_line(self, out: &mut Vec<u8>, level: Level, message: fmt::Arguments<'_>, fields: &[(&str, Value<'_>)]) {
        let (seconds, nanos) = (self.clock)();
        let mut line = Line::start(out, self.format, level, seconds, nanos);
        match message.as_str() {
            Some(text) => line.message(text),
            None => line.message(&message.to_string()),
        }
        for &(name, value) in fields {
            match value {
                Value::Text(text) => line.text(name, text),
                Value::Number(number) => line.number(name, number),
            }
        }
        line.end();
    }
}

/// The writing thread: until it is told to stop, or nobody is left who could log.
fn write_all(
    mut sink: impl Write,
    style: Style,
    lines: &Receiver<Batch>,
    give_spare: &Sender<Vec<u8>>,
    dropped: &AtomicU64,
) {
    let mut reported = 0;
    while let Ok(Batch::Lines(mut batch, count)) = lines.recv() {
        // A sink that fails (a full disk, a closed pipe) may recover; meanwhile its lines count as lost.
        if sink.write_all(&batch).and_then(|()| sink.flush()).is_err() {
            dropped.fetch_add(count, Ordering::Relaxed);
        }
        batch.clear();
        let lost = dropped.load(Ordering::Relaxed);
        if lost > reported {
            let fields = [("lines", Value::Number(lost - reported))];
            style.write_line(&mut batch, Level::Warn, format_args!("log lines were lost"), &fields);
            if sink.write_all(&batch).and_then(|()| sink.flush()).is_ok() {
                reported = lost;
            }
            batch.clear();
        }
        let _kept_or_freed = give_spare.try_send(batch);
    }
}

impl LogWriter {
    /// Waits until everything logged before this call is written and the thread has ended, at most this long. Whether
    /// it did; a sink that blocks for longer keeps its thread and what was left.
    #[must_use]
    pub fn finish(self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        if self.queue.send_deadline(Batch::Stop, deadline).is_err() {
            return false;
        }
        // The channel carries nothing: it disconnects when the thread ends.
        match self.ended.recv_deadline(deadline) {
            Err(RecvTimeoutError::Timeout) => false,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => self.thread.join().is_ok(),
        }
    }
}

/// A line that is being written, in either form. The names of its fields are ours and need no escaping.
pub(crate) struct Line<'o> {
    out: &'o mut Vec<u8>,
    format: Format,
}

impl<'o> Line<'o> {
    /// Time and level.
    pub(crate) fn start(out: &'o mut Vec<u8>, format: Format, level: Level, seconds: u64, nanos: u32) -> Self {
        match format {
            Format::Json => {
                out.extend_from_slice(b"{\"time\":\"");
                date::rfc3339(out, seconds, nanos);
                out.extend_from_slice(b"\",\"level\":\"");
                out.extend_from_slice(level.name().as_bytes());
                out.push(b'"');
            }
            Format::Human => {
                date::rfc3339(out, seconds, nanos);
                out.push(b' ');
                out.extend_from_slice(level.column().as_bytes());
            }
        }
        Self { out, format }
    }

    /// What happened.
    pub(crate) fn message(&mut self, text: &str) {
        match self.format {
            Format::Json => self.text("message", text),
            Format::Human => self.bare(text),
        }
    }

    /// Text without a name, in human lines.
    pub(crate) fn bare(&mut self, text: &str) {
        self.out.push(b' ');
        put::printable(self.out, text);
    }

    /// A field with any text.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        match self.format {
            Format::Json => json::string(self.out, value),
            Format::Human if is_word(value) => self.out.extend_from_slice(value.as_bytes()),
            Format::Human => put::quoted(self.out, value),
        }
    }

    /// A field with a number.
    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        put::decimal(self.out, value);
    }

    /// A field with a duration, in milliseconds.
    pub(crate) fn millis(&mut self, name: &str, nanos: u64) {
        self.name(name);
        put::millis(self.out, nanos);
    }

    /// A field that is true or false.
    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.name(name);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A field whose value `write` appends; it must be text that needs no escaping.
    pub(crate) fn display(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        let quote: &[u8] = if self.format == Format::Json { b"\"" } else { b"" };
        self.out.extend_from_slice(quote);
        // Writing to a vector does not fail.
        let _infallible = write!(self.out, "{value}");
        self.out.extend_from_slice(quote);
    }

    fn name(&mut self, name: &str) {
        match self.format {
            Format::Json => {
                self.out.extend_from_slice(b",\"");
                self.out.extend_from_slice(name.as_bytes());
                self.out.extend_from_slice(b"\":");
            }
            Format::Human => {
                self.out.push(b' ');
                self.out.extend_from_slice(name.as_bytes());
                self.out.push(b'=');
            }
        }
    }

    /// The line's end.
    pub(crate) fn end(self) {
        match self.format {
            Format::Json => self.out.extend_from_slice(b"}\n"),
            Format::Human => self.out.push(b'\n'),
        }
    }
}

/// Whether a value can stand without quotes in a human line.
fn is_word(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
}

#[cfg(test)]
#[path = "log_tests.rs"]
pub(crate) mod tests;
