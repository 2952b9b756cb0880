//! 32 bytes at a time.
//!
//! Invariant: loads take 32 bytes that lie in the slice, what is left over goes to the plain version; what is written
//! goes through the slice of capacity that was reserved just before.

use std::mem::MaybeUninit;

use std::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
    _mm256_set1_epi8,
};

use super::starts;
use crate::{
    escape::{SHORT, Stop},
    plain,
};

const WIDTH: usize = 32;

/// Bytes that are unescaped together.
const BLOCK: usize = 2 * WIDTH;

/// Two blocks.
const TWO: usize = 2 * BLOCK;

/// How many bytes are reserved at once.
const RUN: usize = 4096;

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

/// See [`crate::Level::unescape`]. What 64 bytes say is put together from pieces, each copied as 64 bytes of which the
/// next piece covers what was too much.
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn unescape(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Stop> {
    let mut at = 0;
    loop {
        match run(bytes, &mut at, out) {
            Pause::Full => {}
            Pause::Escape => at += plain::escape(&bytes[at..], out)?,
            Pause::Tail => return plain::unescape(bytes, at, out),
        }
    }
}

/// Why a run ended.
enum Pause {
    /// As much was written as was reserved.
    Full,
    /// An escape that is not short, or none.
    Escape,
    /// The end of the string is at hand, or less than two blocks are left.
    Tail,
}

/// Appends what the bytes from `at` on say, and moves `at` to where it paused.
#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn run(bytes: &[u8], at: &mut usize, out: &mut Vec<u8>) -> Pause {
    out.reserve(RUN);
    let spare = out.spare_capacity_mut();
    let mut written = 0;
    let pause = loop {
        // A piece may begin at any byte of a block, so that two blocks are needed on both sides.
        let Some(from) = bytes.get(*at..).and_then(|rest| rest.first_chunk::<TWO>()) else {
            break Pause::Tail;
        };
        let Some(to) = spare.get_mut(written..).and_then(|rest| rest.first_chunk_mut::<TWO>()) else {
            break Pause::Full;
        };
        let done = block(from, to);
        *at += done.taken;
        written += done.written;
        if let Some(pause) = done.pause {
            break pause;
        }
    };
    let len = out.len() + written;
    // SAFETY: `written` bytes behind the old length are initialised, since a block fills what it says it has written.
    // They lie within the capacity, since each was written through the spare part's own slice.
    unsafe { out.set_len(len) };
    pause
}

/// What became of a block.
struct Done {
    taken: usize,
    /// Initialised bytes.
    written: usize,
    pause: Option<Pause>,
}

/// Says the first 64 bytes of `from`, whose first is not the second byte of an escape.
#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn block(from: &[u8; TWO], to: &mut [MaybeUninit<u8>; TWO]) -> Done {
    let (Some(low), Some(high)) = (load(from, 0), load(from, WIDTH)) else {
        return Done {
            taken: 0,
            written: 0,
            pause: Some(Pause::Tail),
        };
    };
    let both = |low: __m256i, high: __m256i| {
        let [low, high] = [low, high].map(|half| u64::from(_mm256_movemask_epi8(half).cast_unsigned()));
        high << WIDTH | low
    };
    let special = u64::from(specials(high)) << WIDTH | u64::from(specials(low));
    copy(from, 0, to, 0);
    if special == 0 {
        return Done {
            taken: BLOCK,
            written: BLOCK,
            pause: None,
        };
    }
    let starts = starts(both(equal(low, b'\\'), equal(high, b'\\')));
    let end = special & !starts & !(starts << 1);
    // An escape whose second byte is not here waits for the next round.
    let count = (end | starts & 1 << (BLOCK - 1)).trailing_zeros() as usize;
    let mut left = starts & if count < BLOCK { (1 << count) - 1 } else { u64::MAX };
    let (mut piece, mut written) = (0, 0);
    while left != 0 {
        let backslash = left.trailing_zeros() as usize;
        left &= left - 1;
        copy(from, piece, to, written);
        written += backslash - piece;
        let name = SHORT.get(usize::from(from[backslash + 1])).copied().unwrap_or(0);
        if name == 0 {
            return Done {
                taken: backslash,
                written,
                pause: Some(Pause::Escape),
            };
        }
        to[written].write(name);
        written += 1;
        piece = backslash + 2;
    }
    copy(from, piece, to, written);
    written += count - piece;
    let pause = (count < BLOCK && end >> count & 1 == 1).then_some(Pause::Tail);
    Done {
        taken: count,
        written,
        pause,
    }
}

/// Copies a block that begins anywhere in the first block of `from` to anywhere in the first of `to`.
#[target_feature(enable = "avx2")]
#[inline]
fn copy(from: &[u8; TWO], piece: usize, to: &mut [MaybeUninit<u8>; TWO], place: usize) {
    if let (Some(from), Some(to)) = (
        from.get(piece..).and_then(|rest| rest.first_chunk::<BLOCK>()),
        to.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<BLOCK>()),
    ) {
        to.write_copy_of_slice(from);
    }
}
