//! What the tests of the makers share: a world is a maker with the clients' end of its network; a bench drives a world
//! and keeps everything that was answered.
//!
//! It never sleeps: it turns the maker until a condition holds or patience ends. Invariant checked on every answer: it
//! names a connection that was accepted and is not closed, and after a `close` only `Sent` and `Closed` follow, and what was
//! answered before.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod cases;
pub(crate) mod reads;
pub(crate) mod worlds;

use std::{
    collections::{HashMap, HashSet},
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use zerohop_ring::{Accepted, BufId, Completion, ConnId, Io, Options, ReadFile, ReadToken, RecvEnd};

/// What a client sees when it has read all that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Open,
    Eof,
    Reset,
}

/// A client, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(pub(crate) usize);

/// A maker and the clients' end of its network.
pub(crate) trait World {
    type Io: Io;
    /// More bytes than the network between holds.
    const BIG: usize;
    /// A connect reaches the listener's queue only in a later turn.
    const CONNECTS_TRAVEL: bool;

    fn io(&mut self) -> &mut Self::Io;
    /// Sends avoid the copy, so that a head may stay with the kernel after the answer.
    fn may_keep_heads(&self) -> bool {
        false
    }
    /// `None`: refused.
    fn try_connect(&mut self) -> Option<Client>;
    fn address(&self, client: Client) -> SocketAddr;
    /// Without waiting; how much was taken.
    fn write(&mut self, client: Client, bytes: &[u8]) -> usize;
    /// Without waiting.
    fn read(&mut self, client: Client, most: usize) -> Vec<u8>;
    fn seen(&mut self, client: Client) -> Seen;
    fn finish(&mut self, client: Client);
    fn has_unread(&mut self, client: Client) -> bool;
    /// Only with unread bytes (see [`Bench::reset`]).
    fn reset(&mut self, client: Client);
    /// Wakes the worker when it sleeps (where it can sleep), from somewhere else.
    fn wake_later(&mut self);
    /// A file with these bytes.
    fn file(&mut self, bytes: Vec<u8>) -> Arc<ReadFile>;
    /// A file that cannot be read.
    fn broken_file(&mut self) -> Arc<ReadFile>;
    /// A file for another maker.
    fn foreign_file(&mut self) -> Arc<ReadFile>;
    /// Drops the maker and keeps the clients.
    fn drop_io(&mut self);

    fn connect(&mut self) -> Client {
        self.try_connect().expect("a listener")
    }
}

/// How receiving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Eof,
    Paused,
    Failed(io::ErrorKind),
}

/// An answered send.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) conn: ConnId,
    pub(crate) buf: Vec<u8>,
    pub(crate) result: Result<usize, io::ErrorKind>,
}

/// A world and everything that its maker has answered.
pub(crate) struct Bench<W> {
    pub(crate) world: W,
    pub(crate) accepted: Vec<Accepted>,
    pub(crate) refused: usize,
    pub(crate) accept_ended: Vec<Option<io::ErrorKind>>,
    pub(crate) received: HashMap<ConnId, Vec<u8>>,
    pub(crate) ended: HashMap<ConnId, Vec<End>>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) read: Vec<(ReadToken, Result<Vec<u8>, io::ErrorKind>)>,
    pub(crate) closed: Vec<ConnId>,
    pub(crate) woken: usize,
    /// Buffers are kept here instead of being given back at once.
    pub(crate) hold: bool,
    pub(crate) held: Vec<BufId>,
    closing: HashSet<ConnId>,
    out: Vec<Completion>,
}

impl<W: World> Bench<W> {
    pub(crate) fn new(world: W) -> Self {
        let mut bench = Self::unstarted(world);
        bench.world.io().start_accept();
        bench
    }

    pub(crate) fn unstarted(world: W) -> Self {
        Self {
            world,
            accepted: Vec::new(),
            refused: 0,
            accept_ended: Vec::new(),
            received: HashMap::new(),
            ended: HashMap::new(),
            sent: Vec::new(),
            read: Vec::new(),
            closed: Vec::new(),
            woken: 0,
            hold: false,
            held: Vec::new(),
            closing: HashSet::new(),
            out: Vec::new(),
        }
    }

    pub(crate) fn io(&mut self) -> &mut W::Io {
        self.world.io()
    }

    /// One turn of at most two milliseconds.
    pub(crate) fn turn(&mut self) {
        let deadline = self.io().now() + 2_000_000;
        self.turn_until(Some(deadline));
    }

    pub(crate) fn turn_until(&mut self, deadline: Option<u64>) {
        let mut out = std::mem::take(&mut self.out);
        self.world.io().turn(deadline, &mut out).expect("a turn");
        for completion in out.drain(..) {
            self.keep(completion);
        }
        self.out = out;
    }

