//! What became of many lines: counts, and the first of what went wrong.
//!
//! Writes to standard error beside a progress bar. Invariant: a file of nothing but faults tells [`SHOWN`] of them and counts
//! the rest, by the first [`KINDS`] kinds.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Faults that are told one by one.
const SHOWN: u64 = 50;
/// Kinds of faults that are counted apart.
const KINDS: usize = 20;

/// Faults so far.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) count: u64,
    kinds: BTreeMap<String, u64>,
}

impl Faults {
    /// Tells a fault of a line, and counts it under `kind`.
    pub(super) fn tell(&mut self, bar: &ProgressBar, (file, line): (&Path, u64), kind: &str, why: &str) {
        self.add(kind);
        let text = match self.count {
            ..=SHOWN => format!("{}:{line}: {why}", file.display()),
            count if count == SHOWN + 1 => "further faults are only counted".to_owned(),
            _ => return,
        };
        bar.suspend(|| {
            // A reader who left changes nothing.
            let _told = writeln!(io::stderr(), "{text}");
        });
    }

    /// Counts one of this kind without a word.
    pub(super) fn add(&mut self, kind: &str) {
        self.count += 1;
        if self.kinds.len() < KINDS || self.kinds.contains_key(kind) {
            *self.kinds.entry(kind.to_owned()).or_default() += 1;
        }
    }

    /// The kinds, the most frequent first.
    pub(super) fn kinds(&self) -> Vec<(&str, u64)> {
        let mut kinds: Vec<_> = self.kinds.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
        kinds
    }
}

/// A bar for so many bytes of a file, on a terminal.
pub(super) fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = "{bar:30} {percent:>3} % of {total_bytes}  {msg}  {elapsed}, {eta} to go";
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
