//! From a response that was recorded somewhere, in either dialect, to the stored form.
//!
//! What is read is told to a live reply and its [`Recorder`] as the events of an engine, so there is one writer of the form.
//! Invariant: what the form cannot hold, or what would be told to a client otherwise than it was recorded, is refused with a
//! reason and never left out.

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;
use zerohop_engine::{Event, Finish, Usage};

use super::Recorder;
use crate::{
    api::{Dialect, Places, is_object},
    date::HttpDate,
    http::{IdSource, RequestId, Version},
    reply::{Connection, Reply, ReplyMeta},
};

/// A response, as far as the stored form holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Whose shape it has.
    pub dialect: Dialect,
    /// Why it ended.
    pub finish: Finish,
    /// What it used.
    pub usage: Usage,
    text: String,
    calls: Vec<Call>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    name: String,
    /// A JSON object.
    arguments: String,
}

/// What an answer is called.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// 128 bits.
    pub id: (u64, u64),
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// The version of the model that stands for it.
    pub version: &'a str,
}

type Text<'a> = Option<Cow<'a, str>>;

/// A response document: what either dialect has of it.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    content: Option<Vec<Block<'a>>>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
    #[serde(borrow)]
    stop_sequence: Text<'a>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Counted>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    message: Message<'a>,
    #[serde(borrow)]
    finish_reason: Text<'a>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(borrow)]
    refusal: Text<'a>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow)]
    audio: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<ToolCall<'a>>>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Counted {
    input_tokens: Option<u32>,
    output_tokens: Option<u32>,
    cache_read_input_tokens: Option<u32>,
    cache_creation_input_tokens: Option<u32>,
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

impl Recorded {
    /// Reads a response document of either dialect.
    ///
    /// # Errors
    /// Why it cannot be stored.
    pub fn read(document: &str) -> Result<Self, String> {
        let read: Document<'_> =
            serde_json::from_str(document).map_err(|error| format!("the response is none: {error}"))?;
        if read.error.is_some_and(|error| error.get() != "null") {
            return Err("the response is an error".into());
        }
        let usage = read.usage.as_ref();
        let usage = usage.ok_or("the response has no `usage`, and what it used is told with every answer")?;
        match (read.content, read.choices) {
            (None, Some(choices)) => Self::openai(choices, usage),
            (Some(blocks), None) => Self::anthropic(
                blocks,
                read.stop_reason.as_deref(),
                read.stop_sequence.as_deref(),
                usage,
            ),
            _ => Err("the response has neither the `content` of a message nor the `choices` of a completion".into()),
        }
    }

    fn anthropic(
        blocks: Vec<Block<'_>>,
        reason: Option<&str>,
        sequence: Option<&str>,
        usage: &Counted,
    ) -> Result<Self, String> {
        let (mut text, mut calls) = (String::new(), Vec::new());
        for block in blocks {
            match (&*block.kind, block.text, block.name, block.input) {
                ("text", Some(more), ..) if calls.is_empty() => text.push_str(&more),
                ("text", Some(_), ..) => return Err("the response has text behind a call of a tool".into()),
                ("tool_use", _, Some(name), Some(input)) => calls.push(Call {
                    name: name.into_owned(),
                    arguments: input.get().to_owned(),
                }),
                (kind, ..) => {
                    return Err(format!(
                        "a block of the type {kind:?} cannot be stored, or is incomplete"
                    ));
                }
            }
        }
        let finish = match (reason, sequence) {
            (Some("end_turn"), _) => Finish::EndOfTurn,
            (Some("stop_sequence"), Some(sequence)) => Finish::Stop(sequence.to_owned()),
            (Some("tool_use"), _) => Finish::ToolCalls,
            (Some("max_tokens"), _) => Finish::MaxTokens,
            (Some("model_context_window_exceeded"), _) => Finish::ContextFull,
            (reason, _) => return Err(format!("`stop_reason` is {reason:?}: this cannot be stored")),
        };
        let (Some(input), Some(output)) = (usage.input_tokens, usage.output_tokens) else {
            return Err("`usage` has no `input_tokens` or no `output_tokens`".into());
        };
        let cached = usage.cache_read_input_tokens.unwrap_or(0);
        let made = usage.cache_creation_input_tokens.unwrap_or(0);
        let usage = Usage {
            // The dialect counts apart what the form counts together.
            input_tokens: input.saturating_add(cached).saturating_add(made),
            cached_tokens: cached,
            output_tokens: output,
        };
        Self::checked(Dialect::Anthropic, (text, calls), finish, usage)
    }

