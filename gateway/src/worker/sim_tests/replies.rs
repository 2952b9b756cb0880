//! Reads what a client has got, byte by byte as strictly as the framing allows, and judges it.
//!
//! Nothing here is lenient: a header too many, a chunk size of another width, an event out of order is a failure.
//! Invariant: the verdict on a reply depends on its bytes, its request and the engine's ledger only.

mod stream;

use serde_json::Value;

use super::{
    engine::{Entry, Fate},
    ensure, fail,
    requests::{Ask, Request},
};
use crate::api::Dialect;
use stream::Stream;
use zerohop_engine::Finish;

/// What has come of a reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// It says that the connection ends behind it.
    pub(super) close: bool,
    pub(super) request_id: String,
    pub(super) retry_after: bool,
    /// It is an event stream.
    pub(super) streamed: bool,
    /// The body so far, unchunked.
    pub(super) body: Vec<u8>,
    /// It is all there.
    pub(super) whole: bool,
    /// How many bytes it took, once whole.
    pub(super) used: usize,
}

/// The reply at the start of `bytes`; `None`: its head is not all there. `ended`: nothing comes behind.
pub(super) fn read(bytes: &[u8], request: &Request, ended: bool) -> Option<Reply> {
    let head_len = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..head_len]).unwrap_or_else(|_| fail("framing", "a head is no text"));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    let status = status.and_then(|line| line.get(..3)).and_then(|code| code.parse().ok());
    let Some(status) = status else {
        fail("framing", format_args!("no status line: {head}"))
    };
    let fields: Vec<(&str, &str)> = lines
        .map(|line| {
            line.split_once(": ")
                .unwrap_or_else(|| fail("framing", format_args!("no field: {line}")))
        })
        .collect();
    let all = |name: &str| {
        fields
            .iter()
            .filter(|field| field.0 == name)
            .map(|field| field.1)
            .collect::<Vec<_>>()
    };
    let one = |name: &str| {
        let values = all(name);
        ensure!(
            values.len() <= 1,
            "framing",
            "{name} occurs {} times: {head}",
            values.len()
        );
        values.first().copied()
    };
    let request_id = one("request-id").unwrap_or_else(|| fail("framing", format_args!("no request-id: {head}")));
    ensure!(one("x-request-id") == Some(request_id), "framing", "two ids: {head}");
    ensure!(
        one("date").is_some_and(|date| date.len() == 29),
        "framing",
        "no date: {head}"
    );
    ensure!(one("server") == Some("zerohop"), "framing", "no server: {head}");
    let close = match one("connection") {
        None => request.http10,
        Some("close") => true,
        Some(other) => fail("framing", format_args!("connection: {other}")),
    };
    let rest = &bytes[head_len + 4..];
    // A head that did not come in time was not read, so nobody knows that it was a HEAD.
    let head_only = request.ask == Ask::Health { head: true } && !matches!(status, 408 | 503);
    let mut reply = Reply {
        status,
        close,
        request_id: request_id.to_owned(),
        retry_after: one("retry-after").is_some() && one("retry-after-ms").is_some(),
        streamed: one("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")),
        body: Vec::new(),
        whole: false,
        used: head_len + 4,
    };
    match (one("content-length"), one("transfer-encoding")) {
        (Some(_), None) if head_only => reply.whole = true,
        (Some(length), None) => {
            let length: usize = length.trim().parse().unwrap_or_else(|_| fail("framing", length));
            reply.whole = rest.len() >= length;
            reply.body = rest[..length.min(rest.len())].to_vec();
            reply.used += length;
        }
        (None, Some("chunked")) => {
            ensure!(!request.http10, "framing", "chunks for HTTP/1.0");
            reply.used += unchunk(rest, &mut reply);
        }
        (None, None) => {
            ensure!(
                request.http10 && close && reply.streamed,
                "framing",
                "no length: {head}"
            );
            reply.body = rest.to_vec();
            reply.whole = ended;
            reply.used += rest.len();
        }
        _ => fail("framing", format_args!("two lengths: {head}")),
    }
    Some(reply)
}

/// Takes the chunks that are there; how many bytes they took.
fn unchunk(bytes: &[u8], reply: &mut Reply) -> usize {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else {
            break;
        };
        let digits = std::str::from_utf8(&rest[..line]).unwrap_or("?");
        let size = usize::from_str_radix(digits, 16);
        let Ok(size) = size else {
            fail("framing", format_args!("the chunk size {digits:?}"))
        };
        ensure!(
            digits == "0" || digits.len() == 8 && size > 0,
            "framing",
            "the chunk size {digits:?}"
        );
        let Some(data) = rest.get(line + 2..line + 2 + size + 2) else {
            break;
        };
        ensure!(data.ends_with(b"\r\n"), "framing", "no end of a chunk of {size}");
        reply.body.extend_from_slice(&data[..size]);
        at += line + 2 + size + 2;
        if size == 0 {
            reply.whole = true;
            break;
        }
    }
    at
}

