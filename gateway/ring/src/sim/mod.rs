//! The simulated maker: a network and a kernel in memory, driven by a seed and a clock that only [`Io::turn`] advances.
//!
//! A worker runs on it as on the real makers; tests hold the clients' end ([`Net`]). The same seed, the same worker and
//! the same clients give the same run, byte for byte: [`Net::digest`] proves it. It opens no socket, starts no thread and
//! reads no clock. Invariant: whatever the faults, the order and meaning of completions are those of the table of [`Io`].

mod conn;
mod faults;
mod net;

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use conn::Conn;
pub use faults::{FaultCounts, Faults};
use net::{Event, Shared, Summary, Way};
pub use net::{Net, WINDOW, WireId, WireState};

use crate::{
    Accepted, BufId, Completion, ConnId, Io, IoStats, ListenerId, Nanos, Options, Parcel, Wake, accept::REST,
    pool::Pool, slots::Slots,
};

/// What a turn takes, so that a worker that never waits still gets older.
const TURN: Nanos = 1_000;
/// The calendar at the origin of the virtual clock.
const UNIX_ORIGIN: u64 = 1_700_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listening {
    Idle,
    On,
    Ended,
}

struct Listener {
    state: Listening,
    /// Connections that nobody has accepted.
    backlog: VecDeque<WireId>,
}

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
    conns: Slots<Conn>,
    listeners: Vec<Listener>,
    pool: Pool,
    ready: Vec<Completion>,
    starved: VecDeque<ConnId>,
    wake: Arc<Flag>,
    now: Nanos,
    overflow_reply: Vec<u8>,
    stats: IoStats,
}

impl Sim {
    /// A worker's `Io` with this many listeners, and the clients' side of the same network.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of range, or real listeners among the options.
    pub fn new(seed: u64, faults: Faults, listeners: u16, options: Options) -> io::Result<(Self, Net)> {
        options.check()?;
        if !options.listeners.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a simulated network has no real listeners",
            ));
        }
        let shared = Rc::new(RefCell::new(Shared::new(seed, faults)));
        let idle = || Listener {
            state: Listening::Idle,
            backlog: VecDeque::new(),
        };
        let sim = Self {
            shared: shared.clone(),
            conns: Slots::new(options.max_connections),
            listeners: (0..listeners).map(|_| idle()).collect(),
            pool: Pool::new(options.recv_buffers, options.recv_buffer_size),
            ready: Vec::new(),
            starved: VecDeque::new(),
            wake: Arc::default(),
            now: 0,
            overflow_reply: options.overflow_reply,
            stats: IoStats::default(),
        };
        Ok((sim, Net { shared }))
    }

    fn happen(&mut self, event: Event) {
        self.shared.borrow_mut().note(format_args!("{event:?}"));
        match event {
            Event::Connect(wire) => self.on_connect(wire),
            Event::Bytes(wire, way, bytes) => {
                self.shared.borrow_mut().arrive(wire, way, &bytes);
                self.on_news(wire);
            }
            Event::Fin(wire, way) => {
                let mut shared = self.shared.borrow_mut();
                let pipe = shared.wires[wire.0].pipe(way);
                if pipe.end != net::End::Reset {
                    pipe.end = net::End::Fin;
                }
                drop(shared);
                self.on_news(wire);
            }
            Event::Reset(wire, _) => {
                self.shared.borrow_mut().break_up(wire);
                self.on_news(wire);
            }
            Event::Accept(listener) => self.on_accept(listener),
            Event::Recv(conn) => self.on_recv(conn),
            Event::Send(conn) => self.on_send(conn),
            Event::CancelRecv(conn) => self.on_cancel_recv(conn),
            Event::CancelSend(conn) => self.on_cancel_send(conn),
            Event::Script(script) => script(&Net {
                shared: self.shared.clone(),
            }),
        }
    }

    fn on_connect(&mut self, wire: WireId) {
        let mut shared = self.shared.borrow_mut();
        let index = shared.wires[wire.0].listener;
        match self.listeners.get_mut(usize::from(index)) {
            Some(listener) if listener.state != Listening::Ended => {
                listener.backlog.push_back(wire);
                if listener.state == Listening::On {
                    shared.soon(Event::Accept(index));
                }
            }
            // Nobody listens there (any more).
            _ => {
                shared.wires[wire.0].shut = true;
                shared.reset(wire, Way::Down);
            }
        }
    }

    fn on_accept(&mut self, index: u16) {
        let listener = &mut self.listeners[usize::from(index)];
        if listener.state != Listening::On || listener.backlog.is_empty() {
            return;
        }
        {
            let shared = &mut *self.shared.borrow_mut();
            if shared
                .rng
                .strikes(shared.faults.shortages, &mut shared.counts.shortages)
            {
                let later = shared.time + REST;
                return shared.at(later, Event::Accept(index));
            }
        }
        self.accept_all(index);
    }

    fn accept_all(&mut self, index: u16) {
        while let Some(wire) = self.listeners[usize::from(index)].backlog.pop_front() {
            let listener = ListenerId(index);
            let mut shared = self.shared.borrow_mut();
            let ends = &mut shared.wires[wire.0];
            if ends.up.end == net::End::Reset && ends.up.arrived.is_empty() {
                continue;
            }
            let peer = ends.peer;
            match self.conns.insert(Conn::new(wire)) {
                Ok(conn) => {
                    ends.conn = Some(conn);
                    self.ready.push(Completion::Accepted(Accepted { listener, conn, peer }));
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
                    self.ready.push(Completion::Refused { listener });
                }
            }
        }
    }

    /// Runs what is due, at the present virtual time.
    fn run_due(&mut self) {
        loop {
            let event = self.shared.borrow_mut().pop_due();
            match event {
                Some(event) => self.happen(event),
                None => break,
            }
        }
        if self.wake.0.swap(false, Ordering::SeqCst) {
            self.ready.push(Completion::Woken);
        }
    }

    fn hand_out(&mut self, out: &mut Vec<Completion>) {
        let mut shared = self.shared.borrow_mut();
        for completion in self.ready.drain(..) {
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
                }
                completion => shared.note(format_args!("answer {completion:?}")),
            }
            out.push(completion);
        }
    }
}

