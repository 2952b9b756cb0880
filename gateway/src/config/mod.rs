//! The configuration: a YAML file, read once, into plain values that each stage owns.
//!
//! `raw` declares the keys, `parse` gives them meaning and checks them against each other, `print` writes them back.
//! Nothing here starts or listens. Invariant: a [`Config`] is complete, in range and free of contradictions; there is
//! no special number in it that means "off", "none" or "choose yourself".

mod cache;
mod field;
mod keys;
mod machine;
mod node;
mod parse;
mod print;
mod problem;
mod raw;
mod steering;
mod units;

#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use crate::log::Level;
use zerohop_engine::RuleFile;

pub use cache::{Buckets, Cache, CachePlace, CacheStore, HalfLife, Heat};
pub use keys::KeyDigest;
pub use machine::{Machine, Surroundings};
pub use problem::{Place, Problem, Problems, Where};
pub use steering::{Blocklist, Steering, SteeringMode, SteeringPolicy, Xdp, XdpMode};

/// A file above this size is no configuration.
const MAX_FILE: u64 = 1 << 20;

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where to listen, and the workers.
    pub server: Server,
    /// Which worker takes a connection, and what is kept out.
    pub steering: Steering,
    /// Who may ask.
    pub access: Access,
    /// What is served; never empty, and no name occurs twice.
    pub models: Vec<Model>,
    /// What in-process models share.
    pub engine: Engine,
    /// Stored answers; `None`: none are kept.
    pub cache: Option<Cache>,
    /// Rules for answers; `None`: none.
    pub safety: Option<Rules>,
    /// Buffers.
    pub memory: Memory,
    /// The log.
    pub logging: Logging,
    /// What is counted.
    pub metrics: Metrics,
}

/// Where to listen, and what workers allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// At least one, none twice. Port 0: the kernel chooses one.
    pub listen: Vec<SocketAddr>,
    /// Where `/metrics` is served instead of on `listen`.
    pub admin: Option<SocketAddr>,
    /// Which cores have a worker.
    pub workers: Workers,
    /// Limits of connections.
    pub connections: Connections,
    /// Limits of a request.
    pub requests: Requests,
    /// How long requests in progress may take to finish when the server stops.
    pub drain_timeout: Duration,
    /// What all connections may hold.
    pub memory: RequestMemory,
    /// Which replies leave without a copy.
    pub zero_copy: ZeroCopy,
    /// Where the operator's commands come in.
    pub control: ControlSocket,
}

/// Which cores have a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workers {
    /// One a core, less what the models' threads need.
    Auto,
    /// These cores, each of which this process may use; at least one, none twice.
    Cores(Vec<usize>),
}

/// Limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Over all workers; at least 1.
    pub max: usize,
    /// How long one may be idle between requests.
    pub keepalive_timeout: Duration,
    /// After this age the next reply closes it.
    pub max_age: Duration,
    /// For a whole request head, and for a body before its rate counts.
    pub read_timeout: Duration,
}

/// Limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Request line and header fields, in bytes.
    pub max_header_bytes: usize,
    /// Decoded body, in bytes.
    pub max_body_bytes: usize,
    /// Refuse fields that the vendor's API does not know.
    pub strict: bool,
}

impl Requests {
    /// Bytes that one connection may need for the largest request: its head, its body in a buffer that doubled last when
    /// it was just too small, and a reply.
    #[must_use]
    pub fn memory(&self) -> u64 {
        const REPLY: u64 = 1 << 20;
        self.max_header_bytes as u64 + 2 * self.max_body_bytes as u64 + REPLY
    }
}

/// The bound of what all connections hold together: requests that are being read, replies that wait to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestMemory {
    /// Bytes over all workers; at least what the largest request needs.
    pub bytes: u64,
    /// Of how much memory this is an eighth, if the file does not say how much it is to be.
    pub eighth_of: Option<u64>,
}

