//! Identical requests that come at the same time: one generation, and everyone has its answer.
//!
//! Invariant: what must be at the same time is made so by an engine that is busy with others until all have come, never by
//! how fast a client is.

use std::fs;

use serde_json::Value;
use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::Client,
    metrics::Metrics,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, answer, chat, message, text_of, with};

const QUESTION: &str = "What is the capital of France?";
/// Requests that come together.
const CROWD: usize = 1000;
/// Requests that keep the engine busy meanwhile: some seconds each.
const OCCUPANTS: usize = 8;

/// Two cores that this process may use, or the one that there is.
fn cores() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = list.unwrap_or("0").trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().take(2).collect()
}

/// Two workers, and an engine with one place.
fn settings() -> Settings {
    Settings::default()
        .with("/cache/type", "memory")
        .with("/server/workers", cores())
        .with("/models/0/backend/onnx/max_batch", 1)
}

fn post(path: &str, body: &Value, head: &str) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{head}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Asks on a new connection, and does not wait.
fn ask(gateway: &Gateway, path: &str, body: &Value, head: &str) -> Client {
    let mut client = Client::connect(gateway.address());
    client.send(post(path, body, head));
    client
}

/// Clients whose answers, which no other request shares, keep the engine busy until they are dropped.
fn occupants(gateway: &Gateway) -> Vec<Client> {
    let body = with(with(chat("Tell me everything."), "ignore_eos", true), "temperature", 2);
    let body = with(with(body, "max_completion_tokens", 1500), "stream", true);
    let all = (0..OCCUPANTS).map(|_| ask(gateway, CHAT, &body, "")).collect();
    wait_for_requests(gateway, OCCUPANTS);
    all
}

/// Waits until so many requests have been read and handed on.
fn wait_for_requests(gateway: &Gateway, count: usize) {
    wait_for(&format!("{count} requests"), || {
        let read = Metrics::of(gateway.address()).sum("zerohop_cache_requests_total", &[]);
        (read >= count as f64).then_some(())
    });
}

fn parts(gateway: &Gateway, part: &str) -> f64 {
    let label = format!("part=\"{part}\"");
    Metrics::of(gateway.address()).sum("zerohop_flight_requests_total", &[&label])
}

fn wait_for_parts(gateway: &Gateway, part: &str, count: usize) {
    wait_for(&format!("{count} of {part}"), || {
        (parts(gateway, part) >= count as f64).then_some(())
    });
}

/// Answers that the engine has ended well, and tokens of prompts that it has taken, computed or from its own cache.
fn engine(gateway: &Gateway) -> (f64, f64) {
    let metrics = Metrics::of(gateway.address());
    let sum = |name| metrics.sum(name, &[]);
    let prompts = sum("zerohop_engine_prefill_tokens_total") + sum("zerohop_engine_cached_tokens_total");
    let ended = metrics.sum("vllm:request_success_total", &["finished_reason=\"stop\""]);
    (ended, prompts)
}

