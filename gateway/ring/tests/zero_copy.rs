//! What only zero-copy sends can get wrong: bytes read by the kernel after their memory was used again.
//!
//! Readers stall so that bytes wait in the kernel, others reset, and every dropped piece is overwritten at once, so a byte
//! that leaves too late is seen. Where io_uring is forbidden it is skipped aloud.
//!
//! `ZEROHOP_LONG=1` hashes 1,000,000 replies instead of 20,000.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the run reports what it saw; what is skipped is said aloud"
)]

mod support;

use std::{
    collections::{HashMap, VecDeque},
    io::Read,
    net::{IpAddr, Ipv4Addr, TcpStream, UdpSocket},
    os::unix::process::CommandExt,
    process::Command,
    time::{Duration, Instant},
};

use support::{
    Bench, World, options, pattern,
    worlds::{self, Real},
};
use zerohop_ring::{
    Arena, Backend, Choice, Completion, ConnId, Io, IoStats, Level, Options, Parcel, Uring, ZeroCopy, listen, probe,
};

/// How long a failing test lasts; nothing else depends on it.
const PATIENCE: Duration = Duration::from_secs(60);
/// A body that is worth avoiding the copy.
const LARGE: usize = 100_000;

/// The level of io_uring that serves here, or a word that there is none.
fn level() -> Option<Level> {
    match probe(Backend::Auto).expect("a choice") {
        Choice::Uring(level) => Some(level),
        Choice::Epoll { reason } => {
            eprintln!("skipped, no io_uring here: {reason}");
            None
        }
    }
}

/// Sends `count` large replies one after the other, each read and notified before the next.
fn one_by_one<W: World>(bench: &mut Bench<W>, arena: &Arena, count: usize) -> IoStats {
    let (client, conn) = bench.connection();
    for number in 0..count {
        let body = pattern(LARGE + number);
        bench.io().send(
            conn,
            Parcel {
                head: b"head".to_vec(),
                body: arena.store(&[&body]),
                foot: b"foot".to_vec(),
            },
        );
        let read = bench.read_exactly(client, body.len() + 8, 1 << 16);
        assert!(read == [b"head", &*body, b"foot"].concat());
        bench.until("sent and notified", |bench| {
            bench.sent.len() == number + 1 && bench.io().stats().held_sends == 0
        });
    }
    bench.io().stats()
}

/// An address of this machine that is not loopback's, though the way to it is the same: none on a machine without network.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: the kernel only chooses the address that it would send from.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// To an address of its own machine every notification says "copied": after three a connection sends plainly, and the next
/// one tries again.
#[test]
fn a_copying_network_is_noticed() {
    let Some(level) = level() else { return };
    let Some(address) = own_address() else {
        return eprintln!("skipped, this machine has no address but loopback's");
    };
    let world = Real::at((address, 0).into(), options(), |options| {
        let options = Options {
            zero_copy: ZeroCopy::From(LARGE),
            ..options
        };
        Uring::new(options, level)
    });
    let mut bench = Bench::new(world);
    let arena = worlds::poisoned_arena();
    let stats = one_by_one(&mut bench, &arena, 8);
    assert_eq!(
        (stats.zero_copy_sends, stats.copied_sends, stats.plain_sends),
        (3, 3, 5)
    );
    bench.sent.clear();
    let stats = one_by_one(&mut bench, &arena, 8);
    assert_eq!(
        (stats.zero_copy_sends, stats.copied_sends, stats.plain_sends),
        (6, 6, 10)
    );
}

/// A client on loopback is never sent to without a copy but where everybody is: the kernel would copy later, and a tiny
/// window made that so slow that a prompt reader got 10 KB/s.
#[test]
fn the_setting_decides() {
    let Some(level) = level() else { return };
    for (zero_copy, expected) in [(ZeroCopy::Off, 0), (ZeroCopy::From(LARGE), 0), (ZeroCopy::Always, 2)] {
        let mut bench = Bench::new(worlds::with(level, zero_copy)(options()));
        let stats = one_by_one(&mut bench, &worlds::poisoned_arena(), 2);
        assert_eq!(stats.zero_copy_sends, expected, "{zero_copy:?}");
        assert_eq!(stats.plain_sends, 2 - expected, "{zero_copy:?}");
    }
}

