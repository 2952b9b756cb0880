//! The sampler as a graph, for a device where the logits are: mask, draw and log probabilities, so that only ids (and
//! log probabilities that were asked for) come back.
//!
//! It is made for one vocabulary when a model is loaded, of operators that the CUDA provider has kernels for, and runs on
//! any provider. It does what [`crate::sample`] does, in the same order and by the same arithmetic, each operation a node
//! of its own, so nothing is fused. Invariant: where additions and multiplications are IEEE 754 and `CumSum` adds in order,
//! as in the kernels of the CPU and the CUDA provider, the id is the one that the host draws, for greedy and for seeded
//! sampling; the device says so ([`Verdict::Host`]) where it cannot know. One thing is left to the provider: which of
//! several equal logits are the last of the best [`CANDIDATES`]; by the CPU's `TopK` those of the lowest ids, as on the host.
//!
//! # Inputs, a row each
//!
//! | name | type | width | what |
//! | --- | --- | --- | --- |
//! | `logits` | f32 | vocabulary | |
//! | `mask` | u8 | 4 ⌈vocabulary / 32⌉ | the memory of the mask's words on a little-endian host |
//! | `scale`, `chance`, `keep`, `share`, `min_p` | f32, f64, i64, f64, f32 | 1 | a [`Request`] |
//!
//! # Outputs, a row each
//!
//! | name | type | width | what |
//! | --- | --- | --- | --- |
//! | `id` | i64 | 1 | a [`Verdict`] |
//! | `logprob`, `top_ids`, `top_logprobs` | f32, i64, f32 | 1, top, top | with [`Kind::top`]: within 1e-5 of [`crate::logprob::of`] |
//!
//! Bias and penalties are not part of it: such rows are drawn by the host.

mod maker;

use ort::{
    operator::Attribute,
    session::{Session, builder::SessionBuilder},
    value::TensorElementType,
};
use zerohop_simd::BLOCK;

use crate::{
    job::Sampling,
    sample::{Filter, Way, uniform},
};
use maker::{Made, Maker, Name, types};

/// Candidates that the device sorts.
pub(crate) const CANDIDATES: usize = 64;

/// What a head can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Width of a row of logits; at least 1.
    pub(crate) vocabulary: usize,
    /// Rows without `top_k` as well. Weighs the whole row, which is most of the work.
    pub(crate) whole: bool,
    /// Log probabilities of the id, and of so many best ones (at most the vocabulary).
    pub(crate) top: Option<usize>,
}

/// How a row is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    /// Multiplies logits.
    pub(crate) scale: f32,
    /// Uniform in [0, 1).
    pub(crate) chance: f64,
    /// Of so many best ones; 0: of all, in the order of ids; more than [`CANDIDATES`]: of as many as the rest says.
    pub(crate) keep: i64,
    /// See [`Filter::share`].
    pub(crate) share: f64,
    /// See [`Filter::min_p`].
    pub(crate) min_p: f32,
}

impl Request {
    /// For a row of which nobody wants anything: the best one.
    pub(crate) const NOTHING: Self = Self {
        scale: 1.0,
        chance: 0.0,
        keep: 1,
        share: f64::INFINITY,
        min_p: 0.0,
    };

    /// For the token number `index` of a job. `None`: only the host can.
    pub(crate) fn of(sampling: &Sampling, index: u64, kind: Kind) -> Option<Self> {
        let penalties =
            sampling.repetition_penalty != 1.0 || sampling.frequency_penalty != 0.0 || sampling.presence_penalty != 0.0;
        if penalties || !sampling.logit_bias.is_empty() {
            return None;
        }
        let greedy = Self {
            chance: uniform(sampling.seed, index),
            ..Self::NOTHING
        };
        // The device sees for itself whether the best logit is infinite.
        match Way::of(sampling, kind.vocabulary, 0.0) {
            Way::Greedy => Some(greedy),
            Way::All(scale) => kind.whole.then_some(Self {
                scale,
                keep: 0,
                ..greedy
            }),
            Way::Best(scale, Filter { top_k, share, min_p }) => {
                let keep = match top_k {
                    Some(k) if k <= CANDIDATES => k as i64,
                    Some(_) => return None,
                    None if kind.whole => CANDIDATES as i64 + 1,
                    None => return None,
                };
                Some(Self {
                    scale,
                    keep,
                    share,
                    min_p,
                    ..greedy
                })
            }
        }
    }
}

