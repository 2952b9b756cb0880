//! The control plane: start, reload, drain, stop.
//!
//! It runs on the main thread, reads files and signals, and talks to workers by commands and by the snapshot. It is on no
//! request's path. Invariant: whatever fails before the first request is served is a [`StartError`] of one line, and
//! nothing that was started is left running.

pub(crate) mod control;
mod fleet;
pub(crate) mod keeping;
mod listeners;
mod network;
mod run;
mod signals;
mod threads;

use std::{
    fmt,
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, after, never, select};
use zerohop_cache::Cache;
use zerohop_ring::{Backend, Choice};

pub(crate) use self::fleet::runtime;
pub(crate) use self::run::load;
pub use self::run::run;
use self::{
    control::{Control, Site, Socket},
    fleet::Fleet,
    network::Network,
    signals::{Signal, signals},
    threads::{Ended, Workers},
};
use crate::{
    caller::Callers,
    cli::{IoChoice, ServeOptions},
    config::{self, Access, Config, ControlSocket, LogFormat, Machine},
    key::{Scope, Secret, Spaces},
    log::{Format, Log, system_clock},
    metrics::{Common, ControlMetrics, ProcessGauges},
    resolve::Resolver,
    snapshot::{ServedModel, Snapshot},
    worker::{Command, Phase, Shared},
};

/// Why the gateway did not start: one line that says what, where and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError(String);

impl StartError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// How often engines that nobody uses any more are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// How long the last lines of the log may take to be written.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Serves until told to stop.
///
/// # Errors
/// Whatever keeps it from starting.
pub fn serve(config: Config, options: ServeOptions) -> Result<(), StartError> {
    let format = match config.logging.format {
        LogFormat::Auto => Format::auto(&std::io::stderr()),
        LogFormat::Human => Format::Human,
        LogFormat::Json => Format::Json,
    };
    let (log, writer) = Log::start(std::io::stderr(), format, config.logging.level, system_clock)
        .map_err(|error| StartError::new(format!("cannot start the log: {error}")))?;
    let served = serve_with(config, options, log);
    // Lines that a stuck reader of the log did not take by then are lost, as the log's own rule says.
    let _written = writer.finish(LOG_PATIENCE);
    served
}

fn serve_with(config: Config, options: ServeOptions, log: Log) -> Result<(), StartError> {
    zerohop_ring::map_large_blocks();
    let choice = choose_io(options.io)?;
    log.info(format_args!("sockets by {choice}"));
    log.info(format_args!("{}", memory_line(&config)));
    let cores = threads::cores(&config)?;
    let mut bound = listeners::bind(&config, &cores)?;
    let socket = control_socket(&config, &bound.addresses, &log)?;
    let (cache, cache_secret) = keeping::open(config.cache.as_ref(), &log)?;
    let loading = Arc::new(AtomicBool::new(true));
    let signals = signals(&loading).map_err(|error| StartError::new(format!("cannot handle signals: {error}")))?;
    let addresses = bound.addresses.clone();
    let nothing = snapshot(
        0,
        &Config {
            models: Vec::new(),
            ..config.clone()
        },
        Vec::new(),
        None,
        &cache_secret,
    )?;
    let shared = Shared::new(&config, cores.len(), labels(&config), nothing);
    let control_metrics = Arc::new(ControlMetrics::new(&control::names()));
    let counted = socket.as_ref().map(|_| Arc::clone(&control_metrics));
    let seats = bound.seats();
    let network = Network::new(bound.steering, &config.steering, &bound.doors, &log);
    let shared = shared.with_cache(cache.clone()).with_control(counted);
    let shared = Arc::new(shared.with_network(network.shown()));
    let site = Site {
        shared: Arc::clone(&shared),
        cache: cache.clone(),
        cache_bytes: config
            .cache
            .as_ref()
            .map_or(0, |cache| u64::from(cache.store.size_mb) << 20),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        log: log.clone(),
        metrics: control_metrics,
        started: Instant::now(),
    };
    let workers = Workers::start(&choice, &cores, seats, &config, &shared, &log)?;
    if let Some(bytes) = ProcessGauges::read().resident_bytes {
        log.info(format_args!(
            "workers run, {:.1} MB resident before the models",
            bytes as f64 / 1e6
        ));
    }
    // Its end is that of the server: what it holds of the cache is let go before the cache closes.
    let control = socket.map(|socket| Control::start(socket, site)).transpose();
    let control = control.map_err(|error| StartError::new(format!("cannot start the control thread: {error}")));
    let control = match control {
        Ok(control) => control,
        Err(error) => {
            workers.stop();
            return Err(error);
        }
    };
    let fleet = match Fleet::load(&config, &workers, &log) {
        Ok(fleet) => fleet,
        Err(error) => {
            workers.stop();
            return Err(error);
        }
    };
    let started = config.clone();
    let mut server = Server {
        options,
        config,
        started,
        addresses,
        shared,
        workers,
        network,
        fleet,
        log,
        cache,
        cache_secret,
        epoch: 0,
        _control: control,
    };
    server.publish()?;
    server.shared.set_phase(Phase::Ready);
    loading.store(false, Ordering::Release);
    server.greet(&choice);
    server.control(&signals);
    Ok(())
}

