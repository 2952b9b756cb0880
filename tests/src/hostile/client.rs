//! Plays one case: sends its bytes, reads whatever comes, and tells what it saw.
//!
//! The socket never blocks, so a server that answers before it has read all, or stops reading, is seen as it is.
//! Invariant: every play ends by [`DEADLINE`], and what the server sent is told in full: bytes that are no reply count
//! as one of status 0.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;
use socket2::SockRef;

use super::case::{Case, End, NEXT, Reply, Step};
use crate::{http::LIMIT, wait};

/// The body of the reply to [`NEXT`].
pub const NEXT_BODY: &[u8] = br#"{"status":"ready"}"#;
/// A case of more bytes than this is cut into as many pieces, not into single bytes.
const PIECES: usize = 2048;

/// How the bytes of a case reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each run of bytes in one piece, the next request right behind the last.
    Whole,
    /// Byte by byte, or in many pieces where there are many bytes.
    Pieces,
}

/// What a client saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The replies, but for that to [`NEXT`].
    pub replies: Vec<Reply>,
    /// The end.
    pub end: End,
    /// The last of the replies said that the connection ends.
    pub said_close: bool,
}

impl Seen {
    /// Whether this is what the case asks for.
    #[must_use]
    pub fn is(&self, case: &Case) -> bool {
        let wanted: Vec<&Reply> = case.replies().collect();
        self.end == case.end
            && wanted.len() == self.replies.len()
            && wanted
                .iter()
                .zip(&self.replies)
                .all(|(wanted, seen)| wanted.admits(seen))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.replies.iter().try_for_each(|reply| write!(f, "[{reply}] "))?;
        write!(f, "{}", self.end)
    }
}

/// Plays a case.
///
/// # Panics
/// If nobody listens, or the server neither answers nor ends the connection.
#[must_use]
pub fn play(case: &Case, address: SocketAddr, delivery: Delivery) -> Seen {
    let mut client = Client::connect(case, address);
    let last_send = case.steps.iter().rposition(|step| matches!(step, Step::Send(_)));
    let asks_next = case
        .steps
        .iter()
        .all(|step| matches!(step, Step::Send(_) | Step::Reply(_)));
    let mut awaited = 0;
    for (index, step) in case.steps.iter().enumerate() {
        match step {
            Step::Send(bytes) if asks_next && Some(index) == last_send => {
                client.send(&[bytes, NEXT.as_bytes()].concat(), delivery);
            }
            Step::Send(bytes) => client.send(bytes, delivery),
            Step::Drip(bytes) => client.drip(bytes),
            Step::Reply(_) => {
                awaited += 1;
                client.read_until("a reply", |client| client.replies.len() >= awaited || client.is_over());
            }
            Step::Finish => client.finish(),
            Step::Reset => return client.reset(),
        }
    }
    client.read_until("the end", Client::is_over);
    client.seen()
}

/// One play.
struct Client<'a> {
    case: &'a Case,
    stream: TcpStream,
    /// Received and not yet part of a reply.
    buffer: Vec<u8>,
    replies: Vec<Reply>,
    said_close: bool,
    /// The next request was answered.
    kept: bool,
    ended: Option<End>,
}

impl<'a> Client<'a> {
    fn connect(case: &'a Case, address: SocketAddr) -> Self {
        let open = || {
            let stream = TcpStream::connect_timeout(&address, wait::DEADLINE)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            io::Result::Ok(stream)
        };
        Self {
            case,
            stream: open().unwrap_or_else(|error| panic!("cannot connect to {address}: {error}")),
            buffer: Vec::new(),
            replies: Vec::new(),
            said_close: false,
            kept: false,
            ended: None,
        }
    }

    fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    fn seen(self) -> Seen {
        let end = self.ended.unwrap_or(End::Left);
        Seen {
            replies: self.replies,
            end: if self.kept { End::Keeps } else { end },
            said_close: self.said_close,
        }
    }

    fn send(&mut self, bytes: &[u8], delivery: Delivery) {
        let size = match delivery {
            Delivery::Whole => bytes.len(),
            Delivery::Pieces => bytes.len().div_ceil(PIECES),
        };
        for piece in bytes.chunks(size.max(1)) {
            let mut rest = piece;
            self.until("the server to take bytes", |client| {
                client.write(&mut rest);
                // A server that answers first must not be held up by us.
                if !rest.is_empty() {
                    client.read();
                }
                rest.is_empty() || client.is_over()
            });
        }
    }

    /// Each look of the wait sends one byte more.
    fn drip(&mut self, bytes: &[u8]) {
        let mut endless = bytes.iter().cycle();
        self.until("the end of a drip", |client| {
            let mut one = endless.next().map_or(&[][..], std::slice::from_ref);
            client.write(&mut one);
            client.read();
            client.is_over() || !client.replies.is_empty()
        });
    }

