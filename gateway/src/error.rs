//! What can go wrong with a request: whose fault, whether to retry, and what the client may hear, in one table.
//!
//! Nothing here logs or does I/O. Invariant: every [`ErrorKind`] has exactly one row, so a kind means the same
//! status in every place and both dialects.

use std::{borrow::Cow, time::Duration};

use crate::{
    api::{Dialect, brackets},
    json::Writer,
};

/// The kinds of failure that a client can be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Malformed JSON, a bad field, an unsupported feature.
    InvalidRequest,
    /// The prompt is longer than the model's context.
    ContextLength,
    /// No key, or one that nobody has.
    Authentication,
    /// The key may not use this model.
    Permission,
    /// No such path.
    NotFound,
    /// No such model.
    ModelNotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The body is over `max_body_bytes`.
    BodyTooLarge,
    /// The head is over `max_header_bytes`.
    HeaderTooLarge,
    /// The bytes are not acceptable HTTP; the connection is closed after the answer.
    BadHttp,
    /// The client was too slow; the connection is closed after the answer.
    RequestTimeout,
    /// The engine's queue is full.
    QueueFull,
    /// Starting, draining, or the model is gone.
    Unavailable,
    /// A deadline of ours passed.
    Deadline,
    /// The request asks for a stored answer or none (`cache-control: only-if-cached`), and there is none.
    NotCached,
    /// Our own fault.
    Internal,
}

/// What a kind means on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The HTTP status, the same in both dialects.
    pub status: u16,
    /// `error.type` of the Messages API.
    pub anthropic_type: &'static str,
    /// `error.type` of the OpenAI API.
    pub openai_type: &'static str,
    /// `error.code` of the OpenAI API.
    pub openai_code: Option<&'static str>,
    /// Whether the vendors' clients try again by themselves, which they do with 408, 409, 429 and 500 and above; so these
    /// are the statuses of what may succeed later, but for [`ErrorKind::NotCached`], whose headers stop them.
    pub retryable: bool,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::InvalidRequest,
        Self::ContextLength,
        Self::Authentication,
        Self::Permission,
        Self::NotFound,
        Self::ModelNotFound,
        Self::MethodNotAllowed,
        Self::BodyTooLarge,
        Self::HeaderTooLarge,
        Self::BadHttp,
        Self::RequestTimeout,
        Self::QueueFull,
        Self::Unavailable,
        Self::Deadline,
        Self::NotCached,
        Self::Internal,
    ];

    /// The kind's row: the one place where statuses and types are written.
    #[must_use]
    pub const fn row(self) -> Row {
        const INVALID: &str = "invalid_request_error";
        let (status, anthropic_type, openai_type, openai_code) = match self {
            Self::InvalidRequest | Self::BadHttp => (400, INVALID, INVALID, None),
            Self::ContextLength => (400, INVALID, INVALID, Some("context_length_exceeded")),
            Self::Authentication => (401, "authentication_error", INVALID, Some("invalid_api_key")),
            Self::Permission => (403, "permission_error", INVALID, None),
            Self::NotFound => (404, "not_found_error", INVALID, None),
            Self::ModelNotFound => (404, "not_found_error", INVALID, Some("model_not_found")),
            Self::MethodNotAllowed => (405, INVALID, INVALID, None),
            Self::RequestTimeout => (408, "timeout_error", INVALID, None),
            Self::BodyTooLarge => (413, "request_too_large", INVALID, None),
            Self::QueueFull => (429, "rate_limit_error", "rate_limit_error", Some("rate_limit_exceeded")),
            Self::HeaderTooLarge => (431, INVALID, INVALID, None),
            Self::Internal => (500, "api_error", "server_error", None),
            Self::Unavailable => (503, "overloaded_error", "service_unavailable_error", None),
            Self::Deadline => (504, "timeout_error", "server_error", None),
            // The status is that of RFC 9111, section 5.2.1.7.
            Self::NotCached => (504, "api_error", "server_error", Some("not_cached")),
        };
        Row {
            status,
            anthropic_type,
            openai_type,
            openai_code,
            retryable: matches!(status, 408 | 409 | 429 | 500..),
        }
    }
}