/// What the device says of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The token.
    Token(u32),
    /// No allowed logit is a number above -∞.
    None,
    /// The nucleus is wider than [`CANDIDATES`]: the host has to draw.
    Host,
}

/// Ids that are none.
const NO_TOKEN: i64 = -1;
const ASK_HOST: i64 = -2;

impl From<i64> for Verdict {
    fn from(id: i64) -> Self {
        match u32::try_from(id) {
            Ok(id) => Self::Token(id),
            Err(_) if id == ASK_HOST => Self::Host,
            Err(_) => Self::None,
        }
    }
}

/// Makes the graph and loads it; `builder` says on which provider.
///
/// # Errors
/// The runtime's words.
pub(crate) fn load(kind: Kind, builder: &SessionBuilder) -> Result<Session, String> {
    let candidates = CANDIDATES.min(kind.vocabulary);
    let mut head = Head {
        maker: Maker::new()?,
        kind,
        candidates,
    };
    let allowed = head.allowed()?;
    let sorted = head.sorted(&allowed, candidates)?;
    let best = head.maker.column(&sorted.logits, 0)?;
    let id = head.draw(&allowed, &sorted, &best)?;
    let mut outputs = vec![("id", TensorElementType::Int64, 1)];
    if let Some(top) = kind.top {
        head.log_probabilities(&id, top)?;
        outputs.push(("logprob", TensorElementType::Float32, 1));
        outputs.push(("top_ids", TensorElementType::Int64, top));
        outputs.push(("top_logprobs", TensorElementType::Float32, top));
    }
    head.maker.output("id", &id)?;
    let inputs = [
        ("logits", TensorElementType::Float32, kind.vocabulary),
        ("mask", TensorElementType::Uint8, mask_bytes(kind.vocabulary)),
        ("scale", TensorElementType::Float32, 1),
        ("chance", TensorElementType::Float64, 1),
        ("keep", TensorElementType::Int64, 1),
        ("share", TensorElementType::Float64, 1),
        ("min_p", TensorElementType::Float32, 1),
    ];
    head.maker.finish(&inputs, &outputs, builder)
}

/// Makes a graph that only masks, or with `masked` false that leaves the operators of the mask out, to tell what they cost.
/// Its output is `masked`.
///
/// # Errors
/// The runtime's words.
pub(crate) fn load_mask(vocabulary: usize, masked: bool, builder: &SessionBuilder) -> Result<Session, String> {
    let kind = Kind {
        vocabulary,
        whole: false,
        top: None,
    };
    let mut head = Head {
        maker: Maker::new()?,
        kind,
        candidates: 0,
    };
    let result = match masked {
        true => head.allowed()?,
        false => Head::without_nan(&mut head.maker, &"logits".into())?,
    };
    head.maker.output("masked", &result)?;
    let float = TensorElementType::Float32;
    let mut inputs = vec![("logits", float, vocabulary)];
    if masked {
        inputs.push(("mask", TensorElementType::Uint8, mask_bytes(vocabulary)));
    }
    head.maker.finish(&inputs, &[("masked", float, vocabulary)], builder)
}

/// Bytes of a row's mask.
pub(crate) fn mask_bytes(vocabulary: usize) -> usize {
    4 * vocabulary.div_ceil(32)
}

/// A graph that is being made.
struct Head {
    maker: Maker,
    kind: Kind,
    /// How many are sorted.
    candidates: usize,
}

/// The best of a row, best first.
struct Sorted {
    logits: Name,
    ids: Name,
}

impl Head {
    /// The logits, -∞ where the mask or NaN forbids; zeros have no sign.
    fn allowed(&mut self) -> Made<Name> {
        let (maker, vocabulary) = (&mut self.maker, self.kind.vocabulary);
        // A row of eight for each byte, since there is no operator for bits.
        let bit = |at: usize| {
            if (at / 8) >> (at % 8) & 1 == 1 {
                0.0f32
            } else {
                f32::NEG_INFINITY
            }
        };
        let table: Vec<f32> = (0..256 * 8).map(bit).collect();
        let table = maker.constant(&[256, 8], &table)?;
        let bytes = maker.cast(&"mask".into(), types::INT32)?;
        let bits = maker.node_with("Gather", &[&table, &bytes], ("axis", 0))?;
        let width = 8 * mask_bytes(vocabulary);
        let shape = maker.constant(&[2], &[0, width as i64])?;
        let mut mask = maker.node("Reshape", &[&bits, &shape])?;
        if width != vocabulary {
            let [from, to, axis] = [0, vocabulary as i64, 1].map(|at| maker.constant(&[1], &[at]));
            mask = maker.node("Slice", &[&mask, &from?, &to?, &axis?])?;
        }
        let masked = maker.node("Add", &[&"logits".into(), &mask])?;
        Self::without_nan(maker, &masked)
    }

