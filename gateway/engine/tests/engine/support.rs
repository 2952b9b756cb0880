//! What the tests here share: the runtime and the bundled model, and a client that reads its mail.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) use zerohop_engine::Conversation;
use zerohop_engine::{
    Engine, EngineConfig, Event, Finish, Generate, Job, JobHandle, JobKind, Mail, Message, Model, ModelOptions, Prompt,
    Rejected, Role, Runtime, Sampling, Submit, Ticket, Usage, mailbox,
};

use crate::skip::skipped;

/// No test waits longer for anything. Generous: the machine may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// How often a condition is looked at, unless mail comes before.
const POLL: Duration = Duration::from_millis(1);

/// The bundled model, or the directory that `ZEROHOP_TEST_MODEL` names.
pub(crate) fn model_dir() -> PathBuf {
    let bundled = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny");
    std::env::var_os("ZEROHOP_TEST_MODEL").map_or(bundled, PathBuf::from)
}

/// The runtime, or a line that says why `test` is skipped.
pub(crate) fn runtime(test: &str) -> Option<Runtime> {
    let environment = std::env::var_os("ORT_DYLIB_PATH");
    Runtime::find(None, environment.as_deref())
        .map_err(|error| skipped(test, &error.to_string()))
        .ok()
}

/// The model, or a line that says why `test` is skipped. A model that is there but does not load is a failure.
pub(crate) fn model(test: &str, options: &ModelOptions) -> Option<Model> {
    let runtime = runtime(test)?;
    let dir = model_dir();
    if !dir.join("model.onnx").is_file() {
        skipped(test, &format!("no model in {}", dir.display()));
        return None;
    }
    Some(Model::load(&runtime, &dir, options).unwrap_or_else(|problem| panic!("{problem}")))
}

/// What came for a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Received {
    pub(crate) events: Vec<Event>,
}

