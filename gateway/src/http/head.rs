//! The head of a request: request line and header fields (RFC 9112, sections 2 to 7), read strictly.
//!
//! Nothing is copied: a [`Head`] holds positions in the bytes that it was read from. Nothing here answers or closes.
//! Invariant: a [`Head`] exists only for a request whose end every conforming server finds at the same byte; all else is
//! [`Parsed::Bad`], and after that the connection must be closed, since what follows cannot be told from an attack.

use std::mem::MaybeUninit;

use memchr::memchr_iter;

use super::CacheControl;
use crate::error::{ApiError, ErrorKind};

mod target;

use target::{Target, is_host};

/// More header fields than this are refused.
pub const MAX_HEADERS: usize = 100;
/// So many empty lines before a request line are skipped (RFC 9112, section 2.2), for clients that end a body with one.
const MAX_BLANK_LINES: u8 = 2;

/// What is asked for, as far as any route of ours tells methods apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `OPTIONS`
    Options,
    /// Any other; no route has it.
    Other,
}

impl Method {
    /// Method names are case-sensitive: `get` is another method.
    fn named(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }
}

/// The protocol version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// How the body's end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body.
    None,
    /// This many bytes; a number too large for the type is its maximum.
    Length(u64),
    /// Chunks, until one of size 0 and the trailer section.
    Chunked,
}

/// The header fields whose values the gateway reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// `host`, or the authority of a target in absolute form, which replaces it (RFC 9112, section 3.2.2).
    Host,
    /// `content-type`
    ContentType,
    /// `authorization`
    Authorization,
    /// `x-api-key`
    ApiKey,
    /// `anthropic-version`
    AnthropicVersion,
    /// `x-request-id`: the client's own id.
    RequestId,
    /// `x-client-request-id`: the client's own id, as the OpenAI SDKs send it.
    ClientRequestId,
    /// `traceparent`
    Traceparent,
}

const FIELDS: usize = Field::Traceparent as usize + 1;

/// A header that is looked at, by its name.
#[derive(Debug, Clone, Copy)]
enum Known {
    ContentLength,
    TransferEncoding,
    Connection,
    Expect,
    ContentEncoding,
    CacheControl,
    /// The first value counts.
    First(Field),
    /// A second one is refused, since two servers could choose differently.
    Single(Field, &'static str),
}

/// By length first: most headers are none of these, and their length says so.
fn known(name: &str) -> Option<Known> {
    let candidates: &[(&str, Known)] = match name.len() {
        4 => &[("host", Known::Single(Field::Host, "more than one host header"))],
        6 => &[("expect", Known::Expect)],
        9 => &[(
            "x-api-key",
            Known::Single(Field::ApiKey, "more than one x-api-key header"),
        )],
        10 => &[("connection", Known::Connection)],
        11 => &[("traceparent", Known::First(Field::Traceparent))],
        12 => &[
            ("content-type", Known::First(Field::ContentType)),
            ("x-request-id", Known::First(Field::RequestId)),
        ],
        13 => &[
            (
                "authorization",
                Known::Single(Field::Authorization, "more than one authorization header"),
            ),
            ("cache-control", Known::CacheControl),
        ],
        14 => &[("content-length", Known::ContentLength)],
        16 => &[("content-encoding", Known::ContentEncoding)],
        17 => &[
            ("transfer-encoding", Known::TransferEncoding),
            ("anthropic-version", Known::First(Field::AnthropicVersion)),
        ],
        19 => &[("x-client-request-id", Known::First(Field::ClientRequestId))],
        _ => &[],
    };
    candidates
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|&(_, known)| known)
}

