//! The fields of the Chat Completions API, and of open servers beyond it, that say what form an answer has.
//!
//! Whether a schema can be guaranteed is an engine's word. Invariant: a schema leaves here as the client wrote it, byte
//! for byte.

use zerohop_engine::Form;

use super::Walk;
use crate::api::{
    fault::{Expected, Fault, What},
    fields::{Field, MAX_RAW_BYTES, Neutral, find, tag},
    locate,
    source::Source,
    tape::Json,
    wishes::{choice_texts, pattern},
};

impl Walk<'_> {
    /// `response_format`
    pub(super) fn response_format(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        const NAMES: &[&str] = &["text", "json_object", "json_schema"];
        let entries = field.object()?;
        let kind = tag(entries, "type", field.path)?;
        let own = match kind {
            "text" => "",
            "json_object" => "schema",
            "json_schema" => "json_schema",
            "grammar" | "structural_tag" => return Err(field.path.key("type").is(What::ValueNotYet(kind.into()))),
            _ => return Err(field.path.key("type").is(What::OneOf(NAMES, kind.into()))),
        };
        for (key, _) in entries {
            if key != "type" && key != own {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        let path = field.path.key(own);
        let value = match own {
            "" => None,
            own => find(entries, own, field.path)?.and_then(|value| Field::new(value, &path).present()),
        };
        match (kind, value) {
            ("json_schema", None) => return Err(path.is(What::Missing)),
            ("json_schema", Some(value)) => self.json_schema(value)?,
            ("json_object", Some(schema)) => {
                let schema = schema.raw(self.source)?.to_owned();
                self.wishes().form(Form::Schema(schema), "response_format.schema");
            }
            ("json_object", None) => self.wishes().form(Form::Object, "response_format"),
            _ => {}
        }
        Ok(())
    }

    fn json_schema(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        const NAMES: &[&str] = &["name", "schema", "strict", "description"];
        let (mut named, mut schema, source) = (false, None, self.source);
        field.entries(NAMES, &mut self.ignored, self.strict, |name, value| {
            match NAMES[name] {
                "name" => named = value.tool_name().map(|_| true)?,
                "schema" => schema = Some(value.raw(source)?.to_owned()),
                // Guaranteed either way.
                "strict" => drop(value.bool()?),
                _ => drop(value.text()?),
            }
            Ok(())
        })?;
        if !named {
            return Err(field.path.key("name").is(What::Missing));
        }
        let schema = schema.ok_or_else(|| field.path.key("schema").is(What::Missing))?;
        self.wishes()
            .form(Form::Schema(schema), "response_format.json_schema.schema");
        Ok(())
    }

    /// `structured_outputs`: one of several.
    pub(super) fn structured_outputs(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        const NAMES: &[&str] = &["json", "regex", "choice", "grammar", "json_object", "structural_tag"];
        let (mut found, source) = (Vec::new(), self.source);
        field.entries(NAMES, &mut self.ignored, self.strict, |name, value| {
            found.push(match NAMES[name] {
                "json" => (Form::Schema(schema(value, source)?), "structured_outputs.json"),
                "regex" => (Form::Regex(pattern(value)?), "structured_outputs.regex"),
                "choice" => (choice_texts(value)?, "structured_outputs.choice"),
                "grammar" => (Form::Grammar(pattern(value)?), "structured_outputs.grammar"),
                "json_object" if value.bool()? => (Form::Object, "structured_outputs.json_object"),
                "json_object" => return Ok(()),
                _ => return value.only(Neutral::Null),
            });
            Ok(())
        })?;
        if found.is_empty() {
            return Err(field
                .path
                .breaks("must have one of 'json', 'regex', 'choice', 'grammar' and 'json_object'"));
        }
        for (form, place) in found {
            self.wishes().form(form, place);
        }
        Ok(())
    }

    /// See [`schema`].
    pub(super) fn schema(&self, field: Field<'_, '_>) -> Result<String, Fault> {
        schema(field, self.source)
    }
}

/// A schema by itself, or as text in a string.
fn schema(field: Field<'_, '_>, source: Option<&Source<'_>>) -> Result<String, Fault> {
    match field.json {
        Json::Object(_) => Ok(field.raw(source)?.to_owned()),
        Json::Str(text) if text.len() > MAX_RAW_BYTES => Err(field.path.breaks("must have at most 262,144 bytes")),
        Json::Str(text) if locate::is_object(text) => Ok(text.to_owned()),
        Json::Str(_) => Err(field.path.breaks("must be a JSON object, as text")),
        _ => Err(field.path.is_not(Expected::Object, field.json)),
    }
}
