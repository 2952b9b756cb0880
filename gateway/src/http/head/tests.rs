//! One table of heads with their exact outcomes; every row is read whole with more bytes behind it, byte by byte, and in
//! random pieces.

use super::*;
use crate::http::request_id::IdSource;

const MAX: usize = 1024;

/// The outcome as one line.
fn show(bytes: &[u8], parsed: &Parsed) -> String {
    let head = match parsed {
        Parsed::Incomplete => return "incomplete".to_owned(),
        Parsed::Bad(error) => return format!("{:?}: {}", error.kind, error.message),
        Parsed::Complete(head) => head,
    };
    let mut line = format!("{:?} {}", head.method, head.path(bytes));
    if let Some(query) = head.query(bytes) {
        line += &format!("?{query}");
    }
    line += match (head.version, head.keep_alive) {
        (Version::Http11, true) => " 1.1 keep",
        (Version::Http11, false) => " 1.1 close",
        (Version::Http10, true) => " 1.0 keep",
        (Version::Http10, false) => " 1.0 close",
    };
    match head.framing {
        Framing::None => {}
        Framing::Length(length) => line += &format!(" length {length}"),
        Framing::Chunked => line += " chunked",
    }
    if head.expect_continue {
        line += " expect";
    }
    if head.cache_control != CacheControl::default() {
        line += &format!(" {:?}", head.cache_control);
    }
    for field in [
        Field::Host,
        Field::ContentType,
        Field::Authorization,
        Field::ApiKey,
        Field::AnthropicVersion,
        Field::RequestId,
        Field::ClientRequestId,
        Field::Traceparent,
    ] {
        if let Some(value) = head.field(bytes, field) {
            line += &format!(" {field:?}={}", String::from_utf8_lossy(value));
        }
    }
    line
}

/// Gives a new reader growing parts of `bytes`, whose ends `next` chooses, until the outcome is known.
fn read_in_pieces(bytes: &[u8], mut next: impl FnMut(usize) -> usize) -> (usize, Parsed) {
    let mut reader = HeadReader::default();
    let mut end = 0;
    loop {
        end = next(end).min(bytes.len());
        let parsed = reader.read(&bytes[..end], MAX);
        if parsed != Parsed::Incomplete || end == bytes.len() {
            return (end, parsed);
        }
    }
}

fn check(input: &[u8], expected: &str) {
    let context = String::from_utf8_lossy(input);
    let mut longer = input.to_vec();
    if expected != "incomplete" {
        longer.extend_from_slice(b"GET /next HTTP/1.1\r\nhost: b\r\n\r\n");
    }
    let (_, whole) = read_in_pieces(&longer, |_| usize::MAX);
    assert_eq!(show(&longer, &whole), expected, "{context}");

    let (end, single) = read_in_pieces(&longer, |end| end + 1);
    assert_eq!(single, whole, "byte by byte: {context}");
    if let Parsed::Complete(head) = &single {
        assert_eq!((head.len, end), (input.len(), input.len()), "{context}");
    }
    let mut random = IdSource::new([1, input.len() as u64]);
    for _ in 0..50 {
        let (_, pieces) = read_in_pieces(&longer, |end| end + (random.bits().0 % 40) as usize);
        assert_eq!(pieces, whole, "in pieces: {context}");
    }
}

