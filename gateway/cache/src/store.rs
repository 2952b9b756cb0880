//! The writer: takes answers in, keeps the bound, evicts the coldest.
//!
//! One value on one thread; readers see what it does through [`Shared`]. What concerns files, where there are any, is in
//! `upkeep.rs`. Invariant: what entries cost never exceeds the bound, also while one is taken in.

#[path = "upkeep.rs"]
mod upkeep;

mod look;

pub use look::{Cursor, Listed, Page, Total};

use std::sync::{Arc, atomic::Ordering};

use crate::{
    counts::Counts,
    disk::Disk,
    files::{DiskFiles, Files},
    front::{Front, Now, Shared},
    heat::{Tick, UNIT},
    hot::Hot,
    ledger::{Ledger, cost},
    note::Notes,
    policy::{Entries, Look, Policy, Probation},
    slots::MOST,
    types::{Answer, Context, Entry, EntryId, Key, ModelNumber, PartNumber, Place, PromptHash},
};

/// Entries that a bucket holds.
pub(crate) const BUCKET: usize = 100;
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
pub(crate) struct Store<D: Files = DiskFiles> {
    shared: Arc<Shared>,
    limits: Limits,
    ledger: Ledger,
    policy: Policy,
    /// Tenants by entry id, to select by.
    tenants: Vec<u64>,
    free: Vec<EntryId>,
    next: u32,
    pinned_bytes: u64,
    chance: u64,
    /// The files; `None` for a cache in memory.
    disk: Option<Disk<D>>,
    /// Values of sealed answers that lie in memory.
    hot: Hot,
    /// Entries of the active segment, and some that were.
    active: Vec<(ModelNumber, EntryId)>,
    /// The index is to be committed though little has changed.
    commit_soon: bool,
    notes: Notes,
}

/// The entries of a model at a moment, as the policy asks about them.
struct Moment<'a> {
    shared: &'a Shared,
    ledger: &'a Ledger,
    model: ModelNumber,
    now: Now,
}

impl Entries for Moment<'_> {
    fn warmth(&self, id: EntryId) -> Option<f32> {
        warmth(self.shared, self.ledger.get(self.model, id)?, self.now)
    }

    fn was_hit(&self, id: EntryId, since: Tick) -> bool {
        self.shared.slots.get(id).is_some_and(|slot| slot.was_hit(since))
    }
}

/// Heat, below zero of what has expired; `None` of what is pinned.
fn warmth(shared: &Shared, entry: &Entry, now: Now) -> Option<f32> {
    let slot = shared.slots.get(entry.id).filter(|slot| !slot.is_pinned())?;
    let expired = entry.expires <= now.seconds;
    Some(if expired {
        -1.0
    } else {
        slot.heat(&shared.decay, now.tick)
    })
}