/// A place in the bytes that a head was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Where `part`, a piece of `whole`, lies in it.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        // A head is never so long that this saturates; if it were, the text would be read as empty.
        let narrow = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: narrow(start),
            end: narrow(start + part.len()),
        }
    }

    fn bytes(self, whole: &[u8]) -> &[u8] {
        whole.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// A request head that is complete and acceptable. Its texts are read with the bytes that it was read from (or a copy
/// that starts at the same byte).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What is asked for.
    pub method: Method,
    /// The client's protocol version.
    pub version: Version,
    /// Whether the client would go on with this connection after the reply.
    pub keep_alive: bool,
    /// Where the body ends.
    pub framing: Framing,
    /// The client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// What it says about stored answers.
    pub cache_control: CacheControl,
    /// Length of the head in bytes, skipped empty lines included; the body starts here.
    pub len: usize,
    method_name: Span,
    path: Span,
    query: Option<Span>,
    fields: [Option<Span>; FIELDS],
}

impl Head {
    /// The method as it was written.
    #[must_use]
    pub fn method_name<'b>(&self, bytes: &'b [u8]) -> &'b str {
        text(self.method_name.bytes(bytes)).unwrap_or_default()
    }

    /// The path: it starts with `/`, consists of visible ASCII and is not decoded. With OPTIONS it may be `*`.
    #[must_use]
    pub fn path<'b>(&self, bytes: &'b [u8]) -> &'b str {
        text(self.path.bytes(bytes)).unwrap_or_default()
    }

    /// What follows the first `?`, if there is one; visible ASCII, not decoded.
    #[must_use]
    pub fn query<'b>(&self, bytes: &'b [u8]) -> Option<&'b str> {
        text(self.query?.bytes(bytes))
    }

    /// The value of a header without the white space around it; it may hold bytes above 127, but no control bytes other
    /// than tab.
    #[must_use]
    pub fn field<'b>(&self, bytes: &'b [u8], field: Field) -> Option<&'b [u8]> {
        Some(self.fields[field as usize]?.bytes(bytes))
    }

    /// The same as text; `None` also where it is not UTF-8.
    #[must_use]
    pub fn field_text<'b>(&self, bytes: &'b [u8], field: Field) -> Option<&'b str> {
        text(self.field(bytes, field)?)
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// What is known of a request after some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// The head goes on.
    Incomplete,
    /// The head, `Head::len` bytes of the input.
    Complete(Head),
    /// The bytes are no acceptable request: answer with this and close, reading nothing more.
    Bad(ApiError),
}

/// Reads the heads of one connection, one after the other. It remembers how far it has looked, so that a head which
/// comes byte by byte costs no more than one that comes whole.
#[derive(Debug, Clone, Default)]
pub struct HeadReader {
    /// All before this was looked at.
    scanned: usize,
    /// Where the line that is being looked at starts.
    line_start: usize,
    /// Lines so far, empty ones before the request line not counted.
    lines: usize,
    blank_lines: u8,
}

impl HeadReader {
    /// Reads on. `bytes` starts where the request starts and holds what the last call was given, then more; a head of
    /// more than `max_bytes` (which may change between calls) is refused. After [`Parsed::Complete`] the next call begins a new request.
    pub fn read(&mut self, bytes: &[u8], max_bytes: usize) -> Parsed {
        match self.scan(&bytes[..bytes.len().min(max_bytes)]) {
            Ok(Some(end)) => {
                *self = Self::default();
                parse(&bytes[..end]).map_or_else(Parsed::Bad, Parsed::Complete)
            }
            Ok(None) if bytes.len() >= max_bytes => Parsed::Bad(ApiError::new(
                ErrorKind::HeaderTooLarge,
                format!("the request head is longer than {max_bytes} bytes"),
            )),
            Ok(None) => Parsed::Incomplete,
            Err(error) => Parsed::Bad(error),
        }
    }

