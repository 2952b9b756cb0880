//! How fast an engine is on this machine: `cargo run --release -p zerohop-engine --example bench -- [MODEL] [THREADS]`.
//!
//! Prints, for batches of 1, 4, 8 and 16: tokens for each second of CPU time and of wall time, the time for each
//! step of the model, of the draws and of the scheduler itself; then the rate of prompts. CPU time is that of all threads, from
//! `/proc/self/task`. Answers never end by themselves: the model runs with an end token that it does not produce.
//!
//! With `--requests MODEL THREADS` it does instead what it is asked to on standard input (see [`requests`]), so that a
//! driver can run it in turn with others. It never draws but greedily then.

#![allow(clippy::print_stdout)]

mod requests;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use zerohop_engine::{
    Engine, EngineConfig, Generate, Job, JobHandle, JobKind, Mail, Message, Model, ModelOptions, Prompt, Role, Runtime,
    Sampling, Stats, Submit, Ticket, mailbox,
};

/// How long each line measures.
const WINDOW: Duration = Duration::from_secs(3);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("--requests").is_some() {
        return requests::serve(arguments);
    }
    let bundled = || format!("{}/../../models/tiny", env!("CARGO_MANIFEST_DIR"));
    let dir = PathBuf::from(arguments.next().unwrap_or_else(bundled));
    let threads = arguments.next().map_or(Ok(1), |n| n.parse())?;
    let runtime = Runtime::find(None, std::env::var_os("ORT_DYLIB_PATH").as_deref())?;
    println!("{runtime}");
    let endless = Endless::of(&dir)?;
    let options = ModelOptions {
        threads,
        ..ModelOptions::default()
    };
    let load = || Model::load(&runtime, &endless.0, &options);
    let begun = Instant::now();
    let model = load()?;
    println!(
        "{}: loaded in {:.0?}, {threads} threads, {}",
        dir.display(),
        begun.elapsed(),
        model.provider()
    );
    for (how, temperature, top_p) in [
        ("greedy", 0.0, 1.0),
        ("temperature 1", 1.0, 1.0),
        ("top_p 0.9", 1.0, 0.9),
    ] {
        println!("\n{how}\n batch  tokens/CPU s  tokens/s   model/step   draw/step    own/step");
        for batch in [1, 4, 8, 16] {
            decode(
                load()?,
                batch,
                &Sampling {
                    temperature,
                    top_p,
                    ..Sampling::default()
                },
            )?;
        }
    }
    prefill(load()?)?;
    let status = fs::read_to_string("/proc/self/status")?;
    println!(
        "\n{}",
        status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap_or_default()
    );
    Ok(())
}

/// A directory of links to a model's files whose end token is one that the model does not produce.
struct Endless(PathBuf);

impl Endless {
    fn of(dir: &Path) -> Result<Self, Failure> {
        let copy = Self(std::env::temp_dir().join(format!("zerohop-bench-{}", std::process::id())));
        fs::create_dir_all(&copy.0)?;
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_file()) {
                symlink(fs::canonicalize(&path)?, copy.0.join(name))?;
            }
        }
        let config = copy.0.join("config.json");
        let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&config)?)?;
        value["eos_token_id"] = 0.into();
        fs::remove_file(&config)?;
        fs::write(config, value.to_string())?;
        Ok(copy)
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Nanoseconds on a CPU of all threads so far.
fn cpu() -> Result<Duration, Failure> {
    let mut nanos = 0u64;
    for task in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += text.split(' ').next().map_or(Ok(0), str::parse)?;
    }
    Ok(Duration::from_nanos(nanos))
}

struct Session {
    engine: Engine,
    mail: rtrb::Consumer<Mail>,
    handles: Vec<JobHandle>,
}

