//! The simulated maker: a network and a kernel in memory, driven by a seed and a clock that only [`Io::turn`] advances.
//!
//! A worker runs on it as on the real makers; tests hold the clients' end ([`Net`]). The same seed, the same worker and
//! the same clients give the same run, byte for byte: [`Net::digest`] proves it. It opens no socket, starts no thread and
//! reads no clock. Several workers may share a network ([`Sim::join`]); whoever drives them then holds the clock
//! ([`Net::hold_clock`]). Invariant: whatever the faults, the order and meaning of completions are those of the table of
//! [`Io`].

mod clients;
mod conn;
mod digest;
mod faults;
mod files;
mod net;

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub use clients::{Net, WireState};
use conn::Conn;
use digest::Summary;
pub use faults::{Fault, FaultCounts, Faults, Notice, Operation, What};
pub use files::Contents;
use net::{Event, Listening, Shared, Way};
pub use net::{WINDOW, WireId};

use crate::{
    Accepted, BufId, Completion, ConnId, Io, IoStats, ListenerId, Nanos, Options, Parcel, ReadFile, ReadToken, Wake,
    accept::REST, file::Reading, pool::Pool, slots::Slots,
};

/// What a turn takes, so that a worker that never waits still gets older.
const TURN: Nanos = 1_000;
/// The calendar at the origin of the virtual clock.
const UNIX_ORIGIN: u64 = 1_700_000_000;
/// Most seconds by which a fault moves the wall clock.
const CLOCK_STEP: u64 = 86_400;

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// `Io` on the simulated network.
pub struct Sim {
    shared: Rc<RefCell<Shared>>,
    /// Its number on the network.
    worker: usize,
    conns: Slots<Conn>,
    pool: Pool,
    /// Whose bytes each lent buffer holds.
    lent: BTreeMap<u32, WireId>,
    ready: VecDeque<Completion>,
    starved: VecDeque<ConnId>,
    reads: Slots<Reading>,
    wake: Arc<Flag>,
    now: Nanos,
    /// The wall clock's seconds beyond the monotonic clock, as of the last turn.
    wall: i64,
    overflow_reply: Vec<u8>,
    stats: IoStats,
}

impl Sim {
    /// A worker's `Io` with this many listeners, and the clients' side of the same network.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of range, or real listeners among the options.
    pub fn new(seed: u64, faults: Faults, listeners: u16, options: Options) -> io::Result<(Self, Net)> {
        let net = Net {
            shared: Rc::new(RefCell::new(Shared::new(seed, faults))),
        };
        Ok((Self::join(&net, listeners, options)?, net))
    }

