//! The scripted engines: bounded places, events when chance wants, mailboxes that may be full.
//!
//! What becomes of a job is decided when it is handed in and written into the [`Ledger`], from which replies are judged.
//! Invariant: as a real engine does, one final event for each job that is not cancelled, and its place is free before
//! the worker can know.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use zerohop_engine::{
    Conversation, Event, Finish, Job, JobHandle, JobKind, Logprob, Mail, Mailbox, Part, Prompt, Rejected, Stats,
    Submit, Ticket, Usage,
};

use zerohop_ring::Nanos;

use super::{
    Chance, ensure, fail,
    requests::{Ask, Request, TOOLS, whose},
};
use crate::snapshot::Engines;

/// What becomes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Full,
    NotRunning,
    Counted(u32),
    TooLong,
    Unrenderable,
    /// The engine fails; whether after the start.
    Failed {
        started: bool,
    },
    /// The deadline passes; whether after the start.
    TimedOut {
        started: bool,
    },
    Finished(Finish),
}

impl Fate {
    /// The status of a reply that has no other when this comes; `None`: it is no fault.
    pub(super) fn fault(&self) -> Option<u16> {
        match self {
            Self::Full => Some(429),
            Self::NotRunning => Some(503),
            Self::TooLong | Self::Unrenderable => Some(400),
            Self::Failed { .. } => Some(500),
            Self::TimedOut { .. } => Some(504),
            Self::Counted(_) | Self::Finished(_) => None,
        }
    }

    /// The engine begins to answer.
    fn starts(&self) -> bool {
        matches!(
            self,
            Self::Finished(_) | Self::Failed { started: true } | Self::TimedOut { started: true }
        )
    }
}

/// What the ledger knows of a job.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Which engine, counted over the run.
    pub(super) engine: usize,
    pub(super) worker: usize,
    pub(super) ticket: Ticket,
    pub(super) model: &'static str,
    pub(super) fate: Fate,
    /// The whole answer, as far as the fate lets it come.
    pub(super) text: String,
    /// Calls of tools behind it: name and arguments.
    pub(super) calls: Vec<(&'static str, String)>,
    pub(super) usage: Usage,
    seed: u64,
    /// Its log probabilities were asked for and sent.
    pub(super) told_logprobs: bool,
    /// How much of the text and of the arguments the worker was told.
    pub(super) told: usize,
    /// Which mail of the run told the start, and which the end.
    pub(super) began: Option<u64>,
    pub(super) ended: Option<u64>,
    /// The final event is with the worker.
    pub(super) over: bool,
    /// Raised when the worker drops the job.
    pub(super) cancelled: Option<Arc<AtomicBool>>,
}

impl Entry {
    /// The worker waits for more of it.
    pub(super) fn is_open(&self) -> bool {
        let cancelled = self.cancelled.as_ref().is_none_or(|flag| flag.load(Ordering::Acquire));
        !self.over && !cancelled
    }
}

/// Whose job: client, request, and which of its answers.
pub(super) type Whose = (usize, usize, usize);

/// All jobs of a run, and what was asked by client and request.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) entries: BTreeMap<Whose, Entry>,
    asked: BTreeMap<(usize, usize), Request>,
    /// Jobs handed in since somebody looked.
    pub(super) fresh: Vec<Whose>,
    /// How much mail there was.
    mails: u64,
}

impl Ledger {
    pub(super) fn ask(&mut self, client: usize, number: usize, request: &Request) {
        self.asked.insert((client, number), request.clone());
    }

    /// The jobs of a request, in the order of its answers.
    pub(super) fn of(&self, client: usize, number: usize) -> Vec<&Entry> {
        let all = self.entries.range((client, number, 0)..(client, number + 1, 0));
        all.map(|(_, entry)| entry).collect()
    }

    /// The jobs that a worker waits for.
    pub(super) fn open(&self, worker: usize) -> impl Iterator<Item = (&Whose, &Entry)> {
        let all = self.entries.iter();
        all.filter(move |(_, entry)| entry.worker == worker && entry.is_open())
    }
}

struct Running {
    whose: Whose,
    events: VecDeque<Event>,
}

struct Inside {
    chance: Chance,
    running: Vec<Running>,
    stopped: bool,
}

