//! Large replies by each way that a send can take: where avoiding the copy begins to pay on this machine.
//!
//! Nothing here passes or fails by a figure. Invariant: each round measures every way once at each size, over the same
//! network, with the server and its client on cores of their own.

use std::{process::Command, time::Duration};

use clap::Args;
use zerohop_tests::wait;

use super::{load, report, statistics::spread};
use crate::{
    failure::{Doing, Failure, Outcome},
    place::{self, Place},
    shell,
};

/// Arguments of `bench zc`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often each way is measured at each size
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of one measurement
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(50..=10_000))]
    milliseconds: u32,
    /// Sizes of a reply's body, KiB
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16, 64, 256, 1024])]
    kib: Vec<u32>,
    /// Measure nothing: send 1,000,000 replies without a copy to readers that stall and reset, overwrite each as soon as the
    /// kernel has let go of it, and compare what arrives
    #[arg(long)]
    safety: bool,
}

/// The ways, as the example calls them; the first is what the others are compared with.
const WAYS: [&str; 4] = ["copy", "vector", "registered", "unregistered"];
/// Connections of the client.
const CONNECTIONS: &str = "8";

/// What lies between server and client.
struct Network {
    name: &'static str,
    address: &'static str,
    /// Runs a command at the server's end, and at the client's.
    ends: [&'static [&'static str]; 2],
}

const LOOPBACK: Network = Network {
    name: "loopback",
    address: "127.0.0.1",
    ends: [&[], &[]],
};

const VETH: Network = Network {
    name: "veth",
    address: "10.99.0.1",
    ends: [
        &["ip", "netns", "exec", "zerohop-zc-a"],
        &["ip", "netns", "exec", "zerohop-zc-b"],
    ],
};

/// A measured cell.
struct Cell {
    way: usize,
    kib: u32,
    /// Server's processor time for a reply, microseconds.
    cpu_us: f64,
    /// Bytes a nanosecond.
    rate: f64,
}

/// A server that is gone when this is.
struct Running {
    child: std::process::Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    if options.safety {
        return safety(place);
    }
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["build", "--release", "--package", "zerohop-ring", "--example", "large"])
        .current_dir(&place.root);
    shell::run(&mut cargo)?;
    let mut section = format!(
        "## Large replies\n\n`cargo xtask bench zc`, {} rounds of {} ms a cell, interleaved; server on core 0, {CONNECTIONS} \
         readers on core 1, {}. CPU is the server's for one reply, with the ratio to the copy in the same round and its \
         least and greatest value. `copy`: head and body in one buffer; `vector`: a plain send of both; `registered` and \
         `unregistered`: zero-copy sends from memory that is and is not registered.\n",
        options.rounds,
        options.milliseconds,
        super::machine()
    );
    section += &network(place, options, &LOOPBACK)?;
    match Namespaces::make() {
        Ok(_namespaces) => section += &network(place, options, &VETH)?,
        Err(failure) => {
            shell::say(format!("no veth, since network namespaces cannot be made: {failure}"));
            section += "\nOver veth nothing was measured: network namespaces could not be made.\n";
        }
    }
    section += "\nOver loopback and veth the kernel copies a zero-copy send after all (every notification says so), so no size is \
                large enough there, and a connection that is told so three times sends plainly. On a card with scatter-gather \
                run this between two machines before another crossover than the default is chosen.\n";
    report::publish(place, "zero copy", &section)
}

/// Runs the ring's own test with a million replies, and publishes what it says.
fn safety(place: &Place) -> Outcome {
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["test", "--release", "--package", "zerohop-ring", "--test", "zero_copy"])
        .args(["--", "--nocapture", "no_byte_leaves_after_its_memory_was_used_again"])
        .env("ZEROHOP_LONG", "1")
        .current_dir(&place.root);
    let mut said = None;
    let status = shell::lines(&mut cargo, |line| {
        if line.contains(" replies hashed, ") {
            said = Some(line.replace(", ", ",\n"));
        }
        true
    })?;
    shell::success(&cargo, status)?;
    let said =
        said.ok_or_else(|| Failure::new("the test did not say how many replies it compared: is io_uring there?"))?;
    let section = format!(
        "## Zero-copy safety\n\n`cargo xtask bench zc --safety`, {}. Replies of up to 120 KB from registered memory to 24 readers, \
         some of which stall until several replies wait in the kernel, and some of which reset; each reply is overwritten when \
         the kernel has let go of it, and each one that arrives is compared by a hash. All were right. With the bytes let go at \
         the answer of the send instead of the notification the run fails at once (`ring-zero-copy-let-go` in \
         [SIMULATION.md](SIMULATION.md)).\n\n```text\n{said}\n```\n",
        super::machine()
    );
    report::publish(place, "zero copy safety", &section)
}

/// Two namespaces with a pair of virtual cards, gone when this is.
struct Namespaces;

