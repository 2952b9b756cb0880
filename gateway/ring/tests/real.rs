//! What only real sockets can show: IPv6, several listeners, shared ports, hundreds of connections from other threads,
//! wake-ups that race with falling asleep, and a process without descriptors.
//!
//! Nothing here depends on how long something takes. Where io_uring is forbidden its part is skipped aloud.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a child reports; what is skipped is said aloud"
)]

mod support;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use support::{
    Bench, World, options, pattern,
    worlds::{self, Real},
};
use zerohop_ring::{
    AnyIo, Backend, Choice, Completion, ConnId, Epoll, Io, Level, Options, ReadFile, ReadToken, RecvEnd, Uring, Wake,
    listen, probe,
};

/// How long a failing test lasts; nothing else depends on it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The makers that this machine has.
fn choices() -> Vec<Choice> {
    let mut choices = vec![probe(Backend::Epoll).expect("epoll")];
    match probe(Backend::Uring) {
        Ok(choice) => choices.push(choice),
        Err(error) => eprintln!("skipped, no io_uring here: {error}"),
    }
    choices
}

fn v6<W: World>(world: W) {
    let mut bench = Bench::new(world);
    let (client, conn) = bench.receiving();
    assert!(bench.accepted[0].peer.is_ipv6());
    assert_eq!(bench.accepted[0].peer, bench.world.address(client));
    bench.write_all(client, b"six");
    bench.until("bytes", |bench| bench.count_received(conn) == 3);
}

#[test]
fn ipv6_peers_are_told() {
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if listen(address, false, 1).is_err() {
        return eprintln!("skipped, no IPv6 here");
    }
    for choice in choices() {
        match choice {
            Choice::Uring(level) => v6(Real::at(address, options(), |options| Uring::new(options, level))),
            Choice::Epoll { .. } => v6(Real::at(address, options(), Epoll::new)),
        }
    }
}

#[test]
fn a_port_is_shared_only_when_asked() {
    let first = listen((Ipv4Addr::LOCALHOST, 0).into(), true, 16).expect("a listener");
    let address = first.local_addr().expect("its address");
    listen(address, true, 16).expect("a second listener on the same port");
    let error = listen(address, false, 16).expect_err("a port in use");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    if listen((Ipv6Addr::UNSPECIFIED, 0).into(), false, 1).is_ok() {
        let any = listen((Ipv6Addr::UNSPECIFIED, 0).into(), false, 16).expect("a listener on [::]");
        let port = any.local_addr().expect("its address").port();
        listen((Ipv4Addr::UNSPECIFIED, port).into(), false, 16).expect("0.0.0.0 beside [::]");
    }
}

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

/// What is in the page cache the worker on epoll takes itself; for what is not it has a thread, which ends with it.
#[test]
fn only_cold_reads_have_a_thread() {
    const HELPER: &str = "zerohop-files";
    let has_helper = || threads().iter().any(|name| name == HELPER);
    let mut bench = Bench::new(worlds::epoll(options()));
    let (_, conn) = bench.connection();
    let warm = std::fs::read(std::env::current_exe().expect("this test")).expect("its bytes");
    let executable = std::fs::File::open("/proc/self/exe").expect("this test");
    let executable = Arc::new(ReadFile::new(executable).expect("a regular file"));
    let whole = |bench: &mut Bench<Real<Epoll>>, file: &Arc<ReadFile>, len| {
        bench.io().read(ReadToken { conn, tag: 0 }, file, 0, len, Vec::new());
        bench.until("the answer", |bench| !bench.read.is_empty());
        bench.read.pop().expect("one").1.expect("bytes")
    };
    assert!(whole(&mut bench, &executable, 4096) == warm[..4096]);
    let without = !has_helper();
    let cold = bench.world.file(pattern(100_000));
    assert!(whole(&mut bench, &cold, 100_000) == pattern(100_000));
    if !without {
        return eprintln!("skipped, this file system cannot tell what it has in memory, so a thread reads all");
    }
    assert!(has_helper(), "the worker has waited for a disk");
    bench.world.drop_io();
    let patience = Instant::now() + PATIENCE;
    while has_helper() {
        assert!(Instant::now() < patience, "the thread outlives its worker");
        std::thread::yield_now();
    }
}

