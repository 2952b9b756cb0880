//! From a request that is complete to bytes, or to an engine that will make them.
//!
//! This is where the stages meet: caller → api → resolve → submit → reply. It opens no file and touches no socket.
//! Invariant: each [`Call`] ends in exactly one record (metrics and access log), however it ends.

mod completions;
mod embeddings;
mod stored;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use zerohop_engine::{Form, JobKind, Rejected};
use zerohop_ring::ConnId;

use self::stored::{Anew, Asked, Share, Stored, circumstances};
use super::{
    answering::{Answering, Following, Pending, Told, generate, kinds},
    fetching::{Fetched, Fetching, Wanted},
    kept::Keeper,
    local::{Local, Phase},
    record::{Generation, Record},
    routes::{self, Route, Surface},
};
use crate::{
    access::Outcome as Ended,
    api::{self, Asks, ChatRequest, Dialect, Ignored, Places, Scratch},
    caller::{Caller, Credentials},
    error::{ApiError, ErrorKind},
    flight::Said,
    http::{CacheControl, Field, Head, Method, PreparedFields, Version, write},
    metrics,
    reply::{
        Connection, Reply, ReplyMeta,
        models::{self, ModelCard, Page},
    },
    resolve::ModelIndex,
    snapshot::{ServedModel, Snapshot},
};

/// What a client is told to wait while models are being loaded or another process takes over.
const SOON: Duration = Duration::from_secs(1);

/// What is asked for, with what of the head is needed once the body is there.
enum Operation {
    Chat(Dialect, Admitted, CacheControl),
    Count(Admitted),
    Completions(Admitted),
    Embed(Admitted),
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
    /// A stored answer is to be read.
    Fetching(Box<Fetching>),
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

    /// Answers, or hands the request to an engine under tickets of the connection `conn`.
    pub(crate) fn answer(mut self, body: &[u8], conn: ConnId, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        self.record.bytes_in += body.len() as u64;
        self.go(None, body, conn, out, local)
    }

