//! A scrape: the cells of all workers and what engines and kernel say, as one Prometheus document.
//!
//! Own names start with `zerohop_`; beside them stand `inference_latency_ms`, the names of vLLM and the usual `process_`
//! ones.
//! Invariant: reading changes nothing, and a family has the same labels each time.

use std::sync::Arc;

use super::{
    ControlMetrics, EngineGauges, FIRST_TOKEN, Histogram, IoCounters, ModelMetrics, PARSE, PER_TOKEN, ProcessGauges,
    QUEUE, Route, TOTAL, WorkerMetrics, cache,
    cell::{Counter, Merged},
    control,
    labels::{CLASSES, DIALECTS, ERRORS, dialect_name, error_name},
    masks, request_cell, steering,
    text::{Kind, Text, Unit},
    vllm,
};

/// The `content-type` of the document.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What does not change while the process lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Common {
    /// Label `instance_id` of every sample.
    pub instance_id: String,
    /// Label `region` of every sample.
    pub region: Option<String>,
    /// When the process started, in seconds since 1970.
    pub start_time: u64,
}

/// What a scrape shows.
#[derive(Debug)]
pub struct Scrape<'a> {
    /// What every sample says.
    pub common: &'a Common,
    /// All workers.
    pub workers: &'a [Arc<WorkerMetrics>],
    /// All models.
    pub models: &'a [ModelScrape<'a>],
    /// This process.
    pub process: ProcessGauges,
    /// Bound of what connections hold, in bytes.
    pub memory_limit: u64,
    /// Lines that the log lost, see [`crate::log::Log::dropped`].
    pub log_lines_dropped: u64,
    /// Stored answers, if any are kept.
    pub cache: Option<zerohop_cache::Stats>,
    /// Generations that can be followed.
    pub flights: usize,
    /// The control socket, if there is one.
    pub control: Option<&'a ControlMetrics>,
    /// What chooses the worker of a connection.
    pub steering: Option<zerohop_steer::SteeringStats>,
    /// What keeps packets out, if anything does.
    pub guard: Option<zerohop_steer::GuardStats>,
}

/// A model and its engine.
#[derive(Debug, Clone)]
pub struct ModelScrape<'a> {
    /// Label `model`: the name that clients use.
    pub name: &'a str,
    /// Label `model_version`.
    pub version: &'a str,
    /// What its engine says.
    pub engine: EngineGauges,
    /// What each worker counts for it.
    pub cells: &'a [ModelMetrics],
    /// Its safety rules, and how often each has bound an answer.
    pub rules: Vec<(Arc<str>, u64)>,
}

/// Appends the document.
pub fn render(scrape: &Scrape<'_>, out: &mut Vec<u8>) {
    let mut common = vec![("instance_id", scrape.common.instance_id.as_str())];
    common.extend(scrape.common.region.as_deref().map(|region| ("region", region)));
    let mut text = Text::new(out, &common);
    process(&mut text, scrape);
    requests(&mut text, scrape.workers);
    cache::render(&mut text, scrape.workers, scrape.cache, scrape.flights);
    control::render(&mut text, scrape.control);
    connections(&mut text, scrape.workers);
    steering::render(&mut text, scrape.steering.as_ref(), scrape.guard.as_ref());
    rings(&mut text, scrape.workers);
    engines(&mut text, scrape.models);
    answers(&mut text, scrape.models);
    masks::render(&mut text, scrape.models);
    latencies(&mut text, scrape);
    vllm::render(&mut text, scrape);
}

fn process(text: &mut Text<'_>, scrape: &Scrape<'_>) {
    text.family("zerohop_build_info", Kind::Gauge, "Always 1; the version is a label.")
        .add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family("zerohop_workers", Kind::Gauge, "Worker threads.")
        .add(&[], scrape.workers.len() as u64);
    text.family(
        "zerohop_log_lines_dropped_total",
        Kind::Counter,
        "Log lines lost since the log's reader was too slow.",
    )
    .add(&[], scrape.log_lines_dropped);
    text.family(
        "zerohop_memory_limit_bytes",
        Kind::Gauge,
        "Bound of the memory that connections hold.",
    )
    .add(&[], scrape.memory_limit);
    text.family(
        "process_start_time_seconds",
        Kind::Gauge,
        "Start of the process since 1970.",
    )
    .add(&[], scrape.common.start_time);
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Resident memory.",
            scrape.process.resident_bytes,
        ),
        (
            "process_virtual_memory_bytes",
            "Reserved address space.",
            scrape.process.virtual_bytes,
        ),
        ("process_threads", "Threads of the process.", scrape.process.threads),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            text.family(name, Kind::Gauge, help).add(&[], value);
        }
    }
}

