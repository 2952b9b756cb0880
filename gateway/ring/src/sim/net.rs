//! The network between clients and the simulated worker: wires with two directions, limited windows and delays, the
//! agenda of what happens when, and the clients' side of it all.
//!
//! Single-threaded, no real time. Invariant: bytes of one direction arrive whole, once and in order, or the wire is reset.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fmt::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};

use super::faults::{FaultCounts, Faults, Rng};
use crate::{ConnId, ListenerId, Nanos};

/// Bytes that a direction holds, travelling and unread together, unless `set_window` says otherwise.
pub const WINDOW: usize = 64 << 10;

/// A connection as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireId(pub(super) usize);

/// What a client sees of its connection once it has read everything that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireState {
    /// More may come.
    Open,
    /// The worker sent FIN.
    Eof,
    /// The connection was reset.
    Reset,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Client to worker.
    Up,
    /// Worker to client.
    Down,
}

/// What is to happen at some time.
pub(super) enum Event {
    Connect(WireId),
    Bytes(WireId, Way, Vec<u8>),
    Fin(WireId, Way),
    Reset(WireId, Way),
    Accept(u16),
    Recv(ConnId),
    Send(ConnId),
    CancelRecv(ConnId),
    CancelSend(ConnId),
    Script(Box<dyn FnOnce(&Net)>),
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(wire) => write!(f, "connect {wire:?}"),
            Self::Bytes(wire, way, bytes) => write!(f, "bytes {wire:?} {way:?} {}", Summary(bytes)),
            Self::Fin(wire, way) => write!(f, "fin {wire:?} {way:?}"),
            Self::Reset(wire, way) => write!(f, "reset {wire:?} {way:?}"),
            Self::Accept(listener) => write!(f, "accept {listener}"),
            Self::Recv(conn) => write!(f, "recv {conn:?}"),
            Self::Send(conn) => write!(f, "send {conn:?}"),
            Self::CancelRecv(conn) => write!(f, "cancel recv {conn:?}"),
            Self::CancelSend(conn) => write!(f, "cancel send {conn:?}"),
            Self::Script(_) => write!(f, "script"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    None,
    /// FIN is under way; nothing can be written any more.
    Coming,
    /// FIN has arrived.
    Fin,
    Reset,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Bytes that the receiver has not read.
    pub(super) arrived: VecDeque<u8>,
    travelling: usize,
    window: usize,
    /// Nothing sent later arrives earlier.
    last_arrival: Nanos,
    pub(super) end: End,
}

impl Pipe {
    fn new() -> Self {
        Self {
            arrived: VecDeque::new(),
            travelling: 0,
            window: WINDOW,
            last_arrival: 0,
            end: End::None,
        }
    }

    pub(super) fn room(&self) -> usize {
        self.window.saturating_sub(self.arrived.len() + self.travelling)
    }

    /// Takes up to `most` unread bytes.
    pub(super) fn take(&mut self, most: usize) -> impl Iterator<Item = u8> + '_ {
        let count = most.min(self.arrived.len());
        self.arrived.drain(..count)
    }
}

/// A connection, from the connect on.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) listener: u16,
    pub(super) peer: SocketAddr,
    /// While the worker has it.
    pub(super) conn: Option<ConnId>,
    /// The worker (or its kernel, refusing) has closed its side: what comes up is answered with a reset.
    pub(super) shut: bool,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
}

impl Wire {
    pub(super) fn pipe(&mut self, way: Way) -> &mut Pipe {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

/// Everything that the worker's side and the clients' side share.
pub(super) struct Shared {
    pub(super) time: Nanos,
    pub(super) rng: Rng,
    pub(super) faults: Faults,
    pub(super) counts: FaultCounts,
    agenda: BTreeMap<(Nanos, u64), Event>,
    next: u64,
    pub(super) wires: Vec<Wire>,
    digest: Digest,
    trace: Option<Vec<String>>,
}

impl Shared {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            time: 0,
            rng: Rng::new(seed),
            faults,
            counts: FaultCounts::default(),
            agenda: BTreeMap::new(),
            next: 0,
            wires: Vec::new(),
            digest: Digest::new(),
            trace: None,
        }
    }

