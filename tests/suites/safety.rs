//! Safety rules in a running gateway, and the commands that show them.
//!
//! Invariant: the file of rules is the operator's, and stands beside this one.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use zerohop_tests::{
    gateway::{Gateway, Settings, binary, root, to_its_end},
    golden, http,
    metrics::Metrics,
    scratch::Scratch,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, answer, chat, message, with};

const RULES: &str = include_str!("safety_rules.yaml");

fn rules(scratch: &Scratch, text: &str) -> String {
    let path = scratch
        .write("rules.yaml", text)
        .unwrap_or_else(|error| panic!("{error}"));
    path.display().to_string()
}

fn settings(path: &str) -> Settings {
    Settings::default().with("/safety/constraints", json!({"enabled": true, "rules_path": path}))
}

/// The number behind an optional blank, and what follows it.
fn number(text: &str) -> (Option<u64>, &str) {
    let text = text.strip_prefix(' ').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

#[test]
fn rules_hold_in_both_dialects_and_are_counted() {
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    let gateway = Gateway::start(&settings(&rules(&scratch, RULES)));
    let address = gateway.address();
    let sampled = |body: Value, seed: u64| with(with(body, "temperature", 1.0), "seed", seed);
    for seed in 0..8 {
        let age = answer(address, CHAT, &sampled(chat("The patient age:"), seed));
        assert!(number(&age).0.is_some_and(|age| age <= 120), "{age:?}");
        let phone = answer(address, CHAT, &sampled(chat("My phone number:"), seed));
        // 16 tokens, of which one may be a blank; this model has a token for each digit.
        let bound: String = phone.trim_start_matches(' ').chars().take(15).collect();
        assert!(
            !bound.is_empty() && bound.bytes().all(|byte| byte.is_ascii_digit()),
            "{phone:?}"
        );
    }
    // A trigger in the answer itself, half of it in the message that is continued.
    let mut continued = message("Say it.");
    continued["messages"] = json!([
        {"role": "user", "content": "Say it."},
        {"role": "assistant", "content": "The patient age:"},
    ]);
    let age = answer(address, MESSAGES, &continued);
    assert!(number(&age).0.is_some_and(|age| age <= 120), "{age:?}");
    // Streams as well.
    let age = answer(address, CHAT, &with(chat("The patient age:"), "stream", true));
    assert!(number(&age).0.is_some_and(|age| age <= 120), "{age:?}");
    // Ids of control tokens: no text, but the answer ends or goes on as ever.
    let ids = http::post(address, CHAT, &chat("raw ids:"));
    assert_eq!(ids.status, 200, "{}", ids.text());
    let free = answer(address, CHAT, &chat("What is the capital of France?"));
    assert!(free.contains("Paris"), "{free:?}");
    let metrics = Metrics::of(address);
    let fired = |rule: &str| metrics.sum("zerohop_safety_rule_fired_total", &[rule, "model=\"tiny\""]);
    assert_eq!(
        [
            fired("rule=\"rule-1\""),
            fired("rule=\"rule-2\""),
            fired("rule=\"rule-3\"")
        ],
        [10.0, 8.0, 1.0]
    );
    assert_eq!(
        metrics.sum("safety_rejections_total", &[]).total_cmp(&0.0),
        std::cmp::Ordering::Equal
    );
    assert!(metrics.sum("zerohop_masked_tokens_total", &[]) >= 19.0);
}

#[test]
fn a_reload_brings_new_rules_and_keeps_the_old_ones_if_they_are_bad() {
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    let settings = settings(&rules(&scratch, RULES));
    let gateway = Gateway::start(&settings);
    let ask = || answer(gateway.address(), CHAT, &chat("patient age:"));
    assert!(number(&ask()).0.is_some());
    rules(&scratch, "rules:\n  - {trigger: \"patient age:\", choice: [secret]}\n");
    gateway.signal(Signal::HUP);
    wait_for("the new rule", || {
        ask().trim_start().starts_with("secret").then_some(())
    });
    rules(&scratch, "rules:\n  - {trigger: \"patient age:\", tokens: [999999]}\n");
    gateway.signal(Signal::HUP);
    let line = wait_for("the log to tell", || {
        gateway
            .log()
            .lines()
            .find(|line| line.contains("rules.yaml:2:5"))
            .map(String::from)
    });
    assert!(line.contains("none of these ids is a token of this model"), "{line}");
    assert!(ask().trim_start().starts_with("secret"), "the old rules stay");
    gateway.rewrite(&Settings::default());
    gateway.signal(Signal::HUP);
    wait_for("the rules to be gone", || (!ask().contains("secret")).then_some(()));
}

#[test]
fn a_bad_file_of_rules_is_refused_at_the_start() {
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    for (text, told) in [
        (
            "rules:\n  - trigger: \"a\"\n    tokens: [\"9-1\"]\n",
            "rules.yaml:3:14: rules[0].tokens[0]: \"9-1\" is no range",
        ),
        (
            "rules:\n  - {trigger: \"a\", tokens: [999999]}\n",
            "rules.yaml:2:5: model tiny: rule 1: none of these ids",
        ),
        (
            "rules:\n  - {trigger: \"a\", regex: \"(\"}\n",
            "rules.yaml:2:5: model tiny: rule 1: ",
        ),
    ] {
        let config = settings(&rules(&scratch, text)).with("/server/listen", json!(["127.0.0.1:0"]));
        let config = scratch
            .write("zerohop.yaml", config.text())
            .unwrap_or_else(|error| panic!("{error}"));
        let ended = to_its_end(Command::new(binary()).args(["serve", "--config"]).arg(&config));
        assert_eq!(ended.status.code(), Some(2), "{text}: {ended:?}");
        assert!(ended.errors.contains(told), "{text}: {ended:?}");
    }
}

#[test]
fn the_commands_show_what_rules_mean() {
    let strange = "rules:\n\
        \x20 - {name: age, trigger: \"age:\", tokens: [\"0-120\", \"unknown\"]}\n\
        \x20 - {name: late, trigger: \"my age:\", choice: [old]}\n\
        \x20 - {name: any, trigger: \"any:\", regex: \"(?s:.)+\"}\n\
        \x20 - {name: ids, trigger: \"ids:\", tokens: [2, 17, 99999]}\n\
        \x20 - {name: run, trigger: \"run:\", tokens: [digits]}\n";
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    let run = |rules: &str, arguments: &[&str]| {
        let mut command = Command::new(binary());
        command
            .current_dir(root())
            .args(["safety"])
            .args(arguments)
            .args(["--rules", rules]);
        let ended = to_its_end(&mut command);
        let shown = format!("{}{}", ended.output, ended.errors);
        let (scratch, shown) = (scratch.path().display().to_string(), shown);
        let shown = shown.replace(&format!("{scratch}/"), "");
        format!(
            "$ zerohop safety {}\n{shown}exit code {}\n\n",
            arguments.join(" "),
            ended.status.code().unwrap_or(-1)
        )
    };
    let file = "tests/suites/safety_rules.yaml";
    let strange = rules(&scratch, strange);
    let mut shown = String::new();
    for arguments in [
        &["check", "--prompt", "The patient age:"][..],
        &["check", "--prompt", "The patient"],
        &["token-map"],
    ] {
        shown += &run(file, arguments);
    }
    for arguments in [
        &["check", "--model", "tiny", "--prompt", "my age:"][..],
        &["token-map", "--rule", "ids"],
        &["token-map", "--rule", "5"],
        &["token-map", "--rule", "none"],
    ] {
        shown += &run(&strange, arguments);
    }
    golden::check("safety-commands", &shown);
}
