//! Zero-copy sends: who holds the bytes until the kernel's notification, and which memory is registered.
//!
//! It decides nothing about when to send without a copy. Invariant: the bytes of a send are owned by its entry from the
//! submission until the send was answered and each of its submissions had its notification, though the connection be
//! long closed.

use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::message::Message;
use crate::{
    Arena, ConnId, Parcel, Piece,
    slots::Slots,
    token::{Op, Token},
};

/// Zero-copy sends without their notification, of all connections of a worker; more go as plain sends.
const ENTRIES: u32 = 1 << 12;
/// `IORING_SEND_ZC_REPORT_USAGE` of the kernel's `io_uring.h`: the notification says whether it copied (6.2).
const REPORT_USAGE: u16 = 1 << 3;
/// `IORING_NOTIF_USAGE_ZC_COPIED`, in the result of a notification.
const COPIED: u32 = 1 << 31;

/// A zero-copy send.
struct Entry {
    /// Its connection, as a token of a send.
    conn: Token,
    parcel: Parcel,
    /// Copies of head and foot beside the body, for a send from registered memory.
    beside: [Option<Piece>; 2],
    /// The registered region that holds all parts.
    region: Option<u16>,
    message: Box<Message>,
    sent: usize,
    /// Submissions without their final completion.
    outstanding: u32,
    /// The send was answered to the worker.
    answered: bool,
    /// What it adds to the bytes held.
    held: usize,
}

impl Entry {
    fn parts(&self) -> [&[u8]; 3] {
        let [head, body, foot] = self.parcel.parts();
        let beside = |at: usize, part| self.beside[at].as_deref().unwrap_or(part);
        match self.region {
            Some(_) => [beside(0, head), body, beside(1, foot)],
            None => [head, body, foot],
        }
    }
}

/// What the kernel knows of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Region {
    Unknown,
    Registered,
    /// It would not; not asked again.
    Refused,
}

/// All zero-copy sends of a ring.
pub(crate) struct ZeroCopies {
    entries: Slots<Entry>,
    held: usize,
    /// Bytes of heads and feet of answered sends, their room included; bodies belong to the arena.
    held_bytes: usize,
    /// The most that those may be.
    bound: usize,
    /// The one arena whose regions are registered; kept alive for the kernel.
    arena: Option<Arena>,
    regions: Vec<Region>,
    /// Vectored sends from registered memory work (6.15), as far as is known.
    fixed: bool,
    /// Zero-copy sends work at all (6.1), as far as is known.
    supported: bool,
}

/// What a completion of a zero-copy send means.
pub(crate) struct Told {
    /// The connection, as a token of a send.
    pub(crate) conn: Token,
    /// The entry is gone.
    pub(crate) freed: bool,
}

