//! A server that answers every HTTP/1.1 request without a body with the same 600 bytes: the makers' own speed, to be
//! measured with wrk against nginx's `return 200`.
//!
//! It is no web server: a request is whatever ends with an empty line. Arguments: `--maker uring|epoll`,
//! `--addr HOST:PORT`, `--core N`, `--spin MICROSECONDS`, `--stats SECONDS` (prints the counters that often).

use std::{collections::HashMap, error::Error, io, net::SocketAddr, time::Duration};

use zerohop_ring::{AnyIo, Backend, Completion, ConnId, Io, Options, RecvEnd, listen, pin_to_core, probe};

const BODY: usize = 600;

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
    let backend = match argument("--maker", "uring").as_str() {
        "epoll" => Backend::Epoll,
        _ => Backend::Uring,
    };
    pin_to_core(argument("--core", "0").parse()?)?;
    let address: SocketAddr = argument("--addr", "127.0.0.1:9001").parse()?;
    let spin = Duration::from_micros(argument("--spin", "20").parse()?);
    let options = Options {
        listeners: vec![listen(address, true, 4096)?],
        spin,
        ..Options::default()
    };
    let choice = probe(backend)?;
    println!("{choice}");
    let every = argument("--stats", "")
        .parse()
        .ok()
        .map(|seconds: u64| seconds * 1_000_000_000);
    match choice.open(options)? {
        AnyIo::Uring(io) => serve(io, every)?,
        AnyIo::Epoll(io) => serve(io, every)?,
    }
    Ok(())
}

fn reply() -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {BODY}\r\n\r\n");
    let mut reply = head.into_bytes();
    reply.resize(reply.len() + BODY, b'x');
    reply
}

/// A connection's requests that were not answered.
#[derive(Default)]
struct Conn {
    open: bool,
    sending: bool,
    owed: usize,
    /// How much of an empty line the bytes so far end with.
    matched: usize,
}

impl Conn {
    /// Counts the empty lines that end in these bytes.
    fn take(&mut self, bytes: &[u8]) {
        const END: &[u8; 4] = b"\r\n\r\n";
        for byte in bytes {
            self.matched = match (*byte, self.matched) {
                (byte, matched) if byte == END[matched] => matched + 1,
                (b'\r', _) => 1,
                _ => 0,
            };
            if self.matched == END.len() {
                self.matched = 0;
                self.owed += 1;
            }
        }
    }
}

struct Server<I> {
    io: I,
    conns: Vec<Conn>,
    reply: Vec<u8>,
    spare: Vec<Vec<u8>>,
    replies: u64,
}

#[expect(clippy::print_stdout, reason = "a tool for the terminal")]
fn serve<I: Io>(io: I, every: Option<u64>) -> io::Result<()> {
    let mut server = Server {
        io,
        conns: Vec::new(),
        reply: reply(),
        spare: Vec::new(),
        replies: 0,
    };
    server.io.start_accept();
    let mut completions = Vec::new();
    let mut deadline = every;
    loop {
        server.io.turn(deadline, &mut completions)?;
        if deadline.is_some_and(|deadline| deadline <= server.io.now()) {
            println!("{} requests, {:?}", server.replies, server.io.stats());
            deadline = every.map(|every| server.io.now() + every);
        }
        for completion in completions.drain(..) {
            server.handle(completion)?;
        }
    }
}

impl<I: Io> Server<I> {
    fn handle(&mut self, completion: Completion) -> io::Result<()> {
        match completion {
            Completion::Accepted(accepted) => {
                let slot = accepted.conn.slot as usize;
                if slot >= self.conns.len() {
                    self.conns.resize_with(slot + 1, Conn::default);
                }
                self.conns[slot] = Conn {
                    open: true,
                    ..Conn::default()
                };
                self.io.recv(accepted.conn);
            }
            Completion::Received { conn, buf } => {
                self.conns[conn.slot as usize].take(self.io.bytes(&buf));
                self.io.give_back(buf);
                self.answer(conn);
            }
            Completion::Sent { conn, buf, result } => {
                self.spare.push(buf);
                self.conns[conn.slot as usize].sending = false;
                if result.is_err() {
                    self.close(conn);
                }
                self.answer(conn);
            }
            Completion::RecvEnded { conn, end } if !matches!(end, RecvEnd::Paused) => self.close(conn),
            Completion::AcceptEnded { error: Some(error), .. } => return Err(error),
            _ => {}
        }
        Ok(())
    }

    fn answer(&mut self, conn: ConnId) {
        let state = &mut self.conns[conn.slot as usize];
        if state.open && !state.sending && state.owed > 0 {
            state.owed -= 1;
            self.replies += 1;
            state.sending = true;
            let mut buf = self.spare.pop().unwrap_or_default();
            buf.clear();
            buf.extend_from_slice(&self.reply);
            self.io.send(conn, buf);
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.conns[conn.slot as usize].open = false;
        self.io.close(conn, false);
    }
}