/// An engine that answers each prompt with the prompt.
pub(super) struct Scripted {
    number: usize,
    model: &'static str,
    places: usize,
    inside: Mutex<Inside>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Scripted {
    pub(super) fn new(
        number: usize,
        model: &'static str,
        places: usize,
        ledger: &Arc<Mutex<Ledger>>,
        chance: &mut Chance,
    ) -> Self {
        Self {
            number,
            model,
            places,
            inside: Mutex::new(Inside {
                chance: Chance(chance.draw()),
                running: Vec::new(),
                stopped: false,
            }),
            ledger: Arc::clone(ledger),
        }
    }

    pub(super) fn stop(&self) {
        self.inside.lock().expect("one thread").stopped = true;
    }
}

fn fate(kind: &JobKind, chance: &mut Chance) -> Fate {
    match (kind, chance.below(16)) {
        (_, 0) => Fate::TooLong,
        (_, 1) => Fate::Unrenderable,
        (_, 2) => Fate::Failed { started: false },
        (JobKind::Count(_), _) => Fate::Counted(1 + chance.below(5000) as u32),
        (_, 3) => Fate::Failed { started: true },
        (_, 4) => Fate::TimedOut {
            started: !chance.one_in(3),
        },
        (_, 5) => Fate::Finished(Finish::MaxTokens),
        (_, 6) => Fate::Finished(Finish::ContextFull),
        (_, 7) => Fate::Finished(Finish::Stop("halt \"here\"".into())),
        _ => Fate::Finished(Finish::EndOfTurn),
    }
}

/// The answer's pieces: from the prompt, with the model's name, cut between characters.
fn pieces(model: &str, prompt: &str, chance: &mut Chance) -> Vec<String> {
    if chance.one_in(12) {
        return Vec::new();
    }
    let whole: Vec<char> = format!("{model}|{prompt}").chars().collect();
    let mut found = Vec::new();
    let mut rest = whole.as_slice();
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((1 + chance.below(60)).min(rest.len()));
        found.push(piece.iter().collect());
        rest = behind;
    }
    found
}

/// Calls of the tools that are offered, in an answer that ends of itself.
fn calls(job: &Job, fate: &mut Fate, prompt: &str, chance: &mut Chance) -> Vec<(&'static str, String)> {
    if conversation(job).tools.list.is_empty() || *fate != Fate::Finished(Finish::EndOfTurn) || chance.one_in(3) {
        return Vec::new();
    }
    *fate = Fate::Finished(Finish::ToolCalls);
    let call = |_| {
        let arguments = serde_json::json!({"of": prompt, "n": [1.5, {}]});
        (TOOLS[chance.below(2)], arguments.to_string())
    };
    (0..1 + prompt.len() % 3).map(call).collect()
}

impl Submit for Scripted {
    fn submit(&self, job: Job) -> Result<JobHandle, Rejected> {
        let prompt = &conversation(&job).messages[0].content;
        let Some((client, number)) = whose(prompt) else {
            fail("job", format_args!("nobody asked {prompt:?}"));
        };
        let inside = &mut *self.inside.lock().expect("one thread");
        let ledger = &mut *self.ledger.lock().expect("one thread");
        let whose = (client, number, ledger.of(client, number).len());
        check(&job, whose, ledger);
        let mut fate = if inside.stopped {
            Fate::NotRunning
        } else if inside.running.len() >= self.places {
            Fate::Full
        } else {
            fate(&job.kind, &mut inside.chance)
        };
        let mut pieces = match fate.starts() {
            true => pieces(self.model, prompt, &mut inside.chance),
            false => Vec::new(),
        };
        let calls = calls(&job, &mut fate, prompt, &mut inside.chance);
        if fate.fault().is_some() {
            pieces.truncate(inside.chance.below(pieces.len() + 1));
        }
        let mut entry = Entry {
            engine: self.number,
            worker: job.mailbox,
            ticket: job.ticket,
            model: self.model,
            text: pieces.concat(),
            calls,
            seed: seed(&job),
            usage: Usage {
                input_tokens: 3 + prompt.len() as u32,
                cached_tokens: inside.chance.below(3) as u32,
                output_tokens: pieces.len() as u32,
            },
            told_logprobs: false,
            told: 0,
            began: None,
            ended: None,
            over: matches!(fate, Fate::Full | Fate::NotRunning),
            cancelled: None,
            fate,
        };
        let result = match entry.fate {
            Fate::Full => Err(Rejected::QueueFull {
                retry_after: Duration::from_millis(40),
            }),
            Fate::NotRunning => Err(Rejected::NotRunning),
            _ => {
                let (handle, cancelled) = JobHandle::new();
                entry.cancelled = Some(cancelled);
                inside.running.push(Running {
                    whose,
                    events: events(&entry, pieces, tells_logprobs(&job), &mut inside.chance),
                });
                Ok(handle)
            }
        };
        ledger.entries.insert(whose, entry);
        ledger.fresh.push(whose);
        result
    }
}