    /// Looks for the empty line that ends the head; the end if it is there.
    fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, ApiError> {
        self.check_line_start(bytes)?;
        let seen = self.scanned.min(bytes.len());
        for newline in memchr_iter(b'\n', &bytes[seen..]) {
            let at = seen + newline;
            let line_start = self.line_start;
            if at == line_start || bytes[at - 1] != b'\r' {
                return Err(bad("a line of the request head ends in a bare LF"));
            }
            self.line_start = at + 1;
            if at - 1 == line_start {
                if self.lines > 0 {
                    return Ok(Some(at + 1));
                }
                self.blank_lines += 1;
                if self.blank_lines > MAX_BLANK_LINES {
                    return Err(bad("there are empty lines where a request should start"));
                }
            } else {
                self.lines += 1;
                if self.lines > MAX_HEADERS + 1 {
                    return Err(ApiError::new(
                        ErrorKind::HeaderTooLarge,
                        format!("the request has more than {MAX_HEADERS} header fields"),
                    ));
                }
            }
            self.check_line_start(bytes)?;
        }
        self.scanned = bytes.len();
        Ok(None)
    }

    /// Refuses at its first byte what cannot become a request, so that a TLS client on a plain port or a stream of
    /// rubbish is not waited for.
    fn check_line_start(&self, bytes: &[u8]) -> Result<(), ApiError> {
        match (bytes.get(self.line_start), self.lines) {
            (Some(0x16), 0) => Err(bad("this looks like TLS; this port speaks plain HTTP")),
            (Some(byte), 0) if !byte.is_ascii_alphabetic() && !matches!(byte, b'\r' | b'\n') => {
                Err(bad("this is not an HTTP request"))
            }
            (Some(b' ' | b'\t'), _) => Err(bad("a header field is folded over two lines")),
            _ => Ok(()),
        }
    }
}

fn bad(message: &'static str) -> ApiError {
    ApiError::new(ErrorKind::BadHttp, message)
}

/// Reads a head that is known to end with `bytes`, and whose lines are known to end in CR LF.
fn parse(bytes: &[u8]) -> Result<Head, ApiError> {
    let mut storage = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut storage) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Ok(_) => return Err(bad("the request head is malformed")),
        Err(error) => return Err(refusal(error)),
    }
    let (Some(name), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(bad("the request line is malformed"));
    };
    let target = Target::parse(name, target)?;
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let mut gathered = Gathered::default();
    for header in request.headers.iter() {
        gathered.add(bytes, header)?;
    }
    let framing = gathered.framing(version)?;
    gathered.check_host(bytes, version)?;
    if let Some(authority) = target.authority {
        gathered.fields[Field::Host as usize] = Some(Span::of(authority.as_bytes(), bytes));
    }
    Ok(Head {
        method: Method::named(name),
        version,
        keep_alive: !gathered.close && (version == Version::Http11 || gathered.keep_alive),
        framing,
        expect_continue: gathered.expect_continue(version)?,
        cache_control: gathered.cache_control,
        len: bytes.len(),
        method_name: Span::of(name.as_bytes(), bytes),
        path: Span::of(target.path.as_bytes(), bytes),
        query: target.query.map(|query| Span::of(query.as_bytes(), bytes)),
        fields: gathered.fields,
    })
}

fn refusal(error: httparse::Error) -> ApiError {
    bad(match error {
        httparse::Error::HeaderName => "the name of a header field is malformed",
        httparse::Error::HeaderValue => "the value of a header field holds a control character",
        httparse::Error::NewLine => "a line of the request head does not end in CR LF",
        httparse::Error::Version => "the protocol version is not HTTP/1.0 or HTTP/1.1",
        httparse::Error::TooManyHeaders => "the request has too many header fields",
        httparse::Error::Token | httparse::Error::Status => "the request line is malformed",
    })
}

/// What the header fields of one request say.
#[derive(Default)]
struct Gathered {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects: bool,
    expects_other: bool,
    cache_control: CacheControl,
    fields: [Option<Span>; FIELDS],
}

