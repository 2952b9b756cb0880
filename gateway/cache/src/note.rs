//! What the cache has to tell its operator: one line each, for the log.
//!
//! It decides nothing. Invariant: whoever is told must not block for long, since the writer waits.

use std::{fmt, sync::Arc};

use crate::types::PartNumber;

/// Something that the operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// There is no ring for the files; why.
    NoRing(String),
    /// The index was of no use and is made anew from the data; why.
    IndexRebuilt(String),
    /// Entries that were found at the start.
    Opened(usize),
    /// Answers that were found in a segment that an earlier process left.
    Replayed(usize),
    /// A part is damaged; what is wrong.
    PartDamaged(PartNumber, String),
    /// Files cannot be written; answers are not kept until it is tried again. Why.
    NotWritten(String),
    /// They can again.
    WrittenAgain,
    /// Answers were lost because their segment could not be read or sealed.
    Lost(usize),
}

impl Note {
    /// Whether something is wrong.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Opened(_) | Self::Replayed(_) | Self::WrittenAgain)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRing(why) => write!(out, "the cache's files are written by plain calls: no ring ({why})"),
            Self::IndexRebuilt(why) => write!(out, "the cache's index is made anew from the data: {why}"),
            Self::Opened(entries) => write!(out, "the cache has {entries} stored answers"),
            Self::Replayed(answers) => write!(
                out,
                "{answers} answers were taken over from a segment of an earlier run"
            ),
            Self::PartDamaged(number, why) => write!(out, "{}: {why}", crate::segment::part::name(*number)),
            Self::NotWritten(why) => write!(out, "answers are not kept for now, the cache's files fail: {why}"),
            Self::WrittenAgain => out.write_str("answers are kept again"),
            Self::Lost(answers) => write!(out, "{answers} stored answers were lost with a segment that failed"),
        }
    }
}

/// Who is told.
#[derive(Clone)]
pub struct Notes(Arc<dyn Fn(Note) + Send + Sync>);

impl Notes {
    /// Told to this.
    pub fn to(listener: impl Fn(Note) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// Told to nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self::to(|_| {})
    }

    pub(crate) fn say(&self, note: Note) {
        (self.0)(note);
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Notes")
    }
}
