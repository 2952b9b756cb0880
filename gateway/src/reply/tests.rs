//! Replies to the byte, in both dialects, and what a stream must have in common with a document.

use std::time::Duration;

use proptest::prelude::*;

use zerohop_engine::{Finish, Part};

use super::*;

/// Tue, 14 Nov 2023 22:13:20 GMT
const NOW: u64 = 1_700_000_000;
const ID: &str = "000000000000000000000000";

fn meta(dialect: Dialect, stream: Option<StreamOptions>) -> ReplyMeta {
    ReplyMeta {
        dialect,
        id: (0, 0),
        model: "my \"model\"".into(),
        model_version: "1a2b".into(),
        created: NOW,
        stream,
        choices: 1,
        logprobs: false,
        places: Places::default(),
        connection: Connection {
            version: Version::Http11,
            keep_alive: true,
            head_only: false,
            request_id: RequestId::from_bits(0, 0),
        },
    }
}

fn started(input_tokens: u32, cached_tokens: u32) -> Event {
    Event::Started {
        input_tokens,
        cached_tokens,
        queued: Duration::ZERO,
    }
}

fn text(text: &str) -> Event {
    Event::Text {
        text: text.into(),
        tokens: 1,
        logprobs: Vec::new(),
    }
}

fn finished(finish: Finish) -> Event {
    let usage = Usage {
        input_tokens: 12,
        cached_tokens: 8,
        output_tokens: 3,
    };
    Event::Finished { finish, usage }
}

/// The bytes that these events of the only answer make, and where the reply then stands.
fn run(meta: ReplyMeta, events: &[Event]) -> (String, Progress) {
    run_all(meta, events.iter().map(|event| (0, event.clone())))
}

/// The same of events of several answers, each with its index. The ids of calls are made of the same bits each time.
fn run_all(meta: ReplyMeta, events: impl IntoIterator<Item = (usize, Event)>) -> (String, Progress) {
    let mut reply = Reply::new(meta);
    let (mut out, date, mut ids) = (Vec::new(), HttpDate::at(NOW), IdSource::new([1, 2]));
    let mut progress = Progress::More;
    for (index, event) in events {
        assert_eq!(progress, Progress::More, "nothing follows the end");
        progress = reply.on(index, &event, &mut ids, &date, &mut out);
    }
    (String::from_utf8(out).unwrap(), progress)
}

/// The ids of the first calls of a run, without their prefix.
fn ids() -> [String; 2] {
    let mut ids = IdSource::new([1, 2]);
    [(); 2].map(|()| {
        let (high, low) = ids.bits();
        String::from_utf8(base62(high, low).to_vec()).unwrap()
    })
}

fn call(name: &str) -> Event {
    Event::Call { name: name.into() }
}

fn arguments(text: &str) -> Event {
    Event::Arguments {
        text: text.into(),
        tokens: 1,
    }
}

/// The reply to a request for vectors.
fn vectors(format: VectorFormat, event: &Event) -> (u16, serde_json::Value) {
    let mut reply = Reply::of_vectors(meta(Dialect::OpenAi, None), format, 1000);
    assert_eq!((reply.promised(), reply.held()), (1000, 1000));
    let mut out = Vec::new();
    assert_eq!(
        reply.on(0, event, &mut IdSource::new([1, 2]), &HttpDate::at(NOW), &mut out),
        Progress::Done
    );
    let (head, body) = split(std::str::from_utf8(&out).unwrap(), true);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), serde_json::from_str(&body).expect("JSON"))
}

