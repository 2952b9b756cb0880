//! From a request that is complete to bytes, or to an engine that will make them.
//!
//! This is where the stages meet: caller → api → resolve → submit → reply. It opens no file and touches no socket.
//! Invariant: each [`Call`] ends in exactly one record (metrics and access log), however it ends.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use zerohop_engine::{Event, Generate, Job, JobHandle, JobKind, Mail, Prompt, Rejected, Sampling, Ticket};

use super::{
    local::{Local, Phase},
    record::{Generation, Record},
    routes::{self, Route, Surface},
};
use crate::{
    access::Outcome as Ended,
    api::{self, CountRequest, Dialect},
    caller::{Caller, Credentials},
    error::{ApiError, ErrorKind},
    http::{Field, Head, Method, PreparedFields, Version, write},
    metrics,
    reply::{
        Connection, Progress, Reply, ReplyMeta,
        models::{self, ModelCard, Page},
    },
    snapshot::{ServedModel, Snapshot},
};

/// What a client is told to wait while models are being loaded or another process takes over.
const SOON: Duration = Duration::from_secs(1);

/// What is asked for, with what of the head is needed once the body is there.
enum Operation {
    Chat(Dialect, Admitted),
    Count(Admitted),
    Models(Admitted, Dialect, String),
    Model(Admitted, Dialect, String),
    Health,
    Ready,
    Metrics,
}

/// Who asks, with the snapshot that let them in: what they may do is told in its terms, so the whole request keeps it.
struct Admitted {
    caller: Caller,
    snapshot: Arc<Snapshot>,
}

/// A request whose head was read.
pub(crate) struct Call {
    operation: Result<Operation, ApiError>,
    connection: Connection,
    dialect: Dialect,
    record: Record,
}

/// What became of a request.
pub(crate) enum Outcome {
    /// The reply is written.
    Written {
        /// Whether the connection can take another request.
        reusable: bool,
    },
    /// An engine makes the answer.
    Waiting(Box<Answering>),
}

/// A request that is with an engine.
pub(crate) struct Answering {
    ticket: Ticket,
    /// Dropping it cancels the job.
    _job: JobHandle,
    reply: Reply,
    /// Holds the model too, so that its engine lives as long as the request, whatever a reload does.
    record: Record,
}

impl Call {
    /// Decides from the head alone what is asked for, and whether it may be.
    pub(crate) fn begin(
        head: &Head,
        bytes: &[u8],
        peer: SocketAddr,
        surface: Surface,
        is_last: bool,
        local: &mut Local,
    ) -> Self {
        let connection = Connection {
            version: head.version,
            keep_alive: !is_last,
            head_only: head.method == Method::Head,
            request_id: local.request_id(),
        };
        let path = head.path(bytes);
        let dialect = routes::dialect_of(path, head.field(bytes, Field::AnthropicVersion).is_some());
        let route = routes::route(head.method, path, surface);
        let named = (head.method_name(bytes), path);
        let mut record = local.record(peer, connection.request_id, named, route.as_ref().ok().copied());
        record.bytes_in = head.len as u64;
        let operation = route.and_then(|route| operation(route, dialect, head, bytes, local));
        Self {
            operation,
            connection,
            dialect,
            record,
        }
    }

    /// Whether the head alone was enough to refuse the request.
    pub(crate) fn is_refused(&self) -> bool {
        self.operation.is_err()
    }

    /// Answers, or hands the request to an engine under `ticket`.
    pub(crate) fn answer(self, body: &[u8], ticket: Ticket, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        let Self {
            operation,
            connection,
            dialect,
            mut record,
        } = self;
        record.bytes_in += body.len() as u64;
        let request = Request {
            connection,
            dialect,
            record,
            out_before: out.len(),
        };
        match operation {
            Ok(Operation::Health) => request.fixed(Fixed::Alive, out, local),
            Ok(Operation::Ready) => match not_ready(local.phase()) {
                None => request.fixed(Fixed::Ready, out, local),
                Some(error) => request.refuse(&error, out, local),
            },
            Ok(Operation::Metrics) => request.metrics(out, local),
            Ok(Operation::Models(by, dialect, query)) => request.models(&by, dialect, &query, out, local),
            Ok(Operation::Model(by, dialect, id)) => request.model(&by, dialect, &id, out, local),
            Ok(Operation::Chat(dialect, by)) => request.chat(dialect, &by, body, ticket, out, local),
            Ok(Operation::Count(by)) => request.count(&by, body, ticket, out, local),
            Err(error) => request.refuse(&error, out, local),
        }
    }

