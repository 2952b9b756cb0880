//! What a worker counts with: counters, gauges and histograms of relaxed atomics with a single writer.
//!
//! A scrape reads them from another thread while the writer goes on; it may see one value newer than another, never a
//! torn one. Invariant: only the worker that owns a cell writes it, so that writing is a load, an addition and a store
//! without a lock on the bus. (A second writer would lose counts, nothing worse.)

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds; by the owner only.
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Adds one; by the owner only.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes over a number that somebody else counts.
    pub(super) fn mirror(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets; by the owner only.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// More bounds than this no histogram has.
pub(super) const MAX_BOUNDS: usize = 24;

/// Durations by fixed bounds. It lies inside the worker's own memory, so that no other worker's cache line is touched.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds in nanoseconds, inclusive, rising; at most [`MAX_BOUNDS`].
    bounds: &'static [u64],
    /// For each bound the values up to it and above the one before; behind them those above all bounds.
    counts: [Counter; MAX_BOUNDS + 1],
    sum: Counter,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [u64]) -> Self {
        let bounds = &bounds[..bounds.len().min(MAX_BOUNDS)];
        Self {
            bounds,
            counts: Default::default(),
            sum: Counter::default(),
        }
    }

    /// Counts a duration in nanoseconds; by the owner only.
    pub fn observe(&self, nanos: u64) {
        self.observe_many(nanos, 1);
    }

    /// Counts the same duration several times, as for tokens that came together; by the owner only.
    pub fn observe_many(&self, nanos: u64, count: u64) {
        self.counts[self.bounds.partition_point(|&bound| bound < nanos)].add(count);
        self.sum.add(nanos.wrapping_mul(count));
    }
}

/// Several histograms with the same bounds, added up at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) bounds: &'static [u64],
    /// As in a [`Histogram`], not yet accumulated.
    pub(super) counts: [u64; MAX_BOUNDS + 1],
    /// In nanoseconds.
    pub(super) sum: u64,
}

impl Merged {
    pub(super) fn of<'a>(bounds: &'static [u64], parts: impl Iterator<Item = &'a Histogram>) -> Self {
        let mut merged = Self {
            bounds: &bounds[..bounds.len().min(MAX_BOUNDS)],
            counts: [0; MAX_BOUNDS + 1],
            sum: 0,
        };
        for part in parts {
            for (total, count) in merged.counts.iter_mut().zip(&part.counts) {
                *total += count.get();
            }
            merged.sum = merged.sum.wrapping_add(part.sum.get());
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        const BOUNDS: &[u64] = &[10, 20, 50];
        for (value, bucket) in [
            (0, 0),
            (10, 0),
            (11, 1),
            (20, 1),
            (21, 2),
            (50, 2),
            (51, 3),
            (u64::MAX, 3),
        ] {
            let histogram = Histogram::new(BOUNDS);
            histogram.observe(value);
            let merged = Merged::of(BOUNDS, [&histogram].into_iter());
            assert_eq!(
                merged.counts.iter().position(|&count| count == 1),
                Some(bucket),
                "{value}"
            );
            assert_eq!(merged.sum, value);
        }
    }

    #[test]
    fn merging_adds_up() {
        const BOUNDS: &[u64] = &[10, 20];
        let (one, two) = (Histogram::new(BOUNDS), Histogram::new(BOUNDS));
        one.observe(5);
        one.observe_many(15, 3);
        two.observe(15);
        two.observe(100);
        let merged = Merged::of(BOUNDS, [&one, &two].into_iter());
        assert_eq!((&merged.counts[..3], merged.sum), (&[1, 4, 1][..], 5 + 45 + 15 + 100));
    }

    #[test]
    fn counters_and_gauges() {
        let (counter, gauge) = (Counter::default(), Gauge::default());
        counter.add(5);
        counter.increment();
        gauge.set(7);
        gauge.set(3);
        assert_eq!((counter.get(), gauge.get()), (6, 3));
        counter.mirror(100);
        assert_eq!(counter.get(), 100);
    }
}
