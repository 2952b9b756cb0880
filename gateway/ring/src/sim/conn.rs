//! One connection of the simulated worker: receiving, sending, closing, with the faults of a real kernel.
//!
//! Invariant: as on the ring, a slot is freed only when neither a receive nor a send is under way.

use std::io;

use super::{
    Sim,
    net::{End, Event, Way, WireId},
};
use crate::{BufId, Completion, ConnId, Parcel, RecvEnd};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recv {
    Off,
    Armed,
    Pausing { again: bool },
    Starved,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    Soon,
    Abort,
}

#[derive(Debug)]
pub(super) struct Conn {
    wire: WireId,
    recv: Recv,
    send: Option<(Vec<u8>, usize)>,
    finishing: bool,
    closing: Closing,
}

impl Conn {
    pub(super) fn new(wire: WireId) -> Self {
        Self {
            wire,
            recv: Recv::Off,
            send: None,
            finishing: false,
            closing: Closing::No,
        }
    }

    fn receives(&self) -> bool {
        matches!(self.recv, Recv::Armed | Recv::Pausing { .. })
    }
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl Sim {
    fn open(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(id).filter(|conn| conn.closing == Closing::No)
    }

    /// Something arrived or ended on a wire: whoever waits for it looks again.
    pub(super) fn on_news(&mut self, wire: WireId) {
        let mut shared = self.shared.borrow_mut();
        if let Some(conn) = shared.wires[wire.0].conn {
            shared.soon(Event::Recv(conn));
            if shared.wires[wire.0].down.end == End::Reset {
                shared.soon(Event::Send(conn));
            }
        }
    }

    pub(super) fn start_recv(&mut self, id: ConnId) {
        let Some(conn) = self.open(id) else { return };
        match conn.recv {
            Recv::Off => {
                conn.recv = Recv::Armed;
                self.shared.borrow_mut().submit(Event::Recv(id));
            }
            Recv::Pausing { .. } => conn.recv = Recv::Pausing { again: true },
            Recv::Armed | Recv::Starved | Recv::Over => {}
        }
    }

    pub(super) fn cancel_recv(&mut self, id: ConnId) {
        let Some(conn) = self.open(id) else { return };
        match conn.recv {
            Recv::Armed => {
                conn.recv = Recv::Pausing { again: false };
                self.submit_cancel(Event::CancelRecv(id));
            }
            Recv::Pausing { .. } => conn.recv = Recv::Pausing { again: false },
            Recv::Starved => {
                conn.recv = Recv::Off;
                self.ready.push(Completion::RecvEnded {
                    conn: id,
                    end: RecvEnd::Paused,
                });
            }
            Recv::Off | Recv::Over => {}
        }
    }

    fn submit_cancel(&self, event: Event) {
        let shared = &mut *self.shared.borrow_mut();
        let late = shared
            .rng
            .strikes(shared.faults.late_cancels, &mut shared.counts.late_cancels);
        let delays = if late { 10 } else { 1 };
        let time = shared.time + (0..delays).map(|_| shared.delay()).sum::<u64>();
        shared.at(time, event);
    }

    pub(super) fn feed_starved(&mut self) {
        for _ in 0..self.starved.len().min(self.pool.free()) {
            let Some(id) = self.starved.pop_front() else { break };
            if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.recv == Recv::Starved) {
                conn.recv = Recv::Armed;
                self.shared.borrow_mut().submit(Event::Recv(id));
            }
        }
    }

