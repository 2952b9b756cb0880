//! Clients that do not read: they keep nobody else from their answers, and are cut off in the end.
//!
//! Invariant: such a client counts only once the buffers of the kernel are full, so that the gateway itself holds the rest.

use serde_json::Value;
use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::{self, Client},
    metrics::Metrics,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, answer, chat, message, ramble, text_of, with};

/// Streams that a slow client asks for at once: more than the kernel takes of them.
const STREAMS: usize = 96;

/// A client that has asked for more than its link takes, and reads nothing.
fn slow(gateway: &Gateway, ask: &Value) -> Client {
    let mut client = Client::connect_narrow(gateway.address());
    client.send(http::post_bytes(CHAT, ask.to_string().as_bytes()).repeat(STREAMS));
    client
}

/// A stream, as long as the model likes.
fn stream(seed: u64) -> Value {
    with(ramble(seed, 600), "stream", true)
}

/// Waits until no answer is being made: each is then in the kernel or in the gateway.
fn wait_until_idle(gateway: &Gateway) {
    wait_for("the engine to be idle", || {
        let metrics = Metrics::of(gateway.address());
        let sum = |name| metrics.sum(name, &[]);
        let idle = sum("zerohop_engine_running") + sum("zerohop_engine_waiting") == 0.0;
        (idle && sum("zerohop_engine_decode_tokens_total") > 0.0).then_some(())
    });
}

#[test]
fn a_slow_reader_holds_up_nobody() {
    let gateway = Gateway::start(&Settings::default());
    let mut slow: Vec<Client> = (0..8).map(|seed| slow(&gateway, &stream(seed))).collect();
    let ask_all = |when: &str| {
        for (path, body) in [
            (CHAT, chat("What is the capital of Japan?")),
            (MESSAGES, message("What is the capital of Japan?")),
        ] {
            assert!(answer(gateway.address(), path, &body).contains("Tokyo"), "{when}");
        }
    };
    for round in 0..10 {
        ask_all(&format!("while streams are being made, round {round}"));
    }
    wait_until_idle(&gateway);
    ask_all("while nobody takes the streams");
    for (seed, client) in slow.iter_mut().enumerate() {
        let in_the_kernel = client.in_the_kernel();
        for stream in 0..STREAMS {
            assert!(!text_of(&client.response()).is_empty(), "stream {stream} of {seed}");
        }
        let total = client.received();
        assert!(
            in_the_kernel > 0 && total > 2 * in_the_kernel,
            "the kernel took {in_the_kernel} of {total} bytes, so nothing was shown"
        );
    }
}

/// Half a minute without a byte taken, and then the place is free; others are served meanwhile.
#[test]
fn a_client_that_never_reads_is_cut_off() {
    let gateway = Gateway::start(&Settings::default());
    // Of 600 tokens each: the model's own end would come so soon that the kernel may take all of them.
    let streaming = slow(&gateway, &with(stream(1), "ignore_eos", true));
    let mut flooding = Client::connect_narrow(gateway.address());
    let mut at = 0;
    wait_for("the gateway to take no more requests", || {
        flooding.flood(&http::request_bytes("GET", "/metrics"), &mut at);
        let before = asked(&gateway);
        (before > 8.0 && before == asked(&gateway) - 1.0).then_some(())
    });
    let open = || Metrics::of(gateway.address()).sum("zerohop_connections_open", &[]);
    assert!(open() >= 3.0, "both are connected, and the one that asks");
    let japan = || answer(gateway.address(), CHAT, &chat("What is the capital of Japan?"));
    assert!(japan().contains("Tokyo"), "while nobody takes anything");
    // By the gateway's own count: what the kernel tells the two of it, and when, is the kernel's affair.
    wait_for("both to be cut off and their places to be free", || {
        (open() <= 1.0).then_some(())
    });
    assert!(japan().contains("Tokyo"), "after the two");
    drop((streaming, flooding));
}

/// How often metrics were asked for, this time not counted.
fn asked(gateway: &Gateway) -> f64 {
    Metrics::of(gateway.address()).sum("zerohop_requests_total", &["route=\"metrics\""])
}
