//! Shows what a provider does with a model: `cargo run --release -p zerohop-engine --example gpu -- cuda|cpu MODEL FOLDER`.
//!
//! Serves the same requests twice, drawn by the graph where the logits are and drawn by the host, and compares the tokens;
//! reads ONNX Runtime's profiles for the provider of every operator and for copies between them; counts the bytes that came
//! back; and times masks over 262,144 tokens. Each check is a line that begins with `ok` or `FAILED`; any of the latter ends
//! it with 1. The profiles are left in FOLDER. `bench/gpu.sh` is how it is run.

#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::Value;
use zerohop_engine::{
    Draw, Engine, EngineConfig, Event, Generate, Job, JobKind, Message, Model, ModelOptions, Prompt, Provider, Role,
    Runtime, Sampling, Stats, Submit, Ticket, mailbox, mask_times,
};

type Failure = Box<dyn std::error::Error>;

/// Requests of a pass.
const REQUESTS: u64 = 24;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A vocabulary as large as any, and how many tokens of it are allowed.
const VOCABULARY: usize = 262_144;
const ALLOWED: [usize; 3] = [5, 5_001, 131_072];
const ROUNDS: usize = 500;

/// What a mask may cost on a GPU, and by how much it may depend on the number of tokens.
const MASK_LIMIT: Duration = Duration::from_micros(20);
const MASK_SPREAD: f64 = 0.1;

fn main() -> ExitCode {
    show().unwrap_or_else(|failure| {
        println!("FAILED {failure}");
        ExitCode::FAILURE
    })
}

