//! The control socket of a running gateway, and the commands that ask it.
//!
//! Invariant: commands are run as a user runs them, and what they changed is seen over HTTP.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use zerohop_tests::{
    gateway::{Ended, Gateway, Settings, binary, to_its_end},
    http::{self, Response},
    metrics::Metrics,
    scratch::Scratch,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, chat, message, text_of, with};

fn keeping() -> Settings {
    Settings::default()
        .with("/cache/type", "memory")
        .with("/cache/policy", "all")
}

/// Runs `zerohop cache …` against this gateway.
fn cache(gateway: &Gateway, arguments: &[&str]) -> Ended {
    let mut command = Command::new(binary());
    command
        .arg("cache")
        .args(arguments)
        .arg("--socket")
        .arg(gateway.control());
    to_its_end(&mut command)
}

/// The same, which has to succeed; what it prints.
fn done(gateway: &Gateway, arguments: &[&str]) -> String {
    let ended = cache(gateway, arguments);
    assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    ended.output
}

fn stat(gateway: &Gateway) -> Value {
    let text = done(gateway, &["stat", "--json"]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn dump(gateway: &Gateway, arguments: &[&str]) -> Vec<Value> {
    let text = done(gateway, &[&["dump"], arguments].concat());
    let entry = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(entry).collect()
}

fn ask(gateway: &Gateway, path: &str, body: &Value, key: Option<&str>) -> (String, Response) {
    let body = body.to_string();
    let key = key.map_or(String::new(), |key| format!("x-api-key: {key}\r\n"));
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n{key}content-length: {}\r\n",
        body.len()
    );
    let request = format!("{head}connection: close\r\n\r\n{body}");
    let response = http::exchange(gateway.address(), request.as_bytes());
    (response.header("x-cache").unwrap_or("nothing").to_owned(), response)
}

/// Asks until the answer is kept.
fn keep(gateway: &Gateway, body: &Value, key: Option<&str>) {
    wait_for("an answer to be kept", || {
        (ask(gateway, MESSAGES, body, key).0 == "hit").then_some(())
    });
}

fn scratch() -> Scratch {
    Scratch::new().unwrap_or_else(|error| panic!("{error}"))
}

fn write(scratch: &Scratch, name: &str, lines: &[String]) -> PathBuf {
    let text = lines.join("\n");
    scratch
        .write(name, text)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap_or_else(|| panic!("{} is no text", path.display()))
}

#[test]
fn entries_are_listed_pinned_and_removed() {
    let gateway = Gateway::start(&keeping().with("/models/0/aliases", json!(["other-name"])));
    let questions = ["What is the capital of France?", "Hello!", "What is two plus three?"];
    for question in questions {
        keep(&gateway, &message(question), None);
    }
    let text = done(&gateway, &["stat"]);
    assert!(text.contains("entries    3, pinned 0, policy all"), "{text}");
    let told = stat(&gateway);
    assert_eq!(
        (&told["entries"], &told["models"][0]["entries"]),
        (&json!(3), &json!(3))
    );
    assert!(told["requests"]["hit"].as_u64() >= Some(3), "{told}");
    let entries = dump(&gateway, &[]);
    assert_eq!(entries.len(), 3);
    assert!(
        entries
            .iter()
            .all(|entry| entry["model"] == "tiny" && entry["body"]["v"] == 1),
        "{entries:?}"
    );
    assert!(
        dump(&gateway, &["--no-body", "--model", "tiny"])
            .iter()
            .all(|entry| entry.get("body").is_none())
    );

    // The map and its table tell of the same buckets.
    let map = done(&gateway, &["heat"]);
    assert!(map.starts_with("tiny: entries 3, buckets"), "{map}");
    assert!(
        map.lines().all(|line| line.chars().count() <= 100) && !map.contains('\x1b'),
        "{map}"
    );
    let csv = done(&gateway, &["heat", "--csv"]);
    let counted: u64 = csv
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').nth(2)?.parse::<u64>().ok())
        .sum();
    assert_eq!(
        (csv.lines().next(), counted),
        (Some("model,bucket,entries,bytes,pinned,heat,hottest"), 3)
    );

    // By how a conversation begins, told by a request in the other API.
    let scratch = scratch();
    let like = write(&scratch, "like.json", &[chat(questions[0]).to_string()]);
    assert_eq!(
        done(&gateway, &["pin", "--prefix-of", shown(&like)]),
        "pinned 1; 1 are pinned\n"
    );
    let pinned: Vec<_> = dump(&gateway, &[])
        .into_iter()
        .filter(|entry| entry["pinned"] == true)
        .collect();
    assert_eq!(pinned.len(), 1);
    let text = |name: &str| pinned[0][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(dump(&gateway, &["--prefix", &text("prefix")]).len(), 1);
    assert_eq!(
        done(&gateway, &["unpin", "--key", &text("key")]),
        "let go 1; 0 are pinned\n"
    );
    assert_eq!(done(&gateway, &["purge", "--key", &text("key")]), "removed 1\n");
    assert_eq!(
        ask(&gateway, MESSAGES, &message(questions[0]), None).0,
        "miss",
        "it is gone"
    );
    assert_eq!(
        ask(&gateway, MESSAGES, &message(questions[1]), None).0,
        "hit",
        "this one is not"
    );

    let refused = cache(&gateway, &["purge", "--all"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let refused = cache(&gateway, &["purge", "--model", "other-name"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.errors.contains("there are those of tiny"), "{refused:?}");
    wait_for("the answer to be kept again", || {
        (stat(&gateway)["entries"] == 3).then_some(())
    });
    assert_eq!(done(&gateway, &["purge", "--all", "--yes"]), "removed 3\n");
    assert_eq!(stat(&gateway)["entries"], 0);
    assert_eq!(done(&gateway, &["heat"]), "no entries\n");
    let metrics = Metrics::of(gateway.address());
    let purges = |result: &str| metrics.sum("zerohop_control_requests_total", &["command=\"cache.purge\"", result]);
    assert_eq!((purges("result=\"ok\""), purges("result=\"error\"")), (2.0, 1.0));
    let log = gateway.log();
    assert!(log.contains("control: cache.purge: removed 3"), "{log}");
}

#[test]
fn a_tenants_entries_are_its_own() {
    let tenants = json!([{"name": "one", "keys_env": "KEYS_ONE"}, {"name": "two", "keys_env": "KEYS_TWO"}]);
    let keys = ["a".repeat(32), "b".repeat(32), "c".repeat(32)];
    let settings = keeping()
        .with("/tenants", tenants)
        .environment("KEYS_ONE", &format!("{},{}", keys[0], keys[1]))
        .environment("KEYS_TWO", &keys[2]);
    for (scope, removed) in [("tenant", 1), ("key", 2)] {
        let gateway = Gateway::start(&settings.clone().with("/cache/scope", scope));
        for key in &keys {
            keep(&gateway, &message("Hello!"), Some(key));
        }
        let of_two = dump(&gateway, &["--tenant", "two"]);
        assert_eq!(of_two.len(), 1, "{scope}");
        assert_eq!(of_two[0]["tenant"], "two");
        assert_eq!(
            done(&gateway, &["purge", "--tenant", "one"]),
            format!("removed {removed}\n"),
            "{scope}"
        );
        assert_eq!(ask(&gateway, MESSAGES, &message("Hello!"), Some(&keys[2])).0, "hit");
        let space = of_two[0]["space"].as_str().unwrap_or_default();
        assert_eq!(done(&gateway, &["purge", "--space", space]), "removed 1\n");
        let refused = cache(&gateway, &["purge", "--tenant", "three"]);
        assert!(refused.errors.contains("there are one, two"), "{refused:?}");
    }
    let gateway = Gateway::start(&settings.with("/cache/scope", "public"));
    let refused = cache(&gateway, &["purge", "--tenant", "one"]);
    assert!(refused.errors.contains("cache.scope is public"), "{refused:?}");
}

/// A recorded answer of the Anthropic API.
fn recorded_message(text: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "big",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 11, "output_tokens": 4},
    })
}

/// The same of the OpenAI API.
fn recorded_chat(text: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "big",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15},
    })
}

