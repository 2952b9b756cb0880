//! The bundled encoder in the real runtime: what its vectors are worth, and that company and order do not change them.

use std::{path::PathBuf, sync::Arc, thread};

use zerohop_engine::{
    Embed, Encoder, EncoderConfig, EncoderEngine, Event, Input, Job, JobHandle, JobKind, Kind, MAX_INPUTS, Mail,
    ModelOptions, Part, Rejected, Submit, Ticket, inspect, mailbox,
};

use crate::{
    damage::Copy,
    support::{count, model_dir, runtime, wait_until},
};

fn encoder_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-embed")
}

struct Client {
    engine: EncoderEngine,
    mail: rtrb::Consumer<Mail>,
    next: u64,
}

impl Client {
    /// The encoder in `dir`, or a line that says why `test` is skipped.
    fn start(test: &str, dir: &std::path::Path, config: &EncoderConfig) -> Option<Self> {
        let runtime = runtime(test)?;
        let model =
            Encoder::load(&runtime, dir, &ModelOptions::default()).unwrap_or_else(|problem| panic!("{problem}"));
        let waiter = thread::current();
        let (mailbox, mail) = mailbox(64, Box::new(move || waiter.unpark()));
        let engine = EncoderEngine::start(model, config, vec![mailbox]).unwrap_or_else(|error| panic!("{error}"));
        Some(Self { engine, mail, next: 0 })
    }

    fn submit(&mut self, kind: JobKind) -> Result<JobHandle, Rejected> {
        self.next += 1;
        self.engine.submit(Job {
            ticket: Ticket(self.next),
            mailbox: 0,
            kind,
            deadline: None,
        })
    }

    /// The next mail, whoever it is for.
    fn mail(&mut self) -> (u64, Event) {
        let mut got = None;
        wait_until("mail", || {
            got = got.take().or_else(|| self.mail.pop().ok());
            got.is_some()
        });
        let mail = got.expect("waited for");
        (mail.ticket.0, mail.event)
    }

    fn run(&mut self, kind: JobKind) -> Event {
        let _handle = self.submit(kind).expect("accepted");
        self.mail().1
    }

    fn vectors(&mut self, texts: &[&str]) -> Vec<Vec<f32>> {
        match self.run(embed(texts)) {
            Event::Embedded { vectors, .. } => vectors,
            other => panic!("{other:?}"),
        }
    }
}

fn embed(texts: &[&str]) -> JobKind {
    of(texts.iter().map(|&text| Input::Text(text.to_owned())).collect(), None)
}

