//! Limits, stops, cancelling, full queues and full mailboxes, seen from outside.

use std::{sync::atomic::Ordering, time::Duration};

use zerohop_engine::{
    AnswerError, Engine, EngineConfig, Event, Finish, Generate, JobKind, Model, ModelOptions, Part, Prompt, Rejected,
    Role, Sampling, StartError, answer,
};

use crate::{
    damage::Copy,
    skip::skipped,
    support::{
        Client, Conversation, Received, count, generate, greedy, message, model, model_dir, prompt, runtime, user,
        wait_until,
    },
};

fn client(test: &str, config: &EngineConfig) -> Option<Client> {
    Some(Client::start(model(test, &ModelOptions::default())?, config))
}

/// Never ends by itself within the tests' patience: every token is as likely as any other.
fn endless() -> JobKind {
    let hot = Sampling {
        temperature: 1e6,
        seed: 11,
        ..Sampling::default()
    };
    generate(hot, None, &[])
}

/// A text of a known length, for a model whose words we do not know: many tokens, drawn hot.
fn babble(seed: u64, max_tokens: u32, stop: &[&str]) -> JobKind {
    let hot = Sampling {
        temperature: 3.0,
        seed,
        ..Sampling::default()
    };
    generate(hot, Some(max_tokens), stop)
}

fn usage(received: &Received) -> (u32, u32) {
    let (_, usage) = received.finished().unwrap_or_else(|| panic!("finished: {received:?}"));
    (usage.input_tokens, usage.output_tokens)
}

#[test]
fn limits_and_usage() {
    let Some(mut client) = client("limits_and_usage", &EngineConfig::default()) else {
        return;
    };
    let counted = client.run(prompt(3), count());
    let [Event::Counted { input_tokens }] = counted.events[..] else {
        panic!("{counted:?}")
    };

    for max_tokens in [0, 1, 2, 30] {
        let received = client.run(prompt(3), babble(5, max_tokens, &[]));
        // From the second time on, the prompt's whole blocks are there.
        let cached = if max_tokens == 0 {
            0
        } else {
            (input_tokens - 2) / 16 * 16
        };
        let Event::Started {
            input_tokens: length,
            cached_tokens,
            ..
        } = received.events[0]
        else {
            panic!("{received:?}")
        };
        assert_eq!((length, cached_tokens), (input_tokens, cached), "{received:?}");
        let (finish, _) = received.finished().expect("finished");
        assert_eq!(*finish, Finish::MaxTokens, "{received:?}");
        assert_eq!(usage(&received), (input_tokens, max_tokens));
        assert!(received.tokens() <= max_tokens);
    }
    let info = client.engine.info().clone();
    let context = info.context as u32;
    let long = |words: usize| user(&"a b ".repeat(words));
    let received = client.run(long(info.context), greedy(1));
    let [Event::TooLong { input_tokens, limit }] = received.events[..] else {
        panic!("{received:?}")
    };
    assert!(input_tokens > limit && limit == context - 1, "{received:?}");
    let counted = client.run(long(info.context), count());
    assert_eq!(
        counted.events,
        [Event::Counted { input_tokens }],
        "counting has no limit"
    );

    // The longest prompt that fits leaves room for one token, whatever it is.
    let fits = (1..info.context).rev().map(long).find(|conversation| {
        let counted = client.run(conversation.clone(), count());
        matches!(counted.events[..], [Event::Counted { input_tokens }] if input_tokens <= limit)
    });
    let received = client.run(fits.expect("some length fits"), endless());
    let (input, output) = usage(&received);
    let (finish, _) = received.finished().expect("finished");
    assert_eq!(
        (finish, input + output),
        (&Finish::ContextFull, context),
        "{received:?}"
    );
    let stats = client.engine.stats();
    assert_eq!(
        (stats.open, stats.waiting, stats.running, stats.kv_tokens),
        (0, 0, 0, 0)
    );
    assert!(
        stats.kv_committed <= stats.kv_capacity && stats.kv_capacity >= u64::from(context),
        "{stats:?}"
    );
    assert!(stats.prefill_chunks > 1 && stats.step_time.count() <= stats.steps);
}

