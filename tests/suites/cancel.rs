//! Clients that leave, and a queue that is full.
//!
//! Invariant: what is asserted is a count or a state, reached by its own deadline, never a speed.

use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::{self, Client},
    metrics::Metrics,
    wait::wait_for,
};

use crate::ask::{CHAT, answer, chat, ramble, with};

const RUNNING: &str = "zerohop_engine_running";
const WAITING: &str = "zerohop_engine_waiting";
const CANCELLED: &str = "zerohop_engine_cancelled_total";

/// One place and a long queue, so that most of the clients are still waiting when they leave.
fn narrow(queue: u32) -> Settings {
    Settings::default()
        .with("/models/0/backend/onnx/max_batch", 1)
        .with("/models/0/backend/onnx/queue", queue)
}

fn ask(seed: u64) -> Vec<u8> {
    http::post_bytes(CHAT, with(ramble(seed, 600), "stream", true).to_string().as_bytes())
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let gateway = Gateway::start(&narrow(64));
    let mut clients: Vec<Client> = (0..48).map(|_| Client::connect(gateway.address())).collect();
    clients
        .iter_mut()
        .zip(0..)
        .for_each(|(client, seed)| client.send(ask(seed)));
    // The first has begun: the others wait behind it.
    assert_eq!(clients[0].head().status, 200);
    drop(clients);
    wait_for("the engine to be idle", || {
        let metrics = Metrics::of(gateway.address());
        (metrics.has(RUNNING) && metrics.sum(RUNNING, &[]) + metrics.sum(WAITING, &[]) == 0.0).then_some(())
    });
    let cancelled = Metrics::of(gateway.address()).sum(CANCELLED, &[]);
    assert!(cancelled >= 1.0, "{cancelled} of 48 were cancelled");
    assert!(answer(gateway.address(), CHAT, &chat("What is the capital of France?")).contains("Paris"));
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let gateway = Gateway::start(&narrow(2));
    let mut clients: Vec<Client> = (0..32).map(|_| Client::connect(gateway.address())).collect();
    clients
        .iter_mut()
        .zip(0..)
        .for_each(|(client, seed)| client.send(ask(seed)));
    let (mut served, mut refused) = (0, 0);
    for client in &mut clients {
        let response = client.response();
        if response.status == 200 {
            served += 1;
            continue;
        }
        refused += 1;
        assert_eq!(response.status, 429, "{}", response.text());
        let seconds: f64 = number(response.header("retry-after"));
        let milliseconds: f64 = number(response.header("retry-after-ms"));
        assert!(
            milliseconds > 0.0 && seconds * 1000.0 >= milliseconds,
            "{}",
            response.head
        );
        assert_eq!(response.json()["error"]["type"], "rate_limit_error");
    }
    assert!(served >= 3 && refused >= 1, "{served} served, {refused} refused");
}

fn number(header: Option<&str>) -> f64 {
    header
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no number: {header:?}"))
}
