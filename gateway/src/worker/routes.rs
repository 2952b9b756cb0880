//! Which operation a method and a path name.
//!
//! Pure; knows nothing of bodies. Invariant: each path of the API is named in exactly one place, here.

use std::borrow::Cow;

use crate::{
    api::Dialect,
    error::{ApiError, ErrorKind},
    http::Method,
    metrics,
};

/// An operation of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`; ids may hold `/`.
    Model(&'a str),
    /// `GET /`, `/health` and its other names: the process lives.
    Health,
    /// `GET /ready`: new requests are welcome.
    Ready,
    /// `GET /metrics`
    Metrics,
}

/// What part of the gateway a listener shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// Everything.
    Full,
    /// Everything but `/metrics`, which has an address of its own.
    Api,
    /// `/metrics`, `/health` and `/ready` only.
    Admin,
}

impl Route<'_> {
    /// Whether a key is asked for where tenants are configured.
    pub(crate) fn guarded(self) -> bool {
        !matches!(self, Self::Health | Self::Ready | Self::Metrics)
    }

    /// Whether this is asked all day by probes, and so logged at `debug` only.
    pub(crate) fn is_probe(self) -> bool {
        !self.guarded()
    }

    /// The route in metrics.
    pub(crate) fn label(self) -> metrics::Route {
        match self {
            Self::Messages => metrics::Route::Messages,
            Self::CountTokens => metrics::Route::CountTokens,
            Self::ChatCompletions => metrics::Route::ChatCompletions,
            Self::Completions => metrics::Route::Completions,
            Self::Embeddings => metrics::Route::Embeddings,
            Self::Models | Self::Model(_) => metrics::Route::Models,
            Self::Health => metrics::Route::Health,
            Self::Ready => metrics::Route::Ready,
            Self::Metrics => metrics::Route::Metrics,
        }
    }

    fn takes_post(self) -> bool {
        matches!(
            self,
            Self::Messages | Self::CountTokens | Self::ChatCompletions | Self::Completions | Self::Embeddings
        )
    }

    fn shown_on(self, surface: Surface) -> bool {
        match surface {
            Surface::Full => true,
            Surface::Api => self != Self::Metrics,
            Surface::Admin => !self.guarded(),
        }
    }
}

/// The dialect in which an error about this path is told, and a list of models with it.
pub(crate) fn dialect_of(path: &str, anthropic_header: bool) -> Dialect {
    if anthropic_header || path.starts_with("/v1/messages") {
        Dialect::Anthropic
    } else {
        Dialect::OpenAi
    }
}

/// The same for a head that could not be read: as far as its first line shows a path.
pub(crate) fn dialect_of_head(bytes: &[u8]) -> Dialect {
    let mut words = bytes.split(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    let path = words.nth(1).and_then(|path| std::str::from_utf8(path).ok());
    dialect_of(path.unwrap_or_default(), false)
}

/// The operation, or 404, or 405 with the methods that would do.
pub(crate) fn route<'a>(method: Method, path: &'a str, surface: Surface) -> Result<Route<'a>, ApiError> {
    let route = lookup(path)
        .filter(|route| route.shown_on(surface))
        .ok_or_else(|| ApiError::new(ErrorKind::NotFound, not_found(path)))?;
    let allowed = match method {
        Method::Post => route.takes_post(),
        Method::Get | Method::Head => !route.takes_post(),
        _ => false,
    };
    if allowed {
        Ok(route)
    } else {
        Err(ApiError::method_not_allowed(if route.takes_post() {
            "POST"
        } else {
            "GET, HEAD"
        }))
    }
}

