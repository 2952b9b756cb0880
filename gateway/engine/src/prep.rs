//! The preparation pool: conversations to token ids, away from the workers and from the engine's own thread.
//!
//! It never sends mail itself (a mailbox has one producer, the engine's thread). Invariant: for each job that goes in,
//! one message comes out, unless the job was cancelled; a panic in a tokenizer or template costs that job alone.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender};

use crate::{
    admission::Admission,
    calls::{self, split::Splitter},
    driver::Inbox,
    job::{Conversation, Echo, Event, Form, Generate, Job, JobKind, Mail, Part, Prompt, ToolChoice, Tools},
    mask::{ActiveRules, Guide, Masks, Refusal, Strictness},
    model::{Encoded, Prompts, TextStream},
    sequence::{Address, Sequence},
    stats::{Counters, add},
};

/// Up to this much text, in bytes, a prompt is always counted to the token, also when it cannot fit: that takes less than
/// a second (0.5 MB/s measured for digits, the slowest text).
const EXACT_BYTES: usize = 256 * 1024;

/// Up to this much text in tools, in bytes, it is looked up at once whether their grammar is known: that takes less than a
/// millisecond.
const AT_ONCE_BYTES: usize = 64 * 1024;

/// How long the tool is looked for that makes a grammar impossible.
const BLAME: Duration = Duration::from_millis(500);

/// An accepted job.
pub(crate) struct Accepted {
    pub(crate) address: Address,
    pub(crate) kind: JobKind,
}

impl Accepted {
    pub(crate) fn new(job: Job, address: Address) -> Self {
        Self {
            address,
            kind: job.kind,
        }
    }
}

/// What a thread of the pool needs.
#[derive(Clone)]
pub(crate) struct Preparer {
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) masks: Arc<Masks>,
    pub(crate) rules: Arc<ActiveRules>,
    pub(crate) context: usize,
    /// Ids of tokens are below this.
    pub(crate) vocabulary: usize,
    /// Bytes of the longest token.
    pub(crate) longest: usize,
    pub(crate) admission: Arc<Admission>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) jobs: Receiver<Accepted>,
    /// Where a job goes whose grammar is not compiled yet, which may take seconds in which nobody else should wait. `None`:
    /// this thread compiles.
    pub(crate) to_compile: Option<Sender<Accepted>>,
    pub(crate) engine: Sender<Inbox<Sequence>>,
}

impl Preparer {
    /// Prepares jobs until nobody can hand in any more.
    pub(crate) fn run(&self) {
        while let Ok(job) = self.jobs.recv() {
            let Address { ticket, mailbox, .. } = job.address;
            if job.address.is_cancelled() {
                self.admission.stop_waiting();
                self.admission.close();
                add(&self.counters.cancelled, 1);
                continue;
            }
            let Some(job) = self.keep(job) else { continue };
            let prepared = if self.admission.is_running() {
                catch_unwind(AssertUnwindSafe(|| self.prepare(job)))
                    .unwrap_or_else(|_| Err(self.failed("preparing the prompt panicked")))
            } else {
                Err(self.failed(self.admission.why_stopped()))
            };
            let message = prepared.map(Inbox::Ready).unwrap_or_else(|event| {
                self.admission.stop_waiting();
                Inbox::Mail(
                    mailbox,
                    Mail {
                        ticket,
                        event,
                        at: Instant::now(),
                    },
                )
            });
            // The channel has room for every open job. Without an engine nobody reads the answer either.
            if self.engine.send(message).is_err() {
                self.admission.close();
            }
        }
    }

    /// A job to prepare here, or nothing if it was handed on to have its grammar compiled.
    fn keep(&self, job: Accepted) -> Option<Accepted> {
        match &self.to_compile {
            Some(to_compile) if self.needs_compiling(&job.kind) => {
                // It has room for every open job.
                let refused = to_compile.try_send(job).err();
                refused.map(crossbeam_channel::TrySendError::into_inner)
            }
            _ => Some(job),
        }
    }

    /// Whether a grammar has to be compiled for this job, as far as can be told at once.
    fn needs_compiling(&self, kind: &JobKind) -> bool {
        let JobKind::Generate(request) = kind else {
            return false;
        };
        let calls = match &request.prompt {
            Prompt::Chat(conversation) if calls::may_call(&conversation.tools) => Some(&conversation.tools),
            _ => None,
        };
        match calls {
            None => request.form != Form::Free && !self.masks.knows(&request.form),
            Some(tools) if tools.bytes() > AT_ONCE_BYTES => true,
            Some(tools) => {
                let form = calls::form(tools, self.prompts.format(), &request.form);
                // What is wrong with tools is found before anything is compiled.
                form.is_ok_and(|form| form.is_some_and(|form| !self.masks.knows(&form)))
            }
        }
    }

