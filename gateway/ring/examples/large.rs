//! Large replies by each way a send can take, and a client that asks for them: the makers' own cost of a reply, to find
//! the size from which avoiding the copy pays.
//!
//! It speaks no HTTP: a request is eight bytes, the length of the reply's body. Arguments: `--role server` with
//! `--addr HOST:PORT`, `--core N` and `--way copy|vector|registered|unregistered`; or `--role client` with `--addr`,
//! `--core`, `--connections N`, `--bytes N` and `--milliseconds N`, which prints how many replies came in how many
//! nanoseconds.

use std::{
    collections::HashMap,
    error::Error,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use zerohop_ring::{
    AnyIo, Arena, ArenaOptions, Backend, Completion, ConnId, Io, Options, Parcel, Piece, RecvEnd, ZeroCopy, listen,
    pin_to_core, probe,
};

/// Bytes of a reply before its body, as an HTTP head has about.
const HEAD: usize = 200;

/// How a reply leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Head and body are copied into one buffer.
    Copy,
    /// A plain send of two buffers.
    Vector,
    /// A zero-copy send from registered memory.
    Registered,
    /// A zero-copy send from memory that is not registered.
    Unregistered,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let arguments: HashMap<&str, &str> = words.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    let argument = |name: &str, default| arguments.get(name).copied().unwrap_or(default);
    pin_to_core(argument("--core", "0").parse()?)?;
    let address: SocketAddr = argument("--addr", "127.0.0.1:9002").parse()?;
    if argument("--role", "server") == "client" {
        let connections = argument("--connections", "8").parse()?;
        let bytes = argument("--bytes", "65536").parse()?;
        let time = Duration::from_millis(argument("--milliseconds", "500").parse()?);
        return ask(address, connections, bytes, time);
    }
    let way = match argument("--way", "copy") {
        "copy" => Way::Copy,
        "vector" => Way::Vector,
        "registered" => Way::Registered,
        "unregistered" => Way::Unregistered,
        other => return Err(format!("no way {other}").into()),
    };
    let zero_copy = match way {
        Way::Copy | Way::Vector => ZeroCopy::Off,
        Way::Registered | Way::Unregistered => ZeroCopy::Always,
    };
    let options = Options {
        listeners: vec![listen(address, false, 1024)?],
        zero_copy,
        ..Options::default()
    };
    match probe(Backend::Uring)?.open(options)? {
        AnyIo::Uring(io) => Server::new(io, way)?.serve()?,
        AnyIo::Epoll(_) => return Err("epoll has one way only".into()),
    }
    Ok(())
}

/// A connection's request so far, and whether a reply is on its way.
#[derive(Default)]
struct Conn {
    asked: Vec<u8>,
    sending: bool,
}

struct Server<I> {
    io: I,
    way: Way,
    arena: Arena,
    /// The only arena that a ring registers is the first it sends from: this one, where nothing is to be registered.
    decoy: Option<Piece>,
    bodies: HashMap<usize, Piece>,
    conns: HashMap<ConnId, Conn>,
    spare: Vec<Vec<u8>>,
}

impl<I: Io> Server<I> {
    fn new(io: I, way: Way) -> io::Result<Self> {
        let arena = |size| {
            Arena::new(ArenaOptions {
                size,
                alignment: 64,
                poison: false,
            })
        };
        let decoy = match way {
            Way::Unregistered => arena(1)?.store(&[&[0; HEAD]]),
            _ => None,
        };
        Ok(Self {
            io,
            way,
            arena: arena(64 << 20)?,
            decoy,
            bodies: HashMap::new(),
            conns: HashMap::new(),
            spare: Vec::new(),
        })
    }

    fn serve(mut self) -> io::Result<()> {
        self.io.start_accept();
        let mut completions = Vec::new();
        loop {
            self.io.turn(None, &mut completions)?;
            for completion in completions.drain(..) {
                self.handle(completion);
            }
        }
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted(accepted) => {
                self.conns.insert(accepted.conn, Conn::default());
                self.io.recv(accepted.conn);
            }
            Completion::Received { conn, buf } => {
                if let Some(state) = self.conns.get_mut(&conn) {
                    state.asked.extend_from_slice(self.io.bytes(&buf));
                }
                self.io.give_back(buf);
                self.answer(conn);
            }
            Completion::Sent { conn, buf, result } => {
                self.spare.push(buf);
                if let Some(state) = self.conns.get_mut(&conn) {
                    state.sending = false;
                }
                match result {
                    Ok(_) => self.answer(conn),
                    Err(_) => self.io.close(conn, true),
                }
            }
            Completion::RecvEnded { conn, end } if !matches!(end, RecvEnd::Paused) => self.io.close(conn, false),
            Completion::Closed { conn } => {
                self.conns.remove(&conn);
            }
            _ => {}
        }
    }

    fn answer(&mut self, conn: ConnId) {
        let Some(state) = self.conns.get_mut(&conn).filter(|state| !state.sending) else {
            return;
        };
        let Some((request, rest)) = state.asked.split_first_chunk::<8>() else {
            return;
        };
        let size = u64::from_le_bytes(*request) as usize;
        state.asked = rest.to_vec();
        state.sending = true;
        let parcel = self.parcel(size);
        self.io.send(conn, parcel);
    }

    fn parcel(&mut self, size: usize) -> Parcel {
        let mut head = self.spare.pop().unwrap_or_default();
        head.clear();
        head.resize(HEAD, b'h');
        if let Some(decoy) = self.decoy.take() {
            // The first send of all: a head that is as long as the whole body, and the decoy in the place of a head.
            head.resize(size, b'h');
            return Parcel {
                head,
                body: Some(decoy),
                foot: Vec::new(),
            };
        }
        let body = self.bodies.entry(size).or_insert_with(|| {
            self.arena
                .store(&[&vec![b'b'; size]])
                .expect("the arena holds a body of each size")
        });
        match self.way {
            Way::Copy => {
                head.extend_from_slice(body);
                head.into()
            }
            Way::Vector | Way::Registered | Way::Unregistered => Parcel {
                head,
                body: Some(body.clone()),
                foot: Vec::new(),
            },
        }
    }
}

#[expect(clippy::print_stdout, reason = "a tool for the terminal")]
fn ask(address: SocketAddr, connections: usize, bytes: u64, time: Duration) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let replies: io::Result<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|_| scope.spawn(move || ask_on(address, bytes, begun + time)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client"))
            .collect()
    });
    println!("{} {}", replies?.iter().sum::<u64>(), begun.elapsed().as_nanos());
    Ok(())
}

fn ask_on(address: SocketAddr, bytes: u64, until: Instant) -> io::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 256 << 10];
    let mut replies = 0;
    while Instant::now() < until {
        stream.write_all(&bytes.to_le_bytes())?;
        let mut left = bytes as usize + HEAD;
        while left > 0 {
            let room = left.min(buffer.len());
            match stream.read(&mut buffer[..room])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => left -= count,
            }
        }
        replies += 1;
    }
    Ok(replies)
}
