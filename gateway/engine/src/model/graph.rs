//! The contract between the engine and a model's graph.
//!
//! Inputs `input_ids` i64[batch, seq], `seqlens_k` i32[batch] (tokens so far, minus 1), `total_sequence_length` i32 (the
//! longest of the batch), `logit_rows` i64[rows] (which of the flattened batch × seq reach the head) and, for each
//! layer `n` from 0, `past.n.key` and `past.n.value` f32 or f16[batch, kv_heads, max_seq, head_dim]. Outputs `logits`
//! f32[rows, vocabulary] and `present.n.key|value`, bound to the memory of `past`: the graph appends in place.
//!
//! It never adapts a graph. Invariant: a session that passed [`check`] and [`try_out`] fulfils all of it, at the first and
//! at the last position of its context.

use std::path::Path;

use ort::{
    ep::{ArenaExtendStrategy, CUDA},
    logging::LogLevel,
    session::{Session, builder::SessionBuilder},
    value::{Outlet, TensorElementType, ValueType},
};

use super::{ModelOptions, problem::Problem};
use crate::{
    extent::{Dimensions, Extent, Number},
    ort_sys::{Bound, Cache, Place, Rows, SysError},
    runtime::Runtime,
    sequence::Cut,
};

const REMEDY: &str = "export the model with the graph contract (see docs/models.md)";

/// Has the runtime refuse a graph of which a part would be left to the CPU.
const NO_CPU: &str = "session.disable_cpu_ep_fallback";

/// Has the runtime store signed bytes without a sign, so that their products with others do not overflow. With VNNI they do
/// not anyway, and so stored they take 1.25 times as long (Gemma's prompts, `cargo xtask bench engine`).
const EXACT_BYTES: &str = "session.x64quantprecision";

/// What it then says.
const ON_CPU: &str = "assigned to the default CPU EP";

/// Loads `dir/model.onnx` on the provider of this place, with a note if a part of it is left to the CPU all the same.
pub(crate) fn open(
    runtime: &Runtime,
    place: &Place,
    dir: &Path,
    options: &ModelOptions,
) -> Result<(Session, Option<String>), Problem> {
    let path = dir.join("model.onnx");
    let load = |whole: bool| -> Result<Session, String> {
        let builder = builder(runtime, place, options.threads)?;
        let mut builder = profiled(builder, options, "-model")?;
        if whole {
            builder = builder.with_config_entry(NO_CPU, "1").map_err(text)?;
        }
        builder.commit_from_file(&path).map_err(text)
    };
    let loaded = match (place, load(matches!(place, Place::Device(_)))) {
        (Place::Device(_), Err(error)) if error.contains(ON_CPU) => load(false).map(|session| {
            let note =
                "CUDA has no kernel for some operators of model.onnx, which run on the CPU; bench/gpu.sh lists them";
            (session, Some(note.to_owned()))
        }),
        (_, loaded) => loaded.map(|session| (session, None)),
    };
    loaded.map_err(|error| {
        let what = format!("ONNX Runtime {} cannot load it: {error}", runtime.version());
        Problem::new(&path, what, "fetch or export the model again")
    })
}

/// Whether the processor adds products of bytes with and without a sign in 32 bits; else it adds pairs of them in 16.
fn adds_bytes_exactly() -> bool {
    #[cfg(target_arch = "x86_64")]
    let exactly = is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    let exactly = true;
    exactly
}

/// Has a profile written if one is wished for.
pub(super) fn profiled(builder: SessionBuilder, options: &ModelOptions, part: &str) -> Result<SessionBuilder, String> {
    let Some(prefix) = &options.profile else {
        return Ok(builder);
    };
    let mut path = prefix.clone().into_os_string();
    path.push(part);
    builder.with_profiling(Path::new(&path)).map_err(text)
}

/// A session on the provider of this place. One step at a time, without threads that spin while they wait: the cores belong
/// to the workers as well.
pub(crate) fn builder(runtime: &Runtime, place: &Place, threads: usize) -> Result<SessionBuilder, String> {
    let builder = Session::builder(&runtime.environment)
        .map_err(text)?
        .with_intra_threads(threads)
        .map_err(text)?
        .with_inter_threads(1)
        .map_err(text)?
        .with_parallel_execution(false)
        .map_err(text)?
        .with_intra_op_spinning(false)
        .map_err(text)?
        .with_inter_op_spinning(false)
        .map_err(text)?
        // Its errors come back as values; written to the terminal as well, they would be told twice.
        .with_log_level(LogLevel::Fatal)
        .map_err(text)?
        .with_config_entry(EXACT_BYTES, if adds_bytes_exactly() { "0" } else { "1" })
        .map_err(text)?;
    match place {
        Place::Host => Ok(builder),
        Place::Device(_) => {
            // The arena for what lies between operators grows by what is needed, not to the next power of two.
            let cuda = CUDA::default().with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested);
            // Else the runtime would go on without it, in silence.
            let cuda = cuda.build().error_on_failure();
            builder.with_execution_providers([cuda]).map_err(text)
        }
    }
}

