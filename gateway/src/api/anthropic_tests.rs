//! Bodies of the Messages API: what each means, or where and how it is wrong.

use zerohop_engine::Message;

use super::*;

const BASE: &str = r#""model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]"#;

fn parse(body: &str, strict: bool) -> Result<(ChatRequest, Ignored), ApiError> {
    messages(body.as_bytes(), &mut Scratch::default(), strict)
}

fn base() -> ChatRequest {
    ChatRequest {
        dialect: Dialect::Anthropic,
        model: "m".into(),
        conversation: turns(&[("user", "hi")]),
        temperature: None,
        top_p: None,
        top_k: None,
        seed: None,
        max_tokens: Some(10),
        stop: vec![],
        stream: None,
        extras: None,
    }
}

fn turns(turns: &[(&str, &str)]) -> Conversation {
    let message = |&(role, content): &(&str, &str)| Message::new(ROLES[role], content);
    turns.iter().map(message).collect::<Vec<_>>().into()
}

/// The base body with these fields behind it means the base request with this change; nothing is unknown.
fn check(fields: &str, change: impl FnOnce(&mut ChatRequest)) {
    let body = format!("{{{BASE}{}{fields}}}", if fields.is_empty() { "" } else { "," });
    let mut wanted = base();
    change(&mut wanted);
    assert_eq!(parse(&body, true), Ok((wanted, Ignored::default())), "{body}");
}

#[test]
fn fields_that_are_honoured() {
    check("", |_| {});
    check(r#""temperature":0"#, |r| r.temperature = Some(0.0));
    check(r#""temperature":0.5"#, |r| r.temperature = Some(0.5));
    check(r#""temperature":1"#, |r| r.temperature = Some(1.0));
    check(r#""temperature":null"#, |_| {});
    check(r#""top_p":0.9"#, |r| r.top_p = Some(0.9));
    check(r#""top_p":0"#, |r| r.top_p = Some(f32::MIN_POSITIVE));
    check(r#""top_k":40"#, |r| r.top_k = Some(40));
    check(r#""top_k":40.0"#, |r| r.top_k = Some(40));
    check(r#""top_k":0"#, |_| {});
    check(r#""stop_sequences":[]"#, |_| {});
    check(r#""stop_sequences":["a","\n\n"]"#, |r| {
        r.stop = vec!["a".into(), "\n\n".into()]
    });
    check(r#""stream":false"#, |_| {});
    check(r#""stream":true"#, |r| {
        r.stream = Some(StreamOptions { include_usage: true })
    });
    check(r#""system":"be brief""#, |r| {
        r.conversation = turns(&[("system", "be brief"), ("user", "hi")])
    });
    check(r#""system":"""#, |_| {});
    check(r#""system":[]"#, |_| {});
    check(
        r#""system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}},{"text":"b","type":"text"}]"#,
        |r| {
            r.conversation = turns(&[("system", "a\nb"), ("user", "hi")]);
        },
    );
    check(
        r#""system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli;"},{"type":"text","text":"b"}]"#,
        |r| {
            r.conversation = turns(&[("system", "b"), ("user", "hi")]);
        },
    );
    check(
        r#""system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1;"}]"#,
        |_| {},
    );
}

#[test]
fn fields_that_may_be_ignored() {
    for field in [
        r#""metadata":{"user_id":"{\"a\":1}"}"#,
        r#""service_tier":"auto""#,
        r#""cache_control":{"type":"ephemeral"}"#,
        r#""context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}"#,
        r#""container":"c","diagnostics":{},"inference_geo":"eu","speed":"fast""#,
        r#""thinking":{"type":"adaptive"}"#,
        r#""thinking":{"type":"disabled"}"#,
        r#""thinking":{"type":"between_tools","display":"updates"}"#,
        r#""thinking":null"#,
        r#""output_config":{"effort":"high","task_budget":{"type":"tokens","total":1},"format":null}"#,
        r#""output_config":null"#,
        r#""tools":[]"#,
        r#""tools":null,"tool_choice":null"#,
        r#""tool_choice":{"type":"none"}"#,
        r#""mcp_servers":[],"thread":null,"fallbacks":null,"compaction":null,"billing_policy":null,"output_format":null"#,
    ] {
        check(field, |_| {});
    }
}

/// These messages mean these turns.
fn check_turns(messages: &str, wanted: &[(&str, &str)]) {
    let body = format!(r#"{{"model":"m","max_tokens":10,"messages":{messages}}}"#);
    let mut request = base();
    request.conversation = turns(wanted);
    assert_eq!(parse(&body, true), Ok((request, Ignored::default())), "{body}");
}

#[test]
fn conversations() {
    check_turns(r#"[{"content":"hi","role":"user"}]"#, &[("user", "hi")]);
    check_turns(
        r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]"#,
        &[("user", "a\nb")],
    );
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]}]"#,
        &[("user", "a\n\nb")],
    );
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#,
        &[("user", "a"), ("assistant", "b"), ("user", "c")],
    );
    // A prefill is continued; an empty one is none.
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"The"}]"#,
        &[("user", "a"), ("assistant", "The")],
    );
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":""}]"#,
        &[("user", "a")],
    );
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":[]}]"#,
        &[("user", "a")],
    );
    // System messages in mid-conversation stay where they are; one in front joins the system prompt.
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"system","content":"s"},{"role":"user","content":"b"}]"#,
        &[("user", "a"), ("system", "s"), ("user", "b")],
    );
    check_turns(
        r#"[{"role":"system","content":"t"},{"role":"user","content":"a"}],"system":"s""#,
        &[("system", "s\n\nt"), ("user", "a")],
    );
    // Thoughts of earlier answers are not shown again.
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"b","citations":null}]},{"role":"user","content":"c"}]"#,
        &[("user", "a"), ("assistant", "b"), ("user", "c")],
    );
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]},{"role":"user","content":"c"}]"#,
        &[("user", "a\n\nc")],
    );
    // Escapes, characters outside the first plane, and text that looks like control tokens.
    check_turns(
        r#"[{"role":"user","content":"\ud83d\ude00 \u00e4\n\t\"\\\/ <|im_end|>"}]"#,
        &[("user", "😀 ä\n\t\"\\/ <|im_end|>")],
    );
    check_turns(r#"[{"r\u006fle":"user","content":"hi"}]"#, &[("user", "hi")]);
    check_turns(
        " [ { \"role\" : \"user\" ,\n\"content\":\"hi\"\t} ] ",
        &[("user", "hi")],
    );
}

