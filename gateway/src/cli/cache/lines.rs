//! The lines of a file, each with its number, none longer than a bound.
//!
//! Holds one line. Invariant: a line that is too long is skipped whole, and the one behind it has the right number.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

/// What the next line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// This, without blanks at its ends; never empty.
    Text(&'a [u8]),
    /// Longer than the bound.
    TooLong,
}

/// A file of lines.
pub(super) struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    number: u64,
    bytes: u64,
}

impl Lines<File> {
    /// Those of a file, and its length in bytes.
    pub(super) fn open(path: &Path, longest: usize) -> io::Result<(Self, u64)> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok((Self::of(file, longest), length))
    }
}

impl<R: Read> Lines<R> {
    fn of(from: R, longest: usize) -> Self {
        Self {
            from: BufReader::with_capacity(256 << 10, from),
            line: Vec::new(),
            longest,
            number: 0,
            bytes: 0,
        }
    }

    /// Number of the line that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line that is not blank; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.line.clear();
            let most = self.longest as u64 + 2;
            let read = self.from.by_ref().take(most).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.bytes += read as u64;
            if self.line.last() != Some(&b'\n') && read as u64 == most {
                self.bytes += self.from.skip_until(b'\n')? as u64;
                return Ok(Some(Line::TooLong));
            }
            let text = self.line.trim_ascii();
            if text.len() > self.longest {
                return Ok(Some(Line::TooLong));
            }
            if !text.is_empty() {
                // Once more, since a borrow that is returned from a loop would last for all of it.
                return Ok(Some(Line::Text(self.line.trim_ascii())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_numbers() {
        let text = b"one\r\n\n  \n 22 \nlonger than ten\n1234567890\n12345678901\nlast";
        let mut lines = Lines::of(&text[..], 10);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().expect("memory") {
            let shown = match line {
                Line::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Line::TooLong => "too long".into(),
            };
            seen.push((lines.number(), shown));
        }
        let wanted = [
            (1, "one"),
            (4, "22"),
            (5, "too long"),
            (6, "1234567890"),
            (7, "too long"),
            (8, "last"),
        ];
        assert_eq!(seen, wanted.map(|(number, text)| (number, text.to_owned())));
        assert_eq!(lines.bytes(), text.len() as u64);
    }
}
