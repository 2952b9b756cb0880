//! Which entries stay: the coldest goes, and where it pays those who are new have to prove themselves first.
//!
//! It is told what comes, goes and is looked up, and says who goes next; it holds no entry, does no I/O and knows no clock but
//! the moments that it is given. Invariant: what it keeps is bounded by the number of entries, and it asks nobody but
//! [`Entries`].
//!
//! - [`pool`]: probation and main part of each model, and the choice.
//! - [`ghost`]: who left probation a short while ago.
//! - [`shadow`]: two small caches without answers, which tell whether probation pays.
//! - [`notes`]: how readers tell of hits for the shadows.

mod ghost;
pub(crate) mod notes;
mod pool;
mod shadow;

use crate::{
    counts::Counts,
    heat::{Decay, Tick},
    types::{EntryId, ModelNumber},
};
use notes::Notes;
use pool::{Left, Pools};
use shadow::{Share, Trial};

pub(crate) use pool::Entries;
pub(crate) use shadow::Look;

/// Whether answers that are new are on probation, in a tenth of the room, until they are asked for once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Probation {
    /// Never.
    Off,
    /// Always.
    On,
    /// While two shadow caches say that it pays.
    #[default]
    Auto,
}

/// What the policy did since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Passed {
    /// Out of probation, having been asked for.
    promoted: u64,
    /// Without probation, having come back soon.
    returned: u64,
}

/// Who stays.
pub(crate) struct Policy {
    pools: Pools,
    residence: Residence,
    mode: Probation,
    trial: Option<Trial>,
    seed: u64,
}

impl Policy {
    /// `decay` is the rule by which entries cool; its half-life follows what is evicted here.
    pub(crate) fn new(mode: Probation, decay: &Decay, seed: u64) -> Self {
        Self {
            pools: Pools::new(mode == Probation::On, seed),
            residence: Residence::of(decay),
            mode,
            trial: None,
            seed,
        }
    }

    /// Entries that it knows of.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.pools.len()
    }

    /// Says what it does, and which look-ups readers have to tell of.
    pub(crate) fn publish(&self, counts: &Counts, notes: &Notes) {
        let passed = self.pools.passed;
        Counts::set(&counts.probation, u64::from(self.pools.probation));
        Counts::set(&counts.promoted, passed.promoted);
        Counts::set(&counts.returned, passed.returned);
        let Some(trial) = &self.trial else { return };
        notes.follow(trial.share());
        if let Some(compared) = trial.compared() {
            Counts::set(&counts.shadow_looks, compared.looks);
            Counts::set(&counts.shadow_hits_with, compared.with);
            Counts::set(&counts.shadow_hits_without, compared.without);
        }
    }

    /// An entry comes; `word` is the first of its hash, `bytes` what it costs.
    pub(crate) fn admit(&mut self, model: ModelNumber, id: EntryId, (word, bytes): (u64, u64), now: Tick) {
        self.pools.admit(model, id, (word, bytes), now);
    }

    /// Who of this model goes next; `None` if it has none, or pinned ones only.
    pub(crate) fn victim(&mut self, model: ModelNumber, entries: &impl Entries) -> Option<EntryId> {
        self.pools.victim(model, entries)
    }

    /// An entry goes since there was no room.
    pub(crate) fn evicted(&mut self, id: EntryId, now: Tick, decay: &Decay) {
        if let Some(left) = self.pools.evict(id) {
            self.residence.note(left, now, decay);
        }
    }

    /// An entry goes since its answer was made anew: that one needs no probation.
    pub(crate) fn replaced(&mut self, id: EntryId) {
        self.pools.replace(id);
    }

    /// An entry goes, whyever; nothing happens if it went already.
    pub(crate) fn removed(&mut self, id: EntryId) {
        self.pools.remove(id);
    }

    /// The bound of so many bytes is reached with so many entries: from now on there is something to compare.
    pub(crate) fn full(&mut self, (entries, bytes): (usize, u64), decay: &Decay, now: Tick) {
        let fits = |trial: &Trial| trial.fits(entries);
        if self.mode == Probation::Auto && !self.trial.as_ref().is_some_and(fits) {
            self.trial = Some(Trial::new((entries, bytes), (decay, self.seed), now));
        }
    }

    /// A look-up of a key of the share; now and then it decides whether there is probation.
    pub(crate) fn look(&mut self, look: Look) {
        // A note may be older than the share.
        if let Some(trial) = &mut self.trial
            && trial.share().has(look.word)
        {
            trial.look(look);
            self.pools.probation = trial.verdict(self.pools.probation, look.at);
        }
    }
}

/// How long entries stay in the main part before they are evicted, on the average: the half-life of heat follows it.
///
/// With probation it is half of that: the main part then has only those who came twice and stay the longer for it, and a memory
/// as long as that would hold on to what was hot once.
#[derive(Debug)]
struct Residence {
    /// Ticks.
    average: f32,
}

impl Residence {
    /// What an eviction weighs in the average.
    const WEIGHT: f32 = 1.0 / 64.0;

    fn of(decay: &Decay) -> Self {
        Self {
            average: decay.half_life().unwrap_or(0) as f32,
        }
    }

    /// The literal rule takes no note of it.
    fn note(&mut self, left: Left, now: Tick, decay: &Decay) {
        if left.unproved {
            return;
        }
        let stayed = now.saturating_sub(left.since) as f32;
        self.average += (stayed - self.average) * Self::WEIGHT;
        let half_life = if left.probation {
            self.average / 2.0
        } else {
            self.average
        };
        decay.adapt(half_life as Tick);
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