#[allow(clippy::needless_pass_by_value)]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Checks names, element types and shapes; all that does not fit.
pub(super) fn check(session: &Session, place: &Place, dir: &Path) -> Result<Dimensions, Vec<Problem>> {
    let mut faults = Faults(Vec::new());
    let (inputs, outputs) = (session.inputs(), session.outputs());
    if let Some(problem) = of_genai(inputs, dir) {
        return Err(vec![problem]);
    }
    let layers = inputs
        .iter()
        .filter(|input| input.name().starts_with("past.") && input.name().ends_with(".key"))
        .count();
    let mut expected_inputs = vec![
        Expected::new("input_ids", TensorElementType::Int64, &[None, None]),
        Expected::new("seqlens_k", TensorElementType::Int32, &[None]),
        Expected::new("total_sequence_length", TensorElementType::Int32, &[]),
        Expected::new("logit_rows", TensorElementType::Int64, &[None]),
    ];
    let first_past = shape_of(inputs, "past.0.key").unwrap_or_default();
    let fixed = |index: usize| first_past.get(index).copied().filter(|&d| d > 0);
    let (kv_heads, head_dim) = (fixed(1), fixed(3));
    if layers > 0 && (kv_heads.is_none() || head_dim.is_none()) {
        faults.add(format!(
            "input `past.0.key` must fix dimensions 1 (KV heads) and 3 (head size), has {first_past:?}"
        ));
    }
    let element = element_of(inputs, "past.0.key").filter(|&ty| ty == TensorElementType::Float16);
    let element = element.unwrap_or(TensorElementType::Float32);
    let vocabulary = shape_of(outputs, "logits").and_then(|shape| shape.get(1).copied().filter(|&d| d > 0));
    if vocabulary.is_none() {
        faults.add("output `logits` must be f32[rows, vocabulary] with a fixed vocabulary".into());
    }
    let mut expected_outputs = vec![Expected::new("logits", TensorElementType::Float32, &[None, vocabulary])];
    let kv = [None, kv_heads, None, head_dim];
    for layer in 0..layers {
        for kind in ["key", "value"] {
            let name = |side| format!("{side}.{layer}.{kind}");
            expected_inputs.push(Expected::new(name("past"), element, &kv));
            expected_outputs.push(Expected::new(name("present"), element, &kv));
        }
    }
    if layers == 0 {
        faults.add("no inputs `past.N.key`: the graph takes no KV memory".into());
    }
    if element == TensorElementType::Float32 && matches!(place, Place::Device(_)) {
        faults.add("keys and values are f32, and attention on CUDA takes f16 only".into());
    }
    faults.compare("input", inputs, &expected_inputs);
    faults.compare("output", outputs, &expected_outputs);
    let size = |d: Option<i64>| d.and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
    if faults.0.is_empty() {
        return Ok(Dimensions {
            layers,
            kv_heads: size(kv_heads),
            head_dim: size(head_dim),
            kv: if element == TensorElementType::Float16 {
                Number::F16
            } else {
                Number::F32
            },
            vocabulary: size(vocabulary),
        });
    }
    let path = dir.join("model.onnx");
    Err(faults
        .0
        .into_iter()
        .map(|what| Problem::new(&path, what, REMEDY))
        .collect())
}

/// Whether the graph is one for onnxruntime-genai, whose interface is another: then a list of all that differs would not
/// help.
fn of_genai(inputs: &[Outlet], dir: &Path) -> Option<Problem> {
    let has = |name: &str| inputs.iter().any(|input| input.name() == name);
    if !has("attention_mask") || !has("past_key_values.0.key") {
        return None;
    }
    let what = "made for onnxruntime-genai: it takes `attention_mask` and `past_key_values.N`, and computes logits for every \
                token of a prompt; the engine gives `seqlens_k`, `past.N` and the rows of logits it wants";
    Some(Problem::new(&dir.join("model.onnx"), what, REMEDY))
}

