//! `cargo xtask sim`: the simulated workers by seed, their coverage, and the planted bugs that they must find.
//!
//! The simulation itself is a test of the product (`gateway/src/worker/sim_tests/`); this starts it and publishes what it
//! tells. Invariant: a figure in bench/SIMULATION.md was printed by the run that wrote it.

mod planted;

use std::{fs, process::Command};

use clap::Args;

use crate::{
    bench::report,
    failure::{Doing, Failure, Outcome},
    place::{self, Place},
    shell,
};

/// Seeds of the published table: those of every test run.
const FIXED: &str = "0..1000";
/// The test that runs seeds.
const TEST: &str = "worker::sim_tests::fixed_seeds";
/// Where the tables go.
const BOOK: report::Book = report::Book {
    path: "bench/SIMULATION.md",
    opening: "# Simulation\n\nWritten by `cargo xtask sim`. What is simulated and checked: \
              [gateway/src/worker/sim_tests/](../gateway/src/worker/sim_tests/mod.rs).\n",
};

/// Arguments of `sim`.
#[derive(Args)]
#[group(multiple = false)]
pub(crate) struct Options {
    /// Run this seed and print everything that happens
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run these seeds
    #[arg(long, value_name = "A..B")]
    seeds: Option<String>,
    /// Plant the bugs of tests/planted one at a time, and see that each is found
    #[arg(long)]
    planted: bool,
}

/// Runs what was asked for; without options the fixed seeds, whose coverage is published.
pub(crate) fn sim(place: &Place, options: &Options) -> Outcome {
    if let Some(seed) = options.seed {
        return shell::run(run(place, &seed.to_string()).env("ZEROHOP_SIM_TRACE", "1"));
    }
    if let Some(seeds) = &options.seeds {
        let numbers = seeds
            .split_once("..")
            .map(|(from, to)| (from.parse::<u64>(), to.parse::<u64>()));
        if !matches!(numbers, Some((Ok(from), Ok(to))) if from < to) {
            return Err(Failure::new(format!("{seeds} is no range of seeds")).remedy("--seeds 0..1000"));
        }
        return shell::run(&mut run(place, seeds));
    }
    if options.planted {
        return planted::find(place);
    }
    let table = place.target.join("sim-table.md");
    shell::run(run(place, FIXED).env("ZEROHOP_SIM_TABLE", &table))?;
    let table = fs::read_to_string(&table).doing(|| format!("read {}", table.display()))?;
    report::publish_in(place, &BOOK, "coverage", &coverage(&table))
}

/// The simulation of these seeds, ready to start.
fn run(place: &Place, seeds: &str) -> Command {
    let mut cargo = Command::new(place::cargo());
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
        .env("ZEROHOP_SIM_SEEDS", seeds)
        .current_dir(&place.root);
    cargo
}

fn coverage(table: &str) -> String {
    format!(
        "## Coverage\n\n`cargo xtask sim`, seeds {FIXED}. A cell counts how often an operation was done on a connection \
         that a fault had struck, strikes at the operation itself included. A cell without a number cannot be met, by the \
         rule below the table; any other that stays at zero fails the tests.\n\n{table}"
    )
}
