//! Which `oneOf`s are `anyOf`s: those of whose parts no value fits two.
//!
//! The compiler tells parts apart by their types and by texts alone. Here they are told apart by what they list, by ranges
//! of numbers, by a property that both require, and through references, which is how tagged unions are written. Invariant:
//! what is called apart is apart; with more parts and values than [`MOST`] comparisons tell, nothing is said.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::schema::{NAMED, ONE, SOME};

/// Comparisons of two schemas or of two values, for a whole schema: some milliseconds.
const MOST: usize = 200_000;
/// References that are followed one behind the other, and properties within properties.
const MOST_DEEP: usize = 16;

/// Writes `anyOf` for every `oneOf` that means the same.
pub(super) fn settle(root: &mut Value) {
    let mut places = Vec::new();
    find(root, &mut String::new(), &mut places);
    if places.is_empty() {
        return;
    }
    let whole: &Value = root;
    let mut judge = Judge {
        root: whole,
        left: MOST,
    };
    places.retain(|place| {
        let parts = whole.pointer(place).and_then(|schema| schema.get("oneOf"));
        parts
            .and_then(Value::as_array)
            .is_some_and(|parts| judge.all_apart(parts))
    });
    for place in places {
        if let Some(Value::Object(object)) = root.pointer_mut(&place) {
            let renamed = |(key, value)| (if key == "oneOf" { "anyOf".to_owned() } else { key }, value);
            *object = std::mem::take(object).into_iter().map(renamed).collect();
        }
    }
}

/// The places (as JSON pointers) of objects with a `oneOf` and no `anyOf`, where schemas stand.
fn find(schema: &Value, at: &mut String, places: &mut Vec<String>) {
    let Some(object) = schema.as_object() else { return };
    if object.contains_key("oneOf") && !object.contains_key("anyOf") {
        places.push(at.clone());
    }
    let length = at.len();
    for (key, value) in object {
        let mut below = |part: Option<&str>, value: &Value| {
            for part in std::iter::once(key.as_str()).chain(part) {
                at.push('/');
                at.push_str(&part.replace('~', "~0").replace('/', "~1"));
            }
            find(value, at, places);
            at.truncate(length);
        };
        match value {
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                named.iter().for_each(|(name, value)| below(Some(name), value));
            }
            Value::Array(list) if SOME.contains(&key.as_str()) || key == "items" => {
                let list = list.iter().enumerate();
                list.for_each(|(index, value)| below(Some(&index.to_string()), value));
            }
            Value::Object(_) if ONE.contains(&key.as_str()) || key == "items" => below(None, value),
            _ => {}
        }
    }
}

struct Judge<'a> {
    root: &'a Value,
    /// Comparisons that may still be made.
    left: usize,
}

impl<'a> Judge<'a> {
    fn all_apart(&mut self, parts: &[Value]) -> bool {
        let mut pairs = (0..parts.len()).flat_map(|first| (0..first).map(move |second| (first, second)));
        pairs.all(|(first, second)| self.apart(&parts[first], &parts[second], 0))
    }

    /// Counts a comparison; whether it may be made.
    fn count(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }

    /// What a schema of nothing but a reference says.
    fn resolve<'v>(&self, mut schema: &'v Value) -> Option<&'v Value>
    where
        'a: 'v,
    {
        for _ in 0..MOST_DEEP {
            let Some(target) = schema.get("$ref").and_then(Value::as_str) else {
                return Some(schema);
            };
            // Escapes were refused, and what stands beside a reference only narrows it.
            schema = self.root.pointer(target.strip_prefix('#')?)?;
        }
        None
    }

    /// Whether no value fits both.
    fn apart(&mut self, one: &Value, other: &Value, depth: usize) -> bool {
        if depth > MOST_DEEP || !self.count() {
            return false;
        }
        let (Some(one), Some(other)) = (self.resolve(one), self.resolve(other)) else {
            return false;
        };
        let (one, other) = match (one, other) {
            (Value::Object(one), Value::Object(other)) => (one, other),
            (Value::Bool(one), Value::Bool(other)) => return !(*one && *other),
            (Value::Bool(any), _) | (_, Value::Bool(any)) => return !any,
            _ => return false,
        };
        match (listed(one), listed(other)) {
            (Some(these), Some(those)) => return self.none_shared(these, those),
            (Some(these), None) => return these.iter().all(|value| self.count() && misfits(value, other)),
            (None, Some(those)) => return those.iter().all(|value| self.count() && misfits(value, one)),
            (None, None) => {}
        }
        match kinds(one) & kinds(other) {
            0 => true,
            NUMBER | INTEGER => ranges_apart(one, other),
            OBJECT => self.properties_apart(one, other, depth),
            both if both & !(NUMBER | INTEGER) == 0 => ranges_apart(one, other),
            _ => false,
        }
    }

    fn none_shared(&mut self, these: &[Value], those: &[Value]) -> bool {
        let mut pairs = these.iter().flat_map(|this| those.iter().map(move |that| (this, that)));
        pairs.all(|(this, that)| self.count() && !may_equal(this, that))
    }

    /// Whether a property that one of them requires has values that are apart.
    fn properties_apart(&mut self, one: &Map<String, Value>, other: &Map<String, Value>, depth: usize) -> bool {
        required(one).chain(required(other)).any(|name| {
            let both = property(one, name).zip(property(other, name));
            both.is_some_and(|(this, that)| self.apart(this, that, depth + 1))
        })
    }
}

fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

fn property<'v>(schema: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    schema.get("properties").and_then(|all| all.get(name))
}

/// The values that are all that fit, at most.
fn listed(schema: &Map<String, Value>) -> Option<&[Value]> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(std::slice::from_ref(value)),
        (None, Some(Value::Array(values))) => Some(values),
        _ => None,
    }
}

const NULL: u8 = 1;
const BOOLEAN: u8 = 2;
const INTEGER: u8 = 4;
/// Numbers with a fraction; `number` is these and the integers.
const NUMBER: u8 = 8;
const STRING: u8 = 16;
const ARRAY: u8 = 32;
const OBJECT: u8 = 64;
const ALL: u8 = 127;

fn kind(name: &str) -> u8 {
    match name {
        "null" => NULL,
        "boolean" => BOOLEAN,
        "integer" => INTEGER,
        "number" => INTEGER | NUMBER,
        "string" => STRING,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => ALL,
    }
}

/// The types that may fit.
fn kinds(schema: &Map<String, Value>) -> u8 {
    let name = |value: &Value| value.as_str().map_or(ALL, kind);
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().map(name).fold(0, |all, kind| all | kind),
        Some(value) => name(value),
        None => ALL,
    }
}

/// Whether a value is of none of a schema's types, or out of its range.
fn misfits(value: &Value, schema: &Map<String, Value>) -> bool {
    let kind = match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        // 1.0 is an integer too.
        Value::Number(_) => INTEGER | NUMBER,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    };
    let range = |value: f64| {
        let [least, most] = range(schema);
        least.is_some_and(|least| least.is_above(value)) || most.is_some_and(|most| most.is_below(value))
    };
    kinds(schema) & kind == 0 || value.as_f64().is_some_and(range)
}

/// Whether two values may be one: numbers by their worth, as near as it can be told.
fn may_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let whole = (one.as_i64(), other.as_i64());
            match whole {
                (Some(one), Some(other)) => one == other,
                _ => one.as_f64().zip(other.as_f64()).is_none_or(|(one, other)| one == other),
            }
        }
        (Value::Array(these), Value::Array(those)) => {
            these.len() == those.len() && these.iter().zip(those).all(|(this, that)| may_equal(this, that))
        }
        (Value::Object(these), Value::Object(those)) => {
            let has = |(name, value)| those.get(name).is_some_and(|other| may_equal(value, other));
            these.len() == those.len() && these.iter().all(has)
        }
        _ => one == other,
    }
}