fn show() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [provider, model, folder] = &arguments[..] else {
        return Err("usage: gpu cuda|cpu MODEL FOLDER".into());
    };
    let (provider, on) = match provider.as_str() {
        "cuda" => (Provider::Cuda, "CUDAExecutionProvider"),
        "cpu" => (Provider::Cpu, "CPUExecutionProvider"),
        other => return Err(format!("{other} is neither cuda nor cpu").into()),
    };
    let cuda_folder = std::env::var_os("ZEROHOP_CUDA").map(PathBuf::from);
    let runtime = Runtime::find(None, std::env::var_os("ORT_DYLIB_PATH").as_deref())?.with_cuda_folder(cuda_folder);
    println!("{runtime}");
    let mut report = Report { failed: 0 };
    let folder = Path::new(folder);
    fs::create_dir_all(folder)?;
    let pass = |draw, profile| serve(&runtime, Path::new(model), provider, draw, profile);
    let by_graph = pass(Draw::Graph, Some(folder.join("profile")))?;
    let by_host = pass(Draw::Host, None)?;
    tokens(&mut report, &by_graph, &by_host);
    bytes(&mut report, &by_graph, provider);
    operators(&mut report, folder, on)?;
    masks(&mut report, &runtime, provider)?;
    Ok(if report.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

struct Report {
    failed: usize,
}

impl Report {
    fn check(&mut self, holds: bool, what: impl AsRef<str>) {
        self.failed += usize::from(!holds);
        println!("{} {}", if holds { "ok    " } else { "FAILED" }, what.as_ref());
    }
}

/// Answers in the order of the requests.
struct Pass {
    answers: Vec<(String, u32)>,
    stats: Stats,
    vocabulary: usize,
    time: Duration,
}

/// Every kind of draw in turn; each fifth is one that only the host can.
fn request(number: u64) -> Generate {
    let facts = "Paris is the capital of France. ".repeat(1 + number as usize % 6);
    let message = Message::new(Role::User, format!("{facts}What is the capital of Peru? ({number})"));
    let mut request = Generate::new(Prompt::Chat(vec![message].into()));
    request.sampling = Sampling {
        temperature: if number.is_multiple_of(3) { 0.0 } else { 1.0 },
        top_p: if number % 4 == 1 { 0.9 } else { 1.0 },
        top_k: (number % 4 == 2).then_some(40),
        frequency_penalty: if number % 5 == 4 { 0.5 } else { 0.0 },
        seed: number,
        ..Sampling::default()
    };
    request.logprobs = (number % 6 == 5).then_some(3);
    request.ignore_eos = true;
    request.max_tokens = Some(32);
    request
}

fn serve(
    runtime: &Runtime,
    dir: &Path,
    provider: Provider,
    draw: Draw,
    profile: Option<PathBuf>,
) -> Result<Pass, Failure> {
    let options = ModelOptions {
        provider,
        draw,
        profile,
        max_context: Some(512),
        ..ModelOptions::default()
    };
    let model = Model::load(runtime, dir, &options)?;
    let vocabulary = model.vocabulary();
    println!("{}: {}, drawn: {draw:?}", dir.display(), model.provider());
    let waiter = std::thread::current();
    let (mailbox, mut mail) = mailbox(8192, Box::new(move || waiter.unpark()));
    let config = EngineConfig {
        max_batch: 8,
        ..EngineConfig::default()
    };
    let engine = Engine::start(model, &config, vec![mailbox])?;
    for note in &engine.info().notes {
        println!("note: {note}");
    }
    let begun = Instant::now();
    let mut handles = Vec::new();
    for number in 0..REQUESTS {
        handles.push(engine.submit(Job {
            ticket: Ticket(number),
            mailbox: 0,
            kind: JobKind::Generate(Box::new(request(number))),
            deadline: None,
        })?);
    }
    let mut answers = vec![(String::new(), 0); REQUESTS as usize];
    let mut open = REQUESTS;
    while open > 0 {
        while let Ok(mail) = mail.pop() {
            let answer = &mut answers[mail.ticket.0 as usize];
            match mail.event {
                Event::Text { text, .. } => answer.0.push_str(&text),
                Event::Finished { usage, .. } => {
                    answer.1 = usage.output_tokens;
                    open -= 1;
                }
                Event::Started { .. } => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        if begun.elapsed() > PATIENCE {
            return Err("no answers in time".into());
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let time = begun.elapsed();
    // Lets the graphs go, which writes their profiles.
    engine.close();
    Ok(Pass {
        answers,
        stats: engine.stats(),
        vocabulary,
        time,
    })
}

fn tokens(report: &mut Report, by_graph: &Pass, by_host: &Pass) {
    let same = by_graph
        .answers
        .iter()
        .zip(&by_host.answers)
        .filter(|(one, other)| one == other);
    let same = same.count();
    let drawn = by_graph.stats.device_draws + by_graph.stats.host_draws;
    report.check(
        same as u64 == REQUESTS,
        format!("tokens: {same} of {REQUESTS} answers are the host's"),
    );
    report.check(
        by_graph.stats.device_draws > by_graph.stats.host_draws && by_host.stats.device_draws == 0,
        format!(
            "draws: {} of {drawn} by the graph, {} by the host, {} of those since the nucleus was wide",
            by_graph.stats.device_draws, by_graph.stats.host_draws, by_graph.stats.wide_draws
        ),
    );
    println!(
        "time: {:.0?} drawn by the graph, {:.0?} by the host",
        by_graph.time, by_host.time
    );
}

fn bytes(report: &mut Report, pass: &Pass, provider: Provider) {
    let Stats {
        device_draws,
        host_draws,
        device_bytes,
        ..
    } = pass.stats;
    if provider != Provider::Cuda {
        report.check(device_bytes == 0, "bytes: none came from a device, since there is none");
        return;
    }
    let rows = host_draws * (pass.vocabulary * size_of::<f32>()) as u64;
    let rest = device_bytes.saturating_sub(rows);
    // An id is 8 bytes; log probabilities of 20 tokens, asked for by each sixth, 244 for every row of their step.
    report.check(
        device_bytes >= rows && rest <= 252 * (device_draws + host_draws),
        format!(
            "bytes: {device_bytes} came back, {rows} of them rows for the host's draws, {rest} for {device_draws} ids"
        ),
    );
}

/// How often an operator ran, by its name and provider.
type Operators = BTreeMap<(String, String), usize>;

fn operators(report: &mut Report, folder: &Path, on: &str) -> Result<(), Failure> {
    let mut heads = Operators::new();
    let mut model = Operators::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("profile-draw-") {
            read_profile(&path, &mut heads)?;
        } else if name.starts_with("profile-model") {
            read_profile(&path, &mut model)?;
        }
    }
    for (what, operators) in [("drawing", &heads), ("model", &model)] {
        println!("{what}: operators by provider");
        for ((operator, provider), count) in operators {
            println!("    {provider} {operator} {count}");
        }
    }
    let elsewhere: Vec<&str> = heads
        .keys()
        .filter(|(_, p)| p != on)
        .map(|(operator, _)| operator.as_str())
        .collect();
    report.check(
        !heads.is_empty() && elsewhere.is_empty(),
        format!("drawing: every operator ran on {on} {elsewhere:?}"),
    );
    let copies: Vec<_> = heads
        .keys()
        .filter(|(operator, _)| operator.starts_with("Memcpy"))
        .collect();
    report.check(
        copies.is_empty(),
        format!("drawing: no copy between providers within the graph {copies:?}"),
    );
    let attention = model.keys().filter(|(operator, _)| operator == "GroupQueryAttention");
    let attention: Vec<&str> = attention.map(|(_, provider)| provider.as_str()).collect();
    report.check(attention == [on], format!("model: attention ran on {attention:?}"));
    Ok(())
}

/// Adds the operators of a profile, which is a list of events.
fn read_profile(path: &Path, operators: &mut Operators) -> Result<(), Failure> {
    let events: Vec<Value> = serde_json::from_slice(&fs::read(path)?)?;
    for event in &events {
        let arguments = &event["args"];
        let (Some(operator), Some(provider)) = (arguments["op_name"].as_str(), arguments["provider"].as_str()) else {
            continue;
        };
        *operators.entry((operator.to_owned(), provider.to_owned())).or_default() += 1;
    }
    Ok(())
}

fn masks(report: &mut Report, runtime: &Runtime, provider: Provider) -> Result<(), Failure> {
    let times = mask_times(runtime, provider, VOCABULARY, &ALLOWED, ROUNDS)?;
    println!("masks over {VOCABULARY} tokens, medians of {ROUNDS} runs; each result has exactly the allowed tokens");
    println!("    allowed  run with mask  run without  mask");
    for time in &times {
        let mask = time.masked.saturating_sub(time.bare);
        println!(
            "    {:7}  {:13.1?}  {:11.1?}  {mask:.1?}",
            time.allowed, time.masked, time.bare
        );
    }
    let whole = |index: usize| times[index].masked.as_secs_f64();
    let (least, most) = (0..times.len())
        .map(whole)
        .fold((f64::MAX, 0.0f64), |(a, b), t| (a.min(t), b.max(t)));
    let spread = most / least - 1.0;
    let slowest = times
        .iter()
        .map(|time| time.masked.saturating_sub(time.bare))
        .max()
        .unwrap_or_default();
    if provider == Provider::Cuda {
        report.check(
            spread <= MASK_SPREAD,
            format!("masks: {:.1} % between the numbers of tokens", 100.0 * spread),
        );
        report.check(slowest <= MASK_LIMIT, format!("masks: {slowest:.1?} at most"));
    } else {
        println!("masks: the limits are for a GPU: not checked here");
    }
    Ok(())
}
