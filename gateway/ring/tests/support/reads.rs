//! The part of the operation table about reads of files.
//!
//! Nothing here knows which maker it tests. Invariant: a case passes only if each read is answered once, with every byte
//! where it should be, or with the error that the table promises.

use std::{
    collections::HashSet,
    io::ErrorKind,
    sync::Arc,
    time::{Duration, Instant},
};

use zerohop_ring::{ConnId, Io, Options, ReadFile, ReadToken};

use super::{Bench, World, options, pattern};

impl<W: World> Bench<W> {
    fn ask(&mut self, conn: ConnId, tag: u64, file: &Arc<ReadFile>, offset: u64, len: usize) {
        self.io().read(ReadToken { conn, tag }, file, offset, len, Vec::new());
    }

    /// The answer to the only read in flight.
    fn answer(&mut self) -> (ReadToken, Result<Vec<u8>, ErrorKind>) {
        self.until("the answer of a read", |bench| !bench.read.is_empty());
        assert_eq!(self.read.len(), 1, "one answer");
        self.read.pop().expect("one")
    }
}

fn with_connection<W: World>(world: impl Fn(Options) -> W) -> (Bench<W>, ConnId) {
    let mut bench = Bench::new(world(options()));
    let (_, conn) = bench.connection();
    (bench, conn)
}

pub(crate) fn read_whole<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let bytes = pattern(3_000_000);
    let file = bench.world.file(bytes.clone());
    let ranges = [
        (0, 1),
        (0, 4096),
        (4095, 2),
        (1, 70_000),
        (2_999_999, 1),
        (123_457, 1_000_003),
        (0, bytes.len()),
    ];
    for (tag, (offset, len)) in ranges.into_iter().enumerate() {
        let mut buf = Vec::with_capacity(len);
        buf.extend_from_slice(b"?");
        let memory = buf.as_ptr();
        let token = ReadToken { conn, tag: tag as u64 };
        bench.io().read(token, &file, offset as u64, len, buf);
        let (whose, outcome) = bench.answer();
        let read = outcome.expect("bytes");
        assert_eq!((whose, read.as_ptr()), (token, memory), "the very buffer comes back");
        assert!(read == bytes[offset..offset + len], "{len} from {offset}");
    }
    let stats = bench.io().stats();
    let total: usize = ranges.iter().map(|(_, len)| len).sum();
    assert_eq!((stats.file_reads, stats.file_bytes_read), (7, total as u64));
    assert_eq!((stats.file_read_errors, stats.file_reads_refused), (0, 0));
    assert_eq!(bench.woken, 0, "nobody called the waker");
}

/// A worker that waits for nothing else sleeps until the bytes are there.
pub(crate) fn read_wakes_a_sleeper<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let bytes = pattern(100_000);
    let file = bench.world.file(bytes.clone());
    for round in 0..50 {
        bench.ask(conn, round, &file, round, 90_000);
        while bench.read.is_empty() {
            bench.turn_until(None);
        }
        let (_, outcome) = bench.answer();
        assert!(outcome.expect("bytes") == bytes[round as usize..][..90_000]);
    }
    assert_eq!(bench.woken, 0, "nobody called the waker");
}

pub(crate) fn read_several<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(options()));
    let conns: Vec<_> = (0..10).map(|_| bench.connection().1).collect();
    let files: Vec<_> = (0..3)
        .map(|number| bench.world.file(pattern(20_000 + number)))
        .collect();
    let length = |tag: u64| 1 + (tag as usize * 7919) % 9000;
    for tag in 0..200 {
        let conn = conns[tag as usize % 10];
        bench.ask(conn, tag, &files[tag as usize % 3], tag * 50, length(tag));
        if tag % 37 == 0 {
            bench.turn();
        }
    }
    bench.until("all answers", |bench| bench.read.len() == 200);
    bench.settle();
    let mut seen = HashSet::new();
    let whole = pattern(20_002);
    for (ReadToken { conn, tag }, outcome) in std::mem::take(&mut bench.read) {
        assert!(seen.insert(tag), "one answer to each");
        assert_eq!(conn, conns[tag as usize % 10]);
        let bytes = outcome.expect("bytes");
        assert!(bytes == whole[tag as usize * 50..][..length(tag)], "{tag}");
    }
    assert_eq!(seen.len(), 200);
}

