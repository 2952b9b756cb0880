//! The operation table: what every maker does, whatever it is made of. Each case gets a function that makes its world.
//!
//! Nothing here knows which maker it tests. Invariant: a case passes only if every byte is where it should be.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zerohop_ring::{ConnId, Io, Options, Parcel, REGION, VECTOR_FROM};

use super::{Bench, End, Seen, World, options, pattern, worlds};

fn start<W: World>(world: impl Fn(Options) -> W) -> Bench<W> {
    Bench::new(world(options()))
}

pub(crate) fn accept<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let clients: Vec<_> = (0..3).map(|_| bench.world.connect()).collect();
    bench.until("three connections", |bench| bench.accepted.len() == 3);
    for client in clients {
        let address = bench.world.address(client);
        assert_eq!(
            bench
                .accepted
                .iter()
                .filter(|accepted| accepted.peer == address)
                .count(),
            1
        );
    }
    assert!(
        bench
            .accepted
            .iter()
            .all(|accepted| accepted.conn.slot < 64 && accepted.listener.0 == 0)
    );
    assert_ne!(bench.accepted[0].conn, bench.accepted[1].conn);
}

pub(crate) fn echo<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    for round in 0..20usize {
        let question = pattern(round * 37 + 1);
        bench.write_all(client, &question);
        bench.until("the question", |bench| bench.count_received(conn) == question.len());
        let answer = bench.received.remove(&conn).expect("bytes");
        assert_eq!(answer, question);
        let memory = answer.as_ptr();
        bench.io().send(conn, answer);
        bench.until("sent", |bench| bench.sent.len() == 1);
        let sent = bench.sent.pop().expect("one");
        assert_eq!((sent.conn, sent.result), (conn, Ok(question.len())));
        assert_eq!(sent.buf.as_ptr(), memory, "the very buffer comes back");
        assert_eq!(bench.read_exactly(client, question.len(), 1 << 16), question);
    }
    let stats = bench.io().stats();
    let total: u64 = (0..20).map(|round| round * 37 + 1).sum();
    assert_eq!((stats.bytes_received, stats.bytes_sent), (total, total));
    assert!(stats.turns >= 20);
}

pub(crate) fn nothing_before_recv<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.connection();
    bench.write_all(client, b"early");
    bench.settle();
    assert_eq!(bench.count_received(conn), 0);
    bench.io().recv(conn);
    bench.io().recv(conn);
    bench.until("the early bytes", |bench| bench.count_received(conn) == 5);
    assert_eq!(bench.received[&conn], b"early");
}

pub(crate) fn pipelined<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    let bytes = pattern(50_000);
    for piece in bytes.chunks(777) {
        bench.write_all(client, piece);
    }
    bench.until("all pieces", |bench| bench.count_received(conn) == bytes.len());
    assert_eq!(bench.received[&conn], bytes);
}

pub(crate) fn many_at_once<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let pairs: Vec<_> = (0..40).map(|_| bench.receiving()).collect();
    for (number, (client, _)) in pairs.iter().enumerate() {
        bench.write_all(*client, &pattern(3000 + number));
    }
    for (number, (_, conn)) in pairs.iter().enumerate() {
        bench.until("each one's bytes", |bench| bench.count_received(*conn) == 3000 + number);
        assert_eq!(bench.received[conn], pattern(3000 + number));
    }
}

pub(crate) fn pause_and_resume<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(Options {
        recv_buffers: 8,
        ..options()
    }));
    let (client, conn) = bench.receiving();
    let bytes = pattern(300_000);
    let (mut written, mut pauses, mut next) = (0, 0, 20_000);
    while bench.count_received(conn) < bytes.len() {
        written += bench.world.write(client, &bytes[written..]);
        bench.turn();
        if bench.count_received(conn) >= next {
            next = bench.count_received(conn) + 20_000;
            bench.io().pause_recv(conn);
            pauses += 1;
            bench.until("the pause", |bench| bench.ends(conn).len() == pauses);
            let before = bench.count_received(conn);
            bench.settle();
            assert_eq!(bench.count_received(conn), before, "nothing comes while paused");
            bench.io().recv(conn);
        }
    }
    assert_eq!(bench.received[&conn], bytes);
    assert!(pauses > 5 && bench.ends(conn).iter().all(|end| *end == End::Paused));
}

