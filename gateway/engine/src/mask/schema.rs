//! JSON Schema before it is compiled: what cannot be guaranteed is refused here, with its keyword and its place.
//!
//! It compiles nothing and changes no key's order. What means nothing (`uniqueItems: false`, a format that the standard
//! does not know) is left out. Invariant: a strict schema that passes holds no keyword that the compiler would ignore.

use serde_json::{Map, Value, json};

use super::{Refusal, Strictness, apart};

/// Subschemas of one schema.
const MAX_SUBSCHEMAS: usize = 20_000;
/// Values of all `enum`s together.
const MAX_VALUES: usize = 20_000;
/// Alternatives of one `oneOf`, which are compared with each other, and patterns of one `patternProperties`, likewise.
const MAX_COMPARED: usize = 128;

/// Keywords that count, and the most that they may say: more has no place in the compiler's tables.
const COUNTS: [&str; 6] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];
const MAX_COUNT: u64 = 1_000_000_000;

/// Keywords that restrict and that no mask can guarantee.
const UNSUPPORTED: [&str; 19] = [
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "uniqueItems",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "contentSchema",
];

/// Formats that are guaranteed.
const FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];

/// Formats whose texts have a greatest length, which the compiler does not know: 253 characters of a host's name (RFC 1035),
/// 64 of what stands before the sign in an address (RFC 5321), to which the whole is kept.
const LENGTHS: [(&str, u64); 2] = [("hostname", 253), ("email", 64)];

/// Formats that the standard knows and that are not guaranteed. Every other is an annotation, as the standard has it.
const NO_FORMATS: [&str; 9] = [
    "idn-email",
    "idn-hostname",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

/// Keywords that hold one schema, a list of schemas, and schemas by name.
pub(super) const ONE: [&str; 2] = ["additionalProperties", "additionalItems"];
pub(super) const SOME: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
pub(super) const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Reads a schema and makes it one that the compiler takes.
///
/// # Errors
/// What is wrong, with its place.
pub(super) fn read(text: &str, strictness: Strictness) -> Result<Value, Refusal> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| Refusal::new(format!("the schema is not JSON: {error}")))?;
    let mut walk = Walk {
        strictness,
        path: vec!["$".into()],
        subschemas: 0,
        values: 0,
    };
    let mut walked = walk.schema(value)?;
    apart::settle(&mut walked);
    let mut root = match walked {
        Value::Object(object) => object,
        Value::Bool(true) => Map::new(),
        _ => return Err(Refusal::new("the schema at $ is false: nothing fits it")),
    };
    let lenient = strictness == Strictness::Lenient;
    root.insert(
        "x-guidance".into(),
        json!({"whitespace_flexible": false, "lenient": lenient, "coerce_one_of": lenient}),
    );
    Ok(Value::Object(root))
}

/// The first place of a keyword, for a fault that the compiler finds.
pub(super) fn first(schema: &Value, keyword: &str, path: &str) -> Option<String> {
    match schema {
        Value::Object(object) if object.contains_key(keyword) => Some(path.to_owned()),
        Value::Object(object) => object
            .iter()
            .find_map(|(key, value)| first(value, keyword, &format!("{path}.{key}"))),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, value)| first(value, keyword, &format!("{path}[{index}]"))),
        _ => None,
    }
}

struct Walk {
    strictness: Strictness,
    path: Vec<String>,
    subschemas: usize,
    values: usize,
}

impl Walk {
    fn refusal(&self, text: impl std::fmt::Display) -> Refusal {
        Refusal::new(format!("{text} at {}", self.path.concat()))
    }

    fn unsupported(&self, what: impl std::fmt::Display) -> Refusal {
        Refusal::new(format!("{what} at {} is not supported", self.path.concat()))
    }

    /// A schema as the compiler takes it.
    fn schema(&mut self, value: Value) -> Result<Value, Refusal> {
        self.subschemas += 1;
        if self.subschemas > MAX_SUBSCHEMAS {
            return Err(self.refusal(format_args!("the schema has more than {MAX_SUBSCHEMAS} subschemas")));
        }
        match value {
            Value::Bool(_) => Ok(value),
            Value::Object(object) => {
                let mut kept = Map::with_capacity(object.len());
                for (key, value) in object {
                    if let Some(value) = self.keyword(&key, value)? {
                        kept.insert(key, value);
                    }
                }
                keep_to_length(&mut kept);
                Ok(Value::Object(kept))
            }
            _ => Err(self.refusal("a schema must be an object, true or false")),
        }
    }

