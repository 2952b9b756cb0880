//! What reads of a file cost a worker: how long each takes, and for how long the worker is held up meanwhile.
//!
//! It reads pieces of a file at random places, one after the other, when the file is in the page cache and when it is not
//! (`dd` drops it). Held up is the longest call of a read, `read` and each `turn` that may not wait. Arguments:
//! `--file PATH` (of at least 64 MiB, on the disk to measure), `--core N`, `--rounds N`.

use std::{
    collections::HashMap,
    error::Error,
    fs::File,
    net::{Ipv4Addr, TcpStream},
    process::Command,
    sync::Arc,
    time::Instant,
};

use zerohop_ring::{AnyIo, Backend, Completion, ConnId, Io, Options, ReadFile, ReadToken, listen, pin_to_core, probe};

const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

fn arguments() -> HashMap<String, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    words
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

#[expect(clippy::print_stdout, reason = "a tool for the terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments();
    let argument = |name: &str, default: &str| arguments.get(name).map_or(default.to_owned(), Clone::clone);
    let path = argument("--file", "");
    let rounds = argument("--rounds", "1000").parse()?;
    pin_to_core(argument("--core", "0").parse()?)?;
    println!("µs, median / 99 of 100       a read            held up by it");
    for cached in [true, false] {
        for size in SIZES {
            for backend in [Backend::Uring, Backend::Epoll] {
                let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 16)?;
                let client = TcpStream::connect(listener.local_addr()?)?;
                let options = Options {
                    listeners: vec![listener],
                    ..Options::default()
                };
                let file = Arc::new(ReadFile::new(File::open(&path)?)?);
                let places = File::open(&path)?.metadata()?.len() / size as u64;
                prepare(&path, cached)?;
                let run = Run {
                    file,
                    places,
                    size,
                    rounds,
                };
                let (took, held) = match probe(backend)?.open(options)? {
                    AnyIo::Uring(io) => run.on(io)?,
                    AnyIo::Epoll(io) => run.on(io)?,
                };
                let (state, maker) = (if cached { "cached" } else { "cold" }, format!("{backend:?}"));
                println!("{state:6} {size:7} {maker:6} {} {}", told(took), told(held));
                drop(client);
            }
        }
    }
    Ok(())
}

/// Brings the file into the page cache, or out of it.
fn prepare(path: &str, cached: bool) -> Result<(), Box<dyn Error>> {
    let input = format!("if={path}");
    let words = if cached {
        [input.as_str(), "of=/dev/null", "bs=1M"]
    } else {
        [input.as_str(), "iflag=nocache", "count=0"]
    };
    let done = Command::new("dd").arg("status=none").args(words).status()?;
    if done.success() {
        Ok(())
    } else {
        Err("dd failed".into())
    }
}

fn told(mut nanos: Vec<u64>) -> String {
    nanos.sort_unstable();
    let at = |share: usize| nanos[nanos.len() * share / 100] as f64 / 1000.0;
    format!("{:8.1} {:8.1}", at(50), at(99))
}

struct Run {
    file: Arc<ReadFile>,
    places: u64,
    size: usize,
    rounds: usize,
}

impl Run {
    /// What each read took, and the longest that it held up.
    fn on<I: Io>(&self, mut io: I) -> Result<(Vec<u64>, Vec<u64>), Box<dyn Error>> {
        io.start_accept();
        let mut out = Vec::new();
        let conn = loop {
            io.turn(None, &mut out)?;
            if let Some(Completion::Accepted(accepted)) = out.pop() {
                break accepted.conn;
            }
        };
        let (mut took, mut held) = (Vec::new(), Vec::new());
        let (mut chance, mut buf) = (1u64, vec![0; self.size]);
        for _ in 0..self.rounds {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (chance >> 33) % self.places * self.size as u64;
            let bytes = self.read(&mut io, conn, offset, buf, &mut took, &mut held)?;
            buf = bytes;
        }
        Ok((took, held))
    }

    fn read<I: Io>(
        &self,
        io: &mut I,
        conn: ConnId,
        offset: u64,
        buf: Vec<u8>,
        took: &mut Vec<u64>,
        held: &mut Vec<u64>,
    ) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut out = Vec::new();
        let begun = Instant::now();
        io.read(ReadToken { conn, tag: 0 }, &self.file, offset, self.size, buf);
        let mut longest = nanos(begun);
        loop {
            let call = Instant::now();
            io.turn(Some(0), &mut out)?;
            longest = longest.max(nanos(call));
            if let Some(Completion::Read { outcome, .. }) = out.pop() {
                took.push(nanos(begun));
                held.push(longest);
                return Ok(outcome?);
            }
        }
    }
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
