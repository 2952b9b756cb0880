//! Calls of tools against the real model, in both dialects.
//!
//! Invariant: a tool that must be called is, with arguments by its schema, whatever the model would rather say.

use serde_json::{Value, json};
use zerohop_tests::{
    gateway::{Gateway, Settings},
    http,
};

use crate::ask::{CHAT, MESSAGES, chat, message, with};

const QUESTION: &str = "Is it warm in Rome?";

fn schema() -> Value {
    let city = json!({"type": "string", "enum": ["Rome", "Oslo"]});
    json!({"type": "object", "properties": {"city": city}, "required": ["city"], "additionalProperties": false})
}

fn ask(gateway: &Gateway, path: &str, body: &Value) -> Value {
    let response = http::post(gateway.address(), path, body);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn is_a_city(input: &Value) -> bool {
    [json!({"city": "Rome"}), json!({"city": "Oslo"})].contains(input)
}

#[test]
fn openai_calls() {
    let gateway = Gateway::start(&Settings::default());
    let function = json!({"name": "weather", "description": "The weather.", "parameters": schema(), "strict": true});
    let body = with(
        chat(QUESTION),
        "tools",
        json!([{"type": "function", "function": function}]),
    );
    let body = with(with(body, "tool_choice", "required"), "parallel_tool_calls", false);
    let completion = ask(&gateway, CHAT, &body);
    let choice = &completion["choices"][0];
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        (&choice["finish_reason"], &call["function"]["name"]),
        (&json!("tool_calls"), &json!("weather"))
    );
    let arguments = call["function"]["arguments"].as_str().expect("JSON as text");
    assert!(
        is_a_city(&serde_json::from_str(arguments).expect("JSON")),
        "{completion}"
    );
    // With the result the conversation goes on.
    let mut next = body.clone();
    next["tool_choice"] = json!("none");
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "20 degrees"});
    next["messages"] = json!([body["messages"][0], choice["message"], result]);
    let answer = ask(&gateway, CHAT, &next);
    assert!(answer["choices"][0]["message"]["tool_calls"].is_null(), "{answer}");
}

/// The words of clients from before there were tools.
#[test]
fn functions_are_called_in_their_own_words() {
    let gateway = Gateway::start(&Settings::default());
    let function = json!({"name": "weather", "description": "The weather.", "parameters": schema()});
    let body = with(chat(QUESTION), "functions", json!([function]));
    let body = with(body, "function_call", json!({"name": "weather"}));
    let completion = ask(&gateway, CHAT, &body);
    let choice = &completion["choices"][0];
    let call = &choice["message"]["function_call"];
    assert_eq!(
        (
            &choice["finish_reason"],
            &call["name"],
            &choice["message"]["tool_calls"]
        ),
        (&json!("function_call"), &json!("weather"), &Value::Null)
    );
    let arguments = call["arguments"].as_str().expect("JSON as text");
    assert!(
        is_a_city(&serde_json::from_str(arguments).expect("JSON")),
        "{completion}"
    );
    // Streamed, greedily, it is the same.
    let response = http::post(gateway.address(), CHAT, &with(body.clone(), "stream", true));
    let text = response.text();
    let deltas = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let deltas = deltas.map(|data| serde_json::from_str::<Value>(&format!("{{{data}")).expect("JSON"));
    let calls: Vec<_> = deltas
        .map(|chunk| chunk["choices"][0]["delta"]["function_call"].clone())
        .collect();
    let joined: String = calls.iter().filter_map(|call| call["arguments"].as_str()).collect();
    assert!(is_a_city(&serde_json::from_str(&joined).expect("JSON")), "{text}");
    assert_eq!(
        calls.iter().filter(|call| call["name"] == "weather").count(),
        1,
        "{text}"
    );
    // With the result the conversation goes on.
    let mut next = body.clone();
    next["function_call"] = json!("none");
    let result = json!({"role": "function", "name": "weather", "content": "20 degrees"});
    next["messages"] = json!([body["messages"][0], choice["message"], result]);
    let answer = ask(&gateway, CHAT, &next);
    assert!(answer["choices"][0]["message"]["function_call"].is_null(), "{answer}");
}

#[test]
fn anthropic_calls() {
    let gateway = Gateway::start(&Settings::default());
    let tool = json!({"name": "weather", "description": "The weather.", "input_schema": schema()});
    let body = with(message(QUESTION), "tools", json!([tool]));
    let choice = json!({"type": "tool", "name": "weather", "disable_parallel_tool_use": true});
    let answer = ask(&gateway, MESSAGES, &with(body, "tool_choice", choice));
    let block = &answer["content"][0];
    assert_eq!(
        (&answer["stop_reason"], &block["name"]),
        (&json!("tool_use"), &json!("weather"))
    );
    assert!(block["type"] == "tool_use" && is_a_city(&block["input"]), "{answer}");
}

#[test]
fn a_schema_that_cannot_be_guaranteed_is_refused_at_its_tool() {
    let gateway = Gateway::start(&Settings::default());
    let parameters = json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}});
    let function = json!({"name": "list", "parameters": parameters, "strict": true});
    let body = with(
        chat(QUESTION),
        "tools",
        json!([{"type": "function", "function": function}]),
    );
    let response = http::post(gateway.address(), CHAT, &body);
    assert_eq!(response.status, 400, "{}", response.text());
    let param = response.json()["error"]["param"].clone();
    assert_eq!(param, "tools[0].function.parameters", "{}", response.text());
}
