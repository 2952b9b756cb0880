//! The clock of the real makers: monotonic, read once a turn, with the calendar time derived from the same reading.
//!
//! Never sleeps. Invariant: `now` changes only in `read`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Nanos;

/// How long a measured distance between the monotonic and the calendar clock is used: a step of the calendar clock is
/// seen after at most this, and a turn pays for one clock reading, not two.
const CALENDAR_FOR: Nanos = 100_000_000;

#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    now: Nanos,
    /// Calendar time at the origin of `now`, as last measured.
    calendar: Duration,
    measured: Nanos,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let mut clock = Self {
            origin: Instant::now(),
            now: 0,
            calendar: Duration::ZERO,
            measured: 0,
        };
        clock.measure();
        clock
    }

    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// The time at this moment; does not change `now`.
    pub(crate) fn fresh(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    pub(crate) fn read(&mut self) {
        self.now = self.fresh();
        if self.now - self.measured > CALENDAR_FOR {
            self.measure();
        }
    }

    fn measure(&mut self) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.calendar = unix.saturating_sub(Duration::from_nanos(self.fresh()));
        self.measured = self.now;
    }

    pub(crate) fn unix_time(&self) -> (u64, u32) {
        let time = self.calendar + Duration::from_nanos(self.now);
        (time.as_secs(), time.subsec_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_stands_still_between_readings_and_calendar_follows_the_system() {
        let mut clock = Clock::new();
        clock.read();
        let (now, unix) = (clock.now(), clock.unix_time());
        while clock.fresh() <= now {}
        assert_eq!((clock.now(), clock.unix_time()), (now, unix));
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        clock.read();
        assert!(clock.now() > now);
        let ours = Duration::new(clock.unix_time().0, clock.unix_time().1);
        assert!(ours.abs_diff(system) < Duration::from_secs(60), "{ours:?} {system:?}");
    }
}
