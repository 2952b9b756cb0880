//! A failed task: what went wrong, in one line, and how to mend it, in another.
//!
//! Nothing here prints but [`Failure::show`]. Invariant: a failure that the user can mend carries the remedy.

use std::{fmt, io};

/// What every task returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a task stopped.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    remedy: Option<String>,
}

impl Failure {
    /// A failure without a known remedy.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: None,
        }
    }

    /// The same, with what the user can do about it.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Writes it to standard error.
    #[expect(clippy::print_stderr, reason = "a failed task tells its user")]
    pub(crate) fn show(&self) {
        eprintln!("{self}");
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  try: {remedy}"),
            None => Ok(()),
        }
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::new(what)
    }
}

/// Says what was being done when an I/O error came.
pub(crate) trait Doing<T> {
    /// Wraps the error as "cannot DOING: ERROR".
    fn doing(self, doing: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Failure::new(format!("cannot {}: {error}", doing())))
    }
}