#[test]
fn imported_pairs_are_given_in_both_apis() {
    let gateway = Gateway::start(&keeping());
    let scratch = scratch();
    let texts = ["It said: \"no\".\n", "Ünïcode 🎈 \u{1}"];
    let pairs = [
        json!({"request": message("one"), "response": recorded_message(texts[0])}).to_string(),
        String::new(),
        json!({"request": chat("two"), "response": recorded_chat(texts[1]), "made_ms": 700}).to_string(),
        // A request of one API and a response of the other.
        json!({"path": MESSAGES, "request": message("three"), "response": recorded_chat("3")}).to_string(),
    ];
    let file = write(&scratch, "pairs.jsonl", &pairs);
    let told = done(&gateway, &["import", shown(&file)]);
    assert!(told.starts_with("pairs 3: stored 3, refused 0, bad lines 0;"), "{told}");
    for (question, text) in [("one", texts[0]), ("two", texts[1]), ("three", "3")] {
        let sized = with(chat(question), "max_completion_tokens", 64);
        // The second one was recorded without a limit of its own kind.
        let bodies = [(MESSAGES, message(question)), (CHAT, sized)];
        for (path, body) in bodies {
            for body in [body.clone(), with(body, "stream", true)] {
                let (cache, response) = ask(&gateway, path, &body, None);
                assert_eq!((&*cache, text_of(&response)), ("hit", text.to_owned()), "{path} {body}");
            }
        }
    }
    let (_, response) = ask(&gateway, MESSAGES, &message("one"), None);
    assert_eq!(response.json()["usage"]["output_tokens"], 4);
    let made: Vec<_> = dump(&gateway, &["--no-body"])
        .iter()
        .filter_map(|entry| entry["made_ms"].as_u64())
        .collect();
    assert_eq!(made.iter().sum::<u64>(), 700);
}