impl Engines for Scripted {
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// What the clients of a simulation ask about.
fn conversation(job: &Job) -> &Conversation {
    match &job.kind {
        JobKind::Count(conversation) => conversation,
        JobKind::Generate(generate) => match &generate.prompt {
            Prompt::Chat(conversation) => conversation,
            other => fail("job", format_args!("nobody asked {other:?}")),
        },
        JobKind::Embed(embed) => fail("job", format_args!("nobody asked {embed:?}")),
    }
}

fn seed(job: &Job) -> u64 {
    match &job.kind {
        JobKind::Generate(generate) => generate.sampling.seed,
        _ => 0,
    }
}

fn tells_logprobs(job: &Job) -> bool {
    matches!(&job.kind, JobKind::Generate(generate) if generate.logprobs == Some(1))
}

/// The job is what the client asked, handed in once for each answer, each with a random stream of its own.
fn check(job: &Job, whose: Whose, ledger: &Ledger) {
    let asked = &ledger.asked[&(whose.0, whose.1)];
    ensure!(
        whose.2 < asked.choices,
        "job",
        "{whose:?} was handed in more than {} times",
        asked.choices
    );
    if let Some(first) = ledger.entries.get(&(whose.0, whose.1, 0)) {
        let wanted = first.seed.wrapping_add(whose.2 as u64);
        ensure!(seed(job) == wanted, "job", "{whose:?} has the seed {}", seed(job));
    }
    let tools = &conversation(job).tools.list;
    ensure!(
        tools.len() == if asked.tools { TOOLS.len() } else { 0 },
        "job",
        "{whose:?} has the tools {tools:?}"
    );
    ensure!(
        tells_logprobs(job) == asked.logprobs,
        "job",
        "{whose:?} asked for log probabilities or not"
    );
    ensure!(
        conversation(job).messages.len() == 1,
        "job",
        "{whose:?} has more than one message"
    );
    ensure!(
        conversation(job).messages[0].content == asked.prompt,
        "job",
        "{whose:?} has another prompt"
    );
    let right = match &job.kind {
        JobKind::Count(_) => asked.ask == Ask::Count,
        JobKind::Generate(generate) => {
            matches!(asked.ask, Ask::Chat { .. }) && generate.max_tokens == Some(asked.max_tokens)
        }
        JobKind::Embed(_) => false,
    };
    ensure!(right, "job", "{whose:?} asked {asked:?} and became {:?}", job.kind);
    let twin = ledger.open(job.mailbox).find(|(_, entry)| entry.ticket == job.ticket);
    ensure!(twin.is_none(), "job", "{whose:?} has the ticket of {twin:?}");
}

fn events(entry: &Entry, pieces: Vec<String>, told: bool, chance: &mut Chance) -> VecDeque<Event> {
    let usage = entry.usage;
    let mut events = VecDeque::new();
    if entry.fate.starts() {
        events.push_back(Event::Started {
            input_tokens: usage.input_tokens,
            cached_tokens: usage.cached_tokens,
            queued: Duration::ZERO,
        });
    }
    events.extend(pieces.into_iter().map(|text| Event::Text {
        logprobs: told.then(|| logprob(&text)).into_iter().collect(),
        text,
        tokens: 1,
    }));
    for (name, arguments) in &entry.calls {
        events.push_back(Event::Call {
            name: (*name).to_owned(),
        });
        let mut rest: Vec<char> = arguments.chars().collect();
        while !rest.is_empty() {
            let behind = rest.split_off((1 + chance.below(30)).min(rest.len()));
            events.push_back(Event::Arguments {
                text: std::mem::replace(&mut rest, behind).into_iter().collect(),
                tokens: 1,
            });
        }
    }
    events.push_back(match &entry.fate {
        Fate::Finished(finish) => Event::Finished {
            finish: finish.clone(),
            usage,
        },
        Fate::Counted(input_tokens) => Event::Counted {
            input_tokens: *input_tokens,
        },
        Fate::TooLong => Event::TooLong {
            input_tokens: 200,
            limit: 100,
        },
        Fate::Unrenderable => Event::Refused {
            part: Part::Messages,
            reason: "roles must alternate".into(),
        },
        Fate::TimedOut { .. } => Event::TimedOut,
        Fate::Failed { .. } | Fate::Full | Fate::NotRunning => Event::Failed {
            reason: "as scripted".into(),
        },
    });
    events
}

/// A piece as if it were a token.
fn logprob(text: &str) -> Logprob {
    Logprob {
        token: 1,
        bytes: text.into(),
        logprob: Some(-0.25),
        top: vec![(1, text.into(), -0.25)],
    }
}

/// What a step of an engine did, for the coverage: mail went to whom, and whose had to wait for room.
#[derive(Default)]
pub(super) struct Worked {
    pub(super) mailed: Vec<Whose>,
    pub(super) blocked: Vec<Whose>,
}

/// An engine with its ends of the mailboxes, as the control thread and the engine's own thread hold them.
pub(super) struct Desk {
    pub(super) number: usize,
    /// When it works next.
    pub(super) next: Nanos,
    pub(super) model: &'static str,
    /// `None`: a reload has removed the model; requests and old snapshots may still hold the engine.
    pub(super) engine: Option<Arc<Scripted>>,
    weak: Weak<Scripted>,
    boxes: Vec<Mailbox>,
    capacity: usize,
}

impl Desk {
    pub(super) fn new(engine: Scripted, boxes: Vec<Mailbox>) -> Self {
        let engine = Arc::new(engine);
        Self {
            number: engine.number,
            next: 0,
            model: engine.model,
            weak: Arc::downgrade(&engine),
            engine: Some(engine),
            capacity: boxes[0].mail.buffer().capacity(),
            boxes,
        }
    }

