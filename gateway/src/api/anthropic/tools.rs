//! Tools of the Messages API: those that are offered, the choice among them, calls and their results; and the form of an
//! answer.
//!
//! Nothing here refuses for lack of support in a model; that is an engine's word. Invariant: schemas and the inputs of
//! calls leave here as the client wrote them, byte for byte.

use zerohop_engine::{Form, Tool, ToolCall};

use super::{Block, Said, Walk, block_type};
use crate::api::{
    fault::{Expected, Fault, Path, What},
    fields::{Field, find, tag},
    tape::{Entries, Items, Json},
    wishes::{Choice, MAX_TOOLS, distinct},
};

/// What the vendor runs itself, by what its names begin with; each has a version behind it.
const SERVER_TOOLS: [&str; 10] = [
    "web_search_",
    "web_fetch_",
    "code_execution_",
    "tool_search_",
    "mcp_toolset",
    "bash_",
    "text_editor_",
    "memory_",
    "computer_",
    "browser_",
];

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
            tools.push(self.tool(Field::new(item, &path))?);
        }
        distinct(&tools, field.path, |path| path.key("name").is(What::Duplicate))?;
        if !tools.is_empty() {
            self.wishes().tools = tools;
        }
        Ok(())
    }

    fn tool(&mut self, field: Field<'_, '_>) -> Result<Tool, Fault> {
        const NAMES: &[&str] = &[
            "name",
            "description",
            "input_schema",
            "strict",
            "allowed_callers",
            // Read by `custom`; hints to the vendor's cache, stream and search.
            "type",
            "cache_control",
            "eager_input_streaming",
            "input_examples",
            "defer_loading",
        ];
        custom(field.object()?, field.path)?;
        let (mut name, mut description, mut schema, mut strict) = (None, "", None, false);
        let source = self.source;
        field.entries(NAMES, &mut self.ignored, self.strict, |number, value| {
            match NAMES[number] {
                "name" => name = Some(value.tool_name()?),
                "description" => description = value.text()?,
                "input_schema" => schema = Some(value.raw(source)?),
                "strict" => strict = value.bool()?,
                "allowed_callers" => callers(value)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(Tool {
            name: name.ok_or_else(|| field.path.key("name").is(What::Missing))?.into(),
            description: description.into(),
            parameters: schema
                .ok_or_else(|| field.path.key("input_schema").is(What::Missing))?
                .into(),
            strict,
        })
    }

    /// `tool_choice`
    pub(super) fn tool_choice(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        const NAMES: &[&str] = &["auto", "any", "tool", "none"];
        let entries = field.object()?;
        let kind = tag(entries, "type", field.path)?;
        for (key, _) in entries {
            let known = match key {
                "type" => true,
                "disable_parallel_tool_use" => kind != "none",
                "name" => kind == "tool",
                _ => false,
            };
            if !known {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        let choice = match kind {
            "auto" => Choice::Auto,
            "none" => Choice::None,
            "any" => Choice::Required,
            "tool" => {
                let path = field.path.key("name");
                let name = find(entries, "name", field.path)?.ok_or_else(|| path.is(What::Missing))?;
                Choice::Named(Field::new(name, &path).tool_name()?.into(), "tool_choice.name")
            }
            other => return Err(field.path.key("type").is(What::OneOf(NAMES, other.into()))),
        };
        let path = field.path.key("disable_parallel_tool_use");
        let single = match find(entries, "disable_parallel_tool_use", field.path)? {
            Some(value) if kind != "none" => Field::new(value, &path).present().map_or(Ok(false), Field::bool)?,
            _ => false,
        };
        if single || !matches!(choice, Choice::Auto) {
            let wishes = self.wishes();
            wishes.choice = choice;
            wishes.single = single;
        }
        Ok(())
    }

    /// `output_config.format` and its older name.
    pub(super) fn format(&mut self, field: Field<'_, '_>, place: &'static str) -> Result<(), Fault> {
        let entries = field.object()?;
        match tag(entries, "type", field.path)? {
            "json_schema" => {}
            other => return Err(field.path.key("type").is(What::OneOf(&["json_schema"], other.into()))),
        }
        for (key, _) in entries {
            if !matches!(key, "type" | "schema") {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        let path = field.path.key("schema");
        let schema = find(entries, "schema", field.path)?.ok_or_else(|| path.is(What::Missing))?;
        let schema = Field::new(schema, &path).raw(self.source)?.to_owned();
        self.wishes().form(Form::Schema(schema), place);
        Ok(())
    }

    /// A call of an earlier answer.
    pub(super) fn tool_use<'v>(&mut self, entries: Entries<'v>, path: &Path<'_>) -> Result<Said<'v>, Fault> {
        for (key, _) in entries {
            if !matches!(key, "type" | "id" | "name" | "input" | "cache_control" | "caller") {
                self.ignored.meet(&path.key(key), self.strict)?;
            }
        }
        let part = |name: &'static str| find(entries, name, path)?.ok_or_else(|| path.key(name).is(What::Missing));
        Ok(Said::Call(ToolCall {
            id: Field::new(part("id")?, &path.key("id")).name()?.into(),
            name: Field::new(part("name")?, &path.key("name")).tool_name()?.into(),
            arguments: Field::new(part("input")?, &path.key("input")).raw(self.source)?.into(),
        }))
    }

    /// What came of a call. That it failed is said in words, as the model has no other way to see it.
    pub(super) fn tool_result<'v>(&mut self, entries: Entries<'v>, path: &Path<'_>) -> Result<Said<'v>, Fault> {
        for (key, _) in entries {
            if !matches!(key, "type" | "tool_use_id" | "content" | "is_error" | "cache_control") {
                self.ignored.meet(&path.key(key), self.strict)?;
            }
        }
        let at = path.key("tool_use_id");
        let id = find(entries, "tool_use_id", path)?.ok_or_else(|| at.is(What::Missing))?;
        let id = Field::new(id, &at).name()?;
        let at = path.key("is_error");
        let failed = find(entries, "is_error", path)?.and_then(|value| Field::new(value, &at).present());
        let mut text = String::new();
        if failed.map_or(Ok(false), Field::bool)? {
            text.push_str("Error: ");
        }
        let at = path.key("content");
        let content = find(entries, "content", path)?.and_then(|value| Field::new(value, &at).present());
        match content.map(|content| content.json) {
            None => {}
            Some(Json::Str(_)) => text.push_str(content.map_or(Ok(""), Field::text)?),
            Some(Json::Array(blocks)) => self.texts(blocks, &at, &mut text)?,
            Some(other) => return Err(at.is_not(Expected::Content, other)),
        }
        Ok(Said::Result(id, text))
    }

    /// The texts of the blocks of a result.
    fn texts(&mut self, blocks: Items<'_>, path: &Path<'_>, text: &mut String) -> Result<(), Fault> {
        for (index, block) in blocks.enumerate() {
            let path = path.index(index);
            let entries = Field::new(block, &path).object()?;
            let kind = block_type(entries, &path)?;
            if !matches!(kind, Block::Text) {
                return Err(path.key("type").breaks("the results of tools are text"));
            }
            for (key, _) in entries {
                if !matches!(key, "type" | "text" | "cache_control" | "citations") {
                    self.ignored.meet(&path.key(key), self.strict)?;
                }
            }
            let at = path.key("text");
            let piece = find(entries, "text", &path)?.ok_or_else(|| at.is(What::Missing))?;
            if index > 0 {
                text.push('\n');
            }
            text.push_str(Field::new(piece, &at).text()?);
        }
        Ok(())
    }
}

/// Only tools that the client runs itself can be offered.
fn custom(entries: Entries<'_>, tool: &Path<'_>) -> Result<(), Fault> {
    let path = tool.key("type");
    let kind = find(entries, "type", tool)?.and_then(|value| Field::new(value, &path).present());
    match kind.map(Field::str).transpose()? {
        None | Some("custom") => Ok(()),
        Some(kind) if SERVER_TOOLS.iter().any(|known| kind.starts_with(known)) => {
            Err(path.is(What::ValueNotYet(kind.into())))
        }
        Some(kind) => Err(path.is(What::OneOf(&["custom"], kind.into()))),
    }
}

/// A tool that only the vendor's own code may call is none for a model.
fn callers(field: Field<'_, '_>) -> Result<(), Fault> {
    let mut direct = false;
    for (index, item) in field.array()?.enumerate() {
        direct |= Field::new(item, &field.path.index(index)).str()? == "direct";
    }
    match direct {
        true => Ok(()),
        false => Err(field.path.breaks("must have 'direct': models call tools themselves")),
    }
}
