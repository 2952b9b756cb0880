//! The same tokens alone and in company, whatever joins and leaves beside.

use std::path::Path;

use zerohop_engine::{
    EngineConfig, Event, Finish, Form, Generate, JobKind, Model, ModelOptions, Prompt, Role, Sampling,
};

use crate::{
    skip::skipped,
    support::{Client, Conversation, Received, generate, greedy, message, model, prompt, runtime},
};

/// The first third joins and leaves step by step, the rest comes all at once.
const JOBS: usize = 48;

/// Half of the jobs greedy, half seeded, of every kind of sampling.
fn kind(index: usize) -> JobKind {
    let max_tokens = Some([40, 60, 64, 5, 90, 120, 1, 100][index % 8]);
    let sampling = if index.is_multiple_of(2) {
        Sampling {
            temperature: 0.0,
            ..Sampling::default()
        }
    } else {
        Sampling {
            temperature: [0.8, 9.0, 20.0, 50.0][index / 2 % 4],
            top_p: [1.0, 0.9, 1.0, 0.5][index / 4 % 4],
            top_k: [None, None, Some(200), Some(20)][index / 2 % 4],
            seed: index as u64 * 7919,
            ..Sampling::default()
        }
    };
    generate(sampling, max_tokens, &[])
}

/// Text, reason and lengths: all that a client sees of the tokens. What came from the prefix cache depends on who was there
/// before.
fn essence(received: &Received) -> (String, Finish, u32, u32) {
    let (finish, usage) = received.finished().expect("finished");
    (received.text(), finish.clone(), usage.input_tokens, usage.output_tokens)
}

#[test]
fn batched_equals_alone() {
    let name = "batched_equals_alone";
    for threads in [1, 2] {
        let options = ModelOptions {
            threads,
            ..ModelOptions::default()
        };
        let (Some(first), Some(second)) = (model(name, &options), model(name, &options)) else {
            return;
        };
        let mut client = Client::start(first, &EngineConfig::default());
        let alone: Vec<_> = (0..JOBS)
            .map(|index| essence(&client.run(prompt(index), kind(index))))
            .collect();
        let stats = client.engine.stats();
        assert_eq!(stats.peak_batch, 1);
        assert!(stats.decode_tokens > 600, "answers long enough to tell: {stats:?}");
        drop(client);

        let mut client = Client::start(second, &EngineConfig::default());
        let mut jobs = Vec::new();
        for index in 0..JOBS {
            jobs.push(client.submit(prompt(index), kind(index)));
            if index >= JOBS / 3 {
                continue;
            }
            // Every third brings one that leaves early, at another point each time.
            let extra = (index % 3 == 0).then(|| client.submit(prompt(index + 3), kind(index + 1)));
            let steps = client.engine.stats().steps + index as u64 % 4;
            client.read_until("some steps", |client| {
                let stats = client.engine.stats();
                stats.steps >= steps || stats.open == 0
            });
            drop(extra);
        }
        for (index, (ticket, _)) in jobs.iter().enumerate() {
            assert_eq!(
                essence(&client.outcome(*ticket)),
                alone[index],
                "job {index} with {threads} threads"
            );
        }
        let stats = client.engine.stats();
        assert!(stats.peak_batch >= 8, "{stats:?}");
        assert!(stats.moves > 0, "{stats:?}");
    }
}

/// Sixteen of all kinds: greedy and drawn, with penalties, bound to forms, of every length. Log probabilities tell the
/// tokens themselves.
fn of_all_kinds(index: usize) -> JobKind {
    let schema = r#"{"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 20}},
        "required": ["n", "s"], "additionalProperties": false}"#;
    let mut request = Generate::new(Prompt::Tokens(Vec::new()));
    request.max_tokens = Some([48, 24, 40, 32][index % 4]);
    request.logprobs = Some(0);
    request.sampling.seed = index as u64 * 104_729;
    request.sampling.temperature = [0.0, 0.8, 1.2, 0.0][index % 4];
    match index / 4 {
        0 => {}
        1 => (request.sampling.repetition_penalty, request.sampling.top_p) = (1.3, 0.9),
        2 => {
            request.form = [Form::Object, Form::Schema(schema.into())][index % 2].clone();
            request.sampling.min_p = 0.05;
        }
        _ => {
            request.form = Form::Regex("[a-z ]{8,40}".into());
            request.sampling.frequency_penalty = 0.7;
            request.sampling.presence_penalty = 0.3;
            request.sampling.top_k = Some(50);
        }
    }
    JobKind::Generate(Box::new(request))
}

/// Every token drawn, and the end.
fn tokens(received: &Received) -> (Vec<u32>, Finish) {
    let told = received.events.iter().flat_map(|event| match event {
        Event::Text { logprobs, .. } => &logprobs[..],
        _ => &[],
    });
    let (finish, _) = received.finished().unwrap_or_else(|| panic!("{received:?}"));
    (told.map(|told| told.token).collect(), finish.clone())
}

