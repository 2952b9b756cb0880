//! Two caches without answers, one with probation and one without, for a share of the keys: which of them would have hit more.
//!
//! They run the very code that chooses in the cache itself, on that share of its bound. No I/O and no clock: time comes with
//! each look-up. Invariant: both see the same look-ups, and neither is larger than its share of the bound.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use super::{
    Residence,
    pool::{Entries, Pools},
};
use crate::{
    heat::{Decay, Tick, UNIT},
    types::{EntryId, ModelNumber},
};

/// Look-ups after which the two are compared.
const ENOUGH: u64 = 4096;
/// Ticks after which they are, if there were a few.
const WHILE: Tick = 600 * crate::heat::SECOND;
/// A few look-ups.
const FEW: u64 = 512;
/// By so much of the look-ups the other one has to be better: one point of the hit ratio.
const HYSTERESIS: f64 = 0.01;
/// Entries that a shadow should have, so that its ratio says something.
const ROOM: usize = 512;
/// Of the keys, at the least 1 in 2^6 is followed.
const RAREST: u32 = 6;
/// All that is in a shadow is of one model.
const MODEL: ModelNumber = ModelNumber(0);

/// A look-up as the shadows see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// The first word of the hash.
    pub(crate) word: u64,
    /// What the entry costs.
    pub(crate) bytes: u64,
    /// When.
    pub(crate) at: Tick,
}

/// Which keys are followed: those whose hash begins with so many zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share(u32);

impl Share {
    /// None of them.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// As many as a cache of so many entries asks for: 1 in 64, of a small cache more.
    fn of(entries: usize) -> Self {
        Self((entries / ROOM).checked_ilog2().unwrap_or(0).min(RAREST))
    }

    /// As [`Share::bits`] gave them.
    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// To be kept in an atomic.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// Whether this key is followed.
    pub(super) fn has(self, word: u64) -> bool {
        word.leading_zeros() >= self.0
    }
}

/// An entry without an answer.
#[derive(Debug, Clone, Copy)]
struct Husk {
    word: u64,
    bytes: u64,
    heat: f32,
    since: Tick,
    was_hit: bool,
}

/// Husks with the moment at which they are asked.
struct At<'a> {
    husks: &'a [Husk],
    decay: &'a Decay,
    now: Tick,
}

impl Entries for At<'_> {
    fn warmth(&self, id: EntryId) -> Option<f32> {
        let husk = self.husks.get(id.0 as usize)?;
        Some(self.decay.cooled(husk.heat, husk.since, self.now))
    }

    fn was_hit(&self, id: EntryId, _since: Tick) -> bool {
        self.husks.get(id.0 as usize).is_some_and(|husk| husk.was_hit)
    }
}

/// One of the two.
struct Shadow {
    ids: HashMap<u64, EntryId, BuildHasherDefault<Spread>>,
    husks: Vec<Husk>,
    free: Vec<EntryId>,
    pools: Pools,
    decay: Decay,
    residence: Residence,
    bytes: u64,
    /// Since the look-ups began that are compared next.
    hits: u64,
}

impl Shadow {
    fn new(probation: bool, decay: &Decay, seed: u64) -> Self {
        let decay = decay.begun_anew();
        Self {
            ids: HashMap::default(),
            husks: Vec::new(),
            free: Vec::new(),
            pools: Pools::new(probation, seed),
            residence: Residence::of(&decay),
            decay,
            bytes: 0,
            hits: 0,
        }
    }

    fn look(&mut self, look: Look, bound: u64) {
        if let Some(id) = self.ids.get(&look.word) {
            self.hits += 1;
            let husk = &mut self.husks[id.0 as usize];
            husk.heat = self.decay.cooled(husk.heat, husk.since, look.at) + UNIT;
            husk.since = husk.since.max(look.at);
            husk.was_hit = true;
        } else if look.bytes <= bound {
            while self.bytes + look.bytes > bound {
                let Some(id) = self.victim(look.at) else { return };
                self.evict(id, look.at);
            }
            self.insert(look);
        }
    }

