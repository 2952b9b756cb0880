//! Stored answers: what is given again, what is not, and to whom.
//!
//! Invariant: a gateway here keeps answers, which those of other suites do not.

use rustix::process::Signal;
use serde_json::{Value, json};
use zerohop_tests::{
    gateway::{Gateway, Settings, root},
    http::{self, Response},
    metrics::Metrics,
    scratch::Scratch,
    sse,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, chat, message, text_of, with};

const QUESTION: &str = "What is the capital of France?";

fn keeping() -> Settings {
    Settings::default().with("/cache/type", "memory")
}

/// What `x-cache` says, and the reply.
fn ask(gateway: &Gateway, path: &str, body: &Value, headers: &[(&str, &str)]) -> (String, Response) {
    let body = body.to_string();
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let response = http::exchange(
        gateway.address(),
        format!("{head}connection: close\r\n\r\n{body}").as_bytes(),
    );
    (response.header("x-cache").unwrap_or("nothing").to_owned(), response)
}

fn told(gateway: &Gateway, path: &str, body: &Value, headers: &[(&str, &str)]) -> String {
    ask(gateway, path, body, headers).0
}

/// Asks until the answer is kept: the writer takes it a moment after the client has it.
fn ask_until_kept(gateway: &Gateway, path: &str, body: &Value, headers: &[(&str, &str)]) -> Response {
    wait_for("an answer to be kept", || {
        let (cache, response) = ask(gateway, path, body, headers);
        (cache == "hit").then_some(response)
    })
}

/// Has the gateway read its files again, for the `nth` time.
fn reload(gateway: &Gateway, nth: usize) {
    gateway.signal(Signal::HUP);
    wait_for("the reload", || {
        (gateway.log().matches("reloaded in").count() == nth).then_some(())
    });
}

fn streamed(body: Value) -> Value {
    with(body, "stream", true)
}

#[test]
fn one_answer_serves_both_dialects_and_both_modes() {
    let gateway = Gateway::start(&keeping());
    let (cache, first) = ask(&gateway, MESSAGES, &message(QUESTION), &[]);
    assert_eq!((&*cache, first.header("age")), ("miss", None));
    let kept = ask_until_kept(&gateway, MESSAGES, &message(QUESTION), &[]);
    assert_eq!(text_of(&kept), text_of(&first));
    let (_, again) = ask(&gateway, MESSAGES, &message(QUESTION), &[]);
    assert_eq!(
        again.text(),
        kept.text(),
        "the very same document, its id and usage too"
    );
    assert!(again.header("age").is_some_and(|age| age.parse::<u64>().is_ok()));
    let text = text_of(&first);
    for (path, body) in [
        (MESSAGES, streamed(message(QUESTION))),
        (CHAT, with(chat(QUESTION), "max_completion_tokens", 64)),
        (CHAT, streamed(chat(QUESTION))),
    ] {
        for _ in 0..2 {
            let (cache, response) = ask(&gateway, path, &body, &[]);
            assert_eq!((&*cache, text_of(&response)), ("hit", text.clone()), "{path} {body}");
        }
    }
    let (_, stream) = ask(&gateway, MESSAGES, &streamed(message(QUESTION)), &[]);
    let pieces = stream.events().iter().filter_map(sse::delta).count();
    assert!(pieces > 3, "{pieces} pieces: cut as the model made it");
    let metrics = Metrics::of(gateway.address());
    assert_eq!(metrics.sum("zerohop_cache_entries", &[]), 1.0);
    assert!(metrics.sum("zerohop_cache_requests_total", &["result=\"hit\""]) >= 8.0);
}

#[test]
fn the_spelling_of_a_request_does_not_matter() {
    let gateway = Gateway::start(&keeping());
    ask_until_kept(&gateway, MESSAGES, &message(QUESTION), &[]);
    let other = r#"{ "messages" : [ {"content":"What is the capital of Fr\u0061nce?", "role":"user"} ], "temperature":0.0,
        "metadata": {"user_id": "u"}, "max_tokens": 64, "model": "tiny" }"#;
    let response = http::exchange(gateway.address(), &http::post_bytes(MESSAGES, other.as_bytes()));
    assert_eq!(response.header("x-cache"), Some("hit"));
}