    /// One more worker's `Io` on the same network: its sockets listen at the addresses of the others, and a connection
    /// reaches one of them.
    ///
    /// # Errors
    /// As [`Sim::new`].
    pub fn join(net: &Net, listeners: u16, options: Options) -> io::Result<Self> {
        options.check()?;
        if !options.listeners.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a simulated network has no real listeners",
            ));
        }
        let worker = net.shared.borrow_mut().join(listeners);
        Ok(Self {
            shared: net.shared.clone(),
            worker,
            conns: Slots::new(options.max_connections),
            pool: Pool::new(options.recv_buffers, options.recv_buffer_size),
            lent: BTreeMap::new(),
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            reads: Slots::new(options.max_reads),
            wake: Arc::default(),
            now: 0,
            wall: 0,
            overflow_reply: options.overflow_reply,
            stats: IoStats::default(),
        })
    }

    /// Whether a turn would hand something out.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || self.wake.0.load(Ordering::SeqCst)
    }

    /// When this worker's kernel goes on; `None`: not by itself.
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        let shared = self.shared.borrow();
        if !self.starved.is_empty() && self.pool.free() > 0 {
            return Some(shared.time);
        }
        shared.next_at(self.worker)
    }

    /// The kernel does what is due, though the worker does not turn.
    pub fn run_kernel(&mut self) {
        self.feed_starved();
        self.run_due();
    }

    /// How many buffers the worker holds: handed out and not given back.
    #[must_use]
    pub fn held_buffers(&self) -> usize {
        let waiting = self
            .ready
            .iter()
            .filter(|completion| matches!(completion, Completion::Received { .. }));
        self.lent.len() - waiting.count()
    }

    /// How many buffers are neither vacant nor lent: none, or the pool has lost some.
    #[must_use]
    pub fn lost_buffers(&self) -> usize {
        self.pool.bound() - self.pool.free() - self.lent.len()
    }

    /// How many connections the worker knows of: accepted to its knowledge, and not closed to its knowledge.
    #[must_use]
    pub fn known(&self) -> usize {
        let count = |wanted: fn(&Completion) -> bool| self.ready.iter().filter(|it| wanted(it)).count();
        let accepted = count(|it| matches!(it, Completion::Accepted(_)));
        self.conns.len() + count(|it| matches!(it, Completion::Closed { .. })) - accepted
    }

    /// What the kernel has in hand for a connection, as far as the worker can know; `None`: it knows none of this id.
    #[must_use]
    pub fn in_hand(&mut self, id: ConnId) -> Option<InHand> {
        let waits = |wanted: fn(&Completion) -> bool| {
            let about = self.ready.iter().filter(|it| conn_of(it) == Some(id));
            about.into_iter().any(wanted)
        };
        let ended = waits(|it| matches!(it, Completion::RecvEnded { .. }));
        let sent = waits(|it| matches!(it, Completion::Sent { .. }));
        let closed = waits(|it| matches!(it, Completion::Closed { .. }));
        let is_read = |it: &&Completion| matches!(it, Completion::Read { token, .. } if token.conn == id);
        let read = self.ready.iter().filter(is_read).count();
        match self.conns.get_mut(id) {
            Some(conn) => Some(conn.in_hand(ended, sent, read)),
            None => closed.then_some(InHand {
                receiving: ended,
                sending: sent,
                reading: read,
                closing: true,
            }),
        }
    }

    fn happen(&mut self, event: Event) {
        let mut shared = self.shared.borrow_mut();
        shared.note(format_args!("{event:?}"));
        match event {
            Event::Connect(_) | Event::Bytes(..) | Event::Fin(..) | Event::Reset(..) => return shared.happen(event),
            _ => drop(shared),
        }
        match event {
            Event::Accept(listener) => self.on_accept(listener),
            Event::Recv(conn) => self.on_recv(conn),
            Event::Send(conn) => self.on_send(conn),
            Event::CancelRecv(conn) => self.on_cancel_recv(conn),
            Event::CancelSend(conn) => self.on_cancel_send(conn),
            Event::Finish(conn) => self.on_finish(conn),
            Event::Close(conn) => self.on_close(conn),
            Event::Read(read) => self.on_read(read),
            Event::Script(script) => script(&Net {
                shared: self.shared.clone(),
            }),
            Event::Connect(_) | Event::Bytes(..) | Event::Fin(..) | Event::Reset(..) => {}
        }
    }

    fn on_accept(&mut self, index: u16) {
        {
            let shared = &mut *self.shared.borrow_mut();
            let listener = &shared.stations[self.worker].listeners[usize::from(index)];
            let Some(first) = listener
                .backlog
                .front()
                .copied()
                .filter(|_| listener.state == Listening::On)
            else {
                return;
            };
            if shared.strikes(Fault::Shortage, Some(first), Some(Operation::Accept)) {
                let later = shared.time + REST;
                return shared.at_station(self.worker, later, Event::Accept(index));
            }
        }
        self.accept_all(index);
    }

    fn accept_all(&mut self, index: u16) {
        loop {
            let listener = ListenerId(index);
            let mut shared = self.shared.borrow_mut();
            let station = &mut shared.stations[self.worker];
            let Some(wire) = station.listeners[usize::from(index)].backlog.pop_front() else {
                return;
            };
            let ends = &mut shared.wires[wire.0];
            if ends.up.end == net::End::Reset && ends.up.arrived.is_empty() {
                continue;
            }
            let peer = ends.peer;
            match self.conns.insert(Conn::new(wire)) {
                Ok(conn) => {
                    ends.conn = Some(conn);
                    self.ready
                        .push_back(Completion::Accepted(Accepted { listener, conn, peer }));
                }
                Err(_) => {
                    ends.shut = true;
                    // A new connection has room for a short reply; what does not fit is lost.
                    let mut rest = self.overflow_reply.as_slice();
                    while !rest.is_empty() {
                        match shared.write(wire, Way::Down, rest) {
                            0 => break,
                            taken => rest = &rest[taken..],
                        }
                    }
                    shared.fin(wire, Way::Down);
                    self.ready.push_back(Completion::Refused { listener });
                }
            }
        }
    }

    /// Runs what is due, at the present virtual time.
    fn run_due(&mut self) {
        loop {
            let event = self.shared.borrow_mut().pop_due(Some(self.worker));
            match event {
                Some(event) => self.happen(event),
                None => break,
            }
        }
    }

    /// How many of the completions that are ready this turn hands out: all, unless the queue is full.
    fn room(&mut self) -> usize {
        let count = self.ready.len();
        let mut shared = self.shared.borrow_mut();
        if count < 2 || !shared.strikes(Fault::HeldCompletion, None, None) {
            return count;
        }
        let room = shared.rng.within(&(1..=count as u64 - 1)) as usize;
        for conn in self.ready.iter().skip(room).filter_map(conn_of) {
            if let Some(conn) = self.conns.get_mut(conn) {
                shared.notice(Some(conn.wire()), What::Struck(Fault::HeldCompletion, None));
            }
        }
        room
    }

    /// Somebody sets the wall clock.
    fn set_wall_clock(&mut self) {
        let mut shared = self.shared.borrow_mut();
        if shared.strikes(Fault::ClockStep, None, None) {
            let step = shared.rng.within(&(0..=2 * CLOCK_STEP)) as i64 - CLOCK_STEP as i64;
            shared.wall += step;
            shared.notice_all(Fault::ClockStep);
        }
        self.wall = shared.wall;
    }

    fn hand_out(&mut self, out: &mut Vec<Completion>) {
        if self.wake.0.swap(false, Ordering::SeqCst) {
            self.ready.push_back(Completion::Woken);
        }
        let room = self.room();
        let mut shared = self.shared.borrow_mut();
        for completion in self.ready.drain(..room) {
            match &completion {
                Completion::Sent { conn, result, .. } => {
                    shared.note(format_args!(
                        "answer sent {conn:?} {:?}",
                        result.as_ref().map_err(io::Error::kind)
                    ));
                }
                Completion::Received { conn, buf } => {
                    shared.note(format_args!(
                        "answer received {conn:?} {}",
                        Summary(self.pool.bytes(buf))
                    ));
                    if let Some(wire) = self.lent.get(&buf.id) {
                        shared.did(*wire, Operation::Recv);
                    }
                }
                Completion::Accepted(accepted) => {
                    shared.note(format_args!("answer {completion:?}"));
                    if let Some(conn) = self.conns.get_mut(accepted.conn) {
                        shared.did(conn.wire(), Operation::Accept);
                    }
                }
                Completion::Read { token, outcome } => match outcome {
                    Ok(bytes) => shared.note(format_args!("answer read {token:?} {}", Summary(bytes))),
                    Err(error) => shared.note(format_args!("answer read {token:?} {:?}", error.kind())),
                },
                completion => shared.note(format_args!("answer {completion:?}")),
            }
            out.push(completion);
        }
    }
}

