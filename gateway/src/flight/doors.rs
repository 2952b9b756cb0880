//! How a worker hears that something was said in a flight that its connections follow.
//!
//! News is put behind a worker's door, and a bell is rung once for all that lies there. Invariants: whoever puts news there
//! and rings later is heard, whatever the worker does meanwhile; a flight lies behind a door once at most, so no more can
//! lie there than flights that connections of that worker follow or lead.

use std::{
    mem,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
};

use super::{Flight, Wake};

/// Nothing lies behind the door, as far as its worker knows.
const QUIET: u8 = 0;
/// Something lies there, and nobody has rung.
const TOLD: u8 = 1;
/// Somebody has rung, and the worker has not looked.
const RUNG: u8 = 2;

/// The doors of all workers.
pub(super) struct Doors(Box<[Door]>);

/// On cache lines of its own, so that workers do not slow each other down.
#[derive(Default)]
#[repr(align(128))]
struct Door {
    news: Mutex<Vec<Arc<Flight>>>,
    bell: AtomicU8,
    waker: OnceLock<Wake>,
}

impl Doors {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Door::default()).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whoever rings at this door wakes a worker so. A worker opens its door once.
    pub(super) fn open(&self, worker: usize, waker: Wake) {
        let _first = self.0[worker].waker.set(waker);
    }

    /// Puts news behind a door. It is looked at after the next [`Self::ring`] at the latest.
    pub(super) fn tell(&self, worker: usize, flight: Arc<Flight>) {
        let door = &self.0[worker];
        door.news.lock().unwrap_or_else(PoisonError::into_inner).push(flight);
        // With any other value somebody rings, or the worker has yet to look, and looks after it changes this.
        let _told = door.bell.compare_exchange(QUIET, TOLD, SeqCst, SeqCst);
    }

    /// Wakes every worker that was told something and does not know.
    pub(super) fn ring(&self) {
        for door in &self.0 {
            let told = door.bell.load(SeqCst) == TOLD;
            if told && door.bell.compare_exchange(TOLD, RUNG, SeqCst, SeqCst).is_ok() {
                door.waker.get().into_iter().for_each(|waker| waker());
            }
        }
    }

    /// What lies behind a worker's own door.
    pub(super) fn take(&self, worker: usize) -> Vec<Arc<Flight>> {
        let door = &self.0[worker];
        if door.bell.load(SeqCst) == QUIET {
            return Vec::new();
        }
        door.bell.store(QUIET, SeqCst);
        mem::take(&mut *door.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