#[test]
fn acceptable_heads() {
    let table: &[(&[u8], &str)] = &[
        // Request lines and versions.
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "Get / 1.1 keep Host=a"),
        (
            b"HEAD /health HTTP/1.1\r\nHOST: a\r\n\r\n",
            "Head /health 1.1 keep Host=a",
        ),
        (
            b"OPTIONS /v1/messages HTTP/1.1\r\nhost: a\r\n\r\n",
            "Options /v1/messages 1.1 keep Host=a",
        ),
        (
            b"DELETE /v1/x HTTP/1.1\r\nhost: a\r\n\r\n",
            "Other /v1/x 1.1 keep Host=a",
        ),
        (b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", "Options * 1.1 keep Host=a"),
        (b"get / HTTP/1.1\r\nhost: a\r\n\r\n", "Other / 1.1 keep Host=a"),
        (b"M-SEARCH / HTTP/1.1\r\nhost: a\r\n\r\n", "Other / 1.1 keep Host=a"),
        (b"GET / HTTP/1.0\r\n\r\n", "Get / 1.0 close"),
        (b"\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", "Get / 1.1 keep Host=a"),
        (b"\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", "Get / 1.1 keep Host=a"),
        // Targets.
        (
            b"GET /a?b=c?d HTTP/1.1\r\nhost: a\r\n\r\n",
            "Get /a?b=c?d 1.1 keep Host=a",
        ),
        (b"GET /a? HTTP/1.1\r\nhost: a\r\n\r\n", "Get /a? 1.1 keep Host=a"),
        (
            b"GET /a%20b/%00 HTTP/1.1\r\nhost: a\r\n\r\n",
            "Get /a%20b/%00 1.1 keep Host=a",
        ),
        (b"GET //x HTTP/1.1\r\nhost: a\r\n\r\n", "Get //x 1.1 keep Host=a"),
        (
            b"GET http://h:80/p?q HTTP/1.1\r\nhost: a\r\n\r\n",
            "Get /p?q 1.1 keep Host=h:80",
        ),
        (
            b"GET HTTPS://[::1]:8080/p HTTP/1.1\r\nhost: a\r\n\r\n",
            "Get /p 1.1 keep Host=[::1]:8080",
        ),
        (b"GET http://h HTTP/1.1\r\nhost: a\r\n\r\n", "Get / 1.1 keep Host=h"),
        (
            b"GET http://h?q=1 HTTP/1.1\r\nhost: a\r\n\r\n",
            "Get /?q=1 1.1 keep Host=h",
        ),
        (b"GET http://h HTTP/1.0\r\n\r\n", "Get / 1.0 close Host=h"),
        // What is said about stored answers, in several fields.
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nCache-Control: No-Cache, max-age=9\r\nx: y\r\ncache-control:\tmax-age=5\r\n\r\n",
            "Get / 1.1 keep CacheControl { no_store: false, no_cache: true, only_if_cached: false, max_age: Some(5) } Host=a",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\ncache-control: max-age=soon, x=\"no-store\"\r\n\r\n",
            "Get / 1.1 keep Host=a",
        ),
        // Host.
        (b"GET / HTTP/1.1\r\nhost:\r\n\r\n", "Get / 1.1 keep Host="),
        (
            b"GET / HTTP/1.1\r\nhost: \t xn--a.example:8080 \t\r\n\r\n",
            "Get / 1.1 keep Host=xn--a.example:8080",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: [fe80::1%25eth0]:1\r\n\r\n",
            "Get / 1.1 keep Host=[fe80::1%25eth0]:1",
        ),
        // Connection.
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            "Get / 1.1 close Host=a",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nConnection: TE, Close\r\n\r\n",
            "Get / 1.1 close Host=a",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\nconnection: close\r\n\r\n",
            "Get / 1.1 close Host=a",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: closed\r\n\r\n",
            "Get / 1.1 keep Host=a",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            "Get / 1.1 keep Host=a",
        ),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", "Get / 1.0 keep"),
        (
            b"GET / HTTP/1.0\r\nconnection: keep-alive, close\r\n\r\n",
            "Get / 1.0 close",
        ),
        // Framing and expectations.
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            "Post / 1.1 keep length 0 Host=a",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length:12 \r\n\r\n",
            "Post / 1.1 keep length 12 Host=a",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 007\r\n\r\n",
            "Post / 1.1 keep length 7 Host=a",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\n",
            "Post / 1.1 keep length 18446744073709551615 Host=a",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
            "Post / 1.1 keep chunked Host=a",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n",
            "Post / 1.1 keep chunked Host=a",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\nexpect: 100-Continue\r\n\r\n",
            "Post / 1.1 keep length 1 expect Host=a",
        ),
        (
            b"POST / HTTP/1.0\r\ncontent-length: 1\r\nexpect: 100-continue\r\n\r\n",
            "Post / 1.0 close length 1",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n",
            "Get / 1.1 keep length 3 Host=a",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-encoding: identity\r\n\r\n",
            "Post / 1.1 keep Host=a",
        ),
        // The fields that are read, and what is not.
        (
            b"POST /v1/messages?beta=true HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nX-Api-Key: k\r\n\
              anthropic-version: 2023-06-01\r\nx-request-id: r\r\nx-client-request-id: c\r\ntraceparent: 00-1-2-01\r\n\
              authorization: Bearer t\r\nuser-agent: u\r\ncookie: x=\xe9\r\ncontent-length: 2\r\n\r\n",
            "Post /v1/messages?beta=true 1.1 keep length 2 Host=a ContentType=application/json Authorization=Bearer t \
             ApiKey=k AnthropicVersion=2023-06-01 RequestId=r ClientRequestId=c Traceparent=00-1-2-01",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\ncontent-type: x\r\ncontent-type: y\r\nx-request-id:\r\n\r\n",
            "Get / 1.1 keep Host=a ContentType=x RequestId=",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nx-api-key: a\tb\xffc\r\n\r\n",
            "Get / 1.1 keep Host=a ApiKey=a\tb\u{fffd}c",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\ncontent_length: 5\r\n\r\n",
            "Get / 1.1 keep Host=a",
        ),
        // Not there yet.
        (b"", "incomplete"),
        (b"\r", "incomplete"),
        (b"\r\n\r\n", "incomplete"),
        (b"GET / HTTP/1.1\r\nhost: a\r\n\r", "incomplete"),
    ];
    table.iter().for_each(|(input, expected)| check(input, expected));
}

