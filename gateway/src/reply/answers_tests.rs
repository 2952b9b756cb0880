//! Replies with calls of tools, log probabilities, several answers, and refusals of parts of a request.

use serde_json::Value;
use zerohop_engine::Logprob;

use super::*;

fn stream(include_usage: bool) -> Option<StreamOptions> {
    Some(StreamOptions { include_usage })
}

/// An answer with a word and two calls, of which the second has no arguments.
fn calling() -> Vec<Event> {
    vec![
        started(12, 8),
        text("So: "),
        call("get \"x\""),
        arguments("{\"a\": "),
        arguments("\"\\n\"}"),
        call("g"),
        finished(Finish::ToolCalls),
    ]
}

fn document(dialect: Dialect, events: &[Event]) -> Value {
    let (reply, progress) = run(meta(dialect, None), events);
    assert_eq!(progress, Progress::Done, "{reply}");
    serde_json::from_str(&split(&reply, true).1).expect("JSON")
}

#[test]
fn calls_in_documents() {
    let [first, second] = ids();
    let anthropic = document(Dialect::Anthropic, &calling());
    let direct = serde_json::json!({"type": "direct"});
    assert_eq!(
        anthropic["content"],
        serde_json::json!([
            {"type": "text", "text": "So: ", "citations": null},
            {"type": "tool_use", "id": format!("toolu_{first}"), "name": "get \"x\"", "input": {"a": "\n"}, "caller": direct},
            {"type": "tool_use", "id": format!("toolu_{second}"), "name": "g", "input": {}, "caller": direct},
        ])
    );
    assert_eq!(anthropic["stop_reason"], "tool_use");
    let openai = document(Dialect::OpenAi, &calling());
    let choice = &openai["choices"][0];
    assert_eq!(
        choice["message"],
        serde_json::json!({"role": "assistant", "content": "So: ", "refusal": null, "annotations": [], "tool_calls": [
            {"id": format!("call_{first}"), "type": "function", "function": {"name": "get \"x\"", "arguments": "{\"a\": \"\\n\"}"}},
            {"id": format!("call_{second}"), "type": "function", "function": {"name": "g", "arguments": ""}},
        ]})
    );
    assert_eq!(choice["finish_reason"], "tool_calls");
    // Without a word there is no text.
    let silent = [started(1, 0), call("f"), arguments("{}"), finished(Finish::ToolCalls)];
    assert_eq!(
        document(Dialect::OpenAi, &silent)["choices"][0]["message"]["content"],
        Value::Null
    );
    assert_eq!(document(Dialect::Anthropic, &silent)["content"][0]["type"], "tool_use");
}

/// What was cut short is no JSON; a message that is JSON cannot hold it, and says why it ended.
#[test]
fn calls_that_are_cut_short() {
    let events = [
        started(1, 0),
        call("f"),
        arguments("{\"a\":"),
        finished(Finish::MaxTokens),
    ];
    let message = document(Dialect::Anthropic, &events);
    assert_eq!(message["content"][0]["input"], serde_json::json!({}));
    assert_eq!(message["stop_reason"], "max_tokens");
    let completion = document(Dialect::OpenAi, &events);
    assert_eq!(
        completion["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
        "{\"a\":"
    );
    assert_eq!(completion["choices"][0]["finish_reason"], "length");
}

#[test]
fn calls_in_anthropic_streams() {
    let [first, second] = ids();
    let (reply, progress) = run(meta(Dialect::Anthropic, stream(true)), &calling());
    assert_eq!(progress, Progress::Done);
    let body = split(&reply, true).1;
    let begin = |index: usize, block: &str| {
        format!(
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{block}}}"
        )
    };
    let delta = |index: usize, delta: &str| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{delta}}}"
        )
    };
    let end = |index: usize| {
        format!("event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}")
    };
    let use_of = |id: &str, name: &str| {
        format!(
            "{{\"type\":\"tool_use\",\"id\":\"toolu_{id}\",\"name\":{name},\"input\":{{}},\"caller\":{{\"type\":\"direct\"}}}}"
        )
    };
    let wanted = [
        MESSAGE_START.to_owned(),
        begin(0, "{\"type\":\"text\",\"text\":\"\",\"citations\":null}"),
        "event: ping\ndata: {\"type\":\"ping\"}".into(),
        delta(0, "{\"type\":\"text_delta\",\"text\":\"So: \"}"),
        end(0),
        begin(1, &use_of(&first, "\"get \\\"x\\\"\"")),
        delta(1, "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\": \"}"),
        delta(1, "{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"\\\\n\\\"}\"}"),
        end(1),
        begin(2, &use_of(&second, "\"g\"")),
        end(2),
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null,\"stop_details\":null,\"container\":null},\"usage\":{\"input_tokens\":4,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":8,\"output_tokens\":3,\"output_tokens_details\":{\"thinking_tokens\":0},\"server_tool_use\":null}}".into(),
        "event: message_stop\ndata: {\"type\":\"message_stop\"}".into(),
    ];
    let wanted: String = wanted.iter().map(|event| format!("{event}\n\n")).collect();
    assert_eq!(body, wanted);
}

