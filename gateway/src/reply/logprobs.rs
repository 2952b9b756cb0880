//! Log probabilities of tokens, as the Chat Completions API has them.
//!
//! Only writes. Invariant: every entry is valid JSON, whatever bytes a token stands for and whatever its probability.

use std::io::Write as _;

use zerohop_engine::Logprob;

use crate::{json::Writer, put};

/// What the API writes for a token that cannot come: JSON has no infinity.
const NEVER: f32 = -9999.0;

/// Appends these entries behind those that are there.
pub(super) fn entries(out: &mut Vec<u8>, tokens: &[Logprob]) {
    for token in tokens {
        if !out.is_empty() {
            out.push(b',');
        }
        entry(out, &token.bytes, token.logprob);
        // In place of the brace that ends it.
        out.pop();
        out.extend_from_slice(b",\"top_logprobs\":[");
        for (index, (_, bytes, logprob)) in token.top.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            entry(out, bytes, Some(*logprob));
        }
        out.extend_from_slice(b"]}");
    }
}

/// A token: its text (with a replacement for bytes that are no character by themselves), its probability, its bytes.
fn entry(out: &mut Vec<u8>, bytes: &[u8], logprob: Option<f32>) {
    Writer(out)
        .raw(r#"{"token":"#)
        .string(&String::from_utf8_lossy(bytes))
        .raw(r#","logprob":"#);
    match logprob {
        None => out.extend_from_slice(b"null"),
        Some(value) => number(out, value),
    }
    out.extend_from_slice(b",\"bytes\":[");
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put::decimal(out, u64::from(*byte));
    }
    out.extend_from_slice(b"]}");
}

/// A log probability; zero has no sign here.
pub(super) fn number(out: &mut Vec<u8>, value: f32) {
    let value = if value.is_finite() { value + 0.0 } else { NEVER };
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: &[Logprob], wanted: &str) {
        let mut out = Vec::new();
        entries(&mut out, tokens);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, wanted);
        serde_json::from_str::<serde_json::Value>(&format!("[{text}]")).expect("JSON");
    }

    #[test]
    fn entries_of_every_kind() {
        let token = |bytes: &[u8], logprob, top: &[(&[u8], f32)]| Logprob {
            token: 1,
            bytes: bytes.to_vec(),
            logprob,
            top: top
                .iter()
                .map(|(bytes, logprob)| (2, bytes.to_vec(), *logprob))
                .collect(),
        };
        check(&[], "");
        check(
            &[token(b"a\"", Some(-0.5), &[])],
            r#"{"token":"a\"","logprob":-0.5,"bytes":[97,34],"top_logprobs":[]}"#,
        );
        // Half a character, an impossible token, a certain one, none before it.
        check(
            &[
                token(b"\xe2\x82", Some(-0.0), &[(b"", f32::NEG_INFINITY), (b"\n", -1e-7)]),
                token(b"b", None, &[(b"b", f32::NAN)]),
            ],
            "{\"token\":\"\u{fffd}\",\"logprob\":0,\"bytes\":[226,130],\"top_logprobs\":[{\"token\":\"\",\"logprob\":-9999,\"bytes\":[]},{\"token\":\"\\n\",\"logprob\":-0.0000001,\"bytes\":[10]}]},{\"token\":\"b\",\"logprob\":null,\"bytes\":[98],\"top_logprobs\":[{\"token\":\"b\",\"logprob\":-9999,\"bytes\":[98]}]}",
        );
    }
}
