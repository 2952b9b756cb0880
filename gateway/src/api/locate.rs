//! Where and why a body is not JSON: a plain scan that only runs once the parser has refused it.
//!
//! Nothing here decides whether a body is valid; it only explains. Invariant: it ends within one pass over the body and
//! keeps at most [`MAX_DEPTH`] levels.

use super::{
    fault::{Fault, Path, What},
    tape::MAX_DEPTH,
};

/// The fault for a body that the parser refused at byte `parser_at`.
#[cold]
pub(crate) fn explain(body: &[u8], parser_at: usize, too_deep: bool) -> Fault {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Fault::at_root("is empty");
    }
    if too_deep {
        return Fault::at_root("is nested deeper than 128 levels");
    }
    let invalid = std::str::from_utf8(body).err().map(|error| error.valid_up_to());
    let mut scan = Scan {
        body: &body[..invalid.unwrap_or(body.len())],
        at: 0,
        stack: Vec::new(),
    };
    let found = scan.document().err();
    let path = scan.path();
    let what = match (found, invalid) {
        (Some(reason), None) => What::Syntax(reason, scan.at),
        // The scan stopped where the valid part ends, or the fault lies before it.
        (Some(reason), Some(end)) if scan.at < end && reason != UNTERMINATED => What::Syntax(reason, scan.at),
        (_, Some(end)) => What::Syntax("invalid UTF-8", end),
        (None, None) => What::Syntax(UNEXPLAINED, parser_at),
    };
    Fault { path, what }
}

/// Whether this text is a JSON object as the parser would take it.
pub(crate) fn is_object(text: &str) -> bool {
    let mut scan = Scan {
        body: text.as_bytes(),
        at: 0,
        stack: Vec::new(),
    };
    scan.peek() == Some(b'{') && scan.document().is_ok()
}

/// Said if the parser refuses what the scan accepts, which no test has seen.
pub(crate) const UNEXPLAINED: &str = "invalid syntax";
const UNTERMINATED: &str = "unterminated string";

/// A level that the scan is in.
enum Level<'a> {
    /// In an object, at the value of this key as written (empty: at a key).
    Object(&'a str),
    /// In an array, at this index.
    Array(usize),
}

struct Scan<'a> {
    body: &'a [u8],
    at: usize,
    stack: Vec<Level<'a>>,
}

impl<'a> Scan<'a> {
    fn path(&self) -> String {
        fn go(rest: &[Level<'_>], before: &Path<'_>) -> String {
            match rest {
                [] | [Level::Object(""), ..] => before.to_string(),
                [Level::Object(key), rest @ ..] => go(rest, &before.key(key)),
                [Level::Array(index), rest @ ..] => go(rest, &before.index(*index)),
            }
        }
        go(&self.stack, &Path::Root)
    }

    fn document(&mut self) -> Result<(), &'static str> {
        self.value_start()?;
        while let Some(level) = self.stack.last() {
            match level {
                Level::Object(_) => self.after_entry()?,
                Level::Array(_) => self.after_item()?,
            }
        }
        match self.peek() {
            None => Ok(()),
            Some(_) => Err("unexpected data after the end"),
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.body.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// A scalar as a whole, or a container up to and including its first value.
    fn value_start(&mut self) -> Result<(), &'static str> {
        loop {
            match self.peek().ok_or("unexpected end")? {
                b'"' => return self.string().map(|_| ()),
                b'-' | b'0'..=b'9' => return self.number(),
                b't' => return self.word(b"true"),
                b'f' => return self.word(b"false"),
                b'n' => return self.word(b"null"),
                b'{' => {
                    self.push(Level::Object(""))?;
                    if self.peek() == Some(b'}') {
                        return Ok(());
                    }
                    self.key()?;
                }
                b'[' => {
                    self.push(Level::Array(0))?;
                    if self.peek() == Some(b']') {
                        return Ok(());
                    }
                }
                _ => return Err("unexpected character"),
            }
        }
    }

    fn push(&mut self, level: Level<'a>) -> Result<(), &'static str> {
        if self.stack.len() == MAX_DEPTH {
            return Err("nested too deep");
        }
        self.stack.push(level);
        self.at += 1;
        Ok(())
    }

    fn after_entry(&mut self) -> Result<(), &'static str> {
        match self.peek().ok_or("unexpected end")? {
            b'}' => self.pop(),
            b',' => {
                self.at += 1;
                self.set(Level::Object(""));
                self.key()?;
                self.value_start()
            }
            _ => Err("expected a comma or a closing brace"),
        }
    }

    fn after_item(&mut self) -> Result<(), &'static str> {
        match self.peek().ok_or("unexpected end")? {
            b']' => self.pop(),
            b',' => {
                self.at += 1;
                if let Some(Level::Array(index)) = self.stack.last_mut() {
                    *index += 1;
                }
                self.value_start()
            }
            _ => Err("expected a comma or a closing bracket"),
        }
    }

