//! What holds of every body, in both dialects: no panic, a fault with words, or a request that is complete and in range.

use proptest::prelude::*;
use serde_json::{Value, json};
use zerohop_engine::{Role, ToolChoice, Tools};

use super::*;
use crate::error::ApiError;

const NAMES: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "system",
    "stream",
    "stop_sequences",
    "stop",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "n",
    "thinking",
    "output_config",
    "tools",
    "tool_choice",
    "stream_options",
    "include_usage",
    "response_format",
    "role",
    "content",
    "type",
    "text",
    "refusal",
    "x",
    "function",
    "name",
    "parameters",
    "input_schema",
    "schema",
    "json_schema",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "min_tokens",
    "guided_json",
    "structured_outputs",
    "tool_calls",
];

/// A value such as might stand at any of these names.
fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(0_i64), Just(1), Just(-1), any::<i64>()].prop_map(Value::from),
        prop_oneof![Just(0.0), Just(0.5), Just(1e300), any::<f64>()].prop_map(Value::from),
        prop::sample::select(
            &[
                "",
                "user",
                "assistant",
                "system",
                "developer",
                "text",
                "thinking",
                "image",
                "none",
                "adaptive",
                "function",
                "json_schema",
                "json_object",
                "tool_use",
                "a\0b",
                "hi\n"
            ][..]
        )
        .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(NAMES), inner), 0..6).prop_map(|entries| entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

/// A body that is right, but for what is put in its place.
fn body() -> impl Strategy<Value = Value> {
    let block = prop_oneof![
        Just(json!("hi")),
        Just(json!([{"type": "text", "text": "a"}])),
        Just(json!([{"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1]}}])),
        Just(json!([{"type": "tool_result", "tool_use_id": "c", "content": "r"}, {"type": "text", "text": "a"}])),
        tree()
    ];
    let role = prop::sample::select(&["user", "assistant", "system"][..]);
    let message = prop_oneof![4 => (role, block).prop_map(|(role, content)| json!({"role": role, "content": content})), 1 => tree()];
    let messages = prop::collection::vec(message, 0..5);
    let tools = prop::sample::select(vec![
        json!([{"name": "f", "input_schema": {}}]),
        json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]),
    ]);
    let wish = prop_oneof![
        4 => (prop::sample::select(NAMES), tree()),
        1 => (Just("tools"), tools),
        1 => (Just("tool_choice"), prop::sample::select(vec![json!("required"), json!({"type": "tool", "name": "f"})])),
        1 => (Just("response_format"), Just(json!({"type": "json_object"}))),
    ];
    let rest = prop::collection::vec(wish, 0..4);
    (messages, rest).prop_map(|(messages, rest)| {
        let mut body = json!({"model": "m", "max_tokens": 5, "messages": messages});
        for (name, value) in rest {
            body[name] = value;
        }
        body
    })
}

/// The invariants that the types promise.
fn check(request: &ChatRequest) {
    check_conversation(&request.conversation);
    assert!(!request.model.is_empty());
    assert!(
        request
            .temperature
            .is_none_or(|temperature| (0.0..=2.0).contains(&temperature))
    );
    assert!(request.top_p.is_none_or(|top_p| top_p > 0.0 && top_p <= 1.0));
    assert!(request.top_k != Some(0));
    assert!(request.max_tokens != Some(0) || request.dialect == Dialect::Anthropic);
    assert!(request.stop.iter().all(|stop| !stop.is_empty()));
    if let Some(extras) = &request.extras {
        check_extras(extras);
        assert!(request.max_tokens.is_none_or(|most| most >= extras.min_tokens));
    }
}

fn check_conversation(conversation: &Conversation) {
    let messages = &conversation.messages;
    assert!(!messages.is_empty());
    assert!(
        messages
            .windows(2)
            .all(|pair| pair[0].role != pair[1].role || pair[1].role == Role::Tool),
        "{messages:?}"
    );
    let last = messages.last().unwrap();
    assert!(last.calls.is_empty(), "{messages:?}");
    for message in messages {
        assert_eq!(message.call_id.is_some(), message.role == Role::Tool, "{messages:?}");
        assert!(
            message.calls.is_empty() || message.role == Role::Assistant,
            "{messages:?}"
        );
        for call in &message.calls {
            check_object(&call.arguments);
        }
    }
    let tools = &conversation.tools;
    for (index, tool) in tools.list.iter().enumerate() {
        check_object(&tool.parameters);
        assert!(tools.list[..index].iter().all(|other| other.name != tool.name));
    }
    if let ToolChoice::Named(name) = &tools.choice {
        assert!(tools.list.iter().any(|tool| tool.name == *name));
    }
    assert!(!tools.list.is_empty() || *tools == Tools::default());
    assert!(messages.iter().all(|message| !message.content.contains('\0')));
}

fn check_object(text: &str) {
    assert!(
        serde_json::from_str::<serde_json::Map<String, Value>>(text).is_ok(),
        "{text}"
    );
}

fn check_extras(extras: &Extras) {
    assert_ne!(*extras, Extras::default());
    assert!((1..=MAX_CHOICES).contains(&extras.choices));
    assert!((0.0..=1.0).contains(&extras.min_p));
    assert!((0.01..=2.0).contains(&extras.repetition_penalty));
    assert!((-2.0..=2.0).contains(&extras.frequency_penalty) && (-2.0..=2.0).contains(&extras.presence_penalty));
    let bias = &extras.logit_bias;
    assert!(bias.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(bias.iter().all(|(_, bias)| (-100.0..=100.0).contains(bias)));
    assert!(extras.logprobs.is_none_or(|top| top <= 20));
    assert_eq!(extras.places.form.is_empty(), extras.form == Form::Free);
    if let Form::Schema(schema) = &extras.form {
        check_object(schema);
    }
}

fn check_error(error: &ApiError) {
    assert_eq!(error.status(), 400);
    assert!(!error.message.is_empty() && error.param.as_deref() != Some(""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_body_is_a_request_or_a_fault(body in prop_oneof![4 => body(), 1 => tree()]) {
        let bytes = serde_json::to_vec(&body).unwrap();
        let mut scratch = Scratch::default();
        for read in [anthropic::messages, openai::chat] {
            let loose = read(&bytes, &mut scratch, false);
            match &loose {
                Ok((request, _)) => check(request),
                Err(error) => check_error(error),
            }
            // The strict reading differs in refusing unknown fields, and in nothing else.
            if let Ok((request, ignored)) = read(&bytes, &mut scratch, true) {
                prop_assert_eq!(&ignored, &Ignored::default());
                prop_assert_eq!(Ok((request, ignored)), loose);
            }
        }
        match anthropic::count_tokens(&bytes, &mut scratch, false) {
            Ok((request, _)) => check_conversation(&request.conversation),
            Err(error) => check_error(&error),
        }
    }
}