    fn victim(&mut self, now: Tick) -> Option<EntryId> {
        let at = At {
            husks: &self.husks,
            decay: &self.decay,
            now,
        };
        self.pools.victim(MODEL, &at)
    }

    fn evict(&mut self, id: EntryId, now: Tick) {
        let husk = self.husks[id.0 as usize];
        self.ids.remove(&husk.word);
        self.bytes -= husk.bytes;
        if let Some(left) = self.pools.evict(id) {
            self.residence.note(left, now, &self.decay);
        }
        self.free.push(id);
    }

    fn insert(&mut self, look: Look) {
        let husk = Husk {
            word: look.word,
            bytes: look.bytes,
            heat: UNIT,
            since: look.at,
            was_hit: false,
        };
        let id = self.free.pop().unwrap_or(EntryId(self.husks.len() as u32));
        match self.husks.get_mut(id.0 as usize) {
            Some(place) => *place = husk,
            None => self.husks.push(husk),
        }
        self.ids.insert(look.word, id);
        self.bytes += look.bytes;
        self.pools.admit(MODEL, id, (look.word, look.bytes), look.at);
    }
}

/// What a comparison found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Compared {
    /// Look-ups that it counts.
    pub(super) looks: u64,
    /// Of them hits with probation.
    pub(super) with: u64,
    /// And without.
    pub(super) without: u64,
}

impl Compared {
    /// By how much of the look-ups probation is better.
    fn gain(self) -> f64 {
        (self.with as f64 - self.without as f64) / self.looks.max(1) as f64
    }
}

/// The two, and what their comparison says.
pub(super) struct Trial {
    with: Shadow,
    without: Shadow,
    share: Share,
    /// Bytes of each.
    bound: u64,
    looks: u64,
    /// When the look-ups began that are compared next.
    since: Tick,
    compared: Option<Compared>,
}

impl Trial {
    /// For a cache that holds so many entries now that its bound, in bytes, is reached.
    pub(super) fn new((entries, bytes): (usize, u64), (decay, seed): (&Decay, u64), now: Tick) -> Self {
        let share = Share::of(entries);
        Self {
            with: Shadow::new(true, decay, seed),
            without: Shadow::new(false, decay, seed),
            share,
            bound: bytes >> share.0,
            looks: 0,
            since: now,
            compared: None,
        }
    }

    /// Whether the share still suits a cache of so many entries, give or take one doubling.
    pub(super) fn fits(&self, entries: usize) -> bool {
        Share::of(entries).0.abs_diff(self.share.0) <= 1
    }

    /// Which keys it wants to hear of.
    pub(super) fn share(&self) -> Share {
        self.share
    }

    /// The last comparison.
    pub(super) fn compared(&self) -> Option<Compared> {
        self.compared
    }

    /// A look-up of a key of the share.
    pub(super) fn look(&mut self, look: Look) {
        self.looks += 1;
        self.with.look(look, self.bound);
        self.without.look(look, self.bound);
    }

    /// Whether there should be probation, where there is some `now_on` or not; it is judged anew only now and then.
    pub(super) fn verdict(&mut self, now_on: bool, now: Tick) -> bool {
        let a_while = now.saturating_sub(self.since) >= WHILE && self.looks >= FEW;
        if self.looks < ENOUGH && !a_while {
            return now_on;
        }
        let compared = Compared {
            looks: self.looks,
            with: self.with.hits,
            without: self.without.hits,
        };
        self.compared = Some(compared);
        // What came before counts half.
        self.looks /= 2;
        self.with.hits /= 2;
        self.without.hits /= 2;
        self.since = now;
        if now_on {
            compared.gain() > -HYSTERESIS
        } else {
            compared.gain() > HYSTERESIS
        }
    }
}

/// Words of hashes are spread evenly: they are their own hash.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, word: u64) {
        // The share is those whose first bits are zero, and the table takes its tag from those.
        self.0 = word.rotate_left(32);
    }
}

#[cfg(test)]
#[path = "shadow_tests.rs"]
mod tests;
