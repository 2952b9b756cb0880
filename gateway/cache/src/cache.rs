//! The cache as the gateway has it: readers for its workers, a queue to its writer, and orders of the operator.
//!
//! Nothing here blocks but opening, closing and the operator's orders. Invariant: what waits for the writer is bounded in
//! number and in bytes; an answer beyond that is not kept, and counted.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::fs::{FlockOperation, flock};

use crate::{
    counts::{Counts, Stats},
    disk::{Disk, Folders, LEAST, OpenError, Plan},
    files::{DiskFiles, Executor, disk::ready},
    front::{Now, Reader, Shared},
    heat::Decay,
    index::View,
    note::{Note, Notes},
    policy::Probation,
    segment::log::Durability,
    store::{Cursor, Filter, Limits, Page, Store, Total},
    types::{Answer, Key, ModelNumber, PartNumber, Place, Seconds},
};

/// Answers and orders that may wait for the writer.
const QUEUE: usize = 1024;
/// Bytes of answers that may wait for it.
const QUEUE_BYTES: u64 = 64 << 20;
/// How often the writer looks up though nothing came.
const LOOK: Duration = Duration::from_millis(500);
/// Orders that are done before files are looked after again.
const TURN: usize = 64;
/// Whoever holds a lock on this file has the folders.
const LOCK: &str = "cache.lock";

/// What a cache is made of.
#[derive(Debug)]
pub struct Options {
    /// What it may hold.
    pub limits: Limits,
    /// How heat cools.
    pub decay: Decay,
    /// Whether new entries have to prove themselves.
    pub probation: Probation,
    /// Chance for the samples of the eviction.
    pub seed: u64,
}

/// Where a cache on disk lies, and what of it stays in memory.
#[derive(Debug, Clone)]
pub struct OnDisk {
    /// The folder of the index and the active segment; made where it is missing.
    pub home: PathBuf,
    /// The folder of the parts; made where it is missing.
    pub data: PathBuf,
    /// Values in memory beside those of the active segment, bytes.
    pub hot_bytes: u64,
    /// Whether room of what is gone is given back.
    pub compaction: bool,
    /// What a crash may take.
    pub durability: Durability,
    /// Who is told what happens to the files.
    pub notes: Notes,
}

/// What the check of a file found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Which it is in the order of checking; the index is 0.
    pub number: PartNumber,
    /// Its name.
    pub file: String,
    /// Entries that it has, dead ones too.
    pub entries: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// What is wrong; `None`: it is whole.
    pub damage: Option<String>,
}

enum Order {
    Put(Box<Answer>),
    Warm(Key, Place, Arc<[u8]>),
    Purge(Filter, Sender<usize>),
    Pin(Filter, bool, Sender<usize>),
    Look(Cursor, usize, Sender<Page>),
    Totals(Sender<Vec<Total>>),
    Read(Key, Sender<Option<Arc<[u8]>>>),
    Check(Option<PartNumber>, Sender<Option<Checked>>),
    Renew(PartNumber, Sender<Option<PartNumber>>),
    Stop,
}

/// A cache.
pub struct Cache {
    shared: Arc<Shared>,
    /// `None` once it closes.
    orders: Option<Sender<Order>>,
    writer: Option<JoinHandle<()>>,
}

/// Hands answers to the writer. Each worker has its own.
#[derive(Clone)]
pub struct Putter {
    shared: Arc<Shared>,
    orders: Sender<Order>,
}

