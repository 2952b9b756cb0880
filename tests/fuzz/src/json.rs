//! A JSON tree that keeps entries in order and twice the same key, read by serde_json, and the same document spelled anew.
//!
//! Invariant: [`respelled`] differs from the document in white space and escapes only.

use std::fmt::Write;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
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
            Self::Number(number) => number.as_f64(),
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

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Json::Object(entries))
    }
}

/// The document with blanks wherever they may stand and every character that can be escaped so written. `None` if it has a
/// negative zero: whether that was written as an integer is not known any more.
pub(crate) fn respelled(json: &Json) -> Option<String> {
    let mut out = String::new();
    spell(json, &mut out);
    (!out.contains("-0.0\r")).then_some(out)
}

fn spell(json: &Json, out: &mut String) {
    out.push_str(" \n");
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => out.push_str(&number.to_string()),
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