/// Sums one counter over all workers.
pub(super) fn sum(workers: &[Arc<WorkerMetrics>], value: impl Fn(&WorkerMetrics) -> u64) -> u64 {
    workers.iter().map(|worker| value(worker)).sum()
}

fn requests(text: &mut Text<'_>, workers: &[Arc<WorkerMetrics>]) {
    let mut family = text.family(
        "zerohop_requests_total",
        Kind::Counter,
        "Requests answered, by route, dialect and status class.",
    );
    for (route, dialect) in Route::ALL
        .into_iter()
        .flat_map(|route| DIALECTS.map(|dialect| (route, dialect)))
    {
        for (class, class_name) in CLASSES.into_iter().enumerate() {
            let count = sum(workers, |worker| {
                worker.requests[request_cell(route, dialect, class)].get()
            });
            // Most combinations cannot occur; a series begins with its first request.
            if count > 0 {
                let labels = [
                    ("route", route.name()),
                    ("dialect", dialect_name(dialect)),
                    ("status", class_name),
                ];
                family.add(&labels, count);
            }
        }
    }
    let mut family = text.family(
        "zerohop_rejected_total",
        Kind::Counter,
        "Requests that got an error, by its kind.",
    );
    for kind in ERRORS {
        let count = sum(workers, |worker| worker.errors[kind as usize].get());
        family.add(&[("reason", error_name(kind))], count);
    }
    text.family(
        "zerohop_client_gone_total",
        Kind::Counter,
        "Requests whose client left before the reply was complete.",
    )
    .add(&[], sum(workers, |worker| worker.client_gone.get()));
    text.family(
        "zerohop_unknown_fields_total",
        Kind::Counter,
        "Unknown fields of request bodies that were ignored.",
    )
    .add(&[], sum(workers, |worker| worker.unknown_fields.get()));
    text.family(
        "zerohop_requests_in_flight",
        Kind::Gauge,
        "Requests begun and not yet answered in full.",
    )
    .add(&[], sum(workers, |worker| worker.requests_in_flight.get()));
    let parse = Merged::of(PARSE, workers.iter().map(|worker| &worker.parse));
    text.family(
        "zerohop_parse_seconds",
        Kind::Histogram,
        "From the last byte of a request to its meaning.",
    )
    .add_histogram(&[], &parse, Unit::Seconds);
}

/// A family with one sample for each worker.
fn by_worker(
    text: &mut Text<'_>,
    workers: &[Arc<WorkerMetrics>],
    (name, kind, help): (&str, Kind, &str),
    value: impl Fn(&WorkerMetrics) -> u64,
) {
    let mut family = text.family(name, kind, help);
    for (index, worker) in workers.iter().enumerate() {
        family.add(&[("worker", &index.to_string())], value(worker));
    }
}

fn connections(text: &mut Text<'_>, workers: &[Arc<WorkerMetrics>]) {
    let family = (
        "zerohop_connections_accepted_total",
        Kind::Counter,
        "Connections accepted.",
    );
    by_worker(text, workers, family, |worker| worker.connections_accepted.get());
    let family = (
        "zerohop_connections_refused_total",
        Kind::Counter,
        "Connections refused: all places were taken.",
    );
    by_worker(text, workers, family, |worker| worker.connections_refused.get());
    let family = ("zerohop_connections_open", Kind::Gauge, "Connections open now.");
    by_worker(text, workers, family, |worker| worker.connections_open.get());
    let family = (
        "zerohop_memory_held_bytes",
        Kind::Gauge,
        "Memory that connections hold: requests being read, replies waiting to be sent.",
    );
    by_worker(text, workers, family, |worker| worker.memory_held.get());
    let family = (
        "zerohop_memory_refusals_total",
        Kind::Counter,
        "Requests refused and slow readers cut off since memory was short.",
    );
    by_worker(text, workers, family, |worker| worker.memory_refusals.get());
}

