//! Why the kernel did not take something, in one line, with what would help.
//!
//! Invariant: the text has no line break.

use std::{error::Error, fmt, io};

use aya::programs::ProgramError;

/// Something that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    doing: String,
    why: String,
    errno: Option<i32>,
}

impl Refusal {
    /// With the reason that an error carries at the end of its chain.
    pub(crate) fn of(doing: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        let errno = errno(error);
        let mut why = errno.map_or_else(|| one_line(&last(error).to_string()), told);
        if errno == Some(libc::EACCES)
            && let Some(line) = verifier(error)
        {
            why = format!("{why} (the verifier: {line})");
        }
        Self {
            doing: doing.into(),
            why,
            errno,
        }
    }

    /// With a reason of our own.
    pub(crate) fn new(doing: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            doing: doing.into(),
            why: why.into(),
            errno: None,
        }
    }

    pub(crate) fn errno(&self) -> Option<i32> {
        self.errno
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.doing, self.why)
    }
}

impl Error for Refusal {}

/// The number of the deepest I/O error.
fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let deeper = error.source().and_then(errno);
    deeper.or_else(|| error.downcast_ref::<io::Error>()?.raw_os_error())
}

fn last<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    error.source().map_or(error, last)
}

/// The last thing that the verifier said besides its statistics.
fn verifier(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(ProgramError::LoadError { verifier_log, .. }) = error.downcast_ref() {
        let log = verifier_log.to_string();
        let line = log
            .lines()
            .rfind(|line| !line.trim().is_empty() && !line.starts_with("processed "))?;
        return Some(one_line(line));
    }
    error.source().and_then(verifier)
}

fn told(errno: i32) -> String {
    let what = io::Error::from_raw_os_error(errno).to_string();
    let what = what.split(" (os error").next().unwrap_or_default();
    let help = match errno {
        libc::EPERM => "CAP_BPF and CAP_NET_ADMIN are needed",
        libc::EACCES => "CAP_PERFMON is needed too",
        libc::EBUSY => "another program is attached there",
        libc::EOPNOTSUPP => "the driver has no such mode",
        libc::ENOSYS => "this kernel has no BPF",
        _ => return what.to_owned(),
    };
    format!("{what}: {help}")
}

/// Without line breaks, and not endless.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 200;
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(LONGEST)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapped(io::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a call failed")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_reason_is_one_line_with_a_remedy() {
        let of = |errno| Refusal::of("load it", &io::Error::from_raw_os_error(errno)).to_string();
        assert_eq!(
            of(libc::EPERM),
            "cannot load it: Operation not permitted: CAP_BPF and CAP_NET_ADMIN are needed"
        );
        assert!(of(libc::EACCES).contains("CAP_PERFMON"));
        assert_eq!(of(libc::EINVAL), "cannot load it: Invalid argument");
        let refusal = Refusal::of("attach", &Wrapped(io::Error::from_raw_os_error(libc::EBUSY)));
        assert_eq!(refusal.errno(), Some(libc::EBUSY));
        let text = Refusal::of("x", &io::Error::other("a\nb\n\n  c")).to_string();
        assert_eq!(text, "cannot x: a b c");
    }
}
