//! What is counted: by each worker for itself, merged when somebody asks, shown as Prometheus text.
//!
//! Nothing here decides anything, and no label comes from a client. Invariant: counting takes no lock and no
//! allocation; each [`WorkerMetrics`] has one writer.

mod cache;
mod cell;
mod control;
mod labels;
mod masks;
mod process;
mod render;
mod steering;
mod text;
mod vllm;

pub use cache::{CacheOutcome, FlightPart};
pub use cell::{Counter, Gauge, Histogram};
pub use control::ControlMetrics;
pub use labels::{FinishedReason, Route, dialect_name, error_name};
pub use process::ProcessGauges;
pub use render::{CONTENT_TYPE, Common, ModelScrape, Scrape, render};

use crate::{api::Dialect, error::ErrorKind};
use cache::{CACHE_OUTCOMES, FLIGHT_PARTS};
use labels::{CLASSES, DIALECTS, ERRORS, class};
use zerohop_ring::IoStats;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// From the last byte of a request to a [`crate::api::ChatRequest`].
const PARSE: &[u64] = &[
    MICRO,
    2 * MICRO,
    5 * MICRO,
    10 * MICRO,
    20 * MICRO,
    50 * MICRO,
    100 * MICRO,
    200 * MICRO,
    500 * MICRO,
    MILLI,
    5 * MILLI,
    20 * MILLI,
    100 * MILLI,
];

/// From acceptance by the engine to the first prefill.
const QUEUE: &[u64] = &[
    100 * MICRO,
    MILLI,
    5 * MILLI,
    10 * MILLI,
    25 * MILLI,
    50 * MILLI,
    100 * MILLI,
    250 * MILLI,
    500 * MILLI,
    SECOND,
    2_500 * MILLI,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
];

/// From the last byte of a request to the first token: vLLM's bounds, so that its dashboards compare.
const FIRST_TOKEN: &[u64] = &[
    MILLI,
    5 * MILLI,
    10 * MILLI,
    20 * MILLI,
    40 * MILLI,
    60 * MILLI,
    80 * MILLI,
    100 * MILLI,
    250 * MILLI,
    500 * MILLI,
    750 * MILLI,
    SECOND,
    2_500 * MILLI,
    5 * SECOND,
    7_500 * MILLI,
    10 * SECOND,
    20 * SECOND,
    40 * SECOND,
    80 * SECOND,
    160 * SECOND,
    640 * SECOND,
];

/// Between tokens: the bounds of OpenTelemetry's `gen_ai.server.time_per_output_token`, and smaller ones for small
/// models.
const PER_TOKEN: &[u64] = &[
    100 * MICRO,
    250 * MICRO,
    500 * MICRO,
    MILLI,
    2_500 * MICRO,
    5 * MILLI,
    10 * MILLI,
    25 * MILLI,
    50 * MILLI,
    75 * MILLI,
    100 * MILLI,
    150 * MILLI,
    200 * MILLI,
    300 * MILLI,
    400 * MILLI,
    500 * MILLI,
    750 * MILLI,
    SECOND,
    2_500 * MILLI,
];

/// A whole request, and the engine's part of it.
const TOTAL: &[u64] = &[
    MILLI,
    2 * MILLI,
    5 * MILLI,
    10 * MILLI,
    20 * MILLI,
    50 * MILLI,
    100 * MILLI,
    200 * MILLI,
    300 * MILLI,
    500 * MILLI,
    800 * MILLI,
    SECOND,
    1_500 * MILLI,
    2 * SECOND,
    2_500 * MILLI,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    20 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
    240 * SECOND,
    600 * SECOND,
];

const REQUEST_CELLS: usize = Route::ALL.len() * DIALECTS.len() * CLASSES.len();