/// Where the operator's commands come in: a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlSocket {
    /// In the folder of this user's sockets, under the first port that is listened on.
    Auto,
    /// Nowhere.
    Off,
    /// Here, or no start.
    Path(PathBuf),
}

/// Longest path of a Unix socket in bytes: the kernel has 107, of which a name is left that it has while it is made.
pub(crate) const MAX_SOCKET_PATH: usize = 98;

/// Which replies leave without a copy by the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Large ones, where the network does not copy after all.
    Auto,
    /// None.
    Off,
    /// Every one, through registered memory: to measure and to test.
    Always,
}

/// Who may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Anyone who reaches the address; keys are not looked at.
    Anonymous {
        /// Whether the file allows it in so many words; if not, every address is loopback.
        explicit: bool,
    },
    /// Whoever has a key of one of these; at least one, no name and no key twice.
    Tenants(Vec<Tenant>),
}

/// Someone with keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Letters, digits, `.`, `_` and `-`.
    pub name: Arc<str>,
    /// Where the keys were found.
    pub source: KeySource,
    /// The keys' digests; at least one, none twice.
    pub keys: Vec<KeyDigest>,
    /// Which models they open.
    pub models: ModelSet,
}

/// Where keys are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In this environment variable.
    Env(String),
    /// In this file.
    File(PathBuf),
}

/// Some of the models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSet {
    /// All of them.
    All,
    /// Those at these indices of [`Config::models`], ascending; at least one.
    Only(Arc<[usize]>),
}

impl ModelSet {
    /// Whether the model at this index is one of them.
    #[must_use]
    pub fn has(&self, model: usize) -> bool {
        match self {
            Self::All => true,
            Self::Only(models) => models.binary_search(&model).is_ok(),
        }
    }
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The name that clients use.
    pub id: Arc<str>,
    /// Other names for it.
    pub aliases: Vec<Arc<str>>,
    /// Where it runs.
    pub backend: Backend,
    /// Longest prompt and answer together, in tokens; `None`: as long as the model allows.
    pub max_context: Option<usize>,
    /// Within which an answer must be complete; `None`: whenever it is.
    pub deadline: Option<Duration>,
    /// The label `model_version`; `None`: a hash of the weights.
    pub version: Option<Arc<str>>,
}

/// Where a model runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// In this process, in ONNX Runtime.
    Onnx(Onnx),
}

/// A model in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Onnx {
    /// Its folder.
    pub path: ModelPath,
    /// What computes.
    pub provider: Provider,
    /// Threads of the model's computation; at least 1.
    pub threads: usize,
    /// Sequences in a step; at least 1.
    pub max_batch: usize,
    /// Bound of the key-value memory, in bytes.
    pub kv_memory: usize,
    /// Jobs that may wait; at least 1.
    pub queue: usize,
}

/// Where a model's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelPath {
    /// The model of this name that comes with the product; [`Machine::bundled_model`] finds it.
    Bundled(&'static str),
    /// In this folder, which existed when the file was read.
    Folder(PathBuf),
}

/// What computes a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// The best that the library and the machine have.
    Auto,
    /// The CPU.
    Cpu,
    /// CUDA, or refuse to start.
    Cuda,
}

/// What in-process models share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// The shared library.
    pub onnxruntime: Library,
    /// The folder with NVIDIA's libraries; `None`: in one of the usual places.
    pub cuda: Option<PathBuf>,
    /// Whether weights go on huge pages where the kernel does that.
    pub huge_pages: bool,
}

/// Where a shared library is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Library {
    /// In one of the usual places.
    Auto,
    /// Here, where a file was when the configuration was read.
    File(PathBuf),
}

/// Safety rules, as their file has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The file.
    pub path: PathBuf,
    /// At least one.
    pub file: Arc<RuleFile>,
    /// Where each begins.
    places: Arc<[Place]>,
}

impl Rules {
    /// Reads a file of safety rules.
    ///
    /// # Errors
    /// Every fault of the file.
    pub fn load(path: &Path, surroundings: &dyn Surroundings) -> Result<Self, Problems> {
        parse::rules(path, surroundings)
    }

