//! The contract between the engine and a model's graph.
//!
//! Inputs `input_ids` i64[batch, seq], `seqlens_k` i32[batch] (tokens so far, minus 1), `total_sequence_length` i32 (the
//! longest of the batch), `logit_rows` i64[rows] (which of the flattened batch × seq reach the head) and, for each
//! layer `n` from 0, `past.n.key` and `past.n.value` f32[batch, kv_heads, max_seq, head_dim]. Outputs `logits`
//! f32[rows, vocabulary] and `present.n.key|value`, bound to the memory of `past`: the graph appends in place.
//!
//! It never adapts a graph. Invariant: a session that passed [`check`] and [`try_out`] fulfils all of it, at the first and
//! at the last position of its context.

use std::path::Path;

use ort::{
    logging::LogLevel,
    session::{Session, builder::SessionBuilder},
    value::{Outlet, TensorElementType, ValueType},
};

use super::problem::Problem;
use crate::{
    extent::{Dimensions, Extent},
    ort_sys::{Bound, Cache, Rows, SysError},
    runtime::Runtime,
    sequence::Cut,
};

const REMEDY: &str = "export the model with the graph contract (see docs/models.md)";

/// Loads `dir/model.onnx` on the CPU provider.
pub(super) fn open(runtime: &Runtime, dir: &Path, threads: usize) -> Result<Session, Problem> {
    let path = dir.join("model.onnx");
    let load = || -> Result<Session, String> {
        let mut builder = configure(Session::builder(&runtime.environment).map_err(text)?, threads)?;
        builder.commit_from_file(&path).map_err(text)
    };
    load().map_err(|error| {
        let what = format!("ONNX Runtime {} cannot load it: {error}", runtime.version());
        Problem::new(&path, what, "fetch or export the model again")
    })
}

/// One step at a time, without threads that spin while they wait: the cores belong to the workers as well.
fn configure(builder: SessionBuilder, threads: usize) -> Result<SessionBuilder, String> {
    builder
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
        .map_err(text)
}

#[allow(clippy::needless_pass_by_value)]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Checks names, element types and shapes; all that does not fit.
pub(super) fn check(session: &Session, dir: &Path) -> Result<Dimensions, Vec<Problem>> {
    let mut faults = Faults(Vec::new());
    let (inputs, outputs) = (session.inputs(), session.outputs());
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
    let vocabulary = shape_of(outputs, "logits").and_then(|shape| shape.get(1).copied().filter(|&d| d > 0));
    if vocabulary.is_none() {
        faults.add("output `logits` must be f32[rows, vocabulary] with a fixed vocabulary".into());
    }
    let mut expected_outputs = vec![Expected::new("logits", TensorElementType::Float32, &[None, vocabulary])];
    let kv = [None, kv_heads, None, head_dim];
    for layer in 0..layers {
        for kind in ["key", "value"] {
            let name = |side| format!("{side}.{layer}.{kind}");
            expected_inputs.push(Expected::new(name("past"), TensorElementType::Float32, &kv));
            expected_outputs.push(Expected::new(name("present"), TensorElementType::Float32, &kv));
        }
    }
    if layers == 0 {
        faults.add("no inputs `past.N.key`: the graph takes no KV memory".into());
    }
    faults.compare("input", inputs, &expected_inputs);
    faults.compare("output", outputs, &expected_outputs);
    let size = |d: Option<i64>| d.and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
    if faults.0.is_empty() {
        return Ok(Dimensions {
            layers,
            kv_heads: size(kv_heads),
            head_dim: size(head_dim),
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

fn shape_of(outlets: &[Outlet], name: &str) -> Option<Vec<i64>> {
    let outlet = outlets.iter().find(|outlet| outlet.name() == name)?;
    outlet.dtype().tensor_shape().map(|shape| shape.to_vec())
}

/// Tokens of the prompt with which a graph is tried out; an odd number, so that it can be cut unevenly.
const TRIAL: usize = 37;

/// Runs the graph once at the start and once at the end of a context: what its operators refuse shows only then. And finds
/// out whether it computes the same, to the bit, wherever a prompt is cut.
pub(super) fn try_out(
    session: Session,
    dimensions: Dimensions,
    context: usize,
    dir: &Path,
) -> Result<(Session, Cut), Problem> {
    let extent = Extent {
        slots: 1,
        context,
        chunk: TRIAL.min(context),
    };
    let cache = Cache { block: 1, blocks: 0 };
    let mut last = 0;
    let run = |last: &mut usize| -> Result<(Session, Cut), String> {
        let mut bound = Bound::new(session, dimensions, extent, cache).map_err(text)?;
        let finite = |bound: &Bound, row: usize| {
            let row = &bound.logits()[row * dimensions.vocabulary..][..dimensions.vocabulary];
            if row.iter().all(|logit| logit.is_finite()) {
                Ok(())
            } else {
                Err("its logits are not finite".to_owned())
            }
        };
        bound.prefill(0, 0, &[0, 0], Rows::Last).map_err(text)?;
        finite(&bound, 0)?;
        let cut = if context > TRIAL {
            try_cuts(&mut bound, dimensions.vocabulary).map_err(text)?
        } else {
            Cut::AtChunks
        };
        *last = context - 1;
        bound.decode(&[0], &[*last as u32]).map_err(text)?;
        finite(&bound, 0)?;
        Ok((bound.into_session(), cut))
    };
    run(&mut last).map_err(|error| {
        let what = format!("a trial run at position {last} of {context} failed: {error}");
        Problem::new(&dir.join("model.onnx"), what, REMEDY)
    })
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
        let bits = |bound: &Bound| {
            bound.logits()[..vocabulary]
                .iter()
                .map(|logit| logit.to_bits())
                .collect()
        };
        let mut all: Vec<u32> = bits(bound);
        bound.decode(&tokens[..1], &[TRIAL as u32])?;
        let behind: Vec<u32> = bits(bound);
        all.extend(behind);
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
