//! One line of the comparison: a trace at a capacity, by every policy, and the limits that ours has to keep.
//!
//! Invariant: all policies get the same requests and the same room.

use zerohop_cache::Probation;

use super::{
    ours::{Setting, Told, replay},
    reference::{Lru, Reference, S3Fifo, Sieve, TinyLfu},
    trace::{Known, Trace},
};

/// Capacities, in percent of the keys of a trace.
pub const CAPACITIES: [usize; 2] = [5, 10];

/// Hit ratios of a trace, in percent.
pub struct Line {
    pub trace: &'static str,
    pub requests: usize,
    pub distinct: usize,
    pub percent: usize,
    pub capacity: usize,
    pub lru: f64,
    pub s3_fifo: f64,
    pub sieve: f64,
    pub tiny_lfu: f64,
    /// Of a cache without bound.
    pub infinite: f64,
    /// Heat by the rule as written.
    pub literal: f64,
    /// With an adaptive half-life, never with probation.
    pub never: f64,
    /// And always.
    pub always: f64,
    /// As the gateway has it by default: the shadows decide.
    pub default: f64,
    /// Share of the requests, in percent, during which they decided for probation.
    pub on: f64,
}

/// Measures a trace at `percent` of its keys.
pub fn line(known: &Known, trace: &Trace, percent: usize) -> Line {
    let (requests, keys) = (trace.requests.len(), trace.distinct);
    let capacity = (keys * percent / 100).max(1);
    let ratio = |hits: u64| 100.0 * hits as f64 / requests.max(1) as f64;
    let of = |mut policy: Box<dyn Reference>| {
        let asked = trace.requests.iter();
        ratio(asked.filter(|request| policy.ask(request.key)).count() as u64)
    };
    let told = |literal, probation| -> Told { replay(trace, capacity, Setting { literal, probation }) };
    let default = told(false, Probation::Auto);
    Line {
        trace: known.name,
        requests,
        distinct: keys,
        percent,
        capacity,
        lru: of(Box::new(Lru::new(capacity, keys))),
        s3_fifo: of(Box::new(S3Fifo::new(capacity, keys))),
        sieve: of(Box::new(Sieve::new(capacity, keys))),
        tiny_lfu: of(Box::new(TinyLfu::new(capacity, keys))),
        infinite: ratio((requests - keys) as u64),
        literal: ratio(told(true, Probation::Off).hits),
        never: ratio(told(false, Probation::Off).hits),
        always: ratio(told(false, Probation::On).hits),
        default: ratio(default.hits),
        on: default.on,
    }
}

impl Line {
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