impl Session {
    fn start(model: Model, max_batch: usize) -> Result<Self, Failure> {
        let (mailbox, mail) = mailbox(1 << 14, Box::new(|| {}));
        let config = EngineConfig {
            max_batch,
            ..EngineConfig::default()
        };
        Ok(Self {
            engine: Engine::start(model, &config, vec![mailbox])?,
            mail,
            handles: Vec::new(),
        })
    }

    fn submit(&mut self, content: String, sampling: &Sampling, max_tokens: Option<u32>) -> Result<(), Failure> {
        let number = self.handles.len() as u64;
        let message = Message::new(Role::User, content);
        self.handles.push(self.engine.submit(Job {
            ticket: Ticket(number),
            mailbox: 0,
            kind: JobKind::Generate(Box::new(Generate {
                sampling: Sampling {
                    seed: number,
                    ..sampling.clone()
                },
                max_tokens,
                ..Generate::new(Prompt::Chat(vec![message].into()))
            })),
            deadline: None,
        })?);
        Ok(())
    }

    /// Empties the mailbox, seldom enough not to matter. Returns how many jobs are over.
    fn rest(&mut self) -> usize {
        std::thread::sleep(Duration::from_millis(20));
        let mut over = 0;
        while let Ok(mail) = self.mail.pop() {
            over += usize::from(mail.event.is_final());
        }
        over
    }
}

fn decode(model: Model, batch: usize, sampling: &Sampling) -> Result<(), Failure> {
    let mut session = Session::start(model, batch)?;
    let (mut best, mut line) = (0.0, String::new());
    for _ in 0..3 {
        session.handles.clear();
        while session.engine.stats().open > 0 {
            session.rest();
        }
        for number in 0..batch {
            session.submit(format!("Tell me a long story about number {number}."), sampling, None)?;
        }
        while session.engine.stats().running < batch as u64 {
            std::thread::yield_now();
        }
        let (before, cpu_before, begun) = (session.engine.stats(), cpu()?, Instant::now());
        while begun.elapsed() < WINDOW / 3 && session.engine.stats().running == batch as u64 {
            session.rest();
        }
        let (after, cpu_spent, wall) = (session.engine.stats(), cpu()? - cpu_before, begun.elapsed());
        let tokens = (after.decode_tokens - before.decode_tokens) as f64;
        let rate = tokens / cpu_spent.as_secs_f64();
        if rate > best {
            best = rate;
            let [run, draw, own] = per_step(&before, &after);
            line = format!(
                "{batch:6}{rate:14.0}{:10.0}{run:10.1} µs{draw:9.1} µs{own:9.1} µs",
                tokens / wall.as_secs_f64()
            );
        }
    }
    println!("{line}");
    Ok(())
}

/// Microseconds of a step: the model, the draws, the rest.
fn per_step(before: &Stats, after: &Stats) -> [f64; 3] {
    let steps = (after.steps - before.steps).max(1) as f64;
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / steps;
    [
        after.run_time - before.run_time,
        after.sample_time - before.sample_time,
        after.own_time - before.own_time,
    ]
    .map(micros)
}

fn prefill(model: Model) -> Result<(), Failure> {
    let context = model.context();
    let mut session = Session::start(model, 1)?;
    let (cpu_before, begun) = (cpu()?, Instant::now());
    let text = "The quick brown fox. ".repeat(context / 16);
    let mut open = 0;
    while begun.elapsed() < WINDOW {
        if open < 4 {
            session.submit(
                text.clone(),
                &Sampling {
                    temperature: 0.0,
                    ..Sampling::default()
                },
                Some(1),
            )?;
            open += 1;
        } else {
            open -= session.rest();
        }
    }
    let (stats, cpu_spent) = (session.engine.stats(), cpu()? - cpu_before);
    let tokens = stats.prefill_tokens as f64;
    println!(
        "\nprompts of {} tokens: {:.0} tokens/CPU s, {:.0} tokens/s",
        stats.prefill_tokens / stats.finished.max(1),
        tokens / cpu_spent.as_secs_f64(),
        tokens / begun.elapsed().as_secs_f64(),
    );
    Ok(())
}
