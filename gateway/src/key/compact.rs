//! JSON text in one spelling: no blanks between tokens, one way of writing each character. Order and numbers stay.
//!
//! It does not judge: of text that is no JSON something comes out that means nothing. Invariant: two JSON texts come out
//! alike only if a reader that keeps the order of keys reads the same from them.

use std::str::from_utf8;

use serde::de::IgnoredAny;

use crate::json;

/// Whether the text is one JSON value.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Writes JSON text in its one spelling.
pub(super) fn json(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            b'"' => {
                out.push(b'"');
                at = string(out, bytes, at + 1);
            }
            _ => {
                let end = bytes[at..]
                    .iter()
                    .position(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'"'));
                let end = end.map_or(bytes.len(), |end| at + end);
                out.extend_from_slice(&bytes[at..end]);
                at = end;
            }
        }
    }
}

/// Writes a string whose first byte is at `at`, with the quote that ends it; the place behind that.
fn string(out: &mut Vec<u8>, bytes: &[u8], mut at: usize) -> usize {
    loop {
        let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) else {
            out.extend_from_slice(bytes.get(at..).unwrap_or_default());
            return bytes.len();
        };
        out.extend_from_slice(&bytes[at..at + found]);
        at += found;
        if bytes[at] == b'"' {
            out.push(b'"');
            return at + 1;
        }
        at = escape(out, bytes, at);
    }
}

/// Writes the character of the escape at `at` as [`json::escaped`] does; the place behind it.
fn escape(out: &mut Vec<u8>, bytes: &[u8], at: usize) -> usize {
    let Some(&kind) = bytes.get(at + 1) else {
        out.push(b'\\');
        return at + 1;
    };
    let plain = |c: char, out: &mut Vec<u8>| json::escaped(out, c.encode_utf8(&mut [0; 4]));
    match kind {
        b'u' => {
            let Some(unit) = unit(bytes, at) else {
                out.push(b'\\');
                return at + 1;
            };
            let pair = || {
                let low = unit_at_pair(bytes, at + 6)?;
                char::decode_utf16([unit, low]).next()?.ok()
            };
            if let Some(c) = char::from_u32(unit.into()) {
                plain(c, out);
                at + 6
            } else if let Some(c) = pair() {
                plain(c, out);
                at + 12
            } else {
                // Half of a pair: no character, so only its own spelling is left, in one case.
                out.extend(bytes[at..at + 6].iter().map(u8::to_ascii_lowercase));
                at + 6
            }
        }
        b'/' => {
            out.push(b'/');
            at + 2
        }
        // Of the one-letter escapes all others are what the writer writes.
        _ => {
            out.extend_from_slice(&bytes[at..at + 2]);
            at + 2
        }
    }
}

/// The number of the escape `\uXXXX` at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at + 2..at + 6)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(from_utf8(digits).ok()?, 16).ok()
}

fn unit_at_pair(bytes: &[u8], at: usize) -> Option<u16> {
    (bytes.get(at..at + 2)? == b"\\u").then(|| unit(bytes, at)).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn of(text: &str) -> String {
        let mut out = Vec::new();
        json(&mut out, text);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn spellings_become_one() {
        for (text, wanted) in [
            ("", ""),
            (" { \"a\" :\t[ 1 , 2.50 ]\r\n} ", "{\"a\":[1,2.50]}"),
            (r#"{"b": 1, "a": 2}"#, r#"{"b":1,"a":2}"#),
            (r#""a b  c""#, r#""a b  c""#),
            (r#""\u0041\/\u00e9\u00E9""#, r#""A/éé""#),
            (r#""\ud83d\ude00 \uD83D\uDE00""#, r#""😀 😀""#),
            (r#""\ud83d x \uDE00\ud83d\u0041""#, r#""\ud83d x \ude00\ud83dA""#),
            (r#""\"\\\n\u000a\u0022\u005c\u001F""#, r#""\"\\\n\n\"\\\u001f""#),
            (r#""\u00"#, r#""\u00"#),
            (r#""\"#, r#""\"#),
            ("nothing at all", "nothingatall"),
        ] {
            assert_eq!(of(text), wanted, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn meaning_stays(text in "[\"\\\\{}:, \nabu0-9\u{e9}\u{1F600}/]{0,40}", strings in prop::collection::vec("\\PC{0,8}", 0..4)) {
            let spelled = serde_json::to_string_pretty(&strings).expect("plain values");
            prop_assert_eq!(of(&spelled), serde_json::to_string(&strings).expect("plain values"));
            // Whatever it is, it does not panic, and JSON keeps its meaning.
            let compact = of(&text);
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(serde_json::from_str::<Value>(&compact).ok(), Some(value));
                prop_assert_eq!(of(&compact), compact);
            }
        }
    }
}
