//! The writer: takes answers in, keeps the bound, evicts the coldest.
//!
//! One value on one thread; readers see what it does through [`Shared`]. Invariant: what entries cost never exceeds the bound,
//! also while one is taken in.

mod look;

pub use look::{Cursor, Listed, Page, Total};

use std::sync::{Arc, atomic::Ordering};

use crate::{
    counts::Counts,
    front::{Front, Now, Shared},
    heat::UNIT,
    ledger::{Ledger, cost},
    slots::MOST,
    types::{Answer, Context, Entry, EntryId, Key, PartNumber, Place, PromptHash, Seconds},
};

/// Entries that a bucket holds.
pub(crate) const BUCKET: usize = 100;
/// Entries that are compared to find a cold one.
const SAMPLE: usize = 16;
/// Share of the bound that pinned entries may take: one half.
const PINNED_SHARE: u64 = 2;

/// What a store may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that entries may cost in all.
    pub bytes: u64,
    /// Buckets of each model, a power of two.
    pub buckets: u32,
}

/// Which entries are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All of them.
    All,
    /// The one with this identity.
    Prompt(PromptHash),
    /// Those of a model.
    Model(String),
    /// Those of a tenant's name space.
    Tenant(u64),
    /// Conversations that begin so.
    Context(Context),
}

/// What the writer has.
pub(crate) struct Store {
    shared: Arc<Shared>,
    limits: Limits,
    ledger: Ledger,
    /// Tenants by entry id, to select by.
    tenants: Vec<u64>,
    free: Vec<EntryId>,
    next: u32,
    pinned_bytes: u64,
    chance: u64,
}

impl Store {
    pub(crate) fn new(shared: Arc<Shared>, limits: Limits, seed: u64) -> Self {
        Self {
            shared,
            limits,
            ledger: Ledger::new(limits.buckets),
            tenants: Vec::new(),
            free: Vec::new(),
            next: 0,
            pinned_bytes: 0,
            chance: seed,
        }
    }

    /// Takes an answer in, in the place of one with the same identity.
    pub(crate) fn put(&mut self, answer: Answer, now: Now) {
        let Some(model) = self.shared.model(&answer.model) else {
            return Counts::add(&self.shared.counts.puts_refused, 1);
        };
        let (Ok(len), Some(id)) = (u32::try_from(answer.body.len()), self.next_id()) else {
            return Counts::add(&self.shared.counts.puts_too_large, 1);
        };
        let entry = Entry {
            key: Key {
                model,
                context: answer.context,
                prompt: answer.prompt,
            },
            id,
            place: Place {
                part: PartNumber(0),
                offset: 0,
                len,
                crc: 0,
            },
            created: answer.created,
            expires: answer.expires,
            heat: UNIT,
        };
        if !self.make_room(&entry, now) {
            self.free.push(id);
            return Counts::add(&self.shared.counts.puts_too_large, 1);
        }
        let Some(stamp) = self.shared.slots.begin(id, UNIT, now.tick, answer.generation_ms) else {
            return;
        };
        if self.tenants.len() <= id.0 as usize {
            self.tenants.resize(id.0 as usize + 1, 0);
        }
        self.tenants[id.0 as usize] = answer.tenant;
        self.ledger.insert(entry);
        let value = Some(Arc::from(answer.body));
        self.shared
            .map
            .pin()
            .insert(answer.prompt, Front { entry, stamp, value });
        Counts::add(&self.shared.counts.puts, 1);
        self.publish();
    }

    /// Makes room in the entry's bucket and in all; false if it does not fit.
    fn make_room(&mut self, entry: &Entry, now: Now) -> bool {
        if cost(entry) > self.limits.bytes - self.pinned_bytes.min(self.limits.bytes) {
            return false;
        }
        let old = self.shared.map.pin().get(&entry.key.prompt).map(|front| front.entry);
        if let Some(old) = old {
            self.remove(&old);
        }
        while self.ledger.bucket(entry).count() >= BUCKET {
            let coldest = self.coldest(self.ledger.bucket(entry), now);
            let Some(coldest) = coldest else { return false };
            self.evict(&coldest, now);
            Counts::add(&self.shared.counts.evicted_bucket, 1);
        }
        while self.ledger.bytes() + cost(entry) > self.limits.bytes {
            let Some(cold) = self.cold(now) else { return false };
            self.evict(&cold, now);
            Counts::add(&self.shared.counts.evicted_size, 1);
        }
        true
    }

