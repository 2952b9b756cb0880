//! Server-sent events in HTTP chunks (WHATWG HTML, section 9.2; RFC 9112, section 7.1), written in place.
//!
//! Any number of events share one chunk, so what has come for a stream leaves in one piece. Nothing is sent here.
//! Invariants: a chunk is never empty (that would end the body), and no text given as data can begin a field or an
//! event of its own.

use memchr::memchr2;

use crate::put;

use super::write::StreamFraming;

/// Digits of a chunk size, with leading zeros: known in advance, so that the size can be filled in afterwards.
const SIZE_DIGITS: usize = 8;
const SIZE_LINE: usize = SIZE_DIGITS + 2;

/// A chunk that is being written. It is finished when it is closed or dropped.
#[derive(Debug)]
pub struct Chunk<'a> {
    out: &'a mut Vec<u8>,
    framing: StreamFraming,
    /// Where the chunk starts in `out`.
    start: usize,
    /// The body ends with this chunk.
    last: bool,
}

impl<'a> Chunk<'a> {
    /// Begins a chunk at the end of `out`.
    #[must_use]
    pub fn open(out: &'a mut Vec<u8>, framing: StreamFraming) -> Self {
        let start = out.len();
        if framing == StreamFraming::Chunked {
            out.extend_from_slice(&[b'0'; SIZE_DIGITS]);
            out.extend_from_slice(b"\r\n");
        }
        Self {
            out,
            framing,
            start,
            last: false,
        }
    }

    /// A named event.
    pub fn event(&mut self, name: &str, data: &[u8]) {
        self.event_with(name, |out| out.extend_from_slice(data));
    }

    /// A named event whose data `fill` appends in place.
    pub fn event_with(&mut self, name: &str, fill: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(b"event: ");
        put::header_value(self.out, name);
        self.out.push(b'\n');
        self.data_with(fill);
    }

    /// An event without a name.
    pub fn data(&mut self, data: &[u8]) {
        self.data_with(|out| out.extend_from_slice(data));
    }

    /// An event without a name whose data `fill` appends in place.
    pub fn data_with(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(b"data: ");
        let start = self.out.len();
        fill(self.out);
        if memchr2(b'\n', b'\r', &self.out[start..]).is_some() {
            split_lines(self.out, start);
        }
        self.out.extend_from_slice(b"\n\n");
    }

    /// A comment, which clients skip; it keeps a connection alive.
    pub fn comment(&mut self, text: &str) {
        self.out.extend_from_slice(b": ");
        put::header_value(self.out, text);
        self.out.extend_from_slice(b"\n\n");
    }

    /// Finishes the chunk; one without content leaves nothing behind.
    pub fn close(self) {}

    /// Finishes the chunk and the body.
    pub fn close_last(mut self) {
        self.last = true;
    }

    fn finish(&mut self) {
        match self.framing {
            StreamFraming::UntilClose => {}
            StreamFraming::NoBody => self.out.truncate(self.start),
            StreamFraming::Chunked => {
                let len = self.out.len() - self.start - SIZE_LINE;
                if len == 0 {
                    self.out.truncate(self.start);
                } else {
                    write_size(self.out, self.start, len);
                    self.out.extend_from_slice(b"\r\n");
                }
            }
        }
    }
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        self.finish();
        if self.last {
            end(self.out, self.framing);
        }
    }
}

/// Appends the end of the body. A stream that broke must not get it: close the connection instead, so that the client
/// can tell.
pub fn end(out: &mut Vec<u8>, framing: StreamFraming) {
    if framing == StreamFraming::Chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
}

/// Fills in the size of the chunk that starts at `start`.
fn write_size(out: &mut Vec<u8>, start: usize, mut len: usize) {
    if u32::try_from(len).is_err() {
        out.splice(start..start + SIZE_DIGITS, format!("{len:x}").into_bytes());
        return;
    }
    for digit in out[start..start + SIZE_DIGITS].iter_mut().rev() {
        *digit = put::HEX[len & 15];
        len >>= 4;
    }
}

/// Makes every line of the data that starts at `start` a `data` field of its own. CR LF, LF and CR all end a line.
#[cold]
fn split_lines(out: &mut Vec<u8>, start: usize) {
    let data = out.split_off(start);
    let mut rest = data.as_slice();
    while let Some(at) = memchr2(b'\n', b'\r', rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(b"\ndata: ");
        let behind = if rest[at..].starts_with(b"\r\n") {
            at + 2
        } else {
            at + 1
        };
        rest = &rest[behind..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests;
