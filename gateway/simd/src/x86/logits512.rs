//! Rows of logits, 16 at a time; the bits of a mask are the processor's own masks.
//!
//! Invariant: the operations on a lane and the order of sums are those of the plain version; loads take a whole array.

use std::arch::x86_64::_mm256_castpd_ps;
use std::arch::x86_64::{
    __m512, __m512i, _CMP_GE_OQ, _CMP_GT_OQ, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps,
    _mm256_add_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm512_add_epi32, _mm512_add_ps, _mm512_castps_pd,
    _mm512_castps_si512, _mm512_castps512_ps256, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_extractf64x4_pd,
    _mm512_loadu_ps, _mm512_mask_cmp_ps_mask, _mm512_mask_max_ps, _mm512_maskz_mov_ps, _mm512_max_ps, _mm512_mul_ps,
    _mm512_reduce_max_ps, _mm512_set1_ps, _mm512_slli_epi32, _mm512_storeu_ps, _mm512_sub_ps,
};

use crate::logits::{BLOCK, GROUP, LANES, LEAST_EXPONENT, ROUND, SERIES, WORDS, each_group, is_empty};

#[target_feature(enable = "avx512f")]
#[inline]
fn load(values: &[f32; LANES]) -> __m512 {
    // SAFETY: 64 bytes are readable behind the reference; the load needs no alignment.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

/// The bits of 16 tokens.
#[inline(always)]
fn bits(words: &[u32], at: usize) -> u16 {
    (words[at / 2] >> (at % 2 * LANES)) as u16
}

/// See [`crate::Level::greatest`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn maxima(logits: &[f32], mask: Option<&[u32]>, out: &mut Vec<f32>) -> Option<usize> {
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    let (mut best, mut first) = (none, None);
    each_group(logits, mask, |at, group, words| {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        if !is_empty(words) {
            let mut greatest = [none; 4];
            for (step, four) in group.as_chunks::<BLOCK>().0.iter().enumerate() {
                for (part, values) in four.as_chunks::<LANES>().0.iter().enumerate() {
                    // Of a NaN and a number, the maximum is the second operand.
                    let before = greatest[part];
                    let allowed = bits(words, 4 * step + part);
                    greatest[part] = _mm512_mask_max_ps(before, allowed, load(values), before);
                }
            }
            let [a, b, c, d] = greatest;
            let all = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
            if _mm512_cmp_ps_mask::<_CMP_GT_OQ>(all, best) != 0 {
                (best, first) = (_mm512_set1_ps(_mm512_reduce_max_ps(all)), Some(at));
            }
            // SAFETY: 64 bytes are writable behind the reference; the store needs no alignment.
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), all) };
        }
        out.extend_from_slice(&lanes);
    });
    first
}

/// See [`crate::weight`].
#[target_feature(enable = "avx512f")]
#[inline]
fn weight(logits: __m512, best: __m512, scale: __m512) -> __m512 {
    let x = _mm512_mul_ps(_mm512_sub_ps(logits, best), scale);
    let t = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
    let round = _mm512_set1_ps(ROUND);
    let rounded = _mm512_add_ps(t, round);
    let r = _mm512_sub_ps(t, _mm512_sub_ps(rounded, round));
    let mut series = _mm512_set1_ps(SERIES[0]);
    for &coefficient in &SERIES[1..] {
        series = _mm512_add_ps(_mm512_mul_ps(series, r), _mm512_set1_ps(coefficient));
    }
    let exponent: __m512i = _mm512_slli_epi32::<23>(_mm512_castps_si512(rounded));
    let power = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(series), exponent));
    let counts = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_set1_ps(LEAST_EXPONENT));
    _mm512_maskz_mov_ps(counts, power)
}

/// See [`crate::Level::sums`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn sums(logits: &[f32], mask: Option<&[u32]>, best: f32, scale: f32, out: &mut Vec<f32>) {
    let (best, scale) = (_mm512_set1_ps(best), _mm512_set1_ps(scale));
    each_group(logits, mask, |_, group, words| {
        for (block, pair) in group.as_chunks::<BLOCK>().0.iter().zip(words.as_chunks::<2>().0) {
            if *pair == [0; 2] {
                out.push(0.0);
                continue;
            }
            let mut sum = _mm512_set1_ps(0.0);
            for (part, values) in block.as_chunks::<LANES>().0.iter().enumerate() {
                let weights = weight(load(values), best, scale);
                sum = _mm512_add_ps(sum, _mm512_maskz_mov_ps(bits(pair, part), weights));
            }
            out.push(halves(sum));
        }
    });
}

/// The sum of all lanes, half by half.
#[target_feature(enable = "avx512f")]
#[inline]
fn halves(sum: __m512) -> f32 {
    let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(sum)));
    let eight = _mm256_add_ps(_mm512_castps512_ps256(sum), high);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

/// A bit for each allowed token of a group that reaches the floor.
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn hits(group: &[f32; GROUP], words: &[u32; WORDS], floor: f32) -> [u32; WORDS] {
    let floor = _mm512_set1_ps(floor);
    let mut hits = [0; WORDS];
    for (at, values) in group.as_chunks::<LANES>().0.iter().enumerate() {
        let hit = _mm512_mask_cmp_ps_mask::<_CMP_GE_OQ>(bits(words, at), load(values), floor);
        hits[at / 2] |= u32::from(hit) << (at % 2 * LANES);
    }
    hits
}
