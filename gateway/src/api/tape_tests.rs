//! What is JSON and what is not, side by side with an independent parser, and where a fault is found.

use proptest::prelude::*;

use super::*;
use crate::{
    api::{
        Dialect,
        fault::{Path, What},
    },
    error::ErrorKind,
};

/// The body as the other parser's tree.
fn tree(value: Value<'_>) -> serde_json::Value {
    match value.json() {
        Json::Null => serde_json::Value::Null,
        Json::Bool(value) => value.into(),
        Json::Int(value) => u64::try_from(value).map_or_else(|_| i64::try_from(value).unwrap().into(), Into::into),
        Json::Float(value) => value.into(),
        Json::Str(text) => text.into(),
        Json::Array(items) => items.map(tree).collect(),
        Json::Object(entries) => entries.map(|(key, value)| (key.to_owned(), tree(value))).collect(),
    }
}

/// The one difference that is none: `-0` is an integer here, a float there.
fn plain(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Number(number) if number.as_f64() == Some(0.0) => 0.into(),
        serde_json::Value::Array(items) => items.into_iter().map(plain).collect(),
        serde_json::Value::Object(entries) => entries.into_iter().map(|(key, value)| (key, plain(value))).collect(),
        other => other,
    }
}

/// Both parsers refuse the body, or both read the same from it. Where it is refused, the explaining scan finds a reason
/// of its own.
fn check(scratch: &mut Scratch, body: &[u8]) {
    let ours = scratch.with(body, |root, _| Ok(tree(root)));
    let theirs = serde_json::from_slice::<serde_json::Value>(body);
    let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(plain(ours), plain(theirs), "{shown}"),
        (Err(fault), Err(_)) => {
            let explained = match &fault.what {
                What::Syntax(reason, at) => *reason != locate::UNEXPLAINED && *at <= body.len(),
                what => *what == What::Rule("is empty"),
            };
            assert!(explained, "{shown}: {fault:?}");
        }
        (ours, theirs) => panic!("{shown}: ours {ours:?}, theirs {theirs:?}"),
    }
}

const NASTY: &[&str] = &[
    "",
    " ",
    "\n",
    "{",
    "}",
    "[",
    "]",
    "{}",
    "[]",
    "[[]]",
    "[{}]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{\"a\":1 \"b\":2}",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1,,2]",
    "[1",
    "{\"a\":[}",
    "[{]",
    "[}",
    "{]",
    "{\"a\":1]",
    "{1:2}",
    "{null:1}",
    "{\"a\" 1}",
    "{\"a\"::1}",
    "1",
    "-1",
    "-",
    "--1",
    "+1",
    "01",
    "-01",
    "1.",
    ".1",
    "1.e1",
    "1e",
    "1e+",
    "1e1",
    "1E-1",
    "1.5e3",
    "0x10",
    "1_000",
    "1a",
    "-a",
    "0",
    "-0",
    "-0.0",
    "00",
    "0.10",
    "1e999",
    "-1e999",
    "1e-999",
    "1e308",
    "1e309",
    "123456789012345678901234567890",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "0.1e1",
    "1e0001",
    "1e99999999999999999999",
    "0e99999999999",
    "NaN",
    "nan",
    "Infinity",
    "-Infinity",
    "inf",
    "true",
    "True",
    "tru",
    "truee",
    "false",
    "fals",
    "null",
    "nul",
    "nulll",
    "undefined",
    "[true,false,null]",
    "[truefalse]",
    "[nulltrue]",
    "[true false]",
    "\"a\"",
    "\"",
    "\"a",
    "a\"",
    "'a'",
    "\"\\\"",
    "\"\\\\\"",
    "\"\\\\\\\"",
    "\"\\x41\"",
    "\"\\u0041\"",
    "\"\\u004\"",
    "\"\\u00g0\"",
    "\"\\uD83D\\uDE00\"",
    "\"\\ud800\"",
    "\"\\udc00\"",
    "\"\\ud800\\u0041\"",
    "\"\\ud800\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\\ud800x\"",
    "\"\\ud800\\n\"",
    "\"\\u0000\"",
    "\"a\u{1}b\"",
    "\"a\tb\"",
    "\"a\nb\"",
    "\"\u{7f}\"",
    "\"\\/\\b\\f\\n\\r\\t\"",
    "\"\\a\"",
    "\"\\\"",
    "[\"a\\\"]",
    "{\"\\ud800\":1}",
    "{\"a\":\"\\ud800\"}",
    "{} {}",
    "{}x",
    "{},",
    "{}]",
    "[]]",
    "1 1",
    "\"a\"\"b\"",
    "{}\u{0}",
    "\u{0}{}",
    "\u{feff}{}",
    "\u{a0}{}",
    "{}\u{2028}",
    "[1]\u{b}",
    "\u{c}1",
    "// c\n{}",
    "{/**/}",
    "{\"a\":1}#",
    "{\"a\":1,\"a\":2}",
    "{\"\":1}",
    "{\"a\":{\"b\":[1,{\"c\":\"d\"}]}}",
    "[[[[[[[[1]]]]]]]]",
    "[\"\u{10ffff}\"]",
    "[\"é\",\"日本\"]",
    "\t\r\n [ 1 , 2 ] \t\r\n",
    "[1\u{a0}]",
    "{\"a\":tru}",
    "{\"a\":-}",
    "{\"a\":01}",
    "[\"a\" : 1]",
    "{\"a\", 1}",
    ":",
    ",",
    "[:]",
    "{\"k\":\"v\",}",
    "{\"k\":\"v\"\"x\"}",
    "[1.0.0]",
    "[1-1]",
    "[1e1.5]",
    "\\",
    "{\\}",
    "[\\]",
    "{\"a\\\\\":1}",
    "{\"a\\\":1}",
];

