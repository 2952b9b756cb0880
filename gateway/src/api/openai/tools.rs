//! Tools of the Chat Completions API: those that are offered, the choice among them, and calls of earlier answers.
//!
//! Nothing here refuses for lack of support in a model; that is an engine's word. Invariant: a schema leaves here as the
//! client wrote it, byte for byte.

use zerohop_engine::{Tool, ToolCall};

use super::Walk;
use crate::api::{
    fault::{Expected, Fault, What},
    fields::{Field, MAX_RAW_BYTES, find, tag},
    locate,
    tape::{Json, Value},
    wishes::{Choice, MAX_TOOLS, distinct},
};

/// The schema of a function that names no parameters.
const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

impl Walk<'_> {
    /// `tools`
    pub(super) fn tools(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        let items = field.array()?;
        if items.len() > MAX_TOOLS {
            return Err(field.path.breaks("at most 512 tools are allowed"));
        }
        let mut tools = Vec::with_capacity(items.len());
        for (index, item) in items.enumerate() {
            let path = field.path.index(index);
            let function = self.function_of(Field::new(item, &path), &[])?;
            let path = path.key("function");
            tools.push(self.function(Field::new(function, &path))?);
        }
        distinct(&tools, field.path, |path| {
            path.key("function").key("name").is(What::Duplicate)
        })?;
        if !tools.is_empty() {
            self.wishes().tools = tools;
        }
        Ok(())
    }

    /// What stands under `function` in an object of that type, which may have these names as well.
    fn function_of<'v>(&mut self, field: Field<'v, '_>, others: &[&str]) -> Result<Value<'v>, Fault> {
        let entries = field.object()?;
        let path = field.path.key("type");
        match find(entries, "type", field.path)? {
            // Calls are sent back by many who leave it out.
            None if others.contains(&"id") => {}
            None => return Err(path.is(What::Missing)),
            Some(kind) => match Field::new(kind, &path).str()? {
                "function" => {}
                "custom" => return Err(path.is(What::ValueNotYet("custom".into()))),
                other => return Err(path.is(What::OneOf(&["function"], other.into()))),
            },
        }
        for (key, _) in entries {
            if !matches!(key, "type" | "function") && !others.contains(&key) {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        find(entries, "function", field.path)?.ok_or_else(|| field.path.key("function").is(What::Missing))
    }

    pub(super) fn function(&mut self, field: Field<'_, '_>) -> Result<Tool, Fault> {
        const NAMES: &[&str] = &["name", "description", "parameters", "strict"];
        let (mut name, mut description, mut parameters, mut strict) = (None, "", None, false);
        let source = self.source;
        field.entries(NAMES, &mut self.ignored, self.strict, |number, value| {
            match NAMES[number] {
                "name" => name = Some(value.tool_name()?),
                "description" => description = value.text()?,
                "parameters" => parameters = Some(value.raw(source)?),
                _ => strict = value.bool()?,
            }
            Ok(())
        })?;
        Ok(Tool {
            name: name.ok_or_else(|| field.path.key("name").is(What::Missing))?.into(),
            description: description.into(),
            parameters: parameters.unwrap_or(NO_PARAMETERS).into(),
            strict,
        })
    }

    /// `tool_choice`
    pub(super) fn tool_choice(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        const WORDS: &[&str] = &["none", "auto", "required"];
        const TYPES: &[&str] = &["function", "allowed_tools"];
        let choice = match field.json {
            Json::Str("none") => Choice::None,
            Json::Str("auto") => Choice::Auto,
            Json::Str("required") => Choice::Required,
            Json::Str(other) => return Err(field.path.is(What::OneOf(WORDS, other.into()))),
            Json::Object(entries) => match tag(entries, "type", field.path)? {
                "allowed_tools" => self.allowed_tools(field)?,
                "function" => {
                    let function = self.function_of(field, &[])?;
                    let path = field.path.key("function");
                    Choice::Named(self.named(Field::new(function, &path))?, "tool_choice.function.name")
                }
                "custom" => return Err(field.path.key("type").is(What::ValueNotYet("custom".into()))),
                other => return Err(field.path.key("type").is(What::OneOf(TYPES, other.into()))),
            },
            _ => return Err(field.path.is_not(Expected::Choice, field.json)),
        };
        if !matches!(choice, Choice::Auto) {
            self.wishes().choice = choice;
        }
        Ok(())
    }

    /// The name of a function that is only named.
    pub(super) fn named(&mut self, field: Field<'_, '_>) -> Result<String, Fault> {
        let entries = field.object()?;
        for (key, _) in entries {
            if key != "name" {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        let path = field.path.key("name");
        let name = find(entries, "name", field.path)?.ok_or_else(|| path.is(What::Missing))?;
        Ok(Field::new(name, &path).tool_name()?.into())
    }

    fn allowed_tools(&mut self, field: Field<'_, '_>) -> Result<Choice, Fault> {
        const MODES: &[&str] = &["auto", "required"];
        let path = field.path.key("allowed_tools");
        let entries = field.object()?;
        let allowed = find(entries, "allowed_tools", field.path)?.ok_or_else(|| path.is(What::Missing))?;
        for (key, _) in entries {
            if !matches!(key, "type" | "allowed_tools") {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        let entries = Field::new(allowed, &path).object()?;
        for (key, _) in entries {
            if !matches!(key, "mode" | "tools") {
                self.ignored.meet(&path.key(key), self.strict)?;
            }
        }
        let required = match tag(entries, "mode", &path)? {
            "auto" => false,
            "required" => true,
            other => return Err(path.key("mode").is(What::OneOf(MODES, other.into()))),
        };
        let list = path.key("tools");
        let tools = find(entries, "tools", &path)?.ok_or_else(|| list.is(What::Missing))?;
        let items = Field::new(tools, &list).array()?;
        match items.len() {
            0 => return Err(list.breaks("must not be empty")),
            1..=MAX_TOOLS => {}
            _ => return Err(list.breaks("at most 512 tools are allowed")),
        }
        let mut names = Vec::with_capacity(items.len());
        for (index, item) in items.enumerate() {
            let path = list.index(index);
            let function = self.function_of(Field::new(item, &path), &[])?;
            names.push(self.named(Field::new(function, &path.key("function")))?);
        }
        Ok(Choice::Allowed {
            names,
            required,
            path: "tool_choice.allowed_tools.tools",
        })
    }

    /// The calls of an earlier answer.
    pub(super) fn tool_calls(&mut self, field: Field<'_, '_>) -> Result<Vec<ToolCall>, Fault> {
        let mut calls = Vec::new();
        for (index, item) in field.array()?.enumerate() {
            let path = field.path.index(index);
            let entries = Field::new(item, &path).object()?;
            // Calls that were streamed have an index, and who gathers them sends it back.
            let function = self.function_of(Field::new(item, &path), &["id", "index"])?;
            let at = path.key("id");
            let id = find(entries, "id", &path)?.ok_or_else(|| at.is(What::Missing))?;
            let id = Field::new(id, &at).name()?.to_owned();
            calls.push(self.call(id, Field::new(function, &path.key("function")))?);
        }
        Ok(calls)
    }

    pub(super) fn call(&mut self, id: String, field: Field<'_, '_>) -> Result<ToolCall, Fault> {
        let entries = field.object()?;
        for (key, _) in entries {
            if !matches!(key, "name" | "arguments") {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        let part =
            |name: &'static str| find(entries, name, field.path)?.ok_or_else(|| field.path.key(name).is(What::Missing));
        let name = Field::new(part("name")?, &field.path.key("name")).tool_name()?;
        let path = field.path.key("arguments");
        Ok(ToolCall {
            id,
            name: name.into(),
            arguments: arguments(Field::new(part("arguments")?, &path))?,
        })
    }
}

/// A JSON object as text; the empty text, which some clients make of a call without arguments, is the empty object.
fn arguments(field: Field<'_, '_>) -> Result<String, Fault> {
    match field.text()? {
        "" => Ok("{}".into()),
        text if text.len() > MAX_RAW_BYTES => Err(field.path.breaks("must have at most 262,144 bytes")),
        text if locate::is_object(text) => Ok(text.into()),
        _ => Err(field.path.breaks("must be a JSON object, as text")),
    }
}
