//! What few requests ask for, in the making: tools, forms, penalties, log probabilities. Common to both dialects.
//!
//! Nothing here knows the name of a field but for the words of a fault. Invariant: wishes that contradict each other are
//! refused, whatever their order in the body; what asks for nothing leaves no trace.

use std::collections::HashSet;

use zerohop_engine::{Conversation, Form, Tool, ToolChoice, Tools};

use super::{
    Extras,
    fault::{Fault, Path, What},
    fields::Field,
    tape::Json,
};

/// Most answers to one prompt.
pub const MAX_CHOICES: u32 = 8;
/// Most tools of a request. A client's own have about 30; with tools from elsewhere there may be hundreds.
pub(crate) const MAX_TOOLS: usize = 512;
/// Most biased tokens, and most tokens at which to stop.
const MAX_BIASED: usize = 1024;
const MAX_STOP_TOKENS: usize = 128;
/// Most texts of which an answer may be one.
const MAX_CHOICE_TEXTS: usize = 1024;

const UNKNOWN: &str = "is no tool of this request";

/// Which calls are wished for, as the body has it.
#[derive(Default)]
pub(crate) enum Choice {
    #[default]
    Auto,
    None,
    Required,
    /// This one; where its name stands.
    Named(String, &'static str),
    /// One of these, perhaps; where the list stands.
    Allowed {
        names: Vec<String>,
        required: bool,
        path: &'static str,
    },
}

/// What was met of it so far.
#[derive(Default)]
pub(crate) struct Wishes {
    pub(crate) extras: Extras,
    pub(crate) logprobs: bool,
    pub(crate) top_logprobs: Option<u32>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) choice: Choice,
    /// The same in the words of old.
    pub(crate) functions: Vec<Tool>,
    pub(crate) function_choice: Choice,
    /// Arguments for the chat template: an object, as text.
    pub(crate) template_arguments: Option<String>,
    /// One answer holds one call at most.
    pub(crate) single: bool,
    /// Forms that were given: the first one's place, and a second one's.
    forms: [&'static str; 2],
}

impl Wishes {
    /// A form was given at this place (with dots).
    pub(crate) fn form(&mut self, form: Form, place: &'static str) {
        if self.forms[0].is_empty() {
            self.forms[0] = place;
            self.extras.places.form = place;
            self.extras.form = form;
        } else {
            self.forms[1] = place;
        }
    }

    /// All of it, once the whole body was read; the tools go into the conversation.
    #[cold]
    pub(crate) fn finish(
        mut self: Box<Self>,
        conversation: &mut Conversation,
        max_tokens: Option<u32>,
    ) -> Result<Option<Box<Extras>>, Fault> {
        self.agree(max_tokens)?;
        self.extras.logprobs = self.logprobs.then_some(self.top_logprobs.unwrap_or(0));
        self.take_functions()?;
        let choice = self.choose()?;
        let forced = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        if forced && self.extras.form != Form::Free {
            let path = Path::Root.key(self.extras.places.tool_choice());
            return Err(path.breaks("must not force a call where the form of the answer is given"));
        }
        if !self.tools.is_empty() {
            conversation.tools = Tools {
                list: self.tools,
                choice,
                parallel: !self.single,
            };
        }
        conversation.template_arguments = self.template_arguments.unwrap_or_default();
        let extras = self.extras;
        Ok((extras != Extras::default()).then(|| Box::new(extras)))
    }

    /// Takes functions for the tools that they are.
    fn take_functions(&mut self) -> Result<(), Fault> {
        const BESIDE: &str = "must not be given together with 'functions'";
        let choice = std::mem::take(&mut self.function_choice);
        if self.functions.is_empty() {
            return match choice {
                Choice::Named(_, path) => Err(Path::Root.key(path).breaks(UNKNOWN)),
                _ => Ok(()),
            };
        }
        if !self.tools.is_empty() {
            return Err(Path::Root.key("tools").breaks(BESIDE));
        }
        if !matches!(self.choice, Choice::Auto) {
            return Err(Path::Root.key("tool_choice").breaks(BESIDE));
        }
        self.tools = std::mem::take(&mut self.functions);
        self.choice = choice;
        self.single = true;
        self.extras.places.functions = true;
        Ok(())
    }

    /// Wishes about numbers and forms do not contradict each other.
    fn agree(&self, max_tokens: Option<u32>) -> Result<(), Fault> {
        let at = |name: &str, rule| Err(Path::Root.key(name).breaks(rule));
        if !self.forms[1].is_empty() {
            return at(
                self.forms[1],
                "the form of the answer is already given by another field",
            );
        }
        if !self.logprobs && self.top_logprobs.is_some_and(|top| top > 0) {
            return at("top_logprobs", "is only allowed when 'logprobs' is true");
        }
        if max_tokens.is_some_and(|most| most < self.extras.min_tokens) {
            return at("min_tokens", "must not be above the most tokens that are asked for");
        }
        Ok(())
    }

