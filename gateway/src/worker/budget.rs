//! The memory that connections may hold: a bound over all workers, kept without a shared write for each request.
//!
//! It allocates nothing and refuses nobody: who asked for more hears that there is none, and the connection decides what
//! to give up. A worker takes from the common [`Pot`] in steps and keeps a little for the next request. Invariant: what
//! the workers have taken together is at most the limit; what one uses beyond its share (told by `false`) is, for each
//! connection, at most one growth of one buffer, a small request, or a reply that is not yet worth cutting off.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Pot {
    limit: u64,
    /// Taken by workers, used or not.
    taken: AtomicU64,
    /// The most that was taken since somebody asked.
    peak: AtomicU64,
    /// What a worker takes or returns at a time.
    step: u64,
}

impl Pot {
    /// So many bytes for so many workers.
    pub(crate) fn new(limit: u64, workers: usize) -> Self {
        // What all workers keep unused is at most a sixteenth of the limit.
        let step = limit / (32 * workers.max(1) as u64);
        Self {
            limit,
            taken: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            step: step.clamp(4 << 10, 1 << 20),
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// What workers have taken, and the most that it was since the last call.
    pub(crate) fn taken(&self) -> (u64, u64) {
        let taken = self.taken.load(Ordering::Relaxed);
        (taken, self.peak.swap(taken, Ordering::Relaxed).max(taken))
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let before = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        if let Ok(before) = before {
            self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        }
        before.is_ok()
    }
}

/// A worker's share.
#[derive(Debug)]
pub(crate) struct Budget {
    pot: Arc<Pot>,
    taken: u64,
    used: u64,
}

impl Budget {
    pub(crate) fn new(pot: Arc<Pot>) -> Self {
        Self { pot, taken: 0, used: 0 }
    }

    /// Bytes that all connections of all workers may hold.
    pub(crate) fn limit(&self) -> u64 {
        self.pot.limit()
    }

    /// Bytes that this worker's connections hold.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// A connection that held `before` bytes holds `after`. False: that is more than there is; it counts all the same.
    pub(crate) fn change(&mut self, before: usize, after: usize) -> bool {
        self.used = (self.used + after as u64).saturating_sub(before as u64);
        let step = self.pot.step;
        if self.used > self.taken {
            let more = (self.used - self.taken).next_multiple_of(step);
            if !self.pot.take(more) {
                return after <= before;
            }
            self.taken += more;
        } else if self.taken - self.used > 2 * step {
            let surplus = (self.taken - self.used - step) / step * step;
            self.taken -= surplus;
            self.pot.taken.fetch_sub(surplus, Ordering::Relaxed);
        }
        true
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.pot.taken.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_limit_and_return_what_they_do_not_need() {
        let pot = Arc::new(Pot::new(1 << 20, 2));
        let (mut one, mut two) = (Budget::new(Arc::clone(&pot)), Budget::new(Arc::clone(&pot)));
        assert!(one.change(0, 700 << 10));
        assert!(!two.change(0, 500 << 10), "there is not so much left");
        assert!(two.change(500 << 10, 200 << 10), "to give back is always well");
        assert!(two.change(200 << 10, 210 << 10), "now it fits");
        assert!(one.change(700 << 10, 0));
        assert_eq!((one.used(), two.used()), (0, 210 << 10));
        let (taken, peak) = pot.taken();
        assert!((210 << 10..400 << 10).contains(&taken) && peak >= 900 << 10);
        assert_eq!(pot.taken(), (taken, taken), "the peak begins anew");
        assert!(
            two.change(210 << 10, 900 << 10),
            "what was returned is there for the other"
        );
        drop((one, two));
        assert_eq!(pot.taken.load(Ordering::Relaxed), 0);
    }

    /// Whatever happens, the sum of what was taken stays within the limit, and nothing is lost of it.
    #[test]
    fn the_limit_holds() {
        let pot = Arc::new(Pot::new(10 << 20, 4));
        let mut workers: Vec<_> = (0..4).map(|_| (Budget::new(Arc::clone(&pot)), 0)).collect();
        let mut chance = 7_u64;
        for _ in 0..20_000 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (budget, held) = &mut workers[(chance >> 60) as usize % 4];
            let wanted = (chance >> 33) as usize % (4 << 20);
            if budget.change(*held, wanted) {
                *held = wanted;
            } else {
                // A refused connection gives up what it wanted, and what it held.
                assert!(budget.change(wanted, 0));
                *held = 0;
            }
            assert_eq!(budget.used(), *held as u64);
            assert!(pot.taken.load(Ordering::Relaxed) <= pot.limit());
        }
        let used: u64 = workers.iter().map(|(budget, _)| budget.used()).sum();
        assert!(used <= pot.limit());
        drop(workers);
        assert_eq!(pot.taken.load(Ordering::Relaxed), 0);
    }
}
