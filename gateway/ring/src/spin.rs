//! Whether to look again for a moment before sleeping in the kernel.
//!
//! A sleep and its wake-up cost about 20 µs of latency (measured, mostly the interrupt to an idle core), so for one
//! client that waits for each reply a short spin makes half as many requests a second again, and for two clients twice
//! as many at half the CPU. With many it only keeps the batches small: while the worker sleeps, requests gather, and
//! fewer calls serve them all. So a wait spins only while recent waits were short and recent bytes came from few
//! connections; an idle worker never spins.
//!
//! Arithmetic only. Invariant: without a spin limit, `worth` is false.

use crate::Nanos;

/// What a sleep adds to the wait that it measures: the wake-up itself.
const WAKE_COST: Nanos = 40_000;
/// Weight of a new wait is 1/8.
const SHIFT: u32 = 3;
/// Fixed point of the average.
const ONE: u32 = 1 << 8;
/// The larger part of recent waits must have ended within the spin.
const ENOUGH_HITS: u32 = ONE * 5 / 8;
/// Receives over which connections are told apart and counted.
const WINDOW: u32 = 64;
/// Connections that share a window up to which a spin pays: measured to pay at 8, not at 32.
const FEW: u32 = 8;

/// In which window a connection received last; kept with the connection.
#[derive(Debug, Default)]
pub(crate) struct Stamp(u32);

#[derive(Debug)]
pub(crate) struct Spin {
    limit: Nanos,
    hits: u32,
    /// The present window, its receives and its connections so far.
    window: u32,
    receives: u32,
    connections: u32,
    /// Connections of the last whole window.
    last: u32,
}

impl Spin {
    pub(crate) fn new(limit: Nanos) -> Self {
        Self {
            limit,
            hits: 0,
            window: 1,
            receives: 0,
            connections: 0,
            last: 0,
        }
    }

    pub(crate) fn limit(&self) -> Nanos {
        self.limit
    }

    pub(crate) fn worth(&self) -> bool {
        self.limit > 0 && self.hits >= ENOUGH_HITS && self.last.max(self.connections) <= FEW
    }

    /// A wait ended after `nanos`; `slept`: in a sleep, so that the wake-up is part of it.
    pub(crate) fn waited(&mut self, nanos: Nanos, slept: bool) {
        let hit = nanos <= self.limit + if slept { WAKE_COST } else { 0 };
        let sample = if hit { ONE } else { 0 };
        self.hits = self.hits - (self.hits >> SHIFT) + (sample >> SHIFT);
    }

    /// A connection received bytes.
    pub(crate) fn received(&mut self, stamp: &mut Stamp) {
        if stamp.0 != self.window {
            stamp.0 = self.window;
            self.connections += 1;
        }
        self.receives += 1;
        if self.receives == WINDOW {
            self.last = self.connections;
            self.window = self.window.wrapping_add(1);
            (self.receives, self.connections) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it spins after these waits, each followed by bytes from the next of so many connections.
    fn after(limit: Nanos, waits: &[(Nanos, bool)], connections: usize) -> bool {
        let mut spin = Spin::new(limit);
        let mut stamps: Vec<_> = (0..connections).map(|_| Stamp::default()).collect();
        for (number, &(nanos, slept)) in waits.iter().enumerate() {
            spin.waited(nanos, slept);
            spin.received(&mut stamps[number % connections]);
        }
        spin.worth()
    }

    #[test]
    fn spins_only_where_it_pays() {
        let (short, long) = ((30_000, true), (5_000_000, true));
        assert!(!after(20_000, &[], 1), "at the start");
        for (connections, worth) in [(1, true), (2, true), (8, true), (9, false), (32, false), (256, false)] {
            for waits in [100, 128, 150, 1000] {
                assert_eq!(
                    after(20_000, &vec![short; waits], connections),
                    worth,
                    "{connections} clients"
                );
            }
        }
        assert!(!after(20_000, &[long; 32], 1), "idle");
        assert!(!after(20_000, &[(30_000, false); 32], 1), "spins that found nothing");
        assert!(!after(0, &[short; 32], 1), "switched off");
        let mut idle = vec![short; 64];
        idle.extend([long; 8]);
        assert!(!after(20_000, &idle, 1), "gives up within eight long waits");
    }
}
