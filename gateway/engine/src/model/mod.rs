//! A model directory: `model.onnx`, `tokenizer.json`, `config.json` and `chat_template.jinja`, checked as a whole.
//!
//! Loading and inspecting are one examination: what [`inspect`] calls fit, [`Model::load`] loads. It never repairs and
//! never guesses. Invariant: in a [`Model`] graph, tokenizer and configuration agree, and the graph has run.

mod bare;
mod config;
mod graph;
mod problem;
mod prompt;
mod template;
mod text;
mod tools;
mod vocabulary;
mod weights;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use ort::session::Session;

use crate::{
    cuda,
    extent::{Dimensions, Number},
    head,
    job::{Conversation, Message, Role},
    mask::{Counts, Masks, RuleError, RuleFile, RuleSet},
    ort_sys::{Place, collapse},
    runtime::Runtime,
    sequence::Cut,
};

use self::{
    config::{ModelConfig, TokenizerConfig},
    problem::{read, read_optional},
    template::Template,
};

pub use self::bare::Chat;
pub(crate) use self::graph::builder;
pub use self::problem::Problem;
pub use self::template::check_template_argument;
pub(crate) use self::{
    graph::open as open_graph,
    problem::{read as read_file, read_optional as read_optional_file},
    weights::version as version_of,
};
pub(crate) use self::{
    prompt::{Encoded, Prompts},
    template::PythonStyle,
    text::{TextStream, TextTable},
    vocabulary::{Vocabulary, read_document, read_tokenizer},
};

/// On what a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Provider {
    /// The best that this build and machine have; the model says which and why.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU, or an error.
    Cuda,
}

/// Where tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Draw {
    /// Where the logits are: on a device by a graph, else by the host.
    #[default]
    WithLogits,
    /// By the host, to which rows of logits are copied if need be.
    Host,
    /// By a graph, on the CPU provider too: slower there than the host, with the same tokens.
    Graph,
}

/// How to load a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelOptions {
    /// On what it runs.
    pub provider: Provider,
    /// Threads of a step, at least 1. They sleep while they have nothing to do.
    pub threads: usize,
    /// A shorter context than the model's own.
    pub max_context: Option<usize>,
    /// Where its tokens are drawn.
    pub draw: Draw,
    /// Where ONNX Runtime writes a profile of each graph when it is let go: files whose names begin so, with `-model` or
    /// `-draw-N` behind it. Costs time at every step.
    pub profile: Option<PathBuf>,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            provider: Provider::Auto,
            threads: 1,
            max_context: None,
            draw: Draw::WithLogits,
            profile: None,
        }
    }
}

/// A loaded model, ready for an engine.
pub struct Model {
    pub(crate) session: Session,
    pub(crate) dimensions: Dimensions,
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) context: usize,
    pub(crate) ends: Vec<u32>,
    pub(crate) cut: Cut,
    pub(crate) place: Place,
    pub(crate) huge_bytes: u64,
    /// Graphs that draw tokens, if any shall.
    pub(crate) heads: Vec<(head::Kind, Session)>,
    dir: PathBuf,
    version: String,
    provider: String,
    notes: Vec<String>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("dir", &self.dir)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Loads the model in `dir`.
    ///
    /// # Errors
    /// The first [`Problem`] that [`inspect`] would report.
    pub fn load(runtime: &Runtime, dir: &Path, options: &ModelOptions) -> Result<Self, Problem> {
        if options.threads == 0 {
            return Err(Problem::new(dir, "`threads` is 0", "set `threads` to 1 or more"));
        }
        let Examined {
            mut report,
            parts,
            place,
            provider,
        } = examine(runtime, dir, options)?;
        if !report.problems.is_empty() {
            return Err(report.problems.swap_remove(0));
        }
        let Some(parts) = parts else {
            return Err(Problem::new(dir, "incomplete", "see `zerohop model inspect`"));
        };
        let heads = load_heads(runtime, &place, dir, options, parts.dimensions.vocabulary)?;
        let mut notes = report.notes;
        Ok(Self {
            heads,
            huge_bytes: on_huge_pages(runtime, &place, &mut notes),
            session: parts.session,
            dimensions: parts.dimensions,
            prompts: Arc::new(parts.prompts),
            context: parts.context,
            ends: parts.ends,
            cut: parts.cut,
            place,
            dir: dir.to_path_buf(),
            version: parts.version,
            provider,
            notes,
        })
    }

    /// Where it lies.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The beginning of a hash over its weights.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Tokens of prompt and answer together.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Ids that it can produce.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.prompts.vocabulary().size()
    }

    /// What it runs on and why, in a line.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// What an operator should know though it is no fault.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Safety rules for this model's tokens.
    ///
    /// # Errors
    /// The first rule that does not fit.
    pub fn rules(&self, file: &RuleFile) -> Result<Arc<RuleSet>, RuleError> {
        let masks = Masks::new(&self.prompts, &self.ends).map_err(|reason| RuleError { rule: 0, reason })?;
        RuleSet::new(file, &masks, &Counts::default()).map(Arc::new)
    }

    /// The bytes that a token stands for, and its spelling if it is a control token.
    #[must_use]
    pub fn token(&self, id: u32) -> (&[u8], Option<&str>) {
        let vocabulary = self.prompts.vocabulary();
        (vocabulary.text().get(id), vocabulary.control(id))
    }

    /// The ids of a text by itself.
    #[must_use]
    pub fn text_ids(&self, text: &str) -> Vec<u32> {
        self.prompts.vocabulary().plain(text)
    }

    /// The ids of a prompt, as a job with this conversation would use them.
    ///
    /// # Errors
    /// The chat template's reason to refuse.
    pub fn encode(&self, conversation: &Conversation) -> Result<Vec<u32>, String> {
        let prompt = self.prompts.encode(conversation).map_err(|(_, reason)| reason)?;
        Ok(prompt.ids)
    }
}