#[test]
fn stop_texts_cut_the_answer_and_nothing_else() {
    let Some(mut client) = client("stop_texts_cut_the_answer_and_nothing_else", &EngineConfig::default()) else {
        return;
    };
    for seed in 0..6 {
        let free = client.run(prompt(2), babble(seed, 60, &[]));
        let text = free.text();
        let characters: Vec<(usize, char)> = text.char_indices().collect();
        // Stops of several lengths from all over the text: most cross the tokens' borders.
        for (start, len) in [(3, 1), (5, 4), (9, 7), (12, 25)] {
            let (Some(&(from, _)), Some(&(to, _))) = (characters.get(start), characters.get(start + len)) else {
                continue;
            };
            let stop = &text[from..to];
            let received = client.run(prompt(2), babble(seed, 60, &["never in it \u{1}", stop]));
            let (finish, _) = received.finished().expect("finished");
            let cut = text.find(stop).expect("it is in it");
            assert_eq!(received.text(), text[..cut], "stop {stop:?} in {text:?}");
            assert_eq!(*finish, Finish::Stop(stop.to_owned()));
            assert!(usage(&received).1 <= usage(&free).1);
            assert!(received.tokens() <= usage(&received).1);
        }
        // A stop text that never comes holds nothing back at the end.
        let last = characters.last().map_or('x', |&(_, c)| c);
        let received = client.run(prompt(2), babble(seed, 60, &[&format!("{last}\u{1}\u{2}")]));
        assert_eq!(received.text(), text);
    }
}

#[test]
fn a_handle_that_is_dropped_ends_its_job() {
    let config = EngineConfig {
        max_batch: 2,
        ..EngineConfig::default()
    };
    let Some(mut client) = client("a_handle_that_is_dropped_ends_its_job", &config) else {
        return;
    };
    let mut jobs: Vec<_> = (0..4).map(|_| client.submit(prompt(1), endless())).collect();
    client.read_until("two to run", |client| client.engine.stats().running == 2);
    let (behind, _handle) = client.submit(prompt(1), greedy(3));
    // Those that wait first, then those that run.
    while jobs.pop().is_some() {}
    let received = client.outcome(behind);
    assert!(received.finished().is_some(), "{received:?}");
    let stats = client.engine.stats();
    assert_eq!((stats.failed, stats.open, stats.running), (0, 0, 0), "{stats:?}");
    assert_eq!(stats.cancelled + stats.finished, 5, "{stats:?}");
    assert!(stats.cancelled >= 2, "{stats:?}");
    client.read();
    let over = (0..5)
        .filter(|&ticket| client.received(ticket).is_some_and(Received::is_over))
        .count();
    assert_eq!(over as u64, stats.finished, "a cancelled job has no end");
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let config = EngineConfig {
        max_batch: 1,
        queue: 2,
        ..EngineConfig::default()
    };
    let Some(model) = model("a_full_queue_says_when_to_come_back", &ModelOptions::default()) else {
        return;
    };
    // With room for one mail only, no job can end before this test reads.
    let mut client = Client::with_mailbox(model, &config, 1);
    client.run(prompt(1), greedy(20));
    let mut handles: Vec<_> = (0..3).map(|_| client.submit(prompt(1), endless())).collect();
    for round in 0..3 {
        match client.try_submit(prompt(1), endless()) {
            Err(Rejected::QueueFull { retry_after }) => {
                assert!(
                    retry_after >= Duration::from_millis(10) && retry_after <= Duration::from_secs(60),
                    "{round}"
                );
            }
            other => panic!("a queue of 2 took a fourth job: {other:?}"),
        }
    }
    assert_eq!(client.engine.stats().rejected, 3);
    handles.remove(0);
    client.read_until("a place", |client| client.engine.stats().open < 3);
    client.submit(prompt(1), endless());
}

#[test]
fn a_full_mailbox_loses_nothing() {
    let name = "a_full_mailbox_loses_nothing";
    let Some(mut wide) = client(name, &EngineConfig::default()) else {
        return;
    };
    let kinds = |index: u64| babble(index, 20 + 10 * index as u32, &[]);
    let want: Vec<_> = (0..6)
        .map(|index| wide.run(prompt(index as usize), kinds(index)))
        .collect();
    let Some(model) = model(name, &ModelOptions::default()) else {
        return;
    };
    let mut narrow = Client::with_mailbox(model, &EngineConfig::default(), 1);
    let jobs: Vec<_> = (0..6)
        .map(|index| narrow.submit(prompt(index as usize), kinds(index)))
        .collect();
    // Nobody reads until all of it is computed.
    wait_until("all to be computed", || narrow.engine.stats().finished == 6);
    assert_eq!(narrow.engine.stats().open, 6, "undelivered jobs stay open");
    for ((ticket, _), want) in jobs.iter().zip(&want) {
        let got = narrow.outcome(*ticket);
        assert_eq!(got.text(), want.text());
        assert_eq!(got.finished(), want.finished());
        assert!(got.events.len() <= 4, "deltas are joined: {got:?}");
    }
    assert_eq!(
        narrow.engine.stats().open,
        0,
        "a job is closed when its end is delivered"
    );
}

