//! The model's tokenizer as the grammar engine sees it: a trie over the bytes of every token.
//!
//! Made once for a model, when it is loaded. It never reads a tokenizer file: the bytes are those that the engine itself
//! sends to clients. Invariant: a token that the trie allows adds exactly the bytes that [`TextTable`] has for it.
//!
//! [`TextTable`]: crate::model::TextTable

use std::sync::Arc;

use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::model::{Prompts, Vocabulary};

/// Tokens of more bytes are never drawn while a grammar binds: the trie counts a token's bytes in 10 bits.
const LONGEST: usize = 1000;

/// Tokenizer and trie.
struct Environment {
    trie: TokTrie,
    prompts: Arc<Prompts>,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let encode = |text: &str| self.prompts.vocabulary().plain(text);
        self.trie.tokenize_with_greedy_fallback(bytes, encode)
    }

    /// No: some tokenizers put a blank before a text, and none promises that a piece is cut as it would be in its place.
    /// So no spelling is forced; every token that fits the grammar is allowed, and the model chooses.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// The environment for a model whose turns end with `ends` (at least one).
pub(super) fn environment(prompts: &Arc<Prompts>, ends: &[u32]) -> TokEnv {
    let vocabulary = prompts.vocabulary();
    let words: Vec<Vec<u8>> = (0..vocabulary.size() as u32)
        .map(|id| word(vocabulary, id, ends.contains(&id)))
        .collect();
    let size = words.len() as u32;
    let ends: Vec<u32> = ends.iter().copied().filter(|&id| id < size).collect();
    let first = ends.first().copied().unwrap_or(0);
    let trie = TokTrie::from(&TokRxInfo::new(size, first), &words);
    let trie = if ends.is_empty() {
        trie
    } else {
        trie.with_eos_tokens(&ends)
    };
    Arc::new(Environment {
        trie,
        prompts: Arc::clone(prompts),
    })
}

/// A token's bytes; a control or end token's are its spelling behind the marker that no text can contain.
fn word(vocabulary: &Vocabulary, id: u32, ends: bool) -> Vec<u8> {
    let marked = |spelling: &str| [&[TokTrie::SPECIAL_TOKEN_MARKER], spelling.as_bytes()].concat();
    if let Some(spelling) = vocabulary.control(id) {
        return marked(spelling);
    }
    if ends {
        return marked(&format!("<end-{id}>"));
    }
    let bytes = vocabulary.text().get(id);
    // The byte 0xFF is in no UTF-8 text, so nothing is lost.
    if bytes.len() > LONGEST || bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
        return Vec::new();
    }
    bytes.to_vec()
}
