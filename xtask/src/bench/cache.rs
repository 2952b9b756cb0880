//! Stored answers in files: one hot answer against a Zipf mix that partly comes from parts, and hot answers beside reads of
//! parts that no memory holds.
//!
//! Nothing here passes or fails by a figure. Invariant: hot answer and mix are asked of the same process, one after the other
//! in each round; what is counted as read from parts is what the gateway itself counts.

use std::{
    fs::{self, File},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use clap::Args;
use rustix::{
    fs::{Advice, fadvise},
    process::{Pid, Signal, kill_process},
};
use serde_json::{Value, json};
use zerohop_tests::{gateway::Settings, http, metrics::Metrics, scratch::Scratch, wait};

use super::{
    load::{self, Sample},
    report,
    server::Server,
    statistics::spread,
};
use crate::{
    failure::{Doing, Failure, Outcome},
    place::Place,
    run, setup, shell,
};

const PATH: &str = "/v1/messages";
/// Clients that ask while the store is filled.
const FILLERS: usize = 64;
/// Skew of the mix: the k-th key is asked for in proportion to `k^-SKEW`. Breslau et al. ("Web caching and Zipf-like
/// distributions", INFOCOM 1999) found 0.64 to 0.83 for web pages.
const SKEW: f64 = 0.8;
/// Requests of the mix, drawn before; they repeat.
const DRAWN: usize = 50_000;

/// Arguments of `bench cache`.
#[derive(Args)]
pub(crate) struct Options {
    /// Answers that are made and stored before
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    keys: u32,
    /// How often each is measured at each number of connections
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of one measurement
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// MiB of answers that also lie in memory
    #[arg(long, default_value_t = 1)]
    hot_mb: u32,
}

/// A measured pair.
struct Cell {
    connections: u32,
    hot: Sample,
    mix: Sample,
    /// Share of the mix that was read from parts.
    read: f64,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    run::build(place)?;
    let folder = Scratch::new().doing(|| String::from("make a folder"))?;
    let server = start(place, &folder, options)?;
    shell::say(format!("{} answers are made and stored", options.keys));
    fill(&server, options.keys)?;
    stop(&server)?;
    drop(server);
    // What was in the last segment is in a part now.
    let server = start(place, &folder, options)?;
    let stored = stored(&server, options.keys);
    let first = *stored.first().ok_or_else(|| Failure::new("no answer is kept"))?;
    let server = server.posted(PATH, &question(first).to_string())?;
    let hot = server.script.clone();
    let mix = folder
        .write("mix.lua", mix(&stored))
        .doing(|| String::from("write a script for wrk"))?;
    let mut cells = Vec::new();
    let mut server = server;
    for round in 1..=options.rounds {
        shell::say(format!("round {round} of {}", options.rounds));
        for connections in [1, 32, 256] {
            server.script.clone_from(&hot);
            let hot_sample = load::measure(&server, connections, options.seconds)?;
            let before = reads(&server);
            server.script = Some(mix.clone());
            let sample = load::measure(&server, connections, options.seconds)?;
            let asked = sample.rate * f64::from(options.seconds);
            cells.push(Cell {
                connections,
                hot: hot_sample,
                mix: sample,
                read: (reads(&server) - before) / asked,
            });
        }
    }
    server.script = hot;
    let stalls = stalls(&server, &folder, &stored, options)?;
    let section = section(options, stored.len(), &cells, &stalls)?;
    report::publish(place, "cache", &section)
}

fn start(place: &Place, folder: &Scratch, options: &Options) -> Outcome<Server> {
    let library = setup::setup(place)?;
    let binary = place.binary();
    Server::start(
        "zerohop",
        "/ready",
        &binary.to_string_lossy(),
        |command, address, scratch| {
            let settings = Settings::default()
                .with("/server/listen", json!([address.to_string()]))
                .with("/server/workers", json!([0]))
                .with("/cache/type", "ssd")
                .with("/cache/size_mb", 1024)
                .with("/cache/hot_mb", options.hot_mb)
                .with(
                    "/cache/local/path",
                    folder.path().join("cache").to_string_lossy().as_ref(),
                )
                .with("/logging/level", "warn");
            let config = scratch
                .write("zerohop.yaml", settings.text())
                .doing(|| String::from("write a configuration"))?;
            command
                .arg("serve")
                .arg("--config")
                .arg(config)
                .env("ORT_DYLIB_PATH", &library.path);
            Ok(())
        },
    )
}

/// Ends a gateway as an operator does, so that it writes what it has.
fn stop(server: &Server) -> Outcome {
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::new("the gateway has no process"))?;
    kill_process(pid, Signal::TERM)
        .map_err(std::io::Error::from)
        .doing(|| String::from("stop the gateway"))?;
    let gone = wait::find_within(wait::DEADLINE, || {
        let state = fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap_or_default();
        // A zombie until it is waited for.
        (state.is_empty() || state.contains(") Z ")).then_some(())
    });
    gone.ok_or_else(|| Failure::new("the gateway does not end"))
}