#[test]
fn heads_to_refuse() {
    let table: &[(&[u8], &str)] = &[
        // Line ends.
        (
            b"GET / HTTP/1.1\nhost: a\r\n\r\n",
            "BadHttp: a line of the request head ends in a bare LF",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\n\r\n",
            "BadHttp: a line of the request head ends in a bare LF",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\n\n",
            "BadHttp: a line of the request head ends in a bare LF",
        ),
        (
            b"\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: a line of the request head ends in a bare LF",
        ),
        (
            b"\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "BadHttp: there are empty lines where a request should start",
        ),
        (
            b"\rGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: a line of the request head does not end in CR LF",
        ),
        (
            b"GET / HTTP/1.1\rX\r\nhost: a\r\n\r\n",
            "BadHttp: a line of the request head does not end in CR LF",
        ),
        (
            b"GET / HTTP/1.1\r\r\nhost: a\r\n\r\n",
            "BadHttp: a line of the request head does not end in CR LF",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nx: a\rb: c\r\n\r\n",
            "BadHttp: the value of a header field holds a control character",
        ),
        // Request lines.
        (
            b"\x16\x03\x01\x02\0\x01\0",
            "BadHttp: this looks like TLS; this port speaks plain HTTP",
        ),
        (
            b"\r\n\x16\x03\x01",
            "BadHttp: this looks like TLS; this port speaks plain HTTP",
        ),
        (b"\0GET / HTTP/1.1\r\n\r\n", "BadHttp: this is not an HTTP request"),
        (
            b" GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: this is not an HTTP request",
        ),
        (b"{\"model\":\"m\"}", "BadHttp: this is not an HTTP request"),
        (b"GET\r\n\r\n", "BadHttp: the request line is malformed"),
        (b"GET /\r\n\r\n", "BadHttp: the request line is malformed"),
        (
            b"GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request line is malformed",
        ),
        (
            b"GET\t/ HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request line is malformed",
        ),
        (
            b"G@T / HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request line is malformed",
        ),
        (
            b"GET / HTTP/1.1 \r\nhost: a\r\n\r\n",
            "BadHttp: a line of the request head does not end in CR LF",
        ),
        (
            b"GET / HTTP/1.2\r\nhost: a\r\n\r\n",
            "BadHttp: the protocol version is not HTTP/1.0 or HTTP/1.1",
        ),
        (
            b"GET / HTTP/0.9\r\nhost: a\r\n\r\n",
            "BadHttp: the protocol version is not HTTP/1.0 or HTTP/1.1",
        ),
        (
            b"GET / http/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the protocol version is not HTTP/1.0 or HTTP/1.1",
        ),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "BadHttp: the protocol version is not HTTP/1.0 or HTTP/1.1",
        ),
        // Targets.
        (
            b"CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n",
            "MethodNotAllowed: CONNECT is not supported: this is not a proxy",
        ),
        (
            b"GET * HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request target is neither a path nor an http URI",
        ),
        (
            b"GET a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request target is neither a path nor an http URI",
        ),
        (
            b"GET ftp://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request target is neither a path nor an http URI",
        ),
        (
            b"GET http:///p HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the authority of the request target is malformed",
        ),
        (
            b"GET http://u@h/ HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the authority of the request target is malformed",
        ),
        (
            b"GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request target holds characters that a URI may not have",
        ),
        (
            "GET /ä HTTP/1.1\r\nhost: a\r\n\r\n".as_bytes(),
            "BadHttp: the request target holds characters that a URI may not have",
        ),
        (
            b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n",
            "BadHttp: the request line is malformed",
        ),
        // Header syntax.
        (
            b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
            "BadHttp: a header field is folded over two lines",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\n\tb\r\n\r\n",
            "BadHttp: a header field is folded over two lines",
        ),
        (
            b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
            "BadHttp: the name of a header field is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nhost\t: a\r\n\r\n",
            "BadHttp: the name of a header field is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nhost a\r\n\r\n",
            "BadHttp: the name of a header field is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\n: a\r\n\r\n",
            "BadHttp: the name of a header field is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nx\0y: a\r\n\r\n",
            "BadHttp: the name of a header field is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nx\xe4: a\r\n\r\n",
            "BadHttp: the name of a header field is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nx: a\0b\r\n\r\n",
            "BadHttp: the value of a header field holds a control character",
        ),
        (
            b"GET / HTTP/1.1\r\nx: a\x0bb\r\n\r\n",
            "BadHttp: the value of a header field holds a control character",
        ),
        (
            b"GET / HTTP/1.1\r\nx: a\x7fb\r\n\r\n",
            "BadHttp: the value of a header field holds a control character",
        ),
        // Tabs: white space that other servers forget.
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length:\t5\r\n\r\n",
            "BadHttp: a tab stands beside the length or coding of the body",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked \t\r\n\r\n",
            "BadHttp: a tab stands beside the length or coding of the body",
        ),
        // Host and credentials.
        (
            b"GET / HTTP/1.1\r\n\r\n",
            "BadHttp: an HTTP/1.1 request needs a host header",
        ),
        (
            b"GET http://h/ HTTP/1.1\r\n\r\n",
            "BadHttp: an HTTP/1.1 request needs a host header",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nHost: a\r\n\r\n",
            "BadHttp: more than one host header",
        ),
        (
            b"GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n",
            "BadHttp: more than one host header",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
            "BadHttp: the host header is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: u@a\r\n\r\n",
            "BadHttp: the host header is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
            "BadHttp: the host header is malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nx-api-key: a\r\nx-api-key: b\r\n\r\n",
            "BadHttp: more than one x-api-key header",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nauthorization: a\r\nAuthorization: a\r\n\r\n",
            "BadHttp: more than one authorization header",
        ),
        // Framing.
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            "BadHttp: content-length and transfer-encoding stand in one request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n",
            "BadHttp: content-length and transfer-encoding stand in one request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
            "BadHttp: more than one content-length",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n",
            "BadHttp: more than one content-length",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 5\r\n\r\n",
            "BadHttp: content-length is not a decimal number",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\n",
            "BadHttp: content-length is not a decimal number",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
            "BadHttp: content-length is not a decimal number",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x5\r\n\r\n",
            "BadHttp: content-length is not a decimal number",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1 2\r\n\r\n",
            "BadHttp: content-length is not a decimal number",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\n",
            "BadHttp: content-length is not a decimal number",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            "BadHttp: the only transfer-encoding supported is a single `chunked`",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n",
            "BadHttp: the only transfer-encoding supported is a single `chunked`",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
            "BadHttp: the only transfer-encoding supported is a single `chunked`",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \"chunked\"\r\n\r\n",
            "BadHttp: the only transfer-encoding supported is a single `chunked`",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n\r\n",
            "BadHttp: the only transfer-encoding supported is a single `chunked`",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \x0bchunked\r\n\r\n",
            "BadHttp: the value of a header field holds a control character",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n",
            "BadHttp: the name of a header field is malformed",
        ),
        (
            b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
            "BadHttp: HTTP/1.0 has no transfer-encoding",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 200-ok\r\n\r\n",
            "BadHttp: the only expectation supported is `100-continue`",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-encoding: gzip\r\n\r\n",
            "InvalidRequest: content-encoding `gzip` is not supported for requests; send the body unencoded",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-encoding: 0123456789abcdef0123456789abcdefXYZ\r\n\r\n",
            "InvalidRequest: content-encoding `0123456789abcdef0123456789abcdef` is not supported for requests; send \
             the body unencoded",
        ),
    ];
    table.iter().for_each(|(input, expected)| check(input, expected));
}