    /// A receive looks at its wire. It is asked more often than there is news; then it does nothing.
    pub(super) fn on_recv(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.receives()) else {
            return;
        };
        let mut guard = self.shared.borrow_mut();
        let shared = &mut *guard;
        let pipe = &mut shared.wires[conn.wire.0].up;
        if pipe.arrived.is_empty() {
            let end = match pipe.end {
                End::None | End::Coming => return,
                End::Fin => RecvEnd::Eof,
                End::Reset => RecvEnd::Failed(error(libc::ECONNRESET)),
            };
            conn.recv = Recv::Over;
            if conn.closing == Closing::No {
                self.ready.push(Completion::RecvEnded { conn: id, end });
            }
            drop(guard);
            return self.close_if_idle(id);
        }
        let unlucky = shared
            .rng
            .strikes(shared.faults.exhaustion, &mut shared.counts.exhaustion);
        let Some((buffer, memory)) = (if unlucky { None } else { self.pool.lend() }) else {
            self.stats.buffers_exhausted += 1;
            drop(guard);
            return self.starve(id);
        };
        let mut count = pipe.arrived.len().min(memory.len());
        if count > 1
            && shared
                .rng
                .strikes(shared.faults.short_reads, &mut shared.counts.short_reads)
        {
            count = shared.rng.within(&(1..=count as u64 - 1)) as usize;
        }
        let pipe = &mut shared.wires[conn.wire.0].up;
        memory
            .iter_mut()
            .zip(pipe.take(count))
            .for_each(|(to, byte)| *to = byte);
        let more = !pipe.arrived.is_empty() || pipe.end != End::None;
        let ended = shared
            .rng
            .strikes(shared.faults.ended_receives, &mut shared.counts.ended_receives);
        if more {
            shared.soon(Event::Recv(id));
        }
        self.stats.bytes_received += count as u64;
        if conn.closing == Closing::No {
            self.ready.push(Completion::Received {
                conn: id,
                buf: BufId {
                    id: buffer,
                    len: count as u32,
                },
            });
        } else {
            self.pool.give_back(buffer);
        }
        drop(guard);
        if ended {
            self.on_recv_ended_early(id);
        }
    }

    /// The kernel has ended a receive by itself: one that was to end has, and its cancellation will find nothing; any
    /// other is submitted anew.
    fn on_recv_ended_early(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.recv {
            Recv::Pausing { .. } if conn.closing != Closing::No => self.on_cancel_recv(id),
            Recv::Pausing { again: false } => self.on_cancel_recv(id),
            Recv::Pausing { again: true } | Recv::Armed => {
                conn.recv = Recv::Armed;
                self.shared.borrow_mut().submit(Event::Recv(id));
            }
            Recv::Off | Recv::Starved | Recv::Over => {}
        }
    }

    fn starve(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let before = std::mem::replace(&mut conn.recv, Recv::Off);
        if conn.closing != Closing::No {
            self.close_if_idle(id);
        } else if before == (Recv::Pausing { again: false }) {
            self.ready.push(Completion::RecvEnded {
                conn: id,
                end: RecvEnd::Paused,
            });
        } else {
            conn.recv = Recv::Starved;
            self.starved.push_back(id);
        }
    }

    pub(super) fn on_cancel_recv(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Recv::Pausing { again } = conn.recv else { return };
        conn.recv = Recv::Off;
        if conn.closing != Closing::No {
            self.close_if_idle(id);
        } else if again {
            self.start_recv(id);
        } else {
            self.ready.push(Completion::RecvEnded {
                conn: id,
                end: RecvEnd::Paused,
            });
        }
    }

    pub(super) fn start_send(&mut self, id: ConnId, parcel: Parcel) {
        let Some(conn) = self.open(id) else { return };
        assert!(
            conn.send.is_none(),
            "a second send on a connection before the first was answered"
        );
        let buf = parcel.into_one();
        if buf.is_empty() {
            return self.ready.push(Completion::Sent {
                conn: id,
                buf,
                result: Ok(0),
            });
        }
        conn.send = Some((buf, 0));
        self.stats.plain_sends += 1;
        self.shared.borrow_mut().submit(Event::Send(id));
    }

    /// A send looks whether there is room. It is asked more often than there is news; then it does nothing.
    pub(super) fn on_send(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some((buf, sent)) = &mut conn.send else { return };
        let mut shared = self.shared.borrow_mut();
        let result = match shared.wires[conn.wire.0].down.end {
            End::None => {
                let taken = shared.write(conn.wire, Way::Down, &buf[*sent..]);
                *sent += taken;
                self.stats.bytes_sent += taken as u64;
                if *sent < buf.len() {
                    self.stats.short_sends += u64::from(taken > 0);
                    if shared.wires[conn.wire.0].down.room() > 0 {
                        shared.soon(Event::Send(id));
                    }
                    return;
                }
                Ok(*sent)
            }
            End::Coming | End::Fin => Err(error(libc::EPIPE)),
            End::Reset => Err(error(libc::ECONNRESET)),
        };
        if conn.finishing && result.is_ok() {
            shared.fin(conn.wire, Way::Down);
        }
        drop(shared);
        self.end_send(id, result);
    }

    pub(super) fn on_cancel_send(&mut self, id: ConnId) {
        self.end_send(id, Err(error(libc::ECANCELED)));
    }

    fn end_send(&mut self, id: ConnId, result: io::Result<usize>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Some((buf, _)) = conn.send.take() {
            self.ready.push(Completion::Sent { conn: id, buf, result });
            self.close_if_idle(id);
        }
    }

    pub(super) fn start_finish(&mut self, id: ConnId) {
        let Some(conn) = self.open(id) else { return };
        conn.finishing = true;
        if conn.send.is_none() {
            let wire = conn.wire;
            self.shared.borrow_mut().fin(wire, Way::Down);
        }
    }

    pub(super) fn start_close(&mut self, id: ConnId, abort: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let closing = if abort { Closing::Abort } else { Closing::Soon };
        if conn.closing == closing || conn.closing == Closing::Abort {
            return;
        }
        conn.closing = closing;
        let (armed, sending) = (conn.recv == Recv::Armed, conn.send.is_some());
        if armed {
            conn.recv = Recv::Pausing { again: false };
            self.submit_cancel(Event::CancelRecv(id));
        }
        if abort && sending {
            self.submit_cancel(Event::CancelSend(id));
        }
        self.close_if_idle(id);
    }

    fn close_if_idle(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing == Closing::No || conn.receives() || conn.send.is_some() {
            return;
        }
        let (wire, abort) = (conn.wire, conn.closing == Closing::Abort);
        self.conns.remove(id);
        let mut shared = self.shared.borrow_mut();
        let ends = &mut shared.wires[wire.0];
        ends.conn = None;
        ends.shut = true;
        // As TCP does: unread bytes make a close a reset.
        if abort || !ends.up.arrived.is_empty() {
            shared.reset(wire, Way::Down);
        } else {
            shared.fin(wire, Way::Down);
        }
        self.ready.push(Completion::Closed { conn: id });
    }
}
