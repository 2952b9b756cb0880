//! What every processor can: the meaning that the vector versions are held to.
//!
//! Nothing here is tuned. Invariant: no byte outside the slice is read.

use crate::escape::{self, Stop};

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Bytes that are looked at together; the loop over them becomes code for what vectors every processor has.
const LANE: usize = 32;

/// See [`crate::Level::special`].
pub(crate) fn special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(lane) = bytes.get(at..).and_then(|rest| rest.first_chunk::<LANE>()) {
        // Without an early exit: that is what lets the compiler use vectors.
        if lane.iter().fold(false, |any, &byte| any | is_special(byte)) {
            break;
        }
        at += LANE;
    }
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let mask = specials_of_word(u64::from_le_bytes(*word));
        if mask != 0 {
            return at + mask.trailing_zeros() as usize;
        }
        at += 8;
    }
    find(bytes, at, is_special)
}

/// See [`crate::Level::look`].
pub(crate) fn look(bytes: &[u8], at: usize) -> (usize, u64) {
    let at = special(bytes, at);
    (at, specials(bytes, at))
}

/// A bit for each special byte of the 64 from `at` on, and for each behind the end.
pub(crate) fn specials(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    let mut block = [0; 64];
    let len = rest.len().min(64);
    // The zeros behind the end count as controls.
    block[..len].copy_from_slice(&rest[..len]);
    let words = block.as_chunks().0.iter().enumerate();
    words.fold(0, |mask, (at, word)| {
        mask | specials_of_word(u64::from_le_bytes(*word)) << (8 * at)
    })
}

/// A bit for each special byte of eight, the first lowest.
fn specials_of_word(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7F * ONES;
    // The top bit of each byte that is zero: no carry leaves a byte.
    let zero = |word: u64| !(((word & LOW) + LOW) | word | LOW);
    let control = zero(word & (0xE0 * ONES));
    let quote = zero(word ^ (u64::from(b'"') * ONES));
    let backslash = zero(word ^ (u64::from(b'\\') * ONES));
    // Each product has its bit in the top byte, and nothing else meets there.
    ((control | quote | backslash) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// See [`crate::Level::space`].
pub(crate) fn space(bytes: &[u8], at: usize) -> usize {
    find(bytes, at, |byte| !is_space(byte))
}

fn find(bytes: &[u8], at: usize, wanted: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let found = rest.iter().position(|&byte| wanted(byte)).unwrap_or(rest.len());
    bytes.len() - rest.len() + found
}

/// See [`crate::Level::unescape`]; the string goes on at `from`.
pub(crate) fn unescape(bytes: &[u8], mut from: usize, out: &mut Vec<u8>) -> Result<usize, Stop> {
    loop {
        let at = special(bytes, from);
        out.extend_from_slice(bytes.get(from..at).unwrap_or_default());
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => from = at + escape(&bytes[at..], out)?,
            Some(_) => return Err(Stop::Control),
            None => return Err(Stop::Unterminated),
        }
    }
}

/// Appends what the escape at the start of `bytes` stands for, and those of code units that follow it at once. Returns
/// how many bytes they have.
pub(crate) fn escape(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Stop> {
    let taken = escape::units(bytes, out);
    if taken > 0 {
        return Ok(taken);
    }
    match escape::read(bytes)? {
        ('\0', _) => Err(Stop::Nul),
        (char, taken) => {
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            Ok(taken)
        }
    }
}
