//! The fields of the Chat Completions API, and of open servers beyond it, that say what form an answer has.
//!
//! Whether a schema can be guaranteed is an engine's word. Invariant: a schema leaves here as the client wrote it, byte
//! for byte.

use zerohop_engine::Form;

use super::Walk;
use crate::api::{
    fault::{Expected, Fault, What},
    fields::{Field, MAX_RAW_BYTES, Neutral, Seen, find, tag},
    locate,
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
        let mut seen = Seen::default();
        let (mut named, mut schema) = (false, None);
        for (key, value) in field.object()? {
            let path = field.path.key(key);
            let number = match key {
                "name" => 0,
                "schema" => 1,
                "strict" => 2,
                "description" => 3,
                _ => {
                    self.ignored.meet(&path, self.strict)?;
                    continue;
                }
            };
            seen.once(number, &path)?;
            let Some(value) = Field::new(value, &path).present() else {
                continue;
            };
            match number {
                0 => named = value.tool_name().map(|_| true)?,
                1 => schema = Some(value.raw(self.source)?),
                // Guaranteed either way.
                2 => drop(value.bool()?),
                _ => drop(value.text()?),
            }
        }
        if !named {
            return Err(field.path.key("name").is(What::Missing));
        }
        let schema = schema
            .ok_or_else(|| field.path.key("schema").is(What::Missing))?
            .to_owned();
        self.wishes()
            .form(Form::Schema(schema), "response_format.json_schema.schema");
        Ok(())
    }

    /// `structured_outputs`: one of several.
    pub(super) fn structured_outputs(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        let mut seen = Seen::default();
        let mut given = false;
        for (key, value) in field.object()? {
            let path = field.path.key(key);
            let number = match key {
                "json" => 0,
                "regex" => 1,
                "choice" => 2,
                "grammar" => 3,
                "json_object" => 4,
                "structural_tag" => 5,
                _ => {
                    self.ignored.meet(&path, self.strict)?;
                    continue;
                }
            };
            seen.once(number, &path)?;
            let Some(value) = Field::new(value, &path).present() else {
                continue;
            };
            let (form, place) = match number {
                0 => (Form::Schema(self.schema(value)?), "structured_outputs.json"),
                1 => (Form::Regex(pattern(value)?), "structured_outputs.regex"),
                2 => (choice_texts(value)?, "structured_outputs.choice"),
                3 => (Form::Grammar(pattern(value)?), "structured_outputs.grammar"),
                4 if value.bool()? => (Form::Object, "structured_outputs.json_object"),
                4 => continue,
                _ => {
                    value.only(Neutral::Null)?;
                    continue;
                }
            };
            given = true;
            self.wishes().form(form, place);
        }
        match given {
            true => Ok(()),
            false => Err(field
                .path
                .breaks("must have one of 'json', 'regex', 'choice', 'grammar' and 'json_object'")),
        }
    }

    /// A schema by itself, or as text in a string.
    pub(super) fn schema(&self, field: Field<'_, '_>) -> Result<String, Fault> {
        match field.json {
            Json::Object(_) => Ok(field.raw(self.source)?.to_owned()),
            Json::Str(text) if text.len() > MAX_RAW_BYTES => Err(field.path.breaks("must have at most 262,144 bytes")),
            Json::Str(text) if locate::is_object(text) => Ok(text.to_owned()),
            Json::Str(_) => Err(field.path.breaks("must be a JSON object, as text")),
            _ => Err(field.path.is_not(Expected::Object, field.json)),
        }
    }
}