/// How much memory connections may hold, and why so much.
fn memory_line(config: &Config) -> String {
    let memory = &config.server.memory;
    let why = match memory.eighth_of {
        Some(usable) if memory.bytes == usable / 8 => format!(" (an eighth of {} MiB)", usable >> 20),
        Some(_) => " (the least for requests of max_body_bytes)".to_owned(),
        None => String::new(),
    };
    format!(
        "requests and replies may hold {} MiB{why}, one connection up to about {} MiB",
        memory.bytes >> 20,
        config.server.requests.memory() >> 20
    )
}

/// What the configuration and these models mean for requests.
fn snapshot(
    epoch: u64,
    config: &Config,
    models: Vec<Arc<ServedModel>>,
    cache: Option<&Cache>,
    cache_secret: &Secret,
) -> Result<Snapshot, StartError> {
    let spaces = Spaces {
        secret: cache_secret.clone(),
        scope: config.cache.as_ref().map_or(Scope::Tenant, |cache| cache.scope),
    };
    Ok(Snapshot {
        epoch,
        callers: Callers::new(&config.access, secret()?, &spaces),
        resolver: Resolver::of(&config.models),
        kept: cache
            .zip(config.cache.as_ref())
            .map(|(cache, wanted)| keeping::kept(cache, wanted, &models)),
        models,
        strict: config.server.requests.strict,
    })
}

fn labels(config: &Config) -> Common {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let metrics = &config.metrics;
    Common {
        instance_id: metrics.instance_id.as_deref().unwrap_or(host.trim()).to_owned(),
        region: metrics.region.as_deref().map(str::to_owned),
        start_time: system_clock().0,
    }
}

/// The socket for the operator's commands; where `auto` finds no place for it, the log says so.
fn control_socket(config: &Config, addresses: &[SocketAddr], log: &Log) -> Result<Option<Socket>, StartError> {
    let port = addresses.first().map_or(0, SocketAddr::port);
    let path = control::path(&config.server.control, port);
    let bound = path
        .map_err(StartError::new)
        .and_then(|path| path.map(|path| control::bind(&path)).transpose());
    match bound {
        Ok(Some(socket)) => {
            log.info(format_args!("control socket {}", socket.path().display()));
            Ok(Some(socket))
        }
        Err(why) if config.server.control == ControlSocket::Auto => {
            log.warn(format_args!("no control socket: {why}"));
            Ok(None)
        }
        bound => bound,
    }
}

/// 32 random bytes from the kernel: the one place where chance enters the process.
fn secret() -> Result<[u8; 32], StartError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| StartError::new(format!("the kernel gives no random bytes: {error}")))?;
    Ok(bytes)
}

fn choose_io(choice: IoChoice) -> Result<Choice, StartError> {
    let backend = match choice {
        IoChoice::Auto => Backend::Auto,
        IoChoice::Uring => Backend::Uring,
        IoChoice::Epoll => Backend::Epoll,
    };
    zerohop_ring::probe(backend).map_err(|error| StartError::new(format!("{error}: use `--io auto`")))
}

