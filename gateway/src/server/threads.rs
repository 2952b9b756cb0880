//! The worker threads: which cores, start, commands, end.
//!
//! Invariant: a command that was sent is followed by a wake-up, so no worker sleeps through one.

use std::{io, sync::Arc, thread};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use zerohop_engine::{Mailbox, mailbox};
use zerohop_ring::{AnyIo, Arena, ArenaOptions, Choice, Io, Options, Wake};

use super::{StartError, listeners::Sockets, secret};
use crate::{
    clock::Clock,
    config::{Backend, Config, Workers as Wanted, ZeroCopy},
    log::Log,
    worker::{Command, Local, Shared, Surface, Worker},
};

/// Mails that fit between an engine and a worker; beyond that the engine joins deltas.
const MAILBOX: usize = 4096;
/// Commands that wait for a worker: a reload sends one for each new model.
const COMMANDS: usize = 256;

/// A worker has ended.
pub(super) struct Ended {
    /// Which.
    pub(super) worker: usize,
    /// Why, if it was not asked to.
    pub(super) error: Option<String>,
}

/// The running workers.
pub(super) struct Workers {
    workers: Vec<Handle>,
    ended: Receiver<Ended>,
}

struct Handle {
    commands: Sender<Command>,
    waker: Arc<dyn Wake>,
}

/// The cores that get a worker.
///
/// # Errors
/// If the cores of this machine cannot be found out.
pub(super) fn cores(config: &Config) -> Result<Vec<usize>, StartError> {
    if let Wanted::Cores(cores) = &config.server.workers {
        return Ok(cores.clone());
    }
    let mut cores = zerohop_ring::allowed_cores()
        .map_err(|error| StartError::new(format!("cannot find out the cores of this machine: {error}")))?;
    let engines: usize = config.models.iter().map(|model| model.backend.threads()).sum();
    cores.truncate(cores.len().saturating_sub(engines).max(1));
    Ok(cores)
}

/// Slots of a worker: all connections may land on one, and some more are there to be refused with a full reply.
fn slots(max_connections: usize) -> u32 {
    const TO_BE_REFUSED: usize = 64;
    const MOST: u32 = 1 << 24;
    u32::try_from(max_connections.saturating_add(TO_BE_REFUSED))
        .unwrap_or(MOST)
        .min(MOST)
}

/// The memory that every reply leaves from where `zero_copy: always` asks for that.
fn arena(config: &Config) -> Result<Option<Arena>, StartError> {
    const SIZE: usize = 64 << 20;
    if config.server.zero_copy != ZeroCopy::Always {
        return Ok(None);
    }
    let options = ArenaOptions {
        size: SIZE,
        alignment: config.memory.alignment,
        poison: true,
    };
    Arena::new(options)
        .map(Some)
        .map_err(|error| StartError::new(format!("cannot make the memory for zero-copy replies: {error}")))
}

impl Workers {
    /// Starts one worker on each core; they accept from now on.
    ///
    /// # Errors
    /// If a thread or a ring cannot be made.
    pub(super) fn start(
        choice: &Choice,
        cores: &[usize],
        seats: Vec<(Sockets, Option<zerohop_steer::Seat>)>,
        config: &Config,
        shared: &Arc<Shared>,
        log: &Log,
    ) -> Result<Self, StartError> {
        let (ended_send, ended) = unbounded();
        let mut this = Self {
            workers: Vec::new(),
            ended,
        };
        let arena = arena(config)?;
        for (index, ((sockets, steered), core)) in seats.into_iter().zip(cores).enumerate() {
            let seat = Seat {
                index,
                core: *core,
                choice: choice.clone(),
                sockets,
                steered,
                max_connections: slots(config.server.connections.max),
                zero_copy: match config.server.zero_copy {
                    ZeroCopy::Auto => zerohop_ring::ZeroCopy::DEFAULT,
                    ZeroCopy::Off => zerohop_ring::ZeroCopy::Off,
                    ZeroCopy::Always => zerohop_ring::ZeroCopy::Always,
                },
                arena: arena.clone(),
                // An eighth of the bound may wait for the kernel's word that it was read.
                held_bytes: usize::try_from(config.server.memory.bytes / 8 / cores.len() as u64).unwrap_or(usize::MAX),
                shared: Arc::clone(shared),
                log: log.clone(),
                seed: secret()?,
            };
            match seat.spawn(ended_send.clone()) {
                Ok(handle) => this.workers.push(handle),
                Err(error) => {
                    this.stop();
                    return Err(StartError::new(format!(
                        "cannot start worker {index} on core {core}: {error}"
                    )));
                }
            }
        }
        this.tell(|| Command::Start);
        Ok(this)
    }

    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn ended(&self) -> Receiver<Ended> {
        self.ended.clone()
    }