/// What one worker counts. Aligned to two cache lines, which processors fetch together, so that workers do not slow
/// each other down.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerMetrics {
    requests: [Counter; REQUEST_CELLS],
    errors: [Counter; ERRORS.len()],
    /// Requests whose client left before the reply was complete.
    pub client_gone: Counter,
    /// Fields of request bodies that nobody knows and that were ignored.
    pub unknown_fields: Counter,
    cache: [Counter; CACHE_OUTCOMES.len()],
    /// Stored answers that were read from files, by whether that was done.
    cache_reads: [Counter; 2],
    flights: [Counter; FLIGHT_PARTS.len()],
    /// Generations that went on without their own client.
    pub orphans: Counter,
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Connections refused since all places were taken.
    pub connections_refused: Counter,
    /// Connections open now.
    pub connections_open: Gauge,
    /// Requests begun and not yet answered in full.
    pub requests_in_flight: Gauge,
    /// Bytes that connections hold.
    pub memory_held: Gauge,
    /// Requests refused and clients cut off since memory was short.
    pub memory_refusals: Counter,
    /// From the last byte of a request to its meaning.
    pub parse: Histogram,
    io: IoCounters,
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// What one worker counts for one model; it lives with the model, so that a reload brings and takes it. Durations are in
/// nanoseconds.
#[derive(Debug)]
#[repr(align(128))]
pub struct ModelMetrics {
    /// From acceptance by the engine to the first prefill.
    pub queue: Histogram,
    /// From the last byte of the request to the first token.
    pub first_token: Histogram,
    /// Between a token and the one before it.
    pub per_token: Histogram,
    /// From the first byte of the request to the last of the reply.
    pub total: Histogram,
    /// The engine alone: from the first prefill to the last token, without network, parsing and queue.
    pub inference: Histogram,
    /// Tokens of prompts, cached ones included.
    pub prompt_tokens: Counter,
    /// Tokens of prompts that came from the prefix cache.
    pub cached_tokens: Counter,
    /// Tokens generated.
    pub generated_tokens: Counter,
    /// Calls of tools in answers.
    pub tool_calls: Counter,
    /// Requests that give the form of the answer.
    pub structured_requests: Counter,
    finished: [Counter; FinishedReason::ALL.len()],
}

/// The latest [`IoStats`] of the worker's ring.
#[derive(Debug, Default)]
struct IoCounters {
    syscalls: Counter,
    turns: Counter,
    sleeps: Counter,
    buffers_exhausted: Counter,
    short_sends: Counter,
    bytes_received: Counter,
    bytes_sent: Counter,
    plain_sends: Counter,
    zero_copy_sends: Counter,
    registered_sends: Counter,
    copied_sends: Counter,
    refused_sends: Counter,
    held_sends: Gauge,
    file_reads: Counter,
    file_bytes_read: Counter,
    file_read_errors: Counter,
    file_reads_refused: Counter,
}

impl WorkerMetrics {
    /// Zeros.
    #[must_use]
    pub fn new() -> Self {
        Self {
            requests: [const { Counter::new() }; REQUEST_CELLS],
            errors: [const { Counter::new() }; ERRORS.len()],
            client_gone: Counter::default(),
            unknown_fields: Counter::default(),
            cache: [const { Counter::new() }; CACHE_OUTCOMES.len()],
            cache_reads: [const { Counter::new() }; 2],
            flights: [const { Counter::new() }; FLIGHT_PARTS.len()],
            orphans: Counter::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            connections_open: Gauge::default(),
            memory_held: Gauge::default(),
            memory_refusals: Counter::default(),
            requests_in_flight: Gauge::default(),
            parse: Histogram::new(PARSE),
            io: IoCounters::default(),
        }
    }

    /// Counts a request that was answered with this status (499 if the client left before there was one).
    pub fn request(&self, route: Route, dialect: Option<Dialect>, status: u16) {
        self.requests[request_cell(route, dialect, class(status))].increment();
    }

    /// How often the cache of answers was this to a request.
    #[must_use]
    pub fn cached_so_far(&self, outcome: CacheOutcome) -> u64 {
        self.cache[outcome as usize].get()
    }

    /// Counts what the cache of answers was to a request.
    pub fn cached(&self, outcome: CacheOutcome) {
        self.cache[outcome as usize].increment();
    }

    /// Counts a stored answer that was read from a file, or could not be.
    pub fn fetched(&self, done: bool) {
        self.cache_reads[usize::from(done)].increment();
    }

    /// Counts what a request was to a generation that others can share.
    pub fn flew(&self, part: FlightPart) {
        self.flights[part as usize].increment();
    }

    /// Counts an error that a client was told of.
    pub fn error(&self, kind: ErrorKind) {
        self.errors[kind as usize].increment();
    }