/// A worker that sends back what comes until it is told to stop; it answers how much it received.
struct Echo<I> {
    io: I,
    conns: HashMap<ConnId, (bool, Vec<u8>)>,
    stop: Arc<AtomicBool>,
    stopped: bool,
}

impl<I: Io> Echo<I> {
    fn new(io: I, stop: Arc<AtomicBool>) -> Self {
        Self {
            io,
            conns: HashMap::new(),
            stop,
            stopped: false,
        }
    }

    fn run(mut self) -> u64 {
        self.io.start_accept();
        let mut out = Vec::new();
        while !self.stopped || !self.conns.is_empty() {
            self.io.turn(None, &mut out).expect("a turn");
            for completion in out.drain(..) {
                self.handle(completion);
            }
        }
        self.io.stats().bytes_received
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted(accepted) => {
                self.conns.insert(accepted.conn, (false, Vec::new()));
                self.io.recv(accepted.conn);
            }
            Completion::Received { conn, buf } => {
                let bytes = self.io.bytes(&buf).to_vec();
                self.io.give_back(buf);
                self.conns.get_mut(&conn).expect("open").1.extend(bytes);
                self.send(conn);
            }
            Completion::Sent { conn, result, .. } => {
                self.conns.get_mut(&conn).expect("open").0 = false;
                match result {
                    Ok(_) => self.send(conn),
                    Err(_) => self.io.close(conn, true),
                }
            }
            Completion::RecvEnded {
                conn,
                end: RecvEnd::Eof,
            } => self.io.close(conn, false),
            Completion::RecvEnded {
                conn,
                end: RecvEnd::Failed(_),
            } => self.io.close(conn, true),
            Completion::Closed { conn } => drop(self.conns.remove(&conn)),
            Completion::Woken if self.stop.load(Ordering::Acquire) => {
                self.io.stop_accept();
                self.stopped = true;
            }
            _ => {}
        }
    }

    fn send(&mut self, conn: ConnId) {
        let (sending, bytes) = self.conns.get_mut(&conn).expect("open");
        if !*sending && !bytes.is_empty() {
            *sending = true;
            let bytes = std::mem::take(bytes);
            self.io.send(conn, bytes);
        }
    }
}

/// A client that fails rather than waits for ever.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

/// Sends patterns over many connections at once and checks what comes back; every third connection is replaced each
/// round, in turns finished, dropped, or dropped with unread bytes. Answers the bytes that surely arrived.
fn call(address: SocketAddr, connections: usize, rounds: usize) -> u64 {
    let connect = || connect(address);
    let mut streams: Vec<_> = (0..connections).map(|_| connect()).collect();
    let mut sure = 0;
    for round in 0..rounds {
        let length = |number: usize| 1 + (number * 7919 + round * 104_729) % 9000;
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&pattern(length(number))).expect("a write");
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let mut bytes = vec![0; length(number)];
            stream.read_exact(&mut bytes).expect("the echo");
            assert!(bytes == pattern(length(number)));
            sure += bytes.len() as u64;
            match (number + round) % 9 {
                0 => {
                    stream.shutdown(Shutdown::Write).expect("a shutdown");
                    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
                    *stream = connect();
                }
                3 => *stream = connect(),
                6 => {
                    stream.write_all(b"never read").expect("a write");
                    *stream = connect();
                }
                _ => {}
            }
        }
    }
    sure
}

