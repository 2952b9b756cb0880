//! `/v1/messages` and `/v1/messages/count_tokens`: the Messages API, wire to internal.
//!
//! A body is read in one pass over its text ([`direct`]), or, where that meets anything unusual, by a walk over the tape
//! here, which is the reference and the only one to refuse a body. Nothing here performs I/O or knows the models.
//! Invariant: a field is honoured, refused at its path, or one of those that the API lets a server ignore; `null` is the
//! same as absent, a known name given twice is refused.

use zerohop_engine::{Conversation, Role, ToolCall};

use super::{
    ChatRequest, CountRequest, Dialect, Extras, Scratch, StreamOptions,
    fault::{Expected, Fault, Path, What},
    fields::{Field, Ignored, MAX_MESSAGES, Neutral, Seen, tag},
    prompt::Prompt,
    source::Source,
    tape::{Entries, Items, Json, Value},
    wishes::Wishes,
};
use crate::error::ApiError;

mod direct;
mod known;
mod tools;

pub(super) use known::TOP;
use known::{BLOCKS, Block, Name, ROLES, hint};

/// The system block in which Claude Code names its version and entry point. It is no instruction to a model and would
/// make the prompts of two client versions differ from their first token on.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// Reads the body of `POST /v1/messages`. `strict` refuses unknown fields.
///
/// # Errors
/// [`crate::error::ErrorKind::InvalidRequest`] with the path of the first fault.
pub fn messages(body: &[u8], scratch: &mut Scratch, strict: bool) -> Result<(ChatRequest, Ignored), ApiError> {
    chat_or(body, scratch, strict, Ok, |scratch| {
        messages_by_tape(body, scratch, strict)
    })
}

/// As [`messages`], in one pass; `None` says nothing about the body.
pub(crate) fn messages_directly(body: &[u8], scratch: &mut Scratch, strict: bool) -> Option<(ChatRequest, Ignored)> {
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
        && let (Some(model), Some(max_tokens)) = (walk.model.take(), walk.max_tokens)
        && let Ok(conversation) = walk.conversation()
    {
        return found(walk.chat(model, max_tokens, conversation));
    }
    doubt(scratch)
}

/// As [`messages`], always by the tape.
#[inline(never)]
pub(crate) fn messages_by_tape(
    body: &[u8],
    scratch: &mut Scratch,
    strict: bool,
) -> Result<(ChatRequest, Ignored), ApiError> {
    scratch
        .with(body, |root, body| {
            let source = Source::new(root, body);
            let mut walk = Walk::over(root, &source, strict)?;
            let conversation = walk.conversation();
            let model = walk.model()?;
            let conversation = conversation?;
            let max_tokens = walk.max_tokens.ok_or_else(|| missing("max_tokens"))?;
            Ok(walk.chat(model, max_tokens, conversation))
        })
        .map_err(|fault| fault.into_error(Dialect::Anthropic))
}

/// Reads the body of `POST /v1/messages/count_tokens`: the same fields, of which only the prompt counts and none but it
/// and the model is required.
///
/// # Errors
/// As [`messages`].
pub fn count_tokens(body: &[u8], scratch: &mut Scratch, strict: bool) -> Result<(CountRequest, Ignored), ApiError> {
    match count_tokens_directly(body, scratch, strict) {
        Some(found) => Ok(found),
        None => count_tokens_by_tape(body, scratch, strict),
    }
}

/// As [`count_tokens`], in one pass; `None` says nothing about the body.
pub(crate) fn count_tokens_directly(
    body: &[u8],
    scratch: &mut Scratch,
    strict: bool,
) -> Option<(CountRequest, Ignored)> {
    let mut walk = Walk::new(strict);
    scratch.directly(body, |cursor| walk.directly(cursor))?;
    walk.count().ok()
}

