//! Identical requests in flight share one generation, whichever workers they land on.
//!
//! A **flight** is a generation that others can follow: the log of the engine's events, before any dialect, from the
//! first one. The request that began it **leads**: it hands in the job as any other, and says in the flight what the
//! engine tells. Whoever asks the same meanwhile **follows**: it reads the log from its start and makes its own reply of
//! it. A leader whose client leaves goes on without one while somebody follows (an *orphan*); one that fails is succeeded by
//! exactly one follower of those that have told their clients nothing yet, and the others of those follow that one.
//!
//! Nothing here submits a job, writes a reply or reads a clock. Invariants: a key is compared in full; one flight has one
//! leader; who follows hears all that its leader says, in order, and is told when there is more; a flight that nobody listens
//! to is given up; a flight ends for all its followers, also if its leader's worker dies.
//!
//! Locks are held for a few instructions, in this order: a shard of the table, the state of a flight, its seats at one
//! worker, news behind a door. None is taken to append to a flight that nobody follows, or to read one.

mod doors;
mod ends;
mod log;

pub use self::ends::{Again, Conn, Flight, Follow, Lead, Leaving, Seat, Stay};

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use zerohop_cache::Key;
use zerohop_engine::{Event, Rejected};

use self::doors::Doors;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;
/// Most flights of a shard: 4096 in all. A request that finds no place for one goes alone.
const MOST: usize = 256;
/// Longest log in bytes that is kept from its start. When a flight outgrows it, nobody can join it any more; those who
/// follow hear the rest.
pub const LONGEST: usize = 1 << 20;

/// Wakes a worker, from any thread.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What is said in a flight.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// What the engine told of the leader's job.
    Event(Event),
    /// The engine did not take the leader's job.
    Rejected(Rejected),
}

impl Said {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Event(event) => event.is_final(),
            Self::Rejected(_) => true,
        }
    }

    /// Whether it is the end of a generation that another might bring to a good one. What an engine does not take, or what
    /// cannot be served at all, would not fare better the next moment.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Event(Event::Failed { .. } | Event::TimedOut))
    }

    /// Bytes that it takes in a log.
    fn bytes(&self) -> usize {
        let text = match self {
            Self::Event(Event::Text { text, .. } | Event::Arguments { text, .. }) => text.capacity(),
            Self::Event(Event::Call { name }) => name.capacity(),
            _ => 0,
        };
        size_of::<Self>() + text
    }
}

/// What a request may have of flights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To follow one, or to lead.
    Any,
    /// To lead: what began earlier is too old for it.
    Anew,
}

/// What became of a request that may share a generation.
#[derive(Debug)]
pub enum Joined {
    /// It leads.
    Leader(Lead),
    /// It follows.
    Follower(Follow),
    /// Its answer has been stored meanwhile.
    Stored,
    /// It shares nothing: there is no place for another flight, or one that it may not follow has it.
    Alone,
}

/// The flights of a process, for all workers.
#[derive(Clone)]
pub struct Flights(Arc<Board>);

/// The table.
pub(crate) struct Board {
    shards: [Mutex<HashMap<Key, Arc<Flight>, RandomState>>; SHARDS],
    doors: Doors,
    /// Most flights of a shard.
    most: usize,
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("open", &self.open()).finish()
    }
}

impl Flights {
    /// For so many workers; there are none.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self::bounded(workers, MOST)
    }

    fn bounded(workers: usize, most: usize) -> Self {
        Self(Arc::new(Board {
            shards: std::array::from_fn(|_| Mutex::default()),
            doors: Doors::new(workers),
            most,
        }))
    }

    /// From now on this worker is woken when there is news for it.
    pub fn open_door(&self, worker: usize, waker: Wake) {
        self.0.doors.open(worker, waker);
    }

    /// Joins the flight of this key, or begins one, for the connection at `seat`. `stored` says whether an answer is there by
    /// now; it is asked where a flight would begin. An answer that is stored before its flight leaves the table is so never
    /// made twice.
    pub fn join(&self, key: &Key, seat: Seat, wish: Wish, stored: impl FnOnce() -> bool) -> Joined {
        let mut shard = self.0.shard(key);
        if let Some(flight) = shard.get(key) {
            let follow = match wish {
                Wish::Any => Flight::follow(flight, seat),
                Wish::Anew if flight.is_open() => return Joined::Alone,
                Wish::Anew => None,
            };
            if let Some(follow) = follow {
                return Joined::Follower(follow);
            }
            // It is closed and about to leave: its place is free.
        } else if shard.len() >= self.0.most {
            return Joined::Alone;
        }
        if stored() {
            return Joined::Stored;
        }
        let lead = Flight::begin(&self.0, key, seat.worker);
        shard.insert(*key, Arc::clone(lead.flight()));
        Joined::Leader(lead)
    }

    /// Wakes the workers that have news and do not know.
    pub fn ring(&self) {
        self.0.doors.ring();
    }

    /// The flights of which a worker has to look at what its connections follow, or whether what it leads goes on. What is
    /// said from now on is news again.
    #[must_use]
    pub fn news(&self, worker: usize) -> Vec<Arc<Flight>> {
        let news = self.0.doors.take(worker);
        news.iter().for_each(|flight| flight.hear(worker));
        news
    }

    /// How many flights can be joined.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.shards.iter().map(|shard| lock(shard).len()).sum()
    }
}

impl Board {
    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Arc<Flight>, RandomState>> {
        lock(&self.shards[key.prompt.word() as usize % SHARDS])
    }

    /// Takes a closed flight from the table, if it is still there.
    fn remove(&self, flight: &Arc<Flight>) {
        let mut shard = self.shard(flight.key());
        if shard.get(flight.key()).is_some_and(|there| Arc::ptr_eq(there, flight)) {
            shard.remove(flight.key());
        }
    }
}

/// What a panic elsewhere left behind is whole: nothing that is changed under these locks can fail half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
