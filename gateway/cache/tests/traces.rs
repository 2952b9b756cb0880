//! What the eviction is worth on public traces: never much below LRU, near S3-FIFO where people ask for pages, above LRU where
//! they talk to a model.
//!
//! The whole comparison is `cargo xtask bench traces`; here each trace is cut after its first 600,000 requests.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, missing_docs, unreachable_pub, dead_code)]

#[path = "../examples/traces/ours.rs"]
mod ours;
#[path = "../examples/traces/reference.rs"]
mod reference;
#[path = "../examples/traces/table.rs"]
mod table;
#[path = "../examples/traces/trace.rs"]
mod trace;

use reference::{Lru, Reference, S3Fifo, Sieve, TinyLfu};

/// Requests of a trace.
const MOST: usize = 600_000;

#[test]
fn hit_ratios_keep_their_limits() {
    let folder = match trace::folder() {
        Ok(folder) => folder,
        Err(reason) => return println!("SKIPPED hit_ratios_keep_their_limits: {reason}"),
    };
    let mut breaches = Vec::new();
    for known in &trace::KNOWN {
        let trace = known.read(&folder, MOST).expect("a trace that can be read");
        let trace = trace.unwrap_or_else(|| panic!("{} is not there", known.name));
        for percent in table::CAPACITIES {
            let line = table::held(known, &trace, percent);
            println!(
                "{} at {percent} %: LRU {:.2}, S3-FIFO {:.2}, ours {:.2} of {:.2}",
                line.trace, line.lru, line.s3_fifo, line.default, line.infinite
            );
            breaches.extend(line.breaches(known));
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

/// Each reference on requests that can be followed by hand.
#[test]
fn references_do_what_their_papers_say() {
    type Case = (&'static str, Box<dyn Reference>, &'static [u32], &'static str);
    let cases: [Case; 5] = [
        ("LRU", Box::new(Lru::new(2, 9)), &[0, 1, 0, 2, 0, 1], "mmhmhm"),
        // The hand spares 0, takes 1, goes on to 2.
        ("SIEVE", Box::new(Sieve::new(2, 9)), &[0, 1, 0, 2, 0, 1, 2], "mmhmhmm"),
        // 0 leaves the small queue as it came and is remembered; asked for again it is in the main one, and outlives 2 to 5.
        (
            "S3-FIFO",
            Box::new(S3Fifo::new(3, 9)),
            &[0, 1, 2, 3, 0, 4, 5, 6, 0],
            "mmmmmmmmh",
        ),
        // The window has one place, the main part two: what comes once does not push out what comes often.
        (
            "W-TinyLFU",
            Box::new(TinyLfu::new(3, 9)),
            &[0, 0, 1, 1, 2, 3, 4, 5, 0, 1],
            "mhmhmmmmhh",
        ),
        (
            "LRU of the same",
            Box::new(Lru::new(3, 9)),
            &[0, 0, 1, 1, 2, 3, 4, 5, 0, 1],
            "mhmhmmmmmm",
        ),
    ];
    for (name, mut policy, asked, expected) in cases {
        let told: String = asked
            .iter()
            .map(|key| if policy.ask(*key) { 'h' } else { 'm' })
            .collect();
        assert_eq!(told, expected, "{name}");
    }
}
