use super::*;
use crate::{
    api::StreamOptions,
    reply::stored::{Shape, Stored},
};

const USED: &str = r#""usage":{"input_tokens":7,"cache_read_input_tokens":3,"output_tokens":2}"#;
const COUNTED: &str =
    r#""usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}"#;

fn message(content: &str, reason: &str) -> String {
    format!(r#"{{"id":"msg_1","type":"message","role":"assistant","content":{content},"stop_reason":{reason},{USED}}}"#)
}

fn completion(message: &str, reason: &str) -> String {
    format!(
        r#"{{"object":"chat.completion","choices":[{{"index":0,"message":{message},"finish_reason":{reason}}}],{COUNTED}}}"#
    )
}

fn stored(document: &str) -> Vec<u8> {
    let named = Named {
        id: (1, 2),
        created: 1_700_000_000,
        version: "v",
    };
    let recorded = Recorded::read(document).unwrap_or_else(|why| panic!("{document}: {why}"));
    recorded
        .stored(named, &mut IdSource::new([1, 2]))
        .expect("not too long")
}

fn body(form: &[u8], dialect: Dialect, stream: Option<StreamOptions>) -> String {
    let mut out = Vec::new();
    let stored = Stored::read(form).expect("a stored form");
    stored.body(&Shape::new(dialect, stream, "m"), &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn either_dialect_is_told_in_both() {
    let text = r#""He said \"hi\" 🎈\n""#;
    for document in [
        message(&format!(r#"[{{"type":"text","text":{text}}}]"#), r#""end_turn""#),
        completion(&format!(r#"{{"role":"assistant","content":{text}}}"#), r#""stop""#),
    ] {
        let form = stored(&document);
        let anthropic = body(&form, Dialect::Anthropic, None);
        let openai = body(&form, Dialect::OpenAi, None);
        for (body, parts) in [
            (
                &anthropic,
                [
                    r#""stop_reason":"end_turn""#,
                    r#""input_tokens":7"#,
                    r#""cache_read_input_tokens":3"#,
                ],
            ),
            (
                &openai,
                [
                    r#""finish_reason":"stop""#,
                    r#""prompt_tokens":10"#,
                    r#""cached_tokens":3"#,
                ],
            ),
        ] {
            assert!(body.contains(text), "{body}");
            parts
                .iter()
                .for_each(|part| assert!(body.contains(part), "{part} in {body}"));
        }
        let stream = body(&form, Dialect::OpenAi, Some(StreamOptions::default()));
        assert!(stream.contains(text), "{stream}");
    }
}

#[test]
fn calls_are_told_in_both() {
    for document in [
        message(
            r#"[{"type":"text","text":"well"},{"type":"tool_use","id":"toolu_1","name":"f","input":{"a": 1}}]"#,
            r#""tool_use""#,
        ),
        completion(
            r#"{"content":"well","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]}"#,
            r#""tool_calls""#,
        ),
    ] {
        let form = stored(&document);
        let anthropic = body(&form, Dialect::Anthropic, None);
        assert!(anthropic.contains(r#""name":"f","input":{"a": 1}"#), "{anthropic}");
        let openai = body(&form, Dialect::OpenAi, None);
        assert!(openai.contains(r#""arguments":"{\"a\": 1}""#), "{openai}");
        assert!(openai.contains(r#""finish_reason":"tool_calls""#), "{openai}");
    }
}

#[test]
fn stop_texts_are_kept() {
    let document = message(
        r#"[{"type":"text","text":"a"}]"#,
        r#""stop_sequence","stop_sequence":"END""#,
    );
    assert_eq!(
        Recorded::read(&document).map(|it| it.finish),
        Ok(Finish::Stop("END".into()))
    );
}

#[test]
fn what_cannot_be_stored_is_refused_with_its_reason() {
    let text = r#"[{"type":"text","text":"a"}]"#;
    let table = [
        ("[]".to_owned(), "the response is none"),
        ("{}".into(), "no `usage`"),
        (r#"{"error":{"message":"no"}}"#.into(), "is an error"),
        (format!("{{{USED}}}"), "neither the `content`"),
        (message(text, "null"), "`stop_reason` is None"),
        (message(text, r#""refusal""#), "`stop_reason` is Some(\"refusal\")"),
        (message(text, r#""tool_use""#), "contradict"),
        (
            message(r#"[{"type":"thinking","thinking":"h"}]"#, r#""end_turn""#),
            "type \"thinking\"",
        ),
        (
            message(r#"[{"type":"tool_use","name":"f","input":[]}]"#, r#""tool_use""#),
            "no JSON object",
        ),
        (
            message(
                r#"[{"type":"tool_use","name":"f","input":{}},{"type":"text","text":"a"}]"#,
                r#""tool_use""#,
            ),
            "text behind a call",
        ),
        (
            format!(r#"{{"content":{text},"stop_reason":"end_turn","usage":{{"input_tokens":1}}}}"#),
            "`output_tokens`",
        ),
        (format!(r#"{{"choices":[],{COUNTED}}}"#), "0 choices"),
        (
            completion(r#"{"content":"a"}"#, r#""content_filter""#),
            "content_filter",
        ),
        (
            completion(r#"{"content":null,"refusal":"no"}"#, r#""stop""#),
            "a refusal",
        ),
        (
            completion(r#"{"content":"a"},"logprobs":{"content":[]}"#, r#""stop""#),
            "log probabilities",
        ),
        (
            completion(
                r#"{"tool_calls":[{"function":{"name":"f","arguments":"x"}}]}"#,
                r#""tool_calls""#,
            ),
            "no JSON object",
        ),
    ];
    for (document, part) in table {
        let why = Recorded::read(&document).expect_err(&document);
        assert!(why.contains(part), "{document}: {why}");
    }
}

#[test]
fn what_is_too_long_has_no_form() {
    let text = "x".repeat(crate::reply::stored::MAX_BYTES);
    let document = message(&format!(r#"[{{"type":"text","text":"{text}"}}]"#), r#""end_turn""#);
    let named = Named {
        id: (1, 2),
        created: 0,
        version: "v",
    };
    let recorded = Recorded::read(&document).expect("a message");
    assert_eq!(recorded.stored(named, &mut IdSource::new([1, 2])), None);
}
