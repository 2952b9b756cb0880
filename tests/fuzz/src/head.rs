//! Request heads: whole against every cut, and against a reading by lines and words (RFC 9112, sections 2 to 6).
//!
//! Invariant: a head is taken if and only if the slow reading takes it, and then both mean the same.

use std::net::Ipv6Addr;

use zerohop::http::{Field, Framing, HeadReader, Parsed, Version};

use crate::{Cuts, same};

/// What a head says, in words.
#[derive(Debug, PartialEq)]
struct Meaning {
    method: String,
    path: String,
    query: Option<String>,
    old: bool,
    keep_alive: bool,
    framing: Framing,
    expects: bool,
    host: Option<Vec<u8>>,
    len: usize,
}

/// The first byte chooses the limit.
pub(crate) fn check(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else {
        return;
    };
    let max = [64, 256, 4096][usize::from(first % 3)];
    let whole = HeadReader::default().read(bytes, max);
    for round in 0..3 {
        let mut cuts = Cuts::of(data, round);
        let mut reader = HeadReader::default();
        let (mut end, mut parsed) = (0, Parsed::Incomplete);
        while parsed == Parsed::Incomplete && end < bytes.len() {
            end = (end + if round == 0 { 1 } else { cuts.next(40) }).min(bytes.len());
            parsed = reader.read(&bytes[..end], max);
        }
        same("cut", &parsed, &whole, bytes);
    }
    let end = end_of(&bytes[..bytes.len().min(max)]);
    let expected = end.map(|end| slow(&bytes[..end]));
    match (whole, expected) {
        (Parsed::Incomplete, None) => assert!(bytes.len() < max, "a head above the limit is waited for"),
        (Parsed::Bad(_), None | Some(None)) => {}
        (Parsed::Complete(head), Some(Some(expected))) => {
            let ours = Meaning {
                method: head.method_name(bytes).to_owned(),
                path: head.path(bytes).to_owned(),
                query: head.query(bytes).map(String::from),
                old: head.version == Version::Http10,
                keep_alive: head.keep_alive,
                framing: head.framing,
                expects: head.expect_continue,
                host: head.field(bytes, Field::Host).map(<[u8]>::to_vec),
                len: head.len,
            };
            same("meaning", &ours, &expected, bytes);
        }
        (whole, expected) => same("outcome", &format!("{whole:?}"), &format!("{expected:?}"), bytes),
    }
}

/// Where the head ends, if it does: behind up to two empty lines, at the next one.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    while bytes[start..].starts_with(b"\r\n") && start < 4 {
        start += 2;
    }
    let end = bytes[start..].windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(start + end + 4)
}

/// `None`: this is to be refused.
fn slow(bytes: &[u8]) -> Option<Meaning> {
    // Every byte is a character of its own.
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    let mut lines: Vec<&str> = text.split("\r\n").collect();
    let blank = lines.iter().take(2).take_while(|line| line.is_empty()).count();
    lines.drain(..blank);
    lines.truncate(lines.len().checked_sub(2)?);
    let (request, fields) = lines.split_first()?;
    if fields.len() > 100 || lines.iter().any(|line| line.contains(['\r', '\n'])) {
        return None;
    }
    let words: Vec<&str> = request.split(' ').collect();
    let [method, target, version] = words.as_slice() else {
        return None;
    };
    if !is_token(method) || !method.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    let old = match *version {
        "HTTP/1.0" => true,
        "HTTP/1.1" => false,
        _ => return None,
    };
    let fields: Vec<(String, &str)> = fields.iter().map(|line| field(line)).collect::<Option<_>>()?;
    let named = |name: &str| {
        fields
            .iter()
            .filter(|(known, _)| known == name)
            .map(|&(_, raw)| raw)
            .collect::<Vec<_>>()
    };
    if ["host", "x-api-key", "authorization"]
        .iter()
        .any(|name| named(name).len() > 1)
    {
        return None;
    }
    let host = named("host").first().map(|raw| trimmed(raw));
    match host {
        Some(host) if !host.is_empty() && !is_host(host) => return None,
        None if !old => return None,
        _ => {}
    }
    let (path, query, authority) = taken_apart(method, target)?;
    let options: Vec<String> = named("connection")
        .iter()
        .flat_map(|raw| raw.split(','))
        .map(option)
        .collect();
    let has = |wanted: &str| options.iter().any(|option| option == wanted);
    let expects = named("expect");
    let all_known = expects
        .iter()
        .all(|raw| trimmed(raw).eq_ignore_ascii_case("100-continue"));
    if !old && !all_known {
        return None;
    }
    if named("content-encoding")
        .iter()
        .any(|raw| !trimmed(raw).eq_ignore_ascii_case("identity"))
    {
        return None;
    }
    Some(Meaning {
        method: (*method).to_owned(),
        path,
        query,
        old,
        keep_alive: !has("close") && (!old || has("keep-alive")),
        framing: framing(&named("content-length"), &named("transfer-encoding"), old)?,
        expects: !old && !expects.is_empty(),
        host: authority
            .as_deref()
            .or(host)
            .map(|host| host.chars().map(|char| char as u8).collect()),
        len: bytes.len(),
    })
}