/// The four forms of one question.
fn forms() -> [(&'static str, Value); 4] {
    let openai = with(chat(QUESTION), "max_completion_tokens", 64);
    [
        (MESSAGES, message(QUESTION)),
        (MESSAGES, with(message(QUESTION), "stream", true)),
        (CHAT, openai.clone()),
        (CHAT, with(openai, "stream", true)),
    ]
}

#[test]
fn a_thousand_identical_requests_make_one_generation() {
    let gateway = Gateway::start(&settings());
    let busy = occupants(&gateway);
    let mut crowd: Vec<_> = (0..CROWD)
        .map(|number| {
            let (path, body) = &forms()[number % 4];
            ask(&gateway, path, body, "")
        })
        .collect();
    wait_for_parts(&gateway, "follower", CROWD - 1);
    assert_eq!(parts(&gateway, "leader"), 1.0);
    drop(busy);
    let mut words = Vec::new();
    let mut told = 0;
    let mut usage = 0.0;
    for client in &mut crowd {
        let response = client.response();
        told += usize::from(response.header("x-cache") == Some("join"));
        if response.body.starts_with(b"{\"id\":\"msg_") {
            usage = response.json()["usage"]["input_tokens"].as_f64().unwrap_or_default();
        }
        words.push(text_of(&response));
    }
    assert_eq!(told, CROWD - 1);
    assert!(words[0].contains("Paris") && words.iter().all(|text| *text == words[0]));
    let (ended, prompts) = engine(&gateway);
    assert_eq!(ended, 1.0, "one generation for {CROWD}");
    // The prefix cache would tell of a second one: the next answer to the same prompt does.
    let again = ask(&gateway, MESSAGES, &message(QUESTION), "cache-control: no-cache\r\n").response();
    assert_eq!(text_of(&again), words[0]);
    assert_eq!(engine(&gateway), (2.0, prompts + usage));
    // It is kept once, and found by all from now on.
    let metrics = Metrics::of(gateway.address());
    assert_eq!(metrics.sum("zerohop_cache_entries", &[]), 1.0);
    assert_eq!(metrics.sum("zerohop_flights_open", &[]), 0.0);
    assert_eq!(metrics.sum("zerohop_requests_in_flight", &[]), 1.0, "this scrape alone");
    // On one worker alone they would have been that worker's affair.
    let used = metrics
        .samples()
        .iter()
        .filter(|sample| sample.name == "zerohop_connections_accepted_total" && sample.value > 10.0);
    assert_eq!(used.count(), cores().len(), "every worker had some of them");
}

#[test]
fn the_first_client_leaves_and_the_others_have_their_answer() {
    let gateway = Gateway::start(&settings());
    let busy = occupants(&gateway);
    let first = ask(&gateway, MESSAGES, &with(message(QUESTION), "stream", true), "");
    wait_for_parts(&gateway, "leader", 1);
    let mut others: Vec<_> = forms()
        .iter()
        .cycle()
        .take(16)
        .map(|(path, body)| ask(&gateway, path, body, ""))
        .collect();
    wait_for_parts(&gateway, "follower", others.len());
    drop(first);
    wait_for("the leader to be gone", || {
        let metrics = Metrics::of(gateway.address());
        (metrics.sum("zerohop_flight_orphans_total", &[]) == 1.0).then_some(())
    });
    drop(busy);
    for client in &mut others {
        assert!(text_of(&client.response()).contains("Paris"));
    }
    assert_eq!(engine(&gateway).0, 1.0);
    assert_eq!(
        answer(gateway.address(), CHAT, &chat(QUESTION)),
        answer(gateway.address(), MESSAGES, &message(QUESTION))
    );
}

#[test]
fn when_all_have_left_nothing_is_computed() {
    let gateway = Gateway::start(&settings());
    let busy = occupants(&gateway);
    let all: Vec<_> = forms()
        .iter()
        .map(|(path, body)| ask(&gateway, path, body, ""))
        .collect();
    wait_for_parts(&gateway, "follower", all.len() - 1);
    drop(all);
    // The engine must not be free before the gateway has seen them leave.
    wait_for("the flight to be given up", || {
        let open = Metrics::of(gateway.address()).sum("zerohop_flights_open", &[]);
        (open == 0.0).then_some(())
    });
    drop(busy);
    wait_for("the engine to be idle", || {
        let metrics = Metrics::of(gateway.address());
        let sum = |name| metrics.sum(name, &[]);
        let jobs = sum("zerohop_engine_running") + sum("zerohop_engine_waiting");
        (jobs + sum("zerohop_flights_open") == 0.0).then_some(())
    });
    assert_eq!(engine(&gateway).0, 0.0);
}

#[test]
fn who_may_not_share_is_answered_alone() {
    let off = settings().with("/cache/single_flight", false);
    let policy = settings().with("/cache/policy", "off");
    for (settings, head) in [
        (off, ""),
        (policy, ""),
        (settings(), "cache-control: no-store\r\n"),
        (settings(), "cache-control: no-cache\r\n"),
    ] {
        let gateway = Gateway::start(&settings);
        let busy = occupants(&gateway);
        let mut first = ask(&gateway, MESSAGES, &message(QUESTION), "");
        wait_for_requests(&gateway, OCCUPANTS + 1);
        let mut second = ask(&gateway, CHAT, &chat(QUESTION), head);
        wait_for_requests(&gateway, OCCUPANTS + 2);
        assert_eq!(parts(&gateway, "follower"), 0.0);
        drop(busy);
        assert_eq!(text_of(&first.response()), text_of(&second.response()));
        assert_eq!(engine(&gateway).0, 2.0, "{head}");
    }
}

#[test]
fn no_request_is_left_when_the_gateway_drains() {
    let mut gateway = Gateway::start(&settings());
    let busy = occupants(&gateway);
    let first = ask(&gateway, CHAT, &with(chat(QUESTION), "stream", true), "");
    wait_for_parts(&gateway, "leader", 1);
    let mut others: Vec<_> = forms()
        .iter()
        .cycle()
        .take(16)
        .map(|(path, body)| ask(&gateway, path, body, ""))
        .collect();
    wait_for_parts(&gateway, "follower", others.len());
    drop(first);
    gateway.signal(rustix::process::Signal::TERM);
    drop(busy);
    for client in &mut others {
        assert!(text_of(&client.response()).contains("Paris"));
    }
    assert!(gateway.ended().success());
}
