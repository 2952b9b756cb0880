//! A worker's part in generations that requests share: those that go on without their client, and answers that wait to be
//! stored.
//!
//! It makes no reply. Invariants: a generation is here only while somebody follows it; an answer that waits is let go when it
//! is found where it is stored, after [`PATIENCE`] at the latest, so both are bounded by what the engines work on.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
};

use zerohop_engine::Ticket;
use zerohop_ring::Nanos;

use super::{answering::Answering, kept::Answers};
use crate::flight::{Flight, Flights, Stay};

/// How long an answer that was handed to the cache can be followed though it is not found there.
const PATIENCE: Nanos = 500_000_000;
/// Answers that may wait at a worker; the one that has waited longest is let go for another.
const WAITING: usize = 64;

/// The table of flights, and what this worker has in the air.
pub(super) struct Flying {
    worker: usize,
    flights: Flights,
    /// By ticket.
    orphans: BTreeMap<u64, Box<Answering>>,
    stays: VecDeque<Staying>,
    /// Something was said for which nobody has rung.
    told: bool,
    /// What the worker's budget counts.
    counted: usize,
}

/// An answer on its way to the cache.
struct Staying {
    stay: Stay,
    created: u32,
    until: Nanos,
}

impl Flying {
    pub(super) fn new(worker: usize, flights: Flights) -> Self {
        Self {
            worker,
            flights,
            orphans: BTreeMap::new(),
            stays: VecDeque::new(),
            told: false,
            counted: 0,
        }
    }

    pub(super) fn flights(&self) -> &Flights {
        &self.flights
    }

    /// Something was said in a flight: the workers of those who follow are to be woken.
    pub(super) fn told(&mut self) {
        self.told = true;
    }

    /// Wakes them, once for all that was said.
    pub(super) fn ring(&mut self) {
        if mem::take(&mut self.told) {
            self.flights.ring();
        }
    }

    /// The flights in which something happened that this worker has to look at. Those that nobody follows any more end.
    pub(super) fn news(&mut self) -> Vec<Arc<Flight>> {
        let news = self.flights.news(self.worker);
        for flight in news.iter().filter(|flight| flight.is_given_up()) {
            self.orphans.retain(|_, orphan| {
                let ends = orphan.leads(flight);
                if ends {
                    orphan.given_up();
                }
                !ends
            });
        }
        news
    }

    /// Takes in a generation whose client has left while others follow.
    pub(super) fn adopt(&mut self, ticket: Ticket, orphan: Box<Answering>) {
        self.orphans.insert(ticket.0, orphan);
    }

    /// The generation of this ticket, if it is here.
    pub(super) fn orphan(&mut self, ticket: Ticket) -> Option<Box<Answering>> {
        self.orphans.remove(&ticket.0)
    }

    pub(super) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Ends all that goes on without a client.
    pub(super) fn stop(&mut self) {
        self.orphans.clear();
    }

    /// An answer that was made at `created` can be followed until it is stored.
    pub(super) fn stay(&mut self, stay: Stay, created: u32, now: Nanos) {
        if self.stays.len() == WAITING {
            self.stays.pop_front();
        }
        let until = now.saturating_add(PATIENCE);
        self.stays.push_back(Staying { stay, created, until });
    }

    /// Lets go of answers that are stored by now, or have waited long enough.
    pub(super) fn tend(&mut self, now: Nanos, answers: Option<&Answers>) {
        self.stays.retain(|waiting| {
            let stored = answers.is_none_or(|answers| answers.has(waiting.stay.key(), waiting.created));
            !stored && now < waiting.until
        });
    }

    /// When an answer has waited long enough.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.stays.front().map(|waiting| waiting.until)
    }

    /// Bytes that it held when this was last asked, and what it holds now.
    pub(super) fn held(&mut self) -> (usize, usize) {
        let orphans = self.orphans.values().map(|orphan| orphan.held()).sum::<usize>();
        let stays = self.stays.iter().map(|waiting| waiting.stay.held()).sum::<usize>();
        let before = mem::replace(&mut self.counted, orphans + stays);
        (before, self.counted)
    }
}
