//! Every kind in both dialects, to the byte.

use super::*;

/// Kind, status, Anthropic's type, OpenAI's type and code.
const TABLE: [(ErrorKind, u16, &str, &str, &str); 16] = [
    (
        ErrorKind::InvalidRequest,
        400,
        "invalid_request_error",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::ContextLength,
        400,
        "invalid_request_error",
        "invalid_request_error",
        "\"context_length_exceeded\"",
    ),
    (
        ErrorKind::Authentication,
        401,
        "authentication_error",
        "invalid_request_error",
        "\"invalid_api_key\"",
    ),
    (
        ErrorKind::Permission,
        403,
        "permission_error",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::NotFound,
        404,
        "not_found_error",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::ModelNotFound,
        404,
        "not_found_error",
        "invalid_request_error",
        "\"model_not_found\"",
    ),
    (
        ErrorKind::MethodNotAllowed,
        405,
        "invalid_request_error",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::BodyTooLarge,
        413,
        "request_too_large",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::HeaderTooLarge,
        431,
        "invalid_request_error",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::BadHttp,
        400,
        "invalid_request_error",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::RequestTimeout,
        408,
        "timeout_error",
        "invalid_request_error",
        "null",
    ),
    (
        ErrorKind::QueueFull,
        429,
        "rate_limit_error",
        "rate_limit_error",
        "\"rate_limit_exceeded\"",
    ),
    (
        ErrorKind::Unavailable,
        503,
        "overloaded_error",
        "service_unavailable_error",
        "null",
    ),
    (ErrorKind::Deadline, 504, "timeout_error", "server_error", "null"),
    (ErrorKind::NotCached, 504, "api_error", "server_error", "\"not_cached\""),
    (ErrorKind::Internal, 500, "api_error", "server_error", "null"),
];

fn body(error: &ApiError, dialect: Dialect) -> String {
    let mut out = Vec::new();
    error.body(dialect, "req_1", &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_kind_has_a_row() {
    assert_eq!(TABLE.map(|row| row.0), ErrorKind::ALL);
    for (kind, status, anthropic, openai, code) in TABLE {
        let error = ApiError::new(kind, "Say \"why\"\n");
        assert_eq!(error.status(), status, "{kind:?}");
        assert_eq!(
            body(&error, Dialect::Anthropic),
            format!(
                r#"{{"type":"error","error":{{"type":"{anthropic}","message":"Say \"why\"\n"}},"request_id":"req_1"}}"#
            )
        );
        assert_eq!(
            body(&error, Dialect::OpenAi),
            format!(r#"{{"error":{{"message":"Say \"why\"\n","type":"{openai}","param":null,"code":{code}}}}}"#)
        );
        assert_eq!(
            kind.row().retryable,
            [408, 429, 500, 503, 504].contains(&status),
            "{kind:?}"
        );
    }
}

#[test]
fn a_path_is_told_as_each_vendor_writes_it() {
    for (path, wanted) in [
        ("model", "model"),
        ("messages.0.content.1.type", "messages[0].content[1].type"),
        ("stop.15", "stop[15]"),
        ("a.b", "a.b"),
    ] {
        let error = ApiError::new(ErrorKind::InvalidRequest, "x").at(path);
        assert_eq!(
            body(&error, Dialect::OpenAi),
            format!(r#"{{"error":{{"message":"x","type":"invalid_request_error","param":"{wanted}","code":null}}}}"#)
        );
    }
}

#[test]
fn texts_that_clients_parse() {
    for (error, wanted) in [
        (
            ApiError::prompt_too_long(Dialect::Anthropic, 40_000, 32_768),
            "prompt is too long: 40000 tokens > 32768 maximum",
        ),
        (
            ApiError::prompt_too_long(Dialect::OpenAi, 40_000, 32_768),
            "This model's maximum context length is 32769 tokens, of which an answer needs one at least. However, your \
             messages resulted in 40000 tokens. Please reduce the length of the messages.",
        ),
        (
            ApiError::text_too_long(2048, 2047),
            "This model's maximum context length is 2048 tokens, of which an answer needs one at least. However, your \
             prompt has 2048 tokens. Please reduce the length of the prompt.",
        ),
        (
            ApiError::unknown_model(Dialect::Anthropic, "claude-9"),
            "model: claude-9",
        ),
        (
            ApiError::unknown_model(Dialect::OpenAi, "gpt-9"),
            "The model `gpt-9` does not exist or you do not have access to it.",
        ),
        (
            ApiError::method_not_allowed("GET, HEAD"),
            "Method not allowed; this path has GET, HEAD",
        ),
    ] {
        assert_eq!(error.message, wanted);
    }
    assert_eq!(
        body(&ApiError::prompt_too_long(Dialect::OpenAi, 2, 1), Dialect::OpenAi),
        r#"{"error":{"message":"This model's maximum context length is 2 tokens, of which an answer needs one at least. However, your messages resulted in 2 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#
    );
}

#[test]
fn headers() {
    let retry = |after| ApiError::new(ErrorKind::QueueFull, "x").retry_after(after);
    for (error, wanted) in [
        (ApiError::new(ErrorKind::InvalidRequest, "x"), vec![]),
        (ApiError::method_not_allowed("POST"), vec![("allow", "POST")]),
        (
            ApiError::new(ErrorKind::NotCached, "x"),
            vec![("x-should-retry", "false")],
        ),
        (
            retry(Duration::ZERO),
            vec![
                ("retry-after", "1"),
                ("retry-after-ms", "1"),
                ("x-should-retry", "true"),
            ],
        ),
        (
            retry(Duration::from_micros(1001)),
            vec![
                ("retry-after", "1"),
                ("retry-after-ms", "2"),
                ("x-should-retry", "true"),
            ],
        ),
        (
            retry(Duration::from_millis(1000)),
            vec![
                ("retry-after", "1"),
                ("retry-after-ms", "1000"),
                ("x-should-retry", "true"),
            ],
        ),
        (
            retry(Duration::from_millis(1001)),
            vec![
                ("retry-after", "2"),
                ("retry-after-ms", "1001"),
                ("x-should-retry", "true"),
            ],
        ),
        (
            retry(Duration::from_secs(90)),
            vec![
                ("retry-after", "90"),
                ("retry-after-ms", "90000"),
                ("x-should-retry", "true"),
            ],
        ),
    ] {
        let headers = error.headers();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        assert_eq!(headers, wanted);
    }
}