    fn without_nan(maker: &mut Maker, logits: &Name) -> Made<Name> {
        let none = maker.number(f32::NEG_INFINITY)?;
        let nan = maker.node("IsNaN", &[logits])?;
        maker.choose(&nan, &none, logits)
    }

    /// The best so many, of equal ones the lowest id first.
    fn sorted(&mut self, logits: &Name, count: usize) -> Made<Sorted> {
        let maker = &mut self.maker;
        let width = maker.constant(&[1], &[count as i64])?;
        let [logits, ids] = maker.nodes("TopK", &[logits, &width], Vec::<Attribute>::new())?;
        // `TopK` of the CUDA provider leaves equal ones in any order. How many each has before it is its place.
        let (row, column) = ([0, count as i64, 1], [0, 1, count as i64]);
        let (row, column) = (maker.constant(&[3], &row)?, maker.constant(&[3], &column)?);
        let [own, own_id] = [&logits, &ids].map(|values| maker.node("Reshape", &[values, &row]));
        let [other, other_id] = [&logits, &ids].map(|values| maker.node("Reshape", &[values, &column]));
        let (own, own_id, other, other_id) = (own?, own_id?, other?, other_id?);
        let better = maker.node("Greater", &[&other, &own])?;
        let as_good = maker.node("GreaterOrEqual", &[&other, &own])?;
        let lower = maker.node("Less", &[&other_id, &own_id])?;
        let tied = maker.node("And", &[&as_good, &lower])?;
        let before = maker.node("Or", &[&better, &tied])?;
        let place = maker.count(&before, 2, false)?;
        let negative = maker.node("Neg", &[&place])?;
        let [_, order] = maker.nodes("TopK", &[&negative, &width], Vec::<Attribute>::new())?;
        Ok(Sorted {
            logits: maker.node_with("GatherElements", &[&logits, &order], ("axis", 1))?,
            ids: maker.node_with("GatherElements", &[&ids, &order], ("axis", 1))?,
        })
    }

    /// See [`zerohop_simd::weight`], which this is node by node.
    fn weights(&mut self, logits: &Name, best: &Name) -> Made<Name> {
        let maker = &mut self.maker;
        let difference = maker.node("Sub", &[logits, best])?;
        let x = maker.node("Mul", &[&difference, &"scale".into()])?;
        let least = maker.number(zerohop_simd::LEAST_EXPONENT)?;
        let counts = maker.node("GreaterOrEqual", &[&x, &least])?;
        let zero = maker.number(0.0f32)?;
        // What does not count could be NaN, which is no index.
        let x = maker.choose(&counts, &x, &zero)?;
        let log2 = maker.number(std::f32::consts::LOG2_E)?;
        let t = maker.node("Mul", &[&x, &log2])?;
        let whole = maker.node("Round", &[&t])?;
        let r = maker.node("Sub", &[&t, &whole])?;
        let mut series = maker.number(zerohop_simd::SERIES[0])?;
        for coefficient in &zerohop_simd::SERIES[1..] {
            let product = maker.node("Mul", &[&series, &r])?;
            let coefficient = maker.number(*coefficient)?;
            series = maker.node("Add", &[&product, &coefficient])?;
        }
        // Multiplying by a power of two is adding to the exponent: exact, since the product is a normal number.
        const LOWEST: i32 = -126;
        let powers: Vec<f32> = (LOWEST..=0).map(|power| 2f32.powi(power)).collect();
        let powers = maker.constant(&[powers.len() as i64], &powers)?;
        let lowest = maker.number(LOWEST as f32)?;
        let from_lowest = maker.node("Sub", &[&whole, &lowest])?;
        let last = maker.number(-LOWEST as f32)?;
        let index = maker.node("Clip", &[&from_lowest, &zero, &last])?;
        let index = maker.cast(&index, types::INT64)?;
        let power = maker.node_with("Gather", &[&powers, &index], ("axis", 0))?;
        let weight = maker.node("Mul", &[&series, &power])?;
        maker.choose(&counts, &weight, &zero)
    }

