//! Everything that a request may ask of the draw, with the real model: alone, and all at once.

use zerohop_engine::{
    Draw, EngineConfig, Event, Finish, Generate, JobKind, Logprob, ModelOptions, Part, Prompt, Sampling,
};

use crate::support::{Client, Received, model, prompt};

fn request(change: impl FnOnce(&mut Generate)) -> JobKind {
    let mut request = Generate::new(Prompt::Tokens(vec![1]));
    request.sampling.temperature = 0.0;
    request.max_tokens = Some(40);
    request.logprobs = Some(3);
    change(&mut request);
    JobKind::Generate(Box::new(request))
}

fn told(received: &Received) -> Vec<&Logprob> {
    let events = received.events.iter();
    events
        .flat_map(|event| match event {
            Event::Text { tokens, logprobs, .. } => {
                assert!(logprobs.is_empty() || logprobs.len() == *tokens as usize, "{event:?}");
                &logprobs[..]
            }
            _ => &[],
        })
        .collect()
}

fn ids(received: &Received) -> Vec<u32> {
    told(received).iter().map(|told| told.token).collect()
}

/// Every kind of draw, by name.
fn requests() -> Vec<(&'static str, JobKind)> {
    let seeded = |change: fn(&mut Sampling)| {
        request(|request| {
            request.sampling = Sampling {
                temperature: 1.5,
                seed: 11,
                ..Sampling::default()
            };
            change(&mut request.sampling);
        })
    };
    vec![
        ("greedy", request(|_| {})),
        ("seeded", seeded(|_| {})),
        ("min_p", seeded(|how| how.min_p = 0.1)),
        ("top k and p", seeded(|how| (how.top_k, how.top_p) = (Some(30), 0.9))),
        ("repetition", seeded(|how| how.repetition_penalty = 1.5)),
        ("frequency", seeded(|how| how.frequency_penalty = 1.0)),
        (
            "presence",
            seeded(|how| (how.presence_penalty, how.temperature) = (1.0, 0.0)),
        ),
        ("bias", seeded(|how| how.logit_bias = vec![(70, 5.0), (80, -100.0)])),
        ("deaf", request(|request| request.ignore_eos = true)),
        ("late", request(|request| request.min_tokens = 35)),
        ("no log probabilities", request(|request| request.logprobs = None)),
    ]
}

#[test]
fn every_draw_is_the_same_alone_and_in_company() {
    let name = "every_draw_is_the_same_alone_and_in_company";
    let Some(model) = model(name, &ModelOptions::default()) else {
        return;
    };
    let mut client = Client::start(model, &EngineConfig::default());
    let alone: Vec<Received> = requests()
        .into_iter()
        .enumerate()
        .map(|(index, (_, kind))| client.run(prompt(index), kind))
        .collect();
    let jobs: Vec<_> = requests()
        .into_iter()
        .enumerate()
        .map(|(index, (_, kind))| client.submit(prompt(index), kind))
        .collect();
    let mut different = 0;
    for ((ticket, _), (alone, (name, _))) in jobs.iter().zip(alone.iter().zip(requests())) {
        let together = client.outcome(*ticket);
        assert_eq!(together.text(), alone.text(), "{name}");
        // What came from the prefix cache depends on who was there before.
        let end = |received: &Received| {
            received
                .finished()
                .map(|(end, usage)| (end.clone(), usage.output_tokens))
        };
        assert_eq!(end(&together), end(alone), "{name}");
        let (one, other) = (told(alone), told(&together));
        assert_eq!(one.len(), other.len(), "{name}");
        for (one, other) in one.iter().zip(&other) {
            assert_eq!((one.token, &one.bytes), (other.token, &other.bytes), "{name}");
            let close = |a: Option<f32>, b: Option<f32>| a.zip(b).is_some_and(|(a, b)| (a - b).abs() < 1e-3);
            assert!(close(one.logprob, other.logprob), "{name}: {one:?}, {other:?}");
            assert_eq!(one.top.len(), 3, "{name}");
            different += usize::from(one.top[0].0 != one.token);
        }
        if name != "no log probabilities" {
            let bytes: Vec<u8> = one.iter().flat_map(|told| told.bytes.iter().copied()).collect();
            assert!(
                String::from_utf8_lossy(&bytes).ends_with(alone.text().trim_start()),
                "{name}: {one:?}"
            );
            assert!(!one.is_empty(), "{name}");
        }
    }
    assert!(different > 10, "only {different} tokens were not the best");
    assert!(client.engine.stats().peak_batch > 4, "{:?}", client.engine.stats());
}

