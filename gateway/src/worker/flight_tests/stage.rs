//! Workers on one simulated network, an engine that is a puppet, and clients that ask one question.
//!
//! A worker turns only when its ring has something for it or its deadline has come, so that a wake-up which is missing is a
//! test that fails.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::Sender;
use zerohop_cache::{Cache, Limits as Bounds, Options as CacheOptions, Probation, heat::Decay};
use zerohop_engine::{Event, Finish, Job, JobHandle, Mail, Mailbox, Rejected, Stats, Submit, Ticket, Usage, mailbox};
use zerohop_ring::{
    Io, ListenerId, Nanos, Options,
    sim::{Faults, Net, Sim, WireId},
};

use super::super::{Command, Local, Phase, Shared, Surface, Worker};
use crate::{
    caller::Callers,
    clock::Clock,
    config::{Config, Machine},
    keep::{Keeping, Policy},
    key::{Epoch, EpochParts, Scope, Secret, Spaces, files_digest},
    log::{Format, Level, Log, system_clock},
    metrics::{Common, ModelMetrics},
    resolve::Resolver,
    snapshot::{Engines, Era, Kept, ServedModel, Snapshot},
};

/// What is on its way arrives within this time.
const SOON: Nanos = 5_000_000;

/// How a client asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) anthropic: bool,
    pub(super) stream: bool,
}

