//! The three worlds: io_uring and epoll with loopback sockets, and the simulation.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use zerohop_ring::{
    Arena, ArenaOptions, Epoll, Io, Level, ListenerId, Options, ReadFile, Uring, ZeroCopy, listen,
    sim::{Contents, Faults, Net, Sim, WireId, WireState},
};

use super::{Client, Seen, World};

struct Socket {
    stream: TcpStream,
    seen: Seen,
}

/// A maker for real sockets, listening on a free loopback port.
pub(crate) struct Real<I> {
    io: Option<I>,
    address: SocketAddr,
    clients: Vec<Option<Socket>>,
    zero_copy: bool,
}

impl<I: Io> Real<I> {
    pub(crate) fn new(options: Options, make: impl FnOnce(Options) -> io::Result<I>) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), options, make)
    }

    pub(crate) fn at(address: SocketAddr, options: Options, make: impl FnOnce(Options) -> io::Result<I>) -> Self {
        let listener = listen(address, false, 1024).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let options = Options {
            listeners: vec![listener],
            ..options
        };
        let zero_copy = options.zero_copy == ZeroCopy::Always;
        Self {
            io: Some(make(options).expect("a maker")),
            address,
            clients: Vec::new(),
            zero_copy,
        }
    }

    fn socket(&mut self, client: Client) -> &mut Socket {
        self.clients[client.0].as_mut().expect("a client that has not reset")
    }
}

/// A world on io_uring, at a level, where every send is plain.
pub(crate) fn uring(level: Level) -> impl Fn(Options) -> Real<Uring> {
    with(level, ZeroCopy::Off)
}

/// A world on io_uring where every send avoids the copy, from registered memory, which shows when it is read too late.
pub(crate) fn zero_copy(level: Level) -> impl Fn(Options) -> Real<Uring> {
    with(level, ZeroCopy::Always)
}

/// A world on io_uring where these sends avoid the copy.
pub(crate) fn with(level: Level, zero_copy: ZeroCopy) -> impl Fn(Options) -> Real<Uring> {
    move |options| {
        let options = Options {
            zero_copy,
            arena: Some(poisoned_arena()),
            ..options
        };
        Real::new(options, |options| Uring::new(options, level))
    }
}

/// An arena of a few regions in which a dropped piece is overwritten.
pub(crate) fn poisoned_arena() -> Arena {
    Arena::new(ArenaOptions {
        size: 32 << 20,
        alignment: 64,
        poison: true,
    })
    .expect("an arena")
}

/// A world on epoll.
pub(crate) fn epoll(options: Options) -> Real<Epoll> {
    Real::new(options, Epoll::new)
}

impl<I: Io> World for Real<I> {
    type Io = I;
    const BIG: usize = 24 << 20;
    const CONNECTS_TRAVEL: bool = false;

    fn io(&mut self) -> &mut I {
        self.io.as_mut().expect("not dropped")
    }

    fn may_keep_heads(&self) -> bool {
        self.zero_copy
    }

    fn try_connect(&mut self) -> Option<Client> {
        let stream = TcpStream::connect(self.address).ok()?;
        stream.set_nonblocking(true).expect("non-blocking");
        stream.set_nodelay(true).expect("no delay");
        self.clients.push(Some(Socket {
            stream,
            seen: Seen::Open,
        }));
        Some(Client(self.clients.len() - 1))
    }

    fn address(&self, client: Client) -> SocketAddr {
        self.clients[client.0]
            .as_ref()
            .expect("a client")
            .stream
            .local_addr()
            .expect("its address")
    }

    fn write(&mut self, client: Client, bytes: &[u8]) -> usize {
        self.socket(client).stream.write(bytes).unwrap_or(0)
    }

    fn read(&mut self, client: Client, most: usize) -> Vec<u8> {
        let socket = self.socket(client);
        let mut bytes = vec![0; most];
        let count = match socket.stream.read(&mut bytes) {
            Ok(0) if most > 0 && socket.seen == Seen::Open => {
                socket.seen = Seen::Eof;
                0
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                socket.seen = Seen::Reset;
                0
            }
        };
        bytes.truncate(count);
        bytes
    }

    fn seen(&mut self, client: Client) -> Seen {
        let socket = self.socket(client);
        if socket.seen == Seen::Reset {
            // The kernel tells of a reset once; after that it looks like an end.
            return Seen::Reset;
        }
        match socket.stream.peek(&mut [0]) {
            Ok(0) => socket.seen = Seen::Eof,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => socket.seen = Seen::Reset,
            _ => {}
        }
        socket.seen
    }

    fn finish(&mut self, client: Client) {
        self.socket(client)
            .stream
            .shutdown(Shutdown::Write)
            .expect("a shutdown");
    }

    /// A close with unread bytes is a reset, which needs no option that std lacks: the worker first sends some.
    fn reset(&mut self, client: Client) {
        let socket = self.clients[client.0].take().expect("a client");
        assert!(
            socket.stream.peek(&mut [0]).is_ok_and(|count| count > 0),
            "a reset needs unread bytes"
        );
        drop(socket);
    }