#[test]
fn vectors_are_written_to_the_last_bit() {
    let numbers = [0.1, -1.0, 0.0, 1.5e-8, f32::MIN_POSITIVE / 3.0, -0.123_456_79];
    let event = Event::Embedded {
        vectors: vec![numbers.to_vec(), vec![1.0]],
        input_tokens: 7,
    };
    let (status, json) = vectors(VectorFormat::Float, &event);
    assert_eq!(status, 200);
    let read = json["data"][0]["embedding"].as_array().expect("a list").iter();
    let read: Vec<u32> = read
        .map(|number| (number.as_f64().expect("a number") as f32).to_bits())
        .collect();
    assert_eq!(read, numbers.map(f32::to_bits));
    assert_eq!(
        json["usage"],
        serde_json::json!({"prompt_tokens": 7, "total_tokens": 7})
    );
    let (_, json) = vectors(VectorFormat::Base64, &event);
    assert_eq!(
        json["data"][1],
        serde_json::json!({"object": "embedding", "index": 1, "embedding": "AACAPw=="})
    );
    assert_eq!(
        (&json["object"], &json["model"]),
        (&"list".into(), &"my \"model\"".into())
    );
}

#[test]
fn faults_of_vectors_name_their_field() {
    let refused = |part| Event::Refused {
        part,
        reason: "why".into(),
    };
    let long = Event::TooLong {
        input_tokens: 600,
        limit: 512,
    };
    for (event, status, param, words) in [
        (refused(Part::Prompt), 400, "input", "Invalid 'input': why."),
        (
            refused(Part::Dimensions),
            400,
            "dimensions",
            "Invalid 'dimensions': why.",
        ),
        (refused(Part::Model), 400, "model", "Invalid 'model': why."),
        (
            long,
            400,
            "input",
            "512 tokens. However, one of your inputs has 600 tokens",
        ),
    ] {
        let (got, json) = vectors(VectorFormat::Float, &event);
        assert_eq!((got, &json["error"]["param"]), (status, &param.into()), "{json}");
        let message = json["error"]["message"].as_str().expect("a message");
        assert!(message.contains(words), "{message}");
    }
    // A chat with a model that makes vectors.
    let (reply, _) = run(meta(Dialect::Anthropic, None), &[refused(Part::Model)]);
    assert!(reply.contains(r#""message":"model: why""#), "{reply}");
}

/// The head and the body of a reply; a chunked body is put together, and has an end if `whole`.
fn split(reply: &str, whole: bool) -> (String, String) {
    let (head, mut body) = reply.split_once("\r\n\r\n").expect("a head");
    if !head.contains("transfer-encoding: chunked") {
        return (head.into(), body.into());
    }
    let mut joined = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            assert_eq!((rest, whole), ("\r\n", true));
            return (head.into(), joined);
        }
        joined.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
    assert_eq!((body, whole), ("", false));
    (head.into(), joined)
}

fn check_document(dialect: Dialect, events: &[Event], wanted: &str) {
    let (reply, progress) = run(meta(dialect, None), events);
    assert_eq!((split(&reply, true).1.as_str(), progress), (wanted, Progress::Done));
}

fn check_stream(dialect: Dialect, include_usage: bool, events: &[Event], wanted: &[&str]) {
    let (reply, progress) = run(meta(dialect, Some(StreamOptions { include_usage })), events);
    let wanted: String = wanted.iter().map(|event| format!("{event}\n\n")).collect();
    assert_eq!((split(&reply, true).1, progress), (wanted, Progress::Done));
}

#[test]
fn heads() {
    let (reply, _) = run(meta(Dialect::Anthropic, None), &[Event::Counted { input_tokens: 7 }]);
    let body = r#"{"input_tokens":7}"#;
    let ids = "request-id: req_000000000000000000000000\r\nx-request-id: req_000000000000000000000000";
    assert_eq!(
        reply,
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nserver: zerohop\r\n\
             date: Tue, 14 Nov 2023 22:13:20 GMT\r\n{ids}\r\n\r\n{body}",
            body.len()
        )
    );
    let (reply, _) = run(
        meta(Dialect::Anthropic, Some(StreamOptions::default())),
        &[started(1, 0)],
    );
    assert_eq!(
        split(&reply, false).0,
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\
             cache-control: no-cache\r\nx-accel-buffering: no\r\nserver: zerohop\r\n\
             date: Tue, 14 Nov 2023 22:13:20 GMT\r\n{ids}"
        )
    );
}

