use std::{io::Write as _, path::Path, time::Duration};

use super::*;
use crate::{
    Draw, Event, Finish, Generate, JobKind, Message, ModelOptions, Prompt, Provider, Role, Runtime, Sampling, Ticket,
    job::mailbox,
    ort_sys::stand_in::{self, stand_in},
};

/// A model with its memory on a device that is none, or a line that says why `test` is skipped.
fn model(test: &str, folder: &str, draw: Draw, on_device: bool) -> Option<Model> {
    let environment = std::env::var_os("ORT_DYLIB_PATH");
    let runtime = match Runtime::find(None, environment.as_deref()) {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stdout().lock(), "SKIPPED {test}: {error}");
            return None;
        }
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(folder);
    let options = ModelOptions {
        provider: Provider::Cpu,
        draw,
        max_context: Some(512),
        ..ModelOptions::default()
    };
    let mut model = Model::load(&runtime, &dir, &options).unwrap_or_else(|problem| panic!("{problem}"));
    if on_device {
        model.place = Place::Device(Arc::new(stand_in()));
    }
    Some(model)
}

fn kv_memory(model: &Model, contexts: usize) -> usize {
    model.dimensions.token_bytes().expect("a small model") * model.context * contexts
}

/// Text, end and tokens of each answer.
type Answers = Vec<(String, Finish, u32)>;