#[test]
fn what_differs_or_is_drawn_is_made_anew() {
    let gateway = Gateway::start(&keeping());
    ask_until_kept(&gateway, MESSAGES, &message(QUESTION), &[]);
    let base = || message(QUESTION);
    let others = [
        ("miss", with(base(), "system", "Be kind.")),
        ("miss", with(base(), "max_tokens", 63)),
        ("miss", with(base(), "top_k", 3)),
        ("miss", with(base(), "stop_sequences", json!(["x"]))),
        ("miss", with(base(), "nobody_knows_this", json!({"a": 1}))),
        ("miss", message("What is the capital of France? ")),
        ("bypass", with(base(), "temperature", 1)),
    ];
    for (expected, body) in others {
        assert_eq!(told(&gateway, MESSAGES, &body, &[]), expected, "{body}");
    }
    let two = with(chat(QUESTION), "n", 2);
    assert_eq!(told(&gateway, CHAT, &two, &[]), "bypass");
    // A limit ended it: another time there may be more. It is never kept, however often it is asked for.
    let cut = with(base(), "max_tokens", 3);
    for _ in 0..3 {
        assert_eq!(told(&gateway, MESSAGES, &cut, &[]), "miss");
    }
}

#[test]
fn clients_can_make_it_stricter() {
    let gateway = Gateway::start(&keeping());
    let body = message(QUESTION);
    let only = [("cache-control", "only-if-cached")];
    for (path, body) in [(MESSAGES, body.clone()), (CHAT, chat(QUESTION))] {
        let (_, refused) = ask(&gateway, path, &body, &only);
        assert_eq!(refused.status, 504, "{}", refused.text());
    }
    for _ in 0..2 {
        assert_eq!(
            told(&gateway, MESSAGES, &body, &[("cache-control", "no-store")]),
            "miss"
        );
    }
    let first = ask_until_kept(&gateway, MESSAGES, &body, &[]);
    assert_eq!(told(&gateway, MESSAGES, &body, &only), "hit");
    assert_eq!(
        told(&gateway, MESSAGES, &body, &[("cache-control", "max-age=0")]),
        "bypass"
    );
    assert_eq!(
        told(&gateway, MESSAGES, &body, &[("cache-control", "MAX-AGE=1000, x")]),
        "hit"
    );
    let (cache, anew) = ask(&gateway, MESSAGES, &body, &[("cache-control", "No-Cache")]);
    assert_eq!(cache, "bypass");
    assert_ne!(anew.json()["id"], first.json()["id"]);
    // What was made anew took the old one's place.
    wait_for("the new answer to be kept", || {
        let (_, now) = ask(&gateway, MESSAGES, &body, &[]);
        (now.json()["id"] == anew.json()["id"]).then_some(())
    });
}

#[test]
fn tenants_never_share_unless_told_to() {
    let tenants = json!([{"name": "one", "keys_env": "KEYS_ONE"}, {"name": "two", "keys_env": "KEYS_TWO"}]);
    let settings = keeping()
        .with("/tenants", tenants)
        .environment(
            "KEYS_ONE",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        )
        .environment("KEYS_TWO", "cccccccccccccccccccccccccccccccc");
    let keys = [
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "cccccccccccccccccccccccccccccccc",
    ];
    for (scope, shared) in [
        ("key", ["hit", "miss", "miss"]),
        ("tenant", ["hit", "hit", "miss"]),
        ("public", ["hit", "hit", "hit"]),
    ] {
        let gateway = Gateway::start(&settings.clone().with("/cache/scope", scope));
        let body = message(QUESTION);
        ask_until_kept(&gateway, MESSAGES, &body, &[("x-api-key", keys[0])]);
        let seen = keys.map(|key| told(&gateway, MESSAGES, &body, &[("x-api-key", key)]));
        assert_eq!(seen, shared, "{scope}");
    }
}

