//! Scans over a row of logits: the greatest that are allowed, probability weights, and who reaches a floor.
//!
//! A mask has one bit a token, lowest bit first: token `i` is allowed if bit `i % 32` of word `i / 32` is set, and not if
//! the mask has no such word. Nothing here draws or knows a sampling method. Invariant: every level gives the same bits
//! as the plain one (all sums are taken in one order, without fused operations), so that a seeded draw does not depend on
//! the processor; NaN and -∞ are never allowed.

#[cfg(target_arch = "x86_64")]
use crate::x86;
use crate::{Kind, Level};

/// Tokens that are looked at together; a mask's words of them fill a cache line, and where none is set they are skipped.
pub(crate) const GROUP: usize = 512;

/// Words of a mask that belong to a group.
pub(crate) const WORDS: usize = GROUP / 32;

/// Maxima of a group: each of them is of every 16th token.
pub(crate) const LANES: usize = 16;

/// Tokens whose weights are summed together.
pub const BLOCK: usize = 64;

/// Sums of a group.
pub(crate) const BLOCKS: usize = GROUP / BLOCK;

/// Exponents of [`weight`] below this give 0: it is about where f32 has no normal numbers any more.
pub const LEAST_EXPONENT: f32 = -87.0;

/// Adding it rounds to a whole number, which is then in the lowest bits: 1.5 × 2^23.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// 2^x for |x| ≤ ½ as [`weight`] takes it, by Taylor; highest power first.
pub const SERIES: [f32; 8] = [
    0.000_015_252_734,
    0.000_154_035_3,
    0.001_333_355_8,
    0.009_618_129,
    0.055_504_11,
    0.240_226_5,
    std::f32::consts::LN_2,
    1.0,
];

impl Level {
    /// The lowest id of the greatest logit that is allowed, and that logit; `None` if no number above -∞ is allowed.
    ///
    /// `maxima` is made anew: what [`Level::reaching`] needs to know of these logits.
    pub fn greatest(self, logits: &[f32], mask: Option<&[u32]>, maxima: &mut Vec<f32>) -> Option<(u32, f32)> {
        maxima.clear();
        maxima.reserve(logits.len().div_ceil(GROUP) * LANES);
        let group = match self.0 {
            Kind::Plain => plain::maxima(logits, mask, maxima),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::avx2_maxima(self, logits, mask, maxima),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::avx512_maxima(self, logits, mask, maxima),
        }?;
        let greatest = maxima[group * LANES..][..LANES]
            .iter()
            .copied()
            .fold(f32::NEG_INFINITY, greater);
        let from = group * GROUP;
        let within = logits[from..].iter().take(GROUP).enumerate();
        let found = within
            .filter(|&(at, &logit)| logit == greatest && allows(mask, from + at))
            .map(|(at, &logit)| (from + at, logit))
            .next();
        debug_assert!(found.is_some(), "a maximum is one of its group's logits");
        found.and_then(|(at, logit)| Some((u32::try_from(at).ok()?, logit)))
    }

    /// The sums of the [`weight`]s of allowed tokens, of each [`BLOCK`] of tokens one, and zeros up to a whole group.
    /// Made anew.
    pub fn sums(self, logits: &[f32], mask: Option<&[u32]>, best: f32, scale: f32, sums: &mut Vec<f32>) {
        sums.clear();
        sums.reserve(logits.len().div_ceil(GROUP) * BLOCKS);
        match self.0 {
            Kind::Plain => plain::sums(logits, mask, best, scale, sums),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::avx2_sums(self, logits, mask, best, scale, sums),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::avx512_sums(self, logits, mask, best, scale, sums),
        }
    }