/// What a simulated kernel does for a connection, or has done without saying so yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InHand {
    /// It receives, or has not yet said that it does not.
    pub receiving: bool,
    /// It sends, or has not yet said that it is done.
    pub sending: bool,
    /// So many reads of files for it, which it goes on with or has not yet said to be over.
    pub reading: usize,
    /// It was told to close.
    pub closing: bool,
}

/// Whom a completion is about.
fn conn_of(completion: &Completion) -> Option<ConnId> {
    match completion {
        Completion::Accepted(accepted) => Some(accepted.conn),
        Completion::Received { conn, .. }
        | Completion::RecvEnded { conn, .. }
        | Completion::Sent { conn, .. }
        | Completion::Closed { conn } => Some(*conn),
        Completion::Read { token, .. } => Some(token.conn),
        Completion::Refused { .. } | Completion::AcceptEnded { .. } | Completion::Woken => None,
    }
}

impl Drop for Sim {
    /// The worker is gone: so is every connection.
    fn drop(&mut self) {
        self.shared.borrow_mut().leave(self.worker);
    }
}

impl Io for Sim {
    fn now(&self) -> Nanos {
        self.now
    }

    fn unix_time(&self) -> (u64, u32) {
        let seconds = UNIX_ORIGIN + self.now / 1_000_000_000;
        (
            seconds.saturating_add_signed(self.wall),
            (self.now % 1_000_000_000) as u32,
        )
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.wake.clone()
    }