/// As [`count_tokens`], always by the tape.
pub(crate) fn count_tokens_by_tape(
    body: &[u8],
    scratch: &mut Scratch,
    strict: bool,
) -> Result<(CountRequest, Ignored), ApiError> {
    scratch
        .with(body, |root, body| {
            let source = Source::new(root, body);
            Walk::over(root, &source, strict)?.count()
        })
        .map_err(|fault| fault.into_error(Dialect::Anthropic))
}

const NO_CALL: &str = "is no id of a tool_use block in the assistant message before";

fn missing(name: &str) -> Fault {
    Path::Root.key(name).is(What::Missing)
}

/// What a block says.
enum Said<'v> {
    /// Nothing that is shown to the model.
    Nothing,
    Text(&'v str),
    Call(ToolCall),
    /// The id of a call, and what came of it.
    Result(&'v str, String),
}

/// What the walk has met so far.
#[derive(Default)]
struct Walk<'t> {
    strict: bool,
    ignored: Ignored,
    /// The direct pass has none, and leaves what needs it to the tape.
    source: Option<&'t Source<'t>>,
    model: Option<String>,
    max_tokens: Option<u32>,
    stream: bool,
    stop: Vec<String>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    prompt: Option<Prompt>,
    system: Prompt,
    wishes: Option<Box<Wishes>>,
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

    /// Everything is checked in the order of the body.
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

    /// The request, once the whole body was read.
    #[inline(always)]
    fn chat(self, model: String, max_tokens: u32, conversation: Conversation) -> (ChatRequest, Ignored) {
        let request = ChatRequest {
            dialect: Dialect::Anthropic,
            model,
            conversation,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            seed: None,
            max_tokens: Some(max_tokens),
            stop: self.stop,
            stream: self.stream.then_some(StreamOptions { include_usage: true }),
            extras: self.extras,
        };
        (request, self.ignored)
    }

    /// As [`Self::chat`], for a count.
    fn count(mut self) -> Result<(CountRequest, Ignored), Fault> {
        let conversation = self.conversation();
        let request = CountRequest {
            model: self.model()?,
            conversation: conversation?,
        };
        Ok((request, self.ignored))
    }

    /// The model; where it is missing, that is told before anything about the messages.
    fn model(&mut self) -> Result<String, Fault> {
        self.model.take().ok_or_else(|| missing("model"))
    }

    #[inline(always)]
    fn conversation(&mut self) -> Result<Conversation, Fault> {
        let path = Path::Root.key("messages");
        let mut conversation = match &mut self.prompt {
            None => return Err(path.is(What::Missing)),
            Some(prompt) => prompt.finish(&mut self.system, &path)?,
        };
        if let Some(wishes) = self.wishes.take() {
            self.extras = wishes.finish(&mut conversation, self.max_tokens)?;
        }
        Ok(conversation)
    }

    fn wishes(&mut self) -> &mut Wishes {
        self.wishes.get_or_insert_default()
    }

    #[inline(always)]
    fn top(&mut self, name: Name, field: Field<'_, '_>) -> Result<(), Fault> {
        match name {
            Name::Model => self.model = Some(field.model()?),
            Name::Messages => self.prompt = Some(self.messages(field)?),
            Name::MaxTokens => self.max_tokens = Some(field.at_least(0)?),
            Name::System => self.system(field)?,
            Name::Stream => self.stream = field.bool()?,
            Name::StopSequences => self.stop = field.stops()?,
            Name::Temperature => self.temperature = Some(field.number(0, 1)?),
            Name::TopP => self.top_p = Some(field.top_p()?),
            // The API allows 0, which keeps all.
            Name::TopK => self.top_k = Some(field.at_least(0)?).filter(|&top_k| top_k > 0),
            Name::Thinking => thinking(field)?,
            Name::OutputConfig => self.output_config(field)?,
            Name::McpServers => field.only(Neutral::Empty)?,
            Name::Tools => self.tools(field)?,
            Name::ToolChoice => self.tool_choice(field)?,
            Name::OutputFormat => self.format(field, "output_format.schema")?,
            Name::Thread | Name::Fallbacks | Name::Compaction | Name::BillingPolicy => {
                field.only(Neutral::Null)?;
            }
            hint!() => {}
        }
        Ok(())
    }

    fn system(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        let mut prompt = Prompt::default();
        match field.json {
            Json::Str("") => {}
            Json::Str(_) => {
                prompt.begin(Role::System);
                prompt.text(field.text()?);
            }
            Json::Array(blocks) => {
                let mut begun = false;
                for (index, block) in blocks.enumerate() {
                    let path = field.path.index(index);
                    let Said::Text(text) = self.block(Field::new(block, &path), Role::System)? else {
                        continue;
                    };
                    if text.starts_with(BILLING_HEADER) {
                        continue;
                    }
                    if !std::mem::replace(&mut begun, true) {
                        prompt.begin(Role::System);
                    }
                    prompt.text(text);
                }
            }
            _ => return Err(field.path.is_not(Expected::Content, field.json)),
        }
        self.system = prompt;
        Ok(())
    }

    fn messages(&mut self, field: Field<'_, '_>) -> Result<Prompt, Fault> {
        let items = field.array()?;
        let count = items.len();
        if count == 0 {
            return Err(field.path.breaks("at least one message is required"));
        }
        if count > MAX_MESSAGES {
            return Err(field.path.breaks("at most 100,000 messages are allowed"));
        }
        let mut prompt = Prompt::default();
        for (index, item) in items.enumerate() {
            let path = field.path.index(index);
            self.message(Field::new(item, &path), index + 1 == count, &mut prompt)?;
        }
        Ok(prompt)
    }

    fn message(&mut self, field: Field<'_, '_>, last: bool, prompt: &mut Prompt) -> Result<(), Fault> {
        let (mut role, mut content) = (None, None);
        let mut seen = Seen::default();
        for (key, value) in field.object()? {
            let path = field.path.key(key);
            match key {
                "role" => {
                    seen.once(0, &path)?;
                    role = Some(read_role(Field::new(value, &path))?);
                }
                "content" => {
                    seen.once(1, &path)?;
                    content = Some(value);
                }
                _ => self.ignored.meet(&path, self.strict)?,
            }
        }
        let role = role.ok_or_else(|| field.path.key("role").is(What::Missing))?;
        let path = field.path.key("content");
        let content = Field::new(content.ok_or_else(|| path.is(What::Missing))?, &path);
        match content.json {
            // An empty last answer to continue is an answer to begin.
            Json::Str("") if last && role == Role::Assistant => Ok(()),
            Json::Str("") => {
                Err(path.breaks("messages must have non-empty content, but for a final assistant message"))
            }
            Json::Str(_) => {
                prompt.begin(role);
                prompt.text(content.text()?);
                Ok(())
            }
            Json::Array(blocks) => self.blocks(blocks, role, last, &path, prompt),
            _ => Err(path.is_not(Expected::Content, content.json)),
        }
    }

    fn blocks(
        &mut self,
        blocks: Items<'_>,
        role: Role,
        last: bool,
        path: &Path<'_>,
        prompt: &mut Prompt,
    ) -> Result<(), Fault> {
        if blocks.len() == 0 && !(last && role == Role::Assistant) {
            return Err(path.breaks("messages must have non-empty content, but for a final assistant message"));
        }
        let mut begun = false;
        for (index, block) in blocks.enumerate() {
            let path = path.index(index);
            match self.block(Field::new(block, &path), role)? {
                Said::Nothing => {}
                Said::Text(text) => {
                    if !std::mem::replace(&mut begun, true) {
                        prompt.begin(role);
                    }
                    prompt.text(text);
                }
                Said::Call(call) => {
                    if !std::mem::replace(&mut begun, true) {
                        prompt.begin(role);
                    }
                    prompt.call(call).map_err(|rule| path.key("id").breaks(rule))?;
                }
                Said::Result(id, text) => {
                    if !prompt.begin_result(id) {
                        return Err(path.key("tool_use_id").breaks(NO_CALL));
                    }
                    prompt.text(&text);
                    begun = false;
                }
            }
        }
        Ok(())
    }

    fn block<'v>(&mut self, field: Field<'v, '_>, role: Role) -> Result<Said<'v>, Fault> {
        let entries = field.object()?;
        let kind = block_type(entries, field.path)?;
        match (kind, role) {
            (Block::ToolUse, Role::Assistant) => return self.tool_use(entries, field.path),
            (Block::ToolUse, _) => {
                return Err(field.path.breaks("tool_use blocks are for assistant messages only"));
            }
            (Block::ToolResult, Role::User) => return self.tool_result(entries, field.path),
            (Block::ToolResult, _) => return Err(field.path.breaks("tool_result blocks are for user messages only")),
            _ => {}
        }
        let mut seen = Seen::default();
        let mut text = None;
        for (key, value) in entries {
            let path = field.path.key(key);
            match (key, kind) {
                ("type", _) => {}
                ("text", Block::Text) => {
                    seen.once(0, &path)?;
                    text = Some(value);
                }
                // Citations of earlier answers are for people, cache marks for the vendor's cache.
                ("cache_control" | "citations", Block::Text)
                | ("thinking" | "signature" | "data" | "cache_control", Block::Thinking) => {}
                _ => self.ignored.meet(&path, self.strict)?,
            }
        }
        if let Block::Thinking = kind {
            return match role {
                Role::Assistant => Ok(Said::Nothing),
                Role::User | Role::System | Role::Tool => {
                    Err(field.path.breaks("thinking blocks are for assistant messages only"))
                }
            };
        }
        let path = field.path.key("text");
        let text = text.ok_or_else(|| path.is(What::Missing))?;
        match Field::new(text, &path).text()? {
            "" => Err(path.breaks("text content blocks must be non-empty")),
            text => Ok(Said::Text(text)),
        }
    }

    fn output_config(&mut self, field: Field<'_, '_>) -> Result<(), Fault> {
        let mut seen = Seen::default();
        for (key, value) in field.object()? {
            let path = field.path.key(key);
            match key {
                "format" => {
                    seen.once(0, &path)?;
                    if let Some(format) = Field::new(value, &path).present() {
                        self.format(format, "output_config.format.schema")?;
                    }
                }
                "effort" | "task_budget" => {}
                _ => self.ignored.meet(&path, self.strict)?,
            }
        }
        Ok(())
    }
}

