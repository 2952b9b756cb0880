//! Real schemas with the bundled model: what is accepted, what the answers are, and what an independent validator says.
//!
//! `ZEROHOP_LONG=1` asks all schemas of the file, greedy and drawn; otherwise 200, drawn.

use std::{io::Write, path::PathBuf};

use serde_json::Value;
use zerohop_engine::{EngineConfig, Event, Finish, Form, Generate, JobKind, ModelOptions, Part, Prompt, Sampling};

use crate::{
    skip::skipped,
    support::{Client, Conversation, Received, model, user},
};

/// Tokens of an answer at most.
const TOKENS: u32 = 400;
/// Answers in a run that is not long.
const ANSWERS: usize = 200;

struct Case {
    name: String,
    schema: Value,
}

/// The file's schemas, or a line that says why `test` is skipped.
fn cases(test: &str) -> Option<Vec<Case>> {
    let Some(data) = std::env::var_os("ZEROHOP_TEST_DATA") else {
        skipped(test, "ZEROHOP_TEST_DATA names no folder");
        return None;
    };
    let path = PathBuf::from(data).join("schemas/maskbench-300.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        skipped(test, &format!("no file {}", path.display()));
        return None;
    };
    let case = |line: &str| {
        let mut value: Value = serde_json::from_str(line).expect("a line is JSON");
        Case {
            name: value["name"].as_str().expect("a name").into(),
            schema: value["schema"].take(),
        }
    };
    Some(text.lines().map(case).collect())
}

fn job(schema: &Value, temperature: f32, seed: u64) -> JobKind {
    JobKind::Generate(Box::new(Generate {
        sampling: Sampling {
            temperature,
            // So small a model says the same again and again; with a penalty it comes to an end.
            frequency_penalty: 1.0,
            seed,
            ..Sampling::default()
        },
        max_tokens: Some(TOKENS),
        form: Form::Schema(schema.to_string()),
        ..Generate::new(Prompt::Chat(Conversation::default()))
    }))
}

/// A schema as an independent validator has it; formats count.
struct Validator {
    schemas: boon::Schemas,
    index: boon::SchemaIndex,
}

impl Validator {
    /// `None` if it is no schema to it.
    fn new(schema: &Value) -> Option<Self> {
        const PLACE: &str = "http://localhost/schema.json";
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.enable_format_assertions();
        compiler.add_resource(PLACE, schema.clone()).ok()?;
        let index = compiler.compile(PLACE, &mut schemas).ok()?;
        Some(Self { schemas, index })
    }
}

/// What came of the answers.
#[derive(Debug, Default)]
struct Figures {
    asked: usize,
    accepted: usize,
    finished: usize,
    cut: usize,
    /// Finished ones that no validator judged: the schema itself is none to it, or a number is beyond every float.
    unjudged: usize,
}

impl Figures {
    fn take(&mut self, case: &Case, received: &Received) {
        self.asked += 1;
        let text = received.text();
        match received.events.last() {
            Some(Event::Refused { part, reason }) => {
                assert_eq!(*part, Part::Form, "{}: {reason}", case.name);
                assert!(!reason.is_empty() && reason.len() < 600, "{}: {reason}", case.name);
                assert!(text.is_empty(), "{}: refused after {text:?}: {reason}", case.name);
                return;
            }
            Some(Event::Finished {
                finish: Finish::EndOfTurn,
                ..
            }) => self.finished += 1,
            Some(Event::Finished {
                finish: Finish::MaxTokens,
                usage,
            }) => {
                assert_eq!(usage.output_tokens, TOKENS, "{}", case.name);
                self.cut += 1;
                self.accepted += 1;
                return;
            }
            other => panic!("{}: {other:?}: {text}", case.name),
        }
        self.accepted += 1;
        let (Some(validator), Ok(answer)) = (Validator::new(&case.schema), serde_json::from_str::<Value>(&text)) else {
            let syntax = serde_json::from_str::<serde::de::IgnoredAny>(&text);
            assert!(syntax.is_ok(), "{}: no JSON: {text}", case.name);
            self.unjudged += 1;
            return;
        };
        if let Err(error) = validator.schemas.validate(&answer, validator.index) {
            panic!("{}: {error}\nanswer {text}\nschema {}", case.name, case.schema);
        }
    }
}

#[test]
fn answers_fit_real_schemas() {
    let name = "answers_fit_real_schemas";
    let (Some(cases), Some(model)) = (cases(name), model(name, &ModelOptions::default())) else {
        return;
    };
    let long = std::env::var("ZEROHOP_LONG").is_ok_and(|long| long == "1");
    let mut client = Client::start(model, &EngineConfig::default());
    let temperatures: &[f32] = if long { &[1.0, 1.5] } else { &[1.0] };
    for &temperature in temperatures {
        let mut figures = Figures::default();
        for chunk in cases.chunks(64) {
            let jobs: Vec<_> = chunk
                .iter()
                .enumerate()
                .map(|(seed, case)| {
                    client.submit(
                        user("Give me a person as JSON."),
                        job(&case.schema, temperature, seed as u64),
                    )
                })
                .collect();
            for (case, (ticket, _handle)) in chunk.iter().zip(&jobs) {
                figures.take(case, &client.outcome(*ticket));
            }
            if !long && figures.accepted >= ANSWERS {
                break;
            }
        }
        let stats = client.engine.stats();
        let _ = writeln!(
            std::io::stdout().lock(),
            "{name}: temperature {temperature}: {figures:?}; masks {:?} beside {:?} of the model, late by {:?}",
            stats.mask_time,
            stats.run_time,
            stats.mask_wait,
        );
        let Figures {
            asked,
            accepted,
            finished,
            unjudged,
            ..
        } = figures;
        assert!(accepted * 100 >= asked * 80, "at least 80 % are accepted: {figures:?}");
        assert!(
            finished * 100 >= accepted * 60,
            "at least 60 % finish within {TOKENS} tokens: {figures:?}"
        );
        assert!(unjudged * 20 <= finished, "nearly all are judged: {figures:?}");
    }
}
