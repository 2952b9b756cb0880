//! `/v1/chat/completions`: the Chat Completions API, wire to internal.
//!
//! A body is read in one pass over its text ([`direct`]), or, where that meets anything unusual, by a walk over the tape
//! here, which is the reference and the only one to refuse a body. Nothing here performs I/O or knows the models.
//! Invariant: a field is honoured, refused at its path, or one of those that the API lets a server ignore; `null` is the
//! same as absent, a known name given twice is refused.

use zerohop_engine::{Conversation, Role};

use super::{
    ChatRequest, Dialect, Scratch, StreamOptions,
    fault::{Expected, Fault, Path, What},
    fields::{Field, Ignored, MAX_MESSAGES, Neutral, Prompt, Seen, find, tag},
    tape::{Items, Json, Value},
};
use crate::error::ApiError;

mod direct;
mod known;

pub(super) use known::TOP;
use known::{Name, PARTS, Part, ROLES, hint};

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
        .with(body, |root| {
            let mut walk = Walk::over(root, strict)?;
            let (model, conversation) = walk.complete()?;
            Ok(walk.request(model, conversation))
        })
        .map_err(|fault| fault.into_error(Dialect::OpenAi))
}

/// What the walk has met so far.
#[derive(Default)]
struct Walk {
    strict: bool,
    ignored: Ignored,
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
}

impl Walk {
    fn new(strict: bool) -> Self {
        Self {
            strict,
            ..Self::default()
        }
    }

    fn over(root: Value<'_>, strict: bool) -> Result<Self, Fault> {
        let mut walk = Self::new(strict);
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
        let conversation = prompt.finish(&mut Prompt::default(), &Path::Root.key("messages"))?;
        Ok((model, conversation))
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
            Name::N => only_one(field)?,
            Name::FrequencyPenalty | Name::PresencePenalty => {
                field.number(-2, 2)?;
                field.only(Neutral::Number(0))?;
            }
            Name::TopLogprobs => {
                field.number(0, 20)?;
                field.only(Neutral::Number(0))?;
            }
            Name::ResponseFormat => response_format(field)?,
            Name::Modalities => modalities(field)?,
            Name::MinP | Name::MinTokens => field.only(Neutral::Number(0))?,
            Name::RepetitionPenalty => field.only(Neutral::Number(1))?,
            Name::Logprobs | Name::IgnoreEos | Name::Echo => field.only(Neutral::False)?,
            Name::Tools | Name::Functions | Name::LogitBias | Name::StopTokenIds | Name::ChatTemplateKwargs => {
                field.only(Neutral::Empty)?;
            }
            Name::ToolChoice | Name::FunctionCall => field.only(Neutral::Word("none"))?,
            Name::Audio
            | Name::WebSearchOptions
            | Name::Moderation
            | Name::StructuredOutputs
            | Name::GuidedJson
            | Name::GuidedRegex
            | Name::GuidedChoice
            | Name::GuidedGrammar
            | Name::Grammar
            | Name::JsonSchema
            | Name::PromptLogprobs => field.only(Neutral::Null)?,
            hint!() => {}
        }
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
        let role = role(tag(entries, "role", field.path)?, field.path)?;
        let (mut content, mut refusal) = (None, None);
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
                ("tool_calls", Role::Assistant) => entry.map_or(Ok(()), |entry| entry.only(Neutral::Empty))?,
                ("function_call" | "audio", Role::Assistant) => {
                    entry.map_or(Ok(()), |entry| entry.only(Neutral::Null))?;
                }
                ("annotations", Role::Assistant) => {}
                _ => self.ignored.meet(&path, self.strict)?,
            }
        }
        let path = field.path.key("content");
        prompt.begin(role);
        match (
            content
                .map(|content| Field::new(content, &path))
                .and_then(Field::present),
            role,
        ) {
            (Some(content), _) => self.content(content, role, prompt)?,
            (None, Role::Assistant) if refusal.is_some() || content.is_some() => {}
            (None, _) => return Err(content_missing(content, &path)),
        }
        if let Some(refusal) = refusal {
            prompt.text(refusal);
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

fn role(name: &str, message: &Path<'_>) -> Result<Role, Fault> {
    const NAMES: &[&str] = &["system", "developer", "user", "assistant"];
    match ROLES.get(name) {
        Some(Some(role)) => Ok(role),
        Some(None) => Err(message.key("role").is(What::ValueNotYet(name.into()))),
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

fn only_one(field: Field<'_, '_>) -> Result<(), Fault> {
    match field.at_least(1)? {
        1 => Ok(()),
        more => Err(field.path.is(What::ValueNotYet(more.to_string()))),
    }
}

fn response_format(field: Field<'_, '_>) -> Result<(), Fault> {
    const NAMES: &[&str] = &["text", "json_object", "json_schema"];
    let kind = tag(field.object()?, "type", field.path)?;
    let path = field.path.key("type");
    match kind {
        "text" => Ok(()),
        "json_object" | "json_schema" | "grammar" | "structural_tag" => Err(path.is(What::ValueNotYet(kind.into()))),
        _ => Err(path.is(What::OneOf(NAMES, kind.into()))),
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