/// A tensor of the contract; `None` is a dimension that varies.
struct Expected {
    name: String,
    element: TensorElementType,
    shape: Vec<Option<i64>>,
}

impl Expected {
    fn new(name: impl Into<String>, element: TensorElementType, shape: &[Option<i64>]) -> Self {
        Self {
            name: name.into(),
            element,
            shape: shape.to_vec(),
        }
    }
}

struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, what: String) {
        self.0.push(what);
    }

    fn compare(&mut self, side: &str, have: &[Outlet], want: &[Expected]) {
        for expected in want {
            let name = &expected.name;
            let Some(outlet) = have.iter().find(|outlet| outlet.name() == name) else {
                self.add(format!("{side} `{name}` is missing"));
                continue;
            };
            let ValueType::Tensor { ty, shape, .. } = outlet.dtype() else {
                self.add(format!("{side} `{name}` is not a tensor"));
                continue;
            };
            if *ty != expected.element {
                self.add(format!("{side} `{name}` must be {}, is {ty}", expected.element));
            }
            let fits = shape.len() == expected.shape.len()
                && shape
                    .iter()
                    .zip(&expected.shape)
                    // A dimension that the contract lets vary must not be fixed by the graph, and the other way round.
                    .all(|(&have, want)| want.map_or(have < 0, |want| have == want));
            if !fits {
                let wanted: Vec<String> = expected
                    .shape
                    .iter()
                    .map(|d| d.map_or_else(|| "?".to_owned(), |d| d.to_string()))
                    .collect();
                let has: Vec<String> = shape
                    .iter()
                    .map(|&d| if d < 0 { "?".to_owned() } else { d.to_string() })
                    .collect();
                self.add(format!(
                    "{side} `{name}` must have shape [{}], has [{}]",
                    wanted.join(", "),
                    has.join(", ")
                ));
            }
        }
        for outlet in have {
            if !want.iter().any(|expected| expected.name == outlet.name()) {
                self.add(format!("{side} `{}` is not part of the contract", outlet.name()));
            }
        }
    }
}

fn element_of(outlets: &[Outlet], name: &str) -> Option<TensorElementType> {
    let outlet = outlets.iter().find(|outlet| outlet.name() == name)?;
    outlet.dtype().tensor_type()
}

fn shape_of(outlets: &[Outlet], name: &str) -> Option<Vec<i64>> {
    let outlet = outlets.iter().find(|outlet| outlet.name() == name)?;
    outlet.dtype().tensor_shape().map(|shape| shape.to_vec())
}

/// Tokens of the prompt with which a graph is tried out; an odd number, so that it can be cut unevenly.
const TRIAL: usize = 37;

/// Above this share of a row's spread a difference is a fault of the graph, below it is one of rounding.
/// One layer of the bundled model that reads the keys of another gives 0.05, the intact one 1e-7, and a model of 18 layers
/// whose activations are rounded to bytes in between 0.024.
const ROUNDING: f32 = 0.04;

/// Runs the graph at the start and at the end of a context, alone and in a batch: what its operators refuse or mix up shows
/// only then. And finds out whether it computes the same, to the bit, wherever a prompt is cut. Also returns what an
/// operator should know though it is no fault.
pub(super) fn try_out(
    session: Session,
    place: &Place,
    dimensions: Dimensions,
    context: usize,
    dir: &Path,
) -> Result<(Session, Cut, Option<String>), Problem> {
    let path = dir.join("model.onnx");
    let extent = Extent {
        slots: 2,
        context,
        chunk: TRIAL.min(context),
    };
    let cache = Cache { block: 1, blocks: 0 };
    let fault = |what: String| Problem::new(&path, what, REMEDY);
    let bound = Bound::new(session, place, dimensions, extent, cache).map_err(|error| fault(error.to_string()))?;
    let mut trial = Trial { bound, last: 0 };
    let found = trial.run(context);
    let failed = |error| {
        fault(format!(
            "a trial run at position {} of {context} failed: {error}",
            trial.last
        ))
    };
    let (difference, cut) = found.map_err(failed)?;
    if difference > ROUNDING {
        return Err(fault(format!(
            "in a batch of two, logits differ from those alone by {:.0} % of their spread: the graph mixes up sequences",
            100.0 * difference
        )));
    }
    // The engine promises the same answer in any company; a graph whose kernels round by the batch breaks that.
    let note = (difference > 0.0).then(|| {
        format!("logits depend on the size of the batch by {difference:.1e} of their spread: an answer may change with what runs beside it")
    });
    Ok((trial.bound.into_session(), cut, note))
}

