//! Which maker this machine allows, found by one try, and the door that makes it.
//!
//! It never logs: [`Choice`] displays as the one line to log. Invariant: what `probe` chose was really made and used once.

use std::{fmt, io};

use crate::{Epoll, Options, Uring, uring};

/// What the configuration asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where it is allowed, else epoll.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// How an io_uring is set up, best first; each step drops what an older kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Single issuer, deferred task run, no submission index array: kernel 6.6.
    DeferredNoArray,
    /// Single issuer, deferred task run: 6.1.
    Deferred,
    /// Single issuer, cooperative task run: 6.0.
    Cooperative,
    /// No set-up flag.
    Plain,
}

impl Level {
    /// The ladder, from the top.
    pub const ALL: [Self; 4] = [Self::DeferredNoArray, Self::Deferred, Self::Cooperative, Self::Plain];
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeferredNoArray => "single issuer, deferred task run",
            Self::Deferred => "single issuer, deferred task run, with submission array",
            Self::Cooperative => "single issuer, cooperative task run",
            Self::Plain => "no set-up flags",
        })
    }
}

/// The maker to use and why. Cheap to clone and to send to every worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// io_uring at this level.
    Uring(Level),
    /// epoll.
    Epoll {
        /// Why not io_uring.
        reason: String,
    },
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring(level) => write!(f, "io_uring: {level}"),
            Self::Epoll { reason } => write!(f, "epoll: {reason}"),
        }
    }
}

/// One of the makers for real sockets; match it once and run a loop that is generic over [`crate::Io`].
#[expect(clippy::large_enum_variant, reason = "one value a thread, taken apart at once")]
pub enum AnyIo {
    /// io_uring.
    Uring(Uring),
    /// epoll.
    Epoll(Epoll),
}

impl Choice {
    /// Makes the maker. Call it in the worker's own thread: a ring belongs to the thread that makes it.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of range; else what the kernel said.
    pub fn open(&self, options: Options) -> io::Result<AnyIo> {
        match self {
            Self::Uring(level) => Uring::new(options, *level).map(AnyIo::Uring),
            Self::Epoll { .. } => Epoll::new(options).map(AnyIo::Epoll),
        }
    }
}

/// Tries what the machine allows: makes a ring at each level from the top and receives a byte through it.
///
/// # Errors
/// Only for [`Backend::Uring`]: why io_uring cannot be had.
pub fn probe(backend: Backend) -> io::Result<Choice> {
    if backend == Backend::Epoll {
        return Ok(Choice::Epoll {
            reason: "as configured".to_owned(),
        });
    }
    match best_level() {
        Ok(level) => Ok(Choice::Uring(level)),
        Err(error) if backend == Backend::Uring => {
            Err(io::Error::new(error.kind(), format!("io_uring: {}", explain(&error))))
        }
        Err(error) => Ok(Choice::Epoll {
            reason: explain(&error),
        }),
    }
}

fn best_level() -> io::Result<Level> {
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for level in Level::ALL {
        match uring::try_level(level) {
            Ok(()) => return Ok(level),
            // Only an unknown flag or operation is mended by asking for less.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Says what failed and, where it can be known, why.
fn explain(error: &io::Error) -> String {
    let what = error.to_string();
    let what = what.split(" (os error").next().unwrap_or_default();
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (container policy, or sysctl kernel.io_uring_disabled?)",
        Some(libc::ENOSYS) => " (a kernel without io_uring, or a container policy?)",
        Some(libc::EINVAL) => " (kernel older than 6.0?)",
        Some(libc::ENOMEM) => " (limit of locked memory?)",
        _ => "",
    };
    format!("io_uring_setup: {what}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_the_log() {
        let errno = io::Error::from_raw_os_error;
        for (choice, line) in [
            (
                Choice::Uring(Level::DeferredNoArray),
                "io_uring: single issuer, deferred task run",
            ),
            (
                Choice::Epoll {
                    reason: explain(&errno(libc::EPERM)),
                },
                "epoll: io_uring_setup: Operation not permitted (container policy, or sysctl \
                 kernel.io_uring_disabled?)",
            ),
            (
                Choice::Epoll {
                    reason: explain(&errno(libc::EINVAL)),
                },
                "epoll: io_uring_setup: Invalid argument (kernel older than 6.0?)",
            ),
            (probe(Backend::Epoll).unwrap(), "epoll: as configured"),
        ] {
            assert_eq!(choice.to_string(), line);
        }
    }

    /// As in a container whose policy forbids io_uring: the thread may not call `io_uring_setup`.
    #[test]
    fn where_io_uring_is_forbidden_epoll_serves() {
        let forbidden = std::thread::spawn(|| {
            crate::sys::forbid_io_uring().expect("a filter");
            let choice = probe(Backend::Auto).expect("a choice");
            let opened = choice.open(Options::default()).expect("a maker");
            assert!(matches!(opened, AnyIo::Epoll(_)));
            (
                choice.to_string(),
                probe(Backend::Uring).expect_err("forced").to_string(),
            )
        });
        let (line, error) = forbidden.join().expect("the thread");
        let why = "io_uring_setup: Operation not permitted (container policy, or sysctl kernel.io_uring_disabled?)";
        assert_eq!(line, format!("epoll: {why}"));
        assert_eq!(error, format!("io_uring: {why}"));
    }

    #[test]
    fn what_auto_chose_can_be_opened() {
        let choice = probe(Backend::Auto).unwrap();
        choice.open(Options::default()).map(drop).unwrap();
        let forced = probe(Backend::Uring);
        assert_eq!(forced.is_ok(), matches!(choice, Choice::Uring(_)), "{choice}");
    }
}