/// Once readers who stalled held 4,096 replies for the kernel, whatever the bound of memory was.
#[test]
fn what_stalled_readers_hold_is_bounded() {
    let Some(level) = level() else { return };
    let world = Real::at((Ipv4Addr::LOCALHOST, 0).into(), options(), |options| {
        let options = Options {
            zero_copy: ZeroCopy::Always,
            held_bytes: 3 * LARGE,
            ..options
        };
        Uring::new(options, level)
    });
    let mut bench = Bench::new(world);
    let body = pattern(LARGE);
    let pairs: Vec<_> = (0..20).map(|_| bench.connection()).collect();
    for round in 0..5 {
        for (_, conn) in &pairs {
            bench.io().send(*conn, body.clone());
        }
        bench.until("all sends to be answered", |bench| {
            bench.sent.len() == (round + 1) * pairs.len()
        });
        let stats = bench.io().stats();
        // What is under way in one round comes on top.
        assert!(stats.held_bytes <= ((3 + pairs.len()) * LARGE) as u64, "{stats:?}");
    }
    let stats = bench.io().stats();
    assert!(stats.zero_copy_sends > 0 && stats.plain_sends > 50, "{stats:?}");
    for (client, _) in &pairs {
        let read = bench.read_exactly(*client, 5 * LARGE, 1 << 16);
        assert!(read.chunks(LARGE).all(|reply| reply == body));
    }
    bench.until("the kernel to let go of all", |bench| {
        bench.io().stats().held_sends == 0
    });
    assert_eq!(bench.io().stats().held_bytes, 0);
}

/// What a child says when its replies arrived although no memory may be locked.
const UNLOCKED: &str = "replies arrived with";

/// Without the right to lock memory nothing can be registered, and a send must not be lost for that. The limit is a
/// process's, and root's processes have none, so a child without privileges looks.
#[test]
fn without_locked_memory_replies_still_leave() {
    if level().is_none() {
        return;
    }
    let me = std::env::current_exe().expect("this test");
    let script = "ulimit -l 0 && exec \"$0\" --exact child_without_locked_memory --nocapture";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&me).env("ZEROHOP_CHILD", "1");
    if std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
        const NOBODY: u32 = 65_534;
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped, cannot start a child without privileges: {error}"),
    };
    let told = String::from_utf8_lossy(&output.stdout);
    if !told.contains("running 1 test") {
        return eprintln!("skipped, the test cannot be run without privileges here");
    }
    assert!(output.status.success() && told.contains(UNLOCKED), "{told}");
}

/// The child of the test above; on its own it does nothing.
#[test]
fn child_without_locked_memory() {
    if std::env::var_os("ZEROHOP_CHILD").is_none() {
        return;
    }
    // Where a user without privileges may not have a ring at all there is nothing to see.
    if let Some(level) = level() {
        let mut bench = Bench::new(worlds::with(level, ZeroCopy::Always)(options()));
        let stats = one_by_one(&mut bench, &worlds::poisoned_arena(), 5);
        assert_eq!(stats.registered_sends, 0, "no memory may be locked: {stats:?}");
    }
    println!("{UNLOCKED} no locked memory");
}

/// What a reader does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temper {
    /// Reads what comes.
    Prompt,
    /// Reads only when so many replies were answered and wait in the kernel.
    Stalling(usize),
    /// Reads a little, then resets.
    Leaving,
}

/// A connection and what its reader is owed.
struct Reader {
    stream: TcpStream,
    conn: ConnId,
    temper: Temper,
    /// Replies under way: length and hash.
    owed: VecDeque<(usize, u64)>,
    /// Answered sends that were not read.
    answered: usize,
    sending: bool,
    hash: Hash,
    read: usize,
}