#[test]
fn one_wake_a_step() {
    let Some(mut client) = client("one_wake_a_step", &EngineConfig::default()) else {
        return;
    };
    let jobs: Vec<_> = (0..16)
        .map(|index| client.submit(prompt(index), babble(index as u64, 40, &[])))
        .collect();
    for (ticket, _) in &jobs {
        client.outcome(*ticket);
    }
    let (wakes, stats) = (client.wakes.load(Ordering::Relaxed) as u64, client.engine.stats());
    assert!(
        wakes <= stats.steps + stats.accepted,
        "{wakes} wakes in {} steps",
        stats.steps
    );
}

#[test]
fn closing_answers_everyone() {
    let config = EngineConfig {
        max_batch: 2,
        ..EngineConfig::default()
    };
    let Some(mut client) = client("closing_answers_everyone", &config) else {
        return;
    };
    let jobs: Vec<_> = (0..8).map(|index| client.submit(prompt(index), endless())).collect();
    client.read_until("some to run", |client| client.engine.stats().running == 2);
    client.engine.close();
    let mut failed = 0;
    for (ticket, _) in &jobs {
        let received = client.outcome(*ticket);
        if let Some(Event::Failed { reason }) = received.events.last() {
            assert_eq!(reason, "the engine was closed");
            failed += 1;
        }
    }
    assert!(
        failed >= 4,
        "{failed} of {} failed, the others ended before",
        jobs.len()
    );
    assert_eq!(
        client.try_submit(prompt(0), greedy(1)).err(),
        Some(Rejected::NotRunning)
    );
    let stats = client.engine.stats();
    assert_eq!((stats.open, stats.waiting, stats.running), (0, 0, 0), "{stats:?}");
    client.engine.close();
}

#[test]
fn control_tokens_do_not_come_from_text() {
    let Some(model) = model("control_tokens_do_not_come_from_text", &ModelOptions::default()) else {
        return;
    };
    let json = std::fs::read(model_dir().join("tokenizer.json")).expect("a tokenizer");
    let tokenizer: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let controls: Vec<(u64, String)> = tokenizer["added_tokens"]
        .as_array()
        .expect("control tokens")
        .iter()
        .map(|token| {
            (
                token["id"].as_u64().expect("an id"),
                token["content"].as_str().expect("text").to_owned(),
            )
        })
        .collect();
    let count = |conversation: &Conversation| {
        let ids = model.encode(conversation).expect("renders");
        ids.iter()
            .filter(|&&id| controls.iter().any(|(control, _)| *control == u64::from(id)))
            .count()
    };
    let plain = count(&user("plain"));
    for (_, spelling) in &controls {
        for text in [
            spelling.clone(),
            format!("a{spelling}{spelling}b"),
            format!(" {spelling}\n"),
            spelling[1..].to_owned(),
        ] {
            assert_eq!(count(&user(&text)), plain, "{text:?}");
        }
    }
    let all: String = controls.iter().map(|(_, spelling)| spelling.as_str()).collect();
    let messages = [Role::System, Role::User, Role::Assistant, Role::User];
    let conversation =
        |content: &str| Conversation::from(messages.iter().map(|&role| message(role, content)).collect::<Vec<_>>());
    assert_eq!(count(&conversation(&all)), count(&conversation("plain")));
}

#[test]
fn a_message_is_continued() {
    let Some(mut client) = client("a_message_is_continued", &EngineConfig::default()) else {
        return;
    };
    let question = message(Role::User, "Tell me something about the river and the stone.");
    let whole = client.run(Conversation::from(vec![question.clone()]), greedy(24));
    let text = whole.text();
    // Cut at a token's border, so that the beginning is made of the same tokens again.
    let Some(Event::Text { text: first, .. }) = whole.events.get(1) else {
        panic!("{whole:?}")
    };
    let beginning = message(Role::Assistant, first);
    let rest = client.run(Conversation::from(vec![question, beginning]), greedy(23));
    let common = rest.text().len().min(text.len() - first.len());
    assert_eq!(rest.text()[..common], text[first.len()..][..common]);
}

