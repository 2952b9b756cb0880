//! The log against sinks in memory: its lines, its bound and its end.

use std::{
    io,
    sync::{Mutex, MutexGuard},
};

use super::*;

/// Longer than anything here takes; only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A sink that keeps what it is given.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no panic while held")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes().clone()).expect("text")
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn fixed_clock() -> (u64, u32) {
    (784_111_777, 123_456_789)
}

pub(crate) fn start(format: Format, level: Level) -> (Log, LogWriter, Memory) {
    let memory = Memory::default();
    let (log, writer) = Log::start(memory.clone(), format, level, fixed_clock).expect("a thread");
    (log, writer, memory)
}

fn check(format: Format, level: Level, use_log: impl FnOnce(&Log), expected: &str) {
    let (log, writer, memory) = start(format, level);
    use_log(&log);
    assert!(writer.finish(PATIENCE));
    assert_eq!(memory.text(), expected);
}

#[test]
fn lines() {
    let use_log = |log: &Log| {
        log.info(format_args!("ready"));
        log.warn(format_args!("model {} is \"slow\"\n", "tiny\x1b[1m"));
        log.line(
            Level::Error,
            format_args!("x"),
            &[("path", "a b\"c".into()), ("empty", "".into()), ("n", 7.into())],
        );
        log.line(Level::Info, format_args!(""), &[("simple", "/a=b".into())]);
        log.debug(format_args!("not at this level"));
    };
    check(
        Format::Json,
        Level::Info,
        use_log,
        concat!(
            r#"{"time":"1994-11-06T08:49:37.123Z","level":"info","message":"ready"}"#,
            "\n",
            r#"{"time":"1994-11-06T08:49:37.123Z","level":"warn","message":"model tiny\u001b[1m is \"slow\"\n"}"#,
            "\n",
            r#"{"time":"1994-11-06T08:49:37.123Z","level":"error","message":"x","path":"a b\"c","empty":"","n":7}"#,
            "\n",
            r#"{"time":"1994-11-06T08:49:37.123Z","level":"info","message":"","simple":"/a=b"}"#,
            "\n",
        ),
    );
    check(
        Format::Human,
        Level::Info,
        use_log,
        concat!(
            "1994-11-06T08:49:37.123Z INFO  ready\n",
            r#"1994-11-06T08:49:37.123Z WARN  model tiny\u{1b}[1m is "slow"\n"#,
            "\n",
            r#"1994-11-06T08:49:37.123Z ERROR x path="a b\"c" empty="" n=7"#,
            "\n",
            "1994-11-06T08:49:37.123Z INFO   simple=/a=b\n",
        ),
    );
}

#[test]
fn levels_let_the_graver_ones_through() {
    let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug];
    for (index, level) in levels.into_iter().enumerate() {
        let (log, writer, memory) = start(Format::Json, level);
        log.error(format_args!("m"));
        log.warn(format_args!("m"));
        log.info(format_args!("m"));
        log.debug(format_args!("m"));
        assert!(writer.finish(PATIENCE));
        let text = memory.text();
        let written: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["level"].clone())
            .collect();
        let expected: Vec<_> = levels[..=index].iter().map(|level| level.name()).collect();
        assert_eq!(written, expected);
    }
}

/// A sink that says when a write has begun and then waits for leave.
struct Gate {
    began: Sender<()>,
    leave: Receiver<()>,
    sink: Memory,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Both ends close when the test is done waiting; then everything passes.
        let _ = self.began.send(());
        let _ = self.leave.recv();
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gated() -> (Log, LogWriter, Memory, Receiver<()>, Sender<()>) {
    let memory = Memory::default();
    let ((began, has_begun), (give_leave, leave)) = (bounded(1), bounded(0));
    let gate = Gate {
        began,
        leave,
        sink: memory.clone(),
    };
    let (log, writer) = Log::start(gate, Format::Json, Level::Info, fixed_clock).expect("a thread");
    (log, writer, memory, has_begun, give_leave)
}

#[test]
fn a_slow_sink_costs_lines_not_time() {
    let (log, writer, memory, has_begun, give_leave) = gated();
    log.info(format_args!("first"));
    has_begun
        .recv_timeout(PATIENCE)
        .expect("the writer has taken the first line");
    for number in 0..QUEUE {
        log.info(format_args!("{number}"));
    }
    assert_eq!(log.dropped(), 0, "the queue is full, but nothing is lost");
    log.info(format_args!("lost"));
    log.send(b"lost\nlost\n".to_vec(), 2);
    assert_eq!(log.dropped(), 3);
    drop((has_begun, give_leave));
    assert!(writer.finish(PATIENCE));

    let text = memory.text();
    assert!(!text.contains("\"lost\""), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1 + QUEUE + 1, "what was queued and one notice");
    let notice = r#"{"time":"1994-11-06T08:49:37.123Z","level":"warn","message":"log lines were lost","lines":3}"#;
    assert_eq!(lines[1], notice, "behind the first line that is written again");
    assert!(
        lines[2].ends_with(r#""message":"0"}"#) && lines[QUEUE + 1].ends_with(r#""message":"255"}"#),
        "in order"
    );

    log.info(format_args!("after the end"));
    assert_eq!(log.dropped(), 4, "nobody writes any more");
}

#[test]
fn finishing_does_not_wait_for_ever() {
    let (log, writer, _memory, has_begun, give_leave) = gated();
    log.info(format_args!("first"));
    has_begun.recv_timeout(PATIENCE).expect("the writer has begun");
    assert!(!writer.finish(Duration::from_millis(1)), "the sink still blocks");
    drop((has_begun, give_leave));
}

/// A sink that fails for its first few writes.
struct Failing {
    left: u32,
    sink: Memory,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left > 0 {
            self.left -= 1;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failing_sink_is_tried_again() {
    let memory = Memory::default();
    // Two lines are lost, each with the notice of its loss.
    let sink = Failing {
        left: 4,
        sink: memory.clone(),
    };
    let (log, writer) = Log::start(sink, Format::Human, Level::Info, fixed_clock).expect("a thread");
    for message in ["one", "two", "three"] {
        log.info(format_args!("{message}"));
    }
    assert!(writer.finish(PATIENCE));
    let expected = "1994-11-06T08:49:37.123Z INFO  three\n1994-11-06T08:49:37.123Z WARN  log lines were lost lines=2\n";
    assert_eq!((memory.text().as_str(), log.dropped()), (expected, 2));
}

#[test]
fn the_thread_ends_with_the_last_log() {
    let (log, writer, memory) = start(Format::Human, Level::Info);
    log.info(format_args!("x"));
    let LogWriter { queue, ended, thread } = writer;
    drop((queue, log));
    assert_eq!(ended.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    thread.join().expect("no panic");
    assert_eq!(memory.text(), "1994-11-06T08:49:37.123Z INFO  x\n");
}

#[test]
fn emptied_batches_are_used_again() {
    let (log, writer, _memory) = start(Format::Human, Level::Info);
    let mut batch = log.empty_batch();
    batch.extend_from_slice(&[b'\n'; 1000]);
    log.send(batch, 1);
    assert!(writer.finish(PATIENCE));
    let again = log.empty_batch();
    assert!(again.is_empty() && again.capacity() >= 1000);
}

#[test]
fn the_system_clock_is_past_the_day_this_was_written() {
    assert!(system_clock().0 > 1_760_000_000);
}
