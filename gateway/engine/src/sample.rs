//! The next token from a row of logits.
//!
//! It knows nothing of batches: a draw depends on the logits, the job's own [`Sampling`] and the number of the token,
//! and on nothing else. Invariant: equal inputs give equal tokens; ties go to the lowest id.

use std::cmp::Ordering;

use crate::job::Sampling;

/// Draws tokens; keeps its buffers between draws.
#[derive(Default)]
pub(crate) struct Sampler {
    /// Probability weights by id.
    weights: Vec<f32>,
    /// Their sums, by blocks of [`BLOCK`].
    sums: Vec<f64>,
    /// Logit and id, where the order matters.
    candidates: Vec<(f32, u32)>,
}

/// Weights that are summed together first.
const BLOCK: usize = 64;

/// A nucleus is mostly small: so many candidates are sorted at first, then so many times more.
const FIRST_NUCLEUS: usize = 64;
const NUCLEUS_GROWTH: usize = 8;

impl Sampler {
    /// The token number `index` of a job (the first is 0). `None`: the row holds no number, the model is broken. NaN is
    /// never drawn.
    pub(crate) fn draw(&mut self, logits: &[f32], sampling: &Sampling, index: u64) -> Option<u32> {
        let (best, best_logit) = greatest(logits)?;
        // Below a temperature that f32 can invert, only the best has any weight.
        let scale = sampling.temperature.recip();
        let greedy = sampling.temperature <= 0.0 || !scale.is_finite() || best_logit == f32::INFINITY;
        let top_k = match sampling.top_k {
            Some(k) if k > 0 && (k as usize) < logits.len() => Some(k as usize),
            _ => None,
        };
        if greedy || top_k == Some(1) || sampling.top_p <= 0.0 {
            return Some(best);
        }
        let uniform = uniform(sampling.seed, index);
        let total = self.weigh(logits, best_logit, scale);
        let nucleus = sampling.top_p < 1.0;
        if top_k.is_none() && !nucleus {
            return Some(self.pick_from_all(uniform * total));
        }
        let share = if nucleus { f64::from(sampling.top_p) } else { 1.0 };
        Some(self.draw_from_best(logits, total, top_k, share, uniform))
    }

    /// The weight of every id, `exp((logit - best) / temperature)`, so that the best has weight 1. Returns their sum.
    fn weigh(&mut self, logits: &[f32], best: f32, scale: f32) -> f64 {
        self.weights.clear();
        self.sums.clear();
        self.weights
            .extend(logits.iter().map(|&logit| exp((logit - best) * scale)));
        self.sums.extend(self.weights.chunks(BLOCK).map(sum));
        self.sums.iter().sum()
    }

    /// The id at which the sum of weights, in the order of ids, passes `target`.
    fn pick_from_all(&self, target: f64) -> u32 {
        let mut before = 0.0;
        let mut block = 0;
        for (index, &sum) in self.sums.iter().enumerate() {
            if sum > 0.0 {
                block = index;
                if before + sum > target {
                    break;
                }
            }
            before += sum;
        }
        let start = block * BLOCK;
        let end = (start + BLOCK).min(self.weights.len());
        // Rounding may leave the target behind the last block: then it is the last id of weight in it.
        let within = pick(self.weights[start..end].iter().copied(), target - before);
        (start + within) as u32
    }

    /// The best ids first, as many as `top_k` and then `share` (of what `top_k` left) keep.
    fn draw_from_best(&mut self, logits: &[f32], total: f64, top_k: Option<usize>, share: f64, uniform: f64) -> u32 {
        // All ids below this together weigh less than the nucleus may leave out, so none of them is in it. The margin
        // is for rounding.
        let floor = match top_k {
            None => ((1.0 - share) * total / logits.len() as f64 * 0.999) as f32,
            Some(_) => 0.0,
        };
        self.candidates.clear();
        let ids = self.weights.iter().zip(logits).zip(0u32..);
        let kept = ids.filter(|((weight, logit), _)| **weight >= floor && !logit.is_nan());
        self.candidates.extend(kept.map(|((_, &logit), id)| (logit, id)));
        let limit = top_k.unwrap_or(usize::MAX).min(self.candidates.len());
        let mut sorted = self.sort_best(top_k.unwrap_or(FIRST_NUCLEUS));
        let total = match top_k {
            None => total,
            Some(_) => self.candidates[..limit]
                .iter()
                .map(|&(_, id)| f64::from(self.weight(id)))
                .sum(),
        };
        let (mut kept, mut mass) = (0, 0.0);
        while kept < limit && (mass < share * total || share >= 1.0) {
            if kept == sorted {
                sorted = self.sort_best(sorted * NUCLEUS_GROWTH);
            }
            mass += f64::from(self.weight(self.candidates[kept].1));
            kept += 1;
        }
        let kept = &self.candidates[..kept.max(1)];
        kept[pick(kept.iter().map(|&(_, id)| self.weight(id)), uniform * mass)].1
    }

