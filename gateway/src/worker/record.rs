//! What is known of one request for the metrics and the access log.
//!
//! It only observes. Invariant: durations are differences of one clock, so none is negative; no text of a prompt or an
//! answer and no key is ever in it.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use zerohop_engine::{Event, Finish, Mail, Usage};

use crate::{
    access::{self, Outcome, Times},
    api::Dialect,
    clock::nanos,
    http::RequestId,
    metrics::{FinishedReason, ModelMetrics, Route},
    snapshot::ServedModel,
};

/// A request's record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) peer: SocketAddr,
    pub(crate) request_id: RequestId,
    /// As written; empty for what is not logged anyway.
    pub(crate) method: Box<str>,
    /// As written, without the query; empty for what is not logged anyway.
    pub(crate) path: Box<str>,
    pub(crate) route: Route,
    /// A probe or a scrape.
    pub(crate) routine: bool,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) outcome: Outcome,
    pub(crate) status: u16,
    pub(crate) streamed: bool,
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// When the head was complete.
    pub(crate) begun: Duration,
    pub(crate) parse: Option<Duration>,
    pub(crate) generation: Option<Generation>,
}

/// The engine's part of a request.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) model: Arc<ServedModel>,
    /// Whose cells of the model's metrics are written.
    worker: usize,
    submitted: Duration,
    /// By answer; it grows with the first event of each.
    answers: Vec<Answer>,
    /// How many answers in a row have one prompt.
    pub(crate) answers_each: usize,
    pub(crate) queued: Option<Duration>,
    pub(crate) first_token: Option<Duration>,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    /// How many answers are complete; a count is not an answer.
    finished: usize,
    /// It goes on when the request is over.
    goes_on: bool,
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, Default)]
struct Answer {
    /// By the engine's clock.
    started: Option<Instant>,
    /// The last delta, by the engine's clock.
    latest: Option<Instant>,
    tokens: u32,
}

impl Generation {
    pub(crate) fn new(model: Arc<ServedModel>, worker: usize, now: Duration) -> Self {
        Self {
            model,
            worker,
            submitted: now,
            answers: Vec::new(),
            answers_each: usize::MAX,
            queued: None,
            first_token: None,
            input_tokens: 0,
            output_tokens: 0,
            finished: 0,
            goes_on: false,
        }
    }

    /// A stored answer was given, which took this many tokens once: the model's own counters count only what it does.
    pub(crate) fn replayed(&mut self, usage: Usage) {
        self.input_tokens = usage.input_tokens;
        self.output_tokens = usage.output_tokens;
    }

    /// Takes note of an event of another's generation, which came at `now`: what the model does is counted there.
    pub(crate) fn followed(&mut self, event: &Event, now: Duration) {
        match event {
            Event::Started { input_tokens, .. } => self.input_tokens = *input_tokens,
            Event::Text { tokens, .. } | Event::Arguments { tokens, .. } => {
                self.first_token.get_or_insert(now.saturating_sub(self.submitted));
                self.output_tokens += tokens;
            }
            Event::Finished { usage, .. } => self.replayed(*usage),
            _ => {}
        }
    }

    /// What was followed came to nothing, and another generation begins.
    pub(crate) fn begin_again(&mut self) {
        (self.first_token, self.input_tokens, self.output_tokens) = (None, 0, 0);
    }

    /// The client has left, and the generation goes on.
    pub(crate) fn goes_on(&mut self) {
        self.goes_on = true;
    }

    /// A generation that went on without its client was given up.
    pub(crate) fn given_up(&self) {
        self.cells().finished(FinishedReason::Abort);
    }

    fn cells(&self) -> &ModelMetrics {
        &self.model.metrics[self.worker]
    }

