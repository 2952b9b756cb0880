//! The network between clients and the simulated workers: wires with two directions, limited windows and delays, and the
//! agenda of what happens when.
//!
//! Single-threaded, no real time. Invariant: bytes of one direction arrive whole, once and in order, or the wire is reset.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{self, Write},
    net::SocketAddr,
};

use super::{
    Net,
    digest::{Digest, Summary},
    faults::{Fault, FaultCounts, Faults, Notice, Operation, Rng, What},
};
use crate::{ConnId, Nanos};

/// Bytes that a direction holds, travelling and unread together, unless `set_window` says otherwise.
pub const WINDOW: usize = 64 << 10;

/// A connection as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireId(pub(super) usize);

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
    Finish(ConnId),
    Close(ConnId),
    Read(ConnId),
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
            Self::Finish(conn) => write!(f, "finish {conn:?}"),
            Self::Close(conn) => write!(f, "close {conn:?}"),
            Self::Read(read) => write!(f, "read {read:?}"),
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
    pub(super) window: usize,
    /// Nothing sent later arrives earlier.
    last_arrival: Nanos,
    pub(super) end: End,
}

impl Pipe {
    pub(super) fn new() -> Self {
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
    /// The worker in whose queue it came.
    pub(super) worker: Option<usize>,
    /// Its id there, while the worker has it.
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

/// Whether a worker accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listening {
    Idle,
    On,
    Ended,
}

/// A worker's socket of a listening address.
pub(super) struct Listener {
    pub(super) state: Listening,
    /// Connections that nobody has accepted.
    pub(super) backlog: VecDeque<WireId>,
}

/// A worker's part of the network: its listening sockets, and what its kernel will do when.
pub(super) struct Station {
    pub(super) listeners: Vec<Listener>,
    agenda: BTreeMap<(Nanos, u64), Event>,
}

/// Everything that the workers' side and the clients' side share.
pub(super) struct Shared {
    pub(super) time: Nanos,
    /// What the wall clock is off by, in seconds.
    pub(super) wall: i64,
    /// Turns do not let time pass; [`Net::advance`] does.
    pub(super) held: bool,
    pub(super) rng: Rng,
    pub(super) faults: Faults,
    pub(super) counts: FaultCounts,
    pub(super) stations: Vec<Station>,
    /// What happens on wires, and scripts.
    agenda: BTreeMap<(Nanos, u64), Event>,
    next: u64,
    pub(super) wires: Vec<Wire>,
    pub(super) notices: Option<Vec<Notice>>,
    pub(super) digest: Digest,
    pub(super) trace: Option<Vec<String>>,
}

impl Shared {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            time: 0,
            wall: 0,
            held: false,
            rng: Rng::new(seed),
            faults,
            counts: FaultCounts::default(),
            stations: Vec::new(),
            agenda: BTreeMap::new(),
            next: 0,
            wires: Vec::new(),
            notices: None,
            digest: Digest::new(),
            trace: None,
        }
    }

    /// A place for one more worker; its number.
    pub(super) fn join(&mut self, listeners: u16) -> usize {
        let idle = || Listener {
            state: Listening::Idle,
            backlog: VecDeque::new(),
        };
        self.stations.push(Station {
            listeners: (0..listeners).map(|_| idle()).collect(),
            agenda: BTreeMap::new(),
        });
        self.stations.len() - 1
    }

    /// Rolls the dice for a fault; a hit is counted, and noticed if it is about a wire.
    pub(super) fn strikes(&mut self, fault: Fault, wire: Option<WireId>, during: Option<Operation>) -> bool {
        let hit = self.rng.strikes(self.faults.chance(fault));
        if hit {
            self.counts.add(fault);
            if wire.is_some() || during.is_some() {
                self.notice(wire, What::Struck(fault, during));
            }
        }
        hit
    }

    pub(super) fn did(&mut self, wire: WireId, operation: Operation) {
        self.notice(Some(wire), What::Did(operation));
    }

    pub(super) fn notice(&mut self, wire: Option<WireId>, what: What) {
        if let Some(notices) = &mut self.notices {
            notices.push(Notice { wire, what });
        }
    }

    /// A fault strikes every connection, those that nobody has accepted included.
    pub(super) fn notice_all(&mut self, fault: Fault) {
        if self.notices.is_none() {
            return;
        }
        for wire in 0..self.wires.len() {
            let ends = &self.wires[wire];
            if !ends.shut {
                self.notice(Some(WireId(wire)), What::Struck(fault, None));
            }
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

    /// On a wire, or a script.
    pub(super) fn at(&mut self, time: Nanos, event: Event) {
        self.agenda.insert((time, self.next), event);
        self.next += 1;
    }

    /// In the kernel of a worker.
    pub(super) fn at_station(&mut self, worker: usize, time: Nanos, event: Event) {
        self.stations[worker].agenda.insert((time, self.next), event);
        self.next += 1;
    }

    pub(super) fn delay(&mut self) -> Nanos {
        let range = self.faults.delay.clone();
        self.rng.within(&range)
    }

    pub(super) fn soon(&mut self, worker: usize, event: Event) {
        let time = self.time + self.delay();
        self.at_station(worker, time, event);
    }

    /// An operation of a worker takes effect: now, unless the submission queue is full.
    pub(super) fn submit(&mut self, worker: usize, event: Event, wire: Option<WireId>, operation: Operation) {
        if self.strikes(Fault::FullQueue, wire, Some(operation)) {
            self.soon(worker, event);
        } else {
            self.at_station(worker, self.time, event);
        }
    }

    /// The next event that is due on the wires or in this worker's kernel.
    pub(super) fn pop_due(&mut self, worker: Option<usize>) -> Option<Event> {
        let key = |agenda: &BTreeMap<(Nanos, u64), Event>| agenda.first_key_value().map(|(key, _)| *key);
        let own = worker.and_then(|worker| key(&self.stations[worker].agenda));
        let wires = key(&self.agenda);
        let first = [own, wires]
            .into_iter()
            .flatten()
            .min()
            .filter(|(time, _)| *time <= self.time)?;
        match worker {
            Some(worker) if own == Some(first) => self.stations[worker].agenda.remove(&first),
            _ => self.agenda.remove(&first),
        }
    }

    /// When something happens on a wire or in this worker's kernel.
    pub(super) fn next_time(&self, worker: usize) -> Option<Nanos> {
        [self.next_on_wires(), self.next_at(worker)].into_iter().flatten().min()
    }

    pub(super) fn next_at(&self, worker: usize) -> Option<Nanos> {
        self.stations[worker]
            .agenda
            .first_key_value()
            .map(|((time, _), _)| *time)
    }

    pub(super) fn next_on_wires(&self) -> Option<Nanos> {
        self.agenda.first_key_value().map(|((time, _), _)| *time)
    }

    /// Something arrived or ended on a wire: whoever waits for it looks again.
    fn news(&mut self, wire: WireId) {
        let ends = &self.wires[wire.0];
        let (worker, conn, broken) = (ends.worker, ends.conn, ends.down.end == End::Reset);
        if let (Some(worker), Some(conn)) = (worker, conn) {
            self.soon(worker, Event::Recv(conn));
            if broken {
                self.soon(worker, Event::Send(conn));
            }
        }
    }

    /// What happens on wires happens.
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Connect(wire) => self.connect(wire),
            Event::Bytes(wire, way, bytes) => {
                self.arrive(wire, way, &bytes);
                self.news(wire);
            }
            Event::Fin(wire, way) => {
                let pipe = self.wires[wire.0].pipe(way);
                if pipe.end != End::Reset {
                    pipe.end = End::Fin;
                }
                self.news(wire);
            }
            Event::Reset(wire, way) => {
                self.break_up(wire);
                self.lose_tail(wire, way);
                self.news(wire);
            }
            // Those of kernels are handled by their workers, scripts by whoever finds them.
            _ => {}
        }
    }

    /// A worker is gone: its listening sockets and its connections with it, and what nobody will ever accept.
    pub(super) fn leave(&mut self, worker: usize) {
        for listener in &mut self.stations[worker].listeners {
            listener.state = Listening::Ended;
        }
        let stations = self.stations.iter().flat_map(|station| &station.listeners);
        let alone = stations.into_iter().all(|listener| listener.state == Listening::Ended);
        for wire in (0..self.wires.len()).map(WireId) {
            let ends = &mut self.wires[wire.0];
            if !ends.shut && ends.worker.map_or(alone, |its| its == worker) {
                ends.shut = true;
                self.break_up(wire);
            }
        }
    }

    /// A connection reaches one of the workers that listen, as chance (the kernel's hash) has it.
    fn connect(&mut self, wire: WireId) {
        let index = usize::from(self.wires[wire.0].listener);
        let listens = |station: &Station| {
            let listener = station.listeners.get(index);
            listener.is_some_and(|listener| listener.state != Listening::Ended)
        };
        let group: Vec<usize> = (0..self.stations.len())
            .filter(|worker| listens(&self.stations[*worker]))
            .collect();
        if group.is_empty() {
            // Nobody listens there (any more).
            self.wires[wire.0].shut = true;
            return self.reset(wire, Way::Down);
        }
        let worker = group[self.rng.within(&(0..=group.len() as u64 - 1)) as usize];
        self.wires[wire.0].worker = Some(worker);
        let listener = &mut self.stations[worker].listeners[index];
        listener.backlog.push_back(wire);
        if listener.state == Listening::On {
            self.soon(worker, Event::Accept(index as u16));
        }
    }

    /// Puts something on a wire so that it arrives after what was put there before.
    pub(super) fn travel(&mut self, wire: WireId, way: Way, event: Event) {
        let mut arrival = self.time + self.delay();
        if self.strikes(Fault::Stall, Some(wire), None) {
            arrival += (0..100).map(|_| self.delay()).sum::<Nanos>();
        }
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
            && self.strikes(
                Fault::ShortWrite,
                Some(wire),
                (way == Way::Down).then_some(Operation::Send),
            )
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

    /// Bytes arrive, or the receiver learns of a reset instead.
    fn arrive(&mut self, wire: WireId, way: Way, bytes: &[u8]) {
        let struck = self.strikes(Fault::Reset, Some(wire), None);
        let ends = &mut self.wires[wire.0];
        let shut = ends.shut && way == Way::Up;
        let pipe = ends.pipe(way);
        pipe.travelling -= bytes.len();
        if struck {
            self.break_up(wire);
            self.lose_tail(wire, Way::Up);
            self.lose_tail(wire, Way::Down);
        } else if shut {
            self.reset(wire, Way::Down);
        } else if pipe.end != End::Reset {
            pipe.arrived.extend(bytes);
        }
    }

    /// A reset has reached the receiver of this direction, and may take away what that has not read.
    fn lose_tail(&mut self, wire: WireId, way: Way) {
        let unread = !self.wires[wire.0].pipe(way).arrived.is_empty();
        if unread && self.strikes(Fault::LostTail, Some(wire), None) {
            self.wires[wire.0].pipe(way).arrived.clear();
        }
    }

    /// Both sides learn at once that the connection is gone.
    pub(super) fn break_up(&mut self, wire: WireId) {
        let wire = &mut self.wires[wire.0];
        wire.up.end = End::Reset;
        wire.down.end = End::Reset;
    }
}