/// At some time at least `beside` of them have to be in one batch: short answers end before the last prompts are read.
fn sixteen(load: impl Fn() -> Model, beside: u64) {
    const SIXTEEN: usize = 16;
    let mut client = Client::start(load(), &EngineConfig::default());
    let alone: Vec<_> = (0..SIXTEEN)
        .map(|index| tokens(&client.run(prompt(index), of_all_kinds(index))))
        .collect();
    assert_eq!(client.engine.stats().peak_batch, 1);
    drop(client);
    let all: usize = alone.iter().map(|(tokens, _)| tokens.len()).sum();
    assert!(all > SIXTEEN * 8, "answers long enough to tell: {all} tokens");
    // Another engine: nothing comes from the prefix cache.
    let mut client = Client::start(load(), &EngineConfig::default());
    let jobs: Vec<_> = (0..SIXTEEN)
        .map(|index| client.submit(prompt(index), of_all_kinds(index)))
        .collect();
    for (index, ((ticket, _handle), alone)) in jobs.iter().zip(&alone).enumerate() {
        assert_eq!(&tokens(&client.outcome(*ticket)), alone, "sequence {index}");
    }
    let stats = client.engine.stats();
    assert!(stats.peak_batch >= beside, "{stats:?}");
}

#[test]
fn sixteen_together_are_sixteen_alone() {
    let name = "sixteen_together_are_sixteen_alone";
    if model(name, &ModelOptions::default()).is_none() {
        return;
    }
    sixteen(
        || model(name, &ModelOptions::default()).expect("it was there before"),
        2,
    );
}

/// The same on a model with real weights, if `cargo xtask model gemma3-270m` made one.
#[test]
fn sixteen_together_are_sixteen_alone_on_gemma() {
    let name = "sixteen_together_are_sixteen_alone_on_gemma";
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../models/gemma3-270m");
    if !dir.join("model.onnx").is_file() {
        return skipped(name, &format!("no model in {}", dir.display()));
    }
    let Some(runtime) = runtime(name) else { return };
    let options = ModelOptions::default();
    let load = || Model::load(&runtime, &dir, &options).unwrap_or_else(|problem| panic!("{problem}"));
    sixteen(load, 8);
}

#[test]
fn same_seed_twice() {
    let Some(model) = model("same_seed_twice", &ModelOptions::default()) else {
        return;
    };
    let mut client = Client::start(model, &EngineConfig::default());
    let sampling = |seed| Sampling {
        temperature: 2.0,
        seed,
        ..Sampling::default()
    };
    let mut run = |seed| client.run(prompt(4), generate(sampling(seed), Some(40), &[])).text();
    let (first, second, other) = (run(1), run(1), run(2));
    assert_eq!(first, second);
    assert_ne!(first, other, "another seed, another answer");
}

/// Memory for hardly more than one long sequence: sequences take turns, and nobody can tell from the answers.
#[test]
fn short_memory_changes_no_answer() {
    let name = "short_memory_changes_no_answer";
    let options = ModelOptions::default();
    let (Some(first), Some(second)) = (model(name, &options), model(name, &options)) else {
        return;
    };
    // Together they become more than twice as long as there is memory for.
    const JOBS: usize = 16;
    let short = |index: usize| prompt(index % 2);
    let long = |index: usize| {
        let hot = Sampling {
            temperature: 50.0,
            seed: index as u64,
            ..Sampling::default()
        };
        generate(hot, Some(400), &[])
    };
    let mut client = Client::start(first, &EngineConfig::default());
    let alone: Vec<_> = (0..JOBS)
        .map(|index| essence(&client.run(short(index), long(index))))
        .collect();
    let token = client.engine.info().kv_bytes / client.engine.stats().kv_capacity as usize;
    drop(client);
    let small = EngineConfig {
        kv_memory: 2200 * token,
        ..EngineConfig::default()
    };
    let mut client = Client::start(second, &small);
    let jobs: Vec<_> = (0..JOBS)
        .map(|index| client.submit(short(index), long(index)))
        .collect();
    for (index, (ticket, _handle)) in jobs.iter().enumerate() {
        assert_eq!(essence(&client.outcome(*ticket)), alone[index], "job {index}");
    }
    let stats = client.engine.stats();
    assert!(stats.preempted > 0 && stats.peak_batch > 1, "{stats:?}");
    assert!(stats.kv_committed <= stats.kv_capacity, "{stats:?}");
}

/// What the engine's counters say was computed is what a prompt has beyond what was there; and a warm answer is the cold
/// one.
#[test]
fn a_shared_beginning_is_computed_once() {
    let name = "a_shared_beginning_is_computed_once";
    let Some(model) = model(name, &ModelOptions::default()) else {
        return;
    };
    let mut client = Client::start(model, &EngineConfig::default());
    let with = |question: &str| {
        let system = "You answer questions about rivers, stones and cities. ".repeat(12);
        Conversation::from(vec![message(Role::System, &system), message(Role::User, question)])
    };
    let mut ask = |question: &str| {
        let before = client.engine.stats();
        let received = client.run(with(question), greedy(24));
        let after = client.engine.stats();
        let (_, usage) = received.finished().expect("finished");
        let computed = after.prefill_tokens - before.prefill_tokens;
        assert_eq!(computed, u64::from(usage.input_tokens - usage.cached_tokens));
        (received.text(), usage)
    };
    let (cold, first) = ask("What is the capital of France?");
    assert_eq!(first.cached_tokens, 0);
    let (warm, again) = ask("What is the capital of France?");
    assert_eq!(warm, cold);
    assert!(again.input_tokens - again.cached_tokens <= 17, "{again:?}");
    let (_, other) = ask("Which stone is blue?");
    assert!(other.cached_tokens >= 100, "the system text is shared: {other:?}");
}