    fn failed(&self, reason: &str) -> Event {
        add(&self.counters.failed, 1);
        Event::Failed { reason: reason.into() }
    }

    /// Refuses a prompt that would not fit if every token of it were the longest there is, unless it is short enough to be
    /// counted. Tokenising megabytes takes seconds, in which others would wait for this thread. Judged by the bytes that a
    /// client wrote: a template that drops most of them is not foreseen.
    fn refuse_hopeless(&self, bytes: usize) -> Result<(), Event> {
        let at_least = bytes / self.longest;
        if bytes <= EXACT_BYTES || at_least <= self.context {
            return Ok(());
        }
        Err(self.too_long(at_least))
    }

    /// One token of the answer has to fit as well.
    fn too_long(&self, length: usize) -> Event {
        add(&self.counters.refused, 1);
        Event::TooLong {
            input_tokens: u32::try_from(length).unwrap_or(u32::MAX),
            limit: (self.context - 1) as u32,
        }
    }

    /// The sequence to compute, or the answer at once.
    fn prepare(&self, job: Accepted) -> Result<Box<Sequence>, Event> {
        match job.kind {
            JobKind::Count(conversation) => Err(self.count(&conversation)),
            JobKind::Generate(request) => self.sequence(job.address, *request),
            JobKind::Embed(_) => Err(self.refused(Part::Model, "this model makes no embeddings".into())),
        }
    }

    fn refused(&self, part: Part, reason: String) -> Event {
        add(&self.counters.refused, 1);
        Event::Refused { part, reason }
    }

    fn encode(&self, conversation: &Conversation) -> Result<Encoded, Event> {
        self.refuse_hopeless(conversation.bytes())?;
        let encoded = self.prompts.encode(conversation);
        let prompt = encoded.map_err(|(part, reason)| self.refused(part, reason))?;
        add(&self.counters.prompt_tokens, prompt.ids.len());
        Ok(prompt)
    }

    fn count(&self, conversation: &Conversation) -> Event {
        match self.encode(conversation) {
            Ok(prompt) => {
                add(&self.counters.counted, 1);
                Event::Counted {
                    input_tokens: u32::try_from(prompt.ids.len()).unwrap_or(u32::MAX),
                }
            }
            Err(event) => event,
        }
    }

    /// Refuses ids that no token has: what is said of them could not be honoured.
    fn check_ids(&self, request: &Generate) -> Result<(), Event> {
        let biased = request.sampling.logit_bias.iter().map(|&(token, _)| token);
        let biased = biased.map(|token| (Part::LogitBias, token));
        let stops = request.stop_tokens.iter().map(|&token| (Part::StopTokens, token));
        match biased
            .chain(stops)
            .find(|&(_, token)| token as usize >= self.vocabulary)
        {
            None => Ok(()),
            Some((part, token)) => {
                let last = self.vocabulary - 1;
                Err(self.refused(
                    part,
                    format!("{token} is no token of this model, whose last one is {last}"),
                ))
            }
        }
    }

    fn sequence(&self, address: Address, mut request: Generate) -> Result<Box<Sequence>, Event> {
        let given = std::mem::replace(&mut request.prompt, Prompt::Tokens(Vec::new()));
        let (prompt, splitter) = match &given {
            Prompt::Chat(conversation) => {
                let prompt = self.encode(conversation)?;
                if let Some(form) = self.form_of_calls(&conversation.tools, &request.form)? {
                    request.form = form;
                }
                (prompt, self.splitter(&conversation.tools))
            }
            Prompt::Text(text) => (self.encode_text(text)?, None),
            Prompt::Tokens(ids) => (self.take_tokens(ids)?, None),
        };
        self.check_ids(&request)?;
        if prompt.ids.len() >= self.context {
            return Err(self.too_long(prompt.ids.len()));
        }
        if prompt.ids.is_empty() {
            let (part, reason) = match given {
                Prompt::Chat(_) => (Part::Messages, "the chat template gives an empty prompt"),
                Prompt::Text(_) | Prompt::Tokens(_) => {
                    (Part::Prompt, "it is empty, and nothing begins a text of this model")
                }
            };
            return Err(self.refused(part, reason.into()));
        }
        let tools = match &given {
            Prompt::Chat(conversation) if splitter.is_some() => Some(&conversation.tools),
            _ => None,
        };
        let guide = self.guide(&request, &given, tools)?;
        let must_call = |tools: &Tools| matches!(tools.choice, ToolChoice::Required | ToolChoice::Named(_));
        let only_calls = tools.is_some_and(must_call);
        let (stream, echo) = self.behind(given, &prompt, request.echo);
        let mut sequence = Sequence::new(address, prompt.ids, request, stream, guide);
        sequence.splitter = splitter;
        sequence.only_calls = only_calls;
        sequence.echo = echo;
        Ok(Box::new(sequence))
    }

