//! Same meaning, same key; any other meaning, another key.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::api::{Dialect, anthropic, openai};

fn secret() -> Secret {
    Secret::new([9; 32])
}

fn epoch(version: u32) -> Epoch {
    // An empty folder's digest does as well as any.
    let folder = std::env::temp_dir().join(format!("zerohop-key-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    Epoch::of(&EpochParts {
        files: files_digest(&folder).expect("readable"),
        context: 2048,
        rules: None,
        version,
    })
}

/// Makes keys of one caller, model and epoch.
struct Bench {
    space: Namespace,
    epoch: Epoch,
    model: String,
    maker: KeyMaker,
    scratch: Scratch,
}

impl Bench {
    fn new() -> Self {
        Self::of("team", "tiny", 1)
    }

    fn of(tenant: &str, model: &str, version: u32) -> Self {
        Self {
            space: Namespace::new(&secret(), Scope::Tenant, tenant, b""),
            epoch: epoch(version),
            model: model.into(),
            maker: KeyMaker::default(),
            scratch: Scratch::default(),
        }
    }

    fn read(&mut self, dialect: Dialect, body: &str) -> (ChatRequest, Ignored) {
        let read = match dialect {
            Dialect::Anthropic => anthropic::messages(body.as_bytes(), &mut self.scratch, false),
            Dialect::OpenAi => openai::chat(body.as_bytes(), &mut self.scratch, false),
        };
        read.unwrap_or_else(|error| panic!("{error:?}: {body}"))
    }

    fn key(&mut self, dialect: Dialect, body: &str) -> Keyed {
        let (request, ignored) = self.read(dialect, body);
        self.key_of(&request, &ignored, body)
    }

    fn key_of(&mut self, request: &ChatRequest, ignored: &Ignored, body: &str) -> Keyed {
        let whose = Whose {
            space: &self.space,
            model: &self.model,
            epoch: &self.epoch,
        };
        let sent = Sent {
            ignored,
            body: body.as_bytes(),
            scratch: &mut self.scratch,
        };
        self.maker.chat(&whose, request, sent).expect("a body that was read")
    }

    fn openai(&mut self, body: &Value) -> Keyed {
        self.key(Dialect::OpenAi, &body.to_string())
    }

    fn anthropic(&mut self, body: &Value) -> Keyed {
        self.key(Dialect::Anthropic, &body.to_string())
    }
}

/// A request with everything that a body may say.
fn rich() -> Value {
    json!({
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is the weather in Rome?"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\",\"days\":1}"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "user", "content": "And in Oslo?"},
        ],
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 7, "max_tokens": 40, "stop": ["END", "\n\n"],
        "n": 2, "min_p": 0.1, "repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": 0.25,
        "logit_bias": {"3": 1.0, "5": -2.0}, "min_tokens": 1, "stop_token_ids": [7, 8], "ignore_eos": false,
        "logprobs": true, "top_logprobs": 2,
        "tools": [
            {"type": "function", "function": {"name": "weather", "description": "Tells it.", "strict": false, "parameters":
                {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}}}},
            {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object", "properties": {}}}},
        ],
        "tool_choice": "auto", "parallel_tool_calls": true,
        "vendor": {"deep": [1, {"flag": true, "note": "x"}]},
    })
}

/// Every value below, by its path.
fn leaves(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                path.push(key.clone());
                leaves(value, path, found);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                path.push(index.to_string());
                leaves(value, path, found);
                path.pop();
            }
        }
        _ => found.push(path.clone()),
    }
}

fn at<'v>(value: &'v mut Value, path: &[String]) -> &'v mut Value {
    path.iter().fold(value, |value, step| match value {
        Value::Array(items) => &mut items[step.parse::<usize>().expect("an index")],
        value => &mut value[step.as_str()],
    })
}

