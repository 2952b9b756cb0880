//! `cargo xtask fuzz`: the targets of tests/fuzz under libFuzzer, guided by coverage, with the stable compiler.
//!
//! Nothing here judges an input: the targets do. Invariant: what a run learns lies under the target folder; only the
//! committed inputs are in the repository, and only a person adds one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{Doing, Failure, Outcome},
    place::{self, Place},
    shell,
};
use clap::Args;

/// Longest input that is tried, in bytes.
const LONGEST: u32 = 2048;
/// Memory that one input may make the product use, in MiB: bodies are bounded, so what they cost is.
const MEMORY: u32 = 512;
/// Seconds that one input may take.
const PATIENCE: u32 = 10;

/// Arguments of `fuzz`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this target (`--list` names them)
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    /// Run the target on this input and nothing else
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
    /// Write the figures into bench/FUZZ.md
    #[arg(long)]
    record: bool,
    /// Name the targets
    #[arg(long)]
    list: bool,
}

/// Runs the targets that were asked for.
pub(crate) fn fuzz(place: &Place, options: &Options) -> Outcome {
    let all = targets(place)?;
    if options.list {
        all.iter().for_each(shell::say);
        return Ok(());
    }
    let wanted = |name: &&String| options.target.as_ref().is_none_or(|wanted| wanted == *name);
    let chosen: Vec<&String> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err(Failure::new("no such target").remedy("cargo xtask fuzz --list"));
    }
    let program = build(place)?;
    if let (Some(input), [target]) = (&options.input, chosen.as_slice()) {
        return shell::run(command(&program, target).arg(input));
    }
    to_the_end(chosen.into_iter().map(|target| {
        let figures = run(place, &program, target, options.minutes * 60)?;
        if options.record {
            record(place, &all, target, &figures)?;
        }
        Ok(())
    }))
}

/// Does all of it, whatever fails; then the first failure.
fn to_the_end(runs: impl Iterator<Item = Outcome>) -> Outcome {
    let mut first = Ok(());
    for failure in runs.filter_map(Outcome::err) {
        if first.is_ok() {
            first = Err(failure);
        } else {
            failure.show();
        }
    }
    first
}

/// All targets, each for so many seconds.
pub(crate) fn each(place: &Place, seconds: u32) -> Outcome {
    let program = build(place)?;
    let all = targets(place)?;
    to_the_end(all.iter().map(|target| run(place, &program, target, seconds).map(drop)))
}