#[test]
fn pairs_that_no_live_request_could_be_given_are_refused_by_their_lines() {
    let gateway = Gateway::start(&keeping().with("/cache/policy", "deterministic").with_encoder());
    let scratch = scratch();
    let good = || recorded_message("a");
    let tool = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    let calls = json!({
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}], "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    let pair = |request: Value, response: Value| json!({"request": request, "response": response}).to_string();
    let table = [
        (pair(message("fine"), good()), ""),
        ("no JSON".into(), "no JSON"),
        ("[1]".into(), "no JSON object"),
        (json!({"request": {}}).to_string(), "missing field `response`"),
        (
            json!({"request": {}, "response": {}, "reply": 1}).to_string(),
            "unknown field `reply`",
        ),
        (pair(with(message("a"), "model", "nobody"), good()), "nobody"),
        (pair(with(message("a"), "model", "tiny-embed"), good()), "are not kept"),
        (pair(with(message("a"), "temperature", 7), good()), "temperature"),
        (pair(with(chat("a"), "n", 2), recorded_chat("a")), "several answers"),
        (
            pair(message("a"), json!({"error": {"message": "no"}})),
            "the response is an error",
        ),
        (
            pair(message("a"), with(good(), "stop_reason", "max_tokens")),
            "cut off by a limit",
        ),
        (pair(message("a"), calls.clone()), "no tool of the request"),
        (pair(with(message("a"), "tools", tool), calls), "cache.tools is false"),
        (
            pair(
                with(chat("a"), "response_format", json!({"type": "json_object"})),
                recorded_chat("not JSON"),
            ),
            "not the form",
        ),
        (
            json!({"path": "/v1/models", "request": message("a"), "response": good()}).to_string(),
            "give /v1/messages or",
        ),
        (
            json!({"tenant": "x", "request": message("a"), "response": good()}).to_string(),
            "no tenants",
        ),
        (pair(with(message("drawn"), "temperature", 1), good()), ""),
    ];
    let lines: Vec<String> = table.iter().map(|(line, _)| line.clone()).collect();
    let file = write(&scratch, "pairs.jsonl", &lines);
    let ended = cache(&gateway, &["import", shown(&file)]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(
        ended.output.starts_with("pairs 17: stored 2, refused 13, bad lines 2;"),
        "{}",
        ended.output
    );
    assert!(
        ended
            .output
            .contains("1 of the stored ones are not given under cache.policy deterministic"),
        "{}",
        ended.output
    );
    for (at, (line, part)) in table.iter().enumerate() {
        let place = format!("{}:{}: ", file.display(), at + 1);
        let told = ended.errors.lines().find_map(|line| line.strip_prefix(&place));
        assert_eq!(told.is_none(), part.is_empty(), "{line}: {}", ended.errors);
        assert!(told.unwrap_or_default().contains(part), "{line}: {told:?}");
    }
    let (cache, _) = ask(&gateway, MESSAGES, &message("fine"), None);
    assert_eq!(cache, "hit");
}

#[test]
fn an_import_is_for_the_tenant_that_is_named() {
    let tenants = json!([{"name": "one", "keys_env": "KEYS_ONE"}, {"name": "two", "keys_env": "KEYS_TWO"}]);
    let keys = ["a".repeat(32), "b".repeat(32)];
    let settings = keeping()
        .with("/tenants", tenants)
        .environment("KEYS_ONE", &keys[0])
        .environment("KEYS_TWO", &keys[1]);
    let gateway = Gateway::start(&settings);
    let scratch = scratch();
    let import = |question: &str, tenant: Option<&str>, arguments: &[&str]| {
        let mut pair = json!({"request": message(question), "response": recorded_message("told")});
        if let Some(tenant) = tenant {
            pair["tenant"] = tenant.into();
        }
        let file = write(&scratch, "pairs.jsonl", &[pair.to_string()]);
        let mut command = Command::new(binary());
        command.args(["cache", "import", shown(&file)]).args(arguments);
        to_its_end(command.env("KEY", &keys[1]).arg("--socket").arg(gateway.control()))
    };
    let nobody = import("q0", None, &[]);
    assert!(
        nobody.errors.contains("nobody is named whose answer it is"),
        "{nobody:?}"
    );
    let unknown = import("q0", Some("three"), &[]);
    assert!(unknown.errors.contains("there is no tenant"), "{unknown:?}");
    let no_key = import("q0", None, &["--key-env", "NO_SUCH_VARIABLE"]);
    assert_eq!(no_key.status.code(), Some(2), "{no_key:?}");
    for (question, tenant, arguments, expected) in [
        ("q1", Some("one"), &[][..], ["hit", "miss"]),
        ("q2", None, &["--tenant", "one"], ["hit", "miss"]),
        ("q3", None, &["--key-env", "KEY"], ["miss", "hit"]),
    ] {
        let ended = import(question, tenant, arguments);
        assert!(ended.status.success(), "{ended:?}");
        let seen = [0, 1].map(|key| ask(&gateway, MESSAGES, &message(question), Some(&keys[key])).0);
        assert_eq!(seen, expected, "{question}");
    }
}

#[test]
fn requests_of_a_file_warm_a_gateway_once() {
    let gateway = Gateway::start(&keeping());
    let scratch = scratch();
    let url = format!("http://{}", gateway.address());
    let mut lines: Vec<String> = ["one", "two", "three"]
        .map(|question| message(question).to_string())
        .into();
    lines.push(message("two").to_string());
    lines.push(json!({"path": CHAT, "body": with(chat("one"), "max_completion_tokens", 64)}).to_string());
    lines.push("{\"model\":".into());
    lines.push(with(message("four"), "model", "nobody").to_string());
    lines.push(with(message("Tell me everything."), "max_tokens", 1).to_string());
    lines.push(with(chat("five"), "n", 2).to_string());
    lines.push(with(message("six"), "stream", true).to_string());
    let file = write(&scratch, "requests.jsonl", &lines);
    let warm = |more: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["cache", "warm", shown(&file), "--url", &url, "--concurrency", "1"]);
        to_its_end(command.args(more))
    };
    let first = warm(&[]);
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let begins = |ended: &Ended, text: &str| assert!(ended.output.starts_with(text), "{text}: {ended:?}");
    begins(
        &first,
        "sent 8: kept 4, hits already 1, not kept 2, refused 1, failed 0;",
    );
    for part in [
        "not sent: twice in the file 1, done earlier 0, bad lines 1",
        "not kept 1: its limit of tokens cut the answer off",
        "not kept 1: the policy of the cache does not cover the request (x-cache: bypass)",
        "refused 1: 404: model: nobody",
    ] {
        assert!(first.output.contains(part), "{part}: {first:?}");
    }
    for place in [":6: no JSON object", ":7: 404"] {
        assert!(
            first.errors.contains(&format!("{}{place}", file.display())),
            "{place}: {first:?}"
        );
    }
    let again = warm(&[]);
    begins(&again, "sent 8: kept 0, hits already 5, not kept 2,");
    let resumed = warm(&["--resume"]);
    begins(&resumed, "sent 0: ");
    assert!(resumed.output.contains("done earlier 8"), "{resumed:?}");
    // What was not noted is sent again.
    let state = scratch.path().join("requests.jsonl.warmed");
    let noted = fs::read_to_string(&state).unwrap_or_else(|error| panic!("{error}"));
    let kept: Vec<&str> = noted.lines().filter(|line| !line.is_empty()).take(5).collect();
    write(&scratch, "requests.jsonl.warmed", &[kept.join("\n")]);
    begins(&warm(&["--resume"]), "sent 3: ");
}

