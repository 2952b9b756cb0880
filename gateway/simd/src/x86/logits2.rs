//! Rows of logits, 8 at a time.
//!
//! Invariant: the operations on a lane and the order of sums are those of the plain version; loads take a whole array.

use std::arch::x86_64::{
    __m256, _CMP_GE_OQ, _CMP_GT_OQ, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps,
    _mm256_add_epi32, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256,
    _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cmpeq_epi32, _mm256_extractf128_ps,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_movemask_ps, _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setr_epi32, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
};

use crate::logits::{BLOCK, GROUP, LANES, LEAST_EXPONENT, ROUND, SERIES, WORDS, each_group, is_empty};

const WIDTH: usize = 8;

#[target_feature(enable = "avx2")]
#[inline]
fn load(values: &[f32; WIDTH]) -> __m256 {
    // SAFETY: 32 bytes are readable behind the reference; the load needs no alignment.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(vector: __m256, values: &mut [f32; WIDTH]) {
    // SAFETY: 32 bytes are writable behind the reference; the store needs no alignment.
    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), vector) }
}

/// All bits of each lane whose token is allowed; `at` counts the eights of these words.
#[target_feature(enable = "avx2")]
#[inline]
fn allowed(words: &[u32], at: usize) -> __m256 {
    let bits = words[at / 4] >> (at % 4 * WIDTH);
    let each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let own = _mm256_and_si256(_mm256_set1_epi32(bits.cast_signed()), each);
    _mm256_castsi256_ps(_mm256_cmpeq_epi32(own, each))
}

/// See [`crate::Level::greatest`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn maxima(logits: &[f32], mask: Option<&[u32]>, out: &mut Vec<f32>) -> Option<usize> {
    let none = _mm256_set1_ps(f32::NEG_INFINITY);
    let (mut best, mut first) = (f32::NEG_INFINITY, None);
    each_group(logits, mask, |at, group, words| {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        if !is_empty(words) {
            let mut greatest = [none; 4];
            for (step, four) in group.as_chunks::<{ 4 * WIDTH }>().0.iter().enumerate() {
                for (part, values) in four.as_chunks::<WIDTH>().0.iter().enumerate() {
                    // Of a NaN and a number, the maximum is the second operand.
                    let masked = _mm256_blendv_ps(none, load(values), allowed(words, 4 * step + part));
                    greatest[part] = _mm256_max_ps(masked, greatest[part]);
                }
            }
            let [a, b, c, d] = greatest;
            let halves = [_mm256_max_ps(a, c), _mm256_max_ps(b, d)];
            for (half, values) in halves.into_iter().zip(lanes.as_chunks_mut().0) {
                store(half, values);
            }
            let all = _mm256_max_ps(halves[0], halves[1]);
            if _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(all, _mm256_set1_ps(best))) != 0 {
                let greater = |a: f32, &b: &f32| if b > a { b } else { a };
                (best, first) = (lanes.iter().fold(best, greater), Some(at));
            }
        }
        out.extend_from_slice(&lanes);
    });
    first
}

/// See [`crate::weight`].
#[target_feature(enable = "avx2")]
#[inline]
fn weight(logits: __m256, best: __m256, scale: __m256) -> __m256 {
    let x = _mm256_mul_ps(_mm256_sub_ps(logits, best), scale);
    let t = _mm256_mul_ps(x, _mm256_set1_ps(std::f32::consts::LOG2_E));
    let round = _mm256_set1_ps(ROUND);
    let rounded = _mm256_add_ps(t, round);
    let r = _mm256_sub_ps(t, _mm256_sub_ps(rounded, round));
    let mut series = _mm256_set1_ps(SERIES[0]);
    for &coefficient in &SERIES[1..] {
        series = _mm256_add_ps(_mm256_mul_ps(series, r), _mm256_set1_ps(coefficient));
    }
    let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(rounded));
    let power = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(series), exponent));
    let counts = _mm256_cmp_ps::<_CMP_GE_OQ>(x, _mm256_set1_ps(LEAST_EXPONENT));
    _mm256_and_ps(counts, power)
}

/// See [`crate::Level::sums`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn sums(logits: &[f32], mask: Option<&[u32]>, best: f32, scale: f32, out: &mut Vec<f32>) {
    let (best, scale) = (_mm256_set1_ps(best), _mm256_set1_ps(scale));
    each_group(logits, mask, |_, group, words| {
        for (block, pair) in group.as_chunks::<BLOCK>().0.iter().zip(words.as_chunks::<2>().0) {
            if *pair == [0; 2] {
                out.push(0.0);
                continue;
            }
            let mut sums = [_mm256_set1_ps(0.0); 2];
            for (part, values) in block.as_chunks::<WIDTH>().0.iter().enumerate() {
                let weights = weight(load(values), best, scale);
                let own = &mut sums[part % 2];
                *own = _mm256_add_ps(*own, _mm256_and_ps(allowed(pair, part), weights));
            }
            out.push(halves(_mm256_add_ps(sums[0], sums[1])));
        }
    });
}

/// The sum of all lanes, half by half.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(eight: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

/// A bit for each allowed token of a group that reaches the floor.
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn hits(group: &[f32; GROUP], words: &[u32; WORDS], floor: f32) -> [u32; WORDS] {
    let floor = _mm256_set1_ps(floor);
    let mut hits = [0; WORDS];
    for (at, values) in group.as_chunks::<WIDTH>().0.iter().enumerate() {
        let reach = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(load(values), floor)).cast_unsigned();
        hits[at / 4] |= reach << (at % 4 * WIDTH);
    }
    for (hit, word) in hits.iter_mut().zip(words) {
        *hit &= word;
    }
    hits
}