    fn openai(choices: Vec<Choice<'_>>, usage: &Counted) -> Result<Self, String> {
        let [choice]: [Choice<'_>; 1] = choices
            .try_into()
            .map_err(|choices: Vec<_>| format!("the response has {} choices, and one can be stored", choices.len()))?;
        let set = |value: Option<&RawValue>| value.is_some_and(|value| value.get() != "null");
        let message = choice.message;
        for (there, what) in [
            (set(choice.logprobs), "log probabilities"),
            (message.refusal.is_some(), "a refusal"),
            (set(message.function_call), "a `function_call`"),
            (set(message.audio), "audio"),
        ] {
            if there {
                return Err(format!("the response has {what}, which cannot be stored"));
            }
        }
        let calls = message.tool_calls.unwrap_or_default().into_iter();
        let calls = calls.map(|call| Call {
            name: call.function.name.into_owned(),
            arguments: call.function.arguments.into_owned(),
        });
        let finish = match choice.finish_reason.as_deref() {
            Some("stop") => Finish::EndOfTurn,
            Some("tool_calls") => Finish::ToolCalls,
            Some("length") => Finish::MaxTokens,
            reason => return Err(format!("`finish_reason` is {reason:?}: this cannot be stored")),
        };
        let (Some(input), Some(output)) = (usage.prompt_tokens, usage.completion_tokens) else {
            return Err("`usage` has no `prompt_tokens` or no `completion_tokens`".into());
        };
        let details = usage.prompt_tokens_details.as_ref();
        let usage = Usage {
            input_tokens: input,
            cached_tokens: details.and_then(|details| details.cached_tokens).unwrap_or(0),
            output_tokens: output,
        };
        let text = message.content.unwrap_or_default().into_owned();
        Self::checked(Dialect::OpenAi, (text, calls.collect()), finish, usage)
    }

    fn checked(
        dialect: Dialect,
        (text, calls): (String, Vec<Call>),
        finish: Finish,
        usage: Usage,
    ) -> Result<Self, String> {
        if calls.is_empty() == (finish == Finish::ToolCalls) {
            return Err("calls of tools and the reason for which the response ended contradict each other".into());
        }
        if let Some(call) = calls.iter().find(|call| !is_object(&call.arguments)) {
            return Err(format!("the arguments of a call of {:?} are no JSON object", call.name));
        }
        Ok(Self {
            dialect,
            finish,
            usage,
            text,
            calls,
        })
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of the tools that it calls.
    pub fn called(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().map(|call| &*call.name)
    }

    /// The stored form; calls of tools get their ids from `ids`. `None`: it is longer than a stored form may be.
    #[must_use]
    pub fn stored(self, named: Named<'_>, ids: &mut IdSource) -> Option<Vec<u8>> {
        let mut reply = Reply::new(ReplyMeta {
            dialect: self.dialect,
            id: named.id,
            model: String::new(),
            model_version: named.version.to_owned(),
            created: named.created,
            stream: None,
            choices: 1,
            logprobs: false,
            places: Places::default(),
            connection: Connection {
                version: Version::Http11,
                keep_alive: true,
                head_only: false,
                request_id: RequestId::from_bits(0, 0),
            },
        });
        let mut recorder = Recorder::of(&reply)?;
        let date = HttpDate::at(named.created);
        // The bytes of the live reply are made for nobody.
        let (mut out, mut form) = (Vec::new(), None);
        for event in self.events() {
            reply.on(0, &event, ids, &date, &mut out);
            form = recorder.on(&event, &reply);
        }
        form
    }

    /// What an engine would have told.
    fn events(self) -> Vec<Event> {
        let Usage {
            input_tokens,
            cached_tokens,
            ..
        } = self.usage;
        let mut events = vec![Event::Started {
            input_tokens,
            cached_tokens,
            queued: Duration::ZERO,
        }];
        if !self.text.is_empty() {
            events.push(Event::Text {
                text: self.text,
                tokens: 1,
                logprobs: Vec::new(),
            });
        }
        for Call { name, arguments } in self.calls {
            events.push(Event::Call { name });
            events.push(Event::Arguments {
                text: arguments,
                tokens: 1,
            });
        }
        events.push(Event::Finished {
            finish: self.finish,
            usage: self.usage,
        });
        events
    }
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;