    fn has_unread(&mut self, client: Client) -> bool {
        self.socket(client).stream.peek(&mut [0]).is_ok_and(|count| count > 0)
    }

    /// Wakes when the kernel says that this thread sleeps.
    fn wake_later(&mut self) {
        let waker = self.io().waker();
        let me = fs::read_link("/proc/thread-self").expect("this thread");
        let state = Path::new("/proc").join(me).join("stat");
        std::thread::spawn(move || {
            // The state follows the name in brackets. A thread that has gone needs no waking.
            let sleeps = |line: String| line.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
            while fs::read_to_string(&state).is_ok_and(|line| !sleeps(line)) {
                std::thread::yield_now();
            }
            waker.wake();
        });
    }

    /// One that is not in the page cache, where the file system can do that, so that its first read has to wait.
    fn file(&mut self, bytes: Vec<u8>) -> Arc<ReadFile> {
        let (path, mut file) = scratch();
        file.write_all(&bytes).expect("room on the disk");
        file.sync_all().expect("a disk");
        let drop_cache = ["iflag=nocache", "count=0", "status=none"];
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", path.display())).args(drop_cache);
        assert!(dd.status().expect("dd").success());
        let file = File::open(&path).expect("the file just made");
        fs::remove_file(path).expect("the same");
        Arc::new(ReadFile::new(file).expect("a regular file"))
    }

    /// One that is open for writing only.
    fn broken_file(&mut self) -> Arc<ReadFile> {
        let (path, file) = scratch();
        fs::remove_file(path).expect("the file just made");
        Arc::new(ReadFile::new(file).expect("a regular file"))
    }

    fn foreign_file(&mut self) -> Arc<ReadFile> {
        Arc::new(ReadFile::simulated(vec![1; 10]))
    }

    fn drop_io(&mut self) {
        self.io = None;
    }
}

/// A new file, open for writing only.
fn scratch() -> (PathBuf, File) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("zerohop-ring-{}-{number}", process::id()));
    // Not there: a process of the same number may have died before it could remove its own.
    let _ = fs::remove_file(&path);
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a place for temporary files");
    (path, file)
}

/// A simulated file that fails.
struct Broken;

impl Contents for Broken {
    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The simulated world.
pub(crate) struct Simulated {
    io: Option<Sim>,
    pub(crate) net: Net,
    wires: Vec<WireId>,
}

/// A simulated world with these faults.
pub(crate) fn sim(seed: u64, faults: Faults) -> impl Fn(Options) -> Simulated {
    move |options| {
        let (io, net) = Sim::new(seed, faults.clone(), 1, options).expect("a simulation");
        Simulated {
            io: Some(io),
            net,
            wires: Vec::new(),
        }
    }
}

impl Simulated {
    pub(crate) fn wire(&self, client: Client) -> WireId {
        self.wires[client.0]
    }
}

impl World for Simulated {
    type Io = Sim;
    const BIG: usize = 1 << 20;
    const CONNECTS_TRAVEL: bool = true;

    fn io(&mut self) -> &mut Sim {
        self.io.as_mut().expect("not dropped")
    }

    /// Always some: a simulated connect is refused later, by a reset.
    fn try_connect(&mut self) -> Option<Client> {
        let wire = self.net.connect(ListenerId(0));
        self.wires.push(wire);
        Some(Client(self.wires.len() - 1))
    }

    fn address(&self, client: Client) -> SocketAddr {
        self.net.address(self.wire(client))
    }

    fn write(&mut self, client: Client, bytes: &[u8]) -> usize {
        self.net.write(self.wire(client), bytes)
    }

    fn read(&mut self, client: Client, most: usize) -> Vec<u8> {
        self.net.read(self.wire(client), most)
    }

    fn seen(&mut self, client: Client) -> Seen {
        match self.net.state(self.wire(client)) {
            WireState::Open => Seen::Open,
            WireState::Eof => Seen::Eof,
            WireState::Reset => Seen::Reset,
        }
    }

    fn finish(&mut self, client: Client) {
        self.net.finish(self.wire(client));
    }

    fn has_unread(&mut self, client: Client) -> bool {
        self.net.unread(self.wire(client)) > 0
    }

    fn reset(&mut self, client: Client) {
        self.net.reset(self.wire(client));
    }

    fn wake_later(&mut self) {
        let waker = self.io().waker();
        self.net.after(20_000_000, move |_| waker.wake());
    }

    fn file(&mut self, bytes: Vec<u8>) -> Arc<ReadFile> {
        Arc::new(ReadFile::simulated(bytes))
    }

    fn broken_file(&mut self) -> Arc<ReadFile> {
        Arc::new(ReadFile::simulated(Broken))
    }

    fn foreign_file(&mut self) -> Arc<ReadFile> {
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).expect("the manifest");
        Arc::new(ReadFile::new(file).expect("a regular file"))
    }

    fn drop_io(&mut self) {
        self.io = None;
    }
}
