//! Replies of each dialect against what the engine gave, as a stream and as one document: text, a call, the bytes of
//! tokens, one answer or two.
//!
//! Invariant: the deltas joined are the text, whatever is in it and however it was cut; those of a call are its arguments.

use std::time::Duration;

use serde_json::Value;
use zerohop::{
    api::{Dialect, Places, StreamOptions},
    date::HttpDate,
    http::{RequestId, Version, request_id::IdSource},
    reply::{Connection, Progress, Reply, ReplyMeta},
};
use zerohop_engine::{Event, Finish, Logprob, Usage};

use crate::{
    same,
    sse::{self, dechunked},
};

/// What the first byte chooses.
struct Form {
    dialect: Dialect,
    stop: Finish,
    version: Version,
    include_usage: bool,
    /// A call of a tool is behind the text, with the text in its arguments.
    call: bool,
    logprobs: bool,
    choices: u32,
}

impl Form {
    fn new(form: u8, text: &str) -> Self {
        let bit = |bit: u8| form & bit != 0;
        let openai = bit(1);
        Self {
            dialect: if openai { Dialect::OpenAi } else { Dialect::Anthropic },
            stop: match (bit(16), bit(2)) {
                (true, _) => Finish::ToolCalls,
                (false, true) => Finish::Stop(text.to_owned()),
                (false, false) => Finish::EndOfTurn,
            },
            version: if bit(4) { Version::Http10 } else { Version::Http11 },
            include_usage: !bit(8),
            call: bit(16),
            logprobs: openai && bit(32),
            choices: if openai && bit(64) { 2 } else { 1 },
        }
    }
}

/// What a client hears of an answer.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    arguments: String,
    /// Of the tokens whose log probabilities are told.
    bytes: Vec<u8>,
}

/// The first byte chooses the form, the second how the text is cut; the rest is the text.
pub(crate) fn check(data: &[u8]) {
    let [form, size, text @ ..] = data else { return };
    let text = String::from_utf8_lossy(text).into_owned();
    let form = Form::new(*form, &text);
    let arguments = serde_json::json!({ "text": text }).to_string();
    for stream in [
        None,
        Some(StreamOptions {
            include_usage: form.include_usage,
        }),
    ] {
        let out = replied(&form, stream, &text, &arguments, usize::from(*size) + 1);
        let head = out.windows(4).position(|window| window == b"\r\n\r\n");
        let (head, body) = out.split_at(head.map_or(0, |at| at + 4));
        let head = String::from_utf8_lossy(head);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let body = if head.contains("transfer-encoding: chunked") {
            dechunked(body)
        } else {
            body.to_vec()
        };
        let mut heard: Vec<Heard> = (0..form.choices).map(|_| Heard::default()).collect();
        match stream {
            None => document(form.dialect, &parsed(&body), &mut heard),
            Some(_) => sse::events(&body)
                .iter()
                .for_each(|event| delta(form.dialect, event, &mut heard)),
        }
        for heard in heard {
            let wanted = Heard {
                text: text.clone(),
                arguments: if form.call {
                    canonical(&arguments)
                } else {
                    String::new()
                },
                bytes: if form.logprobs {
                    text.clone().into_bytes()
                } else {
                    Vec::new()
                },
            };
            let heard = Heard {
                arguments: canonical(&heard.arguments),
                ..heard
            };
            same("answer", &heard, &wanted, data);
        }
    }
}

/// The same document in one spelling; nothing stays nothing.
fn canonical(text: &str) -> String {
    match text {
        "" => String::new(),
        text => parsed(text.as_bytes()).to_string(),
    }
}

fn meta(form: &Form, stream: Option<StreamOptions>, model: &str) -> ReplyMeta {
    ReplyMeta {
        dialect: form.dialect,
        id: (1, 2),
        model: model.to_owned(),
        model_version: model.to_owned(),
        created: 0,
        stream,
        choices: form.choices,
        logprobs: form.logprobs,
        places: Places::default(),
        connection: Connection {
            version: form.version,
            keep_alive: true,
            head_only: false,
            request_id: RequestId::from_bits(3, 4),
        },
    }
}