#[test]
fn anthropic_documents() {
    let document = |content: &str, stop: &str| {
        format!(
            r#"{{"id":"msg_{ID}","type":"message","role":"assistant","model":"my \"model\"","content":{content},{stop},"stop_details":null,"container":null,"usage":{{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":3,"output_tokens_details":{{"thinking_tokens":0}},"server_tool_use":null,"cache_creation":{{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0}},"service_tier":"standard"}}}}"#
        )
    };
    for (finish, stop) in [
        (Finish::EndOfTurn, r#""stop_reason":"end_turn","stop_sequence":null"#),
        (
            Finish::Stop("\n\"".into()),
            r#""stop_reason":"stop_sequence","stop_sequence":"\n\"""#,
        ),
        (Finish::MaxTokens, r#""stop_reason":"max_tokens","stop_sequence":null"#),
        (
            Finish::ContextFull,
            r#""stop_reason":"model_context_window_exceeded","stop_sequence":null"#,
        ),
    ] {
        let wanted = document(r#"[{"type":"text","text":"A \"b\"\nc €","citations":null}]"#, stop);
        let events = [started(12, 8), text("A \"b\""), text("\nc €"), finished(finish.clone())];
        check_document(Dialect::Anthropic, &events, &wanted);
        check_document(
            Dialect::Anthropic,
            &[started(12, 8), finished(finish)],
            &document("[]", stop),
        );
    }
    check_document(
        Dialect::Anthropic,
        &[Event::Counted { input_tokens: 7 }],
        r#"{"input_tokens":7}"#,
    );
}

#[test]
fn openai_documents() {
    for (finish, reason) in [
        (Finish::EndOfTurn, "stop"),
        (Finish::Stop("x".into()), "stop"),
        (Finish::MaxTokens, "length"),
        (Finish::ContextFull, "length"),
    ] {
        for (events, content) in [(vec![text("A \"b\""), text("\nc €")], r#"A \"b\"\nc €"#), (vec![], "")] {
            let wanted = format!(
                r#"{{"id":"chatcmpl-{ID}","object":"chat.completion","created":1700000000,"model":"my \"model\"","service_tier":"default","system_fingerprint":"fp_1a2b","choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}","refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"{reason}"}}],"usage":{{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{{"cached_tokens":8,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}}}"#
            );
            let events = [vec![started(12, 8)], events, vec![finished(finish.clone())]].concat();
            check_document(Dialect::OpenAi, &events, &wanted);
        }
    }
}

const MESSAGE_START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_000000000000000000000000\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"my \\\"model\\\"\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"stop_details\":null,\"container\":null,\"usage\":{\"input_tokens\":4,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":8,\"output_tokens\":0,\"output_tokens_details\":{\"thinking_tokens\":0},\"server_tool_use\":null,\"cache_creation\":{\"ephemeral_5m_input_tokens\":0,\"ephemeral_1h_input_tokens\":0},\"service_tier\":\"standard\"}}}";

#[test]
fn anthropic_streams() {
    let delta = |stop: &str| {
        format!(
            "event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{{stop},\"stop_details\":null,\"container\":null}},\"usage\":{{\"input_tokens\":4,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":8,\"output_tokens\":3,\"output_tokens_details\":{{\"thinking_tokens\":0}},\"server_tool_use\":null}}}}"
        )
    };
    let events = [
        started(12, 8),
        text("A \"b\""),
        text("\nc €"),
        finished(Finish::Stop("END".into())),
    ];
    let wanted = [
        MESSAGE_START,
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":null}}",
        "event: ping\ndata: {\"type\":\"ping\"}",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"A \\\"b\\\"\"}}",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\nc €\"}}",
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}",
        &delta("\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"END\""),
        "event: message_stop\ndata: {\"type\":\"message_stop\"}",
    ];
    check_stream(Dialect::Anthropic, true, &events, &wanted);
    let wanted = [
        MESSAGE_START,
        &delta("\"stop_reason\":\"end_turn\",\"stop_sequence\":null"),
        "event: message_stop\ndata: {\"type\":\"message_stop\"}",
    ];
    check_stream(
        Dialect::Anthropic,
        true,
        &[started(12, 8), finished(Finish::EndOfTurn)],
        &wanted,
    );
}

#[test]
fn openai_streams() {
    let events = [
        started(12, 8),
        text("A \"b\""),
        text("\nc €"),
        finished(Finish::MaxTokens),
    ];
    for include_usage in [false, true] {
        let chunk = |choices: &str, usage: &str| {
            let usage = if include_usage {
                format!(",\"usage\":{usage}")
            } else {
                String::new()
            };
            format!(
                "data: {{\"id\":\"chatcmpl-{ID}\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"my \\\"model\\\"\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_1a2b\",\"choices\":[{choices}]{usage}}}"
            )
        };
        let choice = |delta: &str, reason: &str| {
            chunk(
                &format!("{{\"index\":0,\"delta\":{{{delta}}},\"logprobs\":null,\"finish_reason\":{reason}}}"),
                "null",
            )
        };
        let mut wanted = vec![
            choice("\"role\":\"assistant\",\"content\":\"\",\"refusal\":null", "null"),
            choice("\"content\":\"A \\\"b\\\"\"", "null"),
            choice("\"content\":\"\\nc €\"", "null"),
            choice("", "\"length\""),
        ];
        if include_usage {
            let usage = "{\"prompt_tokens\":12,\"completion_tokens\":3,\"total_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":8,\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}";
            wanted.push(chunk("", usage));
        }
        wanted.push("data: [DONE]".into());
        let wanted: Vec<_> = wanted.iter().map(String::as_str).collect();
        check_stream(Dialect::OpenAi, include_usage, &events, &wanted);
    }
}

#[test]
fn the_last_chunk_to_the_byte() {
    let mut reply = Reply::new(meta(Dialect::OpenAi, Some(StreamOptions::default())));
    let (mut out, date) = (Vec::new(), HttpDate::at(NOW));
    reply.on(0, &started(1, 0), &mut IdSource::new([1, 2]), &date, &mut out);
    out.clear();
    assert_eq!(
        reply.on(
            0,
            &finished(Finish::EndOfTurn),
            &mut IdSource::new([1, 2]),
            &date,
            &mut out
        ),
        Progress::Done
    );
    let data = "{\"id\":\"chatcmpl-000000000000000000000000\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"my \\\"model\\\"\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_1a2b\",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}";
    let events = format!("data: {data}\n\ndata: [DONE]\n\n");
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("{:08x}\r\n{events}\r\n0\r\n\r\n", events.len())
    );
}

/// Faults before anything is written, and the status and body that they make in each dialect.
#[test]
fn faults_before_the_head_have_a_status() {
    let table = [
        (
            Event::TooLong {
                input_tokens: 40_000,
                limit: 32_768,
            },
            "400 Bad Request",
            "invalid_request_error\",\"message\":\"prompt is too long: 40000 tokens > 32768 maximum",
            "\"param\":\"messages\",\"code\":\"context_length_exceeded\"",
        ),
        (
            Event::Refused {
                part: Part::Messages,
                reason: "roles must alternate".into(),
            },
            "400 Bad Request",
            "invalid_request_error\",\"message\":\"messages: roles must alternate",
            "{\"error\":{\"message\":\"Invalid 'messages': roles must alternate\",\"type\":\"invalid_request_error\",\"param\":\"messages\",\"code\":null}}",
        ),
        (
            Event::Failed {
                reason: "secret path".into(),
            },
            "500 Internal Server Error",
            "api_error\",\"message\":\"Internal server error",
            "{\"error\":{\"message\":\"Internal server error\",\"type\":\"server_error\",\"param\":null,\"code\":null}}",
        ),
    ];
    for (event, status, anthropic, openai) in table {
        for stream in [None, Some(StreamOptions::default())] {
            let (reply, progress) = run(meta(Dialect::Anthropic, stream), std::slice::from_ref(&event));
            let (head, body) = split(&reply, true);
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
            let wanted =
                format!("{{\"type\":\"error\",\"error\":{{\"type\":\"{anthropic}\"}},\"request_id\":\"req_{ID}\"}}");
            assert_eq!((body, progress), (wanted, Progress::Done));
            let (reply, progress) = run(meta(Dialect::OpenAi, stream), std::slice::from_ref(&event));
            let (head, body) = split(&reply, true);
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
            assert!(body.contains(openai) && progress == Progress::Done, "{body}");
        }
        // A document can still have a status when the engine has begun.
        let (reply, progress) = run(meta(Dialect::OpenAi, None), &[started(1, 0), text("x"), event]);
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status}\r\n")) && progress == Progress::Done,
            "{reply}"
        );
    }
}