/// The reason as each dialect names it.
fn reason(dialect: Dialect, finish: &Finish) -> &'static str {
    match (dialect, finish) {
        (Dialect::Anthropic, Finish::EndOfTurn | Finish::StopToken(_)) => "end_turn",
        (Dialect::Anthropic, Finish::Stop(_)) => "stop_sequence",
        (Dialect::Anthropic, Finish::MaxTokens) => "max_tokens",
        (Dialect::Anthropic, Finish::ContextFull) => "model_context_window_exceeded",
        (Dialect::OpenAi, Finish::EndOfTurn | Finish::Stop(_) | Finish::StopToken(_)) => "stop",
        (Dialect::OpenAi, Finish::MaxTokens | Finish::ContextFull) => "length",
        (Dialect::Anthropic, Finish::ToolCalls) => "tool_use",
        (Dialect::OpenAi, Finish::ToolCalls) => "tool_calls",
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| fail("body", format_args!("{error}: {text}")))
}

/// Judges a reply to a request that an engine was handed, whole or not yet. A stream that broke off with an error event
/// is told as `true`.
pub(super) fn judge(reply: &Reply, request: &Request, entry: &Entry) -> bool {
    let streamed = matches!(request.ask, Ask::Chat { stream: true, .. });
    let wanted = match (&entry.fate, streamed) {
        (Fate::Full, _) => 429,
        (Fate::NotRunning, _) => 503,
        (Fate::TooLong | Fate::Unrenderable, _) => 400,
        (Fate::Failed { started: false }, _) | (Fate::Failed { .. }, false) => 500,
        (Fate::Counted(_) | Fate::Finished(_), _) | (Fate::Failed { started: true }, true) => 200,
    };
    ensure!(
        reply.status == wanted,
        "status",
        "{} where {:?} wants {wanted}",
        reply.status,
        entry.fate
    );
    ensure!(
        reply.streamed == (streamed && wanted == 200),
        "status",
        "a stream or not: {:?}",
        entry.fate
    );
    if reply.whole {
        ensure!(
            entry.over,
            "reply",
            "it is whole before the engine was done: {:?}",
            entry.fate
        );
        let retries = matches!(entry.fate, Fate::Full | Fate::NotRunning);
        ensure!(
            reply.retry_after == retries,
            "status",
            "retry-after: {}",
            reply.retry_after
        );
    }
    let body = || String::from_utf8_lossy(&reply.body);
    match (&entry.fate, request.ask) {
        (
            _,
            Ask::Chat {
                dialect, stream: true, ..
            },
        ) if wanted == 200 => {
            let text = String::from_utf8_lossy(&reply.body);
            return Stream::new(dialect, request, entry).check(&text, reply.whole);
        }
        (Fate::Finished(finish), Ask::Chat { dialect, .. }) if reply.whole => {
            document(dialect, finish, &json(&body()), request, entry);
        }
        (Fate::Counted(count), _) if reply.whole => {
            ensure!(json(&body())["input_tokens"] == *count, "body", "{}", body());
        }
        _ if reply.whole => error(&body(), request),
        _ => {}
    }
    false
}

/// An error has the shape of the request's dialect.
pub(super) fn error(body: &str, request: &Request) {
    let anthropic = match request.ask {
        Ask::Chat { dialect, .. } => dialect == Dialect::Anthropic,
        Ask::Count | Ask::BadJson | Ask::TooLarge | Ask::Method => true,
        _ => false,
    };
    let value = json(body);
    ensure!(value["error"]["message"].is_string(), "body", "no error: {body}");
    ensure!(
        (value["type"] == "error") == anthropic,
        "body",
        "the other dialect's error: {body}"
    );
}

fn document(dialect: Dialect, finish: &Finish, value: &Value, request: &Request, entry: &Entry) {
    let (text, reason_at, input, output) = match dialect {
        Dialect::Anthropic => (
            value["content"][0]["text"].as_str().unwrap_or_default(),
            &value["stop_reason"],
            value["usage"]["input_tokens"].as_u64(),
            value["usage"]["output_tokens"].as_u64(),
        ),
        Dialect::OpenAi => (
            value["choices"][0]["message"]["content"].as_str().unwrap_or("?"),
            &value["choices"][0]["finish_reason"],
            value["usage"]["prompt_tokens"].as_u64(),
            value["usage"]["completion_tokens"].as_u64(),
        ),
    };
    ensure!(
        text == entry.text,
        "body",
        "{text:?} where the engine said {:?}",
        entry.text
    );
    ensure!(
        *reason_at == reason(dialect, finish),
        "body",
        "{value} ends by {finish:?}"
    );
    ensure!(
        value["model"] == request.model,
        "body",
        "{value} is of {}",
        request.model
    );
    let usage = entry.usage;
    let wanted = match dialect {
        Dialect::Anthropic => usage.input_tokens - usage.cached_tokens,
        Dialect::OpenAi => usage.input_tokens,
    };
    ensure!(input == Some(wanted.into()), "body", "{value} used {usage:?}");
    ensure!(
        output == Some(usage.output_tokens.into()),
        "body",
        "{value} used {usage:?}"
    );
}
