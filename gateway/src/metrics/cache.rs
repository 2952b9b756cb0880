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
    /// It was not asked.
    Bypass,
}

/// Every outcome, in the order of its declaration, with its label.
pub(super) const CACHE_OUTCOMES: [(CacheOutcome, &str); 3] = [
    (CacheOutcome::Hit, "hit"),
    (CacheOutcome::Miss, "miss"),
    (CacheOutcome::Bypass, "bypass"),
];

/// The families of the cache.
pub(super) fn render(text: &mut Text<'_>, workers: &[Arc<WorkerMetrics>], stats: Option<Stats>) {
    let Some(stats) = stats else { return };
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
    ] {
        family.add(&[("reason", reason)], count);
    }
    policy(text, &stats);
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
