//! `/v1/completions`: prompts that are no conversation, wire to internal.
//!
//! Bodies are read by the tape alone: this is not where short requests come by the thousand. What the endpoint shares with
//! chat completions is read by the same readers. Invariant: a field is honoured, refused at its path, or one of those that
//! the API lets a server ignore; what only makes sense in a chat is refused.

use zerohop_engine::{Conversation, Prompt};

use super::{
    Dialect, Extras, Ignored, Scratch, StreamOptions, TOP, Walk,
    known::{Name, hint},
};
use crate::{
    api::{
        fault::{Expected, Fault, Path, What},
        fields::{Field, Neutral, Seen},
        source::Source,
        tape::{Items, Json, Value},
        wishes::between,
    },
    error::ApiError,
};

/// Most prompts of a request, and most answers to all of them together.
pub const MAX_ANSWERS: usize = 64;

/// How many tokens an answer has at most where the request does not say.
const DEFAULT_TOKENS: u32 = 16;

/// A request for the continuation of prompts.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The model's name as the client wrote it; the reply repeats it.
    pub model: String,
    /// 1 to [`MAX_ANSWERS`]: texts or tokens. No list of tokens is empty.
    pub prompts: Vec<Prompt>,
    /// 0 (greedy) to 2; `None`: 1.
    pub temperature: Option<f32>,
    /// Above 0, at most 1.
    pub top_p: Option<f32>,
    /// At least 1.
    pub top_k: Option<u32>,
    /// `None`: the worker draws one.
    pub seed: Option<u64>,
    /// 0: the prompt is computed and nothing said.
    pub max_tokens: u32,
    /// Stop texts, none of them empty.
    pub stop: Vec<String>,
    /// The text of each answer begins with its prompt.
    pub echo: bool,
    /// How to stream; `None`: one JSON document.
    pub stream: Option<StreamOptions>,
    /// What few requests ask for; its `choices` are the answers to each prompt. `None`: nothing of it.
    pub extras: Option<Box<Extras>>,
}

impl CompletionRequest {
    /// Answers to each prompt.
    #[must_use]
    pub fn choices(&self) -> u32 {
        self.extras.as_ref().map_or(1, |extras| extras.choices)
    }
}

/// Reads the body of `POST /v1/completions`. `strict` refuses unknown fields.
///
/// # Errors
/// [`crate::error::ErrorKind::InvalidRequest`] with the path of the first fault.
pub fn completions(body: &[u8], scratch: &mut Scratch, strict: bool) -> Result<(CompletionRequest, Ignored), ApiError> {
    scratch
        .with(body, |root, body| {
            Completions::over(root, &Source::new(root, body), strict)?.complete()
        })
        .map_err(|fault| fault.into_error(Dialect::OpenAi))
}

/// What the walk has met so far.
#[derive(Default)]
struct Completions<'t> {
    /// What chat completions have as well.
    shared: Walk<'t>,
    prompts: Vec<Prompt>,
    max_tokens: Option<u32>,
    logprobs: Option<u32>,
    echo: bool,
    best_of: Option<u32>,
}

impl<'t> Completions<'t> {
    fn over(root: Value<'t>, source: &'t Source<'t>, strict: bool) -> Result<Self, Fault> {
        let mut walk = Self {
            shared: Walk::new(strict),
            ..Self::default()
        };
        walk.shared.source = Some(source);
        let mut seen = Seen::default();
        for (key, value) in Field::new(root, &Path::Root).object()? {
            let path = Path::Root.key(key);
            let own = match key {
                "prompt" => Some(61),
                "best_of" => Some(62),
                "suffix" => Some(63),
                _ => None,
            };
            let known = TOP.get(key);
            match own.or(known.map(|name| name as u8)) {
                None => walk.shared.ignored.meet(&path, strict)?,
                Some(number) => {
                    seen.once(number, &path)?;
                    if let Some(field) = Field::new(value, &path).present() {
                        walk.top(known, key, field)?;
                    }
                }
            }
        }
        Ok(walk)
    }

