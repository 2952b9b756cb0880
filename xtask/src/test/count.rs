//! Counts what test runners report: cargo-nextest, cargo test, pytest, node.
//!
//! Nothing here runs them. Invariant: a test that was skipped aloud is not counted as passed as well, and one that a
//! runner skipped by itself is a failure of the step.

use std::collections::BTreeSet;

use crate::failure::{Failure, Outcome};

/// The marker of a test that says it cannot run here.
const SKIPPED: &str = "SKIPPED ";

/// Counts of one step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    reported: usize,
    failed: usize,
    /// Ignored or filtered out by the runner itself: in silence.
    silent: usize,
    aloud: BTreeSet<String>,
}

impl Counts {
    /// Takes a line of a runner's output.
    pub(super) fn line(&mut self, line: &str) {
        let line = plain(line);
        // Within nextest's output that of each test is indented, and libtest's own closing line among it.
        let cargo = line.starts_with("test result:");
        let line = line.trim();
        if let Some(skip) = line.strip_prefix(SKIPPED) {
            self.aloud
                .insert(skip.split_once(':').map_or(skip, |(name, _)| name).trim().to_owned());
        } else if let Some((key, number)) = node(line) {
            self.add(key, number);
        } else if cargo || is_closing(line) {
            for (number, word) in numbered(line) {
                self.add(word, number);
            }
        }
    }

    fn add(&mut self, word: &str, number: usize) {
        match word {
            "passed" | "pass" | "xpassed" => self.reported += number,
            "failed" | "fail" | "error" | "errors" | "cancelled" | "timed" | "exec" => self.failed += number,
            "ignored" | "skipped" | "todo" | "xfailed" => self.silent += number,
            _ => {}
        }
    }

    /// Counts a check that has no runner.
    pub(super) fn check(&mut self, outcome: Outcome) -> Outcome {
        match outcome {
            Ok(()) => self.reported += 1,
            Err(_) => self.failed += 1,
        }
        outcome
    }

    /// For a run that was asked for some tests only.
    pub(super) fn forgive_silence(&mut self) {
        self.silent = 0;
    }

    /// Fails unless some tests ran and none of them failed or was skipped in silence.
    pub(super) fn verdict(&self, runner: Outcome) -> Outcome {
        runner?;
        match self {
            Self { failed: 1.., .. } => Err(Failure::new(format!("{} failed", self.failed))),
            Self { silent: 1.., .. } => Err(Failure::new(format!("{} skipped in silence", self.silent))
                .remedy("a test that cannot run prints `SKIPPED NAME: REASON`; no test is ignored")),
            Self { reported: 0, .. } => Err(Failure::new("no test ran")),
            _ => Ok(()),
        }
    }

    /// Tests that passed.
    pub(super) fn passed(&self) -> usize {
        self.reported.saturating_sub(self.aloud.len())
    }

    /// Tests that failed.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Names of the tests that said they cannot run here.
    pub(super) fn skipped_aloud(&self) -> impl Iterator<Item = &str> {
        self.aloud.iter().map(String::as_str)
    }
}

/// The line without terminal colours.
pub(super) fn plain(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

/// Whether this is the line with which nextest or pytest closes.
fn is_closing(line: &str) -> bool {
    let nextest = line.starts_with("Summary [") && line.contains("run:");
    let pytest = line.starts_with('=') && line.ends_with('=') && line.contains(" in ");
    nextest || pytest
}

/// Node's closing lines, one for each key: `# pass 3`, or `ℹ pass 3` on a terminal.
fn node(line: &str) -> Option<(&str, usize)> {
    let rest = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "))?;
    let (key, number) = rest.split_once(' ')?;
    Some((key, number.parse().ok()?))
}

/// Each number with the word after it.
fn numbered(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let words = line
        .split([' ', ',', ';', '(', ')', '='])
        .filter(|word| !word.is_empty());
    let next = words.clone().skip(1);
    words
        .zip(next)
        .filter_map(|(number, word)| Some((number.parse().ok()?, word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_the_runners() {
        let cases: [(&[&str], [usize; 3]); 12] = [
            (
                &["     Summary [   1.2s] 12 tests run: 12 passed, 0 skipped"],
                [12, 0, 0],
            ),
            (
                &[
                    "\u{1b}[32m Summary\u{1b}[0m [ 1.2s] 9/12 tests run: 6 passed (1 slow), 2 failed, 1 timed out, 4 skipped",
                ],
                [6, 3, 4],
            ),
            (
                &["test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s"],
                [3, 0, 1],
            ),
            (
                &["test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"],
                [3, 2, 0],
            ),
            (&["======= 2 failed, 10 passed, 1 skipped in 3.21s ======="], [10, 2, 1]),
            (&["======= 10 passed, 1 error in 3.21s ======="], [10, 1, 0]),
            (
                &[
                    "# tests 5",
                    "# suites 1",
                    "# pass 4",
                    "# fail 1",
                    "# cancelled 0",
                    "# skipped 0",
                    "# todo 0",
                ],
                [4, 1, 0],
            ),
            (
                &[
                    "    test result: ok. 1 passed; 0 failed",
                    "Summary [ 1.2s] 1 test run: 1 passed, 0 skipped",
                ],
                [1, 0, 0],
            ),
            (&["ℹ pass 4", "ℹ fail 0", "ℹ skipped 2"], [4, 0, 2]),
            (
                &[
                    "test result: ok. 3 passed; 0 failed",
                    "SKIPPED a::b: no GPU",
                    "    SKIPPED a::b: no GPU",
                ],
                [2, 0, 0],
            ),
            (
                &["test wire::plain ... ok", "12 passed by the bridge", "# of all"],
                [0, 0, 0],
            ),
            (&["=========== short test summary info ==========="], [0, 0, 0]),
        ];
        for (lines, [passed, failed, silent]) in cases {
            let mut counts = Counts::default();
            lines.iter().for_each(|line| counts.line(line));
            assert_eq!(
                [counts.passed(), counts.failed, counts.silent],
                [passed, failed, silent],
                "{lines:?}"
            );
        }
    }

    #[test]
    fn a_step_needs_tests_that_pass_and_none_that_hide() {
        for (lines, passes) in [
            (&["# pass 1"][..], true),
            (&[], false),
            (&["# pass 1", "# fail 1"], false),
            (&["# pass 1", "# skipped 1"], false),
            (&["# pass 1", "SKIPPED a: no GPU"], true),
        ] {
            let mut counts = Counts::default();
            lines.iter().for_each(|line| counts.line(line));
            assert_eq!(counts.verdict(Ok(())).is_ok(), passes, "{lines:?}");
            assert!(counts.verdict(Err(Failure::new("broken"))).is_err());
        }
    }
}
