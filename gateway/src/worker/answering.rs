//! A request that is with an engine: its jobs, and the reply that their events make; or that follows another's generation
//! (`following.rs`).
//!
//! Invariant: a request ends in exactly one record, when its reply is complete or its client gone, and holds its jobs no
//! longer than that, unless others follow what they make.

mod following;

use std::{mem, sync::Arc, time::Instant};

use zerohop_engine::{Echo, Event, Generate, Job, JobHandle, JobKind, Mail, Prompt, Rejected, Sampling, Ticket};
use zerohop_ring::ConnId;

pub(super) use self::following::Following;
use super::{kept::Keeper, local::Local, record::Record};
use crate::{
    access::Outcome as Ended,
    api::ChatRequest,
    date::HttpDate,
    error::{ApiError, ErrorKind},
    flight::{Flight, Lead, Leaving, Said},
    reply::{CompletionReply, Progress, Reply},
    snapshot::ServedModel,
};

/// A request that is with an engine, as one job for each answer.
pub(crate) struct Answering {
    jobs: Vec<Pending>,
    reply: Told,
    /// Keeps the answer, where it may be kept.
    keeper: Option<Box<Keeper>>,
    part: Part,
    /// The client has left, and its record is written; the generation goes on for others.
    left: bool,
    /// Holds the model too, so that its engine lives as long as the request, whatever a reload does.
    record: Record,
}

/// Its part in a generation that requests share.
enum Part {
    /// It has none.
    Alone,
    /// Its job is what others follow.
    Leads(Lead),
    /// It has no job and makes its reply of another's.
    Follows(Box<Following>),
}

/// The reply of a request, by its shape.
pub(super) enum Told {
    /// A message, the answer to a count, or vectors.
    Chat(Reply),
    /// A text completion.
    Completion(CompletionReply),
}

impl Told {
    fn is_streaming(&self) -> bool {
        match self {
            Self::Chat(reply) => reply.is_streaming(),
            Self::Completion(reply) => reply.is_streaming(),
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::Chat(reply) => reply.held(),
            Self::Completion(reply) => reply.held(),
        }
    }

    /// Bytes that it will take when its vectors come.
    fn promised(&self) -> usize {
        match self {
            Self::Chat(reply) => reply.promised(),
            Self::Completion(_) => 0,
        }
    }

    /// Forgets what was told so far, if none of it has left.
    fn begin_again(&mut self) -> bool {
        match self {
            Self::Chat(reply) => reply.begin_again(),
            Self::Completion(_) => false,
        }
    }

    /// Ends it with an error, where nothing of it has left.
    fn fail(&mut self, error: &ApiError, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        match self {
            Self::Chat(reply) => reply.fail(error, date, out),
            Self::Completion(reply) => reply.fail(error, date, out),
        }
    }

    fn keep_alive(&self, out: &mut Vec<u8>) {
        match self {
            Self::Chat(reply) => reply.keep_alive(out),
            Self::Completion(reply) => reply.keep_alive(out),
        }
    }
}

/// A job of a request.
pub(super) struct Pending {
    ticket: Ticket,
    /// Dropping it cancels the job; `None` once that is over.
    handle: Option<JobHandle>,
}

impl Pending {
    /// Hands a job in, for a request of this connection.
    pub(super) fn hand_in(
        kind: JobKind,
        conn: ConnId,
        deadline: Option<Instant>,
        model: &ServedModel,
        local: &mut Local,
    ) -> Result<Self, Rejected> {
        let ticket = local.ticket(conn);
        let job = Job {
            ticket,
            mailbox: local.worker(),
            kind,
            deadline,
        };
        let handle = model.engine.submit(job)?;
        Ok(Self {
            ticket,
            handle: Some(handle),
        })
    }
}

impl Answering {
    pub(super) fn new(jobs: Vec<Pending>, reply: Told, record: Record) -> Self {
        Self {
            jobs,
            reply,
            keeper: None,
            part: Part::Alone,
            left: false,
            record,
        }
    }

    /// The same, with somebody who keeps the answer.
    pub(super) fn kept_by(mut self, keeper: Option<Keeper>) -> Self {
        self.keeper = keeper.map(Box::new);
        self
    }

