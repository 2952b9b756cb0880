//! One connection on the ring: receiving, sending, closing.
//!
//! Invariant: `recv` is `Armed` or `Pausing` exactly while a multishot receive is with the kernel, and `sending` is `Some`
//! exactly while a send was not answered; the descriptor is closed only when neither is. Zero-copy sends that were
//! answered but not notified may outlive the connection.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use super::Uring;
use crate::{
    BufId, Completion, ConnId, Parcel, RecvEnd, ZeroCopy,
    spin::Stamp,
    sys::{net, ring::Cqe},
    token::{Op, Token},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recv {
    /// Not asked for, or paused.
    Off,
    /// A multishot receive is with the kernel.
    Armed,
    /// So is its cancellation; `again`: receive was asked for meanwhile.
    Pausing { again: bool },
    /// Ended for want of buffers; stands in the queue of the starved.
    Starved,
    /// Ended for good.
    Over,
}

/// A send in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Plain,
    /// Its entry among the zero-copy sends.
    ZeroCopy(ConnId),
}

/// Zero-copy sends of a connection whose notification may be due; more go plainly, so that a reader who stalls does not
/// take up the entries of all.
const UNNOTIFIED_MAX: u16 = 16;
/// Notifications that say "copied" after which a connection goes back to plain sends.
const COPIED_MAX: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// After the send in flight.
    Soon,
    /// Reset at once.
    Abort,
}

#[derive(Debug)]
pub(super) struct Conn {
    socket: OwnedFd,
    recv: Recv,
    sending: Option<Sending>,
    /// Entries among the zero-copy sends.
    unnotified: u16,
    /// Notifications that said "copied".
    copied: u8,
    /// A notification said that the bytes were not copied.
    proven: bool,
    /// The client is on this machine, where the kernel always copies.
    local: bool,
    /// FIN follows the send in flight.
    finishing: bool,
    closing: Closing,
    /// Reads of files in flight for it.
    pub(super) reads: u32,
    stamp: Stamp,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd, peer: SocketAddr) -> Self {
        Self {
            socket,
            recv: Recv::Off,
            sending: None,
            unnotified: 0,
            copied: 0,
            proven: false,
            local: peer.ip().to_canonical().is_loopback(),
            finishing: false,
            closing: Closing::No,
            reads: 0,
            stamp: Stamp::default(),
        }
    }

    /// Whether a send of this length goes without a copy. What the network does is learnt from one send at a time, so that
    /// a reader who stalls holds one.
    fn avoids_copy(&self, zero_copy: ZeroCopy, len: usize) -> bool {
        match zero_copy {
            ZeroCopy::Off => false,
            ZeroCopy::From(size) => {
                let most = if self.proven { UNNOTIFIED_MAX } else { 1 };
                !self.local && self.copied < COPIED_MAX && self.unnotified < most && len >= size
            }
            ZeroCopy::Always => self.unnotified < UNNOTIFIED_MAX,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.closing == Closing::No
    }

    fn receives(&self) -> bool {
        matches!(self.recv, Recv::Armed | Recv::Pausing { .. })
    }
}

