//! The YAML document as a tree in which each node knows its place.
//!
//! No key has a meaning here. Invariant: the tree is finite and small: depth, nodes and what aliases expand to are
//! bounded before it is built.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Error, Location, Spanned};

use super::problem::Place;

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Nothing: `null`, `~` or an empty value.
    Null,
    /// `true` or `false`; `yes`, `on` and their like are text.
    Bool(bool),
    /// A whole number.
    Whole(i128),
    /// A number with a fraction or an exponent.
    Real(f64),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file; no key occurs twice.
    Section(Vec<Entry>),
}

/// A value and the place where it begins (where an alias stands, for an aliased one).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// One pair of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Node,
    pub(super) node: Node,
}

/// The document is not YAML, or not YAML that we take.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotYaml {
    pub(super) place: Place,
    pub(super) text: String,
}

/// Reads a document. An empty one is [`Value::Null`].
pub(super) fn read(text: &str) -> Result<Node, NotYaml> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_nodes: 100_000,
            max_events: 400_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        // `mode: off` is the word, as YAML 1.2 has it.
        strict_booleans: true,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| NotYaml {
        place: place(error.location().unwrap_or(Location::UNKNOWN)),
        text: explain(&error),
    })
}

const TOO_MUCH: &str = "the document is nested too deeply or too large for a configuration";

/// What the user reads about a document that is not YAML; the place is told elsewhere.
fn explain(error: &Error) -> String {
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("`{key}` stands twice in this section: keep one")
        }
        Error::DuplicateMappingKey { key: None, .. } => "a key stands twice in this section: keep one".into(),
        Error::MultipleDocuments { .. } => "a second document begins here: a configuration is one document".into(),
        Error::UnknownAnchor { .. } => "this alias (`*name`) refers to no anchor (`&name`) above it".into(),
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => {
            TOO_MUCH.into()
        }
        Error::InvalidScalar { .. } | Error::BinaryNotUtf8 { .. } | Error::InvalidBinaryBase64 { .. } => {
            "this value does not fit its tag (`!!type`): remove the tag".into()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "this alias stands inside the anchor that it refers to: write the value out".into()
        }
        // The parser's own guard, which comes before ours for brackets.
        Error::ExternalMessage { msg, .. } if msg.contains("recursion limit") => TOO_MUCH.into(),
        Error::AliasError { error, .. } => explain(error),
        Error::Message { msg, .. } | Error::ExternalMessage { msg, .. } => format!("this is not valid YAML: {msg}"),
        other => {
            let text = other.to_string();
            let text = text.lines().next().unwrap_or_default();
            let text = text.split(" at line ").next().unwrap_or(text);
            format!("this is not valid YAML: {text}")
        }
    }
}

/// A place that exists even when the parser knows none.
fn place(location: Location) -> Place {
    let at_least_1 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    Place {
        line: at_least_1(location.line()),
        column: at_least_1(location.column()),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            place: place(spanned.referenced),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a section")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Whole(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Whole(v.into()))
    }

    fn visit_i128<E>(self, v: i128) -> Result<Value, E> {
        Ok(Value::Whole(v))
    }

    fn visit_u128<E>(self, v: u128) -> Result<Value, E> {
        // Beyond every bound of ours either way.
        Ok(Value::Whole(i128::try_from(v).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Real(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::Text(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = seq.next_element()? {
            list.push(node);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key()? {
            let node = map.next_value()?;
            entries.push(Entry { key, node });
        }
        Ok(Value::Section(entries))
    }
}

/// How a message names a value.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Whole(v) => write!(f, "{v}"),
            Self::Real(v) => write!(f, "{v}"),
            Self::Text(v) => write!(f, "{}", quoted(v)),
            Self::List(_) => f.write_str("a list"),
            Self::Section(_) => f.write_str("a section"),
        }
    }
}

/// Text of the file in a message: in quotes, and cut when it is long.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        None => format!("\"{text}\""),
        Some((end, _)) => format!("\"{}…\"", &text[..end]),
    }
}
