//! What can be wrong with a model directory, as one line: where, what, and how to mend it.

use std::{fmt, io, path::Path};

/// A reason why a model does not load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The file or folder.
    pub place: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.what, self.remedy)
    }
}

impl Problem {
    pub(crate) fn new(place: &Path, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        let line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            place: place.display().to_string(),
            what: line(what.into()),
            remedy: line(remedy.into()),
        }
    }
}

/// A file that must be there. `purpose` says what it is for.
pub(crate) fn read(path: &Path, purpose: &str) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|error| {
        let remedy = format!("a model directory needs it ({purpose})");
        Problem::new(path, reason(&error), remedy)
    })
}

/// A file that may be missing, but not unreadable.
pub(crate) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, Problem> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Problem::new(path, reason(&error), "make it readable or remove it")),
    }
}

pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "a folder, not a file".into(),
        _ => error.to_string(),
    }
}