/// An end of a range.
#[derive(Clone, Copy)]
struct End {
    value: f64,
    /// The value itself is out of it.
    is_open: bool,
}

impl End {
    /// As the least: whether a value lies out of it.
    fn is_above(self, value: f64) -> bool {
        self.excludes(self.value.partial_cmp(&value), Ordering::Greater)
    }

    /// As the most.
    fn is_below(self, value: f64) -> bool {
        self.excludes(self.value.partial_cmp(&value), Ordering::Less)
    }

    fn excludes(self, found: Option<Ordering>, out: Ordering) -> bool {
        found == Some(out) || (found == Some(Ordering::Equal) && self.is_open && self.value.abs() < EXACT)
    }
}

/// Integers below this are what they seem as a float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The least and the most, if there are any.
fn range(schema: &Map<String, Value>) -> [Option<End>; 2] {
    let end = |closed: &str, open: &str, tighter: Ordering| {
        let of = |name: &str, is_open| {
            let value = schema.get(name).and_then(Value::as_f64);
            value.map(|value| End { value, is_open })
        };
        match (of(closed, false), of(open, true)) {
            (Some(closed), Some(open)) if closed.value.partial_cmp(&open.value) == Some(tighter) => Some(closed),
            (closed, open) => open.or(closed),
        }
    };
    [
        end("minimum", "exclusiveMinimum", Ordering::Greater),
        end("maximum", "exclusiveMaximum", Ordering::Less),
    ]
}