#[test]
fn faults_in_a_stream_break_it() {
    for (dialect, wanted) in [
        (
            Dialect::Anthropic,
            format!("event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\"message\":\"Internal server error\"}},\"request_id\":\"req_{ID}\"}}\n\n"),
        ),
        (
            Dialect::OpenAi,
            "data: {\"error\":{\"message\":\"Internal server error\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n".into(),
        ),
    ] {
        let events = [started(1, 0), text("x"), Event::Failed { reason: "secret path".into() }];
        let (reply, progress) = run(meta(dialect, Some(StreamOptions::default())), &events);
        let body = split(&reply, false).1;
        assert!(body.ends_with(&wanted) && progress == Progress::DoneClose, "{body}");
        assert!(!body.contains("message_stop") && !body.contains("[DONE]"));
    }
}

#[test]
fn a_worker_can_fail_a_reply_at_any_point() {
    let date = HttpDate::at(NOW);
    let error = ApiError::new(ErrorKind::QueueFull, "busy").retry_after(Duration::from_millis(1500));
    let mut reply = Reply::new(meta(Dialect::Anthropic, Some(StreamOptions::default())));
    let mut out = Vec::new();
    assert_eq!(
        (reply.is_streaming(), reply.fail(&error, &date, &mut out)),
        (false, Progress::Done)
    );
    let head = split(std::str::from_utf8(&out).unwrap(), true).0;
    assert!(head.starts_with("HTTP/1.1 429 Too Many Requests\r\n"));
    assert!(
        head.ends_with("\r\nretry-after: 2\r\nretry-after-ms: 1500\r\nx-should-retry: true"),
        "{head}"
    );
    // Over is over.
    out.clear();
    assert_eq!(
        reply.on(0, &text("x"), &mut IdSource::new([1, 2]), &date, &mut out),
        Progress::Done
    );
    assert_eq!(reply.fail(&error, &date, &mut out), Progress::Done);
    reply.keep_alive(&mut out);
    assert!(out.is_empty());

    let mut reply = Reply::new(meta(Dialect::Anthropic, Some(StreamOptions::default())));
    reply.on(0, &started(1, 0), &mut IdSource::new([1, 2]), &date, &mut out);
    out.clear();
    assert!(reply.is_streaming());
    reply.keep_alive(&mut out);
    assert_eq!(
        String::from_utf8_lossy(&out),
        "00000023\r\nevent: ping\ndata: {\"type\":\"ping\"}\n\n\r\n"
    );
    out.clear();
    let late = ApiError::new(ErrorKind::Deadline, "too slow");
    assert_eq!(reply.fail(&late, &date, &mut out), Progress::DoneClose);
    let wanted = format!(
        "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"timeout_error\",\"message\":\"too slow\"}},\"request_id\":\"req_{ID}\"}}\n\n"
    );
    assert_eq!(
        String::from_utf8_lossy(&out),
        format!("{:08x}\r\n{wanted}\r\n", wanted.len())
    );
}

