//! The writer of server-sent events against a strict reader (WHATWG HTML, section 9.2.6; RFC 9112, section 7.1).
//!
//! Invariant: whatever is written as name or data, the events that are read are those that were written.

use zerohop::http::{Chunk, StreamFraming, sse::end};

use crate::same;

/// An event as a client sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

/// The input is a script: a byte says what to write, the next how long its text is.
pub(crate) fn check(script: &[u8]) {
    for framing in [StreamFraming::Chunked, StreamFraming::UntilClose] {
        let (out, expected) = written(script, framing);
        let body = match framing {
            StreamFraming::Chunked => dechunked(&out),
            StreamFraming::UntilClose | StreamFraming::NoBody => out,
        };
        same("events", &events(&body), &expected, script);
    }
    let (out, _) = written(script, StreamFraming::NoBody);
    assert!(out.is_empty(), "a reply to HEAD has a body");
}

fn written(script: &[u8], framing: StreamFraming) -> (Vec<u8>, Vec<Event>) {
    let (mut out, mut expected) = (Vec::new(), Vec::new());
    let mut rest = script;
    let mut chunk = Chunk::open(&mut out, framing);
    let mut name = String::new();
    while let [operation, length, behind @ ..] = rest {
        let (text, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        let text = String::from_utf8_lossy(text);
        rest = behind;
        match operation % 5 {
            0 => {
                chunk.data(text.as_bytes());
                expected.push(Event {
                    name: String::new(),
                    data: lines_joined(&text),
                });
            }
            1 => {
                chunk.event(&name, text.as_bytes());
                expected.push(Event {
                    name: name
                        .chars()
                        .map(|char| if char.is_ascii_control() { '?' } else { char })
                        .collect(),
                    data: lines_joined(&text),
                });
            }
            2 => chunk.comment(&text),
            3 => name = text.into_owned(),
            _ => {
                chunk.close();
                chunk = Chunk::open(&mut out, framing);
            }
        }
    }
    chunk.close();
    end(&mut out, framing);
    (out, expected)
}

/// The lines of a text, by whatever they end.
fn lines_joined(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The data of chunks, which must be as few bytes around it as the grammar has, and end with the last byte.
///
/// # Panics
/// If they are not.
pub(crate) fn dechunked(bytes: &[u8]) -> Vec<u8> {
    let (mut data, mut rest) = (Vec::new(), bytes);
    loop {
        let line = rest.windows(2).position(|pair| pair == b"\r\n");
        let (size, behind) = rest.split_at(line.unwrap_or_else(|| panic!("no size at {}", rest.escape_ascii())));
        let size = std::str::from_utf8(size)
            .ok()
            .filter(|size| size.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.unwrap_or_else(|| panic!("no size at {}", rest.escape_ascii()));
        let (chunk, behind) = behind[2..].split_at(size);
        data.extend_from_slice(chunk);
        rest = behind
            .strip_prefix(b"\r\n")
            .unwrap_or_else(|| panic!("no end at {}", behind.escape_ascii()));
        if size == 0 {
            assert!(rest.is_empty(), "bytes behind the last chunk: {}", rest.escape_ascii());
            return data;
        }
    }
}

/// The events of a stream, read line by line as the standard has it.
///
/// # Panics
/// If it is not UTF-8, or ends within an event.
pub(crate) fn events(stream: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(stream).unwrap_or_else(|error| panic!("{error}"));
    let text = lines_joined(text);
    assert!(
        text.is_empty() || text.ends_with("\n\n"),
        "the stream ends within an event"
    );
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), String::new());
    for line in text.split('\n') {
        if line.is_empty() {
            if !data.is_empty() {
                data.pop();
                events.push(Event {
                    name: std::mem::take(&mut name),
                    data: std::mem::take(&mut data),
                });
            }
            name.clear();
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            // A comment.
            "" => {}
            "event" => value.clone_into(&mut name),
            "data" => {
                data += value;
                data.push('\n');
            }
            _ => panic!("a field that nobody wrote: {line:?}"),
        }
    }
    events
}
