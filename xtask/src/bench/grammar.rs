//! Masks of grammars: time a token, over a small and a large vocabulary.
//!
//! The work is that of the example `grammar` of the engine; here it is pinned and told. Nothing here passes or fails by a
//! figure.

use clap::Args;
use serde_json::Value;

use super::{example, machine, report};
use crate::{
    failure::{Failure, Outcome},
    place::Place,
};

/// A real tokenizer, used in place of a made-up one if it is there.
const LARGE: &str = "target/models/gemma3-270m/tokenizer.json";

/// Arguments of `bench grammar`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often each step is measured; its median counts
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// The core to run on
    #[arg(long, default_value_t = 1)]
    core: u32,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    let mut arguments = vec![options.rounds.to_string()];
    let large = place.root.join(LARGE);
    if large.is_file() {
        arguments.push(large.display().to_string());
    }
    let lines = example::run(place, "zerohop-engine", "grammar", options.core, &arguments)?;
    report::publish(place, "grammar", &section(&lines, options)?)
}

fn section(lines: &str, options: &Options) -> Outcome<String> {
    let mut rows = Vec::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line)
            .map_err(|error| Failure::new(format!("a line of the example is no JSON: {error}")))?;
        rows.push(row(&line)?);
    }
    let head = [
        "schema",
        "tokens",
        "tokenizer",
        "steps",
        "mask median µs",
        "p99 µs",
        "most µs",
        "first µs",
        "compile ms",
    ];
    Ok(format!(
        "## Masks of grammars\n\n`cargo xtask bench grammar`, on core {} at low load, {}. Each step's time is the median of \
         {} rounds; median, 99th percentile and greatest over the steps of one answer. The first mask of an answer and \
         compiling happen in the preparation pool. A made-up tokenizer holds the bytes, pieces of JSON, numbers and words of \
         common syllables; a real one of 262,144 tokens is used if {LARGE} is there.\n\n{}",
        options.core,
        machine(),
        options.rounds,
        report::table(&head, &rows)
    ))
}

fn row(line: &Value) -> Outcome<Vec<String>> {
    let mut masks: Vec<u64> = line["masks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    let first = masks
        .first()
        .copied()
        .ok_or_else(|| Failure::new("no step was measured"))?;
    masks.sort_unstable();
    let at = |share: f64| masks[((masks.len() - 1) as f64 * share).round() as usize];
    let micros = |nanos: u64| format!("{:.1}", nanos as f64 / 1e3);
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let tokenizer = text("tokenizer");
    let tokenizer = tokenizer.rsplit('/').nth(1).unwrap_or(tokenizer);
    Ok(vec![
        text("schema").into(),
        line["vocabulary"].to_string(),
        tokenizer.into(),
        masks.len().to_string(),
        micros(at(0.5)),
        micros(at(0.99)),
        micros(at(1.0)),
        micros(first),
        format!("{:.1}", line["compile"].as_f64().unwrap_or_default() / 1e6),
    ])
}