/// A request of about 400 bytes.
fn question(number: u32) -> Value {
    let around = "You answer questions about numbers in one short sentence, without a preamble, in the language of the question, \
                  with names as they are written in English. Where you do not know the answer you say so in as many words.";
    json!({
        "model": "tiny",
        "max_tokens": 64,
        "temperature": 0,
        "stop_sequences": ["."],
        "messages": [{"role": "user", "content": format!("{around} What is {number}?")}],
    })
}

fn reads(server: &Server) -> f64 {
    Metrics::of(server.address()).sum("zerohop_cache_reads_total", &[r#"result="ok""#])
}

/// Has every question answered once.
fn fill(server: &Server, keys: u32) -> Outcome {
    let (next, address) = (AtomicUsize::new(0), server.address());
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                let mut client = http::Client::connect(address);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= keys as usize {
                        return;
                    }
                    let body = question(u32::try_from(number).unwrap_or(u32::MAX)).to_string();
                    client.send(http::post_bytes(PATH, body.as_bytes()));
                    client.response();
                }
            });
        }
    });
    let taken = wait::find_within(wait::DEADLINE, || {
        let metrics = Metrics::of(address);
        (metrics.sum("zerohop_cache_waiting_bytes", &[]) == 0.0).then_some(())
    });
    taken.ok_or_else(|| Failure::new("the cache's writer does not come to rest"))
}

/// The questions whose answers are stored: one that a limit cut off is not, and would be made each time.
fn stored(server: &Server, keys: u32) -> Vec<u32> {
    let mut client = http::Client::connect(server.address());
    let mut is_stored = |number: &u32| {
        let body = question(*number).to_string();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: x\r\ncache-control: only-if-cached\r\ncontent-length: {}",
            body.len()
        );
        client.send(format!("{head}\r\n\r\n{body}"));
        client.response().status == 200
    };
    (0..keys).filter(|number| is_stored(number)).collect()
}

/// A script that asks for these by their rank, drawn before so that drawing costs nothing.
fn mix(keys: &[u32]) -> String {
    let weights = (1..=keys.len()).map(|rank| (rank as f64).powf(-SKEW));
    let mut sums = Vec::with_capacity(keys.len());
    let total = weights.fold(0.0, |sum, weight| {
        sums.push(sum + weight);
        sum + weight
    });
    let mut word = 1u64;
    let mut numbers = String::new();
    for _ in 0..DRAWN {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let drawn = (word >> 11) as f64 / (1u64 << 53) as f64 * total;
        let rank = sums.partition_point(|sum| *sum < drawn);
        numbers += &format!("{},", keys[rank.min(keys.len() - 1)]);
    }
    let (before, after) = halves();
    format!(
        "local numbers = {{{numbers}}}\nlocal at = 0\nlocal requests = {{}}\n\
         wrk.method = \"POST\"\nwrk.headers[\"content-type\"] = \"application/json\"\n\
         request = function()\n  at = at % #numbers + 1\n  local number = numbers[at]\n\
         local made = requests[number]\n  if not made then\n    \
         made = wrk.format(nil, \"{PATH}\", nil, [[{before}]] .. number .. [[{after}]])\n    requests[number] = made\n  end\n  \
         return made\nend\n"
    )
}

/// What of a request stands before its number, and behind.
fn halves() -> (String, String) {
    const NUMBER: u32 = 987_654_321;
    let text = question(NUMBER).to_string();
    let (before, after) = text.split_once(&NUMBER.to_string()).unwrap_or((&text, ""));
    (before.to_owned(), after.to_owned())
}

