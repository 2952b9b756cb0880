//! The writer's own list of all entries: by bucket, for the eviction that is local to one, and in one row a
//! model, to draw from it.
//!
//! It decides nothing and is seen by the writer only. Invariant: an entry is in its model's row and in its bucket, or in
//! neither; `place` names where in the row it stands.

use crate::types::{Entry, EntryId, ModelNumber, Place};

/// Bytes that an entry costs beside its value: map, slot, row, bucket, and what the policy keeps. Measured: 300,000 entries take
/// 386 bytes of resident memory each beside their values, 411 with probation and all that its ghost remembers.
pub(crate) const OVERHEAD: u64 = 416;

/// What an entry costs in all.
pub(crate) fn cost(entry: &Entry) -> u64 {
    u64::from(entry.place.len) + OVERHEAD
}

/// Entries by model.
pub(crate) struct Ledger {
    buckets: u32,
    models: Vec<Rows>,
    /// By id.
    places: Vec<u32>,
    bytes: u64,
}

#[derive(Default)]
struct Rows {
    row: Vec<Entry>,
    buckets: Vec<Vec<EntryId>>,
    bytes: u64,
}

impl Ledger {
    /// `buckets` for each model: a power of two.
    pub(crate) fn new(buckets: u32) -> Self {
        Self {
            buckets,
            models: Vec::new(),
            places: Vec::new(),
            bytes: 0,
        }
    }

    /// Entries in all.
    pub(crate) fn len(&self) -> usize {
        self.models.iter().map(|model| model.row.len()).sum()
    }

    /// What they cost, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn insert(&mut self, entry: Entry) {
        let bucket = self.bucket_of(&entry);
        let model = usize::from(entry.key.model.0);
        if self.models.len() <= model {
            self.models.resize_with(model + 1, Rows::default);
        }
        let rows = &mut self.models[model];
        if rows.buckets.is_empty() {
            rows.buckets = vec![Vec::new(); self.buckets as usize];
        }
        let id = entry.id.0 as usize;
        if self.places.len() <= id {
            self.places.resize(id + 1, u32::MAX);
        }
        self.places[id] = rows.row.len() as u32;
        rows.row.push(entry);
        rows.buckets[bucket].push(entry.id);
        rows.bytes += cost(&entry);
        self.bytes += cost(&entry);
    }

    /// Takes an entry out that is in.
    pub(crate) fn remove(&mut self, model: ModelNumber, id: EntryId) -> Option<Entry> {
        let rows = self.models.get_mut(usize::from(model.0))?;
        let place = *self.places.get(id.0 as usize)? as usize;
        if rows.row.get(place)?.id != id {
            return None;
        }
        let entry = rows.row.swap_remove(place);
        self.places[id.0 as usize] = u32::MAX;
        if let Some(moved) = rows.row.get(place) {
            self.places[moved.id.0 as usize] = place as u32;
        }
        rows.bytes -= cost(&entry);
        self.bytes -= cost(&entry);
        let bucket = (entry.key.prompt.word() % u64::from(self.buckets)) as usize;
        rows.buckets[bucket].retain(|other| *other != id);
        Some(entry)
    }

    /// The entry of this id.
    pub(crate) fn get(&self, model: ModelNumber, id: EntryId) -> Option<&Entry> {
        let rows = self.models.get(usize::from(model.0))?;
        let place = *self.places.get(id.0 as usize)? as usize;
        rows.row.get(place).filter(|entry| entry.id == id)
    }

    /// Its value lies elsewhere now, with as many bytes or other ones.
    pub(crate) fn moved(&mut self, model: ModelNumber, id: EntryId, to: Place) {
        let rows = self.models.get_mut(usize::from(model.0));
        let at = self.places.get(id.0 as usize).copied().unwrap_or(u32::MAX) as usize;
        let Some((rows, entry)) = rows.and_then(|rows| Some((&mut rows.bytes, rows.row.get_mut(at)?))) else {
            return;
        };
        if entry.id == id {
            let (before, after) = (cost(entry), u64::from(to.len) + OVERHEAD);
            entry.place = to;
            *rows = *rows - before + after;
            self.bytes = self.bytes - before + after;
        }
    }

    /// The entries that share this one's bucket.
    pub(crate) fn bucket(&self, entry: &Entry) -> impl Iterator<Item = Entry> + '_ {
        self.of_bucket(usize::from(entry.key.model.0), self.bucket_of(entry))
    }

    /// Buckets of each model.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets as usize
    }

    /// Entries and bytes of each model, by its number.
    pub(crate) fn totals(&self) -> impl ExactSizeIterator<Item = (usize, u64)> + '_ {
        self.models.iter().map(|model| (model.row.len(), model.bytes))
    }

    /// The entries of a bucket of a model.
    pub(crate) fn of_bucket(&self, model: usize, bucket: usize) -> impl Iterator<Item = Entry> + '_ {
        let rows = self.models.get(model);
        let ids = rows.and_then(|rows| rows.buckets.get(bucket));
        ids.into_iter()
            .flatten()
            .filter_map(move |id| Some(rows?.row[self.places[id.0 as usize] as usize]))
    }

    /// The model that costs most.
    pub(crate) fn largest(&self) -> ModelNumber {
        let most = self.models.iter().enumerate().max_by_key(|(_, model)| model.bytes);
        ModelNumber(most.map_or(0, |(number, _)| number as u16))
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.models.iter().flat_map(|model| &model.row)
    }

    fn bucket_of(&self, entry: &Entry) -> usize {
        (entry.key.prompt.word() % u64::from(self.buckets)) as usize
    }
}
