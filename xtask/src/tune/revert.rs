//! `tune revert`: takes back what the journal tells, last change first.
//!
//! It takes back only what is still as apply left it: a value that a boot has reset, or that somebody has changed since, is
//! not ours any more. Invariant: it can be cut short and run again any number of times; the journal goes last.

use std::io;

use super::{
    apply::draft,
    files::Files,
    journal::{self, Record, Told},
    rule,
};
use crate::failure::{Doing, Failure, Outcome};

/// What is to be done about one step of the journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: it is as it was before.
    Nothing,
    /// This setting gets this value back.
    Restore { path: String, before: String },
    /// This file goes.
    Remove { path: String },
    /// This folder goes, if it is empty.
    RemoveFolder { path: String },
    /// It is neither as it was nor as apply left it, so it stays; what to tell.
    Leave(String),
}

/// Restores what was there before, and removes the journal.
///
/// # Errors
/// If something could not be restored; the journal is kept then, so that it can be tried again.
pub(super) fn revert(files: &dyn Files, tell: &mut dyn FnMut(&str)) -> Outcome {
    let Some(told) = journal::read(files)? else {
        return unbegun(files, tell);
    };
    let mut failed = 0;
    for record in told.steps.iter().rev() {
        if let Record::File { path, .. } = record {
            let draft = draft(path);
            if files.there(&draft).doing(|| format!("look at {draft}"))? {
                files.remove(&draft).doing(|| format!("remove {draft}"))?;
            }
        }
        let step = step(files, &told, record).and_then(|step| perform(files, &step, tell));
        if let Err(error) = step {
            tell(&format!("{}: {error}", subject(record)));
            failed += 1;
        }
    }
    if failed > 0 {
        return Err(Failure::new(format!("{failed} changes could not be taken back"))
            .remedy("mend what is told above and run `tune revert` again: the journal is kept"));
    }
    files
        .remove(journal::PATH)
        .doing(|| format!("remove {}", journal::PATH))?;
    tell(&format!("Reverted: profile {}.", told.profile));
    Ok(())
}

/// A journal whose first line was never finished tells of no change.
fn unbegun(files: &dyn Files, tell: &mut dyn FnMut(&str)) -> Outcome {
    if files
        .there(journal::PATH)
        .doing(|| format!("look at {}", journal::PATH))?
    {
        files
            .remove(journal::PATH)
            .doing(|| format!("remove {}", journal::PATH))?;
    }
    tell("Nothing is applied.");
    Ok(())
}

/// What `revert` would do now, in its order.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn preview(files: &dyn Files, told: &Told) -> Outcome<Vec<Step>> {
    let steps = told.steps.iter().rev().map(|record| {
        let subject = subject(record);
        step(files, told, record).doing(|| format!("look at {subject}"))
    });
    steps.collect()
}

fn subject(record: &Record) -> &str {
    match record {
        Record::Value { path, .. }
        | Record::Reads { path, .. }
        | Record::Folder { path }
        | Record::File { path, .. } => path,
        Record::Begin { .. } | Record::Done => journal::PATH,
    }
}

fn step(files: &dyn Files, told: &Told, record: &Record) -> io::Result<Step> {
    match record {
        Record::Value { path, before, write } => Ok(match existing(files, path)? {
            None => Step::Leave(format!("{path} is gone, and with it the change")),
            Some(now) if now == *before => Step::Nothing,
            Some(now) if ours(&now, before, write, told.reads(path)) => Step::Restore {
                path: path.clone(),
                before: before.clone(),
            },
            Some(now) => Step::Leave(format!(
                "{path} was changed by somebody else, or by a boot, to {}; it stays. Before apply it was {}",
                rule::words(&now),
                rule::words(before)
            )),
        }),
        Record::File { path, text } => Ok(match existing(files, path)? {
            None => Step::Nothing,
            Some(now) if now == *text => Step::Remove { path: path.clone() },
            Some(_) => Step::Leave(format!(
                "{path} was changed since; it stays, and holds at the next boot or login"
            )),
        }),
        Record::Folder { path } => Ok(match files.list(path) {
            Ok(_) => Step::RemoveFolder { path: path.clone() },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Step::Nothing,
            Err(error) => return Err(error),
        }),
        Record::Begin { .. } | Record::Reads { .. } | Record::Done => Ok(Step::Nothing),
    }
}

fn existing(files: &dyn Files, path: &str) -> io::Result<Option<String>> {
    match files.read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a value is the one that apply set. Where apply was cut short before it could look, what lies on the way counts,
/// since the kernel may have taken a part.
fn ours(now: &str, before: &str, write: &str, reads: Option<&str>) -> bool {
    match reads {
        Some(reads) => alike(now, reads) || alike(now, write),
        None => alike(now, write) || rule::between(before, now, write),
    }
}

/// Whether two texts are one value: spaces do not count, nor does the order of words that are no numbers.
pub(super) fn alike(one: &str, other: &str) -> bool {
    let sorted = |text: &str| {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words
            .iter()
            .all(|word| word.starts_with(|first: char| first.is_ascii_alphabetic()))
        {
            words.sort();
        }
        words
    };
    sorted(one) == sorted(other)
}

fn perform(files: &dyn Files, step: &Step, tell: &mut dyn FnMut(&str)) -> io::Result<()> {
    match step {
        Step::Nothing => {}
        Step::Restore { path, before } => {
            files.set(path, before)?;
            let now = files.read(path)?;
            if now != *before {
                let (now, before) = (rule::words(&now), rule::words(before));
                return Err(io::Error::other(format!("{before} was written, and it says {now}")));
            }
            tell(&format!("{path}: {} again", rule::words(before)));
        }
        Step::Remove { path } => {
            files.remove(path)?;
            tell(&format!("{path}: removed"));
        }
        Step::RemoveFolder { path } => match files.remove_folder(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                tell(&format!("{path}: others have put files into it; it stays"));
            }
            done => done?,
        },
        Step::Leave(why) => tell(why),
    }
    Ok(())
}
