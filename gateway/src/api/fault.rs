//! What is wrong with a body, where, and how each vendor says it.
//!
//! Costs nothing until a fault is found: a [`Path`] is a chain on the stack. Invariant: the text names the place, never
//! more than [`SHOWN`] bytes of what the client wrote there.

use std::fmt::Write as _;

use super::{Dialect, tape::Json};
use crate::error::{ApiError, ErrorKind};

/// How much of a client's own text a message repeats.
const SHOWN: usize = 64;

/// A place in the body.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// This place is wrong in this way.
    #[cold]
    pub(crate) fn is(&self, what: What) -> Fault {
        Fault {
            path: self.to_string(),
            what,
        }
    }

    /// This place holds `got`, which is not `expected`.
    #[cold]
    pub(crate) fn is_not(&self, expected: Expected, got: Json<'_>) -> Fault {
        self.is(What::Type(expected, kind_of(got)))
    }

    /// This place breaks a rule that the phrase states.
    #[cold]
    pub(crate) fn breaks(&self, rule: &'static str) -> Fault {
        self.is(What::Rule(rule))
    }
}

/// `messages.0.content`
impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parent = match self {
            Path::Root => return Ok(()),
            Path::Key(parent, _) | Path::Index(parent, _) => parent,
        };
        if !matches!(parent, Path::Root) {
            write!(f, "{parent}.")?;
        }
        match self {
            Path::Key(_, key) => f.write_str(&shown(key)),
            Path::Index(_, index) => write!(f, "{index}"),
            Path::Root => Ok(()),
        }
    }
}

/// The types that a field may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Bool,
    Int,
    Number,
    Str,
    Array,
    Object,
    /// A string or a list of strings.
    Strings,
    /// A string or a list of blocks (Anthropic), parts (OpenAI).
    Content,
    /// A word or an object.
    Choice,
    /// A text, or a list of texts or tokens.
    Prompt,
    /// What can be embedded.
    Inputs,
}

/// The ways in which a place can be wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// The body is not JSON, at this byte.
    Syntax(&'static str, usize),
    /// A required field is not there.
    Missing,
    /// Another type; the second is what was found, with its article.
    Type(Expected, &'static str),
    /// Not one of these; the second is what was found.
    OneOf(&'static [&'static str], String),
    /// Below this; the second is what was found.
    Below(i64, String),
    /// Above this; the second is what was found.
    Above(i64, String),
    /// A number with a fraction where an integer is wanted.
    Fraction,
    /// A field that later versions may honour.
    FieldNotYet,
    /// A value that later versions may honour.
    ValueNotYet(String),
    /// A field that nobody knows, where that matters.
    Extra,
    /// A field given twice.
    Duplicate,
    /// Anything else, as a phrase.
    Rule(&'static str),
}

/// Something wrong at a place, before a dialect has words for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) path: String,
    pub(crate) what: What,
}

impl Fault {
    /// The body as a whole breaks a rule.
    #[cold]
    pub(crate) fn at_root(rule: &'static str) -> Self {
        Path::Root.breaks(rule)
    }

    /// The answer to the client.
    #[cold]
    pub(crate) fn into_error(self, dialect: Dialect) -> ApiError {
        let message = match dialect {
            Dialect::Anthropic => anthropic(&self),
            Dialect::OpenAi => openai(&self),
        };
        let mut error = ApiError::new(ErrorKind::InvalidRequest, message);
        error.param = Some(self.path).filter(|path| !path.is_empty());
        error
    }
}

/// `PATH: Phrase`, as the Messages API has it.
fn anthropic(fault: &Fault) -> String {
    let said = match &fault.what {
        What::Syntax(reason, at) if fault.path.is_empty() => {
            format!("The request body is not valid JSON: {reason} at byte {at}")
        }
        What::Syntax(reason, at) => format!("Invalid JSON: {reason} at byte {at}"),
        What::Missing => "Field required".into(),
        What::Type(expected, _) => format!("Input should be {}", valid(*expected)),
        What::OneOf(names, _) => format!("Input should be {}", list(names, " or ")),
        What::Below(bound, _) => format!("Input should be greater than or equal to {bound}"),
        What::Above(bound, _) => format!("Input should be less than or equal to {bound}"),
        What::Fraction => "Input should be a valid integer, got a number with a fractional part".into(),
        What::FieldNotYet => "This field is not supported yet".into(),
        What::ValueNotYet(value) => format!("'{}' is not supported yet", shown(value)),
        What::Extra => "Extra inputs are not permitted".into(),
        What::Duplicate => "Field given more than once".into(),
        What::Rule(rule) => (*rule).into(),
    };
    match (&fault.what, fault.path.is_empty()) {
        (What::Rule(_), true) => format!("The request body {said}"),
        (_, true) => said,
        (_, false) => format!("{}: {said}", fault.path),
    }
}

