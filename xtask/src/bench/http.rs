//! Constant replies: nginx, the bare ring and zerohop on core 0, wrk on core 1, interleaved.
//!
//! Nothing here passes or fails by a figure. Invariant: within a workload every server sends the same number of body
//! bytes, and each round measures every server once at each number of connections.

use clap::Args;
use serde_json::json;
use zerohop_tests::gateway::Settings;
use zerohop_tests::{http::Response, wait};

use super::{
    load::{self, Sample},
    report,
    server::{self, Server},
    statistics::spread,
};
use crate::{
    failure::{Doing, Failure, Outcome},
    place::{self, Place},
    run, setup, shell,
};

/// A question with some words around it, as applications ask; in a request of some 400 bytes.
const CACHED: &str = "What is the capital of France?";
const AROUND: &str = "You answer questions about countries in one short sentence, without a preamble, in the language of the question, with \
                      names as they are written in English. Where you do not know the answer you say so in as many words.";

/// Arguments of `bench http`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often each server is measured at each number of connections
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of one measurement
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32, 256])]
    connections: Vec<u32>,
    /// Only this workload; the report is then shown but not written
    #[arg(long, value_enum)]
    only: Option<Kind>,
}

/// The workloads.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// The product's GET /health
    Health,
    /// The bare ring's constant 600 bytes
    Fixed,
    /// An answer from the cache, in the Anthropic dialect
    Messages,
    /// An answer from the cache, in the OpenAI dialect
    Chat,
}

/// What is asked for, and who answers; the first is what the others are compared with.
struct Workload {
    title: &'static str,
    servers: Vec<Server>,
}

/// A measured cell.
struct Cell {
    workload: usize,
    server: usize,
    connections: u32,
    sample: Sample,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    needs()?;
    let mut workloads = Vec::new();
    for kind in [Kind::Health, Kind::Fixed, Kind::Messages, Kind::Chat] {
        if options.only.is_none_or(|only| only == kind) {
            workloads.push(match kind {
                Kind::Health => health(place)?,
                Kind::Fixed => fixed(place)?,
                Kind::Messages => cached(place, "a cached answer, POST /v1/messages", "/v1/messages")?,
                Kind::Chat => cached(
                    place,
                    "a cached answer, POST /v1/chat/completions",
                    "/v1/chat/completions",
                )?,
            });
        }
    }
    let mut cells = Vec::new();
    for round in 1..=options.rounds {
        shell::say(format!("round {round} of {}", options.rounds));
        for connections in options.connections.iter().copied() {
            measure_all(&workloads, connections, options.seconds, &mut cells)?;
        }
    }
    let section = section(&workloads, &cells, options)?;
    if options.only.is_some() {
        shell::say(format!("\n{section}"));
        return Ok(());
    }
    report::publish(place, "http", &section)
}

fn needs() -> Outcome {
    for (program, package) in [("wrk", "wrk"), ("nginx", "nginx-light"), ("taskset", "util-linux")] {
        if !shell::exists(program) {
            return Err(Failure::new(format!("{program} is not installed"))
                .remedy(format!("apt-get install {package} (Debian), then again")));
        }
    }
    let cores = std::thread::available_parallelism()
        .doing(|| String::from("count the cores"))?
        .get();
    match cores {
        2.. => Ok(()),
        _ => Err(Failure::new(
            "server and load need a core each, and this machine has one",
        )),
    }
}

/// The product, in its default configuration but for the place of its worker and its log.
fn product(place: &Place, name: &'static str, io: &'static str) -> Outcome<Server> {
    let library = setup::setup(place)?;
    let binary = place.binary();
    Server::start(
        name,
        "/health",
        &binary.to_string_lossy(),
        |command, address, scratch| {
            let settings = Settings::default()
                .with("/server/listen", json!([address.to_string()]))
                .with("/server/workers", json!([0]))
                .with("/logging/level", "warn");
            let config = scratch
                .write("zerohop.yaml", settings.text())
                .doing(|| String::from("write a configuration"))?;
            command
                .arg("serve")
                .arg("--config")
                .arg(config)
                .args(["--io", io])
                .env("ORT_DYLIB_PATH", &library.path);
            Ok(())
        },
    )
}

/// A request of about 400 bytes whose answer is kept, against nginx that gives the same bytes to any request.
fn cached(place: &Place, title: &'static str, path: &'static str) -> Outcome<Workload> {
    run::build(place)?;
    let body = json!({
        "model": "tiny",
        "max_tokens": 64,
        "temperature": 0,
        "messages": [{"role": "user", "content": format!("{AROUND} {CACHED}")}],
    });
    let text = body.to_string();
    let start = |name: &'static str, io: &'static str| -> Outcome<(Server, Response)> {
        let server = product(place, name, io)?;
        let kept = wait::find_within(wait::DEADLINE, || {
            let reply = zerohop_tests::http::post(server.address(), path, &body);
            (reply.header("x-cache") == Some("hit")).then_some(reply)
        });
        let reply = kept.ok_or_else(|| Failure::new(format!("{name} keeps no answer")))?;
        Ok((server.posted(path, &text)?, reply))
    };
    let ((uring, reply), (epoll, _)) = (start("zerohop, io_uring", "uring")?, start("zerohop, epoll", "epoll")?);
    let nginx = like(path, &reply)?.posted(path, &text)?;
    Ok(Workload {
        title,
        servers: vec![nginx, uring, epoll],
    })
}

