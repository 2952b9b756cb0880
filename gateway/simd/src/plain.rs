//! What every processor can: the meaning that the vector versions are held to.
//!
//! Nothing here is tuned. Invariant: no byte outside the slice is read.

use crate::{
    escape::{self, Stop},
    text,
};

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// See [`crate::Level::special`].
pub(crate) fn special(bytes: &[u8], at: usize) -> usize {
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
    let seen = rest.iter().take(64).enumerate();
    let mask = seen.fold(0, |mask, (lane, &byte)| mask | u64::from(is_special(byte)) << lane);
    if rest.len() < 64 {
        mask | u64::MAX << rest.len()
    } else {
        mask
    }
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

/// Appends what the escapes at the start of `bytes` stand for: one, and those of its kind that follow at once. Returns
/// how many bytes they have.
pub(crate) fn escape(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Stop> {
    let mut at = 0;
    loop {
        let (char, taken) = escape::read(&bytes[at..])?;
        if char == '\0' {
            return Err(Stop::Nul);
        }
        text::push(out, char);
        at += taken;
        // Text in another script is often written in escapes throughout.
        if bytes.get(at) != Some(&b'\\') || bytes.get(at + 1) != Some(&b'u') {
            return Ok(at);
        }
    }
}