/// The choices of the chunks of a stream, and whether its end came.
fn chunks(reply: &str) -> (Vec<Value>, Vec<Value>) {
    let body = split(reply, true).1;
    let body = body.strip_suffix("data: [DONE]\n\n").expect("an end");
    let chunks = body.split_terminator("\n\n").map(|event| {
        let data = event.strip_prefix("data: ").expect(event);
        serde_json::from_str::<Value>(data).expect(data)
    });
    let (choices, rest): (Vec<_>, Vec<_>) = chunks.partition(|chunk| chunk["choices"][0].is_object());
    let choices = choices.into_iter().map(|mut chunk| chunk["choices"][0].take());
    (choices.collect(), rest)
}

#[test]
fn calls_in_openai_streams() {
    let [first, second] = ids();
    let (reply, progress) = run(meta(Dialect::OpenAi, stream(false)), &calling());
    assert_eq!(progress, Progress::Done);
    let (choices, rest) = chunks(&reply);
    assert_eq!(rest, Vec::<Value>::new());
    let wanted = [
        r#""delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null"#.to_owned(),
        r#""delta":{"content":"So: "},"finish_reason":null"#.into(),
        format!(
            r#""delta":{{"tool_calls":[{{"index":0,"id":"call_{first}","type":"function","function":{{"name":"get \"x\"","arguments":""}}}}]}},"finish_reason":null"#
        ),
        r#""delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\": "}}]},"finish_reason":null"#.into(),
        r#""delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"\\n\"}"}}]},"finish_reason":null"#.into(),
        format!(
            r#""delta":{{"tool_calls":[{{"index":1,"id":"call_{second}","type":"function","function":{{"name":"g","arguments":""}}}}]}},"finish_reason":null"#
        ),
        r#""delta":{},"finish_reason":"tool_calls""#.into(),
    ];
    let wanted = wanted.iter().map(|rest| {
        let text = format!(r#"{{"index":0,"logprobs":null,{rest}}}"#);
        serde_json::from_str::<Value>(&text).expect("JSON")
    });
    assert_eq!(choices, wanted.collect::<Vec<_>>());
}

/// A request that offered `functions` is answered in their words.
#[test]
fn calls_of_functions() {
    let functions = |stream| {
        let mut meta = meta(Dialect::OpenAi, stream);
        meta.places.functions = true;
        meta
    };
    let events = [
        started(1, 0),
        call("f"),
        arguments("{\"a\": "),
        arguments("1}"),
        finished(Finish::ToolCalls),
    ];
    let (reply, _) = run(functions(None), &events);
    let whole: Value = serde_json::from_str(&split(&reply, true).1).expect("JSON");
    let choice = &whole["choices"][0];
    assert_eq!(
        choice["message"],
        serde_json::json!({"role": "assistant", "content": null, "refusal": null, "annotations": [],
            "function_call": {"name": "f", "arguments": "{\"a\": 1}"}})
    );
    assert_eq!(choice["finish_reason"], "function_call");
    let (reply, _) = run(functions(stream(false)), &events);
    let (chunks, _) = chunks(&reply);
    let deltas: Vec<_> = chunks.iter().map(|choice| choice["delta"].clone()).collect();
    assert_eq!(
        deltas[1..],
        [
            serde_json::json!({"function_call": {"name": "f", "arguments": ""}}),
            serde_json::json!({"function_call": {"arguments": "{\"a\": "}}),
            serde_json::json!({"function_call": {"arguments": "1}"}}),
            serde_json::json!({}),
        ]
    );
    let last = chunks.last().expect("chunks");
    assert_eq!(last["finish_reason"], "function_call");
}

fn with_logprobs(piece: &str) -> Event {
    let token = |byte: u8| Logprob {
        token: byte.into(),
        bytes: vec![byte],
        logprob: Some(-0.5),
        top: vec![(1, vec![byte], -0.5), (2, b"z".to_vec(), -1.5)],
    };
    Event::Text {
        text: piece.into(),
        tokens: 2,
        logprobs: piece.bytes().map(token).collect(),
    }
}

#[test]
fn log_probabilities() {
    let events = [
        started(12, 8),
        with_logprobs("ab"),
        with_logprobs("c"),
        finished(Finish::EndOfTurn),
    ];
    let asked = |stream| ReplyMeta {
        logprobs: true,
        ..meta(Dialect::OpenAi, stream)
    };
    let entry = |token: &str| {
        serde_json::json!({"token": token, "logprob": -0.5, "bytes": [token.as_bytes()[0]], "top_logprobs": [
            {"token": token, "logprob": -0.5, "bytes": [token.as_bytes()[0]]},
            {"token": "z", "logprob": -1.5, "bytes": [b'z']},
        ]})
    };
    let content = |tokens: &[&str]| {
        let entries: Vec<_> = tokens.iter().map(|token| entry(token)).collect();
        serde_json::json!({"content": entries, "refusal": null})
    };
    let (reply, _) = run(asked(None), &events);
    let value: Value = serde_json::from_str(&split(&reply, true).1).expect("JSON");
    assert_eq!(value["choices"][0]["logprobs"], content(&["a", "b", "c"]));
    let (reply, _) = run(asked(stream(false)), &events);
    let told: Vec<_> = chunks(&reply)
        .0
        .into_iter()
        .map(|mut choice| choice["logprobs"].take())
        .collect();
    assert_eq!(told, [Value::Null, content(&["a", "b"]), content(&["c"]), Value::Null]);
    // An answer without a token has none; one that was not asked for them tells none.
    let (reply, _) = run(asked(None), &[started(1, 0), finished(Finish::EndOfTurn)]);
    let value: Value = serde_json::from_str(&split(&reply, true).1).expect("JSON");
    assert_eq!(value["choices"][0]["logprobs"], content(&[]));
    for dialect in [Dialect::Anthropic, Dialect::OpenAi] {
        assert!(!document(dialect, &events).to_string().contains("-0.5"));
    }
}

/// Three answers whose events come mixed; the second one ends last.
fn three() -> Vec<(usize, Event)> {
    let ended = |cached_tokens, output_tokens| Event::Finished {
        finish: Finish::EndOfTurn,
        usage: Usage {
            input_tokens: 12,
            cached_tokens,
            output_tokens,
        },
    };
    vec![
        (1, started(12, 8)),
        (0, started(12, 0)),
        (1, text("b")),
        (0, text("a")),
        (2, started(12, 8)),
        (2, ended(8, 0)),
        (0, text("a")),
        (0, ended(0, 2)),
        (1, text("b")),
        (1, text("b")),
        (1, ended(8, 3)),
    ]
}

#[test]
fn several_answers() {
    let several = |stream| ReplyMeta {
        choices: 3,
        ..meta(Dialect::OpenAi, stream)
    };
    // The prompt counts once, and so does what none of them had to compute.
    let check_usage = |usage: &Value| {
        assert_eq!(
            (
                &usage["prompt_tokens"],
                &usage["completion_tokens"],
                &usage["total_tokens"]
            ),
            (&12.into(), &5.into(), &17.into())
        );
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    };
    let (reply, progress) = run_all(several(None), three());
    assert_eq!(progress, Progress::Done);
    let value: Value = serde_json::from_str(&split(&reply, true).1).expect("JSON");
    let choices = value["choices"].as_array().expect("choices");
    let said: Vec<_> = choices
        .iter()
        .map(|choice| (choice["index"].clone(), choice["message"]["content"].clone()))
        .collect();
    assert_eq!(
        said,
        [(0.into(), "aa".into()), (1.into(), "bbb".into()), (2.into(), "".into())]
    );
    check_usage(&value["usage"]);

    let (reply, progress) = run_all(several(stream(true)), three());
    assert_eq!(progress, Progress::Done);
    let (choices, rest) = chunks(&reply);
    let of = |index: usize| choices.iter().filter(move |choice| choice["index"] == index);
    for (index, said) in ["aa", "bbb", ""].into_iter().enumerate() {
        assert_eq!(of(index).next().expect("a chunk")["delta"]["role"], "assistant");
        let text: String = of(index)
            .filter_map(|choice| choice["delta"]["content"].as_str())
            .collect();
        assert_eq!(text, said);
        assert_eq!(of(index).next_back().expect("a chunk")["finish_reason"], "stop");
    }
    assert_eq!(rest.len(), 1);
    check_usage(&rest[0]["usage"]);
}

/// One answer that fails takes the others with it, before and after the head.
#[test]
fn several_answers_of_which_one_fails() {
    let failed = Event::Failed { reason: "x".into() };
    for (stream, status, end) in [
        (None, "500", Progress::Done),
        (stream(false), "200", Progress::DoneClose),
    ] {
        let meta = ReplyMeta {
            choices: 2,
            ..meta(Dialect::OpenAi, stream)
        };
        let events = [
            (0, started(1, 0)),
            (0, text("a")),
            (0, finished(Finish::EndOfTurn)),
            (1, failed.clone()),
        ];
        let (reply, progress) = run_all(meta, events);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
        assert!(
            reply.contains("server_error") && !reply.contains("[DONE]") && progress == end,
            "{reply}"
        );
    }
}

/// What an engine refuses is told at its place in the body.
#[test]
fn refused_parts() {
    let places = || Places {
        form: "response_format.json_schema.schema",
        tools: vec![2, 5],
        ..Places::default()
    };
    for (dialect, part, path, message) in [
        (
            Dialect::OpenAi,
            Part::Form,
            "response_format.json_schema.schema",
            "Invalid 'response_format.json_schema.schema': no",
        ),
        (
            Dialect::OpenAi,
            Part::Tool(1),
            "tools[5].function.parameters",
            "Invalid 'tools[5].function.parameters': no",
        ),
        (
            Dialect::OpenAi,
            Part::LogitBias,
            "logit_bias",
            "Invalid 'logit_bias': no",
        ),
        (
            Dialect::OpenAi,
            Part::StopTokens,
            "stop_token_ids",
            "Invalid 'stop_token_ids': no",
        ),
        (
            Dialect::OpenAi,
            Part::ToolChoice,
            "tool_choice",
            "Invalid 'tool_choice': no",
        ),
        (Dialect::OpenAi, Part::Messages, "messages", "Invalid 'messages': no"),
        (Dialect::OpenAi, Part::Model, "model", "Invalid 'model': no"),
        (Dialect::Anthropic, Part::Tool(0), "", "tools.2.input_schema: no"),
        (
            Dialect::Anthropic,
            Part::Form,
            "",
            "response_format.json_schema.schema: no",
        ),
    ] {
        let meta = ReplyMeta {
            places: places(),
            ..meta(dialect, None)
        };
        let refused = Event::Refused {
            part,
            reason: "no".into(),
        };
        let (reply, _) = run(meta, &[refused]);
        assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
        let value: Value = serde_json::from_str(&split(&reply, true).1).expect("JSON");
        assert_eq!(value["error"]["message"], message);
        if dialect == Dialect::OpenAi {
            assert_eq!(value["error"]["param"], path);
        }
    }
}

#[test]
fn deadlines_that_pass() {
    for (dialect, kind) in [(Dialect::Anthropic, "timeout_error"), (Dialect::OpenAi, "server_error")] {
        let (reply, progress) = run(meta(dialect, None), &[started(1, 0), text("x"), Event::TimedOut]);
        assert!(reply.starts_with("HTTP/1.1 504 ") && reply.contains(kind), "{reply}");
        assert_eq!(progress, Progress::Done);
        let (reply, progress) = run(
            meta(dialect, stream(true)),
            &[started(1, 0), text("x"), Event::TimedOut],
        );
        let body = split(&reply, false).1;
        assert!(body.contains(kind) && body.contains("not complete in time"), "{body}");
        assert_eq!(progress, Progress::DoneClose);
    }
}

/// What is kept for a document counts as held.
#[test]
fn what_is_kept_is_counted() {
    let mut reply = Reply::new(meta(Dialect::OpenAi, None));
    let (mut out, date, mut ids) = (Vec::new(), HttpDate::at(NOW), IdSource::new([1, 2]));
    let long = "x".repeat(1000);
    for (event, least) in [
        (started(1, 0), 0),
        (text(&long), 1000),
        (call(&long), 2000),
        (arguments(&long), 3000),
    ] {
        reply.on(0, &event, &mut ids, &date, &mut out);
        assert!(reply.held() >= least, "{} < {least}", reply.held());
    }
}
