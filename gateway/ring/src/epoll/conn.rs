//! One connection on epoll: receiving, sending, closing.
//!
//! Invariant: `readable` and `writable` are false only after the kernel said so, so that an edge will follow.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::Epoll;
use crate::{
    BufId, Completion, ConnId, Parcel, RecvEnd,
    spin::Stamp,
    sys::{
        epoll::{Event, Watch},
        net,
    },
};

/// Receives of one connection in one go, so that a fast sender does not hold up the others.
const RECV_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recv {
    /// Not asked for, or paused.
    Off,
    /// Asked for.
    On,
    /// Asked for, and in the queue of the starved.
    Starved,
    /// Ended for good.
    Over,
}

#[derive(Debug)]
pub(super) struct Conn {
    socket: OwnedFd,
    readable: bool,
    writable: bool,
    /// FIN or a break has been announced: there is an end to be read behind the last bytes.
    ended: bool,
    recv: Recv,
    /// The bytes of the send in flight, and how many the kernel has taken.
    send: Option<(Parcel, usize)>,
    /// FIN follows the send in flight.
    finishing: bool,
    closing: bool,
    /// Reads of files in flight for it.
    pub(super) reads: u32,
    queued: bool,
    stamp: Stamp,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            // Nothing was tried yet; the first edge comes with the registration.
            readable: false,
            writable: true,
            ended: false,
            recv: Recv::Off,
            send: None,
            finishing: false,
            closing: false,
            reads: 0,
            queued: false,
            stamp: Stamp::default(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.closing
    }

    fn can_go_on(&self) -> bool {
        (self.recv == Recv::On && self.readable && !self.closing) || (self.send.is_some() && self.writable)
    }
}

impl Epoll {
    pub(super) fn watch(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let key = u64::from(id.generation) << 32 | u64::from(id.slot);
        self.stats.syscalls += 1;
        if let Err(error) = self.poll.add(conn.socket.as_fd(), Watch::Edges, key) {
            // Without events (no memory, limit of watches) it can only be told as broken when it is used.
            conn.recv = Recv::Over;
            self.ready.push(Completion::RecvEnded {
                conn: id,
                end: RecvEnd::Failed(error),
            });
        }
    }

