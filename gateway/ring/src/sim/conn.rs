//! One connection of the simulated worker: receiving, sending, closing, with the faults of a real kernel.
//!
//! Invariant: as on the ring, a slot is freed only when neither a receive nor a send is under way.

use std::io;

use super::{
    InHand, Sim,
    faults::{Fault, Operation, What},
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
    /// It was paused at least once, so a receive resumes.
    paused: bool,
    send: Option<(Vec<u8>, usize)>,
    finishing: bool,
    closing: Closing,
    /// The close waits for room in the submission queue.
    unsubmitted: bool,
    /// Reads of files in flight for it.
    pub(super) reads: usize,
}

impl Conn {
    pub(super) fn new(wire: WireId) -> Self {
        Self {
            wire,
            recv: Recv::Off,
            paused: false,
            send: None,
            finishing: false,
            closing: Closing::No,
            unsubmitted: false,
            reads: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.closing == Closing::No
    }

    pub(super) fn wire(&self) -> WireId {
        self.wire
    }

    pub(super) fn in_hand(&self, ended: bool, sent: bool, read: usize) -> InHand {
        InHand {
            receiving: ended || !matches!(self.recv, Recv::Off | Recv::Over),
            sending: sent || self.send.is_some(),
            // Those of a connection that closes are not answered.
            reading: read + if self.is_open() { self.reads } else { 0 },
            closing: self.closing != Closing::No,
        }
    }

    /// What a receive that begins now is to whoever counts.
    fn receiving_as(&self) -> Operation {
        if self.paused {
            Operation::Resume
        } else {
            Operation::Recv
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

    pub(super) fn start_recv(&mut self, id: ConnId) {
        let Some(conn) = self.open(id) else { return };
        let (wire, operation) = (conn.wire, conn.receiving_as());
        match conn.recv {
            Recv::Off => {
                conn.recv = Recv::Armed;
                let mut shared = self.shared.borrow_mut();
                shared.submit(self.worker, Event::Recv(id), Some(wire), operation);
            }
            Recv::Pausing { .. } => conn.recv = Recv::Pausing { again: true },
            Recv::Armed | Recv::Starved | Recv::Over => {}
        }
        if operation == Operation::Resume {
            self.shared.borrow_mut().did(wire, operation);
        }
    }

    pub(super) fn cancel_recv(&mut self, id: ConnId) {
        let Some(conn) = self.open(id) else { return };
        conn.paused = true;
        let (wire, before) = (conn.wire, conn.recv);
        match before {
            Recv::Armed | Recv::Pausing { .. } => conn.recv = Recv::Pausing { again: false },
            Recv::Starved => conn.recv = Recv::Off,
            Recv::Off | Recv::Over => {}
        }
        match before {
            Recv::Armed => self.submit_cancel(Event::CancelRecv(id), wire, Operation::Pause),
            Recv::Starved => self.ready.push_back(Completion::RecvEnded {
                conn: id,
                end: RecvEnd::Paused,
            }),
            Recv::Off | Recv::Over | Recv::Pausing { .. } => {}
        }
        self.shared.borrow_mut().did(wire, Operation::Pause);
    }

    fn submit_cancel(&self, event: Event, wire: WireId, operation: Operation) {
        let shared = &mut *self.shared.borrow_mut();
        let late = shared.strikes(Fault::LateCancel, Some(wire), Some(operation));
        let full = shared.strikes(Fault::FullQueue, Some(wire), Some(operation));
        let delays = if late { 10 } else { 1 } + u32::from(full);
        let time = shared.time + (0..delays).map(|_| shared.delay()).sum::<u64>();
        shared.at_station(self.worker, time, event);
    }

    pub(super) fn feed_starved(&mut self) {
        for _ in 0..self.starved.len().min(self.pool.free()) {
            let Some(id) = self.starved.pop_front() else { break };
            if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.recv == Recv::Starved) {
                conn.recv = Recv::Armed;
                let (wire, operation) = (conn.wire, conn.receiving_as());
                let mut shared = self.shared.borrow_mut();
                shared.submit(self.worker, Event::Recv(id), Some(wire), operation);
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
                self.ready.push_back(Completion::RecvEnded { conn: id, end });
            }
            drop(guard);
            return self.close_if_idle(id);
        }
        let wire = conn.wire;
        let unlucky = shared.strikes(Fault::Exhaustion, Some(wire), Some(Operation::Recv));
        let Some((buffer, memory)) = (if unlucky { None } else { self.pool.lend() }) else {
            if !unlucky {
                shared.notice(Some(wire), What::Struck(Fault::Exhaustion, Some(Operation::Recv)));
            }
            self.stats.buffers_exhausted += 1;
            drop(guard);
            return self.starve(id);
        };
        let mut count = shared.wires[wire.0].up.arrived.len().min(memory.len());
        if count > 1 && shared.strikes(Fault::ShortRead, Some(wire), Some(Operation::Recv)) {
            count = shared.rng.within(&(1..=count as u64 - 1)) as usize;
        }
        let pipe = &mut shared.wires[wire.0].up;
        memory
            .iter_mut()
            .zip(pipe.take(count))
            .for_each(|(to, byte)| *to = byte);
        let more = !pipe.arrived.is_empty() || pipe.end != End::None;
        let ended = shared.strikes(Fault::EndedReceive, Some(wire), Some(Operation::Recv));
        if more {
            shared.soon(self.worker, Event::Recv(id));
        }
        self.stats.bytes_received += count as u64;
        if conn.closing == Closing::No {
            self.lent.insert(buffer, wire);
            self.ready.push_back(Completion::Received {
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
                let (wire, operation) = (conn.wire, conn.receiving_as());
                let mut shared = self.shared.borrow_mut();
                shared.submit(self.worker, Event::Recv(id), Some(wire), operation);
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
            self.ready.push_back(Completion::RecvEnded {
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
            self.ready.push_back(Completion::RecvEnded {
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
            return self.ready.push_back(Completion::Sent {
                conn: id,
                buf,
                result: Ok(0),
            });
        }
        conn.send = Some((buf, 0));
        let wire = conn.wire;
        self.stats.plain_sends += 1;
        let mut shared = self.shared.borrow_mut();
        shared.submit(self.worker, Event::Send(id), Some(wire), Operation::Send);
        shared.did(wire, Operation::Send);
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
                        shared.soon(self.worker, Event::Send(id));
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
            self.ready.push_back(Completion::Sent { conn: id, buf, result });
            self.close_if_idle(id);
        }
    }

    pub(super) fn start_finish(&mut self, id: ConnId) {
        let worker = self.worker;
        let Some(conn) = self.open(id) else { return };
        conn.finishing = true;
        let (wire, sending) = (conn.wire, conn.send.is_some());
        let mut shared = self.shared.borrow_mut();
        if shared.strikes(Fault::FullQueue, Some(wire), Some(Operation::Finish)) {
            shared.soon(worker, Event::Finish(id));
        } else if !sending {
            shared.fin(wire, Way::Down);
        }
        shared.did(wire, Operation::Finish);
    }

    /// A FIN that found the submission queue full is submitted; behind a send it leaves when that is over.
    pub(super) fn on_finish(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.send.is_none()) else {
            return;
        };
        self.shared.borrow_mut().fin(conn.wire, Way::Down);
    }

    pub(super) fn start_close(&mut self, id: ConnId, abort: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let closing = if abort { Closing::Abort } else { Closing::Soon };
        if conn.closing == closing || conn.closing == Closing::Abort {
            return;
        }
        conn.closing = closing;
        let (wire, waits) = (conn.wire, conn.unsubmitted);
        let operation = if abort { Operation::Abort } else { Operation::Close };
        let mut shared = self.shared.borrow_mut();
        let full = !waits && shared.strikes(Fault::FullQueue, Some(wire), Some(operation));
        if full {
            shared.soon(self.worker, Event::Close(id));
        }
        shared.did(wire, operation);
        drop(shared);
        match self.conns.get_mut(id) {
            Some(conn) if full || waits => conn.unsubmitted = true,
            _ => self.end_loans(id),
        }
    }

    /// A close that found the submission queue full is submitted.
    pub(super) fn on_close(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.unsubmitted = false;
            self.end_loans(id);
        }
    }

    /// Asks for the end of what is under way on a connection that closes.
    fn end_loans(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let (wire, armed, sending) = (conn.wire, conn.recv == Recv::Armed, conn.send.is_some());
        let abort = conn.closing == Closing::Abort;
        if conn.recv == Recv::Starved {
            conn.recv = Recv::Off;
        }
        if armed {
            conn.recv = Recv::Pausing { again: false };
            let operation = if abort { Operation::Abort } else { Operation::Close };
            self.submit_cancel(Event::CancelRecv(id), wire, operation);
        }
        if abort && sending {
            self.submit_cancel(Event::CancelSend(id), wire, Operation::Abort);
        }
        self.close_if_idle(id);
    }

    fn close_if_idle(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing == Closing::No || conn.unsubmitted || conn.receives() || conn.send.is_some() {
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
        self.ready.push_back(Completion::Closed { conn: id });
    }
}
