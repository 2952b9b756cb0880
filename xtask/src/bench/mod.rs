//! Measurements, with their tables in bench/RESULTS.md.
//!
//! Nothing here passes or fails by a figure. Invariant: everything that is compared was measured in one interleaved run
//! on the same cores, and the table says how, with the spread.

mod cache;
mod engine;
mod example;
mod grammar;
mod http;
mod index;
mod load;
mod mask;
mod memory;
mod own;
mod parse;
pub(crate) mod report;
mod segment;
mod server;
mod statistics;
mod traces;
mod zero_copy;

use clap::Subcommand;

use crate::{failure::Outcome, place::Place};

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// The engine against llama.cpp on Gemma 3 270M: prefill, and decode in batches of 1 to 16
    ///
    /// Fetches the model (240 MB, Gemma's terms) and compiles llama.cpp once (ten minutes of CPU time). Needs Python 3.11
    /// with pip, and a C++ compiler (Debian: build-essential). With --own it needs none of that.
    Engine(engine::Options),
    /// Constant replies over HTTP: nginx, the bare ring, and zerohop on the same core, loaded by wrk from another
    ///
    /// Needs two cores, and Debian's packages nginx-light, wrk and util-linux (taskset).
    Http(http::Options),
    /// Stored answers in files: a Zipf mix against one hot answer, and hot answers beside reads of cold parts
    ///
    /// Needs two cores, and Debian's packages wrk and util-linux (taskset).
    Cache(cache::Options),
    /// Resident memory with thousands of clients that hold on to it, and after they have gone
    Memory(memory::Options),
    /// Large replies: copied, vectored and without a copy, over loopback and (as root) over a pair of virtual cards
    ///
    /// Needs two cores.
    Zc(zero_copy::Options),
    /// Requests read: ours, and the parsers that could be used instead
    ///
    /// Needs Debian's package util-linux (taskset).
    Parse(parse::Options),
    /// Masks and greedy sampling over rows of logits, by every set of instructions
    ///
    /// Needs Debian's package util-linux (taskset).
    Mask(mask::Options),
    /// Masks of grammars: time a token for five schemas, over a small and a large vocabulary
    ///
    /// Needs Debian's package util-linux (taskset).
    Grammar(grammar::Options),
    /// Look-ups in the cache's index of a million entries, against LMDB and redb; a commit, and opening
    ///
    /// Needs Debian's package util-linux (taskset), a C compiler, and 1 GB where temporary files go.
    Index(index::Options),
    /// Hit ratios of the cache on public traces, beside LRU, S3-FIFO, SIEVE and W-TinyLFU
    ///
    /// Needs Debian's package util-linux (taskset), and the traces in the folder that ZEROHOP_TEST_DATA names.
    Traces(traces::Options),
    /// The cache's values on disk: a full log replayed, sealed in both forms, and values read
    ///
    /// Needs Debian's package util-linux (taskset), and 200 MB where temporary files go.
    Segment(segment::Options),
}

/// Measures.
pub(crate) fn bench(place: &Place, bench: &Bench) -> Outcome {
    match bench {
        Bench::Engine(options) => engine::bench(place, options),
        Bench::Http(options) => http::bench(place, options),
        Bench::Cache(options) => cache::bench(place, options),
        Bench::Memory(options) => memory::bench(place, options),
        Bench::Zc(options) => zero_copy::bench(place, options),
        Bench::Parse(options) => parse::bench(place, options),
        Bench::Mask(options) => mask::bench(place, options),
        Bench::Grammar(options) => grammar::bench(place, options),
        Bench::Index(options) => index::bench(place, options),
        Bench::Traces(options) => traces::bench(place, options),
        Bench::Segment(options) => segment::bench(place, options),
    }
}

/// Processor and kernel, for the reader of the table.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or(": an unnamed processor");
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    format!("{}, Linux {kernel}", model.trim_start_matches([' ', '\t', ':']))
}
