//! The engine against llama.cpp on the same weights: tokens by time on a CPU and on the wall, cell by cell in turn.
//!
//! The work is that of the engine's example `bench` and of bench/engine/llama.py, which are asked line by line; here they
//! take turns and are told about. Nothing here passes or fails by a figure. Invariant: every ratio is one of costs of the
//! same round, and all sides are loaded once for all rounds.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use clap::Args;
use serde_json::Value;

use super::{example, machine, own, report, statistics::spread};
use crate::{
    failure::{Doing, Failure, Outcome},
    model::{self, Model},
    place::Place,
    python, setup, shell,
};

/// Arguments of `bench engine`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often each cell is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A quarter of the steps, to see that it works
    #[arg(long)]
    quick: bool,
    /// The engine's own cost instead: its share of a step, and prompts in the prefix cache; needs no llama.cpp
    #[arg(long)]
    own: bool,
}

const MODEL: &str = "gemma3-270m";
const PROMPT: u32 = 256;
const CONTEXT: u32 = 128;
const BATCHES: [u32; 4] = [1, 4, 8, 16];
/// Ours, and what it is compared with; the first of these is what ratios are to.
const SIDES: [&str; 3] = ["zerohop, int8", "llama.cpp, Q4_K_M", "llama.cpp, Q8_0"];
const BASE: usize = 1;

/// What is measured at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Prefill,
    Decode { batch: u32 },
}

impl Cell {
    fn all() -> Vec<Self> {
        let decodes = BATCHES.map(|batch| Self::Decode { batch });
        [Self::Prefill].into_iter().chain(decodes).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Prefill => format!("prefill of {PROMPT} tokens"),
            Self::Decode { batch } => format!("decode, batch {batch}"),
        }
    }

    /// As both programs understand it.
    fn request(self, quick: bool) -> String {
        match self {
            Self::Prefill => format!("prefill {PROMPT}"),
            Self::Decode { batch } => {
                let steps = if batch == 1 { 32 } else { 16 };
                format!("decode {batch} {CONTEXT} {}", if quick { steps / 4 } else { steps })
            }
        }
    }
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    if options.own {
        return own::bench(place, MODEL, options.rounds, options.quick);
    }
    // Before anything is built, which is work as well.
    let busy = others_load()?;
    let library = setup::setup(place)?;
    model::make(place, &Model::gemma())?;
    let files = Files::find(place)?;
    example::build(place, "zerohop-engine", "bench")?;
    let mut tables = String::new();
    for (threads, cost) in [(1, "cpu"), (2, "wall")] {
        if cost == "wall" && busy > QUIET {
            tables += &format!(
                "\nTime on the wall, with 2 threads, was not measured: other programs kept {busy:.1} cores busy. llama.cpp's \
                 threads spin while they wait for each other, ours sleep, so such a figure would flatter us.\n"
            );
            continue;
        }
        let mut sides = files.start(place, &library.path, threads)?;
        let figures = rounds(&mut sides, options, cost)?;
        let how = match cost {
            "cpu" => "Tokens for each second of CPU time, 1 thread",
            _ => "Tokens for each second on the wall, 2 threads",
        };
        tables += &format!("\n### {how}\n\n{}", table(&figures)?);
    }
    let limits = limits(place, &files)?;
    let section = format!(
        "## The engine against llama.cpp\n\n`cargo xtask bench engine{}`, {} rounds, interleaved, {}. Gemma 3 270M; our int8 \
         weights and llama.cpp's Q8_0 are made of its Q4_K_M file. Medians with the least and the greatest, and the ratio \
         to llama.cpp with Q4_K_M in the same round. Ours goes through the real engine: template, tokenizer, scheduler, \
         model, greedy draw, mail; llama.cpp (llama-cpp-python {}, compiled for this processor) computes logits only, with \
         keys and values by sequence (`kv_unified` off). Decode is at a context of {CONTEXT} tokens and on. Both sides \
         measure the time of all their threads, ours without the thread that asks.\n{tables}\n{limits}",
        if options.quick { " --quick" } else { "" },
        options.rounds,
        machine(),
        files.llama_version()?,
    );
    report::publish(place, "engine", &section)
}

/// With more than so many busy cores before it begins, time on the wall says nothing.
const QUIET: f64 = 0.5;

