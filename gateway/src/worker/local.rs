//! What a worker has beside its connections, and what all workers read.
//!
//! [`Local`] belongs to one worker. [`Shared`] is written by the control thread (snapshot, phase) or by one worker each
//! (metrics); the count of open connections is the only number that several write, once a connection. Invariant: no lock
//! here, and nothing shared is written between the first and the last byte of a request.

use std::{
    io, mem,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use zerohop_cache::{Answer, Cache};
use zerohop_engine::{Mail, Ticket};
use zerohop_ring::{ConnId, IoStats, ListenerId, Nanos, Wake};
use zerohop_steer::{GuardView, Seat, Steering};

use super::{
    budget::{Budget, Pot},
    flying::Flying,
    kept::Answers,
    record::Record,
    routes::Route,
};
use crate::{
    access::{AccessLog, Outcome},
    api::{Ignored, Scratch},
    clock::{Clock, nanos},
    config::Config,
    date::HttpDate,
    error::ApiError,
    flight::Flights,
    http::{
        RequestId,
        head::Version,
        request_id::IdSource,
        write::{Prepared, PreparedFields},
    },
    log::{Level, Log},
    metrics::{self, CacheOutcome, ControlMetrics, ProcessGauges, Scrape, WorkerMetrics},
    snapshot::Snapshot,
};

/// What the process as a whole is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Models are being loaded.
    Loading,
    /// Requests are welcome.
    Ready,
    /// The process is going down.
    Draining,
}

/// Limits that the configuration sets for connections and requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections over all workers.
    pub max_connections: usize,
    /// Between requests.
    pub keepalive_timeout: Duration,
    /// After this age the next reply closes.
    pub max_connection_age: Duration,
    /// For a head, and for a body before its rate counts.
    pub read_timeout: Duration,
    /// Of a head, in bytes.
    pub max_header_bytes: usize,
    /// Of a body, in bytes.
    pub max_body_bytes: u64,
}

/// What all workers read.
pub struct Shared {
    snapshot: ArcSwap<Snapshot>,
    phase: AtomicU8,
    open: AtomicUsize,
    limits: Limits,
    memory: Arc<Pot>,
    workers: Vec<Arc<WorkerMetrics>>,
    prepared: PreparedReplies,
    labels: metrics::Common,
    prometheus: bool,
    /// Where answers are kept, if they are.
    cache: Option<Arc<Cache>>,
    /// Generations that requests share.
    flights: Flights,
    /// What is counted of the control socket, if there is one.
    control: Option<Arc<ControlMetrics>>,
    /// What chooses the worker of a connection, and what is kept out; for the metrics.
    network: Network,
}

/// What acts on connections before a worker does.
#[derive(Clone, Default)]
pub struct Network {
    /// What chooses the worker.
    pub steering: Option<Arc<Steering>>,
    /// What keeps packets out.
    pub guard: Option<Arc<GuardView>>,
}

/// Replies that never change.
pub(crate) struct PreparedReplies {
    pub(crate) alive: Prepared,
    pub(crate) ready: Prepared,
    /// For a connection over the limit, which is closed at once.
    overflow: Prepared,
}

impl Shared {
    /// For this many workers; nothing is served yet.
    #[must_use]
    pub fn new(config: &Config, workers: usize, labels: metrics::Common, first: Snapshot) -> Self {
        let connections = &config.server.connections;
        Self {
            snapshot: ArcSwap::from_pointee(first),
            phase: AtomicU8::new(Phase::Loading as u8),
            open: AtomicUsize::new(0),
            limits: Limits {
                max_connections: connections.max,
                keepalive_timeout: connections.keepalive_timeout,
                max_connection_age: connections.max_age,
                read_timeout: connections.read_timeout,
                max_header_bytes: config.server.requests.max_header_bytes,
                max_body_bytes: config.server.requests.max_body_bytes as u64,
            },
            memory: Arc::new(Pot::new(config.server.memory.bytes, workers)),
            workers: (0..workers).map(|_| Arc::new(WorkerMetrics::new())).collect(),
            prepared: PreparedReplies::new(),
            labels,
            prometheus: config.metrics.prometheus,
            cache: None,
            flights: Flights::new(workers),
            control: None,
            network: Network::default(),
        }
    }

