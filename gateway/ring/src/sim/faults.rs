//! Chance: which faults, how often, and the generator that decides, all from the seed.
//!
//! Nothing here reads a clock or the machine. Invariant: the same seed and the same questions give the same answers.

use std::ops::RangeInclusive;

use super::WireId;
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
    /// The completion queue is full: a turn hands out the first of what is ready, and the kernel holds the rest back for
    /// later turns.
    pub held_completions: u16,
    /// What travels takes a hundred delays.
    pub stalls: u16,
    /// Somebody sets the wall clock, forwards or backwards by up to a day. The monotonic clock goes on.
    pub clock_steps: u16,
    /// A reset takes away what had come before it and was not read, as some systems do.
    pub lost_tails: u16,
    /// The disk gives only a part of a file's bytes at first.
    pub short_file_reads: u16,
    /// The disk fails (`EIO`).
    pub failed_reads: u16,
    /// A read of a file takes a hundred delays.
    pub slow_reads: u16,
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
        held_completions: 0,
        stalls: 0,
        clock_steps: 0,
        lost_tails: 0,
        short_file_reads: 0,
        failed_reads: 0,
        slow_reads: 0,
    };

    /// Every fault that a client's bytes survive, and their speed: all but resets, stalls, and disks that fail or are slow.
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
        held_completions: 100,
        stalls: 0,
        clock_steps: 10,
        lost_tails: 0,
        short_file_reads: 300,
        failed_reads: 0,
        slow_reads: 0,
    };

    /// Every fault.
    pub const HOSTILE: Self = Self {
        resets: 20,
        stalls: 5,
        lost_tails: 512,
        failed_reads: 100,
        slow_reads: 20,
        ..Self::ROUGH
    };
}

/// A fault, as [`Faults`] names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// See [`Faults::short_reads`].
    ShortRead,
    /// See [`Faults::short_writes`].
    ShortWrite,
    /// See [`Faults::resets`].
    Reset,
    /// See [`Faults::exhaustion`]; also when there is truly no buffer.
    Exhaustion,
    /// See [`Faults::full_queue`].
    FullQueue,
    /// See [`Faults::ended_receives`].
    EndedReceive,
    /// See [`Faults::late_cancels`].
    LateCancel,
    /// See [`Faults::shortages`].
    Shortage,
    /// See [`Faults::held_completions`].
    HeldCompletion,
    /// See [`Faults::stalls`].
    Stall,
    /// See [`Faults::clock_steps`].
    ClockStep,
    /// See [`Faults::lost_tails`].
    LostTail,
    /// See [`Faults::short_file_reads`].
    ShortFileRead,
    /// See [`Faults::failed_reads`].
    FailedRead,
    /// See [`Faults::slow_reads`].
    SlowRead,
}

impl Fault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::ShortRead,
        Self::ShortWrite,
        Self::Reset,
        Self::Exhaustion,
        Self::FullQueue,
        Self::EndedReceive,
        Self::LateCancel,
        Self::Shortage,
        Self::HeldCompletion,
        Self::Stall,
        Self::ClockStep,
        Self::LostTail,
        Self::ShortFileRead,
        Self::FailedRead,
        Self::SlowRead,
    ];

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ShortRead => "short read",
            Self::ShortWrite => "short write",
            Self::Reset => "reset",
            Self::Exhaustion => "no buffer",
            Self::FullQueue => "full submission queue",
            Self::EndedReceive => "ended receive",
            Self::LateCancel => "late cancel",
            Self::Shortage => "accept shortage",
            Self::HeldCompletion => "full completion queue",
            Self::Stall => "stall",
            Self::ClockStep => "clock step",
            Self::LostTail => "lost tail",
            Self::ShortFileRead => "short file read",
            Self::FailedRead => "failed read",
            Self::SlowRead => "slow read",
        }
    }
}

/// What a worker asked of its simulated kernel, or was told by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A connection was accepted.
    Accept,
    /// Bytes were handed out.
    Recv,
    /// Receiving was to stop.
    Pause,
    /// Receiving was to go on after a pause.
    Resume,
    /// A buffer was given back.
    GiveBack,
    /// A send began.
    Send,
    /// A read of a file began.
    Read,
    /// FIN was asked for.
    Finish,
    /// An orderly close was asked for.
    Close,
    /// An abort was asked for.
    Abort,
}

/// What happened to a connection, for whoever counts which faults met which operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// Whose connection; `None`: no connection's, as when accepting begins.
    pub wire: Option<WireId>,
    /// What it was.
    pub what: What,
}

/// The contents of a [`Notice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// This was done.
    Did(Operation),
    /// This struck; at which operation, if it was one.
    Struck(Fault, Option<Operation>),
}

/// How often each fault has struck.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl FaultCounts {
    /// How often this one has.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// The names of the faults that have not struck, for tests of coverage.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = Fault::ALL.into_iter().filter(|fault| self.of(*fault) == 0);
        missing.map(Fault::name).collect()
    }
}

impl Faults {
    /// The chance of this fault.
    #[must_use]
    pub fn chance(&self, fault: Fault) -> u16 {
        match fault {
            Fault::ShortRead => self.short_reads,
            Fault::ShortWrite => self.short_writes,
            Fault::Reset => self.resets,
            Fault::Exhaustion => self.exhaustion,
            Fault::FullQueue => self.full_queue,
            Fault::EndedReceive => self.ended_receives,
            Fault::LateCancel => self.late_cancels,
            Fault::Shortage => self.shortages,
            Fault::HeldCompletion => self.held_completions,
            Fault::Stall => self.stalls,
            Fault::ClockStep => self.clock_steps,
            Fault::LostTail => self.lost_tails,
            Fault::ShortFileRead => self.short_file_reads,
            Fault::FailedRead => self.failed_reads,
            Fault::SlowRead => self.slow_reads,
        }
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

    /// Rolls the dice. A chance of 0 asks nothing, so that switching one fault off leaves the others as they were.
    pub(super) fn strikes(&mut self, chance: u16) -> bool {
        chance > 0 && self.next() % 1024 < u64::from(chance)
    }
}
