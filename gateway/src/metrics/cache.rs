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
            "zerohop_cache_probation",
            "1 while new answers are on probation.",
            stats.probation,
        ),
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
        ("part", stats.evicted_part),
        ("lost", stats.lost),
    ] {
        family.add(&[("reason", reason)], count);
    }
    policy(text, &stats);
    // An open cache on disk has an index at least.
    if stats.disk_bytes > 0 {
        on_disk(text, workers, &stats);
    }
}

/// The families of a cache on disk.
fn on_disk(text: &mut Text<'_>, workers: &[Arc<WorkerMetrics>], stats: &Stats) {
    let mut family = text.family(
        "zerohop_cache_reads_total",
        Kind::Counter,
        "Stored answers read from their part for a request, by whether they came in time and whole.",
    );
    for (done, result) in [(1, "ok"), (0, "failed")] {
        let count = sum(workers, |worker| worker.cache_reads[done].get());
        family.add(&[("result", result)], count);
    }
    let gauges = [
        (
            "zerohop_cache_disk_bytes",
            "Bytes of the cache's files.",
            stats.disk_bytes,
        ),
        (
            "zerohop_cache_hot_bytes",
            "Bytes of sealed answers that also lie in memory.",
            stats.hot_bytes,
        ),
        ("zerohop_cache_parts", "Parquet parts.", stats.parts),
    ];
    for (name, help, value) in gauges {
        text.family(name, Kind::Gauge, help).add(&[], value);
    }
    let mut family = text.family(
        "zerohop_cache_written_bytes_total",
        Kind::Counter,
        "Bytes written to the cache's files, by kind; divided by the appended bytes: the write amplification.",
    );
    for (file, count) in [
        ("segment", stats.segment_bytes_written),
        ("part", stats.part_bytes_written),
        ("index", stats.index_bytes_written),
    ] {
        family.add(&[("file", file)], count);
    }
    let counters = [
        (
            "zerohop_cache_appended_bytes_total",
            "Bytes of answers appended to segments.",
            stats.appended_bytes,
        ),
        ("zerohop_cache_seals_total", "Segments sealed.", stats.seals),
        (
            "zerohop_cache_compactions_total",
            "Parts made of what lived in older ones.",
            stats.compactions,
        ),
        ("zerohop_cache_commits_total", "Commits of the index.", stats.commits),
        (
            "zerohop_cache_disk_errors_total",
            "Failures of the cache's files.",
            stats.disk_errors,
        ),
    ];
    for (name, help, value) in counters {
        text.family(name, Kind::Counter, help).add(&[], value);
    }
}

/// What the eviction says of itself.
fn policy(text: &mut Text<'_>, stats: &Stats) {
    let mut family = text.family(
        "zerohop_cache_proved_total",
        Kind::Counter,
        "Answers that need no probation any more: asked for while on it, or made again soon after it.",
    );
    for (how, count) in [("promoted", stats.promoted), ("returned", stats.returned)] {
        family.add(&[("how", how)], count);
    }
    let mut family = text.family(
        "zerohop_cache_shadow_hit_ratio",
        Kind::Gauge,
        "Hit ratio of the shadow caches with probation and without, when they were compared last.",
    );
    for (probation, hits) in [("on", stats.shadow_hits_with), ("off", stats.shadow_hits_without)] {
        family.add_ratio(&[("probation", probation)], hits, stats.shadow_looks);
    }
    text.family(
        "zerohop_cache_shadow_lost_total",
        Kind::Counter,
        "Hits that the shadow caches did not see, since the writer was behind.",
    )
    .add(&[], stats.shadow_lost);
}