/// Another value that a body may have in its place; none where there is only this one.
fn changed(path: &[String], value: &Value) -> Option<Value> {
    let path = path.join(".");
    Some(match path.as_str() {
        // The client's name for the model is not the model's.
        "model" => return None,
        "messages.0.role" | "messages.4.role" => json!("assistant"),
        "messages.1.role" | "messages.2.role" | "messages.3.role" => return None,
        // Changed together below, so that they still agree.
        "messages.2.tool_calls.0.id" | "messages.3.tool_call_id" => return None,
        path if path.ends_with(".type") && (path.starts_with("tools") || path.contains("tool_calls")) => match path {
            "tools.0.function.parameters.properties.city.type" => json!("number"),
            "tools.0.function.parameters.properties.days.type" => json!("number"),
            _ => return None,
        },
        "messages.2.tool_calls.0.function.arguments" => json!("{\"city\":\"Rome\",\"days\":2}"),
        "tool_choice" => json!("required"),
        "top_logprobs" | "min_tokens" | "n" => json!(3),
        // Without it, its own count is refused.
        "logprobs" => return None,
        _ => match value {
            Value::Bool(value) => json!(!value),
            Value::Number(number) if number.is_f64() => json!(number.as_f64().expect("a float") / 2.0),
            Value::Number(number) => json!(number.as_u64().expect("whole") + 1),
            Value::String(text) => json!(format!("{text}x")),
            _ => return None,
        },
    })
}

#[test]
fn every_value_of_a_request_is_in_its_key() {
    let mut bench = Bench::new();
    let body = rich();
    let mut seen = HashMap::from([(bench.openai(&body).prompt, "the request".to_owned())]);
    let mut paths = Vec::new();
    leaves(&body, &mut Vec::new(), &mut paths);
    let mut count = 0;
    for path in paths {
        let mut other = body.clone();
        let place = at(&mut other, &path);
        let Some(value) = changed(&path, place) else { continue };
        *place = value;
        let shown = path.join(".");
        let before = seen.insert(bench.openai(&other).prompt, shown.clone());
        assert_eq!(before, None, "{shown} gives no key of its own");
        count += 1;
    }
    assert!(count >= 40, "{count} values");
}

#[test]
fn what_is_there_or_not_is_in_the_key() {
    let mut bench = Bench::new();
    let body = rich();
    let mut seen = HashMap::from([(bench.openai(&body).prompt, "the request".to_owned())]);
    let without: [&[&str]; 18] = [
        &["temperature"],
        &["top_p"],
        &["top_k"],
        &["seed"],
        &["max_tokens"],
        &["stop"],
        &["n"],
        &["min_p"],
        &["repetition_penalty"],
        &["frequency_penalty"],
        &["presence_penalty"],
        &["logit_bias"],
        &["min_tokens"],
        &["stop_token_ids"],
        &["logprobs", "top_logprobs"],
        &["top_logprobs"],
        &["tools"],
        &["vendor"],
    ];
    for fields in without {
        let mut other = body.clone();
        let entries = other.as_object_mut().expect("an object");
        fields.iter().for_each(|field| drop(entries.remove(*field)));
        let before = seen.insert(bench.openai(&other).prompt, fields.join(" "));
        assert_eq!(before, None, "without {fields:?}");
    }
    for (path, value) in [
        (
            "tool_choice",
            json!({"type": "function", "function": {"name": "weather"}}),
        ),
        ("tool_choice", json!("none")),
        (
            "tool_choice",
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "time"}}]}}),
        ),
        ("response_format", json!({"type": "json_object"})),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}),
        ),
        ("guided_regex", json!("[0-9]")),
        ("guided_choice", json!(["[0-9]"])),
        ("guided_choice", json!(["[", "0-9]"])),
        ("guided_grammar", json!("[0-9]")),
    ] {
        let mut other = body.clone();
        other[path] = value.clone();
        let before = seen.insert(bench.openai(&other).prompt, format!("{path}: {value}"));
        assert_eq!(before, None, "{path}: {value}");
    }
    // Both places of one id.
    let mut other = body;
    other["messages"][2]["tool_calls"][0]["id"] = json!("c2");
    other["messages"][3]["tool_call_id"] = json!("c2");
    assert!(
        seen.insert(bench.openai(&other).prompt, "the id of a call".into())
            .is_none()
    );
}

