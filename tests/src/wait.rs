//! Waiting for a condition.
//!
//! The only place where a test may sleep, and only between two looks. Invariant: a condition that does not come is a
//! panic that names it, after [`DEADLINE`].

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long anything may take before a test gives up. Generous, since it is met only by what never comes: no test
/// passes or fails by how fast something was.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Between two looks.
const STEP: Duration = Duration::from_millis(2);

/// Looks until `look` finds something.
///
/// # Panics
/// If it has not by the deadline.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    find_within(DEADLINE, look).unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain for {what}"))
}

/// Looks until `look` finds something, or the time is up.
pub fn find_within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(STEP);
    }
}
