//! The maker on io_uring: multishot accept and receive with a provided-buffer ring, one send in flight a connection,
//! one `io_uring_enter` a turn where there is work.
//!
//! A read of a file is tried in the enter that submits it: bytes in the page cache are copied there, for others the kernel
//! starts the disk and answers later, by itself where the file system can and by a thread of its own where it cannot. To
//! ask for the thread from the start is slower, and starting it holds the worker up for as long as starting the disk: 4 KiB
//! in the page cache take 2.2 µs so and 9.5 µs by a thread, and not in it 39 and 75 µs, of which the worker loses 14 and 19
//! (`examples/read.rs`, medians, ext4 on a virtual disk).
//!
//! It never looks at what it carries. Invariant: a slot is given to another connection only after the final completion of
//! everything that was submitted for it.

mod conn;
mod listen;
mod read;
mod try_level;

use std::{collections::VecDeque, io, os::fd::AsFd, sync::Arc, time::Duration};

use conn::Conn;
pub(crate) use try_level::try_level;

use crate::{
    Arena, BufId, Completion, ConnId, Io, IoStats, Level, Nanos, Options, Parcel, ReadFile, ReadToken, Wake, ZeroCopy,
    accept::Listener,
    clock::Clock,
    slots::Slots,
    spin::Spin,
    sys::ring::{Cqe, Ring, Size},
    token::Op,
    wake::EventWake,
};

/// Submissions that fit before an extra enter is needed: more than a busy turn makes, small enough for the cache.
const SUBMISSIONS: u32 = 1024;
/// The kernel keeps what does not fit, so this is about speed, not loss.
const COMPLETIONS: (u32, u32) = (1024, 1 << 16);

/// `Io` on io_uring. It belongs to the thread that made it.
pub struct Uring {
    /// First: dropping it cancels and reaps, so that descriptors below are closed with nothing in flight.
    ring: Ring,
    conns: Slots<Conn>,
    listeners: Vec<Listener>,
    /// Answers that needed no kernel; delivered by the next turn.
    ready: Vec<Completion>,
    /// Connections whose receive ended for want of buffers, longest waiting first.
    starved: VecDeque<ConnId>,
    wake: Arc<EventWake>,
    /// The poll on the wake-up descriptor ended and must be armed again.
    rewatch: bool,
    clock: Clock,
    spin: Spin,
    overflow_reply: Vec<u8>,
    zero_copy: ZeroCopy,
    arena: Option<Arena>,
    stats: IoStats,
    /// Reused by each turn.
    cqes: Vec<Cqe>,
}

impl Uring {
    /// Makes a ring of this level in the calling thread, which must be the one that uses it.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of range; else what the kernel said.
    pub fn new(options: Options, level: Level) -> io::Result<Self> {
        options.check()?;
        let spin = Spin::new(options.spin_nanos());
        let completions = options
            .max_connections
            .saturating_mul(4)
            .saturating_add(options.max_reads)
            .clamp(COMPLETIONS.0, COMPLETIONS.1);
        let size = Size {
            submissions: SUBMISSIONS,
            completions: completions.next_power_of_two(),
            buffers: options.recv_buffers,
            buffer_size: options.recv_buffer_size,
            held_bytes: options.held_bytes,
            reads: options.max_reads,
        };
        Ok(Self {
            ring: Ring::new(level, size)?,
            conns: Slots::new(options.max_connections),
            listeners: Listener::all(options.listeners),
            ready: Vec::new(),
            starved: VecDeque::new(),
            wake: Arc::new(EventWake::new()?),
            rewatch: true,
            clock: Clock::new(),
            spin,
            overflow_reply: options.overflow_reply,
            zero_copy: options.zero_copy,
            arena: options.arena,
            stats: IoStats::default(),
            cqes: Vec::with_capacity(256),
        })
    }

    /// One enter, or two with a sleep: submits, waits if `wait_until` says so, handles what came.
    fn step(&mut self, wait_until: Option<Option<Nanos>>, out: &mut Vec<Completion>) -> io::Result<()> {
        if self.ring.has_submissions() || wait_until.is_none() {
            self.ring.enter(0, None)?;
        }
        if let Some(deadline) = wait_until
            && !self.ring.has_completions()
        {
            self.wait(deadline)?;
        }
        self.handle_all(out);
        Ok(())
    }

