//! A raw HTTP/1.1 client: it sends exactly the bytes it is given and reads replies strictly.
//!
//! Nothing here is lenient: a reply that breaks the rules is a panic with the bytes. Invariant: every read ends by
//! [`DEADLINE`], and no reply grows beyond [`LIMIT`].

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Instant,
};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::{sse, tcp, wait::DEADLINE};

/// Largest head or body that a test reads.
pub const LIMIT: usize = 16 << 20;

/// A reply.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Status line and header lines, as they came, with the empty line.
    pub head: String,
    /// The body, with its transfer coding taken off.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header, whose name is given in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap_or_else(|error| panic!("{error} in the body of {}", self.head))
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// The body as events.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn events(&self) -> Vec<sse::Event> {
        sse::events(&self.body)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines
        .filter(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .next()
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Received and not yet consumed.
    buffer: Vec<u8>,
    /// Of the reply whose body is being read piece by piece.
    framing: Option<Framing>,
    received: u64,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// If nobody listens.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// Connects, or says why not.
    ///
    /// # Errors
    /// If nobody listens.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&address, DEADLINE)?)
    }

    /// Connects over a link so narrow that a few replies fill all buffers of the kernel, on both sides: small segments, and
    /// a small window.
    ///
    /// # Panics
    /// If nobody listens.
    #[must_use]
    pub fn connect_narrow(address: SocketAddr) -> Self {
        let open = || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            // The server sizes its send buffer by the segments that it may send.
            socket.set_tcp_mss(536)?;
            socket.set_recv_buffer_size(4096)?;
            socket.connect_timeout(&address.into(), DEADLINE)?;
            Self::over(socket.into())
        };
        open().unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            framing: None,
            received: 0,
        })
    }

    /// Bytes that were read so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes of this connection that the kernel holds: sent by the server and not yet read here.
    ///
    /// # Panics
    /// If the connection is gone.
    #[must_use]
    pub fn in_the_kernel(&self) -> u64 {
        let port = |address: io::Result<SocketAddr>| address.unwrap_or_else(|error| panic!("{error}")).port();
        let (here, there) = (port(self.stream.local_addr()), port(self.stream.peer_addr()));
        tcp::queues(there, here).0 + tcp::queues(here, there).1
    }

    /// Whether the server broke the connection, whatever lies here unread. True only once: the system tells it once.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.stream.take_error().is_ok_and(|error| error.is_some())
    }

    /// Sends these bytes over and over without reading, from the place `at` on, until the connection takes no more for the
    /// moment; then `at` is where to go on.
    ///
    /// # Panics
    /// If the connection is broken already.
    pub fn flood(&mut self, bytes: &[u8], at: &mut usize) {
        let flooded = self.stream.set_nonblocking(true).and_then(|()| {
            loop {
                match self.stream.write(&bytes[*at..]) {
                    Ok(count) => *at = (*at + count) % bytes.len(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        });
        flooded.unwrap_or_else(|error| panic!("cannot flood: {error}"));
    }

    /// Sends these bytes and nothing else.
    ///
    /// # Panics
    /// If the connection does not take them.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes)
            .unwrap_or_else(|error| panic!("cannot send: {error}"));
    }

    /// Sends these bytes, or says why not: a server may close before it has read all.
    ///
    /// # Errors
    /// If the connection does not take them.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Whether bytes have come that were not read.
    ///
    /// # Panics
    /// If the socket cannot be asked.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        let blocking = |on: bool| {
            self.stream
                .set_nonblocking(!on)
                .unwrap_or_else(|error| panic!("cannot ask the socket: {error}"));
        };
        blocking(false);
        let found = self.stream.peek(&mut [0]).is_ok_and(|count| count > 0);
        blocking(true);
        found || !self.buffer.is_empty()
    }

    /// Says that no more bytes will come, and keeps on reading.
    ///
    /// # Panics
    /// If the connection is broken.
    pub fn finish(&mut self) {
        self.stream
            .shutdown(Shutdown::Write)
            .unwrap_or_else(|error| panic!("cannot shut down: {error}"));
    }

    /// Reads one whole reply.
    ///
    /// # Panics
    /// If it does not come, or breaks the rules.
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads one whole reply to a request of this method: one to HEAD has no body.
    ///
    /// # Panics
    /// If it does not come, or breaks the rules.
    pub fn response_to(&mut self, method: &str) -> Response {
        let mut response = self.head_of(method);
        while let Some(piece) = self.piece() {
            response.body.extend_from_slice(&piece);
            assert!(
                response.body.len() <= LIMIT,
                "the body of {} is too long",
                response.head
            );
        }
        response
    }

    /// Reads the head of a reply; the body is then read by [`Self::piece`].
    ///
    /// # Panics
    /// If it does not come, or breaks the rules.
    pub fn head(&mut self) -> Response {
        self.head_of("GET")
    }

    fn head_of(&mut self, method: &str) -> Response {
        let end = self.fill_until("a head", |buffer| position(buffer, b"\r\n\r\n").map(|at| at + 4));
        let bytes: Vec<u8> = self.buffer.drain(..end).collect();
        let head = String::from_utf8(bytes).unwrap_or_else(|error| panic!("a head is not UTF-8: {error}"));
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3))
            .and_then(|code| code.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no status line: {head:?}"));
        self.framing = framing(&head, status, method);
        Response {
            status,
            head,
            body: Vec::new(),
        }
    }

    /// Asks for a path and gives the status, or says what broke: for a server that may be about to close.
    ///
    /// # Errors
    /// If the connection ends first.
    ///
    /// # Panics
    /// If what comes is no head.
    pub fn try_get(&mut self, path: &str) -> io::Result<u16> {
        self.try_send(request_bytes("GET", path))?;
        while position(&self.buffer, b"\r\n\r\n").is_none() {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.response().status)
    }

    /// The next piece of the body, as it arrives; `None` at its end.
    ///
    /// # Panics
    /// If it does not come, or breaks the rules.
    pub fn piece(&mut self) -> Option<Vec<u8>> {
        match self.framing? {
            Framing::Length(0) => {
                self.framing = None;
                None
            }
            Framing::Length(left) => {
                self.fill_until("a body", |buffer| (!buffer.is_empty()).then_some(0));
                let piece: Vec<u8> = self.buffer.drain(..left.min(self.buffer.len())).collect();
                self.framing = Some(Framing::Length(left - piece.len()));
                Some(piece)
            }
            Framing::Chunked => self.chunk(),
            Framing::UntilClose => {
                if self.buffer.is_empty() && !self.fill().unwrap_or_else(|error| panic!("a body broke off: {error}")) {
                    self.framing = None;
                    return None;
                }
                Some(std::mem::take(&mut self.buffer))
            }
        }
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.fill_until("a chunk's size", |buffer| position(buffer, b"\r\n"));
        let size = std::str::from_utf8(&self.buffer[..line])
            .ok()
            .and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.unwrap_or_else(|| panic!("no chunk size: {:?}", String::from_utf8_lossy(&self.buffer[..line])));
        let (start, end) = (line + 2, line + 2 + size);
        assert!(size <= LIMIT, "a chunk of {size} bytes");
        self.fill_until("a chunk", |buffer| (buffer.len() >= end + 2).then_some(0));
        assert_eq!(
            &self.buffer[end..end + 2],
            b"\r\n",
            "a chunk does not end where it says"
        );
        let piece = self.buffer[start..end].to_vec();
        self.buffer.drain(..end + 2);
        if size == 0 {
            self.framing = None;
            return None;
        }
        Some(piece)
    }

    /// Reads events until `wanted` says yes; gives that one. The head must have been read.
    ///
    /// # Panics
    /// If the stream ends before.
    pub fn event(&mut self, mut wanted: impl FnMut(&sse::Event) -> bool) -> sse::Event {
        let mut parser = sse::Parser::default();
        while let Some(piece) = self.piece() {
            if let Some(event) = parser.feed(&piece).into_iter().find(&mut wanted) {
                return event;
            }
        }
        panic!("the stream ended without the event")
    }

    /// Whether the server has closed: true after FIN or reset with nothing unread.
    ///
    /// # Panics
    /// If bytes come instead, or neither within the deadline.
    pub fn is_closed(&mut self) -> bool {
        assert!(
            self.buffer.is_empty(),
            "unread: {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
        match self.fill() {
            Ok(true) => panic!("bytes instead of the end: {:?}", String::from_utf8_lossy(&self.buffer)),
            Ok(false) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// Reads until `found` is content with what is there.
    fn fill_until(&mut self, what: &str, mut found: impl FnMut(&[u8]) -> Option<usize>) -> usize {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = found(&self.buffer) {
                return at;
            }
            assert!(self.buffer.len() <= LIMIT + 64, "{what} is too long");
            let more = self.fill();
            let so_far = || {
                String::from_utf8_lossy(&self.buffer)
                    .chars()
                    .take(400)
                    .collect::<String>()
            };
            match more {
                Ok(true) => assert!(Instant::now() < end, "{what} takes too long; so far {:?}", so_far()),
                Ok(false) => panic!("closed before {what} was complete; so far {:?}", so_far()),
                Err(error) => panic!("{error} before {what} was complete; so far {:?}", so_far()),
            }
        }
    }

    /// Reads once; false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(DEADLINE))?;
        let mut bytes = [0; 16 << 10];
        let count = self.stream.read(&mut bytes)?;
        self.buffer.extend_from_slice(&bytes[..count]);
        self.received += count as u64;
        Ok(count > 0)
    }
}

