//! Who may come in: the bound on open jobs, and when to come back.
//!
//! It never blocks and never queues itself. Invariant: no more than `places + queue` jobs are open, from acceptance to
//! the delivery of their last event, so every queue behind it is bounded by that.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use crate::job::Rejected;

/// The counters at the door, shared by submitters and the engine's threads.
#[derive(Debug)]
pub(crate) struct Admission {
    running: AtomicBool,
    /// Stopped by a fault, not by a call.
    broken: AtomicBool,
    open: AtomicUsize,
    /// Accepted jobs without a place in the batch.
    waiting: AtomicUsize,
    /// Smoothed nanoseconds from getting a place to leaving it; 0: none measured.
    service: AtomicU64,
    /// Rejected since a job last left.
    turned_away: AtomicUsize,
    slots: usize,
    queue: usize,
}

/// Weight of the newest service time, as a divisor.
const SMOOTHING: u64 = 8;

/// Told to those who come before any job has been served.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// No shorter than a client can use, no longer than a measurement can promise.
const RETRY_RANGE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

impl Admission {
    pub(crate) fn new(slots: usize, queue: usize) -> Self {
        Self {
            running: AtomicBool::new(true),
            broken: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            service: AtomicU64::new(0),
            turned_away: AtomicUsize::new(0),
            slots,
            queue,
        }
    }

    /// Jobs that can be open at once.
    pub(crate) fn bound(&self) -> usize {
        self.slots + self.queue
    }

    /// Opens a job.
    pub(crate) fn enter(&self) -> Result<(), Rejected> {
        if !self.is_running() {
            return Err(Rejected::NotRunning);
        }
        let below = |open: usize| (open < self.bound()).then_some(open + 1);
        if self
            .open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, below)
            .is_err()
        {
            let before_me = self.turned_away.fetch_add(1, Ordering::Relaxed);
            return Err(Rejected::QueueFull {
                retry_after: self.retry_after(before_me),
            });
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A job has a place, or needs none.
    pub(crate) fn stop_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// A job lost its place and waits for another.
    pub(crate) fn wait_again(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// A job has had its last event, or wants none.
    pub(crate) fn close(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.turned_away.store(0, Ordering::Relaxed);
    }

    /// A job left its place after `service`. Called by the engine's thread alone.
    pub(crate) fn record_service(&self, service: Duration) {
        let new = u64::try_from(service.as_nanos()).unwrap_or(u64::MAX).max(1);
        let old = self.service.load(Ordering::Relaxed);
        let smoothed = if old == 0 {
            new
        } else {
            old - old / SMOOTHING + new / SMOOTHING
        };
        self.service.store(smoothed.max(1), Ordering::Relaxed);
    }

    /// A place comes free every `service / slots`. Whoever was turned away before since the last one gets the next, so
    /// the n-th is told the n-th; but no later than when the whole queue has passed.
    fn retry_after(&self, turned_away_before: usize) -> Duration {
        let service = self.service.load(Ordering::Relaxed);
        if service == 0 {
            return FIRST_RETRY;
        }
        let nth = turned_away_before.saturating_add(1).min(self.queue.max(1)) as u64;
        let wait = Duration::from_nanos((service / self.slots.max(1) as u64).saturating_mul(nth));
        wait.clamp(RETRY_RANGE.0, RETRY_RANGE.1)
    }

    /// Lets nobody in any more.
    pub(crate) fn shut(&self) {
        self.running.store(false, Ordering::Release);
    }

    /// Lets nobody in any more since the model does not run.
    pub(crate) fn break_down(&self) {
        // Before `shut`, so that whoever sees it stopped sees why.
        self.broken.store(true, Ordering::Release);
        self.shut();
    }

    /// Why it lets nobody in, for those that were in.
    pub(crate) fn why_stopped(&self) -> &'static str {
        if self.broken.load(Ordering::Acquire) {
            "the engine has stopped after a fault"
        } else {
            "the engine was closed"
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_and_retry() {
        let admission = Admission::new(2, 1);
        let retry = |admission: &Admission| match admission.enter() {
            Err(Rejected::QueueFull { retry_after }) => retry_after,
            other => panic!("expected a full queue, got {other:?}"),
        };
        for _ in 0..3 {
            admission.enter().expect("room");
        }
        assert_eq!(admission.waiting(), 3);
        assert_eq!(retry(&admission), FIRST_RETRY, "nothing measured");
        admission.stop_waiting();
        admission.record_service(Duration::from_millis(200));
        admission.close();
        admission.enter().expect("a place came free");
        let queue = Admission {
            queue: 3,
            ..Admission::new(2, 3)
        };
        for _ in 0..5 {
            queue.enter().expect("room");
        }
        queue.record_service(Duration::from_millis(200));
        let told: Vec<u128> = (0..5).map(|_| retry(&queue).as_millis()).collect();
        assert_eq!(
            told,
            [100, 200, 300, 300, 300],
            "the n-th gets the n-th place, up to the queue's length"
        );
        queue.close();
        queue.enter().expect("a place came free");
        assert_eq!(retry(&queue).as_millis(), 100);
        queue.shut();
        assert_eq!(queue.enter(), Err(Rejected::NotRunning));
    }

    #[test]
    fn service_time_is_smoothed() {
        let admission = Admission::new(1, 1);
        for _ in 0..100 {
            admission.record_service(Duration::from_millis(80));
        }
        admission.record_service(Duration::from_millis(160));
        let smoothed = admission.service.load(Ordering::Relaxed);
        assert!((89_000_000..=91_000_000).contains(&smoothed), "{smoothed}");
    }
}