fn ranges_apart(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let ([one_least, one_most], [other_least, other_most]) = (range(one), range(other));
    let beyond = |most: Option<End>, least: Option<End>| match (most, least) {
        (Some(most), Some(least)) => most.is_below(least.value) || least.is_above(most.value),
        _ => false,
    };
    beyond(one_most, other_least) || beyond(other_most, one_least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a `oneOf` of these parts is settled, within `around` where `PARTS` stands for it.
    fn is_settled(parts: &str, rest: &str) -> bool {
        let text = format!(r#"{{"properties": {{"a/b": {{"items": {{"oneOf": {parts}}}}}}} {rest}}}"#);
        let mut schema: Value = serde_json::from_str(&text).expect("JSON");
        settle(&mut schema);
        let within = &schema["properties"]["a/b"]["items"];
        assert_ne!(within.get("oneOf").is_some(), within.get("anyOf").is_some(), "{schema}");
        within.get("anyOf").is_some()
    }

    #[test]
    fn what_is_apart_is_told_from_what_may_not_be() {
        let cases = [
            (r#"[{"const": 1}, {"const": 2}, {"const": 2.5}]"#, true),
            (r#"[{"const": 1}, {"const": 1.0}]"#, false),
            (r#"[{"const": 9007199254740993}, {"const": 9007199254740992}]"#, true),
            (r#"[{"const": 9007199254740993}, {"const": 9007199254740992.0}]"#, false),
            (
                r#"[{"const": 18446744073709551615}, {"const": 18446744073709551614}]"#,
                false,
            ),
            (
                r#"[{"const": "1"}, {"const": 1}, {"const": true}, {"const": null}]"#,
                true,
            ),
            (r#"[{"const": [1]}, {"const": [1, 2]}]"#, true),
            (r#"[{"const": [1]}, {"const": [1.0]}]"#, false),
            (r#"[{"const": {"a": 1}}, {"const": {"a": 2}}]"#, true),
            (r#"[{"const": {"a": 1, "b": 2}}, {"const": {"b": 2.0, "a": 1}}]"#, false),
            (r#"[{"enum": [1, 2]}, {"enum": [3, "1"]}]"#, true),
            (r#"[{"enum": [1, 2]}, {"enum": [3, 2]}]"#, false),
            (r#"[{"const": 1}, {"type": "string"}]"#, true),
            (r#"[{"const": 1.5}, {"type": "integer"}]"#, false),
            (r#"[{"const": 1}, {"type": ["string", "number"]}]"#, false),
            (r#"[{"const": 1}, {"type": "integer", "minimum": 2}]"#, true),
            (r#"[{"const": 2}, {"type": "integer", "minimum": 2}]"#, false),
            (r#"[{"const": 2}, {"minimum": 2, "exclusiveMinimum": 1}]"#, false),
            (r#"[{"const": 2}, {"minimum": 1, "exclusiveMinimum": 2}]"#, true),
            (r#"[{"const": 2}, {"minimum": 2, "exclusiveMinimum": 2}]"#, true),
            (r#"[{"const": 1}, {"minLength": 2}]"#, false),
            (r#"[{"const": 1}, false]"#, true),
            (r#"[{"const": 1}, true]"#, false),
            (r#"[{"const": 1}, {}]"#, false),
            (
                r#"[{"type": "integer", "maximum": 4}, {"type": "number", "exclusiveMinimum": 4}]"#,
                true,
            ),
            (
                r#"[{"type": "integer", "maximum": 4}, {"type": "number", "minimum": 4}]"#,
                false,
            ),
            (r#"[{"maximum": 4}, {"minimum": 5}]"#, false),
            (r#"[{"type": "integer"}, {"type": "number"}]"#, false),
            (r#"[{"type": "integer"}, {"type": ["null", "string"]}]"#, true),
            (r#"[{"type": "any"}, {"type": "string"}]"#, false),
            // A value that is no object fits both.
            (
                r#"[{"properties": {"k": {"const": 1}}, "required": ["k"]}, {"properties": {"k": {"const": 2}}, "required": ["k"]}]"#,
                false,
            ),
            (
                r#"[{"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
                    {"type": "object", "properties": {"k": {"const": 2}}}]"#,
                true,
            ),
            (
                r#"[{"type": "object", "properties": {"k": {"const": 1}}}, {"type": "object", "properties": {"k": {"const": 2}}}]"#,
                false,
            ),
            (r##"[{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/two"}]"##, true),
            (r##"[{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/one"}]"##, false),
            (r##"[{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/one"}]"##, false),
            (r##"[{"$ref": "#/$defs/none"}, {"$ref": "#/$defs/one"}]"##, false),
        ];
        let definitions = r##", "$defs": {"loop": {"$ref": "#/$defs/loop"},
            "one": {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
            "two": {"type": "object", "properties": {"k": {"$ref": "#/$defs/k"}}, "required": ["k"]},
            "k": {"enum": [2, 3]}}"##;
        for (parts, wanted) in cases {
            assert_eq!(is_settled(parts, definitions), wanted, "{parts}");
        }
    }

    #[test]
    fn data_is_no_schema() {
        let text = r#"{"enum": [{"oneOf": [{"const": 1}, {"const": 2}]}], "properties": {"oneOf": {"type": "null"}},
            "oneOf": [{"const": 1}, {"const": 2}], "anyOf": [true]}"#;
        let mut schema: Value = serde_json::from_str(text).expect("JSON");
        let before = schema.clone();
        settle(&mut schema);
        assert_eq!(schema, before, "and a second `anyOf` has no place");
    }

    /// Thousands of values in each of many parts would take minutes.
    #[test]
    fn comparisons_are_bounded() {
        let part = |index: usize| {
            let values: Vec<_> = (0..300).map(|value| (index * 1000 + value).to_string()).collect();
            format!(r#"{{"enum": [{}]}}"#, values.join(","))
        };
        let parts = |count: usize| format!("[{}]", (0..count).map(part).collect::<Vec<_>>().join(","));
        assert!(is_settled(&parts(2), ""));
        assert!(!is_settled(&parts(60), ""));
    }
}