/// A sentence that quotes the parameter, as the Chat Completions API has it.
fn openai(fault: &Fault) -> String {
    let path = &brackets(&fault.path);
    match &fault.what {
        What::Syntax(reason, at) if path.is_empty() => {
            format!("We could not parse the JSON body of your request: {reason} at byte {at}.")
        }
        What::Syntax(reason, at) => {
            format!("We could not parse the JSON body of your request: {reason} at byte {at}, in '{path}'.")
        }
        What::Missing => format!("Missing required parameter: '{path}'."),
        What::Type(expected, got) if path.is_empty() => {
            format!(
                "Invalid type for the request body: expected {}, but got {got} instead.",
                wanted(*expected)
            )
        }
        What::Type(expected, got) => {
            format!(
                "Invalid type for '{path}': expected {}, but got {got} instead.",
                wanted(*expected)
            )
        }
        What::OneOf(names, got) => {
            format!(
                "Invalid value: '{}'. Supported values are: {}.",
                shown(got),
                list(names, " and ")
            )
        }
        What::Below(bound, got) => {
            format!("Invalid '{path}': value below the minimum. Expected a value >= {bound}, but got {got} instead.")
        }
        What::Above(bound, got) => {
            format!("Invalid '{path}': value above the maximum. Expected a value <= {bound}, but got {got} instead.")
        }
        What::Fraction => format!("Invalid type for '{path}': expected an integer, but got a decimal instead."),
        What::FieldNotYet => format!("Unsupported parameter: '{path}' is not supported yet."),
        What::ValueNotYet(value) => format!("Unsupported value: '{path}' does not support '{}' yet.", shown(value)),
        What::Extra => format!("Unrecognized request argument supplied: {path}"),
        What::Duplicate => format!("Duplicate parameter: '{path}'."),
        What::Rule(rule) if path.is_empty() => format!("Invalid request: the body {rule}."),
        What::Rule(rule) => format!("Invalid '{path}': {rule}."),
    }
}

/// `messages.0.content` as `messages[0].content`, the way OpenAI writes a path.
pub(crate) fn brackets(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 4);
    for part in path.split('.') {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            let _ = write!(out, "[{part}]");
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(part);
        }
    }
    out
}

fn valid(expected: Expected) -> &'static str {
    match expected {
        Expected::Bool => "a valid boolean",
        Expected::Int => "a valid integer",
        Expected::Number => "a valid number",
        Expected::Str => "a valid string",
        Expected::Array => "a valid array",
        Expected::Object => "an object",
        Expected::Strings => "a valid string or an array of strings",
        Expected::Content => "a valid string or an array of content blocks",
        Expected::Choice => "a valid string or an object",
        Expected::Prompt => "a valid string or an array of strings or tokens",
        Expected::Inputs => "a valid string, an array of strings, or arrays of tokens",
    }
}

fn wanted(expected: Expected) -> &'static str {
    match expected {
        Expected::Bool => "a boolean",
        Expected::Int => "an integer",
        Expected::Number => "a decimal",
        Expected::Str => "a string",
        Expected::Array => "an array",
        Expected::Object => "an object",
        Expected::Strings => "one of a string or an array of strings",
        Expected::Content => "one of a string or an array of objects",
        Expected::Choice => "one of a string or an object",
        Expected::Prompt => "a string or an array of strings or integers",
        Expected::Inputs => "one of a string, an array of strings, or arrays of tokens",
    }
}

fn kind_of(json: Json<'_>) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Int(_) => "an integer",
        Json::Float(_) => "a decimal",
        Json::Str(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

/// `'a', 'b' or 'c'`
fn list(names: &[&str], last: &str) -> String {
    let mut out = String::new();
    for (index, name) in names.iter().enumerate() {
        let before = match index {
            0 => "",
            index if index + 1 == names.len() => last,
            _ => ", ",
        };
        let _ = write!(out, "{before}'{name}'");
    }
    out
}

/// A client's own text, cut to [`SHOWN`] bytes.
pub(crate) fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= SHOWN {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(SHOWN)]).into()
}