#[test]
fn hundreds_of_connections() {
    for choice in choices() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 4096).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let (waker_to, waker_from) = std::sync::mpsc::channel::<Arc<dyn Wake>>();
        let stopping = stop.clone();
        // Fewer buffers than connections, so that they run out under load.
        let options = Options {
            listeners: vec![listener],
            max_connections: 2000,
            recv_buffers: 64,
            ..options()
        };
        let server = std::thread::spawn(move || match choice.open(options).expect("a maker") {
            AnyIo::Uring(io) => {
                waker_to.send(io.waker()).expect("the test");
                Echo::new(io, stopping).run()
            }
            AnyIo::Epoll(io) => {
                waker_to.send(io.waker()).expect("the test");
                Echo::new(io, stopping).run()
            }
        });
        let callers: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(move || call(address, 100, 12)))
            .collect();
        let sure: u64 = callers.into_iter().map(|caller| caller.join().expect("a caller")).sum();
        stop.store(true, Ordering::Release);
        waker_from.recv().expect("the waker").wake();
        let received = server.join().expect("the server");
        assert!(received >= sure, "{received} {sure}");
    }
}

/// More submissions in one turn than the queue has room for.
#[test]
fn more_operations_than_the_queue_holds() {
    let wide = || Options {
        max_connections: 1500,
        ..options()
    };
    flood(worlds::epoll(wide()));
    for level in Level::ALL {
        if Uring::new(options(), level).is_ok() {
            flood(worlds::uring(level)(wide()));
        }
    }
}

fn flood<W: World>(world: W) {
    const COUNT: usize = 700;
    let mut bench = Bench::new(world);
    let mut clients = Vec::new();
    while clients.len() < COUNT {
        // Fewer at a time than the listener's queue.
        clients.extend((0..100).map(|_| bench.world.connect()));
        bench.until("connections", |bench| bench.accepted.len() == clients.len());
    }
    let conns: Vec<_> = bench.accepted.iter().map(|accepted| accepted.conn).collect();
    for conn in &conns {
        bench.io().recv(*conn);
        bench.io().send(*conn, b"hello".to_vec());
        bench.io().pause_recv(*conn);
    }
    bench.until("all sent, all paused", |bench| {
        bench.sent.len() == COUNT && bench.ended.len() == COUNT
    });
    for client in &clients {
        assert_eq!(bench.read_exactly(*client, 5, 100), b"hello");
    }
    for conn in &conns {
        bench.io().recv(*conn);
        bench.close(*conn, false);
    }
    bench.until("all closed", |bench| bench.closed.len() == COUNT);
}

/// One thread posts numbers and wakes, the worker answers each; a lost wake-up would end it.
#[test]
fn no_wake_up_is_lost() {
    const ROUNDS: u64 = 20_000;
    for choice in choices() {
        let (posted, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (waker_to, waker_from) = std::sync::mpsc::channel::<Arc<dyn Wake>>();
        let (post, see) = (posted.clone(), seen.clone());
        let worker = std::thread::spawn(move || match choice.open(options()).expect("a maker") {
            AnyIo::Uring(io) => answer(io, &waker_to, &post, &see, ROUNDS),
            AnyIo::Epoll(io) => answer(io, &waker_to, &post, &see, ROUNDS),
        });
        let waker = waker_from.recv().expect("the waker");
        for round in 1..=ROUNDS {
            posted.store(round, Ordering::Relaxed);
            waker.wake();
            while seen.load(Ordering::Acquire) < round && !worker.is_finished() {
                if round % 3 == 0 {
                    std::thread::yield_now();
                }
            }
        }
        worker.join().expect("the worker");
    }
}

fn answer<I: Io>(
    mut io: I,
    waker_to: &std::sync::mpsc::Sender<Arc<dyn Wake>>,
    posted: &AtomicU64,
    seen: &AtomicU64,
    rounds: u64,
) {
    waker_to.send(io.waker()).expect("the test");
    let mut out = Vec::new();
    while seen.load(Ordering::Relaxed) < rounds {
        let deadline = io.now() + 30_000_000_000;
        io.turn(Some(deadline), &mut out).expect("a turn");
        assert!(matches!(out.pop(), Some(Completion::Woken)), "a wake-up was lost");
        seen.store(posted.load(Ordering::Relaxed), Ordering::Release);
    }
}

const CHILD: &str = "ZEROHOP_RING_TEST_CHILD";
/// What the child says when its descriptors are used up and it was seen to rest.
const CHECKED: &str = "out of descriptors, at rest";

/// A process that may open few descriptors accepts what it can, rests, and goes on when connections close. The maker runs
/// in a child, since the limit is the whole process's.
#[test]
fn without_descriptors_clients_wait() {
    for backend in ["epoll", "uring"] {
        if backend == "uring" && probe(Backend::Uring).is_err() {
            continue;
        }
        let me = std::env::current_exe().expect("this test");
        let command = "ulimit -n 40 && exec \"$0\" --exact child_with_few_descriptors --nocapture --include-ignored";
        let mut child = Command::new("sh")
            .args(["-c", command])
            .arg(me)
            .env(CHILD, backend)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let address: SocketAddr = lines
            .find_map(|line| {
                line.expect("a line")
                    .strip_prefix("address ")
                    .map(|address| address.parse().expect("it"))
            })
            .expect("an address");
        // More clients than descriptors: the first get their echo, the last only when the first have gone.
        let mut waiting: Vec<_> = (0..100).map(|_| connect(address)).collect();
        for stream in &mut waiting {
            stream.write_all(b"ping").expect("a write");
        }
        child
            .stdin
            .as_mut()
            .expect("its input")
            .write_all(b"all are waiting\n")
            .expect("a line");
        // Nobody leaves before the child has looked at what a shortage costs it.
        let checked = lines.any(|line| line.expect("a line") == CHECKED);
        assert!(checked, "{backend}: see the child's words above");
        for mut stream in waiting {
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).expect("the echo");
            assert_eq!(&bytes, b"ping");
        }
        drop(child.stdin.take());
        assert!(
            child.wait().expect("its end").success(),
            "{backend}: see the child's words above"
        );
    }
}