    /// Sends every worker a command.
    pub(super) fn tell(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            worker.send(command());
        }
    }

    /// Makes every worker look at what is shared.
    pub(super) fn wake(&self) {
        for worker in &self.workers {
            worker.waker.wake();
        }
    }

    /// Connects a new engine with every worker; the engine's ends, in the workers' order.
    pub(super) fn mailboxes(&self) -> Vec<Mailbox> {
        self.workers
            .iter()
            .map(|worker| {
                let waker = Arc::clone(&worker.waker);
                let (engine, receiver) = mailbox(MAILBOX, Box::new(move || waker.wake()));
                worker.send(Command::Mailbox(receiver));
                engine
            })
            .collect()
    }

    /// Ends every worker at once, and waits.
    pub(super) fn stop(&self) {
        self.tell(|| Command::Stop);
        for _ in &self.workers {
            if self.ended.recv().is_err() {
                return;
            }
        }
    }
}

impl Handle {
    fn send(&self, command: Command) {
        // A worker that has ended needs no command.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }
}

/// What a worker thread is made of.
struct Seat {
    index: usize,
    core: usize,
    choice: Choice,
    sockets: Sockets,
    steered: Option<zerohop_steer::Seat>,
    max_connections: u32,
    zero_copy: zerohop_ring::ZeroCopy,
    arena: Option<Arena>,
    held_bytes: usize,
    shared: Arc<Shared>,
    log: Log,
    seed: [u8; 32],
}

impl Seat {
    fn spawn(self, ended: Sender<Ended>) -> io::Result<Handle> {
        let (commands, receive) = bounded(COMMANDS);
        let (made, wait) = bounded(1);
        let index = self.index;
        thread::Builder::new().name(format!("zerohop-{index}")).spawn(move || {
            // A worker that never began is told to the starter alone.
            let Some(life) = self.begin(receive, &made) else {
                return;
            };
            let report = Report {
                ended,
                worker: index,
                error: Some("it panicked".into()),
            };
            report.with(life);
        })?;
        let waker = wait
            .recv()
            .map_err(|_| io::Error::other("the thread ended before it began"))??;
        Ok(Handle { commands, waker })
    }

    /// Makes the worker in its own thread and says so; the worker's life, if it could be made.
    fn begin(self, commands: Receiver<Command>, made: &Sender<io::Result<Arc<dyn Wake>>>) -> Option<Life> {
        let options = Options {
            listeners: self.sockets.listeners,
            max_connections: self.max_connections,
            overflow_reply: self.shared.overflow_reply(),
            zero_copy: self.zero_copy,
            arena: self.arena,
            held_bytes: self.held_bytes,
            ..Options::default()
        };
        let io = match zerohop_ring::pin_to_core(self.core).and_then(|()| self.choice.open(options)) {
            Ok(io) => io,
            Err(error) => {
                // The starter waits for exactly this one message.
                let _ = made.send(Err(error));
                return None;
            }
        };
        let local = Local::new(self.index, self.shared, self.log, Clock::system(), self.seed);
        let local = local.steered_by(self.steered);
        Some(match io {
            AnyIo::Uring(io) => life(io, self.sockets.surfaces, commands, local, made),
            AnyIo::Epoll(io) => life(io, self.sockets.surfaces, commands, local, made),
        })
    }
}

/// What is left to do for a worker that was made: to run.
type Life = Box<dyn FnOnce() -> io::Result<()>>;

fn life<I: Io + 'static>(
    io: I,
    surfaces: Vec<Surface>,
    commands: Receiver<Command>,
    local: Local,
    made: &Sender<io::Result<Arc<dyn Wake>>>,
) -> Life {
    let _ = made.send(Ok(io.waker()));
    let worker = Worker::new(io, surfaces, commands, local);
    Box::new(move || worker.run())
}

/// Says how a worker ended, also when it panicked.
struct Report {
    ended: Sender<Ended>,
    worker: usize,
    error: Option<String>,
}

impl Report {
    fn with(mut self, work: impl FnOnce() -> io::Result<()>) {
        self.error = work().err().map(|error| error.to_string());
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // Nobody listens when the process is already going down.
        let _ = self.ended.send(Ended {
            worker: self.worker,
            error: self.error.take(),
        });
    }
}

impl Backend {
    /// Threads that this model keeps busy.
    fn threads(&self) -> usize {
        match self {
            Self::Onnx(onnx) => onnx.threads,
        }
    }
}
