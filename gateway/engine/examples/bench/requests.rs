//! The engine's side of `cargo xtask bench engine`: does what it is asked to on standard input, and tells what it cost.
//!
//! A line `prefill TOKENS` sends a prompt of so many tokens and waits for the first one of its answer. `decode BATCH
//! CONTEXT STEPS` has BATCH answers to prompts of CONTEXT tokens in progress and then counts STEPS steps of them all, and
//! where their time went. `prefix TOKENS` sends a prompt of so many tokens twice, the second time with the prefix cache. All
//! of it goes through the real engine: preparation, scheduler, model, greedy draw, mail.
//!
//! It never counts the thread that asks. Invariant: each answer is one line of JSON; times are in seconds, on the wall or (as
//! `cpu`, and those of `prefix`) on a CPU, of all threads but that one.

use std::{
    fs,
    io::{self, BufRead},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use zerohop_engine::{
    Conversation, Engine, EngineConfig, Generate, Job, JobHandle, JobKind, Mail, Message, Model, ModelOptions, Prompt,
    Role, Runtime, Sampling, Submit, Ticket, mailbox,
};

use super::{Endless, Failure};

/// Sequences that have a place, and tokens of each: as many as the other side has.
const SLOTS: usize = 16;
const CONTEXT: usize = 512;

/// How often the counters are looked at.
const POLL: Duration = Duration::from_micros(200);

/// Answers the lines of standard input, about the model and with the threads that `arguments` name.
pub(super) fn serve(mut arguments: impl Iterator<Item = String>) -> Result<(), Failure> {
    let dir = PathBuf::from(arguments.next().ok_or("--requests MODEL THREADS")?);
    let threads = arguments.next().ok_or("--requests MODEL THREADS")?.parse()?;
    let runtime = Runtime::find(None, std::env::var_os("ORT_DYLIB_PATH").as_deref())?;
    let endless = Endless::of(&dir)?;
    let mut bench = Bench::start(&runtime, &endless, threads)?;
    println!("{}", json!({"version": runtime.version()}));
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["prefill", tokens] => bench.prefill(tokens.parse()?)?.told(),
            ["decode", batch, context, steps] => bench.decode(batch.parse()?, context.parse()?, steps.parse()?)?,
            ["prefix", tokens] => bench.prefix(tokens.parse()?)?,
            _ => return Err(format!("unknown request {line:?}").into()),
        };
        println!("{answer}");
    }
    Ok(())
}

struct Cost {
    tokens: u64,
    cpu: Duration,
    wall: Duration,
}

impl Cost {
    fn told(&self) -> Value {
        json!({"tokens": self.tokens, "cpu": self.cpu.as_secs_f64(), "wall": self.wall.as_secs_f64()})
    }
}

struct Bench {
    /// Loaded a second time, to count tokens of prompts.
    counter: Model,
    engine: Engine,
    mail: rtrb::Consumer<Mail>,
    prompts: u64,
}

impl Bench {
    fn start(runtime: &Runtime, endless: &Endless, threads: usize) -> Result<Self, Failure> {
        let options = ModelOptions {
            threads,
            max_context: Some(CONTEXT),
            ..ModelOptions::default()
        };
        let load = || Model::load(runtime, &endless.0, &options);
        let (mailbox, mail) = mailbox(1 << 14, Box::new(|| {}));
        let config = EngineConfig {
            max_batch: SLOTS,
            kv_memory: 1 << 30,
            ..EngineConfig::default()
        };
        let engine = Engine::start(load()?, &config, vec![mailbox])?;
        if engine.info().slots < SLOTS {
            return Err(format!("{SLOTS} sequences of {CONTEXT} tokens do not fit 1 GiB").into());
        }
        Ok(Self {
            counter: load()?,
            engine,
            mail,
            prompts: 0,
        })
    }

    fn prefill(&mut self, tokens: usize) -> Result<Cost, Failure> {
        let prompt = self.prompt(tokens)?;
        self.first_token(prompt, tokens)
    }

    /// The same prompt, unknown and then known.
    fn prefix(&mut self, tokens: usize) -> Result<Value, Failure> {
        let prompt = self.prompt(tokens)?;
        let unknown = self.first_token(prompt.clone(), tokens)?;
        let before = self.engine.stats().cached_tokens;
        let known = self.first_token(prompt, tokens)?;
        let cached = self.engine.stats().cached_tokens - before;
        Ok(json!({"unknown": unknown.cpu.as_secs_f64(), "known": known.cpu.as_secs_f64(), "cached": cached}))
    }