    fn queue(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.queued && conn.can_go_on()) {
            conn.queued = true;
            self.work.push_back(id);
        }
    }

    pub(super) fn on_readiness(&mut self, id: ConnId, event: Event) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.readable |= event.readable;
        conn.writable |= event.writable;
        conn.ended |= event.ended;
        self.queue(id);
    }

    pub(super) fn start_recv(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.closing) else {
            return;
        };
        if conn.recv == Recv::Off {
            conn.recv = Recv::On;
            self.queue(id);
        }
    }

    pub(super) fn end_recv(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.closing) else {
            return;
        };
        if matches!(conn.recv, Recv::On | Recv::Starved) {
            conn.recv = Recv::Off;
            self.ready.push(Completion::RecvEnded {
                conn: id,
                end: RecvEnd::Paused,
            });
        }
    }

    pub(super) fn start_send(&mut self, id: ConnId, parcel: Parcel) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.closing) else {
            return;
        };
        assert!(
            conn.send.is_none(),
            "a second send on a connection before the first was answered"
        );
        if parcel.is_empty() {
            return self.ready.push(Completion::Sent {
                conn: id,
                buf: parcel.head,
                result: Ok(0),
            });
        }
        self.stats.plain_sends += 1;
        conn.send = Some((parcel.gathered(), 0));
        self.queue(id);
    }

    pub(super) fn start_finish(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.closing) else {
            return;
        };
        if conn.send.is_some() {
            conn.finishing = true;
        } else {
            self.stats.syscalls += 1;
            net::finish(conn.socket.as_fd());
        }
    }

    pub(super) fn start_close(&mut self, id: ConnId, abort: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let reads = conn.is_open() && conn.reads > 0;
        conn.closing = true;
        if reads {
            self.files.give_up(id);
        }
        if abort {
            if let Some((parcel, _)) = conn.send.take() {
                let (buf, result) = (parcel.head, Err(io::Error::from_raw_os_error(libc::ECANCELED)));
                self.ready.push(Completion::Sent { conn: id, buf, result });
            }
            net::reset_on_close(conn.socket.as_fd());
        }
        self.close_if_idle(id);
    }

    fn close_if_idle(&mut self, id: ConnId) {
        if self
            .conns
            .get_mut(id)
            .is_some_and(|conn| conn.closing && conn.send.is_none())
        {
            self.stats.syscalls += 1;
            drop(self.conns.remove(id));
            self.ready.push(Completion::Closed { conn: id });
            self.end_rests(0, true);
        }
    }

    /// Lets the starved try again, as many as there are buffers, longest waiting first.
    pub(super) fn feed_starved(&mut self) {
        for _ in 0..self.starved.len().min(self.pool.free()) {
            let Some(id) = self.starved.pop_front() else { break };
            if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.recv == Recv::Starved) {
                conn.recv = Recv::On;
                self.queue(id);
            }
        }
    }

    /// Reads, sends and receives where possible, once around.
    pub(super) fn do_work(&mut self) {
        self.begin_reads();
        for _ in 0..self.work.len() {
            let Some(id) = self.work.pop_front() else { break };
            if let Some(conn) = self.conns.get_mut(id) {
                conn.queued = false;
                self.do_send(id);
                self.do_recv(id);
                self.queue(id);
            }
        }
    }

    fn do_send(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.writable) else {
            return;
        };
        let Some((parcel, sent)) = &mut conn.send else { return };
        let len = parcel.len();
        let result = loop {
            self.stats.syscalls += 1;
            match net::send(conn.socket.as_fd(), parcel.parts(), *sent) {
                Ok(0) => break Err(io::Error::from_raw_os_error(libc::EPIPE)),
                Ok(taken) => {
                    *sent += taken;
                    self.stats.bytes_sent += taken as u64;
                    if *sent == len {
                        break Ok(*sent);
                    }
                    self.stats.short_sends += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    conn.writable = false;
                    return;
                }
                Err(error) => break Err(error),
            }
        };
        if conn.finishing && result.is_ok() {
            self.stats.syscalls += 1;
            net::finish(conn.socket.as_fd());
        }
        if let Some((parcel, _)) = conn.send.take() {
            self.ready.push(Completion::Sent {
                conn: id,
                buf: parcel.head,
                result,
            });
        }
        self.close_if_idle(id);
    }

    fn do_recv(&mut self, id: ConnId) {
        for _ in 0..RECV_MAX {
            let wants = |conn: &&mut Conn| conn.recv == Recv::On && conn.readable && !conn.closing;
            let Some(conn) = self.conns.get_mut(id).filter(wants) else {
                return;
            };
            let Some((buffer, memory)) = self.pool.lend() else {
                self.stats.buffers_exhausted += 1;
                conn.recv = Recv::Starved;
                return self.starved.push_back(id);
            };
            self.stats.syscalls += 1;
            let end = match net::recv(conn.socket.as_fd(), memory) {
                Ok(0) => RecvEnd::Eof,
                Ok(taken) => {
                    // Less than there was room for: that was all, unless an end lies behind it.
                    conn.readable = taken == self.pool.size() || conn.ended;
                    self.stats.bytes_received += taken as u64;
                    self.spin.received(&mut conn.stamp);
                    let buf = BufId {
                        id: buffer,
                        len: taken as u32,
                    };
                    self.ready.push(Completion::Received { conn: id, buf });
                    continue;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {
                        self.pool.give_back(buffer);
                        continue;
                    }
                    io::ErrorKind::WouldBlock => {
                        self.pool.give_back(buffer);
                        conn.readable = false;
                        return;
                    }
                    _ => RecvEnd::Failed(error),
                },
            };
            self.pool.give_back(buffer);
            conn.recv = Recv::Over;
            return self.ready.push(Completion::RecvEnded { conn: id, end });
        }
    }
}
