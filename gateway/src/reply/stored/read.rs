//! The stored form, read where it lies.
//!
//! No general parser: the order is fixed, and lengths stand before long texts. Invariant: what is read is what a
//! recorder can have written, so every span is sound JSON text and every piece of it by itself; other bytes are
//! [`Damaged`].

use zerohop_engine::{Finish, Usage};

use super::{MAX_BYTES, MAX_PIECES};
use crate::json::first_special;

/// The bytes are no stored form of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored answer is damaged, or of another version")]
pub struct Damaged;

/// An escaped text and the pieces in which a stream told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span<'a> {
    pub(super) text: &'a str,
    /// Lengths of the pieces, as digits and commas.
    cuts: &'a str,
}

impl<'a> Span<'a> {
    /// The pieces, in order; all of them together are the text.
    pub(super) fn pieces(self) -> impl Iterator<Item = &'a str> {
        let mut cuts = Cursor(self.cuts);
        let mut rest = self.text;
        std::iter::from_fn(move || {
            if cuts.0.is_empty() {
                return None;
            }
            let length = cuts.number().ok()?;
            cuts.0 = cuts.0.strip_prefix(',').unwrap_or(cuts.0);
            let (piece, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = behind;
            Some(piece)
        })
    }
}

/// A call of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredCall<'a> {
    pub(super) id: (u64, u64),
    /// Escaped.
    pub(super) name: &'a str,
    pub(super) arguments: Span<'a>,
}

/// An answer in its stored form. Texts are borrowed, and escaped as they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<'a> {
    /// 128 bits that name the answer.
    pub(super) id: (u64, u64),
    pub(super) created: u64,
    /// Escaped.
    pub(super) version: &'a str,
    pub(super) usage: Usage,
    /// What was known of the usage when the answer began.
    pub(super) began: Usage,
    pub(super) finish: Finish,
    pub(super) text: Span<'a>,
    pub(super) calls: Vec<StoredCall<'a>>,
}

