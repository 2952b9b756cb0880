//! Time for measuring durations inside a turn of the loop.
//!
//! Deadlines of connections and dates come from [`zerohop_ring::Io`]; this is only for histograms, the access log and the
//! deadlines that an engine keeps, and it enters as an argument, so that a replayed worker reads what its test gives it. Invariant: never goes backwards.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// A monotonic clock, given to a worker when it is made.
#[derive(Clone)]
pub struct Clock {
    read: Arc<dyn Fn() -> Duration + Send + Sync>,
    origin: Instant,
}

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
        Self {
            read: Arc::new(move || origin.elapsed()),
            origin,
        }
    }

    /// A clock that a test drives.
    #[must_use]
    pub fn scripted(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            read: Arc::new(read),
            origin: Instant::now(),
        }
    }

    /// Time since the clock's origin.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.read)()
    }

    /// The moment at this time since the clock's origin, for those who keep deadlines by the machine's clock.
    #[must_use]
    pub fn instant(&self, at: Duration) -> Option<Instant> {
        self.origin.checked_add(at)
    }
}

/// A duration in nanoseconds; after 584 years it stands still.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
