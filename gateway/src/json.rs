//! Writing JSON text: strings and numbers, straight into a byte buffer.
//!
//! Nothing here builds a tree. Invariant: what [`string`] writes is a JSON string of one line, without raw control
//! characters, and reads back as the text it was given.

use crate::put;

/// Bytes that are looked at together; the loop over them becomes vector code.
const LANE: usize = 32;

/// Writes `text` as a JSON string, with its quotes.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escaped(out, text);
    out.push(b'"');
}

/// Writes `text` as the inside of a JSON string, without quotes. Pieces written one after the other read back as the
/// whole.
pub fn escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    out.reserve(rest.len());
    while let Some(at) = first_special(rest) {
        out.extend_from_slice(&rest[..at]);
        escape(out, rest[at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Writes a document piece by piece: punctuation as given, values as JSON.
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    /// JSON text as it stands.
    pub fn raw(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend_from_slice(text.as_ref());
        self
    }

    /// Text that `write` appends and that is JSON as it stands.
    pub fn with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        write(self.0);
        self
    }

    /// A string.
    pub fn string(&mut self, text: &str) -> &mut Self {
        string(self.0, text);
        self
    }

    /// A string, or `null`.
    pub fn string_or_null(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.string(text),
            None => self.raw("null"),
        }
    }

    /// A whole number.
    pub fn number(&mut self, value: impl Into<u64>) -> &mut Self {
        put::decimal(self.0, value.into());
        self
    }
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Where the first byte is that must be escaped.
pub(crate) fn first_special(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let lanes = bytes.chunks_exact(LANE);
    let tail = lanes.remainder();
    for lane in lanes {
        // Without an early exit: that is what lets the compiler use vectors.
        if lane.iter().fold(false, |any, &byte| any | is_special(byte)) {
            return lane
                .chunks_exact(8)
                .position(|word| word_special(word) != 0)
                .map(|index| {
                    let word = &lane[index * 8..index * 8 + 8];
                    at + index * 8 + word_special(word).trailing_zeros() as usize / 8
                });
        }
        at += LANE;
    }
    tail.iter().position(|&byte| is_special(byte)).map(|index| at + index)
}

/// Eight bytes at once: the lowest set bit is the top bit of the first byte that must be escaped. Bits above it may be
/// wrong, since a borrow runs upwards.
fn word_special(word: &[u8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let word = word.try_into().map_or(0, u64::from_le_bytes);
    let below = |value: u64, bound: u64| value.wrapping_sub(ONES * bound) & !value;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, 0x20) | equal(b'"') | equal(b'\\')) & TOPS
}

#[cold]
fn escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0C => b'f',
        _ => {
            out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                put::HEX[usize::from(byte >> 4)],
                put::HEX[usize::from(byte & 15)],
            ]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, wanted: &str) {
        let mut out = Vec::new();
        string(&mut out, text);
        assert_eq!(String::from_utf8(out).unwrap(), wanted, "{text:?}");
    }

    #[test]
    fn strings() {
        check("", r#""""#);
        check("plain", r#""plain""#);
        check("a\"b\\c/d", r#""a\"b\\c/d""#);
        check("\n\r\t\u{8}\u{c}", r#""\n\r\t\b\f""#);
        check("\0\u{1}\u{1f}\u{7f}", "\"\\u0000\\u0001\\u001f\u{7f}\"");
        check("äß€😀\u{2028}", "\"äß€😀\u{2028}\"");
        check(&"x".repeat(100), &format!("\"{}\"", "x".repeat(100)));
    }

    /// Each special byte at each place of a text of several lanes, with bytes above 0x7F around it.
    #[test]
    fn every_place() {
        for special in ["\"", "\\", "\n", "\0", "\u{1f}"] {
            for before in 0..80 {
                let text = format!("{}ä{special}é{}", "y".repeat(before), "z".repeat(40));
                let mut out = Vec::new();
                string(&mut out, &text);
                assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            }
        }
    }

    proptest! {
        #[test]
        fn round_trip(text in any::<String>()) {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn round_trip_of_dense_escapes(text in "[\"\\\\\u{0}-\u{24}a-cäé€😀]{0,200}") {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert!(out.iter().all(|&byte| byte >= 0x20));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn pieces_make_the_whole(pieces in prop::collection::vec(any::<String>(), 0..8)) {
            let mut apart = Vec::new();
            for piece in &pieces {
                escaped(&mut apart, piece);
            }
            let mut whole = Vec::new();
            escaped(&mut whole, &pieces.concat());
            prop_assert_eq!(apart, whole);
        }
    }
}