    fn pop(&mut self) -> Result<(), &'static str> {
        self.at += 1;
        self.stack.pop();
        Ok(())
    }

    fn set(&mut self, level: Level<'a>) {
        if let Some(last) = self.stack.last_mut() {
            *last = level;
        }
    }

    fn key(&mut self) -> Result<(), &'static str> {
        match self.peek() {
            Some(b'"') => {}
            Some(_) => return Err("expected a string as key"),
            None => return Err("unexpected end"),
        }
        let key = self.string()?;
        self.set(Level::Object(key));
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(_) => return Err("expected a colon"),
            None => return Err("unexpected end"),
        }
        Ok(())
    }

    /// The string at hand, as written; on a fault `at` is on it.
    fn string(&mut self) -> Result<&'a str, &'static str> {
        let body = self.body;
        self.at += 1;
        let start = self.at;
        loop {
            match body.get(self.at) {
                None => return Err(UNTERMINATED),
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(0..=0x1F) => return Err("control character in a string"),
                Some(_) => self.at += 1,
            }
        }
        let text = std::str::from_utf8(&body[start..self.at]).unwrap_or_default();
        self.at += 1;
        Ok(text)
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        match self.body.get(self.at + 1) {
            None => Err(UNTERMINATED),
            Some(b'u') => match self.unit(self.at).ok_or("invalid escape")? {
                0xDC00..=0xDFFF => Err("lone surrogate"),
                0xD800..=0xDBFF => match self.unit(self.at + 6) {
                    Some(0xDC00..=0xDFFF) => {
                        self.at += 12;
                        Ok(())
                    }
                    _ => Err("lone surrogate"),
                },
                _ => {
                    self.at += 6;
                    Ok(())
                }
            },
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(_) => Err("invalid escape"),
        }
    }

    /// The UTF-16 unit of the `\uXXXX` at `at`.
    fn unit(&self, at: usize) -> Option<u16> {
        let digits = self.body.get(at..at + 6)?.strip_prefix(b"\\u")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    fn word(&mut self, word: &[u8]) -> Result<(), &'static str> {
        if !self.body[self.at..].starts_with(word) {
            return Err("unexpected character");
        }
        self.at += word.len();
        Ok(())
    }

    /// A number; on a fault `at` is on its first byte.
    fn number(&mut self) -> Result<(), &'static str> {
        let rest = &self.body[self.at..];
        let end = rest
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .unwrap_or(rest.len());
        let number = &rest[..end];
        if !is_number(number) {
            return Err("invalid number");
        }
        let value = std::str::from_utf8(number)
            .ok()
            .and_then(|number| number.parse::<f64>().ok());
        if !value.is_some_and(f64::is_finite) {
            return Err("number out of range");
        }
        self.at += end;
        Ok(())
    }
}

/// Whether this is `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`.
fn is_number(bytes: &[u8]) -> bool {
    fn digits(bytes: &[u8]) -> Option<&[u8]> {
        let end = bytes
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(bytes.len());
        (end > 0).then(|| &bytes[end..])
    }
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let rest = match bytes {
        [b'0', rest @ ..] => Some(rest),
        _ => digits(bytes),
    };
    let rest = match rest {
        Some([b'.', rest @ ..]) => digits(rest),
        rest => rest,
    };
    match rest {
        Some([b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..]) => digits(rest) == Some(&[]),
        rest => rest == Some(&[]),
    }
}