pub(crate) fn pause_of_nothing<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.connection();
    bench.io().pause_recv(conn);
    bench.settle();
    assert!(bench.ends(conn).is_empty(), "it did not receive");
    bench.io().recv(conn);
    bench.settle();
    bench.io().pause_recv(conn);
    bench.io().pause_recv(conn);
    bench.until("the pause", |bench| bench.ends(conn) == [End::Paused]);
    bench.settle();
    assert_eq!(bench.ends(conn), [End::Paused], "one answer");
    bench.io().recv(conn);
    bench.write_all(client, b"later");
    bench.until("what came later", |bench| bench.count_received(conn) == 5);
}

pub(crate) fn pause_taken_back<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    // An odd number of pieces, so that the last one comes after a cancelled receive even if every other one healed it.
    let bytes = pattern(20_500);
    for piece in bytes.chunks(500) {
        bench.io().pause_recv(conn);
        bench.io().recv(conn);
        bench.write_all(client, piece);
        bench.turn();
    }
    bench.until("all bytes", |bench| bench.count_received(conn) == bytes.len());
    assert_eq!(bench.received[&conn], bytes);
}

pub(crate) fn slow_reader<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.connection();
    let bytes = pattern(W::BIG);
    bench.io().send(conn, bytes.clone());
    bench.settle();
    assert!(bench.sent.is_empty(), "more than the network holds");
    let read = bench.read_exactly(client, bytes.len(), 1 << 18);
    assert!(read == bytes, "every byte in its place");
    bench.until("sent", |bench| bench.sent.len() == 1);
    assert_eq!(bench.sent[0].result, Ok(bytes.len()));
    assert_eq!(bench.io().stats().bytes_sent, bytes.len() as u64);
}

pub(crate) fn empty_send<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (_, conn) = bench.connection();
    bench.io().send(conn, Vec::with_capacity(77));
    bench.until("sent", |bench| bench.sent.len() == 1);
    assert_eq!(bench.sent[0].result, Ok(0));
    assert!(bench.sent[0].buf.capacity() >= 77, "the very buffer comes back");
}

/// Parts of every size arrive in order, whatever way they take; a slow reader makes the sends short.
pub(crate) fn parcels<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.connection();
    let arena = worlds::poisoned_arena();
    let sizes = [
        (0, 1, 0),
        (5, 0, 7),
        (100, VECTOR_FROM - 1, 0),
        (100, VECTOR_FROM, 3),
        (0, 300_000, 9000),
        (70_000, REGION - 1, 50_000),
        (200, REGION, 0),
    ];
    for (number, (head, body, foot)) in sizes.into_iter().enumerate() {
        let whole = pattern(head + body + foot);
        let parcel = Parcel {
            head: whole[..head].to_vec(),
            body: arena.store(&[&whole[head..head + body]]),
            foot: whole[head + body..].to_vec(),
        };
        assert_eq!(parcel.body.is_some(), body > 0);
        bench.io().send(conn, parcel);
        let read = bench.read_exactly(client, whole.len(), 1 << 18);
        assert!(read == whole, "every byte in its place: {head} + {body} + {foot}");
        bench.until("sent", |bench| bench.sent.len() == number + 1);
        assert_eq!(bench.sent[number].result, Ok(whole.len()));
    }
}

/// Many connections send the same piece at once; it is dropped while they still do.
pub(crate) fn parcels_of_one_piece<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let pairs: Vec<_> = (0..10).map(|_| bench.connection()).collect();
    let arena = worlds::poisoned_arena();
    let body = pattern(200_000);
    let piece = arena.store(&[&body]).expect("room");
    for (number, (_, conn)) in pairs.iter().enumerate() {
        let parcel = Parcel {
            head: vec![number as u8; 100 + number],
            body: Some(piece.clone()),
            foot: Vec::new(),
        };
        bench.io().send(*conn, parcel);
    }
    drop(piece);
    for (number, (client, _)) in pairs.iter().enumerate() {
        let read = bench.read_exactly(*client, 100 + number + body.len(), 1 << 14);
        assert!(read[..100 + number] == vec![number as u8; 100 + number]);
        assert!(read[100 + number..] == body);
    }
    bench.until("sent", |bench| bench.sent.len() == pairs.len());
}

pub(crate) fn second_send_panics<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (_, conn) = bench.connection();
    bench.io().send(conn, vec![1; W::BIG]);
    let second = catch_unwind(AssertUnwindSafe(|| bench.io().send(conn, vec![2])));
    assert!(second.is_err(), "a bug of the worker is not hidden");
}