/// Their names: each has a folder of inputs.
fn targets(place: &Place) -> Outcome<Vec<String>> {
    let folder = place.root.join("tests/fuzz/corpus");
    let entries = fs::read_dir(&folder).doing(|| format!("read {}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Whether a C++ compiler is here, which libFuzzer's own code needs.
pub(crate) fn can_build() -> bool {
    shell::exists("c++")
}

/// Builds the targets, the product within them with counters. Everything else is as the tests have it.
fn build(place: &Place) -> Outcome<PathBuf> {
    if !can_build() {
        return Err(Failure::new("libFuzzer needs a C++ compiler").remedy("apt-get install build-essential"));
    }
    let mut cargo = Command::new(place::cargo());
    cargo
        .args([
            "build",
            "--release",
            "--package",
            "zerohop-fuzz",
            "--features",
            "engine",
        ])
        .env("RUSTC_WORKSPACE_WRAPPER", place.root.join("tests/fuzz/rustc.sh"))
        .current_dir(&place.root);
    shell::run(&mut cargo)?;
    // A copy, so that a run of hours goes on with what it began with.
    let (built, kept) = (place.target.join("release/fuzz"), place.target.join("fuzz/fuzz"));
    fs::create_dir_all(place.target.join("fuzz")).doing(|| String::from("create a folder"))?;
    fs::remove_file(&kept).ok();
    fs::copy(&built, &kept).doing(|| format!("copy {}", built.display()))?;
    Ok(kept)
}

fn command(program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("ZEROHOP_FUZZ", target)
        .env("RUST_BACKTRACE", "1")
        .arg(format!("-timeout={PATIENCE}"))
        .arg(format!("-rss_limit_mb={MEMORY}"));
    command
}

/// What a run did.
#[derive(Default)]
struct Figures {
    seconds: u32,
    executions: u64,
    a_second: u64,
    /// Edges of the product and the oracle that were reached.
    edges: u64,
    inputs: u64,
}

fn run(place: &Place, program: &Path, target: &str, seconds: u32) -> Outcome<Figures> {
    let folder = |kind: &str| {
        let path = place.target.join("fuzz").join(kind).join(target);
        fs::create_dir_all(&path).doing(|| format!("create {}", path.display()))?;
        Ok::<_, Failure>(path)
    };
    let (corpus, found) = (folder("corpus")?, folder("found")?);
    let files = place.root.join("tests/fuzz");
    let mut fuzz = command(program, target);
    fuzz.arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={LONGEST}"))
        .arg(format!("-dict={}", files.join("words.txt").display()))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args(["-print_final_stats=1", "-reload=0"])
        .arg(corpus)
        .arg(files.join("corpus").join(target));
    let mut figures = Figures {
        seconds,
        ..Figures::default()
    };
    let mut last = String::new();
    let status = shell::lines(&mut fuzz, |line| {
        read(line, &mut figures);
        if let Some((_, file)) = line.split_once("Test unit written to ") {
            file.clone_into(&mut last);
        }
        // Its progress fills screens; of interest is only what it found.
        let quiet = [
            "#",
            "\"",
            "INFO:",
            "stat::",
            "NEW_FUNC",
            "WARNING:",
            "Dictionary:",
            "Done ",
            "###",
        ];
        let line = line.trim_start();
        !line.is_empty() && !quiet.iter().any(|start| line.starts_with(start))
    })?;
    if !status.success() && last.is_empty() {
        return Err(Failure::new(format!(
            "the run of {target} was cut short, and nothing was found"
        )));
    }
    if !status.success() {
        return Err(Failure::new(format!("{} fails on an input", target)).remedy(format!(
            "cargo xtask fuzz {} --input {last}; when it is mended, commit the input under tests/fuzz/corpus/{}",
            target, target
        )));
    }
    shell::say(format!(
        "{}: {} executions in {seconds} s ({} a second), {} edges, nothing found",
        target, figures.executions, figures.a_second, figures.edges
    ));
    Ok(figures)
}

/// Takes the figures out of libFuzzer's lines.
fn read(line: &str, figures: &mut Figures) {
    let after = |name: &str| {
        let rest = line.split_once(name)?.1.trim_start();
        let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    };
    let mut set = |place: fn(&mut Figures) -> &mut u64, name: &str| {
        if let Some(value) = after(name) {
            *place(figures) = value;
        }
    };
    if line.starts_with('#') {
        set(|figures| &mut figures.edges, " cov: ");
        set(|figures| &mut figures.inputs, " corp: ");
    }
    set(|figures| &mut figures.executions, "stat::number_of_executed_units:");
    set(|figures| &mut figures.a_second, "stat::average_exec_per_sec:");
}

const ABOUT: &str = "\
# Fuzzing

Written by `cargo xtask fuzz --record`, a line a target: its last recorded run, on one core at low priority. What each
target checks stands in [tests/README.md](../tests/README.md). A run that finds something fails and records nothing.

| target | minutes | executions | a second | edges reached | inputs kept |
| --- | --- | --- | --- | --- | --- |
";

/// Replaces the line of this target.
fn record(place: &Place, all: &[String], target: &str, figures: &Figures) -> Outcome {
    let path = place.root.join("bench/FUZZ.md");
    let old = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, recorded(&old, all, target, figures)).doing(|| format!("write {}", path.display()))
}

fn recorded(old: &str, all: &[String], name: &str, figures: &Figures) -> String {
    let line = |name: &str| {
        format!(
            "| {name} | {} | {} | {} | {} | {} |",
            figures.seconds / 60,
            figures.executions,
            figures.a_second,
            figures.edges,
            figures.inputs
        )
    };
    let before = |name: &str| {
        old.lines()
            .find(|line| line.starts_with(&format!("| {name} |")))
            .map(String::from)
    };
    let lines = all.iter().filter_map(|target| {
        let new = (target == name).then(|| line(name));
        new.or_else(|| before(target))
    });
    lines.fold(ABOUT.to_owned(), |out, line| out + &line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_recorded() {
        let mut figures = Figures {
            seconds: 120,
            ..Figures::default()
        };
        for line in [
            "#2097152\tpulse  cov: 836 ft: 2331 corp: 657/91Kb lim: 1627 exec/s: 74472 rss: 31Mb",
            "#745577\tDONE   cov: 837 ft: 2331 corp: 658/91Kb lim: 1627 exec/s: 67779 rss: 31Mb",
            "stat::number_of_executed_units: 745577",
            "stat::average_exec_per_sec:     67779",
            "stat::new_units_added:          10",
        ] {
            read(line, &mut figures);
        }
        let all = ["chat", "head", "sse"].map(String::from);
        let first = recorded("", &all, "chat", &figures);
        assert!(
            first.ends_with("| chat | 2 | 745577 | 67779 | 837 | 658 |\n"),
            "{first}"
        );
        let second = recorded(&first, &all, "head", &figures);
        assert!(second.find("| chat |") < second.find("| head |"), "{second}");
        assert_eq!(recorded(&second, &all, "chat", &figures), second);
    }
}