/// An engine that breaks its promise of order is a fault of ours, never a malformed reply.
#[test]
fn events_out_of_order() {
    for events in [
        vec![text("x")],
        vec![finished(Finish::EndOfTurn)],
        vec![started(1, 0), started(1, 0)],
        vec![started(1, 0), Event::Counted { input_tokens: 1 }],
        vec![call("f")],
        vec![started(1, 0), arguments("{}")],
        vec![started(1, 0), call("f"), text("x")],
        vec![Event::Embedded {
            vectors: vec![],
            input_tokens: 1,
        }],
    ] {
        let (reply, progress) = run(meta(Dialect::Anthropic, None), &events);
        assert!(
            reply.starts_with("HTTP/1.1 500 ") && progress == Progress::Done,
            "{reply}"
        );
    }
}

#[test]
fn connections() {
    let base = meta(Dialect::OpenAi, None);
    let events = [started(1, 0), finished(Finish::EndOfTurn)];
    for (version, keep_alive, head_only, stream, progress, ends) in [
        (Version::Http11, true, false, None, Progress::Done, "}"),
        (Version::Http11, false, false, None, Progress::DoneClose, "}"),
        (Version::Http10, true, false, None, Progress::Done, "}"),
        (Version::Http11, true, true, None, Progress::Done, "\r\n\r\n"),
        (
            Version::Http11,
            true,
            false,
            Some(StreamOptions::default()),
            Progress::Done,
            "[DONE]\n\n\r\n0\r\n\r\n",
        ),
        (
            Version::Http11,
            false,
            false,
            Some(StreamOptions::default()),
            Progress::DoneClose,
            "[DONE]\n\n\r\n0\r\n\r\n",
        ),
        (
            Version::Http10,
            true,
            false,
            Some(StreamOptions::default()),
            Progress::DoneClose,
            "[DONE]\n\n",
        ),
    ] {
        let connection = Connection {
            version,
            keep_alive,
            head_only,
            ..base.connection
        };
        let meta = ReplyMeta {
            connection,
            stream,
            ..base.clone()
        };
        let (reply, end) = run(meta, &events);
        assert!(reply.ends_with(ends), "{reply}");
        assert_eq!(end, progress);
    }
}