fn lookup(path: &str) -> Option<Route<'_>> {
    Some(match path {
        "/v1/messages" => Route::Messages,
        "/v1/messages/count_tokens" => Route::CountTokens,
        "/v1/chat/completions" | "/chat/completions" => Route::ChatCompletions,
        "/v1/completions" | "/completions" => Route::Completions,
        "/v1/embeddings" | "/embeddings" => Route::Embeddings,
        "/v1/models" | "/models" => Route::Models,
        "/" | "/health" | "/healthz" | "/livez" | "/ping" => Route::Health,
        "/ready" | "/readyz" => Route::Ready,
        "/metrics" => Route::Metrics,
        _ => {
            let id = path
                .strip_prefix("/v1/models/")
                .or_else(|| path.strip_prefix("/models/"))?;
            if id.is_empty() {
                return None;
            }
            Route::Model(id)
        }
    })
}

/// Paths that the vendors have and this version does not are named as such, so that nobody hunts for a typing error.
fn not_found(path: &str) -> Cow<'static, str> {
    const LATER: &[&str] = &["/v1/responses", "/v1/messages/batches", "/v1/batches"];
    match LATER.iter().find(|later| path.starts_with(**later)) {
        Some(later) => format!("{later} is not supported yet").into(),
        None => "no such path".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_of_broken_heads() {
        for (head, wanted) in [
            ("POST /v1/messages HTTP/1.1\r\nbad header\r\n", Dialect::Anthropic),
            ("POST /v1/messages/count_tokens HT", Dialect::Anthropic),
            ("POST /v1/chat/completions HTTP/1.1\r\n", Dialect::OpenAi),
            ("\u{16}\u{3}\u{1}", Dialect::OpenAi),
            ("", Dialect::OpenAi),
        ] {
            assert_eq!(dialect_of_head(head.as_bytes()), wanted, "{head}");
        }
    }

    #[test]
    fn paths_and_methods() {
        use Method::{Get, Head, Post};
        let table: &[(Method, &str, Surface, Result<Route<'_>, ErrorKind>)] = &[
            (Post, "/v1/messages", Surface::Full, Ok(Route::Messages)),
            (Post, "/v1/messages/count_tokens", Surface::Api, Ok(Route::CountTokens)),
            (Post, "/v1/chat/completions", Surface::Full, Ok(Route::ChatCompletions)),
            (Post, "/chat/completions", Surface::Full, Ok(Route::ChatCompletions)),
            (Post, "/v1/completions", Surface::Api, Ok(Route::Completions)),
            (Post, "/completions", Surface::Full, Ok(Route::Completions)),
            (Get, "/v1/completions", Surface::Full, Err(ErrorKind::MethodNotAllowed)),
            (Post, "/v1/embeddings", Surface::Full, Ok(Route::Embeddings)),
            (Post, "/embeddings", Surface::Api, Ok(Route::Embeddings)),
            (Get, "/v1/embeddings", Surface::Full, Err(ErrorKind::MethodNotAllowed)),
            (Get, "/v1/models", Surface::Full, Ok(Route::Models)),
            (Get, "/v1/models/a/b", Surface::Full, Ok(Route::Model("a/b"))),
            (Get, "/v1/models/", Surface::Full, Err(ErrorKind::NotFound)),
            (Head, "/", Surface::Full, Ok(Route::Health)),
            (Get, "/healthz", Surface::Admin, Ok(Route::Health)),
            (Get, "/metrics", Surface::Full, Ok(Route::Metrics)),
            (Get, "/metrics", Surface::Admin, Ok(Route::Metrics)),
            (Get, "/metrics", Surface::Api, Err(ErrorKind::NotFound)),
            (Post, "/v1/messages", Surface::Admin, Err(ErrorKind::NotFound)),
            (Get, "/v1/messages", Surface::Full, Err(ErrorKind::MethodNotAllowed)),
            (Post, "/v1/models", Surface::Full, Err(ErrorKind::MethodNotAllowed)),
            (Get, "/v1/messages/", Surface::Full, Err(ErrorKind::NotFound)),
            (Get, "/V1/messages", Surface::Full, Err(ErrorKind::NotFound)),
            (Post, "/v1/responses", Surface::Full, Err(ErrorKind::NotFound)),
        ];
        for (method, path, surface, want) in table {
            let got = route(*method, path, *surface).map_err(|error| error.kind);
            assert_eq!(&got, want, "{method:?} {path} on {surface:?}");
        }
    }
}