/// A 64-bit multiply-and-rotate hash over words: fast, and every byte counts.
#[derive(Clone, Copy)]
struct Hash {
    state: u64,
    word: u64,
    bytes: u32,
}

impl Hash {
    fn new() -> Self {
        Self {
            state: 0x9e37_79b9_7f4a_7c15,
            word: 0,
            bytes: 0,
        }
    }

    fn mix(&mut self, word: u64) {
        self.state = (self.state ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    fn add(&mut self, mut bytes: &[u8]) {
        while self.bytes != 0 || (!bytes.is_empty() && bytes.len() < 8) {
            let Some((first, rest)) = bytes.split_first() else {
                return;
            };
            self.word = self.word << 8 | u64::from(*first);
            self.bytes = (self.bytes + 1) % 8;
            if self.bytes == 0 {
                let word = std::mem::take(&mut self.word);
                self.mix(word);
            }
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_be_bytes(*word));
        }
        if !rest.is_empty() {
            self.add(rest);
        }
    }

    fn value(mut self) -> u64 {
        self.mix(self.word);
        self.state
    }
}

/// Many readers of one worker, and the bytes that they must get.
struct Storm {
    io: Uring,
    address: std::net::SocketAddr,
    arena: Arena,
    readers: HashMap<ConnId, Reader>,
    chance: u64,
    replies: u64,
    resets: u64,
    out: Vec<Completion>,
    buffer: Vec<u8>,
}

const READERS: usize = 24;

impl Storm {
    fn new(level: Level) -> Self {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 1024).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let arena = worlds::poisoned_arena();
        let options = Options {
            listeners: vec![listener],
            zero_copy: ZeroCopy::Always,
            arena: Some(arena.clone()),
            ..options()
        };
        let mut io = Uring::new(options, level).expect("a ring");
        io.start_accept();
        Self {
            io,
            address,
            arena,
            readers: HashMap::new(),
            chance: 1,
            replies: 0,
            resets: 0,
            out: Vec::new(),
            buffer: vec![0; 1 << 16],
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 33) as usize % bound
    }

    /// Runs until so many replies were read and found right.
    fn run(mut self, replies: u64) -> (IoStats, u64) {
        let (mut last, mut since) = (0, Instant::now());
        while self.replies < replies {
            if self.replies > last {
                (last, since) = (self.replies, Instant::now());
            }
            assert!(
                since.elapsed() < PATIENCE,
                "no reply for a long time: {:?}",
                self.io.stats()
            );
            self.turn();
        }
        let readers = std::mem::take(&mut self.readers);
        for (conn, reader) in readers {
            drop(reader.stream);
            self.io.close(conn, true);
        }
        while self.io.stats().held_sends > 0 {
            assert!(since.elapsed() < PATIENCE, "never notified: {:?}", self.io.stats());
            self.io
                .turn(Some(self.io.now() + 1_000_000), &mut self.out)
                .expect("a turn");
        }
        (self.io.stats(), self.resets)
    }

    fn turn(&mut self) {
        if self.readers.len() < READERS {
            self.welcome();
        }
        let idle: Vec<ConnId> = self
            .readers
            .values()
            .filter(|reader| !reader.sending)
            .map(|reader| reader.conn)
            .collect();
        for conn in idle {
            self.reply(conn);
        }
        self.io
            .turn(Some(self.io.now() + 100_000), &mut self.out)
            .expect("a turn");
        for completion in std::mem::take(&mut self.out) {
            if let Completion::Sent { conn, .. } = completion
                && let Some(reader) = self.readers.get_mut(&conn)
            {
                reader.sending = false;
                reader.answered += 1;
            }
        }
        let conns: Vec<ConnId> = self.readers.keys().copied().collect();
        for conn in conns {
            self.read(conn);
        }
    }

