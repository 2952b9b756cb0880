//! The same tokens alone and in company, whatever joins and leaves beside.

use zerohop_engine::{EngineConfig, JobKind, ModelOptions, Sampling};

use crate::support::{Client, Received, generate, model, prompt};

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

/// Text, reason and usage: all that a client sees of the tokens.
fn essence(received: &Received) -> (String, String) {
    (received.text(), format!("{:?}", received.finished().expect("finished")))
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