impl Cache {
    /// Opens a cache in memory and starts its writer.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn in_memory(options: Options) -> io::Result<Self> {
        let shared = shared(options.decay);
        let of_writer = Arc::clone(&shared);
        let (orders, inbox) = bounded(QUEUE);
        let writer = start(move || {
            let store =
                Store::<DiskFiles>::new(Arc::clone(&of_writer), options.limits, options.probation, options.seed);
            ready(write(store, &of_writer, &inbox));
        })?;
        Ok(Self::with(shared, orders, writer))
    }

    /// Opens a cache on disk, with what is there, and starts its writer. `limits.bytes` bounds all of its files.
    ///
    /// # Errors
    /// If the folders cannot be used: another process has them, a newer program wrote them, or the disk fails.
    pub fn on_disk(options: Options, place: OnDisk) -> Result<Self, OpenError> {
        if options.limits.bytes < LEAST {
            return Err(OpenError::Small(options.limits.bytes));
        }
        let shared = shared(options.decay);
        let of_writer = Arc::clone(&shared);
        let (orders, inbox) = bounded(QUEUE);
        let (opened, outcome) = bounded(1);
        let (limits, chance) = (options.limits, (options.probation, options.seed));
        let writer = start(move || {
            let executor = Executor::start();
            if let Executor::Calls(Some(why)) = &executor {
                place.notes.say(Note::NoRing(why.to_string()));
            }
            // Until the thread ends.
            let lock = match lock(&place.home) {
                Ok(lock) => lock,
                Err(why) => return drop(opened.send(Err(why))),
            };
            executor.block_on(async {
                match open(&executor, &place, limits, &of_writer, chance).await {
                    Ok(store) => {
                        // Whoever opened it waits for this.
                        drop(opened.send(Ok(())));
                        write(store, &of_writer, &inbox).await;
                    }
                    Err(why) => drop(opened.send(Err(why))),
                }
            });
            drop(lock);
        })?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(Self::with(shared, orders, writer)),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(io::Error::other("the cache's writer ended").into()),
        }
    }

    fn with(shared: Arc<Shared>, orders: Sender<Order>, writer: JoinHandle<()>) -> Self {
        Self {
            shared,
            orders: Some(orders),
            writer: Some(writer),
        }
    }

    /// The number of the model of this name; `None` when there are too many.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<ModelNumber> {
        self.shared.model(name)
    }

    /// A reader for a worker.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader {
            shared: Arc::clone(&self.shared),
        }
    }

    /// A way to put answers, for a worker; `None` once it closes.
    #[must_use]
    pub fn putter(&self) -> Option<Putter> {
        Some(Putter {
            shared: Arc::clone(&self.shared),
            orders: self.orders.clone()?,
        })
    }

    /// The counters of this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counts.read()
    }

    /// Half-life of heat now, where it adapts.
    #[must_use]
    pub fn half_life(&self) -> Option<Duration> {
        let ticks = self.shared.decay.half_life()?;
        Some(Duration::from_millis(u64::from(ticks) * 10))
    }

    /// The names of the models, in the order of their numbers.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        self.shared.models()
    }

    /// Removes what the filter names; how many that were. Of a cache on disk it is gone from the files when this returns.
    #[must_use]
    pub fn purge(&self, filter: Filter) -> usize {
        self.ask(|answer| Order::Purge(filter, answer)).unwrap_or(0)
    }

    /// Entries from a place on, of whole buckets: about `most` of them, so that the writer is not held up. What is there from
    /// the first page to the last is listed exactly once.
    #[must_use]
    pub fn look(&self, from: Cursor, most: usize) -> Page {
        self.ask(|answer| Order::Look(from, most, answer)).unwrap_or_default()
    }

    /// The value under this key, wherever it lies, for whoever may wait; `None` also where it cannot be read.
    #[must_use]
    pub fn read(&self, key: &Key) -> Option<Arc<[u8]>> {
        self.ask(|answer| Order::Read(*key, answer)).flatten()
    }

    /// Reads all of the index (`after` is `None`) or of the next part behind `after`, and checks every byte; `None` behind the last one,
    /// and for a cache in memory. The writer does nothing else meanwhile.
    #[must_use]
    pub fn check(&self, after: Option<PartNumber>) -> Option<Checked> {
        self.ask(|answer| Order::Check(after, answer)).flatten()
    }

    /// Makes the next part behind `after` anew if anything in it is dead; which that was, `None` if there is none.
    #[must_use]
    pub fn renew(&self, after: PartNumber) -> Option<PartNumber> {
        self.ask(|answer| Order::Renew(after, answer)).flatten()
    }

    /// What the entries of each model cost, by its number.
    #[must_use]
    pub fn totals(&self) -> Vec<Total> {
        self.ask(Order::Totals).unwrap_or_default()
    }

    /// Puts an answer, after waiting until the writer has room for it; false once it has ended. For whoever may wait: an
    /// operator's import, never a worker.
    #[must_use]
    pub fn put_in_turn(&self, answer: Answer) -> bool {
        let Some(orders) = &self.orders else { return false };
        let bytes = answer.body.len() as u64;
        let waiting = &self.shared.counts.waiting_bytes;
        if waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > QUEUE_BYTES {
            // When this is answered, everything before is done.
            let _done = self.totals();
        }
        let taken = orders.send(Order::Put(Box::new(answer))).is_ok();
        if !taken {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Pins what the filter names, or lets it go; how many were changed.
    #[must_use]
    pub fn pin(&self, filter: Filter, pinned: bool) -> usize {
        self.ask(|answer| Order::Pin(filter, pinned, answer)).unwrap_or(0)
    }

    /// What the writer answers; `None` if it has ended.
    fn ask<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> Option<T> {
        let (send, receive) = bounded(1);
        self.orders.as_ref()?.send(order(send)).ok()?;
        receive.recv().ok()
    }
}

impl Drop for Cache {
    /// Waits until the writer has done what was asked for before.
    fn drop(&mut self) {
        if let Some(orders) = self.orders.take() {
            // A writer that is gone already needs no order.
            let _sent = orders.send(Order::Stop);
        }
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has nothing more to say.
            let _ended = writer.join();
        }
    }
}

