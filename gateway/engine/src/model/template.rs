//! A model's chat template: messages to one text, in the Jinja dialect that model makers write.
//!
//! A template is data from the model's maker: it runs within a budget of steps and output, sees nothing but the
//! messages and the names of a few tokens, and can load nothing. Invariant: rendering never blocks and never panics;
//! the worst it does is to refuse.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use minijinja::{
    Environment, Error, ErrorKind, Value,
    syntax::SyntaxConfig,
    value::{Kwargs, Serde},
};
use serde::Serialize;

/// Steps (and 64-byte units of memory) of one rendering. A long conversation through the longest template known to us
/// takes about 60 a message; this is enough for 80,000 messages and ends a runaway loop within a second.
const FUEL: u64 = 5_000_000;

/// Bytes that a template may add to the messages' own, for each of them.
const OUTPUT_PER_MESSAGE: usize = 64 << 10;

/// Names that a template has already: what it is told, and functions and words of its language.
const RESERVED: [&str; 22] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "chat_template",
    "conversation",
    "tokenize",
    "return_dict",
    "raise_exception",
    "strftime_now",
    "namespace",
    "range",
    "dict",
    "debug",
    "loop",
    "self",
    "super",
    "caller",
];

/// Whether a chat template may be given an argument with this name.
///
/// # Errors
/// The rule that it breaks, as the end of a sentence.
pub fn check_template_argument(name: &str) -> Result<(), &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
        return Err("a name must be 1 to 64 letters, digits and underscores, and not begin with a digit");
    }
    match RESERVED.contains(&name) {
        true => Err("this name is reserved: the chat template has it already"),
        false => Ok(()),
    }
}

/// What a template is told beside the messages: all that a client wrote already protected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    /// In OpenAI's shape; none if there are none.
    pub(super) tools: &'a [serde_json::Value],
    /// By names that [`check_template_argument`] takes.
    pub(super) arguments: &'a serde_json::Map<String, serde_json::Value>,
    /// Bytes of all that is structured: tools, calls and arguments.
    pub(super) bytes: usize,
}

/// A message as the template sees it: all that a client wrote already protected by [`super::prompt`].
#[derive(Serialize)]
pub(super) struct TemplateMessage<'a> {
    pub(super) role: crate::Role,
    pub(super) content: &'a str,
    /// In OpenAI's shape, but for the arguments, which are an object.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) tool_calls: &'a [serde_json::Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
}

impl<'a> TemplateMessage<'a> {
    /// A message of text alone.
    pub(super) fn new(role: crate::Role, content: &'a str) -> Self {
        Self {
            role,
            content,
            tool_calls: &[],
            tool_call_id: None,
            name: None,
        }
    }
}

/// Names that templates may use.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct TokenNames {
    pub(super) bos_token: String,
    pub(super) eos_token: String,
    pub(super) pad_token: String,
    pub(super) unk_token: String,
}

/// A compiled template.
pub(super) struct Template {
    environment: Environment<'static>,
    source: String,
    names: TokenNames,
}

const NAME: &str = "chat_template";

impl Template {
    /// Compiles `source`.
    ///
    /// # Errors
    /// The template's fault with its line, in one line.
    pub(super) fn compile(source: &str, names: TokenNames) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| one_line(&error))?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, without_generation_marks(source))
            .map_err(|error| one_line(&error))?;
        Ok(Self {
            environment,
            source: source.into(),
            names,
        })
    }

    /// Whether it has this text as a literal, perhaps to compare an argument with.
    pub(super) fn knows(&self, text: &str) -> bool {
        let quoted = |quote: char| self.source.contains(&format!("{quote}{text}{quote}"));
        text.len() <= 64 && (quoted('\'') || quoted('"'))
    }

    /// The text of `messages` and of what is `told` beside them; with `opens_answer`, up to where the model begins to write.
    ///
    /// # Errors
    /// The template's own message (`raise_exception`), or that it exceeded its budget.
    pub(super) fn render(
        &self,
        messages: &[TemplateMessage<'_>],
        told: Told<'_>,
        opens_answer: bool,
    ) -> Result<String, String> {
        #[derive(Serialize)]
        struct Context<'a> {
            messages: &'a [TemplateMessage<'a>],
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            tools: &'a [serde_json::Value],
            add_generation_prompt: bool,
            #[serde(flatten)]
            names: &'a TokenNames,
            #[serde(flatten)]
            arguments: &'a serde_json::Map<String, serde_json::Value>,
        }
        let contents: usize = messages.iter().map(|message| message.content.len()).sum();
        let mut out = Limited {
            bytes: Vec::with_capacity(contents + 64 * messages.len()),
            // A message's text can be written as JSON too, where each byte becomes at most six.
            limit: contents + 6 * told.bytes + OUTPUT_PER_MESSAGE * (messages.len() + 1),
        };
        let context = Value::from(Serde(Context {
            messages,
            tools: told.tools,
            add_generation_prompt: opens_answer,
            names: &self.names,
            arguments: told.arguments,
        }));
        let template = self.environment.get_template(NAME).map_err(|error| one_line(&error))?;
        template
            .render_captured_to(context, &mut out)
            .map_err(|error| one_line(&error))?;
        String::from_utf8(out.bytes).map_err(|_| "the template wrote invalid UTF-8".into())
    }
}