    /// Up to the first token of the answer to a prompt.
    fn first_token(&mut self, prompt: Conversation, tokens: usize) -> Result<Cost, Failure> {
        let meter = Meter::start()?;
        let _handle = self.submit(prompt, 1)?;
        self.wait(|engine| engine.stats().open == 0);
        meter.stop(tokens as u64)
    }

    fn decode(&mut self, batch: u64, context: usize, steps: u64) -> Result<Value, Failure> {
        let longest = CONTEXT - context;
        if batch > SLOTS as u64 || steps + 2 * batch + 2 > longest as u64 {
            return Err(format!("{batch} sequences and {steps} steps do not fit").into());
        }
        let prompts: Vec<Conversation> = (0..batch).map(|_| self.prompt(context)).collect::<Result<_, _>>()?;
        let before = computed(&self.engine);
        let handles: Vec<JobHandle> = prompts
            .into_iter()
            .map(|prompt| self.submit(prompt, longest as u32))
            .collect::<Result<_, _>>()?;
        // All prompts are computed: from here on nothing but decode steps runs.
        self.wait(|engine| computed(engine) == before + batch * context as u64 && engine.stats().running == batch);
        // From one step to another: the counter rises when a step's model has run.
        let joined = self.engine.stats().decode_tokens;
        self.wait(|engine| engine.stats().decode_tokens >= joined + 2 * batch);
        let (before, meter) = (self.engine.stats(), Meter::start()?);
        self.wait(|engine| engine.stats().decode_tokens >= before.decode_tokens + steps * batch);
        let after = self.engine.stats();
        let mut told = meter.stop(after.decode_tokens - before.decode_tokens)?.told();
        told["steps"] = (after.steps - before.steps).into();
        told["run"] = (after.run_time - before.run_time).as_secs_f64().into();
        told["draw"] = (after.sample_time - before.sample_time).as_secs_f64().into();
        told["own"] = (after.own_time - before.own_time).as_secs_f64().into();
        drop(handles);
        self.wait(|engine| engine.stats().open == 0);
        Ok(told)
    }

    /// A conversation of exactly so many tokens, like none before.
    fn prompt(&mut self, tokens: usize) -> Result<Conversation, Failure> {
        self.prompts += 1;
        let with = |words: usize| {
            let text = format!("{} times: {}", self.prompts, "the ".repeat(words));
            Conversation::from(vec![Message::new(Role::User, text)])
        };
        let frame = self.counter.encode(&with(1))?.len() - 1;
        let conversation = with(tokens.saturating_sub(frame));
        let found = self.counter.encode(&conversation)?.len();
        if found != tokens {
            return Err(format!("a prompt of {found} tokens, not {tokens}: a word of it is not one token").into());
        }
        Ok(conversation)
    }

    fn submit(&mut self, conversation: Conversation, max_tokens: u32) -> Result<JobHandle, Failure> {
        let sampling = Sampling {
            temperature: 0.0,
            ..Sampling::default()
        };
        let request = Generate {
            sampling,
            max_tokens: Some(max_tokens),
            ignore_eos: true,
            ..Generate::new(Prompt::Chat(conversation))
        };
        Ok(self.engine.submit(Job {
            ticket: Ticket(self.prompts),
            mailbox: 0,
            kind: JobKind::Generate(Box::new(request)),
            deadline: None,
        })?)
    }

    /// Until `done`; the mail is read and dropped meanwhile.
    fn wait(&mut self, done: impl Fn(&Engine) -> bool) {
        while !done(&self.engine) {
            while self.mail.pop().is_ok() {}
            thread::sleep(POLL);
        }
    }
}

/// Tokens of prompts that need no more work.
fn computed(engine: &Engine) -> u64 {
    let stats = engine.stats();
    stats.prefill_tokens + stats.cached_tokens
}

/// Measures from its start to its stop.
struct Meter {
    cpu: Duration,
    wall: Instant,
}

impl Meter {
    fn start() -> Result<Self, Failure> {
        Ok(Self {
            cpu: others()?,
            wall: Instant::now(),
        })
    }

    fn stop(self, tokens: u64) -> Result<Cost, Failure> {
        Ok(Cost {
            tokens,
            cpu: others()?.saturating_sub(self.cpu),
            wall: self.wall.elapsed(),
        })
    }
}

/// Time on a CPU of all threads but the first.
fn others() -> Result<Duration, Failure> {
    let first = std::process::id().to_string();
    let mut nanos = 0u64;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        if task.file_name().to_str() != Some(&first) {
            let text = fs::read_to_string(task.path().join("schedstat"))?;
            nanos += text.split(' ').next().map_or(Ok(0), str::parse)?;
        }
    }
    Ok(Duration::from_nanos(nanos))
}
