//! `tune apply`: makes the changes of a plan, each one noted in the journal first.
//!
//! It changes only what the plan says, and writes only files that did not exist. Invariant: cut short anywhere, it leaves
//! a machine that `tune revert` restores.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{
    files::Files,
    journal::{self, Record},
    plan::{self, Change, LIMITS_FILE, Row, SYSCTL_FILE, State, Value},
    profile::Profile,
    revert, rule,
};
use crate::failure::{Doing, Failure, Outcome};

/// Sets what the profile wants. What an earlier apply did is taken back first, so that the journal always tells of one.
///
/// # Errors
/// If the journal or a drop-in file cannot be written, or if the kernel refused a value; all others are set then.
pub(super) fn apply(files: &dyn Files, profile: &Profile, tell: &mut dyn FnMut(&str)) -> Outcome {
    if journal::read(files)?.is_some() {
        tell("What was applied before is taken back first.");
        revert::revert(files, tell)?;
    }
    let rows = plan::look(files, profile);
    let changes: Vec<(&Row, &Change)> = rows
        .iter()
        .filter_map(|row| match &row.state {
            State::Change(change) => Some((row, change)),
            _ => None,
        })
        .collect();
    if changes.is_empty() {
        tell("Nothing is to be changed: every setting is as wanted or better, or was chosen by somebody.");
        return Ok(());
    }
    unoccupied(files)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    journal::begin(files, &profile.name, now.as_secs())?;
    let mut work = Work {
        files,
        tell,
        sysctls: Vec::new(),
        limits: Vec::new(),
        refused: 0,
    };
    for (row, change) in changes {
        match change {
            Change::Value(value) => work.value(row, value)?,
            Change::Limits { lines, files } => work.limits(row, lines, *files),
        }
    }
    work.finish(&profile.name)
}

/// The text of a drop-in file.
pub(super) fn drop_in(profile: &str, lines: &[String]) -> String {
    let head =
        format!("# Written by `cargo xtask tune apply --profile {profile}`; `cargo xtask tune revert` removes it.\n");
    lines.iter().fold(head, |text, line| text + line + "\n")
}

/// The line of sysctl.d that sets a value at each boot; none if it cannot.
pub(super) fn boot_line(value: &Value) -> Option<String> {
    Some(format!("{} = {}", value.key?, value.write))
}

/// Without a journal, a file of our name is not ours.
fn unoccupied(files: &dyn Files) -> Outcome {
    for path in [SYSCTL_FILE, LIMITS_FILE] {
        if files.there(path).doing(|| format!("look at {path}"))? {
            return Err(Failure::new(format!(
                "{path} exists, and no journal says that this made it; nothing was changed"
            ))
            .remedy("look at it and move it away"));
        }
    }
    Ok(())
}

/// Where a file is written before it gets its name.
pub(super) fn draft(path: &str) -> String {
    // Neither reader of these folders looks at names without `.conf`.
    format!("{path}.new")
}

struct Work<'a> {
    files: &'a dyn Files,
    tell: &'a mut dyn FnMut(&str),
    /// Lines for the drop-in files: what the kernel has taken.
    sysctls: Vec<String>,
    limits: Vec<String>,
    refused: usize,
}

impl Work<'_> {
    fn value(&mut self, row: &Row, value: &Value) -> Outcome {
        let Value {
            path, before, write, ..
        } = value;
        let record = Record::Value {
            path: path.clone(),
            before: before.clone(),
            write: write.clone(),
        };
        journal::note(self.files, &record)?;
        if let Err(error) = self.files.set(path, write) {
            self.refuse(row, &format!("{write} was refused: {error}"));
            return Ok(());
        }
        let reads = self.files.read(path).doing(|| format!("read {path} again"))?;
        journal::note(
            self.files,
            &Record::Reads {
                path: path.clone(),
                reads: reads.clone(),
            },
        )?;
        let (was, is) = (rule::words(before), rule::words(&reads));
        (self.tell)(&format!("{}: {was} → {is}", row.name));
        if !revert::alike(&reads, write) {
            (self.tell)(&format!("  the kernel made that of {write}"));
        }
        self.sysctls.extend(boot_line(value));
        Ok(())
    }

    fn limits(&mut self, row: &Row, lines: &[String], wanted: Option<u64>) {
        // pam_limits fails a login whose limit the kernel refuses.
        if let Some(wanted) = wanted {
            let most = self.files.read(&plan::path("fs.nr_open")).unwrap_or_default();
            if most.trim().parse::<u64>().is_ok_and(|most| most < wanted) {
                let most = most.trim();
                self.refuse(
                    row,
                    &format!("fs.nr_open is {most}; with {wanted} nobody could log in, so it is left out"),
                );
                return;
            }
        }
        (self.tell)(&format!(
            "{}: {} → {}, from the next login on",
            row.name, row.now, row.wanted
        ));
        self.limits.extend_from_slice(lines);
    }

    fn refuse(&mut self, row: &Row, why: &str) {
        (self.tell)(&format!("{}: {why}", row.name));
        self.refused += 1;
    }

    fn finish(self, profile: &str) -> Outcome {
        for (path, lines) in [(SYSCTL_FILE, &self.sysctls), (LIMITS_FILE, &self.limits)] {
            if !lines.is_empty() {
                self.file(path, &drop_in(profile, lines))?;
                (self.tell)(&format!("{path}: written"));
            }
        }
        journal::note(self.files, &Record::Done)?;
        match self.refused {
            0 => Ok(()),
            refused => Err(Failure::new(format!(
                "{refused} of the settings could not be changed; all others are"
            ))
            .remedy("in a container the host has to be tuned; `tune revert` takes back the others")),
        }
    }

    fn file(&self, path: &str, text: &str) -> Outcome {
        self.folders(path)?;
        let (path, text) = (path.to_owned(), text.to_owned());
        journal::note(
            self.files,
            &Record::File {
                path: path.clone(),
                text: text.clone(),
            },
        )?;
        let made = self.files.create(&draft(&path), &text);
        made.and_then(|()| self.files.rename(&draft(&path), &path))
            .doing(|| format!("write {path}"))
            .map_err(|failure| failure.remedy("`tune revert` takes back what was done so far"))
    }

    /// Makes the folders of a file that are not there.
    fn folders(&self, path: &str) -> Outcome {
        for (end, _) in path.match_indices('/').skip(1) {
            let folder = &path[..end];
            if !self.files.there(folder).doing(|| format!("look at {folder}"))? {
                let record = Record::Folder {
                    path: folder.to_owned(),
                };
                journal::note(self.files, &record)?;
                self.files.make_folder(folder).doing(|| format!("make {folder}"))?;
            }
        }
        Ok(())
    }
}
