//! One measurement: wrk against a server, and the processor time that the server spent meanwhile.
//!
//! Invariant: a measurement with a failed request is an error, never a figure.

use std::{fs, process::Command};

use super::server::Server;
use crate::{
    failure::{Doing, Failure, Outcome},
    shell,
};

/// What one run of wrk gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Replies a second.
    pub(super) rate: f64,
    /// Median time to a reply, microseconds.
    pub(super) median_us: f64,
    /// What 99 of 100 replies did not exceed, microseconds.
    pub(super) p99_us: f64,
    /// Processor time of the server for one request, microseconds.
    pub(super) cpu_us: f64,
}

/// Loads a server from core 1 and watches its process.
pub(super) fn measure(server: &Server, connections: u32, seconds: u32) -> Outcome<Sample> {
    let (url, id) = (server.url(), server.id());
    let mut wrk = Command::new("taskset");
    wrk.args(["-c", "1", "wrk", "--threads", "1", "--latency"]);
    wrk.args([
        "--connections",
        &connections.to_string(),
        "--duration",
        &format!("{seconds}s"),
    ]);
    if let Some(script) = &server.script {
        wrk.arg("--script").arg(script);
    }
    wrk.arg(&url);
    let before = cpu_ns(id)?;
    let output = shell::output(&mut wrk)?;
    let spent = cpu_ns(id)?.saturating_sub(before);
    let text = String::from_utf8_lossy(&output).into_owned();
    parse(&text, spent).ok_or_else(|| Failure::new(format!("wrk gave no clean figures for {url}:\n{text}")))
}

/// Processor time of all threads of a process, nanoseconds (`/proc/ID/task/*/schedstat`, first field).
pub(super) fn cpu_ns(id: u32) -> Outcome<u64> {
    let folder = format!("/proc/{id}/task");
    let threads = fs::read_dir(&folder).doing(|| format!("read {folder}"))?;
    let spent = threads.filter_map(Result::ok).map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    });
    match spent.sum() {
        0 => Err(Failure::new(format!(
            "{folder}/*/schedstat holds no times: the kernel lacks CONFIG_SCHED_INFO"
        ))),
        sum => Ok(sum),
    }
}

/// Resident memory of a process, MiB.
pub(super) fn resident_mib(id: u32) -> Outcome<f64> {
    let path = format!("/proc/{id}/status");
    let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    let field = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = field.and_then(|field| field.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0)
        .ok_or_else(|| Failure::new(format!("{path} has no VmRSS")))
}

fn parse(text: &str, cpu_ns: u64) -> Option<Sample> {
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return None;
    }
    let after = |key: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(key).map(str::trim))
    };
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))?
        .0
        .parse::<f64>()
        .ok()?;
    Some(Sample {
        rate: after("Requests/sec:")?.parse().ok()?,
        median_us: microseconds(after("50%")?)?,
        p99_us: microseconds(after("99%")?)?,
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        cpu_us: cpu_ns as f64 / 1000.0 / requests,
    })
}

fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    units
        .iter()
        .find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_wrk() {
        let clean = "Running 2s test @ http://127.0.0.1:1/\n  1 threads and 32 connections\n  Latency Distribution\n     \
                     50%  1.50ms\n     99%  2.00ms\n  20000 requests in 2.00s, 14.00MB read\nRequests/sec:  10000.00\n";
        let broken = format!("{clean}  Socket errors: connect 0, read 1, write 0, timeout 0\n");
        let expected = Sample {
            rate: 10_000.0,
            median_us: 1_500.0,
            p99_us: 2_000.0,
            cpu_us: 5.0,
        };
        for (text, found) in [(clean, Some(expected)), (broken.as_str(), None), ("", None)] {
            assert_eq!(parse(text, 100_000_000), found);
        }
        for (text, found) in [("77.00us", Some(77.0)), ("1.2s", Some(1.2e6)), ("5", None)] {
            assert_eq!(microseconds(text), found);
        }
    }
}