    /// Waits for a completion, a wake or the deadline: spins while that pays, then sleeps.
    fn wait(&mut self, deadline: Option<Nanos>) -> io::Result<()> {
        let start = self.clock.fresh();
        let mut now = start;
        let mut slept = false;
        if self.spin.worth() {
            let until = start
                .saturating_add(self.spin.limit())
                .min(deadline.unwrap_or(Nanos::MAX));
            while !self.ring.has_news() && !self.wake.is_pending() && now < until {
                std::hint::spin_loop();
                now = self.clock.fresh();
            }
            self.ring.enter(0, None)?;
        }
        if !self.ring.has_completions() && deadline.is_none_or(|deadline| now < deadline) && self.wake.fall_asleep() {
            slept = true;
            self.stats.sleeps += 1;
            let slept = self
                .ring
                .enter(1, deadline.map(|deadline| Duration::from_nanos(deadline - now)));
            if self.wake.take().woken {
                self.ready.push(Completion::Woken);
            }
            slept?;
            now = self.clock.fresh();
        }
        self.spin.waited(now - start, slept);
        Ok(())
    }

    fn handle_all(&mut self, out: &mut Vec<Completion>) {
        let mut cqes = std::mem::take(&mut self.cqes);
        self.ring.reap(&mut cqes);
        for cqe in cqes.drain(..) {
            match cqe.token.op() {
                Some(Op::Recv) => self.on_recv(&cqe, out),
                Some(Op::Send) => self.on_send(&cqe, out),
                Some(Op::Accept) => self.on_accept(cqe, out),
                Some(Op::ZeroCopy) => self.on_notified(&cqe),
                Some(Op::Cancel) => self.on_cancel(&cqe),
                Some(Op::Read) => self.on_read(&cqe, out),
                Some(Op::Wake) => self.rewatch |= !cqe.more,
                Some(Op::GiveUp) | None => {}
            }
        }
        self.cqes = cqes;
        if self.wake.is_pending() && self.wake.take().woken {
            self.ready.push(Completion::Woken);
        }
        out.append(&mut self.ready);
    }

    /// What must be submitted before a wait: the wake-up poll, starved receives, accepting after a rest.
    fn prepare(&mut self, now: Nanos) {
        if self.rewatch {
            self.rewatch = false;
            self.ring.watch(self.wake.event());
        }
        self.feed_starved();
        self.end_rests(now, false);
    }
}

impl Io for Uring {
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
        self.arm_listeners();
    }

    fn stop_accept(&mut self) {
        self.stop_listeners();
    }

    fn recv(&mut self, conn: ConnId) {
        self.start_recv(conn);
    }

    fn pause_recv(&mut self, conn: ConnId) {
        self.cancel_recv(conn);
    }

    fn bytes(&self, buf: &BufId) -> &[u8] {
        self.ring.pool().bytes(buf.id as u16, buf.len)
    }

    fn give_back(&mut self, buf: BufId) {
        self.ring.pool_mut().give_back(buf.id as u16);
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
        out.append(&mut self.ready);
        loop {
            let now = if deadline.is_some() || self.is_resting() {
                self.clock.fresh()
            } else {
                0
            };
            self.prepare(now);
            let passed = deadline.is_some_and(|deadline| deadline <= now);
            let rest = self.next_rest();
            let until = [deadline, rest].into_iter().flatten().min();
            let may_wait = out.len() == before && !passed;
            self.step(may_wait.then_some(until), out)?;
            if out.len() > before || passed {
                break;
            }
        }
        self.clock.read();
        Ok(())
    }

    fn stats(&self) -> IoStats {
        IoStats {
            syscalls: self.stats.syscalls + self.ring.enters(),
            held_sends: self.ring.zero_copies().held() as u64,
            held_bytes: self.ring.zero_copies().held_bytes() as u64,
            ..self.stats
        }
    }
}

/// Whether a descriptor can be lent: shorthand for the parts of this module.
fn fd_of(listener: &Listener) -> Option<std::os::fd::BorrowedFd<'_>> {
    listener.socket.as_ref().map(AsFd::as_fd)
}