    /// A cold entry of the model that costs most.
    fn cold(&mut self, now: Now) -> Option<Entry> {
        let len = self.ledger.largest().len();
        let mut drawn = [0; SAMPLE];
        for place in &mut drawn {
            *place = (self.draw() % len.max(1) as u64) as usize;
        }
        let row = self.ledger.largest();
        let sample = drawn.iter().filter_map(|place| row.get(*place).copied());
        // Where chance met pinned ones only, all are looked at.
        self.coldest(sample, now)
            .or_else(|| self.coldest(self.ledger.iter().copied(), now))
    }

    /// The coldest of these that is not pinned; what has expired is colder than all.
    fn coldest(&self, entries: impl Iterator<Item = Entry>, now: Now) -> Option<Entry> {
        let warmth = |entry: &Entry| {
            let slot = self.shared.slots.get(entry.id)?;
            let expired = entry.expires <= now.seconds;
            (!slot.is_pinned()).then(|| {
                if expired {
                    -1.0
                } else {
                    slot.heat(&self.shared.decay, now.tick)
                }
            })
        };
        let warm = entries.filter_map(|entry| Some((warmth(&entry)?, entry)));
        warm.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, entry)| entry)
    }

    fn evict(&mut self, entry: &Entry, now: Now) {
        self.note_residence(entry.created, now.seconds);
        self.remove(entry);
    }

    /// The half-life follows how long entries stay: an average in which each eviction weighs 1/64.
    fn note_residence(&self, created: Seconds, now: Seconds) {
        const WEIGHT: i64 = 64;
        if let Some(half_life) = self.shared.decay.half_life() {
            let stayed = i64::from(now.saturating_sub(created)) * i64::from(crate::heat::SECOND);
            let half_life = i64::from(half_life);
            let next = half_life + (stayed - half_life) / WEIGHT;
            self.shared.decay.adapt(u32::try_from(next).unwrap_or(u32::MAX));
        }
    }

    /// Ends an entry. Readers that hold its value keep it until they let go.
    fn remove(&mut self, entry: &Entry) {
        if self.ledger.remove(entry.key.model, entry.id).is_none() {
            return;
        }
        if self.shared.slots.get(entry.id).is_some_and(|slot| slot.is_pinned()) {
            self.pinned_bytes -= cost(entry);
            self.shared.counts.pinned.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.slots.end(entry.id);
        self.shared.map.pin().remove(&entry.key.prompt);
        self.free.push(entry.id);
        self.publish();
    }

    /// Removes what the filter names; how many that were.
    pub(crate) fn purge(&mut self, filter: &Filter) -> usize {
        let named = self.select(filter);
        for entry in &named {
            self.remove(entry);
        }
        Counts::add(&self.shared.counts.purged, named.len() as u64);
        named.len()
    }

    /// Pins what the filter names, or lets it go; how many were changed. What would take pinned entries beyond half of
    /// the bound stays as it is.
    pub(crate) fn pin(&mut self, filter: &Filter, pinned: bool) -> usize {
        let mut changed = 0;
        for entry in self.select(filter) {
            let Some(slot) = self.shared.slots.get(entry.id) else {
                continue;
            };
            if slot.is_pinned() == pinned {
                continue;
            }
            if pinned {
                if self.pinned_bytes + cost(&entry) > self.limits.bytes / PINNED_SHARE {
                    continue;
                }
                self.pinned_bytes += cost(&entry);
            } else {
                self.pinned_bytes -= cost(&entry);
            }
            slot.pin(pinned);
            changed += 1;
            let count = &self.shared.counts.pinned;
            let _before = if pinned {
                count.fetch_add(1, Ordering::Relaxed)
            } else {
                count.fetch_sub(1, Ordering::Relaxed)
            };
        }
        changed
    }

    fn select(&self, filter: &Filter) -> Vec<Entry> {
        let model = match filter {
            Filter::Model(name) => self.shared.model(name),
            _ => None,
        };
        let named = |entry: &&Entry| match filter {
            Filter::All => true,
            Filter::Prompt(prompt) => entry.key.prompt == *prompt,
            Filter::Model(_) => model == Some(entry.key.model),
            Filter::Tenant(tenant) => self.tenants[entry.id.0 as usize] == *tenant,
            Filter::Context(context) => entry.key.context == *context,
        };
        self.ledger.iter().filter(named).copied().collect()
    }

    fn publish(&self) {
        Counts::set(&self.shared.counts.entries, self.ledger.len() as u64);
        Counts::set(&self.shared.counts.bytes, self.ledger.bytes());
    }

    fn next_id(&mut self) -> Option<EntryId> {
        self.free.pop().or_else(|| {
            let id = EntryId(self.next);
            ((id.0 as usize) < MOST).then(|| {
                self.next += 1;
                id
            })
        })
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.chance;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