    /// The id or what stands for one.
    fn draw(&mut self, allowed: &Name, sorted: &Sorted, best: &Name) -> Made<Name> {
        let weights = self.weights(&sorted.logits, best)?;
        let whole = match self.kind.whole {
            true => Some(self.whole(allowed, best)?),
            false => None,
        };
        let mut id = self.among_best(&weights, sorted, whole.as_ref().map(|(total, _)| total))?;
        let maker = &mut self.maker;
        if let Some((_, any)) = whole {
            let (one, infinity) = (maker.number(1i64)?, maker.number(f32::INFINITY)?);
            let all = maker.node("Less", &[&"keep".into(), &one])?;
            let finite = maker.node("Less", &[best, &infinity])?;
            let all = maker.node("And", &[&all, &finite])?;
            id = maker.choose(&all, &any, &id)?;
        }
        let (none, no_token) = (maker.number(f32::NEG_INFINITY)?, maker.number(NO_TOKEN)?);
        let some = maker.node("Greater", &[best, &none])?;
        maker.choose(&some, &id, &no_token)
    }

    /// See [`crate::sample::Sampler`], from the best. `total` is the weight of the whole row, if it is known.
    fn among_best(&mut self, weights: &Name, sorted: &Sorted, total: Option<&Name>) -> Made<Name> {
        let (candidates, maker) = (self.candidates, &mut self.maker);
        let rank: Vec<i64> = (0..candidates as i64).collect();
        let rank = maker.constant(&[1, candidates as i64], &rank)?;
        let inside = maker.node("Less", &[&rank, &"keep".into()])?;
        let zero = maker.number(0.0f64)?;
        let exact = maker.cast(weights, types::DOUBLE)?;
        let exact = maker.choose(&inside, &exact, &zero)?;
        let sums = maker.running_sums(&exact, false)?;
        let mut mass = maker.column(&sums, candidates - 1)?;
        let most = maker.number(CANDIDATES as i64)?;
        let unlimited = maker.node("Greater", &[&"keep".into(), &most])?;
        if let Some(total) = total {
            mass = maker.choose(&unlimited, total, &mass)?;
        }
        let wanted = maker.node("Mul", &[&"share".into(), &mass])?;
        let before = maker.running_sums(&exact, true)?;
        let needed = maker.node("Less", &[&before, &wanted])?;
        // Up to the first that is not probable enough.
        let low = maker.node("Less", &[weights, &"min_p".into()])?;
        let low = maker.cast(&low, types::FLOAT)?;
        let low = maker.running_sums(&low, false)?;
        let half = maker.number(0.5f32)?;
        let probable = maker.node("Less", &[&low, &half])?;
        let kept = maker.node("And", &[&inside, &needed])?;
        let kept = maker.node("And", &[&kept, &probable])?;
        let exact = maker.choose(&kept, &exact, &zero)?;
        let picked = self.pick(&exact, &"chance".into(), None)?;
        let maker = &mut self.maker;
        let id = maker.node_with("GatherElements", &[&sorted.ids, &picked.place], ("axis", 1))?;
        if total.is_none() || candidates == self.kind.vocabulary {
            return Ok(id);
        }
        // All are kept, and more are wanted.
        let last = maker.column(&exact, candidates - 1)?;
        let last = maker.node("Greater", &[&last, &zero])?;
        let wanting = maker.node("Less", &[&picked.total, &wanted])?;
        let wider = maker.node("And", &[&last, &wanting])?;
        let wider = maker.node("And", &[&wider, &unlimited])?;
        let host = maker.number(ASK_HOST)?;
        maker.choose(&wider, &host, &id)
    }