    /// The same, telling those who follow.
    pub(super) fn leading(mut self, lead: Option<Lead>) -> Self {
        self.part = lead.map_or(Part::Alone, Part::Leads);
        self
    }

    /// Whether it leads this flight.
    pub(super) fn leads(&self, flight: &Arc<Flight>) -> bool {
        matches!(&self.part, Part::Leads(lead) if lead.is_of(flight))
    }

    /// The tickets of the jobs that are not over.
    #[cfg(test)]
    pub(crate) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        let open = self.jobs.iter().filter(|job| job.handle.is_some());
        open.map(|job| job.ticket)
    }

    /// Which answer is made under this ticket, if it is being made.
    pub(crate) fn choice_of(&self, ticket: Ticket) -> Option<usize> {
        let mut jobs = self.jobs.iter();
        jobs.position(|job| job.ticket == ticket && job.handle.is_some())
    }

    /// Writes what an event adds to the reply, of the answer with this index; when that completes the reply, whether the
    /// connection can take another request.
    pub(crate) fn event(&mut self, choice: usize, mail: Mail, out: &mut Vec<u8>, local: &mut Local) -> Option<bool> {
        if mail.event.is_final() {
            self.jobs[choice].handle = None;
        }
        if let Some(generation) = &mut self.record.generation {
            generation.observe(choice, &mail, local.clock());
        }
        let before = (out.len(), self.reply.is_streaming());
        let (ids, date) = local.ids_and_date();
        let progress = match &mut self.reply {
            Told::Chat(reply) => reply.on(choice, &mail.event, ids, date, out),
            Told::Completion(reply) => reply.on(choice, &mail.event, date, out),
        };
        let mut kept = None;
        if let (Some(keeper), Told::Chat(reply)) = (&mut self.keeper, &self.reply) {
            kept = keeper.event(&mail, reply, local);
        }
        if let Event::Failed { reason } = &mail.event {
            local.engine_failed(&self.record.request_id, reason);
        }
        let end = self.written(progress, &mail.event, before, out, local);
        self.pass_on(mail.event, kept, local);
        end
    }

    /// Tells those who follow; an answer that was `kept` can be followed until it is stored.
    fn pass_on(&mut self, event: Event, kept: Option<u32>, local: &mut Local) {
        match mem::replace(&mut self.part, Part::Alone) {
            Part::Leads(lead) if event.is_final() => {
                let stay = lead.end(Said::Event(event), kept.is_some());
                let now = local.now();
                if let Some((stay, created)) = stay.zip(kept) {
                    local.flying().stay(stay, created, now);
                }
            }
            Part::Leads(mut lead) => {
                lead.say(event);
                self.part = Part::Leads(lead);
            }
            other => {
                self.part = other;
                return;
            }
        }
        local.flying().told();
    }

    /// An event was written to the reply, which `before` had so many bytes and was a stream or not; when that completes it,
    /// whether the connection can take another request.
    fn written(
        &mut self,
        progress: Progress,
        event: &Event,
        before: (usize, bool),
        out: &[u8],
        local: &mut Local,
    ) -> Option<bool> {
        let (bytes, streaming) = before;
        self.record.bytes_out += (out.len() - bytes) as u64;
        let reusable = match progress {
            Progress::More => return None,
            Progress::Done => true,
            Progress::DoneClose => false,
        };
        if self.left {
            return Some(reusable);
        }
        if let Some(kind) = fault(event) {
            self.record.outcome = Ended::Error(kind);
            // A stream's status has already left.
            if !streaming {
                self.record.status = kind.row().status;
            }
        }
        local.finish(&self.record);
        Some(reusable)
    }

    /// About how many bytes it holds: the request, whose prompts the engine has as text for each answer to them, and
    /// answers that are told at once.
    pub(crate) fn held(&self) -> usize {
        let each = self.record.generation.as_ref().map_or(1, |it| it.answers_each);
        let copies = each.min(self.jobs.len());
        let kept = self.keeper.as_ref().map_or(0, |keeper| keeper.held());
        let shared = match &self.part {
            Part::Leads(lead) => lead.held(),
            Part::Alone | Part::Follows(_) => 0,
        };
        size_of::<Self>() + self.record.bytes_in as usize * copies + self.reply.held() + kept + shared
    }

    /// Whether its reply will take so much memory that it is refused when memory is short.
    pub(crate) fn promises_much(&self, small: usize) -> bool {
        self.reply.promised() > small
    }

    /// Ends it with an error, of which nothing has left yet. Dropping this cancels the job.
    pub(crate) fn refuse(mut self: Box<Self>, error: &ApiError, out: &mut Vec<u8>, local: &mut Local) -> bool {
        let before = out.len();
        let progress = self.reply.fail(error, local.date(), out);
        self.record.bytes_out += (out.len() - before) as u64;
        self.record.outcome = Ended::Error(error.kind);
        self.record.status = error.status();
        local.finish(&self.record);
        progress == Progress::Done
    }

    /// Nothing has left for a while: a stream gets a sign of life, so that no proxy takes it for dead.
    pub(crate) fn keep_alive(&mut self, out: &mut Vec<u8>) {
        let before = out.len();
        self.reply.keep_alive(out);
        self.record.bytes_out += (out.len() - before) as u64;
    }

    /// The client left. Dropping this cancels the jobs, unless somebody follows: then it goes on for them.
    pub(crate) fn client_gone(mut self: Box<Self>, local: &mut Local) {
        if !self.reply.is_streaming() {
            self.record.status = 499;
        }
        self.record.outcome = Ended::ClientGone;
        let goes_on = match &mut self.part {
            Part::Leads(lead) => lead.leave() == Leaving::GoesOn,
            Part::Alone | Part::Follows(_) => false,
        };
        if goes_on && let Some(generation) = &mut self.record.generation {
            generation.goes_on();
        }
        local.finish(&self.record);
        if goes_on && let Some(job) = self.jobs.first() {
            let ticket = job.ticket;
            local.metrics().orphans.increment();
            self.left = true;
            local.flying().adopt(ticket, self);
        }
    }

    /// Nobody follows any more what goes on without its client. Dropping this cancels the job.
    pub(super) fn given_up(&self) {
        if let Some(generation) = &self.record.generation {
            generation.given_up();
        }
    }
}

