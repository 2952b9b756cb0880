//! How long it takes to read a request, each way by itself: `cargo xtask bench parse` runs it and makes the table.
//!
//! Prints one JSON object a line, with a time in nanoseconds for each round. CPU time of this thread; a round measures every way once, so that what disturbs the
//! machine disturbs all alike. Invariant: before anything is measured, each way has read each body whole.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

mod bodies;
mod ways;

use std::hint::black_box;

use bodies::Body;
use rustix::time::{ClockId, clock_gettime};

/// How long one measurement takes, about.
const SLICE_NANOS: u64 = 300_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["show"] => {
            for body in bodies::all() {
                println!("{}", String::from_utf8_lossy(&body.bytes));
            }
        }
        // For a profiler: one way, without a clock.
        ["repeat", times, way, name] => repeat(times.parse().expect("a number"), way, name),
        [rounds] => {
            for body in bodies::all() {
                measure(&body, rounds.parse().expect("a number"));
            }
        }
        _ => panic!("ROUNDS, or `show`, or `repeat TIMES WAY BODY`"),
    }
}

fn repeat(times: u64, way: &str, name: &str) {
    for body in bodies::all().iter().filter(|body| body.name == name) {
        let mut ways = ways::of(body);
        let (_, read) = ways.iter_mut().find(|(known, _)| known == way).expect("a known way");
        for _ in 0..times {
            black_box(read());
        }
    }
}

fn measure(body: &Body, rounds: u32) {
    let mut ways = ways::of(body);
    let repeats: Vec<u64> = ways.iter_mut().map(|(_, read)| repeats(read)).collect();
    let mut samples = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for (((_, read), &repeats), samples) in ways.iter_mut().zip(&repeats).zip(&mut samples) {
            samples.push(nanos(read, repeats));
        }
    }
    for ((name, _), samples) in ways.iter().zip(samples) {
        let line = serde_json::json!({
            "body": body.name,
            "dialect": body.dialect.name(),
            "bytes": body.bytes.len(),
            "beyond_ascii": body.bytes.iter().filter(|byte| !byte.is_ascii()).count(),
            "backslashes": body.bytes.iter().filter(|&&byte| byte == b'\\').count(),
            "way": name,
            "nanos": samples,
        });
        println!("{line}");
    }
}

/// How often to read within one measurement.
fn repeats(read: &mut impl FnMut() -> usize) -> u64 {
    nanos(read, 20);
    let once = nanos(read, 20).max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few nanoseconds"
    )]
    let once = once as u64;
    (SLICE_NANOS / once).max(1)
}

/// CPU time of one reading, in nanoseconds.
fn nanos(read: &mut impl FnMut() -> usize, repeats: u64) -> f64 {
    let begun = cpu();
    for _ in 0..repeats {
        black_box(read());
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    {
        (cpu() - begun) as f64 / repeats as f64
    }
}

/// CPU time of this thread so far, in nanoseconds.
fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