    /// The same, with what acts on connections before a worker does.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// The same, with a place where answers are kept.
    #[must_use]
    pub fn with_cache(mut self, cache: Option<Arc<Cache>>) -> Self {
        self.cache = cache;
        self
    }

    /// The same, with counters of a control socket.
    #[must_use]
    pub fn with_control(mut self, control: Option<Arc<ControlMetrics>>) -> Self {
        self.control = control;
        self
    }

    /// The snapshot in force.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Chat requests by what the cache was to them: hit, miss, bypass.
    #[must_use]
    pub fn cache_requests(&self) -> [u64; 3] {
        [CacheOutcome::Hit, CacheOutcome::Miss, CacheOutcome::Bypass]
            .map(|outcome| self.workers.iter().map(|worker| worker.cached_so_far(outcome)).sum())
    }

    /// Puts a new snapshot in force.
    pub fn publish(&self, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
    }

    /// Bytes that workers have for their connections, and the most that they had since the last call.
    #[must_use]
    pub fn memory_taken(&self) -> (u64, u64) {
        self.memory.taken()
    }

    /// What the process is doing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Loading,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }

    /// Says what the process is doing.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The bytes for a connection for which a worker has no slot at all; the time in them is that of the start.
    #[must_use]
    pub fn overflow_reply(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.prepared.overflow.write(
            &mut bytes,
            &PreparedFields {
                request_id: &RequestId::from_bits(0, 0),
                date: &HttpDate::at(self.labels.start_time),
                version: Version::Http11,
                keep_alive: false,
                head_only: false,
            },
        );
        bytes
    }
}