fn rings(text: &mut Text<'_>, workers: &[Arc<WorkerMetrics>]) {
    type Row = (&'static str, &'static str, fn(&IoCounters) -> &Counter);
    const ROWS: [Row; 16] = [
        ("zerohop_received_bytes_total", "Bytes received from clients.", |io| {
            &io.bytes_received
        }),
        ("zerohop_sent_bytes_total", "Bytes sent to clients.", |io| {
            &io.bytes_sent
        }),
        (
            "zerohop_ring_syscalls_total",
            "System calls made by the worker's loop.",
            |io| &io.syscalls,
        ),
        ("zerohop_ring_turns_total", "Turns of the worker's loop.", |io| {
            &io.turns
        }),
        ("zerohop_ring_sleeps_total", "Turns that slept.", |io| &io.sleeps),
        (
            "zerohop_ring_buffers_exhausted_total",
            "Times that the receive buffers ran out.",
            |io| &io.buffers_exhausted,
        ),
        (
            "zerohop_ring_short_sends_total",
            "Sends that the kernel took only in part.",
            |io| &io.short_sends,
        ),
        (
            "zerohop_ring_plain_sends_total",
            "Sends from which the kernel copied.",
            |io| &io.plain_sends,
        ),
        (
            "zerohop_ring_zero_copy_sends_total",
            "Sends handed to the kernel without a copy.",
            |io| &io.zero_copy_sends,
        ),
        (
            "zerohop_ring_registered_sends_total",
            "Zero-copy sends from registered memory.",
            |io| &io.registered_sends,
        ),
        (
            "zerohop_ring_copied_sends_total",
            "Zero-copy sends that the kernel copied after all.",
            |io| &io.copied_sends,
        ),
        (
            "zerohop_ring_refused_sends_total",
            "Zero-copy sends that the kernel refused and that left plainly.",
            |io| &io.refused_sends,
        ),
        (
            "zerohop_ring_file_reads_total",
            "Reads of files answered with their bytes.",
            |io| &io.file_reads,
        ),
        ("zerohop_ring_file_read_bytes_total", "Bytes read from files.", |io| {
            &io.file_bytes_read
        }),
        (
            "zerohop_ring_file_read_errors_total",
            "Reads of files that failed.",
            |io| &io.file_read_errors,
        ),
        (
            "zerohop_ring_file_reads_refused_total",
            "Reads of files beyond those that may be in flight.",
            |io| &io.file_reads_refused,
        ),
    ];
    for (name, help, cell) in ROWS {
        by_worker(text, workers, (name, Kind::Counter, help), |worker| {
            cell(&worker.io).get()
        });
    }
    let family = (
        "zerohop_ring_held_sends",
        Kind::Gauge,
        "Zero-copy sends whose bytes the kernel may still read.",
    );
    by_worker(text, workers, family, |worker| worker.io.held_sends.get());
}

pub(super) fn own_labels<'a>(model: &ModelScrape<'a>) -> [(&'static str, &'a str); 2] {
    [("model", model.name), ("model_version", model.version)]
}

fn engines(text: &mut Text<'_>, models: &[ModelScrape<'_>]) {
    type Row = (&'static str, Kind, &'static str, fn(&EngineGauges) -> u64);
    const ROWS: [Row; 23] = [
        (
            "zerohop_engine_waiting",
            Kind::Gauge,
            "Jobs that wait for the batch.",
            |engine| engine.waiting,
        ),
        (
            "zerohop_engine_running",
            Kind::Gauge,
            "Sequences in the batch.",
            |engine| engine.running,
        ),
        (
            "zerohop_engine_batch_peak",
            Kind::Gauge,
            "The largest batch so far.",
            |engine| engine.batch_peak,
        ),
        (
            "zerohop_engine_kv_used",
            Kind::Gauge,
            "Key-value memory in use.",
            |engine| engine.kv_used,
        ),
        (
            "zerohop_engine_kv_capacity",
            Kind::Gauge,
            "Key-value memory there is, in the same unit.",
            |engine| engine.kv_capacity,
        ),
        (
            "zerohop_engine_kv_committed",
            Kind::Gauge,
            "Key-value memory taken by answers in progress and the prefix cache, in tokens.",
            |engine| engine.kv_committed,
        ),
        (
            "zerohop_engine_prefix_tokens",
            Kind::Gauge,
            "Tokens in the prefix cache.",
            |engine| engine.prefix_tokens,
        ),
        (
            "zerohop_engine_cached_tokens_total",
            Kind::Counter,
            "Prompt tokens that the prefix cache had.",
            |engine| engine.cached_tokens,
        ),
        (
            "zerohop_engine_prefix_evictions_total",
            Kind::Counter,
            "Blocks of the prefix cache that were given up.",
            |engine| engine.prefix_evictions,
        ),
        (
            "zerohop_engine_preempted_total",
            Kind::Counter,
            "Answers that lost their place for lack of memory, to be computed again.",
            |engine| engine.preempted,
        ),
        (
            "zerohop_engine_timed_out_total",
            Kind::Counter,
            "Jobs that passed their deadline.",
            |engine| engine.timed_out,
        ),
        (
            "zerohop_engine_device_draws_total",
            Kind::Counter,
            "Tokens drawn by a graph where the logits are.",
            |engine| engine.device_draws,
        ),
        (
            "zerohop_engine_host_draws_total",
            Kind::Counter,
            "Tokens drawn by the host.",
            |engine| engine.host_draws,
        ),
        (
            "zerohop_engine_wide_draws_total",
            Kind::Counter,
            "Tokens drawn by the host since the nucleus was too wide for the graph.",
            |engine| engine.wide_draws,
        ),
        (
            "zerohop_engine_device_bytes_total",
            Kind::Counter,
            "Bytes that came from a device: ids, and rows of logits for the draws of the host.",
            |engine| engine.device_bytes,
        ),
        (
            "zerohop_engine_huge_page_bytes",
            Kind::Gauge,
            "Bytes that came onto huge pages when the model was loaded.",
            |engine| engine.huge_bytes,
        ),
        (
            "zerohop_engine_embedded_total",
            Kind::Counter,
            "Inputs turned into vectors.",
            |engine| engine.embedded,
        ),
        (
            "zerohop_engine_steps_total",
            Kind::Counter,
            "Runs of the model.",
            |engine| engine.steps,
        ),
        (
            "zerohop_engine_decode_tokens_total",
            Kind::Counter,
            "Tokens generated.",
            |engine| engine.decode_tokens,
        ),
        (
            "zerohop_engine_prefill_tokens_total",
            Kind::Counter,
            "Tokens of prompts computed.",
            |engine| engine.prefill_tokens,
        ),
        (
            "zerohop_engine_cancelled_total",
            Kind::Counter,
            "Jobs cancelled by their submitter.",
            |engine| engine.cancelled,
        ),
        (
            "zerohop_engine_rejected_total",
            Kind::Counter,
            "Jobs rejected since the queue was full.",
            |engine| engine.rejected,
        ),
        (
            "zerohop_engine_failed_total",
            Kind::Counter,
            "Jobs that failed.",
            |engine| engine.failed,
        ),
    ];
    for (name, kind, help, value) in ROWS {
        let mut family = text.family(name, kind, help);
        for model in models {
            family.add(&own_labels(model), value(&model.engine));
        }
    }
    let mut family = text.family(
        "zerohop_engine_busy_seconds_total",
        Kind::Counter,
        "Time of the engine's thread: in the model, and around it.",
    );
    for model in models {
        let [name, version] = own_labels(model);
        for (part, nanos) in [("model", model.engine.run_nanos), ("scheduler", model.engine.own_nanos)] {
            family.add_nanos(&[name, version, ("part", part)], nanos, Unit::Seconds);
        }
    }
}

