//! Stop texts, found in a text that comes in pieces.
//!
//! It never lets out a character that may belong to a stop text until that is decided. Invariant: what is let out and
//! where it stops do not depend on how the text was cut into pieces: the stop text that is complete first wins, of those
//! complete at the same place the longest.

/// The stop texts of one job, and how much of each the text so far ends with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops {
    patterns: Vec<Pattern>,
    /// Text that was not let out, because it may begin a stop text.
    held: String,
}

/// One stop text as an automaton (Knuth, Morris and Pratt 1977).
#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    /// `fallback[i]`: how much of the beginning the first `i` bytes end with, themselves excluded.
    fallback: Vec<u32>,
    /// How many bytes of the beginning the text so far ends with.
    matched: usize,
}

impl Pattern {
    fn new(text: String) -> Self {
        let bytes = text.as_bytes();
        let mut fallback = vec![0u32; bytes.len() + 1];
        let mut matched = 0;
        for index in 1..bytes.len() {
            while matched > 0 && bytes[index] != bytes[matched] {
                matched = fallback[matched] as usize;
            }
            matched += usize::from(bytes[index] == bytes[matched]);
            fallback[index + 1] = matched as u32;
        }
        Self {
            text,
            fallback,
            matched: 0,
        }
    }

    /// One more byte; whether the stop text is complete with it.
    fn feed(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && bytes.get(self.matched) != Some(&byte) {
            self.matched = self.fallback[self.matched] as usize;
        }
        self.matched += usize::from(bytes.get(self.matched) == Some(&byte));
        self.matched == bytes.len()
    }
}

impl Stops {
    /// Empty texts are ignored: they would stop before the first character.
    pub(crate) fn new(texts: Vec<String>) -> Self {
        Self {
            patterns: texts
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(Pattern::new)
                .collect(),
            held: String::new(),
        }
    }

    /// Takes more text. Appends to `out` what is certain; returns the stop text, when one is complete: then nothing of
    /// it is let out, and nothing may follow.
    pub(crate) fn push(&mut self, text: &str, out: &mut String) -> Option<String> {
        if self.patterns.is_empty() {
            out.push_str(text);
            return None;
        }
        for (index, byte) in text.bytes().enumerate() {
            let mut complete: Option<&Pattern> = None;
            for pattern in &mut self.patterns {
                let longer = complete.is_none_or(|other| other.text.len() < pattern.text.len());
                if pattern.feed(byte) && longer {
                    complete = Some(pattern);
                }
            }
            if let Some(pattern) = complete {
                let found = pattern.text.clone();
                self.held.push_str(&text[..=index]);
                self.held.truncate(self.held.len() - found.len());
                out.push_str(&std::mem::take(&mut self.held));
                return Some(found);
            }
        }
        self.held.push_str(text);
        let hold = self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0);
        // A stop text begins with a whole character, so this is a border.
        let certain = self.held.len() - hold;
        out.push_str(&self.held[..certain]);
        self.held.drain(..certain);
        None
    }

    /// The text is over without a stop text: lets out what was held.
    pub(crate) fn finish(&mut self, out: &mut String) {
        out.push_str(&std::mem::take(&mut self.held));
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
