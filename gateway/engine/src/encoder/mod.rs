//! Sentence encoders: texts to vectors of length 1, many at once.
//!
//! A model directory with another contract than a decoder's, examined as a whole before it serves. It never repairs and
//! never guesses. Invariant: the same input gives the same vector, to the bit, alone and in any company.

mod batch;
mod config;
mod contract;
mod prep;
mod service;
mod tokens;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use self::{
    config::{Config, Cuts},
    contract::Graph,
    tokens::Tokens,
};
use crate::{
    model::{self, ModelOptions, Problem, Provider, Report},
    ort_sys::Place,
    runtime::Runtime,
};

pub use self::{
    prep::MAX_INPUTS,
    service::{EncoderConfig, EncoderEngine, EncoderInfo},
};

/// A loaded sentence encoder, ready for an [`EncoderEngine`].
pub struct Encoder {
    graph: Graph,
    tokens: Arc<Tokens>,
    vocabulary: usize,
    context: usize,
    cuts: Cuts,
    dir: PathBuf,
    version: String,
    provider: String,
    notes: Vec<String>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("dir", &self.dir)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What an encoder runs on, in words.
///
/// # Errors
/// A device is demanded: encoders compute on the CPU.
fn choose_provider(dir: &Path, wish: Provider) -> Result<String, Problem> {
    match wish {
        Provider::Cpu => Ok("cpu, as configured".into()),
        Provider::Auto => Ok("cpu: encoders run there".into()),
        Provider::Cuda => Err(Problem::new(
            dir,
            "provider cuda is not supported for models that make vectors",
            "use `provider: cpu` or `provider: auto`",
        )),
    }
}

impl Encoder {
    /// Loads the encoder in `dir`.
    ///
    /// # Errors
    /// The first [`Problem`] that [`crate::inspect`] would report.
    pub fn load(runtime: &Runtime, dir: &Path, options: &ModelOptions) -> Result<Self, Problem> {
        let provider = choose_provider(dir, options.provider)?;
        if options.threads == 0 {
            return Err(Problem::new(dir, "`threads` is 0", "set `threads` to 1 or more"));
        }
        let (mut report, parts) = examine(runtime, dir, options);
        if !report.problems.is_empty() {
            return Err(report.problems.swap_remove(0));
        }
        let Some(parts) = parts else {
            return Err(Problem::new(dir, "incomplete", "see `zerohop model inspect`"));
        };
        Ok(Self {
            graph: parts.graph,
            tokens: Arc::new(parts.tokens),
            vocabulary: parts.config.vocabulary,
            context: parts.context,
            cuts: parts.config.cuts,
            dir: dir.to_path_buf(),
            version: parts.version,
            provider,
            notes: report.notes,
        })
    }
}

/// Says whether the encoder in `dir` would load, and all that is wrong with it.
pub(crate) fn inspect(runtime: &Runtime, dir: &Path) -> Report {
    examine(runtime, dir, &ModelOptions::default()).0
}

/// What a directory that fits consists of.
struct Parts {
    graph: Graph,
    tokens: Tokens,
    config: Config,
    context: usize,
    version: String,
}

/// Looks at everything, so that all problems come at once.
fn examine(runtime: &Runtime, dir: &Path, options: &ModelOptions) -> (Report, Option<Parts>) {
    let mut report = Report::new(dir);
    let version = report.keep(model::version_of(dir));
    let session = version
        .is_some()
        .then(|| report.keep(model::open_graph(runtime, &Place::Host, dir, options)))
        .flatten();
    let config = report.keep(Config::read(dir));
    let tokens = report.keep(read_tokens(dir));
    let pooling = config.as_ref().and_then(|config| config.pooling);
    let graph = session.zip(config.as_ref()).and_then(|((session, _), _)| {
        Graph::check(session, pooling, dir)
            .map_err(|problems| report.problems.extend(problems))
            .ok()
    });
    let parts = || {
        let (config, tokens, mut graph) = (config?, tokens?, graph?);
        report.keep(agree(dir, &config, &tokens, &graph))?;
        let context = report.keep(choose_context(dir, config.context, options.max_context))?;
        report.keep(graph.try_out(config.vocabulary, context, dir))?;
        Some(Parts {
            graph,
            tokens,
            config,
            context,
            version: version?,
        })
    };
    let parts = parts();
    if let Some(parts) = &parts {
        describe(&mut report, parts);
    }
    (report, parts)
}

/// Checks that the parts speak of the same model.
fn agree(dir: &Path, config: &Config, tokens: &Tokens, graph: &Graph) -> Result<(), Problem> {
    let (have, want) = (tokens.size(), config.vocabulary);
    if have > want || have == 0 {
        let what = format!("has {have} tokens, but `vocab_size` in config.json is {want}");
        let remedy = "use the files of one and the same model";
        return Err(Problem::new(&dir.join("tokenizer.json"), what, remedy));
    }
    if let Cuts::These(these) = &config.cuts
        && let Some(wrong) = these.iter().find(|&&size| !(1..=graph.size()).contains(&size))
    {
        let what = format!("`matryoshka_dimensions` has {wrong}, not 1 to {}", graph.size());
        return Err(Problem::new(&dir.join("config.json"), what, "remove that number"));
    }
    Ok(())
}

/// The context that is wished, if the model has it.
fn choose_context(dir: &Path, context: usize, wish: Option<usize>) -> Result<usize, Problem> {
    match wish {
        Some(wish) if !(1..=context).contains(&wish) => {
            let what = format!("`max_context` is {wish}, but the model's context is {context}");
            let remedy = format!("set `max_context` to 1 to {context}, or leave it out");
            Err(Problem::new(dir, what, remedy))
        }
        wish => Ok(wish.unwrap_or(context)),
    }
}

fn read_tokens(dir: &Path) -> Result<Tokens, Problem> {
    let path = dir.join("tokenizer.json");
    let json = model::read_file(&path, "the model's tokenizer")?;
    Tokens::parse(&json)
        .map_err(|what| Problem::new(&path, what, "restore the tokenizer.json that came with the model"))
}

fn describe(report: &mut Report, parts: &Parts) {
    let size = parts.graph.size();
    report.facts = vec![
        format!(
            "model.onnx: version {}, a sentence encoder (it makes vectors, no answers)",
            parts.version
        ),
        format!(
            "vectors: {size} numbers, {}, brought to length 1",
            parts.graph.described()
        ),
        match &parts.config.cuts {
            Cuts::None => "`dimensions`: not supported, the model does not declare it".into(),
            Cuts::Any => format!("`dimensions`: 1 to {size}"),
            Cuts::These(these) => format!("`dimensions`: {these:?}"),
        },
        format!("vocabulary: {} tokens", parts.config.vocabulary),
        format!("context: {} tokens", parts.context),
        "trial runs went through the graph, at its shortest and its longest input".into(),
    ];
    if parts.graph.together() {
        let fact = "inputs of one length share runs, with the same bits as alone";
        report.facts.push(fact.into());
    } else {
        let note =
            "inputs are computed one at a time: in this graph, inputs that share a run change each other's last bits";
        report.notes.push(note.into());
    }
}