/// The product's own `/health`, against nginx with the same body.
fn health(place: &Place) -> Outcome<Workload> {
    run::build(place)?;
    let (uring, epoll) = (
        product(place, "zerohop, io_uring", "uring")?,
        product(place, "zerohop, epoll", "epoll")?,
    );
    let reply = zerohop_tests::http::get(uring.address(), "/health");
    let nginx = like("/health", &reply)?;
    Ok(Workload {
        title: "GET /health",
        servers: vec![nginx, uring, epoll],
    })
}

/// nginx with a reply of the same headers and body as `reply`.
fn like(path: &'static str, reply: &Response) -> Outcome<Server> {
    let own = ["content-type", "content-length", "date", "server", "connection"];
    let lines = reply.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers = lines.filter(|(name, _)| !own.contains(&name.to_ascii_lowercase().as_str()));
    let headers: String = headers
        .map(|(name, value)| format!("add_header {name} \"{value}\"; "))
        .collect();
    server::nginx(
        path,
        reply.header("content-type").unwrap_or("text/plain"),
        &headers,
        &reply.text(),
    )
}

/// The ring's own example, which answers 600 bytes without parsing: what HTTP costs beyond it is the product's.
fn fixed(place: &Place) -> Outcome<Workload> {
    let mut cargo = std::process::Command::new(place::cargo());
    cargo
        .args(["build", "--release", "--package", "zerohop-ring", "--example", "fixed"])
        .current_dir(&place.root);
    shell::run(&mut cargo)?;
    let binary = place.target.join("release/examples/fixed");
    let start = |name: &'static str, io: &'static str| {
        Server::start(name, "/", &binary.to_string_lossy(), |command, address, _| {
            command.args(["--maker", io, "--core", "0", "--addr", &address.to_string()]);
            Ok(())
        })
    };
    let (uring, epoll) = (
        start("bare ring, io_uring", "uring")?,
        start("bare ring, epoll", "epoll")?,
    );
    let nginx = like("/", &zerohop_tests::http::get(uring.address(), "/"))?;
    Ok(Workload {
        title: "a fixed reply of 600 bytes",
        servers: vec![nginx, uring, epoll],
    })
}

fn measure_all(workloads: &[Workload], connections: u32, seconds: u32, cells: &mut Vec<Cell>) -> Outcome {
    for (workload, Workload { servers, .. }) in workloads.iter().enumerate() {
        for (server, which) in servers.iter().enumerate() {
            let sample = load::measure(which, connections, seconds)?;
            cells.push(Cell {
                workload,
                server,
                connections,
                sample,
            });
        }
    }
    Ok(())
}

fn section(workloads: &[Workload], cells: &[Cell], options: &Options) -> Outcome<String> {
    let mut out = format!(
        "## Constant replies over HTTP\n\n`cargo xtask bench http`, {} rounds of {} s, interleaved; server on core 0, wrk on \
         core 1, {}. Medians, and the ratio to nginx in the same round with its least and greatest value. CPU is the \
         server's own, all threads, from /proc.\n",
        options.rounds,
        options.seconds,
        super::machine()
    );
    for (index, workload) in workloads.iter().enumerate() {
        out += &format!("\n### {}\n\n", workload.title);
        let head = [
            "connections",
            "server",
            "requests/s",
            "ratio",
            "p50 µs",
            "ratio",
            "CPU µs a request",
            "ratio",
        ];
        let mut rows = Vec::new();
        for connections in options.connections.iter().copied() {
            for (server, which) in workload.servers.iter().enumerate() {
                let of = |server: usize| of(cells, index, server, connections);
                rows.push(row(connections, which.name, &of(server), &of(0))?);
            }
        }
        out += &report::table(&head, &rows);
    }
    out += "\nResident memory after the runs:";
    for server in workloads.iter().flat_map(|workload| &workload.servers) {
        out += &format!(
            " {} {} {:.0} MiB;",
            server.name,
            server.path,
            load::resident_mib(server.id())?
        );
    }
    Ok(out.trim_end_matches(';').to_owned() + ".\n")
}

fn of(cells: &[Cell], workload: usize, server: usize, connections: u32) -> Vec<Sample> {
    let wanted = |cell: &&Cell| (cell.workload, cell.server, cell.connections) == (workload, server, connections);
    cells.iter().filter(wanted).map(|cell| cell.sample).collect()
}

/// A column: what it takes from a sample, and its digits after the point.
type Figure = (fn(&Sample) -> f64, usize);

fn row(connections: u32, name: &str, samples: &[Sample], base: &[Sample]) -> Outcome<Vec<String>> {
    let mut cells = vec![connections.to_string(), name.to_owned()];
    let figures: [Figure; 3] = [
        (|sample| sample.rate, 0),
        (|sample| sample.median_us, 0),
        (|sample| sample.cpu_us, 2),
    ];
    for (figure, digits) in figures {
        let none = || Failure::new("nothing was measured");
        let own = spread(samples.iter().map(figure)).ok_or_else(none)?;
        let ratio = spread(
            samples
                .iter()
                .zip(base)
                .map(|(sample, base)| figure(sample) / figure(base)),
        )
        .ok_or_else(none)?;
        cells.push(format!("{:.digits$}", own.median));
        cells.push(format!(
            "{:.2} ({:.2} to {:.2})",
            ratio.median, ratio.least, ratio.greatest
        ));
    }
    Ok(cells)
}
