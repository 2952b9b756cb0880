//! Single runs that tell of bugs: one worker, one client, no chance.
//!
//! Invariant: each has failed once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crossbeam_channel::Sender;
use zerohop_engine::{Job, JobHandle, Rejected, Stats, Submit, mailbox};
use zerohop_ring::{
    Io, ListenerId, Options,
    sim::{Faults, Net, Sim, WireId, WireState},
};

use super::super::{Command, Local, Phase, Shared, Surface, Worker};
use crate::{
    caller::Callers,
    clock::Clock,
    config::{Access, Config, KeyDigest, KeySource, Machine, Model, ModelSet, Tenant},
    key::{Scope, Secret, Spaces},
    log::{Format, Level, Log, system_clock},
    metrics::{Common, ModelMetrics},
    resolve::Resolver,
    snapshot::{Engines, Era, ServedModel, Snapshot},
};

/// Virtual time between two steps of a story, in nanoseconds.
const STEP: u64 = 500_000;

/// An engine that takes jobs and never answers.
#[derive(Default)]
struct Silent {
    jobs: Mutex<Vec<Job>>,
}

impl Submit for Silent {
    fn submit(&self, job: Job) -> Result<JobHandle, Rejected> {
        self.jobs.lock().expect("one thread").push(job);
        Ok(JobHandle::new().0)
    }
}

impl Engines for Silent {
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A worker, ready to accept, and the means to move it.
struct Story {
    worker: Worker<Sim>,
    net: Net,
    engine: Arc<Silent>,
    shared: Arc<Shared>,
    commands: Sender<Command>,
}

fn snapshot(config: &Config, engine: &Arc<Silent>) -> Snapshot {
    let models = config.models.iter().map(|model| {
        Arc::new(ServedModel {
            id: Arc::clone(&model.id),
            created: 0,
            context: 100,
            version: "sim".into(),
            epoch: None,
            era: Era::first(),
            deadline: model.deadline,
            engine: Arc::clone(engine) as Arc<dyn Engines>,
            metrics: Arc::new([ModelMetrics::new()]),
        })
    });
    Snapshot {
        epoch: 1,
        callers: Callers::new(
            &config.access,
            [0; 32],
            &Spaces {
                secret: Secret::new([0; 32]),
                scope: Scope::Tenant,
            },
        ),
        resolver: Resolver::of(&config.models),
        models: models.collect(),
        kept: None,
        strict: false,
    }
}

impl Story {
    fn new() -> Self {
        Self::with(&Config::defaults(&Machine).expect("the defaults"))
    }

    fn with(config: &Config) -> Self {
        let options = Options {
            max_connections: 64,
            recv_buffers: 8,
            recv_buffer_size: 512,
            ..Options::default()
        };
        let (io, net) = Sim::new(1, Faults::NONE, 1, options).expect("a simulation");
        let engine = Arc::new(Silent::default());
        let (log, _) = Log::start(std::io::sink(), Format::Json, Level::Debug, system_clock).expect("a log");
        let common = Common {
            instance_id: "sim".into(),
            region: None,
            start_time: 0,
        };
        let shared = Arc::new(Shared::new(config, 1, common, snapshot(config, &engine)));
        shared.set_phase(Phase::Ready);
        let (_, receiver) = mailbox(16, Box::new(|| {}));
        let (commands, receive) = crossbeam_channel::bounded(8);
        let local = Local::new(0, Arc::clone(&shared), log, Clock::scripted(|| Duration::ZERO), [7; 32]);
        commands.send(Command::Mailbox(receiver)).expect("a worker");
        commands.send(Command::Start).expect("a worker");
        let mut worker = Worker::new(io, vec![Surface::Full], receive, local);
        worker.obey();
        Self {
            worker,
            net,
            engine,
            shared,
            commands,
        }
    }

    /// The worker turns, at the latest after `pause`.
    fn turn(&mut self, pause: u64) {
        let waker = self.worker.io.waker();
        self.net.after(pause, move |_| waker.wake());
        self.worker.turn().expect("a turn");
    }

    /// The client sends, the worker turns, the client reads.
    fn say(&mut self, wire: WireId, bytes: &[u8]) -> Vec<u8> {
        self.net.write(wire, bytes);
        self.turn(STEP);
        self.net.read(wire, 1 << 16)
    }
}

fn status(got: &[u8]) -> Option<u16> {
    let line = got.strip_prefix(b"HTTP/1.1 ")?;
    std::str::from_utf8(line.get(..3)?).ok()?.parse().ok()
}

/// Once every byte of a head that came in pieces began the wait anew, so a client could hold a connection for ever by
/// sending one now and then.
#[test]
fn a_trickle_does_not_hold_a_connection() {
    let body = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: sim\r\ncontent-length: 9000\r\n\r\n{}",
        "x".repeat(90)
    );
    let table = [
        (
            "in the head",
            "GET /health HTTP/1.1\r\nhost: a-very-long-name-of-a-host-that-takes-its-time",
        ),
        ("in the body", &body),
    ];
    for (name, text) in table {
        let mut story = Story::new();
        let wire = story.net.connect(ListenerId(0));
        let (mut bytes, mut got) = (text.bytes(), Vec::new());
        let started = story.net.now();
        // The head of the second row at once, then a byte a second.
        let head = text.find("\r\n\r\n").map_or(0, |end| end + 4);
        story.net.write(wire, &bytes.by_ref().take(head).collect::<Vec<u8>>());
        while story.net.state(wire) == WireState::Open {
            if let Some(byte) = bytes.next() {
                story.net.write(wire, &[byte]);
            }
            story.turn(1_000_000_000);
            got.extend(story.net.read(wire, 4096));
            let waited = Duration::from_nanos(story.net.now() - started);
            assert!(waited < Duration::from_secs(20), "{name}: still open after {waited:?}");
        }
        assert_eq!(status(&got), Some(408), "{name}");
    }
}

