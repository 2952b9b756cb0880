//! Bodies of the Chat Completions API: what each means, or where and how it is wrong.

use zerohop_engine::{Conversation, Message, ToolCall};

use super::*;

const BASE: &str = r#""model":"m","messages":[{"role":"user","content":"hi"}]"#;

fn parse(body: &str, strict: bool) -> Result<(ChatRequest, Ignored), ApiError> {
    chat(body.as_bytes(), &mut Scratch::default(), strict)
}

fn base() -> ChatRequest {
    ChatRequest {
        dialect: Dialect::OpenAi,
        model: "m".into(),
        conversation: turns(&[("user", "hi")]),
        temperature: None,
        top_p: None,
        top_k: None,
        seed: None,
        max_tokens: None,
        stop: vec![],
        stream: None,
        extras: None,
    }
}

fn turns(turns: &[(&str, &str)]) -> Conversation {
    let message = |&(role, content): &(&str, &str)| Message::new(ROLES[role].unwrap(), content);
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
    let stream = |include_usage| Some(StreamOptions { include_usage });
    check("", |_| {});
    check(r#""max_tokens":5"#, |r| r.max_tokens = Some(5));
    check(r#""max_completion_tokens":6"#, |r| r.max_tokens = Some(6));
    check(r#""max_tokens":5,"max_completion_tokens":6"#, |r| {
        r.max_tokens = Some(6)
    });
    check(r#""max_tokens":5,"max_completion_tokens":null"#, |r| {
        r.max_tokens = Some(5)
    });
    check(r#""max_tokens":1e12"#, |r| r.max_tokens = Some(u32::MAX));
    check(r#""temperature":2"#, |r| r.temperature = Some(2.0));
    check(r#""temperature":0.0"#, |r| r.temperature = Some(0.0));
    check(r#""top_p":1"#, |r| r.top_p = Some(1.0));
    check(r#""top_p":0"#, |r| r.top_p = Some(f32::MIN_POSITIVE));
    check(r#""top_k":3"#, |r| r.top_k = Some(3));
    check(r#""top_k":-1"#, |_| {});
    check(r#""top_k":0"#, |_| {});
    check(r#""seed":0"#, |r| r.seed = Some(0));
    check(r#""seed":42"#, |r| r.seed = Some(42));
    check(r#""seed":-1"#, |r| r.seed = Some(u64::MAX));
    check(r#""seed":-9223372036854775808"#, |r| r.seed = Some(1 << 63));
    check(r#""seed":18446744073709551615"#, |r| r.seed = Some(u64::MAX));
    check(r#""stop":"x""#, |r| r.stop = vec!["x".into()]);
    check(r#""stop":["x","y"]"#, |r| r.stop = vec!["x".into(), "y".into()]);
    check(r#""stop":null"#, |_| {});
    check(r#""stop":[]"#, |_| {});
    check(r#""stream":true"#, |r| r.stream = stream(false));
    check(r#""stream":true,"stream_options":{"include_usage":true}"#, |r| {
        r.stream = stream(true)
    });
    check(r#""stream_options":{"include_usage":true},"stream":true"#, |r| {
        r.stream = stream(true)
    });
    check(
        r#""stream":true,"stream_options":{"include_usage":false,"include_obfuscation":false}"#,
        |r| r.stream = stream(false),
    );
    check(r#""stream":true,"stream_options":{}"#, |r| r.stream = stream(false));
    check(r#""stream":true,"stream_options":{"include_usage":null}"#, |r| {
        r.stream = stream(false)
    });
    check(r#""stream":false,"stream_options":null"#, |_| {});
}

#[test]
fn fields_that_ask_for_nothing() {
    for field in [
        r#""n":1"#,
        r#""n":null"#,
        r#""logprobs":false,"top_logprobs":0"#,
        r#""logprobs":null,"top_logprobs":null"#,
        r#""logit_bias":{}"#,
        r#""frequency_penalty":0,"presence_penalty":0.0"#,
        r#""response_format":{"type":"text"}"#,
        r#""response_format":null"#,
        r#""tools":[],"tool_choice":"none","functions":[],"function_call":"none""#,
        r#""tools":null,"tool_choice":null,"functions":null,"function_call":null"#,
        r#""modalities":["text"],"audio":null"#,
        r#""min_p":0,"repetition_penalty":1.0,"min_tokens":0,"ignore_eos":false,"stop_token_ids":[],"chat_template_kwargs":{}"#,
        r#""structured_outputs":null,"guided_json":null,"echo":false,"prompt_logprobs":null,"moderation":null"#,
        r#""parallel_tool_calls":true,"tool_choice":"auto","reasoning_effort":"low","user":"u","safety_identifier":"s","metadata":{"a":"b"}"#,
        r#""store":true,"prompt_cache_key":"k","prompt_cache_options":{},"prompt_cache_retention":"24h","service_tier":"auto""#,
        r#""verbosity":"low","prediction":{"type":"content","content":"x"},"add_generation_prompt":true,"continue_final_message":false"#,
    ] {
        check(field, |_| {});
    }
}

/// These messages mean these turns.
fn check_turns(messages: &str, wanted: &[(&str, &str)]) {
    let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
    let mut request = base();
    request.conversation = turns(wanted);
    assert_eq!(parse(&body, true), Ok((request, Ignored::default())), "{body}");
}

#[test]
fn conversations() {
    check_turns(r#"[{"content":"hi","role":"user"}]"#, &[("user", "hi")]);
    check_turns(
        r#"[{"role":"system","content":"s"},{"role":"user","content":"hi"}]"#,
        &[("system", "s"), ("user", "hi")],
    );
    check_turns(
        r#"[{"role":"developer","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"hi"}]"#,
        &[("system", "a\n\nb"), ("user", "hi")],
    );
    check_turns(
        r#"[{"role":"user","content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]}]"#,
        &[("user", "a\nb")],
    );
    check_turns(r#"[{"role":"user","content":""}]"#, &[("user", "")]);
    check_turns(
        r#"[{"role":"user","content":""},{"role":"user","content":"a"}]"#,
        &[("user", "a")],
    );
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"The"}]"#,
        &[("user", "a"), ("assistant", "The")],
    );
    // An earlier answer as the vendors' clients send it back.
    check_turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b","refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":null},{"role":"user","content":"c"}]"#,
        &[("user", "a"), ("assistant", "b"), ("user", "c")],
    );
    check_turns(
        r#"[{"role":"assistant","content":null,"refusal":"no"},{"role":"user","content":"c"}]"#,
        &[("assistant", "no"), ("user", "c")],
    );
    check_turns(
        r#"[{"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":"c"}]"#,
        &[("assistant", ""), ("user", "c")],
    );
    check_turns(
        r#"[{"role":"assistant","content":[{"type":"refusal","refusal":"no"},{"type":"text","text":"x"}]},{"role":"user","content":"c"}]"#,
        &[("assistant", "no\nx"), ("user", "c")],
    );
}

/// This body is refused at this path (dots) with this message.
fn check_fault(body: &str, param: Option<&str>, message: &str) {
    let error = parse(body, false).expect_err(body);
    assert_eq!(
        (error.kind, error.param.as_deref(), &*error.message),
        (crate::error::ErrorKind::InvalidRequest, param, message),
        "{body}"
    );
}

fn refuse(field: &str, path: &str, message: &str) {
    check_fault(&format!("{{{BASE},{field}}}"), Some(path), message);
}

fn refuse_messages(messages: &str, path: &str, message: &str) {
    check_fault(
        &format!(r#"{{"model":"m","messages":{messages}}}"#),
        Some(path),
        message,
    );
}

#[test]
fn required_fields() {
    check_fault("{}", Some("model"), "Missing required parameter: 'model'.");
    check_fault(
        r#"{"model":"m"}"#,
        Some("messages"),
        "Missing required parameter: 'messages'.",
    );
    check_fault(
        r#"{"model":"m","messages":null}"#,
        Some("messages"),
        "Missing required parameter: 'messages'.",
    );
    check_fault(r#"{"model":""}"#, Some("model"), "Invalid 'model': must not be empty.");
    check_fault(
        r#"{"model":["m"]}"#,
        Some("model"),
        "Invalid type for 'model': expected a string, but got an array instead.",
    );
    check_fault(
        "[]",
        None,
        "Invalid type for the request body: expected an object, but got an array instead.",
    );
    check_fault(
        "null",
        None,
        "Invalid type for the request body: expected an object, but got null instead.",
    );
    check_fault("", None, "Invalid request: the body is empty.");
    check_fault(" \n", None, "Invalid request: the body is empty.");
}

#[test]
fn values_out_of_range() {
    for name in ["max_tokens", "max_completion_tokens"] {
        refuse(
            &format!(r#""{name}":0"#),
            name,
            &format!("Invalid '{name}': value below the minimum. Expected a value >= 1, but got 0 instead."),
        );
        refuse(
            &format!(r#""{name}":-1"#),
            name,
            &format!("Invalid '{name}': value below the minimum. Expected a value >= 1, but got -1 instead."),
        );
    }
    refuse(
        r#""max_tokens":1.5"#,
        "max_tokens",
        "Invalid type for 'max_tokens': expected an integer, but got a decimal instead.",
    );
    refuse(
        r#""max_tokens":"5""#,
        "max_tokens",
        "Invalid type for 'max_tokens': expected an integer, but got a string instead.",
    );
    refuse(
        r#""temperature":2.5"#,
        "temperature",
        "Invalid 'temperature': value above the maximum. Expected a value <= 2, but got 2.5 instead.",
    );
    refuse(
        r#""temperature":3"#,
        "temperature",
        "Invalid 'temperature': value above the maximum. Expected a value <= 2, but got 3 instead.",
    );
    refuse(
        r#""temperature":-1e300"#,
        "temperature",
        "Invalid 'temperature': value below the minimum. Expected a value >= 0, but got -1e300 instead.",
    );
    refuse(
        r#""temperature":{}"#,
        "temperature",
        "Invalid type for 'temperature': expected a decimal, but got an object instead.",
    );
    refuse(
        r#""top_p":2"#,
        "top_p",
        "Invalid 'top_p': value above the maximum. Expected a value <= 1, but got 2 instead.",
    );
    refuse(
        r#""top_k":-2"#,
        "top_k",
        "Invalid 'top_k': value below the minimum. Expected a value >= 1, but got -2 instead.",
    );
    refuse(
        r#""seed":1.5"#,
        "seed",
        "Invalid type for 'seed': expected an integer, but got a decimal instead.",
    );
    refuse(
        r#""seed":18446744073709551616"#,
        "seed",
        "Invalid 'seed': must fit 64 bits.",
    );
    refuse(
        r#""seed":-1e30"#,
        "seed",
        "Invalid 'seed': value below the minimum. Expected a value >= -9223372036854775808, but got -1000000000000000019884624838656 instead.",
    );
    refuse(
        r#""stop":5"#,
        "stop",
        "Invalid type for 'stop': expected one of a string or an array of strings, but got an integer instead.",
    );
    refuse(r#""stop":"""#, "stop", "Invalid 'stop': must not be empty.");
    refuse(
        r#""stop":["a",null]"#,
        "stop.1",
        "Invalid type for 'stop[1]': expected a string, but got null instead.",
    );
    refuse(r#""stop":["a",""]"#, "stop.1", "Invalid 'stop[1]': must not be empty.");
    refuse(
        &format!(r#""stop":[{}"a"]"#, "\"a\",".repeat(16)),
        "stop",
        "Invalid 'stop': must have at most 16 entries.",
    );
    refuse(
        r#""stream":"yes""#,
        "stream",
        "Invalid type for 'stream': expected a boolean, but got a string instead.",
    );
    refuse(
        r#""stream_options":{}"#,
        "stream_options",
        "Invalid 'stream_options': is only allowed when 'stream' is true.",
    );
    refuse(
        r#""stream":false,"stream_options":{"include_usage":true}"#,
        "stream_options",
        "Invalid 'stream_options': is only allowed when 'stream' is true.",
    );
    refuse(
        r#""stream":true,"stream_options":[]"#,
        "stream_options",
        "Invalid type for 'stream_options': expected an object, but got an array instead.",
    );
    refuse(
        r#""stream":true,"stream_options":{"include_usage":1}"#,
        "stream_options.include_usage",
        "Invalid type for 'stream_options.include_usage': expected a boolean, but got an integer instead.",
    );
    refuse(
        r#""frequency_penalty":3"#,
        "frequency_penalty",
        "Invalid 'frequency_penalty': value above the maximum. Expected a value <= 2, but got 3 instead.",
    );
    refuse(
        r#""top_logprobs":21"#,
        "top_logprobs",
        "Invalid 'top_logprobs': value above the maximum. Expected a value <= 20, but got 21 instead.",
    );
    refuse(
        r#""n":0"#,
        "n",
        "Invalid 'n': value below the minimum. Expected a value >= 1, but got 0 instead.",
    );
}

#[test]
fn messages_that_are_wrong() {
    refuse_messages(
        "[]",
        "messages",
        "Invalid 'messages': at least one message is required.",
    );
    refuse_messages(
        "\"hi\"",
        "messages",
        "Invalid type for 'messages': expected an array, but got a string instead.",
    );
    refuse_messages(
        "[1]",
        "messages.0",
        "Invalid type for 'messages[0]': expected an object, but got an integer instead.",
    );
    refuse_messages(
        r#"[{"content":"hi"}]"#,
        "messages.0.role",
        "Missing required parameter: 'messages[0].role'.",
    );
    refuse_messages(
        r#"[{"role":"user"}]"#,
        "messages.0.content",
        "Missing required parameter: 'messages[0].content'.",
    );
    refuse_messages(
        r#"[{"role":"assistant"}]"#,
        "messages.0.content",
        "Missing required parameter: 'messages[0].content'.",
    );
    refuse_messages(
        r#"[{"role":"human","content":"hi"}]"#,
        "messages.0.role",
        "Invalid value: 'human'. Supported values are: 'system', 'developer', 'user', 'assistant', 'tool' and 'function'.",
    );
    refuse_messages(
        r#"[{"role":"user","content":null}]"#,
        "messages.0.content",
        "Invalid type for 'messages[0].content': expected one of a string or an array of objects, but got null instead.",
    );
    refuse_messages(
        r#"[{"role":"user","content":true}]"#,
        "messages.0.content",
        "Invalid type for 'messages[0].content': expected one of a string or an array of objects, but got a boolean instead.",
    );
    refuse_messages(
        r#"[{"role":"user","content":[]}]"#,
        "messages.0.content",
        "Invalid 'messages[0].content': at least one content part is required.",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text"}]}]"#,
        "messages.0.content.0.text",
        "Missing required parameter: 'messages[0].content[0].text'.",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text","text":7}]}]"#,
        "messages.0.content.0.text",
        "Invalid type for 'messages[0].content[0].text': expected a string, but got an integer instead.",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"x"}]}]"#,
        "messages.0.content.0.type",
        "Invalid value: 'x'. Supported values are: 'text'.",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"refusal","refusal":"no"}]}]"#,
        "messages.0.content.0.type",
        "Invalid 'messages[0].content[0].type': 'refusal' is for assistant messages only.",
    );
    refuse_messages(
        r#"[{"role":"user","content":"a\u0000b"}]"#,
        "messages.0.content",
        "Invalid 'messages[0].content': must not contain a NUL character (U+0000).",
    );
    let many = format!("[{}]", vec![r#"{"role":"user","content":"a"}"#; 100_001].join(","));
    refuse_messages(
        &many,
        "messages",
        "Invalid 'messages': at most 100,000 messages are allowed.",
    );
}

#[test]
fn what_later_work_brings() {
    for (name, value) in [
        ("audio", r#"{"voice":"alloy","format":"mp3"}"#),
        ("web_search_options", "{}"),
        ("moderation", "{}"),
        ("grammar", "\"root ::= a\""),
        ("echo", "true"),
        ("prompt_logprobs", "1"),
    ] {
        refuse(
            &format!("\"{name}\":{value}"),
            name,
            &format!("Unsupported parameter: '{name}' is not supported yet."),
        );
    }
    for kind in ["grammar", "structural_tag"] {
        let message = format!("Unsupported value: 'response_format.type' does not support '{kind}' yet.");
        refuse(
            &format!(r#""response_format":{{"type":"{kind}"}}"#),
            "response_format.type",
            &message,
        );
    }
    refuse(
        r#""modalities":["text","audio"]"#,
        "modalities.1",
        "Unsupported value: 'modalities[1]' does not support 'audio' yet.",
    );
    refuse(
        r#""modalities":["smell"]"#,
        "modalities.0",
        "Invalid value: 'smell'. Supported values are: 'text' and 'audio'.",
    );
    refuse_messages(
        r#"[{"role":"assistant","content":null,"audio":{"id":"a"}}]"#,
        "messages.0.audio",
        "Unsupported parameter: 'messages[0].audio' is not supported yet.",
    );
    for (name, _) in PARTS.entries().filter(|(_, part)| matches!(part, Part::NotYet)) {
        let messages = format!(
            r#"[{{"role":"user","content":[{{"type":"text","text":"a"}},{{"type":"{name}","{name}":{{}}}}]}}]"#
        );
        let message = format!("Unsupported value: 'messages[0].content[1].type' does not support '{name}' yet.");
        refuse_messages(&messages, "messages.0.content.1.type", &message);
    }
}

#[test]
fn duplicates() {
    refuse(r#""model":"n""#, "model", "Duplicate parameter: 'model'.");
    refuse(r#""user":"a","user":"b""#, "user", "Duplicate parameter: 'user'.");
    refuse(
        r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#,
        "stream_options.include_usage",
        "Duplicate parameter: 'stream_options.include_usage'.",
    );
    refuse_messages(
        r#"[{"role":"user","role":"system","content":"a"}]"#,
        "messages.0.role",
        "Duplicate parameter: 'messages[0].role'.",
    );
    refuse_messages(
        r#"[{"role":"user","content":"a","content":"b"}]"#,
        "messages.0.content",
        "Duplicate parameter: 'messages[0].content'.",
    );
    refuse_messages(
        r#"[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]"#,
        "messages.0.content.0.text",
        "Duplicate parameter: 'messages[0].content[0].text'.",
    );
}

#[test]
fn unknown_fields() {
    for (body, count, first, shown) in [
        (format!("{{{BASE},\"foo\":1}}"), 1, "foo", "foo"),
        (
            r#"{"model":"m","messages":[{"role":"user","content":"hi","name":"n","tool_calls":[1]}]}"#.into(),
            2,
            "messages.0.name",
            "messages[0].name",
        ),
        (
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi","x":1}]}]}"#.into(),
            1,
            "messages.0.content.0.x",
            "messages[0].content[0].x",
        ),
    ] {
        let ignored = Ignored {
            count,
            first: Some(first.into()),
        };
        assert_eq!(parse(&body, false), Ok((base(), ignored)), "{body}");
        let error = parse(&body, true).expect_err(&body);
        assert_eq!(
            (error.param.as_deref(), &*error.message),
            (
                Some(first),
                &*format!("Unrecognized request argument supplied: {shown}")
            )
        );
    }
}

/// Each name of the table reaches its own reader: a value of the wrong kind is told at that name, or the field is one
/// that may be ignored.
#[test]
fn every_name_is_read_or_ignored_on_purpose() {
    let ignored = [
        "reasoning_effort",
        "user",
        "safety_identifier",
        "metadata",
        "store",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "service_tier",
        "verbosity",
        "prediction",
        "add_generation_prompt",
        "continue_final_message",
    ];
    for (name, _) in &TOP {
        let result = parse(&format!(r#"{{"{name}":-7.5}}"#), true).expect_err(name);
        let wanted = if ignored.contains(name) { "model" } else { *name };
        assert_eq!(result.param.as_deref(), Some(wanted), "{name}");
    }
}

#[path = "wishes_tests.rs"]
mod wishes_of_chat;

#[path = "functions_tests.rs"]
mod functions_of_chat;
