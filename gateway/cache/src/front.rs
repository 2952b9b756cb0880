//! What readers find first: the entries that the mapped tree does not have yet, and the values that lie in memory.
//!
//! One concurrent map with one writer; reading takes no lock. Invariant: where the map has an entry under a hash, the tree's is
//! older and is not looked at.

use std::{
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    counts::Counts,
    heat::{Decay, SECOND, Tick},
    slots::{Slots, Stamp},
    types::{Entry, Key, ModelNumber, NEVER, PromptHash, Seconds},
};

/// A moment, as the cache counts time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since 1970.
    pub seconds: Seconds,
    /// Since the cache was opened.
    pub tick: Tick,
}

/// An entry of the map.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    pub(crate) entry: Entry,
    pub(crate) stamp: Stamp,
    /// Its bytes, where they lie in memory.
    pub(crate) value: Option<Arc<[u8]>>,
}

/// What workers and the writer share.
pub(crate) struct Shared {
    pub(crate) map: papaya::HashMap<PromptHash, Front, BuildHasherDefault<Word>>,
    pub(crate) slots: Slots,
    pub(crate) decay: Decay,
    pub(crate) counts: Counts,
    models: Mutex<Vec<String>>,
    /// The second in which ticks begin.
    base: Seconds,
}

impl Shared {
    pub(crate) fn new(decay: Decay, base: Seconds) -> Self {
        Self {
            map: papaya::HashMap::default(),
            slots: Slots::new(),
            decay,
            counts: Counts::default(),
            models: Mutex::default(),
            base,
        }
    }

    /// The number of the model of this name, a new one if it has none; `None` when there are 65,536.
    pub(crate) fn model(&self, name: &str) -> Option<ModelNumber> {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let at = models.iter().position(|model| model == name).unwrap_or_else(|| {
            models.push(name.to_owned());
            models.len() - 1
        });
        u16::try_from(at).ok().map(ModelNumber)
    }

    /// The names of the models, in the order of their numbers.
    pub(crate) fn models(&self) -> Vec<String> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn now(&self, seconds: u64, nanos: u32) -> Now {
        let seconds = Seconds::try_from(seconds).unwrap_or(NEVER);
        let since = seconds.saturating_sub(self.base);
        Now {
            seconds,
            tick: since
                .saturating_mul(SECOND)
                .saturating_add(nanos / (1_000_000_000 / SECOND)),
        }
    }
}

/// An entry that was found, without its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Sighting {
    /// The entry.
    pub entry: Entry,
    /// Which of the entries that had its id it is.
    pub stamp: Stamp,
    /// Milliseconds that making it took; 0 where that is not known any more.
    pub made_in: u32,
}

/// What was found under a key: alive, its key compared in full. Whether it is fresh is the asker's to judge.
#[derive(Debug, Clone)]
pub struct Found {
    /// What it is.
    pub sighting: Sighting,
    /// Its bytes.
    pub value: Arc<[u8]>,
}

/// How a worker looks things up. Each has its own.
#[derive(Clone)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
}

impl Reader {
    /// What lies under this key.
    #[must_use]
    pub fn look_up(&self, key: &Key) -> Option<Found> {
        let map = self.shared.map.pin();
        let front = map.get(&key.prompt).filter(|front| front.entry.key == *key)?;
        let slot = self.shared.slots.get(front.entry.id)?;
        if slot.stamp() != Some(front.stamp) {
            return None;
        }
        let sighting = Sighting {
            entry: front.entry,
            stamp: front.stamp,
            made_in: slot.made_in(),
        };
        Some(Found {
            sighting,
            value: Arc::clone(front.value.as_ref()?),
        })
    }

    /// Whether what was found earlier still lives: it was not evicted, purged or put anew.
    #[must_use]
    pub fn lives(&self, found: &Sighting) -> bool {
        self.shared.slots.lives(found.entry.id, found.stamp)
    }

    /// Counts a hit and warms the entry.
    pub fn hit(&self, found: &Sighting, now: Now) {
        if let Some(slot) = self.shared.slots.get(found.entry.id) {
            slot.hit(&self.shared.decay, now.tick);
        }
    }

    /// This moment, from seconds and nanoseconds since 1970.
    #[must_use]
    pub fn now(&self, unix: (u64, u32)) -> Now {
        self.shared.now(unix.0, unix.1)
    }
}

/// Prompt hashes are spread evenly: their first word is their hash.
#[derive(Default)]
pub(crate) struct Word(u64);

impl Hasher for Word {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*word);
        }
    }

    fn write_usize(&mut self, _length: usize) {}
}
