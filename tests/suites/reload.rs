//! SIGHUP: the configuration is read again, and replaces the old one only if it is good.
//!
//! Invariant: no connection is lost by it.

use rustix::process::Signal;
use serde_json::json;
use zerohop_tests::{
    gateway::{Gateway, Settings, root},
    http::{self, Client},
    metrics::Metrics,
    wait::wait_for,
};

use crate::ask::{CHAT, chat, text_of, with};

const CAPITAL: &str = "What is the capital of France?";

#[test]
fn a_good_file_is_in_force_at_once() {
    let settings = Settings::default();
    let gateway = Gateway::start(&settings);
    let mut client = Client::connect(gateway.address());
    let mut ask = |model: &str| {
        client.send(http::post_bytes(
            CHAT,
            with(chat(CAPITAL), "model", model).to_string().as_bytes(),
        ));
        client.response()
    };
    assert_eq!(ask("small").status, 404);
    gateway.rewrite(&settings.clone().with("/models/0/aliases", json!(["small"])));
    gateway.signal(Signal::HUP);
    let served = wait_for("the new name to be known", || {
        Some(ask("small")).filter(|response| response.status == 200)
    });
    assert!(text_of(&served).contains("Paris"));
    gateway.rewrite(&settings);
    gateway.signal(Signal::HUP);
    wait_for("the new name to be gone", || (ask("small").status == 404).then_some(()));
}

#[test]
fn a_bad_file_changes_nothing_and_is_told() {
    let settings = Settings::default().with("/models/0/aliases", json!(["small"]));
    let gateway = Gateway::start(&settings);
    for (bad, told) in [
        ("server: {lissten: []}\n", "lissten"),
        ("server: [\n", "YAML"),
        ("models: [{id: a, backend: {onnx: {path: nowhere}}}]\n", "nowhere"),
    ] {
        gateway.rewrite_raw(bad);
        let before = gateway.log().len();
        gateway.signal(Signal::HUP);
        let line = wait_for("the log to tell", || {
            gateway
                .log()
                .get(before..)?
                .lines()
                .find(|line| line.contains(told))
                .map(String::from)
        });
        assert!(line.contains("reload"), "{line}");
        let response = http::post(gateway.address(), CHAT, &with(chat(CAPITAL), "model", "small"));
        assert!(text_of(&response).contains("Paris"), "after {bad:?}");
    }
}

#[test]
fn the_log_level_can_change() {
    let settings = Settings::default().with("/logging/level", "error");
    let gateway = Gateway::start(&settings);
    let ask = || assert_eq!(http::post(gateway.address(), CHAT, &chat(CAPITAL)).status, 200);
    ask();
    assert!(
        !gateway.log().contains("chat_completions") && !gateway.log().contains(CHAT),
        "{}",
        gateway.log()
    );
    gateway.rewrite(&settings.with("/logging/level", "info"));
    gateway.signal(Signal::HUP);
    wait_for("requests to be logged", || {
        ask();
        (gateway.log().contains("chat_completions") || gateway.log().contains(CHAT)).then_some(())
    });
}

/// Once each reload kept one more hold on every engine, so that a model which a later one removed stayed in memory.
#[test]
fn a_model_that_is_removed_gives_its_threads_back() {
    let model = |id: &str| json!({"id": id, "backend": {"onnx": {"path": root().join("models/tiny"), "threads": 1}}});
    let one = Settings::default().with("/models", json!([model("tiny")]));
    let two = Settings::default().with("/models", json!([model("tiny"), model("second")]));
    let gateway = Gateway::start(&two);
    let threads = || Metrics::of(gateway.address()).max("process_threads", &[]);
    let with_both = threads();
    let reload = |settings: &Settings, times: usize| {
        gateway.rewrite(settings);
        gateway.signal(Signal::HUP);
        wait_for("the reload", || {
            (gateway.log().matches("reloaded in").count() == times).then_some(())
        });
    };
    reload(&two, 1);
    reload(&two, 2);
    assert_eq!(
        threads().total_cmp(&with_both),
        std::cmp::Ordering::Equal,
        "an unchanged model keeps its engine"
    );
    reload(&one, 3);
    wait_for("the engine to end", || (threads() < with_both).then_some(()));
}