impl<D: Files + Clone> Store<D> {
    pub(crate) fn new(shared: Arc<Shared>, limits: Limits, probation: Probation, seed: u64) -> Self {
        Self {
            policy: Policy::new(probation, &shared.decay, seed),
            shared,
            limits,
            ledger: Ledger::new(limits.buckets),
            tenants: Vec::new(),
            free: Vec::new(),
            next: 0,
            pinned_bytes: 0,
            chance: seed,
            disk: None,
            hot: Hot::new(0),
            active: Vec::new(),
            commit_soon: false,
            notes: Notes::nobody(),
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
        let mut entry = Entry {
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
        if let Some(disk) = &mut self.disk {
            let Ok(place) = disk.append(&answer, &entry.key) else {
                self.free.push(id);
                return Counts::add(&self.shared.counts.puts_refused, 1);
            };
            entry.place = place;
            self.active.push((model, id));
        }
        let Some(stamp) = self.shared.slots.begin(id, UNIT, now.tick, answer.generation_ms) else {
            return;
        };
        self.set_tenant(id, answer.tenant);
        self.ledger.insert(entry);
        let size = (answer.prompt.word(), cost(&entry));
        self.policy.admit(model, id, size, now.tick);
        let value = Some(Arc::from(answer.body));
        self.shared
            .map
            .pin()
            .insert(answer.prompt, Front { entry, stamp, value });
        Counts::add(&self.shared.counts.puts, 1);
        // What is put was looked for before, and not found.
        self.look_up(Look {
            word: size.0,
            bytes: size.1,
            at: now.tick,
        });
        self.publish();
    }

    fn set_tenant(&mut self, id: EntryId, tenant: u64) {
        let at = id.0 as usize;
        if self.tenants.len() <= at {
            self.tenants.resize(at + 1, 0);
        }
        self.tenants[at] = tenant;
    }

    /// The entry that readers find under this key.
    fn find(&self, key: &Key) -> Option<Entry> {
        let front = self.shared.map.pin().get(&key.prompt).map(|front| front.entry);
        let of_tree = || self.disk.as_ref()?.index.tree().get(key);
        let entry = front.or_else(of_tree)?;
        self.ledger
            .get(entry.key.model, entry.id)
            .filter(|it| it.key == *key)
            .copied()
    }

    /// Does what is to be done though nothing is put.
    pub(crate) fn idle(&mut self) {
        self.take_notes();
        self.publish();
    }

    /// Shows the policy the hits that readers told of.
    fn take_notes(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.notes.take().for_each(|look| self.policy.look(look));
    }

    /// Shows the policy a look-up, after those that readers told of before.
    fn look_up(&mut self, look: Look) {
        self.take_notes();
        if self.shared.notes.wants(look.word) {
            self.policy.look(look);
        }
    }

    /// Makes room in the entry's bucket and in all; false if it does not fit.
    fn make_room(&mut self, entry: &Entry, now: Now) -> bool {
        if cost(entry) > self.limits.bytes - self.pinned_bytes.min(self.limits.bytes) {
            return false;
        }
        if let Some(old) = self.find(&entry.key) {
            self.policy.replaced(old.id);
            self.remove(&old);
        }
        while self.ledger.bucket(entry).count() >= BUCKET {
            let coldest = self.coldest(self.ledger.bucket(entry), now);
            let Some(coldest) = coldest else { return false };
            self.evict(&coldest, now);
            Counts::add(&self.shared.counts.evicted_bucket, 1);
        }
        while self.ledger.bytes() + cost(entry) > self.limits.bytes {
            let full = (self.ledger.len(), self.limits.bytes);
            self.policy.full(full, &self.shared.decay, now.tick);
            let Some(cold) = self.cold(now) else { return false };
            self.evict(&cold, now);
            Counts::add(&self.shared.counts.evicted_size, 1);
        }
        true
    }

    /// Who goes of the model that costs most.
    fn cold(&mut self, now: Now) -> Option<Entry> {
        let model = self.ledger.largest();
        let entries = Moment {
            shared: &self.shared,
            ledger: &self.ledger,
            model,
            now,
        };
        let victim = self.policy.victim(model, &entries);
        victim
            .and_then(|id| self.ledger.get(model, id).copied())
            // Where all of it are pinned, others go.
            .or_else(|| self.coldest(self.ledger.iter().copied(), now))
    }

    /// The coldest of these that is not pinned; what has expired is colder than all.
    fn coldest(&self, entries: impl Iterator<Item = Entry>, now: Now) -> Option<Entry> {
        let warm = entries.filter_map(|entry| Some((warmth(&self.shared, &entry, now)?, entry)));
        warm.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, entry)| entry)
    }

    fn evict(&mut self, entry: &Entry, now: Now) {
        self.policy.evicted(entry.id, now.tick, &self.shared.decay);
        self.remove(entry);
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
        self.policy.removed(entry.id);
        self.shared.slots.end(entry.id);
        self.shared.map.pin().remove(&entry.key.prompt);
        match &mut self.disk {
            Some(disk) => {
                self.hot.remove(entry.id);
                disk.gone(entry);
            }
            None => self.free.push(entry.id),
        }
        self.publish();
    }

    /// Removes what the filter names; how many that were. Of a cache on disk what was removed leaves the files too.
    pub(crate) async fn purge(&mut self, filter: &Filter, now: Now) -> usize {
        let named = self.named(filter, now).await;
        for entry in &named {
            self.remove(entry);
        }
        Counts::add(&self.shared.counts.purged, named.len() as u64);
        self.purge_files(now).await;
        named.len()
    }

    /// Pins what the filter names, or lets it go; how many were changed. What would take pinned entries beyond half of
    /// the bound stays as it is.
    pub(crate) async fn pin(&mut self, filter: &Filter, pinned: bool, now: Now) -> usize {
        let named = self.named(filter, now).await;
        let changed = named.iter().filter(|entry| self.pin_one(entry, pinned)).count();
        self.commit_soon |= changed > 0 && self.disk.is_some();
        changed
    }

    /// Pins an entry, or lets it go; whether that changed anything.
    fn pin_one(&mut self, entry: &Entry, pinned: bool) -> bool {
        let Some(slot) = self
            .shared
            .slots
            .get(entry.id)
            .filter(|slot| slot.is_pinned() != pinned)
        else {
            return false;
        };
        let count = &self.shared.counts.pinned;
        if pinned {
            if self.pinned_bytes + cost(entry) > self.limits.bytes / PINNED_SHARE {
                return false;
            }
            self.pinned_bytes += cost(entry);
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            self.pinned_bytes -= cost(entry);
            count.fetch_sub(1, Ordering::Relaxed);
        }
        slot.pin(pinned);
        true
    }

    /// The entries that the filter names.
    async fn named(&mut self, filter: &Filter, now: Now) -> Vec<Entry> {
        if matches!(filter, Filter::Tenant(_)) {
            self.learn_tenants(now).await;
        }
        self.select(filter)
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
        self.policy.publish(&self.shared.counts, &self.shared.notes);
        if let Some(disk) = &self.disk {
            Counts::set(&self.shared.counts.disk_bytes, disk.used());
            Counts::set(&self.shared.counts.parts, disk.parts.len() as u64);
            Counts::set(&self.shared.counts.hot_bytes, self.hot.bytes());
        }
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
