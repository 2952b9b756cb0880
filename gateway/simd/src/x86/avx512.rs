//! 64 bytes at a time, tails included: lanes beyond the slice are masked off and not read.
//!
//! Invariant: loads take lanes that lie in the slice; stores go to capacity that was reserved just before.

use std::mem::MaybeUninit;

use std::arch::x86_64::{
    __m512i, _mm512_cmpeq_epi8_mask, _mm512_cmplt_epu8_mask, _mm512_loadu_si512, _mm512_mask_blend_epi8,
    _mm512_maskz_compress_epi8, _mm512_maskz_loadu_epi8, _mm512_movepi8_mask, _mm512_permutex2var_epi8,
    _mm512_set1_epi8, _mm512_storeu_si512,
};

use super::starts;
use crate::{
    escape::{SHORT, Stop},
    plain,
};

const WIDTH: usize = 64;

/// How many bytes are reserved at once.
const RUN: usize = 4096;

/// The last lane.
const LAST: u64 = 1 << (WIDTH - 1);

/// The bytes from `at` on, zeros behind the end of the slice; `None` at its end.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn load(bytes: &[u8], at: usize) -> Option<__m512i> {
    let rest = bytes.get(at..)?;
    if let Some(chunk) = rest.first_chunk::<WIDTH>() {
        // SAFETY: 64 bytes are readable behind the reference; the load needs no alignment.
        return Some(unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) });
    }
    if rest.is_empty() {
        return None;
    }
    // SAFETY: only as many lanes are read as `rest` has bytes, fewer than 64; a lane that is masked off is not touched.
    Some(unsafe { _mm512_maskz_loadu_epi8(low(rest.len()), rest.as_ptr().cast()) })
}

/// The lowest `count` bits.
fn low(count: usize) -> u64 {
    if count < WIDTH { (1 << count) - 1 } else { u64::MAX }
}

/// A bit for each byte that equals this one.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn equal(vector: __m512i, byte: u8) -> u64 {
    _mm512_cmpeq_epi8_mask(vector, _mm512_set1_epi8(byte.cast_signed()))
}

/// A bit for each byte below this one.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn below(vector: __m512i, byte: u8) -> u64 {
    _mm512_cmplt_epu8_mask(vector, _mm512_set1_epi8(byte.cast_signed()))
}

/// See [`crate::Level::special`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(vector) = load(bytes, at) {
        let mask = special_lanes(vector);
        if mask != 0 {
            // The zeros behind the end count as controls: there is the end.
            return at + mask.trailing_zeros() as usize;
        }
        at += WIDTH;
    }
    bytes.len()
}

/// See [`crate::Level::look`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn look(bytes: &[u8], mut at: usize) -> (usize, u64) {
    while let Some(vector) = load(bytes, at) {
        // The zeros behind the end count as controls.
        let mask = special_lanes(vector);
        if mask != 0 {
            return (at, mask);
        }
        at += WIDTH;
    }
    (bytes.len(), u64::MAX)
}

/// A bit for each special byte.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn special_lanes(vector: __m512i) -> u64 {
    below(vector, 0x20) | equal(vector, b'"') | equal(vector, b'\\')
}

/// See [`crate::Level::space`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
pub(super) fn space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(vector) = load(bytes, at) {
        let mask = !(equal(vector, b' ') | equal(vector, b'\t') | equal(vector, b'\n') | equal(vector, b'\r'));
        if mask != 0 {
            return at + mask.trailing_zeros() as usize;
        }
        at += WIDTH;
    }
    bytes.len()
}