/// Once a request that was known by its bytes was answered for whoever shared the name space, also without the right to the model.
#[test]
fn a_shared_answer_opens_no_model() {
    let tenants = json!([
        {"name": "one", "keys_env": "KEYS_ONE"},
        {"name": "two", "keys_env": "KEYS_TWO", "models": ["other"]},
    ]);
    let mut settings = keeping().with("/cache/scope", "public").with("/tenants", tenants);
    settings = settings
        .with("/models/0/aliases", json!(["tiny-too"]))
        .with_encoder()
        .with("/models/1/id", "other")
        .environment("KEYS_ONE", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
        .environment("KEYS_TWO", "cccccccccccccccccccccccccccccccc");
    let gateway = Gateway::start(&settings);
    let body = message(QUESTION);
    ask_until_kept(
        &gateway,
        MESSAGES,
        &body,
        &[("x-api-key", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")],
    );
    for _ in 0..3 {
        assert_eq!(
            told(
                &gateway,
                MESSAGES,
                &body,
                &[("x-api-key", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")]
            ),
            "hit"
        );
        let (cache, refused) = ask(
            &gateway,
            MESSAGES,
            &body,
            &[("x-api-key", "cccccccccccccccccccccccccccccccc")],
        );
        assert_eq!((&*cache, refused.status), ("nothing", 403), "{}", refused.text());
    }
}

#[test]
fn another_hash_version_begins_anew_and_the_old_one_finds_its_entries() {
    let gateway = Gateway::start(&keeping());
    let body = message(QUESTION);
    let first = ask_until_kept(&gateway, MESSAGES, &body, &[]);
    for (reloads, version, ids_equal) in [(1, 2, false), (2, 1, true)] {
        gateway.rewrite(&keeping().with("/cache/context_hash_version", version));
        reload(&gateway, reloads);
        let kept = ask_until_kept(&gateway, MESSAGES, &body, &[]);
        assert_eq!(kept.json()["id"] == first.json()["id"], ids_equal, "version {version}");
    }
}

#[test]
fn other_rules_begin_anew_and_the_old_ones_find_their_answers() {
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    let rules = |most: u32| {
        let text = format!("rules: [{{trigger: \"age:\", tokens: [\"0-{most}\"]}}]\n");
        scratch
            .write("rules.yaml", text)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let path = rules(120).display().to_string();
    let gateway = Gateway::start(&keeping().with("/safety/constraints", json!({"enabled": true, "rules_path": path})));
    let body = message(QUESTION);
    let first = ask_until_kept(&gateway, MESSAGES, &body, &[]);
    for (reloads, most, expected) in [(1, 9, "miss"), (2, 120, "hit")] {
        rules(most);
        reload(&gateway, reloads);
        let (cache, answer) = ask(&gateway, MESSAGES, &body, &[]);
        assert_eq!(cache, expected, "0 to {most}");
        assert_eq!(answer.json()["id"] == first.json()["id"], expected == "hit");
    }
}

/// Once a worker that knew requests by their bytes kept their model, whatever a reload said.
#[test]
fn a_model_that_is_removed_is_let_go() {
    let model = |id: &str| json!({"id": id, "backend": {"onnx": {"path": root().join("models/tiny"), "threads": 1}}});
    let settings = |models: Value| keeping().with("/models", models);
    let gateway = Gateway::start(&settings(json!([model("tiny"), model("other")])));
    let body = with(message(QUESTION), "model", "other");
    ask_until_kept(&gateway, MESSAGES, &body, &[]);
    assert_eq!(told(&gateway, MESSAGES, &body, &[]), "hit");
    let threads = || Metrics::of(gateway.address()).max("process_threads", &[]);
    let with_both = threads();
    gateway.rewrite(&settings(json!([model("tiny")])));
    reload(&gateway, 1);
    wait_for("the engine to end", || (threads() < with_both).then_some(()));
}

#[test]
fn the_bound_holds() {
    let gateway = Gateway::start(&keeping().with("/cache/size_mb", 1).with("/cache/policy", "all"));
    for number in 0..40 {
        let body = with(message(&format!("{QUESTION} {number}")), "system", "x".repeat(100));
        assert_eq!(told(&gateway, MESSAGES, &body, &[]), "miss");
    }
    let metrics = Metrics::of(gateway.address());
    let bytes = metrics.sum("zerohop_cache_bytes", &[]);
    assert!(bytes > 0.0 && bytes <= f64::from(1 << 20), "{bytes}");
}

#[test]
fn a_cache_that_is_off_tells_nothing() {
    let gateway = Gateway::start(&Settings::default());
    for _ in 0..2 {
        assert_eq!(told(&gateway, MESSAGES, &message(QUESTION), &[]), "nothing");
    }
    assert!(!Metrics::of(gateway.address()).has("zerohop_cache_entries"));
}
