//! The body of a request: a fixed length or chunks (RFC 9112, sections 6 and 7.1), decoded as it comes.
//!
//! Chunk extensions are skipped and trailers dropped, both bounded. Nothing here waits or answers. Invariant: no byte
//! behind the body is consumed, and no more than the limit is ever stored.

use crate::error::{ApiError, ErrorKind};

use super::head::Framing;

/// Bytes of chunk extensions that one body may have, all chunks together: nobody sends any.
pub const MAX_EXTENSION_BYTES: u32 = 4 * 1024;
/// Bytes that a trailer section may have, ends of lines included.
pub const MAX_TRAILER_BYTES: u32 = 8 * 1024;
/// Digits that a chunk size may have: those of 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;

/// The whole body where it lies, if it needs no decoding, is not longer than `max_bytes` and is all in `rest`, the bytes
/// behind the head. Otherwise a [`BodyReader`] gathers (or refuses) it.
#[must_use]
pub fn in_place(framing: Framing, rest: &[u8], max_bytes: u64) -> Option<&[u8]> {
    match framing {
        Framing::None => Some(&[]),
        Framing::Length(length) if length <= max_bytes => rest.get(..usize::try_from(length).ok()?),
        Framing::Length(_) | Framing::Chunked => None,
    }
}

/// What a piece of input gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// So many bytes of it belonged to the body; those behind are the next request's.
    pub consumed: usize,
    /// The body is complete.
    pub done: bool,
}

/// Where in a body the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This many bytes are missing of a body of known length.
    Fixed(u64),
    /// In the hexadecimal size of a chunk: digits and value so far.
    Size {
        digits: u8,
        size: u64,
    },
    /// In the extensions behind a size.
    Extension {
        size: u64,
        at: Extension,
    },
    /// At the LF of a size line.
    SizeEnd {
        size: u64,
    },
    /// This many bytes are missing of a chunk.
    Data(u64),
    /// At the CR behind a chunk.
    DataCr,
    /// At the LF behind a chunk.
    DataLf,
    /// At the start of a line of the trailer section.
    TrailerStart,
    /// In the name of a trailer field.
    TrailerName,
    /// In its value.
    TrailerValue,
    /// At the LF of a trailer field.
    TrailerEnd,
    /// At the LF of the empty line that ends a chunked body.
    LastLf,
    Done,
}

/// Where in the extensions of a chunk the next byte stands: `*( ";" name [ "=" ( token / quoted-string ) ] )`, with white
/// space allowed before and behind `;` and `=`. What breaks this grammar is refused, since the line could end elsewhere for
/// a server that reads it in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// In white space before a `;`.
    BeforeSemicolon,
    BeforeName,
    Name,
    BehindName,
    BeforeValue,
    Token,
    Quoted,
    /// Behind a backslash in quotes.
    Escaped,
    /// Behind the closing quote.
    BehindQuotes,
}

impl Extension {
    /// The place behind this byte, if it may stand here.
    fn next(self, byte: u8) -> Option<Self> {
        let blank = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::BehindQuotes,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, _) if is_field_byte(byte) => Self::Quoted,
            (Self::BeforeValue, b'"') => Self::Quoted,
            (Self::BeforeSemicolon | Self::Name | Self::BehindName | Self::Token | Self::BehindQuotes, b';') => {
                Self::BeforeName
            }
            (Self::Name | Self::BehindName, b'=') => Self::BeforeValue,
            (Self::BeforeName | Self::BeforeValue | Self::BeforeSemicolon | Self::BehindName, _) if blank => self,
            (Self::Name, _) if blank => Self::BehindName,
            (Self::Token | Self::BehindQuotes, _) if blank => Self::BeforeSemicolon,
            (Self::BeforeName | Self::Name, _) if is_token_byte(byte) => Self::Name,
            (Self::BeforeValue | Self::Token, _) if is_token_byte(byte) => Self::Token,
            _ => return None,
        })
    }

    /// Whether the line may end here.
    fn is_whole(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::BehindQuotes)
    }
}

/// Decodes one body.
#[derive(Debug, Clone)]
pub struct BodyReader {
    state: State,
    max_bytes: u64,
    /// Of data, sizes of announced chunks included.
    announced: u64,
    extension_bytes: u32,
    trailer_bytes: u32,
}

impl BodyReader {
    /// A reader for a body framed like this.
    ///
    /// # Errors
    /// [`ErrorKind::BodyTooLarge`] if the announced length is above `max_bytes`. The body is then still to come, so the
    /// connection cannot be used for another request.
    pub fn new(framing: Framing, max_bytes: u64) -> Result<Self, ApiError> {
        let (state, announced) = match framing {
            Framing::None | Framing::Length(0) => (State::Done, 0),
            Framing::Length(length) => (State::Fixed(length), length),
            Framing::Chunked => (State::Size { digits: 0, size: 0 }, 0),
        };
        if announced > max_bytes {
            return Err(too_large(max_bytes));
        }
        Ok(Self {
            state,
            max_bytes,
            announced,
            extension_bytes: 0,
            trailer_bytes: 0,
        })
    }

