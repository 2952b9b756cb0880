//! A network namespace of our own, with a loopback interface and nothing else.
//!
//! A thread enters it for good, and what it starts is in it too. Invariant: the namespace is gone when its [`Net`] is.

use std::{
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use socket2::{Domain, SockAddr, Socket, Type};

/// `CAP_NET_ADMIN`, `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF`.
const CAPABILITIES: [u32; 4] = [12, 21, 38, 39];

/// Whether this process cannot load programs or make namespaces; then it is told aloud for the test of this name.
#[must_use]
pub fn lacks_bpf(test: &str) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or_default();
    let may = CAPABILITIES.iter().all(|bit| effective >> bit & 1 == 1);
    let lacks = !may || Command::new("ip").arg("-V").output().is_err();
    if lacks {
        crate::skip(test, "loading programs and making namespaces takes root and `ip`");
    }
    lacks
}

/// A namespace.
#[derive(Debug)]
pub struct Net {
    name: String,
}

impl Net {
    /// Makes one.
    ///
    /// # Panics
    /// If `ip` fails.
    #[must_use]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let net = Self {
            name: format!("zh{}e{number}", std::process::id()),
        };
        ip(&["netns", "add", &net.name]);
        ip(&["-n", &net.name, "link", "set", "lo", "up"]);
        net
    }

    /// Does this in the namespace.
    ///
    /// # Panics
    /// If it does, or if the namespace cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let done = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let path = format!("/run/netns/{}", self.name);
                let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap_or_else(|error| panic!("cannot enter {path}: {error}"));
                work()
            });
            thread.join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// What `ip` says of the loopback interface.
    #[must_use]
    pub fn link(&self) -> String {
        ip(&["-n", &self.name, "link", "show", "lo"])
    }
}

impl Default for Net {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        Command::new("ip").args(["netns", "del", &self.name]).output().ok();
    }
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("ip: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Keeps the calling thread on this core.
///
/// # Panics
/// If it may not run there.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap_or_else(|error| panic!("core {core}: {error}"));
}

/// Begins to connect from this address, without waiting.
///
/// # Panics
/// If there is no such address.
#[must_use]
pub fn begin(from: IpAddr, to: SocketAddr) -> Socket {
    let done = Socket::new(Domain::for_address(to), Type::STREAM, None).and_then(|socket| {
        socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
        socket.set_nonblocking(true)?;
        // In progress, which is an error here.
        let _ = socket.connect(&SockAddr::from(to));
        Ok(socket)
    });
    done.unwrap_or_else(|error| panic!("a socket from {from}: {error}"))
}
