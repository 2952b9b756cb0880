//! `cargo xtask`: everything that is done to the project, from a first run to a benchmark.
//!
//! Nothing here is part of the product. Invariant: a task that cannot do its work says why and what would help, and
//! exits with 1.
#![forbid(unsafe_code)]

mod bench;
mod cuda;
mod differential;
mod ebpf;
mod failure;
mod fuzz;
mod harness;
mod model;
mod npm;
mod place;
mod python;
mod run;
mod setup;
mod shell;
mod sim;
mod test;
mod tidy;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{failure::Outcome, place::Place};

/// Everything that is done to zerohop. Start with `cargo xtask run`.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Set up, build, and serve the bundled model on 127.0.0.1:8080
    ///
    /// With --demo it serves on a free port instead, sends one request in each dialect, streams the answers to the
    /// terminal and stops; with --prompt it answers one prompt without a server.
    Run(run::Options),
    /// Check format, lints and house rules, then run every test suite
    ///
    /// Rust tests run in release with cargo-nextest where it is installed, with `cargo test` otherwise; then the
    /// official SDKs talk to the built gateway. Needs Python 3.11 with pip, and npm.
    Test(test::Options),
    /// Fetch ONNX Runtime (once) into the target folder
    ///
    /// A library that is already there is taken first: the one that ORT_DYLIB_PATH names, then that of python3's
    /// onnxruntime package. Otherwise pip downloads a pinned wheel, whose library is checked against a pinned sum.
    ///
    /// With --cuda DIR it fetches the one with the CUDA provider instead, and NVIDIA's libraries beside it (some 1 GB).
    Setup(setup::Options),
    /// Make a model: a bundled one, or a directory of published weights
    #[command(subcommand)]
    Model(model::Model),
    /// Measure, and write the table into bench/RESULTS.md
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Play the table of hostile clients against the gateway, nginx and llhttp, and write bench/DIFFERENTIAL.md
    ///
    /// Fails on a difference that tests/hostile/differences.txt does not list, and on a listed one that is gone. Needs
    /// nginx (Debian: nginx-light), and node with npm.
    Differential,
    /// Run the fuzz targets under libFuzzer, a minute each, or one of them
    ///
    /// Needs a C++ compiler (Debian: build-essential), and no other than the usual Rust.
    Fuzz(fuzz::Options),
    /// Build the programs for the kernel (ebpf/), and commit what comes of it to ebpf/objects
    ///
    /// Needs another compiler than the rest, for another target; without --install nothing is installed, and what is
    /// missing is told.
    Ebpf(ebpf::Options),
    /// Run simulated workers by seed
    ///
    /// Without options: the fixed seeds, with their coverage written into bench/SIMULATION.md.
    Sim(sim::Options),
    /// Show, set and take back what a host's kernel needs for the gateway
    ///
    /// A profile of tuning/ says which values are wanted; docs/tuning.md has the rest.
    #[command(subcommand)]
    Tune(tune::Tune),
    /// Check the house rules that no compiler checks: headers, file lengths, layering, forbidden words
    Tidy,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match perform(&arguments.task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.show();
            ExitCode::FAILURE
        }
    }
}

fn perform(task: &Task) -> Outcome {
    let place = Place::find;
    match task {
        Task::Run(options) => run::run(&place()?, options),
        Task::Test(options) => test::test(&place()?, options),
        Task::Setup(options) => setup::perform(&place()?, options),
        Task::Model(model) => model::make(&place()?, model),
        Task::Bench(bench) => {
            let place = place()?;
            harness::guarded(|| bench::bench(&place, bench))
        }
        Task::Differential => {
            let place = place()?;
            harness::guarded(|| differential::differential(&place))
        }
        Task::Fuzz(options) => fuzz::fuzz(&place()?, options),
        Task::Ebpf(options) => ebpf::ebpf(&place()?, options),
        Task::Sim(options) => sim::sim(&place()?, options),
        // Root, as a rule, has no cargo to ask for a place.
        Task::Tune(tune) => tune::tune(place::repository()?, tune),
        Task::Tidy => tidy::tidy(&place()?),
    }
}