/// The text that a client puts together from a stream.
fn heard(dialect: Dialect, reply: &str) -> String {
    let body = split(reply, true).1;
    let data = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]");
    data.map(|data| {
        let value: serde_json::Value = serde_json::from_str(data).expect(data);
        let text = match dialect {
            Dialect::Anthropic => &value["delta"]["text"],
            Dialect::OpenAi => &value["choices"][0]["delta"]["content"],
        };
        text.as_str().unwrap_or_default().to_owned()
    })
    .collect()
}

proptest! {
    /// However an answer is cut, a stream says what the document says, in both dialects.
    #[test]
    fn streams_and_documents_say_the_same(pieces in prop::collection::vec("[\\PC\u{0}-\u{24}\\\\\"\r\n]{1,12}", 0..12)) {
        let mut events = vec![started(12, 8)];
        events.extend(pieces.iter().map(|piece| text(piece)));
        events.push(finished(Finish::EndOfTurn));
        let said = pieces.concat();
        for dialect in [Dialect::Anthropic, Dialect::OpenAi] {
            let (stream, _) = run(meta(dialect, Some(StreamOptions { include_usage: true })), &events);
            prop_assert_eq!(&heard(dialect, &stream), &said);
            let (document, _) = run(meta(dialect, None), &events);
            let value: serde_json::Value = serde_json::from_str(&split(&document, true).1).unwrap();
            let text = match dialect {
                Dialect::Anthropic => &value["content"][0]["text"],
                Dialect::OpenAi => &value["choices"][0]["message"]["content"],
            };
            prop_assert_eq!(text.as_str().unwrap_or_default(), said.as_str());
        }
    }
}

#[path = "answers_tests.rs"]
mod answers;
