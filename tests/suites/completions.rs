//! `/v1/completions` against the real model: what its parts must have in common, and what it refuses.
//!
//! Invariant: an answer to one of several prompts is the answer to that prompt alone.

use serde_json::{Value, json};
use zerohop_tests::{
    gateway::{Gateway, Settings},
    http,
};

use crate::ask::with;

/// The path.
pub(crate) const COMPLETIONS: &str = "/v1/completions";

/// A text to be continued, greedy.
pub(crate) fn continued(prompt: impl Into<Value>) -> Value {
    json!({"model": "tiny", "max_tokens": 12, "temperature": 0, "prompt": prompt.into()})
}

fn ask(gateway: &Gateway, body: &Value) -> Value {
    let response = http::post(gateway.address(), COMPLETIONS, body);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn texts(completion: &Value) -> Vec<&str> {
    let choices = completion["choices"].as_array().expect("choices");
    let numbered = choices.iter().enumerate();
    numbered
        .map(|(index, choice)| {
            assert_eq!(choice["index"], index);
            choice["text"].as_str().expect("a text")
        })
        .collect()
}

const PROMPTS: [&str; 3] = ["The capital of France is", "Seven plus five", "é"];

#[test]
fn several_prompts_are_answered_as_each_alone() {
    let gateway = Gateway::start(&Settings::default());
    let alone: Vec<Value> = PROMPTS
        .iter()
        .map(|prompt| ask(&gateway, &continued(*prompt)))
        .collect();
    let all = ask(&gateway, &continued(json!(PROMPTS)));
    let single: Vec<&str> = alone.iter().flat_map(texts).collect();
    assert_eq!(texts(&all), single);
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        let sum: u64 = alone.iter().filter_map(|one| one["usage"][field].as_u64()).sum();
        assert_eq!(all["usage"][field], sum, "{field}");
    }
    // Two answers each: the first is what it is alone, and the prompt counts once.
    let twice = ask(&gateway, &with(continued(json!(PROMPTS)), "n", 2));
    let texts_of_two = texts(&twice);
    let first: Vec<&str> = texts_of_two.iter().copied().step_by(2).collect();
    assert_eq!((first, texts_of_two.len()), (single, 6));
    assert_eq!(twice["usage"]["prompt_tokens"], all["usage"]["prompt_tokens"]);
}

#[test]
fn a_stream_equals_the_document() {
    let gateway = Gateway::start(&Settings::default());
    let body = with(with(continued(json!(PROMPTS)), "echo", true), "n", 2);
    let whole = ask(&gateway, &body);
    let streamed = with(body, "stream", true);
    let streamed = with(streamed, "stream_options", json!({"include_usage": true}));
    let response = http::post(gateway.address(), COMPLETIONS, &streamed);
    let mut events = response.events();
    assert_eq!(events.pop().map(|event| event.data).as_deref(), Some("[DONE]"));
    let last = events.pop().expect("usage").json();
    assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
    let mut joined = vec![String::new(); 6];
    let mut reasons = vec![Value::Null; 6];
    for event in &events {
        let chunk = event.json();
        let choice = &chunk["choices"][0];
        let index = choice["index"].as_u64().expect("an index") as usize;
        assert!(reasons[index].is_null() && chunk["usage"].is_null(), "{chunk}");
        joined[index] += choice["text"].as_str().expect("a text");
        reasons[index] = choice["finish_reason"].clone();
    }
    assert_eq!(joined, texts(&whole));
    for (index, reason) in reasons.iter().enumerate() {
        assert_eq!(*reason, whole["choices"][index]["finish_reason"]);
        assert!(joined[index].starts_with(PROMPTS[index / 2]), "the prompt comes first");
    }
}

#[test]
fn tokens_and_texts_are_prompts() {
    let gateway = Gateway::start(&Settings::default());
    let none = with(with(continued("Hello there"), "max_tokens", 0), "echo", true);
    let told = ask(&gateway, &none);
    assert_eq!(
        (texts(&told), &told["choices"][0]["finish_reason"]),
        (vec!["Hello there"], &json!("length"))
    );
    assert_eq!(told["usage"]["completion_tokens"], 0);
    // A list of numbers is one prompt, a list of lists are several.
    let one = ask(&gateway, &continued(json!([1, 72, 101])));
    let two = ask(&gateway, &continued(json!([[1, 72, 101], [1]])));
    assert_eq!((texts(&one).len(), texts(&two).len()), (1, 2));
    assert_eq!(texts(&one)[0], texts(&two)[0]);
    assert_eq!(
        (&one["usage"]["prompt_tokens"], &two["usage"]["prompt_tokens"]),
        (&json!(3), &json!(4))
    );
    // A seed draws the same again.
    let wild = with(with(continued("Once"), "temperature", 1.5), "seed", 7);
    assert_eq!(texts(&ask(&gateway, &wild)), texts(&ask(&gateway, &wild)));
    // The short path is the same one.
    let short = http::post(gateway.address(), "/completions", &continued("Once"));
    assert_eq!(texts(&short.json()), texts(&ask(&gateway, &continued("Once"))));
}

#[test]
fn what_cannot_be_continued_is_refused_at_its_place() {
    let gateway = Gateway::start(&Settings::default());
    let base = || continued("a");
    let cases = [
        (
            "a token that is none",
            with(base(), "prompt", json!([999_999])),
            "prompt",
            "no token",
        ),
        ("no tokens", with(base(), "prompt", json!([[]])), "prompt[0]", "empty"),
        (
            "too long",
            with(base(), "prompt", "word ".repeat(20_000)),
            "prompt",
            "maximum context length",
        ),
        ("a suffix", with(base(), "suffix", "b"), "suffix", "not supported"),
        (
            "messages",
            with(base(), "messages", json!([])),
            "messages",
            "chat completions",
        ),
        ("better ones", with(base(), "best_of", 3), "best_of", "'n'"),
    ];
    for (name, body, param, words) in cases {
        let response = http::post(gateway.address(), COMPLETIONS, &body);
        assert_eq!(response.status, 400, "{name}: {}", response.text());
        let json = response.json();
        let error = &json["error"];
        let told = error["param"].as_str().unwrap_or_default();
        assert!(
            told == param || told == param.replace('[', ".").replace(']', ""),
            "{name}: {error}"
        );
        assert!(
            error["message"].as_str().is_some_and(|text| text.contains(words)),
            "{name}: {error}"
        );
    }
    let metrics = http::get(gateway.address(), "/metrics").text();
    let counted = metrics.lines().any(|line| {
        line.starts_with("zerohop_requests_total") && line.contains("route=\"completions\"") && line.ends_with(" 6")
    });
    assert!(counted, "the route has its label: {metrics}");
}
