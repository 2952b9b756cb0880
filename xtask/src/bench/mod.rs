//! Measurements, with their tables in bench/RESULTS.md.
//!
//! Nothing here passes or fails by a figure. Invariant: everything that is compared was measured in one interleaved run
//! on the same cores, and the table says how, with the spread.

mod http;
mod load;
mod report;
mod server;
mod statistics;

use clap::Subcommand;

use crate::{failure::Outcome, place::Place};

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Constant replies over HTTP: nginx, the bare ring, and zerohop on the same core, loaded by wrk from another
    ///
    /// Needs two cores, and Debian's packages nginx-light, wrk and util-linux (taskset).
    Http(http::Options),
}

/// Measures.
pub(crate) fn bench(place: &Place, bench: &Bench) -> Outcome {
    match bench {
        Bench::Http(options) => http::bench(place, options),
    }
}
