//! The closed sets of label values: what a metric may be split by, and the names of errors.
//!
//! Nothing here counts. Invariant: each set is known when the program is built, so no client can add a series.

use crate::{api::Dialect, error::ErrorKind};

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// `/v1/messages`
    Messages,
    /// `/v1/messages/count_tokens`
    CountTokens,
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/models` and `/v1/models/{id}`
    Models,
    /// `/health`
    Health,
    /// `/ready`
    Ready,
    /// `/metrics`
    Metrics,
    /// Any other path, or a request that was refused before its path was known.
    Other,
}

impl Route {
    pub(super) const ALL: [Self; 11] = [
        Self::Messages,
        Self::CountTokens,
        Self::ChatCompletions,
        Self::Completions,
        Self::Responses,
        Self::Embeddings,
        Self::Models,
        Self::Health,
        Self::Ready,
        Self::Metrics,
        Self::Other,
    ];

    /// The label's value.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Models => "models",
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Metrics => "metrics",
            Self::Other => "other",
        }
    }
}

/// The dialects, then none.
pub(super) const DIALECTS: [Option<Dialect>; 3] = [Some(Dialect::Anthropic), Some(Dialect::OpenAi), None];

/// The name of a dialect in labels and logs.
#[must_use]
pub fn dialect_name(dialect: Option<Dialect>) -> &'static str {
    match dialect {
        Some(Dialect::Anthropic) => "anthropic",
        Some(Dialect::OpenAi) => "openai",
        None => "none",
    }
}

/// First digits of the statuses that finish a request.
pub(super) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Index in [`CLASSES`].
pub(super) fn class(status: u16) -> usize {
    usize::from((status / 100).clamp(2, 5)) - 2
}

/// How an answer of a model ended, in vLLM's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishedReason {
    /// The model ended its turn, or a stop text was found.
    Stop,
    /// A limit on tokens was met.
    Length,
    /// The client left.
    Abort,
    /// The engine failed.
    Error,
}

impl FinishedReason {
    pub(super) const ALL: [Self; 4] = [Self::Stop, Self::Length, Self::Abort, Self::Error];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Error => "error",
        }
    }
}

/// Every kind of error, in the order of its declaration.
pub(super) const ERRORS: [ErrorKind; 16] = [
    ErrorKind::InvalidRequest,
    ErrorKind::ContextLength,
    ErrorKind::Authentication,
    ErrorKind::Permission,
    ErrorKind::NotFound,
    ErrorKind::ModelNotFound,
    ErrorKind::MethodNotAllowed,
    ErrorKind::BodyTooLarge,
    ErrorKind::HeaderTooLarge,
    ErrorKind::BadHttp,
    ErrorKind::RequestTimeout,
    ErrorKind::QueueFull,
    ErrorKind::Unavailable,
    ErrorKind::Deadline,
    ErrorKind::NotCached,
    ErrorKind::Internal,
];

/// The name of an error in labels and logs.
#[must_use]
pub fn error_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest => "invalid_request",
        ErrorKind::ContextLength => "context_length",
        ErrorKind::Authentication => "authentication",
        ErrorKind::Permission => "permission",
        ErrorKind::NotFound => "not_found",
        ErrorKind::ModelNotFound => "model_not_found",
        ErrorKind::MethodNotAllowed => "method_not_allowed",
        ErrorKind::BodyTooLarge => "body_too_large",
        ErrorKind::HeaderTooLarge => "header_too_large",
        ErrorKind::BadHttp => "bad_http",
        ErrorKind::RequestTimeout => "request_timeout",
        ErrorKind::QueueFull => "queue_full",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Deadline => "deadline",
        ErrorKind::NotCached => "not_cached",
        ErrorKind::Internal => "internal",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn lists_are_complete_and_in_order() {
        assert!(
            Route::ALL
                .iter()
                .enumerate()
                .all(|(index, &route)| route as usize == index)
        );
        assert_eq!(Route::ALL[Route::ALL.len() - 1], Route::Other, "the last one declared");
        assert!(
            FinishedReason::ALL
                .iter()
                .enumerate()
                .all(|(index, &reason)| reason as usize == index)
        );
        assert!(ERRORS.iter().enumerate().all(|(index, &kind)| kind as usize == index));
        assert_eq!(ERRORS[ERRORS.len() - 1], ErrorKind::Internal, "the last one declared");
        let names: HashSet<_> = ERRORS.iter().map(|&kind| error_name(kind)).collect();
        assert_eq!(names.len(), ERRORS.len());
    }

    #[test]
    fn statuses_fall_into_classes() {
        for (status, expected) in [
            (200, "2xx"),
            (204, "2xx"),
            (304, "3xx"),
            (400, "4xx"),
            (499, "4xx"),
            (503, "5xx"),
            (529, "5xx"),
        ] {
            assert_eq!(CLASSES[class(status)], expected);
        }
        assert_eq!(
            (CLASSES[class(0)], CLASSES[class(u16::MAX)]),
            ("2xx", "5xx"),
            "never out of range"
        );
    }
}
