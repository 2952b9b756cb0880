//! Tools and their calls in the shape that chat templates expect, and which format of calls a template writes.
//!
//! The format is found out by rendering a conversation with a call and looking at what stands around it, not by the
//! model's name. Invariants: every text of a client that is handed to a template went through [`Structured::guard`]; a
//! format that is not known for certain is not used, [`crate::calls::text`] tells the model of its tools instead.

use std::{borrow::Cow, collections::HashMap};

use serde_json::{Map, Value, json};

use super::{
    template::{Template, TemplateMessage, Told, check_template_argument},
    vocabulary::Control,
};
use crate::{
    calls::{self, Fault, Format, Style, grammar},
    job::{Conversation, Message, Part, Role},
};

/// Whether a conversation has tools to offer, calls or results.
pub(super) fn has_any(conversation: &Conversation) -> bool {
    let with_calls = |message: &Message| message.role == Role::Tool || !message.calls.is_empty();
    calls::may_call(&conversation.tools) || conversation.messages.iter().any(with_calls)
}

/// What of a conversation is more than a role and a text.
#[derive(Default)]
pub(super) struct Structured {
    tools: Vec<Value>,
    /// One for each message; empty if no message has any.
    messages: Vec<Extra>,
    /// For the template itself.
    arguments: Map<String, Value>,
    /// Bytes of all texts in them, with what JSON writes around each.
    bytes: usize,
}

#[derive(Default)]
struct Extra {
    calls: Vec<Value>,
    call_id: Option<String>,
    name: Option<String>,
}

impl Structured {
    /// Reads tools and calls. Their JSON was written by a client, so it may be wrong.
    pub(super) fn read(conversation: &Conversation, style: Style) -> Result<Self, Fault> {
        let arguments = arguments(&conversation.template_arguments).map_err(|why| (Part::TemplateArguments, why))?;
        if !has_any(conversation) {
            return Ok(Self {
                arguments,
                ..Self::default()
            });
        }
        let mut tools = Vec::new();
        if calls::may_call(&conversation.tools) {
            for (index, tool) in conversation.tools.list.iter().enumerate() {
                let mut parameters = grammar::parameters(tool).map_err(|reason| (Part::Tool(index), reason))?;
                // Templates walk over them.
                if !parameters.contains_key("$ref") && !parameters.contains_key("properties") {
                    parameters.insert("properties".into(), Value::Object(Map::new()));
                }
                let function = json!({"name": tool.name, "description": tool.description, "parameters": parameters});
                tools.push(json!({"type": "function", "function": function}));
            }
        }
        let mut ids = Ids::new(style);
        let messages: Result<Vec<Extra>, Fault> = conversation
            .messages
            .iter()
            .map(|message| Extra::read(message, &mut ids))
            .collect();
        Ok(Self {
            tools,
            messages: messages?,
            arguments,
            bytes: 0,
        })
    }

    /// All texts of the client's, keys of objects included.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let mut texts = Vec::new();
        let extras = &self.messages;
        let calls = extras.iter().flat_map(|extra| &extra.calls);
        for value in self.tools.iter().chain(calls).chain(self.arguments.values()) {
            collect(value, &mut texts);
        }
        for extra in extras {
            texts.extend(extra.call_id.as_deref());
            texts.extend(extra.name.as_deref());
        }
        texts.into_iter()
    }

    /// Protects every text by `guard`. The few words that templates look for stay as they are, and arguments that are words
    /// of this one; the names of arguments are plain and not shown.
    pub(super) fn guard(&mut self, template: &Template, guard: impl Fn(&str) -> Cow<'_, str>) {
        let mut bytes = 0;
        let mut protect = |text: &mut String| {
            bytes += text.len() + 8;
            if !calls::is_known_word(text)
                && let Cow::Owned(guarded) = guard(text)
            {
                *text = guarded;
            }
        };
        let extras = &mut self.messages;
        let calls = extras.iter_mut().flat_map(|extra| &mut extra.calls);
        let shown = |value: &&mut Value| !value.as_str().is_some_and(|text| template.knows(text));
        let arguments = self.arguments.values_mut().filter(shown);
        for value in self.tools.iter_mut().chain(calls).chain(arguments) {
            change(value, &mut protect);
        }
        for extra in extras {
            extra.call_id.iter_mut().for_each(&mut protect);
            extra.name.iter_mut().for_each(&mut protect);
        }
        self.bytes = bytes;
    }

    /// What a template is told beside the messages.
    pub(super) fn told(&self) -> Told<'_> {
        Told {
            tools: &self.tools,
            arguments: &self.arguments,
            bytes: self.bytes,
        }
    }

    /// The message at `index` with what it has beside its text.
    pub(super) fn message<'a>(&'a self, index: usize, role: Role, content: &'a str) -> TemplateMessage<'a> {
        let mut message = TemplateMessage::new(role, content);
        if let Some(extra) = self.messages.get(index) {
            message.tool_calls = &extra.calls;
            message.tool_call_id = extra.call_id.as_deref();
            message.name = extra.name.as_deref();
        }
        message
    }
}