/// Puts what loading a model on the host has filled on huge pages, nearly all of it weights; how many bytes that are.
fn on_huge_pages(runtime: &Runtime, place: &Place, notes: &mut Vec<String>) -> u64 {
    if !runtime.huge_pages() || matches!(place, Place::Device(_)) {
        return 0;
    }
    let (bytes, refused) = match collapse() {
        Ok(collapsed) => (collapsed.bytes, collapsed.refused),
        Err(error) => (0, Some(error)),
    };
    if let Some(error) = refused {
        let what = if bytes == 0 { "stay" } else { "partly stay" };
        notes.push(format!(
            "its weights {what} on small pages, which is slower: {error} (Linux 6.1 and free memory in pieces of 2 MiB are needed)"
        ));
    }
    bytes
}

/// What fits in a model directory and what does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The directory.
    pub dir: PathBuf,
    /// What was found, a line each.
    pub facts: Vec<String>,
    /// What an operator should know though it is no fault.
    pub notes: Vec<String>,
    /// All that keeps it from loading.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether the model loads.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.dir.display())?;
        for fact in &self.facts {
            writeln!(f, "  ok       {fact}")?;
        }
        for note in &self.notes {
            writeln!(f, "  note     {note}")?;
        }
        for problem in &self.problems {
            writeln!(f, "  problem  {problem}")?;
        }
        match self.problems.len() {
            0 => write!(f, "The model fits."),
            1 => write!(f, "The model does not fit: 1 problem."),
            n => write!(f, "The model does not fit: {n} problems."),
        }
    }
}

/// What a model makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Answers: a decoder, loaded by [`Model::load`].
    Answers,
    /// Vectors: a sentence encoder, loaded by [`crate::Encoder::load`].
    Vectors,
}

impl Kind {
    /// What the model in `dir` makes, by the inputs of its graph. A graph that cannot be read is taken for a decoder,
    /// whose examination says what is wrong with it.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let graph = std::fs::read(dir.join("model.onnx")).unwrap_or_default();
        let inputs = weights::inputs(&graph).unwrap_or_default();
        let has = |wanted: &str| inputs.iter().any(|name| name.starts_with(wanted));
        match has("attention_mask") && !has("past.") {
            true => Self::Vectors,
            false => Self::Answers,
        }
    }
}

/// Says whether the model in `dir` would load, and all that is wrong with it.
#[must_use]
pub fn inspect(runtime: &Runtime, dir: &Path) -> Report {
    if Kind::of(dir) == Kind::Vectors {
        return crate::encoder::inspect(runtime, dir);
    }
    match examine(runtime, dir, &ModelOptions::default()) {
        Ok(mut examined) => {
            if examined.report.fits() {
                let fact = format!("provider auto: {}", examined.provider);
                examined.report.facts.push(fact);
            }
            examined.report
        }
        Err(problem) => {
            let mut report = Report::new(dir);
            report.problems.push(problem);
            report
        }
    }
}