    fn weight(&self, id: u32) -> f32 {
        self.weights[id as usize]
    }

    /// Brings the best `count` candidates to the front, in order. Returns how many are.
    fn sort_best(&mut self, count: usize) -> usize {
        let count = count.min(self.candidates.len());
        if count < self.candidates.len() && count > 0 {
            self.candidates.select_nth_unstable_by(count - 1, better);
        }
        self.candidates[..count].sort_unstable_by(better);
        count
    }
}

/// Higher logit first, then lower id: a total order, so that sorting in parts gives the same as sorting all.
fn better(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The sum of a block, in lanes of their own so that it becomes vector code.
fn sum(block: &[f32]) -> f64 {
    let (chunks, rest) = block.as_chunks::<8>();
    let mut lanes = [0.0f32; 8];
    for chunk in chunks {
        for (lane, &weight) in lanes.iter_mut().zip(chunk) {
            *lane += weight;
        }
    }
    lanes.iter().chain(rest).map(|&weight| f64::from(weight)).sum()
}

/// The index at which the running sum passes `target`, or else the last one. Never one of weight 0.
fn pick(weights: impl Iterator<Item = f32>, target: f64) -> usize {
    let (mut sum, mut last) = (0.0, 0);
    for (index, weight) in weights.enumerate() {
        if weight > 0.0 {
            sum += f64::from(weight);
            last = index;
            if sum > target {
                break;
            }
        }
    }
    last
}

/// e^x for x ≤ 0, within 3e-7 of it; 0 below -87 and for NaN.
///
/// Plain arithmetic instead of the system's `expf`: it becomes vector code, and gives the same bits on every machine.
/// 2^t with t = x·log2(e) is split into a whole power, which is added to the exponent bits, and 2^r with |r| ≤ ½ by its
/// Taylor series to degree 7.
fn exp(x: f32) -> f32 {
    // Adding 1.5 × 2^23 rounds to a whole number and leaves it in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const SERIES: [f32; 8] = [
        1.0,
        std::f32::consts::LN_2,
        0.240_226_5,
        0.055_504_11,
        0.009_618_129,
        0.001_333_355_8,
        0.000_154_035_3,
        0.000_015_252_734,
    ];
    let t = x * std::f32::consts::LOG2_E;
    let rounded = t + ROUND;
    let r = t - (rounded - ROUND);
    let series = SERIES
        .iter()
        .rev()
        .fold(0.0f32, |sum, coefficient| sum * r + coefficient);
    let power = f32::from_bits(series.to_bits().wrapping_add(rounded.to_bits() << 23));
    if x >= -87.0 { power } else { 0.0 }
}

/// The greatest logit and the lowest id that has it. `None` if there is no number above -∞.
fn greatest(logits: &[f32]) -> Option<(u32, f32)> {
    // Lanes of their own, so that the compiler makes vector code. A comparison with NaN keeps what was there.
    const LANES: usize = 16;
    let greater = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = greater(*lane, logit);
        }
    }
    let best = lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, greater);
    if best == f32::NEG_INFINITY {
        return None;
    }
    let id = logits.iter().position(|&logit| logit == best)?;
    Some((id as u32, best))
}

/// A number in [0, 1) that depends on the seed and the token's number alone: SplitMix64's finaliser (Steele, Lea and
/// Flood 2014) over the counter, with the seed mixed first so that neighbouring seeds share nothing.
fn uniform(seed: u64, index: u64) -> f64 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let state = mix(seed.wrapping_add(GOLDEN)).wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN));
    (mix(state) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
