//! Replies of each dialect against the text that the engine gave, as a stream and as one document.
//!
//! Invariant: the deltas joined are the text, whatever is in it and however it was cut.

use std::time::Duration;

use serde_json::Value;
use zerohop::{
    api::{Dialect, Places, StreamOptions},
    date::HttpDate,
    http::{RequestId, Version, request_id::IdSource},
    reply::{Connection, Progress, Reply, ReplyMeta},
};
use zerohop_engine::{Event, Finish, Usage};

use crate::{
    same,
    sse::{self, dechunked},
};

/// The first byte chooses the form, the second how the text is cut; the rest is the text.
pub(crate) fn check(data: &[u8]) {
    let [form, size, text @ ..] = data else { return };
    let text = String::from_utf8_lossy(text).into_owned();
    let dialect = if form & 1 == 0 {
        Dialect::Anthropic
    } else {
        Dialect::OpenAi
    };
    let stop = if form & 2 == 0 {
        Finish::EndOfTurn
    } else {
        Finish::Stop(text.clone())
    };
    let version = if form & 4 == 0 {
        Version::Http11
    } else {
        Version::Http10
    };
    for stream in [
        None,
        Some(StreamOptions {
            include_usage: form & 8 == 0,
        }),
    ] {
        let out = replied(
            meta(dialect, stream, version, &text),
            &text,
            usize::from(*size) + 1,
            stop.clone(),
        );
        let head = out.windows(4).position(|window| window == b"\r\n\r\n");
        let (head, body) = out.split_at(head.map_or(0, |at| at + 4));
        let head = String::from_utf8_lossy(head);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let body = if head.contains("transfer-encoding: chunked") {
            dechunked(body)
        } else {
            body.to_vec()
        };
        let found = match stream {
            None => document(dialect, &parsed(&body)),
            Some(_) => sse::events(&body)
                .iter()
                .filter_map(|event| delta(dialect, event))
                .collect(),
        };
        same("text", &found, &text, data);
    }
}

fn meta(dialect: Dialect, stream: Option<StreamOptions>, version: Version, model: &str) -> ReplyMeta {
    ReplyMeta {
        dialect,
        id: (1, 2),
        model: model.to_owned(),
        model_version: model.to_owned(),
        created: 0,
        stream,
        choices: 1,
        logprobs: false,
        places: Places::default(),
        connection: Connection {
            version,
            keep_alive: true,
            head_only: false,
            request_id: RequestId::from_bits(3, 4),
        },
    }
}

fn replied(meta: ReplyMeta, text: &str, size: usize, finish: Finish) -> Vec<u8> {
    let mut reply = Reply::new(meta);
    let (mut out, date, mut ids) = (Vec::new(), HttpDate::at(0), IdSource::new([0, 0]));
    let usage = Usage {
        input_tokens: 5,
        cached_tokens: 1,
        output_tokens: 2,
    };
    let started = Event::Started {
        input_tokens: 5,
        cached_tokens: 1,
        queued: Duration::ZERO,
    };
    assert_eq!(reply.on(0, &started, &mut ids, &date, &mut out), Progress::More);
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(size) {
        let text = Event::Text {
            text: piece.iter().collect(),
            tokens: 1,
            logprobs: Vec::new(),
        };
        assert_eq!(reply.on(0, &text, &mut ids, &date, &mut out), Progress::More);
        reply.keep_alive(&mut out);
    }
    assert_ne!(
        reply.on(0, &Event::Finished { finish, usage }, &mut ids, &date, &mut out),
        Progress::More
    );
    out
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error} in {}", bytes.escape_ascii()))
}

fn document(dialect: Dialect, json: &Value) -> String {
    let text = match dialect {
        Dialect::Anthropic => json.pointer("/content/0/text"),
        Dialect::OpenAi => json.pointer("/choices/0/message/content"),
    };
    text.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn delta(dialect: Dialect, event: &sse::Event) -> Option<String> {
    if event.data == "[DONE]" {
        return None;
    }
    let json = parsed(event.data.as_bytes());
    let text = match dialect {
        Dialect::Anthropic => json.pointer("/delta/text"),
        Dialect::OpenAi => json.pointer("/choices/0/delta/content"),
    };
    text.and_then(Value::as_str).map(String::from)
}
