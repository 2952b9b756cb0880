//! Token ids back to text, one token at a time: a table of each token's bytes, and the stream that turns bytes into
//! characters.
//!
//! It never calls the tokenizer while generating. Invariant: a delta ends at a character's border, and all deltas of a
//! sequence joined are the text of all its tokens, whatever the borders between them.

use serde_json::Value;

/// What bytes each token stands for; control tokens stand for none.
pub(crate) struct TextTable {
    bytes: Vec<u8>,
    /// Token `i` is `bytes[ends[i - 1]..ends[i]]`.
    ends: Vec<u32>,
    /// Leading blanks that the tokenizer's decoder takes from the start of a text.
    strip: u8,
}

impl TextTable {
    /// A table of `pieces` (the token's spelling in the vocabulary; `None`: no text), read as `decoding` says.
    pub(super) fn new(decoding: &Decoding, pieces: impl Iterator<Item = Option<String>>) -> Result<Self, String> {
        let mut table = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            strip: decoding.strip(),
        };
        for piece in pieces {
            if let Some(piece) = piece {
                decoding.append(&piece, &mut table.bytes);
            }
            let end = u32::try_from(table.bytes.len()).map_err(|_| "the vocabulary's text exceeds 4 GiB".to_owned())?;
            table.ends.push(end);
        }
        Ok(table)
    }

    /// Bytes of the longest token: no text has fewer tokens than its bytes divided by this.
    pub(crate) fn longest(&self) -> usize {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let lengths = starts.zip(&self.ends).map(|(start, &end)| (end - start) as usize);
        lengths.max().unwrap_or(0).max(1)
    }

    /// The bytes of a token; none for an id outside the vocabulary.
    pub(crate) fn get(&self, token: u32) -> &[u8] {
        let index = token as usize;
        let Some(&end) = self.ends.get(index) else {
            return &[];
        };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// A stream at the start of a text (`continues`: in the middle of one).
    pub(crate) fn stream(&self, continues: bool) -> TextStream {
        TextStream {
            pending: [0; 3],
            held: 0,
            strip: if continues { 0 } else { self.strip },
        }
    }
}

/// How a tokenizer writes text into its vocabulary. The two ways of today's decoders.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoding {
    /// Each character stands for a byte (GPT-2's table).
    ByteLevel,
    /// Pieces of text, with replacements, and `<0xNN>` for bytes that have no piece (SentencePiece).
    Pieces {
        /// In order: this text becomes that.
        replace: Vec<(String, String)>,
        /// Whether `<0xNN>` is a byte.
        bytes: bool,
        /// Blanks taken from the start of a text.
        strip: u8,
    },
}

impl Decoding {
    /// Reads the `decoder` of a tokenizer.json.
    pub(super) fn parse(decoder: &Value) -> Result<Self, String> {
        let steps: Vec<&Value> = match kind(decoder) {
            "Sequence" => decoder["decoders"].as_array().into_iter().flatten().collect(),
            _ => vec![decoder],
        };
        if steps.iter().any(|step| kind(step) == "ByteLevel") {
            return Ok(Self::ByteLevel);
        }
        let (mut replace, mut bytes, mut strip) = (Vec::new(), false, 0);
        for step in &steps {
            let text = |key: &str| step[key].as_str().map(str::to_owned);
            match kind(step) {
                "Replace" => {
                    let pattern = step["pattern"]["String"].as_str().map(str::to_owned);
                    let pair = pattern.zip(text("content"));
                    replace.push(pair.ok_or("a Replace decoder whose pattern is not plain text")?);
                }
                "Metaspace" => {
                    let mark = text("replacement").ok_or("a Metaspace decoder without replacement")?;
                    replace.push((mark, " ".to_owned()));
                    let never = step["prepend_scheme"] == "never" || step["add_prefix_space"] == false;
                    strip = u8::from(!never);
                }
                "ByteFallback" => bytes = true,
                "Fuse" => {}
                "Strip" if step["content"] == " " && step["stop"].as_u64().unwrap_or(0) == 0 => {
                    let start = step["start"].as_u64().unwrap_or(0);
                    strip = u8::try_from(start).map_err(|_| "a Strip decoder of more than 255 blanks")?;
                }
                "" => return Err("it has no decoder".into()),
                other => return Err(format!("its decoder {other} is not supported")),
            }
        }
        Ok(Self::Pieces { replace, bytes, strip })
    }

    fn strip(&self) -> u8 {
        match self {
            Self::ByteLevel => 0,
            Self::Pieces { strip, .. } => *strip,
        }
    }

    fn append(&self, piece: &str, out: &mut Vec<u8>) {
        match self {
            Self::ByteLevel => match piece.chars().map(byte_of).collect::<Option<Vec<u8>>>() {
                Some(bytes) => out.extend(bytes),
                // An added token is spelled as it is.
                None => out.extend_from_slice(piece.as_bytes()),
            },
            Self::Pieces { replace, bytes, .. } => {
                if let Some(byte) = bytes.then(|| fallback_byte(piece)).flatten() {
                    out.push(byte);
                    return;
                }
                let text = replace
                    .iter()
                    .fold(piece.to_owned(), |text, (from, to)| text.replace(from.as_str(), to));
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}

fn kind(decoder: &Value) -> &str {
    decoder["type"].as_str().unwrap_or("")
}

/// The byte of `<0xNN>`.
fn fallback_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// GPT-2's table the other way: printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => printable(byte).then_some(byte),
        Err(_) => (0..=255u8)
            .filter(|&b| !printable(b))
            .nth(code.checked_sub(0x100)? as usize),
    }
}

/// The state between two tokens of one text: bytes of a character that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct TextStream {
    pending: [u8; 3],
    held: u8,
    strip: u8,
}

impl TextStream {
    /// Appends to `out` the characters that are complete with `bytes`. Bytes that can be no part of a character become
    /// U+FFFD, one for each maximal part, as the Unicode standard advises.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        let from = out.len();
        if self.held == 0 {
            self.decode(bytes, out);
        } else {
            let held = usize::from(std::mem::take(&mut self.held));
            let joined = [&self.pending[..held], bytes].concat();
            self.decode(&joined, out);
        }
        self.strip_from(from, out);
    }

    /// The text is over: what is still pending will not become a character.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if std::mem::take(&mut self.held) > 0 {
            self.strip = 0;
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn decode(&mut self, mut bytes: &[u8], out: &mut String) {
        loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(text) => return out.push_str(text),
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            out.push_str(std::str::from_utf8(valid).unwrap_or_default());
            match error.error_len() {
                Some(len) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    bytes = &rest[len..];
                }
                None => {
                    // An unfinished character has at most three bytes.
                    self.pending[..rest.len()].copy_from_slice(rest);
                    self.held = rest.len() as u8;
                    return;
                }
            }
        }
    }

    fn strip_from(&mut self, from: usize, out: &mut String) {
        while self.strip > 0 && out.len() > from {
            if out.as_bytes()[from] == b' ' {
                out.remove(from);
                self.strip -= 1;
            } else {
                self.strip = 0;
            }
        }
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