    /// Where the answer's text goes on, and the prompt's own text if it is to be told.
    fn behind(&self, given: Prompt, prompt: &Encoded, echo: Echo) -> (TextStream, Option<String>) {
        let text = self.prompts.vocabulary().text();
        let (echo, chat) = (echo == Echo::Prompt, matches!(given, Prompt::Chat(_)));
        let mut shown = String::new();
        let mut stream = text.stream(chat && prompt.continues);
        if echo || !chat {
            let mut whole = text.stream(false);
            prompt.ids.iter().for_each(|&id| whole.push(text.get(id), &mut shown));
            // An answer that is no message goes on where the prompt ends, perhaps in the middle of a character.
            stream = if chat { stream } else { whole };
        }
        if let Prompt::Text(given) = given {
            shown = given;
        }
        (stream, echo.then_some(shown))
    }

    /// The ids of a text that is no conversation.
    fn encode_text(&self, text: &str) -> Result<Encoded, Event> {
        self.refuse_hopeless(text.len())?;
        let ids = self.prompts.encode_text(text);
        let ids = ids.map_err(|(part, reason)| self.refused(part, reason))?;
        add(&self.counters.prompt_tokens, ids.len());
        Ok(Encoded { ids, continues: true })
    }

    /// Ids that came as such. Too many are not looked at.
    fn take_tokens(&self, ids: &[u32]) -> Result<Encoded, Event> {
        if ids.len() >= self.context {
            return Err(self.too_long(ids.len()));
        }
        let checked = self.prompts.check_tokens(ids);
        checked.map_err(|(part, reason)| self.refused(part, reason))?;
        add(&self.counters.prompt_tokens, ids.len());
        Ok(Encoded {
            ids: ids.to_vec(),
            continues: true,
        })
    }

    /// The form of an answer that may call these tools, if any may be called; `form` is that of its text.
    fn form_of_calls(&self, tools: &Tools, form: &Form) -> Result<Option<Form>, Event> {
        let form = calls::form(tools, self.prompts.format(), form);
        form.map_err(|(part, reason)| self.refused(part, reason))
    }

    /// What takes calls of these tools out of an answer, if any may be made.
    fn splitter(&self, tools: &Tools) -> Option<Splitter> {
        let format = self.prompts.format();
        let names = || tools.list.iter().map(|tool| tool.name.clone()).collect();
        calls::may_call(tools).then(|| Splitter::new(format.style, format.open, names()))
    }

    /// What binds the answer to `prompt`, with the first mask; `tools`: those that may be called.
    fn guide(&self, request: &Generate, prompt: &Prompt, tools: Option<&Tools>) -> Result<Option<Box<Guide>>, Event> {
        let refused = |refusal: &Refusal| {
            refusal.count(&self.counters);
            refusal.event(request)
        };
        let compiled = self.masks.compile(&request.form, Strictness::Strict);
        let form = compiled.map_err(|refusal| match tools {
            None => refused(&refusal),
            Some(tools) => self.refuse_tools(tools, &refusal.reason),
        })?;
        let rules = self.rules.get();
        if form.is_none() && rules.is_none() {
            return Ok(None);
        }
        let watch = rules.map(|rules| rules.watch(prompt));
        let mut guide = Box::new(Guide::new(form.as_deref(), watch));
        guide.compute();
        match guide.fault() {
            Some(refusal) => Err(refused(refusal)),
            None => Ok(Some(guide)),
        }
    }

