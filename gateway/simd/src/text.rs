//! Bytes that became text without a second check.
//!
//! Invariant: a string is only touched by one function of this crate at a time, and whatever that function does, the
//! string is text again when it returns.

#![allow(unsafe_code)]

use std::mem;

use crate::escape::Stop;

/// Lets `fill` append to `out` what the string at the start of `text` says. Where it fails, `out` is as before.
///
/// `fill` copies runs of bytes that begin and end at ASCII characters of `text` or at its start, and appends whole
/// characters; each of this crate does.
#[inline]
pub(crate) fn append(
    text: &str,
    out: &mut String,
    fill: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<usize, Stop>,
) -> Result<usize, Stop> {
    let before = out.len();
    let mut bytes = mem::take(out).into_bytes();
    let result = fill(text.as_bytes(), &mut bytes);
    if result.is_err() {
        bytes.truncate(before);
    }
    // SAFETY: the first `before` bytes are the text that was there. Behind them, on success, stand runs of `text` that
    // were cut at ASCII characters, that is between characters, and whole characters; otherwise nothing.
    *out = unsafe { String::from_utf8_unchecked(bytes) };
    result
}