    /// Answers with an error while the body is not (all) read; `error` unless the head itself was refused already. The
    /// connection cannot be used again.
    pub(crate) fn refuse_early(self, error: Option<&ApiError>, out: &mut Vec<u8>, local: &mut Local) {
        let connection = Connection {
            keep_alive: false,
            ..self.connection
        };
        let request = Request {
            connection,
            dialect: self.dialect,
            record: self.record,
            out_before: out.len(),
        };
        let own = self.operation.err();
        match own.as_ref().or(error) {
            Some(error) => request.refuse(error, out, local),
            None => request.refuse(&ApiError::new(ErrorKind::Internal, "Internal server error"), out, local),
        };
    }

    /// Answers bytes that are no request at all.
    pub(crate) fn refuse_unread(
        error: &ApiError,
        peer: SocketAddr,
        dialect: Dialect,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) {
        let connection = Connection {
            version: Version::Http11,
            keep_alive: false,
            head_only: false,
            request_id: local.request_id(),
        };
        let record = local.record(peer, connection.request_id, ("", ""), None);
        let request = Request {
            connection,
            dialect,
            record,
            out_before: out.len(),
        };
        request.refuse(error, out, local);
    }

    /// The client left before its request was complete.
    pub(crate) fn client_gone(mut self, local: &mut Local) {
        self.record.outcome = Ended::ClientGone;
        local.finish(&self.record);
    }
}

/// Why the gateway takes no requests in this phase, if it takes none.
fn not_ready(phase: Phase) -> Option<ApiError> {
    let why = match phase {
        Phase::Ready => return None,
        Phase::Loading => "the models are being loaded",
        Phase::Draining => "the gateway is shutting down",
    };
    Some(ApiError::new(ErrorKind::Unavailable, why).retry_after(SOON))
}

/// What the head asks for, if the caller may ask at all.
fn operation(
    route: Route<'_>,
    dialect: Dialect,
    head: &Head,
    bytes: &[u8],
    local: &Local,
) -> Result<Operation, ApiError> {
    if route.guarded()
        && local.phase() == Phase::Loading
        && let Some(error) = not_ready(Phase::Loading)
    {
        return Err(error);
    }
    let admit = || {
        let snapshot = Arc::clone(local.snapshot());
        let caller = snapshot.callers.admit(Credentials {
            authorization: head.field(bytes, Field::Authorization),
            x_api_key: head.field(bytes, Field::ApiKey),
        })?;
        Ok::<_, ApiError>(Admitted { caller, snapshot })
    };
    Ok(match route {
        Route::Health => Operation::Health,
        Route::Ready => Operation::Ready,
        Route::Metrics if local.has_metrics() => Operation::Metrics,
        Route::Metrics => return Err(ApiError::new(ErrorKind::NotFound, "no such path")),
        Route::Messages => Operation::Chat(Dialect::Anthropic, admit()?),
        Route::ChatCompletions => Operation::Chat(Dialect::OpenAi, admit()?),
        Route::CountTokens => Operation::Count(admit()?),
        Route::Models => Operation::Models(admit()?, dialect, head.query(bytes).unwrap_or_default().to_owned()),
        Route::Model(id) => Operation::Model(admit()?, dialect, models::decode(id)),
    })
}

/// Replies that are the same for everybody.
#[derive(Clone, Copy)]
enum Fixed {
    Alive,
    Ready,
}

/// A complete request on its way through the stages.
struct Request {
    connection: Connection,
    dialect: Dialect,
    record: Record,
    /// How much of the output belongs to earlier replies.
    out_before: usize,
}

impl Request {
    fn fixed(self, which: Fixed, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        let prepared = local.prepared();
        let reply = match which {
            Fixed::Alive => &prepared.alive,
            Fixed::Ready => &prepared.ready,
        };
        let connection = &self.connection;
        reply.write(
            out,
            &PreparedFields {
                request_id: &connection.request_id,
                date: local.date(),
                version: connection.version,
                keep_alive: connection.keep_alive,
                head_only: connection.head_only,
            },
        );
        self.written(200, out, local)
    }