    /// A new reader connects; the worker's side of it is waited for.
    fn welcome(&mut self) {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_nonblocking(true).expect("non-blocking");
        let own = stream.local_addr().expect("its address");
        let since = Instant::now();
        let mut found = None;
        while found.is_none() {
            assert!(since.elapsed() < PATIENCE, "a connection is accepted");
            let before = self.out.len();
            self.io
                .turn(Some(self.io.now() + 1_000_000), &mut self.out)
                .expect("a turn");
            found = self.out[before..].iter().find_map(|completion| match completion {
                Completion::Accepted(accepted) if accepted.peer == own => Some(accepted.conn),
                _ => None,
            });
        }
        let temper = match self.below(10) {
            0..5 => Temper::Prompt,
            _ => Temper::Stalling(1 + self.below(6)),
        };
        let conn = found.expect("just found");
        self.readers.insert(
            conn,
            Reader {
                stream,
                conn,
                temper,
                owed: VecDeque::new(),
                answered: 0,
                sending: false,
                hash: Hash::new(),
                read: 0,
            },
        );
    }

    /// Stores a reply, sends it and lets go of it.
    fn reply(&mut self, conn: ConnId) {
        let (head, body, foot) = (self.below(300), 1 + self.below(120_000), self.below(100));
        let salt = self.chance;
        // No byte is the poison, so that a poisoned one is always wrong.
        let bytes: Vec<u8> = (0..head + body + foot)
            .map(|at| ((at as u64).wrapping_mul(31).wrapping_add(salt) % 127) as u8)
            .collect();
        let mut hash = Hash::new();
        hash.add(&bytes);
        let leaves = self.below(20) == 0;
        let Some(reader) = self.readers.get_mut(&conn) else {
            return;
        };
        if leaves {
            reader.temper = Temper::Leaving;
        }
        let Some(piece) = self.arena.store(&[&bytes[head..head + body]]) else {
            return;
        };
        let parcel = Parcel {
            head: bytes[..head].to_vec(),
            body: Some(piece),
            foot: bytes[head + body..].to_vec(),
        };
        reader.owed.push_back((bytes.len(), hash.value()));
        reader.sending = true;
        self.io.send(conn, parcel);
    }

    fn read(&mut self, conn: ConnId) {
        let Some(reader) = self.readers.get_mut(&conn) else {
            return;
        };
        if let Temper::Stalling(patience) = reader.temper
            && reader.answered < patience
            && reader.owed.len() < patience
        {
            return;
        }
        while let Ok(count) = reader.stream.read(&mut self.buffer) {
            assert!(count > 0, "the worker closes nothing");
            let mut bytes = &self.buffer[..count];
            while !bytes.is_empty() {
                let (length, hash) = *reader.owed.front().expect("nothing but what is owed");
                let (now, later) = bytes.split_at(bytes.len().min(length - reader.read));
                reader.hash.add(now);
                reader.read += now.len();
                bytes = later;
                if reader.read == length {
                    assert_eq!(reader.hash.value(), hash, "reply {} came damaged", self.replies);
                    reader.owed.pop_front();
                    (reader.hash, reader.read) = (Hash::new(), 0);
                    reader.answered = reader.answered.saturating_sub(1);
                    self.replies += 1;
                }
            }
            if reader.temper == Temper::Leaving {
                // With unread bytes on the way this is a reset.
                self.readers.remove(&conn);
                self.resets += 1;
                return self.io.close(conn, true);
            }
        }
    }
}

#[test]
fn no_byte_leaves_after_its_memory_was_used_again() {
    let Some(level) = level() else { return };
    let long = std::env::var("ZEROHOP_LONG").is_ok_and(|it| it == "1");
    let replies = if long { 1_000_000 } else { 20_000 };
    let (stats, resets) = Storm::new(level).run(replies);
    println!("{replies} replies hashed, {resets} readers reset, {stats:?}");
    assert!(stats.zero_copy_sends > replies / 2 && resets > 0);
    assert!(
        stats.registered_sends > 0 || stats.refused_sends > 0,
        "registered memory was tried: {stats:?}"
    );
    assert_eq!(stats.held_sends, 0);
}
