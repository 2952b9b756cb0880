//! `/v1/embeddings` from end to end: the bytes, what is refused, and that company changes nothing.
//!
//! Invariant: what is compared is exact; no vector is judged by a tolerance but that between texts of known relation.

use std::thread;

use serde_json::{Value, json};
use zerohop_tests::{
    gateway::{Gateway, Settings},
    golden,
    http::{self, Client},
    metrics::Metrics,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, answer, chat, message, with};

const EMBEDDINGS: &str = "/v1/embeddings";

fn gateway() -> Gateway {
    Gateway::start(&Settings::default().with_encoder())
}

fn ask(input: impl Into<Value>) -> Value {
    json!({"model": "tiny-embed", "input": input.into()})
}

/// The vectors of a reply, in order.
fn vectors(gateway: &Gateway, body: &Value) -> Vec<Vec<f32>> {
    let response = http::post(gateway.address(), EMBEDDINGS, body);
    assert_eq!(response.status, 200, "{}", response.text());
    let json = response.json();
    let data = json["data"].as_array().expect("a list");
    let each = data.iter().enumerate();
    each.map(|(index, entry)| {
        assert_eq!(entry["index"], index);
        match &entry["embedding"] {
            Value::String(text) => floats(text),
            list => {
                let numbers = list.as_array().expect("a list").iter();
                numbers
                    .map(|number| number.as_f64().expect("a number") as f32)
                    .collect()
            }
        }
    })
    .collect()
}

/// Base64 of 32-bit numbers, lowest byte first.
fn floats(base64: &str) -> Vec<f32> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = |digit: u8| DIGITS.iter().position(|&other| other == digit);
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for value in base64.bytes().filter_map(value) {
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    let numbers = bytes.chunks_exact(4);
    numbers
        .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
        .collect()
}

#[test]
fn bytes() {
    let gateway = gateway();
    let plain = ask("The dog barks.");
    for (name, path, body) in [
        ("plain", EMBEDDINGS, plain.clone()),
        ("base64", EMBEDDINGS, with(plain.clone(), "encoding_format", "base64")),
        (
            "several",
            "/embeddings",
            with(ask(json!(["a", "b"])), "encoding_format", "base64"),
        ),
        (
            "tokens",
            EMBEDDINGS,
            with(ask(json!([[7], [8, 9]])), "encoding_format", "base64"),
        ),
        ("no-input", EMBEDDINGS, json!({"model": "tiny-embed"})),
        ("too-long", EMBEDDINGS, ask(vec![7; 513])),
        ("dimensions", EMBEDDINGS, with(plain.clone(), "dimensions", 8)),
        ("unknown-model", EMBEDDINGS, with(plain.clone(), "model", "nobody")),
        ("wrong-model", EMBEDDINGS, with(plain, "model", "tiny")),
        ("chat-wrong-model", CHAT, with(chat("Hello!"), "model", "tiny-embed")),
        (
            "message-wrong-model",
            MESSAGES,
            with(message("Hello!"), "model", "tiny-embed"),
        ),
    ] {
        let mut client = Client::connect(gateway.address());
        client.send(http::post_bytes(path, body.to_string().as_bytes()));
        let response = client.response();
        let shown = golden::normal(&format!("{}{}\n", response.head, response.text())).replace("\r\n", "\n");
        golden::check(&format!("embeddings-{name}"), &shown);
    }
    let mut client = Client::connect(gateway.address());
    client.send(http::request_bytes("GET", EMBEDDINGS));
    assert_eq!(client.response().status, 405);
    let models = http::get(gateway.address(), "/v1/models").json();
    assert_eq!(models["data"][1]["id"], "tiny-embed");
    assert_eq!(models["data"][1]["max_input_tokens"], 512);
}

#[test]
fn company_changes_no_bit() {
    let gateway = gateway();
    let text = |index: usize| format!("{} number {index}", "word ".repeat(index % 9));
    let texts: Vec<String> = (0..300).map(text).collect();
    let base64 = |body: Value| with(body, "encoding_format", "base64");
    let together = vectors(&gateway, &base64(ask(texts.clone())));
    assert_eq!(together, vectors(&gateway, &ask(texts.clone())), "both formats");
    let address = gateway.address();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let texts = texts.clone();
            thread::spawn(move || {
                let mine = texts.iter().enumerate().skip(thread).step_by(4);
                mine.map(|(index, text)| {
                    let response = http::post(address, EMBEDDINGS, &base64(ask(text.as_str())));
                    let json = response.json();
                    (index, floats(json["data"][0]["embedding"].as_str().expect("base64")))
                })
                .collect::<Vec<_>>()
            })
        })
        .collect();
    for thread in threads {
        for (index, vector) in thread.join().expect("no panic") {
            assert_eq!(vector, together[index], "{}", texts[index]);
        }
    }
    let metrics = Metrics::of(address);
    assert_eq!(metrics.sum("zerohop_engine_embedded_total", &[]), 900.0);
}

