//! A conversation in the making, common to both dialects: turns, calls of tools and their results.
//!
//! Nothing here reads a body. Invariant: neighbours of one role are one message, but for results of tools, of which each
//! is one; a result is that of a call in the answer before it.

use zerohop_engine::{Conversation, Message, Role, ToolCall};

use super::fault::{Fault, Path};

/// Most calls of one message: each is compared with the others.
const MAX_CALLS: usize = 128;

/// A conversation in the making: neighbours of one role become one message.
///
/// Between two messages of one role stands an empty line, between two blocks of one message a line break.
#[derive(Default)]
pub(crate) struct Prompt {
    messages: Vec<Message>,
    separator: &'static str,
    /// Which message made the latest calls.
    caller: Option<usize>,
}

impl Prompt {
    /// The next texts are a new message of this role.
    pub(crate) fn begin(&mut self, role: Role) {
        match self.messages.last() {
            Some(last) if last.role == role => {
                self.separator = if last.content.is_empty() { "" } else { "\n\n" };
            }
            _ => {
                self.separator = "";
                if self.messages.capacity() == 0 {
                    self.messages.reserve_exact(4);
                }
                self.messages.push(Message::new(role, String::new()));
            }
        }
    }

    /// The next texts are the result of the call with this id; `false` if the answer before has none such.
    pub(crate) fn begin_result(&mut self, id: &str) -> bool {
        let caller = self.caller.and_then(|at| self.messages.get(at));
        if !caller.is_some_and(|caller| caller.calls.iter().any(|call| call.id == id)) {
            return false;
        }
        self.separator = "";
        let mut message = Message::new(Role::Tool, String::new());
        message.call_id = Some(id.to_owned());
        self.messages.push(message);
        true
    }

    /// The next texts are the result of the last call of the function with this name; `false` if the answer before has none.
    pub(crate) fn begin_result_of(&mut self, name: &str) -> bool {
        let caller = self.caller.and_then(|at| self.messages.get(at));
        let call = caller.and_then(|caller| caller.calls.iter().rfind(|call| call.name == name));
        match call.map(|call| call.id.clone()) {
            Some(id) => self.begin_result(&id),
            None => false,
        }
    }

    /// Adds text to the message.
    pub(crate) fn text(&mut self, text: &str) {
        if let Some(last) = self.messages.last_mut() {
            if last.content.capacity() == 0 && self.separator.is_empty() {
                last.content = text.to_owned();
            } else {
                last.content.reserve(self.separator.len() + text.len());
                last.content.push_str(self.separator);
                last.content.push_str(text);
            }
            self.separator = "\n";
        }
    }

    /// Adds a call to the message; if that cannot be, the rule that it breaks.
    pub(crate) fn call(&mut self, call: ToolCall) -> Result<(), &'static str> {
        let at = self.messages.len().saturating_sub(1);
        if let Some(last) = self.messages.get_mut(at) {
            if last.calls.iter().any(|other| other.id == call.id) {
                return Err("another call of this message has the same id");
            }
            if last.calls.len() == MAX_CALLS {
                return Err("at most 128 calls in one message are allowed");
            }
            last.calls.push(call);
            self.caller = Some(at);
        }
        Ok(())
    }

    /// The conversation with `system` in front; `path` is where messages are missing if there are none.
    pub(crate) fn finish(&mut self, system: &mut Self, path: &Path<'_>) -> Result<Conversation, Fault> {
        let Some(last) = self.messages.last() else {
            return Err(path.breaks("at least one message is required"));
        };
        if !last.calls.is_empty() {
            return Err(path.breaks("the last message calls tools, and their results are missing"));
        }
        if let Some(lead) = system.messages.pop() {
            match self.messages.first_mut() {
                Some(first) if first.role == lead.role => {
                    first.content = format!("{}\n\n{}", lead.content, first.content);
                }
                _ => self.messages.insert(0, lead),
            }
        }
        Ok(std::mem::take(&mut self.messages).into())
    }
}
