//! The small JSON files of a sentence encoder's directory.
//!
//! It takes no default for what decides a vector: how token vectors are pooled is stated, or the graph does it. Invariant:
//! a [`Config`] has a context of at least one token and names no step between pooling and vector that is not computed.

use std::path::Path;

use serde::{Deserialize, de::DeserializeOwned};

use crate::model::{Problem, read_file, read_optional_file};

/// How the vectors of tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooling {
    /// Their mean.
    Mean,
    /// That of the first token.
    First,
}

/// To what lengths a vector may be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cuts {
    /// The model was not trained for it.
    None,
    /// To any.
    Any,
    /// To these.
    These(Vec<usize>),
}

/// What the files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    /// Ids of the graph.
    pub(super) vocabulary: usize,
    /// Most tokens of an input, marks included.
    pub(super) context: usize,
    /// `None`: the files do not say.
    pub(super) pooling: Option<Pooling>,
    pub(super) cuts: Cuts,
}

#[derive(Deserialize)]
struct Raw {
    vocab_size: Option<usize>,
    max_position_embeddings: Option<usize>,
    pooling: Option<String>,
    #[serde(default)]
    is_matryoshka: bool,
    matryoshka_dimensions: Option<Vec<usize>>,
}

#[derive(Deserialize)]
struct RawLength {
    max_seq_length: Option<usize>,
}

#[derive(Deserialize)]
struct RawPooling {
    pooling_mode: Option<String>,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(flatten)]
    others: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct RawModule {
    #[serde(rename = "type")]
    kind: String,
}

const REMEDY: &str = "restore the file that came with the model";

impl Config {
    /// Reads `config.json` and, where they are, `sentence_bert_config.json`, `1_Pooling/config.json` and `modules.json`.
    pub(super) fn read(dir: &Path) -> Result<Self, Problem> {
        let path = dir.join("config.json");
        let fault = |what: String| Problem::new(&path, what, REMEDY);
        let raw: Raw = parse(&path, &read_file(&path, "the model's sizes")?)?;
        let missing = |key: &str| fault(format!("`{key}` is missing"));
        let positions = raw
            .max_position_embeddings
            .ok_or_else(|| missing("max_position_embeddings"))?;
        let stated = optional::<RawLength>(&dir.join("sentence_bert_config.json"))?;
        let context = stated
            .and_then(|file| file.max_seq_length)
            .map_or(positions, |length| length.min(positions));
        if !(1..=MAX_CONTEXT).contains(&context) {
            return Err(fault(format!(
                "the context is {context} tokens, not 1 to {MAX_CONTEXT}"
            )));
        }
        let pooling = match &raw.pooling {
            Some(word) => Some(named(word).ok_or_else(|| fault(format!("`pooling` is {word:?}, not mean or cls")))?),
            None => pooling_of(dir)?,
        };
        check_modules(dir)?;
        Ok(Self {
            vocabulary: raw.vocab_size.ok_or_else(|| missing("vocab_size"))?,
            context,
            pooling,
            cuts: match raw.matryoshka_dimensions {
                Some(these) => Cuts::These(these),
                None if raw.is_matryoshka => Cuts::Any,
                None => Cuts::None,
            },
        })
    }
}

/// Bounds the tensors of a run.
const MAX_CONTEXT: usize = 1 << 20;

fn named(word: &str) -> Option<Pooling> {
    match word {
        "mean" => Some(Pooling::Mean),
        "cls" => Some(Pooling::First),
        _ => None,
    }
}

/// What the folder of the pooling module says, in either of its two forms.
fn pooling_of(dir: &Path) -> Result<Option<Pooling>, Problem> {
    let path = dir.join("1_Pooling/config.json");
    let Some(raw) = optional::<RawPooling>(&path)? else {
        return Ok(None);
    };
    let fault = |what: String| {
        Problem::new(
            &path,
            what,
            "mean and cls are supported: use a model that has one of them",
        )
    };
    if let Some(word) = raw.pooling_mode {
        return match named(&word) {
            Some(pooling) => Ok(Some(pooling)),
            None => Err(fault(format!("`pooling_mode` is {word:?}"))),
        };
    }
    let is_set = |(key, value): (&String, &serde_json::Value)| {
        (key.starts_with("pooling_mode_") && value.as_bool() == Some(true)).then(|| key.clone())
    };
    if let Some(other) = raw.others.iter().find_map(is_set) {
        return Err(fault(format!("`{other}` is true")));
    }
    match (raw.pooling_mode_mean_tokens, raw.pooling_mode_cls_token) {
        (true, false) => Ok(Some(Pooling::Mean)),
        (false, true) => Ok(Some(Pooling::First)),
        (true, true) => Err(fault("two modes of pooling at once".into())),
        (false, false) => Err(fault("no mode of pooling".into())),
    }
}

/// A module behind the pooling, such as a dense layer, would change the vectors.
fn check_modules(dir: &Path) -> Result<(), Problem> {
    let path = dir.join("modules.json");
    let modules = optional::<Vec<RawModule>>(&path)?.unwrap_or_default();
    let name = |module: &RawModule| module.kind.rsplit('.').next().unwrap_or_default().to_owned();
    match modules
        .iter()
        .map(name)
        .find(|name| !["Transformer", "Pooling", "Normalize"].contains(&name.as_str()))
    {
        None => Ok(()),
        Some(other) => Err(Problem::new(
            &path,
            format!("has a module {other}, which is not computed"),
            "export the model with that module inside model.onnx, and remove it from the list",
        )),
    }
}

fn parse<T: DeserializeOwned>(path: &Path, json: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(json).map_err(|error| Problem::new(path, format!("not what it should be: {error}"), REMEDY))
}

fn optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Problem> {
    read_optional_file(path)?.map(|json| parse(path, &json)).transpose()
}