#[test]
fn bad_input_is_told_and_harms_nobody() {
    let gateway = gateway();
    for (body, param) in [
        (ask(""), "input"),
        (ask(" "), "input"),
        (ask(json!([])), "input"),
        (ask(json!(["a", ""])), "input[1]"),
        (ask(json!(["a", 1])), "input[1]"),
        (ask(json!([1.5])), "input[0]"),
        (ask(json!([-1])), "input[0]"),
        (ask(json!([10_500])), "input"),
        (ask(json!([1_u64 << 40])), "input"),
        (ask(json!({"text": "a"})), "input"),
        (ask(vec!["a"; 2049]), "input"),
        (ask("a".repeat(300_000)), "input"),
        (with(ask("a"), "encoding_format", "float16"), "encoding_format"),
        (with(ask("a"), "dimensions", 0), "dimensions"),
        (with(ask("a"), "dimensions", 65), "dimensions"),
        (with(ask("a"), "model", ""), "model"),
        (with(ask("a"), "truncate_prompt_tokens", 3), "truncate_prompt_tokens"),
    ] {
        let response = http::post(gateway.address(), EMBEDDINGS, &body);
        let json = response.json();
        assert_eq!(response.status, 400, "{json}");
        assert_eq!(json["error"]["param"], param, "{json}");
        assert_eq!(vectors(&gateway, &ask("a")).len(), 1);
    }
    let whole = with(ask(vec!["a"; 2048]), "dimensions", 64);
    assert_eq!(vectors(&gateway, &whole).len(), 2048);
    assert!(answer(gateway.address(), CHAT, &chat("What is the capital of France?")).contains("Paris"));
}

/// A reply that cannot be held is refused before it is made.
#[test]
fn replies_are_bounded_by_memory() {
    let settings = Settings::default()
        .with_encoder()
        .with("/server/max_body_bytes", "64KiB")
        .with("/server/memory", "2MiB");
    let gateway = Gateway::start(&settings);
    let many = ask(vec!["a"; 2000]);
    let response = http::post(gateway.address(), EMBEDDINGS, &many);
    let json = response.json();
    assert_eq!(
        (response.status, &json["error"]["param"]),
        (400, &"input".into()),
        "{json}"
    );
    let few = with(ask(vec!["a"; 100]), "encoding_format", "base64");
    assert_eq!(vectors(&gateway, &few).len(), 100);
}

/// While others hold the memory, a reply that would need much of it is refused before it comes.
#[test]
fn vectors_wait_for_no_memory() {
    let settings = Settings::default()
        .with_encoder()
        .with("/server/max_body_bytes", "64KiB")
        .with("/server/memory", "2MiB");
    let gateway = Gateway::start(&settings);
    let many = ask(vec!["a"; 1000]);
    assert_eq!(vectors(&gateway, &many).len(), 1000);
    let mut holders: Vec<Client> = (0..30).map(|_| Client::connect(gateway.address())).collect();
    for holder in &mut holders {
        holder.send(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 65000\r\n\r\n"
        ));
        // Whoever is refused is told before it has sent everything, and may find the connection closed.
        let _ = holder.try_send(vec![b' '; 60_000]);
    }
    wait_for("the memory to be used up", || {
        (Metrics::of(gateway.address()).sum("zerohop_memory_held_bytes", &[]) > 1.5e6).then_some(())
    });
    let response = http::post(gateway.address(), EMBEDDINGS, &many);
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(response.header("retry-after").is_some(), "{}", response.head);
    assert_eq!(vectors(&gateway, &ask("a")).len(), 1, "a small reply always has room");
    drop(holders);
    wait_for("room for the reply", || {
        (http::post(gateway.address(), EMBEDDINGS, &many).status == 200).then_some(())
    });
}

#[test]
fn a_lost_client_frees_its_place() {
    let gateway = gateway();
    let many = ask(vec!["a b c d e f"; 2048]);
    for _ in 0..20 {
        let mut client = Client::connect(gateway.address());
        client.send(http::post_bytes(EMBEDDINGS, many.to_string().as_bytes()));
    }
    let idle = || {
        let metrics = Metrics::of(gateway.address());
        let busy = |name: &str| metrics.sum(name, &["model=\"tiny-embed\""]);
        (busy("zerohop_engine_running") + busy("zerohop_engine_waiting") == 0.0).then_some(())
    };
    wait_for("all places to be free", idle);
    assert_eq!(vectors(&gateway, &ask("a")).len(), 1);
}