    /// Shows the ring's own counters; to be called now and then, for example before the worker sleeps.
    pub fn publish_io(&self, stats: &IoStats) {
        self.io.syscalls.mirror(stats.syscalls);
        self.io.turns.mirror(stats.turns);
        self.io.sleeps.mirror(stats.sleeps);
        self.io.buffers_exhausted.mirror(stats.buffers_exhausted);
        self.io.short_sends.mirror(stats.short_sends);
        self.io.bytes_received.mirror(stats.bytes_received);
        self.io.bytes_sent.mirror(stats.bytes_sent);
        self.io.plain_sends.mirror(stats.plain_sends);
        self.io.zero_copy_sends.mirror(stats.zero_copy_sends);
        self.io.registered_sends.mirror(stats.registered_sends);
        self.io.copied_sends.mirror(stats.copied_sends);
        self.io.refused_sends.mirror(stats.refused_sends);
        self.io.held_sends.set(stats.held_sends);
        self.io.file_reads.mirror(stats.file_reads);
        self.io.file_bytes_read.mirror(stats.file_bytes_read);
        self.io.file_read_errors.mirror(stats.file_read_errors);
        self.io.file_reads_refused.mirror(stats.file_reads_refused);
    }
}

impl ModelMetrics {
    /// Zeros.
    #[must_use]
    pub fn new() -> Self {
        Self {
            queue: Histogram::new(QUEUE),
            first_token: Histogram::new(FIRST_TOKEN),
            per_token: Histogram::new(PER_TOKEN),
            total: Histogram::new(TOTAL),
            inference: Histogram::new(TOTAL),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            tool_calls: Counter::default(),
            structured_requests: Counter::default(),
            finished: Default::default(),
        }
    }

    /// Counts an answer that ended like this.
    pub fn finished(&self, reason: FinishedReason) {
        self.finished[reason as usize].increment();
    }
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self::new()
    }
}

fn request_cell(route: Route, dialect: Option<Dialect>, class: usize) -> usize {
    let dialect = match dialect {
        Some(Dialect::Anthropic) => 0,
        Some(Dialect::OpenAi) => 1,
        None => 2,
    };
    (route as usize * DIALECTS.len() + dialect) * CLASSES.len() + class
}

/// What an engine says of itself at one moment; counts are since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineGauges {
    /// Jobs accepted and not yet in the batch.
    pub waiting: u64,
    /// Sequences in the batch.
    pub running: u64,
    /// The largest batch so far.
    pub batch_peak: u64,
    /// Runs of the model.
    pub steps: u64,
    /// Tokens generated.
    pub decode_tokens: u64,
    /// Tokens of prompts computed.
    pub prefill_tokens: u64,
    /// Jobs cancelled by their submitter.
    pub cancelled: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Key-value memory taken, in the unit of `kv_capacity`.
    pub kv_committed: u64,
    /// Tokens in the prefix cache.
    pub prefix_tokens: u64,
    /// Prompt tokens that the prefix cache had.
    pub cached_tokens: u64,
    /// Blocks of the prefix cache that were given up.
    pub prefix_evictions: u64,
    /// Answers that lost their place for lack of memory.
    pub preempted: u64,
    /// Jobs that passed their deadline.
    pub timed_out: u64,
    /// Tokens drawn by a graph where the logits are.
    pub device_draws: u64,
    /// Tokens drawn by the host.
    pub host_draws: u64,
    /// Those of them that a graph left to the host.
    pub wide_draws: u64,
    /// Bytes that came from a device.
    pub device_bytes: u64,
    /// Bytes on huge pages when it was loaded.
    pub huge_bytes: u64,
    /// Inputs turned into vectors.
    pub embedded: u64,
    /// Key-value memory in use, in the unit of `kv_capacity`.
    pub kv_used: u64,
    /// Key-value memory there is; 0 if the engine has none.
    pub kv_capacity: u64,
    /// Jobs rejected since the queue was full.
    pub rejected: u64,
    /// Nanoseconds spent in runs of the model.
    pub run_nanos: u64,
    /// Nanoseconds that the engine's thread spent around them.
    pub own_nanos: u64,
    /// Nanoseconds spent on masks.
    pub mask_nanos: u64,
    /// Nanoseconds by which masks were later than the model.
    pub mask_wait_nanos: u64,
    /// Tokens drawn under a mask.
    pub masked_tokens: u64,
    /// Answers that ended since a safety rule left no token.
    pub safety_rejections: u64,
}

#[cfg(test)]
mod tests;
