//! The cache as the gateway has it: readers for its workers, a queue to its writer, and orders of the operator.
//!
//! Nothing here blocks but opening, closing and the operator's orders. Invariant: what waits for the writer is bounded in
//! number and in bytes; an answer beyond that is not kept, and counted.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::{
    counts::{Counts, Stats},
    front::{Reader, Shared},
    heat::Decay,
    store::{Cursor, Filter, Limits, Page, Store, Total},
    types::{Answer, ModelNumber, Seconds},
};

/// Answers and orders that may wait for the writer.
const QUEUE: usize = 1024;
/// Bytes of answers that may wait for it.
const QUEUE_BYTES: u64 = 64 << 20;
/// How often the writer looks up though nothing came.
const LOOK: Duration = Duration::from_millis(500);

/// What a cache is made of.
#[derive(Debug)]
pub struct Options {
    /// What it may hold.
    pub limits: Limits,
    /// How heat cools.
    pub decay: Decay,
    /// Chance for the samples of the eviction.
    pub seed: u64,
}

enum Order {
    Put(Box<Answer>),
    Purge(Filter, Sender<usize>),
    Pin(Filter, bool, Sender<usize>),
    Look(Cursor, usize, Sender<Page>),
    Totals(Sender<Vec<Total>>),
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
        let base = Seconds::try_from(seconds().0).unwrap_or(Seconds::MAX);
        let shared = Arc::new(Shared::new(options.decay, base));
        let mut store = Store::new(Arc::clone(&shared), options.limits, options.seed);
        let (orders, inbox) = bounded(QUEUE);
        let of_writer = Arc::clone(&shared);
        let writer = thread::Builder::new()
            .name("zh-cache".into())
            .spawn(move || write(&mut store, &of_writer, &inbox))?;
        Ok(Self {
            shared,
            orders: Some(orders),
            writer: Some(writer),
        })
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

    /// Removes what the filter names; how many that were.
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
        let counts = &self.shared.counts;
        let waiting = counts.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = waiting + bytes <= QUEUE_BYTES && self.orders.try_send(Order::Put(Box::new(answer))).is_ok();
        if !taken {
            counts.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            Counts::add(&counts.puts_refused, 1);
        }
        taken
    }
}

fn seconds() -> (u64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_nanos())
}

/// The writer's thread: does what it is asked for until it is told to stop, or nobody can ask any more.
fn write(store: &mut Store, shared: &Shared, inbox: &Receiver<Order>) {
    loop {
        let order = match inbox.recv_timeout(LOOK) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let (second, nanos) = seconds();
        let now = shared.now(second, nanos);
        match order {
            Order::Put(answer) => {
                let bytes = answer.body.len() as u64;
                store.put(*answer, now);
                shared.counts.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            // Whoever asked may have gone.
            Order::Purge(filter, answer) => drop(answer.send(store.purge(&filter))),
            Order::Pin(filter, pinned, answer) => drop(answer.send(store.pin(&filter, pinned))),
            Order::Look(from, most, answer) => drop(answer.send(store.look(from, most, now))),
            Order::Totals(answer) => drop(answer.send(store.totals())),
            Order::Stop => return,
        }
    }
}
