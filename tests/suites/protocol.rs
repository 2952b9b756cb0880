//! HTTP/1.1 as clients speak it, and the answers to those who are slow, many, or late.
//!
//! Invariant: each connection gets exactly the replies to its own requests, in order.

use rustix::process::Signal;
use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::{self, Client},
    sse,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, chat, message, ramble, text_of, with};

const CAPITAL: &str = "What is the capital of France?";

#[test]
fn one_connection_serves_many_requests() {
    let gateway = Gateway::start(&Settings::default());
    let mut client = Client::connect(gateway.address());
    for round in 0..20 {
        let (path, body) = if round % 2 == 0 {
            (CHAT, chat(CAPITAL))
        } else {
            (MESSAGES, message(CAPITAL))
        };
        let body = with(body, "stream", round % 4 < 2);
        client.send(http::post_bytes(path, body.to_string().as_bytes()));
        assert!(text_of(&client.response()).contains("Paris"), "round {round}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let gateway = Gateway::start(&Settings::default());
    let asks = ["France", "Japan", "Italy", "Spain", "Egypt"];
    let ask = |country: &str| chat(&format!("What is the capital of {country}?")).to_string();
    let alone: Vec<String> = asks
        .iter()
        .map(|country| {
            text_of(&http::exchange(
                gateway.address(),
                &http::post_bytes(CHAT, ask(country).as_bytes()),
            ))
        })
        .collect();
    let mut client = Client::connect(gateway.address());
    let health = http::request_bytes("GET", "/health");
    let requests = asks
        .iter()
        .map(|country| [http::post_bytes(CHAT, ask(country).as_bytes()), health.clone()].concat());
    client.send(requests.collect::<Vec<_>>().concat());
    for (country, expected) in asks.iter().zip(&alone) {
        assert_eq!(&text_of(&client.response()), expected, "{country}");
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let gateway = Gateway::start(&Settings::default());
    let request = http::post_bytes(CHAT, chat(CAPITAL).to_string().as_bytes());
    for size in [1, 7, 64, request.len() - 1] {
        let mut client = Client::connect(gateway.address());
        request.chunks(size).for_each(|piece| client.send(piece));
        assert!(text_of(&client.response()).contains("Paris"), "in pieces of {size}");
    }
}

#[test]
fn chunked_bodies() {
    let gateway = Gateway::start(&Settings::default());
    let body = chat(CAPITAL).to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n");
    let mut client = Client::connect(gateway.address());
    for (size, extension, trailer) in [(1, "", ""), (10, ";a=b", ""), (1_000, ";a=\"b c\"", "x-sum: 1\r\n")] {
        let chunks = body
            .as_bytes()
            .chunks(size)
            .map(|chunk| format!("{:X}{extension}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)));
        client.send(format!("{head}{}0\r\n{trailer}\r\n", chunks.collect::<String>()));
        assert!(text_of(&client.response()).contains("Paris"), "in chunks of {size}");
    }
}

#[test]
fn expect_continue() {
    let gateway = Gateway::start(&Settings::default());
    let body = chat(CAPITAL).to_string();
    let head = |path: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n")
    };
    let mut client = Client::connect(gateway.address());
    client.send(head(CHAT, body.len()));
    assert_eq!(client.head().status, 100);
    client.send(&body);
    assert!(text_of(&client.response()).contains("Paris"));
    // Who is refused is told so instead, and need not send the body.
    for (path, length, status) in [("/v1/nothing", body.len(), 404), (CHAT, 64 << 20, 413)] {
        let mut client = Client::connect(gateway.address());
        client.send(head(path, length));
        assert_eq!(client.response().status, status, "{path}");
    }
}

#[test]
fn head_is_get_without_the_body() {
    let gateway = Gateway::start(&Settings::default());
    let mut client = Client::connect(gateway.address());
    for path in ["/", "/health", "/ready", "/v1/models", "/v1/models/tiny"] {
        client.send(http::request_bytes("GET", path));
        let get = client.response();
        client.send(http::request_bytes("HEAD", path));
        let head = client.response_to("HEAD");
        assert_eq!(
            (head.status, head.header("content-length")),
            (get.status, get.header("content-length")),
            "{path}"
        );
    }
}

#[test]
fn the_end_of_a_connection_is_the_clients_choice() {
    let gateway = Gateway::start(&Settings::default());
    for (head, stays) in [
        ("GET /health HTTP/1.1\r\nhost: a\r\n\r\n", true),
        ("GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", false),
        ("GET /health HTTP/1.1\r\nhost: a\r\nConnection: x, Close\r\n\r\n", false),
        ("GET /health HTTP/1.0\r\n\r\n", false),
        ("GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", true),
    ] {
        let mut client = Client::connect(gateway.address());
        client.send(head);
        let response = client.response();
        assert_eq!(response.status, 200);
        if stays {
            client.send(head);
            assert_eq!(client.response().status, 200, "{head:?}");
        } else {
            assert_eq!(response.header("connection"), Some("close"), "{head:?}");
            assert!(client.is_closed(), "{head:?}");
        }
    }
}

/// A client of HTTP/1.0 knows no chunks: its stream ends with the connection.
#[test]
fn a_stream_for_http_1_0() {
    let gateway = Gateway::start(&Settings::default());
    let body = with(message(CAPITAL), "stream", true).to_string();
    let mut client = Client::connect(gateway.address());
    client.send(format!(
        "POST {MESSAGES} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let response = client.response();
    assert_eq!(response.header("transfer-encoding"), None);
    assert!(text_of(&response).contains("Paris"));
    assert!(
        response
            .events()
            .last()
            .is_some_and(|event| event.name == "message_stop")
    );
}

#[test]
fn slow_clients_are_told_and_closed() {
    let gateway = Gateway::start(
        &Settings::default()
            .with("/server/read_timeout", "1s")
            .with("/server/keepalive_timeout", 1),
    );
    for (name, sent) in [
        ("half a head", "GET /health HTTP/1.1\r\nhost:"),
        (
            "a head without its body",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{",
        ),
    ] {
        let mut client = Client::connect(gateway.address());
        client.send(sent);
        assert_eq!(client.response().status, 408, "{name}");
        assert!(client.is_closed(), "{name}");
    }
    let mut idle = Client::connect(gateway.address());
    idle.send(http::request_bytes("GET", "/health"));
    assert_eq!(idle.response().status, 200);
    assert!(idle.is_closed(), "an idle connection ends without a word");
}

#[test]
fn one_connection_too_many() {
    let gateway = Gateway::start(&Settings::default().with("/server/max_connections", 4));
    let served = || {
        let mut client = Client::connect(gateway.address());
        (client.try_get("/health").ok()? == 200).then_some(client)
    };
    // The probe of the start may hold a place for a moment.
    let mut held: Vec<Client> = (0..4).map(|_| wait_for("a place", served)).collect();
    let mut refused = Client::connect(gateway.address());
    let response = refused.response();
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(refused.is_closed());
    for client in &mut held {
        client.send(http::request_bytes("GET", "/health"));
        assert_eq!(client.response().status, 200, "who is connected is served");
    }
    held.pop();
    wait_for("the place of a client that left", served);
}

/// SIGTERM: a stream that runs is finished, a connection that was accepted is answered, then the process ends well.
#[test]
fn drain() {
    let mut gateway = Gateway::start(&Settings::default());
    let alone = text_of(&http::post(gateway.address(), CHAT, &ramble(7, 200)));
    let mut streaming = Client::connect(gateway.address());
    let body = with(ramble(7, 200), "stream", true).to_string();
    streaming.send(http::post_bytes(CHAT, body.as_bytes()));
    // Connected and accepted, but not yet asking.
    let mut waiting: Vec<Client> = (0..8).map(|_| Client::connect(gateway.address())).collect();
    assert_eq!(streaming.head().status, 200);
    let mut parser = sse::Parser::default();
    let mut text = String::new();
    let first = streaming.piece().unwrap_or_default();
    text.extend(parser.feed(&first).iter().filter_map(sse::delta));
    for client in &mut waiting {
        client.send(http::post_bytes(CHAT, chat(CAPITAL).to_string().as_bytes()));
    }
    gateway.signal(Signal::TERM);
    for client in &mut waiting {
        assert!(
            text_of(&client.response()).contains("Paris"),
            "a request that was sent before the signal is answered"
        );
    }
    while let Some(piece) = streaming.piece() {
        text.extend(parser.feed(&piece).iter().filter_map(sse::delta));
    }
    assert_eq!(text, alone, "a running stream is finished");
    assert!(gateway.ended().success(), "{}", gateway.log());
}
