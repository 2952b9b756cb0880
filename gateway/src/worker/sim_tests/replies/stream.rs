//! Reads an event stream, as far as it has come, against what the engine says.
//!
//! Every event must be at its place. Invariant: text that the engine has not sent is never right.

use serde_json::Value;

use super::{
    super::{
        engine::Entry,
        ensure, fail,
        requests::{Ask, Request},
    },
    finish, id, json, logprobs, reason, usage,
};
use crate::api::Dialect;

/// How far an event stream, or one answer in it, has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Nothing,
    Started,
    /// Within the text.
    Text,
    /// Within a call.
    Call,
    BlockOver,
    Reason,
    Usage,
    End,
    Error,
}

/// What was heard of an answer.
struct Heard<'a> {
    entry: &'a Entry,
    at: At,
    text: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
}

/// Reads an event stream against what the engine says.
pub(super) struct Stream<'a> {
    dialect: Dialect,
    request: &'a Request,
    entries: &'a [&'a Entry],
    heard: Vec<Heard<'a>>,
    /// Of the whole, behind its answers.
    at: At,
    id: Option<Value>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(dialect: Dialect, request: &'a Request, entries: &'a [&'a Entry]) -> Self {
        let heard = |entry: &&'a Entry| Heard {
            entry,
            at: At::Nothing,
            text: String::new(),
            calls: Vec::new(),
        };
        Self {
            dialect,
            request,
            heard: entries.iter().map(heard).collect(),
            entries,
            at: At::Nothing,
            id: None,
        }
    }

    /// Whether it ended by an error event, which is right only if the engine has this `fault`.
    pub(super) fn check(mut self, text: &str, whole: bool, fault: Option<&Entry>) -> bool {
        let mut rest = text;
        while let Some((event, behind)) = rest.split_once("\n\n") {
            self.event(event);
            rest = behind;
        }
        self.heard.iter().for_each(Heard::is_a_beginning);
        if self.at == At::Error {
            ensure!(fault.is_some() && rest.is_empty(), "body", "an error in {text}");
            let broken = |heard: &&Heard<'_>| fault.is_some_and(|fault| std::ptr::eq(heard.entry, fault));
            if let Some(heard) = self.heard.iter().find(broken) {
                ensure!(
                    heard.text == heard.entry.text,
                    "body",
                    "text is missing before the error in {text}"
                );
            }
            return true;
        }
        if whole {
            ensure!(
                self.at == At::End && rest.is_empty(),
                "body",
                "a stream that ends at {:?}: {text}",
                self.at
            );
            self.heard.iter().for_each(Heard::is_whole);
        }
        false
    }

    fn event(&mut self, event: &str) {
        ensure!(
            !matches!(self.at, At::End | At::Error),
            "body",
            "an event behind the end: {event}"
        );
        if event == ": keep-alive" && self.dialect == Dialect::OpenAi {
            return;
        }
        let (name, data) = match event.split_once('\n') {
            Some((name, data)) => (name.strip_prefix("event: "), data),
            None => (None, event),
        };
        let data = data
            .strip_prefix("data: ")
            .unwrap_or_else(|| fail("body", format_args!("no event: {event}")));
        ensure!(!data.contains('\n'), "body", "an event of several lines: {event}");
        match (self.dialect, name) {
            (Dialect::Anthropic, Some(name)) => self.anthropic(name, &json(data)),
            (Dialect::OpenAi, None) => self.openai(data),
            _ => fail("body", format_args!("an event of the other dialect: {event}")),
        }
    }

    fn anthropic(&mut self, name: &str, data: &Value) {
        ensure!(data["type"] == name, "body", "event {name} with {data}");
        let usage = usage(self.entries);
        let heard = &mut self.heard[0];
        match name {
            "ping" => ensure!(heard.at != At::Nothing, "body", "a ping before the start"),
            "message_start" => {
                heard.step(&[At::Nothing], At::Started, data);
                let message = &data["message"];
                ensure!(
                    message["model"] == self.request.model,
                    "body",
                    "{data} is of {}",
                    self.request.model
                );
                let input = usage.input_tokens - usage.cached_tokens;
                ensure!(
                    message["usage"]["input_tokens"] == input,
                    "body",
                    "{data} used {usage:?}"
                );
            }
            "content_block_start" => heard.block(data),
            "content_block_delta" => heard.delta(data),
            "content_block_stop" => heard.step(&[At::Text, At::Call], At::BlockOver, data),
            "message_delta" => {
                heard.step(&[At::Started, At::BlockOver], At::Reason, data);
                heard.finish(Dialect::Anthropic, &data["delta"]["stop_reason"]);
                ensure!(
                    data["usage"]["output_tokens"] == usage.output_tokens,
                    "body",
                    "{data} used {usage:?}"
                );
            }
            "message_stop" => {
                heard.step(&[At::Reason], At::End, data);
                self.at = At::End;
            }
            "error" => {
                ensure!(
                    !matches!(heard.at, At::Nothing | At::Reason),
                    "body",
                    "an error at {:?}: {data}",
                    heard.at
                );
                ensure!(data["error"]["message"].is_string(), "body", "no error: {data}");
                self.at = At::Error;
            }
            other => fail("body", format_args!("the event {other}")),
        }
    }

    fn openai(&mut self, data: &str) {
        let usage_wanted = matches!(self.request.ask, Ask::Chat { usage: true, .. });
        let all_ended = self.heard.iter().all(|heard| heard.at == At::Reason);
        if data == "[DONE]" {
            let right = all_ended && (self.at == At::Usage) == usage_wanted;
            ensure!(right, "body", "an end at {:?}", self.at);
            self.at = At::End;
            return;
        }
        let data = &json(data);
        if data["error"].is_object() {
            ensure!(!all_ended, "body", "an error behind the answers: {data}");
            self.at = At::Error;
            return;
        }
        let id = self.id.get_or_insert_with(|| data["id"].clone());
        ensure!(*id == data["id"] && id.is_string(), "body", "another id: {data}");
        ensure!(
            data["model"] == self.request.model,
            "body",
            "{data} is of {}",
            self.request.model
        );
        let choice = &data["choices"][0];
        if choice.is_null() {
            let usage = usage(self.entries);
            let right = usage_wanted && all_ended && self.at == At::Nothing;
            ensure!(right, "body", "usage that nobody wanted: {data}");
            self.at = At::Usage;
            let told = &data["usage"];
            let right = told["completion_tokens"] == usage.output_tokens && told["prompt_tokens"] == usage.input_tokens;
            ensure!(right, "body", "{data} used {usage:?}");
            return;
        }
        let index = choice["index"].as_u64().map_or(usize::MAX, |index| index as usize);
        match self.heard.get_mut(index) {
            Some(heard) => heard.chunk(choice, self.request),
            None => fail("body", format_args!("a choice too many: {data}")),
        }
    }
}