pub(crate) fn close_after_send<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    let bytes = pattern(W::BIG);
    bench.io().send(conn, bytes.clone());
    bench.close(conn, false);
    bench.settle();
    assert!(bench.closed.is_empty(), "the reader has not caught up");
    assert!(bench.read_exactly(client, bytes.len(), 1 << 18) == bytes);
    bench.until("closed", |bench| bench.closed == [conn]);
    assert_eq!(bench.sent[0].result, Ok(bytes.len()));
    bench.until_seen(client, Seen::Eof);
}

pub(crate) fn abort_cuts_a_send<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    bench.io().send(conn, pattern(W::BIG));
    bench.settle();
    bench.close(conn, true);
    bench.until("closed", |bench| bench.closed == [conn]);
    assert_eq!(bench.sent.len(), 1, "the loan came back");
    assert!(bench.sent[0].result.is_err());
    let back = bench.sent[0].buf.len();
    assert!(back == W::BIG || (back == 0 && bench.world.may_keep_heads()), "{back}");
    bench.until_over(client);
    assert_eq!(bench.world.seen(client), Seen::Reset);
}

pub(crate) fn abort_overtakes_close<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    bench.io().send(conn, pattern(W::BIG));
    bench.settle();
    bench.close(conn, false);
    bench.settle();
    assert!(bench.closed.is_empty());
    bench.close(conn, true);
    bench.close(conn, true);
    bench.close(conn, false);
    bench.until("closed", |bench| bench.closed == [conn]);
    assert!(bench.sent[0].result.is_err());
    bench.until_over(client);
    bench.settle();
    assert_eq!(bench.closed, [conn], "one answer");
}

pub(crate) fn peer_resets<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    bench.reset(client, conn);
    bench.until("the reset", |bench| !bench.ends(conn).is_empty());
    assert_eq!(bench.ends(conn), [End::Failed(std::io::ErrorKind::ConnectionReset)]);
    bench.io().send(conn, b"to nobody".to_vec());
    bench.until("the failed send", |bench| bench.sent.len() == 1);
    assert!(bench.sent[0].result.is_err());
    bench.io().recv(conn);
    bench.io().pause_recv(conn);
    bench.settle();
    assert_eq!(bench.ends(conn).len(), 1, "it ended for good");
    bench.close_and_wait(conn);
}

pub(crate) fn peer_resets_a_send<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.connection();
    bench.io().send(conn, pattern(W::BIG));
    bench.until("unread bytes", |bench| bench.world.has_unread(client));
    bench.world.reset(client);
    bench.until("the failed send", |bench| bench.sent.len() == 1);
    assert!(bench.sent[0].result.is_err());
    bench.close_and_wait(conn);
}

pub(crate) fn half_close<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    bench.write_all(client, b"last words");
    bench.world.finish(client);
    bench.until("the end", |bench| bench.ends(conn) == [End::Eof]);
    assert_eq!(bench.received[&conn], b"last words");
    bench.io().send(conn, b"answer".to_vec());
    assert_eq!(bench.read_exactly(client, 6, 100), b"answer");
    bench.close_and_wait(conn);
    bench.until_seen(client, Seen::Eof);
}

pub(crate) fn finish_then_receive<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    bench.io().send(conn, b"that was all".to_vec());
    bench.io().finish(conn);
    assert_eq!(bench.read_exactly(client, 12, 100), b"that was all");
    bench.until_seen(client, Seen::Eof);
    bench.write_all(client, &pattern(5000));
    bench.until("bytes after FIN", |bench| bench.count_received(conn) == 5000);
    bench.world.finish(client);
    bench.until("the end", |bench| bench.ends(conn) == [End::Eof]);
    bench.close_and_wait(conn);
}

pub(crate) fn past_ids_do_nothing<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let mut past: Vec<ConnId> = Vec::new();
    for _ in 0..5 {
        let (client, conn) = bench.receiving();
        assert!(!past.contains(&conn));
        for old in &past {
            bench.io().recv(*old);
            bench.io().pause_recv(*old);
            bench.io().send(*old, b"from the past".to_vec());
            bench.io().finish(*old);
            bench.io().close(*old, true);
        }
        bench.write_all(client, b"present");
        bench.until("the present one's bytes", |bench| bench.count_received(conn) == 7);
        bench.io().send(conn, b"reply".to_vec());
        assert_eq!(bench.read_exactly(client, 5, 100), b"reply");
        bench.until("sent", |bench| bench.sent.pop().is_some());
        bench.close_and_wait(conn);
        bench.until_seen(client, Seen::Eof);
        past.push(conn);
    }
    assert!(
        past.iter().all(|conn| conn.slot == past[0].slot),
        "slots are used again"
    );
    assert_eq!(bench.closed.len(), 5);
}