#[test]
fn limits_are_exact() {
    let with_fields = |count: usize| {
        let fields: String = (1..count).map(|n| format!("x{n}:\r\n")).collect();
        format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n").into_bytes()
    };
    check(&with_fields(MAX_HEADERS), "Get / 1.1 keep Host=a");
    check(
        &with_fields(MAX_HEADERS + 1),
        "HeaderTooLarge: the request has more than 100 header fields",
    );

    let of_length = |length: usize| {
        let mut head = b"GET / HTTP/1.1\r\nhost: a\r\nx: ".to_vec();
        head.resize(length - 4, b'y');
        [&head[..], b"\r\n\r\n"].concat()
    };
    check(&of_length(MAX), "Get / 1.1 keep Host=a");
    check(
        &of_length(MAX + 1),
        "HeaderTooLarge: the request head is longer than 1024 bytes",
    );
    check(&of_length(MAX)[..MAX - 1], "incomplete");
    check(
        &[b'A'; MAX],
        "HeaderTooLarge: the request head is longer than 1024 bytes",
    );
}

#[test]
fn pipelined_requests_are_read_one_after_the_other() {
    let mut bytes: &[u8] =
        b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nhost: b\r\n\r\nGET /3 HTTP/1.1\r\n";
    let mut reader = HeadReader::default();
    let mut seen = Vec::new();
    loop {
        let parsed = reader.read(bytes, MAX);
        seen.push(show(bytes, &parsed));
        let Parsed::Complete(head) = parsed else { break };
        bytes = &bytes[head.len..];
    }
    assert_eq!(seen, ["Get /1 1.1 keep Host=a", "Get /2 1.1 keep Host=b", "incomplete"]);
}