/// A directory that was looked at, and on what it would run.
struct Examined {
    report: Report,
    parts: Option<Parts>,
    place: Place,
    /// What it runs on and why.
    provider: String,
}

/// Looks at a directory on the provider that is wished for.
///
/// # Errors
/// The provider that was demanded is not there.
fn examine(runtime: &Runtime, dir: &Path, options: &ModelOptions) -> Result<Examined, Problem> {
    let on = |place: Place, provider: String| {
        let (report, parts) = examine_on(runtime, &place, dir, options);
        Examined {
            report,
            parts,
            place,
            provider,
        }
    };
    let device = |cuda| Place::Device(Arc::new(cuda));
    match options.provider {
        Provider::Cpu => Ok(on(Place::Host, "cpu, as configured".into())),
        Provider::Cuda => {
            let refused = |error: cuda::CudaError| {
                Problem::new(dir, format!("provider cuda cannot be had: {error}"), error.remedy())
            };
            let cuda = cuda::open(runtime).map_err(refused)?;
            Ok(on(device(cuda), "cuda, as configured".into()))
        }
        Provider::Auto => match cuda::open(runtime) {
            Err(error) => Ok(on(Place::Host, format!("cpu: {error}"))),
            Ok(cuda) => {
                let tried = on(device(cuda), "cuda: the library and a device are there".into());
                if tried.report.fits() {
                    return Ok(tried);
                }
                let why = &tried.report.problems[0].what;
                Ok(on(Place::Host, format!("cpu: on cuda, {why}")))
            }
        },
    }
}

/// Log probabilities that a graph tells beside a token's own, at most; the host tells more.
const TOLD: usize = 20;

/// The graphs that draw tokens, the cheapest first, if any shall.
fn load_heads(
    runtime: &Runtime,
    place: &Place,
    dir: &Path,
    options: &ModelOptions,
    vocabulary: usize,
) -> Result<Vec<(head::Kind, Session)>, Problem> {
    let wanted = match options.draw {
        Draw::WithLogits => matches!(place, Place::Device(_)),
        Draw::Host => false,
        Draw::Graph => true,
    };
    if !wanted {
        return Ok(Vec::new());
    }
    let load = |(number, (whole, top))| -> Result<_, String> {
        let kind = head::Kind { vocabulary, whole, top };
        let builder = builder(runtime, place, options.threads)?;
        let builder = graph::profiled(builder, options, &format!("-draw-{number}"))?;
        Ok((kind, head::load(kind, &builder)?))
    };
    let told = Some(TOLD.min(vocabulary));
    let heads = [(false, None), (true, None), (true, told)].into_iter().enumerate();
    let heads = heads.map(load);
    heads.collect::<Result<_, _>>().map_err(|error| {
        let what = format!("the graph that draws tokens does not load: {error}");
        Problem::new(dir, what, "use `provider: cpu`")
    })
}

/// What a directory that fits consists of.
struct Parts {
    session: Session,
    dimensions: Dimensions,
    prompts: Prompts,
    context: usize,
    ends: Vec<u32>,
    cut: Cut,
    version: String,
}

/// Looks at everything, so that all problems come at once.
fn examine_on(runtime: &Runtime, place: &Place, dir: &Path, options: &ModelOptions) -> (Report, Option<Parts>) {
    let mut report = Report::new(dir);
    if !dir.is_dir() {
        let problem = Problem::new(dir, "no such folder", "give the path of a model directory");
        report.problems.push(problem);
        return (report, None);
    }
    let version = report.keep(weights::version(dir));
    // A file that is cut short needs no second complaint from the runtime.
    let session = version
        .is_some()
        .then(|| report.keep(graph::open(runtime, place, dir, options)))
        .flatten()
        .map(|(session, note)| {
            report.notes.extend(note);
            session
        });
    let graph = session.and_then(|session| match graph::check(&session, place, dir) {
        Ok(dimensions) => Some((session, dimensions)),
        Err(problems) => {
            report.problems.extend(problems);
            None
        }
    });
    let config = report.keep(ModelConfig::read(dir));
    let vocabulary = report.keep(read_vocabulary(dir));
    let template = report.keep(read_template(dir, config.as_ref(), vocabulary.as_ref()));
    if let Some(config) = &config {
        report.agree(dir, config, graph.as_ref().map(|(_, d)| *d), vocabulary.as_ref());
    }
    let context = config
        .as_ref()
        .and_then(|config| report.keep(choose_context(dir, config.context, options.max_context)));
    let session = graph.zip(context).and_then(|((session, dimensions), context)| {
        let (session, cut, note) = report.keep(graph::try_out(session, place, dimensions, context, dir))?;
        report.notes.extend(note);
        Some((session, dimensions, cut))
    });
    let prompts = template
        .zip(vocabulary)
        .and_then(|(template, vocabulary)| report.keep(try_prompts(dir, template, vocabulary, config.as_ref())));
    let parts = || {
        let (session, dimensions, cut) = session?;
        Some(Parts {
            session,
            dimensions,
            prompts: prompts?,
            context: context?,
            ends: config?.ends,
            cut,
            version: version?,
        })
    };
    let parts = parts();
    if let Some(parts) = &parts {
        report.describe(parts);
    }
    (report, parts)
}

