//! What readers write to: heat, pins and tombstones of each entry, by its id.
//!
//! Arrays of atomics that grow by blocks and never move, so that a hit touches one cache line and neither the tree nor a lock.
//! Invariant: an id that is taken again has another [`Stamp`], so whoever kept both knows whether they still name the entry.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::{
    heat::{Decay, Tick, UNIT},
    types::EntryId,
};

/// Entries of a block.
const BLOCK: usize = 1 << 14;
/// Blocks: 2^28 entries in all.
const BLOCKS: usize = 1 << 14;
/// The most entries that a cache can have.
pub(crate) const MOST: usize = BLOCK * BLOCKS;

const DEAD: u32 = 1;
const PINNED: u32 = 2;
const STAMP: u32 = 4;

/// Tells the entries apart that had an id one after the other (of the last 2^30).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u32);

/// What is kept of an entry; 24 bytes.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Heat (f32) above, and the tick of that heat below: changed as one.
    heat: AtomicU64,
    /// Stamp, pinned, dead.
    mark: AtomicU32,
    /// Milliseconds that making the answer took; 0 where that is not known any more.
    made_in: AtomicU32,
    /// Hits since it is known here.
    hits: AtomicU32,
}

impl Slot {
    fn empty() -> Self {
        Self {
            heat: AtomicU64::new(0),
            mark: AtomicU32::new(DEAD),
            made_in: AtomicU32::new(0),
            hits: AtomicU32::new(0),
        }
    }

    /// Counts a hit.
    pub(crate) fn hit(&self, decay: &Decay, now: Tick) {
        let warmed = |word| {
            let (heat, since) = unpack(word);
            Some(pack(decay.cooled(heat, since, now) + UNIT, since.max(now)))
        };
        // No other memory hangs on it.
        let _always = self.heat.fetch_update(Ordering::Relaxed, Ordering::Relaxed, warmed);
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Hits since it was put, or since the cache was opened.
    pub(crate) fn hits(&self) -> u32 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Its heat now.
    pub(crate) fn heat(&self, decay: &Decay, now: Tick) -> f32 {
        let (heat, since) = unpack(self.heat.load(Ordering::Relaxed));
        decay.cooled(heat, since, now)
    }

    /// Whether it was hit, or began with more heat than a put gives, since it began at `since`.
    pub(crate) fn was_hit(&self, since: Tick) -> bool {
        self.heat.load(Ordering::Relaxed) != pack(UNIT, since)
    }

    pub(crate) fn made_in(&self) -> u32 {
        self.made_in.load(Ordering::Relaxed)
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.mark.load(Ordering::Relaxed) & PINNED != 0
    }

    pub(crate) fn pin(&self, pinned: bool) {
        if pinned {
            self.mark.fetch_or(PINNED, Ordering::Relaxed);
        } else {
            self.mark.fetch_and(!PINNED, Ordering::Relaxed);
        }
    }

    /// The stamp of the entry that lives here.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let mark = self.mark.load(Ordering::Acquire);
        (mark & DEAD == 0).then_some(Stamp(mark / STAMP))
    }
}

fn pack(heat: f32, since: Tick) -> u64 {
    u64::from(heat.to_bits()) << 32 | u64::from(since)
}

fn unpack(word: u64) -> (f32, Tick) {
    (f32::from_bits((word >> 32) as u32), word as u32)
}

/// All slots.
pub(crate) struct Slots {
    blocks: Box<[OnceLock<Box<[Slot]>>]>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self {
            blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The slot of an id that was taken at some time.
    pub(crate) fn get(&self, id: EntryId) -> Option<&Slot> {
        let at = id.0 as usize;
        self.blocks.get(at / BLOCK)?.get()?.get(at % BLOCK)
    }

    /// Begins an entry under this id, which is free; only the writer does. `None` beyond [`MOST`].
    pub(crate) fn begin(&self, id: EntryId, heat: f32, now: Tick, made_in: u32) -> Option<Stamp> {
        let at = id.0 as usize;
        let block = self.blocks.get(at / BLOCK)?;
        let slot = &block.get_or_init(|| (0..BLOCK).map(|_| Slot::empty()).collect())[at % BLOCK];
        slot.heat.store(pack(heat, now), Ordering::Relaxed);
        slot.made_in.store(made_in, Ordering::Relaxed);
        slot.hits.store(0, Ordering::Relaxed);
        let next = (slot.mark.load(Ordering::Relaxed) / STAMP).wrapping_add(1) % (u32::MAX / STAMP);
        slot.mark.store(next * STAMP, Ordering::Release);
        Some(Stamp(next))
    }

    /// Ends the entry: from now on nobody is answered with it.
    pub(crate) fn end(&self, id: EntryId) {
        if let Some(slot) = self.get(id) {
            slot.mark.fetch_or(DEAD, Ordering::Release);
        }
    }

    /// Whether the entry of this id and stamp still lives.
    pub(crate) fn lives(&self, id: EntryId, stamp: Stamp) -> bool {
        self.get(id).and_then(Slot::stamp) == Some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::SECOND;

    #[test]
    fn an_id_taken_again_is_another_entry() {
        let slots = Slots::new();
        let id = EntryId(BLOCK as u32 + 3);
        assert!(slots.get(id).is_none());
        let first = slots.begin(id, 1.0, 0, 7).unwrap();
        assert!(slots.lives(id, first));
        slots.get(id).unwrap().pin(true);
        slots.end(id);
        assert!(!slots.lives(id, first));
        let second = slots.begin(id, 1.0, 0, 8).unwrap();
        assert!(!slots.lives(id, first) && slots.lives(id, second));
        let slot = slots.get(id).unwrap();
        assert_eq!((slot.is_pinned(), slot.made_in()), (false, 8));
        assert!(slots.begin(EntryId(MOST as u32), 1.0, 0, 0).is_none());
    }

    #[test]
    fn hits_of_several_threads_all_count() {
        let (slots, decay) = (Slots::new(), Decay::literal(0.95, 5 * SECOND));
        slots.begin(EntryId(0), UNIT, 0, 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| slots.get(EntryId(0)).unwrap().hit(&decay, 1)));
            }
        });
        let slot = slots.get(EntryId(0)).unwrap();
        assert_eq!(slot.heat(&decay, 1), 4001.0);
    }
}