    /// Takes what belongs to the body from the start of `input` and appends its data to `out`.
    ///
    /// # Errors
    /// [`ErrorKind::BadHttp`], [`ErrorKind::BodyTooLarge`] or (trailers) [`ErrorKind::HeaderTooLarge`]. The end of the
    /// body is then unknown: answer and close.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Fed, ApiError> {
        let mut rest = input;
        while let Some((&byte, behind)) = rest.split_first() {
            match self.state {
                State::Fixed(missing) => {
                    let left = take(&mut rest, missing, out);
                    self.state = if left == 0 { State::Done } else { State::Fixed(left) };
                }
                State::Data(missing) => {
                    let left = take(&mut rest, missing, out);
                    self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                }
                State::Done => break,
                _ => {
                    self.state = self.step(byte)?;
                    rest = behind;
                }
            }
        }
        Ok(Fed {
            consumed: input.len() - rest.len(),
            done: self.state == State::Done,
        })
    }

    /// One byte of what stands around the data.
    fn step(&mut self, byte: u8) -> Result<State, ApiError> {
        match (self.state, byte) {
            (State::Size { digits, size }, _) => self.size(digits, size, byte),
            (State::Extension { size, at }, b'\r') if at.is_whole() => Ok(State::SizeEnd { size }),
            (State::Extension { size, at }, _) => self.extension(size, at, byte),
            (State::SizeEnd { size: 0 }, b'\n') => Ok(State::TrailerStart),
            (State::SizeEnd { size }, b'\n') => {
                self.announced += size;
                Ok(State::Data(size))
            }
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { digits: 0, size: 0 }),
            (State::DataCr | State::DataLf, _) => Err(bad("a chunk is longer than its size says")),
            (State::TrailerStart, b'\r') => Ok(State::LastLf),
            (State::LastLf, b'\n') => Ok(State::Done),
            (State::TrailerName, b':') => self.trailer(State::TrailerValue),
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => self.trailer(State::TrailerName),
            (State::TrailerValue, b'\r') => self.trailer(State::TrailerEnd),
            (State::TrailerValue, _) if is_field_byte(byte) => self.trailer(State::TrailerValue),
            (State::TrailerEnd, b'\n') => self.trailer(State::TrailerStart),
            (State::SizeEnd { .. }, _) => Err(bad("a chunk size is malformed")),
            _ => Err(bad("the trailer section is malformed")),
        }
    }

    fn size(&mut self, digits: u8, size: u64, byte: u8) -> Result<State, ApiError> {
        match byte {
            b'\r' if digits > 0 => Ok(State::SizeEnd { size }),
            b';' | b' ' | b'\t' if digits > 0 => self.extension(size, Extension::BeforeSemicolon, byte),
            _ => {
                let Some(digit) = char::from(byte).to_digit(16).filter(|_| digits < MAX_SIZE_DIGITS) else {
                    return Err(bad("a chunk size is malformed"));
                };
                let grown = size << 4 | u64::from(digit);
                if grown > self.max_bytes - self.announced {
                    return Err(too_large(self.max_bytes));
                }
                Ok(State::Size {
                    digits: digits + 1,
                    size: grown,
                })
            }
        }
    }

    fn extension(&mut self, size: u64, at: Extension, byte: u8) -> Result<State, ApiError> {
        let at = at.next(byte).ok_or_else(|| bad("a chunk extension is malformed"))?;
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_EXTENSION_BYTES {
            return Err(bad("the chunk extensions are too long"));
        }
        Ok(State::Extension { size, at })
    }

    fn trailer(&mut self, next: State) -> Result<State, ApiError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > MAX_TRAILER_BYTES {
            return Err(ApiError::new(
                ErrorKind::HeaderTooLarge,
                "the trailer section is too long",
            ));
        }
        Ok(next)
    }
}

/// Moves up to `missing` bytes from the front of `rest` to `out`; how many are then still missing.
fn take(rest: &mut &[u8], missing: u64, out: &mut Vec<u8>) -> u64 {
    let count = usize::try_from(missing).unwrap_or(usize::MAX).min(rest.len());
    let (data, behind) = rest.split_at(count);
    out.extend_from_slice(data);
    *rest = behind;
    missing - count as u64
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

fn bad(message: &'static str) -> ApiError {
    ApiError::new(ErrorKind::BadHttp, message)
}

fn too_large(max_bytes: u64) -> ApiError {
    ApiError::new(
        ErrorKind::BodyTooLarge,
        format!("the request body is larger than {max_bytes} bytes"),
    )
}

#[cfg(test)]
mod tests;