impl Ask {
    fn bytes(self, question: &str, head: &str) -> String {
        let (path, limit) = match self.anthropic {
            true => ("/v1/messages", "max_tokens"),
            false => ("/v1/chat/completions", "max_completion_tokens"),
        };
        let body = format!(
            r#"{{"model":"tiny","{limit}":9,"temperature":0,"stream":{},"messages":[{{"role":"user","content":"{question}"}}]}}"#,
            self.stream
        );
        format!(
            "POST {path} HTTP/1.1\r\nhost: sim\r\n{head}content-length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

/// What of the gateway a test may change.
pub(super) struct Form {
    pub(super) policy: Policy,
    pub(super) single_flight: bool,
    pub(super) deadline: Option<Duration>,
}

/// An engine that does nothing by itself.
#[derive(Default)]
struct Puppet {
    jobs: Mutex<Vec<(Ticket, usize, Arc<AtomicBool>)>>,
    full: AtomicBool,
}

impl Submit for Puppet {
    fn submit(&self, job: Job) -> Result<JobHandle, Rejected> {
        if self.full.load(Ordering::SeqCst) {
            let retry_after = Duration::from_millis(40);
            return Err(Rejected::QueueFull { retry_after });
        }
        let (handle, cancelled) = JobHandle::new();
        let mut jobs = self.jobs.lock().expect("one thread");
        jobs.push((job.ticket, job.mailbox, cancelled));
        Ok(handle)
    }
}

impl Engines for Puppet {
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

pub(super) struct Stage {
    /// `None`: it has ended.
    workers: Vec<Option<Worker<Sim>>>,
    commands: Vec<Sender<Command>>,
    mailboxes: Vec<Mailbox>,
    engine: Arc<Puppet>,
    net: Net,
    /// What each client has read.
    read: BTreeMap<usize, (WireId, Vec<u8>)>,
    shared: Arc<Shared>,
    cache: Arc<Cache>,
}

fn snapshot(config: &Config, engine: &Arc<Puppet>, workers: usize, cache: &Cache, form: &Form) -> Snapshot {
    // Any folder with files in it.
    let files = files_digest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/flight")).expect("files");
    let epoch = EpochParts {
        files,
        context: 100,
        rules: None,
        version: 1,
    };
    let model = ServedModel {
        id: "tiny".into(),
        created: 0,
        context: 100,
        version: "sim".into(),
        epoch: Some(Epoch::of(&epoch)),
        era: Era::first(),
        deadline: form.deadline,
        engine: Arc::clone(engine) as Arc<dyn Engines>,
        metrics: (0..workers).map(|_| ModelMetrics::new()).collect(),
    };
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
        kept: Some(Kept {
            keeping: Keeping {
                policy: form.policy,
                tools: false,
                ttl: None,
            },
            single_flight: form.single_flight,
            numbers: vec![cache.model("tiny")],
        }),
        models: vec![Arc::new(model)],
        strict: false,
    }
}

impl Stage {
    pub(super) fn new(workers: usize) -> Self {
        Self::with(workers, |_| {})
    }

    pub(super) fn with(workers: usize, change: impl FnOnce(&mut Form)) -> Self {
        let mut form = Form {
            policy: Policy::Deterministic,
            single_flight: true,
            deadline: None,
        };
        change(&mut form);
        let mut config = Config::defaults(&Machine).expect("the defaults");
        config.models.truncate(1);
        config.models[0].id = "tiny".into();
        let cache = Cache::in_memory(CacheOptions {
            limits: Bounds {
                bytes: 1 << 20,
                buckets: 1024,
            },
            decay: Decay::literal(0.9, 100),
            probation: Probation::Off,
            seed: 1,
        });
        let cache = Arc::new(cache.expect("a cache"));
        let engine = Arc::new(Puppet::default());
        let common = Common {
            instance_id: "sim".into(),
            region: None,
            start_time: 0,
        };
        let first = snapshot(&config, &engine, workers, &cache, &form);
        let shared = Shared::new(&config, workers, common, first).with_cache(Some(Arc::clone(&cache)));
        let shared = Arc::new(shared);
        shared.set_phase(Phase::Ready);
        let options = || Options {
            max_connections: 64,
            recv_buffers: 8,
            recv_buffer_size: 4096,
            ..Options::default()
        };
        let (io, net) = Sim::new(1, Faults::NONE, 1, options()).expect("a network");
        net.hold_clock();
        let mut ios = vec![io];
        ios.extend((1..workers).map(|_| Sim::join(&net, 1, options()).expect("a worker")));
        let (log, _) = Log::start(std::io::sink(), Format::Json, Level::Error, system_clock).expect("a log");
        let mut this = Self {
            workers: Vec::new(),
            commands: Vec::new(),
            mailboxes: Vec::new(),
            engine,
            net,
            read: BTreeMap::new(),
            shared,
            cache,
        };
        for (index, io) in ios.into_iter().enumerate() {
            let (commands, receive) = crossbeam_channel::bounded(8);
            let waker = io.waker();
            let (engine, receiver) = mailbox(64, Box::new(move || waker.wake()));
            let clock = Clock::scripted(|| Duration::ZERO);
            let seed = [7 + index as u8; 32];
            let local = Local::new(index, Arc::clone(&this.shared), log.clone(), clock, seed);
            this.workers
                .push(Some(Worker::new(io, vec![Surface::Full], receive, local)));
            this.commands.push(commands);
            this.mailboxes.push(engine);
            this.command(index, Command::Mailbox(receiver));
            this.command(index, Command::Start);
        }
        this
    }

    /// Lets everybody go on who can, and time while anything is on its way.
    fn settle(&mut self) {
        self.run(self.net.now() + SOON);
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Nanos) {
        let until = self.net.now() + time;
        self.run(until);
        self.net.advance(until.max(self.net.now()));
        self.run(until);
    }

    fn run(&mut self, until: Nanos) {
        loop {
            self.net.run_wires();
            let now = self.net.now();
            let mut next = self.net.next_time();
            let mut moved = false;
            for place in &mut self.workers {
                let Some(worker) = place else { continue };
                if worker.io.next_time().is_some_and(|at| at <= now) {
                    worker.io.run_kernel();
                    moved = true;
                }
                if worker.io.is_ready() || worker.deadline().is_some_and(|at| at <= now) {
                    worker.turn().expect("a turn");
                    moved = true;
                }
                let times = [next, worker.io.next_time(), worker.deadline()];
                next = times.into_iter().flatten().min();
                if worker.has_ended() {
                    *place = None;
                }
            }
            match next {
                _ if moved => {}
                Some(at) if at <= until => self.net.advance(at.max(now + 1)),
                _ => return,
            }
        }
    }

    fn connect(&mut self, worker: usize) -> WireId {
        for _ in 0..100 {
            let wire = self.net.connect(ListenerId(0));
            self.settle();
            if self.net.carried(wire).is_some_and(|(carrier, _)| carrier == worker) {
                self.read.insert(self.read.len(), (wire, Vec::new()));
                return wire;
            }
            self.net.reset(wire);
            self.settle();
        }
        panic!("no connection reaches worker {worker}")
    }

    /// A client of this worker asks the one question, with these lines in its head.
    pub(super) fn ask(&mut self, worker: usize, ask: Ask, head: &str) -> WireId {
        let wire = self.connect(worker);
        self.say(wire, &ask.bytes("Hello", head));
        wire
    }

    /// The same with another question.
    pub(super) fn ask_about(&mut self, worker: usize, ask: Ask, question: &str) -> WireId {
        let wire = self.connect(worker);
        self.say(wire, &ask.bytes(question, ""));
        wire
    }

    pub(super) fn say(&mut self, wire: WireId, text: &str) {
        assert_eq!(self.net.write(wire, text.as_bytes()), text.len());
        self.settle();
    }

    /// All that a client has got so far.
    pub(super) fn got(&mut self, wire: WireId) -> String {
        let mut all = self.read.values_mut();
        let (_, read) = all.find(|(its, _)| *its == wire).expect("a client");
        loop {
            let more = self.net.read(wire, 1 << 16);
            if more.is_empty() {
                break;
            }
            read.extend(more);
        }
        String::from_utf8(read.clone()).expect("text")
    }

    pub(super) fn leave(&mut self, wire: WireId) {
        self.net.reset(wire);
        self.settle();
    }

    pub(super) fn command(&mut self, worker: usize, command: Command) {
        self.commands[worker].send(command).expect("a worker");
        if let Some(worker) = &self.workers[worker] {
            worker.io.waker().wake();
        }
        self.settle();
    }

    pub(super) fn has_ended(&self, worker: usize) -> bool {
        self.workers[worker].is_none()
    }

    /// The engine says this of a job.
    pub(super) fn tell(&mut self, job: usize, event: Event) {
        let (ticket, worker, _) = self.engine.jobs.lock().expect("one thread")[job].clone();
        let at = Instant::now();
        let to = &mut self.mailboxes[worker];
        to.mail.push(Mail { ticket, event, at }).expect("room for mail");
        (to.wake)();
        self.settle();
    }

    pub(super) fn is_full(&self, full: bool) {
        self.engine.full.store(full, Ordering::SeqCst);
    }

    /// Jobs that the engine was handed.
    pub(super) fn jobs(&self) -> usize {
        self.engine.jobs.lock().expect("one thread").len()
    }

    pub(super) fn is_cancelled(&self, job: usize) -> bool {
        let jobs = self.engine.jobs.lock().expect("one thread");
        jobs[job].2.load(Ordering::SeqCst)
    }

    /// Answers that were kept.
    pub(super) fn kept(&self) -> u64 {
        while self.cache.stats().waiting_bytes > 0 {
            thread::yield_now();
        }
        self.cache.stats().puts
    }

    fn metric(&self, sample: &str) -> u64 {
        let worker = self.workers.iter().flatten().next().expect("a worker");
        let mut text = Vec::new();
        worker.local.render_metrics(&mut text);
        let text = String::from_utf8(text).expect("text");
        let line = text
            .lines()
            .find(|line| !line.starts_with('#') && line.contains(sample))
            .unwrap_or_else(|| panic!("no {sample}"));
        let value = line.rsplit(' ').next().expect("a value");
        value.parse().expect("a count")
    }

    /// So many requests had this part in a flight.
    pub(super) fn check(&self, part: &str, count: u64) {
        let sample = format!("part=\"{part}\"");
        assert_eq!(self.metric(&sample), count, "{part}");
    }

    pub(super) fn orphans(&self) -> u64 {
        self.metric("zerohop_flight_orphans_total")
    }

    /// Nothing is left of any flight once what waits is stored.
    pub(super) fn is_empty(&mut self) {
        let _ = self.kept();
        self.pass(1_000_000_000);
        for worker in self.workers.iter_mut().flatten() {
            assert!(!worker.local.has_orphans());
            assert_eq!(worker.local.flying().flights().open(), 0);
        }
    }
}

pub(super) fn started() -> Event {
    Event::Started {
        input_tokens: 7,
        cached_tokens: 2,
        queued: Duration::ZERO,
    }
}

pub(super) fn word(text: &str) -> Event {
    Event::Text {
        text: text.into(),
        tokens: 1,
        logprobs: Vec::new(),
    }
}

pub(super) fn finished(finish: Finish) -> Event {
    Event::Finished {
        finish,
        usage: Usage {
            input_tokens: 7,
            cached_tokens: 2,
            output_tokens: 3,
        },
    }
}

/// The text of a reply, whole or streamed, as far as it has come.
pub(super) fn text_of(got: &str) -> String {
    let data = got.lines().filter_map(|line| line.strip_prefix("data: "));
    let document = got.split("\r\n\r\n").nth(1).filter(|body| body.starts_with('{'));
    let values = data
        .chain(document)
        .filter_map(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let places = [
        "/delta/text",
        "/choices/0/delta/content",
        "/content/0/text",
        "/choices/0/message/content",
    ];
    let text = |value: serde_json::Value| {
        let found = places.iter().find_map(|place| value.pointer(place)?.as_str());
        found.unwrap_or_default().to_owned()
    };
    values.map(text).collect()
}

/// A reply without what is each reply's own: ids, times, and what it tells of the cache.
pub(super) fn bare(got: &str) -> String {
    let mut text = got.to_owned();
    for (before, behind) in [
        ("request-id: ", "\r"),
        ("x-request-id: ", "\r"),
        ("date: ", "\r"),
        ("x-cache: ", "\r"),
        ("\"msg_", "\""),
        ("\"chatcmpl-", "\""),
        ("\"created\":", ","),
    ] {
        let mut at = 0;
        while let Some(found) = text[at..].find(before) {
            let begin = at + found + before.len();
            let end = text[begin..].find(behind).map_or(text.len(), |end| begin + end);
            text.replace_range(begin..end, "*");
            at = begin;
        }
    }
    text
}
