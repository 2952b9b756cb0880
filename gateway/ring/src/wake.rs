//! Waking a worker that sleeps in the kernel, from any thread, with a system call only where it is needed.
//!
//! It never blocks and carries no data. Invariant: after [`Wake::wake`] returns, the worker's current or next turn
//! answers `Woken`.
//!
//! One atomic holds the whole protocol, so its modification order is the only order that has to be argued about:
//!
//! - The worker goes to sleep by a compare-exchange `AWAKE → ASLEEP`. If a wake came first, it fails and the worker does
//!   not sleep. If it succeeds, every later wake sees `ASLEEP` and writes to the eventfd, whose readiness ends the
//!   sleep even if the worker has not yet entered the kernel.
//! - `wake` always swaps in `WOKEN` (it never merely loads): what its thread wrote before is released by that swap, and
//!   the worker's taking swap acquires it, also when several wakes fall together, since read-modify-writes continue the
//!   release sequence.
//! - A wake that found `ASLEEP` may write to the eventfd late, when the worker already runs: that is one superfluous
//!   readiness event, which the makers swallow.
//!
//! The eventfd is watched edge-triggered and never read: each write is an edge, and 2^64 − 1 writes do not happen.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU8, Ordering},
};

use crate::{Wake, sys};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

#[derive(Debug)]
pub(crate) struct EventWake {
    state: AtomicU8,
    event: OwnedFd,
}

impl EventWake {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            state: AtomicU8::new(AWAKE),
            event: sys::event::eventfd()?,
        })
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Whether a wake waits to be taken. May miss one that happens at this moment; `fall_asleep` does not.
    pub(crate) fn is_pending(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WOKEN
    }

    /// Before a sleep. False: a wake waits to be taken, do not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// After a sleep, and whenever `is_pending`: takes a wake, if there is one.
    pub(crate) fn take(&self) -> bool {
        self.state.swap(AWAKE, Ordering::AcqRel) == WOKEN
    }
}

impl Wake for EventWake {
    fn wake(&self) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            sys::event::signal(self.event.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_sleep_forbids_it_and_is_taken_once() {
        let wake = EventWake::new().unwrap();
        assert!(!wake.take());
        wake.wake();
        wake.wake();
        assert!(wake.is_pending());
        assert!(!wake.fall_asleep());
        assert!(wake.take());
        assert!(!wake.take());
        assert!(
            !sys::event::is_signalled(wake.event()),
            "an awake worker costs no system call"
        );
        assert!(wake.fall_asleep());
        wake.wake();
        assert!(sys::event::is_signalled(wake.event()));
        assert!(wake.take());
    }
}
