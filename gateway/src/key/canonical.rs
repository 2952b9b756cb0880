//! A body in its canonical form: sorted keys, no blanks, one spelling for each text and number, nothing dropped but what
//! says how the reply is told or who sent the request.
//!
//! Knows no field but the few that are dropped. Invariant: two bodies come out alike only if a reader of JSON finds the
//! same in them; whole numbers beyond 64 bits count as the nearest 64-bit float, as in the gateway's own readers.

use crate::{
    api::{Entries, Json, Scratch, Value},
    json, put,
};

/// Fields at the top of a body that never reach a model: how the reply is told, who sent it, the client's name for the
/// model. The list is short on purpose: what is missing here costs a hit, what is too much here would cost an answer.
const DROPPED: [&str; 5] = ["model", "stream", "stream_options", "user", "metadata"];

/// 2⁵³: whole numbers below it are written without a fraction, however the body has them.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Appends the canonical form of `body`, a JSON object. False, and nothing appended, if it is none.
pub fn canonical_json(body: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let written = scratch.with(body, |root, _| match root.json() {
        Json::Object(entries) => {
            object(entries, &DROPPED, out);
            Ok(true)
        }
        _ => Ok(false),
    });
    let written = written.unwrap_or(false);
    if !written {
        out.truncate(start);
    }
    written
}

/// The depth is bounded by the reader's.
fn value(value: Value<'_>, out: &mut Vec<u8>) {
    match value.json() {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Bool(true) => out.extend_from_slice(b"true"),
        Json::Bool(false) => out.extend_from_slice(b"false"),
        Json::Int(number) => whole(number, out),
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        Json::Float(number) if number.fract() == 0.0 && number.abs() < EXACT => whole(number as i128, out),
        Json::Float(number) => out.extend_from_slice(zmij::Buffer::new().format_finite(number).as_bytes()),
        Json::Str(text) => json::string(out, text),
        Json::Array(items) => {
            out.push(b'[');
            for (index, item) in items.enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                self::value(item, out);
            }
            out.push(b']');
        }
        Json::Object(entries) => object(entries, &[], out),
    }
}

/// Entries by their keys; those of one key stay in their order.
fn object(entries: Entries<'_>, without: &[&str], out: &mut Vec<u8>) {
    let mut sorted: Vec<_> = entries.filter(|(key, _)| !without.contains(key)).collect();
    sorted.sort_by_key(|(key, _)| *key);
    out.push(b'{');
    for (index, (key, entry)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::string(out, key);
        out.push(b':');
        value(entry, out);
    }
    out.push(b'}');
}

fn whole(number: i128, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    // Of 64 bits, with or without sign.
    put::decimal(out, u64::try_from(number.unsigned_abs()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, wanted: Option<&str>) {
        let mut out = b"before".to_vec();
        let written = canonical_json(body.as_bytes(), &mut Scratch::default(), &mut out);
        let wanted = format!("before{}", wanted.unwrap_or_default());
        assert_eq!(String::from_utf8_lossy(&out), wanted, "{body}");
        assert_eq!(written, wanted.len() > 6, "{body}");
    }

    #[test]
    fn bodies_in_one_form() {
        check("{}", Some("{}"));
        check(
            r#" {"b": [1, 1.0, 1e0, -0.0, 2.50, 1e300, -3, 18446744073709551615], "a": {"d": null, "c": [true, false, {}]}} "#,
            Some(r#"{"a":{"c":[true,false,{}],"d":null},"b":[1,1,1,0,2.5,1e+300,-3,18446744073709551615]}"#),
        );
        check(r#"{"\u0061": "\u00e9\/\n"}"#, Some("{\"a\":\"é/\\n\"}"));
        check(
            r#"{"stream": true, "stream_options": {}, "user": "u", "metadata": {}, "model": "m", "x": {"user": "u"}}"#,
            Some(r#"{"x":{"user":"u"}}"#),
        );
        check(r#"{"a": 2, "b": 0, "a": 1}"#, Some(r#"{"a":2,"a":1,"b":0}"#));
        check("[1]", None);
        check("{\"a\": ", None);
        check("", None);
    }
}
