//! What is wrong with a configuration: one line for each fault, which says where, what, and how to mend it.
//!
//! Nothing here reads files or prints. Invariant: a [`Problem`] about the file has a line and a column that exist in
//! it, and no problem ever holds a key of a tenant.

use std::{fmt, sync::Arc};

/// At most so many problems are listed; the rest is counted.
const LISTED: usize = 50;

/// A place in the file: both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// Where a problem lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// At this place of this file.
    File {
        /// As the user named it.
        name: Arc<str>,
        /// The place in it.
        place: Place,
    },
    /// The file as a whole: it cannot be read.
    WholeFile {
        /// As the user named it.
        name: Arc<str>,
    },
    /// An argument of the command line.
    Argument(&'static str),
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: Where,
    /// What, and how to mend it.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Where::File { name, place } => {
                one_line(name, f)?;
                write!(f, ":{}:{}: ", place.line, place.column)?;
            }
            Where::WholeFile { name } => {
                one_line(name, f)?;
                f.write_str(": ")?;
            }
            Where::Argument(name) => write!(f, "{name}: ")?,
        }
        one_line(&self.text, f)
    }
}

/// One problem is one line, whatever a name in the file holds.
fn one_line(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
            write!(f, "{}", c.escape_default())?;
        } else {
            write!(f, "{c}")?;
        }
    }
    Ok(())
}

/// Everything that is wrong with a configuration, in the order of the file; never empty once it is an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    file: Arc<str>,
    list: Vec<Problem>,
}

impl Problems {
    /// No problems yet in the file of this name.
    #[must_use]
    pub(super) fn of(file: &str) -> Self {
        Self {
            file: file.into(),
            list: Vec::new(),
        }
    }

    /// The problems found, in the order of the file.
    #[must_use]
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Whether one of them names this key.
    pub(super) fn name(&self, key: &str) -> bool {
        self.list.iter().any(|problem| problem.text.contains(key))
    }

    /// Adds a fault of the value of `key`.
    pub(super) fn add(&mut self, place: Place, key: &str, text: impl fmt::Display) {
        self.bare(place, format!("{key}: {text}"));
    }

    /// Adds a fault that names its key itself.
    pub(super) fn bare(&mut self, place: Place, text: String) {
        let name = Arc::clone(&self.file);
        self.list.push(Problem {
            at: Where::File { name, place },
            text,
        });
    }

    /// Adds a fault of the whole file.
    pub(super) fn whole(&mut self, text: String) {
        let name = Arc::clone(&self.file);
        self.list.push(Problem {
            at: Where::WholeFile { name },
            text,
        });
    }

    /// Adds a fault of an argument.
    pub(super) fn argument(&mut self, name: &'static str, text: String) {
        self.list.push(Problem {
            at: Where::Argument(name),
            text,
        });
    }

    /// Adds the faults of another file, to be told behind those of this one.
    pub(super) fn append(&mut self, other: Self) {
        self.list.extend(other.list);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// `value` if there is no problem, otherwise the problems in the order of the file.
    pub(super) fn or<T>(mut self, value: Option<T>) -> Result<T, Self> {
        let own = Arc::clone(&self.file);
        self.list.sort_by_key(|problem| match &problem.at {
            Where::File { name, place } => (*name != own, *place),
            Where::WholeFile { name } => (*name != own, Place::default()),
            Where::Argument(_) => (false, Place::default()),
        });
        match value {
            Some(value) if self.list.is_empty() => Ok(value),
            _ => {
                debug_assert!(!self.list.is_empty(), "a value is missing and no problem says why");
                Err(self)
            }
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().take(LISTED).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.list.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, "\n{}: {more} more problems", self.file),
        }
    }
}
