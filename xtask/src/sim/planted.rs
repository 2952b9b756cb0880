//! Planted bugs: each file of tests/planted is one exact replacement in the product, and the simulation must find it.
//!
//! The repository itself is never changed: a copy of its sources lies under the target folder, with a build folder that all
//! plants share. Invariant: a replacement applies in exactly one place, or the list is stale and a test says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::{BOOK, TEST};
use crate::{
    bench::report,
    failure::{Doing, Failure, Outcome},
    place::{self, Place},
    shell,
};

/// So many seeds a plant has to show itself.
const SEEDS: u64 = 1_000;
/// A plant that makes a run hang is found as well; the seed is then the one that was running.
const PATIENCE: Duration = Duration::from_secs(600);
/// What a copy of the sources consists of.
const SOURCES: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    ".cargo",
    "docs",
    "gateway",
    "models",
    "tests",
    "xtask",
];

/// What must find a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finder {
    /// The simulation of whole workers.
    Simulation,
    /// Readers that stall and reset while every reply leaves without a copy: what the kernel does with memory cannot be
    /// simulated.
    ZeroCopy,
}

/// A bug to plant.
#[derive(Debug, PartialEq, Eq)]
struct Plant {
    name: String,
    /// What it breaks, in a line.
    what: String,
    finder: Finder,
    file: PathBuf,
    old: String,
    new: String,
}

impl Plant {
    /// Reads `WHAT`, perhaps `by: zero copy`, `file: PATH`, `--- old`, the text, `--- new`, the text.
    fn parse(name: &str, text: &str) -> Option<Self> {
        let (head, rest) = text.split_once("\n--- old\n")?;
        let (old, new) = rest.split_once("\n--- new\n")?;
        let (what, file) = head.split_once("\nfile: ")?;
        let (what, finder) = match what.split_once("\nby: ") {
            None => (what, Finder::Simulation),
            Some((what, "zero copy")) => (what, Finder::ZeroCopy),
            Some(_) => return None,
        };
        Some(Self {
            name: name.to_owned(),
            what: what.trim().to_owned(),
            finder,
            file: PathBuf::from(file.trim()),
            old: old.to_owned(),
            new: new.strip_suffix('\n').unwrap_or(new).to_owned(),
        })
    }

    /// The file's text with the bug in it.
    fn apply(&self, text: &str) -> Outcome<String> {
        let count = text.matches(&self.old).count();
        if count != 1 || self.old == self.new {
            return Err(Failure::new(format!(
                "the planted bug {} applies in {count} places of {}",
                self.name,
                self.file.display()
            ))
            .remedy("bring its old text up to date"));
        }
        Ok(text.replacen(&self.old, &self.new, 1))
    }
}

