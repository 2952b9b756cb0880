//! One answer of a reply: how far it has come, and what of it is kept until the document is written.
//!
//! Writes nothing. Invariant: what an engine may not send next is told as such, so that no reply is malformed.

use zerohop_engine::{Event, Finish};

use super::logprobs;
use crate::json;

/// What of an answer is being said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Saying {
    #[default]
    Nothing,
    Text,
    Call,
}

/// Text on its way into a JSON string.
#[derive(Debug, Clone, Copy)]
pub(super) enum Words<'a> {
    /// As the engine gave it.
    Plain(&'a str),
    /// Escaped already, as [`json::escaped`] writes it.
    Escaped(&'a str),
}

impl Words<'_> {
    /// Appends it as the inside of a JSON string.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(text) => json::escaped(out, text),
            Self::Escaped(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// A call of a tool.
#[derive(Debug)]
pub(super) struct Called {
    /// 128 bits that name it.
    pub(super) id: (u64, u64),
    pub(super) name: String,
    /// Of a document only.
    pub(super) arguments: String,
}

/// An answer in the making.
#[derive(Debug, Default)]
pub(super) struct Choice {
    begun: bool,
    /// Why it ended.
    pub(super) finish: Option<Finish>,
    pub(super) saying: Saying,
    /// Blocks of a streamed message that were begun.
    pub(super) blocks: u32,
    /// Of a document: the escaped text so far.
    pub(super) text: Vec<u8>,
    /// Of a document: the entries of the log probabilities so far.
    pub(super) logprobs: Vec<u8>,
    pub(super) calls: Vec<Called>,
}

impl Choice {
    /// Whether an engine may send this now.
    pub(super) fn takes(&self, event: &Event) -> bool {
        let open = self.begun && self.finish.is_none();
        match event {
            Event::Started { .. } => !self.begun,
            Event::Text { .. } => open && self.saying != Saying::Call,
            Event::Arguments { .. } => open && self.saying == Saying::Call,
            Event::Call { .. } | Event::Finished { .. } => open,
            _ => false,
        }
    }

    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    /// Keeps what an event says, for a document.
    pub(super) fn gather(&mut self, event: &Event, told: bool) {
        match event {
            Event::Text { text, logprobs, .. } => {
                json::escaped(&mut self.text, text);
                if told {
                    logprobs::entries(&mut self.logprobs, logprobs);
                }
            }
            Event::Arguments { text, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(text);
                }
            }
            _ => {}
        }
    }

    /// A call with this id begins.
    pub(super) fn call(&mut self, name: &str, id: (u64, u64)) {
        self.saying = Saying::Call;
        self.calls.push(Called {
            id,
            name: name.to_owned(),
            arguments: String::new(),
        });
    }

    /// Bytes that are kept.
    pub(super) fn held(&self) -> usize {
        let calls = self.calls.iter();
        let calls = calls.map(|call| size_of::<Called>() + call.name.capacity() + call.arguments.capacity());
        self.text.capacity() + self.logprobs.capacity() + calls.sum::<usize>()
    }
}
