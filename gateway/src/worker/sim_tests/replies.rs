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
use zerohop_engine::{Finish, Usage};

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

/// The fault that a reply tells: that of the job that was not taken, or of the one whose fault came first.
fn fault<'e>(entries: &[&'e Entry]) -> Option<&'e Entry> {
    let faults = entries
        .iter()
        .filter(|entry| entry.over && entry.fate.fault().is_some());
    faults.min_by_key(|entry| entry.ended.unwrap_or(0)).copied()
}

/// Judges a reply to a request that an engine was handed in these jobs, whole or not yet. A stream that broke off with an
/// error event is told as `true`.
pub(super) fn judge(reply: &Reply, request: &Request, entries: &[&Entry]) -> bool {
    let streamed = matches!(request.ask, Ask::Chat { stream: true, .. });
    let fault = fault(entries);
    let fates = || entries.iter().map(|entry| &entry.fate).collect::<Vec<_>>();
    // A stream whose head had left has its status, whatever comes.
    let headed = |fault: &Entry| {
        let before = |entry: &&Entry| {
            entry
                .began
                .is_some_and(|began| fault.ended.is_some_and(|ended| began < ended))
        };
        streamed && entries.iter().any(before)
    };
    let wanted = match fault {
        Some(entry) if !headed(entry) => entry.fate.fault().unwrap_or(0),
        _ => 200,
    };
    ensure!(
        reply.status == wanted,
        "status",
        "{} where {:?} wants {wanted}",
        reply.status,
        fates()
    );
    ensure!(
        reply.streamed == (streamed && wanted == 200),
        "status",
        "a stream or not: {:?}",
        fates()
    );
    if reply.whole {
        ensure!(
            fault.is_some() || entries.iter().all(|entry| entry.over),
            "reply",
            "it is whole before the engine was done: {:?}",
            fates()
        );
        let retries = matches!(fault.map(|entry| &entry.fate), Some(Fate::Full | Fate::NotRunning));
        ensure!(
            reply.retry_after == retries,
            "status",
            "retry-after: {}",
            reply.retry_after
        );
    }
    let body = || String::from_utf8_lossy(&reply.body);
    match (entries[0].fate.clone(), request.ask) {
        (
            _,
            Ask::Chat {
                dialect, stream: true, ..
            },
        ) if wanted == 200 => {
            let text = String::from_utf8_lossy(&reply.body);
            return Stream::new(dialect, request, entries).check(&text, reply.whole, fault);
        }
        (_, Ask::Chat { dialect, .. }) if reply.whole && fault.is_none() => {
            document(dialect, &json(&body()), request, entries);
        }
        (Fate::Counted(count), _) if reply.whole => {
            ensure!(json(&body())["input_tokens"] == count, "body", "{}", body());
        }
        _ if reply.whole => error(&body(), request),
        _ => {}
    }
    false
}

/// What all answers together used: the prompt once.
fn usage(entries: &[&Entry]) -> Usage {
    let usages = || entries.iter().map(|entry| entry.usage);
    Usage {
        input_tokens: usages().map(|usage| usage.input_tokens).max().unwrap_or(0),
        cached_tokens: usages().map(|usage| usage.cached_tokens).min().unwrap_or(0),
        output_tokens: usages().map(|usage| usage.output_tokens).sum(),
    }
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

fn document(dialect: Dialect, value: &Value, request: &Request, entries: &[&Entry]) {
    ensure!(
        value["model"] == request.model,
        "body",
        "{value} is of {}",
        request.model
    );
    let usage = usage(entries);
    let (input, output, wanted) = match dialect {
        Dialect::Anthropic => {
            message(value, entries[0]);
            let input = usage.input_tokens - usage.cached_tokens;
            (&value["usage"]["input_tokens"], &value["usage"]["output_tokens"], input)
        }
        Dialect::OpenAi => {
            let choices = value["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
            ensure!(choices.len() == request.choices, "body", "{value} has other choices");
            for (index, (choice, entry)) in choices.iter().zip(entries).enumerate() {
                ensure!(choice["index"] == index, "body", "{value} has its choices mixed up");
                completion(choice, request, entry);
            }
            (
                &value["usage"]["prompt_tokens"],
                &value["usage"]["completion_tokens"],
                usage.input_tokens,
            )
        }
    };
    ensure!(*input == wanted, "body", "{value} used {usage:?}");
    ensure!(*output == usage.output_tokens, "body", "{value} used {usage:?}");
}

/// Why an answer ended, if it did.
fn finish(entry: &Entry) -> &Finish {
    match &entry.fate {
        Fate::Finished(finish) => finish,
        fate => fail("body", format_args!("an end of {fate:?}")),
    }
}

fn message(value: &Value, entry: &Entry) {
    let mut blocks = value["content"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter();
    if !entry.text.is_empty() {
        let text = blocks.next().and_then(|block| block["text"].as_str());
        ensure!(
            text == Some(&entry.text),
            "body",
            "{text:?} where the engine said {:?}",
            entry.text
        );
    }
    for (name, arguments) in &entry.calls {
        let block = blocks.next().unwrap_or(&Value::Null);
        let right = block["type"] == "tool_use" && block["name"] == *name && block["input"] == json(arguments);
        ensure!(right, "body", "{block} where the engine called {name} with {arguments}");
        id(&block["id"], "toolu_");
    }
    ensure!(blocks.next().is_none(), "body", "{value} has more than the engine said");
    let finish = finish(entry);
    ensure!(
        value["stop_reason"] == reason(Dialect::Anthropic, finish),
        "body",
        "{value} ends by {finish:?}"
    );
}

fn completion(value: &Value, request: &Request, entry: &Entry) {
    let message = &value["message"];
    let text = match (&message["content"], entry.calls.is_empty()) {
        (Value::Null, false) => "",
        (content, _) => content.as_str().unwrap_or("?"),
    };
    ensure!(
        text == entry.text,
        "body",
        "{text:?} where the engine said {:?}",
        entry.text
    );
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(calls.len() == entry.calls.len(), "body", "{value} has other calls");
    for (call, (name, arguments)) in calls.iter().zip(&entry.calls) {
        let function = &call["function"];
        let right = function["name"] == *name && function["arguments"] == **arguments;
        ensure!(right, "body", "{call} where the engine called {name} with {arguments}");
        id(&call["id"], "call_");
    }
    logprobs(&value["logprobs"], request, text);
    let finish = finish(entry);
    ensure!(
        value["finish_reason"] == reason(Dialect::OpenAi, finish),
        "body",
        "{value} ends by {finish:?}"
    );
}

/// The id of a call has the form that the dialect gives it.
fn id(value: &Value, prefix: &str) {
    let right = value
        .as_str()
        .is_some_and(|id| id.starts_with(prefix) && id.len() == prefix.len() + 24);
    ensure!(right, "body", "{value} is no id of a call");
}

/// The tokens whose log probabilities are told are those of the text, if they were asked for.
fn logprobs(value: &Value, request: &Request, text: &str) {
    if !request.logprobs {
        return ensure!(value.is_null(), "body", "{value} was not asked for");
    }
    let entries = value["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let told: String = entries.iter().filter_map(|entry| entry["token"].as_str()).collect();
    ensure!(
        told == text,
        "body",
        "log probabilities of {told:?} and not of {text:?}"
    );
    let right = |entry: &Value| entry["logprob"] == -0.25 && entry["top_logprobs"][0]["token"] == entry["token"];
    ensure!(entries.iter().all(right), "body", "other log probabilities: {value}");
}