/// Decides when the heap is worth trimming: clients that held much have gone.
#[derive(Debug, Default)]
struct HeapWatch {
    /// The most that connections held since the last trimming.
    most: u64,
}

impl HeapWatch {
    /// Takes note of what connections hold now, and the most that they held since the last look; true if the heap should
    /// be trimmed.
    fn look(&mut self, (held, peak): (u64, u64)) -> bool {
        const WORTH: u64 = 1 << 20;
        self.most = self.most.max(peak);
        let fell = self.most - held > WORTH.max(held);
        if fell {
            self.most = held;
        }
        fell
    }
}

/// A gateway that serves.
struct Server {
    options: ServeOptions,
    /// In force, as far as a reload can change it.
    config: Config,
    /// What the process was started with: the parts that only a restart changes are in force as they stand here.
    started: Config,
    /// Where it listens, chosen ports included.
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    workers: Workers,
    network: Network,
    fleet: Fleet,
    log: Log,
    /// Where answers are kept, if they are.
    cache: Option<Arc<Cache>>,
    /// Of this process: a reload does not change it.
    cache_secret: Secret,
    epoch: u64,
    /// Serves until the server is dropped.
    _control: Option<Control>,
}

impl Server {
    /// Makes the present configuration and fleet the snapshot that new requests begin with.
    fn publish(&mut self) -> Result<(), StartError> {
        self.epoch += 1;
        let snapshot = snapshot(
            self.epoch,
            &self.config,
            self.fleet.models(),
            self.cache.as_deref(),
            &self.cache_secret,
        )?;
        self.shared.publish(snapshot);
        // A worker that sleeps would keep the old snapshot, and with it models that nobody uses any more.
        self.workers.wake();
        Ok(())
    }

    /// Says that it serves, where, and how to try it.
    fn greet(&self, choice: &Choice) {
        let urls: Vec<String> = self
            .addresses
            .iter()
            .map(|address| format!("http://{address}"))
            .collect();
        let ids: Vec<&str> = self.config.models.iter().map(|model| &*model.id).collect();
        let maker = match choice {
            Choice::Uring(_) => "io_uring",
            Choice::Epoll { .. } => "epoll",
        };
        let workers = self.workers.len();
        let mut out = std::io::stdout().lock();
        // A reader who left is no reason not to serve.
        let _ = writeln!(
            out,
            "zerohop ready on {} (models: {}; {maker}, {workers} worker{})",
            urls.join(" and "),
            ids.join(", "),
            if workers == 1 { "" } else { "s" }
        );
        if let Some(url) = urls.first()
            && let Some(model) = ids.first()
        {
            let _ = writeln!(
                out,
                "try: curl {url}/v1/messages -H 'content-type: application/json' -d '{{\"model\": \"{model}\", \
                 \"max_tokens\": 64, \"messages\": [{{\"role\": \"user\", \"content\": \"What is the capital of \
                 France?\"}}]}}'"
            );
        }
        let _ = out.flush();
    }

    /// Handles signals until every worker has ended.
    fn control(&mut self, signals: &Receiver<Signal>) {
        let ended = self.workers.ended();
        let mut running = self.workers.len();
        let mut deadline = never();
        let mut heap = HeapWatch::default();
        while running > 0 {
            select! {
                recv(signals) -> signal => match signal {
                    Ok(Signal::Reload) => self.reload(),
                    Ok(Signal::Terminate) if self.shared.phase() == Phase::Draining => self.stop("told twice to stop"),
                    Ok(Signal::Terminate) => {
                        self.drain();
                        deadline = after(self.config.server.drain_timeout);
                    }
                    Err(_) => self.stop("signals cannot be read any more"),
                },
                recv(ended) -> ended => {
                    running -= 1;
                    if let Ok(Ended { worker, error: Some(error) }) = ended {
                        self.log.error(format_args!("worker {worker} ended: {error}"));
                        self.stop("a worker is gone");
                    }
                }
                recv(deadline) -> _ => {
                    deadline = never();
                    self.stop("the drain took longer than drain_timeout");
                }
                default(HOUSEKEEPING) => {
                    self.fleet.retire();
                    self.network.look(&self.workers, &self.log);
                    if heap.look(self.shared.memory_taken()) {
                        zerohop_ring::trim_heap();
                    }
                }
            }
        }
        self.log.info(format_args!("stopped"));
    }