impl Putter {
    /// Puts an answer, unless the writer is behind; whether it was taken.
    pub fn put(&self, answer: Answer) -> bool {
        let bytes = answer.body.len() as u64;
        let taken = self.send(bytes, Order::Put(Box::new(answer)));
        if !taken {
            Counts::add(&self.shared.counts.puts_refused, 1);
        }
        taken
    }

    /// Offers a value that was read from its place to the memory, unless the writer is behind.
    pub fn warm(&self, key: Key, place: Place, value: Arc<[u8]>) {
        let bytes = value.len() as u64;
        // What is read again next time needs no count.
        let _taken = self.send(bytes, Order::Warm(key, place, value));
    }

    fn send(&self, bytes: u64, order: Order) -> bool {
        let waiting = &self.shared.counts.waiting_bytes;
        let before = waiting.fetch_add(bytes, Ordering::Relaxed);
        let taken = before + bytes <= QUEUE_BYTES && self.orders.try_send(order).is_ok();
        if !taken {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }
}

fn shared(decay: Decay) -> Arc<Shared> {
    let base = Seconds::try_from(seconds().0).unwrap_or(Seconds::MAX);
    Arc::new(Shared::new(decay, base))
}

fn start(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("zh-cache".into()).spawn(run)
}

fn seconds() -> (u64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_nanos())
}

fn now(shared: &Shared) -> Now {
    let (second, nanos) = seconds();
    shared.now(second, nanos)
}

/// Takes the folders for this process, as long as the file is open.
fn lock(home: &Path) -> Result<fs::File, OpenError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    let mut options = fs::OpenOptions::new();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(home.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::Busy),
        Err(why) => Err(io::Error::from(why).into()),
    }
}

async fn open(
    executor: &Executor,
    place: &OnDisk,
    limits: Limits,
    shared: &Arc<Shared>,
    chance: (Probation, u64),
) -> Result<Store, OpenError> {
    let folders = Folders {
        home: executor.folder(&place.home)?,
        data: executor.folder(&place.data)?,
        view: View::Mapped(place.home.clone()),
    };
    let plan = Plan {
        bytes: limits.bytes,
        hot_bytes: place.hot_bytes,
        compaction: place.compaction,
        durability: place.durability,
        buckets: limits.buckets,
    };
    let now = now(shared);
    let opened = Disk::open(folders, plan, shared, (now.seconds, &place.notes)).await?;
    let mut store = Store::on_disk(Arc::clone(shared), opened, chance, now, place.notes.clone());
    store.begin(now).await;
    Ok(store)
}

/// The writer's thread: does what it is asked for until it is told to stop, or nobody can ask any more.
async fn write(mut store: Store, shared: &Shared, inbox: &Receiver<Order>) {
    let begun = Instant::now();
    loop {
        let since = begun.elapsed();
        store.set_clock(since);
        let wait = store
            .deadline()
            .map_or(LOOK, |deadline| deadline.saturating_sub(since).min(LOOK));
        let mut order = match inbox.recv_timeout(wait) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => {
                store.idle();
                store.refresh_floor(now(shared));
                None
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        store.set_clock(begun.elapsed());
        let mut done = 0;
        while let Some(next) = order.take() {
            if matches!(next, Order::Stop) {
                return store.close(now(shared)).await;
            }
            follow(&mut store, shared, next).await;
            done += 1;
            if done < TURN {
                order = inbox.try_recv().ok();
            }
        }
        store.upkeep(now(shared)).await;
    }
    store.close(now(shared)).await;
}

async fn follow(store: &mut Store, shared: &Shared, order: Order) {
    let now = now(shared);
    let waiting = &shared.counts.waiting_bytes;
    match order {
        Order::Put(answer) => {
            let bytes = answer.body.len() as u64;
            if store.wants_segment(&answer) {
                store.seal(now).await;
            }
            store.put(*answer, now);
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        Order::Warm(key, place, value) => {
            waiting.fetch_sub(value.len() as u64, Ordering::Relaxed);
            store.warm(&key, place, value, now);
        }
        // Whoever asked may have gone.
        Order::Purge(filter, answer) => drop(answer.send(store.purge(&filter, now).await)),
        Order::Pin(filter, pinned, answer) => drop(answer.send(store.pin(&filter, pinned, now).await)),
        Order::Look(from, most, answer) => {
            if from == Cursor::default() {
                store.learn_tenants(now).await;
            }
            drop(answer.send(store.look(from, most, now)));
        }
        Order::Totals(answer) => drop(answer.send(store.totals())),
        Order::Check(after, answer) => drop(answer.send(store.check(after).await)),
        Order::Renew(after, answer) => drop(answer.send(store.renew_next(after, now).await)),
        Order::Read(key, answer) => drop(answer.send(store.read(&key).await)),
        Order::Stop => {}
    }
}