/// Name in lower case, and what stands behind the colon.
fn field(line: &str) -> Option<(String, &str)> {
    let (name, raw) = line.split_once(':')?;
    let good = |char: char| char == '\t' || (!char.is_ascii_control() && char != '\x7f');
    (is_token(name) && raw.chars().all(good)).then(|| (name.to_ascii_lowercase(), raw))
}

fn trimmed(raw: &str) -> &str {
    raw.trim_matches([' ', '\t'])
}

fn option(raw: &str) -> String {
    trimmed(raw).to_ascii_lowercase()
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char))
}

fn framing(lengths: &[&str], codings: &[&str], old: bool) -> Option<Framing> {
    let plain = |raw: &str| !raw.contains('\t');
    match (lengths, codings) {
        ([], []) => Some(Framing::None),
        ([raw], []) if plain(raw) => {
            let digits = trimmed(raw);
            if digits.is_empty() || !digits.chars().all(|char| char.is_ascii_digit()) {
                return None;
            }
            // Too many digits for the type are the largest length.
            Some(Framing::Length(digits.parse().unwrap_or(u64::MAX)))
        }
        ([], [raw]) if plain(raw) && !old && trimmed(raw).eq_ignore_ascii_case("chunked") => Some(Framing::Chunked),
        _ => None,
    }
}

/// Path, query and authority of a target.
fn taken_apart(method: &str, target: &str) -> Option<(String, Option<String>, Option<String>)> {
    let visible = target.chars().all(|char| char.is_ascii_graphic() && char != '#');
    if method == "CONNECT" || !visible || target.is_empty() {
        return None;
    }
    let split = |text: &str| match text.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (text.to_owned(), None),
    };
    if target.starts_with('/') || (method == "OPTIONS" && target == "*") {
        let (path, query) = split(target);
        return Some((path, query, None));
    }
    let (scheme, rest) = target.split_once("://")?;
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return None;
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    if !is_host(authority) {
        return None;
    }
    let (path, query) = split(rest);
    let path = if path.is_empty() { String::from("/") } else { path };
    Some((path, query, Some(authority.to_owned())))
}

/// A name or an address in brackets, and perhaps a port.
fn is_host(text: &str) -> bool {
    let (host, port) = if text.starts_with('[') {
        let Some((host, port)) = text.split_once(']') else {
            return false;
        };
        let (address, zone) = host[1..].split_once("%25").unwrap_or((&host[1..], "z"));
        if address.parse::<Ipv6Addr>().is_err() {
            return false;
        }
        (zone, port)
    } else {
        text.find(':').map_or((text, ""), |at| text.split_at(at))
    };
    let good_port = port.is_empty() || {
        let digits = port.strip_prefix(':').unwrap_or("x");
        let number = digits.trim_start_matches('0');
        digits.chars().all(|char| char.is_ascii_digit()) && (number.is_empty() || number.parse::<u16>().is_ok())
    };
    good_port && !host.is_empty() && is_name(host)
}

fn is_name(host: &str) -> bool {
    let mut pieces = host.split('%');
    let plain = |text: &str| {
        text.chars()
            .all(|char| char.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(char))
    };
    let hex = |text: &str| text.len() >= 2 && text.chars().take(2).all(|char| char.is_ascii_hexdigit());
    pieces.next().is_some_and(plain) && pieces.all(|piece| hex(piece) && plain(piece))
}