    fn drain(&self) {
        self.shared.set_phase(Phase::Draining);
        self.log
            .info(format_args!("draining: accepting nothing new, finishing what runs"));
        self.workers.tell(|| Command::Drain);
    }

    fn stop(&self, why: &str) {
        self.shared.set_phase(Phase::Draining);
        self.log.warn(format_args!("stopping now: {why}"));
        self.workers.tell(|| Command::Stop);
    }

    /// Reads the configuration again; a bad one changes nothing.
    fn reload(&mut self) {
        let begun = Instant::now();
        let outcome = config::load(&self.options.source, &Machine)
            .map_err(|problems| StartError::new(problems.to_string()))
            .and_then(|config| self.adopt(config));
        match outcome {
            Ok(()) => self
                .log
                .info(format_args!("reloaded in {} ms", begun.elapsed().as_millis())),
            Err(error) => self
                .log
                .error(format_args!("not reloaded, the old configuration stays: {error}")),
        }
    }

    fn adopt(&mut self, config: Config) -> Result<(), StartError> {
        check_exposure(&self.addresses, &config.access)?;
        for key in self.started.needs_restart(&config) {
            self.log
                .warn(format_args!("{key} changed: it takes effect at the next start"));
        }
        self.fleet.change(&config, &self.workers, &self.log)?;
        self.log.set_level(config.logging.level);
        self.network.change(&config.steering, &self.log);
        self.config = config;
        self.publish()
    }
}

/// Refuses to open the addresses that are really in use, whatever a new file says of addresses, to anyone.
fn check_exposure(addresses: &[SocketAddr], access: &Access) -> Result<(), StartError> {
    let anyone = matches!(access, Access::Anonymous { explicit: false });
    let mut open = addresses
        .iter()
        .filter(|address| !address.ip().to_canonical().is_loopback());
    match open.next() {
        Some(address) if anyone => Err(StartError::new(format!(
            "{address} stays open until a restart and would serve anyone: keep `tenants`, or set \
             `server.allow_anonymous: true`"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_trimmed_when_much_was_let_go() {
        const MIB: u64 = 1 << 20;
        let mut heap = HeapWatch::default();
        for (held, peak, trims) in [
            (0, 0, false),
            (0, MIB, false),
            (300 * MIB, 300 * MIB, false),
            (200 * MIB, 300 * MIB, false),
            (149 * MIB, 200 * MIB, true),
            (149 * MIB, 149 * MIB, false),
            (0, 149 * MIB, true),
            (0, 0, false),
            (0, 9 * MIB, true),
        ] {
            assert_eq!(heap.look((held, peak)), trims, "{held}, {peak} after {heap:?}");
        }
    }

    /// Once a reload judged the addresses of the new file, while those of the old one stayed open.
    #[test]
    fn a_reload_does_not_open_a_bound_address_to_anyone() {
        let (silent, explicit) = (
            Access::Anonymous { explicit: false },
            Access::Anonymous { explicit: true },
        );
        let table = [
            ("127.0.0.1:80 [::1]:80 [::ffff:127.0.0.1]:80", &silent, true),
            ("127.0.0.1:80 0.0.0.0:80", &silent, false),
            ("[::]:80", &silent, false),
            ("10.0.0.1:80", &explicit, true),
            ("0.0.0.0:80", &Access::Tenants(Vec::new()), true),
        ];
        for (addresses, access, good) in table {
            let bound: Vec<SocketAddr> = addresses.split(' ').map(|address| address.parse().unwrap()).collect();
            assert_eq!(check_exposure(&bound, access).is_ok(), good, "{addresses}");
        }
    }
}