#[test]
fn each_message_at_any_depth_is_in_the_key() {
    let mut bench = Bench::new();
    let conversation = |changed: Option<usize>| {
        let messages: Vec<Value> = (0..40)
            .map(|index| {
                let role = ["user", "assistant"][index % 2];
                let text = if changed == Some(index) { "other" } else { "same" };
                json!({"role": role, "content": text})
            })
            .collect();
        json!({"model": "tiny", "messages": messages})
    };
    let mut seen = HashMap::from([(bench.openai(&conversation(None)).prompt, usize::MAX)]);
    let same = bench.openai(&conversation(None)).context;
    for index in 0..40 {
        let key = bench.openai(&conversation(Some(index)));
        assert_eq!(seen.insert(key.prompt, index), None);
        assert_eq!(key.context == same, index >= 3, "the context is that of three messages");
    }
    let (request, _) = bench.read(Dialect::OpenAi, &conversation(None).to_string());
    assert_eq!(context(&request.conversation.messages), same);
}

#[test]
fn how_the_reply_is_told_is_not_in_the_key() {
    let mut bench = Bench::new();
    let plain = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9});
    let wanted = bench.openai(&plain);
    let with = |more: Value| {
        let mut body = plain.clone();
        let entries = body.as_object_mut().expect("an object");
        entries.extend(more.as_object().expect("an object").clone());
        body
    };
    for more in [
        json!({"stream": true}),
        json!({"stream": false}),
        json!({"stream": true, "stream_options": {"include_usage": true}}),
        json!({"model": "haiku"}),
        json!({"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "store": true}),
        json!({"temperature": 1, "top_p": 1.0, "n": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": -0.0}),
        json!({"logit_bias": {}, "stop": [], "min_tokens": 0, "logprobs": false, "response_format": {"type": "text"}}),
        json!({"seed": null, "tools": [], "tool_choice": null}),
    ] {
        assert_eq!(bench.openai(&with(more.clone())), wanted, "{more}");
    }
    let mut other = with(json!({"max_completion_tokens": 9}));
    other.as_object_mut().expect("an object").remove("max_tokens");
    assert_eq!(bench.openai(&other), wanted);
    // The other dialect, saying the same.
    let same = json!({"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]});
    assert_eq!(bench.anthropic(&same), wanted);
}

#[test]
fn both_dialects_have_one_identity() {
    let mut bench = Bench::new();
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let one = json!({
        "model": "m", "max_tokens": 50, "temperature": 0, "stop_sequences": ["END"], "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Rome?"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
        ],
        "tools": [{"name": "weather", "description": "Tells it.", "input_schema": parameters}],
    });
    let other = json!({
        "model": "m", "max_tokens": 50, "temperature": 0, "stop": "END",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Rome?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": parameters}}],
    });
    assert_eq!(bench.anthropic(&one), bench.openai(&other));
}

#[test]
fn tenants_models_and_epochs_are_apart() {
    let body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]});
    let key = |tenant: &str, model: &str, version| Bench::of(tenant, model, version).openai(&body);
    let base = key("a", "m", 1);
    for other in [key("b", "m", 1), key("a", "n", 1), key("a", "m", 2), key("", "m", 1)] {
        assert_ne!(other.prompt, base.prompt);
        assert_eq!(other.context, base.context, "the context is never identity");
    }
    assert_eq!(key("a", "m", 1), base, "and back");
    assert_ne!(key("b", "m", 1).tenant, base.tenant);
}

#[test]
fn what_is_no_json_in_a_call_counts_as_it_stands() {
    let mut bench = Bench::new();
    let nothing = Ignored::default();
    let mut of = |arguments: &str| {
        let mut request = small(&mut |_| 0);
        request.conversation.messages.push(Message {
            calls: vec![ToolCall {
                id: "c".into(),
                name: "f".into(),
                arguments: arguments.into(),
            }],
            ..Message::new(Role::Assistant, "")
        });
        bench.key_of(&request, &nothing, "").prompt
    };
    let same = [
        "{\"a\":\"b\"}",
        "{ \"a\" : \"b\" }",
        "{\"\\u0061\":\"b\"}",
        "{\"a\":\"b\"} ",
    ]
    .map(&mut of);
    assert!(same.iter().all(|key| *key == same[0]));
    // Bodies with such calls are refused; a model that was given one would see each of them differently.
    let texts = ["a b", "ab", "a  b", "{\"a\" \"b\"}", "{\"a\"\"b\"}", "{\"a\":\"b\""];
    let keys: Vec<_> = texts.iter().map(|text| of(text)).collect();
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{}", texts[index]);
    }
}