pub(crate) fn read_past_the_end<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let file = bench.world.file(pattern(10_000));
    for (number, (offset, len, error)) in [
        (0, 10_001, ErrorKind::UnexpectedEof),
        (9_999, 2, ErrorKind::UnexpectedEof),
        (10_000, 1, ErrorKind::UnexpectedEof),
        (1 << 40, 5, ErrorKind::UnexpectedEof),
        (i64::MAX as u64, 1, ErrorKind::InvalidInput),
        (u64::MAX, 1, ErrorKind::InvalidInput),
    ]
    .into_iter()
    .enumerate()
    {
        bench.ask(conn, 1, &file, offset, len);
        assert_eq!(bench.answer().1, Err(error), "{len} from {offset}");
        assert_eq!(bench.io().stats().file_read_errors, number as u64 + 1);
    }
    bench.ask(conn, 1, &file, 9_999, 1);
    assert_eq!(bench.answer().1, Ok(pattern(10_000)[9_999..].to_vec()));
}

pub(crate) fn read_of_nothing<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let file = bench.world.broken_file();
    bench.ask(conn, 1, &file, 77, 0);
    assert_eq!(bench.answer().1, Ok(Vec::new()), "without a look at the file");
}

pub(crate) fn read_that_fails<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let (broken, good) = (bench.world.broken_file(), bench.world.file(pattern(10)));
    bench.ask(conn, 5, &broken, 0, 10);
    let (token, outcome) = bench.answer();
    assert_eq!(token, ReadToken { conn, tag: 5 });
    let error = outcome.expect_err("no bytes");
    assert!(
        error != ErrorKind::UnexpectedEof && error != ErrorKind::Unsupported,
        "{error}"
    );
    assert_eq!(bench.io().stats().file_read_errors, 1);
    bench.ask(conn, 6, &good, 0, 10);
    assert_eq!(bench.answer().1, Ok(pattern(10)));
}

pub(crate) fn read_of_a_foreign_file<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let file = bench.world.foreign_file();
    bench.ask(conn, 1, &file, 0, 10);
    assert_eq!(bench.answer().1, Err(ErrorKind::Unsupported));
}

pub(crate) fn read_when_the_file_was_dropped<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let bytes = pattern(200_000);
    let file = bench.world.file(bytes.clone());
    bench.ask(conn, 1, &file, 0, bytes.len());
    let weak = Arc::downgrade(&file);
    drop(file);
    assert!(bench.answer().1.expect("bytes") == bytes);
    assert!(weak.upgrade().is_none(), "the maker has let go of it");
}

pub(crate) fn read_beyond_the_bound<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(Options {
        max_reads: 4,
        ..options()
    }));
    let (_, conn) = bench.connection();
    let file = bench.world.file(pattern(1000));
    for round in 1..=3 {
        for tag in 0..7 {
            bench.ask(conn, tag, &file, tag, 100);
        }
        bench.until("all answers", |bench| bench.read.len() == 7);
        for (token, outcome) in std::mem::take(&mut bench.read) {
            let at = token.tag as usize;
            let wanted = if at < 4 {
                Ok(pattern(1000)[at..][..100].to_vec())
            } else {
                Err(ErrorKind::ResourceBusy)
            };
            assert_eq!(outcome, wanted, "{at}");
        }
        let stats = bench.io().stats();
        assert_eq!((stats.file_reads, stats.file_reads_refused), (4 * round, 3 * round));
        assert_eq!(stats.file_read_errors, 0, "a refusal is no failure of a file");
    }
}

/// Reads of a connection that is closed are not answered, and their places and their file come back.
pub(crate) fn read_given_up_by_close<W: World>(world: impl Fn(Options) -> W) {
    for abort in [false, true] {
        let mut bench = Bench::new(world(Options {
            max_reads: 8,
            ..options()
        }));
        let (_, other) = bench.connection();
        let file = bench.world.file(pattern(500_000));
        for _ in 0..5 {
            let (_, conn) = bench.connection();
            for tag in 0..8 {
                bench.ask(conn, tag, &file, 0, 500_000);
            }
            bench.close(conn, abort);
            bench.until("the close", |bench| bench.closed.contains(&conn));
            bench.settle();
            assert!(bench.read.is_empty(), "nobody waits for them");
            bench.until("all places", |bench| {
                (0..8).for_each(|tag| bench.ask(other, tag, &file, 0, 10));
                bench.until("all answers", |bench| bench.read.len() == 8);
                std::mem::take(&mut bench.read)
                    .iter()
                    .all(|(_, outcome)| outcome.is_ok())
            });
        }
        assert_eq!(Arc::strong_count(&file), 1, "nobody reads any more");
    }
}

