//! The engine's own cost: what the scheduler adds to a step, and what a prompt costs whose beginning is in the prefix cache.
//!
//! The work is that of the engine's example `bench`, which is asked line by line; it needs nothing but the bundled model,
//! and takes Gemma along where it was made. Nothing here passes or fails by a figure. Invariant: a share is one of the same
//! steps, a ratio one of the same prompt.

use std::{path::PathBuf, process::Command};

use serde_json::Value;

use super::{engine::Side, example, machine, report, statistics::spread};
use crate::{
    failure::{Failure, Outcome},
    place::Place,
    setup, shell,
};

const BATCHES: [u32; 4] = [1, 4, 8, 16];
/// Tokens of the prompts, at most as many as the example takes.
const PROMPTS: [u32; 3] = [128, 256, 448];
const CONTEXT: u32 = 128;

/// Measures and publishes.
pub(super) fn bench(place: &Place, made: &str, rounds: u32, quick: bool) -> Outcome {
    let library = setup::setup(place)?;
    example::build(place, "zerohop-engine", "bench")?;
    let models: Vec<(&str, PathBuf)> = [("bundled", place.root.join("models/tiny")), (made, place.model(made))]
        .into_iter()
        .filter(|(name, folder)| {
            let there = folder.join("model.onnx").is_file();
            if !there {
                shell::say(format!("{name} is left out: there is none in {}", folder.display()));
            }
            there
        })
        .collect();
    let (mut steps, mut prompts) = (Vec::new(), Vec::new());
    for (name, folder) in &models {
        let mut command = Command::new(place.binary().with_file_name("examples").join("bench"));
        command
            .arg("--requests")
            .arg(folder)
            .env("ORT_DYLIB_PATH", &library.path);
        let mut side = Side::start(command, 1)?;
        for batch in BATCHES {
            let request = format!("decode {batch} {CONTEXT} {}", if quick { 32 } else { 128 });
            let answers = ask(&mut side, &request, rounds)?;
            steps.push(step_row(name, batch, &answers)?);
        }
        for tokens in PROMPTS {
            let answers = ask(&mut side, &format!("prefix {tokens}"), rounds)?;
            prompts.push(prompt_row(name, tokens, &answers)?);
        }
    }
    let section = format!(
        "## The engine's own cost\n\n`cargo xtask bench engine --own{}`, {rounds} rounds, {}, 1 thread. Medians with the least \
         and the greatest.\n\n### Shares of a decode step\n\nOf the time on the wall of the steps' own thread. Own is text, \
         mail, moves and bookkeeping; draw is sampling. The least own time of all rounds is the one that other programs \
         disturbed least.\n\n{}\n### Prompts of which the prefix cache has all but the last block\n\nCPU time of all of the \
         engine's threads for the same prompt, first unknown and then known, up to the first token of the answer.\n\n{}",
        if quick { " --quick" } else { "" },
        machine(),
        report::table(&["model", "batch", "own", "draw", "least own time a step"], &steps),
        report::table(&["model", "prompt", "from the cache", "known / unknown"], &prompts),
    );
    report::publish(place, "engine-own", &section)
}

/// Answers of all rounds but the first, which warms caches and memory.
fn ask(side: &mut Side, request: &str, rounds: u32) -> Outcome<Vec<Value>> {
    side.ask(request)?;
    (0..rounds).map(|_| side.ask(request)).collect()
}

fn number(answer: &Value, name: &str) -> Outcome<f64> {
    let found = answer[name].as_f64();
    found.ok_or_else(|| Failure::new(format!("the example told no {name}: {answer}")))
}

fn step_row(model: &str, batch: u32, answers: &[Value]) -> Outcome<Vec<String>> {
    let (mut own, mut draw, mut least) = (Vec::new(), Vec::new(), f64::INFINITY);
    for answer in answers {
        let of = |name: &str| number(answer, name);
        let whole = of("run")? + of("draw")? + of("own")?;
        own.push(100.0 * of("own")? / whole);
        draw.push(100.0 * of("draw")? / whole);
        least = least.min(1e6 * of("own")? / of("steps")?.max(1.0));
    }
    let shown = |shares: Vec<f64>| {
        let spread = spread(shares).ok_or_else(|| Failure::new("nothing was measured"))?;
        let text = format!("{:.2} % ({:.2} to {:.2})", spread.median, spread.least, spread.greatest);
        Ok::<_, Failure>(text)
    };
    Ok(vec![
        model.to_owned(),
        batch.to_string(),
        shown(own)?,
        shown(draw)?,
        format!("{least:.1} µs"),
    ])
}

fn prompt_row(model: &str, tokens: u32, answers: &[Value]) -> Outcome<Vec<String>> {
    let (mut ratios, mut cached) = (Vec::new(), 0.0_f64);
    for answer in answers {
        ratios.push(number(answer, "known")? / number(answer, "unknown")?);
        cached = cached.max(number(answer, "cached")?);
    }
    let ratio = spread(ratios).ok_or_else(|| Failure::new("nothing was measured"))?;
    Ok(vec![
        model.to_owned(),
        format!("{tokens} tokens"),
        format!("{cached:.0} tokens"),
        format!("{:.3} ({:.3} to {:.3})", ratio.median, ratio.least, ratio.greatest),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shares_are_of_whole_steps() {
        let answer = |own: f64| json!({"run": 0.9, "draw": 0.1 - own, "own": own, "steps": 1000});
        let row = step_row("m", 4, &[answer(0.02), answer(0.01), answer(0.05)]);
        let row = row.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(
            row,
            ["m", "4", "2.00 % (1.00 to 5.00)", "8.00 % (5.00 to 9.00)", "10.0 µs"]
        );
        assert!(step_row("m", 4, &[json!({"run": 1})]).is_err());
        assert!(step_row("m", 4, &[]).is_err());
    }

    #[test]
    fn ratios_are_of_the_same_prompt() {
        let answers = [
            json!({"unknown": 1.0, "known": 0.25, "cached": 96}),
            json!({"unknown": 4.0, "known": 0.5, "cached": 96}),
            json!({"unknown": 1.0, "known": 0.5, "cached": 96}),
        ];
        let row = prompt_row("m", 128, &answers).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(row, ["m", "128 tokens", "96 tokens", "0.250 (0.125 to 0.500)"]);
    }
}