    /// The total weight of a row, and the id drawn from all, in the order of ids.
    fn whole(&mut self, allowed: &Name, best: &Name) -> Made<(Name, Name)> {
        let weights = self.weights(allowed, best)?;
        let blocks = self.kind.vocabulary.div_ceil(BLOCK);
        let (maker, padding) = (&mut self.maker, blocks * BLOCK - self.kind.vocabulary);
        let mut padded = weights;
        if padding > 0 {
            let pads = maker.constant(&[4], &[0, 0, 0, padding as i64])?;
            padded = maker.node("Pad", &[&padded, &pads])?;
        }
        // Quarters of a block one after the other, then half by half: the order of `Level::sums`.
        let shape = maker.constant(&[4], &[0, blocks as i64, 4, BLOCK as i64 / 4])?;
        let quarters = maker.node("Reshape", &[&padded, &shape])?;
        let axis = |at: i64| Attribute::new("axis", at).map_err(|error| error.to_string());
        let [a, b, c, d] = maker.nodes("Split", &[&quarters], vec![axis(2)?])?;
        let mut sum = maker.node("Add", &[&a, &b])?;
        sum = maker.node("Add", &[&sum, &c])?;
        sum = maker.node("Add", &[&sum, &d])?;
        for _ in 0..(BLOCK / 4).ilog2() {
            let [low, high] = maker.nodes("Split", &[&sum], vec![axis(3)?])?;
            sum = maker.node("Add", &[&low, &high])?;
        }
        let shape = maker.constant(&[2], &[0, blocks as i64])?;
        let sums = maker.node("Reshape", &[&sum, &shape])?;
        let sums = maker.cast(&sums, types::DOUBLE)?;
        let block = self.pick(&sums, &"chance".into(), None)?;
        let maker = &mut self.maker;
        let within: Vec<i64> = (0..BLOCK as i64).collect();
        let (within, width) = (
            maker.constant(&[1, BLOCK as i64], &within)?,
            maker.number(BLOCK as i64)?,
        );
        let start = maker.node("Mul", &[&block.place, &width])?;
        let ids = maker.node("Add", &[&start, &within])?;
        let own = maker.node_with("GatherElements", &[&padded, &ids], ("axis", 1))?;
        let own = maker.cast(&own, types::DOUBLE)?;
        let place = self.pick(&own, &block.target, Some(&block.before))?.place;
        let id = self.maker.node("Add", &[&start, &place])?;
        Ok((block.total, id))
    }

    /// See `pick` of the sampler: where the running sum of f64 weights passes the target. That is `share` of their sum, or
    /// with `before` what is left of `share` behind it.
    fn pick(&mut self, weights: &Name, share: &Name, before: Option<&Name>) -> Made<Picked> {
        let maker = &mut self.maker;
        let sums = maker.running_sums(weights, false)?;
        let (zero, one) = (maker.number(0.0f64)?, maker.number(1.0f32)?);
        let last = maker.constant(&[1], &[-1i64])?;
        let total = maker.node_with("Gather", &[&sums, &last], ("axis", 1))?;
        let target = match before {
            Some(before) => maker.node("Sub", &[share, before])?,
            None => maker.node("Mul", &[&total, share])?,
        };
        let behind = maker.node("LessOrEqual", &[&sums, &target])?;
        let passed = maker.count(&behind, 1, true)?;
        // The last one that has any weight: before it, not all of the total is reached.
        let short = maker.node("Less", &[&sums, &total])?;
        let last = maker.count(&short, 1, true)?;
        let place = maker.node("Min", &[&passed, &last])?;
        let previous = maker.node("Sub", &[&place, &one])?;
        let none = maker.number(0.0f32)?;
        let previous = maker.node("Max", &[&previous, &none])?;
        let previous = maker.cast(&previous, types::INT64)?;
        let before = maker.node_with("GatherElements", &[&sums, &previous], ("axis", 1))?;
        let later = maker.node("Greater", &[&place, &none])?;
        Ok(Picked {
            before: maker.choose(&later, &before, &zero)?,
            place: maker.cast(&place, types::INT64)?,
            target,
            total,
        })
    }

    /// Under the model, of the id and of the best ones.
    fn log_probabilities(&mut self, id: &Name, top: usize) -> Made<()> {
        let (last, maker) = (self.kind.vocabulary as i64 - 1, &mut self.maker);
        let logits = Self::without_nan(maker, &"logits".into())?;
        let axes = Attribute::new("axes", vec![1i64]).map_err(|error| error.to_string())?;
        let [norm] = maker.nodes("ReduceLogSumExp", &[&logits], vec![axes])?;
        let (first, last) = (maker.number(0i64)?, maker.number(last)?);
        let id = maker.node("Clip", &[id, &first, &last])?;
        let own = maker.node_with("GatherElements", &[&logits, &id], ("axis", 1))?;
        let sorted = self.sorted(&logits, top)?;
        let maker = &mut self.maker;
        let (least, most) = (maker.number(crate::logprob::LEAST)?, maker.number(0.0f32)?);
        for (name, logits) in [("logprob", &own), ("top_logprobs", &sorted.logits)] {
            let difference = maker.node("Sub", &[logits, &norm])?;
            let clipped = maker.node("Clip", &[&difference, &least, &most])?;
            maker.output(name, &clipped)?;
        }
        maker.output("top_ids", &sorted.ids)
    }
}

/// A place in a row of weights.
struct Picked {
    /// i64.
    place: Name,
    /// The sum of weights before it.
    before: Name,
    /// What was to be passed.
    target: Name,
    /// The sum of all.
    total: Name,
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
