//! `cargo xtask test`: all checks and suites, one summary, one closing line.
//!
//! Nothing here decides what a suite tests. Invariant: the task succeeds only if each step passed, no test was skipped
//! in silence, and the tests skipped aloud are exactly those that `tests/skips.txt` allows on this machine.

mod count;
mod parquet;
mod rust;
mod sdk;
mod skips;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use clap::Args;

use crate::{
    differential, ebpf,
    failure::{Failure, Outcome},
    fuzz,
    place::{self, Place},
    run,
    setup::{self, Library},
    shell, tidy,
};
use count::Counts;

/// Arguments of `test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Run the suites that scale with more rounds (hours rather than minutes)
    #[arg(long)]
    long: bool,
    /// Only these steps, in their usual order
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Step>,
    /// Only Rust tests whose name contains this (implies `--only rust`)
    #[arg(value_name = "NAME")]
    filter: Option<String>,
}

/// A step, in order.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// cargo fmt --check
    Format,
    /// cargo clippy with warnings as errors
    Lints,
    /// cargo xtask tidy
    Tidy,
    /// cargo deny check, where cargo-deny is installed
    Licences,
    /// The product and all tests, in release
    Build,
    /// cargo xtask run --demo
    Demo,
    /// All Rust tests
    Rust,
    /// The end-to-end suites again, with workers that use epoll
    Epoll,
    /// The end-to-end suites again, with every reply sent without a copy from registered memory
    ZeroCopy,
    /// The table of hostile clients against nginx and llhttp too, where the nginx that it knows is installed
    Differential,
    /// The fuzz targets, a few seconds each, where a C++ compiler is installed
    Fuzz,
    /// The programs for the kernel: built again and compared, where their compiler is installed
    Ebpf,
    /// The examples in the documentation of the code
    Docs,
    /// Parts of the cache, read by pyarrow, pandas, Polars and DuckDB
    Parquet,
    /// anthropic and openai for Python
    SdkPython,
    /// @anthropic-ai/sdk and openai for Node
    SdkNode,
}

impl Step {
    const ALL: [Self; 16] = [
        Self::Format,
        Self::Lints,
        Self::Tidy,
        Self::Licences,
        Self::Build,
        Self::Demo,
        Self::Rust,
        Self::Epoll,
        Self::ZeroCopy,
        Self::Differential,
        Self::Fuzz,
        Self::Ebpf,
        Self::Docs,
        Self::Parquet,
        Self::SdkPython,
        Self::SdkNode,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Lints => "lints",
            Self::Tidy => "tidy",
            Self::Licences => "licences",
            Self::Build => "build",
            Self::Demo => "demo",
            Self::Rust => "rust",
            Self::Epoll => "epoll",
            Self::ZeroCopy => "zero-copy",
            Self::Differential => "differential",
            Self::Fuzz => "fuzz",
            Self::Ebpf => "ebpf",
            Self::Docs => "docs",
            Self::Parquet => "parquet",
            Self::SdkPython => "sdk-python",
            Self::SdkNode => "sdk-node",
        }
    }
}

/// What the steps share.
struct Context<'a> {
    place: &'a Place,
    library: Library,
    long: bool,
    filter: Option<&'a str>,
}

impl Context<'_> {
    /// Tells a suite where things are.
    fn environment<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .current_dir(&self.place.root)
            .env("ORT_DYLIB_PATH", &self.library.path)
            .env("ZEROHOP_BIN", self.place.binary())
            .env("ZEROHOP_LONG", if self.long { "1" } else { "" })
    }
}

/// How a step went.
struct Row {
    step: Step,
    counts: Counts,
    failure: Option<Failure>,
    took: Duration,
}

/// Runs the steps that were asked for.
pub(crate) fn test(place: &Place, options: &Options) -> Outcome {
    let steps = chosen(options);
    let context = Context {
        place,
        library: setup::setup(place)?,
        long: options.long,
        filter: options.filter.as_deref(),
    };
    let mut rows: Vec<Row> = Vec::new();
    for step in steps.iter().copied() {
        let unbuilt = rows.iter().any(|row| row.step == Step::Build && row.failure.is_some());
        rows.push(perform(&context, step, unbuilt));
    }
    if options.filter.is_none() && steps == Step::ALL {
        compare_skips(place, &mut rows);
    }
    conclude(&rows)
}

fn chosen(options: &Options) -> Vec<Step> {
    let all = Step::ALL.into_iter();
    match (&options.filter, options.only.as_slice()) {
        (Some(_), []) => vec![Step::Build, Step::Rust],
        (None, []) => all.collect(),
        (_, only) => all.filter(|step| only.contains(step)).collect(),
    }
}