    /// Where a rule begins, as messages say it: `FILE:LINE:COLUMN`.
    #[must_use]
    pub fn place(&self, rule: usize) -> String {
        let Place { line, column } = self.places.get(rule).copied().unwrap_or(Place { line: 1, column: 1 });
        format!("{}:{line}:{column}", self.path.display())
    }
}

/// Buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Of request and reply buffers, in bytes; a power of two from 16 to 4096.
    pub alignment: usize,
}

/// The log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logging {
    /// What is logged: this level and what is more severe.
    pub level: Level,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Serve `/metrics`.
    pub prometheus: bool,
    /// The label `instance_id`; `None`: the host's name.
    pub instance_id: Option<Arc<str>>,
    /// The label `region`; `None`: no such label.
    pub region: Option<Arc<str>>,
}

/// Where a configuration comes from; kept for a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The file; `None`: the defaults.
    pub file: Option<PathBuf>,
    /// Addresses of the command line; if there are any, they replace `server.listen` and `server.port`.
    pub listen: Vec<SocketAddr>,
}

/// Reads and checks a configuration.
///
/// # Errors
/// Every fault of the file, not only the first.
pub fn load(source: &Source, surroundings: &dyn Surroundings) -> Result<Config, Problems> {
    let Some(path) = &source.file else {
        return parse::parse("the defaults", "", Path::new("."), &source.listen, surroundings);
    };
    let name = path.display().to_string();
    let text = surroundings.read(path, MAX_FILE).map_err(|error| {
        let mut problems = Problems::of(&name);
        problems.whole(format!("the configuration cannot be read: {error}"));
        problems
    })?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let folder = std::path::absolute(if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        &folder
    })
    .unwrap_or(folder);
    parse::parse(&name, &text, &folder, &source.listen, surroundings)
}

/// The limits of a request in bytes: head, body.
fn sizes(server: &Server) -> (usize, usize) {
    (server.requests.max_header_bytes, server.requests.max_body_bytes)
}

impl Config {
    /// What holds without a file: the bundled models `tiny` and `tiny-embed`, on 127.0.0.1:8080, for anyone on this machine.
    ///
    /// # Errors
    /// Never in practice; the defaults are checked like a file.
    pub fn defaults(surroundings: &dyn Surroundings) -> Result<Self, Problems> {
        load(&Source::default(), surroundings)
    }

    /// The parts of `other` that differ from this and that a running gateway cannot take over.
    #[must_use]
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let (one, two) = (&self.server, &other.server);
        let stores = [self, other].map(|config| config.cache.as_ref().map(|cache| &cache.store));
        let places = [self, other].map(|config| {
            let xdp = config.steering.xdp.as_ref();
            xdp.map(|xdp| (&xdp.interface, xdp.mode))
        });
        let parts = [
            ("server.listen", one.listen != two.listen),
            ("server.admin", one.admin != two.admin),
            ("server.workers", one.workers != two.workers),
            (
                "the limits of server.*",
                one.connections != two.connections || sizes(one) != sizes(two),
            ),
            ("server.memory", one.memory != two.memory),
            ("server.zero_copy", one.zero_copy != two.zero_copy),
            ("server.control_socket", one.control != two.control),
            ("steering.mode", self.steering.mode != other.steering.mode),
            ("the place of steering.xdp", places[0] != places[1]),
            ("engine", self.engine != other.engine),
            ("the store of cache.*", stores[0] != stores[1]),
            ("memory", self.memory != other.memory),
            ("logging.format", self.logging.format != other.logging.format),
            ("metrics", self.metrics != other.metrics),
        ];
        parts
            .into_iter()
            .filter_map(|(part, differs)| differs.then_some(part))
            .collect()
    }

    /// The whole configuration as YAML, which [`load`] reads as the same. Keys of tenants are not in it: it names where
    /// they are found.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        print::print(self)
    }
}