/// Cores that other programs keep busy: the load of the last minute.
fn others_load() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").doing(|| String::from("read /proc/loadavg"))?;
    let load = text.split(' ').next().and_then(|word| word.parse().ok());
    load.ok_or_else(|| Failure::new(format!("/proc/loadavg says {text:?}")))
}

/// What the bench needs beside the engine.
struct Files {
    python: PathBuf,
    script: PathBuf,
    model: PathBuf,
    weights: [PathBuf; 2],
}

impl Files {
    fn find(place: &Place) -> Outcome<Self> {
        let folder = place.root.join("bench/engine");
        shell::say("llama.cpp is compiled once for this processor: about ten minutes of CPU time");
        let python =
            python::environment(place, "bench-engine", &folder.join("requirements.txt")).map_err(|failure| {
                failure.remedy("install a C++ compiler (Debian: build-essential), and see what pip says")
            })?;
        let source = place.model("source").join(MODEL);
        let files = Self {
            python,
            script: folder.join("llama.py"),
            model: place.model(MODEL),
            weights: [
                source.join("gemma-3-270m-q4_k_m.gguf"),
                source.join("gemma-3-270m-q8_0.gguf"),
            ],
        };
        let [published, wider] = &files.weights;
        if !wider.exists() {
            let partial = wider.with_extension("partial");
            let mut command = Command::new(&files.python);
            command
                .arg(&files.script)
                .arg("--requantize")
                .arg(published)
                .arg(&partial);
            shell::say(format!("$ {}", shell::shown(&command)));
            shell::output(&mut command)?;
            std::fs::rename(&partial, wider).doing(|| format!("put {} in place", wider.display()))?;
        }
        Ok(files)
    }

    fn start(&self, place: &Place, library: &Path, threads: u32) -> Outcome<Vec<Side>> {
        let mut ours = Command::new(place.binary().with_file_name("examples").join("bench"));
        ours.arg("--requests").arg(&self.model).env("ORT_DYLIB_PATH", library);
        let theirs = self.weights.iter().map(|weights| {
            let mut command = Command::new(&self.python);
            command.arg(&self.script).arg(weights);
            command
        });
        let commands = std::iter::once(ours).chain(theirs);
        commands.map(|command| Side::start(command, threads)).collect()
    }

    fn llama_version(&self) -> Outcome<String> {
        let mut command = Command::new(&self.python);
        command.args(["-c", "import llama_cpp; print(llama_cpp.__version__)"]);
        Ok(String::from_utf8_lossy(&shell::output(&mut command)?).trim().to_owned())
    }
}

/// A program that is asked by lines and answers in JSON. Ended when dropped.
pub(super) struct Side {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    shown: String,
}