impl Report {
    /// Nothing is known of this directory yet.
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            facts: Vec::new(),
            notes: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// The value, or its problem into the report.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Checks that the parts speak of the same model.
    fn agree(&mut self, dir: &Path, config: &ModelConfig, graph: Option<Dimensions>, vocabulary: Option<&Vocabulary>) {
        let path = dir.join("config.json");
        let remedy = "use the files of one and the same model";
        let mut differ = |key: &str, stated: Option<usize>, actual: usize| {
            if let Some(stated) = stated.filter(|&stated| stated != actual) {
                let what = format!("`{key}` is {stated}, but model.onnx has {actual}");
                self.problems.push(Problem::new(&path, what, remedy));
            }
        };
        if let Some(graph) = graph {
            differ("vocab_size", Some(config.vocabulary), graph.vocabulary);
            differ("num_hidden_layers", config.layers, graph.layers);
            differ("num_key_value_heads", config.kv_heads, graph.kv_heads);
            differ("head_dim", config.head_dim, graph.head_dim);
        }
        let Some(vocabulary) = vocabulary else { return };
        let (have, want) = (vocabulary.size(), config.vocabulary);
        // Makers pad the graph's vocabulary to a round number; those ids have no text and are never drawn.
        if have > want || want - have > want / 100 {
            let what = format!("has {have} tokens, but `vocab_size` in config.json is {want}");
            self.problems
                .push(Problem::new(&dir.join("tokenizer.json"), what, remedy));
        } else if have < want {
            self.notes.push(format!(
                "{} ids of the graph have no token and are never drawn",
                want - have
            ));
        }
        for &id in config.ends.iter().filter(|&&id| id as usize >= have) {
            let what = format!("`eos_token_id` {id} is no token of tokenizer.json");
            self.problems.push(Problem::new(&path, what, remedy));
        }
    }

    fn describe(&mut self, parts: &Parts) {
        let Dimensions {
            layers,
            kv_heads,
            head_dim,
            vocabulary,
            kv,
        } = parts.dimensions;
        let kv = match kv {
            Number::F32 => "f32",
            Number::F16 => "f16",
        };
        let bytes = parts.dimensions.token_bytes().unwrap_or(usize::MAX);
        let version = &parts.version;
        self.facts = vec![
            format!("model.onnx: version {version}, {layers} layers, {kv_heads} KV heads of {head_dim}"),
            format!("vocabulary: {vocabulary} in model.onnx, tokenizer.json and config.json"),
            format!(
                "context: {} tokens, {bytes} bytes of KV memory ({kv}) a token",
                parts.context
            ),
            format!("end tokens: {:?}", parts.ends),
            format!("calls of tools: {}", parts.prompts.format()),
            format!("a text begins with the tokens {:?}", parts.prompts.lead()),
            "a greeting went through the chat template, and trial runs through the graph, alone and in a batch".into(),
            match parts.cut {
                Cut::Free => "prompts: computed alike, to the bit, in whatever pieces".into(),
                Cut::AtChunks => "prompts: computed in whole chunks, since the pieces matter to this graph".into(),
            },
        ];
        if parts.cut == Cut::AtChunks {
            self.notes.push(
                "a prompt is computed in whole chunks, so answers that run wait up to a chunk for their next token"
                    .into(),
            );
        }
    }
}

