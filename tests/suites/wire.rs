//! The bytes of every reply, compared with golden files.
//!
//! Invariant: what is replaced before the comparison is only what differs by nature: ids, times, and where a stream's
//! text is cut into deltas.

use zerohop_tests::{
    gateway::{Gateway, Settings},
    golden,
    http::{self, Client, Response},
    sse,
};

use crate::{
    ask::{CHAT, MESSAGES, chat, message, with},
    completions::{COMPLETIONS, continued},
};

const CAPITAL: &str = "What is the capital of France?";

/// Sends each request on a connection of its own and compares the reply with `golden/PREFIX-NAME.txt`.
fn check(gateway: &Gateway, prefix: &str, cases: &[(&str, Vec<u8>)]) {
    for (name, request) in cases {
        let method =
            String::from_utf8_lossy(request.split(|byte| *byte == b' ').next().unwrap_or_default()).into_owned();
        let mut client = Client::connect(gateway.address());
        client.send(request);
        golden::check(&format!("{prefix}-{name}"), &shown(&client.response_to(&method)));
    }
}

/// Head and body as the golden file has them.
fn shown(response: &Response) -> String {
    let streamed = response
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("text/event-stream"));
    let body = if streamed {
        joined(&response.events())
    } else {
        response.text()
    };
    golden::normal(&format!("{}{body}\n", response.head)).replace("\r\n", "\n")
}

/// Events as they came, but with neighbouring deltas of one shape joined, since the gateway may join them too.
fn joined(events: &[sse::Event]) -> String {
    let mut shapes: Vec<(String, String)> = Vec::new();
    for event in events {
        let text = sse::delta(event).filter(|text| !text.is_empty()).unwrap_or_default();
        let literal = serde_json::Value::from(text.clone()).to_string();
        let data = if text.is_empty() {
            event.data.clone()
        } else {
            event.data.replacen(&literal, "\"TEXT\"", 1)
        };
        let shape = format!("event: {}\ndata: {data}\n", event.name);
        match shapes.last_mut() {
            Some((last, joined)) if *last == shape && !text.is_empty() => joined.push_str(&text),
            _ => shapes.push((shape, text)),
        }
    }
    let whole = shapes.iter().map(|(shape, text)| shape.replacen("TEXT", text, 1));
    whole.collect::<Vec<_>>().join("\n")
}

fn post(path: &str, body: &serde_json::Value) -> Vec<u8> {
    http::post_bytes(path, body.to_string().as_bytes())
}

#[test]
fn anthropic() {
    let gateway = Gateway::start(&Settings::default());
    let ask = message(CAPITAL);
    let count = serde_json::json!({"model": "tiny", "messages": ask["messages"]});
    check(
        &gateway,
        "anthropic",
        &[
            ("plain", post(MESSAGES, &ask)),
            ("stream", post(MESSAGES, &with(ask.clone(), "stream", true))),
            ("max-tokens", post(MESSAGES, &with(ask.clone(), "max_tokens", 1))),
            (
                "stop",
                post(
                    MESSAGES,
                    &with(ask.clone(), "stop_sequences", serde_json::json!(["Paris"])),
                ),
            ),
            ("prompt-only", post(MESSAGES, &with(ask.clone(), "max_tokens", 0))),
            (
                "bad-tool",
                post(
                    MESSAGES,
                    &with(ask.clone(), "tools", serde_json::json!([{"name": "f"}])),
                ),
            ),
            ("count", post("/v1/messages/count_tokens", &count)),
            ("unknown-model", post(MESSAGES, &with(ask.clone(), "model", "nobody"))),
            (
                "no-messages",
                post(MESSAGES, &with(ask, "messages", serde_json::json!([]))),
            ),
            ("wrong-method", http::request_bytes("GET", MESSAGES)),
        ],
    );
}

#[test]
fn openai() {
    let gateway = Gateway::start(&Settings::default());
    let ask = chat(CAPITAL);
    let streamed = with(ask.clone(), "stream", true);
    let usage = with(
        streamed.clone(),
        "stream_options",
        serde_json::json!({"include_usage": true}),
    );
    check(
        &gateway,
        "openai",
        &[
            ("plain", post(CHAT, &ask)),
            ("stream", post(CHAT, &streamed)),
            ("stream-usage", post(CHAT, &usage)),
            ("length", post(CHAT, &with(ask.clone(), "max_completion_tokens", 1))),
            ("stop", post(CHAT, &with(ask.clone(), "stop", "Paris"))),
            ("several", post(CHAT, &with(ask.clone(), "n", 2))),
            ("bad-choice", post(CHAT, &with(ask.clone(), "tool_choice", "required"))),
            ("unknown-model", post(CHAT, &with(ask.clone(), "model", "nobody"))),
            ("no-messages", post(CHAT, &with(ask, "messages", serde_json::json!([])))),
            ("wrong-method", http::request_bytes("DELETE", CHAT)),
        ],
    );
}