/// Reads the arguments of a template.
fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    let arguments: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match arguments
        .keys()
        .find_map(|name| check_template_argument(name).err().map(|rule| (name, rule)))
    {
        None => Ok(arguments),
        Some((name, rule)) => Err(format!("`{name}`: {rule}")),
    }
}

impl Extra {
    fn read(message: &Message, ids: &mut Ids) -> Result<Self, Fault> {
        let mut extra = Self::default();
        for call in &message.calls {
            let arguments = match call.arguments.trim() {
                "" => Value::Object(Map::new()),
                text => serde_json::from_str(text)
                    .ok()
                    .filter(Value::is_object)
                    .ok_or_else(|| {
                        let what = format!("the arguments of the call {:?} are not a JSON object", call.id);
                        (Part::Messages, what)
                    })?,
            };
            let id = ids.of(&call.id, Some(&call.name));
            let function = json!({"name": call.name, "arguments": arguments});
            extra
                .calls
                .push(json!({"id": id, "type": "function", "function": function}));
        }
        if message.role == Role::Tool {
            let id = message.call_id.as_deref().unwrap_or_default();
            extra.name = ids.names.get(id).cloned();
            extra.call_id = Some(ids.of(id, None));
        }
        Ok(extra)
    }
}

/// Ids of calls as the template takes them, and the tools behind them.
struct Ids {
    /// Mistral's templates take nothing but nine letters or digits.
    numbered: bool,
    numbers: HashMap<String, usize>,
    names: HashMap<String, String>,
}

impl Ids {
    fn new(style: Style) -> Self {
        Self {
            numbered: style == Style::Mistral,
            numbers: HashMap::new(),
            names: HashMap::new(),
        }
    }

    fn of(&mut self, id: &str, name: Option<&str>) -> String {
        if let Some(name) = name {
            self.names.insert(id.into(), name.into());
        }
        if !self.numbered {
            return id.into();
        }
        let next = self.numbers.len();
        format!("{:09}", self.numbers.entry(id.into()).or_insert(next))
    }
}

fn collect<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => out.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
        Value::Object(entries) => {
            for (key, value) in entries {
                out.push(key);
                collect(value, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn change(value: &mut Value, edit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => edit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| change(item, edit)),
        Value::Object(entries) => {
            let changed = std::mem::take(entries).into_iter().map(|(mut key, mut value)| {
                edit(&mut key);
                change(&mut value, edit);
                (key, value)
            });
            *entries = changed.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What the trial conversation says; each occurs nowhere in a template.
const LISTED: &str = "zerohop_listed";
const CALLED: &str = "zerohop_called";
const RESULT: &str = "zerohop_result";

/// The format of calls that a template writes.
pub(super) fn detect(template: &Template, controls: &[Control]) -> Format {
    let token = |spelling: Option<&str>| {
        let control = controls
            .iter()
            .find(|control| Some(control.spelling.as_str()) == spelling);
        control.map(|control| control.id)
    };
    match written(template) {
        Some(style) => Format {
            style,
            native: true,
            system: true,
            open: token(Some(style.open())),
            close: token(style.close()),
        },
        None => {
            let trial = [
                TemplateMessage::new(Role::System, LISTED),
                TemplateMessage::new(Role::User, "Hello"),
            ];
            let shown = template.render(&trial, Structured::default().told(), true);
            Format::fallback(shown.is_ok_and(|text| text.contains(LISTED)))
        }
    }
}

/// The style in which a template writes a call, if it also tells of tools and results.
fn written(template: &Template) -> Option<Style> {
    let parameters = json!({"type": "object", "properties": {}});
    let function = json!({"name": LISTED, "description": "", "parameters": parameters});
    let tools = [json!({"type": "function", "function": function})];
    let function = json!({"name": CALLED, "arguments": {"a": "b"}});
    let calls = [json!({"id": "000000000", "type": "function", "function": function})];
    let trial = [
        TemplateMessage::new(Role::User, "Hello"),
        TemplateMessage {
            tool_calls: &calls,
            ..TemplateMessage::new(Role::Assistant, "")
        },
        TemplateMessage {
            tool_call_id: Some("000000000"),
            name: Some(CALLED),
            ..TemplateMessage::new(Role::Tool, RESULT)
        },
    ];
    let with_tools = Structured {
        tools: tools.into(),
        ..Structured::default()
    };
    let listed = template.render(&trial[..1], with_tools.told(), true).ok()?;
    let shown = template.render(&trial, with_tools.told(), true).ok()?;
    if !listed.contains(LISTED) || !shown.contains(RESULT) {
        return None;
    }
    let dense: String = shown.split_whitespace().collect();
    // A result may name its tool again, so the first place is the call's.
    let (before, behind) = dense.split_once(CALLED)?;
    let before = before.strip_suffix("{\"name\":\"")?;
    if before.ends_with("<tool_call>") {
        behind
            .starts_with("\",\"arguments\":{\"a\":\"b\"}}</tool_call>")
            .then_some(Style::Hermes)
    } else if before.ends_with("[TOOL_CALLS][") {
        behind
            .starts_with("\",\"arguments\":{\"a\":\"b\"}")
            .then_some(Style::Mistral)
    } else {
        behind
            .starts_with("\",\"parameters\":{\"a\":\"b\"}}")
            .then_some(Style::Llama)
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
