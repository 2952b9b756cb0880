//! The maker on epoll: edge-triggered readiness, and non-blocking receives and sends made inside the turn.
//!
//! Files are always "ready" to epoll, and a read of one waits for the disk all the same. So a worker whose reads find
//! something that is not in the page cache has a helper thread, started by the first such read, which does nothing but that
//! (`files`).
//!
//! It serves where io_uring may not be used, and it is the honest control in benches, so it is written to be fast:
//! one registration a connection, a receive only when there is something, a wait only when there is nothing else to do.
//! Invariant: a connection is in `work` if and only if its `queued` is set; one that could go on is queued or starved.

mod conn;
mod files;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use crate::{
    BufId, Completion, ConnId, Io, IoStats, ListenerId, Nanos, Options, Parcel, ReadFile, ReadToken, Wake,
    accept::{self, Listener, REST, State, Trouble},
    clock::Clock,
    pool::Pool,
    slots::Slots,
    spin::Spin,
    sys::{self, epoll::Event, epoll::Watch},
    wake::EventWake,
};
use conn::Conn;
use files::Files;

/// Connections accepted from one listener in one go, so that a flood of them does not stop those that are there.
const ACCEPT_MAX: usize = 64;
/// As much when the listener is stopped; what is beyond this is closed with the listener.
const DRAIN_MAX: usize = 1 << 16;
/// Keys above every slot: listeners, then the wake-up.
const LISTENERS: u32 = 0xff00_0000;
const WAKE: u32 = u32::MAX;

/// `Io` on epoll.
pub struct Epoll {
    poll: sys::epoll::Epoll,
    conns: Slots<Conn>,
    listeners: Vec<Listener>,
    pool: Pool,
    /// Answers that needed no kernel; delivered by the next turn.
    ready: Vec<Completion>,
    /// Connections that can go on.
    work: VecDeque<ConnId>,
    /// Connections that want to receive and found no buffer, longest waiting first.
    starved: VecDeque<ConnId>,
    /// The last turn returned without asking for events.
    unpolled: bool,
    events: Vec<Event>,
    files: Files,
    wake: Arc<EventWake>,
    clock: Clock,
    spin: Spin,
    overflow_reply: Vec<u8>,
    stats: IoStats,
}

impl Epoll {
    /// # Errors
    /// `InvalidInput` for an option out of range; else what the kernel said.
    pub fn new(options: Options) -> io::Result<Self> {
        options.check()?;
        let spin = Spin::new(options.spin_nanos());
        let poll = sys::epoll::Epoll::new()?;
        let wake = EventWake::new()?;
        poll.add(wake.event(), Watch::ReadEdges, u64::from(WAKE))?;
        for listener in &options.listeners {
            listener.set_nonblocking(true)?;
        }
        Ok(Self {
            poll,
            conns: Slots::new(options.max_connections),
            listeners: Listener::all(options.listeners),
            pool: Pool::new(options.recv_buffers, options.recv_buffer_size),
            ready: Vec::new(),
            work: VecDeque::new(),
            starved: VecDeque::new(),
            unpolled: false,
            events: Vec::with_capacity(256),
            files: Files::new(options.max_reads),
            wake: Arc::new(wake),
            clock: Clock::new(),
            spin,
            overflow_reply: options.overflow_reply,
            stats: IoStats::default(),
        })
    }

    fn arm(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        let Some(socket) = fd_of(listener) else { return };
        let added = self
            .poll
            .add(socket, Watch::ReadLevel, u64::from(LISTENERS + index as u32));
        match added {
            Ok(()) => listener.state = State::Armed,
            Err(error) => listener.end(ListenerId(index as u16), Some(error), &mut self.ready),
        }
    }

    /// Accepts up to `most` connections. Answers what stopped it, `None` when `most` did.
    fn accept(&mut self, index: usize, most: usize) -> Option<io::Error> {
        for _ in 0..most {
            let socket = fd_of(&self.listeners[index])?;
            self.stats.syscalls += 1;
            match sys::net::accept(socket, true) {
                Ok(connection) => self.admit(index, connection),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Some(error),
            }
        }
        None
    }

    fn admit(&mut self, index: usize, socket: std::os::fd::OwnedFd) {
        let id = ListenerId(index as u16);
        self.stats.syscalls += 1;
        let (reply, out) = (&self.overflow_reply, &mut self.ready);
        let Some(conn) = accept::admit(&mut self.conns, id, socket, reply, |socket, _| Conn::new(socket), out) else {
            return;
        };
        self.watch(conn);
    }

    fn on_listener(&mut self, index: usize) {
        let Some(error) = self.accept(index, ACCEPT_MAX) else {
            return;
        };
        match accept::judge(error.raw_os_error().unwrap_or(0)) {
            Trouble::Passing => {}
            Trouble::Shortage => {
                if let Some(socket) = fd_of(&self.listeners[index]) {
                    // It was added by `arm`; if it is gone from the set, the rest begins all the same.
                    let _ = self.poll.remove(socket);
                }
                self.listeners[index].state = State::Resting(self.clock.fresh() + REST);
            }
            Trouble::Final => self.listeners[index].end(ListenerId(index as u16), Some(error), &mut self.ready),
        }
    }

