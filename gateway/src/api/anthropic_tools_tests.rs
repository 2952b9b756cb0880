//! Tools, their calls and results, and forms in bodies of the Messages API: what each means, or where and how it is wrong.

use zerohop_engine::{Form, Tool, ToolChoice, Tools};

use super::*;

/// A tool of this name, with the schema and the description that the tests give.
fn tool(name: &str) -> Tool {
    Tool {
        name: name.into(),
        description: String::new(),
        parameters: r#"{ "type":"object" }"#.into(),
        strict: false,
    }
}

/// Two tools as the body has them.
const TOOLS: &str = r#""tools":[{"name":"f","input_schema":{ "type":"object" }},{"type":"custom","name":"g_2-X","description":"d","input_schema":{"a":1.50,"\u0061":"\\}"},"strict":true,"cache_control":{},"eager_input_streaming":true,"input_examples":[],"defer_loading":false,"allowed_callers":["direct","x"]}]"#;

fn tools() -> Tools {
    let second = Tool {
        description: "d".into(),
        parameters: r#"{"a":1.50,"\u0061":"\\}"}"#.into(),
        strict: true,
        ..tool("g_2-X")
    };
    Tools {
        list: vec![tool("f"), second],
        ..Tools::default()
    }
}

#[test]
fn tools_and_the_choice_among_them() {
    for (choice, wanted, parallel) in [
        ("", ToolChoice::Auto, true),
        (r#""tool_choice":null"#, ToolChoice::Auto, true),
        (r#""tool_choice":{"type":"auto"}"#, ToolChoice::Auto, true),
        (
            r#""tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#,
            ToolChoice::Auto,
            false,
        ),
        (
            r#""tool_choice":{"disable_parallel_tool_use":false,"type":"any"}"#,
            ToolChoice::Required,
            true,
        ),
        (
            r#""tool_choice":{"type":"tool","name":"g_2-X","disable_parallel_tool_use":true}"#,
            ToolChoice::Named("g_2-X".into()),
            false,
        ),
        (r#""tool_choice":{"type":"none"}"#, ToolChoice::None, true),
    ] {
        let wanted = Tools {
            choice: wanted,
            parallel,
            ..tools()
        };
        for fields in [format!("{TOOLS},{choice}"), format!("{choice},{TOOLS}")] {
            check(fields.trim_matches(','), |r| r.conversation.tools = wanted.clone());
        }
    }
    // Without tools there is nothing to choose.
    check(
        r#""tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#,
        |_| {},
    );
}

#[test]
fn tools_that_are_wrong() {
    let with = |tool: &str| format!(r#""tools":[{{"name":"f","input_schema":{{}}}},{tool}]"#);
    for (tool, path, message) in [
        ("1", "tools.1", "Input should be an object"),
        ("{}", "tools.1.name", "Field required"),
        (r#"{"name":"g"}"#, "tools.1.input_schema", "Field required"),
        (
            r#"{"name":"g","input_schema":null}"#,
            "tools.1.input_schema",
            "Field required",
        ),
        (
            r#"{"name":"g","input_schema":true}"#,
            "tools.1.input_schema",
            "Input should be an object",
        ),
        (
            r#"{"name":"","input_schema":{}}"#,
            "tools.1.name",
            "must be 1 to 64 letters, digits, underscores and dashes",
        ),
        (
            r#"{"name":"a b","input_schema":{}}"#,
            "tools.1.name",
            "must be 1 to 64 letters, digits, underscores and dashes",
        ),
        (
            r#"{"name":"f","input_schema":{}}"#,
            "tools.1.name",
            "Field given more than once",
        ),
        (
            r#"{"name":"g","name":"h","input_schema":{}}"#,
            "tools.1.name",
            "Field given more than once",
        ),
        (
            r#"{"name":"g","input_schema":{},"strict":1}"#,
            "tools.1.strict",
            "Input should be a valid boolean",
        ),
        (
            r#"{"name":"g","input_schema":{},"description":"\u0000"}"#,
            "tools.1.description",
            "must not contain a NUL character (U+0000)",
        ),
        (
            r#"{"name":"g","input_schema":{},"allowed_callers":["code_execution_20250825"]}"#,
            "tools.1.allowed_callers",
            "must have 'direct': models call tools themselves",
        ),
        (
            r#"{"type":"web_search_20250305","name":"web_search"}"#,
            "tools.1.type",
            "'web_search_20250305' is not supported yet",
        ),
        (
            r#"{"type":"bash_20250124","name":"bash"}"#,
            "tools.1.type",
            "'bash_20250124' is not supported yet",
        ),
        (
            r#"{"type":"hammer","name":"g"}"#,
            "tools.1.type",
            "Input should be 'custom'",
        ),
    ] {
        refuse(&with(tool), path, message);
    }
    let many = vec![r#"{"name":"f","input_schema":{}}"#; 513].join(",");
    refuse(
        &format!(r#""tools":[{many}]"#),
        "tools",
        "at most 512 tools are allowed",
    );
    let long = format!(r#"{{"name":"g","input_schema":{{"a":"{}"}}}}"#, "b".repeat(256 << 10));
    refuse(&with(&long), "tools.1.input_schema", "must have at most 262,144 bytes");
    for (choice, path, message) in [
        (
            r#"{"type":"x"}"#,
            "tool_choice.type",
            "Input should be 'auto', 'any', 'tool' or 'none'",
        ),
        ("\"none\"", "tool_choice", "Input should be an object"),
        (r#"{"type":"tool"}"#, "tool_choice.name", "Field required"),
        (
            r#"{"type":"tool","name":"h"}"#,
            "tool_choice.name",
            "is no tool of this request",
        ),
        (
            r#"{"type":"any","disable_parallel_tool_use":1}"#,
            "tool_choice.disable_parallel_tool_use",
            "Input should be a valid boolean",
        ),
    ] {
        refuse(&format!(r#"{TOOLS},"tool_choice":{choice}"#), path, message);
    }
    refuse(
        r#""tool_choice":{"type":"any"}"#,
        "tool_choice",
        "must not force a call where there are no tools",
    );
}

/// A message of this role and content that calls these tools: id, name, input.
fn calling(content: &str, calls: &[(&str, &str, &str)]) -> Message {
    let mut message = Message::new(Role::Assistant, content);
    message.calls = calls
        .iter()
        .map(|&(id, name, arguments)| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        })
        .collect();
    message
}

fn result(id: &str, content: &str) -> Message {
    let mut message = Message::new(Role::Tool, content);
    message.call_id = Some(id.into());
    message
}

#[test]
fn calls_and_their_results() {
    let body = r#"{"model":"m","max_tokens":10,"messages":[
        {"role":"user","content":"a"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"b"},
            {"type":"tool_use","id":"t1","name":"f","input":{ "x" : 1.0 },"caller":{"type":"direct"},"cache_control":null},
            {"input":{},"name":"g","id":"t2","type":"tool_use"}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t2","content":"r2"},
            {"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"r"},{"type":"text","text":"s"}]},
            {"type":"text","text":"c"}]},
        {"role":"assistant","content":[{"type":"tool_use","id":"t3","name":"f","input":{"deep":[{"input":{}}]}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t3"}]}]}"#;
    let wanted = ChatRequest {
        conversation: vec![
            Message::new(Role::User, "a"),
            calling("b", &[("t1", "f", r#"{ "x" : 1.0 }"#), ("t2", "g", "{}")]),
            result("t2", "r2"),
            result("t1", "Error: r\ns"),
            Message::new(Role::User, "c"),
            calling("", &[("t3", "f", r#"{"deep":[{"input":{}}]}"#)]),
            result("t3", ""),
        ]
        .into(),
        ..base()
    };
    assert_eq!(parse(body, true), Ok((wanted, Ignored::default())));
}

#[test]
fn calls_and_results_that_are_wrong() {
    const CALL: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}"#;
    let behind = |message: &str| format!(r#"[{{"role":"user","content":"a"}},{CALL},{message}]"#);
    let user = |block: &str| behind(&format!(r#"{{"role":"user","content":[{block}]}}"#));
    let assistant = |block: &str| format!(r#"[{{"role":"assistant","content":[{block}]}}]"#);
    for (messages, path, message) in [
        (
            user(r#"{"type":"tool_result"}"#),
            "messages.2.content.0.tool_use_id",
            "Field required",
        ),
        (
            user(r#"{"type":"tool_result","tool_use_id":""}"#),
            "messages.2.content.0.tool_use_id",
            "must not be empty",
        ),
        (
            user(r#"{"type":"tool_result","tool_use_id":"u"}"#),
            "messages.2.content.0.tool_use_id",
            "is no id of a tool_use block in the assistant message before",
        ),
        (
            user(r#"{"type":"tool_result","tool_use_id":"t","is_error":"no"}"#),
            "messages.2.content.0.is_error",
            "Input should be a valid boolean",
        ),
        (
            user(r#"{"type":"tool_result","tool_use_id":"t","content":7}"#),
            "messages.2.content.0.content",
            "Input should be a valid string or an array of content blocks",
        ),
        (
            user(r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{}}]}"#),
            "messages.2.content.0.content.0.type",
            "'image' is not supported yet",
        ),
        (
            user(r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"thinking"}]}"#),
            "messages.2.content.0.content.0.type",
            "the results of tools are text",
        ),
        (
            user(r#"{"type":"tool_use","id":"u","name":"f","input":{}}"#),
            "messages.2.content.0",
            "tool_use blocks are for assistant messages only",
        ),
        (
            assistant(r#"{"type":"tool_result","tool_use_id":"t"}"#),
            "messages.0.content.0",
            "tool_result blocks are for user messages only",
        ),
        (
            assistant(r#"{"type":"tool_use","name":"f","input":{}}"#),
            "messages.0.content.0.id",
            "Field required",
        ),
        (
            assistant(r#"{"type":"tool_use","id":"t","input":{}}"#),
            "messages.0.content.0.name",
            "Field required",
        ),
        (
            assistant(r#"{"type":"tool_use","id":"t","name":"f"}"#),
            "messages.0.content.0.input",
            "Field required",
        ),
        (
            assistant(r#"{"type":"tool_use","id":"t","name":"f","input":"{}"}"#),
            "messages.0.content.0.input",
            "Input should be an object",
        ),
        (
            assistant(
                r#"{"type":"tool_use","id":"t","name":"f","input":{}},{"type":"tool_use","id":"t","name":"f","input":{}}"#,
            ),
            "messages.0.content.1.id",
            "another call of this message has the same id",
        ),
        (
            format!("[{CALL}]"),
            "messages",
            "the last message calls tools, and their results are missing",
        ),
    ] {
        refuse_messages(&messages, path, message);
    }
    let calls: Vec<_> = (0..129)
        .map(|id| format!(r#"{{"type":"tool_use","id":"t{id}","name":"f","input":{{}}}}"#))
        .collect();
    refuse_messages(
        &assistant(&calls.join(",")),
        "messages.0.content.128.id",
        "at most 128 calls in one message are allowed",
    );
}

#[test]
fn forms() {
    for (field, place) in [
        (
            r#""output_config":{"effort":"low","format":{"type":"json_schema","schema":{"a" : [1,2.0]}}}"#,
            "output_config.format.schema",
        ),
        (
            r#""output_format":{"schema":{"a" : [1,2.0]},"type":"json_schema"}"#,
            "output_format.schema",
        ),
    ] {
        let mut extras = Extras {
            form: Form::Schema(r#"{"a" : [1,2.0]}"#.into()),
            ..Extras::default()
        };
        extras.places.form = place;
        check(field, |r| r.extras = Some(Box::new(extras)));
    }
    for (field, path, message) in [
        (
            r#""output_config":{"format":{"type":"text"}}"#,
            "output_config.format.type",
            "Input should be 'json_schema'",
        ),
        (
            r#""output_format":{"type":"json_schema"}"#,
            "output_format.schema",
            "Field required",
        ),
        (
            r#""output_format":{"type":"json_schema","schema":[]}"#,
            "output_format.schema",
            "Input should be an object",
        ),
        (
            r#""output_format":{"type":"json_schema","schema":{}},"output_config":{"format":{"type":"json_schema","schema":{}}}"#,
            "output_config.format.schema",
            "the form of the answer is already given by another field",
        ),
        (
            r#""output_config":"high""#,
            "output_config",
            "Input should be an object",
        ),
        (
            r#""output_config":{"format":null,"format":null}"#,
            "output_config.format",
            "Field given more than once",
        ),
    ] {
        refuse(field, path, message);
    }
    refuse(
        &format!(r#"{TOOLS},"tool_choice":{{"type":"any"}},"output_format":{{"type":"json_schema","schema":{{}}}}"#),
        "tool_choice",
        "must not force a call where the form of the answer is given",
    );
}

#[test]
fn tools_are_counted() {
    let body = format!("{{{BASE},{TOOLS}}}");
    let (request, _) = count_tokens(body.as_bytes(), &mut Scratch::default(), true).unwrap();
    assert_eq!(request.conversation.tools, tools());
}