fn of(inputs: Vec<Input>, dimensions: Option<u32>) -> JobKind {
    JobKind::Embed(Embed { inputs, dimensions })
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

#[test]
fn related_sentences_are_nearer_than_others() {
    let Some(mut client) = Client::start(
        "related_sentences_are_nearer_than_others",
        &encoder_dir(),
        &EncoderConfig::default(),
    ) else {
        return;
    };
    // A sentence, a related one, and one about something else.
    for [one, related, other] in [
        [
            "The dog barks at the mailman.",
            "A puppy runs through the house.",
            "Shares fell on the stock market.",
        ],
        [
            "The king lived in a castle.",
            "The queen ruled the kingdom.",
            "Add salt and boil the rice.",
        ],
        [
            "The ship sailed across the sea.",
            "A boat crossed the ocean.",
            "Students wrote an exam at school.",
        ],
        [
            "The engine of the car is broken.",
            "My truck needs a new motor.",
            "She sang a beautiful song.",
        ],
        [
            "Where is the nearest airport?",
            "The plane landed with many passengers.",
            "The poet wrote a novel.",
        ],
        [
            "The company fired its workers.",
            "Employees lost their jobs at the firm.",
            "The river flows through a valley.",
        ],
        [
            "Mathematics is the study of numbers.",
            "The professor taught algebra and geometry.",
            "He drank a cup of tea.",
        ],
        [
            "The soldiers marched into battle.",
            "The army fought a war.",
            "A recipe for apple cake.",
        ],
    ] {
        let vectors = client.vectors(&[one, related, other]);
        let (near, far) = (cosine(&vectors[0], &vectors[1]), cosine(&vectors[0], &vectors[2]));
        assert!(near > far + 0.1, "{one:?}: {near} to {related:?}, {far} to {other:?}");
    }
}

#[test]
fn vectors_do_not_depend_on_company() {
    let Some(mut client) = Client::start(
        "vectors_do_not_depend_on_company",
        &encoder_dir(),
        &EncoderConfig::default(),
    ) else {
        return;
    };
    let texts: Vec<String> = (0..200)
        .map(|index| {
            (0..=index % 40)
                .map(|word| format!("word{} ", (index * 7 + word) % 97))
                .collect()
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = client.vectors(&texts);
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(client.vectors(&[text])[0], *vector, "{text}");
        let length = cosine(vector, vector);
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    let stats = client.engine.stats();
    assert_eq!(stats.embedded, 400);
    assert!(stats.peak_batch > 1, "runs were shared");
}

#[test]
fn what_cannot_be_embedded_is_told() {
    let Some(mut client) = Client::start(
        "what_cannot_be_embedded_is_told",
        &encoder_dir(),
        &EncoderConfig::default(),
    ) else {
        return;
    };
    let text = |text: &str| vec![Input::Text(text.into())];
    let cases: Vec<(JobKind, Part, &str)> = vec![
        (count(), Part::Model, "this model makes embeddings, not answers"),
        (of(Vec::new(), None), Part::Prompt, "give 1 to 2048 inputs, not 0"),
        (of(text(""), None), Part::Prompt, "input 0 is empty"),
        (of(text(" \n"), None), Part::Prompt, "input 0 has no tokens"),
        (
            of(vec![Input::Tokens(vec![])], None),
            Part::Prompt,
            "input 0 has no tokens",
        ),
        (
            of(vec![Input::Tokens(vec![10_500])], None),
            Part::Prompt,
            "tokens 0 to 10499",
        ),
        (
            of(vec![Input::Tokens(vec![7]); MAX_INPUTS + 1], None),
            Part::Prompt,
            "not 2049",
        ),
        (
            of(text(&"a ".repeat(200_000)), None),
            Part::Prompt,
            "more than 262144 bytes",
        ),
        (
            of(vec![Input::Tokens(vec![7; 512]); 600], None),
            Part::Prompt,
            "more than 300000 tokens",
        ),
        (
            of(text("x"), Some(32)),
            Part::Dimensions,
            "64 numbers, which cannot be shortened",
        ),
    ];
    for (kind, want, words) in cases {
        match client.run(kind) {
            Event::Refused { part, reason } => {
                assert_eq!(part, want, "{reason}");
                assert!(reason.contains(words), "{reason:?} should hold {words:?}");
            }
            other => panic!("{words}: {other:?}"),
        }
    }
    let long = client.run(of(vec![Input::Tokens(vec![7; 513])], None));
    assert_eq!(
        long,
        Event::TooLong {
            input_tokens: 513,
            limit: 512
        }
    );
    let whole = client.run(of(text("x"), Some(64)));
    assert!(matches!(whole, Event::Embedded { input_tokens: 1, .. }), "{whole:?}");
    let spelled = client.run(embed(&["[PAD]"]));
    assert!(
        matches!(spelled, Event::Embedded { input_tokens: 3, .. }),
        "a mark in a text is text: {spelled:?}"
    );
}

#[test]
fn declared_dimensions_are_honoured() {
    let test = "declared_dimensions_are_honoured";
    let copy = Copy::of(&encoder_dir());
    copy.config("matryoshka_dimensions", vec![16, 32]);
    let Some(mut client) = Client::start(test, &copy.0, &EncoderConfig::default()) else {
        return;
    };
    let text = || vec![Input::Text("Where is the nearest airport?".into())];
    let Event::Embedded { vectors: whole, .. } = client.run(of(text(), None)) else {
        panic!("embedded")
    };
    let Event::Embedded { vectors: cut, .. } = client.run(of(text(), Some(16))) else {
        panic!("embedded")
    };
    assert_eq!((whole[0].len(), cut[0].len()), (64, 16));
    let length = cosine(&whole[0][..16], &whole[0][..16]).sqrt();
    assert!(
        (cosine(&cut[0], &whole[0][..16]) - length).abs() < 1e-5,
        "the same direction, length 1"
    );
    let refused = client.run(of(text(), Some(17)));
    assert!(
        matches!(
            refused,
            Event::Refused {
                part: Part::Dimensions,
                ..
            }
        ),
        "{refused:?}"
    );
}

#[test]
fn a_full_queue_a_lost_client_and_a_close() {
    let test = "a_full_queue_a_lost_client_and_a_close";
    let config = EncoderConfig {
        max_batch: 1,
        queue: 2,
        prep_threads: 1,
    };
    let Some(mut client) = Client::start(test, &encoder_dir(), &config) else {
        return;
    };
    let work = || {
        of(
            (0..2000).map(|index| Input::Tokens(vec![7; 1 + index % 140])).collect(),
            None,
        )
    };
    let mut handles = Vec::new();
    let rejected = loop {
        match client.submit(work()) {
            Ok(handle) => handles.push(handle),
            Err(rejected) => break rejected,
        }
        assert!(handles.len() < 1000, "no queue was ever full");
    };
    assert!(matches!(rejected, Rejected::QueueFull { .. }));
    assert_eq!(client.engine.stats().rejected, 1);
    drop(handles);
    wait_until("all places to be free", || client.engine.stats().open == 0);
    client.engine.close();
    assert_eq!(client.submit(work()).map(drop), Err(Rejected::NotRunning));
}

#[test]
fn kinds_of_models_are_told_apart_and_damage_is_named() {
    let test = "kinds_of_models_are_told_apart_and_damage_is_named";
    let Some(runtime) = runtime(test) else { return };
    assert_eq!(
        (Kind::of(&model_dir()), Kind::of(&encoder_dir())),
        (Kind::Answers, Kind::Vectors)
    );
    let report = inspect(&runtime, &encoder_dir());
    assert!(report.fits(), "{report}");
    for fact in [
        "a sentence encoder",
        "64 numbers, the mean of token_embeddings",
        "same bits as alone",
    ] {
        assert!(report.facts.iter().any(|line| line.contains(fact)), "{fact}: {report}");
    }
    type Damage = fn(&Copy);
    let cases: [(Damage, &str); 8] = [
        (|copy| copy.no_config("pooling"), "says how they become one"),
        (|copy| copy.config("pooling", "max"), "not mean or cls"),
        (|copy| copy.no_config("vocab_size"), "`vocab_size` is missing"),
        (|copy| copy.config("vocab_size", 100), "has 10500 tokens"),
        (
            |copy| copy.config("max_position_embeddings", 0),
            "the context is 0 tokens",
        ),
        (
            |copy| copy.config("matryoshka_dimensions", vec![65]),
            "has 65, not 1 to 64",
        ),
        (|copy| copy.write("tokenizer.json", "{}"), "not a tokenizer"),
        (
            |copy| copy.write("modules.json", r#"[{"type": "sentence_transformers.models.Dense"}]"#),
            "a module Dense, which is not computed",
        ),
    ];
    for (damage, want) in cases {
        let copy = Copy::of(&encoder_dir());
        damage(&copy);
        let report = inspect(&runtime, &copy.0);
        let told = report.problems.iter().any(|problem| problem.to_string().contains(want));
        assert!(told, "{want}: {report}");
        let loaded = Encoder::load(&runtime, &copy.0, &ModelOptions::default());
        assert!(loaded.is_err(), "{want}");
    }
    let copy = Copy::of(&encoder_dir());
    copy.no_config("pooling");
    std::fs::create_dir(copy.0.join("1_Pooling")).expect("a folder");
    copy.write("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true}"#);
    let report = inspect(&runtime, &copy.0);
    assert!(
        report.fits() && report.facts.iter().any(|line| line.contains("the first of")),
        "{report}"
    );
    copy.write("1_Pooling/config.json", r#"{"pooling_mode_max_tokens": true}"#);
    assert!(!inspect(&runtime, &copy.0).fits());
}

/// A graph of eight nodes in which each vector depends on the greatest token of the whole run: the token, and the token plus
/// that one.
const COMPANY: &[u8] = include_bytes!("data/company.onnx");

#[test]
fn a_graph_that_mixes_inputs_runs_them_one_at_a_time() {
    let test = "a_graph_that_mixes_inputs_runs_them_one_at_a_time";
    let copy = Copy::of(&encoder_dir());
    copy.write("model.onnx", COMPANY);
    let Some(mut client) = Client::start(test, &copy.0, &EncoderConfig::default()) else {
        return;
    };
    let note = "inputs are computed one at a time";
    assert!(
        client.engine.info().notes[0].contains(note),
        "{:?}",
        client.engine.info()
    );
    let inputs: Vec<Input> = (1..50).map(|id| Input::Tokens(vec![id, 2 * id])).collect();
    let Event::Embedded { vectors, .. } = client.run(of(inputs, None)) else {
        panic!("embedded")
    };
    // The mean of (t, t + 2t) and (2t, 2t + 2t) is (1.5 t, 3.5 t), whatever t.
    assert!(vectors.iter().all(|vector| *vector == vectors[0]), "{vectors:?}");
    assert_eq!(client.engine.stats().peak_batch, 1);
}

#[test]
fn jobs_of_many_threads_are_all_answered() {
    let test = "jobs_of_many_threads_are_all_answered";
    let Some(client) = Client::start(test, &encoder_dir(), &EncoderConfig::default()) else {
        return;
    };
    let Client { engine, mut mail, .. } = client;
    let engine = Arc::new(engine);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let submit = |ticket: u64| {
                    let text = format!("job {ticket} of thread {thread}");
                    let job = Job {
                        ticket: Ticket(thread * 100 + ticket),
                        mailbox: 0,
                        kind: embed(&[&text, "another input"]),
                        deadline: None,
                    };
                    engine.submit(job).expect("room")
                };
                (0..20).map(submit).collect::<Vec<_>>()
            })
        })
        .collect();
    let _handles: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().expect("no panic"))
        .collect();
    let mut tickets = Vec::new();
    wait_until("all mail", || {
        while let Ok(mail) = mail.pop() {
            assert!(matches!(mail.event, Event::Embedded { .. }), "{mail:?}");
            tickets.push(mail.ticket.0);
        }
        tickets.len() == 80
    });
    tickets.sort_unstable();
    tickets.dedup();
    assert_eq!(tickets.len(), 80);
}