    /// Appends the ids of allowed tokens whose logit is at least `floor`, in order. `maxima` is what
    /// [`Level::greatest`] left of the same logits and mask: groups that cannot reach the floor are not looked at.
    pub fn reaching(self, logits: &[f32], mask: Option<&[u32]>, maxima: &[f32], floor: f32, ids: &mut Vec<u32>) {
        // -∞ is below it.
        let floor = floor.max(f32::MIN);
        for (at, lanes) in maxima.as_chunks::<LANES>().0.iter().enumerate() {
            if !lanes.iter().fold(false, |any, &lane| any | (lane >= floor)) {
                continue;
            }
            one_group(logits, mask, at, |group, words| {
                let hits = match self.0 {
                    Kind::Plain => plain::hits(group, words, floor),
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx2 => x86::avx2_hits(self, group, words, floor),
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx512 => x86::avx512_hits(self, group, words, floor),
                };
                for (word, mut bits) in (0u32..).zip(hits) {
                    while bits != 0 {
                        ids.push((at * GROUP) as u32 + word * 32 + bits.trailing_zeros());
                        bits &= bits - 1;
                    }
                }
            });
        }
    }
}

/// The highest floor known from `maxima` that at least `count` allowed logits reach; -∞ if there may be fewer.
///
/// Each of the maxima is a logit of its own, so as many of them as are wanted are a beginning of the best ones.
#[must_use]
pub fn floor_of_best(maxima: &[f32], count: usize) -> f32 {
    // Where there are many, the greatest of each group are enough, and quicker to look through.
    let coarse = maxima.len() / LANES >= 8 * count;
    let mut greatest: Vec<f32> = match coarse {
        true => maxima
            .chunks(LANES)
            .map(|lanes| lanes.iter().copied().fold(f32::NEG_INFINITY, greater))
            .collect(),
        false => maxima.to_vec(),
    };
    let Some(last) = count.checked_sub(1).filter(|&last| last < greatest.len()) else {
        return f32::NEG_INFINITY;
    };
    *greatest.select_nth_unstable_by(last, |a, b| b.total_cmp(a)).1
}

/// Whether a mask allows this token; without a mask every one is.
#[must_use]
#[inline]
pub fn allows(mask: Option<&[u32]>, token: usize) -> bool {
    mask.is_none_or(|mask| mask.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1))
}

/// How probable a token is beside the best one, whose logit is `best`: e^((logit - best) · scale), within 3e-7 of it for
/// differences of a few; 0 below e^-87 and for NaN.
///
/// Plain arithmetic instead of the system's `expf`, so that it gives the same bits everywhere. 2^t with t = x·log2(e)
/// is split into a whole power, which is added to the exponent bits, and 2^r with |r| ≤ ½.
#[must_use]
#[inline]
pub fn weight(logit: f32, best: f32, scale: f32) -> f32 {
    let x = (logit - best) * scale;
    let t = x * std::f32::consts::LOG2_E;
    let rounded = t + ROUND;
    let r = t - (rounded - ROUND);
    let series = SERIES[1..]
        .iter()
        .fold(SERIES[0], |sum, coefficient| sum * r + coefficient);
    let power = f32::from_bits(series.to_bits().wrapping_add(rounded.to_bits() << 23));
    if x >= LEAST_EXPONENT { power } else { 0.0 }
}

/// A comparison with NaN keeps what was there.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// All groups of a row, with their words; what is missing of the last one is -∞, and missing words are zeros.
#[inline(always)]
pub(crate) fn each_group(
    logits: &[f32],
    mask: Option<&[u32]>,
    mut visit: impl FnMut(usize, &[f32; GROUP], &[u32; WORDS]),
) {
    let (whole, rest) = logits.as_chunks::<GROUP>();
    for (at, group) in whole.iter().enumerate() {
        with_words(mask, at, |words| visit(at, group, words));
    }
    if !rest.is_empty() {
        one_group(logits, mask, whole.len(), |group, words| {
            visit(whole.len(), group, words)
        });
    }
}

/// One of the groups that [`each_group`] gives; none behind the end.
#[inline(always)]
fn one_group(logits: &[f32], mask: Option<&[u32]>, at: usize, visit: impl FnOnce(&[f32; GROUP], &[u32; WORDS])) {
    let rest = logits.get(at * GROUP..).unwrap_or_default();
    with_words(mask, at, |words| match rest.first_chunk() {
        Some(group) => visit(group, words),
        None => {
            let mut padded = [f32::NEG_INFINITY; GROUP];
            padded[..rest.len()].copy_from_slice(rest);
            visit(&padded, words);
        }
    });
}

