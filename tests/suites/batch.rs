//! Many streams at once: batching changes how fast, never what.
//!
//! Invariant: the answers are compared token for token with those of the same prompts run alone.

use std::iter;

use serde_json::Value;
use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::{self, Client},
    metrics::Metrics,
};

use crate::ask::{CHAT, MESSAGES, message, ramble, text_of, with};

const STREAMS: u64 = 64;

/// Different prompts, dialects and ways of sampling, all streamed.
fn request(index: u64) -> (&'static str, Value) {
    let countries = ["France", "Japan", "Italy", "Kenya", "Peru", "Norway", "Egypt", "Cuba"];
    let country = countries[usize::try_from(index % 8).unwrap_or(0)];
    let (path, body) = match index % 2 {
        0 => (CHAT, ramble(index, 96)),
        _ => (
            MESSAGES,
            message(&format!("Please tell me the capital of {country}, number {index}.")),
        ),
    };
    (path, with(body, "stream", true))
}

#[test]
fn streams_together_equal_streams_alone() {
    let gateway = Gateway::start(&Settings::default());
    let requests: Vec<Vec<u8>> = (0..STREAMS)
        .map(|index| {
            let (path, body) = request(index);
            http::post_bytes(path, body.to_string().as_bytes())
        })
        .collect();
    let alone: Vec<String> = requests
        .iter()
        .map(|bytes| text_of(&http::exchange(gateway.address(), bytes)))
        .collect();
    let rounds = if std::env::var("ZEROHOP_LONG").is_ok_and(|long| !long.is_empty()) {
        200
    } else {
        3
    };
    for round in 0..rounds {
        // All are sent before the first reply is read: what comes meanwhile waits in the sockets.
        let mut clients: Vec<Client> = iter::repeat_with(|| Client::connect(gateway.address()))
            .take(requests.len())
            .collect();
        clients
            .iter_mut()
            .zip(&requests)
            .for_each(|(client, bytes)| client.send(bytes));
        for (index, (client, expected)) in clients.iter_mut().zip(&alone).enumerate() {
            assert_eq!(
                &text_of(&client.response()),
                expected,
                "stream {index} of round {round}"
            );
        }
    }
    let metrics = Metrics::of(gateway.address());
    let peak = metrics.max("zerohop_engine_batch_peak", &[]);
    assert!(peak >= 8.0, "the greatest batch was {peak}");
}