    /// Takes note of an event that came at `now`, of the answer with this index.
    pub(crate) fn observe(&mut self, choice: usize, mail: &Mail, now: Duration) {
        if choice >= self.answers.len() {
            self.answers.resize_with(choice + 1, Answer::default);
        }
        match &mail.event {
            Event::Started {
                input_tokens,
                cached_tokens,
                queued,
            } => {
                self.answers[choice].started = Some(mail.at);
                self.cells().queue.observe(nanos(*queued));
                self.queued.get_or_insert(*queued);
                // Several answers have one prompt; it is counted with the first of them.
                if choice.is_multiple_of(self.answers_each) {
                    self.input_tokens += *input_tokens;
                    let cells = self.cells();
                    cells.prompt_tokens.add(u64::from(*input_tokens));
                    cells.cached_tokens.add(u64::from(*cached_tokens));
                }
            }
            Event::Text { tokens, .. } | Event::Arguments { tokens, .. } => self.text(choice, *tokens, mail.at, now),
            Event::Call { .. } => self.cells().tool_calls.increment(),
            Event::Finished { finish, usage } => self.complete(choice, finish, usage.output_tokens, mail.at),
            Event::Counted { input_tokens } => self.input_tokens = *input_tokens,
            Event::Failed { .. } => self.cells().finished(FinishedReason::Error),
            Event::Embedded { input_tokens, .. } => {
                self.input_tokens = *input_tokens;
                self.finished += 1;
                let cells = self.cells();
                cells.prompt_tokens.add(u64::from(*input_tokens));
                cells.finished(FinishedReason::Stop);
            }
            Event::TimedOut => self.cells().finished(FinishedReason::Error),
            Event::Echo { .. } | Event::TooLong { .. } | Event::Refused { .. } => {}
        }
    }

    /// An answer of so many tokens is complete.
    fn complete(&mut self, choice: usize, finish: &Finish, tokens: u32, at: Instant) {
        let answer = &mut self.answers[choice];
        let more = tokens.saturating_sub(answer.tokens);
        answer.tokens += more;
        let started = answer.started;
        self.output_tokens = self.answers.iter().map(|answer| answer.tokens).sum();
        self.finished += 1;
        let cells = self.cells();
        cells.generated_tokens.add(u64::from(more));
        cells.finished(match finish {
            Finish::EndOfTurn | Finish::Stop(_) | Finish::StopToken(_) | Finish::ToolCalls => FinishedReason::Stop,
            Finish::MaxTokens | Finish::ContextFull => FinishedReason::Length,
        });
        if let Some(started) = started {
            cells.inference.observe(nanos(at.saturating_duration_since(started)));
        }
    }

    /// Tokens that were made at `at` have come: the first one's delay as the client sees it, or the gap since the last
    /// ones of the same answer as the engine made them, shared by as many as came together.
    fn text(&mut self, choice: usize, tokens: u32, at: Instant, now: Duration) {
        let latest = self.answers[choice].latest.replace(at);
        self.answers[choice].tokens += tokens;
        self.output_tokens += tokens;
        let first = self.first_token.is_none();
        if first {
            self.first_token = Some(now.saturating_sub(self.submitted));
        }
        let cells = self.cells();
        cells.generated_tokens.add(u64::from(tokens));
        match (latest, self.first_token) {
            (None, Some(delay)) if first => cells.first_token.observe(nanos(delay)),
            (None, _) => {}
            (Some(latest), _) => {
                let gap = at.saturating_duration_since(latest) / tokens.max(1);
                cells.per_token.observe_many(nanos(gap), u64::from(tokens));
            }
        }
    }

    /// The request is over.
    pub(crate) fn ended(&self, outcome: Outcome, total: Duration) {
        let cells = self.cells();
        match outcome {
            Outcome::ClientGone if !self.goes_on => cells.finished(FinishedReason::Abort),
            Outcome::Ok if self.finished > 0 => cells.total.observe(nanos(total)),
            Outcome::Ok | Outcome::Error(_) | Outcome::ClientGone => {}
        }
    }
}

impl Record {
    /// The line of the access log, for a request that ends at `now` (and at `unix_time`).
    pub(crate) fn line(&self, unix_time: (u64, u32), now: Duration) -> access::Record<'_> {
        let generation = self.generation.as_ref();
        access::Record {
            time: unix_time,
            request_id: &self.request_id,
            peer: self.peer,
            method: &self.method,
            path: &self.path,
            status: self.status,
            dialect: self.dialect,
            model: generation.map(|it| &*it.model.id),
            tenant: self.tenant.as_deref(),
            stream: self.streamed,
            input_tokens: generation.map(|it| it.input_tokens),
            output_tokens: generation.map(|it| it.output_tokens),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            times: Times {
                parse: self.parse.map(nanos),
                queue: generation.and_then(|it| it.queued).map(nanos),
                first_token: generation.and_then(|it| it.first_token).map(nanos),
                total: nanos(now.saturating_sub(self.begun)),
            },
            outcome: self.outcome,
            routine: self.routine,
        }
    }
}
