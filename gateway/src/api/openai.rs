//! `/v1/chat/completions`: the Chat Completions API, wire to internal.
//!
//! A body is read in one pass over its text ([`direct`]), or, where that meets anything unusual, by a walk over the tape
//! here, which is the reference and the only one to refuse a body. Nothing here performs I/O or knows the models.
//! Invariant: a field is honoured, refused at its path, or one of those that the API lets a server ignore; `null` is the
//! same as absent, a known name given twice is refused.

use std::collections::HashSet;

use zerohop_engine::{Conversation, Form, Role, check_template_argument};

use super::{
    ChatRequest, Dialect, Extras, Scratch, StreamOptions,
    fault::{Expected, Fault, Path, What},
    fields::{Field, Ignored, MAX_MESSAGES, Neutral, Seen, find, tag},
    prompt::Prompt,
    source::Source,
    tape::{Items, Json, Value},
    wishes::{self, MAX_CHOICES, Wishes},
};
use crate::error::ApiError;

mod completions;
mod direct;
mod form;
mod functions;
mod known;
mod tools;

pub use completions::{CompletionRequest, MAX_ANSWERS, completions};
pub(super) use known::TOP;
use known::{Name, PARTS, Part, ROLES, hint};

/// Most arguments for a chat template.
const MAX_TEMPLATE_ARGUMENTS: usize = 64;

/// Reads the body of `POST /v1/chat/completions`. `strict` refuses unknown fields.
///
/// # Errors
/// [`crate::error::ErrorKind::InvalidRequest`] with the path of the first fault.
pub fn chat(body: &[u8], scratch: &mut Scratch, strict: bool) -> Result<(ChatRequest, Ignored), ApiError> {
    chat_or(body, scratch, strict, Ok, |scratch| chat_by_tape(body, scratch, strict))
}

/// As [`chat`], in one pass; `None` says nothing about the body.
pub(crate) fn chat_directly(body: &[u8], scratch: &mut Scratch, strict: bool) -> Option<(ChatRequest, Ignored)> {
    chat_or(body, scratch, strict, Some, |_| None)
}

/// One pass; what is found goes through `found` straight to its place, a doubt becomes what `doubt` makes of it.
#[inline(always)]
fn chat_or<T>(
    body: &[u8],
    scratch: &mut Scratch,
    strict: bool,
    found: impl FnOnce((ChatRequest, Ignored)) -> T,
    doubt: impl FnOnce(&mut Scratch) -> T,
) -> T {
    let mut walk = Walk::new(strict);
    if scratch.directly(body, |cursor| walk.directly(cursor)).is_some()
        && let Ok((model, conversation)) = walk.complete()
    {
        return found(walk.request(model, conversation));
    }
    doubt(scratch)
}

/// As [`chat`], always by the tape.
#[inline(never)]
pub(crate) fn chat_by_tape(
    body: &[u8],
    scratch: &mut Scratch,
    strict: bool,
) -> Result<(ChatRequest, Ignored), ApiError> {
    scratch
        .with(body, |root, body| {
            let source = Source::new(root, body);
            let mut walk = Walk::over(root, &source, strict)?;
            let (model, conversation) = walk.complete()?;
            Ok(walk.request(model, conversation))
        })
        .map_err(|fault| fault.into_error(Dialect::OpenAi))
}

/// What the walk has met so far.
#[derive(Default)]
struct Walk<'t> {
    strict: bool,
    ignored: Ignored,
    /// The direct pass has none, and leaves what needs it to the tape.
    source: Option<&'t Source<'t>>,
    model: Option<String>,
    prompt: Option<Prompt>,
    stream: bool,
    /// `stream_options` was given: with usage or without.
    stream_options: Option<bool>,
    max_completion_tokens: Option<u32>,
    max_tokens: Option<u32>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    stop: Vec<String>,
    seed: Option<u64>,
    wishes: Option<Box<Wishes>>,
    /// How many calls in the old words earlier answers made.
    function_calls: u32,
    /// What has become of the wishes.
    extras: Option<Box<Extras>>,
}

impl<'t> Walk<'t> {
    fn new(strict: bool) -> Self {
        Self {
            strict,
            ..Self::default()
        }
    }

    fn over(root: Value<'t>, source: &'t Source<'t>, strict: bool) -> Result<Self, Fault> {
        let mut walk = Self::new(strict);
        walk.source = Some(source);
        let mut seen = Seen::default();
        for (key, value) in Field::new(root, &Path::Root).object()? {
            let path = Path::Root.key(key);
            match TOP.get(key) {
                None => walk.ignored.meet(&path, strict)?,
                Some(name) => {
                    seen.once(name as u8, &path)?;
                    if let Some(field) = Field::new(value, &path).present() {
                        walk.top(name, field)?;
                    }
                }
            }
        }
        Ok(walk)
    }

