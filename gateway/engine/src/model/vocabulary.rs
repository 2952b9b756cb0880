//! The tokenizer of a model directory: text to ids, and which ids are control tokens.
//!
//! It never finds a control token in text: that is decided by where the text comes from ([`super::prompt`]).
//! Invariant: [`Vocabulary::encode`] returns no control token, whatever the text spells.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde_json::Value;
use tokenizers::Tokenizer;

use super::text::{Decoding, TextTable};

/// A token that structures a conversation and has no text of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) id: u32,
    pub(super) spelling: String,
    /// Whether it takes the blanks before it.
    pub(super) strips_before: bool,
    /// Whether it takes the blanks behind it.
    pub(super) strips_behind: bool,
}

/// A tokenizer.json as a document.
///
/// # Errors
/// Where it is no JSON.
pub(crate) fn read_document(json: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(json).map_err(|error| format!("not JSON: {error}"))
}

/// A tokenizer.json that is JSON, as the library reads it: control tokens spelled in a text are text, and it neither pads nor
/// cuts.
///
/// # Errors
/// What is wrong with it, in a line without the file's name.
pub(crate) fn read_tokenizer(json: &[u8]) -> Result<Tokenizer, String> {
    // The library panics on some malformed input.
    let parsed = catch_unwind(AssertUnwindSafe(|| Tokenizer::from_bytes(json)));
    let mut tokenizer = parsed
        .map_err(|_| "not a tokenizer".to_owned())?
        .map_err(|error| format!("not a tokenizer: {error}"))?;
    tokenizer.set_encode_special_tokens(true);
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
    Ok(tokenizer)
}

/// A loaded tokenizer.json.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    controls: Vec<Control>,
    text: Arc<TextTable>,
    size: usize,
    /// The token for what the vocabulary cannot spell: the one control token that text may give.
    unknown: Option<u32>,
    /// What the tokenizer's own post-processor puts before a text.
    lead: Vec<u32>,
}

impl Vocabulary {
    /// Reads a tokenizer.json.
    ///
    /// # Errors
    /// What is wrong with it, in a line without the file's name.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let value = read_document(json)?;
        let decoding = Decoding::parse(&value["decoder"])?;
        let tokenizer = read_tokenizer(json)?;
        let mut controls: Vec<Control> = tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special && !token.content.is_empty())
            .map(|(id, token)| Control {
                id,
                spelling: token.content,
                strips_before: token.lstrip,
                strips_behind: token.rstrip,
            })
            .collect();
        controls.sort_by_key(|control| control.id);
        let size = tokenizer
            .get_vocab(true)
            .values()
            .max()
            .map_or(0, |&id| id as usize + 1);
        let pieces = (0..size as u32).map(|id| {
            let control = controls.binary_search_by_key(&id, |control| control.id).is_ok();
            if control { None } else { tokenizer.id_to_token(id) }
        });
        let text = Arc::new(TextTable::new(&decoding, pieces)?);
        let unknown = value["model"]["unk_token"]
            .as_str()
            .and_then(|token| tokenizer.token_to_id(token));
        let lead = lead(&tokenizer)?;
        Ok(Self {
            tokenizer,
            controls,
            text,
            size,
            unknown,
            lead,
        })
    }

    /// What the tokenizer's own post-processor puts before a text.
    pub(super) fn lead(&self) -> &[u32] {
        &self.lead
    }

    /// The first of `ids` that is no token.
    pub(super) fn first_unknown(&self, ids: &[u32]) -> Option<u32> {
        ids.iter().copied().find(|&id| self.tokenizer.id_to_token(id).is_none())
    }

    /// The ids of `parts` of one text, appended to `out`. Where a part ends, the text spells a control token across the
    /// border; it is encoded as one text all the same, unless that gives a control token.
    pub(crate) fn encode(&self, parts: &[&str], out: &mut Vec<u32>) -> Result<(), String> {
        let before = out.len();
        match parts {
            [] => return Ok(()),
            [text] => self.encode_text(text, out)?,
            _ => self.encode_text(&parts.concat(), out)?,
        }
        if parts.len() > 1 && out[before..].iter().any(|&id| self.is_control(id)) {
            out.truncate(before);
            for part in parts {
                self.encode_text(part, out)?;
            }
        }
        match out[before..].iter().find(|&&id| self.is_control(id)) {
            Some(id) => Err(format!("text was encoded as control token {id}")),
            None => Ok(()),
        }
    }

    fn encode_text(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let encoding = self
            .tokenizer
            .encode_fast(text, false)
            .map_err(|error| error.to_string())?;
        out.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    fn is_control(&self, id: u32) -> bool {
        Some(id) != self.unknown && self.controls.binary_search_by_key(&id, |control| control.id).is_ok()
    }

    /// All control tokens, by id.
    pub(super) fn controls(&self) -> &[Control] {
        &self.controls
    }

    /// The spelling of a control token; `None` for every other.
    pub(crate) fn control(&self, id: u32) -> Option<&str> {
        let index = self.controls.binary_search_by_key(&id, |control| control.id).ok()?;
        Some(&self.controls[index].spelling)
    }

    /// The ids of a text by itself; none if the tokenizer refuses it.
    pub(crate) fn plain(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        if self.encode(&[text], &mut ids).is_err() {
            ids.clear();
        }
        ids
    }

    /// How a token is spelled.
    pub(super) fn spelling(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// One more than the highest id.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Ids to text.
    pub(crate) fn text(&self) -> &Arc<TextTable> {
        &self.text
    }
}

/// What `tokenizer` puts before a text beyond the text's own tokens.
fn lead(tokenizer: &Tokenizer) -> Result<Vec<u32>, String> {
    let ids = |special: bool| {
        let encoding = tokenizer.encode_fast("a", special).map_err(|error| error.to_string())?;
        Ok::<_, String>(encoding.get_ids().to_vec())
    };
    let (own, mut all) = (ids(false)?, ids(true)?);
    let at = all.windows(own.len().max(1)).position(|window| window == own);
    all.truncate(at.unwrap_or(0));
    Ok(all)
}