#[test]
fn nasty_bodies_mean_the_same_to_an_independent_parser() {
    let mut scratch = Scratch::default();
    for body in NASTY {
        check(&mut scratch, body.as_bytes());
        // Behind more than one vector's width, and inside a document.
        check(&mut scratch, format!("{}{body}", " ".repeat(70)).as_bytes());
        check(
            &mut scratch,
            format!("{{\"a\":\"{}\",\"b\":{body}}}", "x".repeat(61)).as_bytes(),
        );
        check(&mut scratch, format!("[{body},{body}]").as_bytes());
    }
}

#[test]
fn bytes_that_are_no_text() {
    let mut scratch = Scratch::default();
    for bytes in [
        &b"\"\xff\""[..],
        b"\xff",
        b"{\"a\":\"\xc3\"}",
        b"\"\xc3\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xc0\xaf\"",
        b"\"\xe2\x82\"",
        b"{}\xff",
        b"\"\x80\"",
        b"\xef\xbb\xbf{}",
    ] {
        check(&mut scratch, bytes);
    }
}

proptest! {
    /// Bodies of JSON's own characters: mostly refused, sometimes not.
    #[test]
    fn random_bodies(body in "[\\[\\]{}:,\" \\\\u0-9a-fn.trlse+-]{0,24}") {
        check(&mut Scratch::default(), body.as_bytes());
    }

    #[test]
    fn random_bytes(body in prop::collection::vec(any::<u8>(), 0..80)) {
        check(&mut Scratch::default(), &body);
    }

    /// Valid bodies with one byte changed or the end cut off.
    #[test]
    fn nearly_valid(text in any::<String>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let value = serde_json::json!({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}], "n": -1.5e3, "t": true});
        let mut body = serde_json::to_vec(&value).unwrap();
        let at = at.index(body.len());
        if cut { body.truncate(at) } else { body[at] = byte }
        check(&mut Scratch::default(), &body);
    }
}

/// The body is refused at this path, with this message to an Anthropic client.
fn check_fault(body: &[u8], param: Option<&str>, message: &str) {
    let fault = Scratch::default().with(body, |_, _| Ok(())).expect_err("refused");
    let error = fault.into_error(Dialect::Anthropic);
    assert_eq!(
        (error.kind, error.param.as_deref(), &*error.message),
        (ErrorKind::InvalidRequest, param, message)
    );
}