    /// Goes on with a request whose stored answer was read, or could not be.
    pub(super) fn resume(
        self,
        fetched: Fetched,
        body: &[u8],
        conn: ConnId,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Outcome {
        local.metrics().fetched(matches!(fetched, Fetched::Value(..)));
        self.go(Some(fetched), body, conn, out, local)
    }

    fn go(self, fetched: Option<Fetched>, body: &[u8], conn: ConnId, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        let Self {
            operation,
            connection,
            dialect,
            record,
        } = self;
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
            Ok(Operation::Chat(dialect, by, said)) => {
                match request.chat((dialect, said), &by, (body, fetched), conn, out, local) {
                    Chatted::Done(outcome) => outcome,
                    Chatted::Elsewhere(request, wanted) => {
                        let call = Self {
                            operation: Ok(Operation::Chat(dialect, by, said)),
                            connection,
                            dialect,
                            record: request.record,
                        };
                        Outcome::Fetching(Box::new(Fetching::new(call, body, wanted)))
                    }
                }
            }
            Ok(Operation::Count(by)) => request.count(&by, body, conn, out, local),
            Ok(Operation::Completions(by)) => request.completions(&by, body, conn, out, local),
            Ok(Operation::Embed(by)) => request.embeddings(&by, body, conn, out, local),
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
        Route::Messages => Operation::Chat(Dialect::Anthropic, admit()?, head.cache_control),
        Route::ChatCompletions => Operation::Chat(Dialect::OpenAi, admit()?, head.cache_control),
        Route::CountTokens => Operation::Count(admit()?),
        Route::Completions => Operation::Completions(admit()?),
        Route::Embeddings => Operation::Embed(admit()?),
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

/// What became of a prompt.
enum Chatted {
    Done(Outcome),
    /// Its stored answer is to be read first.
    Elsewhere(Box<Request>, Wanted),
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
        (dialect, said): (Dialect, CacheControl),
        by: &Admitted,
        (body, fetched): (&[u8], Option<Fetched>),
        conn: ConnId,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Chatted {
        let circumstances = circumstances(by, dialect, said);
        if let Some(circumstances) = &circumstances
            && let Some(progress) = self.recall(circumstances, by, body, out, local)
        {
            return Chatted::Done(self.given(progress, out, local));
        }
        let read = self.read(by, local, |scratch, strict| match dialect {
            Dialect::Anthropic => api::anthropic::messages(body, scratch, strict),
            Dialect::OpenAi => api::openai::chat(body, scratch, strict),
        });
        let (request, index, ignored) = match read {
            Ok(read) => read,
            Err(error) => return Chatted::Done(self.refuse(&error, out, local)),
        };
        let asked = Asked {
            said,
            body,
            request: &request,
            index,
            ignored: &ignored,
            fetched,
        };
        match self.stored(circumstances, by, &asked, conn, out, local) {
            Stored::Given(progress) => Chatted::Done(self.given(progress, out, local)),
            Stored::Refused(error) => Chatted::Done(self.refuse(&error, out, local)),
            Stored::Elsewhere(wanted) => Chatted::Elsewhere(Box::new(self), wanted),
            Stored::None(anew) => {
                let model = Arc::clone(by.snapshot.model(index));
                Chatted::Done(self.generate((request, body.len()), anew, &model, conn, out, local))
            }
        }
    }

    /// Has an answer made, or follows one that is being made; it is kept under the key if there is one. The request came in so
    /// many bytes.
    fn generate(
        mut self,
        (request, bytes): (ChatRequest, usize),
        anew: Anew,
        model: &Arc<ServedModel>,
        conn: ConnId,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Outcome {
        let meta = self.meta(&request, model, local);
        if request.extras.as_ref().is_some_and(|extras| extras.form != Form::Free) {
            model.metrics[local.worker()].structured_requests.increment();
        }
        let generate = Box::new(generate(request, local));
        let choices = meta.choices;
        let mut reply = Reply::new(meta);
        reply.tell(anew.note);
        let lead = match anew.share {
            Share::Follow(follow, keyed) => {
                if follow.wants_spare() {
                    follow.leave_spare(generate, bytes);
                }
                let following = Following::new(follow, keyed, local.deadline_in(model.deadline));
                self.accepted();
                return Outcome::Waiting(Box::new(Answering::following(following, reply, self.record)));
            }
            Share::Lead(lead) => Some(lead),
            Share::Nothing => None,
        };
        let keyed = anew.keyed;
        let keeper = keyed.and_then(|keyed| Keeper::new(&reply, keyed, Arc::clone(model), local));
        let kinds = kinds(JobKind::Generate(generate), choices);
        match hand_in(kinds, conn, model, local) {
            Ok(jobs) => {
                self.accepted();
                let answering = Answering::new(jobs, Told::Chat(reply), self.record);
                Outcome::Waiting(Box::new(answering.kept_by(keeper).leading(lead)))
            }
            Err(rejected) => {
                if let Some(lead) = lead {
                    lead.end(Said::Rejected(rejected.clone()), false);
                    local.flying().told();
                }
                self.refuse(&overload(&rejected), out, local)
            }
        }
    }

    fn count(mut self, by: &Admitted, body: &[u8], conn: ConnId, out: &mut Vec<u8>, local: &mut Local) -> Outcome {
        let read = self.read(by, local, |scratch, strict| {
            api::anthropic::count_tokens(body, scratch, strict)
        });
        let (request, index, _) = match read {
            Ok(read) => read,
            Err(error) => return self.refuse(&error, out, local),
        };
        let model = Arc::clone(by.snapshot.model(index));
        let meta = self.plain_meta(&request.model, &model, local);
        let kinds = vec![JobKind::Count(request.conversation)];
        self.submit(kinds, conn, Told::Chat(Reply::new(meta)), &model, out, local)
    }

    /// What a body asks for, and the model that it names. How long the reading took, and for whom, is recorded.
    fn read<T: Asks>(
        &mut self,
        by: &Admitted,
        local: &mut Local,
        parse: impl FnOnce(&mut Scratch, bool) -> Result<(T, Ignored), ApiError>,
    ) -> Result<(T, ModelIndex, Ignored), ApiError> {
        self.record.tenant = by.caller.tenant().cloned();
        let begun = local.clock();
        let parsed = local.parse(by.snapshot.strict, parse);
        self.record.parse = Some(local.clock().saturating_sub(begun));
        let (request, ignored) = parsed?;
        self.record.streamed = request.streams();
        let index = self.resolve(request.model(), by, local)?;
        Ok((request, index, ignored))
    }

    /// The model that answers to this name.
    fn resolve(&mut self, name: &str, by: &Admitted, local: &Local) -> Result<ModelIndex, ApiError> {
        let resolved = by.snapshot.resolver.resolve(name, &by.caller);
        let index = resolved.map_err(|error| reworded(error, self.dialect, name))?;
        let model = Arc::clone(by.snapshot.model(index));
        self.record.generation = Some(Generation::new(model, local.worker(), local.clock()));
        Ok(index)
    }

    /// Of a request that is answered by one document.
    fn plain_meta(&self, name: &str, model: &ServedModel, local: &mut Local) -> ReplyMeta {
        ReplyMeta {
            dialect: self.dialect,
            id: local.answer_id(),
            model: name.to_owned(),
            model_version: model.version.clone(),
            created: local.unix_seconds(),
            stream: None,
            choices: 1,
            logprobs: false,
            places: Places::default(),
            connection: self.connection,
        }
    }

    fn meta(&self, request: &ChatRequest, model: &ServedModel, local: &mut Local) -> ReplyMeta {
        let plain = ReplyMeta {
            stream: request.stream,
            ..self.plain_meta(&request.model, model, local)
        };
        match &request.extras {
            None => plain,
            Some(extras) => ReplyMeta {
                choices: extras.choices,
                logprobs: extras.logprobs.is_some(),
                places: extras.places.clone(),
                ..plain
            },
        }
    }

    /// Hands in a job for each answer. If one is not taken, none is.
    fn submit(
        mut self,
        kinds: Vec<JobKind>,
        conn: ConnId,
        told: Told,
        model: &ServedModel,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Outcome {
        match hand_in(kinds, conn, model, local) {
            Ok(jobs) => {
                self.accepted();
                Outcome::Waiting(Box::new(Answering::new(jobs, told, self.record)))
            }
            Err(rejected) => self.refuse(&overload(&rejected), out, local),
        }
    }

    /// Its answer is being made.
    fn accepted(&mut self) {
        self.record.dialect = Some(self.dialect);
        self.record.status = 200;
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

/// Hands in a job for each answer. If one is not taken, those before it are cancelled.
fn hand_in(
    kinds: Vec<JobKind>,
    conn: ConnId,
    model: &ServedModel,
    local: &mut Local,
) -> Result<Vec<Pending>, Rejected> {
    let deadline = model.deadline.and_then(|time| local.instant_in(time));
    let each = |kind| Pending::hand_in(kind, conn, deadline, model, local);
    kinds.into_iter().map(each).collect()
}

/// What a client is told when an engine does not take its job.
pub(super) fn overload(rejected: &Rejected) -> ApiError {
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
