use std::time::Duration;

use super::*;
use crate::{
    api::{Places, StreamOptions},
    http::{RequestId, Version},
    reply::Connection,
};

/// Tue, 14 Nov 2023 22:13:20 GMT
const NOW: u64 = 1_700_000_000;

fn meta(choices: u32, logprobs: bool, stream: Option<StreamOptions>) -> ReplyMeta {
    ReplyMeta {
        dialect: Dialect::OpenAi,
        id: (0, 0),
        model: "my \"model\"".into(),
        model_version: "1a2b".into(),
        created: NOW,
        stream,
        choices,
        logprobs,
        places: Places::default(),
        connection: Connection {
            version: Version::Http11,
            keep_alive: true,
            head_only: false,
            request_id: RequestId::from_bits(0, 0),
        },
    }
}

fn started(input_tokens: u32) -> Event {
    Event::Started {
        input_tokens,
        cached_tokens: 0,
        queued: Duration::ZERO,
    }
}

fn token(id: u32, bytes: &[u8], logprob: Option<f32>, top: &[(u32, &[u8], f32)]) -> Logprob {
    Logprob {
        token: id,
        bytes: bytes.to_vec(),
        logprob,
        top: top
            .iter()
            .map(|(id, bytes, value)| (*id, bytes.to_vec(), *value))
            .collect(),
    }
}

fn text(text: &str, logprobs: Vec<Logprob>) -> Event {
    Event::Text {
        text: text.into(),
        tokens: 1,
        logprobs,
    }
}

fn finished(input_tokens: u32, output_tokens: u32, finish: Finish) -> Event {
    let usage = Usage {
        input_tokens,
        cached_tokens: 0,
        output_tokens,
    };
    Event::Finished { finish, usage }
}