/// A slow client's bytes are looked at once: with what came before hidden, the reader finds the end all the same.
#[test]
fn bytes_are_scanned_once() {
    let head = b"GET / HTTP/1.1\r\nhost: a\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n";
    let mut reader = HeadReader::default();
    assert_eq!(reader.read(head, MAX), Parsed::Incomplete);
    let mut hidden = vec![b'\n'; head.len() - 1];
    hidden.extend_from_slice(b"\n\r");
    assert_eq!(
        reader.scan(&hidden),
        Ok(None),
        "line ends before the known part would be refused if looked at"
    );
    hidden.push(b'\n');
    assert_eq!(reader.scan(&hidden), Ok(Some(hidden.len())));
}

#[test]
fn a_limit_may_shrink_while_a_head_comes() {
    let mut reader = HeadReader::default();
    assert_eq!(reader.read(b"GET / HTTP/1.1\r\nhost: a\r\n", MAX), Parsed::Incomplete);
    let parsed = reader.read(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", 10);
    assert_eq!(
        show(b"", &parsed),
        "HeaderTooLarge: the request head is longer than 10 bytes"
    );
}

#[test]
fn texts_are_read_from_a_copy_as_well() {
    let bytes = b"POST /p?q HTTP/1.1\r\nhost: a\r\nx-api-key: k\xff\r\n\r\n";
    let Parsed::Complete(head) = HeadReader::default().read(bytes, MAX) else {
        panic!("complete")
    };
    let copy = bytes.to_vec();
    assert_eq!(
        (head.method_name(&copy), head.path(&copy), head.query(&copy)),
        ("POST", "/p", Some("q"))
    );
    assert_eq!(head.field(&copy, Field::ApiKey), Some(&b"k\xff"[..]));
    assert_eq!(head.field_text(&copy, Field::ApiKey), None, "not UTF-8");
    assert_eq!(head.field_text(&copy, Field::Host), Some("a"));
    assert_eq!(head.path(b"short"), "", "other bytes do no harm");
}

/// Whatever the bytes, reading ends without a panic, and a cut changes nothing.
#[test]
fn random_changes_of_a_head_do_no_harm() {
    let good = b"POST /v1/messages?a=b HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\nconnection: close\r\n\r\n";
    let alphabet = b"\r\n\t :\0\x7f\xffA5,/?#";
    let mut random = IdSource::new([3, 4]);
    for _ in 0..20_000 {
        let mut bytes = good.to_vec();
        for _ in 0..=random.bits().0 % 3 {
            let (at, what) = random.bits();
            let at = (at % bytes.len() as u64) as usize;
            bytes[at] = alphabet[(what % alphabet.len() as u64) as usize];
        }
        let (_, whole) = read_in_pieces(&bytes, |_| usize::MAX);
        let (_, pieces) = read_in_pieces(&bytes, |end| end + 1 + (random.bits().0 % 9) as usize);
        assert_eq!(whole, pieces, "{}", String::from_utf8_lossy(&bytes));
    }
}