impl PreparedReplies {
    fn new() -> Self {
        const JSON: &str = "application/json";
        let overflow = Prepared::new(
            503,
            JSON,
            &[("retry-after", "1")],
            br#"{"type":"error","error":{"type":"overloaded_error","message":"too many connections","code":null,"param":null}}"#,
        );
        Self {
            alive: Prepared::new(200, JSON, &[], br#"{"status":"ok"}"#),
            ready: Prepared::new(200, JSON, &[], br#"{"status":"ready"}"#),
            overflow,
        }
    }
}

/// What one worker has for its requests.
pub struct Local {
    worker: usize,
    shared: Arc<Shared>,
    /// The snapshot that new requests begin with; looked up once a turn.
    snapshot: Arc<Snapshot>,
    phase: Phase,
    metrics: Arc<WorkerMetrics>,
    budget: Budget,
    /// Of the budget: what the ring keeps for the kernel.
    with_kernel: usize,
    access: AccessLog,
    log: Log,
    clock: Clock,
    ids: IdSource,
    scratch: Scratch,
    answers: Option<Answers>,
    flying: Flying,
    /// Where steering reads what this worker has to do, if it does.
    seat: Option<Seat>,
    date: HttpDate,
    now: Nanos,
    unix_time: (u64, u32),
    serial: u32,
    draining: bool,
}

impl Local {
    /// For the worker of this index; all its chance comes from `seed`.
    #[must_use]
    pub fn new(worker: usize, shared: Arc<Shared>, log: Log, clock: Clock, seed: [u8; 32]) -> Self {
        let (high, low) = seed.split_at(16);
        let word = |half: &[u8]| u64::from_le_bytes(*half.first_chunk().unwrap_or(&[0; 8]));
        Self {
            worker,
            snapshot: shared.snapshot.load_full(),
            phase: shared.phase(),
            metrics: Arc::clone(&shared.workers[worker]),
            budget: Budget::new(Arc::clone(&shared.memory)),
            with_kernel: 0,
            answers: shared.cache.as_deref().and_then(Answers::new),
            flying: Flying::new(worker, shared.flights.clone()),
            shared,
            access: AccessLog::new(log.clone()),
            log,
            clock,
            ids: IdSource::new([word(high), word(low)]),
            scratch: Scratch::default(),
            seat: None,
            date: HttpDate::at(0),
            now: 0,
            unix_time: (0, 0),
            serial: 0,
            draining: false,
        }
    }

    /// The same, telling steering what there is to do.
    #[must_use]
    pub fn steered_by(mut self, seat: Option<Seat>) -> Self {
        self.seat = seat;
        self
    }

    /// A turn of the loop begins at this time.
    pub(crate) fn tick(&mut self, now: Nanos, unix_time: (u64, u32)) {
        self.now = now;
        self.unix_time = unix_time;
        self.date.advance(unix_time.0);
        self.phase = self.shared.phase();
        if !Arc::ptr_eq(&self.snapshot, &self.shared.snapshot.load()) {
            self.snapshot = self.shared.snapshot.load_full();
            if let Some(answers) = &mut self.answers {
                answers.begin_snapshot();
            }
        }
    }

    /// A turn is over: what was counted and logged is shown.
    pub(crate) fn end_of_turn(&mut self, stats: &IoStats) {
        self.flying.ring();
        self.flying.tend(self.now, self.answers.as_ref());
        self.metrics.publish_io(stats);
        // What the kernel still reads of replies counts too; no connection can give that up.
        let before = mem::replace(&mut self.with_kernel, stats.held_bytes as usize);
        let _ = self.budget.change(before, self.with_kernel);
        let (before, held) = self.flying.held();
        let _ = self.budget.change(before, held);
        self.metrics.memory_held.set(self.budget.used());
        self.access.flush_due(self.now);
        if let Some(seat) = &mut self.seat {
            let metrics = &self.metrics;
            seat.publish(
                self.now,
                metrics.connections_open.get(),
                metrics.requests_in_flight.get(),
            );
        }
    }

    /// When the worker must wake to hand over what it logged, or to let go of an answer that waits to be stored.
    pub(crate) fn due(&self) -> Option<Nanos> {
        [self.access.due(), self.flying.due()].into_iter().flatten().min()
    }

    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// The precise time of this moment, for durations only.
    pub(crate) fn clock(&self) -> Duration {
        self.clock.now()
    }

    pub(crate) fn unix_seconds(&self) -> u64 {
        self.unix_time.0
    }

    pub(crate) fn date(&self) -> &HttpDate {
        &self.date
    }

    /// Where new ids come from, and the date for a reply.
    pub(crate) fn ids_and_date(&mut self) -> (&mut IdSource, &HttpDate) {
        (&mut self.ids, &self.date)
    }

    /// The moment after this time from now; `None` if no clock reaches it.
    pub(crate) fn instant_in(&self, time: Duration) -> Option<Instant> {
        self.clock.instant(self.clock.now().checked_add(time)?)
    }

    /// The moment after this time from now, by the worker's time and by the engine's.
    pub(crate) fn deadline_in(&self, time: Option<Duration>) -> Option<(Nanos, Instant)> {
        let time = time?;
        Some((self.now.saturating_add(nanos(time)), self.instant_in(time)?))
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub(crate) fn prepared(&self) -> &PreparedReplies {
        &self.shared.prepared
    }

    pub(crate) fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }

    /// What this worker's connections may hold.
    pub(crate) fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// Whether `/metrics` is served.
    pub(crate) fn has_metrics(&self) -> bool {
        self.shared.prometheus
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Which worker this is; engines know it as the index of its mailbox.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(crate) fn begin_drain(&mut self) {
        self.draining = true;
        if let Some(seat) = &self.seat {
            seat.set_open(false);
        }
    }

    /// The ring had no place for a connection.
    pub(crate) fn connection_refused(&mut self) {
        self.metrics.connections_refused.increment();
        if let Some(seat) = &mut self.seat {
            seat.arrived();
        }
    }

    /// Counts a connection; false if it is one too many, which does not count as open to others.
    pub(crate) fn connection_opened(&mut self) -> bool {
        let open = self.shared.open.fetch_add(1, Ordering::Relaxed);
        self.metrics.connections_accepted.increment();
        if let Some(seat) = &mut self.seat {
            seat.arrived();
        }
        self.metrics
            .connections_open
            .set(self.metrics.connections_open.get() + 1);
        let welcome = open < self.shared.limits.max_connections;
        if !welcome {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
            self.metrics.connections_refused.increment();
        }
        welcome
    }

    /// The end of a connection of which [`Local::connection_opened`] said this.
    pub(crate) fn connection_closed(&mut self, was_welcome: bool) {
        if was_welcome {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.metrics
            .connections_open
            .set(self.metrics.connections_open.get().saturating_sub(1));
    }

    /// Answers a connection that is one too many.
    pub(crate) fn write_overflow(&mut self, out: &mut Vec<u8>) {
        let request_id = self.ids.request_id();
        let fields = PreparedFields {
            request_id: &request_id,
            date: &self.date,
            version: Version::Http11,
            keep_alive: false,
            head_only: false,
        };
        self.shared.prepared.overflow.write(out, &fields);
    }

    pub(crate) fn listener_failed(&self, listener: ListenerId, error: &io::Error) {
        self.log.error(format_args!(
            "worker {} accepts no more on listener {}: {error}",
            self.worker, listener.0
        ));
    }

    pub(crate) fn engine_failed(&self, request: &RequestId, reason: &str) {
        self.log.error(format_args!(
            "the engine failed on request {}: {reason}",
            request.as_str()
        ));
    }

    /// A ticket that no other running request of this worker has.
    pub(crate) fn ticket(&mut self, conn: ConnId) -> Ticket {
        self.serial = self.serial.wrapping_add(1);
        Ticket(u64::from(conn.slot) << 32 | u64::from(self.serial))
    }

    pub(crate) fn request_id(&mut self) -> RequestId {
        self.ids.request_id()
    }

    /// 128 bits that name an answer.
    pub(crate) fn answer_id(&mut self) -> (u64, u64) {
        self.ids.bits()
    }

    /// A seed for a request that brought none.
    pub(crate) fn draw(&mut self) -> u64 {
        self.ids.bits().0
    }

    /// From 0 to 1, by chance.
    pub(crate) fn chance(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The time and the chance by which a stored answer is judged.
    pub(super) fn cache_clock(&mut self) -> super::kept::Clock {
        super::kept::Clock {
            unix: self.unix_time,
            draw: self.chance(),
        }
    }

    /// Stored answers, if there are any.
    pub(super) fn answers(&mut self) -> Option<&mut Answers> {
        self.answers.as_mut()
    }

    /// Stored answers, with the scratch memory that a body is read with.
    pub(super) fn answers_and_scratch(&mut self) -> Option<(&mut Answers, &mut Scratch)> {
        Some((self.answers.as_mut()?, &mut self.scratch))
    }

    /// Hands an answer to the cache; whether that takes it.
    pub(super) fn keep(&self, answer: Answer) -> bool {
        self.answers.as_ref().is_some_and(|answers| answers.put(answer))
    }

    /// This worker's part in generations that requests share.
    pub(super) fn flying(&mut self) -> &mut Flying {
        &mut self.flying
    }

    /// From now on this worker is woken when something is said in a flight that its connections follow.
    pub(super) fn open_door(&mut self, waker: Arc<dyn Wake>) {
        self.flying
            .flights()
            .open_door(self.worker, Arc::new(move || waker.wake()));
    }

    /// Whether a generation goes on here without its client.
    pub(super) fn has_orphans(&self) -> bool {
        self.flying.has_orphans()
    }

    /// An engine's event for no connection: for a generation that goes on without its client, or for nobody.
    pub(super) fn mail_of_orphan(&mut self, mail: Mail) {
        let ticket = mail.ticket;
        let Some(mut orphan) = self.flying.orphan(ticket) else {
            return;
        };
        // Nobody reads what its reply says; but it gives calls the ids that they are stored with.
        let mut unread = Vec::new();
        let choice = orphan.choice_of(ticket);
        let end = choice.and_then(|choice| orphan.event(choice, mail, &mut unread, self));
        if end.is_none() {
            self.flying.adopt(ticket, orphan);
        }
    }

    /// Parses with the worker's scratch memory, and counts what was ignored.
    pub(crate) fn parse<T>(
        &mut self,
        strict: bool,
        parse: impl FnOnce(&mut Scratch, bool) -> Result<(T, Ignored), ApiError>,
    ) -> Result<(T, Ignored), ApiError> {
        let (request, ignored) = parse(&mut self.scratch, strict)?;
        self.metrics.unknown_fields.add(u64::from(ignored.count));
        Ok((request, ignored))
    }

    /// The record of a request whose head was just read.
    pub(crate) fn record(
        &self,
        peer: SocketAddr,
        request_id: RequestId,
        (method, path): (&str, &str),
        route: Option<Route<'_>>,
    ) -> Record {
        self.metrics
            .requests_in_flight
            .set(self.metrics.requests_in_flight.get() + 1);
        let routine = route.is_some_and(Route::is_probe);
        let logged = !routine || self.log.enabled(Level::Debug);
        let kept = |text: &str| if logged { text.into() } else { Box::default() };
        Record {
            peer,
            request_id,
            method: kept(method),
            path: kept(path),
            route: route.map_or(metrics::Route::Other, Route::label),
            routine,
            dialect: None,
            outcome: Outcome::Ok,
            status: 499,
            streamed: false,
            tenant: None,
            bytes_in: 0,
            bytes_out: 0,
            begun: if logged { self.clock() } else { Duration::ZERO },
            parse: None,
            generation: None,
        }
    }

    /// Counts and logs a request that is over.
    pub(crate) fn finish(&mut self, record: &Record) {
        let metrics = &self.metrics;
        metrics
            .requests_in_flight
            .set(metrics.requests_in_flight.get().saturating_sub(1));
        metrics.request(record.route, record.dialect, record.status);
        match record.outcome {
            Outcome::Ok => {}
            Outcome::ClientGone => metrics.client_gone.increment(),
            Outcome::Error(kind) => metrics.error(kind),
        }
        if let Some(parse) = record.parse {
            metrics.parse.observe(nanos(parse));
        }
        if record.routine && !self.log.enabled(Level::Debug) {
            return;
        }
        let now = self.clock.now();
        if let Some(generation) = &record.generation {
            generation.ended(record.outcome, now.saturating_sub(record.begun));
        }
        self.access.record(&record.line(self.unix_time, now), self.now);
    }

    /// The Prometheus document of the whole process.
    pub(crate) fn render_metrics(&self, out: &mut Vec<u8>) {
        let network = &self.shared.network;
        let models: Vec<_> = self.snapshot.models.iter().map(|model| model.scrape()).collect();
        metrics::render(
            &Scrape {
                common: &self.shared.labels,
                workers: &self.shared.workers,
                models: &models,
                process: ProcessGauges::read(),
                memory_limit: self.shared.memory.limit(),
                log_lines_dropped: self.log.dropped(),
                cache: self.shared.cache.as_deref().map(Cache::stats),
                flights: self.shared.flights.open(),
                control: self.shared.control.as_deref(),
                steering: network.steering.as_deref().map(Steering::stats),
                guard: network.guard.as_deref().map(GuardView::stats),
            },
            out,
        );
    }
}
