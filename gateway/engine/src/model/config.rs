//! The small JSON files of a model directory: what the tensors do not say about themselves.
//!
//! It takes no default for what decides an answer: a missing context length or end token is an error. Invariant: a
//! [`ModelConfig`] has at least one end token and a context of at least two tokens.

use std::path::Path;

use serde::Deserialize;

use super::{
    problem::{Problem, read, read_optional},
    template::TokenNames,
    vocabulary::Vocabulary,
};

/// What config.json and generation_config.json say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelConfig {
    /// Ids of the graph, padding included.
    pub(super) vocabulary: usize,
    /// Tokens of prompt and answer together.
    pub(super) context: usize,
    /// Tokens that end the model's turn.
    pub(super) ends: Vec<u32>,
    pub(super) bos: Option<u32>,
    pub(super) pad: Option<u32>,
    /// Sizes that the graph states as well, where the file gives them: layers, KV heads, head size.
    pub(super) layers: Option<usize>,
    pub(super) kv_heads: Option<usize>,
    pub(super) head_dim: Option<usize>,
}

#[derive(Deserialize)]
struct Raw {
    vocab_size: Option<usize>,
    max_position_embeddings: Option<usize>,
    eos_token_id: Option<OneOrMany>,
    bos_token_id: Option<OneOrMany>,
    pad_token_id: Option<u32>,
    num_hidden_layers: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
}

#[derive(Deserialize)]
struct RawGeneration {
    eos_token_id: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

impl ModelConfig {
    /// Reads `dir/config.json` and, where there is one, `dir/generation_config.json`.
    pub(super) fn read(dir: &Path) -> Result<Self, Problem> {
        let path = dir.join("config.json");
        let json = read(&path, "the model's sizes and end tokens")?;
        let fault = |what: String| Problem::new(&path, what, "restore the config.json that came with the model");
        let raw: Raw =
            serde_json::from_slice(&json).map_err(|error| fault(format!("not a model's config: {error}")))?;
        let missing = |key: &str| fault(format!("`{key}` is missing"));
        let mut ends = raw.eos_token_id.map(OneOrMany::into_vec).unwrap_or_default();
        let generation_path = dir.join("generation_config.json");
        if let Some(json) = read_optional(&generation_path)? {
            let raw: RawGeneration = serde_json::from_slice(&json).map_err(|error| {
                let what = format!("not a generation config: {error}");
                Problem::new(&generation_path, what, "restore the file or remove it")
            })?;
            ends.extend(raw.eos_token_id.map(OneOrMany::into_vec).unwrap_or_default());
        }
        ends.sort_unstable();
        ends.dedup();
        let config = Self {
            vocabulary: raw.vocab_size.ok_or_else(|| missing("vocab_size"))?,
            context: raw
                .max_position_embeddings
                .ok_or_else(|| missing("max_position_embeddings"))?,
            ends,
            bos: raw.bos_token_id.and_then(|ids| ids.into_vec().first().copied()),
            pad: raw.pad_token_id,
            layers: raw.num_hidden_layers,
            kv_heads: raw.num_key_value_heads,
            head_dim: raw.head_dim,
        };
        if config.ends.is_empty() {
            return Err(missing("eos_token_id"));
        }
        if !(2..=MAX_CONTEXT).contains(&config.context) {
            let what = format!(
                "`max_position_embeddings` is {}, not 2 to {MAX_CONTEXT}",
                config.context
            );
            return Err(fault(what));
        }
        Ok(config)
    }

    /// The names of its tokens, for the chat template.
    pub(super) fn names(&self, vocabulary: &Vocabulary) -> TokenNames {
        let name = |id: Option<u32>| id.and_then(|id| vocabulary.spelling(id)).unwrap_or_default();
        TokenNames {
            bos_token: name(self.bos),
            eos_token: name(self.ends.first().copied()),
            pad_token: name(self.pad),
            unk_token: String::new(),
        }
    }
}

/// Positions are 32-bit signed in the graph contract; this bound leaves room for arithmetic.
const MAX_CONTEXT: usize = 1 << 28;

/// What tokenizer_config.json may say about the chat template and the special tokens.
#[derive(Default, Deserialize)]
pub(super) struct TokenizerConfig {
    chat_template: Option<ChatTemplate>,
    bos_token: Option<TokenName>,
    eos_token: Option<TokenName>,
    pad_token: Option<TokenName>,
    unk_token: Option<TokenName>,
    /// Whether a text begins with the token that begins one.
    pub(super) add_bos_token: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ChatTemplate {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenName {
    Plain(String),
    Token { content: String },
}

impl TokenizerConfig {
    /// Reads `dir/tokenizer_config.json`; all empty where there is none.
    pub(super) fn read(dir: &Path) -> Result<Self, Problem> {
        let path = dir.join("tokenizer_config.json");
        let Some(json) = read_optional(&path)? else {
            return Ok(Self::default());
        };
        serde_json::from_slice(&json).map_err(|error| {
            let what = format!("not a tokenizer's config: {error}");
            Problem::new(&path, what, "restore the file that came with the model")
        })
    }

    /// Its chat template, the one named `default` where there are several.
    pub(super) fn template(self) -> Option<String> {
        match self.chat_template? {
            ChatTemplate::One(source) => Some(source),
            ChatTemplate::Named(all) => all.into_iter().find(|t| t.name == "default").map(|t| t.template),
        }
    }

    /// Overrides the names that it states.
    pub(super) fn rename(&self, names: &mut TokenNames) {
        let pairs = [
            (&self.bos_token, &mut names.bos_token),
            (&self.eos_token, &mut names.eos_token),
            (&self.pad_token, &mut names.pad_token),
            (&self.unk_token, &mut names.unk_token),
        ];
        for (stated, name) in pairs {
            match stated {
                Some(TokenName::Plain(text) | TokenName::Token { content: text }) => name.clone_from(text),
                None => {}
            }
        }
    }
}
