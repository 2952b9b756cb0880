//! A JSON tree that keeps entries in order, twice the same key, and numbers as they were written; and the same document
//! spelled anew.
//!
//! Nothing here decides what is JSON: that is serde_json's part. Invariant: [`respelled`] differs from the document in white
//! space and escapes only.

use std::fmt::Write;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// As written: serde_json would round it, and not always to the nearest.
    Number(String),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Reads a document.
    pub(crate) fn read(document: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice::<serde_json::Value>(document)?;
        let text = std::str::from_utf8(document).unwrap_or_else(|error| panic!("{error}"));
        Ok(Reader { text, at: 0 }.value())
    }

    /// The last entry of this name, unless it is null.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(entries) = self else { return None };
        let found = entries
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value);
        found.filter(|value| **value != Self::Null)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn float(&self) -> Option<f64> {
        match self {
            Self::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        *self == Self::Bool(true)
    }

    /// Levels of lists and objects.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}

/// Reads what is known to be JSON.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Json {
        match self.peek() {
            b'{' => Json::Object(self.items(|this| {
                let key = this.string();
                this.eat(b':');
                (key, this.value())
            })),
            b'[' => Json::List(self.items(Self::value)),
            b'"' => Json::Text(self.string()),
            _ => match self.word() {
                "null" => Json::Null,
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                number => Json::Number(number.to_owned()),
            },
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> u8 {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\r', '\n']);
        self.at = self.text.len() - rest.len();
        rest.as_bytes()[0]
    }

    fn eat(&mut self, byte: u8) {
        assert_eq!(self.peek(), byte, "what serde_json takes for JSON is none");
        self.at += 1;
    }

    /// Everything between two brackets.
    fn items<T>(&mut self, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        self.at += 1;
        let mut items = Vec::new();
        while !matches!(self.peek(), b']' | b'}') {
            items.push(item(self));
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        items
    }

    fn string(&mut self) -> String {
        self.peek();
        let rest = &self.text[self.at..];
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let end = end.map_or(rest.len(), |end| end + 2);
        self.at += end;
        serde_json::from_str(&rest[..end]).unwrap_or_else(|error| panic!("{error} in {rest}"))
    }

    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }
}

/// The document with blanks wherever they may stand and every character that can be escaped so written.
pub(crate) fn respelled(json: &Json) -> String {
    let mut out = String::new();
    spell(json, &mut out);
    out
}

fn spell(json: &Json, out: &mut String) {
    out.push_str(" \n");
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => out.push_str(number),
        Json::Text(text) => spell_text(text, out),
        Json::List(items) => {
            let mut before = '[';
            for item in items {
                out.push(before);
                spell(item, out);
                before = ',';
            }
            out.push_str(if items.is_empty() { "[ ]" } else { "]" });
        }
        Json::Object(entries) => {
            let mut before = '{';
            for (key, value) in entries {
                out.push(before);
                out.push('\t');
                spell_text(key, out);
                out.push_str(" :");
                spell(value, out);
                before = ',';
            }
            out.push_str(if entries.is_empty() { "{ }" } else { "}" });
        }
    }
    out.push_str("\r ");
}

fn spell_text(text: &str, out: &mut String) {
    out.push('"');
    for unit in text.encode_utf16() {
        write!(out, "\\u{unit:04X}").unwrap_or_default();
    }
    out.push('"');
}