impl Heard<'_> {
    fn step(&mut self, from: &[At], to: At, what: &Value) {
        ensure!(from.contains(&self.at), "body", "out of order at {:?}: {what}", self.at);
        self.at = to;
    }

    /// A block of a message begins.
    fn block(&mut self, data: &Value) {
        let block = &data["content_block"];
        let blocks = usize::from(!self.text.is_empty()) + self.calls.len();
        ensure!(data["index"] == blocks, "body", "block {blocks} is {data}");
        if block["type"] == "tool_use" {
            self.step(&[At::Started, At::BlockOver], At::Call, data);
            id(&block["id"], "toolu_");
            self.called(&block["name"]);
        } else {
            self.step(&[At::Started], At::Text, data);
        }
    }

    /// More of the block that is open.
    fn delta(&mut self, data: &Value) {
        let delta = &data["delta"];
        let blocks = usize::from(!self.text.is_empty() || self.at == At::Text) + self.calls.len();
        ensure!(data["index"] == blocks - 1, "body", "of another block: {data}");
        match delta["type"].as_str() {
            Some("text_delta") => {
                self.step(&[At::Text], At::Text, data);
                self.text += delta["text"].as_str().unwrap_or_else(|| fail("body", data));
            }
            _ => {
                self.step(&[At::Call], At::Call, data);
                self.arguments(&delta["partial_json"]);
            }
        }
    }

    /// A chunk of this answer.
    fn chunk(&mut self, choice: &Value, request: &Request) {
        let delta = &choice["delta"];
        let mut text = "";
        if !choice["finish_reason"].is_null() {
            self.step(&[At::Started, At::Text, At::Call], At::Reason, choice);
            self.finish(Dialect::OpenAi, &choice["finish_reason"]);
        } else if self.at == At::Nothing {
            ensure!(delta["role"] == "assistant", "body", "no role at first: {choice}");
            self.at = At::Started;
        } else if let [call] = delta["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default() {
            self.step(&[At::Started, At::Text, At::Call], At::Call, choice);
            if call["id"].is_string() {
                id(&call["id"], "call_");
                self.called(&call["function"]["name"]);
            }
            ensure!(
                call["index"] == self.calls.len() - 1,
                "body",
                "of another call: {choice}"
            );
            self.arguments(&call["function"]["arguments"]);
        } else {
            self.step(&[At::Started, At::Text], At::Text, choice);
            text = delta["content"].as_str().unwrap_or_else(|| fail("body", choice));
            self.text += text;
        }
        match text {
            "" => ensure!(
                choice["logprobs"].is_null(),
                "body",
                "log probabilities of nothing: {choice}"
            ),
            text => logprobs(&choice["logprobs"], request, text),
        }
    }

    fn called(&mut self, name: &Value) {
        let name = name.as_str().unwrap_or_else(|| fail("body", name));
        self.calls.push((name.to_owned(), String::new()));
    }

    fn arguments(&mut self, more: &Value) {
        match (self.calls.last_mut(), more.as_str()) {
            (Some((_, arguments)), Some(more)) => *arguments += more,
            _ => fail("body", format_args!("arguments of nothing: {more}")),
        }
    }

    /// Nothing was heard that the engine has not sent.
    fn is_a_beginning(&self) {
        let entry = self.entry;
        let mut said = entry.calls.iter();
        let calls = self.calls.iter().all(|(name, arguments)| {
            let next = said.next();
            next.is_some_and(|(wanted, whole)| name == wanted && whole.starts_with(arguments))
        });
        ensure!(
            entry.text.starts_with(&self.text) && calls,
            "body",
            "{:?} and {:?} are no beginning of {:?} and {:?}",
            self.text,
            self.calls,
            entry.text,
            entry.calls
        );
        let arguments: usize = self.calls.iter().map(|(_, arguments)| arguments.len()).sum();
        ensure!(
            self.text.len() + arguments <= entry.told,
            "body",
            "more than the engine has sent: {:?} and {:?}",
            self.text,
            self.calls
        );
    }

    /// Everything was heard.
    fn is_whole(&self) {
        let calls = self.calls.iter().map(|(name, arguments)| (name.as_str(), arguments));
        ensure!(
            self.text == self.entry.text && calls.eq(self.entry.calls.iter().map(|(name, whole)| (*name, whole))),
            "body",
            "{:?} and {:?} where the engine said {:?} and {:?}",
            self.text,
            self.calls,
            self.entry.text,
            self.entry.calls
        );
    }

    fn finish(&self, dialect: Dialect, told: &Value) {
        let wanted = finish(self.entry);
        ensure!(
            *told == reason(dialect, wanted),
            "body",
            "an end by {told} of {wanted:?}"
        );
        ensure!(self.entry.over, "body", "an end before that of the engine");
        self.is_whole();
    }
}
