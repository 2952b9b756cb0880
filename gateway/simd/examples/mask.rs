//! How long it takes to find what a mask allows in a row of logits: `cargo xtask bench mask` runs it and makes the table.
//!
//! Prints one JSON object a line, with a time in nanoseconds for each round. CPU time of this thread; a round measures
//! every row once, so that what disturbs the machine disturbs all alike. Invariant: the allowed tokens lie at random
//! places, the same in every run, so that no branch can be foreseen.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use zerohop_simd::{Level, floor_of_best};

const VOCABULARIES: [usize; 3] = [32_768, 131_072, 262_144];

/// How long one measurement takes, about.
const SLICE_NANOS: u64 = 200_000;

/// One row of the table.
struct Case {
    level: Level,
    work: Work,
    logits: Vec<f32>,
    allowed: usize,
    mask: Option<Vec<u32>>,
    nanos: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// The best allowed token.
    Greedy,
    /// That, and the best 40, from which a token is drawn with `top_k`.
    Best,
    /// The best token, and the sums of all weights, from which a token is drawn.
    Weights,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Best => "best 40",
            Self::Weights => "weights",
        }
    }
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(20, |rounds| rounds.parse().expect("ROUNDS"));
    for vocabulary in VOCABULARIES {
        let mut cases = cases(vocabulary);
        let repeats: Vec<u64> = cases.iter().map(repeats).collect();
        for _ in 0..rounds {
            for (case, &repeats) in cases.iter_mut().zip(&repeats) {
                let nanos = nanos(case, repeats);
                case.nanos.push(nanos);
            }
        }
        for case in cases {
            println!(
                r#"{{"vocabulary":{vocabulary},"allowed":{},"masked":{},"level":"{}","work":"{}","nanos":{:?}}}"#,
                case.allowed,
                case.mask.is_some(),
                case.level.name(),
                case.work.name(),
                case.nanos
            );
        }
    }
}

fn cases(vocabulary: usize) -> Vec<Case> {
    let mut chance = Chance(1);
    let logits: Vec<f32> = (0..vocabulary)
        .map(|_| chance.next() as f32 / (1u64 << 60) as f32 - 8.0)
        .collect();
    let mut ids: Vec<usize> = (0..vocabulary).collect();
    for at in (1..vocabulary).rev() {
        ids.swap(at, (chance.next() % (at as u64 + 1)) as usize);
    }
    let mut cases = Vec::new();
    for level in Level::all() {
        for work in [Work::Greedy, Work::Best, Work::Weights] {
            for allowed in [Some(5), Some(5001), Some(vocabulary / 2), None] {
                let mask = allowed.map(|allowed| {
                    let mut mask = vec![0; vocabulary / 32];
                    for &id in &ids[..allowed] {
                        mask[id / 32] |= 1 << (id % 32);
                    }
                    mask
                });
                cases.push(Case {
                    level,
                    work,
                    logits: logits.clone(),
                    allowed: allowed.unwrap_or(vocabulary),
                    mask,
                    nanos: Vec::new(),
                });
            }
        }
    }
    cases
}

fn run(case: &Case, maxima: &mut Vec<f32>, sums: &mut Vec<f32>, ids: &mut Vec<u32>) {
    let mask = case.mask.as_deref();
    let (id, best) = case
        .level
        .greatest(&case.logits, mask, maxima)
        .expect("an allowed token");
    black_box(id);
    match case.work {
        Work::Greedy => {}
        Work::Best => {
            ids.clear();
            let floor = floor_of_best(maxima, 40);
            case.level.reaching(&case.logits, mask, maxima, floor, ids);
            black_box(&ids);
        }
        Work::Weights => {
            case.level.sums(&case.logits, mask, best, 1.0, sums);
            black_box(&sums);
        }
    }
}

/// How often to run within one measurement.
fn repeats(case: &Case) -> u64 {
    let once = nanos(case, 5).max(1.0) as u64;
    (SLICE_NANOS / once.max(1)).max(1)
}

/// CPU time of one run, in nanoseconds; the row is in the cache as a run of the model leaves it.
fn nanos(case: &Case, repeats: u64) -> f64 {
    let (mut maxima, mut sums, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    run(case, &mut maxima, &mut sums, &mut ids);
    let begun = cpu();
    for _ in 0..repeats {
        run(case, &mut maxima, &mut sums, &mut ids);
    }
    (cpu() - begun) as f64 / repeats as f64
}

/// CPU time of this thread so far, in nanoseconds.
fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A linear congruential generator (Knuth's MMIX), of which the upper bits are used.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 1 & ((1 << 63) - 1)
    }
}