    /// What a request must have, once the whole body was read.
    #[inline(always)]
    fn complete(&mut self) -> Result<(String, Conversation), Fault> {
        let missing = |name: &str| Path::Root.key(name).is(What::Missing);
        if self.stream_options.is_some() && !self.stream {
            return Err(Path::Root
                .key("stream_options")
                .breaks("is only allowed when 'stream' is true"));
        }
        let model = self.model.take().ok_or_else(|| missing("model"))?;
        let prompt = self.prompt.as_mut().ok_or_else(|| missing("messages"))?;
        let mut conversation = prompt.finish(&mut Prompt::default(), &Path::Root.key("messages"))?;
        if let Some(wishes) = self.wishes.take() {
            let most = self.max_completion_tokens.or(self.max_tokens);
            self.extras = wishes.finish(&mut conversation, most)?;
        }
        Ok((model, conversation))
    }

    fn wishes(&mut self) -> &mut Wishes {
        self.wishes.get_or_insert_default()
    }

    #[inline(always)]
    fn request(self, model: String, conversation: Conversation) -> (ChatRequest, Ignored) {
        let request = ChatRequest {
            dialect: Dialect::OpenAi,
            model,
            conversation,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            seed: self.seed,
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            stop: self.stop,
            stream: self.stream.then_some(StreamOptions {
                include_usage: self.stream_options == Some(true),
            }),
            extras: self.extras,
        };
        (request, self.ignored)
    }

    #[inline(always)]
    fn top(&mut self, name: Name, field: Field<'_, '_>) -> Result<(), Fault> {
        match name {
            Name::Model => self.model = Some(field.model()?),
            Name::Messages => self.prompt = Some(self.messages(field)?),
            Name::Stream => self.stream = field.bool()?,
            Name::StreamOptions => self.stream_options = Some(self.stream_options(field)?),
            Name::MaxCompletionTokens => self.max_completion_tokens = Some(field.at_least(1)?),
            Name::MaxTokens => self.max_tokens = Some(field.at_least(1)?),
            Name::Temperature => self.temperature = Some(field.number(0, 2)?),
            Name::TopP => self.top_p = Some(field.top_p()?),
            Name::TopK => self.top_k = top_k(field)?,
            Name::Stop => self.stop = stop(field)?,
            Name::Seed => self.seed = Some(seed(field)?),
            Name::Modalities => modalities(field)?,
            Name::Echo => field.only(Neutral::False)?,
            Name::Audio | Name::WebSearchOptions | Name::Moderation | Name::Grammar | Name::PromptLogprobs => {
                field.only(Neutral::Null)?;
            }
            hint!() => {}
            _ => self.wish(name, field)?,
        }
        Ok(())
    }

    /// What few requests have.
    #[inline(never)]
    fn wish(&mut self, name: Name, field: Field<'_, '_>) -> Result<(), Fault> {
        match name {
            Name::N => self.wishes().extras.choices = wishes::between(field, 1, MAX_CHOICES)?,
            Name::FrequencyPenalty => self.wishes().extras.frequency_penalty = field.number(-2, 2)?,
            Name::PresencePenalty => self.wishes().extras.presence_penalty = field.number(-2, 2)?,
            Name::RepetitionPenalty => self.wishes().extras.repetition_penalty = wishes::repetition_penalty(field)?,
            Name::MinP => self.wishes().extras.min_p = field.number(0, 1)?,
            Name::MinTokens => self.wishes().extras.min_tokens = field.at_least(0)?,
            Name::IgnoreEos => self.wishes().extras.ignore_eos = field.bool()?,
            Name::StopTokenIds => self.wishes().extras.stop_tokens = wishes::stop_tokens(field)?,
            Name::LogitBias => self.wishes().extras.logit_bias = wishes::logit_bias(field)?,
            Name::Logprobs => self.wishes().logprobs = field.bool()?,
            Name::TopLogprobs => self.wishes().top_logprobs = Some(wishes::between(field, 0, 20)?),
            Name::Tools => self.tools(field)?,
            Name::ToolChoice => self.tool_choice(field)?,
            Name::Functions => self.functions(field)?,
            Name::FunctionCall => self.function_choice(field)?,
            Name::ChatTemplateKwargs => self.template_arguments(field)?,
            Name::ParallelToolCalls => self.wishes().single = !field.bool()?,
            Name::ResponseFormat => self.response_format(field)?,
            Name::StructuredOutputs => self.structured_outputs(field)?,
            Name::GuidedJson => {
                let form = Form::Schema(self.schema(field)?);
                self.wishes().form(form, "guided_json");
            }
            Name::JsonSchema => {
                let form = Form::Schema(self.schema(field)?);
                self.wishes().form(form, "json_schema");
            }
            Name::GuidedRegex => {
                let form = Form::Regex(wishes::pattern(field)?);
                self.wishes().form(form, "guided_regex");
            }
            Name::GuidedChoice => {
                let form = wishes::choice_texts(field)?;
                self.wishes().form(form, "guided_choice");
            }
            Name::GuidedGrammar => {
                let form = Form::Grammar(wishes::pattern(field)?);
                self.wishes().form(form, "guided_grammar");
            }
            _ => {}
        }
        Ok(())
    }

