//! What a line of a file of requests means: a body, and the path that it is for.
//!
//! Looks at the names of fields only, and decides nothing that the gateway would decide. Invariant: the bytes of a body are
//! sent as they stand in the file.

use std::{borrow::Cow, collections::HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::args::Api;

/// A request to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) path: &'static str,
    pub(super) body: &'a str,
}

/// Paths that a line may name.
const PATHS: [&str; 2] = ["/v1/messages", "/v1/chat/completions"];

/// Fields that only `/v1/messages` has.
const MESSAGES: [&str; 5] = ["system", "stop_sequences", "thinking", "output_config", "output_format"];
/// Roles of messages that only `/v1/chat/completions` has.
const ROLES: [&str; 4] = ["system", "developer", "tool", "function"];

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
}

/// The request of a line that names no API itself.
pub(super) fn request(line: &[u8]) -> Result<Request<'_>, String> {
    request_for(line, None)
}

/// The request of a line; `api` is that of a line that names no path.
pub(super) fn request_for(line: &[u8], api: Option<Api>) -> Result<Request<'_>, String> {
    let line = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let fields: HashMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(line).map_err(|error| format!("no JSON object: {error}"))?;
    let Some(body) = fields.get("body").filter(|_| !fields.contains_key("messages")) else {
        let path = api.map_or_else(|| guess(&fields), Api::path);
        return Ok(Request { path, body: line });
    };
    if let Some(unknown) = fields.keys().find(|name| !["path", "body"].contains(&&***name)) {
        return Err(format!("unknown field {unknown:?} beside `body`: there may be `path`"));
    }
    let inner: HashMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(body.get()).map_err(|error| format!("`body` is no JSON object: {error}"))?;
    let named = fields
        .get("path")
        .map(|path| serde_json::from_str::<Cow<'_, str>>(path.get()));
    let path = match named {
        None => api.map_or_else(|| guess(&inner), Api::path),
        Some(Ok(named)) => PATHS
            .into_iter()
            .find(|path| *path == named)
            .ok_or_else(|| format!("`path` is {named:?}: give {}", PATHS.join(" or ")))?,
        Some(Err(_)) => return Err(format!("`path` is no text: give {}", PATHS.join(" or "))),
    };
    Ok(Request { path, body: body.get() })
}

/// The path that a body with these fields is for. One that fits both means the same in both.
fn guess(fields: &HashMap<Cow<'_, str>, &RawValue>) -> &'static str {
    let [messages, chat] = PATHS;
    if MESSAGES.iter().any(|name| fields.contains_key(*name)) {
        return messages;
    }
    if !fields.contains_key("max_tokens") {
        return chat;
    }
    let roles: Vec<Message<'_>> = fields
        .get("messages")
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    let role = |name: &&str| roles.iter().any(|message| message.role.as_deref() == Some(name));
    let tools = fields.get("tools").map_or("", |raw| raw.get());
    let only_chat = [
        "n",
        "stop",
        "seed",
        "response_format",
        "logprobs",
        "max_completion_tokens",
        "stream_options",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
    ];
    let is_chat = only_chat.iter().any(|name| fields.contains_key(*name))
        || ROLES.iter().any(role)
        || tools.contains("\"function\"");
    if is_chat { chat } else { messages }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_find_their_path() {
        let [messages, chat] = PATHS;
        let table = [
            (
                r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"}]}"#,
                messages,
            ),
            (r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#, chat),
            (r#"{"system":"s","messages":[]}"#, messages),
            (r#"{"max_tokens":5,"stop":["a"],"messages":[]}"#, chat),
            (r#"{"max_tokens":5,"messages":[{"role":"system","content":"a"}]}"#, chat),
            (
                r#"{"max_tokens":5,"messages":[],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
                chat,
            ),
            (
                r#"{"max_tokens":5,"messages":[],"tools":[{"name":"f","input_schema":{}}]}"#,
                messages,
            ),
        ];
        for (line, path) in table {
            assert_eq!(request(line.as_bytes()), Ok(Request { path, body: line }), "{line}");
            let wrapped = format!(r#"{{"body": {line}}}"#);
            assert_eq!(request(wrapped.as_bytes()), Ok(Request { path, body: line }), "{line}");
        }
        let line = r#"{"path":"/v1/messages","body":{"messages": []}}"#;
        let wanted = Request {
            path: messages,
            body: r#"{"messages": []}"#,
        };
        assert_eq!(request(line.as_bytes()), Ok(wanted));
        let line = br#"{"messages":[]}"#;
        assert_eq!(request_for(line, Some(Api::Messages)).map(|it| it.path), Ok(messages));
    }

    #[test]
    fn other_lines_are_refused() {
        let table: [(&[u8], &str); 8] = [
            (b"x", "no JSON object: expected value"),
            (b"[]", "no JSON object: invalid type: sequence"),
            (b"{\"messages\":[]", "no JSON object: EOF"),
            (b"{\"model\":\"\xff\"}", "not UTF-8"),
            (br#"{"body":7}"#, "`body` is no JSON object"),
            (
                br#"{"body":{},"headers":{}}"#,
                "unknown field \"headers\" beside `body`",
            ),
            (
                br#"{"body":{},"path":"/v1/models"}"#,
                "`path` is \"/v1/models\": give /v1/messages or",
            ),
            (br#"{"body":{},"path":7}"#, "`path` is no text"),
        ];
        for (line, part) in table {
            let why = request(line).expect_err("it is no request");
            assert!(why.contains(part), "{why}");
        }
    }
}
