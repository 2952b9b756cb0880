//! What few bodies of the Chat Completions API ask for: what each means, or where and how it is wrong.

use zerohop_engine::{Tool, ToolChoice, Tools};

use super::*;

/// This field means these extras.
fn check_extras(fields: &str, change: impl FnOnce(&mut Extras)) {
    let mut extras = Extras::default();
    change(&mut extras);
    check(fields, |r| r.extras = Some(Box::new(extras)));
}

#[test]
fn numbers_and_tokens() {
    check_extras(r#""n":8"#, |e| e.choices = 8);
    check_extras(r#""min_p":0.25"#, |e| e.min_p = 0.25);
    check_extras(r#""repetition_penalty":2"#, |e| e.repetition_penalty = 2.0);
    check_extras(r#""frequency_penalty":-2"#, |e| e.frequency_penalty = -2.0);
    check_extras(r#""presence_penalty":0.5"#, |e| e.presence_penalty = 0.5);
    check_extras(r#""logit_bias":{"50256":-100,"7":0.5}"#, |e| {
        e.logit_bias = vec![(7, 0.5), (50_256, -100.0)];
    });
    check_extras(r#""min_tokens":3"#, |e| e.min_tokens = 3);
    check_extras(r#""ignore_eos":true"#, |e| e.ignore_eos = true);
    check_extras(r#""stop_token_ids":[0,4294967295,2.0]"#, |e| {
        e.stop_tokens = vec![0, u32::MAX, 2];
    });
    check_extras(r#""logprobs":true"#, |e| e.logprobs = Some(0));
    check_extras(r#""top_logprobs":20,"logprobs":true"#, |e| e.logprobs = Some(20));
}

#[test]
fn numbers_and_tokens_that_are_wrong() {
    for (field, path, message) in [
        (
            r#""n":9"#,
            "n",
            "Invalid 'n': value above the maximum. Expected a value <= 8, but got 9 instead.",
        ),
        (
            r#""n":1e30"#,
            "n",
            "Invalid 'n': value above the maximum. Expected a value <= 8, but got 4294967295 instead.",
        ),
        (
            r#""n":0.5"#,
            "n",
            "Invalid type for 'n': expected an integer, but got a decimal instead.",
        ),
        (
            r#""min_p":1.5"#,
            "min_p",
            "Invalid 'min_p': value above the maximum. Expected a value <= 1, but got 1.5 instead.",
        ),
        (
            r#""repetition_penalty":0"#,
            "repetition_penalty",
            "Invalid 'repetition_penalty': must be between 0.01 and 2.",
        ),
        (
            r#""repetition_penalty":2.5"#,
            "repetition_penalty",
            "Invalid 'repetition_penalty': value above the maximum. Expected a value <= 2, but got 2.5 instead.",
        ),
        (
            r#""presence_penalty":-2.5"#,
            "presence_penalty",
            "Invalid 'presence_penalty': value below the minimum. Expected a value >= -2, but got -2.5 instead.",
        ),
        (
            r#""logit_bias":[]"#,
            "logit_bias",
            "Invalid type for 'logit_bias': expected an object, but got an array instead.",
        ),
        (
            r#""logit_bias":{"a":1}"#,
            "logit_bias.a",
            "Invalid 'logit_bias.a': the key must be the id of a token.",
        ),
        (
            r#""logit_bias":{"01":1}"#,
            "logit_bias.01",
            "Invalid 'logit_bias[01]': the key must be the id of a token.",
        ),
        (
            r#""logit_bias":{"4294967296":1}"#,
            "logit_bias.4294967296",
            "Invalid 'logit_bias[4294967296]': the key must be the id of a token.",
        ),
        (
            r#""logit_bias":{"5":101}"#,
            "logit_bias.5",
            "Invalid 'logit_bias[5]': value above the maximum. Expected a value <= 100, but got 101 instead.",
        ),
        (
            r#""logit_bias":{"5":1,"6":1,"5":1}"#,
            "logit_bias.5",
            "Duplicate parameter: 'logit_bias[5]'.",
        ),
        (
            r#""stop_token_ids":[-1]"#,
            "stop_token_ids.0",
            "Invalid 'stop_token_ids[0]': value below the minimum. Expected a value >= 0, but got -1 instead.",
        ),
        (
            r#""stop_token_ids":[4294967296]"#,
            "stop_token_ids.0",
            "Invalid 'stop_token_ids[0]': value above the maximum. Expected a value <= 4294967295, but got 4294967296 instead.",
        ),
        (
            r#""ignore_eos":1"#,
            "ignore_eos",
            "Invalid type for 'ignore_eos': expected a boolean, but got an integer instead.",
        ),
        (
            r#""min_tokens":6,"max_tokens":5"#,
            "min_tokens",
            "Invalid 'min_tokens': must not be above the most tokens that are asked for.",
        ),
        (
            r#""top_logprobs":5"#,
            "top_logprobs",
            "Invalid 'top_logprobs': is only allowed when 'logprobs' is true.",
        ),
        (
            r#""logprobs":false,"top_logprobs":5"#,
            "top_logprobs",
            "Invalid 'top_logprobs': is only allowed when 'logprobs' is true.",
        ),
        (
            r#""logprobs":5"#,
            "logprobs",
            "Invalid type for 'logprobs': expected a boolean, but got an integer instead.",
        ),
        (
            r#""parallel_tool_calls":"no""#,
            "parallel_tool_calls",
            "Invalid type for 'parallel_tool_calls': expected a boolean, but got a string instead.",
        ),
    ] {
        refuse(field, path, message);
    }
    let ids = |count| (0..count).map(|id| format!("\"{id}\":1")).collect::<Vec<_>>().join(",");
    refuse(
        &format!("\"logit_bias\":{{{}}}", ids(1025)),
        "logit_bias",
        "Invalid 'logit_bias': must have at most 1,024 entries.",
    );
    refuse(
        &format!("\"stop_token_ids\":[{}0]", "0,".repeat(128)),
        "stop_token_ids",
        "Invalid 'stop_token_ids': must have at most 128 entries.",
    );
}

#[test]
fn forms() {
    const SCHEMA: &str = r#"{ "type":"object", "x":[1.0,"\u0061"] }"#;
    let schema = || Form::Schema(SCHEMA.into());
    let texts = || Form::Choice(vec!["a".into(), "b".into()]);
    for (field, form, place) in [
        (
            r#""response_format":{"type":"json_object"}"#.into(),
            Form::Object,
            "response_format",
        ),
        (
            r#""response_format":{"type":"json_object","schema":null}"#.into(),
            Form::Object,
            "response_format",
        ),
        (
            format!(r#""response_format":{{"type":"json_object","schema":{SCHEMA}}}"#),
            schema(),
            "response_format.schema",
        ),
        (
            format!(
                r#""response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":{SCHEMA},"strict":true,"description":"d"}}}}"#
            ),
            schema(),
            "response_format.json_schema.schema",
        ),
        (
            format!(r#""structured_outputs":{{"json":{SCHEMA}}}"#),
            schema(),
            "structured_outputs.json",
        ),
        (
            format!(r#""structured_outputs":{{"json":{}}}"#, serde_json::Value::from(SCHEMA)),
            schema(),
            "structured_outputs.json",
        ),
        (
            r#""structured_outputs":{"regex":"a+","json":null,"json_object":false}"#.into(),
            Form::Regex("a+".into()),
            "structured_outputs.regex",
        ),
        (
            r#""structured_outputs":{"choice":["a","b"]}"#.into(),
            texts(),
            "structured_outputs.choice",
        ),
        (
            r#""structured_outputs":{"grammar":"start: \"a\""}"#.into(),
            Form::Grammar("start: \"a\"".into()),
            "structured_outputs.grammar",
        ),
        (
            r#""structured_outputs":{"json_object":true}"#.into(),
            Form::Object,
            "structured_outputs.json_object",
        ),
        (format!(r#""guided_json":{SCHEMA}"#), schema(), "guided_json"),
        (format!(r#""json_schema":{SCHEMA}"#), schema(), "json_schema"),
        (
            r#""guided_regex":"a+""#.into(),
            Form::Regex("a+".into()),
            "guided_regex",
        ),
        (r#""guided_choice":["a","b"]"#.into(), texts(), "guided_choice"),
        (
            r#""guided_grammar":"start: \"a\"""#.into(),
            Form::Grammar("start: \"a\"".into()),
            "guided_grammar",
        ),
    ] {
        check_extras(&field, |e| {
            e.form = form;
            e.places.form = place;
        });
    }
}

#[test]
fn forms_that_are_wrong() {
    for (field, path, message) in [
        (
            r#""response_format":{"type":"xml"}"#,
            "response_format.type",
            "Invalid value: 'xml'. Supported values are: 'text', 'json_object' and 'json_schema'.",
        ),
        (
            r#""response_format":{}"#,
            "response_format.type",
            "Missing required parameter: 'response_format.type'.",
        ),
        (
            r#""response_format":{"type":"json_schema"}"#,
            "response_format.json_schema",
            "Missing required parameter: 'response_format.json_schema'.",
        ),
        (
            r#""response_format":{"type":"json_schema","json_schema":{"schema":{}}}"#,
            "response_format.json_schema.name",
            "Missing required parameter: 'response_format.json_schema.name'.",
        ),
        (
            r#""response_format":{"type":"json_schema","json_schema":{"name":"n"}}"#,
            "response_format.json_schema.schema",
            "Missing required parameter: 'response_format.json_schema.schema'.",
        ),
        (
            r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":7}}"#,
            "response_format.json_schema.schema",
            "Invalid type for 'response_format.json_schema.schema': expected an object, but got an integer instead.",
        ),
        (
            r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},"strict":1}}"#,
            "response_format.json_schema.strict",
            "Invalid type for 'response_format.json_schema.strict': expected a boolean, but got an integer instead.",
        ),
        (
            r#""structured_outputs":{}"#,
            "structured_outputs",
            "Invalid 'structured_outputs': must have one of 'json', 'regex', 'choice', 'grammar' and 'json_object'.",
        ),
        (
            r#""structured_outputs":{"regex":"a","choice":["b"]}"#,
            "structured_outputs.choice",
            "Invalid 'structured_outputs.choice': the form of the answer is already given by another field.",
        ),
        (
            r#""structured_outputs":{"structural_tag":"x"}"#,
            "structured_outputs.structural_tag",
            "Unsupported parameter: 'structured_outputs.structural_tag' is not supported yet.",
        ),
        (
            r#""structured_outputs":{"json":"[1]"}"#,
            "structured_outputs.json",
            "Invalid 'structured_outputs.json': must be a JSON object, as text.",
        ),
        (
            r#""guided_regex":"""#,
            "guided_regex",
            "Invalid 'guided_regex': must not be empty.",
        ),
        (
            r#""guided_choice":[]"#,
            "guided_choice",
            "Invalid 'guided_choice': must not be empty.",
        ),
        (
            r#""guided_choice":["a",1]"#,
            "guided_choice.1",
            "Invalid type for 'guided_choice[1]': expected a string, but got an integer instead.",
        ),
        (
            r#""guided_json":[]"#,
            "guided_json",
            "Invalid type for 'guided_json': expected an object, but got an array instead.",
        ),
        (
            r#""response_format":{"type":"json_object"},"guided_regex":"a""#,
            "guided_regex",
            "Invalid 'guided_regex': the form of the answer is already given by another field.",
        ),
    ] {
        refuse(field, path, message);
    }
    let long = "x".repeat((256 << 10) + 1);
    for (field, path) in [
        (format!(r#""guided_regex":"{long}""#), "guided_regex"),
        (format!(r#""guided_json":{{"a":"{long}"}}"#), "guided_json"),
        (format!(r#""guided_choice":["{long}"]"#), "guided_choice.0"),
    ] {
        let shown = crate::api::brackets(path);
        refuse(
            &field,
            path,
            &format!("Invalid '{shown}': must have at most 262,144 bytes."),
        );
    }
    refuse(
        &format!(r#""guided_choice":[{}"a"]"#, "\"a\",".repeat(1024)),
        "guided_choice",
        "Invalid 'guided_choice': must have at most 1,024 entries.",
    );
}

const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"f"}},{"function":{"parameters":{ "x":1.0 },"strict":true,"description":"d","name":"g-2_X"},"type":"function"},{"type":"function","function":{"name":"h","parameters":null,"strict":null,"description":null}}]"#;

fn tools(choice: ToolChoice, parallel: bool) -> Tools {
    let tool = |name: &str| Tool {
        name: name.into(),
        description: String::new(),
        parameters: r#"{"type":"object","properties":{}}"#.into(),
        strict: false,
    };
    let second = Tool {
        description: "d".into(),
        parameters: r#"{ "x":1.0 }"#.into(),
        strict: true,
        ..tool("g-2_X")
    };
    Tools {
        list: vec![tool("f"), second, tool("h")],
        choice,
        parallel,
    }
}

#[test]
fn tools_and_the_choice_among_them() {
    for (fields, choice, parallel) in [
        ("", ToolChoice::Auto, true),
        (r#""tool_choice":null"#, ToolChoice::Auto, true),
        (
            r#""tool_choice":"auto","parallel_tool_calls":false"#,
            ToolChoice::Auto,
            false,
        ),
        (r#""tool_choice":"none""#, ToolChoice::None, true),
        (r#""tool_choice":"required""#, ToolChoice::Required, true),
        (
            r#""tool_choice":{"type":"function","function":{"name":"g-2_X"}}"#,
            ToolChoice::Named("g-2_X".into()),
            true,
        ),
    ] {
        for fields in [format!("{TOOLS},{fields}"), format!("{fields},{TOOLS}")] {
            check(fields.trim_matches(','), |r| {
                r.conversation.tools = tools(choice.clone(), parallel);
            });
        }
    }
}

#[test]
fn allowed_tools() {
    let allowed = |mode: &str, names: &[&str]| {
        let names: Vec<_> = names
            .iter()
            .map(|name| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#))
            .collect();
        format!(
            r#"{TOOLS},"tool_choice":{{"type":"allowed_tools","allowed_tools":{{"mode":"{mode}","tools":[{}]}}}}"#,
            names.join(",")
        )
    };
    check(&allowed("auto", &["h", "f", "g-2_X", "f"]), |r| {
        r.conversation.tools = tools(ToolChoice::Auto, true);
    });
    // The others are not offered; an engine's words on one name its place in the body.
    check(&allowed("required", &["h", "g-2_X"]), |r| {
        let mut wanted = tools(ToolChoice::Required, true);
        wanted.list.remove(0);
        r.conversation.tools = wanted;
        let mut extras = Extras::default();
        extras.places.tools = vec![1, 2];
        r.extras = Some(Box::new(extras));
    });
    for (field, path, message) in [
        (
            allowed("maybe", &["f"]),
            "tool_choice.allowed_tools.mode",
            "Invalid value: 'maybe'. Supported values are: 'auto' and 'required'.",
        ),
        (
            allowed("auto", &[]),
            "tool_choice.allowed_tools.tools",
            "Invalid 'tool_choice.allowed_tools.tools': must not be empty.",
        ),
        (
            allowed("auto", &["f", "i"]),
            "tool_choice.allowed_tools.tools.1",
            "Invalid 'tool_choice.allowed_tools.tools[1]': is no tool of this request.",
        ),
    ] {
        refuse(&field, path, message);
    }
}

#[test]
fn tools_that_are_wrong() {
    let with = |tool: &str| format!(r#""tools":[{{"type":"function","function":{{"name":"f"}}}},{tool}]"#);
    let function = |function: &str| with(&format!(r#"{{"type":"function","function":{function}}}"#));
    const NAME: &str = "Invalid 'tools[1].function.name': must be 1 to 64 letters, digits, underscores and dashes.";
    let long = format!(r#"{{"name":"{}"}}"#, "n".repeat(65));
    for (field, path, message) in [
        (
            with("7"),
            "tools.1",
            "Invalid type for 'tools[1]': expected an object, but got an integer instead.",
        ),
        (
            with(r#"{"function":{"name":"g"}}"#),
            "tools.1.type",
            "Missing required parameter: 'tools[1].type'.",
        ),
        (
            with(r#"{"type":"custom","custom":{"name":"g"}}"#),
            "tools.1.type",
            "Unsupported value: 'tools[1].type' does not support 'custom' yet.",
        ),
        (
            with(r#"{"type":"hammer"}"#),
            "tools.1.type",
            "Invalid value: 'hammer'. Supported values are: 'function'.",
        ),
        (
            with(r#"{"type":"function"}"#),
            "tools.1.function",
            "Missing required parameter: 'tools[1].function'.",
        ),
        (
            function("{}"),
            "tools.1.function.name",
            "Missing required parameter: 'tools[1].function.name'.",
        ),
        (function(r#"{"name":""}"#), "tools.1.function.name", NAME),
        (function(r#"{"name":"a.b"}"#), "tools.1.function.name", NAME),
        (function(&long), "tools.1.function.name", NAME),
        (
            function(r#"{"name":"f"}"#),
            "tools.1.function.name",
            "Duplicate parameter: 'tools[1].function.name'.",
        ),
        (
            function(r#"{"name":"g","parameters":[]}"#),
            "tools.1.function.parameters",
            "Invalid type for 'tools[1].function.parameters': expected an object, but got an array instead.",
        ),
        (
            function(r#"{"name":"g","strict":"yes"}"#),
            "tools.1.function.strict",
            "Invalid type for 'tools[1].function.strict': expected a boolean, but got a string instead.",
        ),
        (
            r#""tool_choice":"required""#.into(),
            "tool_choice",
            "Invalid 'tool_choice': must not force a call where there are no tools.",
        ),
        (
            format!(r#"{TOOLS},"tool_choice":"maybe""#),
            "tool_choice",
            "Invalid value: 'maybe'. Supported values are: 'none', 'auto' and 'required'.",
        ),
        (
            format!(r#"{TOOLS},"tool_choice":true"#),
            "tool_choice",
            "Invalid type for 'tool_choice': expected one of a string or an object, but got a boolean instead.",
        ),
        (
            format!(r#"{TOOLS},"tool_choice":{{"type":"custom","custom":{{"name":"f"}}}}"#),
            "tool_choice.type",
            "Unsupported value: 'tool_choice.type' does not support 'custom' yet.",
        ),
        (
            format!(r#"{TOOLS},"tool_choice":{{"type":"function","function":{{"name":"i"}}}}"#),
            "tool_choice.function.name",
            "Invalid 'tool_choice.function.name': is no tool of this request.",
        ),
        (
            format!(r#"{TOOLS},"tool_choice":"required","response_format":{{"type":"json_object"}}"#),
            "tool_choice",
            "Invalid 'tool_choice': must not force a call where the form of the answer is given.",
        ),
    ] {
        refuse(&field, path, message);
    }
    let many = vec![r#"{"type":"function","function":{"name":"f"}}"#; 513].join(",");
    refuse(
        &format!("\"tools\":[{many}]"),
        "tools",
        "Invalid 'tools': at most 512 tools are allowed.",
    );
}

#[test]
fn calls_and_their_results() {
    let body = r#"{"model":"m","messages":[
        {"role":"user","content":"a"},
        {"role":"assistant","content":null,"tool_calls":[
            {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\": 1.0}"}},
            {"function":{"arguments":"","name":"g"},"id":"c2","index":1}]},
        {"role":"tool","tool_call_id":"c2","content":"r2"},
        {"content":[{"type":"text","text":"r"},{"type":"text","text":"s"}],"role":"tool","tool_call_id":"c1"},
        {"role":"assistant","tool_calls":[{"id":"c3","type":"function","function":{"name":"f","arguments":" {} "}}],"content":"b"},
        {"role":"tool","tool_call_id":"c3","content":""},
        {"role":"user","content":"c"}]}"#;
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let calling = |content: &str, calls| Message {
        calls,
        ..Message::new(Role::Assistant, content)
    };
    let result = |id: &str, content: &str| Message {
        call_id: Some(id.into()),
        ..Message::new(Role::Tool, content)
    };
    let wanted = ChatRequest {
        conversation: vec![
            Message::new(Role::User, "a"),
            calling("", vec![call("c1", "f", r#"{"x": 1.0}"#), call("c2", "g", "{}")]),
            result("c2", "r2"),
            result("c1", "r\ns"),
            calling("b", vec![call("c3", "f", " {} ")]),
            result("c3", ""),
            Message::new(Role::User, "c"),
        ]
        .into(),
        ..base()
    };
    assert_eq!(parse(body, true), Ok((wanted, Ignored::default())));
}

#[test]
fn calls_and_results_that_are_wrong() {
    let calls = |calls: &str| format!(r#"[{{"role":"assistant","content":null,"tool_calls":{calls}}}]"#);
    let call = |function: &str| calls(&format!(r#"[{{"id":"c","type":"function","function":{function}}}]"#));
    let result = |fields: &str| {
        format!(
            r#"[{{"role":"assistant","content":"","tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool",{fields}}}]"#
        )
    };
    let twice = r#"{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}"#;
    const ARGUMENTS: &str = "Invalid 'messages[0].tool_calls[0].function.arguments': must be a JSON object, as text.";
    for (messages, path, message) in [
        (
            calls("{}"),
            "messages.0.tool_calls",
            "Invalid type for 'messages[0].tool_calls': expected an array, but got an object instead.",
        ),
        (
            calls(r#"[{"type":"function","function":{"name":"f","arguments":"{}"}}]"#),
            "messages.0.tool_calls.0.id",
            "Missing required parameter: 'messages[0].tool_calls[0].id'.",
        ),
        (
            calls(r#"[{"id":"c","type":"custom","custom":{}}]"#),
            "messages.0.tool_calls.0.type",
            "Unsupported value: 'messages[0].tool_calls[0].type' does not support 'custom' yet.",
        ),
        (
            call(r#"{"arguments":"{}"}"#),
            "messages.0.tool_calls.0.function.name",
            "Missing required parameter: 'messages[0].tool_calls[0].function.name'.",
        ),
        (
            call(r#"{"name":"f"}"#),
            "messages.0.tool_calls.0.function.arguments",
            "Missing required parameter: 'messages[0].tool_calls[0].function.arguments'.",
        ),
        (
            call(r#"{"name":"f","arguments":"[1]"}"#),
            "messages.0.tool_calls.0.function.arguments",
            ARGUMENTS,
        ),
        (
            call(r#"{"name":"f","arguments":"{\"a\":"}"#),
            "messages.0.tool_calls.0.function.arguments",
            ARGUMENTS,
        ),
        (
            call(r#"{"name":"f","arguments":"{} {}"}"#),
            "messages.0.tool_calls.0.function.arguments",
            ARGUMENTS,
        ),
        (
            call(r#"{"name":"f","arguments":{}}"#),
            "messages.0.tool_calls.0.function.arguments",
            "Invalid type for 'messages[0].tool_calls[0].function.arguments': expected a string, but got an object instead.",
        ),
        (
            calls(&format!("[{twice},{twice}]")),
            "messages.0.tool_calls.1",
            "Invalid 'messages[0].tool_calls[1]': another call of this message has the same id.",
        ),
        (
            calls(&format!("[{twice}]")),
            "messages",
            "Invalid 'messages': the last message calls tools, and their results are missing.",
        ),
        (
            result(r#""content":"r""#),
            "messages.1.tool_call_id",
            "Missing required parameter: 'messages[1].tool_call_id'.",
        ),
        (
            result(r#""content":"r","tool_call_id":"d""#),
            "messages.1.tool_call_id",
            "Invalid 'messages[1].tool_call_id': is no id of a call in the assistant message before.",
        ),
        (
            result(r#""tool_call_id":"c""#),
            "messages.1.content",
            "Missing required parameter: 'messages[1].content'.",
        ),
        (
            r#"[{"role":"tool","content":"r","tool_call_id":"c"}]"#.into(),
            "messages.0.tool_call_id",
            "Invalid 'messages[0].tool_call_id': is no id of a call in the assistant message before.",
        ),
    ] {
        refuse_messages(&messages, path, message);
    }
}
