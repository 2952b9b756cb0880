//! The next token from a row of logits.
//!
//! It knows nothing of batches: a draw depends on the logits, the mask, the job's own [`Sampling`] and history, and the
//! number of the token, and on nothing else. Invariant: equal inputs give equal tokens, on every processor; ties go to
//! the lowest id; a token that the mask does not allow is never drawn.

use std::cmp::Ordering;

use zerohop_simd::{BLOCK, Level, allows, floor_of_best, weight};

use crate::{history::History, job::Sampling};

/// Draws tokens; keeps its buffers between draws.
pub(crate) struct Sampler {
    level: Level,
    /// What the scans say of the row: see [`Level::greatest`] and [`Level::sums`].
    maxima: Vec<f32>,
    sums: Vec<f32>,
    /// The row with bias and penalties, where there are any.
    edited: Vec<f32>,
    ids: Vec<u32>,
    /// Logit and id, where the order matters.
    candidates: Vec<(f32, u32)>,
    /// Of the first candidates.
    weights: Vec<f32>,
}

/// A nucleus is mostly small: so many candidates are sorted at first, then so many times more.
const FIRST_NUCLEUS: usize = 64;
const NUCLEUS_GROWTH: usize = 8;

/// A row, and what its weights are relative to.
#[derive(Clone, Copy)]
struct Row<'a> {
    logits: &'a [f32],
    mask: Option<&'a [u32]>,
    best: f32,
    scale: f32,
}

impl Row<'_> {
    fn weight(&self, logit: f32) -> f32 {
        weight(logit, self.best, self.scale)
    }

    /// A logit below which no weight reaches this one. Generous, for rounding.
    fn floor(&self, weight: f64) -> f32 {
        let floor = f64::from(self.best) + (weight.ln() - 1e-4) / f64::from(self.scale);
        (floor - floor.abs() * 1e-6) as f32
    }
}

/// Which tokens are kept, of those that the mask allows: the first ones in the order of their probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Filter {
    /// So many at most.
    pub(crate) top_k: Option<usize>,
    /// As many as have this share of the probability of what `top_k` keeps; ∞: all of it.
    pub(crate) share: f64,
    /// Those with at least this weight.
    pub(crate) min_p: f32,
}

/// How a row is drawn from, once its best logit is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    /// The best token.
    Greedy,
    /// Any token; the number multiplies logits.
    All(f32),
    /// One of the best; the number multiplies logits.
    Best(f32, Filter),
}

impl Way {
    /// Of `width` tokens, the best of which has this logit.
    pub(crate) fn of(sampling: &Sampling, width: usize, best: f32) -> Self {
        // Below a temperature that f32 can invert, only the best has any weight.
        let scale = sampling.temperature.recip();
        let top_k = match sampling.top_k {
            Some(k) if k > 0 && (k as usize) < width => Some(k as usize),
            _ => None,
        };
        let greedy = sampling.temperature <= 0.0 || !scale.is_finite() || best == f32::INFINITY;
        if greedy || top_k == Some(1) || sampling.top_p <= 0.0 || sampling.min_p > 1.0 {
            return Self::Greedy;
        }
        let share = if sampling.top_p < 1.0 {
            f64::from(sampling.top_p)
        } else {
            f64::INFINITY
        };
        let min_p = sampling.min_p.max(0.0);
        if top_k.is_none() && share == f64::INFINITY && min_p == 0.0 {
            return Self::All(scale);
        }
        Self::Best(scale, Filter { top_k, share, min_p })
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self::at(Level::best())
    }
}