impl Uring {
    pub(super) fn start_recv(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.closing == Closing::No) else {
            return;
        };
        match conn.recv {
            Recv::Off => {
                conn.recv = Recv::Armed;
                self.ring.recv(conn.socket.as_fd(), Token::of(Op::Recv, id));
            }
            Recv::Pausing { .. } => conn.recv = Recv::Pausing { again: true },
            Recv::Armed | Recv::Starved | Recv::Over => {}
        }
    }

    pub(super) fn cancel_recv(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.closing == Closing::No) else {
            return;
        };
        match conn.recv {
            Recv::Armed => {
                conn.recv = Recv::Pausing { again: false };
                self.ring.cancel(Token::of(Op::Recv, id), Token::of(Op::Recv, id));
            }
            Recv::Pausing { .. } => conn.recv = Recv::Pausing { again: false },
            Recv::Starved => {
                // Its place in the queue is skipped when it comes up.
                conn.recv = Recv::Off;
                self.ready.push(Completion::RecvEnded {
                    conn: id,
                    end: RecvEnd::Paused,
                });
            }
            Recv::Off | Recv::Over => {}
        }
    }

    /// Receives again for the starved, as many as there are buffers, longest waiting first: submitted receives run in
    /// order, so the first takes its buffer before any other can.
    pub(super) fn feed_starved(&mut self) {
        for _ in 0..self.starved.len().min(self.ring.pool().free() as usize) {
            let Some(id) = self.starved.pop_front() else { break };
            let waits = |conn: &&mut Conn| conn.recv == Recv::Starved && conn.closing == Closing::No;
            if let Some(conn) = self.conns.get_mut(id).filter(waits) {
                conn.recv = Recv::Armed;
                self.ring.recv(conn.socket.as_fd(), Token::of(Op::Recv, id));
            }
        }
    }

    /// The connection that a completion is about, unless it is one of the past.
    fn present(&self, token: Token) -> Option<ConnId> {
        self.conns.id_of(token.slot()).filter(|id| token.is_of(id.generation))
    }

    pub(super) fn on_recv(&mut self, cqe: &Cqe, out: &mut Vec<Completion>) {
        let mut conn = self
            .present(cqe.token)
            .and_then(|id| Some((id, self.conns.get_mut(id)?)));
        let buffer = match (&mut conn, cqe.buffer) {
            (Some((id, conn)), Some(buffer)) if cqe.result > 0 && conn.closing == Closing::No => {
                let buf = BufId {
                    id: u32::from(buffer),
                    len: cqe.result as u32,
                };
                self.stats.bytes_received += u64::from(buf.len);
                self.spin.received(&mut conn.stamp);
                out.push(Completion::Received { conn: *id, buf });
                None
            }
            (_, buffer) => buffer,
        };
        let id = conn.map(|(id, _)| id);
        if let Some(unread) = buffer {
            self.ring.pool_mut().give_back(unread);
        }
        if let Some(id) = id.filter(|_| !cqe.more) {
            self.on_recv_end(id, cqe.result, out);
        }
    }

    fn on_recv_end(&mut self, id: ConnId, result: i32, out: &mut Vec<Completion>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let before = std::mem::replace(&mut conn.recv, Recv::Off);
        if result == -libc::ENOBUFS {
            self.stats.buffers_exhausted += 1;
        }
        if conn.closing != Closing::No {
            return self.close_if_idle(id, out);
        }
        let end = match -result {
            0 => RecvEnd::Eof,
            _ if before == (Recv::Pausing { again: false }) && is_pause(-result) => RecvEnd::Paused,
            libc::ENOBUFS => {
                conn.recv = Recv::Starved;
                return self.starved.push_back(id);
            }
            // The kernel ends a multishot receive when it likes: it goes on.
            errno if is_pause(errno) => return self.start_recv(id),
            errno => RecvEnd::Failed(io::Error::from_raw_os_error(errno)),
        };
        if !matches!(end, RecvEnd::Paused) {
            conn.recv = Recv::Over;
        }
        out.push(Completion::RecvEnded { conn: id, end });
    }

    pub(super) fn start_send(&mut self, id: ConnId, parcel: Parcel) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.closing == Closing::No) else {
            return;
        };
        assert!(
            conn.sending.is_none(),
            "a second send on a connection before the first was answered"
        );
        if parcel.is_empty() {
            return self.ready.push(Completion::Sent {
                conn: id,
                buf: parcel.head,
                result: Ok(0),
            });
        }
        let avoids_copy = conn.avoids_copy(self.zero_copy, parcel.len());
        let parcel = if avoids_copy {
            self.send_zero_copy(id, parcel).err()
        } else {
            Some(parcel)
        };
        if let Some(parcel) = parcel {
            self.send_plain(id, parcel);
        }
    }

    fn send_plain(&mut self, id: ConnId, parcel: Parcel) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.sending = Some(Sending::Plain);
        self.stats.plain_sends += 1;
        self.ring
            .send(conn.socket.as_fd(), Token::of(Op::Send, id), parcel.gathered());
    }

    /// `Err` gives the parcel back, to be sent plainly.
    fn send_zero_copy(&mut self, id: ConnId, mut parcel: Parcel) -> Result<(), Parcel> {
        let Some(conn) = self.conns.get_mut(id) else {
            return Err(parcel);
        };
        if let (ZeroCopy::Always, Some(arena), true) = (self.zero_copy, &self.arena, parcel.is_single())
            && let Some(body) = arena.try_store(&parcel.head)
        {
            parcel.head.clear();
            parcel.body = Some(body);
        }
        let entry = self
            .ring
            .send_zero_copy(conn.socket.as_fd(), Token::of(Op::Send, id), parcel)?;
        conn.sending = Some(Sending::ZeroCopy(entry));
        conn.unnotified += 1;
        self.stats.zero_copy_sends += 1;
        self.stats.registered_sends += u64::from(self.ring.zero_copies().is_registered(entry));
        Ok(())
    }

    pub(super) fn on_send(&mut self, cqe: &Cqe, out: &mut Vec<Completion>) {
        let Some(id) = self.present(cqe.token) else {
            return;
        };
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(sending) = conn.sending else { return };
        let taken = usize::try_from(cqe.result).unwrap_or(0);
        self.stats.bytes_sent += taken as u64;
        let left = match sending {
            Sending::Plain => self.ring.advance_send(id.slot, taken),
            Sending::ZeroCopy(entry) => self.ring.zero_copies_mut().advance(entry, taken),
        };
        let aborted = conn.closing == Closing::Abort;
        let error = match -cqe.result {
            _ if left == 0 => None,
            _ if aborted => Some(libc::ECANCELED),
            // A send that took nothing of something cannot go on.
            0 => Some(libc::EPIPE),
            errno if errno < 0 || errno == libc::EINTR || errno == libc::EAGAIN => {
                self.stats.short_sends += 1;
                return match sending {
                    Sending::Plain => self.ring.resend(conn.socket.as_fd(), cqe.token),
                    Sending::ZeroCopy(entry) => self.ring.resend_zero_copy(conn.socket.as_fd(), entry),
                };
            }
            errno => {
                if let Sending::ZeroCopy(entry) = sending
                    && let Some((bytes, freed)) = self.ring.zero_copies_mut().refused(entry, errno)
                {
                    conn.unnotified -= u16::from(freed);
                    self.stats.refused_sends += 1;
                    return self.send_plain(id, bytes.into());
                }
                Some(errno)
            }
        };
        self.end_send(id, sending, error, out);
    }

    fn end_send(&mut self, id: ConnId, sending: Sending, error: Option<i32>, out: &mut Vec<Completion>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let ended = match sending {
            Sending::Plain => self.ring.end_send(id.slot),
            Sending::ZeroCopy(entry) => {
                let (head, sent, freed) = self.ring.zero_copies_mut().answer(entry);
                conn.unnotified -= u16::from(freed);
                Some((head, sent))
            }
        };
        conn.sending = None;
        if conn.finishing && error.is_none() {
            self.stats.syscalls += 1;
            net::finish(conn.socket.as_fd());
        }
        if let Some((buf, sent)) = ended {
            let result = error.map_or(Ok(sent), |errno| Err(io::Error::from_raw_os_error(errno)));
            out.push(Completion::Sent { conn: id, buf, result });
        }
        self.close_if_idle(id, out);
    }

    /// The kernel has let go of the bytes of a zero-copy send.
    pub(super) fn on_notified(&mut self, cqe: &Cqe) {
        let copied = cqe.was_copied();
        self.stats.copied_sends += u64::from(copied);
        if let Some(conn) = self.present(cqe.token).and_then(|id| self.conns.get_mut(id)) {
            conn.copied = conn.copied.saturating_add(u8::from(copied));
            conn.proven |= !copied;
            conn.unnotified -= u16::from(cqe.freed);
        }
    }

    pub(super) fn start_finish(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.closing == Closing::No) else {
            return;
        };
        if conn.sending.is_some() {
            conn.finishing = true;
        } else {
            self.stats.syscalls += 1;
            net::finish(conn.socket.as_fd());
        }
    }

    pub(super) fn start_close(&mut self, id: ConnId, abort: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let closing = if abort { Closing::Abort } else { Closing::Soon };
        if conn.closing == closing || conn.closing == Closing::Abort {
            return;
        }
        if conn.recv == Recv::Armed {
            conn.recv = Recv::Pausing { again: false };
            self.ring.cancel(Token::of(Op::Recv, id), Token::of(Op::Recv, id));
        }
        if abort && let Some(sending) = conn.sending {
            self.ring.cancel(target(id, sending), Token::of(Op::Send, id));
        }
        let reads = conn.is_open() && conn.reads > 0;
        conn.closing = closing;
        if reads {
            self.give_up_reads(id);
        }
        let mut out = std::mem::take(&mut self.ready);
        self.close_if_idle(id, &mut out);
        self.ready = out;
    }

    /// Closes the descriptor of a closing connection when the kernel has nothing of it any more.
    fn close_if_idle(&mut self, id: ConnId, out: &mut Vec<Completion>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing == Closing::No || conn.receives() || conn.sending.is_some() {
            return;
        }
        if conn.closing == Closing::Abort {
            net::reset_on_close(conn.socket.as_fd());
        }
        self.stats.syscalls += 1;
        drop(self.conns.remove(id));
        out.push(Completion::Closed { conn: id });
        self.end_rests(0, true);
    }

    /// A cancellation that found nothing came after the final completion of its target, which is then in this very
    /// batch or was before; if the target nevertheless still runs, it is asked again.
    pub(super) fn on_cancel(&mut self, cqe: &Cqe) {
        let Some(id) = self.present(cqe.token).filter(|_| cqe.result == -libc::ENOENT) else {
            return;
        };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if matches!(conn.recv, Recv::Pausing { .. }) {
            self.ring.cancel(Token::of(Op::Recv, id), Token::of(Op::Recv, id));
        }
        if let (Closing::Abort, Some(sending)) = (conn.closing, conn.sending) {
            self.ring.cancel(target(id, sending), Token::of(Op::Send, id));
        }
    }
}

/// The submission of a send, to be cancelled.
fn target(id: ConnId, sending: Sending) -> Token {
    match sending {
        Sending::Plain => Token::of(Op::Send, id),
        Sending::ZeroCopy(entry) => Token::of(Op::ZeroCopy, entry),
    }
}

/// Ends of a multishot receive that say nothing about the connection: after bytes, cancelled, interrupted, no buffers.
fn is_pause(errno: i32) -> bool {
    errno < 0 || matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ENOBUFS)
}