/// All plants of this repository, by name.
fn plants(root: &Path) -> Outcome<Vec<Plant>> {
    let folder = root.join("tests/planted");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).doing(|| format!("read {}", folder.display()))? {
        let path = entry.doing(|| format!("read {}", folder.display()))?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        let plant = Plant::parse(&name, &text);
        found.push(plant.ok_or_else(|| Failure::new(format!("{} is no planted bug", path.display())))?);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// How a plant was found.
struct Found {
    /// The seed, or the reply.
    at: String,
    check: String,
    took: Duration,
}

/// Plants each bug, looks for it, and publishes the table; fails if one stays hidden.
pub(super) fn find(place: &Place) -> Outcome {
    let plants = plants(&place.root)?;
    let tree = place.target.join("planted/tree");
    copy(place, &tree)?;
    shell::say("the sources as they are:");
    for finder in [Finder::Simulation, Finder::ZeroCopy] {
        if let Some(found) = look(place, &tree, finder)? {
            return Err(Failure::new(format!("{} fails without a planted bug", found.at)));
        }
    }
    let mut rows = Vec::new();
    let mut hidden = Vec::new();
    for (done, plant) in plants.iter().enumerate() {
        shell::say(format!("\n{}: {}", plant.name, plant.what));
        let found = with(plant, &tree, || look(place, &tree, plant.finder))?;
        let (at, check, took) = match &found {
            Some(found) => (found.at.clone(), found.check.clone(), seconds(found.took)),
            None => ("not found".into(), "-".into(), "-".into()),
        };
        shell::say(format!("{}: {at}, {check}", plant.name));
        let file = plant.file.display().to_string();
        rows.push(vec![
            plant.name.clone(),
            plant.what.clone(),
            format!("`{file}`"),
            at,
            check,
            took,
        ]);
        hidden.extend(found.is_none().then(|| plant.name.clone()));
        report::publish_in(place, &BOOK, "planted", &section(&rows, done + 1, plants.len()))?;
    }
    match hidden.as_slice() {
        [] => Ok(()),
        names => Err(Failure::new(format!(
            "not found within {SEEDS} seeds: {}",
            names.join(", ")
        ))),
    }
}

/// The table so far: a run that was cut short says so.
fn section(rows: &[Vec<String>], done: usize, all: usize) -> String {
    let head = ["bug", "what it breaks", "in", "found at", "by check", "seconds"];
    format!(
        "## Planted bugs\n\n`cargo xtask sim --planted`: each bug of tests/planted alone in a copy of the sources, seeds from 0 \
         until one fails, {SEEDS} at most; what only a kernel shows is looked for by the zero-copy test of the ring. {done} of {all} bugs were planted.\n\n{}",
        report::table(&head, rows)
    )
}

fn seconds(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64())
}

/// Does something with the bug in the tree.
fn with<T>(plant: &Plant, tree: &Path, act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let path = tree.join(&plant.file);
    let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let write = |text: &str| fs::write(&path, text).doing(|| format!("write {}", path.display()));
    write(&plant.apply(&text)?)?;
    let result = act();
    write(&text)?;
    result
}

/// Builds the tree and looks for a failure; `None`: there is none.
fn look(place: &Place, tree: &Path, finder: Finder) -> Outcome<Option<Found>> {
    match finder {
        Finder::Simulation => simulate(place, tree),
        Finder::ZeroCopy => storm(place, tree),
    }
}

/// Builds the ring and sends replies until one comes damaged.
fn storm(place: &Place, tree: &Path) -> Outcome<Option<Found>> {
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["test", "--release", "--package", "zerohop-ring", "--test", "zero_copy"])
        .args([
            "--",
            "--exact",
            "no_byte_leaves_after_its_memory_was_used_again",
            "--nocapture",
        ])
        .env("RUST_BACKTRACE", "0")
        .current_dir(tree);
    let begun = Instant::now();
    let mut damaged = None;
    let status = shell::lines(cheap(&mut cargo, place), |line| {
        let told = line
            .split_once(": reply ")
            .and_then(|(_, rest)| rest.split_once(" came damaged"));
        if let Some((reply, _)) = told {
            damaged = Some(format!("reply {reply}"));
        }
        line.contains(" came damaged") || line.starts_with("error")
    })?;
    Ok((!status.success()).then(|| Found {
        at: damaged.unwrap_or_else(|| String::from("a reply")),
        check: "its hash".into(),
        took: begun.elapsed(),
    }))
}

