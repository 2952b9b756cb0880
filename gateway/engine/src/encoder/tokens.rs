//! The tokenizer of a sentence encoder: text to ids, with the marks that its post-processor puts around a text.
//!
//! It neither pads nor cuts, whatever the file says. Invariant: a mark that a text spells stays text.

use tokenizers::Tokenizer;

use crate::model::{read_document, read_tokenizer};

/// A loaded tokenizer.json.
pub(super) struct Tokens {
    tokenizer: Tokenizer,
    size: usize,
}

impl Tokens {
    /// Reads a tokenizer.json.
    ///
    /// # Errors
    /// What is wrong with it, in a line without the file's name.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        read_document(json)?;
        let tokenizer = read_tokenizer(json)?;
        let ids = tokenizer.get_vocab(true);
        let size = ids.values().max().map_or(0, |&id| id as usize + 1);
        Ok(Self { tokenizer, size })
    }

    /// The ids of a text; none if there is nothing in it that has a token.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = self
            .tokenizer
            .encode_fast(text, true)
            .map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// One more than the highest id.
    pub(super) fn size(&self) -> usize {
        self.size
    }
}