impl Received {
    pub(crate) fn text(&self) -> String {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Text { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// How many tokens the deltas stand for.
    pub(crate) fn tokens(&self) -> u32 {
        self.events
            .iter()
            .map(|event| match event {
                Event::Text { tokens, .. } => *tokens,
                _ => 0,
            })
            .sum()
    }

    pub(crate) fn finished(&self) -> Option<(&Finish, Usage)> {
        match self.events.last() {
            Some(Event::Finished { finish, usage }) => Some((finish, *usage)),
            _ => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.events.last().is_some_and(Event::is_final)
    }

    /// The order that the seam promises.
    fn check_order(&self) {
        let last = self.events.len() - 1;
        for (index, event) in self.events.iter().enumerate() {
            assert_eq!(
                event.is_final(),
                index == last && event.is_final(),
                "nothing after the end: {self:?}"
            );
            match event {
                Event::Started { .. } => assert_eq!(index, 0, "{self:?}"),
                Event::Text { text, .. } => assert!(index > 0 && !text.is_empty(), "{self:?}"),
                _ => {}
            }
        }
    }
}

/// An engine with one mailbox, and all that came out of it.
pub(crate) struct Client {
    pub(crate) engine: Engine,
    mail: rtrb::Consumer<Mail>,
    pub(crate) wakes: Arc<AtomicUsize>,
    received: BTreeMap<u64, Received>,
    next: u64,
}

impl Client {
    pub(crate) fn start(model: Model, config: &EngineConfig) -> Self {
        Self::with_mailbox(model, config, 1024)
    }

    pub(crate) fn with_mailbox(model: Model, config: &EngineConfig, capacity: usize) -> Self {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        let waiter = thread::current();
        let wake = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            waiter.unpark();
        };
        let (mailbox, mail) = mailbox(capacity, Box::new(wake));
        let engine = Engine::start(model, config, vec![mailbox]).unwrap_or_else(|error| panic!("{error}"));
        Self {
            engine,
            mail,
            wakes,
            received: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn try_submit(
        &mut self,
        conversation: Conversation,
        kind: JobKind,
    ) -> Result<(u64, JobHandle), Rejected> {
        self.try_submit_kind(of(conversation, kind))
    }

    /// A job as it stands.
    pub(crate) fn try_submit_kind(&mut self, kind: JobKind) -> Result<(u64, JobHandle), Rejected> {
        let ticket = self.next;
        self.next += 1;
        let handle = self.engine.submit(Job {
            ticket: Ticket(ticket),
            mailbox: 0,
            kind,
            deadline: None,
        })?;
        Ok((ticket, handle))
    }

    pub(crate) fn submit(&mut self, conversation: Conversation, kind: JobKind) -> (u64, JobHandle) {
        self.try_submit(conversation, kind).expect("accepted")
    }

    /// Takes what has come.
    pub(crate) fn read(&mut self) {
        while let Ok(mail) = self.mail.pop() {
            self.received.entry(mail.ticket.0).or_default().events.push(mail.event);
        }
    }

    pub(crate) fn received(&self, ticket: u64) -> Option<&Received> {
        self.received.get(&ticket)
    }

    /// Reads until `done`.
    pub(crate) fn read_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        wait_until(what, || {
            self.read();
            done(self)
        });
    }

    /// Everything about a job, when it is over.
    pub(crate) fn outcome(&mut self, ticket: u64) -> Received {
        self.read_until("the end of a job", |client| {
            client.received(ticket).is_some_and(Received::is_over)
        });
        let received = self.received[&ticket].clone();
        received.check_order();
        received
    }

    /// An answer from beginning to end.
    pub(crate) fn answer(&mut self, generate: Generate) -> Received {
        let kind = JobKind::Generate(Box::new(generate));
        let (ticket, _handle) = self.try_submit_kind(kind).expect("accepted");
        self.outcome(ticket)
    }

    /// One job from beginning to end.
    pub(crate) fn run(&mut self, conversation: Conversation, kind: JobKind) -> Received {
        let (ticket, _handle) = self.submit(conversation, kind);
        self.outcome(ticket)
    }
}

/// Polls a condition, up to the deadline.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < end, "waited too long for {what}");
        thread::park_timeout(POLL);
    }
}

pub(crate) fn message(role: Role, content: &str) -> Message {
    Message::new(role, content)
}

pub(crate) fn user(content: &str) -> Conversation {
    Conversation::from(vec![message(Role::User, content)])
}

/// A greedy answer of at most `max_tokens`.
pub(crate) fn greedy(max_tokens: u32) -> JobKind {
    generate(
        Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        Some(max_tokens),
        &[],
    )
}

pub(crate) fn generate(sampling: Sampling, max_tokens: Option<u32>, stop: &[&str]) -> JobKind {
    JobKind::Generate(Box::new(Generate {
        sampling,
        max_tokens,
        stop: stop.iter().map(|&text| text.to_owned()).collect(),
        ..Generate::new(Prompt::Chat(Conversation::default()))
    }))
}

/// The same of another conversation.
fn of(conversation: Conversation, kind: JobKind) -> JobKind {
    match kind {
        JobKind::Count(_) => JobKind::Count(conversation),
        JobKind::Generate(generate) => JobKind::Generate(Box::new(Generate {
            prompt: Prompt::Chat(conversation),
            ..*generate
        })),
        JobKind::Embed(_) => kind,
    }
}

/// Counts a prompt.
pub(crate) fn count() -> JobKind {
    JobKind::Count(Conversation::default())
}

/// Prompts of very different lengths, each with its own text.
pub(crate) fn prompt(index: usize) -> Conversation {
    const WORDS: [&str; 12] = [
        "alpha",
        "river",
        "stone",
        "Tokyo",
        "seven",
        "blue",
        "ÅÄÖ",
        "日本語",
        "{\"a\": 1}",
        "maple",
        "42",
        "😀",
    ];
    let words = [1, 3, 45, 8, 130, 20, 260, 12][index % 8] + index % 5;
    let text: Vec<&str> = (0..words)
        .map(|word| WORDS[(word * 7 + index * 5 + word * word) % WORDS.len()])
        .collect();
    user(&text.join(" "))
}
