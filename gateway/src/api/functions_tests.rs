//! `functions`, `function_call` and `chat_template_kwargs`: what each means, or where and how it is wrong.

use zerohop_engine::{Tool, ToolCall, ToolChoice, Tools};

use super::*;
use crate::api::Places;

const FUNCTIONS: &str = r#""functions":[{"name":"f","description":"d","parameters":{ "x":1.0 }},{"name":"g"}]"#;

fn functions(choice: ToolChoice) -> Tools {
    let tool = |name: &str, description: &str, parameters: &str| Tool {
        name: name.into(),
        description: description.into(),
        parameters: parameters.into(),
        strict: false,
    };
    Tools {
        list: vec![
            tool("f", "d", r#"{ "x":1.0 }"#),
            tool("g", "", r#"{"type":"object","properties":{}}"#),
        ],
        choice,
        parallel: false,
    }
}

#[test]
fn functions_are_tools_of_which_one_is_called() {
    for (fields, choice) in [
        ("", ToolChoice::Auto),
        (r#""function_call":"auto""#, ToolChoice::Auto),
        (r#""function_call":"none","parallel_tool_calls":true"#, ToolChoice::None),
        (
            r#""function_call":{"name":"g"},"tools":[]"#,
            ToolChoice::Named("g".into()),
        ),
        (r#""tool_choice":"auto""#, ToolChoice::Auto),
    ] {
        for fields in [format!("{FUNCTIONS},{fields}"), format!("{fields},{FUNCTIONS}")] {
            check(fields.trim_matches(','), |r| {
                r.conversation.tools = functions(choice.clone());
                let mut extras = Extras::default();
                extras.places.functions = true;
                r.extras = Some(Box::new(extras));
            });
        }
    }
    // They ask for nothing.
    check(r#""functions":[],"function_call":"auto""#, |_| {});
    check(r#""function_call":"none""#, |_| {});
}

#[test]
fn what_an_engine_refuses_is_told_in_the_old_words() {
    let places = Places {
        functions: true,
        ..Places::default()
    };
    let told = |part| places.path(part, Dialect::OpenAi);
    assert_eq!(told(zerohop_engine::Part::Tool(1)), "functions.1.parameters");
    assert_eq!(told(zerohop_engine::Part::ToolChoice), "function_call");
}

#[test]
fn functions_that_are_wrong() {
    for (fields, path, message) in [
        (
            r#""functions":[{"name":"f"},{"name":"f"}]"#.to_owned(),
            "functions.1.name",
            "Duplicate parameter: 'functions[1].name'.",
        ),
        (
            r#""functions":[{"name":"a b"}]"#.into(),
            "functions.0.name",
            "Invalid 'functions[0].name': must be 1 to 64 letters, digits, underscores and dashes.",
        ),
        (
            r#""functions":[{"description":"f"}]"#.into(),
            "functions.0.name",
            "Missing required parameter: 'functions[0].name'.",
        ),
        (
            format!(r#"{FUNCTIONS},"function_call":"required""#),
            "function_call",
            "Invalid value: 'required'. Supported values are: 'none' and 'auto'.",
        ),
        (
            format!(r#"{FUNCTIONS},"function_call":{{"name":"h"}}"#),
            "function_call.name",
            "Invalid 'function_call.name': is no tool of this request.",
        ),
        (
            r#""function_call":{"name":"h"}"#.into(),
            "function_call.name",
            "Invalid 'function_call.name': is no tool of this request.",
        ),
        (
            format!(r#"{FUNCTIONS},"tools":[{{"type":"function","function":{{"name":"f"}}}}]"#),
            "tools",
            "Invalid 'tools': must not be given together with 'functions'.",
        ),
        (
            format!(r#"{FUNCTIONS},"tool_choice":"required""#),
            "tool_choice",
            "Invalid 'tool_choice': must not be given together with 'functions'.",
        ),
        (
            format!(r#"{FUNCTIONS},"function_call":{{"name":"g"}},"response_format":{{"type":"json_object"}}"#),
            "function_call",
            "Invalid 'function_call': must not force a call where the form of the answer is given.",
        ),
    ] {
        refuse(&fields, path, message);
    }
}

#[test]
fn earlier_calls_of_functions_and_their_results() {
    let messages = r#"[{"role":"user","content":"a"},
        {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"x\": 1}"}},
        {"role":"function","name":"f","content":"one"},
        {"role":"assistant","content":"So","function_call":{"name":"f","arguments":""}},
        {"role":"function","content":"two","name":"f"}]"#;
    let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
    let (request, ignored) = parse(&body, true).expect("a good body");
    assert_eq!(ignored, Ignored::default());
    let call = |number: u32, text: &str, arguments: &str| {
        let mut message = Message::new(Role::Assistant, text);
        message.calls = vec![ToolCall {
            id: format!("function_call_{number}"),
            name: "f".into(),
            arguments: arguments.into(),
        }];
        message
    };
    let result = |number: u32, text: &str| {
        let mut message = Message::new(Role::Tool, text);
        message.call_id = Some(format!("function_call_{number}"));
        message
    };
    let wanted = [
        Message::new(Role::User, "a"),
        call(0, "", "{\"x\": 1}"),
        result(0, "one"),
        call(1, "So", "{}"),
        result(1, "two"),
    ];
    assert_eq!(request.conversation.messages, wanted);
    assert_eq!(request.extras, None, "results do not say how calls are told");
}

#[test]
fn earlier_calls_of_functions_that_are_wrong() {
    let call = r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}"#;
    for (messages, path, message) in [
        (
            r#"[{"role":"function","name":"f","content":"x"}]"#.to_owned(),
            "messages.0.name",
            "Invalid 'messages[0].name': is no function that the assistant message before calls.",
        ),
        (
            format!(r#"[{call},{{"role":"function","name":"g","content":"x"}}]"#),
            "messages.1.name",
            "Invalid 'messages[1].name': is no function that the assistant message before calls.",
        ),
        (
            format!(r#"[{call},{{"role":"function","content":"x"}}]"#),
            "messages.1.name",
            "Missing required parameter: 'messages[1].name'.",
        ),
        (
            format!(r#"[{call},{{"role":"function","name":"f","content":null}}]"#),
            "messages.1.content",
            "Invalid type for 'messages[1].content': expected one of a string or an array of objects, but got null instead.",
        ),
        (
            r#"[{"role":"assistant","content":null,"function_call":{"name":"f"}}]"#.into(),
            "messages.0.function_call.arguments",
            "Missing required parameter: 'messages[0].function_call.arguments'.",
        ),
        (
            r#"[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"["}}]"#.into(),
            "messages.0.function_call.arguments",
            "Invalid 'messages[0].function_call.arguments': must be a JSON object, as text.",
        ),
        (
            r#"[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"},
                "tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]"#
                .into(),
            "messages.0.function_call",
            "Invalid 'messages[0].function_call': must not be given together with 'tool_calls'.",
        ),
        (
            format!("[{call}]"),
            "messages",
            "Invalid 'messages': the last message calls tools, and their results are missing.",
        ),
    ] {
        refuse_messages(&messages, path, message);
    }
}

#[test]
fn arguments_of_templates() {
    check(
        r#""chat_template_kwargs":{ "enable_thinking":false, "x_1":[{"messages":1e0}]}"#,
        |r| {
            r.conversation.template_arguments = r#"{ "enable_thinking":false, "x_1":[{"messages":1e0}]}"#.into();
        },
    );
    check(r#""chat_template_kwargs":{}"#, |_| {});
    for (value, path, message) in [
        (
            "[]".to_owned(),
            "chat_template_kwargs",
            "Invalid type for 'chat_template_kwargs': expected an object, but got an array instead.",
        ),
        (
            "\"{}\"".into(),
            "chat_template_kwargs",
            "Invalid type for 'chat_template_kwargs': expected an object, but got a string instead.",
        ),
        (
            r#"{"a":1,"messages":[]}"#.into(),
            "chat_template_kwargs.messages",
            "Invalid 'chat_template_kwargs.messages': this name is reserved: the chat template has it already.",
        ),
        (
            r#"{"1a":1}"#.into(),
            "chat_template_kwargs.1a",
            "Invalid 'chat_template_kwargs.1a': a name must be 1 to 64 letters, digits and underscores, and not begin with a \
             digit.",
        ),
        (
            r#"{"a":1,"a":1}"#.into(),
            "chat_template_kwargs.a",
            "Duplicate parameter: 'chat_template_kwargs.a'.",
        ),
        (
            format!(
                "{{{}}}",
                (0..65).map(|n| format!(r#""a{n}":{n}"#)).collect::<Vec<_>>().join(",")
            ),
            "chat_template_kwargs",
            "Invalid 'chat_template_kwargs': must have at most 64 entries.",
        ),
    ] {
        refuse(&format!(r#""chat_template_kwargs":{value}"#), path, message);
    }
}
