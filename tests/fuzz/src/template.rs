//! Chat templates: any source is refused with a line or renders any conversation within its budget; and of a known source
//! the prompt is what it says, whatever a client wrote.
//!
//! An input is a source and the parts of a conversation, each behind a byte of [`BORDER`]. Invariant: the oracle joins
//! texts and knows no template language. Time and memory are the runner's to bound.

use std::sync::LazyLock;

use zerohop_engine::{Chat, Conversation, Message, Role, Tool, ToolCall, check_template_argument};

use crate::{masks::tokenizer, same};

/// Between the parts of an input.
const BORDER: u8 = 0x1E;
/// Parts that are read.
const MOST: usize = 12;
/// Control tokens, one of which lies within another, and some of which begin as others end.
const CONTROLS: [&str; 9] = [
    "<end>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<a><end>",
    "xx<|im",
    "user",
    "日本",
];
/// Below are the bytes.
const FIRST_CONTROL: u32 = 256;

/// A source whose prompt is plain to see. It trims and repeats, as sources do.
const PLAIN: &str = "{% for m in messages %}<|im_start|>{{ m.content }}<end>{{ m.content | trim }}|im_end|>{% endfor %}\
                     {{ note }}<tool_call>{{ note | tojson }}";

static TOKENIZER: LazyLock<Vec<u8>> = LazyLock::new(|| tokenizer(&CONTROLS));
static KNOWN: LazyLock<Chat> = LazyLock::new(|| Chat::new(&TOKENIZER, PLAIN).unwrap_or_else(|error| panic!("{error}")));

pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split(char::from(BORDER)).take(MOST);
    let source = parts.next().unwrap_or_default();
    let parts: Vec<&str> = parts.collect();
    is_a_line(Chat::new(&TOKENIZER, source).and_then(|chat| chat.ids(&conversation(&parts)).map(drop)));
    check_known(&parts, data);
}

fn is_a_line(outcome: Result<(), String>) {
    if let Err(reason) = outcome {
        assert!(!reason.is_empty() && !reason.contains('\n'), "{reason:?}");
    }
}

/// The roles in turn, with a call and its result; what is an object goes to the template, or is a tool's schema.
fn conversation(parts: &[&str]) -> Conversation {
    let mut whole = Conversation::default();
    for (index, part) in parts.iter().enumerate() {
        let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(part).ok();
        let arguments = object.as_ref();
        if arguments.is_some_and(|object| object.keys().all(|name| check_template_argument(name).is_ok())) {
            (*part).clone_into(&mut whole.template_arguments);
        } else if object.is_some() {
            whole.tools.list.push(Tool {
                name: format!("tool_{index}"),
                description: "d".into(),
                parameters: (*part).into(),
                strict: false,
            });
        } else {
            let role = [Role::User, Role::Assistant, Role::Tool, Role::System][index % 4];
            let mut message = Message::new(role, *part);
            let id = || format!("call_{}", index / 4);
            match role {
                Role::Assistant if part.len().is_multiple_of(2) => message.calls.push(ToolCall {
                    id: id(),
                    name: "tool_0".into(),
                    arguments: serde_json::json!({ *part: part }).to_string(),
                }),
                Role::Tool => message.call_id = Some(id()),
                _ => {}
            }
            whole.messages.push(message);
        }
    }
    if whole.messages.last().is_none_or(|last| !last.calls.is_empty()) {
        whole.messages.push(Message::new(Role::User, "?"));
    }
    whole
}

/// Every text between the control tokens of [`PLAIN`] and none within; the note is the last part.
fn check_known(parts: &[&str], data: &[u8]) {
    let (note, contents) = parts.split_last().map_or(("", parts), |(note, rest)| (*note, rest));
    // What Rust calls blank, the template's language does.
    let roles = [Role::System, Role::User];
    let message = |(index, content): (usize, &&str)| Message::new(roles[index % 2], *content);
    let mut whole = Conversation::from(contents.iter().enumerate().map(message).collect::<Vec<_>>());
    whole.template_arguments = serde_json::json!({ "note": note }).to_string();
    let ids = KNOWN.ids(&whole).unwrap_or_else(|error| panic!("{error}"));
    let mut wanted = Vec::new();
    let control = |name: &str| CONTROLS.iter().position(|control| *control == name).unwrap_or_default();
    for content in contents {
        wanted.push(Shown::Control(control("<|im_start|>")));
        wanted.push(Shown::Text(content.as_bytes().to_vec()));
        wanted.push(Shown::Control(control("<end>")));
        wanted.push(Shown::Text(format!("{}|im_end|>", content.trim()).into_bytes()));
    }
    wanted.push(Shown::Text(note.as_bytes().to_vec()));
    wanted.push(Shown::Control(control("<tool_call>")));
    wanted.push(Shown::Text(serde_json::Value::from(note).to_string().into_bytes()));
    same("a prompt", &shown(&ids), &joined(wanted), data);
}

#[derive(Debug, PartialEq)]
enum Shown {
    Text(Vec<u8>),
    Control(usize),
}

/// A prompt, read again.
fn shown(ids: &[u32]) -> Vec<Shown> {
    joined(ids.iter().map(|&id| match id {
        FIRST_CONTROL.. => Shown::Control((id - FIRST_CONTROL) as usize),
        id => Shown::Text(KNOWN.bytes(id).to_vec()),
    }))
}

/// Neighbouring texts as one, empty ones left out.
fn joined(parts: impl IntoIterator<Item = Shown>) -> Vec<Shown> {
    let mut out: Vec<Shown> = Vec::new();
    for part in parts {
        match (out.last_mut(), part) {
            (_, Shown::Text(text)) if text.is_empty() => {}
            (Some(Shown::Text(before)), Shown::Text(text)) => before.extend(text),
            (_, part) => out.push(part),
        }
    }
    out
}