impl Namespaces {
    fn make() -> Outcome<Self> {
        // What an interrupted run has left.
        drop(Self);
        let this = Self;
        for line in [
            "netns add zerohop-zc-a",
            "netns add zerohop-zc-b",
            "link add zerohop-zc-a netns zerohop-zc-a type veth peer name zerohop-zc-b netns zerohop-zc-b",
            "-n zerohop-zc-a address add 10.99.0.1/24 dev zerohop-zc-a",
            "-n zerohop-zc-b address add 10.99.0.2/24 dev zerohop-zc-b",
            "-n zerohop-zc-a link set zerohop-zc-a up",
            "-n zerohop-zc-b link set zerohop-zc-b up",
        ] {
            shell::output(Command::new("ip").args(line.split(' ')))?;
        }
        Ok(this)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in ["zerohop-zc-a", "zerohop-zc-b"] {
            // There is none to remove before the first run.
            let _ = shell::output(Command::new("ip").args(["netns", "delete", name]));
        }
    }
}

fn network(place: &Place, options: &Options, network: &Network) -> Outcome<String> {
    let servers = WAYS
        .iter()
        .enumerate()
        .map(|(index, way)| serve(place, network, way, 21_900 + index as u16))
        .collect::<Outcome<Vec<Running>>>()?;
    let mut cells = Vec::new();
    for round in 1..=options.rounds {
        shell::say(format!("{}: round {round} of {}", network.name, options.rounds));
        for kib in options.kib.iter().copied() {
            for (way, server) in servers.iter().enumerate() {
                cells.push(measure(place, network, server, way, kib, options.milliseconds)?);
            }
        }
    }
    let head = ["body", "way", "GB/s", "CPU µs a reply", "ratio"];
    let mut rows = Vec::new();
    for kib in options.kib.iter().copied() {
        for (way, name) in WAYS.iter().enumerate() {
            rows.push(row(kib, name, &of(&cells, way, kib), &of(&cells, 0, kib))?);
        }
    }
    Ok(format!(
        "\n### Over {}\n\n{}",
        network.name,
        report::table(&head, &rows)
    ))
}

fn of(cells: &[Cell], way: usize, kib: u32) -> Vec<&Cell> {
    cells.iter().filter(|cell| (cell.way, cell.kib) == (way, kib)).collect()
}

fn row(kib: u32, way: &str, cells: &[&Cell], base: &[&Cell]) -> Outcome<Vec<String>> {
    let none = || Failure::new("nothing was measured");
    let rate = spread(cells.iter().map(|cell| cell.rate)).ok_or_else(none)?;
    let cpu = spread(cells.iter().map(|cell| cell.cpu_us)).ok_or_else(none)?;
    let ratios = cells.iter().zip(base).map(|(cell, base)| cell.cpu_us / base.cpu_us);
    let ratio = spread(ratios).ok_or_else(none)?;
    Ok(vec![
        format!("{kib} KiB"),
        way.to_owned(),
        format!("{:.2}", rate.median),
        format!("{:.2}", cpu.median),
        format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.greatest),
    ])
}

/// A command at one end of the network.
fn at(end: &[&str], program: &std::path::Path) -> Command {
    match end.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn serve(place: &Place, network: &Network, way: &str, port: u16) -> Outcome<Running> {
    let program = place.target.join("release/examples/large");
    let address = format!("{}:{port}", network.address);
    let mut command = at(network.ends[0], &program);
    command.args(["--role", "server", "--core", "0", "--way", way, "--addr", &address]);
    let child = command.spawn().doing(|| format!("start {}", program.display()))?;
    let running = Running { child, port };
    let found = wait::find_within(wait::DEADLINE, || ask(place, network, port, 4096, 50).ok());
    found
        .map(|_| running)
        .ok_or_else(|| Failure::new(format!("the server for `{way}` does not answer on {address}")))
}

/// Replies, and nanoseconds that they took.
fn ask(place: &Place, network: &Network, port: u16, bytes: u32, milliseconds: u32) -> Outcome<(f64, f64)> {
    let mut client = at(network.ends[1], &place.target.join("release/examples/large"));
    client.args(["--role", "client", "--core", "1", "--connections", CONNECTIONS]);
    client.args(["--addr", &format!("{}:{port}", network.address)]);
    client.args([
        "--bytes",
        &bytes.to_string(),
        "--milliseconds",
        &milliseconds.to_string(),
    ]);
    let output = shell::output(&mut client)?;
    let text = String::from_utf8_lossy(&output).into_owned();
    let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match figures[..] {
        [replies, nanoseconds] if replies > 0.0 => Ok((replies, nanoseconds)),
        _ => Err(Failure::new(format!("the client gave no figures: {text}"))),
    }
}

fn measure(
    place: &Place,
    network: &Network,
    server: &Running,
    way: usize,
    kib: u32,
    milliseconds: u32,
) -> Outcome<Cell> {
    let bytes = kib << 10;
    let before = load::cpu_ns(server.child.id())?;
    let (replies, nanoseconds) = ask(place, network, server.port, bytes, milliseconds)?;
    let spent = Duration::from_nanos(load::cpu_ns(server.child.id())?.saturating_sub(before));
    Ok(Cell {
        way,
        kib,
        cpu_us: spent.as_secs_f64() * 1e6 / replies,
        rate: replies * f64::from(bytes) / nanoseconds,
    })
}
