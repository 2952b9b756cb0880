//! Hit ratios of the cache on public traces, beside LRU, S3-FIFO, SIEVE and W-TinyLFU: `cargo xtask bench traces` runs it and
//! makes the table.
//!
//! Prints one JSON object a line: a trace at a capacity, with all ratios and the limits that were missed. Traces that are
//! not there are told on standard error. Invariant: what is measured is the cache as it is, driven step by step.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, missing_docs, unreachable_pub)]

mod ours;
mod reference;
mod table;
mod trace;

use serde_json::json;

use trace::{KNOWN, Outcome};

fn main() -> Outcome {
    let most = std::env::args().nth(1).map_or(Ok(usize::MAX), |most| most.parse())?;
    let folder = trace::folder()?;
    for other in trace::others(&folder)? {
        eprintln!("not replayed: {other}");
    }
    for known in &KNOWN {
        let Some(trace) = known.read(&folder, most)? else {
            eprintln!("absent: {}", known.name);
            continue;
        };
        for percent in table::CAPACITIES {
            let held = table::held(known, &trace, percent);
            let others = table::others(&trace, held.capacity);
            let line = json!({
                "trace": held.trace, "requests": held.requests, "distinct": held.distinct, "percent": held.percent,
                "capacity": held.capacity, "lru": held.lru, "s3_fifo": held.s3_fifo, "sieve": others.sieve,
                "tiny_lfu": others.tiny_lfu, "infinite": held.infinite, "literal": others.literal,
                "never": others.never, "always": others.always, "default": held.default, "on": held.on,
                "breaches": held.breaches(known),
            });
            println!("{line}");
        }
    }
    Ok(())
}