impl Gathered {
    fn add(&mut self, bytes: &[u8], header: &httparse::Header<'_>) -> Result<(), ApiError> {
        let value = header.value;
        match known(header.name) {
            Some(Known::First(field)) => {
                self.fields[field as usize].get_or_insert(Span::of(value, bytes));
            }
            Some(Known::Single(field, refusal)) => {
                let before = self.fields[field as usize].replace(Span::of(value, bytes));
                if before.is_some() {
                    return Err(bad(refusal));
                }
            }
            Some(Known::ContentLength) => {
                let before = self.length.replace(content_length(value)?);
                check_blanks(bytes, header)?;
                if before.is_some() {
                    return Err(bad("more than one content-length"));
                }
            }
            Some(Known::TransferEncoding) => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(bad("the only transfer-encoding supported is a single `chunked`"));
                }
                check_blanks(bytes, header)?;
                self.chunked = true;
            }
            Some(Known::Connection) => {
                for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            Some(Known::Expect) if value.eq_ignore_ascii_case(b"100-continue") => self.expects = true,
            Some(Known::Expect) => self.expects_other = true,
            Some(Known::ContentEncoding) => check_content_encoding(value)?,
            Some(Known::CacheControl) => self.cache_control.add(value),
            None => {}
        }
        Ok(())
    }

    fn framing(&self, version: Version) -> Result<Framing, ApiError> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(bad("content-length and transfer-encoding stand in one request")),
            (true, None) if version == Version::Http10 => Err(bad("HTTP/1.0 has no transfer-encoding")),
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::None),
        }
    }

    fn check_host(&self, bytes: &[u8], version: Version) -> Result<(), ApiError> {
        match self.fields[Field::Host as usize] {
            Some(host) if host.start == host.end || is_host(host.bytes(bytes)) => Ok(()),
            Some(_) => Err(bad("the host header is malformed")),
            None if version == Version::Http11 => Err(bad("an HTTP/1.1 request needs a host header")),
            None => Ok(()),
        }
    }

    /// HTTP/1.0 has no expectations: they are ignored there (RFC 9110, section 10.1.1).
    fn expect_continue(&self, version: Version) -> Result<bool, ApiError> {
        match version {
            Version::Http10 => Ok(false),
            Version::Http11 if self.expects_other => Err(bad("the only expectation supported is `100-continue`")),
            Version::Http11 => Ok(self.expects),
        }
    }
}

/// Decimal digits and nothing else; what is too large for the type is its maximum, and so above any limit.
fn content_length(value: &[u8]) -> Result<u64, ApiError> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(bad("content-length is not a decimal number"));
    }
    Ok(value.iter().fold(0, |length: u64, digit| {
        length.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    }))
}

/// No tab stands around the value. It is white space too (RFC 9110, section 5.6.3), but servers forget it and see another
/// value, and such values say where a body ends.
fn check_blanks(bytes: &[u8], header: &httparse::Header<'_>) -> Result<(), ApiError> {
    let (name, value) = (Span::of(header.name.as_bytes(), bytes), Span::of(header.value, bytes));
    let before = bytes.get(name.end as usize..value.start as usize).unwrap_or_default();
    let behind = bytes.get(value.end as usize..).unwrap_or_default();
    let mut around = before.iter().chain(behind.iter().take_while(|&&byte| byte != b'\r'));
    if around.any(|&byte| byte == b'\t') {
        return Err(bad("a tab stands beside the length or coding of the body"));
    }
    Ok(())
}

fn check_content_encoding(value: &[u8]) -> Result<(), ApiError> {
    if value.eq_ignore_ascii_case(b"identity") {
        return Ok(());
    }
    const SHOWN: usize = 32;
    let shown = String::from_utf8_lossy(&value[..value.len().min(SHOWN)]);
    Err(ApiError::new(
        ErrorKind::InvalidRequest,
        format!("content-encoding `{shown}` is not supported for requests; send the body unencoded"),
    ))
}

#[cfg(test)]
mod tests;