/// The body that these events make, and where the reply then stands.
fn run(mut reply: CompletionReply, events: &[(usize, Event)]) -> (String, Progress) {
    let (mut out, date) = (Vec::new(), HttpDate::at(NOW));
    let mut progress = Progress::More;
    for (index, event) in events {
        assert_eq!(progress, Progress::More, "nothing follows the end");
        progress = reply.on(*index, event, &date, &mut out);
    }
    let reply = String::from_utf8(out).expect("UTF-8");
    let (_, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
    (body.to_owned(), progress)
}

const HEAD: &str = r#"{"id":"cmpl-000000000000000000000000","object":"text_completion","created":1700000000,"model":"my \"model\"","system_fingerprint":"fp_1a2b","choices":["#;

fn usage(input: u32, output: u32) -> String {
    let mut out = Vec::new();
    let usage = Usage {
        input_tokens: input,
        cached_tokens: 0,
        output_tokens: output,
    };
    write_usage(usage, &mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn documents_have_an_answer_for_each_prompt_and_index() {
    // Two prompts of three and five tokens with two answers each, which come in any order.
    let events = [
        (2, started(5)),
        (0, started(3)),
        (0, text("A \"b\"", vec![])),
        (3, started(5)),
        (3, finished(5, 0, Finish::EndOfTurn)),
        (2, text("c", vec![])),
        (0, text("\n", vec![])),
        (0, finished(3, 2, Finish::MaxTokens)),
        (1, started(3)),
        (2, finished(5, 1, Finish::Stop("x".into()))),
        (1, text("d", vec![])),
        (1, finished(3, 1, Finish::ContextFull)),
    ];
    let (body, progress) = run(CompletionReply::new(meta(4, false, None), 2), &events);
    let want = [
        HEAD,
        r#"{"index":0,"text":"A \"b\"\n","logprobs":null,"finish_reason":"length"},"#,
        r#"{"index":1,"text":"d","logprobs":null,"finish_reason":"length"},"#,
        r#"{"index":2,"text":"c","logprobs":null,"finish_reason":"stop"},"#,
        r#"{"index":3,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":"#,
        &usage(8, 4),
        "}",
    ];
    assert_eq!((body, progress), (want.concat(), Progress::Done));
}

#[test]
fn log_probabilities_are_told_with_the_prompts() {
    let echo = Event::Echo {
        text: "é €".into(),
        logprobs: vec![
            token(1, b"", None, &[]),
            token(
                2,
                "é".as_bytes(),
                Some(-1.5),
                &[(3, b"e", -0.5), (2, "é".as_bytes(), -1.5)],
            ),
            token(4, b" \xe2\x82", Some(-2.0), &[(5, b"x", -0.25), (6, b"x", -0.75)]),
            token(7, b"\xac", Some(f32::NEG_INFINITY), &[]),
        ],
    };
    let answer = text("!", vec![token(8, b"!", Some(-0.0), &[(8, b"!", -0.0)])]);
    let events = [
        (0, started(4)),
        (0, echo),
        (0, answer),
        (0, finished(4, 1, Finish::MaxTokens)),
    ];
    let (body, _) = run(CompletionReply::new(meta(1, true, None), 1), &events);
    let want = [
        HEAD,
        r#"{"index":0,"text":"é €!","logprobs":{"tokens":["","é","bytes:\\x20\\xe2\\x82","bytes:\\xac","!"],"#,
        r#""token_logprobs":[null,-1.5,-2,-9999,0],"#,
        r#""top_logprobs":[null,{"e":-0.5,"é":-1.5},{"x":-0.25,"bytes:\\x20\\xe2\\x82":-2},{"bytes:\\xac":-9999},{"!":0}],"#,
        r#""text_offset":[0,0,1,3,3]},"finish_reason":"length"}],"usage":"#,
        &usage(4, 1),
        "}",
    ];
    assert_eq!(body, want.concat());
    serde_json::from_str::<serde_json::Value>(&body).expect("JSON");
}

#[test]
fn streams_tell_each_answer_by_its_index() {
    let events = [
        (0, started(3)),
        (1, started(3)),
        (1, text("b", vec![token(1, b"b", Some(-1.0), &[])])),
        (0, text("a\n", vec![])),
        (1, finished(3, 1, Finish::EndOfTurn)),
        (0, finished(3, 2, Finish::MaxTokens)),
    ];
    let options = Some(StreamOptions { include_usage: true });
    let (body, progress) = run(CompletionReply::new(meta(2, true, options), 2), &events);
    let mut data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!((data.pop(), progress), (Some("[DONE]"), Progress::Done));
    let lists = |tokens: &str, values: &str, top: &str, offsets: &str| {
        format!(
            r#"{{"tokens":[{tokens}],"token_logprobs":[{values}],"top_logprobs":[{top}],"text_offset":[{offsets}]}}"#
        )
    };
    let want = [
        format!(
            r#"{HEAD}{{"index":1,"text":"b","logprobs":{},"finish_reason":null}}],"usage":null}}"#,
            lists("\"b\"", "-1", "{\"b\":-1}", "0")
        ),
        format!(
            r#"{HEAD}{{"index":0,"text":"a\n","logprobs":{},"finish_reason":null}}],"usage":null}}"#,
            lists("", "", "", "")
        ),
        format!(r#"{HEAD}{{"index":1,"text":"","logprobs":null,"finish_reason":"stop"}}],"usage":null}}"#),
        format!(r#"{HEAD}{{"index":0,"text":"","logprobs":null,"finish_reason":"length"}}],"usage":null}}"#),
        format!(r#"{HEAD}],"usage":{}}}"#, usage(3, 3)),
    ];
    assert_eq!(data, want);
    assert!(body.ends_with("0\r\n\r\n"), "{body}");
}

#[test]
fn faults_end_the_reply_at_any_point() {
    let broken = || Event::Failed {
        reason: "secret".into(),
    };
    let long = Event::TooLong {
        input_tokens: 120,
        limit: 99,
    };
    let refused = Event::Refused {
        part: zerohop_engine::Part::Prompt,
        reason: "9 is no token".into(),
    };
    // What comes, a part of the body.
    let cases: Vec<(Vec<(usize, Event)>, &str)> = vec![
        (vec![(0, long)], "your prompt has 120 tokens"),
        (vec![(0, refused)], "Invalid 'prompt': 9 is no token"),
        (vec![(0, started(1)), (0, broken())], "Internal server error"),
        (vec![(0, started(1)), (0, started(1))], "Internal server error"),
        (vec![(0, text("a", vec![]))], "Internal server error"),
        (vec![(7, started(1))], "Internal server error"),
        (
            vec![(0, started(1)), (0, Event::Call { name: "x".into() })],
            "Internal server error",
        ),
    ];
    for (events, words) in cases {
        let (body, progress) = run(CompletionReply::new(meta(2, false, None), 2), &events);
        assert_eq!(progress, Progress::Done, "{events:?}");
        assert!(body.contains(words) && !body.contains("secret"), "{events:?}: {body}");
    }
    // A stream that breaks has no end.
    let events = [(0, started(1)), (1, started(1)), (0, text("a", vec![])), (1, broken())];
    let reply = CompletionReply::new(meta(2, false, Some(StreamOptions::default())), 2);
    let (body, progress) = run(reply, &events);
    assert_eq!(progress, Progress::DoneClose);
    assert!(
        body.contains("Internal server error") && !body.contains("[DONE]"),
        "{body}"
    );
}

#[test]
fn what_is_kept_is_counted() {
    let mut reply = CompletionReply::new(meta(1, true, None), 1);
    let (mut out, date) = (Vec::new(), HttpDate::at(NOW));
    assert_eq!(reply.held(), 0);
    reply.on(0, &started(1), &date, &mut out);
    reply.on(
        0,
        &text(&"x".repeat(1000), vec![token(1, b"x", Some(-1.0), &[])]),
        &date,
        &mut out,
    );
    assert!(reply.held() > 1000 && out.is_empty() && !reply.is_streaming());
}
