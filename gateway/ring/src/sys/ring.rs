//! An io_uring with everything that it lends to the kernel: receive buffers, the bytes of sends, and the memory of reads.
//!
//! It knows nothing about connections. Invariant: memory named in a submission is owned here until the final completion
//! of that submission was reaped; what cannot be reaped when the ring is dropped is leaked.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};

use super::{
    check,
    message::Message,
    pool::{GROUP, Pool},
    reads::Reads,
    zero_copy::{self, ZeroCopies},
};
use crate::{
    ConnId, Level, Parcel,
    file::Reading,
    token::{Op, Token},
};

/// How long a drop waits for the kernel to answer cancellations before it leaks what is still lent.
const DROP_PATIENCE: Duration = Duration::from_secs(1);
/// The most that one submission sends; a longer buffer goes in parts (the kernel's own limit is just below 2 GiB).
const SEND_MAX: usize = 1 << 30;
/// How long to wait when the kernel takes no submissions for the moment.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);
/// `IORING_REGISTER_RING_FDS` and its opposite, of the kernel's `io_uring.h`.
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// A completion.
#[derive(Debug)]
pub(crate) struct Cqe {
    pub(crate) token: Token,
    /// What the operation answered: a count, or a negated errno.
    pub(crate) result: i32,
    /// More completions of the same submission follow.
    pub(crate) more: bool,
    /// The receive buffer that came with it, lent by the pool.
    pub(crate) buffer: Option<u16>,
    /// The connection that came with it.
    pub(crate) accepted: Option<OwnedFd>,
    /// The zero-copy send that it is about; `token` is then that of its connection: `Send` for the answer, `ZeroCopy`
    /// for a notification.
    pub(crate) zero_copy: Option<ConnId>,
    /// The entry of that send is gone.
    pub(crate) freed: bool,
}

impl Cqe {
    /// Whether this notification says that the bytes were copied after all.
    pub(crate) fn was_copied(&self) -> bool {
        zero_copy::was_copied(self.result)
    }
}

/// The bytes of a connection's plain send.
#[derive(Debug, Default)]
struct Loan {
    parcel: Parcel,
    /// Made for a parcel of several parts.
    message: Option<Box<Message>>,
    /// Bytes that the kernel has taken.
    sent: usize,
    /// A submission names these bytes.
    lent: bool,
}

/// How big to make a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) submissions: u32,
    pub(crate) completions: u32,
    pub(crate) buffers: u16,
    pub(crate) buffer_size: u32,
    /// Bytes that answered zero-copy sends may hold beside the arena.
    pub(crate) held_bytes: usize,
    /// Reads of files in flight.
    pub(crate) reads: u32,
}

pub(crate) struct Ring {
    /// First, so that it is closed before the memory below goes.
    uring: IoUring,
    /// What names the ring in `io_uring_enter`: its registered index, or its descriptor.
    enter_fd: RawFd,
    enter_flags: u32,
    /// `None` only while dropping.
    pool: Option<Pool>,
    loans: Vec<Loan>,
    /// Dropped after `uring`, as are the loans.
    zero_copies: ZeroCopies,
    /// As they are.
    reads: Reads,
    /// Submissions without their final completion.
    in_flight: usize,
    /// Of those, the sends of which only the notification is missing.
    notifying: usize,
    /// Submissions that found the queue full, in order. Bounded by what connections and reads may have in flight.
    waiting: VecDeque<squeue::Entry>,
    enters: u64,
}