    /// `chat_template_kwargs`: an extension that open servers share.
    fn template_arguments(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        let entries = field.object()?;
        if entries.is_empty() {
            return Ok(());
        }
        let mut names = HashSet::new();
        for (key, _) in entries {
            let path = field.path.key(key);
            if let Err(rule) = check_template_argument(key) {
                return Err(path.breaks(rule));
            }
            if !names.insert(key) {
                return Err(path.is(What::Duplicate));
            }
            if names.len() > MAX_TEMPLATE_ARGUMENTS {
                return Err(field.path.breaks("must have at most 64 entries"));
            }
        }
        self.wishes().template_arguments = Some(field.raw(self.source)?.to_owned());
        Ok(())
    }

    fn stream_options(&mut self, field: Field<'_, '_>) -> Result<bool, Fault> {
        let entries = field.object()?;
        for (key, _) in entries {
            if !matches!(key, "include_usage" | "include_obfuscation") {
                self.ignored.meet(&field.path.key(key), self.strict)?;
            }
        }
        let path = field.path.key("include_usage");
        match find(entries, "include_usage", field.path)?.and_then(|value| Field::new(value, &path).present()) {
            None => Ok(false),
            Some(include_usage) => include_usage.bool(),
        }
    }

    fn messages(&mut self, field: Field<'_, '_>) -> Result<Prompt, Fault> {
        let items = field.array()?;
        if items.len() == 0 {
            return Err(field.path.breaks("at least one message is required"));
        }
        if items.len() > MAX_MESSAGES {
            return Err(field.path.breaks("at most 100,000 messages are allowed"));
        }
        let mut prompt = Prompt::default();
        for (index, item) in items.enumerate() {
            let path = field.path.index(index);
            self.message(Field::new(item, &path), &mut prompt)?;
        }
        Ok(prompt)
    }

    fn message(&mut self, field: Field<'_, '_>, prompt: &mut Prompt) -> Result<(), Fault> {
        let entries = field.object()?;
        let (role, is_function) = role(tag(entries, "role", field.path)?, field.path)?;
        let (mut content, mut refusal, mut calls, mut answers) = (None, None, None, None);
        let mut function_call = None;
        let mut seen = Seen::default();
        for (key, value) in entries {
            let path = field.path.key(key);
            let entry = Field::new(value, &path).present();
            match (key, role) {
                ("role", _) => {}
                ("content", _) => {
                    seen.once(0, &path)?;
                    content = Some(value);
                }
                // What an earlier answer of ours or of another server looked like.
                ("refusal", Role::Assistant) => {
                    seen.once(1, &path)?;
                    refusal = entry.map(Field::text).transpose()?;
                }
                ("tool_calls", Role::Assistant) => {
                    seen.once(2, &path)?;
                    calls = entry.map(|entry| self.tool_calls(entry)).transpose()?;
                }
                ("tool_call_id", Role::Tool) if !is_function => {
                    seen.once(3, &path)?;
                    answers = entry.map(Field::name).transpose()?;
                }
                ("name", Role::Tool) if is_function => {
                    seen.once(3, &path)?;
                    answers = entry.map(Field::tool_name).transpose()?;
                }
                ("function_call", Role::Assistant) => {
                    seen.once(4, &path)?;
                    function_call = entry.map(|entry| self.function_call(entry)).transpose()?;
                }
                ("audio", Role::Assistant) => {
                    entry.map_or(Ok(()), |entry| entry.only(Neutral::Null))?;
                }
                ("annotations", Role::Assistant) => {}
                _ => self.ignored.meet(&path, self.strict)?,
            }
        }
        let mut calls = calls.unwrap_or_default();
        if function_call.is_some() && !calls.is_empty() {
            let path = field.path.key("function_call");
            return Err(path.breaks("must not be given together with 'tool_calls'"));
        }
        calls.extend(function_call);
        if is_function {
            functions::begin_result(answers, field.path, prompt)?;
        } else if role == Role::Tool {
            let path = field.path.key("tool_call_id");
            let answers = answers.ok_or_else(|| path.is(What::Missing))?;
            if !prompt.begin_result(answers) {
                return Err(path.breaks("is no id of a call in the assistant message before"));
            }
        } else {
            prompt.begin(role);
        }
        let path = field.path.key("content");
        match (
            content
                .map(|content| Field::new(content, &path))
                .and_then(Field::present),
            role,
        ) {
            (Some(content), _) => self.content(content, role, prompt)?,
            (None, Role::Assistant) if refusal.is_some() || content.is_some() || !calls.is_empty() => {}
            (None, _) => return Err(content_missing(content, &path)),
        }
        if let Some(refusal) = refusal {
            prompt.text(refusal);
        }
        for (index, call) in calls.into_iter().enumerate() {
            let added = prompt.call(call);
            added.map_err(|rule| field.path.key("tool_calls").index(index).breaks(rule))?;
        }
        Ok(())
    }

