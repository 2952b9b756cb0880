//! Forms with the real model: every answer has the form that was asked for, alone and in a batch, greedy and drawn.

use zerohop_engine::{EngineConfig, Event, Finish, Form, Generate, JobKind, ModelOptions, Part, Prompt, Sampling};

use crate::support::{Client, Conversation, model, prompt, user};

fn job(form: Form, temperature: f32, seed: u64, max_tokens: u32) -> JobKind {
    JobKind::Generate(Box::new(Generate {
        sampling: Sampling {
            temperature,
            seed,
            ..Sampling::default()
        },
        max_tokens: Some(max_tokens),
        form,
        ..Generate::new(Prompt::Chat(Conversation::default()))
    }))
}

type Fits = fn(&str) -> bool;

fn forms() -> [(Form, Fits); 5] {
    let schema = r#"{"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["city", "count"],
        "additionalProperties": false}"#;
    [
        (Form::Schema(schema.into()), |text| {
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            let count = value["count"].as_f64().expect("a number");
            ["Paris", "Rome"].contains(&value["city"].as_str().expect("text")) && (1.0..=99.0).contains(&count)
        }),
        (Form::Object, |text| {
            text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
        }),
        (Form::Regex("[0-9]{3}-[0-9]{4}".into()), |text| {
            text.len() == 8 && text.as_bytes()[3] == b'-' && text.bytes().filter(u8::is_ascii_digit).count() == 7
        }),
        (
            Form::Choice(vec!["yes".into(), "no".into(), "perhaps".into()]),
            |text| ["yes", "no", "perhaps"].contains(&text),
        ),
        (
            Form::Grammar("start: \"<\" NAME \">\"\nNAME: /[a-z]{2,5}/\n".into()),
            |text| text.starts_with('<') && text.ends_with('>') && (4..=7).contains(&text.len()),
        ),
    ]
}

#[test]
fn every_answer_has_its_form_alone_and_in_a_batch() {
    let Some(model) = model(
        "every_answer_has_its_form_alone_and_in_a_batch",
        &ModelOptions::default(),
    ) else {
        return;
    };
    let mut client = Client::start(model, &EngineConfig::default());
    let mut jobs = Vec::new();
    for (index, (form, fits)) in forms().into_iter().enumerate() {
        for (seed, temperature) in [(0, 0.0), (1, 1.0), (2, 1.5)] {
            jobs.push((index, form.clone(), fits, seed, temperature));
        }
    }
    let alone: Vec<_> = jobs
        .iter()
        .map(|(index, form, _, seed, temperature)| {
            client.run(prompt(*index), job(form.clone(), *temperature, *seed, 60))
        })
        .collect();
    let masked = client.engine.stats().masked_tokens;
    assert!(masked > 0, "tokens were drawn under masks");
    // Free answers run beside them: what binds one row leaves the others alone.
    let free: Vec<_> = (0..2)
        .map(|n| client.submit(prompt(n), job(Form::Free, 0.0, 0, 40)))
        .collect();
    let together: Vec<_> = jobs
        .iter()
        .map(|(index, form, _, seed, temperature)| {
            client.submit(prompt(*index), job(form.clone(), *temperature, *seed, 60))
        })
        .collect();
    for (((_, form, fits, seed, _), alone), (ticket, _handle)) in jobs.iter().zip(&alone).zip(&together) {
        let received = client.outcome(*ticket);
        assert_eq!(
            received.text(),
            alone.text(),
            "{form:?}, seed {seed}: alone and in a batch"
        );
        let text = received.text();
        match received.finished() {
            Some((Finish::EndOfTurn, _)) => assert!(fits(&text), "{form:?}, seed {seed}: {text:?}"),
            Some((Finish::MaxTokens, usage)) => assert_eq!(usage.output_tokens, 60, "{form:?}: {text:?}"),
            other => panic!("{form:?}: {other:?}"),
        }
        let open_ended = matches!(form, Form::Object | Form::Schema(_));
        let ended = matches!(received.finished(), Some((Finish::EndOfTurn, _)));
        assert!(ended || open_ended, "{form:?}, seed {seed}: {text:?}");
    }
    for (index, (ticket, _handle)) in free.iter().enumerate() {
        let beside = client.outcome(*ticket);
        let alone = client.run(prompt(index), job(Form::Free, 0.0, 0, 40));
        assert_eq!(beside.text(), alone.text());
    }
    let stats = client.engine.stats();
    assert!(
        stats.mask_time > std::time::Duration::ZERO && stats.masked_tokens > masked,
        "{stats:?}"
    );
}

#[test]
fn a_form_that_cannot_be_guaranteed_is_refused_before_anything_is_computed() {
    let name = "a_form_that_cannot_be_guaranteed_is_refused_before_anything_is_computed";
    let Some(model) = model(name, &ModelOptions::default()) else {
        return;
    };
    let mut client = Client::start(model, &EngineConfig::default());
    let form = Form::Schema(r#"{"properties": {"a": {"not": {}}}}"#.into());
    let received = client.run(user("Hello"), job(form, 0.0, 0, 10));
    let reason = "`not` at $.properties.a is not supported".to_owned();
    assert_eq!(
        received.events,
        [Event::Refused {
            part: Part::Form,
            reason
        }]
    );
    let stats = client.engine.stats();
    assert_eq!(
        (stats.refused, stats.prefill_tokens, stats.open),
        (1, 0, 0),
        "{stats:?}"
    );
}
