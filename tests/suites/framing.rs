//! Requests whose framing is wrong or doubtful: refused, and the connection closed, so that no proxy in front and the
//! gateway ever disagree about where a request ends.
//!
//! Invariant: after a refusal nothing that follows on the connection is answered.

use zerohop_tests::{
    gateway::{Gateway, Settings},
    http::Client,
};

/// What follows each doubtful request: it must never be taken for a request.
const SMUGGLED: &str = "GET /health HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn doubtful_requests_end_the_connection() {
    let gateway = Gateway::start(&Settings::default());
    for (name, head) in [
        ("no request", "rubbish"),
        ("an unknown version", "GET / HTTP/3.7\r\nhost: a"),
        (
            "two lengths",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6",
        ),
        (
            "a list of lengths",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 6",
        ),
        (
            "a signed length",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: +5",
        ),
        (
            "a negative length",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: -5",
        ),
        (
            "a hexadecimal length",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 0x5",
        ),
        (
            "a length beyond numbers",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999",
        ),
        (
            "length and coding",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked",
        ),
        (
            "an unknown coding",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip",
        ),
        (
            "chunked not last",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip",
        ),
        (
            "chunked twice",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked",
        ),
        (
            "a disguised coding",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked",
        ),
        (
            "coding in HTTP/1.0",
            "POST /v1/messages HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked",
        ),
        (
            "a blank before the colon",
            "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length : 5",
        ),
        ("a folded line", "GET / HTTP/1.1\r\nhost: a\r\nx: a\r\n b"),
        ("a nameless header", "GET / HTTP/1.1\r\nhost: a\r\n: b"),
        ("NUL in a value", "GET / HTTP/1.1\r\nhost: a\r\nx: a\0b"),
        ("no host", "GET / HTTP/1.1\r\nx: a"),
        ("two hosts", "GET / HTTP/1.1\r\nhost: a\r\nhost: b"),
    ] {
        let mut client = Client::connect(gateway.address());
        client.send(format!("{head}\r\n\r\n{SMUGGLED}"));
        let response = client.response();
        let refused = matches!(response.status, 400 | 413 | 431 | 501 | 505);
        assert!(refused, "{name}: {} {}", response.head, response.text());
        assert!(client.is_closed(), "{name}: the connection stays open");
    }
}

#[test]
fn broken_chunks_end_the_connection() {
    let gateway = Gateway::start(&Settings::default());
    for (name, body) in [
        ("nothing but the end of a line", "\r\n{}\r\n0\r\n\r\n"),
        ("no digits", "xy\r\n{}\r\n0\r\n\r\n"),
        ("a signed size", "+2\r\n{}\r\n0\r\n\r\n"),
        ("a size beyond numbers", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        ("a longer chunk than it says", "1\r\n{}\r\n0\r\n\r\n"),
        ("a bare line feed", "2\n{}\n0\n\n"),
    ] {
        let mut client = Client::connect(gateway.address());
        let head = "POST /v1/messages HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(format!("{head}{body}{SMUGGLED}"));
        let response = client.response();
        // Of a size beyond all numbers it may also be said that it is too large.
        assert!(
            matches!(response.status, 400 | 413),
            "{name}: {} {}",
            response.head,
            response.text()
        );
        assert!(client.is_closed(), "{name}: the connection stays open");
    }
}