fn read_role(field: Field<'_, '_>) -> Result<Role, Fault> {
    const NAMES: &[&str] = &["user", "assistant", "system"];
    let name = field.str()?;
    ROLES
        .get(name)
        .ok_or_else(|| field.path.is(What::OneOf(NAMES, name.into())))
}

/// The `type` of the block with these entries, which may stand anywhere among them.
fn block_type(entries: Entries<'_>, path: &Path<'_>) -> Result<Block, Fault> {
    const NAMES: &[&str] = &["text", "thinking", "redacted_thinking", "tool_use", "tool_result"];
    let name = tag(entries, "type", path)?;
    match BLOCKS.get(name) {
        Some(Block::NotYet) => Err(path.key("type").is(What::ValueNotYet(name.into()))),
        Some(block) => Ok(block),
        None => Err(path.key("type").is(What::OneOf(NAMES, name.into()))),
    }
}

/// How much to think is the model's own affair, unless the client insists that it does.
fn thinking(field: Field<'_, '_>) -> Result<(), Fault> {
    const NAMES: &[&str] = &["adaptive", "disabled", "enabled", "between_tools"];
    match tag(field.object()?, "type", field.path)? {
        "adaptive" | "disabled" | "between_tools" => Ok(()),
        name => Err(not_yet_or_unknown(name, NAMES, field.path)),
    }
}

fn not_yet_or_unknown(name: &str, names: &'static [&'static str], object: &Path<'_>) -> Fault {
    object.key("type").is(if names.contains(&name) {
        What::ValueNotYet(name.into())
    } else {
        What::OneOf(names, name.into())
    })
}

#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
