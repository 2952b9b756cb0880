//! Who of the entries of a model is in probation, who in the main part, and who goes next.
//!
//! It holds no entry and knows no clock: heat, hits and pins are asked for through [`Entries`], so that the cache itself and the
//! shadows that are compared run this very code. Invariant: a member is in one part of one pool, `bytes` of a part is the sum
//! over its members, and one call of [`Pools::victim`] looks at no more members than the pool has.

use super::{Passed, ghost::Ghost};
use crate::{
    heat::Tick,
    types::{EntryId, ModelNumber},
};

/// Entries of the main part that are compared to find a cold one.
const SAMPLE: usize = 16;
/// Probation may take one part in ten.
const PROBATION: u64 = 10;
/// Members that leave probation with each eviction, once there is none any more.
const LEAVING: usize = 8;
/// No member.
const NONE: u32 = u32::MAX;

/// What the policy asks about entries.
pub(crate) trait Entries {
    /// Heat now, below zero of what has expired; `None` of what is pinned or gone.
    fn warmth(&self, id: EntryId) -> Option<f32>;
    /// Whether it was hit since it was put, at `since`.
    fn was_hit(&self, id: EntryId, since: Tick) -> bool;
}

/// Where a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Nowhere,
    /// Between these two in the order of coming.
    Probation {
        older: u32,
        newer: u32,
    },
    /// At this place of the row.
    Main {
        place: u32,
    },
}

/// What is kept of an entry; 28 bytes.
#[derive(Debug, Clone, Copy)]
struct Member {
    part: Part,
    /// When it was put.
    since: Tick,
    /// What it costs; more than 4 GiB count as that.
    bytes: u32,
    /// Of its hash, for the ghost.
    print: u32,
    model: ModelNumber,
}

/// The entries of a model.
#[derive(Debug)]
struct Pool {
    main: Vec<EntryId>,
    main_bytes: u64,
    oldest: u32,
    newest: u32,
    probation_bytes: u64,
    /// Members in probation.
    unproved: usize,
    ghost: Ghost,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            main: Vec::new(),
            main_bytes: 0,
            oldest: NONE,
            newest: NONE,
            probation_bytes: 0,
            unproved: 0,
            ghost: Ghost::default(),
        }
    }
}

impl Pool {
    /// Departures that are worth remembering: as many as there are members.
    fn memory(&self) -> usize {
        self.main.len() + self.unproved
    }

    fn probation_is_over_its_share(&self) -> bool {
        self.probation_bytes * PROBATION > self.probation_bytes + self.main_bytes
    }
}

/// A member that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// When it was put.
    pub(super) since: Tick,
    /// Whether it never came into the main part.
    pub(super) unproved: bool,
    /// Whether there is probation now.
    pub(super) probation: bool,
}

/// All members.
#[derive(Debug)]
pub(super) struct Pools {
    members: Vec<Member>,
    pools: Vec<Pool>,
    /// Whether those who come are put on probation.
    pub(super) probation: bool,
    /// Who came into the main part while there was.
    pub(super) passed: Passed,
    chance: u64,
}

impl Pools {
    pub(super) fn new(probation: bool, seed: u64) -> Self {
        Self {
            members: Vec::new(),
            pools: Vec::new(),
            probation,
            passed: Passed::default(),
            chance: seed,
        }
    }

    /// An entry comes; `word` is of its hash.
    pub(super) fn admit(&mut self, model: ModelNumber, id: EntryId, (word, bytes): (u64, u64), now: Tick) {
        let (at, number) = (id.0 as usize, usize::from(model.0));
        if self.pools.len() <= number {
            self.pools.resize_with(number + 1, Pool::default);
        }
        let member = Member {
            part: Part::Nowhere,
            since: now,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            print: word as u32,
            model,
        };
        if self.members.len() <= at {
            self.members.resize(at + 1, member);
        }
        self.members[at] = member;
        let pool = &mut self.pools[number];
        let capacity = pool.memory();
        if !self.probation {
            self.enter_main(id);
        } else if pool.ghost.recall(member.print, capacity) {
            self.passed.returned += 1;
            self.enter_main(id);
        } else {
            self.enter_probation(id);
        }
    }

    /// An entry goes, whyever; `None` if it was not there.
    pub(super) fn remove(&mut self, id: EntryId) -> Option<Left> {
        let member = *self.members.get(id.0 as usize)?;
        let unproved = match member.part {
            Part::Nowhere => return None,
            Part::Probation { .. } => true,
            Part::Main { .. } => false,
        };
        self.leave(id);
        Some(Left {
            since: member.since,
            unproved,
            probation: self.probation,
        })
    }

    /// An entry is evicted: if it never came into the main part and comes back soon, it needs no probation.
    pub(super) fn evict(&mut self, id: EntryId) -> Option<Left> {
        let left = self.remove(id)?;
        if left.unproved {
            self.remember(id);
        }
        Some(left)
    }

    /// An entry's answer is made anew: the new one needs no probation.
    pub(super) fn replace(&mut self, id: EntryId) {
        if self.remove(id).is_some() {
            self.remember(id);
        }
    }