    /// The choice among the tools that there are; those that may not be called are left out.
    fn choose(&mut self) -> Result<ToolChoice, Fault> {
        const NO_TOOLS: &str = "must not force a call where there are no tools";
        let has = |tools: &[Tool], name: &str| tools.iter().any(|tool| tool.name == name);
        match std::mem::take(&mut self.choice) {
            Choice::Auto => Ok(ToolChoice::Auto),
            Choice::None => Ok(ToolChoice::None),
            Choice::Required if self.tools.is_empty() => Err(Path::Root.key("tool_choice").breaks(NO_TOOLS)),
            Choice::Required => Ok(ToolChoice::Required),
            Choice::Named(name, path) if !has(&self.tools, &name) => Err(Path::Root.key(path).breaks(UNKNOWN)),
            Choice::Named(name, _) => Ok(ToolChoice::Named(name)),
            Choice::Allowed { names, required, path } => {
                if let Some(index) = names.iter().position(|name| !has(&self.tools, name)) {
                    return Err(Path::Root.key(path).index(index).breaks(UNKNOWN));
                }
                let tools = std::mem::take(&mut self.tools).into_iter().enumerate();
                let (places, tools): (Vec<_>, Vec<_>) = tools.filter(|(_, tool)| names.contains(&tool.name)).unzip();
                // Without a gap they stand where they stood.
                if places.iter().enumerate().any(|(index, place)| index != *place) {
                    self.extras.places.tools = places;
                }
                self.tools = tools;
                Ok(if required {
                    ToolChoice::Required
                } else {
                    ToolChoice::Auto
                })
            }
        }
    }
}

/// No two tools have one name.
pub(crate) fn distinct(tools: &[Tool], path: &Path<'_>, name: impl Fn(&Path<'_>) -> Fault) -> Result<(), Fault> {
    let mut seen = HashSet::with_capacity(tools.len());
    match tools.iter().position(|tool| !seen.insert(tool.name.as_str())) {
        Some(index) => Err(name(&path.index(index))),
        None => Ok(()),
    }
}

/// Tokens and what is added to their logits.
pub(crate) fn logit_bias(field: Field<'_, '_>) -> Result<Vec<(u32, f32)>, Fault> {
    let mut found = Vec::new();
    for (key, value) in field.object()? {
        let path = field.path.key(key);
        if found.len() == MAX_BIASED {
            return Err(field.path.breaks("must have at most 1,024 entries"));
        }
        // As a number is written: without signs and leading zeros, so that no id has two spellings.
        let id = key.parse::<u32>().ok().filter(|id| id.to_string() == key);
        let id = id.ok_or_else(|| path.breaks("the key must be the id of a token"))?;
        found.push((id, Field::new(value, &path).number(-100, 100)?));
    }
    found.sort_unstable_by_key(|(id, _)| *id);
    match found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(field.path.key(&pair[0].0.to_string()).is(What::Duplicate)),
        None => Ok(found),
    }
}

/// Tokens at which to stop.
pub(crate) fn stop_tokens(field: Field<'_, '_>) -> Result<Vec<u32>, Fault> {
    let items = field.array()?;
    if items.len() > MAX_STOP_TOKENS {
        return Err(field.path.breaks("must have at most 128 entries"));
    }
    items
        .enumerate()
        .map(|(index, item)| Field::new(item, &field.path.index(index)).id())
        .collect()
}

/// Texts of which the answer is one.
pub(crate) fn choice_texts(field: Field<'_, '_>) -> Result<Form, Fault> {
    let items = field.array()?;
    match items.len() {
        0 => return Err(field.path.breaks("must not be empty")),
        1..=MAX_CHOICE_TEXTS => {}
        _ => return Err(field.path.breaks("must have at most 1,024 entries")),
    }
    let mut texts = Vec::with_capacity(items.len());
    for (index, item) in items.enumerate() {
        let path = field.path.index(index);
        texts.push(pattern(Field::new(item, &path))?);
    }
    Ok(Form::Choice(texts))
}

/// A regular expression, a grammar, or another text that an answer follows.
pub(crate) fn pattern(field: Field<'_, '_>) -> Result<String, Fault> {
    match field.text()? {
        "" => Err(field.path.breaks("must not be empty")),
        text if text.len() > super::fields::MAX_RAW_BYTES => Err(field.path.breaks("must have at most 262,144 bytes")),
        text => Ok(text.to_owned()),
    }
}

/// The penalty that divides logits: below 0.01 it would make them overflow.
pub(crate) fn repetition_penalty(field: Field<'_, '_>) -> Result<f32, Fault> {
    match field.number(0, 2)? {
        penalty if penalty < 0.01 => Err(field.path.breaks("must be between 0.01 and 2")),
        penalty => Ok(penalty),
    }
}

/// An integer between these bounds.
pub(crate) fn between(field: Field<'_, '_>, least: u32, most: u32) -> Result<u32, Fault> {
    match field.at_least(least)? {
        value if value > most => {
            let written = match field.json {
                Json::Int(value) => value.to_string(),
                _ => value.to_string(),
            };
            Err(field.path.is(What::Above(most.into(), written)))
        }
        value => Ok(value),
    }
}