impl<'a> Stored<'a> {
    /// Reads a stored form.
    ///
    /// # Errors
    /// [`Damaged`] if the bytes are none, of another version, or longer than a recorder writes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Damaged> {
        if bytes.len() > MAX_BYTES {
            return Err(Damaged);
        }
        let mut pieces = MAX_PIECES;
        let mut at = Cursor(simdutf8::basic::from_utf8(bytes).map_err(|_| Damaged)?);
        at.eat(r#"{"v":1,"id":""#)?;
        let id = at.id()?;
        let created = at.field(r#"","created":"#)?;
        at.eat(r#","version":"#)?;
        let version = at.string()?;
        let usage = Usage {
            input_tokens: at.field(r#","input_tokens":"#)?,
            cached_tokens: at.field(r#","cached_tokens":"#)?,
            output_tokens: at.field(r#","output_tokens":"#)?,
        };
        let began = Usage {
            input_tokens: at.field(r#","began":["#)?,
            cached_tokens: at.field(",")?,
            output_tokens: 0,
        };
        at.eat(r#"],"finish":"#)?;
        let finish = at.finish()?;
        let text = at.span([r#","text_bytes":"#, r#","text_cuts":["#, r#"],"text":""#], &mut pieces)?;
        at.eat(r#","calls":["#)?;
        let calls = at.calls(&mut pieces)?;
        if !at.0.is_empty() {
            return Err(Damaged);
        }
        Ok(Self {
            id,
            created,
            version,
            usage,
            began,
            finish,
            text,
            calls,
        })
    }

    /// What the answer used when it was made.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// When it was made, in seconds since 1970.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created
    }
}

/// What is still to be read.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn eat(&mut self, wanted: &str) -> Result<(), Damaged> {
        self.0 = self.0.strip_prefix(wanted).ok_or(Damaged)?;
        Ok(())
    }

    fn number(&mut self) -> Result<u64, Damaged> {
        let (mut value, mut digits) = (0_u64, 0);
        for byte in self.0.bytes().take_while(u8::is_ascii_digit) {
            value = value.checked_mul(10).ok_or(Damaged)?;
            value = value.checked_add(u64::from(byte - b'0')).ok_or(Damaged)?;
            digits += 1;
        }
        // A leading zero is no number of JSON, and written by nobody.
        if digits == 0 || (digits > 1 && self.0.starts_with('0')) {
            return Err(Damaged);
        }
        self.0 = &self.0[digits..];
        Ok(value)
    }

    /// A number behind its name.
    fn field<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T, Damaged> {
        self.eat(name)?;
        T::try_from(self.number()?).map_err(|_| Damaged)
    }

    fn take(&mut self, length: usize) -> Result<&'a str, Damaged> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    /// 32 hexadecimal digits.
    fn id(&mut self) -> Result<(u64, u64), Damaged> {
        let mut half = || {
            let digits = self.take(16)?;
            let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            if !digits.bytes().all(lower) {
                return Err(Damaged);
            }
            u64::from_str_radix(digits, 16).map_err(|_| Damaged)
        };
        Ok((half()?, half()?))
    }

    /// A short string with its quotes; what is inside, escaped.
    fn string(&mut self) -> Result<&'a str, Damaged> {
        self.eat("\"")?;
        let mut end = 0;
        loop {
            end += first_special(&self.0.as_bytes()[end..]).ok_or(Damaged)?;
            match escape(&self.0.as_bytes()[end..]) {
                Some((length, _)) => end += length,
                None if self.0.as_bytes()[end] == b'"' => break,
                None => return Err(Damaged),
            }
        }
        let inside = self.take(end)?;
        self.eat("\"")?;
        Ok(inside)
    }

    fn finish(&mut self) -> Result<Finish, Damaged> {
        let word = self.string()?;
        self.eat(r#","stop_sequence":"#)?;
        let sequence = match self.eat("null") {
            Ok(()) => None,
            Err(Damaged) => Some(unescaped(self.string()?)),
        };
        self.eat(r#","stop_token":"#)?;
        let token = match self.eat("null") {
            Ok(()) => None,
            Err(Damaged) => Some(u32::try_from(self.number()?).map_err(|_| Damaged)?),
        };
        match (word, sequence, token) {
            ("end_turn", None, None) => Ok(Finish::EndOfTurn),
            ("stop_sequence", Some(text), None) => Ok(Finish::Stop(text)),
            ("stop_token", None, Some(token)) => Ok(Finish::StopToken(token)),
            ("tool_calls", None, None) => Ok(Finish::ToolCalls),
            ("max_tokens", None, None) => Ok(Finish::MaxTokens),
            ("context_full", None, None) => Ok(Finish::ContextFull),
            _ => Err(Damaged),
        }
    }

    /// A long text, behind its length and its cuts. `pieces` is how many there may still be.
    fn span(&mut self, [bytes, cuts, text]: [&str; 3], pieces: &mut usize) -> Result<Span<'a>, Damaged> {
        let length: usize = self.field(bytes)?;
        self.eat(cuts)?;
        let list = self.0.bytes().take_while(|&byte| byte == b',' || byte.is_ascii_digit());
        let cuts = self.take(list.count())?;
        self.eat(text)?;
        let span = Span {
            text: self.take(length)?,
            cuts,
        };
        self.eat("\"")?;
        span.check(pieces)?;
        Ok(span)
    }

    fn calls(&mut self, pieces: &mut usize) -> Result<Vec<StoredCall<'a>>, Damaged> {
        let mut calls = Vec::new();
        while self.eat("]}").is_err() {
            *pieces = pieces.checked_sub(1).ok_or(Damaged)?;
            self.eat(if calls.is_empty() { r#"{"id":""# } else { r#",{"id":""# })?;
            let id = self.id()?;
            self.eat(r#"","name":"#)?;
            let name = self.string()?;
            let arguments = self.span([r#","bytes":"#, r#","cuts":["#, r#"],"arguments":""#], pieces)?;
            self.eat("}")?;
            calls.push(StoredCall { id, name, arguments });
        }
        Ok(calls)
    }
}

impl Span<'_> {
    /// That the pieces make up the text, and that each of them is sound by itself.
    fn check(self, pieces: &mut usize) -> Result<(), Damaged> {
        let mut cuts = Cursor(self.cuts);
        let mut rest = Cursor(self.text);
        // Where nothing is escaped, no cut can part an escape.
        let plain = first_special(self.text.as_bytes()).is_none();
        while !cuts.0.is_empty() {
            *pieces = pieces.checked_sub(1).ok_or(Damaged)?;
            let piece = rest.take(usize::try_from(cuts.number()?).map_err(|_| Damaged)?)?;
            if !plain && !is_sound(piece) {
                return Err(Damaged);
            }
            if !cuts.0.is_empty() {
                cuts.eat(",")?;
                if cuts.0.is_empty() {
                    return Err(Damaged);
                }
            }
        }
        if rest.0.is_empty() { Ok(()) } else { Err(Damaged) }
    }
}

/// Whether this is the inside of a JSON string, escaped as [`crate::json::escaped`] does it.
fn is_sound(mut text: &str) -> bool {
    while let Some(at) = first_special(text.as_bytes()) {
        match escape(&text.as_bytes()[at..]) {
            Some((length, _)) => text = &text[at + length..],
            None => return false,
        }
    }
    true
}

/// The escape at the start of these bytes: its length, and what it stands for.
fn escape(bytes: &[u8]) -> Option<(usize, char)> {
    let char = match bytes {
        [b'\\', b'"', ..] => '"',
        [b'\\', b'\\', ..] => '\\',
        [b'\\', b'n', ..] => '\n',
        [b'\\', b'r', ..] => '\r',
        [b'\\', b't', ..] => '\t',
        [b'\\', b'b', ..] => '\u{8}',
        [b'\\', b'f', ..] => '\u{c}',
        [b'\\', b'u', b'0', b'0', high @ (b'0' | b'1'), low, ..] => {
            let low = match low {
                b'0'..=b'9' => low - b'0',
                b'a'..=b'f' => low - b'a' + 10,
                _ => return None,
            };
            return Some((6, char::from((high - b'0') * 16 + low)));
        }
        _ => return None,
    };
    Some((2, char))
}

/// The text that was escaped.
pub(super) fn unescaped(mut text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    while let Some((at, (length, char))) =
        first_special(text.as_bytes()).and_then(|at| escape(&text.as_bytes()[at..]).map(|escape| (at, escape)))
    {
        out.push_str(&text[..at]);
        out.push(char);
        text = &text[at + length..];
    }
    out.push_str(text);
    out
}