/// The jobs for so many answers: the same, each with a random stream of its own.
pub(super) fn kinds(kind: JobKind, choices: u32) -> Vec<JobKind> {
    let mut kinds = Vec::with_capacity(choices as usize);
    kinds.push(kind);
    for choice in 1..choices {
        let mut next = kinds[0].clone();
        if let JobKind::Generate(generate) = &mut next {
            generate.sampling.seed = generate.sampling.seed.wrapping_add(choice.into());
        }
        kinds.push(next);
    }
    kinds
}

/// What is asked for, as an engine takes it.
pub(super) fn generate(request: ChatRequest, local: &mut Local) -> Generate {
    let extras = request.extras.map(|extras| *extras).unwrap_or_default();
    Generate {
        prompt: Prompt::Chat(request.conversation),
        sampling: Sampling {
            temperature: request.temperature.unwrap_or(1.0),
            top_p: request.top_p.unwrap_or(1.0),
            top_k: request.top_k,
            min_p: extras.min_p,
            repetition_penalty: extras.repetition_penalty,
            frequency_penalty: extras.frequency_penalty,
            presence_penalty: extras.presence_penalty,
            logit_bias: extras.logit_bias,
            seed: request.seed.unwrap_or_else(|| local.draw()),
        },
        max_tokens: request.max_tokens,
        min_tokens: extras.min_tokens,
        stop: request.stop,
        stop_tokens: extras.stop_tokens,
        ignore_eos: extras.ignore_eos,
        form: extras.form,
        logprobs: extras.logprobs,
        echo: Echo::None,
    }
}

/// The kind of error that a final event means for the client.
fn fault(event: &Event) -> Option<ErrorKind> {
    match event {
        Event::TooLong { .. } => Some(ErrorKind::ContextLength),
        Event::Refused { .. } => Some(ErrorKind::InvalidRequest),
        Event::TimedOut => Some(ErrorKind::Deadline),
        Event::Failed { .. } => Some(ErrorKind::Internal),
        Event::Started { .. }
        | Event::Echo { .. }
        | Event::Text { .. }
        | Event::Call { .. }
        | Event::Arguments { .. }
        | Event::Finished { .. }
        | Event::Counted { .. }
        | Event::Embedded { .. } => None,
    }
}