pub(crate) fn overflow<W: World>(world: impl Fn(Options) -> W) {
    let reply = b"HTTP/1.1 503 Service Unavailable\r\n\r\n";
    let mut bench = Bench::new(world(Options {
        max_connections: 2,
        overflow_reply: reply.to_vec(),
        ..options()
    }));
    let (_, first) = bench.receiving();
    bench.receiving();
    let third = bench.world.connect();
    bench.until("the refusal", |bench| bench.refused == 1);
    assert!(bench.read_exactly(third, reply.len(), 1000) == reply);
    bench.until_over(third);
    bench.close_and_wait(first);
    bench.receiving();
    assert_eq!((bench.accepted.len(), bench.refused), (3, 1));
}

pub(crate) fn stop_takes_the_backlog<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let (client, conn) = bench.receiving();
    for _ in 0..5 {
        bench.world.connect();
    }
    if W::CONNECTS_TRAVEL {
        bench.settle();
    }
    bench.io().stop_accept();
    bench.io().stop_accept();
    bench.until("the end of accepting", |bench| bench.accept_ended == [None]);
    assert_eq!(bench.accepted.len(), 6);
    if let Some(late) = bench.world.try_connect() {
        bench.until_seen(late, Seen::Reset);
    }
    bench.write_all(client, b"still here");
    bench.until("bytes after stop", |bench| bench.count_received(conn) == 10);
    bench.close_and_wait(conn);
    bench.settle();
    assert_eq!(bench.accept_ended, [None], "one answer");
}

pub(crate) fn stop_before_start<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::unstarted(world(options()));
    bench.io().stop_accept();
    bench.until("the end of accepting", |bench| bench.accept_ended == [None]);
    bench.io().start_accept();
    bench.settle();
    assert_eq!(bench.accept_ended, [None]);
}

pub(crate) fn deadline<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    bench.turn();
    let deadline = bench.io().now() + 3_000_000;
    bench.turn_until(Some(deadline));
    let now = bench.io().now();
    assert!(now >= deadline, "{now} {deadline}");
    let unix = bench.io().unix_time();
    assert_eq!(
        (bench.io().now(), bench.io().unix_time()),
        (now, unix),
        "time stands still between turns"
    );
    bench.turn_until(Some(0));
    assert!(bench.io().now() >= now);
    assert!(bench.io().unix_time() >= unix);
    assert!(unix.0 > 1_600_000_000 && unix.1 < 1_000_000_000);
}

pub(crate) fn wake_when_awake<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    bench.turn();
    let waker = bench.io().waker();
    for round in 1..=20 {
        let waker = waker.clone();
        std::thread::spawn(move || {
            waker.wake();
            waker.wake();
        })
        .join()
        .expect("the waking thread");
        bench.turn_until(None);
        assert_eq!(bench.woken, round, "the next turn answers, once");
    }
    bench.settle();
    assert_eq!(bench.woken, 20);
}

pub(crate) fn wake_when_asleep<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    for round in 1..=5 {
        bench.world.wake_later();
        while bench.woken < round {
            bench.turn_until(None);
        }
    }
    assert!(bench.io().stats().sleeps > 0);
}

pub(crate) fn fewer_buffers_than_connections<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(Options {
        recv_buffers: 2,
        recv_buffer_size: 64,
        ..options()
    }));
    let pairs: Vec<_> = (0..24).map(|_| bench.connection()).collect();
    for (number, (client, _)) in pairs.iter().enumerate() {
        bench.write_all(*client, &pattern(1000 + number));
    }
    for (_, conn) in &pairs {
        bench.io().recv(*conn);
    }
    for (number, (_, conn)) in pairs.iter().enumerate() {
        bench.until("each one's bytes", |bench| bench.count_received(*conn) == 1000 + number);
        assert_eq!(bench.received[conn], pattern(1000 + number));
    }
    assert!(bench.io().stats().buffers_exhausted > 0);
}