fn perform(context: &Context, step: Step, unbuilt: bool) -> Row {
    shell::say(format!("\n=== {}", step.name()));
    let start = Instant::now();
    let mut counts = Counts::default();
    let outcome = match step {
        Step::Demo
        | Step::Rust
        | Step::Epoll
        | Step::ZeroCopy
        | Step::Differential
        | Step::Parquet
        | Step::SdkPython
        | Step::SdkNode
            if unbuilt =>
        {
            Err(Failure::new("not run, since the build failed"))
        }
        Step::Format => check(context, &mut counts, &["fmt", "--all", "--check"]),
        Step::Lints => check(
            context,
            &mut counts,
            &[
                "clippy",
                "--release",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "--deny",
                "warnings",
            ],
        ),
        Step::Tidy => counts.check(tidy::tidy(context.place)),
        Step::Licences => licences(context, &mut counts),
        // All at once: what the tests need of a dependency may be more than what the product needs, and each set of its
        // features would be built anew.
        Step::Build => check(
            context,
            &mut counts,
            &["build", "--release", "--workspace", "--all-targets"],
        ),
        Step::Demo => counts.check(run::demo(context.place, &context.library)),
        Step::Rust => rust::tests(context, &mut counts),
        Step::Epoll => rust::epoll(context, &mut counts),
        Step::ZeroCopy => rust::zero_copy(context, &mut counts),
        Step::Differential => differing(context, &mut counts),
        Step::Fuzz => fuzzing(context, &mut counts),
        Step::Ebpf => programs(context, &mut counts),
        Step::Docs => rust::docs(context, &mut counts),
        Step::Parquet => parquet::parts(context, &mut counts),
        Step::SdkPython => sdk::python(context, &mut counts),
        Step::SdkNode => sdk::node(context, &mut counts),
    };
    let failure = outcome.err();
    if let Some(failure) = &failure {
        failure.show();
    }
    Row {
        step,
        counts,
        failure,
        took: start.elapsed(),
    }
}

fn check(context: &Context, counts: &mut Counts, arguments: &[&str]) -> Outcome {
    let mut cargo = Command::new(place::cargo());
    counts.check(shell::run(cargo.args(arguments).current_dir(&context.place.root)))
}

/// Licences and sources of what is linked, by deny.toml.
fn licences(context: &Context, counts: &mut Counts) -> Outcome {
    if shell::exists("cargo-deny") {
        return check(
            context,
            counts,
            &["deny", "--offline", "check", "licenses", "bans", "sources"],
        );
    }
    skip(counts, "licences", "cargo-deny is not installed");
    Ok(())
}

/// The gateway beside nginx and llhttp; npm is asked for by a later step in any case.
fn differing(context: &Context, counts: &mut Counts) -> Outcome {
    match differential::unusable() {
        None => counts.check(differential::check(context.place, &context.library)),
        Some(why) => {
            skip(counts, "differential", &why);
            Ok(())
        }
    }
}

/// The fuzz targets: in CI they show that they run and that nothing obvious broke, `--long` looks for more.
fn fuzzing(context: &Context, counts: &mut Counts) -> Outcome {
    if fuzz::can_build() {
        return counts.check(fuzz::each(context.place, if context.long { 300 } else { 3 }));
    }
    skip(counts, "fuzz", "there is no C++ compiler");
    Ok(())
}

/// The programs for the kernel, byte for byte.
fn programs(context: &Context, counts: &mut Counts) -> Outcome {
    match ebpf::unusable(context.place) {
        None => counts.check(ebpf::check(context.place)),
        Some(why) => {
            skip(counts, "ebpf", &why);
            Ok(())
        }
    }
}

/// Says aloud that a step cannot run here.
fn skip(counts: &mut Counts, step: &str, why: &str) {
    let told = format!("SKIPPED {step}: {why}");
    shell::say(&told);
    counts.line(&told);
}

/// Makes a failure of each difference between what was skipped and what may be.
fn compare_skips(place: &Place, rows: &mut [Row]) {
    let found: Vec<String> = rows
        .iter()
        .flat_map(|row| row.counts.skipped_aloud().map(String::from))
        .collect();
    if let Err(failure) = skips::compare(place, &found) {
        failure.show();
        if let Some(row) = rows.iter_mut().find(|row| row.step == Step::Rust) {
            row.failure.get_or_insert(failure);
        }
    }
}

/// Prints the summary; fails if a step did.
fn conclude(rows: &[Row]) -> Outcome {
    shell::say(format!(
        "\n{:<12}{:>8}{:>8}{:>9}{:>9}",
        "step", "passed", "failed", "skipped", "seconds"
    ));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for row in rows {
        // A step that broke before its runner could count is one failure.
        let failures = row.counts.failed().max(usize::from(row.failure.is_some()));
        let seconds = row.took.as_secs_f64();
        let (good, aloud) = (row.counts.passed(), row.counts.skipped_aloud().count());
        shell::say(format!(
            "{:<12}{good:>8}{failures:>8}{aloud:>9}{seconds:>9.1}",
            row.step.name()
        ));
        (passed, failed, skipped) = (passed + good, failed + failures, skipped + aloud);
    }
    for row in rows {
        if let Some(failure) = &row.failure {
            shell::say(format!("{}: {failure}", row.step.name()));
        }
    }
    shell::say(format!("{passed} passed, {failed} failed, {skipped} skipped"));
    match failed {
        0 => Ok(()),
        _ => Err(Failure::new("not everything passed")),
    }
}
