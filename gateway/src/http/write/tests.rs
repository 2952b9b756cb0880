//! Golden bytes of replies.

use super::*;

const ID: &str = "req_000000000000000000000000";

fn reply(change: impl FnOnce(&mut ReplyHead<'_>), write: impl FnOnce(&mut Vec<u8>, &ReplyHead<'_>)) -> String {
    let date = HttpDate::at(784_111_777);
    let mut head = ReplyHead {
        status: 200,
        request_id: ID,
        date: &date,
        version: Version::Http11,
        keep_alive: true,
        head_only: false,
        extra: &[],
    };
    change(&mut head);
    let mut out = b"before|".to_vec();
    write(&mut out, &head);
    String::from_utf8(out).expect("text").split_off("before|".len())
}

fn check(change: impl Fn(&mut ReplyHead<'_>), expected: &str) {
    let whole = |out: &mut Vec<u8>, head: &ReplyHead<'_>| whole(out, head, "application/json", b"{\"a\":1}\n");
    assert_eq!(reply(change, whole), expected);
}

#[test]
fn whole_replies() {
    let rest = format!(
        "content-type: application/json\r\ncontent-length: 8\r\nserver: zerohop\r\n\
         date: Sun, 06 Nov 1994 08:49:37 GMT\r\nrequest-id: {ID}\r\nx-request-id: {ID}\r\n"
    );
    check(|_| {}, &format!("HTTP/1.1 200 OK\r\n{rest}\r\n{{\"a\":1}}\n"));
    check(|head| head.head_only = true, &format!("HTTP/1.1 200 OK\r\n{rest}\r\n"));
    check(
        |head| (head.status, head.keep_alive) = (529, false),
        &format!("HTTP/1.1 529 Overloaded\r\n{rest}connection: close\r\n\r\n{{\"a\":1}}\n"),
    );
    check(
        |head| head.version = Version::Http10,
        &format!("HTTP/1.1 200 OK\r\n{rest}connection: keep-alive\r\n\r\n{{\"a\":1}}\n"),
    );
    check(
        |head| (head.version, head.keep_alive) = (Version::Http10, false),
        &format!("HTTP/1.1 200 OK\r\n{rest}connection: close\r\n\r\n{{\"a\":1}}\n"),
    );
    check(
        |head| (head.status, head.extra) = (599, &[("retry-after", "3"), ("x-split", "a\r\nx: y")]),
        &format!("HTTP/1.1 599 \r\n{rest}retry-after: 3\r\nx-split: a??x: y\r\n\r\n{{\"a\":1}}\n"),
    );
}

#[test]
fn statuses_without_a_body() {
    for status in [204, 304] {
        let text = reply(
            |head| head.status = status,
            |out, head| whole(out, head, "text/plain", b"never"),
        );
        assert!(text.ends_with(&format!("x-request-id: {ID}\r\n\r\n")), "{text}");
        assert!(!text.contains("content-"), "{text}");
        let filled = reply(
            |head| head.status = status,
            |out, head| whole_with(out, head, "text/plain", |_| panic!("unused")),
        );
        assert_eq!(filled, text);
    }
}

#[test]
fn bodies_written_in_place() {
    for (length, blanks) in [
        (0, ""),
        (12_345, ""),
        (64 * 1024, ""),
        (64 * 1024 + 1, "               "),
    ] {
        let body = "x".repeat(length);
        for head_only in [false, true] {
            let in_place = reply(
                |head| head.head_only = head_only,
                |out, head| whole_with(out, head, "text/plain", |out| out.extend_from_slice(body.as_bytes())),
            );
            let copied = reply(
                |head| head.head_only = head_only,
                |out, head| whole(out, head, "text/plain", body.as_bytes()),
            );
            let padded = format!("content-length: {blanks}{length}\r");
            assert!(in_place.contains(&padded), "{length}");
            assert_eq!(
                in_place.replacen(&padded, &format!("content-length: {length}\r"), 1),
                copied,
                "{length}"
            );
        }
    }
}

#[test]
fn stream_heads() {
    let head = |chunked: &str, connection: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n{chunked}cache-control: no-cache\r\n\
             x-accel-buffering: no\r\nserver: zerohop\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nrequest-id: {ID}\r\n\
             x-request-id: {ID}\r\n{connection}\r\n"
        )
    };
    let chunked = "transfer-encoding: chunked\r\n";
    let close = "connection: close\r\n";
    for (version, keep_alive, head_only, expected, framing) in [
        (Version::Http11, true, false, head(chunked, ""), StreamFraming::Chunked),
        (
            Version::Http11,
            false,
            false,
            head(chunked, close),
            StreamFraming::Chunked,
        ),
        (Version::Http11, true, true, head(chunked, ""), StreamFraming::NoBody),
        (Version::Http10, true, false, head("", close), StreamFraming::UntilClose),
        (Version::Http10, false, true, head("", close), StreamFraming::NoBody),
    ] {
        let text = reply(
            |head| (head.version, head.keep_alive, head.head_only) = (version, keep_alive, head_only),
            |out, head| assert_eq!(stream_head(out, head), framing),
        );
        assert_eq!(text, expected);
    }
}

#[test]
fn prepared_replies_are_the_same_bytes() {
    let extra = &[("allow", "GET, HEAD")];
    let body = b"server: zerohop\r\ndate: not this one\r\n";
    let id = RequestId::from_bits(1 << 60, 1 << 61);
    for status in [200, 204, 405] {
        let prepared = Prepared::new(status, "text/plain", extra, body);
        for (version, keep_alive, head_only) in [Version::Http10, Version::Http11]
            .into_iter()
            .flat_map(|version| [false, true].map(|keep_alive| (version, keep_alive)))
            .flat_map(|(version, keep_alive)| [false, true].map(|head_only| (version, keep_alive, head_only)))
        {
            let mut date = HttpDate::at(0);
            let written = reply(
                |head| {
                    (head.status, head.version, head.keep_alive, head.head_only) =
                        (status, version, keep_alive, head_only);
                    date = *head.date;
                },
                |out, head| {
                    let fields = PreparedFields {
                        request_id: &id,
                        date: head.date,
                        version,
                        keep_alive,
                        head_only,
                    };
                    prepared.write(out, &fields);
                },
            );
            let head = ReplyHead {
                status,
                request_id: &id,
                date: &date,
                version,
                keep_alive,
                head_only,
                extra,
            };
            let mut expected = Vec::new();
            whole(&mut expected, &head, "text/plain", body);
            assert_eq!(
                written.as_bytes(),
                expected,
                "{status} {version:?} {keep_alive} {head_only}"
            );
        }
    }
}

#[test]
fn interim_reply() {
    let mut out = Vec::new();
    continue_100(&mut out);
    assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");
}