    /// Nobody holds the engine any more.
    pub(super) fn is_gone(&self) -> bool {
        self.weak.strong_count() == 0
    }

    /// A worker has read all its mail.
    pub(super) fn is_read(&self, worker: usize) -> bool {
        self.boxes[worker].mail.slots() == self.capacity
    }

    /// How many jobs have places.
    pub(super) fn running(&self) -> usize {
        self.weak
            .upgrade()
            .map_or(0, |engine| engine.inside.lock().expect("one thread").running.len())
    }

    /// Some of the jobs go on by some events; cancelled ones go away.
    pub(super) fn work(&mut self) -> Worked {
        let mut worked = Worked::default();
        let Some(engine) = self.weak.upgrade() else {
            return worked;
        };
        let inside = &mut *engine.inside.lock().expect("one thread");
        let ledger = &mut *engine.ledger.lock().expect("one thread");
        // A job that was cancelled is noticed at one of its next tokens.
        let chance = &mut inside.chance;
        inside
            .running
            .retain(|job| ledger.entries[&job.whose].is_open() || !chance.one_in(3));
        let mut woken = vec![false; self.boxes.len()];
        for job in &mut inside.running {
            let entry = ledger.entries.get_mut(&job.whose).expect("a job of the ledger");
            let to = &mut self.boxes[entry.worker];
            for _ in 0..inside.chance.below(4) {
                if to.mail.is_full() {
                    worked.blocked.push(job.whose);
                    break;
                }
                let Some(event) = next(&mut job.events, &mut inside.chance) else {
                    break;
                };
                ledger.mails += 1;
                if let Event::Text { logprobs, .. } = &event {
                    entry.told_logprobs |= !logprobs.is_empty();
                }
                match &event {
                    Event::Text { text, .. } | Event::Arguments { text, .. } => entry.told += text.len(),
                    Event::Started { .. } => entry.began = Some(ledger.mails),
                    _ => {}
                }
                entry.over = event.is_final();
                entry.ended = entry.over.then_some(ledger.mails);
                let mail = Mail {
                    ticket: entry.ticket,
                    event,
                    at: Instant::now(),
                };
                ensure!(to.mail.push(mail).is_ok(), "engine", "no room for mail");
                worked.mailed.push(job.whose);
                woken[entry.worker] = true;
            }
        }
        inside.running.retain(|job| !job.events.is_empty());
        for (to, _) in self.boxes.iter().zip(woken).filter(|(_, woken)| *woken) {
            (to.wake)();
        }
        worked
    }
}

/// The next event; sometimes the deltas that wait are joined.
fn next(events: &mut VecDeque<Event>, chance: &mut Chance) -> Option<Event> {
    let mut event = events.pop_front()?;
    while chance.one_in(3) {
        match (&mut event, events.front_mut()) {
            (
                Event::Text { text, tokens, logprobs },
                Some(Event::Text {
                    text: more,
                    tokens: count,
                    logprobs: others,
                }),
            ) => {
                text.push_str(more);
                *tokens += *count;
                logprobs.append(others);
            }
            (
                Event::Arguments { text, tokens },
                Some(Event::Arguments {
                    text: more,
                    tokens: count,
                }),
            ) => {
                text.push_str(more);
                *tokens += *count;
            }
            _ => break,
        }
        events.pop_front();
    }
    Some(event)
}
