//! A whole worker on the simulated network, with a scripted engine: one seed, one run.
//!
//! Clients ask in both dialects, plain and streamed, pipelined and in pieces, leave in the middle or never read; the
//! network delays, cuts short and resets. Checked at the end of each run: every reply that a client got is the right one
//! in the right order, every client that stayed got all of its replies, and nothing of a request is left behind.

use std::{
    cell::Cell,
    collections::VecDeque,
    rc::Rc,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use crossbeam_channel::Sender;
use zerohop_engine::{
    Event, Finish, Job, JobHandle, JobKind, Mail, Mailbox, Rejected, Stats, Submit, Ticket, Usage, mailbox,
};
use zerohop_ring::{
    Io, ListenerId, Options,
    sim::{Faults, Net, Sim, WireId, WireState},
};

use super::{Command, Local, Phase, Shared, Surface, Worker};
use crate::{
    caller::Callers,
    clock::Clock,
    config::{Access, Config, KeyDigest, KeySource, Machine, Model, ModelSet, Tenant},
    log::{Format, Level, Log, system_clock},
    metrics::{Common, ModelMetrics},
    resolve::Resolver,
    snapshot::{Engines, ServedModel, Snapshot},
};

/// Chance of the clients and of the engine: SplitMix64.
struct Chance(u64);

impl Chance {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % bound as u64).unwrap()
    }
}

/// An accepted job and how far it has come.
struct Running {
    ticket: Ticket,
    cancelled: Arc<std::sync::atomic::AtomicBool>,
    events: VecDeque<Event>,
}

/// An engine that answers each prompt with the prompt, in pieces, when the test says so.
#[derive(Default)]
struct Scripted {
    running: Mutex<Vec<Running>>,
}

/// Jobs that fit; one more is rejected.
const PLACES: usize = 6;

impl Submit for Scripted {
    fn submit(&self, job: Job) -> Result<JobHandle, Rejected> {
        let mut running = self.running.lock().unwrap();
        if running.len() >= PLACES {
            return Err(Rejected::QueueFull {
                retry_after: Duration::from_millis(40),
            });
        }
        assert!(matches!(job.kind, JobKind::Generate { .. }));
        let (handle, cancelled) = JobHandle::new();
        let text = job.conversation.messages[0].content.clone();
        let mut events = VecDeque::from([Event::Started {
            input_tokens: 3,
            cached_tokens: 0,
            queued: Duration::ZERO,
        }]);
        for piece in text.split_inclusive('-') {
            events.push_back(Event::Text {
                text: piece.to_owned(),
                tokens: 1,
            });
        }
        let usage = Usage {
            input_tokens: 3,
            cached_tokens: 0,
            output_tokens: u32::try_from(events.len()).unwrap() - 1,
        };
        events.push_back(Event::Finished {
            finish: Finish::EndOfTurn,
            usage,
        });
        running.push(Running {
            ticket: job.ticket,
            cancelled,
            events,
        });
        Ok(handle)
    }
}

