//! What clients should not send: each gets the right 4xx in the shape of its dialect, and the gateway lives on.
//!
//! Invariant: after each case the same gateway answers an ordinary request.

use std::fmt::Write;

use serde_json::{Value, json};
use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::{self, Response},
};

use crate::ask::{CHAT, MESSAGES, answer, chat, message, with};

/// A dialect, its path, and how it words a fault of the client.
#[derive(Clone, Copy, PartialEq)]
enum Dialect {
    Anthropic,
    OpenAi,
}

const BOTH: [Dialect; 2] = [Dialect::Anthropic, Dialect::OpenAi];

impl Dialect {
    fn path(self) -> &'static str {
        match self {
            Self::Anthropic => MESSAGES,
            Self::OpenAi => CHAT,
        }
    }

    fn ask(self) -> Value {
        match self {
            Self::Anthropic => message("Hello!"),
            Self::OpenAi => chat("Hello!"),
        }
    }

    /// A path such as `messages.0.role` as this dialect spells it.
    fn spelled(self, path: &str) -> String {
        let mut parts = path.split('.');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |path, part| match self {
            Self::OpenAi if part.parse::<u32>().is_ok() => format!("{path}[{part}]"),
            _ => format!("{path}.{part}"),
        })
    }

    /// Checks that this is an error of this dialect with this status; gives message and `param`.
    fn error(self, name: &str, response: &Response, status: u16) -> (String, Option<String>) {
        let body = response.text();
        assert_eq!(response.status, status, "{name}: {body}");
        assert_eq!(response.header("content-type"), Some("application/json"), "{name}");
        let json = response.json();
        let text = |value: &Value| value.as_str().map(String::from);
        let error = &json["error"];
        match self {
            Self::Anthropic => {
                let kind = match status {
                    404 => "not_found_error",
                    413 => "request_too_large",
                    _ => "invalid_request_error",
                };
                assert_eq!(json["type"], "error", "{name}: {body}");
                assert_eq!(error["type"], kind, "{name}: {body}");
                assert_eq!(
                    text(&json["request_id"]).as_deref(),
                    response.header("request-id"),
                    "{name}: {body}"
                );
            }
            Self::OpenAi => {
                assert_eq!(error["type"], "invalid_request_error", "{name}: {body}");
                assert!(
                    error.get("param").is_some() && error.get("code").is_some(),
                    "{name}: {body}"
                );
            }
        }
        let message = text(&error["message"]).unwrap_or_else(|| panic!("{name}: no message in {body}"));
        (message, text(&error["param"]))
    }
}

fn still_answers(gateway: &Gateway, after: &str) {
    let text = answer(gateway.address(), CHAT, &chat("What is the capital of France?"));
    assert!(text.contains("Paris"), "after {after}: {text:?}");
}

