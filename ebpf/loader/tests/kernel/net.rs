//! Two network namespaces with a cable between them, and sockets in them.
//!
//! A thread enters a namespace for good, so everything is done in threads of its own. Invariant: the namespaces are gone
//! when their [`Net`] is.

use std::{
    fs::{self, File},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use socket2::{Domain, SockAddr, Socket, Type};

/// The server's addresses, and an interface's name there.
pub(crate) const SERVER4: &str = "10.99.0.1";
pub(crate) const SERVER6: &str = "fd99::1";
pub(crate) const INTERFACE: &str = "va";

/// `CAP_NET_ADMIN`, `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF`.
const CAPABILITIES: [u32; 4] = [12, 21, 38, 39];

/// Why programs cannot be loaded here, told aloud; `None` if they can.
#[expect(clippy::print_stdout, reason = "the test runner reads it")]
pub(crate) fn lacks(test: &str) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or_default();
    let may = CAPABILITIES.iter().all(|bit| effective >> bit & 1 == 1);
    let has_ip = Command::new("ip").arg("-V").output().is_ok();
    if !may || !has_ip {
        println!("SKIPPED {test}: loading programs and making namespaces takes root and `ip`");
    }
    !may || !has_ip
}

/// Two namespaces.
pub(crate) struct Net {
    name: String,
}

impl Net {
    /// Makes them, with a cable of two queues.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let net = Self {
            name: format!("zh{}n{number}", std::process::id()),
        };
        let (server, client) = (net.server_name(), net.client_name());
        for command in [
            format!("netns add {server}"),
            format!("netns add {client}"),
            format!(
                "link add {INTERFACE} netns {server} numtxqueues 2 numrxqueues 2 type veth \
                 peer name vb netns {client} numtxqueues 2 numrxqueues 2"
            ),
            format!("-n {server} addr add {SERVER4}/16 dev {INTERFACE}"),
            format!("-n {server} addr add {SERVER6}/32 dev {INTERFACE} nodad"),
            format!("-n {client} addr add 10.99.0.2/16 dev vb"),
            format!("-n {client} addr add 10.99.1.2/16 dev vb"),
            format!("-n {client} addr add 10.99.2.2/16 dev vb"),
            format!("-n {client} addr add fd99::2/32 dev vb nodad"),
            format!("-n {client} addr add fd99:0:1::2/32 dev vb nodad"),
            format!("-n {server} link set lo up"),
            format!("-n {client} link set lo up"),
            format!("-n {server} link set {INTERFACE} up"),
            format!("-n {client} link set vb up"),
        ] {
            ip(&command);
        }
        net
    }

    fn server_name(&self) -> String {
        format!("{}s", self.name)
    }

    fn client_name(&self) -> String {
        format!("{}c", self.name)
    }

    /// Does this where the server is.
    pub(crate) fn server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.server_name(), work)
    }

    /// Does this where the clients are.
    pub(crate) fn client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.client_name(), work)
    }

    /// What `ip` says of the server's interface.
    pub(crate) fn link(&self) -> String {
        ip(&format!("-n {} link show {INTERFACE}", self.server_name()))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [self.server_name(), self.client_name()] {
            Command::new("ip").args(["netns", "del", &name]).output().ok();
        }
    }
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let done = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{name}")).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        thread.join()
    });
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Keeps the calling thread on this core.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// A listening socket that shares its address.
pub(crate) fn listen(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    if address.is_ipv6() {
        socket.set_only_v6(true).unwrap();
    }
    socket.bind(&SockAddr::from(address)).unwrap();
    socket.listen(4096).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn socket(from: Option<&str>, to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    if let Some(from) = from {
        let from: IpAddr = from.parse().unwrap();
        socket.bind(&SockAddr::from(SocketAddr::new(from, 0))).unwrap();
    }
    socket
}

/// Connects, within this time.
pub(crate) fn connect(from: Option<&str>, to: SocketAddr, limit: Duration) -> io::Result<Socket> {
    let socket = socket(from, to);
    socket.connect_timeout(&SockAddr::from(to), limit)?;
    Ok(socket)
}

/// Begins to connect, without waiting.
pub(crate) fn begin(from: Option<&str>, to: SocketAddr) -> Socket {
    let socket = socket(from, to);
    socket.set_nonblocking(true).unwrap();
    // In progress, which is an error here.
    let _ = socket.connect(&SockAddr::from(to));
    socket
}

/// Connections that wait on a listener now.
pub(crate) fn waiting(listener: &Socket) -> Vec<Socket> {
    std::iter::from_fn(|| listener.accept().ok().map(|(socket, _)| socket)).collect()
}

/// Asks until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        thread::park_timeout(Duration::from_millis(1));
    }
}