impl Engines for Scripted {
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

impl Scripted {
    /// Some of the jobs go on by some events; cancelled ones go away.
    fn work(&self, chance: &mut Chance, to: &mut Mailbox) {
        let mut running = self.running.lock().unwrap();
        running.retain(|job| !job.cancelled.load(Ordering::Acquire));
        let mut sent = false;
        for job in running.iter_mut() {
            for _ in 0..chance.below(3) {
                let Some(event) = job.events.pop_front() else { break };
                to.mail
                    .push(Mail {
                        ticket: job.ticket,
                        event,
                        at: Instant::now(),
                    })
                    .unwrap();
                sent = true;
            }
        }
        running.retain(|job| !job.events.is_empty());
        if sent {
            (to.wake)();
        }
    }
}

/// What a client must get for one request.
#[derive(Debug, Clone)]
enum Expected {
    Status(u16),
    /// An answer with this text, or a 429.
    Answer {
        text: String,
        streamed: bool,
    },
}

/// A client: what it sends, what it must get, what it got.
struct Client {
    wire: WireId,
    to_send: Vec<u8>,
    expected: Vec<Expected>,
    got: Vec<u8>,
    /// Leaves when it has sent so many bytes.
    leaves_after: Option<usize>,
    sent: usize,
    gone: bool,
}

fn post(path: &str, body: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(
        format!(
            "POST {path} HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
}

fn chunked(path: &str, body: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(
        format!("POST {path} HTTP/1.1\r\nhost: sim\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes(),
    );
    for piece in body.as_bytes().chunks(37) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
}

impl Client {
    fn new(number: usize, net: &Net, chance: &mut Chance) -> Self {
        let (mut to_send, mut expected) = (Vec::new(), Vec::new());
        for request in 0..=chance.below(5) {
            let text = format!(
                "client-{number}-request-{request}-says-{}",
                "x".repeat(chance.below(400))
            );
            match chance.below(7) {
                0 => {
                    to_send.extend_from_slice(b"GET /health HTTP/1.1\r\nhost: sim\r\n\r\n");
                    expected.push(Expected::Status(200));
                }
                1 => {
                    post("/v1/nothing", "{}", &mut to_send);
                    expected.push(Expected::Status(404));
                }
                2 => {
                    post("/v1/messages", r#"{"model":"tiny","#, &mut to_send);
                    expected.push(Expected::Status(400));
                }
                kind => {
                    let streamed = kind % 2 == 0;
                    let path = if kind < 5 {
                        "/v1/messages"
                    } else {
                        "/v1/chat/completions"
                    };
                    let body = format!(
                        r#"{{"model":"tiny","max_tokens":99,"stream":{streamed},"messages":[{{"role":"user","content":"{text}"}}]}}"#
                    );
                    if chance.below(3) == 0 {
                        chunked(path, &body, &mut to_send);
                    } else {
                        post(path, &body, &mut to_send);
                    }
                    expected.push(Expected::Answer { text, streamed });
                }
            }
        }
        let leaves_after = (chance.below(4) == 0).then(|| chance.below(to_send.len()));
        let wire = net.connect(ListenerId(0));
        if chance.below(3) == 0 {
            net.set_window(wire, 300);
        }
        Self {
            wire,
            to_send,
            expected,
            got: Vec::new(),
            leaves_after,
            sent: 0,
            gone: false,
        }
    }

    /// Sends and reads a little; leaves when its time has come.
    fn act(&mut self, net: &Net, chance: &mut Chance) {
        if self.gone {
            return;
        }
        let end = self.leaves_after.unwrap_or(self.to_send.len());
        if self.sent < end {
            let piece = 1 + chance.below(700);
            self.sent += net.write(self.wire, &self.to_send[self.sent..end.min(self.sent + piece)]);
        } else if self.leaves_after.is_some() {
            self.gone = true;
            if chance.below(2) == 0 {
                net.reset(self.wire)
            } else {
                net.finish(self.wire)
            }
            return;
        }
        self.got.extend(net.read(self.wire, 1 + chance.below(4096)));
    }

    fn is_done(&self) -> bool {
        self.gone || replies(&self.got).len() == self.expected.len()
    }

    /// Everything that came is right; whoever stayed and was not cut off has everything.
    fn check(&self, seed: u64, state: WireState) {
        let replies = replies(&self.got);
        assert!(
            replies.len() <= self.expected.len(),
            "seed {seed}: more replies than requests"
        );
        for (reply, expected) in replies.iter().zip(&self.expected) {
            expected.check(seed, reply);
        }
        let cut_off = self.gone || state == WireState::Reset;
        assert!(
            cut_off || replies.len() == self.expected.len(),
            "seed {seed}: a reply is missing"
        );
    }
}

impl Expected {
    fn check(&self, seed: u64, (status, body): &(u16, String)) {
        match self {
            Self::Status(wanted) => assert_eq!(status, wanted, "seed {seed}"),
            Self::Answer { .. } if *status == 429 => {}
            Self::Answer { text, streamed } => {
                assert_eq!(*status, 200, "seed {seed}: {body}");
                let told = if *streamed { deltas(body) } else { body.clone() };
                assert!(told.contains(text.as_str()), "seed {seed}: {text} is not in {told}");
                let whole = body.contains("\"end_turn\"") || body.contains("\"stop\"");
                assert!(whole, "seed {seed}: no end in {body}");
            }
        }
    }
}

/// The text of a stream, put together.
fn deltas(body: &str) -> String {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str::<serde_json::Value>(data).ok())
        .filter_map(|event| {
            let anthropic = event["delta"]["text"].as_str();
            anthropic
                .or(event["choices"][0]["delta"]["content"].as_str())
                .map(str::to_owned)
        })
        .collect()
}

/// The complete replies at the start of `bytes`: status and body.
fn replies(mut bytes: &[u8]) -> Vec<(u16, String)> {
    let mut found = Vec::new();
    while let Some(head_end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
        let status: u16 = head["HTTP/1.1 ".len()..][..3].parse().unwrap();
        let rest = &bytes[head_end + 4..];
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let (body, used) = match length {
            Some(length) => {
                let length: usize = length.trim().parse().unwrap();
                if rest.len() < length {
                    break;
                }
                (rest[..length].to_vec(), length)
            }
            None => match unchunk(rest) {
                Some(body) => body,
                None => break,
            },
        };
        found.push((status, String::from_utf8(body).unwrap()));
        bytes = &rest[used..];
    }
    found
}

fn unchunk(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).unwrap(), 16).unwrap();
        at += line + 2;
        let data = bytes.get(at..at + size + 2)?;
        body.extend_from_slice(&data[..size]);
        at += size + 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}

/// Virtual time between two steps of clients and engine, in nanoseconds: within the delays of the network.
const STEP: u64 = 500_000;

/// A worker with its engine, ready to accept.
struct World {
    worker: Worker<Sim>,
    net: Net,
    engine: Arc<Scripted>,
    mailbox: Mailbox,
    commands: Sender<Command>,
    shared: Arc<Shared>,
    /// Whether the next step is on its way.
    step_ahead: Rc<Cell<bool>>,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        Self::with(&Config::defaults(&Machine).unwrap(), seed, faults)
    }

    fn with(config: &Config, seed: u64, faults: Faults) -> Self {
        let options = Options {
            max_connections: 64,
            recv_buffers: 8,
            recv_buffer_size: 512,
            ..Options::default()
        };
        let (io, net) = Sim::new(seed, faults, 1, options).unwrap();
        let engine = Arc::new(Scripted::default());
        let (log, _) = Log::start(std::io::sink(), Format::Json, Level::Debug, system_clock).unwrap();
        let common = Common {
            instance_id: "sim".into(),
            region: None,
            start_time: 0,
        };
        let shared = Arc::new(Shared::new(config, 1, common, snapshot(config, &engine)));
        shared.set_phase(Phase::Ready);
        let waker = io.waker();
        let (mailbox, receiver) = mailbox(256, Box::new(move || waker.wake()));
        let (commands, receive) = crossbeam_channel::bounded(8);
        let local = Local::new(0, Arc::clone(&shared), log, Clock::scripted(|| Duration::ZERO), [7; 32]);
        commands.send(Command::Mailbox(receiver)).unwrap();
        commands.send(Command::Start).unwrap();
        let mut worker = Worker::new(io, vec![Surface::Full], receive, local);
        worker.obey();
        Self {
            worker,
            net,
            engine,
            mailbox,
            commands,
            shared,
            step_ahead: Rc::default(),
        }
    }

    /// Lets `clients` act until all are done, then drains; the digest of everything that happened.
    fn run(mut self, name: &str, seed: u64, clients: usize, network_resets: bool) -> u64 {
        const TURNS: usize = 50_000;
        let mut chance = Chance(seed ^ 0x5eed);
        let mut clients: Vec<_> = (0..clients)
            .map(|number| Client::new(number, &self.net, &mut chance))
            .collect();
        let mut turns = 0;
        let over = |client: &Client, net: &Net| client.is_done() || net.state(client.wire) != WireState::Open;
        while !clients.iter().all(|client| over(client, &self.net)) {
            turns += 1;
            assert!(
                turns < TURNS,
                "seed {seed}: clients wait for ever: {}",
                self.stuck(&clients)
            );
            self.step(&mut chance, &mut clients);
        }
        self.commands.send(Command::Drain).unwrap();
        self.worker.obey();
        while !self.worker.has_ended() {
            turns += 1;
            assert!(turns < 2 * TURNS, "seed {seed}: the worker does not end");
            self.step(&mut chance, &mut clients);
        }
        for client in &clients {
            let state = self.net.state(client.wire);
            let innocent = !client.gone && !network_resets;
            assert!(
                !(innocent && state == WireState::Reset),
                "{name}: the gateway reset a client that did nothing wrong"
            );
            client.check(seed, state);
        }
        self.engine.work(&mut chance, &mut self.mailbox);
        assert!(
            self.engine.running.lock().unwrap().is_empty(),
            "seed {seed}: a job was left behind"
        );
        let metrics = self.worker.local.metrics();
        assert_eq!(
            metrics.requests_in_flight.get(),
            0,
            "seed {seed}: a request was never finished"
        );
        assert_eq!(metrics.connections_open.get(), 0, "seed {seed}");
        self.net.digest()
    }

    /// Who waits, for the message of a run that hangs.
    fn stuck(&self, clients: &[Client]) -> String {
        let waiting = clients.iter().filter(|client| !client.is_done());
        let told = waiting.map(|client| {
            format!(
                "{:?}: sent {} of {}, has {} of {} replies, {:?}, unread {}, at {}\n{}\n",
                client.wire,
                client.sent,
                client.to_send.len(),
                replies(&client.got).len(),
                client.expected.len(),
                self.net.state(client.wire),
                self.net.unread(client.wire),
                self.net.now(),
                String::from_utf8_lossy(&client.got)
            )
        });
        told.collect()
    }

    fn step(&mut self, chance: &mut Chance, clients: &mut [Client]) {
        for client in clients.iter_mut() {
            client.act(&self.net, chance);
        }
        self.engine.work(chance, &mut self.mailbox);
        // The next step of clients and engine, so that a turn does not wait for the next deadline.
        if !self.step_ahead.replace(true) {
            let (waker, step_ahead) = (self.worker.io.waker(), Rc::clone(&self.step_ahead));
            self.net.after(STEP, move |_| {
                step_ahead.set(false);
                waker.wake();
            });
        }
        self.worker.turn().unwrap();
    }
}

fn snapshot(config: &Config, engine: &Arc<Scripted>) -> Snapshot {
    let models = config.models.iter().map(|model| {
        Arc::new(ServedModel {
            id: Arc::clone(&model.id),
            created: 0,
            context: 100,
            version: "sim".into(),
            engine: Arc::clone(engine) as Arc<dyn Engines>,
            metrics: Arc::new([ModelMetrics::new()]),
        })
    });
    Snapshot {
        epoch: 1,
        callers: Callers::new(&config.access, [0; 32]),
        resolver: Resolver::of(&config.models),
        models: models.collect(),
        strict: false,
    }
}

/// Seeds of each table row: enough to meet every fault, and few enough for every test run.
const SEEDS: u64 = 60;

#[test]
fn every_reply_is_right_whatever_the_network_does() {
    for (name, faults) in [
        ("none", Faults::NONE),
        ("rough", Faults::ROUGH),
        ("hostile", Faults::HOSTILE),
    ] {
        for seed in 0..SEEDS {
            let clients = 1 + usize::try_from(seed % 12).unwrap();
            World::new(seed, faults.clone()).run(&format!("{name}, {seed}"), seed, clients, faults.resets > 0);
        }
    }
}

#[test]
fn a_seed_replays() {
    for seed in [1, 7, 42] {
        let run = || World::new(seed, Faults::HOSTILE).run("replay", seed, 10, true);
        assert_eq!(run(), run(), "seed {seed}");
    }
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
        let mut world = World::new(1, Faults::NONE);
        let wire = world.net.connect(ListenerId(0));
        let (mut bytes, mut got) = (text.bytes(), Vec::new());
        let started = world.net.now();
        // The head of the second row at once, then a byte a second.
        let head = text.find("\r\n\r\n").map_or(0, |end| end + 4);
        world.net.write(wire, &bytes.by_ref().take(head).collect::<Vec<u8>>());
        while world.net.state(wire) == WireState::Open {
            if let Some(byte) = bytes.next() {
                world.net.write(wire, &[byte]);
            }
            let waker = world.worker.io.waker();
            world.net.after(1_000_000_000, move |_| waker.wake());
            world.worker.turn().unwrap();
            got.extend(world.net.read(wire, 4096));
            let waited = Duration::from_nanos(world.net.now() - started);
            assert!(waited < Duration::from_secs(20), "{name}: still open after {waited:?}");
        }
        assert_eq!(replies(&got).first().map(|(status, _)| *status), Some(408), "{name}");
    }
}