    fn metrics(self, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        let head = self.connection.head(200, local.date(), &[]);
        write::whole_with(out, &head, metrics::CONTENT_TYPE, |out| local.render_metrics(out));
        self.written(200, out, local)
    }

    fn models(self, by: &Admitted, dialect: Dialect, query: &str, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        let cards = cards(&by.snapshot, &by.caller);
        let mut list = Vec::new();
        match Page::parse(query, dialect).and_then(|page| models::write_list(&cards, &page, &mut list)) {
            Ok(()) => {
                self.connection
                    .json(200, local.date(), out, |out| out.extend_from_slice(&list));
                self.written(200, out, local)
            }
            Err(error) => self.refuse(&error, out, local),
        }
    }

    fn model(self, by: &Admitted, dialect: Dialect, id: &str, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        match by.snapshot.resolver.resolve(id, &by.caller) {
            Ok(index) => {
                let card = card(by.snapshot.model(index), id);
                self.connection
                    .json(200, local.date(), out, |out| models::write_model(&card, out));
                self.written(200, out, local)
            }
            Err(error) => self.refuse(&reworded(error, dialect, id), out, local),
        }
    }

    /// A prompt to be answered.
    fn chat(
        mut self,
        dialect: Dialect,
        by: &Admitted,
        body: &[u8],
        ticket: Ticket,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Outcome {
        let begun = local.clock();
        let parsed = local.parse(by.snapshot.strict, |scratch, strict| match dialect {
            Dialect::Anthropic => api::anthropic::messages(body, scratch, strict),
            Dialect::OpenAi => api::openai::chat(body, scratch, strict),
        });
        self.record.parse = Some(local.clock().saturating_sub(begun));
        let request = match parsed {
            Ok(request) => request,
            Err(error) => return self.refuse(&error, out, local),
        };
        self.record.streamed = request.stream.is_some();
        self.record.tenant = by.caller.tenant().cloned();
        let model = match self.resolve(&request.model, by, local) {
            Ok(model) => model,
            Err(error) => return self.refuse(&error, out, local),
        };
        let meta = self.meta(&request.model, &model, request.stream, local);
        let generate = Generate {
            sampling: Sampling {
                temperature: request.temperature.unwrap_or(1.0),
                top_p: request.top_p.unwrap_or(1.0),
                top_k: request.top_k,
                seed: request.seed.unwrap_or_else(|| local.draw()),
                ..Sampling::default()
            },
            max_tokens: request.max_tokens,
            stop: request.stop,
            ..Generate::new(Prompt::Chat(request.conversation))
        };
        let job = Job {
            ticket,
            mailbox: local.worker(),
            kind: JobKind::Generate(Box::new(generate)),
            deadline: None,
        };
        self.submit(job, meta, &model, out, local)
    }

    fn count(mut self, by: &Admitted, body: &[u8], ticket: Ticket, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        let begun = local.clock();
        let parsed = local.parse(by.snapshot.strict, |scratch, strict| {
            api::anthropic::count_tokens(body, scratch, strict)
        });
        self.record.parse = Some(local.clock().saturating_sub(begun));
        self.record.tenant = by.caller.tenant().cloned();
        let resolved = parsed.and_then(|request| Ok((self.resolve(&request.model, by, local)?, request)));
        let (
            model,
            CountRequest {
                model: name,
                conversation,
            },
        ) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return self.refuse(&error, out, local),
        };
        let meta = self.meta(&name, &model, None, local);
        let job = Job {
            ticket,
            mailbox: local.worker(),
            kind: JobKind::Count(conversation),
            deadline: None,
        };
        self.submit(job, meta, &model, out, local)
    }

    /// The model that answers to this name.
    fn resolve(&mut self, name: &str, by: &Admitted, local: &Local) -> Result<Arc<ServedModel>, ApiError> {
        let resolved = by.snapshot.resolver.resolve(name, &by.caller);
        let index = resolved.map_err(|error| reworded(error, self.dialect, name))?;
        let model = Arc::clone(by.snapshot.model(index));
        self.record.generation = Some(Generation::new(Arc::clone(&model), local.worker(), local.clock()));
        Ok(model)
    }

    fn meta(
        &self,
        name: &str,
        model: &ServedModel,
        stream: Option<api::StreamOptions>,
        local: &mut Local,
    ) -> ReplyMeta {
        ReplyMeta {
            dialect: self.dialect,
            id: local.answer_id(),
            model: name.to_owned(),
            model_version: model.version.clone(),
            created: local.unix_seconds(),
            stream,
            connection: self.connection,
        }
    }