    /// Of a member that has just left.
    fn remember(&mut self, id: EntryId) {
        let member = self.members[id.0 as usize];
        if let Some(pool) = self.pools.get_mut(usize::from(member.model.0)) {
            let capacity = pool.memory();
            pool.ghost.remember(member.print, capacity);
        }
    }

    /// Members in all.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pools.iter().map(Pool::memory).sum()
    }

    /// Who of the model goes next; `None` if all are pinned.
    pub(super) fn victim(&mut self, model: ModelNumber, entries: &impl Entries) -> Option<EntryId> {
        let number = usize::from(model.0);
        let pool = self.pools.get(number)?;
        if !self.probation && pool.oldest != NONE {
            self.end_probation(number, LEAVING);
        } else if pool.probation_is_over_its_share()
            && let Some(id) = self.unasked(number, entries)
        {
            return Some(id);
        }
        self.cold(number, entries)
            .or_else(|| self.unasked(number, entries))
            // All of probation had been asked for, and are in the main part now.
            .or_else(|| self.cold(number, entries))
    }

    /// The first of probation that nobody asked for; those before it have passed.
    fn unasked(&mut self, number: usize, entries: &impl Entries) -> Option<EntryId> {
        loop {
            let id = EntryId(self.pools[number].oldest);
            let member = self.members.get(id.0 as usize)?;
            let since = member.since;
            match entries.warmth(id) {
                Some(warmth) if warmth < 0.0 || !entries.was_hit(id, since) => return Some(id),
                Some(_) => self.passed.promoted += 1,
                // A pinned one does not go by being cold.
                None => {}
            }
            self.leave(id);
            self.enter_main(id);
        }
    }

    /// A cold one of the main part.
    fn cold(&mut self, number: usize, entries: &impl Entries) -> Option<EntryId> {
        let mut coldest: Option<(f32, EntryId)> = None;
        let len = self.pools[number].main.len();
        for _ in 0..SAMPLE.min(len) {
            let at = (self.draw() % len as u64) as usize;
            coldest = colder(coldest, self.pools[number].main[at], entries);
        }
        if coldest.is_none() {
            // Where chance met pinned ones only, all are looked at.
            let all = self.pools[number].main.iter();
            coldest = all.fold(None, |coldest, id| colder(coldest, *id, entries));
        }
        coldest.map(|(_, id)| id)
    }

    /// Takes the oldest out of probation without looking at them, a few at a time.
    fn end_probation(&mut self, number: usize, most: usize) {
        for _ in 0..most {
            let id = EntryId(self.pools[number].oldest);
            if id.0 == NONE {
                return;
            }
            self.leave(id);
            self.enter_main(id);
        }
    }

    fn enter_main(&mut self, id: EntryId) {
        let member = &mut self.members[id.0 as usize];
        let pool = &mut self.pools[usize::from(member.model.0)];
        member.part = Part::Main {
            place: pool.main.len() as u32,
        };
        pool.main.push(id);
        pool.main_bytes += u64::from(member.bytes);
    }

    fn enter_probation(&mut self, id: EntryId) {
        let member = &mut self.members[id.0 as usize];
        let pool = &mut self.pools[usize::from(member.model.0)];
        let before = std::mem::replace(&mut pool.newest, id.0);
        member.part = Part::Probation {
            older: before,
            newer: NONE,
        };
        pool.probation_bytes += u64::from(member.bytes);
        pool.unproved += 1;
        self.tie(usize::from(self.members[id.0 as usize].model.0), before, id.0);
    }

    /// Makes `newer` follow `older`; where one is none, the other is an end.
    fn tie(&mut self, number: usize, before: u32, after: u32) {
        match self.members.get_mut(before as usize).map(|member| &mut member.part) {
            Some(Part::Probation { newer, .. }) => *newer = after,
            _ => self.pools[number].oldest = after,
        }
        match self.members.get_mut(after as usize).map(|member| &mut member.part) {
            Some(Part::Probation { older, .. }) => *older = before,
            _ => self.pools[number].newest = before,
        }
    }

    fn leave(&mut self, id: EntryId) {
        let member = &mut self.members[id.0 as usize];
        let number = usize::from(member.model.0);
        let bytes = u64::from(member.bytes);
        let part = std::mem::replace(&mut member.part, Part::Nowhere);
        let pool = &mut self.pools[number];
        match part {
            Part::Nowhere => {}
            Part::Probation { older, newer } => {
                pool.probation_bytes -= bytes;
                pool.unproved -= 1;
                self.tie(number, older, newer);
            }
            Part::Main { place } => {
                pool.main_bytes -= bytes;
                pool.main.swap_remove(place as usize);
                if let Some(moved) = pool.main.get(place as usize) {
                    self.members[moved.0 as usize].part = Part::Main { place };
                }
            }
        }
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.chance;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

fn colder(coldest: Option<(f32, EntryId)>, id: EntryId, entries: &impl Entries) -> Option<(f32, EntryId)> {
    let Some(warmth) = entries.warmth(id) else {
        return coldest;
    };
    match coldest {
        Some((least, _)) if least <= warmth => coldest,
        _ => Some((warmth, id)),
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
