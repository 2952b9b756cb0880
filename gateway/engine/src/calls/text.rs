//! Tools for a model whose chat template knows none: a conversation with tools, calls and results becomes one of text
//! alone, in the words and marks of the Hermes format.
//!
//! Nothing here knows the template. Invariants: only the roles system, user and assistant are left, with neighbours
//! joined; nothing of a message, a call or a result is lost.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{grammar, may_call, python_json};
use crate::job::{Conversation, Message, Role, Tools};

/// What stands before the list of tools.
const INTRODUCTION: &str = "You can call tools. Each line between <tools> and </tools> describes one: its name, what it does, \
                            and a JSON Schema of its arguments.\n<tools>\n";

/// What stands behind it.
const INSTRUCTION: &str = "</tools>\nTo call a tool, end your answer with this, once for each call:\n<tool_call>\n\
                           {\"name\": \"the tool's name\", \"arguments\": {the arguments}}\n</tool_call>\n\
                           What the tool returns comes back between <tool_response> and </tool_response>.";

/// The conversation without tools that says the same; `system`: there may be a system message.
pub(crate) fn without_tools(conversation: &Conversation, system: bool) -> Conversation {
    let mut messages: Vec<Message> = Vec::with_capacity(conversation.messages.len() + 1);
    for message in &conversation.messages {
        let (role, content) = match message.role {
            Role::Tool => (
                Role::User,
                format!("<tool_response>\n{}\n</tool_response>", message.content),
            ),
            Role::Assistant if !message.calls.is_empty() => (Role::Assistant, with_calls(message)),
            role => (role, message.content.clone()),
        };
        match messages.last_mut() {
            Some(last) if last.role == role => {
                last.content.push('\n');
                last.content.push_str(&content);
            }
            _ => messages.push(Message::new(role, content)),
        }
    }
    if may_call(&conversation.tools) {
        introduce(&conversation.tools, system, &mut messages);
    }
    Conversation {
        messages,
        template_arguments: conversation.template_arguments.clone(),
        ..Conversation::default()
    }
}

/// The text of an assistant's message with its calls.
fn with_calls(message: &Message) -> String {
    let mut text = message.content.clone();
    for call in &message.calls {
        if !text.is_empty() {
            text.push('\n');
        }
        let arguments = serde_json::from_str(&call.arguments).map_or_else(
            // Not JSON: shown as it is.
            |_| call.arguments.clone(),
            |value: Value| python_json(&value),
        );
        let name = Value::from(call.name.as_str());
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>"
        );
    }
    text
}

/// Puts the description of the tools behind the system text, or at the beginning of what comes first.
fn introduce(tools: &Tools, system: bool, messages: &mut Vec<Message>) {
    let mut text = String::from(INTRODUCTION);
    for tool in &tools.list {
        let parameters = grammar::parameters(tool).map_or(Value::Null, Value::Object);
        let line = json!({"name": tool.name, "description": tool.description, "parameters": parameters});
        text.push_str(&python_json(&line));
        text.push('\n');
    }
    text.push_str(INSTRUCTION);
    let place = if system { Role::System } else { Role::User };
    match messages.first_mut() {
        Some(first) if first.role == Role::System && !first.content.is_empty() => {
            first.content = format!("{}\n\n{text}", first.content);
        }
        Some(first) if first.role == Role::System || (first.role == place && !system) => {
            let behind = std::mem::take(&mut first.content);
            first.content = if behind.is_empty() {
                text
            } else {
                format!("{text}\n\n{behind}")
            };
        }
        _ => messages.insert(0, Message::new(place, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Tool, ToolCall, ToolChoice};

    fn show(conversation: &Conversation) -> String {
        let mut out = String::new();
        for message in &conversation.messages {
            let _ = writeln!(out, "[{:?}] {}", message.role, message.content);
        }
        out
    }

    fn tools(choice: ToolChoice) -> Tools {
        Tools {
            list: vec![Tool {
                name: "now".into(),
                description: "The \"time\".".into(),
                parameters: "{\"properties\":{\"zone\":{\"type\":\"string\"}}}".into(),
                strict: false,
            }],
            choice,
            parallel: true,
        }
    }

    fn talk(leading: &[Message], choice: ToolChoice) -> Conversation {
        let mut messages = leading.to_vec();
        messages.push(Message::new(Role::User, "When?"));
        let mut asks = Message::new(Role::Assistant, "");
        asks.calls = ["{\"zone\":\"UTC\"}", "{}"]
            .into_iter()
            .enumerate()
            .map(|(index, arguments)| ToolCall {
                id: format!("c{index}"),
                name: "now".into(),
                arguments: arguments.into(),
            })
            .collect();
        messages.push(asks);
        for (id, result) in [("c0", "12:00"), ("c1", "noon")] {
            let mut answer = Message::new(Role::Tool, result);
            answer.call_id = Some(id.into());
            messages.push(answer);
        }
        messages.push(Message::new(Role::User, "Sure?"));
        Conversation {
            messages,
            tools: tools(choice),
            ..Conversation::default()
        }
    }

    #[test]
    fn everything_is_told_as_text() {
        let line = "{\"name\": \"now\", \"description\": \"The \\\"time\\\".\", \"parameters\": \
                    {\"properties\": {\"zone\": {\"type\": \"string\"}}, \"type\": \"object\"}}\n";
        let about = format!("{INTRODUCTION}{line}{INSTRUCTION}");
        let rest = "[Assistant] <tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>\n\
                    <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n\
                    [User] <tool_response>\n12:00\n</tool_response>\n<tool_response>\nnoon\n</tool_response>\nSure?\n";
        let system = Message::new(Role::System, "Be brief.");
        let cases = [
            (
                vec![],
                true,
                ToolChoice::Auto,
                format!("[System] {about}\n[User] When?\n{rest}"),
            ),
            (
                vec![],
                false,
                ToolChoice::Auto,
                format!("[User] {about}\n\nWhen?\n{rest}"),
            ),
            (
                vec![system.clone()],
                true,
                ToolChoice::Required,
                format!("[System] Be brief.\n\n{about}\n[User] When?\n{rest}"),
            ),
            (
                vec![system],
                true,
                ToolChoice::None,
                format!("[System] Be brief.\n[User] When?\n{rest}"),
            ),
            (vec![], true, ToolChoice::None, format!("[User] When?\n{rest}")),
        ];
        for (leading, has_system, choice, want) in cases {
            let got = without_tools(&talk(&leading, choice), has_system);
            assert_eq!(show(&got), want);
        }
    }

    #[test]
    fn text_and_calls_of_one_message_stay_together() {
        let mut message = Message::new(Role::Assistant, "I look.");
        message.calls = vec![ToolCall {
            id: String::new(),
            name: "a\"b".into(),
            arguments: "no JSON".into(),
        }];
        let got = with_calls(&message);
        assert_eq!(
            got,
            "I look.\n<tool_call>\n{\"name\": \"a\\\"b\", \"arguments\": no JSON}\n</tool_call>"
        );
    }
}