/// See [`crate::Level::unescape`]. Short escapes are resolved 64 bytes at a time, however many there are: the character
/// behind each backslash is looked up and the backslashes are squeezed out.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
pub(super) fn unescape(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Stop> {
    let mut at = 0;
    loop {
        match run(bytes, &mut at, out) {
            Pause::Full => {}
            Pause::Escape => at += plain::escape(&bytes[at..], out)?,
            Pause::End => {
                return match bytes.get(at) {
                    Some(b'"') => Ok(at + 1),
                    Some(_) => Err(Stop::Control),
                    None => Err(Stop::Unterminated),
                };
            }
        }
    }
}

/// Why a run ended.
enum Pause {
    /// As much was written as was reserved.
    Full,
    /// An escape that is not short, or none.
    Escape,
    /// A quote, a control character, or the end of the bytes.
    End,
}

/// Appends what the bytes from `at` on say, and moves `at` to where it paused.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
#[inline]
fn run(bytes: &[u8], at: &mut usize, out: &mut Vec<u8>) -> Pause {
    out.reserve(RUN + WIDTH);
    let spare = out.spare_capacity_mut();
    let mut written = 0;
    let pause = loop {
        let Some(place) = spare.get_mut(written..).and_then(|rest| rest.first_chunk_mut()) else {
            break Pause::Full;
        };
        // At `at` never stands the second byte of an escape.
        let Some(vector) = load(bytes, *at) else {
            break Pause::End;
        };
        let starts = starts(equal(vector, b'\\'));
        let escaped = starts << 1;
        // The zeros behind the end count as controls.
        let end = (equal(vector, b'"') | below(vector, 0x20)) & !escaped;
        let (named, odd) = names(vector, escaped);
        // An escape whose second byte is not here waits for the next round.
        let stop = end | odd >> 1 | starts & LAST;
        if stop == 0 {
            // The usual case is a branch of its own, so that the next round does not wait for the count.
            store(place, named, !starts);
            written += WIDTH - starts.count_ones() as usize;
            *at += WIDTH;
            continue;
        }
        let count = stop.trailing_zeros();
        let keep = ((1 << count) - 1) & !starts;
        store(place, named, keep);
        written += keep.count_ones() as usize;
        *at += count as usize;
        if end >> count & 1 == 1 {
            break Pause::End;
        }
        if odd >> 1 >> count & 1 == 1 {
            break Pause::Escape;
        }
    };
    let len = out.len() + written;
    // SAFETY: `written` bytes behind the old length are initialised: each round wrote a whole vector where the one before
    // had ended. They lie within the capacity, since each was written through the spare part's own slice.
    unsafe { out.set_len(len) };
    pause
}

/// The vector with each of the `escaped` characters replaced by what it stands for; and which of them stand for nothing
/// by themselves (`u`, and what may not be escaped).
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn names(vector: __m512i, escaped: u64) -> (__m512i, u64) {
    let [low, high] = SHORT_HALVES;
    // SAFETY: 64 bytes are readable behind the reference; the load needs no alignment.
    let low = unsafe { _mm512_loadu_si512(low.as_ptr().cast()) };
    // SAFETY: as above.
    let high = unsafe { _mm512_loadu_si512(high.as_ptr().cast()) };
    // Of each byte the lowest seven bits choose.
    let named = _mm512_permutex2var_epi8(low, vector, high);
    let odd = (equal(named, 0) | _mm512_movepi8_mask(vector)) & escaped;
    (_mm512_mask_blend_epi8(escaped, vector, named), odd)
}

/// [`SHORT`] as two vectors.
static SHORT_HALVES: [[u8; WIDTH]; 2] = {
    let mut halves = [[0; WIDTH]; 2];
    let mut at = 0;
    while at < 2 * WIDTH {
        halves[at / WIDTH][at % WIDTH] = SHORT[at];
        at += 1;
    }
    halves
};

/// Writes the lanes of `vector` that `keep` names, and zeros behind them.
#[target_feature(enable = "avx512f,avx512vbmi2")]
#[inline]
fn store(place: &mut [MaybeUninit<u8>; WIDTH], vector: __m512i, keep: u64) {
    let kept = _mm512_maskz_compress_epi8(keep, vector);
    // SAFETY: 64 bytes are writable behind the reference; the store needs no alignment.
    unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), kept) };
}