#[test]
fn bodies_that_are_no_request() {
    let gateway = Gateway::start(&Settings::default());
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let cases: [(&str, Vec<u8>); 13] = [
        ("nothing", Vec::new()),
        ("half an object", b"{\"model\": \"tiny\"".to_vec()),
        ("no JSON", b"model=tiny".to_vec()),
        ("two documents", b"{} {}".to_vec()),
        ("null", b"null".to_vec()),
        ("a list", b"[]".to_vec()),
        ("a string", b"\"tiny\"".to_vec()),
        ("nested brackets", nested(100_000).into_bytes()),
        ("nested brackets, unclosed", "[".repeat(100_000).into_bytes()),
        ("nested objects", "{\"a\":".repeat(100_000).into_bytes()),
        ("a lone surrogate", body_with(br#""\ud800""#)),
        ("a lone low surrogate", body_with(br#""a \udc00 b""#)),
        ("bytes that are not UTF-8", body_with(b"\"a \xff\xfe b\"")),
    ];
    for (name, body) in cases {
        for dialect in BOTH {
            let response = http::exchange(gateway.address(), &http::post_bytes(dialect.path(), &body));
            dialect.error(name, &response, 400);
        }
        still_answers(&gateway, name);
    }
}

/// A request of both dialects whose only message has this content, as it stands.
fn body_with(content: &[u8]) -> Vec<u8> {
    let (before, after) = (
        &br#"{"model":"tiny","max_tokens":4,"messages":[{"role":"user","content":"#[..],
        b"}]}",
    );
    [before, content, after].concat()
}

/// A field, a value that it may not have, and a part of the fault's path.
type Field = (&'static str, Value, &'static str);

fn common_fields() -> Vec<Field> {
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    vec![
        ("model", json!(5), "model"),
        ("model", Value::Null, "model"),
        ("messages", json!("Hello!"), "messages"),
        ("messages", Value::Null, "messages"),
        ("messages", json!([]), "messages"),
        ("messages", json!(["Hello!"]), "messages.0"),
        ("messages", json!([{"content": "Hello!"}]), "messages.0"),
        (
            "messages",
            json!([{"role": "robot", "content": "Hello!"}]),
            "messages.0.role",
        ),
        ("messages", json!([{"role": "user"}]), "messages.0"),
        ("messages", user(json!(5)), "messages.0.content"),
        ("messages", user(json!([5])), "messages.0.content.0"),
        ("messages", user(json!([{"type": "text"}])), "messages.0.content.0"),
        (
            "messages",
            user(json!([{"type": "smell", "text": "x"}])),
            "messages.0.content.0",
        ),
        ("temperature", json!("hot"), "temperature"),
        ("temperature", json!(-0.5), "temperature"),
        ("temperature", json!(1e9), "temperature"),
        ("top_p", json!(1.5), "top_p"),
        ("stream", json!("yes"), "stream"),
    ]
}

#[test]
fn fields_of_the_wrong_type_or_range() {
    let gateway = Gateway::start(&Settings::default());
    let anthropic: Vec<Field> = vec![
        ("max_tokens", Value::Null, "max_tokens"),
        ("max_tokens", json!("64"), "max_tokens"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("max_tokens", json!(1.5), "max_tokens"),
        ("stop_sequences", json!("x"), "stop_sequences"),
        ("stop_sequences", json!([5]), "stop_sequences"),
        ("system", json!(5), "system"),
        ("top_k", json!("many"), "top_k"),
        ("tools", json!([{"name": "f"}]), "tools.0.input_schema"),
        ("tool_choice", json!({"type": "any"}), "tool_choice"),
        (
            "output_config",
            json!({"format": {"type": "json_schema"}}),
            "output_config.format.schema",
        ),
    ];
    let openai: Vec<Field> = vec![
        ("max_completion_tokens", json!("64"), "max_completion_tokens"),
        ("max_completion_tokens", json!(0), "max_completion_tokens"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("stop", json!(5), "stop"),
        ("stop", json!(vec!["a"; 65]), "stop"),
        ("seed", json!("x"), "seed"),
        ("stream_options", json!({"include_usage": true}), "stream_options"),
        ("n", json!(0), "n"),
        ("n", json!(9), "n"),
        ("min_p", json!(2), "min_p"),
        ("logit_bias", json!({"1": 200}), "logit_bias.1"),
        ("stop_token_ids", json!(["a"]), "stop_token_ids.0"),
        ("top_logprobs", json!(3), "top_logprobs"),
        (
            "response_format",
            json!({"type": "json_schema"}),
            "response_format.json_schema",
        ),
        (
            "tools",
            json!([{"type": "function", "function": {"name": ""}}]),
            "tools.0.function.name",
        ),
        ("tool_choice", json!("required"), "tool_choice"),
    ];
    for (dialect, own) in [(Dialect::Anthropic, anthropic), (Dialect::OpenAi, openai)] {
        for (field, value, path) in common_fields().into_iter().chain(own) {
            let name = format!("{field}: {value}");
            let response = http::post(gateway.address(), dialect.path(), &with(dialect.ask(), field, value));
            let (message, param) = dialect.error(&name, &response, 400);
            let (told, path) = (param.unwrap_or_default() + &message, dialect.spelled(path));
            assert!(
                told.contains(&path),
                "{name}: the fault is at {path}, and the client is told {told:?}"
            );
        }
    }
    still_answers(&gateway, "all of them");
}

/// What this version does not do yet is refused by name, never dropped.
#[test]
fn fields_of_later_versions() {
    let gateway = Gateway::start(&Settings::default());
    let server_tool = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    let custom = json!([{"type": "custom", "custom": {"name": "f"}}]);
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]);
    let document = json!([{"role": "user", "content": [{"type": "document", "source": {}}]}]);
    for (dialect, field, value, part) in [
        (Dialect::Anthropic, "tools", server_tool, "tools.0.type"),
        (
            Dialect::Anthropic,
            "thinking",
            json!({"type": "enabled", "budget_tokens": 1024}),
            "thinking.type",
        ),
        (Dialect::Anthropic, "mcp_servers", json!([{"name": "s"}]), "mcp_servers"),
        (Dialect::Anthropic, "messages", document, "messages.0.content.0.type"),
        (Dialect::OpenAi, "tools", custom, "tools.0.type"),
        (
            Dialect::OpenAi,
            "functions",
            json!([{"name": "f g"}]),
            "functions.0.name",
        ),
        (Dialect::OpenAi, "audio", json!({"voice": "a"}), "audio"),
        (
            Dialect::OpenAi,
            "chat_template_kwargs",
            json!({"messages": 1}),
            "chat_template_kwargs.messages",
        ),
        (Dialect::OpenAi, "messages", image, "messages.0.content.0"),
    ] {
        let response = http::post(gateway.address(), dialect.path(), &with(dialect.ask(), field, value));
        let (message, param) = dialect.error(field, &response, 400);
        let told = param.unwrap_or_default() + &message;
        assert!(told.contains(&dialect.spelled(part)), "{field}: {told:?}");
    }
}

#[test]
fn names_and_lengths() {
    let gateway = Gateway::start(&Settings::default());
    for dialect in BOTH {
        let unknown = http::post(
            gateway.address(),
            dialect.path(),
            &with(dialect.ask(), "model", "nobody"),
        );
        let (message, _) = dialect.error("unknown model", &unknown, 404);
        assert!(message.contains("nobody"), "{message}");
        let long = json!([{"role": "user", "content": "word ".repeat(20_000)}]);
        let long = http::post(
            gateway.address(),
            dialect.path(),
            &with(dialect.ask(), "messages", long),
        );
        let (message, _) = dialect.error("a long prompt", &long, 400);
        if dialect == Dialect::Anthropic {
            let parts = message
                .strip_prefix("prompt is too long: ")
                .and_then(|rest| rest.strip_suffix(" maximum"));
            let numbers = parts.and_then(|parts| parts.split_once(" tokens > "));
            let numbers = numbers.and_then(|(used, most)| Some((used.parse::<u64>().ok()?, most.parse::<u64>().ok()?)));
            assert!(numbers.is_some_and(|(used, most)| used > most), "{message:?}");
        }
    }
}

#[test]
fn sizes_over_the_limit() {
    let settings = Settings::default()
        .with("/server/max_body_bytes", "64KiB")
        .with("/server/max_header_bytes", "4KiB");
    let gateway = Gateway::start(&settings);
    for dialect in BOTH {
        let body = with(dialect.ask(), "user", "x".repeat(64 << 10)).to_string();
        let whole = http::exchange(gateway.address(), &http::post_bytes(dialect.path(), body.as_bytes()));
        dialect.error("a large body", &whole, 413);
        let mut chunked = format!(
            "POST {} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
            dialect.path()
        );
        for chunk in body.as_bytes().chunks(5_000) {
            let text = String::from_utf8_lossy(chunk);
            write!(chunked, "{:x}\r\n{text}\r\n", chunk.len()).unwrap_or_else(|error| panic!("{error}"));
        }
        let chunked = http::exchange(gateway.address(), format!("{chunked}0\r\n\r\n").as_bytes());
        dialect.error("a large chunked body", &chunked, 413);
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: a\r\nx: {}\r\n",
            dialect.path(),
            "y".repeat(5_000)
        );
        assert_eq!(
            http::exchange(gateway.address(), head.as_bytes()).status,
            431,
            "a head that is too long"
        );
    }
    still_answers(&gateway, "all of them");
}
