//! Calls of tools: the format in which a model writes them, the grammar that holds it to that format, and the way back
//! from text to calls.
//!
//! Nothing here knows a tokenizer, a template or a sequence; [`crate::model`] finds out which format a model uses.
//! Invariant: what [`form`] allows, [`split::Splitter`] takes apart into calls of the request's own tools.

pub(crate) mod grammar;
pub(crate) mod split;
pub(crate) mod text;

use std::{collections::HashSet, fmt};

use serde_json::Value;

use crate::job::{Form, Part, ToolChoice, Tools};

/// How calls are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `<tool_call>`, an object with `name` and `arguments`, `</tool_call>`; as often as wanted (Hermes, Qwen).
    Hermes,
    /// The whole answer is one object with `name` and `parameters`, perhaps behind `<|python_tag|>` (Llama 3).
    Llama,
    /// `[TOOL_CALLS]` and a list of objects with `name` and `arguments` (Mistral).
    Mistral,
}

impl Style {
    /// What begins a call.
    pub(crate) fn open(self) -> &'static str {
        match self {
            Self::Hermes => "<tool_call>",
            Self::Llama => "<|python_tag|>",
            Self::Mistral => "[TOOL_CALLS]",
        }
    }

    /// What ends a call, where something does.
    pub(crate) fn close(self) -> Option<&'static str> {
        (self == Self::Hermes).then_some("</tool_call>")
    }

    /// The key of a call's arguments.
    pub(crate) fn arguments(self) -> &'static str {
        match self {
            Self::Hermes | Self::Mistral => "arguments",
            Self::Llama => "parameters",
        }
    }
}

/// How a model's calls are written, and who tells it of its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) style: Style,
    /// The chat template writes tools, calls and results; otherwise [`text`] does.
    pub(crate) native: bool,
    /// Without a native template: it has a place for a system message.
    pub(crate) system: bool,
    /// The token of [`Style::open`], where that is a control token and no text.
    pub(crate) open: Option<u32>,
    /// The token of [`Style::close`], likewise.
    pub(crate) close: Option<u32>,
}

impl Format {
    /// For a template that knows no tools: everything is text.
    pub(crate) fn fallback(system: bool) -> Self {
        Self {
            style: Style::Hermes,
            native: false,
            system,
            open: None,
            close: None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = match self.style {
            Style::Hermes => "Hermes, <tool_call>{\"name\", \"arguments\"}</tool_call>",
            Style::Llama => "Llama 3, one {\"name\", \"parameters\"} an answer",
            Style::Mistral => "Mistral, [TOOL_CALLS][{\"name\", \"arguments\"}]",
        };
        match self.native {
            true => write!(f, "written by the chat template ({style})"),
            false => write!(f, "told in a system text, since the chat template knows none ({style})"),
        }
    }
}

/// What of the tools cannot be served, and why.
pub(crate) type Fault = (Part, String);

/// Checks what the rest of this crate takes for granted: tools have different names and parameters that are a JSON Schema
/// of an object, and a tool that must be called is there.
pub(crate) fn check(tools: &Tools) -> Result<(), Fault> {
    let mut names = HashSet::new();
    for (index, tool) in tools.list.iter().enumerate() {
        let fault = |reason: &str| (Part::Tool(index), reason.to_owned());
        if tool.name.is_empty() {
            return Err(fault("the tool has no name"));
        }
        if !names.insert(tool.name.as_str()) {
            return Err(fault("another tool has the same name"));
        }
        grammar::parameters(tool).map_err(|reason| fault(&reason))?;
    }
    match &tools.choice {
        ToolChoice::Named(name) if !names.contains(name.as_str()) => {
            Err((Part::ToolChoice, "no tool has this name".into()))
        }
        ToolChoice::Required if tools.list.is_empty() => Err((Part::ToolChoice, "there are no tools to call".into())),
        _ => Ok(()),
    }
}

/// The form of an answer in which these tools may be called, and whose text has the form `text`; `None` if no tool may be
/// called, so that `text` alone is the form. See [`grammar`].
///
/// # Errors
/// A tool or a form that cannot be part of the grammar. That the constraint engine can guarantee the schemas is not
/// known before it compiled the form; each tool's share of it is [`grammar::schema`].
pub(crate) fn form(tools: &Tools, format: &Format, text: &Form) -> Result<Option<Form>, Fault> {
    check(tools)?;
    if !may_call(tools) {
        return Ok(None);
    }
    grammar::grammar(tools, format, text).map(|lark| Some(Form::Grammar(lark)))
}

/// Whether an answer can hold a call.
pub(crate) fn may_call(tools: &Tools) -> bool {
    !tools.list.is_empty() && tools.choice != ToolChoice::None
}

/// Whether this is one of the words that templates look for in tools and calls: keys of theirs and of JSON Schema.
pub(crate) fn is_known_word(text: &str) -> bool {
    const WORDS: [&str; 19] = [
        "arguments",
        "array",
        "boolean",
        "default",
        "description",
        "enum",
        "function",
        "id",
        "integer",
        "items",
        "name",
        "null",
        "number",
        "object",
        "parameters",
        "properties",
        "required",
        "string",
        "type",
    ];
    WORDS.binary_search(&text).is_ok()
}

/// JSON as Python's `json.dumps` writes it, which is what models were trained on.
pub(crate) fn python_json(value: &Value) -> String {
    use serde::Serialize as _;
    let mut out = Vec::new();
    let style = crate::model::PythonStyle::one_line();
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, style));
    // Writing a value to memory cannot fail, and JSON is UTF-8.
    debug_assert!(written.is_ok());
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod sequence_tests;