/// The events of an answer.
fn events(form: &Form, text: &str, arguments: &str, size: usize) -> Vec<Event> {
    let cut = |text: &str| {
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(size).map(String::from_iter).collect::<Vec<_>>()
    };
    let mut events = vec![Event::Started {
        input_tokens: 5,
        cached_tokens: 1,
        queued: Duration::ZERO,
    }];
    events.extend(cut(text).into_iter().map(|text| Event::Text {
        logprobs: form.logprobs.then(|| token(&text)).into_iter().collect(),
        text,
        tokens: 1,
    }));
    if form.call {
        events.push(Event::Call { name: "f".into() });
        let pieces = cut(arguments).into_iter();
        events.extend(pieces.map(|text| Event::Arguments { text, tokens: 1 }));
    }
    events.push(Event::Finished {
        finish: form.stop.clone(),
        usage: Usage {
            input_tokens: 5,
            cached_tokens: 1,
            output_tokens: 2,
        },
    });
    events
}

fn token(text: &str) -> Logprob {
    Logprob {
        token: 7,
        bytes: text.into(),
        logprob: Some(-1.5),
        top: vec![(7, text.into(), -1.5), (8, Vec::new(), f32::NEG_INFINITY)],
    }
}

/// All answers say the same, event by event in turn.
fn replied(form: &Form, stream: Option<StreamOptions>, text: &str, arguments: &str, size: usize) -> Vec<u8> {
    let mut reply = Reply::new(meta(form, stream, text));
    let (mut out, date, mut ids) = (Vec::new(), HttpDate::at(0), IdSource::new([0, 0]));
    let mut progress = Progress::More;
    for event in events(form, text, arguments, size) {
        for choice in 0..form.choices as usize {
            assert_eq!(progress, Progress::More, "the reply ended early");
            progress = reply.on(choice, &event, &mut ids, &date, &mut out);
            if progress == Progress::More {
                reply.keep_alive(&mut out);
            }
        }
    }
    assert_ne!(progress, Progress::More, "the reply has no end");
    out
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error} in {}", bytes.escape_ascii()))
}

fn list<'v>(json: &'v Value, path: &str) -> &'v [Value] {
    let found = json.pointer(path).and_then(Value::as_array);
    found.map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(json: &'v Value, path: &str) -> &'v str {
    json.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn bytes(json: &Value, heard: &mut Heard) {
    for entry in list(json, "/logprobs/content") {
        let bytes = list(entry, "/bytes").iter().filter_map(Value::as_u64);
        heard.bytes.extend(bytes.filter_map(|byte| u8::try_from(byte).ok()));
        assert_eq!(entry["top_logprobs"][1]["logprob"], -9999, "a token that cannot come");
    }
}

fn document(dialect: Dialect, json: &Value, heard: &mut [Heard]) {
    if dialect == Dialect::Anthropic {
        for block in list(json, "/content") {
            heard[0].text += text(block, "/text");
            if let Some(input) = block.get("input") {
                heard[0].arguments += &input.to_string();
            }
        }
        return;
    }
    for (choice, heard) in list(json, "/choices").iter().zip(heard) {
        heard.text += text(choice, "/message/content");
        for call in list(choice, "/message/tool_calls") {
            heard.arguments += text(call, "/function/arguments");
        }
        bytes(choice, heard);
    }
}

fn delta(dialect: Dialect, event: &sse::Event, heard: &mut [Heard]) {
    if event.data == "[DONE]" {
        return;
    }
    let json = parsed(event.data.as_bytes());
    if dialect == Dialect::Anthropic {
        heard[0].text += text(&json, "/delta/text");
        heard[0].arguments += text(&json, "/delta/partial_json");
        return;
    }
    for choice in list(&json, "/choices") {
        let index = choice["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let heard = &mut heard[index.unwrap_or(usize::MAX)];
        heard.text += text(choice, "/delta/content");
        for call in list(choice, "/delta/tool_calls") {
            heard.arguments += text(call, "/function/arguments");
        }
        bytes(choice, heard);
    }
}