/// A buffer with an end.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(io::Error::other("the template writes too much"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A template's error with its place; the message of `raise_exception` alone.
fn one_line(error: &Error) -> String {
    let mut text = match (error.kind(), error.detail()) {
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    };
    if let Some(source) = std::error::Error::source(error) {
        let _ = write!(text, ": {source}");
    }
    if let Some(line) = error.line() {
        let _ = write!(text, " (line {line})");
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Training marks around what the model writes have no meaning here, and no counterpart in the engine: they become
/// conditions that always hold.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open + 2);
        out.push_str(before);
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        let replacement = [("generation", "if true"), ("endgeneration", "endif")]
            .into_iter()
            .find_map(|(mark, replacement)| Some((word.strip_prefix(mark)?, replacement)))
            .filter(|(behind, _)| behind.trim_start().trim_start_matches(['-', '+']).starts_with("%}"));
        rest = match replacement {
            Some((behind, replacement)) => {
                out.push_str(&tag[..tag.len() - word.len()]);
                out.push_str(replacement);
                behind
            }
            None => tag,
        };
    }
    out.push_str(rest);
    out
}

// The signature is the template engine's.
#[allow(clippy::needless_pass_by_value)]
fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// JSON as Python's `json.dumps` writes it, which is what models were trained on: `", "` and `": "`, keys in order, not
/// escaped for HTML.
#[allow(clippy::needless_pass_by_value)]
fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let invalid = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut json = serde_json::to_value(Serde(&value).0).map_err(invalid)?;
    if sort_keys.unwrap_or(false) {
        json.sort_all_objects();
    }
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators are two texts")),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let style = PythonStyle {
        item,
        key,
        indent: indent.map(|n| n.min(32)),
        depth: 0,
        filled: false,
        ensure_ascii: ensure_ascii.unwrap_or(false),
    };
    let mut out = Vec::new();
    json.serialize(&mut serde_json::Serializer::with_formatter(&mut out, style))
        .map_err(invalid)?;
    String::from_utf8(out).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// Separators and line breaks of Python's `json.dumps`.
pub(crate) struct PythonStyle {
    item: String,
    key: String,
    indent: Option<usize>,
    depth: usize,
    filled: bool,
    ensure_ascii: bool,
}

impl PythonStyle {
    /// In one line, as by default.
    pub(crate) fn one_line() -> Self {
        Self {
            item: ", ".into(),
            key: ": ".into(),
            indent: None,
            depth: 0,
            filled: false,
            ensure_ascii: false,
        }
    }

    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        match self.indent {
            Some(indent) => write!(out, "\n{:width$}", "", width = indent * self.depth),
            None => Ok(()),
        }
    }

    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if std::mem::replace(&mut self.filled, true) {
            self.line(out)?;
        }
        out.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.filled = true;
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.line(out)
    }
}

impl serde_json::ser::Formatter for PythonStyle {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }
    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }
    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        if !self.ensure_ascii {
            return out.write_all(text.as_bytes());
        }
        for character in text.chars() {
            // What divides a client's text from control tokens is no text itself.
            if character.is_ascii() || super::prompt::is_unusual(character) {
                write!(out, "{character}")?;
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

/// The time now, in UTC, as `format` says: the directives that templates use.
#[allow(clippy::needless_pass_by_value)]
fn strftime_now(format: String) -> Result<String, Error> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    strftime(&format, now).map_err(|directive| {
        let message = format!("strftime_now: the directive %{directive} is not supported");
        Error::new(ErrorKind::InvalidOperation, message)
    })
}

/// `format` at `seconds` since 1970 (UTC). The error is the unknown directive.
fn strftime(format: &str, seconds: u64) -> Result<String, String> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[(days % 7) as usize]);
    let hour = second / 3600;
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let directive = characters.next();
        let _ = match directive {
            Some('Y') => write!(out, "{year:04}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('e') => write!(out, "{day:2}"),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('A') => write!(out, "{day_name}"),
            Some('a') => write!(out, "{}", &day_name[..3]),
            Some('H') => write!(out, "{hour:02}"),
            Some('I') => write!(out, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('M') => write!(out, "{:02}", second / 60 % 60),
            Some('S') => write!(out, "{:02}", second % 60),
            Some('Z') => write!(out, "UTC"),
            Some('%') => write!(out, "%"),
            other => return Err(other.map_or_else(String::new, String::from)),
        };
    }
    Ok(out)
}

/// Year, month and day of a number of days since 1970-01-01 (the proleptic Gregorian calendar, by eras of 400 years
/// that begin on 1 March).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