/// As above, while the close waits for a slow reader: the connection is still there, and no answer comes.
pub(crate) fn read_given_up_behind_a_send<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(Options {
        max_reads: 4,
        ..options()
    }));
    let ((client, conn), (_, other)) = (bench.connection(), bench.connection());
    let file = bench.world.file(pattern(100_000));
    bench.io().send(conn, pattern(W::BIG));
    (0..4).for_each(|tag| bench.ask(conn, tag, &file, 0, 100_000));
    bench.close(conn, false);
    bench.settle();
    assert!(bench.read.is_empty() && bench.closed.is_empty());
    bench.until("a place", |bench| {
        bench.ask(other, 9, &file, 7, 10);
        bench.answer().1.is_ok()
    });
    assert!(bench.read_exactly(client, W::BIG, 1 << 18) == pattern(W::BIG));
    bench.until("the close", |bench| bench.closed == [conn]);
    assert!(bench.read.is_empty(), "nobody waits for them");
}

/// What was answered is handed out, though the close came between.
pub(crate) fn read_answered_before_the_close<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let file = bench.world.broken_file();
    bench.ask(conn, 1, &file, 0, 0);
    bench.close(conn, false);
    bench.until("the close", |bench| bench.closed == [conn]);
    assert_eq!(bench.read, [(ReadToken { conn, tag: 1 }, Ok(Vec::new()))]);
}

pub(crate) fn read_for_the_past<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let file = bench.world.file(pattern(10));
    bench.close(conn, false);
    bench.ask(conn, 1, &file, 0, 10);
    bench.until("the close", |bench| bench.closed == [conn]);
    let (_, next) = bench.connection();
    assert_eq!(next.slot, conn.slot);
    bench.ask(conn, 2, &file, 0, 10);
    bench.settle();
    assert!(bench.read.is_empty());
    assert_eq!(Arc::strong_count(&file), 1);
}

/// What a worker does with it: a reply for each request, some of it from a file, on many connections at once.
pub(crate) fn read_beside_traffic<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(options()));
    let bytes = pattern(64_000);
    let file = bench.world.file(bytes.clone());
    let pairs: Vec<_> = (0..20).map(|_| bench.receiving()).collect();
    for round in 0..5 {
        let from = |number: usize| number * 1000 + round * 7;
        for (client, _) in &pairs {
            bench.write_all(*client, b"a question");
        }
        for (number, (_, conn)) in pairs.iter().enumerate() {
            bench.until("the question", |bench| bench.count_received(*conn) == 10);
            bench.received.remove(conn);
            bench.ask(*conn, number as u64, &file, from(number) as u64, 20_000);
        }
        let mut sent = 0;
        bench.until("all replies", |bench| {
            for (token, outcome) in std::mem::take(&mut bench.read) {
                bench.io().send(token.conn, outcome.expect("bytes"));
                sent += 1;
            }
            sent == pairs.len()
        });
        for (number, (client, _)) in pairs.iter().enumerate() {
            let reply = bench.read_exactly(*client, 20_000, 1 << 16);
            assert!(reply == bytes[from(number)..][..20_000]);
        }
        bench.until("sent", |bench| bench.sent.len() == pairs.len());
        bench.sent.clear();
    }
}

pub(crate) fn drop_with_reads_in_flight<W: World>(world: impl Fn(Options) -> W) {
    let (mut bench, conn) = with_connection(world);
    let file = bench.world.file(pattern(1_000_000));
    for tag in 0..40 {
        bench.ask(conn, tag, &file, 0, 1_000_000);
        if tag == 20 {
            bench.turn_until(Some(0));
        }
    }
    bench.world.drop_io();
    let patience = Instant::now() + Duration::from_secs(30);
    while Arc::strong_count(&file) > 1 {
        assert!(Instant::now() < patience, "somebody still reads");
        std::thread::yield_now();
    }
}
