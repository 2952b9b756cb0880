//! The contract between the engine and the graph of a sentence encoder.
//!
//! Inputs `input_ids` and `attention_mask` i64[batch, seq], and perhaps `token_type_ids`, of the same shape, all 0. One
//! output is looked at: `sentence_embedding` f32[batch, size], or else `last_hidden_state` or `token_embeddings`
//! f32[batch, seq, size], which are pooled here. Inputs of one run have the same length, so nothing is padded and the
//! mask is all 1.
//!
//! It never adapts a graph. Invariant: a [`Graph`] has run, at lengths from 1 to its context; every vector that it gives is
//! finite and has length 1.

use std::path::Path;

use ort::{
    session::Session,
    value::{Tensor, TensorElementType, ValueType},
};

use super::config::Pooling;
use crate::model::Problem;

/// Tokens of a run, unless one input alone has more. More would bring little on a CPU, and others wait for a run.
pub(super) const RUN_TOKENS: usize = 1024;

const REMEDY: &str = "export the model with the graph contract for sentence encoders (see docs/models.md)";

/// What turns inputs into vectors; the tests have another maker.
pub(super) trait Vectors: Send {
    /// The vectors of inputs that all have the same length, each of length 1; `None` for one that is 0 or not finite.
    ///
    /// # Errors
    /// What the runtime says.
    fn run(&mut self, inputs: &[&[u32]]) -> Result<Vec<Option<Vec<f32>>>, String>;

    /// Whether inputs of this length may share a run without changing a bit of each other's vectors.
    fn shares(&self, length: usize) -> bool;
}

/// Where the vectors come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Output {
    /// The graph has pooled.
    Sentence,
    /// One vector a token.
    Tokens(&'static str, Pooling),
}

/// A checked graph.
pub(super) struct Graph {
    session: Session,
    output: Output,
    /// Numbers of a vector.
    size: usize,
    /// Longer inputs than one token share runs.
    together: bool,
}

impl Graph {
    /// Checks names, types and shapes.
    pub(super) fn check(session: Session, pooling: Option<Pooling>, dir: &Path) -> Result<Self, Vec<Problem>> {
        let path = dir.join("model.onnx");
        let mut faults = Vec::new();
        for input in session.inputs() {
            match input.name() {
                "input_ids" | "attention_mask" | "token_type_ids" => {}
                other => faults.push(format!("input `{other}` is not part of the contract")),
            }
            if !is(input.dtype(), TensorElementType::Int64, 2) {
                faults.push(format!("input `{}` must be i64 [?, ?]", input.name()));
            }
        }
        if !session.inputs().iter().any(|input| input.name() == "input_ids") {
            faults.push("input `input_ids` is missing".into());
        }
        let found = find_output(&session, pooling).map_err(|what| faults.push(what)).ok();
        match found {
            Some((output, size)) if faults.is_empty() => Ok(Self {
                session,
                output,
                size,
                together: false,
            }),
            _ => {
                let problem = |what| Problem::new(&path, what, REMEDY);
                Err(faults.into_iter().map(problem).collect())
            }
        }
    }

    /// Numbers of a vector.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether inputs share runs.
    pub(super) fn together(&self) -> bool {
        self.together
    }

    /// How the vectors come to be, in words.
    pub(super) fn described(&self) -> String {
        match &self.output {
            Output::Sentence => "pooled by the graph".into(),
            Output::Tokens(name, Pooling::Mean) => format!("the mean of {name}"),
            Output::Tokens(name, Pooling::First) => format!("the first of {name}"),
        }
    }

    /// Runs the graph at its shortest and longest input, and finds out whether inputs that share a run get the same bits as
    /// alone.
    pub(super) fn try_out(&mut self, vocabulary: usize, context: usize, dir: &Path) -> Result<(), Problem> {
        let mut trial = || -> Result<bool, String> {
            for length in [1, context] {
                let ids = made_up(length, 0, vocabulary);
                let vectors = self
                    .run(&[&ids])
                    .map_err(|error| format!("a trial run of {length} tokens failed: {error}"))?;
                if vectors != [None] {
                    continue;
                }
                return Err(format!(
                    "a trial run of {length} tokens gave numbers that are 0 or not finite"
                ));
            }
            let mut same = true;
            for length in [2, 3, 7, 16, 37].into_iter().filter(|&length| length <= context) {
                let count = (RUN_TOKENS / length).min(64);
                let inputs: Vec<Vec<u32>> = (0..count).map(|index| made_up(length, index, vocabulary)).collect();
                let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
                for few in [2, 3, count] {
                    let vectors = self.run(&inputs[..few])?;
                    for index in [0, few / 2, few - 1] {
                        same &= bits(&self.run(&[inputs[index]])?[0]) == bits(&vectors[index]);
                    }
                }
            }
            Ok(same)
        };
        let same = trial().map_err(|what| Problem::new(&dir.join("model.onnx"), what, REMEDY))?;
        self.together = same;
        Ok(())
    }
}