    pub(super) fn note(&mut self, what: fmt::Arguments<'_>) {
        let time = self.time;
        // Writing into a digest does not fail.
        let _ = writeln!(self.digest, "{time} {what}");
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{time} {what}"));
        }
    }

    pub(super) fn at(&mut self, time: Nanos, event: Event) {
        self.agenda.insert((time, self.next), event);
        self.next += 1;
    }

    pub(super) fn delay(&mut self) -> Nanos {
        let range = self.faults.delay.clone();
        self.rng.within(&range)
    }

    pub(super) fn soon(&mut self, event: Event) {
        let time = self.time + self.delay();
        self.at(time, event);
    }

    /// An operation of the worker takes effect: now, unless the submission queue is full.
    pub(super) fn submit(&mut self, event: Event) {
        if self.rng.strikes(self.faults.full_queue, &mut self.counts.full_queue) {
            self.soon(event);
        } else {
            self.at(self.time, event);
        }
    }

    pub(super) fn pop_due(&mut self) -> Option<Event> {
        let first = self.agenda.first_entry()?;
        if first.key().0 > self.time {
            None
        } else {
            Some(first.remove())
        }
    }

    pub(super) fn next_time(&self) -> Option<Nanos> {
        self.agenda.first_key_value().map(|((time, _), _)| *time)
    }

    /// Puts something on a wire so that it arrives after what was put there before.
    fn travel(&mut self, wire: WireId, way: Way, event: Event) {
        let arrival = self.time + self.delay();
        let pipe = self.wires[wire.0].pipe(way);
        let arrival = arrival.max(pipe.last_arrival);
        pipe.last_arrival = arrival;
        self.at(arrival, event);
    }

    /// Sends what the window admits; answers how much that was.
    pub(super) fn write(&mut self, wire: WireId, way: Way, bytes: &[u8]) -> usize {
        let pipe = self.wires[wire.0].pipe(way);
        if pipe.end != End::None {
            return 0;
        }
        let mut count = pipe.room().min(bytes.len());
        if count > 1
            && self
                .rng
                .strikes(self.faults.short_writes, &mut self.counts.short_writes)
        {
            count = self.rng.within(&(1..=count as u64 - 1)) as usize;
        }
        if count > 0 {
            self.wires[wire.0].pipe(way).travelling += count;
            self.travel(wire, way, Event::Bytes(wire, way, bytes[..count].to_vec()));
        }
        count
    }

    pub(super) fn fin(&mut self, wire: WireId, way: Way) {
        let pipe = self.wires[wire.0].pipe(way);
        if pipe.end == End::None {
            pipe.end = End::Coming;
            self.travel(wire, way, Event::Fin(wire, way));
        }
    }

    /// Sends a reset; what is still under way arrives before it.
    pub(super) fn reset(&mut self, wire: WireId, way: Way) {
        self.travel(wire, way, Event::Reset(wire, way));
    }

    /// Bytes arrive. False: the receiver learns of a reset instead.
    pub(super) fn arrive(&mut self, wire: WireId, way: Way, bytes: &[u8]) -> bool {
        let struck = self.rng.strikes(self.faults.resets, &mut self.counts.resets);
        let ends = &mut self.wires[wire.0];
        let shut = ends.shut && way == Way::Up;
        let pipe = ends.pipe(way);
        pipe.travelling -= bytes.len();
        if struck {
            self.break_up(wire);
        } else if shut {
            self.reset(wire, Way::Down);
        } else if pipe.end != End::Reset {
            pipe.arrived.extend(bytes);
        }
        !struck
    }

    /// Both sides learn at once that the connection is gone.
    pub(super) fn break_up(&mut self, wire: WireId) {
        let wire = &mut self.wires[wire.0];
        wire.up.end = End::Reset;
        wire.down.end = End::Reset;
    }
}

/// FNV-1a, 64 bits.
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// Bytes in a line of the trace: how many, and their digest.
pub(super) struct Summary<'a>(pub(super) &'a [u8]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digest = Digest::new();
        digest.add(self.0);
        write!(f, "{} {:016x}", self.0.len(), digest.0)
    }
}

/// The clients' side. Calls between turns act at the time of the last turn; [`Net::after`] acts within later ones.
#[derive(Clone)]
pub struct Net {
    pub(super) shared: Rc<RefCell<Shared>>,
}