    fn start_accept(&mut self) {
        let mut shared = self.shared.borrow_mut();
        for index in 0..shared.stations[self.worker].listeners.len() {
            let listener = &mut shared.stations[self.worker].listeners[index];
            if listener.state == Listening::Idle {
                listener.state = Listening::On;
                shared.submit(self.worker, Event::Accept(index as u16), None, Operation::Accept);
            }
        }
    }

    fn stop_accept(&mut self) {
        let count = self.shared.borrow().stations[self.worker].listeners.len();
        for index in 0..count {
            let mut shared = self.shared.borrow_mut();
            let listener = &mut shared.stations[self.worker].listeners[index];
            let before = std::mem::replace(&mut listener.state, Listening::Ended);
            drop(shared);
            if before == Listening::On {
                self.accept_all(index as u16);
            }
            if before != Listening::Ended {
                let mut shared = self.shared.borrow_mut();
                let refused = std::mem::take(&mut shared.stations[self.worker].listeners[index].backlog);
                for wire in refused {
                    shared.wires[wire.0].shut = true;
                    shared.reset(wire, Way::Down);
                }
                self.ready.push_back(Completion::AcceptEnded {
                    listener: ListenerId(index as u16),
                    error: None,
                });
            }
        }
    }

    fn recv(&mut self, conn: ConnId) {
        self.start_recv(conn);
    }

    fn pause_recv(&mut self, conn: ConnId) {
        self.cancel_recv(conn);
    }

    fn bytes(&self, buf: &BufId) -> &[u8] {
        self.pool.bytes(buf)
    }

    fn give_back(&mut self, buf: BufId) {
        let wire = self.lent.remove(&buf.id).expect("a buffer that is lent");
        self.shared.borrow_mut().did(wire, Operation::GiveBack);
        self.pool.give_back(buf.id);
    }

    fn send(&mut self, conn: ConnId, parcel: impl Into<Parcel>) {
        self.start_send(conn, parcel.into());
    }

    fn finish(&mut self, conn: ConnId) {
        self.start_finish(conn);
    }

    fn close(&mut self, conn: ConnId, abort: bool) {
        self.start_close(conn, abort);
    }

    fn read(&mut self, token: ReadToken, file: &Arc<ReadFile>, offset: u64, len: usize, buf: Vec<u8>) {
        self.start_read(token, file, (offset, len), buf);
    }

    /// As [`Io::turn`], in virtual time. A turn without a deadline in which nothing can ever happen would sleep for ever:
    /// it answers `Deadlock` instead, which is how a test finds a lost wake-up.
    fn turn(&mut self, deadline: Option<Nanos>, out: &mut Vec<Completion>) -> io::Result<()> {
        self.stats.turns += 1;
        let before = out.len();
        self.shared.borrow_mut().time += TURN;
        let held = self.shared.borrow().held;
        loop {
            self.feed_starved();
            self.run_due();
            self.hand_out(out);
            let mut shared = self.shared.borrow_mut();
            let passed = deadline.is_some_and(|deadline| deadline <= shared.time);
            if out.len() > before || passed || held {
                break;
            }
            let Some(next) = [shared.next_time(self.worker), deadline].into_iter().flatten().min() else {
                let what = "nothing is under way, no deadline, and nobody called wake";
                return Err(io::Error::new(io::ErrorKind::Deadlock, what));
            };
            self.stats.sleeps += 1;
            shared.time = shared.time.max(next);
        }
        self.now = self.shared.borrow().time;
        self.set_wall_clock();
        Ok(())
    }

    fn stats(&self) -> IoStats {
        self.stats
    }
}
