//! Whole workers on the simulated network: one seed, one run, every step checked.
//!
//! [`world`] drives, [`plan`] is what a seed decides, [`clients`] says which outcomes are right, [`checks`] what must hold
//! inside after every turn, [`coverage`] which operations met which faults. [`stories`] are single runs that tell of bugs.
//!
//! The environment: `ZEROHOP_SIM_SEEDS` (`N` or `A..B`) runs these seeds instead of the fixed and the fresh ones,
//! `ZEROHOP_SIM_TRACE=1` prints everything that happens, `ZEROHOP_SIM_TOLD=1` each seed before it runs,
//! `ZEROHOP_SIM_TABLE` names a file for the coverage table, and `ZEROHOP_LONG=1` runs fresh seeds for an hour.
//! `cargo xtask sim` sets them.

mod checks;
mod clients;
mod coverage;
mod engine;
mod facts;
mod plan;
mod replies;
mod requests;
mod stories;
mod world;

use std::{
    any::Any,
    env,
    fmt::Display,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    time::{Duration, Instant},
};

use self::{
    coverage::Table,
    world::{Summary, World},
};

/// Seeds of every test run, the same each time.
const FIXED: Range<u64> = 0..1_000;
/// So many seeds at most are looked at for a cell of the coverage that the fixed ones did not meet.
const MOST: u64 = 4_000;
/// Fresh seeds of every test run.
const FRESH: u64 = 100;
/// How long a long run goes on with fresh seeds.
const LONG: Duration = Duration::from_secs(3600);

/// Chance of all that is not the network: SplitMix64.
#[derive(Debug)]
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A check has found something.
fn fail(check: &str, what: impl Display) -> ! {
    panic!("check {check}: {what}")
}

/// Fails the check of this name, with these words, unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $check:literal, $($words:tt)+) => {
        if !$holds {
            $crate::worker::sim_tests::fail($check, format_args!($($words)+))
        }
    };
}
use ensure;

/// Prints a line for whoever runs the tests.
#[expect(clippy::print_stdout, reason = "what a run met is its result")]
fn say(line: impl Display) {
    println!("{line}");
}

/// Which commit this is, as far as git can tell.
fn commit() -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match described {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown (no git here)".into(),
    }
}

/// The words of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no words")
}

/// Runs a seed; a failure is told with all that is needed to repeat it.
fn run(seed: u64) -> Summary {
    let traced = env::var_os("ZEROHOP_SIM_TRACE").is_some_and(|value| !value.is_empty());
    if env::var_os("ZEROHOP_SIM_TOLD").is_some() {
        say(format_args!("seed {seed}"));
    }
    let world = World::new(seed);
    let net = world.net.clone();
    if traced {
        net.keep_trace();
    }
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    net.take_trace().iter().for_each(say);
    result.unwrap_or_else(|panic| {
        let words = words(&*panic);
        let check = words.strip_prefix("check ").and_then(|rest| rest.split_once(": "));
        let (check, words) = check.unwrap_or(("panic", words));
        say(format_args!("SIMULATION FAILED seed={seed} check={check}"));
        panic!(
            "seed {seed} at commit {}: check {check}: {words}\nto repeat it: cargo xtask sim --seed {seed}",
            commit()
        )
    })
}

/// The seeds that the environment asks for.
fn asked() -> Option<Range<u64>> {
    let text = env::var("ZEROHOP_SIM_SEEDS").ok().filter(|text| !text.is_empty())?;
    let number = |text: &str| text.parse::<u64>().expect("ZEROHOP_SIM_SEEDS is N or A..B");
    Some(match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    })
}

fn runs(seeds: Range<u64>) -> Table {
    let mut table = Table::default();
    seeds.for_each(|seed| table.add(&run(seed).table));
    table
}

#[test]
fn fixed_seeds() {
    let seeds = asked().unwrap_or(FIXED);
    let mut table = runs(seeds.clone());
    say(format_args!(
        "seeds {}..{}: {} runs, {} requests answered\n{table}",
        seeds.start, seeds.end, table.runs, table.requests
    ));
    if let Some(path) = env::var_os("ZEROHOP_SIM_TABLE") {
        std::fs::write(path, table.to_string()).expect("a place for the table");
    }
    say(format_args!(
        "answers met: {:?} of {:?}",
        table.seldom,
        coverage::SELDOM
    ));
    let surprising = table.surprising();
    assert!(
        surprising.is_empty(),
        "cells that are called impossible were met: {surprising:?}"
    );
    if seeds.end - seeds.start < FIXED.end {
        return;
    }
    // A change of the product changes what a seed meets: then a rare cell may be met a little later.
    let mut next = seeds.end;
    while !table.missing().is_empty() && next < seeds.start + MOST {
        say(format_args!("not met before seed {next}: {:?}", table.missing()));
        table.add(&runs(next..next + 500));
        next += 500;
    }
    assert!(table.missing().is_empty(), "no run met: {:?}", table.missing());
}

#[test]
fn fresh_seeds() {
    if asked().is_some() {
        return say("other seeds were asked for");
    }
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("entropy");
    // Numbers that a person can type, far from the fixed ones.
    let base = 1_000_000 + u64::from_le_bytes(bytes) % 1_000_000_000;
    say(format_args!("fresh seeds from {base}"));
    let begun = Instant::now();
    let long = env::var_os("ZEROHOP_LONG").is_some_and(|value| value == "1");
    let mut count = 0;
    while count < FRESH || long && begun.elapsed() < LONG {
        run(base + count);
        count += 1;
    }
    say(format_args!("{count} fresh seeds passed"));
}

#[test]
fn a_seed_replays() {
    for seed in 0..12 {
        assert_eq!(run(seed).digest, run(seed).digest, "seed {seed}");
    }
}
