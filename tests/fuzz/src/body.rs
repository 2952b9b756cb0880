//! Bodies of a fixed length and chunked ones: whole against every cut, and chunks against a reading by lines (RFC 9112,
//! section 7.1).
//!
//! Invariant: no byte behind a body is consumed, nothing beyond the limit is kept, and the data is the oracle's.

use zerohop::http::{BodyReader, Framing, body};

use crate::{Cuts, same};

/// What came of a body.
#[derive(Debug, PartialEq)]
enum Outcome {
    Done { data: Vec<u8>, consumed: usize },
    More { data: Vec<u8> },
    Refused(u16),
}

/// The first byte chooses the limit, the second the length.
pub(crate) fn check_fixed(data: &[u8]) {
    let [limit, length, input @ ..] = data else { return };
    let max = u64::from(*limit);
    let framing = match length {
        0 => Framing::None,
        255 => Framing::Length(u64::MAX),
        length => Framing::Length(u64::from(*length) - 1),
    };
    let whole = cut_everywhere(framing, max, input, data);
    let length = match framing {
        Framing::Length(length) => length,
        Framing::None | Framing::Chunked => 0,
    };
    let needed = usize::try_from(length).unwrap_or(usize::MAX);
    let expected = if length > max {
        Outcome::Refused(413)
    } else if input.len() < needed {
        Outcome::More { data: input.to_vec() }
    } else {
        Outcome::Done {
            data: input[..needed].to_vec(),
            consumed: needed,
        }
    };
    same("body", &whole, &expected, input);
    let in_place = body::in_place(framing, input, max).map(<[u8]>::to_vec);
    let gathered = match whole {
        Outcome::Done { data, .. } => Some(data),
        Outcome::More { .. } | Outcome::Refused(_) => None,
    };
    same("in place", &in_place, &gathered, input);
}

/// The first byte chooses the limit.
pub(crate) fn check_chunked(data: &[u8]) {
    let Some((&limit, input)) = data.split_first() else {
        return;
    };
    let max = u64::from(limit) * 8;
    let whole = cut_everywhere(Framing::Chunked, max, input, data);
    match (slow(input, max), &whole) {
        (Slow::Done { data, consumed }, _) => same("chunks", &whole, &Outcome::Done { data, consumed }, input),
        (Slow::Refused, Outcome::Refused(_)) | (Slow::More, Outcome::More { .. } | Outcome::Refused(_)) => {}
        (slow, _) => same("chunks", &format!("{whole:?}"), &format!("{slow:?}"), input),
    }
}

/// Feeds the input whole, byte by byte and in pieces; all must give the same.
fn cut_everywhere(framing: Framing, max: u64, input: &[u8], seed: &[u8]) -> Outcome {
    let whole = fed(framing, max, input, || usize::MAX);
    same("byte by byte", &fed(framing, max, input, || 1), &whole, input);
    for round in 0..2 {
        let mut cuts = Cuts::of(seed, round);
        same("cut", &fed(framing, max, input, || cuts.next(9)), &whole, input);
    }
    whole
}

fn fed(framing: Framing, max: u64, input: &[u8], mut size: impl FnMut() -> usize) -> Outcome {
    let mut reader = match BodyReader::new(framing, max) {
        Ok(reader) => reader,
        Err(error) => return Outcome::Refused(error.status()),
    };
    let (mut data, mut at) = (Vec::new(), 0_usize);
    loop {
        let end = at.saturating_add(size()).min(input.len());
        match reader.feed(&input[at..end], &mut data) {
            Err(error) => return Outcome::Refused(error.status()),
            Ok(fed) => {
                assert!(fed.consumed <= end - at, "more was consumed than given");
                assert!(data.len() as u64 <= max, "more was kept than the limit");
                at += fed.consumed;
                if fed.done {
                    return Outcome::Done { data, consumed: at };
                }
                assert_eq!(at, end, "bytes were left over within a body");
                if at == input.len() {
                    return Outcome::More { data };
                }
            }
        }
    }
}

/// What the plain reading makes of chunks.
#[derive(Debug)]
enum Slow {
    Done {
        data: Vec<u8>,
        consumed: usize,
    },
    /// The bytes end within a line or a chunk; whether what there is of it is good is not looked at.
    More,
    Refused,
}

fn slow(input: &[u8], max: u64) -> Slow {
    let (mut data, mut at, mut extensions) = (Vec::new(), 0, 0);
    loop {
        let Some(line) = line(input, at) else { return Slow::More };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        let size = std::str::from_utf8(size).ok().filter(|size| size.len() <= 16);
        let Some(size) = size.and_then(|size| u64::from_str_radix(size, 16).ok()) else {
            return Slow::Refused;
        };
        extensions += extension.len();
        if size > max - data.len() as u64 || extensions > 4096 || !is_extension(extension) {
            return Slow::Refused;
        }
        at += line.len() + 2;
        if size == 0 {
            return trailers(input, at, data);
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some(chunk) = input.get(at..at + size) else {
            return Slow::More;
        };
        data.extend_from_slice(chunk);
        at += size;
        match input.get(at..) {
            Some([b'\r', b'\n', ..]) => at += 2,
            Some([] | [b'\r']) => return Slow::More,
            _ => return Slow::Refused,
        }
    }
}

fn trailers(input: &[u8], start: usize, data: Vec<u8>) -> Slow {
    let mut at = start;
    loop {
        let Some(line) = line(input, at) else { return Slow::More };
        at += line.len() + 2;
        if line.is_empty() {
            return Slow::Done { data, consumed: at };
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
        let (name, value) = line.split_at(colon);
        let good = name.iter().all(|&byte| is_token(byte)) && value.iter().all(|&byte| is_text(byte));
        if name.is_empty() || !good || at - start > 8192 {
            return Slow::Refused;
        }
    }
}

/// The line at `at`, up to the first CR or LF; `None` if that has not come. It is refused by who reads it unless that is CR LF:
/// then it is given with what is wrong, which no grammar takes.
fn line(input: &[u8], at: usize) -> Option<&[u8]> {
    let rest = &input[at..];
    let end = rest.iter().position(|&byte| byte == b'\r' || byte == b'\n')?;
    match rest[end..] {
        [b'\r', b'\n', ..] => Some(&rest[..end]),
        [b'\r'] => None,
        _ => Some(&rest[..=end]),
    }
}

/// `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )`
fn is_extension(text: &[u8]) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let Some(behind) = skip_blanks(rest).strip_prefix(b";") else {
            return false;
        };
        let Some(behind) = skip_token(skip_blanks(behind)) else {
            return false;
        };
        rest = behind;
        if let Some(value) = skip_blanks(rest).strip_prefix(b"=") {
            let value = skip_blanks(value);
            let Some(behind) = skip_token(value).or_else(|| skip_quoted(value)) else {
                return false;
            };
            rest = behind;
        }
    }
    true
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[count..]
}

fn skip_token(text: &[u8]) -> Option<&[u8]> {
    let count = text.iter().take_while(|&&byte| is_token(byte)).count();
    (count > 0).then(|| &text[count..])
}

fn skip_quoted(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"\"")?;
    loop {
        rest = match rest {
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', escaped, behind @ ..] if is_text(*escaped) => behind,
            [byte, behind @ ..] if *byte != b'\\' && is_text(*byte) => behind,
            _ => return None,
        };
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
