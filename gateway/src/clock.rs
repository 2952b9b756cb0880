//! Time for measuring durations inside a turn of the loop.
//!
//! Deadlines and dates come from [`zerohop_ring::Io`]; this is only for histograms and the access log, and it enters as
//! an argument, so that a replayed worker reads what its test gives it. Invariant: never goes backwards.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// A monotonic clock, given to a worker when it is made.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        let origin = Instant::now();
        Self(Arc::new(move || origin.elapsed()))
    }

    /// A clock that a test drives.
    #[must_use]
    pub fn scripted(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Time since the clock's origin.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

/// A duration in nanoseconds; after 584 years it stands still.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
