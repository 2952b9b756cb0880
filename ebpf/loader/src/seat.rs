//! A worker's side of steering: what it says of itself after each turn.
//!
//! No system call and no lock: two or three stores into memory that the program in the kernel reads. Invariant: a seat is
//! the only writer of its worker's row, but for the word that says whether it is alive.

use std::{
    mem::offset_of,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use zerohop_abi::steer::{Chosen, Worker, score};

use crate::sys::Rows;

/// The two arrays that workers, control and program share.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) workers: Rows,
    pub(crate) chosen: Rows,
}

impl Table {
    pub(crate) fn score(&self, worker: usize) -> u64 {
        self.workers.word(worker, offset_of!(Worker, score)).load(Relaxed)
    }

    pub(crate) fn chosen(&self, worker: usize) -> u64 {
        self.chosen.word(worker, offset_of!(Chosen, count)).load(Relaxed)
    }

    pub(crate) fn beats(&self, worker: usize) -> u64 {
        self.workers.word(worker, offset_of!(Worker, beats)).load(Relaxed)
    }

    pub(crate) fn is_open(&self, worker: usize) -> bool {
        self.workers.word(worker, offset_of!(Worker, open)).load(Relaxed) != 0
    }

    pub(crate) fn is_alive(&self, worker: usize) -> bool {
        self.workers.word(worker, offset_of!(Worker, alive)).load(Relaxed) != 0
    }

    pub(crate) fn set_alive(&self, worker: usize, alive: bool) {
        let word = self.workers.word(worker, offset_of!(Worker, alive));
        word.store(u64::from(alive), Relaxed);
    }
}

/// A worker's side of steering.
#[derive(Debug)]
pub struct Seat {
    table: Arc<Table>,
    worker: usize,
    tally: Tally,
    shown: (u64, u64),
    beats: u64,
}

impl Seat {
    pub(crate) fn new(table: Arc<Table>, worker: usize) -> Self {
        Self {
            table,
            worker,
            tally: Tally::default(),
            shown: (0, 0),
            beats: 0,
        }
    }

    /// A connection arrived, whatever becomes of it.
    pub fn arrived(&mut self) {
        self.tally.arrived += 1;
    }

    /// A turn is over at this time, in nanoseconds of any clock that does not go back: so many connections are open, so
    /// many requests in progress.
    pub fn publish(&mut self, now: u64, connections: u64, requests: u64) {
        let row = &self.table.workers;
        let shown = (
            score(connections, requests),
            self.tally.seen(now, self.table.chosen(self.worker)),
        );
        if shown != self.shown {
            // The score first: for a moment a connection may count twice, never not at all.
            row.word(self.worker, offset_of!(Worker, score)).store(shown.0, Relaxed);
            row.word(self.worker, offset_of!(Worker, seen)).store(shown.1, Relaxed);
            self.shown = shown;
        }
        self.beats += 1;
        row.word(self.worker, offset_of!(Worker, beats))
            .store(self.beats, Relaxed);
    }

    /// Says whether the worker takes new connections; a new one does.
    pub fn set_open(&self, open: bool) {
        let word = self.table.workers.word(self.worker, offset_of!(Worker, open));
        word.store(u64::from(open), Relaxed);
    }
}

/// How many of the program's choices count no more.
///
/// A choice counts until its connection arrives. One that came to nothing (the client gave up, or only ever sent a SYN)
/// is forgiven after a while, so that a flood of SYNs does not make a worker look busy for ever.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Connections that arrived.
    arrived: u64,
    /// Choices that came to nothing, less connections that arrived without a choice; wraps.
    forgiven: u64,
    /// Choices at the last look, and when that was.
    looked: Option<(u64, u64)>,
}

/// After this time a choice has come to something or will not, in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;

impl Tally {
    /// Of the choices so far, those that count no more.
    fn seen(&mut self, now: u64, chosen: u64) -> u64 {
        let unseen = |this: &Self, chosen: u64| chosen.wrapping_sub(this.arrived.wrapping_add(this.forgiven));
        let (old, at) = *self.looked.get_or_insert((chosen, now));
        if now.saturating_sub(at) >= PATIENCE {
            let late = unseen(self, old);
            if late <= u64::MAX / 2 {
                self.forgiven = self.forgiven.wrapping_add(late);
            }
            self.looked = Some((chosen, now));
        }
        // More arrived than was chosen: the kernel's hash sent some.
        let unseen = unseen(self, chosen);
        if unseen > u64::MAX / 2 {
            self.forgiven = self.forgiven.wrapping_add(unseen);
        }
        self.arrived.wrapping_add(self.forgiven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Time, connections that arrive before it, choices so far, and how many of those still count.
    fn check(steps: &[(u64, u64, u64, u64)]) {
        let mut tally = Tally::default();
        for (now, arrived, chosen, expected) in steps {
            tally.arrived += arrived;
            let seen = tally.seen(*now, *chosen);
            assert_eq!(chosen.wrapping_sub(seen), *expected, "{now} {tally:?} of {steps:?}");
        }
    }

    #[test]
    fn a_choice_counts_until_it_arrives() {
        check(&[(0, 0, 0, 0), (1, 0, 5, 5), (2, 3, 6, 3), (3, 3, 6, 0)]);
    }

    #[test]
    fn a_choice_that_comes_to_nothing_is_forgiven() {
        check(&[
            (0, 0, 0, 0),
            (1, 0, 1_000, 1_000),
            (SECOND, 10, 1_010, 1_000),
            (SECOND + 1, 0, 1_010, 1_000),
            (2 * SECOND, 0, 1_020, 10),
            (3 * SECOND, 0, 1_020, 0),
        ]);
    }

    #[test]
    fn arrivals_without_a_choice_do_not_hide_later_choices() {
        check(&[(0, 0, 0, 0), (1, 50, 0, 0), (2, 0, 4, 4), (3, 4, 4, 0)]);
    }

    #[test]
    fn one_that_was_forgiven_and_arrives_after_all_is_an_arrival_without_a_choice() {
        check(&[
            (0, 0, 0, 0),
            (1, 0, 1, 1),
            (SECOND, 0, 1, 1),
            (2 * SECOND, 0, 1, 0),
            (2 * SECOND + 1, 1, 1, 0),
        ]);
    }
}