impl Sampler {
    /// With the instructions of this level; they make no difference to what is drawn.
    pub(crate) fn at(level: Level) -> Self {
        Self {
            level,
            maxima: Vec::new(),
            sums: Vec::new(),
            edited: Vec::new(),
            ids: Vec::new(),
            candidates: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// The token number `index` of a job (the first is 0). `mask` has a bit for each token that may be drawn, lowest
    /// first; tokens beyond its end may not. `None`: no allowed logit is a number above -∞, so either nothing is allowed
    /// or the model is broken. NaN is never drawn.
    pub(crate) fn draw(
        &mut self,
        logits: &[f32],
        mask: Option<&[u32]>,
        sampling: &Sampling,
        history: &History,
        index: u64,
    ) -> Option<u32> {
        let mut edited = std::mem::take(&mut self.edited);
        let logits = edit(logits, sampling, history, &mut edited);
        let token = self.draw_edited(logits, mask, sampling, index);
        self.edited = edited;
        token
    }

    fn draw_edited(&mut self, logits: &[f32], mask: Option<&[u32]>, sampling: &Sampling, index: u64) -> Option<u32> {
        let (id, best) = self.level.greatest(logits, mask, &mut self.maxima)?;
        let row = |scale| Row {
            logits,
            mask,
            best,
            scale,
        };
        let chance = uniform(sampling.seed, index);
        Some(match Way::of(sampling, logits.len(), best) {
            Way::Greedy => id,
            Way::All(scale) => self.draw_from_all(&row(scale), chance),
            Way::Best(scale, filter) => self.draw_from_best(&row(scale), filter, chance),
        })
    }

    /// The sums of weights by blocks, and their sum.
    fn weigh(&mut self, row: &Row) -> f64 {
        self.level
            .sums(row.logits, row.mask, row.best, row.scale, &mut self.sums);
        self.sums.iter().map(|&sum| f64::from(sum)).sum()
    }

    /// The id at which the sum of weights, in the order of ids, passes the share `chance` of all.
    fn draw_from_all(&mut self, row: &Row, chance: f64) -> u32 {
        let target = self.weigh(row) * chance;
        let (block, before) = pick(&self.sums, target);
        let start = block * BLOCK;
        let block = row.logits[start..].iter().take(BLOCK).enumerate();
        self.weights.clear();
        self.weights
            .extend(block.map(|(at, &logit)| match allows(row.mask, start + at) {
                true => row.weight(logit),
                false => 0.0,
            }));
        (start + pick(&self.weights, target - before).0) as u32
    }

    /// The best ids first, as many as the filter keeps.
    fn draw_from_best(&mut self, row: &Row, filter: Filter, chance: f64) -> u32 {
        let wanted = self.gather(row, filter);
        let limit = filter.top_k.unwrap_or(usize::MAX).min(self.candidates.len());
        let mut sorted = self.sort_best(filter.top_k.unwrap_or(FIRST_NUCLEUS));
        let wanted = match filter.top_k {
            Some(_) if filter.share < f64::INFINITY => {
                let kept = self.candidates[..limit].iter();
                filter.share * kept.map(|&(logit, _)| f64::from(row.weight(logit))).sum::<f64>()
            }
            _ => wanted,
        };
        let mut mass = 0.0;
        self.weights.clear();
        while self.weights.len() < limit && mass < wanted {
            if self.weights.len() == sorted {
                sorted = self.sort_best(sorted * NUCLEUS_GROWTH);
            }
            let weight = row.weight(self.candidates[self.weights.len()].0);
            if weight < filter.min_p {
                break;
            }
            mass += f64::from(weight);
            self.weights.push(weight);
        }
        self.candidates[pick(&self.weights, chance * mass).0].1
    }

    /// Makes all ids candidates that the filter may keep. Returns how much weight it keeps of all, where `top_k` does
    /// not limit it.
    fn gather(&mut self, row: &Row, filter: Filter) -> f64 {
        let by_weight = if filter.min_p > 0.0 {
            row.floor(filter.min_p.into())
        } else {
            f32::NEG_INFINITY
        };
        let (floor, wanted) = match filter.top_k {
            // `min_p` does not count before `top_p` has had its share.
            Some(k) if filter.share < f64::INFINITY => (floor_of_best(&self.maxima, k), 0.0),
            Some(k) => (floor_of_best(&self.maxima, k).max(by_weight), f64::INFINITY),
            None if filter.share < f64::INFINITY => {
                let total = self.weigh(row);
                // All ids below this together weigh less than the nucleus may leave out, so none of them is in it.
                let floor = row.floor((1.0 - filter.share) * total / row.logits.len() as f64);
                (floor.max(by_weight), filter.share * total)
            }
            None => (by_weight, f64::INFINITY),
        };
        self.ids.clear();
        self.level
            .reaching(row.logits, row.mask, &self.maxima, floor, &mut self.ids);
        self.candidates.clear();
        self.candidates
            .extend(self.ids.iter().map(|&id| (row.logits[id as usize], id)));
        wanted
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

/// The row with bias and penalties, in `edited`; the row itself if there are none.
fn edit<'a>(logits: &'a [f32], sampling: &Sampling, history: &History, edited: &'a mut Vec<f32>) -> &'a [f32] {
    if sampling.logit_bias.is_empty() && history.counts().is_empty() {
        return logits;
    }
    edited.clear();
    edited.extend_from_slice(logits);
    for &(token, bias) in &sampling.logit_bias {
        if let Some(logit) = edited.get_mut(token as usize) {
            *logit += bias;
        }
    }
    for &(token, count) in history.counts() {
        let Some(logit) = edited.get_mut(token as usize) else {
            continue;
        };
        if *logit > 0.0 {
            *logit /= sampling.repetition_penalty;
        } else {
            *logit *= sampling.repetition_penalty;
        }
        *logit -= sampling.frequency_penalty * count as f32;
        if count > 0 {
            *logit -= sampling.presence_penalty;
        }
    }
    edited
}

/// Higher logit first, then lower id: a total order, so that sorting in parts gives the same as sorting all. Zeros are
/// equal, whatever their sign.
pub(crate) fn better(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    (b.0 + 0.0).total_cmp(&(a.0 + 0.0)).then(a.1.cmp(&b.1))
}

/// The index at which the running sum passes `target`, and the sum before it. If rounding leaves the target behind the
/// last one, it is the last that makes the sum grow; so never one of weight 0.
fn pick(weights: &[f32], target: f64) -> (usize, f64) {
    let (mut sum, mut last) = (0.0, (0, 0.0));
    for (index, &weight) in weights.iter().enumerate() {
        let next = sum + f64::from(weight);
        if next > sum {
            last = (index, sum);
            sum = next;
        }
        if sum > target {
            break;
        }
    }
    last
}

/// A number in [0, 1) that depends on the seed and the token's number alone: SplitMix64's finaliser (Steele, Lea and
/// Flood 2014) over the counter, with the seed mixed first so that neighbouring seeds share nothing.
pub(crate) fn uniform(seed: u64, index: u64) -> f64 {
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