/// What answers hold beside text, and what was asked of them.
fn answers(text: &mut Text<'_>, models: &[ModelScrape<'_>]) {
    type Row = (&'static str, &'static str, fn(&ModelMetrics) -> &Counter);
    const ROWS: [Row; 2] = [
        ("zerohop_tool_calls_total", "Calls of tools in answers.", |model| {
            &model.tool_calls
        }),
        (
            "zerohop_structured_requests_total",
            "Requests that give the form of the answer, such as a JSON schema.",
            |model| &model.structured_requests,
        ),
    ];
    for (name, help, cell) in ROWS {
        let mut family = text.family(name, Kind::Counter, help);
        for model in models {
            let count = model.cells.iter().map(|cells| cell(cells).get()).sum();
            family.add(&own_labels(model), count);
        }
    }
}

/// A histogram of each model, over all workers.
pub(super) fn by_model(
    text: &mut Text<'_>,
    scrape: &Scrape<'_>,
    (name, help, unit): (&str, &str, Unit),
    labels: for<'m> fn(&ModelScrape<'m>) -> [(&'static str, &'m str); 2],
    (bounds, cell): (&'static [u64], fn(&ModelMetrics) -> &Histogram),
) {
    let mut family = text.family(name, Kind::Histogram, help);
    for model in scrape.models {
        let parts = model.cells.iter().map(cell);
        family.add_histogram(&labels(model), &Merged::of(bounds, parts), unit);
    }
}

fn latencies(text: &mut Text<'_>, scrape: &Scrape<'_>) {
    let family = (
        "inference_latency_ms",
        "The engine alone, from the first prefill to the last token.",
        Unit::Millis,
    );
    by_model(text, scrape, family, own_labels, (TOTAL, |model| &model.inference));
    let family = (
        "zerohop_queue_seconds",
        "From acceptance by the engine to the first prefill.",
        Unit::Seconds,
    );
    by_model(text, scrape, family, own_labels, (QUEUE, |model| &model.queue));
    let family = (
        "zerohop_first_token_seconds",
        "From the last byte of a request to the first token.",
        Unit::Seconds,
    );
    by_model(
        text,
        scrape,
        family,
        own_labels,
        (FIRST_TOKEN, |model| &model.first_token),
    );
    let family = (
        "zerohop_token_seconds",
        "Between a token and the one before it.",
        Unit::Seconds,
    );
    by_model(text, scrape, family, own_labels, (PER_TOKEN, |model| &model.per_token));
    let family = (
        "zerohop_request_seconds",
        "From the first byte of a request to the last of the reply.",
        Unit::Seconds,
    );
    by_model(text, scrape, family, own_labels, (TOTAL, |model| &model.total));
}
