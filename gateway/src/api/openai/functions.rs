//! `functions` and `function_call`: what tools were called before there were several kinds of them.
//!
//! They become tools and the choice among them, an answer's `function_call` becomes a call with an id that is made up here,
//! and a message of the role `function` its result. Invariant: a request speaks of tools in the old words or in the new
//! ones, never in both; in the old ones an answer holds one call at most.

use zerohop_engine::ToolCall;

use super::Walk;
use crate::api::{
    fault::{Expected, Fault, Path, What},
    fields::Field,
    prompt::Prompt,
    tape::Json,
    wishes::{Choice, MAX_TOOLS, distinct},
};

impl Walk<'_> {
    /// `functions`
    pub(super) fn functions(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        let items = field.array()?;
        if items.len() > MAX_TOOLS {
            return Err(field.path.breaks("at most 512 functions are allowed"));
        }
        let mut functions = Vec::with_capacity(items.len());
        for (index, item) in items.enumerate() {
            functions.push(self.function(Field::new(item, &field.path.index(index)))?);
        }
        distinct(&functions, field.path, |path| path.key("name").is(What::Duplicate))?;
        if !functions.is_empty() {
            self.wishes().functions = functions;
        }
        Ok(())
    }

    /// `function_call`
    pub(super) fn function_choice(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        const WORDS: &[&str] = &["none", "auto"];
        let choice = match field.json {
            Json::Str("none") => Choice::None,
            Json::Str("auto") => Choice::Auto,
            Json::Str(other) => return Err(field.path.is(What::OneOf(WORDS, other.into()))),
            Json::Object(_) => Choice::Named(self.named(field)?, "function_call.name"),
            _ => return Err(field.path.is_not(Expected::Choice, field.json)),
        };
        if !matches!(choice, Choice::Auto) {
            self.wishes().function_choice = choice;
        }
        Ok(())
    }

    /// The `function_call` of an earlier answer.
    pub(super) fn function_call(&mut self, field: Field<'_, '_>) -> Result<ToolCall, Fault> {
        let id = format!("function_call_{}", self.function_calls);
        self.function_calls += 1;
        self.call(id, field)
    }
}

/// Begins the result of the last call of the function with this name.
pub(super) fn begin_result(name: Option<&str>, message: &Path<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    let path = message.key("name");
    let name = name.ok_or_else(|| path.is(What::Missing))?;
    match prompt.begin_result_of(name) {
        true => Ok(()),
        false => Err(path.breaks("is no function that the assistant message before calls")),
    }
}