/// The context that is wished, if the model has it.
fn choose_context(dir: &Path, context: usize, wish: Option<usize>) -> Result<usize, Problem> {
    match wish {
        Some(wish) if !(2..=context).contains(&wish) => {
            let what = format!("`max_context` is {wish}, but the model's context is {context}");
            Err(Problem::new(
                dir,
                what,
                format!("set `max_context` to 2 to {context}, or leave it out"),
            ))
        }
        wish => Ok(wish.unwrap_or(context)),
    }
}

impl Prompts {
    /// Of a tokenizer.json alone: every conversation is empty.
    pub(crate) fn without_template(tokenizer: &[u8]) -> Result<Self, String> {
        let template = Template::compile("", template::TokenNames::default())?;
        Self::new(template, Vocabulary::parse(tokenizer)?)
    }
}

fn read_vocabulary(dir: &Path) -> Result<Vocabulary, Problem> {
    let path = dir.join("tokenizer.json");
    let json = read(&path, "the model's tokenizer")?;
    Vocabulary::parse(&json)
        .map_err(|what| Problem::new(&path, what, "restore the tokenizer.json that came with the model"))
}

/// The template from chat_template.jinja or, without that file, from tokenizer_config.json.
fn read_template(
    dir: &Path,
    config: Option<&ModelConfig>,
    vocabulary: Option<&Vocabulary>,
) -> Result<Template, Problem> {
    let path = dir.join("chat_template.jinja");
    let tokenizer_config = TokenizerConfig::read(dir)?;
    let mut names = config.zip(vocabulary).map(|(c, v)| c.names(v)).unwrap_or_default();
    tokenizer_config.rename(&mut names);
    let source = match read_optional(&path)? {
        Some(bytes) => String::from_utf8(bytes).map_err(|_| Problem::new(&path, "not UTF-8", TEMPLATE_REMEDY))?,
        None => tokenizer_config.template().ok_or_else(|| {
            let what = "no such file, and no `chat_template` in tokenizer_config.json";
            Problem::new(&path, what, "a model directory needs it (how messages become a prompt)")
        })?,
    };
    Template::compile(&source, names).map_err(|what| Problem::new(&path, what, TEMPLATE_REMEDY))
}

const TEMPLATE_REMEDY: &str = "mend the template, or restore the one that came with the model";

/// Joins template and tokenizer, and tries them on the shortest conversation.
fn try_prompts(
    dir: &Path,
    template: Template,
    vocabulary: Vocabulary,
    config: Option<&ModelConfig>,
) -> Result<Prompts, Problem> {
    let path = dir.join("chat_template.jinja");
    let fault = |what: String| Problem::new(&path, what, TEMPLATE_REMEDY);
    let mut prompts = Prompts::new(template, vocabulary).map_err(&fault)?;
    let bos = config.and_then(|config| config.bos);
    prompts.set_lead(bos, TokenizerConfig::read(dir)?.add_bos_token);
    let conversation = Conversation::from(vec![Message::new(Role::User, "Hello")]);
    match prompts.encode(&conversation) {
        Ok(prompt) if prompt.ids.is_empty() => Err(fault("gives an empty prompt for a greeting".into())),
        Ok(_) => Ok(prompts),
        Err((_, error)) => Err(fault(format!("refuses a greeting: {error}"))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::prompt::tests::byte_prompts;
    use super::{TextTable, text::Decoding};

    /// A table of these tokens.
    pub(crate) fn pieces(words: &[&str]) -> TextTable {
        let pieces = words.iter().map(|word| Some((*word).to_owned()));
        TextTable::new(&Decoding::ByteLevel, pieces).expect("a small table")
    }

    /// A table in which token `i` is the `i`-th letter of the alphabet, around again.
    pub(crate) fn letters(count: usize) -> TextTable {
        let pieces = ('a'..='z').cycle().take(count).map(|letter| Some(letter.to_string()));
        TextTable::new(&Decoding::ByteLevel, pieces).expect("a small table")
    }

    /// A table in which each of the first 256 tokens is its byte, but for these, which have no text.
    pub(crate) fn bytes(silent: &[u32]) -> TextTable {
        let decoding = Decoding::Pieces {
            replace: Vec::new(),
            bytes: true,
            strip: 0,
        };
        let pieces = (0..=255u32).map(|byte| (!silent.contains(&byte)).then(|| format!("<0x{byte:02X}>")));
        TextTable::new(&decoding, pieces).expect("a small table")
    }
}
