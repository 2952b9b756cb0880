//! A cache in memory without a thread and a clock: its writer works when it is told to, at the moment that it is told.
//!
//! For replays of traces: what chooses is the very code of [`Cache`](crate::Cache). It opens nothing. Invariant: what it does
//! follows from its options and what it is told.

use std::sync::Arc;

use crate::{
    cache::Options,
    counts::Stats,
    front::{Now, Reader, Shared},
    store::Store,
    types::{Answer, Seconds},
};

/// A cache that is driven step by step.
pub struct Stepped {
    store: Store,
    reader: Reader,
}

impl Stepped {
    /// An empty one, at the second `base`, in which ticks begin.
    #[must_use]
    pub fn new(options: Options, base: Seconds) -> Self {
        let shared = Arc::new(Shared::new(options.decay, base));
        let reader = Reader {
            shared: Arc::clone(&shared),
        };
        Self {
            store: Store::new(shared, options.limits, options.probation, options.seed),
            reader,
        }
    }

    /// How things are looked up in it.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Puts an answer, as the writer does.
    pub fn put(&mut self, answer: Answer, now: Now) {
        self.store.put(answer, now);
    }

    /// The counters of this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.reader.shared.counts.read()
    }
}