    fn finish(&mut self) {
        // A server that has closed already is told nothing.
        self.stream.shutdown(Shutdown::Write).ok();
    }

    fn reset(self) -> Seen {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap_or_else(|error| panic!("cannot linger: {error}"));
        self.seen()
    }

    fn read_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        self.until(what, |client| {
            client.read();
            done(client)
        });
    }

    fn until(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> bool) {
        let found = wait::find_within(wait::DEADLINE, || look(self).then_some(()));
        assert!(
            found.is_some(),
            "{}: {}: waited in vain for {what}; so far {:?} and {:?}",
            self.case.place,
            self.case.name,
            self.replies,
            String::from_utf8_lossy(&self.buffer)
        );
    }

    /// Sends what the socket takes of `rest`.
    fn write(&mut self, rest: &mut &[u8]) {
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => *rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Reading tells how it ended.
                Err(_) => *rest = &[],
            }
        }
    }

    /// Takes what has come.
    fn read(&mut self) {
        let mut bytes = [0; 16 << 10];
        while self.ended.is_none() {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.end(End::Closes),
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    self.take_replies(false);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.end(End::Resets),
            }
        }
    }

    fn end(&mut self, end: End) {
        self.take_replies(true);
        if !self.buffer.is_empty() {
            self.replies.push(Reply {
                text: Some(String::from_utf8_lossy(&self.buffer).chars().take(80).collect()),
                ..Reply::default()
            });
        }
        self.ended = Some(end);
    }

    fn take_replies(&mut self, at_end: bool) {
        assert!(self.buffer.len() <= LIMIT, "{}: a reply is too long", self.case.place);
        loop {
            let bodiless = self
                .case
                .replies()
                .nth(self.replies.len())
                .is_some_and(|reply| reply.bodiless);
            let Some(parsed) = parse(&self.buffer, bodiless, at_end) else {
                return;
            };
            self.buffer.drain(..parsed.len);
            self.said_close = parsed.close;
            if parsed.is_next && !self.kept {
                self.kept = true;
                // Whatever else comes now was asked for by nobody, and the end tells that nothing does.
                self.finish();
            } else {
                self.replies.push(parsed.reply);
            }
        }
    }
}

/// One reply in the bytes of a server.
struct Parsed {
    reply: Reply,
    len: usize,
    close: bool,
    is_next: bool,
}

/// The first reply, if it is complete.
fn parse(bytes: &[u8], bodiless: bool, at_end: bool) -> Option<Parsed> {
    let head_len = find(bytes, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_len]).ok()?;
    let status: u16 = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let field = |name: &str| {
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .next()
    };
    let rest = &bytes[head_len..];
    let (body, used) = if bodiless || status < 200 || status == 204 || status == 304 {
        (Vec::new(), 0)
    } else if let Some(length) = field("content-length") {
        let length: usize = length.parse().ok()?;
        (rest.get(..length)?.to_vec(), length)
    } else if field("transfer-encoding") == Some("chunked") {
        chunks(rest)?
    } else if at_end {
        (rest.to_vec(), rest.len())
    } else {
        return None;
    };
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |pointer: &str| json.pointer(pointer).and_then(Value::as_str).map(String::from);
    Some(Parsed {
        reply: Reply {
            status,
            kind: text("/error/type"),
            text: text("/error/message"),
            bodiless: false,
        },
        len: head_len + used,
        close: field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        is_next: body == NEXT_BODY,
    })
}

/// A chunked body, if it is complete, and how many bytes it took.
fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = find(&bytes[at..], b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).ok()?, 16).ok()?;
        let (start, end) = (at + line + 2, at + line + 2 + size);
        if bytes.len() < end + 2 {
            return None;
        }
        body.extend_from_slice(&bytes[start..end]);
        at = end + 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart() {
        let next = b"HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\n{\"status\":\"ready\"}HTTP/1.1 ";
        let error = b"HTTP/1.1 400 Bad\r\nConnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
                      29\r\n{\"error\":{\"type\":\"t\",\"message\":\"no use\"}}\r\n0\r\n\r\n";
        let parsed = parse(next, false, false).expect("a reply");
        assert!(parsed.is_next && !parsed.close && parsed.len == next.len() - 9);
        let parsed = parse(error, false, false).expect("a reply");
        assert_eq!(parsed.reply.to_string(), "400 t: no use");
        assert!(parsed.close && !parsed.is_next && parsed.len == error.len());
        for cut in [10, 60, error.len() - 1] {
            assert!(parse(&error[..cut], false, false).is_none(), "{cut}");
        }
        let until_close = b"HTTP/1.1 200 OK\r\n\r\nabc";
        assert!(parse(until_close, false, false).is_none());
        assert!(parse(until_close, false, true).is_some_and(|parsed| parsed.len == until_close.len()));
        assert!(parse(until_close, true, false).is_some_and(|parsed| parsed.len == until_close.len() - 3));
    }
}
