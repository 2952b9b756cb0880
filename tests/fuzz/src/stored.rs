//! Stored answers against serde_json: bytes that are read as one are JSON, and each reply made of them says what they say.
//!
//! Invariant: no bytes end in a panic, and a body made of what could be read is a document, or a stream of documents.

use serde_json::Value;
use zerohop::{
    api::{Dialect, StreamOptions},
    reply::stored::{Shape, Stored},
};

use crate::same;

pub(crate) fn check(data: &[u8]) {
    let Ok(stored) = Stored::read(data) else {
        return;
    };
    let form: Value = serde_json::from_slice(data).expect("what was read is JSON");
    let text = form["text"].as_str().expect("a text");
    same("created", &Some(stored.created()), &form["created"].as_u64(), data);
    for dialect in [Dialect::Anthropic, Dialect::OpenAi] {
        let document: Value = serde_json::from_slice(&body(&stored, dialect, None)).expect("a document");
        let told = match dialect {
            Dialect::Anthropic => &document["content"][0]["text"],
            Dialect::OpenAi => &document["choices"][0]["message"]["content"],
        };
        same("text", &told.as_str().unwrap_or_default(), &text, data);
        let stream = body(&stored, dialect, Some(StreamOptions { include_usage: true }));
        let stream = std::str::from_utf8(&stream).expect("a stream is text");
        let events = stream.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = events.filter(|data| *data != "[DONE]");
        let deltas = events.map(|event| {
            let event: Value = serde_json::from_str(event).expect("an event");
            let delta = match dialect {
                Dialect::Anthropic => &event["delta"]["text"],
                Dialect::OpenAi => &event["choices"][0]["delta"]["content"],
            };
            delta.as_str().unwrap_or_default().to_owned()
        });
        same("deltas", &deltas.collect::<String>().as_str(), &text, data);
    }
}

fn body(stored: &Stored<'_>, dialect: Dialect, stream: Option<StreamOptions>) -> Vec<u8> {
    let mut out = Vec::new();
    stored.body(&Shape::new(dialect, stream, "m"), &mut out);
    out
}