pub(crate) fn held_buffers<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(Options {
        recv_buffers: 2,
        recv_buffer_size: 64,
        ..options()
    }));
    bench.hold = true;
    let (first, a) = bench.receiving();
    bench.write_all(first, &pattern(1000));
    bench.until("both buffers", |bench| bench.held.len() == 2);
    let (second, b) = bench.receiving();
    bench.write_all(second, b"waiting");
    bench.settle();
    assert_eq!(bench.count_received(b), 0, "there is no buffer");
    bench.io().pause_recv(b);
    bench.until("the pause of the starved", |bench| bench.ends(b) == [End::Paused]);
    bench.io().recv(b);
    bench.settle();
    bench.close(b, false);
    bench.until("the close of the starved", |bench| bench.closed == [b]);
    bench.hold = false;
    for buf in std::mem::take(&mut bench.held) {
        bench.io().give_back(buf);
    }
    bench.until("the rest", |bench| bench.count_received(a) == 1000);
    assert_eq!(bench.received[&a], pattern(1000));
}

/// Once a connection that had found no buffer and was then closed behind a slow reader received again as soon as there
/// were buffers, and nobody ended that: its slot came back only when the client let go.
pub(crate) fn close_of_the_starved_behind_a_send<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(Options {
        recv_buffers: 2,
        recv_buffer_size: 64,
        ..options()
    }));
    bench.hold = true;
    let (first, _) = bench.receiving();
    bench.write_all(first, &pattern(128));
    bench.until("both buffers", |bench| bench.held.len() == 2);
    let (second, conn) = bench.receiving();
    bench.write_all(second, b"waiting");
    bench.settle();
    bench.io().send(conn, vec![7; W::BIG]);
    bench.settle();
    bench.close(conn, false);
    bench.hold = false;
    for buf in std::mem::take(&mut bench.held) {
        bench.io().give_back(buf);
    }
    bench.settle();
    // What it left unread makes the close a reset, so not all of the reply need come.
    bench.until("the close", |bench| {
        bench.world.read(second, 1 << 20);
        bench.closed == [conn]
    });
}

/// Buffers of whole pages begin at pages, so that every alignment that the gateway promises holds.
pub(crate) fn buffers_begin_at_pages<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = Bench::new(world(Options {
        recv_buffers: 4,
        recv_buffer_size: 4096,
        ..options()
    }));
    bench.hold = true;
    let (client, _) = bench.receiving();
    // A short read makes two chunks of one write, so a round may bring more than one.
    for wanted in 1..=4 {
        bench.write_all(client, b"a chunk");
        bench.until("a chunk", |bench| bench.held.len() >= wanted);
    }
    for buf in std::mem::take(&mut bench.held) {
        let at = bench.io().bytes(&buf).as_ptr();
        assert!(at.addr().is_multiple_of(4096), "{at:?}");
        bench.io().give_back(buf);
    }
}

pub(crate) fn close_in_every_state<W: World>(world: impl Fn(Options) -> W) {
    for abort in [false, true] {
        let mut bench = start(&world);
        let conns: Vec<_> = (0..5).map(|_| bench.connection()).collect();
        let id = |index: usize| conns[index].1;
        bench.io().recv(id(1));
        bench.io().recv(id(2));
        bench.settle();
        bench.io().pause_recv(id(2));
        bench.io().recv(id(3));
        bench.io().pause_recv(id(3));
        bench.io().recv(id(3));
        bench.io().send(id(4), b"bye".to_vec());
        for (client, conn) in &conns {
            bench.world.write(*client, b"unread");
            bench.close(*conn, abort);
        }
        bench.until("all closed", |bench| bench.closed.len() == 5);
        for (client, _) in &conns {
            bench.until_over(*client);
        }
        assert_eq!(bench.sent.len(), 1, "the loan came back");
    }
}

pub(crate) fn drop_with_everything_in_flight<W: World>(world: impl Fn(Options) -> W) {
    let mut bench = start(world);
    let pairs: Vec<_> = (0..8).map(|_| bench.receiving()).collect();
    for (client, conn) in &pairs {
        bench.io().send(*conn, vec![7; W::BIG / 2]);
        bench.world.write(*client, &pattern(100));
    }
    bench.turn();
    for (client, conn) in pairs.iter().take(4) {
        bench.world.write(*client, &pattern(100));
        bench.io().pause_recv(*conn);
    }
    bench.world.drop_io();
    for (client, _) in &pairs {
        while bench.world.seen(*client) == Seen::Open {
            bench.world.read(*client, 1 << 20);
        }
    }
}