    /// Names the tool whose schema cannot be guaranteed, if one by itself cannot. The search ends with its time: whole lists
    /// of tools that are slow to compile are refused as a whole.
    fn refuse_tools(&self, tools: &Tools, reason: &str) -> Event {
        let begun = Instant::now();
        for (index, tool) in tools.list.iter().enumerate() {
            let strictness = if tool.strict {
                Strictness::Strict
            } else {
                Strictness::Lenient
            };
            let schema = calls::grammar::parameters(tool).unwrap_or_default();
            let alone = Form::Schema(serde_json::Value::Object(schema).to_string());
            if let Err(refusal) = self.masks.compile(&alone, strictness) {
                return self.refused(Part::Tool(index), refusal.reason);
            }
            if begun.elapsed() > BLAME {
                break;
            }
        }
        self.refused(Part::ToolChoice, format!("the tools together: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Message, Role,
        job::{JobHandle, Ticket, Tool},
        model::tests::byte_prompts,
    };

    fn job(ticket: u64, content: &str) -> (Accepted, JobHandle) {
        let (handle, cancelled) = JobHandle::new();
        let message = Message::new(Role::User, content);
        let job = Accepted {
            address: Address {
                ticket: Ticket(ticket),
                mailbox: 0,
                cancelled,
                accepted: Instant::now(),
                deadline: None,
            },
            kind: JobKind::Count(vec![message].into()),
        };
        (job, handle)
    }

    /// Hands in two jobs, of which the first is given up while it waits, and returns what came out.
    fn run_two(content: &str, stop: impl FnOnce(&Admission)) -> (Vec<(u64, Event)>, Arc<Counters>, Arc<Admission>) {
        let admission = Arc::new(Admission::new(1, 1));
        let counters = Arc::new(Counters::default());
        let (jobs, waiting) = crossbeam_channel::bounded(2);
        let (engine, messages) = crossbeam_channel::bounded(2);
        let mut handles = Vec::new();
        for ticket in 0..2 {
            admission.enter().expect("room");
            let (job, handle) = job(ticket, content);
            assert!(jobs.send(job).is_ok());
            handles.push(handle);
        }
        handles.remove(0);
        drop(jobs);
        stop(&admission);
        let prompts = Arc::new(byte_prompts());
        let preparer = Preparer {
            masks: Arc::new(Masks::new(&prompts, &[0]).expect("a small vocabulary")),
            rules: Arc::default(),
            prompts,
            context: 100,
            vocabulary: 300,
            longest: 1,
            admission: Arc::clone(&admission),
            counters: Arc::clone(&counters),
            jobs: waiting,
            to_compile: None,
            engine,
        };
        preparer.run();
        drop(preparer);
        let events = messages.iter().map(|message| match message {
            Inbox::Mail(0, mail) => (mail.ticket.0, mail.event),
            _ => panic!("mail for mailbox 0"),
        });
        (events.collect(), counters, admission)
    }

    #[test]
    fn what_is_given_up_while_it_waits_costs_nothing() {
        let (events, counters, admission) = run_two("some words", |_| {});
        let [(1, Event::Counted { input_tokens })] = events[..] else {
            panic!("{events:?}")
        };
        let stats = counters.snapshot(&admission);
        assert_eq!(stats.prompt_tokens, u64::from(input_tokens), "one prompt was encoded");
        // The other's place is given back when its mail is delivered.
        assert_eq!((stats.cancelled, stats.open, stats.waiting), (1, 1, 0), "{stats:?}");
    }

    /// Two prompts of 3 MB once kept both threads busy for 14 seconds, and everybody else waiting.
    #[test]
    fn what_cannot_fit_is_not_tokenised() {
        for (bytes, exact) in [(EXACT_BYTES, true), (EXACT_BYTES + 1, false)] {
            let (events, counters, admission) = run_two(&"7".repeat(bytes), |_| {});
            let prompt_tokens = counters.snapshot(&admission).prompt_tokens;
            let [(1, event)] = &events[..] else {
                panic!("{events:?}")
            };
            match event {
                Event::Counted { input_tokens } => assert!(exact && *input_tokens as usize > bytes),
                Event::TooLong {
                    input_tokens,
                    limit: 99,
                } => assert!(!exact && *input_tokens as usize == bytes),
                other => panic!("{other:?}"),
            }
            assert_eq!(prompt_tokens > 0, exact);
        }
    }

    #[test]
    fn ids_that_no_token_has_are_refused() {
        let prompts = Arc::new(byte_prompts());
        let masks = Arc::new(Masks::new(&prompts, &[0]).expect("a small vocabulary"));
        let preparer = |vocabulary| Preparer {
            vocabulary,
            rules: Arc::default(),
            prompts: Arc::clone(&prompts),
            masks: Arc::clone(&masks),
            context: 1000,
            longest: 1,
            admission: Arc::new(Admission::new(1, 1)),
            counters: Arc::new(Counters::default()),
            jobs: crossbeam_channel::bounded(1).1,
            to_compile: None,
            engine: crossbeam_channel::bounded(1).0,
        };
        /// Biased tokens, stop tokens, and what is refused, for which id.
        type Case<'a> = (&'a [u32], &'a [u32], Option<(Part, &'a str)>);
        let cases: [Case; 6] = [
            (&[], &[], None),
            (&[0, 299], &[299, 0], None),
            (
                &[299, 300],
                &[],
                Some((Part::LogitBias, "300 is no token of this model, whose last one is 299")),
            ),
            (&[], &[u32::MAX], Some((Part::StopTokens, "4294967295 is no token"))),
            (&[301], &[302], Some((Part::LogitBias, "301 "))),
            (&[1], &[300], Some((Part::StopTokens, "300 "))),
        ];
        for (biased, stops, want) in cases {
            let mut request = Generate::new(Prompt::Chat(vec![Message::new(Role::User, "a")].into()));
            request.sampling.logit_bias = biased.iter().map(|&token| (token, 1.0)).collect();
            request.stop_tokens = stops.to_vec();
            let (job, _handle) = job(0, "");
            let job = Accepted {
                kind: JobKind::Generate(Box::new(request)),
                ..job
            };
            match (preparer(300).prepare(job), want) {
                (Ok(_), None) => {}
                (Err(Event::Refused { part, reason }), Some((wanted, words))) => {
                    assert!(part == wanted && reason.starts_with(words), "{part:?}: {reason}");
                }
                (other, want) => panic!("{:?}, not {want:?}", other.err()),
            }
        }
    }

