//! The vector versions for x86-64, and the doors to them.
//!
//! The only place of this crate with `unsafe`: calls of functions that need instructions, loads and stores of whole
//! vectors. Invariant: a function that needs instructions is called with the
//! [`Level`] that proves them; loads and stores stay in a slice or array that the function was given.

#![allow(unsafe_code)]

mod avx2;
mod avx512;
mod logits2;
mod logits512;

use crate::{
    Kind, Level,
    escape::Stop,
    logits::{GROUP, WORDS},
};

pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2")
}

pub(crate) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
}

/// A door to a vector version: safe, since only [`Level::all`] makes a level, and only of what the processor has.
macro_rules! door {
    ($name:ident, $kind:ident, $target:path, ($($argument:ident: $type:ty),*) -> $result:ty) => {
        #[inline]
        pub(crate) fn $name(level: Level, $($argument: $type),*) -> $result {
            debug_assert_eq!(level.0, Kind::$kind);
            // SAFETY: the caller matched `level` as `$kind`, which is made only where all its instructions were found.
            unsafe { $target($($argument),*) }
        }
    };
}

door!(avx2_special, Avx2, avx2::special, (bytes: &[u8], at: usize) -> usize);
door!(avx2_look, Avx2, avx2::look, (bytes: &[u8], at: usize) -> (usize, u64));
door!(avx2_space, Avx2, avx2::space, (bytes: &[u8], at: usize) -> usize);
door!(avx2_unescape, Avx2, avx2::unescape, (bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Stop>);
door!(avx512_special, Avx512, avx512::special, (bytes: &[u8], at: usize) -> usize);
door!(avx512_look, Avx512, avx512::look, (bytes: &[u8], at: usize) -> (usize, u64));
door!(avx512_space, Avx512, avx512::space, (bytes: &[u8], at: usize) -> usize);
door!(avx512_unescape, Avx512, avx512::unescape, (bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Stop>);

door!(avx2_maxima, Avx2, logits2::maxima, (logits: &[f32], mask: Option<&[u32]>, out: &mut Vec<f32>) -> Option<usize>);
door!(avx2_sums, Avx2, logits2::sums, (logits: &[f32], mask: Option<&[u32]>, best: f32, scale: f32, out: &mut Vec<f32>) -> ());
door!(avx2_hits, Avx2, logits2::hits, (group: &[f32; GROUP], words: &[u32; WORDS], floor: f32) -> [u32; WORDS]);
door!(avx512_maxima, Avx512, logits512::maxima, (logits: &[f32], mask: Option<&[u32]>, out: &mut Vec<f32>) -> Option<usize>);
door!(avx512_sums, Avx512, logits512::sums, (logits: &[f32], mask: Option<&[u32]>, best: f32, scale: f32, out: &mut Vec<f32>) -> ());
door!(avx512_hits, Avx512, logits512::hits, (group: &[f32; GROUP], words: &[u32; WORDS], floor: f32) -> [u32; WORDS]);

/// Lanes with an even number.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Which of these backslashes begin an escape: in each run of them every second one, from its first on.
#[inline(always)]
fn starts(backslash: u64) -> u64 {
    let first = backslash & !(backslash << 1);
    // Adding the first one of a run carries through it and leaves zeros.
    let from_even = backslash & !backslash.wrapping_add(first & EVEN);
    let from_odd = backslash ^ from_even;
    from_even & EVEN | from_odd & !EVEN
}
