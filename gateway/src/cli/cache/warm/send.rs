//! One request to a gateway and what its reply says of the cache.
//!
//! An ordinary HTTP client. Invariant: a request that the gateway asks to send later is sent later, up to [`TRIES`] times.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;
use ureq::{Agent, Body, http::Response};

/// How often a request is sent that meets a full queue.
const TRIES: u32 = 50;
/// Bounds of the time between two tries.
const WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(30));
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Longest reply in bytes.
const LONGEST: u64 = 64 << 20;

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was answered anew, and the answer is one that is kept.
    Kept,
    /// There was an answer.
    Hit,
    /// It was answered, and the answer is not kept.
    NotKept(&'static str),
    /// The gateway does not answer it: status and reason.
    Refused(String),
    /// There was no reply, or none that is final.
    Failed(String),
}

/// Sends requests. Clones share their connections.
#[derive(Clone)]
pub(super) struct Client {
    agent: Agent,
    url: String,
    key: Option<String>,
}

impl Client {
    /// For the gateway at this address.
    pub(super) fn new(url: &str, key: Option<String>, connections: u16) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").filter(|rest| !rest.is_empty());
        if rest.is_none() {
            return Err(format!(
                "--url {url}: give http://HOST:PORT, where the gateway itself listens"
            ));
        }
        let connections = usize::from(connections);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(PATIENCE))
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .user_agent(concat!("zerohop/", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            agent: config.build().into(),
            url: url.trim_end_matches('/').to_owned(),
            key,
        })
    }

    /// Sends a request until it is answered, refused or hopeless.
    pub(super) fn send(&self, path: &str, body: &str, stop: &AtomicBool) -> Outcome {
        let mut tries = 1;
        loop {
            let mut response = match self.post(path, body) {
                Ok(response) => response,
                Err(error) => return Outcome::Failed(error.to_string()),
            };
            let status = response.status().as_u16();
            let wait = waits(&response);
            let text = match response.body_mut().with_config().limit(LONGEST).read_to_vec() {
                Ok(text) => text,
                Err(error) => return Outcome::Failed(format!("{status}: the reply breaks off: {error}")),
            };
            match status {
                200 => return answered(field(&response, "x-cache"), &text),
                429 | 503 if tries < TRIES && !stop.load(Ordering::Relaxed) => {
                    thread::sleep(wait.clamp(WAIT.0, WAIT.1));
                    tries += 1;
                }
                // Another time it may be answered.
                408 | 429 | 500.. => return Outcome::Failed(format!("{status}: {}", message(&text))),
                _ => return Outcome::Refused(format!("{status}: {}", message(&text))),
            }
        }
    }

    fn post(&self, path: &str, body: &str) -> Result<Response<Body>, ureq::Error> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
        let request = match (&self.key, path) {
            (None, _) => request,
            (Some(key), "/v1/messages") => request.header("x-api-key", key),
            (Some(key), _) => request.header("authorization", format!("Bearer {key}")),
        };
        request.send(body)
    }
}

fn field<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// After which time the gateway wants to be asked again.
fn waits(response: &Response<Body>) -> Duration {
    let number = |name: &str| field(response, name)?.trim().parse::<u32>().ok();
    match (number("retry-after-ms"), number("retry-after")) {
        (Some(millis), _) => Duration::from_millis(millis.into()),
        (None, Some(seconds)) => Duration::from_secs(seconds.into()),
        (None, None) => Duration::from_secs(1),
    }
}

/// What an answer with this `x-cache` was to the cache.
fn answered(cache: Option<&str>, text: &[u8]) -> Outcome {
    // Inside a text every quote is escaped, so what is found is the reply's own.
    let says = |part: &str| memchr::memmem::find(text, part.as_bytes()).is_some();
    match cache {
        Some("hit" | "join" | "stale") => Outcome::Hit,
        Some("bypass") => Outcome::NotKept("the policy of the cache does not cover the request (x-cache: bypass)"),
        Some(_) if says(r#""stop_reason":"max_tokens""#) || says(r#""finish_reason":"length""#) => {
            Outcome::NotKept("its limit of tokens cut the answer off")
        }
        Some(_) if says(r#""stop_reason":"model_context_window_exceeded""#) => {
            Outcome::NotKept("the end of the context cut the answer off")
        }
        Some(_) if says(r#""stop_reason":"tool_use""#) || says(r#""finish_reason":"tool_calls""#) => {
            Outcome::NotKept("it calls tools: kept with cache.tools only")
        }
        Some(_) if says(r#""type":"error""#) || says(r#"{"error":"#) => Outcome::Failed("the stream broke off".into()),
        Some(_) => Outcome::Kept,
        None => Outcome::NotKept("no answers are kept there (no x-cache)"),
    }
}

/// The reason in an error of either dialect.
fn message(text: &[u8]) -> String {
    const LONGEST: usize = 200;
    let told = serde_json::from_slice::<Value>(text).ok();
    let told = told.as_ref().and_then(|told| told.pointer("/error/message")?.as_str());
    match told {
        Some(told) => told.chars().take(LONGEST).collect(),
        None => "no reason that can be read".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_understood() {
        let kept = r#"{"content":[{"type":"text","text":"\"stop_reason\":\"max_tokens\""}],"stop_reason":"end_turn"}"#;
        let table = [
            (Some("hit"), "", "Hit"),
            (Some("join"), "", "Hit"),
            (Some("miss"), kept, "Kept"),
            (Some("miss"), r#"{"stop_reason":"max_tokens"}"#, "limit of tokens"),
            (
                Some("miss"),
                r#"data: {"choices":[{"finish_reason":"length"}]}"#,
                "limit of tokens",
            ),
            (Some("miss"), r#"{"finish_reason":"tool_calls"}"#, "calls tools"),
            (
                Some("miss"),
                "event: error\ndata: {\"type\":\"error\",\"error\":{}}",
                "broke off",
            ),
            (Some("bypass"), kept, "x-cache: bypass"),
            (None, kept, "no x-cache"),
        ];
        for (cache, text, part) in table {
            let outcome = format!("{:?}", answered(cache, text.as_bytes()));
            assert!(outcome.contains(part), "{cache:?} {text}: {outcome}");
        }
    }

    #[test]
    fn addresses_are_http() {
        for (url, good) in [
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:80/", true),
            ("https://x", false),
            ("127.0.0.1:8080", false),
            ("http://", false),
        ] {
            assert_eq!(Client::new(url, None, 1).is_ok(), good, "{url}");
        }
    }
}