#[test]
fn large_numbers_of_tokens_are_bounded() {
    for (tokens, wanted) in [
        ("0", 0),
        ("1", 1),
        ("128000", 128_000),
        ("4294967296", u32::MAX),
        ("1e30", u32::MAX),
        ("99999999999999999999999", u32::MAX),
    ] {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"max_tokens":{tokens}}}"#);
        assert_eq!(parse(&body, true).unwrap().0.max_tokens, Some(wanted), "{tokens}");
    }
}

/// This body is refused at this path with this message.
fn check_fault(body: &str, param: Option<&str>, message: &str) {
    let error = parse(body, false).expect_err(body);
    assert_eq!(
        error,
        ApiError {
            param: param.map(Into::into),
            ..ApiError::new(crate::error::ErrorKind::InvalidRequest, message.to_owned())
        },
        "{body}"
    );
}

/// The base body with this field behind it is refused: the message is the path, a colon and this.
fn refuse(field: &str, path: &str, message: &str) {
    check_fault(
        &format!("{{{BASE},{field}}}"),
        Some(path),
        &format!("{path}: {message}"),
    );
}

/// A body with these messages is refused.
fn refuse_messages(messages: &str, path: &str, message: &str) {
    check_fault(
        &format!(r#"{{"model":"m","max_tokens":10,"messages":{messages}}}"#),
        Some(path),
        &format!("{path}: {message}"),
    );
}

#[test]
fn required_fields() {
    check_fault(
        r#"{"max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#,
        Some("model"),
        "model: Field required",
    );
    check_fault(
        r#"{"model":null,"max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#,
        Some("model"),
        "model: Field required",
    );
    check_fault(
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#,
        Some("max_tokens"),
        "max_tokens: Field required",
    );
    check_fault(
        r#"{"model":"m","max_tokens":1}"#,
        Some("messages"),
        "messages: Field required",
    );
    check_fault("{}", Some("model"), "model: Field required");
    check_fault(
        r#"{"model":"","max_tokens":1,"messages":[]}"#,
        Some("model"),
        "model: must not be empty",
    );
    check_fault(r#"{"model":7}"#, Some("model"), "model: Input should be a valid string");
    check_fault(
        &format!(r#"{{"model":"{}"}}"#, "m".repeat(257)),
        Some("model"),
        "model: must have at most 256 bytes",
    );
    check_fault(
        r#"{"model":"a\u0000b"}"#,
        Some("model"),
        "model: must not contain a NUL character (U+0000)",
    );
    for body in ["[]", "1", "\"x\"", "null", "true", "[{}]"] {
        check_fault(body, None, "Input should be an object");
    }
}

#[test]
fn values_out_of_range() {
    for (value, message) in [
        ("-1", "Input should be greater than or equal to 0"),
        ("-1e300", "Input should be greater than or equal to 0"),
        (
            "1.5",
            "Input should be a valid integer, got a number with a fractional part",
        ),
        ("\"100\"", "Input should be a valid integer"),
        ("true", "Input should be a valid integer"),
        ("[1]", "Input should be a valid integer"),
    ] {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"max_tokens":{value}}}"#);
        check_fault(&body, Some("max_tokens"), &format!("max_tokens: {message}"));
    }
    refuse(
        r#""temperature":1.01"#,
        "temperature",
        "Input should be less than or equal to 1",
    );
    refuse(
        r#""temperature":-0.1"#,
        "temperature",
        "Input should be greater than or equal to 0",
    );
    refuse(
        r#""temperature":"0.5""#,
        "temperature",
        "Input should be a valid number",
    );
    refuse(r#""top_p":1.5"#, "top_p", "Input should be less than or equal to 1");
    refuse(r#""top_p":-1"#, "top_p", "Input should be greater than or equal to 0");
    refuse(r#""top_k":-1"#, "top_k", "Input should be greater than or equal to 0");
    refuse(
        r#""top_k":0.5"#,
        "top_k",
        "Input should be a valid integer, got a number with a fractional part",
    );
    refuse(r#""stream":"true""#, "stream", "Input should be a valid boolean");
    refuse(r#""stream":1"#, "stream", "Input should be a valid boolean");
    refuse(
        r#""stop_sequences":"x""#,
        "stop_sequences",
        "Input should be a valid array",
    );
    refuse(r#""stop_sequences":["a",""]"#, "stop_sequences.1", "must not be empty");
    refuse(
        r#""stop_sequences":["a",1]"#,
        "stop_sequences.1",
        "Input should be a valid string",
    );
    refuse(
        r#""stop_sequences":["\u0000"]"#,
        "stop_sequences.0",
        "must not contain a NUL character (U+0000)",
    );
    refuse(
        &format!(r#""stop_sequences":["{}"]"#, "s".repeat(257)),
        "stop_sequences.0",
        "must have at most 256 bytes",
    );
    refuse(
        &format!(r#""stop_sequences":[{}"a"]"#, "\"a\",".repeat(16)),
        "stop_sequences",
        "must have at most 16 entries",
    );
}

#[test]
fn messages_that_are_wrong() {
    const EMPTY: &str = "messages must have non-empty content, but for a final assistant message";
    const CONTENT: &str = "Input should be a valid string or an array of content blocks";
    refuse_messages("[]", "messages", "at least one message is required");
    refuse_messages(
        r#"[{"role":"assistant","content":""}]"#,
        "messages",
        "at least one message is required",
    );
    refuse_messages("{}", "messages", "Input should be a valid array");
    refuse_messages("\"hi\"", "messages", "Input should be a valid array");
    refuse_messages(r#"["hi"]"#, "messages.0", "Input should be an object");
    refuse_messages(r#"[{"content":"hi"}]"#, "messages.0.role", "Field required");
    refuse_messages(r#"[{"role":"user"}]"#, "messages.0.content", "Field required");
    refuse_messages(
        r#"[{"role":"tool","content":"hi"}]"#,
        "messages.0.role",
        "Input should be 'user', 'assistant' or 'system'",
    );
    refuse_messages(
        r#"[{"role":"User","content":"hi"}]"#,
        "messages.0.role",
        "Input should be 'user', 'assistant' or 'system'",
    );
    refuse_messages(
        r#"[{"role":null,"content":"hi"}]"#,
        "messages.0.role",
        "Input should be a valid string",
    );
    refuse_messages(r#"[{"role":"user","content":null}]"#, "messages.0.content", CONTENT);
    refuse_messages(r#"[{"role":"user","content":5}]"#, "messages.0.content", CONTENT);
    refuse_messages(
        r#"[{"role":"user","content":{"type":"text","text":"a"}}]"#,
        "messages.0.content",
        CONTENT,
    );
    refuse_messages(r#"[{"role":"user","content":""}]"#, "messages.0.content", EMPTY);
    refuse_messages(r#"[{"role":"user","content":[]}]"#, "messages.0.content", EMPTY);
    refuse_messages(
        r#"[{"role":"assistant","content":""},{"role":"user","content":"a"}]"#,
        "messages.0.content",
        EMPTY,
    );
    refuse_messages(
        r#"[{"role":"user","content":["a"]}]"#,
        "messages.0.content.0",
        "Input should be an object",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"text":"a"}]}]"#,
        "messages.0.content.0.type",
        "Field required",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text"}]}]"#,
        "messages.0.content.0.text",
        "Field required",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text","text":null}]}]"#,
        "messages.0.content.0.text",
        "Input should be a valid string",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text","text":""}]}]"#,
        "messages.0.content.0.text",
        "text content blocks must be non-empty",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"txt"}]}]"#,
        "messages.0.content.1.type",
        "Input should be 'text', 'thinking', 'redacted_thinking', 'tool_use' or 'tool_result'",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":1}]}]"#,
        "messages.0.content.0.type",
        "Input should be a valid string",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"thinking","thinking":"a"}]}]"#,
        "messages.0.content.0",
        "thinking blocks are for assistant messages only",
    );
    refuse_messages(
        r#"[{"role":"user","content":"a\u0000"}]"#,
        "messages.0.content",
        "must not contain a NUL character (U+0000)",
    );
    refuse_messages(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"\u0000"}]}]"#,
        "messages.1.content.0.text",
        "must not contain a NUL character (U+0000)",
    );
    let many = format!("[{}]", vec![r#"{"role":"user","content":"a"}"#; 100_001].join(","));
    refuse_messages(&many, "messages", "at most 100,000 messages are allowed");
    let most = format!("[{}]", vec![r#"{"role":"user","content":"a"}"#; 100_000].join(","));
    check_turns(&most, &[("user", &vec!["a"; 100_000].join("\n\n"))]);
}

#[test]
fn what_later_work_brings() {
    const FIELD: &str = "This field is not supported yet";
    refuse(
        r#""thinking":{"type":"enabled","budget_tokens":1024}"#,
        "thinking.type",
        "'enabled' is not supported yet",
    );
    refuse(
        r#""thinking":{"type":"deep"}"#,
        "thinking.type",
        "Input should be 'adaptive', 'disabled', 'enabled' or 'between_tools'",
    );
    refuse(r#""thinking":{}"#, "thinking.type", "Field required");
    refuse(r#""thinking":"adaptive""#, "thinking", "Input should be an object");
    refuse(
        r#""mcp_servers":[{"type":"url","url":"u","name":"n"}]"#,
        "mcp_servers",
        FIELD,
    );
    for name in ["thread", "fallbacks", "compaction", "billing_policy"] {
        refuse(&format!(r#""{name}":{{}}"#), name, FIELD);
    }
    for (name, _) in BLOCKS.entries().filter(|(_, block)| matches!(block, Block::NotYet)) {
        refuse_messages(
            &format!(
                r#"[{{"role":"user","content":[{{"type":"text","text":"a"}},{{"type":"{name}","source":{{}}}}]}}]"#
            ),
            "messages.0.content.1.type",
            &format!("'{name}' is not supported yet"),
        );
    }
    refuse(
        r#""system":[{"type":"image","source":{}}]"#,
        "system.0.type",
        "'image' is not supported yet",
    );
    refuse(
        r#""system":5"#,
        "system",
        "Input should be a valid string or an array of content blocks",
    );
    refuse(
        r#""system":"\u0000""#,
        "system",
        "must not contain a NUL character (U+0000)",
    );
}

#[test]
fn duplicates() {
    const TWICE: &str = "Field given more than once";
    refuse(r#""model":"n""#, "model", TWICE);
    refuse(r#""m\u006fdel":"n""#, "model", TWICE);
    refuse(r#""metadata":{},"metadata":null"#, "metadata", TWICE);
    refuse(
        r#""thinking":{"type":"adaptive","type":"enabled"}"#,
        "thinking.type",
        TWICE,
    );
    refuse_messages(
        r#"[{"role":"user","role":"system","content":"a"}]"#,
        "messages.0.role",
        TWICE,
    );
    refuse_messages(
        r#"[{"role":"user","content":"a","content":"b"}]"#,
        "messages.0.content",
        TWICE,
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]"#,
        "messages.0.content.0.text",
        TWICE,
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text","type":"image","text":"a"}]}]"#,
        "messages.0.content.0.type",
        TWICE,
    );
}

#[test]
fn unknown_fields() {
    let long = "k".repeat(100);
    for (body, count, first) in [
        (format!("{{{BASE},\"foo\":1}}"), 1, "foo"),
        (format!("{{\"foo\":[{{}}],\"bar\":null,{BASE},\"foo\":2}}"), 3, "foo"),
        (format!("{{{BASE},\"{long}\":1}}"), 1, &*format!("{}…", "k".repeat(64))),
        (r#"{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi","name":"n"}]}"#.into(), 1, "messages.0.name"),
        (
            r#"{"model":"m","max_tokens":10,"messages":[{"role":"user","content":[{"type":"text","text":"hi","x":1}]}]}"#.into(),
            1,
            "messages.0.content.0.x",
        ),
        (format!("{{{BASE},\"output_config\":{{\"x\":1}}}}"), 1, "output_config.x"),
    ] {
        let ignored = Ignored {
            count,
            first: Some(first.into()),
        };
        assert_eq!(parse(&body, false), Ok((base(), ignored)), "{body}");
        let error = parse(&body, true).expect_err(&body);
        assert_eq!((error.param.as_deref(), &*error.message), (Some(first), &*format!("{first}: Extra inputs are not permitted")));
    }
}

#[test]
fn counting_needs_the_prompt_only() {
    let count = |body: &str| count_tokens(body.as_bytes(), &mut Scratch::default(), true);
    let wanted = CountRequest {
        model: "m".into(),
        conversation: turns(&[("system", "s"), ("user", "hi")]),
    };
    for rest in ["", r#","max_tokens":5,"stream":true,"temperature":0.5"#] {
        let body = format!(r#"{{"model":"m","system":"s","messages":[{{"role":"user","content":"hi"}}]{rest}}}"#);
        assert_eq!(count(&body), Ok((wanted.clone(), Ignored::default())));
    }
    for (body, message) in [
        (
            r#"{"model":"m","messages":[]}"#,
            "messages: at least one message is required",
        ),
        (
            r#"{"messages":[{"role":"user","content":"hi"}]}"#,
            "model: Field required",
        ),
        (
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":9}"#,
            "temperature: Input should be less than or equal to 1",
        ),
        (
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{}]}"#,
            "tools.0.name: Field required",
        ),
    ] {
        assert_eq!(count(body).expect_err(body).message, message);
    }
}

/// Each name of the table reaches its own reader: a value of the wrong kind is told at that name, or the field is one
/// that may be ignored.
#[test]
fn every_name_is_read_or_ignored_on_purpose() {
    let ignored = [
        "metadata",
        "service_tier",
        "cache_control",
        "context_management",
        "container",
        "diagnostics",
        "inference_geo",
        "speed",
    ];
    for (name, _) in &TOP {
        let result = parse(&format!(r#"{{"{name}":-7.5}}"#), true).expect_err(name);
        let wanted = if ignored.contains(name) { "model" } else { *name };
        assert_eq!(result.param.as_deref(), Some(wanted), "{name}");
    }
}

#[path = "anthropic_tools_tests.rs"]
mod tools_and_forms;
