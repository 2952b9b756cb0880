//! Resident memory of the gateway under clients that hold on to it, and what is left of that when they are gone.
//!
//! Nothing here passes or fails by a figure. Invariant: a phase begins when the phase before has been forgotten by the
//! gateway (no connection open, nothing running), and its rest is read only then.

use std::{thread, time::Duration};

use clap::Args;
use serde_json::json;
use zerohop_tests::{
    gateway::Gateway,
    http::{self, Client},
    metrics::Metrics,
    wait,
};

use super::{load, report};
use crate::{
    failure::{Failure, Outcome},
    harness,
    place::Place,
    run, setup, shell,
};

/// Arguments of `bench memory`.
#[derive(Args)]
pub(crate) struct Options {
    /// Connections that send nothing
    #[arg(long, default_value_t = 5_000)]
    idle: usize,
    /// Clients that ask for more than they read
    #[arg(long, default_value_t = 1_000)]
    slow: usize,
    /// Streams that are cut in the middle
    #[arg(long, default_value_t = 1_000)]
    aborted: usize,
    /// How often the phases are repeated: what leaks grows from round to round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// A line of the table.
struct Row {
    phase: String,
    before: f64,
    peak: f64,
    held: f64,
    after: f64,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    let library = setup::setup(place)?;
    run::build(place)?;
    let clients = options.idle.max(options.slow).max(options.aborted);
    raise_descriptors(clients as u64 + 200)?;
    let settings = harness::settings(place, &library)
        .with("/server/workers", json!([0]))
        .with("/server/max_connections", clients + 100)
        .with("/server/read_timeout", "10m")
        .with("/server/keepalive_timeout", "10m")
        .with("/models/0/backend/onnx/queue", 2_048)
        .with("/logging/level", "warn");
    let gateway = Gateway::start(&settings);
    warm_up(&gateway);
    let mut rows = Vec::new();
    for round in 1..=options.rounds {
        shell::say(format!("round {round} of {}", options.rounds));
        rows.push(phase(
            &gateway,
            format!("{round}: {} idle connections", options.idle),
            |gateway| idle(gateway, options.idle),
        )?);
        rows.push(phase(
            &gateway,
            format!("{round}: {} slow readers", options.slow),
            |gateway| slow_readers(gateway, options.slow),
        )?);
        rows.push(phase(
            &gateway,
            format!("{round}: {} aborted streams", options.aborted),
            |gateway| aborted_streams(gateway, options.aborted),
        )?);
    }
    report::publish(place, "memory", &section(&rows))
}

fn section(rows: &[Row]) -> String {
    let head = [
        "phase",
        "before MiB",
        "at its peak MiB",
        "of that held by connections MiB",
        "after MiB",
        "after / before",
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.phase.clone(),
                format!("{:.1}", row.before),
                format!("{:.1}", row.peak),
                format!("{:.1}", row.held),
                format!("{:.1}", row.after),
                format!("{:.3}", row.after / row.before),
            ]
        })
        .collect();
    format!(
        "## Memory\n\n`cargo xtask bench memory`, resident memory of the gateway with the bundled model and one worker, {}. Each \
         phase begins when the one before is forgotten: no connection open, nothing running.\n\n{}",
        super::machine(),
        report::table(&head, &cells)
    )
}

/// Both ends of every connection are descriptors of processes that inherit this limit.
fn raise_descriptors(wanted: u64) -> Outcome {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = rustix::process::Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|maximum| maximum.max(wanted)),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)
        .map_err(|error| Failure::new(format!("{wanted} descriptors are needed: {error}")).remedy("raise `ulimit -n`"))
}

/// What every gateway has done once: parsed, generated, streamed, rendered its metrics, received into each of its buffers,
/// and filled the batch and the queue of its model.
fn warm_up(gateway: &Gateway) {
    let mut client = Client::connect(gateway.address());
    for _ in 0..3_000 {
        client.send(http::request_bytes("GET", "/health"));
        client.response();
    }
    drop(client);
    client = Client::connect(gateway.address());
    client.send(stream(1));
    client.response();
    drop(client);
    drop(aborted_streams(gateway, 500));
    forgotten(gateway);
}

fn stream(seed: usize) -> Vec<u8> {
    let body = json!({
        "model": "tiny", "max_completion_tokens": 400, "temperature": 2, "seed": seed, "stream": true,
        "messages": [{"role": "user", "content": format!("Tell me everything. {}", "And more. ".repeat(20))}],
    });
    http::post_bytes("/v1/chat/completions", body.to_string().as_bytes())
}

fn phase(gateway: &Gateway, name: String, clients: impl FnOnce(&Gateway) -> Vec<Client>) -> Outcome<Row> {
    let before = load::resident_mib(gateway.id())?;
    let clients = clients(gateway);
    let peak = load::resident_mib(gateway.id())?;
    let held = Metrics::of(gateway.address()).sum("zerohop_memory_held_bytes", &[]) / f64::from(1 << 20);
    drop(clients);
    forgotten(gateway);
    // Memory is given back by the next look after the last connection has gone.
    thread::sleep(Duration::from_secs(3));
    let after = load::resident_mib(gateway.id())?;
    shell::say(format!("{name}: {before:.1} → {peak:.1} → {after:.1} MiB"));
    Ok(Row {
        phase: name,
        before,
        peak,
        held,
        after,
    })
}

/// Waits until only the asking connection is open and nothing runs.
fn forgotten(gateway: &Gateway) {
    let open = [
        "zerohop_connections_open",
        "zerohop_engine_running",
        "zerohop_engine_waiting",
    ];
    wait::wait_for("the clients to be forgotten", || {
        let metrics = Metrics::of(gateway.address());
        (open.iter().map(|name| metrics.sum(name, &[])).sum::<f64>() <= 1.0).then_some(())
    });
}

/// Half of them send the beginning of a head.
fn idle(gateway: &Gateway, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(gateway.address())).collect();
    for client in clients.iter_mut().step_by(2) {
        client.send("POST /v1/messages HTTP/1.1\r\nhost: a\r\nx-long: and so on");
    }
    open(gateway, count);
    clients
}

fn open(gateway: &Gateway, count: usize) {
    wait::wait_for("all connections to be open", || {
        let open = Metrics::of(gateway.address()).sum("zerohop_connections_open", &[]);
        (open as usize >= count).then_some(())
    });
}

/// Each asks for some megabytes and reads nothing.
fn slow_readers(gateway: &Gateway, count: usize) -> Vec<Client> {
    let requests = http::request_bytes("GET", "/metrics").repeat(120);
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(gateway.address());
        client.send(&requests);
        clients.push(client);
    }
    let (mut before, mut same) = (0.0, 0);
    wait::wait_for("replies to pile up as far as they may", || {
        let held = Metrics::of(gateway.address()).sum("zerohop_memory_held_bytes", &[]);
        same = if held > (count * 64 * 1024) as f64 && held == before {
            same + 1
        } else {
            0
        };
        before = held;
        (same >= 50).then_some(())
    });
    clients
}

/// Each is cut when its first event has come, or while it still waits.
fn aborted_streams(gateway: &Gateway, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(gateway.address())).collect();
    for (seed, client) in clients.iter_mut().enumerate() {
        client.send(stream(seed));
    }
    for client in clients.iter_mut().take(16) {
        assert_eq!(client.head().status, 200, "a stream begins");
    }
    clients
}
