//! The Rust tests, by cargo-nextest where it is installed and by cargo test otherwise.
//!
//! Nothing here chooses tests but the filter that the user gave. Invariant: both runners run the same tests in release.

use std::process::Command;

use super::{Context, count::Counts};
use crate::{
    failure::Outcome,
    place,
    shell::{self, lines},
};

/// Runs all tests.
pub(super) fn tests(context: &Context, counts: &mut Counts) -> Outcome {
    selected(context, counts, &["--workspace"], &[])
}

/// Runs the end-to-end suites again with workers that use epoll, as they do where io_uring is forbidden.
pub(super) fn epoll(context: &Context, counts: &mut Counts) -> Outcome {
    selected(context, counts, END_TO_END, &[("ZEROHOP_TEST_IO", "epoll")])
}

/// Runs the end-to-end suites again with every reply forced through registered memory and a zero-copy send.
pub(super) fn zero_copy(context: &Context, counts: &mut Counts) -> Outcome {
    selected(context, counts, END_TO_END, &[("ZEROHOP_TEST_ZERO_COPY", "always")])
}

const END_TO_END: &[&str] = &["--package", "zerohop-tests"];

fn selected(context: &Context, counts: &mut Counts, packages: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let mut cargo = Command::new(place::cargo());
    context.environment(&mut cargo).envs(variables.iter().copied());
    let mut view = View::default();
    if shell::exists("cargo-nextest") {
        cargo.args([
            "nextest",
            "run",
            "--release",
            "--no-fail-fast",
            "--success-output",
            "immediate",
        ]);
        cargo.args(packages).args(context.filter);
    } else {
        cargo.args(["test", "--release", "--no-fail-fast", "--lib", "--bins", "--tests"]);
        cargo.args(packages).args(context.filter).args(["--", "--show-output"]);
    }
    let status = lines(&mut cargo, |line| {
        counts.line(line);
        view.shows(line)
    })?;
    if context.filter.is_some() {
        // The runner tells of those that were not asked for as skipped.
        counts.forgive_silence();
    }
    counts.verdict(shell::success(&cargo, status))
}

/// Runs the examples in doc comments, which nextest does not know.
pub(super) fn docs(context: &Context, counts: &mut Counts) -> Outcome {
    let mut cargo = Command::new(place::cargo());
    context
        .environment(&mut cargo)
        .args(["test", "--release", "--workspace", "--no-fail-fast", "--doc"]);
    let status = lines(&mut cargo, |line| {
        counts.line(line);
        true
    })?;
    shell::success(&cargo, status)
}

/// Decides which lines the user sees: of a test that passed, only its name and what it says it skipped.
#[derive(Default)]
struct View {
    within_passed: bool,
}

impl View {
    fn shows(&mut self, line: &str) -> bool {
        let plain = super::count::plain(line);
        let words: Vec<&str> = plain.split_whitespace().take(2).collect();
        match words.as_slice() {
            ["PASS", "["] | ["PASS", ..] => {
                self.within_passed = true;
                return true;
            }
            // Each is how nextest begins the report of another test, or its closing lines.
            [
                "FAIL" | "SLOW" | "LEAK" | "TIMEOUT" | "ABORT" | "SIGSEGV" | "SIGABRT" | "SIGKILL" | "Summary"
                | "Cancelling",
                ..,
            ] => {
                self.within_passed = false;
            }
            [rule, ..] if rule.starts_with("────") => self.within_passed = false,
            _ => {}
        }
        !self.within_passed || plain.trim_start().starts_with("SKIPPED ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_quiet_but_for_their_skips() {
        let mut view = View::default();
        for (line, shown) in [
            ("    Starting 2 tests across 1 binary", true),
            ("        PASS [   0.004s] a b", true),
            ("  stdout ───", false),
            ("    running 1 test", false),
            ("    SKIPPED b: no GPU", true),
            ("    test b ... ok", false),
            ("        FAIL [   0.004s] a c", true),
            ("    thread 'c' panicked", true),
            ("        PASS [   0.004s] a d", true),
            ("    more of d", false),
            ("────────────", true),
            (
                "     Summary [   0.005s] 3 tests run: 2 passed, 1 failed, 0 skipped",
                true,
            ),
        ] {
            assert_eq!(view.shows(line), shown, "{line}");
        }
    }
}