/// Once the caller was admitted by one snapshot and the model looked up in the next, so a reload that reordered models
/// while a body was on its way let a key use a model that it does not open.
#[test]
fn a_request_keeps_the_snapshot_that_let_it_in() {
    let mut config = Config::defaults(&Machine).expect("the defaults");
    let named = |id: &str| Model {
        id: id.into(),
        ..config.models[0].clone()
    };
    let (open, closed) = (named("open"), named("closed"));
    config.models = vec![open.clone(), closed.clone()];
    config.access = Access::Tenants(vec![Tenant {
        name: "team".into(),
        source: KeySource::Env("KEYS".into()),
        keys: vec![KeyDigest::of(b"key")],
        models: ModelSet::Only(Arc::new([0])),
    }]);
    let swapped = Config {
        models: vec![closed, open],
        ..config.clone()
    };
    let mut story = Story::with(&config);
    let wire = story.net.connect(ListenerId(0));
    let body = r#"{"model":"closed","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: sim\r\nx-api-key: key\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut got = Vec::new();
    for (turn, piece) in [&head, &body[..5], &body[5..], "", "", ""].into_iter().enumerate() {
        if turn == 2 {
            story.shared.publish(snapshot(&swapped, &story.engine));
        }
        got.extend(story.say(wire, piece.as_bytes()));
    }
    assert_eq!(status(&got), Some(403), "{}", String::from_utf8_lossy(&got));
}

/// Once the body of a request that its head had already refused was gathered whole, so clients without a key could fill the
/// memory with `max_body_bytes` each.
#[test]
fn a_refused_request_is_answered_before_its_body() {
    let mut story = Story::new();
    let wire = story.net.connect(ListenerId(0));
    let mut got = story.say(
        wire,
        b"POST /v1/nothing HTTP/1.1\r\nhost: sim\r\ncontent-length: 30000000\r\n\r\n",
    );
    for _ in 0..4 {
        got.extend(story.say(wire, &[b'x'; 300]));
    }
    assert_eq!(status(&got), Some(404));
    assert!(
        story.net.state(wire) != WireState::Open,
        "no further request can follow an unread body"
    );
}

/// Once a reply behind which only the gateway wants to end (here: the connection is old) was followed by a close at once,
/// so a client that had its next request on the way met a reset, which may take the reply away.
#[test]
fn a_request_that_meets_the_end_of_a_connection_does_not_reset_it() {
    let mut config = Config::defaults(&Machine).expect("the defaults");
    config.server.connections.max_age = Duration::ZERO;
    let mut story = Story::with(&config);
    let wire = story.net.connect(ListenerId(0));
    const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nhost: sim\r\n\r\n";
    story.net.write(wire, REQUEST);
    for _ in 0..6 {
        story.turn(STEP);
    }
    story.net.write(wire, REQUEST);
    for _ in 0..6 {
        story.turn(STEP);
    }
    let got = story.net.read(wire, 1 << 16);
    assert_eq!(status(&got), Some(200));
    assert!(got.windows(19).any(|window| window == b"connection: close\r\n"));
    assert_eq!(story.net.state(wire), WireState::Eof);
    story.net.finish(wire);
    while story.worker.open > 0 {
        story.turn(STEP);
    }
    assert!(story.net.now() < 1_000_000_000, "the client's FIN ends the wait");
}

/// Once a connection that the kernel had queued when the gateway began to drain was given the whole `read_timeout` to say
/// something, where one that was accepted before had a moment.
#[test]
fn a_silent_connection_in_the_queue_does_not_hold_a_drain() {
    let mut story = Story::new();
    // It reaches the queue after a millisecond and would be accepted after another.
    story.net.set_faults(Faults {
        delay: 1_000_000..=1_000_000,
        ..Faults::NONE
    });
    let wire = story.net.connect(ListenerId(0));
    story.commands.send(Command::Drain).expect("a worker");
    story.turn(1_500_000);
    assert_eq!(story.net.queued(wire), None, "a drain takes what is in the queue");
    while !story.worker.has_ended() {
        story.turn(STEP);
        assert!(
            story.net.now() < 1_000_000_000,
            "the drain waits for a client that is silent"
        );
    }
    story.net.advance(story.net.now() + 5_000_000);
    assert_eq!(story.net.state(wire), WireState::Eof);
}
