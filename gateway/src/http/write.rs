//! Replies to bytes: heads, whole replies, and fixed replies that are prepared once.
//!
//! Everything is appended to the worker's send buffer; nothing is sent here. Invariants: every reply carries `date`,
//! `request-id` and `x-request-id`; its length is told in exactly one way; no text of a header can end its line.

use crate::{date::HttpDate, put};

use super::{head::Version, request_id::RequestId};

/// What the head of a reply says.
#[derive(Debug, Clone, Copy)]
pub struct ReplyHead<'a> {
    /// Status code.
    pub status: u16,
    /// Sent as `request-id` (Anthropic's name) and `x-request-id` (OpenAI's).
    pub request_id: &'a str,
    /// Now.
    pub date: &'a HttpDate,
    /// The request's version.
    pub version: Version,
    /// Whether the connection goes on after this reply.
    pub keep_alive: bool,
    /// The request was `HEAD`: the head is as for `GET`, and no body follows.
    pub head_only: bool,
    /// Further header fields: lower-case names, values of any text (control bytes become `?`).
    pub extra: &'a [(&'a str, &'a str)],
}

/// How the end of a streamed body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFraming {
    /// By a chunk of size 0.
    Chunked,
    /// By closing the connection (HTTP/1.0): the worker closes after the last event.
    UntilClose,
    /// There is no body (`HEAD`).
    NoBody,
}

/// Width of a content length that is filled in afterwards: digits of the largest `u64`.
const LENGTH_WIDTH: usize = 20;
/// Up to this length of the body, in bytes, the blanks before a shorter number are closed up by moving what follows; behind
/// a longer one they stay, which HTTP allows, rather than move megabytes.
const CLOSE_GAP: usize = 64 * 1024;

/// Appends a whole reply. A status that allows no body (204, 304) gets none.
pub fn whole(out: &mut Vec<u8>, head: &ReplyHead<'_>, content_type: &str, body: &[u8]) {
    whole_and_date(out, head, content_type, body);
}

/// The same; returns where the date stands.
fn whole_and_date(out: &mut Vec<u8>, head: &ReplyHead<'_>, content_type: &str, body: &[u8]) -> usize {
    out.reserve(512 + body.len());
    status_line(out, head.status);
    let has_body = allows_body(head.status);
    if has_body {
        line(out, "content-type", content_type);
        out.extend_from_slice(b"content-length: ");
        put::decimal(out, body.len() as u64);
        out.extend_from_slice(b"\r\n");
    }
    let date_at = common(out, head, head.keep_alive);
    if has_body && !head.head_only {
        out.extend_from_slice(body);
    }
    date_at
}

/// Appends a whole reply whose body `fill` appends in place. The length is written afterwards, to the right of blanks,
/// which a field value may start with (RFC 9112, section 5.1).
pub fn whole_with(out: &mut Vec<u8>, head: &ReplyHead<'_>, content_type: &str, fill: impl FnOnce(&mut Vec<u8>)) {
    if !allows_body(head.status) {
        return whole(out, head, content_type, b"");
    }
    status_line(out, head.status);
    line(out, "content-type", content_type);
    out.extend_from_slice(b"content-length: ");
    let length_at = out.len();
    out.extend_from_slice(&[b' '; LENGTH_WIDTH]);
    out.extend_from_slice(b"\r\n");
    common(out, head, head.keep_alive);
    let body_at = out.len();
    fill(out);
    let length = out.len() - body_at;
    let gap = put::decimal_right(&mut out[length_at..length_at + LENGTH_WIDTH], length as u64);
    if head.head_only {
        out.truncate(body_at);
    }
    if length <= CLOSE_GAP {
        out.copy_within(length_at + gap.., length_at);
        out.truncate(out.len() - gap);
    }
}

/// Appends the head of an event stream; [`super::sse`] writes what follows.
#[must_use]
pub fn stream_head(out: &mut Vec<u8>, head: &ReplyHead<'_>) -> StreamFraming {
    let chunked = head.version == Version::Http11;
    status_line(out, head.status);
    out.extend_from_slice(b"content-type: text/event-stream; charset=utf-8\r\n");
    if chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    // Proxies that buffer replies (nginx) let this one through as it comes.
    out.extend_from_slice(b"cache-control: no-cache\r\nx-accel-buffering: no\r\n");
    common(out, head, head.keep_alive && chunked);
    match (head.head_only, chunked) {
        (true, _) => StreamFraming::NoBody,
        (false, true) => StreamFraming::Chunked,
        (false, false) => StreamFraming::UntilClose,
    }
}

