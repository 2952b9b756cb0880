//! One line of the comparison: a trace at a capacity, by every policy, and the limits that ours has to keep.
//!
//! Invariant: all policies get the same requests and the same room.

use zerohop_cache::Probation;

use super::{
    ours::{Setting, replay},
    reference::{Lru, Reference, S3Fifo, Sieve, TinyLfu},
    trace::{Known, Trace},
};

/// Capacities, in percent of the keys of a trace.
pub const CAPACITIES: [usize; 2] = [5, 10];

/// Hit ratios of a trace, in percent: ours, and those that it is held to.
pub struct Held {
    pub trace: &'static str,
    pub requests: usize,
    pub distinct: usize,
    pub percent: usize,
    pub capacity: usize,
    pub lru: f64,
    pub s3_fifo: f64,
    /// Of a cache without bound.
    pub infinite: f64,
    /// As the gateway has it by default: the shadows decide.
    pub default: f64,
    /// Share of the requests, in percent, during which they decided for probation.
    pub on: f64,
}

/// The others.
pub struct Others {
    pub sieve: f64,
    pub tiny_lfu: f64,
    /// Heat by the rule as written.
    pub literal: f64,
    /// With an adaptive half-life, never with probation.
    pub never: f64,
    /// And always.
    pub always: f64,
}

fn ratio(hits: u64, trace: &Trace) -> f64 {
    100.0 * hits as f64 / trace.requests.len().max(1) as f64
}

fn reference(trace: &Trace, mut policy: impl Reference) -> f64 {
    let hits = trace.requests.iter().filter(|request| policy.ask(request.key));
    ratio(hits.count() as u64, trace)
}

/// Measures ours by default at `percent` of the keys, and what it is held to.
pub fn held(known: &Known, trace: &Trace, percent: usize) -> Held {
    let (requests, distinct) = (trace.requests.len(), trace.distinct);
    let capacity = (distinct * percent / 100).max(1);
    let setting = Setting {
        literal: false,
        probation: Probation::Auto,
    };
    let told = replay(trace, capacity, setting);
    Held {
        trace: known.name,
        requests,
        distinct,
        percent,
        capacity,
        lru: reference(trace, Lru::new(capacity, distinct)),
        s3_fifo: reference(trace, S3Fifo::new(capacity, distinct)),
        infinite: ratio((requests - distinct) as u64, trace),
        default: ratio(told.hits, trace),
        on: told.on,
    }
}

/// Measures the others in the same room.
pub fn others(trace: &Trace, capacity: usize) -> Others {
    let ours = |literal, probation| ratio(replay(trace, capacity, Setting { literal, probation }).hits, trace);
    Others {
        sieve: reference(trace, Sieve::new(capacity, trace.distinct)),
        tiny_lfu: reference(trace, TinyLfu::new(capacity, trace.distinct)),
        literal: ours(true, Probation::Off),
        never: ours(false, Probation::Off),
        always: ours(false, Probation::On),
    }
}

impl Held {
    /// Limits that the default does not keep here, each as a sentence.
    pub fn breaches(&self, known: &Known) -> Vec<String> {
        let limits = [
            (true, "LRU - 1", self.lru - 1.0),
            (known.web, "S3-FIFO - 2", self.s3_fifo - 2.0),
            (known.model, "LRU + 0.5", self.lru + 0.5),
        ];
        let broken = limits
            .iter()
            .filter(|(holds, _, limit)| *holds && self.default < *limit);
        let told = broken.map(|(_, name, limit)| {
            let (trace, percent, own) = (self.trace, self.percent, self.default);
            format!("{trace} at {percent} %: {own:.2} is below {name} = {limit:.2}")
        });
        told.collect()
    }
}