impl Side {
    pub(super) fn start(mut command: Command, threads: u32) -> Outcome<Self> {
        command.arg(threads.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let shown = shell::shown(&command);
        shell::say(format!("$ {shown}"));
        let mut child = command.spawn().doing(|| format!("start {shown}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| Failure::new(format!("no pipes to {shown}")))?;
        let mut side = Self {
            child,
            input,
            output: BufReader::new(output),
            shown,
        };
        side.answer()?;
        Ok(side)
    }

    pub(super) fn ask(&mut self, request: &str) -> Outcome<Value> {
        let shown = &self.shown;
        writeln!(self.input, "{request}").doing(|| format!("ask {shown}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<Value> {
        let (mut line, shown) = (String::new(), &self.shown);
        let read = self
            .output
            .read_line(&mut line)
            .doing(|| format!("read from {shown}"))?;
        if read == 0 {
            return Err(Failure::new(format!("{shown} ended; its last words are above")));
        }
        serde_json::from_str(&line).map_err(|error| Failure::new(format!("{shown} answered {line:?}: {error}")))
    }

    /// Tokens for each second of `cost`.
    fn rate(&mut self, request: &str, cost: &str) -> Outcome<f64> {
        let answer = self.ask(request)?;
        let number = |name: &str| answer[name].as_f64().filter(|&number| number > 0.0);
        number("tokens")
            .zip(number(cost))
            .map(|(tokens, seconds)| tokens / seconds)
            .ok_or_else(|| Failure::new(format!("{} answered no figures: {answer}", self.shown)))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // It may be over already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rates of a cell, by side and round.
struct Figure {
    cell: Cell,
    rates: Vec<Vec<f64>>,
}

fn rounds(sides: &mut [Side], options: &Options, cost: &str) -> Outcome<Vec<Figure>> {
    let mut figures: Vec<Figure> = Cell::all()
        .into_iter()
        .map(|cell| Figure {
            cell,
            rates: vec![Vec::new(); sides.len()],
        })
        .collect();
    // A round that does not count warms caches and memory.
    for round in 0..=options.rounds {
        shell::say(format!("round {round} of {}", options.rounds));
        for figure in &mut figures {
            let request = figure.cell.request(options.quick);
            for (side, rates) in sides.iter_mut().zip(&mut figure.rates) {
                let rate = side.rate(&request, cost)?;
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
    }
    Ok(figures)
}

fn table(figures: &[Figure]) -> Outcome<String> {
    let none = || Failure::new("nothing was measured");
    let mut rows = Vec::new();
    for figure in figures {
        for (name, rates) in SIDES.iter().zip(&figure.rates) {
            let rate = spread(rates.iter().copied()).ok_or_else(none)?;
            let ratios = rates.iter().zip(&figure.rates[BASE]).map(|(rate, base)| rate / base);
            let ratio = spread(ratios).ok_or_else(none)?;
            rows.push(vec![
                figure.cell.name(),
                (*name).to_owned(),
                format!("{:.0} ({:.0} to {:.0})", rate.median, rate.least, rate.greatest),
                format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.greatest),
            ]);
        }
    }
    Ok(report::table(&["what", "side", "tokens/s", "ratio"], &rows))
}

/// Where the time of a step goes, by ONNX Runtime's own profile.
fn limits(place: &Place, files: &Files) -> Outcome<String> {
    let requirements = place.root.join("models").join(MODEL).join("recipe/requirements.txt");
    let python = python::environment(place, &format!("model-{MODEL}"), &requirements)?;
    let mut command = Command::new(python);
    command
        .arg(place.root.join("bench/engine/profile.py"))
        .arg(&files.model)
        .current_dir(&place.target);
    shell::say(format!("$ {}", shell::shown(&command)));
    let output = shell::output(&mut command)?;
    let lines: Vec<Value> = String::from_utf8_lossy(&output)
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::new(format!("the profile is no JSON: {error}")))?;
    let head = ["what", "head", "other matrices", "attention", "norms", "the rest"];
    let rows = lines.iter().map(|line| {
        let share = |name: &str| format!("{:.0} %", 100.0 * line[name].as_f64().unwrap_or_default());
        vec![
            line["what"].as_str().unwrap_or_default().to_owned(),
            share("head"),
            share("matrices"),
            share("attention"),
            share("norms"),
            share("rest"),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    Ok(format!(
        "### What limits a step\n\nONNX Runtime's profile of the graph alone, 1 thread: shares of the time in its nodes. The \
         head has 262,144 rows, more numbers than all layers together, and nearly all the rest of the time goes into the \
         other products of bytes. Fewer bits, larger blocks or scales for whole rows of more matrices would make both faster, \
         and are ruled out by what they do to the answers (see the recipe's README).\n\n{}",
        report::table(&head, &rows)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let figure = Figure {
            cell: Cell::Decode { batch: 4 },
            rates: vec![vec![20.0, 40.0, 90.0], vec![10.0, 40.0, 30.0], vec![10.0, 20.0, 30.0]],
        };
        let table = table(&[figure]).unwrap_or_else(|failure| panic!("{failure}"));
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| decode, batch 4 | zerohop, int8 | 40 (20 to 90) | 2.00 (1.00 to 3.00) |",
                "| decode, batch 4 | llama.cpp, Q4_K_M | 30 (10 to 40) | 1.00 (1.00 to 1.00) |",
                "| decode, batch 4 | llama.cpp, Q8_0 | 20 (10 to 30) | 1.00 (0.50 to 1.00) |",
            ]
        );
    }

    #[test]
    fn requests() {
        for (cell, quick, expected) in [
            (Cell::Prefill, true, "prefill 256"),
            (Cell::Decode { batch: 1 }, false, "decode 1 128 32"),
            (Cell::Decode { batch: 16 }, true, "decode 16 128 4"),
        ] {
            assert_eq!(cell.request(quick), expected);
        }
    }
}
