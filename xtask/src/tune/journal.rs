//! The journal of an apply: each change is written down, and on disk, before it is made.
//!
//! One JSON record a line. Nothing here makes a change. Invariant: whatever an apply has done to the machine stands in the
//! journal, wherever the apply was cut short; a last line without an end is a change that was not begun.

use std::io;

use serde::{Deserialize, Serialize};

use super::files::Files;
use crate::failure::{Doing, Failure, Outcome};

/// The journal; it is there exactly while something is applied.
pub(super) const PATH: &str = "/var/lib/zerohop-tune.journal";
/// Where it lies.
pub(super) const FOLDER: &str = "/var/lib";

/// The form of the records.
const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Record {
    /// The first line.
    Begin {
        version: u32,
        profile: String,
        /// Seconds since 1970.
        at: u64,
    },
    /// A kernel's file is about to be set.
    Value {
        path: String,
        /// All that it said, to the byte.
        before: String,
        write: String,
    },
    /// It was set, and says this since.
    Reads { path: String, reads: String },
    /// A folder is about to be made.
    Folder { path: String },
    /// A file that did not exist is about to be made.
    File { path: String, text: String },
    /// Everything was done.
    Done,
}

/// What a journal tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) profile: String,
    /// Seconds since 1970.
    pub(super) at: u64,
    /// Whether the apply came to its end.
    pub(super) done: bool,
    /// What it did, in order.
    pub(super) steps: Vec<Record>,
}

impl Told {
    /// What a kernel's file said after it was set, if the apply came so far.
    pub(super) fn reads(&self, of: &str) -> Option<&str> {
        self.steps.iter().find_map(|step| match step {
            Record::Reads { path, reads } if path == of => Some(reads.as_str()),
            _ => None,
        })
    }
}

/// Adds a record, which is on disk when this returns.
///
/// # Errors
/// If it cannot be written; then the change must not be made.
pub(super) fn note(files: &dyn Files, record: &Record) -> Outcome {
    let line = serde_json::to_string(record).map_err(|error| Failure::new(format!("a record has no JSON: {error}")))?;
    files
        .append(PATH, &format!("{line}\n"))
        .doing(|| format!("write to {PATH}"))
        .map_err(|failure| failure.remedy("`tune revert` takes back what was done so far"))
}

/// Opens a journal that is not there yet.
pub(super) fn begin(files: &dyn Files, profile: &str, at: u64) -> Outcome {
    let record = Record::Begin {
        version: VERSION,
        profile: profile.to_owned(),
        at,
    };
    note(files, &record)
}

/// Reads the journal; nothing if there is none, or if its first line was never finished.
///
/// # Errors
/// If it cannot be read, or holds what was not written here.
pub(super) fn read(files: &dyn Files) -> Outcome<Option<Told>> {
    let text = match files.read(PATH) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).doing(|| format!("read {PATH}")),
    };
    parse(&text).map_err(|what| {
        Failure::new(format!("{PATH}:{what}; nothing was changed"))
            .remedy("mend that line by hand: each names a file, and what stood there before")
    })
}

fn parse(text: &str) -> Result<Option<Told>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut records = whole.lines().enumerate().map(|(at, line)| {
        let record = serde_json::from_str::<Record>(line);
        record.map_err(|error| format!("{}: {error}", at + 1))
    });
    let Some(first) = records.next() else {
        return Ok(None);
    };
    let Record::Begin { version, profile, at } = first? else {
        return Err(String::from("1: not the beginning of a journal"));
    };
    if version != VERSION {
        return Err(format!(
            "1: version {version}, of another zerohop; revert with that one"
        ));
    }
    let mut steps = records.collect::<Result<Vec<_>, _>>()?;
    let done = steps.last() == Some(&Record::Done);
    if done {
        steps.pop();
    }
    Ok(Some(Told {
        profile,
        at,
        done,
        steps,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_short_was_not_begun_and_what_is_strange_is_refused() {
        let begin = r#"{"begin":{"version":1,"profile":"dev","at":7}}"#;
        let folder = r#"{"folder":{"path":"/a"}}"#;
        let told = |done, steps: usize| Ok(Some((done, steps)));
        for (text, expected) in [
            (String::new(), Ok(None)),
            (String::from("{\"beg"), Ok(None)),
            (begin.to_owned(), Ok(None)),
            (format!("{begin}\n"), told(false, 0)),
            (format!("{begin}\n{folder}"), told(false, 0)),
            (format!("{begin}\n{folder}\n"), told(false, 1)),
            (format!("{begin}\n{folder}\n\"done\"\n"), told(true, 1)),
            (format!("{begin}\nx\n{folder}\n"), Err("2:")),
            (format!("{folder}\n"), Err("1: not the beginning")),
            (begin.replace(":1,", ":2,") + "\n", Err("1: version 2")),
            (format!("{begin}\n{}\n", folder.replace("path", "road")), Err("2:")),
        ] {
            match (parse(&text), expected) {
                (Ok(told), Ok(expected)) => {
                    assert_eq!(told.map(|told| (told.done, told.steps.len())), expected, "{text}");
                }
                (Err(told), Err(part)) if told.starts_with(part) => {}
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
    }
}