#[test]
fn where_answers_end() {
    let Some(model) = model("where_answers_end", &ModelOptions::default()) else {
        return;
    };
    let mut client = Client::start(model, &EngineConfig::default());
    let plain = client.run(prompt(0), request(|_| {}));
    let tokens = ids(&plain);
    let first = told(&plain)
        .iter()
        .all(|told| told.top[0].0 == told.token && told.logprob == Some(told.top[0].2));
    assert!(first, "greedy takes the best: {plain:?}");
    let stop = tokens[5];
    let before = tokens.iter().position(|&token| token == stop).unwrap_or_default();

    let stopped = client.run(prompt(0), request(|request| request.stop_tokens = vec![stop]));
    let (finish, usage) = stopped.finished().expect("finished");
    assert_eq!(
        (finish, usage.output_tokens as usize),
        (&Finish::StopToken(stop), before)
    );
    assert_eq!(ids(&stopped), tokens[..before]);

    // The same token is not drawn before it may be.
    let late = client.run(
        prompt(0),
        request(|request| {
            request.stop_tokens = vec![stop];
            request.min_tokens = before as u32 + 3;
        }),
    );
    let (_, usage) = late.finished().expect("finished");
    assert!(usage.output_tokens >= before as u32 + 3, "{late:?}");
    assert!(!ids(&late).contains(&stop), "{late:?}");

    let deaf = client.run(
        prompt(0),
        request(|request| (request.ignore_eos, request.max_tokens) = (true, Some(150))),
    );
    let (finish, usage) = deaf.finished().expect("finished");
    assert_eq!((finish, usage.output_tokens), (&Finish::MaxTokens, 150), "{deaf:?}");
}

#[test]
fn ids_beyond_the_vocabulary_are_refused() {
    let Some(model) = model("ids_beyond_the_vocabulary_are_refused", &ModelOptions::default()) else {
        return;
    };
    let vocabulary = model.vocabulary() as u32;
    let mut client = Client::start(model, &EngineConfig::default());
    for (kind, want) in [
        (
            request(|request| request.sampling.logit_bias = vec![(vocabulary, 1.0)]),
            Part::LogitBias,
        ),
        (
            request(|request| request.stop_tokens = vec![3, vocabulary]),
            Part::StopTokens,
        ),
    ] {
        let received = client.run(prompt(0), kind);
        let [Event::Refused { part, reason }] = &received.events[..] else {
            panic!("{received:?}")
        };
        assert_eq!(*part, want);
        assert!(reason.starts_with(&vocabulary.to_string()), "{reason}");
    }
}

/// A token among the best: its id, its bytes and its log probability.
type Top = (u32, Vec<u8>, f32);

/// The graph that a device draws by, on the CPU provider: who draws changes nothing, and what a graph cannot is left to the
/// host.
#[test]
fn a_graph_draws_what_the_host_draws() {
    let name = "a_graph_draws_what_the_host_draws";
    let outcomes = |draw: Draw| {
        let options = ModelOptions {
            draw,
            ..ModelOptions::default()
        };
        let mut client = Client::start(model(name, &options)?, &EngineConfig::default());
        let jobs: Vec<_> = requests()
            .into_iter()
            .enumerate()
            .map(|(index, (_, kind))| client.submit(prompt(index), kind))
            .collect();
        let outcomes: Vec<Received> = jobs.iter().map(|(ticket, _)| client.outcome(*ticket)).collect();
        Some((outcomes, client.engine.stats()))
    };
    let Some((by_graph, graph)) = outcomes(Draw::Graph) else {
        return;
    };
    let (by_host, host) = outcomes(Draw::Host).expect("it was there before");
    for ((one, other), (name, _)) in by_graph.iter().zip(&by_host).zip(requests()) {
        assert_eq!(one.text(), other.text(), "{name}");
        let end = |received: &Received| {
            received
                .finished()
                .map(|(finish, usage)| (finish.clone(), usage.output_tokens))
        };
        assert_eq!(end(one), end(other), "{name}");
        assert_eq!(ids(one), ids(other), "{name}");
        for (one, other) in told(one).iter().zip(told(other)) {
            let close = |a: f32, b: f32| (a - b).abs() < 1e-3;
            assert!(
                one.logprob.zip(other.logprob).is_some_and(|(a, b)| close(a, b)),
                "{name}"
            );
            let same = |one: &Top, other: &Top| one.0 == other.0 && one.1 == other.1 && close(one.2, other.2);
            assert!(
                one.top.iter().zip(&other.top).all(|(one, other)| same(one, other)),
                "{name}: {one:?}, {other:?}"
            );
        }
    }
    let drawn: u64 = by_host
        .iter()
        .map(|received| received.finished().map_or(0, |(_, u)| u.output_tokens.into()))
        .sum();
    assert!(host.device_draws == 0 && host.host_draws >= drawn, "{host:?}");
    // Penalties and bias are the host's: four of eleven.
    assert!(
        graph.device_draws > graph.host_draws && graph.host_draws > 0,
        "{graph:?}"
    );
    assert_eq!(graph.device_draws + graph.host_draws, host.host_draws);
    assert_eq!(graph.device_bytes, 0, "the logits were on the host");
}