impl ZeroCopies {
    /// Beside the arena, answered sends may hold so many bytes for the kernel.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            bound,
            entries: Slots::new(ENTRIES),
            held: 0,
            held_bytes: 0,
            arena: None,
            regions: Vec::new(),
            fixed: true,
            supported: true,
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn is_registered(&self, id: ConnId) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.region.is_some())
    }

    /// Memory that is kept for the kernel beside the arena, of sends that were answered.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn is_supported(&self) -> bool {
        self.supported
    }

    /// Takes a parcel. `Err` gives it back: as many are under way as may be.
    pub(crate) fn insert(&mut self, uring: &IoUring, conn: Token, parcel: Parcel) -> Result<ConnId, Parcel> {
        let own = parcel.head.capacity() + parcel.foot.capacity();
        if self.entries.is_full() || self.held_bytes + own > self.bound {
            return Err(parcel);
        }
        let mut entry = Entry {
            conn,
            message: Message::new(parcel.parts(), 0),
            parcel,
            beside: [None, None],
            region: None,
            sent: 0,
            outstanding: 0,
            answered: false,
            held: 0,
        };
        if self.fixed {
            self.settle_in(uring, &mut entry);
        }
        self.held += 1;
        self.entries.insert(entry).map_err(|entry| entry.parcel)
    }

    /// Copies the short parts beside the body where that is in registered memory.
    fn settle_in(&mut self, uring: &IoUring, entry: &mut Entry) {
        let Some(body) = entry.parcel.body.clone() else { return };
        let arena = body.arena();
        if !self.register(uring, &arena, body.region()) {
            return;
        }
        for (at, part) in [&entry.parcel.head, &entry.parcel.foot].into_iter().enumerate() {
            if !part.is_empty() {
                entry.beside[at] = arena.store_near(&body, part);
                if entry.beside[at].is_none() {
                    return;
                }
            }
        }
        entry.region = Some(body.region() as u16);
        entry.message = Message::new(entry.parts(), 0);
    }

    /// Whether the region is registered, now if it was not. A refusal (limit of locked memory, an old kernel) stays.
    fn register(&mut self, uring: &IoUring, arena: &Arena, region: usize) -> bool {
        if self.arena.is_none() {
            let Ok(regions) = u32::try_from(arena.regions()) else {
                return false;
            };
            let made = uring.submitter().register_buffers_sparse(regions).is_ok();
            let state = if made { Region::Unknown } else { Region::Refused };
            self.regions = vec![state; arena.regions()];
            self.arena = Some(arena.clone());
        }
        if !self.arena.as_ref().is_some_and(|known| known.is_same(arena)) {
            return false;
        }
        if self.regions[region] == Region::Unknown {
            let memory = [arena.region(region)];
            // SAFETY: the memory stays mapped while `self.arena` lives, which the ring drops only after the kernel's
            // ring is closed.
            let registered = unsafe { uring.submitter().register_buffers_update(region as u32, &memory, None) };
            self.regions[region] = match registered {
                Ok(()) => Region::Registered,
                Err(_) => Region::Refused,
            };
        }
        self.regions[region] == Region::Registered
    }

    /// The submission that sends what an entry has left.
    pub(crate) fn submission(&mut self, socket: BorrowedFd<'_>, id: ConnId) -> Option<squeue::Entry> {
        let entry = self.entries.get_mut(id)?;
        if entry.sent > 0 {
            entry.message = Message::new(entry.parts(), entry.sent);
        }
        entry.outstanding += 1;
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        let send = opcode::SendMsgZc::new(types::Fd(socket.as_raw_fd()), entry.message.header())
            .ioprio(REPORT_USAGE)
            .flags(flags)
            .buf_index(entry.region);
        Some(send.build().user_data(Token::of(Op::ZeroCopy, id).0))
    }

    /// Notes a completion. `None`: of an entry that is not there.
    pub(crate) fn completed(&mut self, token: Token, is_final: bool) -> Option<(ConnId, Told)> {
        let id = self
            .entries
            .id_of(token.slot())
            .filter(|id| token.is_of(id.generation))?;
        let entry = self.entries.get_mut(id)?;
        entry.outstanding -= u32::from(is_final);
        let conn = entry.conn;
        let freed = self.free_if_over(id);
        Some((id, Told { conn, freed }))
    }

    /// Counts what a send has taken; answers what is left.
    pub(crate) fn advance(&mut self, id: ConnId, taken: usize) -> usize {
        let Some(entry) = self.entries.get_mut(id) else {
            return 0;
        };
        let len = entry.parcel.len();
        entry.sent = (entry.sent + taken).min(len);
        len - entry.sent
    }

    /// The send is answered: its head if nobody reads it any more, how much was sent, and whether the entry is gone.
    pub(crate) fn answer(&mut self, id: ConnId) -> (Vec<u8>, usize, bool) {
        let Some(entry) = self.entries.get_mut(id) else {
            return (Vec::new(), 0, true);
        };
        entry.answered = true;
        let head_is_free = entry.outstanding == 0 || entry.region.is_some() || entry.parcel.head.is_empty();
        let head = if head_is_free {
            std::mem::take(&mut entry.parcel.head)
        } else {
            Vec::new()
        };
        entry.held = entry.parcel.head.capacity() + entry.parcel.foot.capacity();
        self.held_bytes += entry.held;
        let sent = entry.sent;
        (head, sent, self.free_if_over(id))
    }

    fn free_if_over(&mut self, id: ConnId) -> bool {
        let over = |entry: &&Entry| entry.answered && entry.outstanding == 0;
        if self.entries.get(id).filter(over).is_none() {
            return false;
        }
        let removed = self.entries.remove(id);
        self.held -= 1;
        self.held_bytes -= removed.as_ref().map_or(0, |entry| entry.held);
        removed.is_some()
    }

    /// The kernel would not: the bytes for a plain send, if none was sent; the entry then counts as answered. What it
    /// would not is not tried again, except for a passing shortage.
    pub(crate) fn refused(&mut self, id: ConnId, errno: i32) -> Option<(Vec<u8>, bool)> {
        let entry = self.entries.get_mut(id).filter(|entry| entry.sent == 0)?;
        let fixed = entry.region.is_some();
        match errno {
            libc::EINVAL | libc::EFAULT if fixed => self.fixed = false,
            libc::EINVAL | libc::EOPNOTSUPP => self.supported = false,
            libc::ENOMEM | libc::ENOBUFS => {}
            _ => return None,
        }
        let bytes = entry.parts().concat();
        let (_, _, freed) = self.answer(id);
        Some((bytes, freed))
    }
}

/// Whether a notification says that the kernel copied after all.
pub(crate) fn was_copied(result: i32) -> bool {
    result as u32 & COPIED != 0
}
