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
//! - A wake always sets its bit by a read-modify-write (it never merely loads): what its thread wrote before is released
//!   by that, and the worker's taking swap acquires it, also when several wakes fall together, since read-modify-writes
//!   continue the release sequence. Only the one that found `ASLEEP` alone writes to the eventfd.
//! - There are two bits, `WOKEN` for whoever holds the [`Wake`], and `HELPED` for the maker's own helper, so that the work
//!   of the one is not told as a call of the other.
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
const HELPED: u8 = 4;

/// What has waked a worker since it looked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct News {
    /// A call of [`Wake::wake`].
    pub(crate) woken: bool,
    /// The maker's helper.
    pub(crate) helped: bool,
}

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
        self.state.load(Ordering::Relaxed) & (WOKEN | HELPED) != 0
    }

    /// Before a sleep. False: a wake waits to be taken, do not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// After a sleep, and whenever `is_pending`: takes what there is.
    pub(crate) fn take(&self) -> News {
        let state = self.state.swap(AWAKE, Ordering::AcqRel);
        News {
            woken: state & WOKEN != 0,
            helped: state & HELPED != 0,
        }
    }

    /// The helper has done something.
    pub(crate) fn help(&self) {
        self.rouse(HELPED);
    }

    fn rouse(&self, why: u8) {
        if self.state.fetch_or(why, Ordering::AcqRel) == ASLEEP {
            sys::event::signal(self.event.as_fd());
        }
    }
}

impl Wake for EventWake {
    fn wake(&self) {
        self.rouse(WOKEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Call = fn(&EventWake);

    #[test]
    fn a_wake_before_sleep_forbids_it_and_is_taken_once() {
        let (nothing, woken, helped, both) = (
            news(false, false),
            news(true, false),
            news(false, true),
            news(true, true),
        );
        let (wake, help) = (EventWake::wake as Call, EventWake::help as Call);
        for (calls, taken) in [
            (&[wake][..], woken),
            (&[wake, wake], woken),
            (&[help], helped),
            (&[help, wake], both),
            (&[wake, help, wake], both),
        ] {
            let wake = EventWake::new().unwrap();
            assert_eq!(wake.take(), nothing);
            calls.iter().for_each(|call| call(&wake));
            assert!(wake.is_pending());
            assert!(!wake.fall_asleep());
            assert_eq!(wake.take(), taken);
            assert_eq!(wake.take(), nothing);
            let signalled = sys::event::is_signalled(wake.event());
            assert!(!signalled, "an awake worker costs no system call");
            assert!(wake.fall_asleep());
            calls.iter().for_each(|call| call(&wake));
            assert!(sys::event::is_signalled(wake.event()));
            assert_eq!(wake.take(), taken);
        }
    }

    fn news(woken: bool, helped: bool) -> News {
        News { woken, helped }
    }
}
