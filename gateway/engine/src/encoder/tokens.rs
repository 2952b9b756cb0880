//! The tokenizer of a sentence encoder: text to ids, with the marks that its post-processor puts around a text.
//!
//! It neither pads nor cuts, whatever the file says. Invariant: a mark that a text spells stays text.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use tokenizers::Tokenizer;

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
        // The library panics on some malformed input: parsed once before, and caught for the rest.
        let _: Value = serde_json::from_slice(json).map_err(|error| format!("not JSON: {error}"))?;
        let parsed = catch_unwind(AssertUnwindSafe(|| Tokenizer::from_bytes(json)));
        let mut tokenizer = parsed
            .map_err(|_| "not a tokenizer".to_owned())?
            .map_err(|error| format!("not a tokenizer: {error}"))?;
        tokenizer.set_encode_special_tokens(true);
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
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
