//! Accepting through the ring.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::{Conn, Uring, fd_of};
use crate::{
    Completion, ListenerId, Nanos,
    accept::{self, REST, State, Trouble},
    sys::{net, ring::Cqe},
    token::{Op, Token},
};

/// Connections taken from one listener's queue when it is stopped: the largest queue that Linux keeps by default is
/// 4,096; what is beyond this is closed with the listener.
const DRAIN_MAX: usize = 1 << 16;

impl Uring {
    pub(super) fn arm_listeners(&mut self) {
        for index in 0..self.listeners.len() {
            if self.listeners[index].state == State::Idle {
                self.arm(index);
            }
        }
    }

    fn arm(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        if let Some(socket) = fd_of(listener) {
            self.ring.accept(socket, index as u32);
            listener.state = State::Armed;
        }
    }

    pub(super) fn stop_listeners(&mut self) {
        for index in 0..self.listeners.len() {
            let state = self.listeners[index].state;
            match state {
                State::Armed => {
                    let accept = Token::new(Op::Accept, 0, index as u32);
                    self.ring.cancel(accept, accept);
                    self.listeners[index].state = State::Stopping;
                }
                State::Idle | State::Resting(_) => {
                    let mut out = std::mem::take(&mut self.ready);
                    self.drain(index, &mut out);
                    self.ready = out;
                }
                State::Stopping | State::Ended => {}
            }
        }
    }

    pub(super) fn on_accept(&mut self, cqe: Cqe, out: &mut Vec<Completion>) {
        let index = cqe.token.slot() as usize;
        let errno = -cqe.result;
        if let Some(socket) = cqe.accepted {
            self.admit(index, socket, out);
        }
        if cqe.more || index >= self.listeners.len() {
            return;
        }
        match self.listeners[index].state {
            State::Stopping => self.drain(index, out),
            State::Armed => match accept::judge(errno) {
                _ if errno <= 0 => self.arm(index),
                Trouble::Passing => self.arm(index),
                Trouble::Shortage => self.listeners[index].state = State::Resting(self.clock.fresh() + REST),
                Trouble::Final => {
                    let error = io::Error::from_raw_os_error(errno);
                    self.listeners[index].end(ListenerId(index as u16), Some(error), out);
                }
            },
            State::Idle | State::Resting(_) | State::Ended => {}
        }
    }

    fn admit(&mut self, index: usize, socket: OwnedFd, out: &mut Vec<Completion>) {
        let id = ListenerId(index as u16);
        self.stats.syscalls += 1;
        accept::admit(&mut self.conns, id, socket, &self.overflow_reply, Conn::new, out);
    }

    /// Accepts what the kernel has queued, then closes the listener.
    ///
    /// The multishot accept needs a blocking listener on kernels before 6.10 and this needs a non-blocking one, so the
    /// mode changes here, where the ring has let go of it.
    fn drain(&mut self, index: usize, out: &mut Vec<Completion>) {
        let started = self.listeners[index].state != State::Idle;
        if let Some(socket) = self.listeners[index].socket.take()
            && started
            && socket.set_nonblocking(true).is_ok()
        {
            for _ in 0..DRAIN_MAX {
                self.stats.syscalls += 1;
                match net::accept(socket.as_fd(), false) {
                    Ok(connection) => self.admit(index, connection, out),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(_) => break,
                }
            }
        }
        self.listeners[index].end(ListenerId(index as u16), None, out);
    }

    pub(super) fn is_resting(&self) -> bool {
        self.listeners
            .iter()
            .any(|listener| matches!(listener.state, State::Resting(_)))
    }

    pub(super) fn next_rest(&self) -> Option<Nanos> {
        let rest = |listener: &accept::Listener| match listener.state {
            State::Resting(until) => Some(until),
            _ => None,
        };
        self.listeners.iter().filter_map(rest).min()
    }

    /// Accepts again where the rest is over, or everywhere if a descriptor has become free.
    pub(super) fn end_rests(&mut self, now: Nanos, freed: bool) {
        for index in 0..self.listeners.len() {
            if matches!(self.listeners[index].state, State::Resting(until) if freed || until <= now) {
                self.arm(index);
            }
        }
    }
}