    /// A field with one of this endpoint's own names, or with a name of the Chat Completions API.
    fn top(&mut self, known: Option<Name>, key: &str, field: Field<'_, '_>) -> Result<(), Fault> {
        match known {
            Some(Name::MaxTokens) => self.max_tokens = Some(field.at_least(0)?),
            Some(Name::Logprobs) => self.logprobs = Some(between(field, 0, 5)?),
            Some(Name::Echo) => self.echo = field.bool()?,
            Some(
                name @ (Name::Model
                | Name::Stream
                | Name::StreamOptions
                | Name::Temperature
                | Name::TopP
                | Name::TopK
                | Name::Stop
                | Name::Seed
                | Name::N
                | Name::FrequencyPenalty
                | Name::PresencePenalty
                | Name::RepetitionPenalty
                | Name::MinP
                | Name::MinTokens
                | Name::IgnoreEos
                | Name::StopTokenIds
                | Name::LogitBias
                | Name::ResponseFormat
                | Name::StructuredOutputs
                | Name::GuidedJson
                | Name::GuidedRegex
                | Name::GuidedChoice
                | Name::GuidedGrammar
                | Name::JsonSchema
                | Name::PromptLogprobs
                | Name::Grammar),
            ) => self.shared.top(name, field)?,
            Some(hint!()) => {}
            Some(_) => return Err(field.path.breaks("is a parameter of chat completions only")),
            None => match key {
                "prompt" => self.prompts = prompts(field)?,
                "best_of" => self.best_of = Some(field.at_least(1)?),
                _ => field.only(Neutral::Word(""))?,
            },
        }
        Ok(())
    }

    /// What a request must have, once the whole body was read.
    fn complete(mut self) -> Result<(CompletionRequest, Ignored), Fault> {
        let missing = |name: &str| Path::Root.key(name).is(What::Missing);
        let shared = &mut self.shared;
        if shared.stream_options.is_some() && !shared.stream {
            return Err(Path::Root
                .key("stream_options")
                .breaks("is only allowed when 'stream' is true"));
        }
        let model = shared.model.take().ok_or_else(|| missing("model"))?;
        if self.prompts.is_empty() {
            return Err(missing("prompt"));
        }
        if let Some(logprobs) = self.logprobs {
            let wishes = shared.wishes();
            (wishes.logprobs, wishes.top_logprobs) = (true, Some(logprobs));
        }
        let max_tokens = self.max_tokens.unwrap_or(DEFAULT_TOKENS);
        let extras = match shared.wishes.take() {
            Some(wishes) => wishes.finish(&mut Conversation::default(), Some(max_tokens))?,
            None => None,
        };
        let choices = extras.as_ref().map_or(1, |extras| extras.choices);
        if self.best_of.is_some_and(|best_of| best_of != choices) {
            return Err(Path::Root.key("best_of").breaks("must equal 'n': all answers are told"));
        }
        if self.prompts.len() * choices as usize > MAX_ANSWERS {
            return Err(Path::Root
                .key("n")
                .breaks("there must be at most 64 answers to all prompts together"));
        }
        let shared = self.shared;
        let request = CompletionRequest {
            model,
            prompts: self.prompts,
            temperature: shared.temperature,
            top_p: shared.top_p,
            top_k: shared.top_k,
            seed: shared.seed,
            max_tokens,
            stop: shared.stop,
            echo: self.echo,
            stream: shared.stream.then_some(StreamOptions {
                include_usage: shared.stream_options == Some(true),
            }),
            extras,
        };
        Ok((request, shared.ignored))
    }
}

/// A text, tokens, or a list of either.
fn prompts(field: Field<'_, '_>) -> Result<Vec<Prompt>, Fault> {
    let items = match field.json {
        Json::Str(_) => return Ok(vec![Prompt::Text(field.text()?.to_owned())]),
        Json::Array(items) => items,
        _ => return Err(field.path.is_not(Expected::Prompt, field.json)),
    };
    match items.clone().next().map(Value::json) {
        None => Err(field.path.breaks("must not be empty")),
        Some(Json::Int(_) | Json::Float(_)) => Ok(vec![tokens(items, field.path)?]),
        Some(_) if items.len() > MAX_ANSWERS => Err(field.path.breaks("must have at most 64 prompts")),
        Some(_) => items
            .enumerate()
            .map(|(index, item)| {
                let path = field.path.index(index);
                let field = Field::new(item, &path);
                match field.json {
                    Json::Str(_) => Ok(Prompt::Text(field.text()?.to_owned())),
                    Json::Array(items) => tokens(items, &path),
                    _ => Err(path.is_not(Expected::Prompt, field.json)),
                }
            })
            .collect(),
    }
}

fn tokens(items: Items<'_>, path: &Path<'_>) -> Result<Prompt, Fault> {
    if items.len() == 0 {
        return Err(path.breaks("must not be empty"));
    }
    let ids = items
        .enumerate()
        .map(|(index, item)| Field::new(item, &path.index(index)).id());
    Ok(Prompt::Tokens(ids.collect::<Result<_, _>>()?))
}

#[cfg(test)]
#[path = "completions_tests.rs"]
mod tests;
