//! What readers look at: first the entries that the mapped tree does not have yet and those whose values lie in memory, then the
//! tree.
//!
//! One concurrent map with one writer; reading takes no lock and waits for no disk. Invariants: where the map has an entry under a
//! hash, the tree's is not looked at; an entry of the tree is given only while its slot lives, and an id is not taken again
//! before a tree without its old entry is committed.

use std::{
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use zerohop_ring::ReadFile;

use crate::{
    counts::Counts,
    heat::{Decay, SECOND, Tick},
    index,
    ledger::cost,
    policy::{Look, notes::Notes},
    segment::part::Form,
    slots::{Slots, Stamp},
    types::{Entry, Key, ModelNumber, NEVER, PartNumber, Place, PromptHash, Seconds},
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
    /// The parts that readers may read from.
    pub(crate) parts: papaya::HashMap<PartNumber, Arc<PartFile>>,
    /// Heat (an f32) below which a value that was read from a part is not worth a place in memory.
    floor: AtomicU32,
    /// The index, of a cache on disk.
    pub(crate) tree: OnceLock<index::Reader>,
    pub(crate) notes: Notes,
    models: Mutex<Vec<String>>,
    /// The second in which ticks begin.
    base: Seconds,
}

/// A part as readers have it: what they hold stays readable when the part is removed.
#[derive(Debug)]
pub struct PartFile {
    /// Opened for reading, as workers do it.
    pub file: Arc<ReadFile>,
    /// How values lie in it.
    pub form: Form,
}

impl Shared {
    pub(crate) fn new(decay: Decay, base: Seconds) -> Self {
        Self {
            map: papaya::HashMap::default(),
            slots: Slots::new(),
            decay,
            counts: Counts::default(),
            parts: papaya::HashMap::new(),
            floor: AtomicU32::new(0),
            tree: OnceLock::new(),
            notes: Notes::new(),
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

    pub(crate) fn set_floor(&self, heat: f32) {
        // No other memory hangs on it.
        self.floor.store(heat.to_bits(), Ordering::Relaxed);
    }

    /// The names of the models, in the order of their numbers.
    pub(crate) fn models(&self) -> Vec<String> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the writer of a hit that the shadows follow.
    #[cold]
    fn tell(&self, word: u64, entry: &Entry, now: Now) {
        let look = Look {
            word,
            bytes: cost(entry),
            at: now.tick,
        };
        if !self.notes.tell(look) {
            Counts::add(&self.counts.shadow_lost, 1);
        }
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
    /// Its bytes, or where they are.
    pub value: Value,
}

/// The bytes of an entry.
#[derive(Debug, Clone)]
pub enum Value {
    /// In memory.
    Here(Arc<[u8]>),
    /// In a part, at the entry's place: to be read there, and then opened by [`segment::part::open_value`].
    ///
    /// [`segment::part::open_value`]: crate::segment::part::open_value
    There(Arc<PartFile>, Place),
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
        let Some(front) = map.get(&key.prompt) else {
            return self.look_up_tree(key);
        };
        if front.entry.key != *key {
            return None;
        }
        let sighting = self.sighting(&front.entry).filter(|it| it.stamp == front.stamp)?;
        let value = match &front.value {
            Some(value) => Value::Here(Arc::clone(value)),
            None => self.there(&front.entry)?,
        };
        Some(Found { sighting, value })
    }

    fn look_up_tree(&self, key: &Key) -> Option<Found> {
        let index = self.shared.tree.get()?;
        let tree = index.tree();
        let entry = tree.get(key)?;
        let sighting = self.sighting(&entry)?;
        // After another commit the id may be somebody else's, whose slot that was then: in that moment it is a miss.
        if !Arc::ptr_eq(&tree, &index.tree()) {
            return None;
        }
        let value = self.there(&entry)?;
        Some(Found { sighting, value })
    }

    fn sighting(&self, entry: &Entry) -> Option<Sighting> {
        let slot = self.shared.slots.get(entry.id)?;
        Some(Sighting {
            entry: *entry,
            stamp: slot.stamp()?,
            made_in: slot.made_in(),
        })
    }

    fn there(&self, entry: &Entry) -> Option<Value> {
        let parts = self.shared.parts.pin();
        let part = parts.get(&entry.place.part)?;
        Some(Value::There(Arc::clone(part), entry.place))
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
        let word = found.entry.key.prompt.word();
        if self.shared.notes.wants(word) {
            self.shared.tell(word, &found.entry, now);
        }
    }

    /// Whether a value that was read from its part may be warm enough for memory: then it is worth an offer to the writer.
    #[must_use]
    pub fn is_worth_keeping(&self, found: &Sighting, now: Now) -> bool {
        let floor = f32::from_bits(self.shared.floor.load(Ordering::Relaxed));
        let slot = self.shared.slots.get(found.entry.id);
        slot.is_some_and(|slot| slot.heat(&self.shared.decay, now.tick) > floor)
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