/// A failure on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Which row of the table.
    pub kind: ErrorKind,
    /// What the client reads; never holds another client's data or a path of this machine.
    pub message: Cow<'static, str>,
    /// JSON path of the fault, for example `messages.0.content.1.type`; `None` if it is not in the body.
    pub param: Option<String>,
    /// When to try again, for kinds that pass.
    pub retry_after: Option<Duration>,
    /// The methods that the path has, for [`ErrorKind::MethodNotAllowed`]: `GET, HEAD`.
    pub allow: Option<&'static str>,
}

impl ApiError {
    /// An error of this kind with this message.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            retry_after: None,
            allow: None,
        }
    }

    /// The same, at this JSON path.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.param = Some(path.into());
        self
    }

    /// The same, to be tried again after this time.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// [`ErrorKind::ModelNotFound`], as the dialect words it.
    #[must_use]
    pub fn unknown_model(dialect: Dialect, model: &str) -> Self {
        let message = match dialect {
            Dialect::Anthropic => format!("model: {model}"),
            Dialect::OpenAi => format!("The model `{model}` does not exist or you do not have access to it."),
        };
        Self::new(ErrorKind::ModelNotFound, message).at("model")
    }

    /// [`ErrorKind::ContextLength`], as the dialect words it: messages of `tokens` where at most `limit` leave room for an
    /// answer. Clients parse the numbers out of Anthropic's text.
    #[must_use]
    pub fn prompt_too_long(dialect: Dialect, tokens: u32, limit: u32) -> Self {
        let message = match dialect {
            Dialect::Anthropic => format!("prompt is too long: {tokens} tokens > {limit} maximum"),
            Dialect::OpenAi => beyond_context(limit, format_args!("messages resulted in {tokens}"), "the messages"),
        };
        Self::new(ErrorKind::ContextLength, message).at("messages")
    }

    /// The same of a prompt that is no conversation.
    #[must_use]
    pub fn text_too_long(tokens: u32, limit: u32) -> Self {
        let message = beyond_context(limit, format_args!("prompt has {tokens}"), "the prompt");
        Self::new(ErrorKind::ContextLength, message).at("prompt")
    }

    /// [`ErrorKind::MethodNotAllowed`] on a path that has the methods `allow`.
    #[must_use]
    pub fn method_not_allowed(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(
                ErrorKind::MethodNotAllowed,
                format!("Method not allowed; this path has {allow}"),
            )
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.kind.row().status
    }

    /// The headers that go with it, in order: `retry-after` (whole seconds, rounded up) and `retry-after-ms`, with
    /// `x-should-retry: true` for clients that would not by themselves; `x-should-retry: false` where they would and nothing
    /// is to be hoped of it; `allow`.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, Cow<'static, str>)> {
        let mut headers = Vec::new();
        if let Some(after) = self.retry_after {
            let millis = after.as_nanos().div_ceil(1_000_000).max(1);
            headers.push(("retry-after", millis.div_ceil(1000).to_string().into()));
            headers.push(("retry-after-ms", millis.to_string().into()));
            headers.push(("x-should-retry", "true".into()));
        }
        if self.kind == ErrorKind::NotCached {
            headers.push(("x-should-retry", "false".into()));
        }
        if let Some(allow) = self.allow {
            headers.push(("allow", allow.into()));
        }
        headers
    }

    /// Writes the body of the reply, which is also the data of an error event in a stream.
    pub fn body(&self, dialect: Dialect, request_id: &str, out: &mut Vec<u8>) {
        let row = self.kind.row();
        match dialect {
            Dialect::Anthropic => Writer(out)
                .raw(r#"{"type":"error","error":{"type":"#)
                .string(row.anthropic_type)
                .raw(r#","message":"#)
                .string(&self.message)
                .raw(r#"},"request_id":"#)
                .string(request_id)
                .raw("}"),
            Dialect::OpenAi => Writer(out)
                .raw(r#"{"error":{"message":"#)
                .string(&self.message)
                .raw(r#","type":"#)
                .string(row.openai_type)
                .raw(r#","param":"#)
                .string_or_null(self.param.as_deref().map(brackets).as_deref())
                .raw(r#","code":"#)
                .string_or_null(row.openai_code)
                .raw("}}"),
        };
    }
}

/// The context is one token longer than the longest prompt that leaves room for an answer.
fn beyond_context(limit: u32, got: std::fmt::Arguments<'_>, what: &str) -> String {
    let context = u64::from(limit) + 1;
    format!(
        "This model's maximum context length is {context} tokens, of which an answer needs one at least. However, your {got} \
         tokens. Please reduce the length of {what}."
    )
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
