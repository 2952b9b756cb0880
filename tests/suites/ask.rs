//! Requests that several suites send.
//!
//! Invariant: each is greedy or seeded, so that its answer is always the same.

use std::net::SocketAddr;

use serde_json::{Value, json};
use zerohop_tests::{
    http::{self, Response},
    sse,
};

/// Path of the Anthropic dialect.
pub(crate) const MESSAGES: &str = "/v1/messages";
/// Path of the OpenAI dialect.
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A question in the Anthropic dialect, greedy.
pub(crate) fn message(content: &str) -> Value {
    json!({"model": "tiny", "max_tokens": 64, "temperature": 0, "messages": [{"role": "user", "content": content}]})
}

/// A question in the OpenAI dialect, greedy.
pub(crate) fn chat(content: &str) -> Value {
    json!({"model": "tiny", "max_completion_tokens": 64, "temperature": 0, "messages": [{"role": "user", "content": content}]})
}

/// The same with a field replaced or added.
pub(crate) fn with(mut body: Value, field: &str, value: impl Into<Value>) -> Value {
    body[field] = value.into();
    body
}

/// A request whose answer is as long as chance has it: sampled wildly, mostly some dozens of tokens, at most `tokens`.
pub(crate) fn ramble(seed: u64, tokens: u32) -> Value {
    let body = chat("Tell me everything.");
    let body = with(with(body, "temperature", 2), "seed", seed);
    with(body, "max_completion_tokens", tokens)
}

/// The text of an answer that came whole or as a stream, in either dialect.
pub(crate) fn text_of(response: &Response) -> String {
    assert_eq!(response.status, 200, "{}", response.text());
    if response
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("text/event-stream"))
    {
        return response.events().iter().filter_map(sse::delta).collect();
    }
    let json = response.json();
    let text = json
        .pointer("/content/0/text")
        .or_else(|| json.pointer("/choices/0/message/content"));
    text.and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text in {json}"))
        .to_owned()
}

/// Asks on a new connection; gives the text.
pub(crate) fn answer(address: SocketAddr, path: &str, body: &Value) -> String {
    text_of(&http::post(address, path, body))
}