/// Appends the interim reply that asks for the body of a request with `expect: 100-continue`.
pub fn continue_100(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// The fields that every reply has, the given ones, and the empty line. Returns where the date stands.
fn common(out: &mut Vec<u8>, head: &ReplyHead<'_>, keep_alive: bool) -> usize {
    out.extend_from_slice(b"server: zerohop\r\ndate: ");
    let date_at = out.len();
    out.extend_from_slice(head.date.as_bytes());
    out.extend_from_slice(b"\r\n");
    line(out, "request-id", head.request_id);
    line(out, "x-request-id", head.request_id);
    match (keep_alive, head.version) {
        (true, Version::Http11) => {}
        (true, Version::Http10) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, _) => out.extend_from_slice(b"connection: close\r\n"),
    }
    for (name, value) in head.extra {
        line(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
    date_at
}

fn line(out: &mut Vec<u8>, name: &str, value: &str) {
    put::header_value(out, name);
    out.extend_from_slice(b": ");
    put::header_value(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Whether a reply with this status may have a body and its length (RFC 9110, sections 8.6, 15.3.5 and 15.4.5).
fn allows_body(status: u16) -> bool {
    !matches!(status, 100..200 | 204 | 304)
}

/// Appends the status line. The version is ours, whatever the request's (RFC 9110, section 6.2).
fn status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    put::padded(out, u64::from(status), 3);
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Reason phrases; a status without one is sent without.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        529 => "Overloaded",
        _ => "",
    }
}

/// What differs between two uses of a [`Prepared`] reply.
#[derive(Debug, Clone, Copy)]
pub struct PreparedFields<'a> {
    /// See [`ReplyHead::request_id`].
    pub request_id: &'a RequestId,
    /// Now.
    pub date: &'a HttpDate,
    /// The request's version.
    pub version: Version,
    /// Whether the connection goes on after this reply.
    pub keep_alive: bool,
    /// The request was `HEAD`.
    pub head_only: bool,
}

/// A reply that is the same each time but for id, date and connection: it is copied whole, then id and date are written
/// over their places. The bytes are those of [`whole`].
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Connection goes on with HTTP/1.1; goes on with HTTP/1.0; closes.
    forms: [Form; 3],
}

#[derive(Debug, Clone)]
struct Form {
    bytes: Box<[u8]>,
    head_len: usize,
    date_at: usize,
    /// Of `request-id`; `x-request-id` is [`Form::SECOND_ID`] further on.
    id_at: usize,
}

impl Prepared {
    /// Prepares a reply.
    #[must_use]
    pub fn new(status: u16, content_type: &str, extra: &[(&str, &str)], body: &[u8]) -> Self {
        let form = |version, keep_alive| Form::new(status, content_type, extra, body, version, keep_alive);
        Self {
            forms: [
                form(Version::Http11, true),
                form(Version::Http10, true),
                form(Version::Http11, false),
            ],
        }
    }

    /// Appends the reply with these fields.
    pub fn write(&self, out: &mut Vec<u8>, fields: &PreparedFields<'_>) {
        let form = match (fields.keep_alive, fields.version) {
            (true, Version::Http11) => &self.forms[0],
            (true, Version::Http10) => &self.forms[1],
            (false, _) => &self.forms[2],
        };
        form.write(out, fields);
    }
}

impl Form {
    /// From the start of one id to that of the other: the id itself and what stands between.
    const SECOND_ID: usize = RequestId::LEN + b"\r\nx-request-id: ".len();

    fn new(
        status: u16,
        content_type: &str,
        extra: &[(&str, &str)],
        body: &[u8],
        version: Version,
        keep_alive: bool,
    ) -> Self {
        let (request_id, date) = (RequestId::from_bits(0, 0), HttpDate::at(0));
        let head = ReplyHead {
            status,
            request_id: &request_id,
            date: &date,
            version,
            keep_alive,
            head_only: true,
            extra,
        };
        let mut bytes = Vec::new();
        whole(&mut bytes, &head, content_type, body);
        let head_len = bytes.len();
        bytes.clear();
        let date_at = whole_and_date(
            &mut bytes,
            &ReplyHead {
                head_only: false,
                ..head
            },
            content_type,
            body,
        );
        Self {
            bytes: bytes.into_boxed_slice(),
            head_len,
            date_at,
            id_at: date_at + HttpDate::LEN + b"\r\nrequest-id: ".len(),
        }
    }

    fn write(&self, out: &mut Vec<u8>, fields: &PreparedFields<'_>) {
        let start = out.len();
        let len = if fields.head_only {
            self.head_len
        } else {
            self.bytes.len()
        };
        out.extend_from_slice(&self.bytes[..len]);
        let reply = &mut out[start..];
        reply[self.date_at..][..HttpDate::LEN].copy_from_slice(fields.date.as_bytes());
        for id_at in [self.id_at, self.id_at + Self::SECOND_ID] {
            reply[id_at..][..RequestId::LEN].copy_from_slice(fields.request_id.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