    fn submit(
        mut self,
        job: Job,
        meta: ReplyMeta,
        model: &ServedModel,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Outcome {
        let ticket = job.ticket;
        match model.engine.submit(job) {
            Ok(handle) => {
                self.record.dialect = Some(self.dialect);
                self.record.status = 200;
                Outcome::Waiting(Box::new(Answering {
                    ticket,
                    _job: handle,
                    reply: Reply::new(meta),
                    record: self.record,
                }))
            }
            Err(rejected) => self.refuse(&overload(&rejected), out, local),
        }
    }

    fn refuse(mut self, error: &ApiError, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        self.connection.error(error, self.dialect, local.date(), out);
        self.record.outcome = Ended::Error(error.kind);
        self.written(error.status(), out, local)
    }

    fn written(mut self, status: u16, out: &[u8], local: &mut Local) -> Outcome {
        self.record.status = status;
        self.record.bytes_out = (out.len() - self.out_before) as u64;
        if !self.record.routine {
            self.record.dialect = Some(self.dialect);
        }
        local.finish(&self.record);
        Outcome::Written {
            reusable: self.connection.keep_alive,
        }
    }
}

impl Answering {
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Writes what an event adds to the reply; when that completes it, whether the connection can take another request.
    pub(crate) fn event(&mut self, mail: &Mail, out: &mut Vec<u8>, local: &mut Local) -> Option<bool> {
        let event = &mail.event;
        if let Some(generation) = &mut self.record.generation {
            generation.observe(mail, local.clock());
        }
        let (before, streaming) = (out.len(), self.reply.is_streaming());
        let progress = self.reply.on(event, local.date(), out);
        self.record.bytes_out += (out.len() - before) as u64;
        let reusable = match progress {
            Progress::More => return None,
            Progress::Done => true,
            Progress::DoneClose => false,
        };
        if let Some(kind) = fault(event) {
            self.record.outcome = Ended::Error(kind);
            // A stream's status has already left.
            if !streaming {
                self.record.status = kind.row().status;
            }
        }
        if let Event::Failed { reason } = event {
            local.engine_failed(&self.record.request_id, reason);
        }
        local.finish(&self.record);
        Some(reusable)
    }

    /// About how many bytes it holds: the request, which the engine has as text, and an answer that is told at once.
    pub(crate) fn held(&self) -> usize {
        size_of::<Self>() + self.record.bytes_in as usize + self.reply.held()
    }

    /// Nothing has left for a while: a stream gets a sign of life, so that no proxy takes it for dead.
    pub(crate) fn keep_alive(&mut self, out: &mut Vec<u8>) {
        let before = out.len();
        self.reply.keep_alive(out);
        self.record.bytes_out += (out.len() - before) as u64;
    }

    /// The client left. Dropping this cancels the job.
    pub(crate) fn client_gone(mut self: Box<Self>, local: &mut Local) {
        if !self.reply.is_streaming() {
            self.record.status = 499;
        }
        self.record.outcome = Ended::ClientGone;
        local.finish(&self.record);
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

/// What a client is told when an engine does not take its job.
fn overload(rejected: &Rejected) -> ApiError {
    match rejected {
        Rejected::QueueFull { retry_after } => {
            ApiError::new(ErrorKind::QueueFull, "the model's queue is full").retry_after(*retry_after)
        }
        Rejected::NotRunning => ApiError::new(ErrorKind::Unavailable, "the model is not running").retry_after(SOON),
    }
}

/// An unknown model in the words of the dialect; any other error as it is.
fn reworded(error: ApiError, dialect: Dialect, model: &str) -> ApiError {
    match error.kind {
        ErrorKind::ModelNotFound => ApiError::unknown_model(dialect, model),
        _ => error,
    }
}

/// The models that a caller may use, aliases not listed.
fn cards(snapshot: &Snapshot, caller: &Caller) -> Vec<ModelCard> {
    snapshot
        .resolver
        .visible(caller)
        .map(|(index, id)| card(snapshot.model(index), id))
        .collect()
}

fn card(model: &ServedModel, id: &str) -> ModelCard {
    ModelCard {
        id: id.to_owned(),
        display_name: id.to_owned(),
        created: model.created,
        context: model.context,
    }
}