/// Writes a document with other spacing, other escapes and another order of the keys that have no meaning in theirs.
fn respelled(value: &Value, chance: &mut impl FnMut(u32) -> u32, out: &mut String, keeps_order: bool) {
    let blank = |chance: &mut dyn FnMut(u32) -> u32| ["", " ", "\n\t", "  "][chance(4) as usize];
    out.push_str(blank(chance));
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            if !keeps_order {
                for index in (1..entries.len()).rev() {
                    entries.swap(index, chance(index as u32 + 1) as usize);
                }
            }
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                respelled(&json!(key), chance, out, true);
                out.push_str(blank(chance));
                out.push(':');
                // A schema reaches the model in its own order.
                respelled(
                    value,
                    chance,
                    out,
                    keeps_order || key == "parameters" || key == "input_schema",
                );
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, value) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                respelled(value, chance, out, keeps_order);
            }
            out.push(']');
        }
        Value::String(text) => {
            out.push('"');
            for c in text.chars() {
                if chance(8) == 0 || c < ' ' || c == '"' || c == '\\' {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                } else {
                    out.push(c);
                }
            }
            out.push('"');
        }
        other => out.push_str(&other.to_string()),
    }
    out.push_str(blank(chance));
}

/// A small stream of chance: the same seed, the same case.
fn chance(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32) % below
    }
}

proptest! {
    #[test]
    fn spelling_is_not_in_the_key(seed: u64, text in "\\PC{0,20}", stream: bool) {
        let mut bench = Bench::new();
        let mut body = rich();
        body["messages"][4]["content"] = json!(format!("{text}?"));
        let wanted = bench.openai(&body);
        if stream {
            body["stream"] = json!(true);
        }
        let mut spelled = String::new();
        respelled(&body, &mut chance(seed), &mut spelled, false);
        prop_assert_eq!(bench.key(Dialect::OpenAi, &spelled), wanted, "{}", spelled);
    }

    #[test]
    fn unknown_fields_are_in_the_key(key in "[a-z]{1,6}", one in "\\PC{0,6}", other in "\\PC{0,6}", depth in 0..4_usize) {
        let mut bench = Bench::new();
        let body = |value: &str| {
            let deep = (0..depth).fold(json!(value), |inner, _| json!([{"inner": inner}]));
            let mut unknown = Map::new();
            unknown.insert(format!("x_{key}"), deep);
            let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
            body["messages"][0]["name_of_it"] = json!(unknown);
            body
        };
        let same = bench.openai(&body(&one)) == bench.openai(&body(&other));
        prop_assert_eq!(same, one == other);
        let plain = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
        prop_assert_ne!(bench.openai(&body(&one)), bench.openai(&plain));
    }
}

