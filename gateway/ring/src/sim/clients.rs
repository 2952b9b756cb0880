//! The clients' side of the simulated network, and the side of whoever drives several workers on it.
//!
//! It asks nothing of a worker. Invariant: what a client does leaves through the same wires, with the same delays, as what
//! a worker does.

use std::{
    cell::RefCell,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};

use super::{
    digest::Summary,
    faults::{Fault, FaultCounts, Faults, Notice},
    net::{End, Event, Pipe, Shared, Way, Wire, WireId},
};
use crate::{ConnId, ListenerId, Nanos};

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
            worker: None,
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
        let ends = &shared.wires[wire.0];
        if let (false, Some(worker), Some(conn)) = (bytes.is_empty(), ends.worker, ends.conn) {
            // The worker's kernel learns of the room.
            shared.soon(worker, Event::Send(conn));
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

    /// The calendar moves by this many seconds; the monotonic clock does not notice.
    pub fn set_wall_clock(&self, seconds: i64) {
        let mut shared = self.shared.borrow_mut();
        shared.note(format_args!("the wall clock moves by {seconds} s"));
        shared.wall += seconds;
        shared.notice_all(Fault::ClockStep);
    }

    /// From now on no turn lets time pass beyond its own cost, nor waits: [`Net::advance`] does. For whoever drives
    /// several workers on one network.
    pub fn hold_clock(&self) {
        self.shared.borrow_mut().held = true;
    }

    /// Time passes until `time`; what is due by then on wires happens.
    pub fn advance(&self, time: Nanos) {
        let mut shared = self.shared.borrow_mut();
        shared.time = shared.time.max(time);
        drop(shared);
        self.run_wires();
    }

    /// What is due on wires happens.
    pub fn run_wires(&self) {
        loop {
            let event = self.shared.borrow_mut().pop_due(None);
            match event {
                Some(Event::Script(script)) => script(self),
                Some(event) => {
                    let mut shared = self.shared.borrow_mut();
                    shared.note(format_args!("{event:?}"));
                    shared.happen(event);
                }
                None => return,
            }
        }
    }

    /// When something happens on a wire; `None`: never.
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        self.shared.borrow().next_on_wires()
    }

    /// Which worker has this connection, and as what.
    #[must_use]
    pub fn carried(&self, wire: WireId) -> Option<(usize, ConnId)> {
        let shared = self.shared.borrow();
        let ends = &shared.wires[wire.0];
        ends.worker.zip(ends.conn)
    }

    /// Whether no worker has this connection yet: it is on its way, or waits in the queue of the worker that is given.
    #[must_use]
    pub fn queued(&self, wire: WireId) -> Option<Option<usize>> {
        let shared = self.shared.borrow();
        let ends = &shared.wires[wire.0];
        (ends.conn.is_none() && !ends.shut).then_some(ends.worker)
    }

    /// Keeps notices from now on.
    pub fn keep_notices(&self) {
        self.shared.borrow_mut().notices.get_or_insert_default();
    }

    /// The notices since `keep_notices` or the last call.
    #[must_use]
    pub fn take_notices(&self) -> Vec<Notice> {
        self.shared
            .borrow_mut()
            .notices
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Adds a line to the digest and to the trace.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        self.shared.borrow_mut().note(what);
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