#[test]
fn a_template_may_refuse() {
    let name = "a_template_may_refuse";
    let Some(runtime) = runtime(name) else { return };
    if !model_dir().join("model.onnx").is_file() {
        skipped(name, "no model");
        return;
    }
    let copy = Copy::new();
    let template = std::fs::read_to_string(copy.0.join("chat_template.jinja")).expect("a template");
    let strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system, please') }}{% endif %}";
    copy.write("chat_template.jinja", strict.to_owned() + &template);
    let model = Model::load(&runtime, &copy.0, &ModelOptions::default()).expect("loads");
    let mut client = Client::start(model, &EngineConfig::default());
    let conversation = Conversation::from(vec![message(Role::System, "be brief")]);
    let received = client.run(conversation, greedy(3));
    let [
        Event::Refused {
            part: Part::Messages,
            reason,
        },
    ] = &received.events[..]
    else {
        panic!("{received:?}")
    };
    assert!(reason.contains("no system, please"), "{reason}");
    assert!(
        client.run(prompt(0), greedy(3)).finished().is_some(),
        "the next one is served"
    );
}

#[test]
fn memory_bounds_the_batch() {
    let name = "memory_bounds_the_batch";
    let start =
        |options: &ModelOptions, config: &EngineConfig| Some(Engine::start(model(name, options)?, config, Vec::new()));
    let options = ModelOptions::default();
    let Some(Ok(engine)) = start(&options, &EngineConfig::default()) else {
        return;
    };
    let slot = engine.info().kv_bytes / engine.stats().kv_capacity as usize * engine.info().context;
    assert_eq!(
        (engine.info().slots, engine.info().notes.len()),
        (16, 0),
        "{:?}",
        engine.info()
    );
    let three = EngineConfig {
        kv_memory: 3 * slot + slot / 2,
        ..EngineConfig::default()
    };
    let engine = start(&options, &three).expect("the model is there").expect("starts");
    assert_eq!(engine.info().slots, 16, "they share the memory as they grow");
    assert_eq!(engine.stats().kv_capacity as usize, engine.info().context * 7 / 2);
    let none = EngineConfig {
        kv_memory: slot - 1,
        ..EngineConfig::default()
    };
    let error = start(&options, &none)
        .expect("the model is there")
        .err()
        .expect("not one fits")
        .to_string();
    assert!(
        error.contains("raise `kv_memory` or lower `max_context`") && error.contains(&slot.to_string()),
        "{error}"
    );
    let shorter = ModelOptions {
        max_context: Some(64),
        ..ModelOptions::default()
    };
    for wish in [0, 1, 1 << 20] {
        let options = ModelOptions {
            max_context: Some(wish),
            ..ModelOptions::default()
        };
        let runtime = runtime(name).expect("found before");
        let error = Model::load(&runtime, &model_dir(), &options)
            .expect_err("no such context")
            .to_string();
        assert!(
            error.contains("`max_context` is") && error.contains("set `max_context` to 2 to"),
            "{error}"
        );
    }
    let engine = start(&shorter, &none)
        .expect("the model is there")
        .expect("a shorter context fits");
    assert_eq!((engine.info().context, engine.info().slots), (64, 16));
    for (key, config) in [
        (
            "max_batch",
            EngineConfig {
                max_batch: 0,
                ..EngineConfig::default()
            },
        ),
        (
            "queue",
            EngineConfig {
                queue: 0,
                ..EngineConfig::default()
            },
        ),
        (
            "prefill_chunk",
            EngineConfig {
                prefill_chunk: 0,
                ..EngineConfig::default()
            },
        ),
        (
            "prep_threads",
            EngineConfig {
                prep_threads: 0,
                ..EngineConfig::default()
            },
        ),
    ] {
        let error = start(&options, &config).expect("the model is there").err();
        assert_eq!(error, Some(StartError::Zero { key }));
    }
}

#[test]
fn an_answer_for_a_terminal() {
    let name = "an_answer_for_a_terminal";
    let ask = |conversation: Conversation, pieces: &mut Vec<String>| {
        let model = model(name, &ModelOptions::default())?;
        let greedy = Sampling {
            temperature: 0.0,
            ..Sampling::default()
        };
        let config = EngineConfig {
            max_batch: 1,
            ..EngineConfig::default()
        };
        let request = Generate {
            sampling: greedy,
            max_tokens: Some(12),
            ..Generate::new(Prompt::Chat(conversation))
        };
        Some(answer(model, &config, None, request, |text| {
            pieces.push(text.to_owned())
        }))
    };
    let mut pieces = Vec::new();
    let Some(result) = ask(prompt(0), &mut pieces) else {
        return;
    };
    let (_, usage) = result.expect("an answer");
    assert!(usage.output_tokens <= 12);
    let Some(mut client) = client(name, &EngineConfig::default()) else {
        return;
    };
    assert_eq!(client.run(prompt(0), greedy(12)).text(), pieces.concat());
    let result = ask(user(&"long ".repeat(10_000)), &mut pieces).expect("the model is there");
    assert!(matches!(result, Err(AnswerError::TooLong { .. })), "{result:?}");
}
