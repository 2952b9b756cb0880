//! 32 bytes at a time.
//!
//! Invariant: loads take 32 bytes that lie in the slice, what is left over goes to the plain version; stores go to
//! capacity that was reserved just before.

use std::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_storeu_si256,
};

use crate::{escape::Stop, plain};

const WIDTH: usize = 32;

/// The 32 bytes at `at`, if there are as many.
#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8], at: usize) -> Option<__m256i> {
    let chunk = bytes.get(at..)?.first_chunk::<WIDTH>()?;
    // SAFETY: 32 bytes are readable behind the reference; the load needs no alignment.
    Some(unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) })
}

/// All bits of each byte that equals this one.
#[target_feature(enable = "avx2")]
#[inline]
fn equal(vector: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(vector, _mm256_set1_epi8(byte.cast_signed()))
}

/// A bit for each special byte.
#[target_feature(enable = "avx2")]
#[inline]
fn specials(vector: __m256i) -> u32 {
    let control = _mm256_cmpeq_epi8(_mm256_min_epu8(vector, _mm256_set1_epi8(0x1F)), vector);
    let either = _mm256_or_si256(equal(vector, b'"'), equal(vector, b'\\'));
    _mm256_movemask_epi8(_mm256_or_si256(either, control)).cast_unsigned()
}

/// See [`crate::Level::special`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(vector) = load(bytes, at) {
        let mask = specials(vector);
        if mask != 0 {
            return at + mask.trailing_zeros() as usize;
        }
        at += WIDTH;
    }
    plain::special(bytes, at)
}

/// See [`crate::Level::look`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn look(bytes: &[u8], mut at: usize) -> (usize, u64) {
    while let (Some(low), Some(high)) = (load(bytes, at), load(bytes, at + WIDTH)) {
        let mask = u64::from(specials(high)) << WIDTH | u64::from(specials(low));
        if mask != 0 {
            return (at, mask);
        }
        at += 2 * WIDTH;
    }
    let low = load(bytes, at).map(|low| u64::from(specials(low)));
    match low {
        Some(low) => (at, plain::specials(bytes, at + WIDTH) << WIDTH | low),
        None => (at, plain::specials(bytes, at)),
    }
}

/// See [`crate::Level::space`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(vector) = load(bytes, at) {
        let blank = _mm256_or_si256(equal(vector, b' '), equal(vector, b'\t'));
        let line = _mm256_or_si256(equal(vector, b'\n'), equal(vector, b'\r'));
        let mask = !_mm256_movemask_epi8(_mm256_or_si256(blank, line)).cast_unsigned();
        if mask != 0 {
            return at + mask.trailing_zeros() as usize;
        }
        at += WIDTH;
    }
    plain::space(bytes, at)
}

/// See [`crate::Level::unescape`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn unescape(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Stop> {
    let mut at = 0;
    while let Some(vector) = load(bytes, at) {
        let clean = (specials(vector).trailing_zeros() as usize).min(WIDTH);
        push(out, vector, clean);
        at += clean;
        if clean == WIDTH {
            continue;
        }
        match bytes[at] {
            b'"' => return Ok(at + 1),
            b'\\' => at += plain::escape(&bytes[at..], out)?,
            _ => return Err(Stop::Control),
        }
    }
    plain::unescape(bytes, at, out)
}

/// Appends the first `count` bytes of `vector`, at most [`WIDTH`].
#[target_feature(enable = "avx2")]
#[inline]
fn push(out: &mut Vec<u8>, vector: __m256i, count: usize) {
    out.reserve(WIDTH);
    if let Some(place) = out.spare_capacity_mut().first_chunk_mut::<WIDTH>() {
        // SAFETY: 32 bytes are writable behind the reference; the store needs no alignment.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), vector) };
        let len = out.len() + count.min(WIDTH);
        // SAFETY: the capacity was there for 32 more bytes, all of which were just written.
        unsafe { out.set_len(len) };
    }
}