/// The child of the test above; on its own it does nothing.
#[test]
fn child_with_few_descriptors() {
    let Ok(backend) = std::env::var(CHILD) else { return };
    let backend = if backend == "uring" {
        Backend::Uring
    } else {
        Backend::Epoll
    };
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 1024).expect("a listener");
    println!("address {}", listener.local_addr().expect("its address"));
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("the word that all clients are waiting");
    let options = Options {
        listeners: vec![listener],
        ..options()
    };
    let stop = Arc::new(AtomicBool::new(false));
    match probe(backend).expect("a choice").open(options).expect("a maker") {
        AnyIo::Uring(io) => serve_until_told(io, stop),
        AnyIo::Epoll(io) => serve_until_told(io, stop),
    }
}

fn serve_until_told<I: Io>(io: I, stop: Arc<AtomicBool>) {
    let mut echo = Echo::new(io, stop.clone());
    echo.io.start_accept();
    let mut out = Vec::new();
    // The first echoes, until nothing comes any more: the descriptors are used up and the rest waits.
    let mut quiet = 0;
    while quiet < 3 {
        let deadline = echo.io.now() + 2_000_000;
        echo.io.turn(Some(deadline), &mut out).expect("a turn");
        quiet = if out.is_empty() { quiet + 1 } else { 0 };
        out.drain(..).for_each(|completion| echo.handle(completion));
    }
    assert!(
        !echo.conns.is_empty() && echo.conns.len() < 40,
        "{} connections",
        echo.conns.len()
    );
    let before = echo.io.stats().syscalls;
    for _ in 0..10 {
        let deadline = echo.io.now() + 2_000_000;
        echo.io.turn(Some(deadline), &mut out).expect("a turn");
        out.drain(..).for_each(|completion| echo.handle(completion));
    }
    // Ten waits; one of them may end the rest and try again.
    let spent = echo.io.stats().syscalls - before;
    assert!(spent < 60, "{spent} system calls while there is nothing to do");
    println!("{CHECKED}");
    let waker = echo.io.waker();
    std::thread::spawn(move || {
        // The end of the parent's pipe is the signal to stop.
        let _ = std::io::stdin().read(&mut [0]);
        stop.store(true, Ordering::Release);
        waker.wake();
    });
    while !echo.stopped || !echo.conns.is_empty() {
        echo.io.turn(None, &mut out).expect("a turn");
        out.drain(..).for_each(|completion| echo.handle(completion));
    }
}