#[inline(always)]
fn with_words(mask: Option<&[u32]>, at: usize, visit: impl FnOnce(&[u32; WORDS])) {
    let Some(mask) = mask else {
        return visit(&[u32::MAX; WORDS]);
    };
    let rest = mask.get(at * WORDS..).unwrap_or_default();
    match rest.first_chunk() {
        Some(words) => visit(words),
        None => {
            let mut padded = [0; WORDS];
            padded[..rest.len()].copy_from_slice(rest);
            visit(&padded);
        }
    }
}

/// Whether no token of a group is allowed.
#[inline(always)]
pub(crate) fn is_empty(words: &[u32; WORDS]) -> bool {
    words.iter().fold(0, |all, word| all | word) == 0
}

/// What every processor can: the meaning that the vector versions are held to.
mod plain {
    use super::*;

    /// Appends the maxima; returns the first group that has the greatest of all.
    pub(super) fn maxima(logits: &[f32], mask: Option<&[u32]>, out: &mut Vec<f32>) -> Option<usize> {
        let (mut best, mut first) = (f32::NEG_INFINITY, None);
        each_group(logits, mask, |at, group, words| {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            if !is_empty(words) {
                each_half(group, words, |values, bits| {
                    for (lane, (greatest, &logit)) in lanes.iter_mut().zip(values).enumerate() {
                        let allowed = bits >> lane & 1 == 1;
                        *greatest = if allowed & (logit > *greatest) {
                            logit
                        } else {
                            *greatest
                        };
                    }
                });
            }
            out.extend_from_slice(&lanes);
            let greatest = lanes.into_iter().fold(f32::NEG_INFINITY, greater);
            if greatest > best {
                (best, first) = (greatest, Some(at));
            }
        });
        first
    }

    pub(super) fn sums(logits: &[f32], mask: Option<&[u32]>, best: f32, scale: f32, out: &mut Vec<f32>) {
        each_group(logits, mask, |_, group, words| {
            let (blocks, pairs) = (group.as_chunks::<BLOCK>().0, words.as_chunks::<2>().0);
            out.extend(
                blocks
                    .iter()
                    .zip(pairs)
                    .map(|(block, pair)| sum(block, *pair, best, scale)),
            );
        });
    }

    /// Lane by lane first, then half by half: the order that vectors of any width can keep.
    fn sum(block: &[f32; BLOCK], words: [u32; 2], best: f32, scale: f32) -> f32 {
        if words == [0; 2] {
            return 0.0;
        }
        let mut lanes = [0.0; LANES];
        for (at, values) in block.as_chunks::<LANES>().0.iter().enumerate() {
            let bits = words[at / 2] >> (at % 2 * LANES);
            for (lane, (sum, &logit)) in lanes.iter_mut().zip(values).enumerate() {
                let weight = weight(logit, best, scale);
                *sum += if bits >> lane & 1 == 1 { weight } else { 0.0 };
            }
        }
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
        }
        lanes[0]
    }

    /// A bit for each allowed token of a group that reaches the floor.
    pub(super) fn hits(group: &[f32; GROUP], words: &[u32; WORDS], floor: f32) -> [u32; WORDS] {
        let mut hits = [0; WORDS];
        for ((hit, values), word) in hits.iter_mut().zip(group.as_chunks::<32>().0).zip(words) {
            let bits = values
                .iter()
                .enumerate()
                .fold(0, |bits, (at, &logit)| bits | u32::from(logit >= floor) << at);
            *hit = bits & word;
        }
        hits
    }

    /// Every 16 tokens of a group with their bits.
    #[inline(always)]
    fn each_half(group: &[f32; GROUP], words: &[u32; WORDS], mut visit: impl FnMut(&[f32; LANES], u32)) {
        for (pair, &word) in group.as_chunks::<32>().0.iter().zip(words) {
            if let [low, high] = pair.as_chunks::<LANES>().0 {
                visit(low, word & 0xFFFF);
                visit(high, word >> LANES);
            }
        }
    }
}