/// A graph with places for two sequences, and where it is being tried.
struct Trial {
    bound: Bound,
    last: usize,
}

impl Trial {
    /// The greatest difference between a sequence in a batch and alone, as a share of its logits' spread; and where prompts
    /// may be cut.
    fn run(&mut self, context: usize) -> Result<(f32, Cut), String> {
        let vocabulary = self.bound.dimensions().vocabulary;
        let cut = if context > TRIAL {
            try_cuts(&mut self.bound, vocabulary).map_err(text)?
        } else {
            Cut::AtChunks
        };
        self.bound.prefill(0, 0, &[2, 1], Rows::None).map_err(text)?;
        self.last = 1;
        self.bound.decode(&[0], &[1]).map_err(text)?;
        let other = self.row(0)?;
        self.bound.prefill(0, 0, &[0], Rows::None).map_err(text)?;
        self.bound.decode(&[1], &[1]).map_err(text)?;
        let pieces = self.row(0)?;
        self.bound.prefill(0, 0, &[0, 1], Rows::Last).map_err(text)?;
        // Where pieces give the same bits, nothing is left to be seen in single tokens, which are rounded otherwise.
        if cut == Cut::AtChunks && spread_between(&self.row(0)?, &pieces) > ROUNDING {
            return Err("a prompt in pieces gives other logits than as a whole: `present.N` is not `past.N` with the new tokens behind".into());
        }
        self.bound.decode(&[0], &[1]).map_err(text)?;
        let alone = self.row(0)?;
        if alone == other {
            return Err("an earlier token has no effect: `present` is not written into the memory of `past`".into());
        }
        self.bound.prefill(1, 0, &[1], Rows::Last).map_err(text)?;
        let second = self.row(0)?;
        // The second sequence's first token once more, beside the first one's second.
        self.bound.decode(&[0, 1], &[1, 0]).map_err(text)?;
        let (first, other) = (self.row(0)?, self.row(1)?);
        let difference = spread_between(&alone, &first).max(spread_between(&second, &other));
        self.last = context - 1;
        self.bound.decode(&[0], &[self.last as u32]).map_err(text)?;
        self.row(0)?;
        Ok((difference, cut))
    }

    /// A row of the last run's logits, which must be numbers.
    fn row(&mut self, row: usize) -> Result<Vec<f32>, String> {
        let row = self.bound.logits(row).map_err(text)?;
        if row.iter().all(|logit| logit.is_finite()) {
            Ok(row.to_vec())
        } else {
            Err("its logits are not finite".to_owned())
        }
    }
}

/// The greatest difference of two rows as a share of the first one's spread.
fn spread_between(row: &[f32], other: &[f32]) -> f32 {
    let greatest = row.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let (low, high) = row.iter().fold((f32::MAX, f32::MIN), |(low, high), &logit| {
        (low.min(logit), high.max(logit))
    });
    if greatest == 0.0 {
        return 0.0;
    }
    greatest / (high - low).max(f32::MIN_POSITIVE)
}

/// Computes a prompt in one piece and in several, and compares the logits of its last token and of one behind it, which
/// depend on all keys and values.
fn try_cuts(bound: &mut Bound, vocabulary: usize) -> Result<Cut, SysError> {
    let tokens: Vec<u32> = (0..TRIAL)
        .map(|index| ((index * index * 7919 + 13) % vocabulary) as u32)
        .collect();
    let mut outcome = |pieces: &[usize]| -> Result<Vec<u32>, SysError> {
        let mut start = 0;
        for piece in pieces {
            bound.prefill(0, start, &tokens[start..][..*piece], Rows::Last)?;
            start += piece;
        }
        let bits = |bound: &mut Bound| -> Result<Vec<u32>, SysError> {
            Ok(bound.logits(0)?.iter().map(|logit| logit.to_bits()).collect())
        };
        let mut all = bits(bound)?;
        bound.decode(&tokens[..1], &[TRIAL as u32])?;
        all.extend(bits(bound)?);
        Ok(all)
    };
    let whole = outcome(&[TRIAL])?;
    for pieces in [&[2, 3, 32][..], &[16, 16, 5], &[8, 29], &[33, 4]] {
        if outcome(pieces)? != whole {
            return Ok(Cut::AtChunks);
        }
    }
    Ok(Cut::Free)
}