fn framing(head: &str, status: u16, method: &str) -> Option<Framing> {
    let length = header(head, "content-length");
    let coding = header(head, "transfer-encoding");
    assert!(length.is_none() || coding.is_none(), "two framings: {head:?}");
    if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        return None;
    }
    match (length, coding) {
        (Some(length), _) => {
            let length = length.parse().unwrap_or_else(|_| panic!("content-length {length:?}"));
            assert!(length <= LIMIT, "a body of {length} bytes");
            Some(Framing::Length(length))
        }
        (None, Some(coding)) => {
            assert_eq!(coding, "chunked", "{head:?}");
            Some(Framing::Chunked)
        }
        (None, None) => Some(Framing::UntilClose),
    }
}

fn position(buffer: &[u8], needle: &[u8]) -> Option<usize> {
    buffer.windows(needle.len()).position(|window| window == needle)
}

/// A request with a JSON body, as bytes.
#[must_use]
pub fn post_bytes(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: zerohop\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A request without a body, as bytes.
#[must_use]
pub fn request_bytes(method: &str, path: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: zerohop\r\n\r\n").into_bytes()
}

/// Sends bytes on a new connection and reads the reply.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn exchange(address: SocketAddr, request: &[u8]) -> Response {
    let mut client = Client::connect(address);
    // The server may answer and close before it has taken all: the reply is what counts.
    client.try_send(request).ok();
    client.response()
}

/// GETs a path on a new connection.
///
/// # Panics
/// If there is no reply.
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> Response {
    exchange(address, &request_bytes("GET", path))
}

/// POSTs JSON on a new connection.
///
/// # Panics
/// If there is no reply.
#[must_use]
pub fn post(address: SocketAddr, path: &str, body: &Value) -> Response {
    exchange(address, &post_bytes(path, body.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_follows_the_head() {
        let head = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        for (lines, status, method, expected) in [
            ("content-length: 5\r\n", 200, "GET", Some(Framing::Length(5))),
            ("Content-Length: 5\r\n", 200, "HEAD", None),
            ("transfer-encoding: chunked\r\n", 200, "POST", Some(Framing::Chunked)),
            ("", 200, "GET", Some(Framing::UntilClose)),
            ("", 100, "GET", None),
            ("content-length: 0\r\n", 200, "GET", Some(Framing::Length(0))),
        ] {
            assert_eq!(
                framing(&head(lines), status, method),
                expected,
                "{lines:?} {status} {method}"
            );
        }
    }
}