    fn next_rest(&self) -> Option<Nanos> {
        let rest = |listener: &Listener| match listener.state {
            State::Resting(until) => Some(until),
            _ => None,
        };
        self.listeners.iter().filter_map(rest).min()
    }

    /// Accepts again where the rest is over, or everywhere if a descriptor has become free.
    fn end_rests(&mut self, now: Nanos, freed: bool) {
        for index in 0..self.listeners.len() {
            if matches!(self.listeners[index].state, State::Resting(until) if freed || until <= now) {
                self.arm(index);
            }
        }
    }

    /// Asks for events once, waiting at most `timeout` (`None`: for ever).
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.stats.syscalls += 1;
        self.events.extend(self.poll.wait(timeout)?);
        Ok(())
    }

    /// Waits for an event, a wake or the deadline: spins while that pays, then sleeps.
    fn wait(&mut self, deadline: Option<Nanos>) -> io::Result<()> {
        let start = self.clock.fresh();
        let mut now = start;
        let mut slept = false;
        if self.spin.worth() {
            let until = start
                .saturating_add(self.spin.limit())
                .min(deadline.unwrap_or(Nanos::MAX));
            while self.events.is_empty() && !self.wake.is_pending() && now < until {
                self.poll(Some(Duration::ZERO))?;
                now = self.clock.fresh();
            }
        }
        if self.events.is_empty() && deadline.is_none_or(|deadline| now < deadline) && self.wake.fall_asleep() {
            slept = true;
            self.stats.sleeps += 1;
            let slept = self.poll(deadline.map(|deadline| Duration::from_nanos(deadline - now)));
            self.take_news();
            slept?;
            now = self.clock.fresh();
        }
        self.spin.waited(now - start, slept);
        Ok(())
    }

    fn handle_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            let slot = event.key as u32;
            match slot {
                WAKE => {}
                LISTENERS.. => self.on_listener((slot - LISTENERS) as usize),
                _ => self.on_readiness(
                    ConnId {
                        slot,
                        generation: (event.key >> 32) as u32,
                    },
                    event,
                ),
            }
        }
        self.events = events;
        if self.wake.is_pending() {
            self.take_news();
        }
    }

    fn take_news(&mut self) {
        let news = self.wake.take();
        if news.woken {
            self.ready.push(Completion::Woken);
        }
        if news.helped {
            self.collect_reads();
        }
    }
}

impl Io for Epoll {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn unix_time(&self) -> (u64, u32) {
        self.clock.unix_time()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.wake.clone()
    }

    fn start_accept(&mut self) {
        for index in 0..self.listeners.len() {
            if self.listeners[index].state == State::Idle {
                self.arm(index);
            }
        }
    }

    fn stop_accept(&mut self) {
        for index in 0..self.listeners.len() {
            let state = self.listeners[index].state;
            if matches!(state, State::Armed | State::Resting(_)) {
                // What stopped it does not matter any more.
                let _ = self.accept(index, DRAIN_MAX);
            }
            if state != State::Ended {
                self.listeners[index].end(ListenerId(index as u16), None, &mut self.ready);
            }
        }
    }

    fn recv(&mut self, conn: ConnId) {
        self.start_recv(conn);
    }

    fn pause_recv(&mut self, conn: ConnId) {
        self.end_recv(conn);
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

    fn read(&mut self, token: ReadToken, file: &Arc<ReadFile>, offset: u64, len: usize, buf: Vec<u8>) {
        self.start_read(token, file, (offset, len), buf);
    }

    fn turn(&mut self, deadline: Option<Nanos>, out: &mut Vec<Completion>) -> io::Result<()> {
        self.stats.turns += 1;
        let before = out.len();
        loop {
            let rest = self.next_rest();
            let now = if deadline.is_some() || rest.is_some() {
                self.clock.fresh()
            } else {
                0
            };
            self.end_rests(now, false);
            self.feed_starved();
            self.do_work();
            let passed = deadline.is_some_and(|deadline| deadline <= now);
            if self.ready.is_empty() && self.work.is_empty() && !passed {
                self.wait([deadline, rest].into_iter().flatten().min())?;
            } else if self.unpolled || passed {
                self.poll(Some(Duration::ZERO))?;
            } else {
                // There is something to hand out, and events were asked for a moment ago.
                self.unpolled = true;
                out.append(&mut self.ready);
                break;
            }
            self.unpolled = false;
            self.handle_events();
            self.do_work();
            out.append(&mut self.ready);
            if out.len() > before || passed {
                break;
            }
        }
        self.clock.read();
        Ok(())
    }

    fn stats(&self) -> IoStats {
        self.stats
    }
}

fn fd_of(listener: &Listener) -> Option<BorrowedFd<'_>> {
    listener.socket.as_ref().map(AsFd::as_fd)
}