/// Jobs that join and leave, share beginnings, and want different draws.
fn serve(model: Model, config: &EngineConfig) -> (Answers, Stats, EngineInfo) {
    const JOBS: u64 = 14;
    let waiter = std::thread::current();
    let (mailbox, mut mail) = mailbox(4096, Box::new(move || waiter.unpark()));
    let engine = Engine::start(model, config, vec![mailbox]).unwrap_or_else(|error| panic!("{error}"));
    let mut handles = Vec::new();
    for number in 0..JOBS {
        let shared = "The following is a list of cities and of the countries in which they lie. ".repeat(3);
        let own = "What is the capital of Peru? ".repeat(1 + number as usize % 5);
        let message = Message::new(Role::User, format!("{shared}{own}{number}"));
        let mut request = Generate::new(Prompt::Chat(vec![message].into()));
        request.sampling = Sampling {
            temperature: if number % 3 == 0 { 0.0 } else { 1.0 },
            top_p: if number % 4 == 1 { 0.9 } else { 1.0 },
            frequency_penalty: if number == 5 { 0.5 } else { 0.0 },
            seed: number,
            ..Sampling::default()
        };
        request.ignore_eos = true;
        request.max_tokens = Some(5 + 4 * (number as u32 % 5));
        let job = Job {
            ticket: Ticket(number),
            mailbox: 0,
            kind: JobKind::Generate(Box::new(request)),
            deadline: None,
        };
        handles.push(engine.submit(job).expect("room in the queue"));
    }
    let mut answers: Vec<_> = (0..JOBS).map(|_| (String::new(), None, 0)).collect();
    let end = Instant::now() + Duration::from_secs(120);
    while answers.iter().any(|(_, finish, _)| finish.is_none()) {
        assert!(Instant::now() < end, "{answers:?}");
        while let Ok(mail) = mail.pop() {
            let answer = &mut answers[mail.ticket.0 as usize];
            match mail.event {
                Event::Text { text, .. } => answer.0.push_str(&text),
                Event::Finished { finish, usage } => (answer.1, answer.2) = (Some(finish), usage.output_tokens),
                Event::Started { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    engine.close();
    let answers = answers
        .into_iter()
        .filter_map(|(text, finish, n)| Some((text, finish?, n)));
    (answers.collect(), engine.stats(), engine.info().clone())
}

/// Moves, blocks of the prefix cache and draws on a device give what they give on the host; copies are waited for, and little
/// but ids comes back.
#[test]
fn a_device_answers_as_the_host_does() {
    let test = "a_device_answers_as_the_host_does";
    for folder in ["tiny", "tiny-f16"] {
        let Some(on_host) = model(test, folder, Draw::Host, false) else {
            return;
        };
        let config = EngineConfig {
            max_batch: 6,
            prefill_chunk: 32,
            kv_memory: kv_memory(&on_host, 8),
            ..EngineConfig::default()
        };
        let (wanted, host, _) = serve(on_host, &config);
        assert!(host.moves > 0 && host.cached_tokens > 0, "{host:?}");
        for draw in [Draw::WithLogits, Draw::Graph] {
            let by_graph = draw == Draw::Graph;
            let on_device = model(test, folder, draw, true).expect("it was there before");
            let width = on_device.dimensions.vocabulary;
            let (answers, device, info) = serve(on_device, &config);
            assert_eq!(answers, wanted, "{folder}, {draw:?}");
            assert_eq!(info.slots, 6, "they fit");
            assert!(
                device.moves > 0 && device.cached_tokens > 0 && device.preempted == 0,
                "{device:?}"
            );
            assert_eq!(device.device_draws > 0, by_graph, "{device:?}");
            assert!(device.host_draws > 0, "one has a penalty");
            // What the host draws costs a row; what the device draws, its id. Rows are drawn together, so with company.
            let rows = device.host_draws * (width * size_of::<f32>()) as u64;
            let ids = device.device_bytes.checked_sub(rows).expect("each row was fetched");
            assert!(ids <= 8 * (device.device_draws + device.host_draws), "{device:?}");
            assert!((ids > 0) == by_graph, "{device:?}");
        }
    }
}

#[test]
fn a_device_has_whole_places() {
    /// Room in tokens, the context, what is wanted, and the places.
    const CASES: [(usize, usize, usize, usize); 6] = [
        (800, 100, 4, 4),
        (800, 100, 16, 7),
        (799, 100, 16, 7),
        (100, 100, 16, 1),
        (199, 100, 16, 1),
        (100_000, 100, 1, 1),
    ];
    for (capacity, context, wanted, places) in CASES {
        assert_eq!(
            whole_places(capacity, context, wanted),
            places,
            "{capacity}, {context}, {wanted}"
        );
    }
    let test = "a_device_has_whole_places";
    let Some(small) = model(test, "tiny", Draw::Host, true) else {
        return;
    };
    let config = EngineConfig {
        kv_memory: kv_memory(&small, 2),
        ..EngineConfig::default()
    };
    let engine = Engine::start(small, &config, Vec::new()).expect("one fits");
    assert_eq!(engine.info().slots, 1);
    let note = engine.info().notes.last().expect("a note");
    assert!(
        note.contains("room for 1 sequences of 512 tokens") && note.contains("not the 16"),
        "{note}"
    );
    drop(engine);
    let large = model(test, "tiny", Draw::Host, true).expect("it was there before");
    let config = EngineConfig {
        kv_memory: stand_in::ROOM + (1 << 29),
        max_batch: 10_000,
        ..EngineConfig::default()
    };
    let error = Engine::start(large, &config, Vec::new())
        .err()
        .expect("the device is smaller")
        .to_string();
    assert!(
        error.contains("out of memory") && error.contains("lower `kv_memory`"),
        "{error}"
    );
}

#[test]
fn a_copy_that_failed_is_told_before_the_next_run() {
    let test = "a_copy_that_failed_is_told_before_the_next_run";
    let Some(model) = model(test, "tiny", Draw::Host, true) else {
        return;
    };
    let extent = Extent {
        slots: 2,
        context: 64,
        chunk: 8,
    };
    let cache = Cache { block: 4, blocks: 2 };
    let bound = Bound::new(model.session, &model.place, model.dimensions, extent, cache);
    let mut bound = bound.expect("a small decoder");
    let rows = crate::ort_sys::Rows::Last;
    bound.prefill(0, 0, &[1, 2, 3, 4, 5], rows).expect("a run");
    bound.copy(0, 1, 5);
    assert_eq!(
        stand_in::waiting(),
        2 * model.dimensions.layers,
        "one for all heads of a buffer"
    );
    bound.prefill(1, 5, &[6, 7], rows).expect("a run");
    assert_eq!(stand_in::waiting(), 0, "waited for");
    stand_in::fail_next_copy();
    bound.store(0, 0, 1);
    bound.load(1, 1, 0);
    let error = bound
        .prefill(1, 4, &[6, 7], rows)
        .expect_err("a copy failed")
        .to_string();
    assert_eq!(error, "CUDA: an illegal memory access was encountered");
    bound.prefill(1, 4, &[6, 7], rows).expect("it was told once");
}