#[test]
fn faults_are_found() {
    for (body, param, message) in [
        (&b""[..], None, "The request body is empty"),
        (b" \r\n\t", None, "The request body is empty"),
        (
            b"{",
            None,
            "The request body is not valid JSON: unexpected end at byte 1",
        ),
        (
            b"{}}",
            None,
            "The request body is not valid JSON: unexpected data after the end at byte 2",
        ),
        (
            b"{\"a\":1,}",
            None,
            "The request body is not valid JSON: expected a string as key at byte 7",
        ),
        (b"{\"a\" 1}", Some("a"), "a: Invalid JSON: expected a colon at byte 5"),
        (
            b"{\"a\":1e999}",
            Some("a"),
            "a: Invalid JSON: number out of range at byte 5",
        ),
        (
            b"{\"a\":NaN}",
            Some("a"),
            "a: Invalid JSON: unexpected character at byte 5",
        ),
        (
            b"{\"a\":[1,01]}",
            Some("a.1"),
            "a.1: Invalid JSON: invalid number at byte 8",
        ),
        (
            b"{\"a\":[{},{\"b\":\"x\xff\"}]}",
            Some("a.1.b"),
            "a.1.b: Invalid JSON: invalid UTF-8 at byte 16",
        ),
        (
            b"{\"a\":[],\"b\xff\":1}",
            None,
            "The request body is not valid JSON: invalid UTF-8 at byte 10",
        ),
        (
            br#"{"messages":[{"role":"user","content":"\ud800"}]}"#,
            Some("messages.0.content"),
            "messages.0.content: Invalid JSON: lone surrogate at byte 39",
        ),
        (
            br#"{"messages":[{"role":"user","content":[{"type":"text","text":"\\\ud83d\ude00 \udc00"}]}]}"#,
            Some("messages.0.content.0.text"),
            "messages.0.content.0.text: Invalid JSON: lone surrogate at byte 77",
        ),
        (
            b"{\"a\":\"x\ny\"}",
            Some("a"),
            "a: Invalid JSON: control character in a string at byte 7",
        ),
        (
            b"{\"a\":\"\\q\"}",
            Some("a"),
            "a: Invalid JSON: invalid escape at byte 6",
        ),
        (
            b"{\"a\":\"x",
            Some("a"),
            "a: Invalid JSON: unterminated string at byte 7",
        ),
    ] {
        check_fault(body, param, message);
    }
}

#[test]
fn depth_has_a_limit() {
    let nested = |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let mut scratch = Scratch::default();
        assert!(
            scratch
                .with(nested(open, close, MAX_DEPTH).as_bytes(), |_, _| Ok(()))
                .is_ok()
        );
        for depth in [MAX_DEPTH + 1, 100_000] {
            let wanted = Path::Root.breaks("is nested deeper than 128 levels");
            assert_eq!(
                scratch.with(nested(open, close, depth).as_bytes(), |_, _| Ok(())),
                Err(wanted.clone())
            );
            assert_eq!(scratch.with(open.repeat(depth).as_bytes(), |_, _| Ok(())), Err(wanted));
        }
    }
}

#[test]
fn a_large_body_may_not_be_all_structure() {
    let mut scratch = Scratch::default();
    for body in ["[1,".repeat(2 << 20), "[".repeat(5 << 20), "1 ".repeat(5 << 20)] {
        assert_eq!(
            scratch.with(body.as_bytes(), |_, _| Ok(())),
            Err(Path::Root.breaks("has too many values"))
        );
    }
    // Text may hold what it likes.
    let body = format!("[\"{}\"]", "[1,\\\"\\\\".repeat(1 << 20));
    assert_eq!(
        scratch.with(body.as_bytes(), |root, _| Ok(matches!(root.json(), Json::Array(_)))),
        Ok(true)
    );
    assert!(
        scratch.padded.capacity() <= KEEP_BYTES,
        "a large body's buffers are given back"
    );
}

#[test]
fn a_scratch_forgets_the_body_before() {
    let mut scratch = Scratch::default();
    for (body, wanted) in [("[1,2,3]", 3), ("[", 0), ("[\"\\n\\\"\"]", 1), ("[1,2", 0), ("[]", 0)] {
        let length = scratch.with(body.as_bytes(), |root, _| match root.json() {
            Json::Array(items) => Ok(items.count()),
            _ => Err(Path::Root.breaks("is no array")),
        });
        assert_eq!(length.unwrap_or(0), wanted, "{body}");
    }
}
