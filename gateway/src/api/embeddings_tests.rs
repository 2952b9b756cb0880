use super::*;
use crate::error::ErrorKind;

fn parse(body: &str, strict: bool) -> Result<(EmbedRequest, Ignored), ApiError> {
    embeddings(body.as_bytes(), &mut Scratch::default(), strict)
}

/// These fields beside the model mean this.
fn check(fields: &str, inputs: Vec<Input>, change: impl FnOnce(&mut EmbedRequest)) {
    let body = format!(r#"{{"model":"m",{fields}}}"#);
    let mut wanted = EmbedRequest {
        model: "m".into(),
        inputs,
        dimensions: None,
        format: VectorFormat::Float,
    };
    change(&mut wanted);
    assert_eq!(parse(&body, true), Ok((wanted, Ignored::default())), "{body}");
}

fn texts(all: &[&str]) -> Vec<Input> {
    all.iter().map(|&text| Input::Text(text.into())).collect()
}

#[test]
fn every_form_of_input() {
    check(r#""input":"a\u00e4""#, texts(&["aä"]), |_| {});
    check(r#""input":["a","b"]"#, texts(&["a", "b"]), |_| {});
    check(
        r#""input":[1,2.0,4294967295]"#,
        vec![Input::Tokens(vec![1, 2, u32::MAX])],
        |_| {},
    );
    check(r#""input":[1e99]"#, vec![Input::Tokens(vec![u32::MAX])], |_| {});
    check(
        r#""input":[[1],[2,3]]"#,
        vec![Input::Tokens(vec![1]), Input::Tokens(vec![2, 3])],
        |_| {},
    );
    let many = vec!["\"a\""; MAX_INPUTS].join(",");
    check(&format!(r#""input":[{many}]"#), texts(&["a"; MAX_INPUTS]), |_| {});
}

#[test]
fn other_fields() {
    check(r#""input":"a","encoding_format":"float""#, texts(&["a"]), |_| {});
    check(
        r#""input":"a","encoding_format":null,"dimensions":null,"user":null"#,
        texts(&["a"]),
        |_| {},
    );
    check(r#""input":"a","encoding_format":"base64""#, texts(&["a"]), |request| {
        request.format = VectorFormat::Base64;
    });
    check(r#""dimensions":1,"input":"a","user":"u""#, texts(&["a"]), |request| {
        request.dimensions = Some(1)
    });
    check(
        r#""input":"a","add_special_tokens":true,"normalize":true,"truncate_prompt_tokens":null"#,
        texts(&["a"]),
        |_| {},
    );
}

#[test]
fn faults() {
    let too_many = vec!["\"a\""; MAX_INPUTS + 1].join(",");
    let too_many = format!(r#"{{"model":"m","input":[{too_many}]}}"#);
    for (body, param, words) in [
        ("", None, "the body is empty"),
        ("{", None, "could not parse"),
        ("[]", None, "expected an object"),
        (r#"{"input":"a"}"#, Some("model"), "Missing required parameter: 'model'"),
        (r#"{"model":"m"}"#, Some("input"), "Missing required parameter: 'input'"),
        (
            r#"{"model":"m","input":null}"#,
            Some("input"),
            "Missing required parameter: 'input'",
        ),
        (r#"{"model":"m","input":""}"#, Some("input"), "must not be empty"),
        (r#"{"model":"m","input":[]}"#, Some("input"), "must not be empty"),
        (
            r#"{"model":"m","input":[[]]}"#,
            Some("input.0"),
            "'input[0]': must not be empty",
        ),
        (
            r#"{"model":"m","input":["a",""]}"#,
            Some("input.1"),
            "'input[1]': must not be empty",
        ),
        (
            r#"{"model":"m","input":["a",1]}"#,
            Some("input.1"),
            "expected a string, but got an integer",
        ),
        (
            r#"{"model":"m","input":[1,"a"]}"#,
            Some("input.1"),
            "expected an integer, but got a string",
        ),
        (
            r#"{"model":"m","input":[[1],2]}"#,
            Some("input.1"),
            "expected an array, but got an integer",
        ),
        (
            r#"{"model":"m","input":[null]}"#,
            Some("input.0"),
            "expected a string, but got null",
        ),
        (r#"{"model":"m","input":[-1]}"#, Some("input.0"), "below the minimum"),
        (r#"{"model":"m","input":[1.5]}"#, Some("input.0"), "expected an integer"),
        (
            r#"{"model":"m","input":7}"#,
            Some("input"),
            "a string, an array of strings, or arrays of tokens",
        ),
        (r#"{"model":"m","input":"a\u0000"}"#, Some("input"), "NUL"),
        (&too_many, Some("input"), "at most 2048 entries"),
        (
            r#"{"model":"m","input":"a","encoding_format":"int8"}"#,
            Some("encoding_format"),
            "'float' and 'base64'",
        ),
        (
            r#"{"model":"m","input":"a","encoding_format":1}"#,
            Some("encoding_format"),
            "expected a string",
        ),
        (
            r#"{"model":"m","input":"a","dimensions":0}"#,
            Some("dimensions"),
            "below the minimum",
        ),
        (r#"{"model":"m","input":"a","input":"b"}"#, Some("input"), "Duplicate"),
        (
            r#"{"model":"m","input":"a","normalize":false}"#,
            Some("normalize"),
            "does not support 'false'",
        ),
        (
            r#"{"model":"m","input":"a","truncate_prompt_tokens":5}"#,
            Some("truncate_prompt_tokens"),
            "not supported",
        ),
        (
            r#"{"model":"m","input":"a","unknown":1}"#,
            Some("unknown"),
            "Unrecognized",
        ),
    ] {
        let error = parse(body, true).expect_err(body);
        assert_eq!(error.kind, ErrorKind::InvalidRequest, "{body}");
        assert_eq!(error.param.as_deref(), param, "{body}: {}", error.message);
        assert!(error.message.contains(words), "{body}: {}", error.message);
    }
    let (_, ignored) = parse(r#"{"model":"m","input":"a","unknown":1}"#, false).expect("lenient");
    assert_eq!(ignored.count, 1);
}