    /// A schema that took three seconds to compile once kept everybody waiting who asked for a form, known or not.
    #[test]
    fn only_what_must_be_compiled_is_handed_on() {
        let prompts = Arc::new(byte_prompts());
        let masks = Arc::new(Masks::new(&prompts, &[0]).expect("a small vocabulary"));
        let (to_compile, handed_on) = crossbeam_channel::bounded(8);
        let preparer = Preparer {
            vocabulary: 300,
            rules: Arc::default(),
            prompts: Arc::clone(&prompts),
            masks: Arc::clone(&masks),
            context: 10_000,
            longest: 1,
            admission: Arc::new(Admission::new(8, 8)),
            counters: Arc::new(Counters::default()),
            jobs: crossbeam_channel::bounded(1).1,
            to_compile: Some(to_compile),
            engine: crossbeam_channel::bounded(1).0,
        };
        let tool = |name: &str, parameters: String| Tool {
            name: name.into(),
            description: String::new(),
            parameters,
            strict: false,
        };
        let request = |form: Form, tools: Vec<Tool>| {
            let mut conversation = Conversation::from(vec![Message::new(Role::User, "a")]);
            conversation.tools.list = tools;
            let mut request = Generate::new(Prompt::Chat(conversation));
            request.form = form;
            request
        };
        let kept = |request: Generate| {
            let (job, _handle) = job(0, "");
            let kind = JobKind::Generate(Box::new(request));
            let kept = preparer.keep(Accepted { kind, ..job });
            assert_eq!(kept.is_none(), handed_on.try_recv().is_ok(), "each in one place");
            kept
        };
        let plain = || request(Form::Free, Vec::new());
        let formed = || request(Form::Schema(r#"{"type": "null"}"#.into()), Vec::new());
        let calling = || request(Form::Free, vec![tool("a", "{}".into())]);
        let wrong = || request(Form::Schema("{".into()), Vec::new());
        let large = || {
            request(
                Form::Free,
                vec![tool("a", format!("{{\"x\":\"{}\"}}", "y".repeat(AT_ONCE_BYTES)))],
            )
        };
        assert!(kept(plain()).is_some());
        for unknown in [&formed as &dyn Fn() -> Generate, &calling] {
            assert!(kept(unknown()).is_none());
            let (job, _handle) = job(0, "");
            let kind = JobKind::Generate(Box::new(unknown()));
            assert!(preparer.prepare(Accepted { kind, ..job }).is_ok(), "it can be compiled");
            assert!(kept(unknown()).is_some(), "it is known now");
        }
        // What was refused is not known: to say which tool is at fault takes time again.
        for _ in 0..2 {
            assert!(kept(wrong()).is_none());
            let (job, _handle) = job(0, "");
            let kind = JobKind::Generate(Box::new(wrong()));
            assert!(preparer.prepare(Accepted { kind, ..job }).is_err());
        }
        assert!(kept(large()).is_none(), "it is not looked at");
    }

    #[test]
    fn a_stopped_engine_says_why() {
        type Stop = fn(&Admission);
        let cases: [(Stop, &str); 2] = [
            (Admission::shut, "the engine was closed"),
            (Admission::break_down, "the engine has stopped after a fault"),
        ];
        for (stop, want) in cases {
            let (events, counters, admission) = run_two("some words", stop);
            let reason = want.into();
            assert_eq!(events, [(1, Event::Failed { reason })]);
            assert_eq!(counters.snapshot(&admission).prompt_tokens, 0);
        }
    }
}