/// Once the caller was admitted by one snapshot and the model looked up in the next, so a reload that reordered models
/// while a body was on its way let a key use a model that it does not open.
#[test]
fn a_request_keeps_the_snapshot_that_let_it_in() {
    let mut config = Config::defaults(&Machine).unwrap();
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
    let mut world = World::with(&config, 1, Faults::NONE);
    let wire = world.net.connect(ListenerId(0));
    let mut request = Vec::new();
    post(
        "/v1/messages",
        r#"{"model":"closed","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#,
        &mut request,
    );
    let request = String::from_utf8(request)
        .unwrap()
        .replacen("\r\n\r\n", "\r\nx-api-key: key\r\n\r\n", 1);
    let (head, body) = request.split_at(request.find("\r\n\r\n").unwrap() + 4);
    let mut got = Vec::new();
    for (turn, piece) in [head, &body[..5], &body[5..], "", "", ""].into_iter().enumerate() {
        world.net.write(wire, piece.as_bytes());
        if turn == 2 {
            let engine = Arc::clone(&world.engine);
            world.shared.publish(snapshot(&swapped, &engine));
        }
        let waker = world.worker.io.waker();
        world.net.after(STEP, move |_| waker.wake());
        world.worker.turn().unwrap();
        got.extend(world.net.read(wire, 4096));
    }
    assert_eq!(
        replies(&got).first().map(|(status, _)| *status),
        Some(403),
        "{}",
        String::from_utf8_lossy(&got)
    );
}

/// Once the body of a request that its head had already refused was gathered whole, so clients without a key could fill the
/// memory with `max_body_bytes` each.
#[test]
fn a_refused_request_is_answered_before_its_body() {
    let mut world = World::new(1, Faults::NONE);
    let wire = world.net.connect(ListenerId(0));
    world.net.write(
        wire,
        b"POST /v1/nothing HTTP/1.1\r\nhost: sim\r\ncontent-length: 30000000\r\n\r\n",
    );
    let mut got = Vec::new();
    for _ in 0..4 {
        let waker = world.worker.io.waker();
        world.net.after(STEP, move |_| waker.wake());
        world.worker.turn().unwrap();
        got.extend(world.net.read(wire, 4096));
        world.net.write(wire, &[b'x'; 300]);
    }
    assert_eq!(replies(&got).first().map(|(status, _)| *status), Some(404));
    assert!(
        world.net.state(wire) != WireState::Open,
        "no further request can follow an unread body"
    );
}