impl Ring {
    /// # Errors
    /// `EINVAL`: this kernel lacks a flag of the level, or buffer rings. `EPERM` or `ENOSYS`: io_uring is forbidden.
    pub(crate) fn new(level: Level, size: Size) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(size.completions);
        if level != Level::Plain {
            builder.setup_submit_all().setup_single_issuer();
        }
        match level {
            Level::DeferredNoArray => builder.setup_defer_taskrun().setup_taskrun_flag().setup_no_sqarray(),
            Level::Deferred => builder.setup_defer_taskrun().setup_taskrun_flag(),
            Level::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag(),
            Level::Plain => &mut builder,
        };
        let uring = builder.build(size.submissions)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let pool = Pool::register(&uring, size.buffers, size.buffer_size)?;
        let (enter_fd, enter_flags) = enter_handle(&uring);
        let (loans, waiting) = (Vec::new(), VecDeque::new());
        Ok(Self {
            uring,
            enter_fd,
            enter_flags,
            pool: Some(pool),
            loans,
            zero_copies: ZeroCopies::new(size.held_bytes),
            reads: Reads::new(size.reads),
            in_flight: 0,
            notifying: 0,
            waiting,
            enters: 0,
        })
    }

    pub(crate) fn enters(&self) -> u64 {
        self.enters
    }

    pub(crate) fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("the pool is taken only by drop")
    }

    pub(crate) fn pool_mut(&mut self) -> &mut Pool {
        self.pool.as_mut().expect("the pool is taken only by drop")
    }

    pub(crate) fn accept(&mut self, listener: BorrowedFd<'_>, index: u32) {
        let entry = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC)
            .build();
        self.push(&entry.user_data(Token::new(Op::Accept, 0, index).0));
    }

    pub(crate) fn recv(&mut self, socket: BorrowedFd<'_>, token: Token) {
        debug_assert_eq!(token.op(), Some(Op::Recv));
        let entry = opcode::RecvMulti::new(types::Fd(socket.as_raw_fd()), GROUP).build();
        self.push(&entry.user_data(token.0));
    }

    /// Watches an eventfd, edge-triggered, until cancelled.
    pub(crate) fn watch(&mut self, event: BorrowedFd<'_>) {
        let interest = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let entry = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), interest)
            .multi(true)
            .build();
        self.push(&entry.user_data(Token::new(Op::Wake, 0, 0).0));
    }

    /// Asks that a submission end; it then answers with what it had done, or `ECANCELED`. The answer carries `of`, told
    /// apart by its operation.
    pub(crate) fn cancel(&mut self, target: Token, of: Token) {
        let answer = of.with(Op::Cancel);
        self.push(&opcode::AsyncCancel::new(target.0).build().user_data(answer.0));
    }

    /// Takes the parcel and sends it. The loan ends with the completion; then `resend` or `end_send`.
    ///
    /// # Panics
    /// When the slot still has a send.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, token: Token, parcel: Parcel) {
        let slot = token.slot() as usize;
        if slot >= self.loans.len() {
            self.loans.resize_with(slot + 1, Loan::default);
        }
        let loan = &mut self.loans[slot];
        assert!(
            !loan.lent && loan.parcel.is_empty(),
            "a second send on a connection before the first was answered"
        );
        *loan = Loan {
            parcel,
            ..Loan::default()
        };
        self.resend(socket, token);
    }

    /// Sends what a short send has left.
    pub(crate) fn resend(&mut self, socket: BorrowedFd<'_>, token: Token) {
        let loan = &mut self.loans[token.slot() as usize];
        assert!(!loan.lent, "the kernel still has these bytes");
        let socket = types::Fd(socket.as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = if loan.parcel.is_single() {
            let rest = &loan.parcel.head[loan.sent..];
            let (start, length) = (rest.as_ptr(), rest.len().min(SEND_MAX) as u32);
            opcode::Send::new(socket, start, length).flags(flags).build()
        } else {
            let message = loan.message.insert(Message::new(loan.parcel.parts(), loan.sent));
            opcode::SendMsg::new(socket, message.header())
                .flags(flags as u32)
                .build()
        };
        loan.lent = true;
        // An operation other than `Send` in the token would never end the loan.
        self.push(&entry.user_data(token.with(Op::Send).0));
    }

    /// Counts what a send has taken; answers what is left.
    pub(crate) fn advance_send(&mut self, slot: u32, taken: usize) -> usize {
        let loan = &mut self.loans[slot as usize];
        let len = loan.parcel.len();
        loan.sent = (loan.sent + taken).min(len);
        len - loan.sent
    }

    /// Gives the head of a completed send back, with the number of bytes sent. `None` while the kernel has it.
    pub(crate) fn end_send(&mut self, slot: u32) -> Option<(Vec<u8>, usize)> {
        let loan = self.loans.get_mut(slot as usize)?;
        if loan.lent {
            return None;
        }
        let loan = std::mem::take(loan);
        Some((loan.parcel.head, loan.sent))
    }

    /// Takes the parcel and sends it without a copy, from registered memory where that is at hand. `Err` gives it back:
    /// the kernel cannot, or as many are under way as may be.
    pub(crate) fn send_zero_copy(
        &mut self,
        socket: BorrowedFd<'_>,
        token: Token,
        parcel: Parcel,
    ) -> Result<ConnId, Parcel> {
        if !self.zero_copies.is_supported() {
            return Err(parcel);
        }
        let id = self.zero_copies.insert(&self.uring, token.with(Op::Send), parcel)?;
        self.resend_zero_copy(socket, id);
        Ok(id)
    }

    /// Sends what a short zero-copy send has left.
    pub(crate) fn resend_zero_copy(&mut self, socket: BorrowedFd<'_>, id: ConnId) {
        if let Some(entry) = self.zero_copies.submission(socket, id) {
            self.push(&entry);
        }
    }

    /// The zero-copy sends under way.
    pub(crate) fn zero_copies(&self) -> &ZeroCopies {
        &self.zero_copies
    }

    pub(crate) fn zero_copies_mut(&mut self) -> &mut ZeroCopies {
        &mut self.zero_copies
    }

    /// Takes a read and asks for its bytes. `Err` gives it back: as many are in flight as may be.
    pub(crate) fn read(&mut self, reading: Reading) -> Result<(), Reading> {
        let id = self.reads.insert(reading)?;
        self.read_on(id);
        Ok(())
    }

    /// Asks for what a read misses.
    pub(crate) fn read_on(&mut self, id: ConnId) {
        if let Some(entry) = self.reads.submission(id) {
            self.push(&entry);
        }
    }

    /// Asks the kernel to let go of a read. It need not, and the read answers in any case.
    pub(crate) fn give_up(&mut self, id: ConnId) {
        let target = Token::of(Op::Read, id);
        let answer = target.with(Op::GiveUp);
        self.push(&opcode::AsyncCancel::new(target.0).build().user_data(answer.0));
    }

    /// The reads under way.
    pub(crate) fn reads(&self) -> &Reads {
        &self.reads
    }

    pub(crate) fn reads_mut(&mut self) -> &mut Reads {
        &mut self.reads
    }

    /// Whether something waits to be submitted.
    pub(crate) fn has_submissions(&mut self) -> bool {
        !self.waiting.is_empty() || !self.uring.submission().is_empty()
    }

    /// Whether an enter would bring something, seen without a system call: completions, or deferred work, which the
    /// kernel flags at every level but `Plain` (there this may stay false until an enter, or be true early).
    pub(crate) fn has_news(&mut self) -> bool {
        let queue = self.uring.submission();
        let flagged = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        flagged || self.has_completions()
    }

    pub(crate) fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    fn push(&mut self, entry: &squeue::Entry) {
        self.in_flight += 1;
        if !self.waiting.is_empty() || !self.push_now(entry) {
            // Full: make room by submitting; what still finds none waits for the next turn, in order.
            let submit = self.uring.submission().len() as u32;
            let _ = self.enter_raw(submit, 0, 0, None);
            if !self.waiting.is_empty() || !self.push_now(entry) {
                self.waiting.push_back(entry.clone());
            }
        }
    }

    fn push_now(&mut self, entry: &squeue::Entry) -> bool {
        let mut queue = self.uring.submission();
        // SAFETY: what the entry points to is owned by this ring until its final completion: receive buffers by
        // `pool`, send bytes by `loans` and `zero_copies`, the memory of reads by `reads`; the other operations name
        // descriptors only.
        unsafe { queue.push(entry) }.is_ok()
    }

    fn push_waiting(&mut self) {
        while let Some(entry) = self.waiting.pop_front() {
            if !self.push_now(&entry) {
                self.waiting.push_front(entry);
                break;
            }
        }
    }

    /// Submits everything, runs what the kernel deferred, and waits for `want` completions, at most `timeout`.
    ///
    /// A signal, a passed timeout and a momentary shortage are no errors: the caller reaps and comes again.
    pub(crate) fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.push_waiting();
        // What still waits must not be slept on.
        let want = if self.waiting.is_empty() { want } else { 0 };
        let mut flags = EnterFlags::GETEVENTS;
        if want > 0 && self.uring.params().is_feature_no_iowait() {
            // A worker that waits for clients is idle, not waiting for a disk.
            flags |= EnterFlags::NO_IOWAIT;
        }
        let submit = self.uring.submission().len() as u32;
        let result = match self
            .enter_raw(submit, want, flags.bits(), timeout)
            .map_err(|error| error.raw_os_error())
        {
            // The completions that overflowed must be reaped first, or memory is short: either way nothing is lost.
            Err(Some(libc::EBUSY | libc::EAGAIN)) => {
                let flags = EnterFlags::GETEVENTS.bits();
                self.enter_raw(0, 1, flags, Some(SHORTAGE_PAUSE))
                    .map_err(|error| error.raw_os_error())
            }
            result => result,
        };
        match result {
            Ok(()) | Err(Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)) => Ok(()),
            Err(errno) => Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EIO))),
        }
    }

    fn enter_raw(&mut self, submit: u32, want: u32, flags: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.enters += 1;
        let time = timeout.map(types::Timespec::from);
        let args = types::SubmitArgs::new();
        let args = time.as_ref().map(|time| args.timespec(time));
        let (flags, args, size) = match &args {
            Some(args) => (
                flags | EnterFlags::EXT_ARG.bits(),
                std::ptr::from_ref(args),
                size_of_val(args),
            ),
            None => (flags, std::ptr::null(), 0),
        };
        let (number, flags) = (libc::SYS_io_uring_enter, flags | self.enter_flags);
        // SAFETY: the submissions in the queue satisfy `push_now`; `args` is null or points to a live structure of
        // `size` bytes whose time specification is live as well.
        let result = unsafe { libc::syscall(number, self.enter_fd, submit, want, flags, args, size) };
        check(result as libc::c_int).map(drop)
    }

    /// Takes all completions that are there.
    pub(crate) fn reap(&mut self, out: &mut Vec<Cqe>) {
        let pool = self.pool.as_mut().expect("the pool is taken only by drop");
        for entry in self.uring.completion() {
            let (token, result, flags) = (Token(entry.user_data()), entry.result(), entry.flags());
            let more = cqueue::more(flags);
            if !more {
                self.in_flight -= 1;
            }
            let mut cqe = Cqe {
                token,
                result,
                more,
                buffer: cqueue::buffer_select(flags).filter(|id| pool.lend(*id)),
                accepted: None,
                zero_copy: None,
                freed: false,
            };
            match token.op() {
                Some(Op::Accept) if result >= 0 => {
                    // SAFETY: a successful accept answers with a descriptor that it made for us alone.
                    cqe.accepted = Some(unsafe { OwnedFd::from_raw_fd(result) });
                }
                Some(Op::Send) => {
                    if let Some(loan) = self.loans.get_mut(token.slot() as usize) {
                        loan.lent = false;
                    }
                }
                Some(Op::Read) => self.reads.completed(token, result),
                Some(Op::ZeroCopy) => {
                    let Some((id, told)) = self.zero_copies.completed(token, !more) else {
                        continue;
                    };
                    let op = if cqueue::notif(flags) { Op::ZeroCopy } else { Op::Send };
                    match op {
                        Op::ZeroCopy => self.notifying -= 1,
                        _ => self.notifying += usize::from(more),
                    }
                    (cqe.token, cqe.zero_copy, cqe.freed) = (told.conn.with(op), Some(id), told.freed);
                }
                _ => {}
            }
            out.push(cqe);
        }
    }

    /// Cancels everything and reaps until the kernel has nothing of ours. False when patience ran out, or bytes of zero-copy
    /// sends are still being read.
    fn wind_up(&mut self) -> bool {
        // What was never submitted is not with the kernel.
        self.in_flight -= self.waiting.len();
        self.waiting.clear();
        let until = Instant::now() + DROP_PATIENCE;
        let mut reaped = Vec::new();
        // A notification may be as slow as the reader at the other end: it is not waited for.
        while self.in_flight > self.notifying && Instant::now() < until {
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
            if self.push_now(&cancel.user_data(Token::new(Op::Cancel, 0, 0).0)) {
                self.in_flight += 1;
            }
            if self.enter(1, Some(Duration::from_millis(10))).is_err() {
                return false;
            }
            self.reap(&mut reaped);
            reaped.clear();
        }
        self.in_flight == 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.wind_up() {
            // The kernel may still read or write these: nobody may ever get the same memory.
            std::mem::forget(std::mem::take(&mut self.loans));
            std::mem::forget(std::mem::replace(&mut self.zero_copies, ZeroCopies::new(0)));
            std::mem::forget(std::mem::replace(&mut self.reads, Reads::new(0)));
            std::mem::forget(self.pool.take());
        }
        if self.enter_flags != 0 {
            // The registration belongs to the thread and would keep the ring alive after its descriptor is closed.
            let mut update = RingFdUpdate {
                offset: self.enter_fd as u32,
                reserved: 0,
                data: 0,
            };
            update_ring_fd(self.uring.as_raw_fd(), UNREGISTER_RING_FDS, &mut update);
        }
    }
}

/// `struct io_uring_rsrc_update` of the kernel's `io_uring.h`.
#[repr(C)]
struct RingFdUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

fn update_ring_fd(fd: RawFd, operation: libc::c_uint, update: &mut RingFdUpdate) -> bool {
    let number = libc::SYS_io_uring_register;
    // SAFETY: the kernel reads and writes one live `RingFdUpdate`.
    let done = unsafe { libc::syscall(number, fd, operation, std::ptr::from_mut(update), 1u32) };
    done == 1
}

/// Registers the ring's descriptor, which saves its look-up in each enter (kernel 5.18); without it the descriptor serves.
fn enter_handle(uring: &IoUring) -> (RawFd, u32) {
    let fd = uring.as_raw_fd();
    let mut update = RingFdUpdate {
        offset: u32::MAX,
        reserved: 0,
        data: fd as u64,
    };
    if update_ring_fd(fd, REGISTER_RING_FDS, &mut update) {
        (update.offset as RawFd, EnterFlags::REGISTERED_RING.bits())
    } else {
        (fd, 0)
    }
}
