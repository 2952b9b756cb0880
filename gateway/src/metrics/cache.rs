//! What is shown of the cache of answers.
//!
//! Invariant: without a cache nothing of it is shown.

use std::sync::Arc;

use zerohop_cache::Stats;

use super::{
    WorkerMetrics,
    render::sum,
    text::{Kind, Text},
};

/// What the cache was to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheOutcome {
    /// It answered.
    Hit,
    /// It had nothing.
    Miss,
    /// It had nothing, and the answer was being made for another request, which this one followed.
    Join,
    /// It was not asked.
    Bypass,
}

/// Every outcome, in the order of its declaration, with its label.
pub(super) const CACHE_OUTCOMES: [(CacheOutcome, &str); 4] = [
    (CacheOutcome::Hit, "hit"),
    (CacheOutcome::Miss, "miss"),
    (CacheOutcome::Join, "join"),
    (CacheOutcome::Bypass, "bypass"),
];

/// What a request was to a generation that others can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlightPart {
    /// It led: the generation is its own.
    Leader,
    /// It followed.
    Follower,
    /// It followed one that failed, and led the next.
    Promoted,
    /// It shared nothing, since there was no place, or since it may follow nobody.
    Alone,
}

/// Every part, in the order of its declaration, with its label.
pub(super) const FLIGHT_PARTS: [(FlightPart, &str); 4] = [
    (FlightPart::Leader, "leader"),
    (FlightPart::Follower, "follower"),
    (FlightPart::Promoted, "promoted"),
    (FlightPart::Alone, "alone"),
];

/// The families of generations that requests share.
fn flights(text: &mut Text<'_>, workers: &[Arc<WorkerMetrics>], open: u64) {
    let mut family = text.family(
        "zerohop_flight_requests_total",
        Kind::Counter,
        "Requests that might share a generation, by what each was to it; who is promoted was a follower before.",
    );
    for (part, name) in FLIGHT_PARTS {
        let count = sum(workers, |worker| worker.flights[part as usize].get());
        family.add(&[("part", name)], count);
    }
    text.family(
        "zerohop_flight_orphans_total",
        Kind::Counter,
        "Generations that went on without their own client, since others followed.",
    )
    .add(&[], sum(workers, |worker| worker.orphans.get()));
    text.family(
        "zerohop_flights_open",
        Kind::Gauge,
        "Generations that a request which asks the same would follow.",
    )
    .add(&[], open);
}

/// The families of the cache; `open` counts the flights that can be joined.
pub(super) fn render(text: &mut Text<'_>, workers: &[Arc<WorkerMetrics>], stats: Option<Stats>, open: usize) {
    let Some(stats) = stats else { return };
    flights(text, workers, open as u64);
    let mut family = text.family(
        "zerohop_cache_requests_total",
        Kind::Counter,
        "Chat requests, by what the cache of answers was to them.",
    );
    for (outcome, name) in CACHE_OUTCOMES {
        let count = sum(workers, |worker| worker.cache[outcome as usize].get());
        family.add(&[("result", name)], count);
    }
    let gauges = [
        ("zerohop_cache_entries", "Answers that are kept.", stats.entries),
        (
            "zerohop_cache_bytes",
            "Bytes that they cost, of the bound.",
            stats.bytes,
        ),
        ("zerohop_cache_pinned", "Answers that are pinned.", stats.pinned),
        (
            "zerohop_cache_waiting_bytes",
            "Bytes of answers that wait for the cache's writer.",
            stats.waiting_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        text.family(name, Kind::Gauge, help).add(&[], value);
    }
    let mut family = text.family(
        "zerohop_cache_puts_total",
        Kind::Counter,
        "Answers to be kept, by what became of them.",
    );
    for (result, count) in [
        ("kept", stats.puts),
        ("writer_behind", stats.puts_refused),
        ("too_large", stats.puts_too_large),
    ] {
        family.add(&[("result", result)], count);
    }
    let mut family = text.family(
        "zerohop_cache_removed_total",
        Kind::Counter,
        "Answers removed, by the reason.",
    );
    for (reason, count) in [
        ("bucket_full", stats.evicted_bucket),
        ("size", stats.evicted_size),
        ("purged", stats.purged),
    ] {
        family.add(&[("reason", reason)], count);
    }
}