#[test]
fn a_run_against_nobody_is_given_up() {
    let scratch = scratch();
    let lines: Vec<String> = (0..100)
        .map(|number| message(&format!("{number}")).to_string())
        .collect();
    let file = write(&scratch, "requests.jsonl", &lines);
    let run = |url: &str| to_its_end(Command::new(binary()).args(["cache", "warm", shown(&file), "--url", url]));
    // The discard port, on which nobody listens.
    let ended = run("http://127.0.0.1:9");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.errors.contains("gave up"), "{ended:?}");
    let ended = run("https://127.0.0.1:9");
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
}

#[test]
fn a_socket_is_found_by_the_configuration_and_outlives_a_killed_gateway() {
    let scratch = scratch();
    let socket = scratch.path().join("c.sock");
    let settings = keeping().with("/server/control_socket", shown(&socket));
    let config = scratch
        .write("zerohop.yaml", settings.text())
        .unwrap_or_else(|error| panic!("{error}"));
    let stat = || to_its_end(Command::new(binary()).args(["cache", "stat", "--config", shown(&config)]));
    let missing = stat();
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    let mut first = Gateway::start(&settings);
    assert!(stat().status.success());
    // Another one may not have it while that one lives.
    let mut second = Gateway::launch(&settings).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(second.ended().code(), Some(2));
    assert!(
        second.log().contains("another process listens there"),
        "{}",
        second.log()
    );
    assert!(stat().status.success(), "the first one still has it");
    first.signal(Signal::KILL);
    first.ended();
    assert!(socket.exists());
    assert_eq!(stat().status.code(), Some(2));
    let mut third = Gateway::start(&settings);
    assert!(stat().status.success());
    third.signal(Signal::TERM);
    assert!(third.ended().success());
    assert!(!socket.exists(), "a gateway that ends takes its socket with it");
}

#[test]
fn a_gateway_that_keeps_nothing_says_so() {
    let gateway = Gateway::start(&Settings::default());
    for arguments in [&["stat"][..], &["purge", "--all", "--yes"], &["heat"], &["dump"]] {
        let ended = cache(&gateway, arguments);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.errors.contains("cache.type is off"), "{ended:?}");
    }
}