/// Builds the tree and runs seeds until one fails; `None`: none does.
fn simulate(place: &Place, tree: &Path) -> Outcome<Option<Found>> {
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["test", "--release", "--package", "zerohop", "--lib", "--no-run"])
        .current_dir(tree);
    shell::run(cheap(&mut cargo, place))?;
    let mut cargo = Command::new(place::cargo());
    let seconds = PATIENCE.as_secs().to_string();
    cargo
        .args([
            "test",
            "--release",
            "--package",
            "zerohop",
            "--lib",
            "--",
            "--exact",
            TEST,
            "--nocapture",
        ])
        .env("ZEROHOP_SIM_SEEDS", format!("0..{}", SEEDS - 1))
        .env("ZEROHOP_SIM_TOLD", "1")
        .env("RUST_BACKTRACE", "0")
        .current_dir(tree);
    let mut limited = Command::new("timeout");
    limited
        .arg(&seconds)
        .arg(cargo.get_program())
        .args(cargo.get_args())
        .current_dir(tree);
    for (name, value) in cargo.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    let begun = Instant::now();
    let (mut running, mut failed) = (0, None);
    let status = shell::lines(cheap(&mut limited, place), |line| {
        if let Some(seed) = line.strip_prefix("seed ").and_then(|seed| seed.parse().ok()) {
            running = seed;
            return false;
        }
        let told = line
            .strip_prefix("SIMULATION FAILED seed=")
            .and_then(|rest| rest.split_once(" check="));
        if let Some((seed, check)) = told.and_then(|(seed, check)| Some((seed.parse().ok()?, check))) {
            failed = Some((seed, check.to_owned()));
        }
        told.is_some()
    })?;
    let found = |(seed, check): (u64, String)| Found {
        at: format!("seed {seed}"),
        check,
        took: begun.elapsed(),
    };
    Ok(match (failed, status.success()) {
        (Some(failed), _) => Some(found(failed)),
        (None, true) => None,
        // It hung, or broke in a way that unwinds nothing.
        (None, false) => Some(found((running, "the run does not end".into()))),
    })
}

/// Settings for a build that is used once: quick to build, quick enough to run, in the folder that all plants share.
fn cheap<'c>(command: &'c mut Command, place: &Place) -> &'c mut Command {
    command
        .env("CARGO_TARGET_DIR", place.target.join("planted/build"))
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64")
}

/// Copies the sources. Files that are the same keep their time, so that only what changed is built.
fn copy(place: &Place, tree: &Path) -> Outcome {
    for source in SOURCES {
        copy_all(&place.root.join(source), &tree.join(source))?;
    }
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> Outcome {
    if !from.is_dir() {
        let new = fs::read(from).doing(|| format!("read {}", from.display()))?;
        if fs::read(to).is_ok_and(|old| old == new) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).doing(|| format!("make {}", folder.display()))?;
        }
        return fs::write(to, new).doing(|| format!("write {}", to.display()));
    }
    for entry in fs::read_dir(from).doing(|| format!("read {}", from.display()))? {
        let name = entry.doing(|| format!("read {}", from.display()))?.file_name();
        if name != "node_modules" && name != "target" {
            copy_all(&from.join(&name), &to.join(&name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plant_is_read_and_applied() {
        let text = "the sum is one too many\nfile: a/b.rs\n--- old\n    1\n--- new\n    2\n";
        let plant = Plant::parse("sum", text).unwrap();
        assert_eq!(plant.what, "the sum is one too many");
        assert_eq!((plant.old.as_str(), plant.new.as_str()), ("    1", "    2"));
        assert_eq!(plant.apply("x\n    1\ny").unwrap(), "x\n    2\ny");
        for stale in ["x", "    1\n    1"] {
            assert!(plant.apply(stale).is_err(), "{stale}");
        }
        assert_eq!(Plant::parse("sum", "no plant"), None);
        let by = |finder: &str| Plant::parse("sum", &text.replace("many\n", &format!("many\nby: {finder}\n")));
        assert_eq!(by("zero copy").map(|plant| plant.finder), Some(Finder::ZeroCopy));
        assert_eq!(by("chance"), None);
    }

    #[test]
    fn every_planted_bug_applies_to_the_product() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let plants = plants(root).unwrap();
        assert!(plants.len() >= 10, "{} planted bugs", plants.len());
        for plant in plants {
            let text = fs::read_to_string(root.join(&plant.file)).unwrap();
            plant.apply(&text).unwrap();
            assert!(!plant.what.is_empty() && !plant.what.contains('\n'), "{}", plant.name);
        }
    }
}