/// Hot answers beside a client that asks once for every hundred of them: first for a hot answer too, then for one of a part
/// that memory does not hold. Pages are dropped before each of its requests either way.
fn stalls(server: &Server, folder: &Scratch, stored: &[u32], options: &Options) -> Outcome<Vec<(Sample, Sample, f64)>> {
    let mut samples = Vec::new();
    let rate = load::measure(server, 32, options.seconds)?.rate;
    let pause = Duration::from_secs_f64(100.0 / rate);
    let mut at = stored.len() / 2;
    for _ in 0..options.rounds {
        let mut beside = |cold: bool| {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut client = http::Client::connect(server.address());
                    while !over.load(Ordering::Relaxed) {
                        drop_pages(folder);
                        at = (at + 7919) % stored.len();
                        let number = if cold { stored[at] } else { stored[0] };
                        client.send(http::post_bytes(PATH, question(number).to_string().as_bytes()));
                        client.response();
                        thread::sleep(pause);
                    }
                });
                let sample = load::measure(server, 32, options.seconds);
                over.store(true, Ordering::Relaxed);
                sample
            })
        };
        let hot = beside(false)?;
        let before = reads(server);
        let cold = beside(true)?;
        samples.push((hot, cold, reads(server) - before));
    }
    Ok(samples)
}

/// The pages of the parts leave the kernel's cache.
fn drop_pages(folder: &Scratch) {
    let parts = folder.path().join("cache").join("cache_data.parquet");
    let files = fs::read_dir(parts).into_iter().flatten().flatten();
    for file in files.filter_map(|entry| File::open(entry.path()).ok()) {
        // Pages that are being read just now stay.
        let _advised = fadvise(&file, 0, None, Advice::DontNeed);
    }
}

fn section(options: &Options, stored: usize, cells: &[Cell], stalls: &[(Sample, Sample, f64)]) -> Outcome<String> {
    let mut out = format!(
        "## Stored answers in files\n\n`cargo xtask bench cache`, {} rounds of {} s, hot answer and mix in turn; server on core 0, wrk \
         on core 1, {}. {stored} answers in files, {} MiB of them in memory; the mix asks for them by Zipf's law with exponent \
         {SKEW}. Medians, and the ratio of the mix to the hot answer in the same round with its least and greatest value.\n\n",
        options.rounds,
        options.seconds,
        super::machine(),
        options.hot_mb,
    );
    let head = [
        "connections",
        "read from parts",
        "CPU µs, hot",
        "CPU µs, mix",
        "ratio",
        "p50 µs, hot",
        "p50 µs, mix",
    ];
    let mut rows = Vec::new();
    for connections in [1, 32, 256] {
        let of = |figure: fn(&Cell) -> f64| {
            let own = cells.iter().filter(|cell| cell.connections == connections);
            spread(own.map(figure)).ok_or_else(|| Failure::new("nothing was measured"))
        };
        let ratio = of(|cell| cell.mix.cpu_us / cell.hot.cpu_us)?;
        rows.push(vec![
            connections.to_string(),
            format!("{:.0} %", 100.0 * of(|cell| cell.read)?.median),
            format!("{:.2}", of(|cell| cell.hot.cpu_us)?.median),
            format!("{:.2}", of(|cell| cell.mix.cpu_us)?.median),
            format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.greatest),
            format!("{:.0}", of(|cell| cell.hot.median_us)?.median),
            format!("{:.0}", of(|cell| cell.mix.median_us)?.median),
        ]);
    }
    out += &report::table(&head, &rows);
    let p99 = |ratio: fn(&(Sample, Sample, f64)) -> f64| {
        spread(stalls.iter().map(ratio)).ok_or_else(|| Failure::new("nothing was measured"))
    };
    let ratio = p99(|it| it.1.p99_us / it.0.p99_us)?;
    out += &format!(
        "\np99 of hot answers on 32 connections while another client asks for answers of parts whose pages are dropped before each (at most \
         one request in a hundred; {:.0} reads a round): {:.2} times that while it asks for a hot answer ({:.2} to {:.2}).\n",
        p99(|it| it.2)?.median,
        ratio.median,
        ratio.least,
        ratio.greatest
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_asks_for_the_first_keys_most() {
        let script = mix(&(0..1000).collect::<Vec<_>>());
        let numbers = script.split_once('{').unwrap().1.split_once('}').unwrap().0;
        let numbers: Vec<u32> = numbers
            .trim_end_matches(',')
            .split(',')
            .map(|it| it.parse().unwrap())
            .collect();
        let count = |wanted: u32| numbers.iter().filter(|it| **it == wanted).count();
        assert_eq!(numbers.len(), DRAWN);
        assert!(numbers.iter().all(|it| *it < 1000));
        assert!(
            count(0) > count(10) && count(10) > count(500),
            "{} {}",
            count(0),
            count(500)
        );
        let (before, after) = halves();
        assert_eq!(format!("{before}7{after}"), question(7).to_string());
        assert!(!format!("{before}{after}").contains("]]"));
    }
}
