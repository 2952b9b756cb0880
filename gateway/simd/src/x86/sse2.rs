//! One vector of what every x86-64 processor has.
//!
//! Invariant: reads its array and nothing else.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
};

/// Bytes that are looked at together.
pub(crate) const WIDTH: usize = 16;

/// The place of the first special byte; [`WIDTH`] if there is none.
#[inline]
pub(crate) fn special(bytes: &[u8; WIDTH]) -> usize {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { find(bytes) }
}

#[target_feature(enable = "sse2")]
#[inline]
fn find(bytes: &[u8; WIDTH]) -> usize {
    // SAFETY: 16 bytes are readable behind the reference; the load needs no alignment.
    let vector = unsafe { _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>()) };
    let quote = _mm_cmpeq_epi8(vector, _mm_set1_epi8(b'"'.cast_signed()));
    let backslash = _mm_cmpeq_epi8(vector, _mm_set1_epi8(b'\\'.cast_signed()));
    let control = _mm_cmpeq_epi8(_mm_min_epu8(vector, _mm_set1_epi8(0x1F)), vector);
    let special = _mm_or_si128(_mm_or_si128(quote, backslash), control);
    let mask = _mm_movemask_epi8(special).cast_unsigned();
    // The bit behind the vector ends the search.
    (mask | 1 << WIDTH).trailing_zeros() as usize
}