impl Vectors for Graph {
    fn run(&mut self, inputs: &[&[u32]]) -> Result<Vec<Option<Vec<f32>>>, String> {
        let text = |error: ort::Error| error.to_string();
        let length = inputs.first().map_or(0, |input| input.len());
        let shape = [inputs.len(), length];
        let count = inputs.len() * length;
        let ids: Vec<i64> = inputs
            .iter()
            .flat_map(|ids| ids.iter().map(|&id| i64::from(id)))
            .collect();
        let mut named = Vec::with_capacity(3);
        for input in self.session.inputs() {
            let numbers = match input.name() {
                "input_ids" => ids.clone(),
                "attention_mask" => vec![1; count],
                _ => vec![0; count],
            };
            named.push((
                input.name().to_owned(),
                Tensor::from_array((shape, numbers)).map_err(text)?,
            ));
        }
        let outputs = self.session.run(named).map_err(text)?;
        let name = match self.output {
            Output::Sentence => SENTENCE,
            Output::Tokens(name, _) => name,
        };
        let value = outputs.get(name).ok_or("the output is missing")?;
        let (_, numbers) = value.try_extract_tensor::<f32>().map_err(text)?;
        let rows = match self.output {
            Output::Sentence => 1,
            Output::Tokens(..) => length,
        };
        if numbers.len() != inputs.len() * rows * self.size {
            return Err(format!("the output has {} numbers", numbers.len()));
        }
        let of_input = numbers.chunks_exact((rows * self.size).max(1));
        let vectors = of_input.map(|numbers| {
            let vector = match self.output {
                Output::Tokens(_, Pooling::Mean) => mean(numbers, self.size),
                Output::Tokens(_, Pooling::First) | Output::Sentence => numbers[..self.size].to_vec(),
            };
            normalised(vector)
        });
        Ok(vectors.collect())
    }

    fn shares(&self, length: usize) -> bool {
        // Runtimes multiply a matrix of one row in another way than one of several.
        self.together && length > 1
    }
}

const SENTENCE: &str = "sentence_embedding";

/// Whether this is a tensor of that type and rank.
fn is(kind: &ValueType, element: TensorElementType, rank: usize) -> bool {
    matches!(kind, ValueType::Tensor { ty, shape, .. } if *ty == element && shape.len() == rank)
}

/// The output to take and the size of its vectors.
fn find_output(session: &Session, pooling: Option<Pooling>) -> Result<(Output, usize), String> {
    let find = |name: &str| session.outputs().iter().find(|output| output.name() == name);
    let size = |kind: &ValueType, rank: usize| -> Option<usize> {
        if !is(kind, TensorElementType::Float32, rank) {
            return None;
        }
        let last = kind.tensor_shape()?.last().copied()?;
        usize::try_from(last).ok().filter(|&size| size > 0)
    };
    if let Some(output) = find(SENTENCE) {
        return size(output.dtype(), 2)
            .map(|size| (Output::Sentence, size))
            .ok_or_else(|| format!("output `{SENTENCE}` must be f32 [?, size] with a fixed size"));
    }
    for name in ["token_embeddings", "last_hidden_state"] {
        let Some(output) = find(name) else { continue };
        let size = size(output.dtype(), 3)
            .ok_or_else(|| format!("output `{name}` must be f32 [?, ?, size] with a fixed size"))?;
        let pooling = pooling.ok_or(
            "gives a vector for each token, and neither 1_Pooling/config.json nor `pooling` in config.json says how they \
             become one",
        )?;
        return Ok((Output::Tokens(name, pooling), size));
    }
    Err(format!(
        "has none of the outputs `{SENTENCE}`, `token_embeddings` and `last_hidden_state`"
    ))
}

/// Ids for a trial, different for each `index`.
fn made_up(length: usize, index: usize, vocabulary: usize) -> Vec<u32> {
    let id = |place: usize| ((place * place * 7919 + (index + 1) * 104_729 + place * 31) % vocabulary.max(1)) as u32;
    (0..length).map(id).collect()
}

fn bits(vector: &Option<Vec<f32>>) -> Option<Vec<u32>> {
    let numbers = vector.as_ref()?.iter();
    Some(numbers.map(|number| number.to_bits()).collect())
}

/// The mean of vectors of `size` numbers that lie one behind the other.
fn mean(rows: &[f32], size: usize) -> Vec<f32> {
    let mut sum = vec![0.0; size];
    for row in rows.chunks_exact(size) {
        for (sum, number) in sum.iter_mut().zip(row) {
            *sum += number;
        }
    }
    let count = (rows.len() / size) as f32;
    sum.iter_mut().for_each(|number| *number /= count);
    sum
}

/// The vector with length 1; `None` if it has no direction.
pub(super) fn normalised(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let square: f64 = vector.iter().map(|&number| f64::from(number) * f64::from(number)).sum();
    let length = square.sqrt();
    if !length.is_finite() || length == 0.0 {
        return None;
    }
    for number in &mut vector {
        *number = (f64::from(*number) / length) as f32;
    }
    Some(vector)
}
