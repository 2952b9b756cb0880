//! The test harness in a task: where a test would fail with a panic, a task ends with a failure.
//!
//! Invariant: what was started within is gone afterwards, whether it went well or not.

use std::panic::{self, AssertUnwindSafe};

use zerohop_tests::gateway::Settings;

use crate::{
    failure::{Failure, Outcome},
    place::Place,
    setup::Library,
};

/// The bundled model, served by the binary that was built here with the library that was found.
pub(crate) fn settings(place: &Place, library: &Library) -> Settings {
    Settings::default()
        .environment("ORT_DYLIB_PATH", &library.path.to_string_lossy())
        .environment("ZEROHOP_BIN", &place.binary().to_string_lossy())
}

/// Does the work; a panic within is a failure with its message.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let usual = panic::take_hook();
    // The message reaches the user as a failure, without the place in the source.
    panic::set_hook(Box::new(|_| {}));
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(usual);
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure::new(text.unwrap_or("a panic without a message")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_failures() {
        for (work, expected) in [
            ((|| Ok(())) as fn() -> Outcome, "fine"),
            (|| Err(Failure::new("broken")), "error: broken"),
            (|| panic!("no {}", "answer"), "error: no answer"),
            (|| panic!("nothing"), "error: nothing"),
        ] {
            let told = guarded(work).map_or_else(|failure| failure.to_string(), |()| String::from("fine"));
            assert_eq!(told, expected);
        }
    }
}
