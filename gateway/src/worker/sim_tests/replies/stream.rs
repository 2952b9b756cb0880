//! Reads an event stream, as far as it has come, against what the engine says.
//!
//! Every event must be at its place. Invariant: text that the engine has not sent is never right.

use serde_json::Value;

use super::{
    super::{
        engine::{Entry, Fate},
        ensure, fail,
        requests::{Ask, Request},
    },
    json, reason,
};
use crate::api::Dialect;

/// How far an event stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Nothing,
    Started,
    /// Within the text.
    Block,
    BlockOver,
    Reason,
    Usage,
    End,
    Error,
}

/// Reads an event stream against what the engine says.
pub(super) struct Stream<'a> {
    dialect: Dialect,
    request: &'a Request,
    entry: &'a Entry,
    at: At,
    text: String,
    id: Option<Value>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(dialect: Dialect, request: &'a Request, entry: &'a Entry) -> Self {
        Self {
            dialect,
            request,
            entry,
            at: At::Nothing,
            text: String::new(),
            id: None,
        }
    }

    /// Whether it ended by an error event.
    pub(super) fn check(mut self, text: &str, whole: bool) -> bool {
        let mut rest = text;
        while let Some((event, behind)) = rest.split_once("\n\n") {
            self.event(event);
            rest = behind;
        }
        let entry = self.entry;
        ensure!(
            entry.text.starts_with(&self.text),
            "body",
            "{:?} is no beginning of {:?}",
            self.text,
            entry.text
        );
        ensure!(
            self.text.len() <= entry.told,
            "body",
            "more text than the engine has sent: {:?}",
            self.text
        );
        if self.at == At::Error {
            ensure!(
                entry.fate == Fate::Failed { started: true } && entry.over,
                "body",
                "an error in {text}"
            );
            ensure!(
                self.text == entry.text && rest.is_empty(),
                "body",
                "text is missing before the error in {text}"
            );
            return true;
        }
        if whole {
            ensure!(
                self.at == At::End && rest.is_empty(),
                "body",
                "a stream that ends at {:?}: {text}",
                self.at
            );
            ensure!(
                self.text == entry.text,
                "body",
                "{:?} where the engine said {:?}",
                self.text,
                entry.text
            );
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

    fn step(&mut self, from: &[At], to: At, what: &Value) {
        ensure!(from.contains(&self.at), "body", "out of order at {:?}: {what}", self.at);
        self.at = to;
    }

    fn anthropic(&mut self, name: &str, data: &Value) {
        ensure!(data["type"] == name, "body", "event {name} with {data}");
        let usage = self.entry.usage;
        match name {
            "ping" => ensure!(self.at != At::Nothing, "body", "a ping before the start"),
            "message_start" => {
                self.step(&[At::Nothing], At::Started, data);
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
            "content_block_start" => self.step(&[At::Started], At::Block, data),
            "content_block_delta" => {
                self.step(&[At::Block], At::Block, data);
                self.text += data["delta"]["text"].as_str().unwrap_or_else(|| fail("body", data));
            }
            "content_block_stop" => self.step(&[At::Block], At::BlockOver, data),
            "message_delta" => {
                let from = if self.text.is_empty() {
                    At::Started
                } else {
                    At::BlockOver
                };
                self.step(&[from], At::Reason, data);
                self.finish(&data["delta"]["stop_reason"]);
                ensure!(
                    data["usage"]["output_tokens"] == usage.output_tokens,
                    "body",
                    "{data} used {usage:?}"
                );
            }
            "message_stop" => self.step(&[At::Reason], At::End, data),
            "error" => {
                self.step(&[At::Started, At::Block], At::Error, data);
                ensure!(data["error"]["message"].is_string(), "body", "no error: {data}");
            }
            other => fail("body", format_args!("the event {other}")),
        }
    }

    fn openai(&mut self, data: &str) {
        let usage_wanted = matches!(self.request.ask, Ask::Chat { usage: true, .. });
        if data == "[DONE]" {
            let from = if usage_wanted { At::Usage } else { At::Reason };
            return self.step(&[from], At::End, &Value::Null);
        }
        let data = &json(data);
        if data["error"].is_object() {
            return self.step(&[At::Started, At::Block], At::Error, data);
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
        let usage = self.entry.usage;
        if choice.is_null() {
            ensure!(usage_wanted, "body", "usage that nobody wanted: {data}");
            self.step(&[At::Reason], At::Usage, data);
            ensure!(
                data["usage"]["completion_tokens"] == usage.output_tokens,
                "body",
                "{data} used {usage:?}"
            );
            ensure!(
                data["usage"]["prompt_tokens"] == usage.input_tokens,
                "body",
                "{data} used {usage:?}"
            );
        } else if !choice["finish_reason"].is_null() {
            self.step(&[At::Started, At::Block], At::Reason, data);
            self.finish(&choice["finish_reason"]);
        } else if self.at == At::Nothing {
            ensure!(
                choice["delta"]["role"] == "assistant",
                "body",
                "no role at first: {data}"
            );
            self.at = At::Started;
        } else {
            self.step(&[At::Started, At::Block], At::Block, data);
            self.text += choice["delta"]["content"]
                .as_str()
                .unwrap_or_else(|| fail("body", data));
        }
    }

    fn finish(&self, told: &Value) {
        let Fate::Finished(finish) = &self.entry.fate else {
            fail("body", format_args!("an end by {told} of {:?}", self.entry.fate));
        };
        ensure!(
            *told == reason(self.dialect, finish),
            "body",
            "an end by {told} of {finish:?}"
        );
        ensure!(self.entry.over, "body", "an end before that of the engine");
        ensure!(
            self.text == self.entry.text,
            "body",
            "text is missing before the end: {:?}",
            self.text
        );
    }
}