impl Net {
    /// A new client connects; its address is `10.0.0.1` and a port that counts up.
    #[must_use]
    pub fn connect(&self, listener: ListenerId) -> WireId {
        let mut shared = self.shared.borrow_mut();
        let wire = WireId(shared.wires.len());
        let port = 1024 + (wire.0 % 60_000) as u16;
        shared.wires.push(Wire {
            listener: listener.0,
            peer: SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), port)),
            conn: None,
            shut: false,
            up: Pipe::new(),
            down: Pipe::new(),
        });
        shared.note(format_args!("client connects {wire:?}"));
        shared.travel(wire, Way::Up, Event::Connect(wire));
        wire
    }

    /// The client sends what the window admits; answers how much that was.
    pub fn write(&self, wire: WireId, bytes: &[u8]) -> usize {
        let mut shared = self.shared.borrow_mut();
        let count = shared.write(wire, Way::Up, bytes);
        shared.note(format_args!("client writes {wire:?} {count} of {}", Summary(bytes)));
        count
    }

    /// The client takes up to `most` bytes that have come.
    #[must_use]
    pub fn read(&self, wire: WireId, most: usize) -> Vec<u8> {
        let mut shared = self.shared.borrow_mut();
        let bytes: Vec<u8> = shared.wires[wire.0].down.take(most).collect();
        shared.note(format_args!("client reads {wire:?} {}", bytes.len()));
        if let (false, Some(conn)) = (bytes.is_empty(), shared.wires[wire.0].conn) {
            // The worker's kernel learns of the room.
            shared.soon(Event::Send(conn));
        }
        bytes
    }

    /// How many bytes may be under way to the client or unread by it.
    pub fn set_window(&self, wire: WireId, bytes: usize) {
        self.shared.borrow_mut().wires[wire.0].down.window = bytes;
    }

    /// The client sends FIN.
    pub fn finish(&self, wire: WireId) {
        let mut shared = self.shared.borrow_mut();
        shared.note(format_args!("client finishes {wire:?}"));
        shared.fin(wire, Way::Up);
    }

    /// The client resets the connection.
    pub fn reset(&self, wire: WireId) {
        let mut shared = self.shared.borrow_mut();
        shared.note(format_args!("client resets {wire:?}"));
        shared.wires[wire.0].down.end = End::Reset;
        shared.reset(wire, Way::Up);
    }

    /// What the client sees.
    #[must_use]
    pub fn state(&self, wire: WireId) -> WireState {
        let shared = self.shared.borrow();
        let down = &shared.wires[wire.0].down;
        match down.end {
            End::Reset => WireState::Reset,
            End::Fin if down.arrived.is_empty() => WireState::Eof,
            _ => WireState::Open,
        }
    }

    /// The client's address, as the worker sees it.
    #[must_use]
    pub fn address(&self, wire: WireId) -> SocketAddr {
        self.shared.borrow().wires[wire.0].peer
    }

    /// Bytes that have come and that the client has not read.
    #[must_use]
    pub fn unread(&self, wire: WireId) -> usize {
        self.shared.borrow().wires[wire.0].down.arrived.len()
    }

    /// Runs `script` when virtual time has advanced by `delay`, inside a turn.
    pub fn after(&self, delay: Nanos, script: impl FnOnce(&Self) + 'static) {
        let mut shared = self.shared.borrow_mut();
        let time = shared.time + delay;
        shared.at(time, Event::Script(Box::new(script)));
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.borrow().time
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.borrow_mut().faults = faults;
    }

    /// How often each fault has struck.
    #[must_use]
    pub fn faults(&self) -> FaultCounts {
        self.shared.borrow().counts
    }

    /// A digest of everything that has happened and been asked for: equal for equal seeds and equal workers.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.shared.borrow().digest.0
    }

    /// Keeps the lines behind the digest from now on, for a look at a run that failed.
    pub fn keep_trace(&self) {
        self.shared.borrow_mut().trace.get_or_insert_default();
    }

    /// The lines kept since `keep_trace` or the last call.
    #[must_use]
    pub fn take_trace(&self) -> Vec<String> {
        self.shared
            .borrow_mut()
            .trace
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}