impl Drop for Sim {
    /// The worker is gone: so is every connection.
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        for wire in (0..shared.wires.len()).map(WireId) {
            if !shared.wires[wire.0].shut {
                shared.wires[wire.0].shut = true;
                shared.break_up(wire);
            }
        }
    }
}

impl Io for Sim {
    fn now(&self) -> Nanos {
        self.now
    }

    fn unix_time(&self) -> (u64, u32) {
        (
            UNIX_ORIGIN + self.now / 1_000_000_000,
            (self.now % 1_000_000_000) as u32,
        )
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.wake.clone()
    }

    fn start_accept(&mut self) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if listener.state == Listening::Idle {
                listener.state = Listening::On;
                self.shared.borrow_mut().submit(Event::Accept(index as u16));
            }
        }
    }

    fn stop_accept(&mut self) {
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            let before = std::mem::replace(&mut listener.state, Listening::Ended);
            if before == Listening::On {
                self.accept_all(index as u16);
            }
            if before != Listening::Ended {
                let refused = std::mem::take(&mut self.listeners[index].backlog);
                for wire in refused {
                    let mut shared = self.shared.borrow_mut();
                    shared.wires[wire.0].shut = true;
                    shared.reset(wire, Way::Down);
                }
                self.ready.push(Completion::AcceptEnded {
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

    /// As [`Io::turn`], in virtual time. A turn without a deadline in which nothing can ever happen would sleep for ever:
    /// it answers `Deadlock` instead, which is how a test finds a lost wake-up.
    fn turn(&mut self, deadline: Option<Nanos>, out: &mut Vec<Completion>) -> io::Result<()> {
        self.stats.turns += 1;
        let before = out.len();
        self.shared.borrow_mut().time += TURN;
        loop {
            self.feed_starved();
            self.run_due();
            self.hand_out(out);
            let mut shared = self.shared.borrow_mut();
            let passed = deadline.is_some_and(|deadline| deadline <= shared.time);
            if out.len() > before || passed {
                break;
            }
            let Some(next) = [shared.next_time(), deadline].into_iter().flatten().min() else {
                let what = "nothing is under way, no deadline, and nobody called wake";
                return Err(io::Error::new(io::ErrorKind::Deadlock, what));
            };
            self.stats.sleeps += 1;
            shared.time = shared.time.max(next);
        }
        self.now = self.shared.borrow().time;
        Ok(())
    }

    fn stats(&self) -> IoStats {
        self.stats
    }
}
