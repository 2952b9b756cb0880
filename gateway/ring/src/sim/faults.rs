//! Chance: which faults, how often, and the generator that decides, all from the seed.
//!
//! Nothing here reads a clock or the machine. Invariant: the same seed and the same questions give the same answers.

use std::ops::RangeInclusive;

use crate::Nanos;

/// How hostile the network and the kernel are. Chances are in 1/1024 per opportunity: 0 is never, 1024 always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// How long bytes travel and operations take; equal bounds are a fixed delay.
    pub delay: RangeInclusive<Nanos>,
    /// A receive brings only a part of what is there.
    pub short_reads: u16,
    /// The kernel takes only a part of a send although it has room for more.
    pub short_writes: u16,
    /// Arriving bytes are lost and the connection is reset in their place.
    pub resets: u16,
    /// A receive finds no buffer although there are some.
    pub exhaustion: u16,
    /// An operation finds the submission queue full and takes effect a delay later.
    pub full_queue: u16,
    /// The kernel ends a receive that it could have kept.
    pub ended_receives: u16,
    /// A cancellation takes ten delays, while its target goes on.
    pub late_cancels: u16,
    /// Accepting finds no descriptor left and rests.
    pub shortages: u16,
}

impl Faults {
    /// A perfect network without delay.
    pub const NONE: Self = Self {
        delay: 0..=0,
        short_reads: 0,
        short_writes: 0,
        resets: 0,
        exhaustion: 0,
        full_queue: 0,
        ended_receives: 0,
        late_cancels: 0,
        shortages: 0,
    };

    /// Every fault that a client's bytes survive: all but resets.
    pub const ROUGH: Self = Self {
        delay: 1_000..=2_000_000,
        short_reads: 300,
        short_writes: 300,
        resets: 0,
        exhaustion: 100,
        full_queue: 100,
        ended_receives: 200,
        late_cancels: 300,
        shortages: 50,
    };

    /// Every fault.
    pub const HOSTILE: Self = Self {
        resets: 20,
        ..Self::ROUGH
    };
}

/// How often each fault has struck.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Receives cut short.
    pub short_reads: u64,
    /// Sends cut short.
    pub short_writes: u64,
    /// Connections reset.
    pub resets: u64,
    /// Receives without a buffer.
    pub exhaustion: u64,
    /// Operations that found the queue full.
    pub full_queue: u64,
    /// Receives ended early.
    pub ended_receives: u64,
    /// Cancellations that took long.
    pub late_cancels: u64,
    /// Accepts that rested.
    pub shortages: u64,
}

impl FaultCounts {
    /// The names of the faults that have not struck, for tests of coverage.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let counts = [
            ("short_reads", self.short_reads),
            ("short_writes", self.short_writes),
            ("resets", self.resets),
            ("exhaustion", self.exhaustion),
            ("full_queue", self.full_queue),
            ("ended_receives", self.ended_receives),
            ("late_cancels", self.late_cancels),
            ("shortages", self.shortages),
        ];
        counts
            .into_iter()
            .filter(|(_, count)| *count == 0)
            .map(|(name, _)| name)
            .collect()
    }
}

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): enough for schedules.
#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start());
        if span == 0 {
            *range.start()
        } else {
            range.start() + self.next() % (span.saturating_add(1)).max(1)
        }
    }

    /// Rolls the dice and counts a hit. A chance of 0 asks nothing, so that switching one fault off leaves the others
    /// as they were.
    pub(super) fn strikes(&mut self, chance: u16, count: &mut u64) -> bool {
        let hit = chance > 0 && self.next() % 1024 < u64::from(chance);
        *count += u64::from(hit);
        hit
    }
}