/// A small conversation out of few words, so that two of them are often nearly and sometimes quite the same.
fn small(chance: &mut impl FnMut(u32) -> u32) -> ChatRequest {
    fn text(chance: &mut impl FnMut(u32) -> u32) -> String {
        [
            "",
            "a",
            "b",
            "ab",
            "ba",
            "aa",
            "\u{1}",
            "a\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}",
        ][chance(8) as usize]
            .into()
    }
    let roles = [Role::User, Role::Assistant, Role::System, Role::Tool];
    let count = chance(5);
    let mut messages: Vec<Message> = Vec::new();
    for _ in 0..count {
        let mut message = Message::new(roles[chance(4) as usize], text(chance));
        if chance(4) == 0 {
            message.call_id = Some(text(chance));
        }
        for _ in 0..chance(8).saturating_sub(5) {
            message.calls.push(ToolCall {
                id: text(chance),
                name: text(chance),
                arguments: text(chance),
            });
        }
        messages.push(message);
    }
    let mut tools = Tools::default();
    for _ in 0..chance(6).saturating_sub(3) {
        tools.list.push(Tool {
            name: text(chance),
            description: text(chance),
            parameters: ["{}", "{\"a\":1}", "{\"a\":11}"][chance(3) as usize].into(),
            strict: chance(4) == 0,
        });
    }
    tools.choice = match chance(6) {
        0 => ToolChoice::None,
        1 => ToolChoice::Named(text(chance)),
        _ => ToolChoice::Auto,
    };
    let stop = (0..chance(5).saturating_sub(2)).map(|_| text(chance)).collect();
    let few = |chance: &mut dyn FnMut(u32) -> u32| [None, Some(0), Some(1)][chance(5).saturating_sub(2) as usize];
    ChatRequest {
        dialect: Dialect::OpenAi,
        model: text(chance),
        conversation: Conversation {
            messages,
            tools,
            template_arguments: [String::new(), r#"{"a":1}"#.into()][chance(9).saturating_sub(7) as usize].clone(),
        },
        temperature: few(chance).map(|n| n as f32),
        top_p: None,
        top_k: few(chance),
        seed: few(chance).map(u64::from),
        max_tokens: few(chance),
        stop,
        stream: (chance(2) == 0).then(StreamOptions::default),
        extras: (chance(4) == 0).then(|| {
            Box::new(Extras {
                min_tokens: chance(2),
                stop_tokens: (0..chance(3)).collect(),
                form: match chance(4) {
                    0 => Form::Regex(text(chance)),
                    1 => Form::Choice(vec![text(chance), text(chance)]),
                    2 => Form::Grammar(text(chance)),
                    _ => Form::Free,
                },
                ..Extras::default()
            })
        }),
    }
}

/// What of a request may change its answer, written out without any of the code under test.
fn meaning(request: &ChatRequest) -> ChatRequest {
    ChatRequest {
        model: String::new(),
        stream: None,
        temperature: Some(request.temperature.unwrap_or(1.0)),
        extras: Some(request.extras.clone().unwrap_or_default()),
        ..request.clone()
    }
}

/// Moves a little of a request over a border: the pairs that a careless key confuses.
fn nudged(request: &ChatRequest, chance: &mut impl FnMut(u32) -> u32) -> ChatRequest {
    let mut other = request.clone();
    let messages = &mut other.conversation.messages;
    match chance(8) {
        // A character from the end of one text to the beginning of the next.
        0 if messages.len() > 1 => {
            let at = chance(messages.len() as u32 - 1) as usize;
            if let Some(c) = messages[at].content.pop() {
                messages[at + 1].content.insert(0, c);
            }
        }
        // Two messages become one.
        1 if messages.len() > 1 => {
            let at = chance(messages.len() as u32 - 1) as usize;
            let next = messages.remove(at + 1);
            messages[at].content += &next.content;
        }
        2 if messages.len() > 1 => {
            let at = chance(messages.len() as u32 - 1) as usize;
            messages.swap(at, at + 1);
        }
        // From a text into the id beside it.
        3 if !messages.is_empty() => {
            let at = chance(messages.len() as u32) as usize;
            messages[at].call_id = Some(std::mem::take(&mut messages[at].content));
        }
        // From a tool's name into its description.
        4 if !other.conversation.tools.list.is_empty() => {
            let tool = &mut other.conversation.tools.list[0];
            if let Some(c) = tool.name.pop() {
                tool.description.insert(0, c);
            }
        }
        // One stop text into the next.
        5 if other.stop.len() > 1 => {
            let last = other.stop.pop().unwrap_or_default();
            other.stop[0] += &last;
        }
        // A number from one field to another.
        6 => std::mem::swap(&mut other.top_k, &mut other.max_tokens),
        _ => other.stream = None,
    }
    other
}

#[test]
fn a_million_near_pairs_are_told_apart() {
    const PAIRS: u32 = 1_000_000;
    let mut bench = Bench::new();
    let mut chance = chance(0x5EED);
    let nothing = Ignored::default();
    let (mut same, mut apart) = (0_u32, 0_u32);
    let mut last = small(&mut chance);
    for _ in 0..PAIRS {
        let one = small(&mut chance);
        let other = match chance(4) {
            0 => std::mem::replace(&mut last, one.clone()),
            _ => nudged(&one, &mut chance),
        };
        let keys = [&one, &other].map(|request| bench.key_of(request, &nothing, "").prompt);
        let is_same = meaning(&one) == meaning(&other);
        assert_eq!(keys[0] == keys[1], is_same, "{one:?}\n{other:?}");
        *if is_same { &mut same } else { &mut apart } += 1;
    }
    // Both kinds are met often, or the test would show little.
    assert!(same > PAIRS / 20 && apart > PAIRS / 4, "{same} same, {apart} apart");
}