    fn keep(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted(accepted) => {
                let slot = accepted.conn.slot;
                let live = |other: &&Accepted| other.conn.slot == slot && !self.closed.contains(&other.conn);
                assert!(!self.accepted.iter().any(|other| live(&other)), "slot {slot} is in use");
                self.accepted.push(accepted);
            }
            Completion::Refused { .. } => self.refused += 1,
            Completion::AcceptEnded { error, .. } => self.accept_ended.push(error.map(|error| error.kind())),
            Completion::Received { conn, buf } => {
                self.must_be_open(conn);
                let bytes = self.world.io().bytes(&buf).to_vec();
                assert!(!bytes.is_empty(), "a chunk is never empty");
                self.received.entry(conn).or_default().extend(bytes);
                if self.hold {
                    self.held.push(buf);
                } else {
                    self.world.io().give_back(buf);
                }
            }
            Completion::RecvEnded { conn, end } => {
                let end = match end {
                    RecvEnd::Eof => End::Eof,
                    RecvEnd::Paused => End::Paused,
                    RecvEnd::Failed(error) => End::Failed(error.kind()),
                };
                match end {
                    // A pause may have been answered before the close and be handed out after it.
                    End::Paused => self.must_live(conn),
                    _ => self.must_be_open(conn),
                }
                self.ended.entry(conn).or_default().push(end);
            }
            Completion::Sent { conn, buf, result } => {
                self.must_live(conn);
                self.sent.push(Sent {
                    conn,
                    buf,
                    result: result.map_err(|error| error.kind()),
                });
            }
            Completion::Read { token, outcome } => {
                // It may have been answered before the close and be handed out after it.
                self.must_live(token.conn);
                self.read.push((token, outcome.map_err(|error| error.kind())));
            }
            Completion::Closed { conn } => {
                self.must_live(conn);
                assert!(self.closing.contains(&conn), "closed without having been asked");
                self.closed.push(conn);
            }
            Completion::Woken => self.woken += 1,
        }
    }

    fn must_live(&self, conn: ConnId) {
        assert!(
            self.accepted.iter().any(|accepted| accepted.conn == conn),
            "{conn:?} was never accepted"
        );
        assert!(!self.closed.contains(&conn), "{conn:?} is closed");
    }

    fn must_be_open(&self, conn: ConnId) {
        self.must_live(conn);
        assert!(
            !self.closing.contains(&conn),
            "{conn:?} is closing and should say nothing but Sent and Closed"
        );
    }

    /// Turns until the condition holds.
    ///
    /// # Panics
    /// When patience ends: many turns, and half a minute, of which nothing depends but a failing test's duration.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let patience = Instant::now() + Duration::from_secs(30);
        let mut turns = 0u32;
        while !holds(self) {
            turns += 1;
            assert!(turns < 1000 || Instant::now() < patience, "in vain: {what}");
            self.turn();
        }
    }

    /// Turns some times, for what should not happen.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10 {
            self.turn();
        }
    }

    /// A client connects and its connection is accepted.
    pub(crate) fn connection(&mut self) -> (Client, ConnId) {
        let client = self.world.connect();
        let before = self.accepted.len();
        self.until("accept", |bench| bench.accepted.len() > before);
        (client, self.accepted[before].conn)
    }

    /// As `connection`, and it receives.
    pub(crate) fn receiving(&mut self) -> (Client, ConnId) {
        let (client, conn) = self.connection();
        self.io().recv(conn);
        (client, conn)
    }

    pub(crate) fn close(&mut self, conn: ConnId, abort: bool) {
        self.closing.insert(conn);
        self.io().close(conn, abort);
    }

    pub(crate) fn close_and_wait(&mut self, conn: ConnId) {
        self.close(conn, false);
        self.until("close", |bench| bench.closed.contains(&conn));
    }

    pub(crate) fn count_received(&self, conn: ConnId) -> usize {
        self.received.get(&conn).map_or(0, Vec::len)
    }

    pub(crate) fn ends(&self, conn: ConnId) -> &[End] {
        self.ended.get(&conn).map_or(&[], Vec::as_slice)
    }

    /// The client writes everything, while the maker turns.
    pub(crate) fn write_all(&mut self, client: Client, bytes: &[u8]) {
        let mut written = 0;
        self.until("write", |bench| {
            written += bench.world.write(client, &bytes[written..]);
            written == bytes.len()
        });
    }

    /// The client reads this many bytes, while the maker turns.
    pub(crate) fn read_exactly(&mut self, client: Client, count: usize, at_a_time: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.until("read", |bench| {
            bytes.extend(bench.world.read(client, at_a_time.min(count - bytes.len())));
            bytes.len() == count
        });
        bytes
    }

    /// The client resets its connection.
    pub(crate) fn reset(&mut self, client: Client, conn: ConnId) {
        self.io().send(conn, b"unread".to_vec());
        self.until("bytes to leave unread", |bench| {
            bench.world.has_unread(client) && bench.sent.pop().is_some()
        });
        self.world.reset(client);
    }

    /// The client sees the end.
    pub(crate) fn until_seen(&mut self, client: Client, seen: Seen) {
        self.until("end at the client", |bench| bench.world.seen(client) == seen);
    }

    /// The client's connection is over, in whichever way, once it has read what came.
    pub(crate) fn until_over(&mut self, client: Client) {
        self.until("end at the client", |bench| {
            bench.world.read(client, 1 << 20);
            bench.world.seen(client) != Seen::Open
        });
    }
}

/// Options for tests: small tables.
pub(crate) fn options() -> Options {
    Options {
        max_connections: 64,
        recv_buffers: 64,
        recv_buffer_size: 1024,
        ..Options::default()
    }
}

/// Bytes in which every position is recognisable.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}