    /// A keyword's value; `None` to leave it out.
    fn keyword(&mut self, key: &str, value: Value) -> Result<Option<Value>, Refusal> {
        if key == "x-guidance" {
            return Err(self.unsupported("`x-guidance`"));
        }
        if UNSUPPORTED.contains(&key) {
            return match self.strictness {
                Strictness::Strict if !means_nothing(key, &value) => Err(self.unsupported(format_args!("`{key}`"))),
                _ => Ok(None),
            };
        }
        match key {
            "format" => return self.format(value),
            key if COUNTS.contains(&key) => return self.count(key, &value).map(Some),
            "$ref" => self.reference(&value)?,
            "enum" => {
                self.values += value.as_array().map_or(0, Vec::len);
                if self.values > MAX_VALUES {
                    return Err(self.refusal(format_args!("`enum`s list more than {MAX_VALUES} values")));
                }
            }
            "oneOf" | "patternProperties" => {
                let count = value
                    .as_array()
                    .map_or_else(|| value.as_object().map_or(0, Map::len), Vec::len);
                if count > MAX_COMPARED {
                    return Err(self.refusal(format_args!("`{key}` has more than {MAX_COMPARED} parts")));
                }
            }
            _ => {}
        }
        self.below(key, value).map(Some)
    }

    /// Walks through what a keyword holds.
    fn below(&mut self, key: &str, value: Value) -> Result<Value, Refusal> {
        self.path.push(format!(".{key}"));
        let walked = match value {
            Value::Object(object) if NAMED.contains(&key) => {
                let mut kept = Map::with_capacity(object.len());
                for (name, value) in object {
                    self.path.push(format!(".{name}"));
                    kept.insert(name, self.schema(value)?);
                    self.path.pop();
                }
                Value::Object(kept)
            }
            Value::Array(list) if SOME.contains(&key) || key == "items" => {
                let mut kept = Vec::with_capacity(list.len());
                for (index, value) in list.into_iter().enumerate() {
                    self.path.push(format!("[{index}]"));
                    kept.push(self.schema(value)?);
                    self.path.pop();
                }
                Value::Array(kept)
            }
            value @ (Value::Object(_) | Value::Bool(_)) if ONE.contains(&key) || key == "items" => {
                self.schema(value)?
            }
            value => value,
        };
        self.path.pop();
        Ok(walked)
    }

    /// A count, which may be written with a fraction of zero.
    fn count(&self, key: &str, value: &Value) -> Result<Value, Refusal> {
        #[expect(clippy::cast_precision_loss, reason = "it is below 2^53")]
        let written = |value: f64| value.fract() == 0.0 && (0.0..=MAX_COUNT as f64).contains(&value);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        let count = match value.as_u64() {
            Some(count) => Some(count),
            None => value.as_f64().filter(|value| written(*value)).map(|value| value as u64),
        };
        match count.filter(|count| *count <= MAX_COUNT) {
            Some(count) => Ok(count.into()),
            None => Err(self.refusal(format_args!(
                "`{key}` must be an integer from 0 to {MAX_COUNT} (leave it out for no bound)"
            ))),
        }
    }

    fn format(&self, value: Value) -> Result<Option<Value>, Refusal> {
        let Some(name) = value.as_str() else {
            return Err(self.refusal("`format` must be text"));
        };
        if FORMATS.contains(&name) {
            return Ok(Some(value));
        }
        if NO_FORMATS.contains(&name) && self.strictness == Strictness::Strict {
            return Err(self.unsupported(format_args!("`format` \"{name}\"")));
        }
        Ok(None)
    }

    fn reference(&self, value: &Value) -> Result<(), Refusal> {
        let Some(target) = value.as_str() else {
            return Err(self.refusal("`$ref` must be text"));
        };
        let plain = target == "#" || target.starts_with("#/");
        if !plain || target.contains(['~', '%']) {
            let shown: String = target.chars().take(80).collect();
            return Err(self.unsupported(format_args!(
                "`$ref` \"{shown}\" (only places in this schema, such as \"#/$defs/name\")"
            )));
        }
        Ok(())
    }
}

/// Bounds a text whose format does.
fn keep_to_length(schema: &mut Map<String, Value>) {
    let format = schema.get("format").and_then(Value::as_str);
    let length = LENGTHS.iter().find(|(name, _)| Some(*name) == format);
    if let Some((_, most)) = length {
        let given = schema.get("maxLength").and_then(Value::as_u64);
        schema.insert("maxLength".into(), given.unwrap_or(*most).min(*most).into());
    }
}

/// Whether a keyword that is not supported restricts nothing with this value.
fn means_nothing(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("$dynamicAnchor" | "$recursiveAnchor" | "contentSchema", _) => true,
        // Without `if`, which is refused, these are ignored; without `contains` likewise.
        ("then" | "else" | "minContains" | "maxContains", _) => true,
        ("uniqueItems", Value::Bool(value)) => !value,
        ("propertyNames" | "unevaluatedProperties" | "unevaluatedItems", Value::Bool(value)) => *value,
        (_, Value::Object(object)) => object.is_empty() && key != "not",
        _ => false,
    }
}