    fn content(&mut self, field: Field<'_, '_>, role: Role, prompt: &mut Prompt) -> Result<(), Fault> {
        match field.json {
            Json::Str(_) => {
                prompt.text(field.text()?);
                Ok(())
            }
            Json::Array(parts) => self.parts(parts, field.path, role, prompt),
            _ => Err(field.path.is_not(Expected::Content, field.json)),
        }
    }

    fn parts(&mut self, parts: Items<'_>, path: &Path<'_>, role: Role, prompt: &mut Prompt) -> Result<(), Fault> {
        if parts.len() == 0 {
            return Err(path.breaks("at least one content part is required"));
        }
        for (index, part) in parts.enumerate() {
            let path = path.index(index);
            let entries = Field::new(part, &path).object()?;
            let name = part_name(tag(entries, "type", &path)?, &path, role)?;
            for (key, _) in entries {
                if key != "type" && key != name {
                    self.ignored.meet(&path.key(key), self.strict)?;
                }
            }
            let text = find(entries, name, &path)?.ok_or_else(|| path.key(name).is(What::Missing))?;
            prompt.text(Field::new(text, &path.key(name)).text()?);
        }
        Ok(())
    }
}

/// The fault of a message without content: not there, or `null` where it may not be.
fn content_missing(content: Option<Value<'_>>, path: &Path<'_>) -> Fault {
    match content {
        None => path.is(What::Missing),
        Some(null) => path.is_not(Expected::Content, null.json()),
    }
}

/// Whose message it is, and whether it is the result of a function in the old words.
fn role(name: &str, message: &Path<'_>) -> Result<(Role, bool), Fault> {
    const NAMES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function"];
    match ROLES.get(name) {
        Some(Some(role)) => Ok((role, false)),
        Some(None) => Ok((Role::Tool, true)),
        None => Err(message.key("role").is(What::OneOf(NAMES, name.into()))),
    }
}

/// The name under which a part of this type has its text.
fn part_name(kind: &str, part: &Path<'_>, role: Role) -> Result<&'static str, Fault> {
    const NAMES: &[&str] = &["text", "refusal"];
    match (PARTS.get(kind), role) {
        (Some(Part::Text), _) => Ok("text"),
        (Some(Part::Refusal), Role::Assistant) => Ok("refusal"),
        (Some(Part::Refusal), _) => Err(part.key("type").breaks("'refusal' is for assistant messages only")),
        (Some(Part::NotYet), _) => Err(part.key("type").is(What::ValueNotYet(kind.into()))),
        (None, Role::Assistant) => Err(part.key("type").is(What::OneOf(NAMES, kind.into()))),
        (None, _) => Err(part.key("type").is(What::OneOf(&NAMES[..1], kind.into()))),
    }
}

/// An extension that open servers share: 0 and −1 keep all.
fn top_k(field: Field<'_, '_>) -> Result<Option<u32>, Fault> {
    match field.int()? {
        -1 | 0 => Ok(None),
        _ => field.at_least(1).map(Some),
    }
}

fn stop(field: Field<'_, '_>) -> Result<Vec<String>, Fault> {
    match field.json {
        Json::Str(_) => Ok(vec![field.stop()?]),
        Json::Array(_) => field.stops(),
        _ => Err(field.path.is_not(Expected::Strings, field.json)),
    }
}

/// Any integer of 64 bits, with or without sign; the same bits give the same stream.
fn seed(field: Field<'_, '_>) -> Result<u64, Fault> {
    let value = field.int()?;
    if value < i128::from(i64::MIN) {
        return Err(field.path.is(What::Below(i64::MIN, value.to_string())));
    }
    match u64::try_from(value) {
        Ok(seed) => Ok(seed),
        Err(_) if value > 0 => Err(field.path.breaks("must fit 64 bits")),
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        Err(_) => Ok((value as i64).cast_unsigned()),
    }
}

fn modalities(field: Field<'_, '_>) -> Result<(), Fault> {
    for (index, item) in field.array()?.enumerate() {
        let path = field.path.index(index);
        match Field::new(item, &path).str()? {
            "text" => {}
            "audio" => return Err(path.is(What::ValueNotYet("audio".into()))),
            other => return Err(path.is(What::OneOf(&["text", "audio"], other.into()))),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "openai_tests.rs"]
mod tests;
