//! One connection on the ring: receiving, sending, closing.
//!
//! Invariant: `recv` is `Armed` or `Pausing` exactly while a multishot receive is with the kernel, and `sending` exactly
//! while a send was not answered; the descriptor is closed only when neither is.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::Uring;
use crate::{
    BufId, Completion, ConnId, RecvEnd,
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
    sending: bool,
    /// FIN follows the send in flight.
    finishing: bool,
    closing: Closing,
    stamp: Stamp,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            recv: Recv::Off,
            sending: false,
            finishing: false,
            closing: Closing::No,
            stamp: Stamp::default(),
        }
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
                self.ring.cancel(Token::of(Op::Recv, id));
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
            if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.recv == Recv::Starved) {
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

    pub(super) fn start_send(&mut self, id: ConnId, buf: Vec<u8>) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.closing == Closing::No) else {
            return;
        };
        if buf.is_empty() {
            assert!(
                !conn.sending,
                "a second send on a connection before the first was answered"
            );
            return self.ready.push(Completion::Sent {
                conn: id,
                buf,
                result: Ok(0),
            });
        }
        conn.sending = true;
        self.ring.send(conn.socket.as_fd(), Token::of(Op::Send, id), buf);
    }

    pub(super) fn on_send(&mut self, cqe: &Cqe, out: &mut Vec<Completion>) {
        let Some(id) = self.present(cqe.token) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        let taken = usize::try_from(cqe.result).unwrap_or(0);
        self.stats.bytes_sent += taken as u64;
        let left = self.ring.advance_send(id.slot, taken);
        let aborted = conn.closing == Closing::Abort;
        let error = match -cqe.result {
            _ if left == 0 => None,
            _ if aborted => Some(libc::ECANCELED),
            // A send that took nothing of something cannot go on.
            0 => Some(libc::EPIPE),
            errno if errno < 0 || errno == libc::EINTR || errno == libc::EAGAIN => {
                self.stats.short_sends += 1;
                return self.ring.resend(conn.socket.as_fd(), cqe.token);
            }
            errno => Some(errno),
        };
        conn.sending = false;
        if conn.finishing && error.is_none() {
            self.stats.syscalls += 1;
            net::finish(conn.socket.as_fd());
        }
        if let Some((buf, sent)) = self.ring.end_send(id.slot) {
            let result = error.map_or(Ok(sent), |errno| Err(io::Error::from_raw_os_error(errno)));
            out.push(Completion::Sent { conn: id, buf, result });
        }
        self.close_if_idle(id, out);
    }

    pub(super) fn start_finish(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.closing == Closing::No) else {
            return;
        };
        if conn.sending {
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
            self.ring.cancel(Token::of(Op::Recv, id));
        }
        if abort && conn.sending {
            self.ring.cancel(Token::of(Op::Send, id));
        }
        conn.closing = closing;
        let mut out = std::mem::take(&mut self.ready);
        self.close_if_idle(id, &mut out);
        self.ready = out;
    }

    /// Closes the descriptor of a closing connection when the kernel has nothing of it any more.
    fn close_if_idle(&mut self, id: ConnId, out: &mut Vec<Completion>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing == Closing::No || conn.receives() || conn.sending {
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
            self.ring.cancel(Token::of(Op::Recv, id));
        }
        if conn.closing == Closing::Abort && conn.sending {
            self.ring.cancel(Token::of(Op::Send, id));
        }
    }
}

/// Ends of a multishot receive that say nothing about the connection: after bytes, cancelled, interrupted, no buffers.
fn is_pause(errno: i32) -> bool {
    errno < 0 || matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ENOBUFS)
}