#[test]
fn completions() {
    let gateway = Gateway::start(&Settings::default());
    let ask = continued("The capital of France is");
    let streamed = with(ask.clone(), "stream", true);
    let usage = with(
        streamed.clone(),
        "stream_options",
        serde_json::json!({"include_usage": true}),
    );
    check(
        &gateway,
        "completions",
        &[
            ("plain", post(COMPLETIONS, &ask)),
            ("stream", post(COMPLETIONS, &streamed)),
            ("stream-usage", post(COMPLETIONS, &usage)),
            ("echo", post(COMPLETIONS, &with(ask.clone(), "echo", true))),
            (
                "several",
                post(COMPLETIONS, &continued(serde_json::json!(["Hello", [1]]))),
            ),
            ("no-token", post(COMPLETIONS, &continued(serde_json::json!([999_999])))),
            (
                "no-prompt",
                post(COMPLETIONS, &with(ask.clone(), "prompt", serde_json::json!([]))),
            ),
            ("unknown-model", post(COMPLETIONS, &with(ask, "model", "nobody"))),
            ("wrong-method", http::request_bytes("GET", COMPLETIONS)),
        ],
    );
}

#[test]
fn other_paths() {
    let gateway = Gateway::start(&Settings::default());
    let get = |path: &str| http::request_bytes("GET", path);
    let anthropic = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: zerohop\r\nanthropic-version: 2023-06-01\r\n\r\n").into_bytes()
    };
    check(
        &gateway,
        "paths",
        &[
            ("root", get("/")),
            ("root-head", http::request_bytes("HEAD", "/")),
            ("health", get("/health")),
            ("ready", get("/ready")),
            ("models", get("/v1/models")),
            ("model", get("/v1/models/tiny")),
            ("unknown-model", get("/v1/models/nobody")),
            ("unknown-model-anthropic", anthropic("/v1/models/nobody")),
            ("unknown-path", get("/v1/nothing")),
            ("later-path", http::post_bytes("/v1/responses", b"{}")),
        ],
    );
}

#[test]
fn keys() {
    let tenants = serde_json::json!([{"name": "team", "keys_env": "TEAM_KEYS"}]);
    let settings = Settings::default()
        .with("/tenants", tenants)
        .environment("TEAM_KEYS", "sk-first,sk-second");
    let gateway = Gateway::start(&settings);
    let ask = |path: &str, key: &str| {
        let body = if path == CHAT { chat(CAPITAL) } else { message(CAPITAL) }.to_string();
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nhost: zerohop\r\n{key}content-length: {length}\r\n\r\n{body}").into_bytes()
    };
    for key in [
        "authorization: Bearer sk-first\r\n",
        "X-Api-Key: sk-second\r\n",
        "Authorization: bearer sk-second\r\n",
    ] {
        for path in [MESSAGES, CHAT] {
            assert_eq!(
                http::exchange(gateway.address(), &ask(path, key)).status,
                200,
                "{key:?} on {path}"
            );
        }
    }
    check(
        &gateway,
        "keys",
        &[
            ("none-anthropic", ask(MESSAGES, "")),
            ("none-openai", ask(CHAT, "")),
            ("wrong-anthropic", ask(MESSAGES, "x-api-key: sk-wrong\r\n")),
            ("wrong-openai", ask(CHAT, "authorization: Bearer sk-wrong\r\n")),
        ],
    );
    for path in ["/", "/health", "/ready", "/metrics"] {
        assert_eq!(http::get(gateway.address(), path).status, 200, "{path} asks for no key");
    }
    assert_eq!(http::get(gateway.address(), "/v1/models").status, 401);
}

/// Which metrics there are, of which type: a name that goes or changes breaks dashboards.
#[test]
fn metrics() {
    let gateway = Gateway::start(&Settings::default());
    assert_eq!(http::post(gateway.address(), CHAT, &chat(CAPITAL)).status, 200);
    let text = http::get(gateway.address(), "/metrics").text();
    let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    types.sort_unstable();
    golden::check("metrics", &(types.join("\n") + "\n"));
}

#[test]
fn every_reply_has_both_request_ids() {
    let gateway = Gateway::start(&Settings::default());
    let stream = with(message(CAPITAL), "stream", true);
    for request in [
        http::request_bytes("GET", "/health"),
        http::request_bytes("GET", "/nothing"),
        post(CHAT, &chat(CAPITAL)),
        post(MESSAGES, &stream),
        post(MESSAGES, &serde_json::json!({})),
        b"rubbish\r\n\r\n".to_vec(),
    ] {
        let response = http::exchange(gateway.address(), &request);
        let ids = (response.header("request-id"), response.header("x-request-id"));
        assert!(
            ids.0.is_some_and(|id| id.starts_with("req_")) && ids.0 == ids.1,
            "{}",
            response.head
        );
    }
}
