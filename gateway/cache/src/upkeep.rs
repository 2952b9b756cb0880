//! What the writer does with files: segments are sealed, parts made anew, the index committed, values kept in memory or not.
//!
//! A child of the store, with its disk; it never runs for a cache in memory. Invariants: an entry moves to another file only
//! after its bytes there were compared and last; a file is removed only when no entry lies in it; what fails is told, counted, and
//! costs answers at most, never a wrong one.

#[path = "operator.rs"]
mod operator;

use std::{io, sync::Arc};

use super::{Counts, Entry, EntryId, Files, Front, Key, Now, Place, Store, cost};
use crate::{
    disk::{Disk, Opened},
    hot::{Hot, Warm},
    index::{HashVersions, IndexError, Options},
    note::{Note, Notes},
    policy::Probation,
    segment::{
        compact::{self, Rules, Share, Step},
        log::{self, Log},
        part::{self, Form, Row},
    },
    types::{Answer, PartNumber, Seconds},
};

/// Values that are compared to find a cold one.
const SAMPLE: usize = 16;
/// Fewest changes that are worth a commit before its time.
const MANY: usize = 8192;
/// Share of the index that has to change for one: a quarter.
const SHARE: u64 = 4;
/// After so long every change is committed.
const COMMIT_AFTER: std::time::Duration = std::time::Duration::from_secs(300);

impl<D: Files + Clone> Store<D> {
    /// A store on the files that were opened.
    pub(crate) fn on_disk(
        shared: Arc<super::Shared>,
        opened: Opened<D>,
        (probation, seed): (Probation, u64),
        now: Now,
        notes: Notes,
    ) -> Self {
        let Opened { disk, entries, next_id } = opened;
        let limits = super::Limits {
            bytes: disk.entries_bound(),
            buckets: disk.index.buckets(),
        };
        let mut store = Self::new(shared, limits, probation, seed);
        store.notes = notes;
        store.hot = Hot::new(disk.plan.hot_bytes);
        store.next = next_id;
        let _first = store.shared.tree.set(disk.index.reader());
        store.disk = Some(disk);
        for it in entries {
            let entry = it.entry;
            let slots = &store.shared.slots;
            let Some(stamp) = slots.begin(entry.id, entry.heat, now.tick, it.made_in) else {
                continue;
            };
            store.set_tenant(entry.id, it.tenant.unwrap_or(0));
            store.ledger.insert(entry);
            let size = (entry.key.prompt.word(), cost(&entry));
            store.policy.admit(entry.key.model, entry.id, size, now.tick);
            let Some(disk) = &mut store.disk else { continue };
            disk.arrived(&entry);
            if disk.dirty.contains_key(&entry.key.prompt) {
                let front = Front {
                    entry,
                    stamp,
                    value: None,
                };
                store.shared.map.pin().insert(entry.key.prompt, front);
            }
            if it.pinned {
                store.pin_one(&entry, true);
            }
        }
        store.notes.say(Note::Opened(store.ledger.len()));
        store
    }

    /// Brings the entries that were found under the bound, and lets the first segment begin.
    pub(crate) async fn begin(&mut self, now: Now) {
        self.keep_bound(now);
        self.upkeep(now).await;
    }

    /// Entries may cost less when the index has grown.
    fn keep_bound(&mut self, now: Now) {
        if let Some(disk) = &self.disk {
            self.limits.bytes = disk.entries_bound();
        }
        while self.ledger.bytes() > self.limits.bytes {
            let Some(cold) = self.cold(now) else { return };
            self.evict(&cold, now);
        }
    }

    /// Whether `answer` needs another segment first: [`Self::seal`].
    pub(crate) fn wants_segment(&self, answer: &Answer) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.wants_segment(answer))
    }

    /// The writer's clock.
    pub(crate) fn set_clock(&mut self, since_start: std::time::Duration) {
        if let Some(disk) = &mut self.disk {
            disk.now = since_start;
        }
    }

    /// When the writer has to come back at the latest, by its clock.
    pub(crate) fn deadline(&self) -> Option<std::time::Duration> {
        self.disk.as_ref()?.log.as_ref()?.deadline()
    }

    /// All that is due.
    pub(crate) async fn upkeep(&mut self, now: Now) {
        let Some(disk) = &mut self.disk else { return };
        if let Err(why) = disk.write().await {
            self.fails(&why);
            self.seal(now).await;
        }
        let Some(disk) = &mut self.disk else { return };
        if disk.log.as_ref().is_some_and(Log::is_full) {
            self.seal(now).await;
        }
        self.begin_segment(now).await;
        if self.is_commit_due() {
            self.commit(now).await;
        }
        self.compact(now).await;
        self.publish();
    }

    /// Everything that waits is written and committed, before the end.
    pub(crate) async fn close(&mut self, now: Now) {
        let Some(disk) = &mut self.disk else { return };
        if let Err(why) = disk.flush().await {
            self.fails(&why);
        }
        if self.disk.as_ref().is_some_and(|disk| !disk.dirty.is_empty()) {
            self.commit(now).await;
        }
    }

    fn fails(&mut self, why: &dyn std::fmt::Display) {
        if let Some(disk) = &mut self.disk {
            if disk.is_well() {
                self.notes.say(Note::NotWritten(why.to_string()));
            }
            disk.failed();
        }
    }

    async fn begin_segment(&mut self, now: Now) {
        let Some(disk) = &mut self.disk else { return };
        if disk.log.is_some() || !disk.may_try() {
            return;
        }
        let segment = disk.plan.segment();
        if !self.make_disk_room(segment, now).await {
            return self.fails(&"the bound leaves no room for a segment");
        }
        let Some(disk) = &mut self.disk else { return };
        match disk.begin_segment().await {
            Ok(()) => self.works(),
            Err(why) => self.fails(&why),
        }
    }

    /// Something was written, maybe for the first time since a failure.
    fn works(&mut self) {
        if self.disk.as_mut().is_some_and(Disk::worked) {
            self.notes.say(Note::WrittenAgain);
        }
    }

    /// Seals the active segment: what lives of it goes to a part, and another segment begins.
    pub(crate) async fn seal(&mut self, now: Now) {
        let Some(disk) = &mut self.disk else { return };
        let flushed = disk.flush().await;
        let Some(log) = disk.log.take() else { return };
        if let Err(why) = flushed
            && !log.is_broken()
        {
            self.fails(&why);
        }
        let number = log.number();
        let (rows, entries) = self.survivors(&log, now.seconds).await;
        drop(log);
        if !rows.is_empty() && !self.seal_rows(rows, &entries, Form::Plain, now).await {
            self.notes.say(Note::Lost(entries.len()));
        }
        self.end_segment(number, now).await;
        self.cool(now);
        self.begin_segment(now).await;
    }

    /// The answers of a segment that are still wanted, in the order of buckets.
    async fn survivors(&self, log: &Log<D::File>, now: Seconds) -> (Vec<Row>, Vec<Entry>) {
        let mut found = Vec::new();
        let mut replay = match log::replay(log.file(), log.number(), 0).await {
            Ok(replay) => replay,
            Err(_) => return (Vec::new(), Vec::new()),
        };
        // Reading ends where it fails; what is behind is lost, and told.
        while let Ok(Some(frame)) = replay.next().await {
            let front = self.shared.map.pin().get(&frame.prompt).map(|front| front.entry);
            let lives = front.filter(|entry| entry.place == frame.place && entry.expires > now);
            if let Some(entry) = lives {
                let hits = self.shared.slots.get(entry.id).map_or(0, |slot| slot.hits());
                let answer = frame.to_answer();
                found.push((Row { answer, hits }, entry));
            }
        }
        let buckets = u64::from(self.limits.buckets);
        found.sort_by_key(|(_, entry)| (entry.key.model, entry.key.prompt.word() % buckets, entry.key));
        found.into_iter().unzip()
    }

    /// Makes a part of these rows and moves their entries there; whether that was done.
    async fn seal_rows(&mut self, rows: Vec<Row>, entries: &[Entry], form: Form, now: Now) -> bool {
        if !self.make_disk_room(part::bound(&rows), now).await {
            self.fails(&"the bound leaves no room for a part");
            return false;
        }
        let Some(disk) = &mut self.disk else { return false };
        match disk.seal(rows, form).await {
            Ok(sealed) => {
                for (entry, place) in entries.iter().zip(sealed.places) {
                    self.shift(entry, place);
                }
                true
            }
            Err(why) => {
                self.fails(&why);
                false
            }
        }
    }

    /// The entry lies elsewhere now, if it still lives.
    fn shift(&mut self, entry: &Entry, to: Place) {
        let (model, id) = (entry.key.model, entry.id);
        let Some(now) = self.ledger.get(model, id).filter(|it| it.place == entry.place).copied() else {
            return;
        };
        let Some(stamp) = self.shared.slots.get(id).and_then(|slot| slot.stamp()) else {
            return;
        };
        let value = self.value(&now.key.prompt);
        if let Some(disk) = &mut self.disk {
            disk.moved(&now, to);
        }
        self.ledger.moved(model, id, to);
        let is_pinned = self.shared.slots.get(id).is_some_and(|slot| slot.is_pinned());
        if is_pinned {
            self.pinned_bytes = self.pinned_bytes - u64::from(now.place.len) + u64::from(to.len);
        }
        if let Some(value) = &value {
            let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
            let key = now.key;
            self.hot.insert(Warm { id, key, len });
        }
        let entry = Entry { place: to, ..now };
        let front = Front { entry, stamp, value };
        self.shared.map.pin().insert(now.key.prompt, front);
    }

    fn value(&self, prompt: &crate::types::PromptHash) -> Option<Arc<[u8]>> {
        self.shared.map.pin().get(prompt)?.value.clone()
    }

    /// The segment's file goes, and with it whatever could not be sealed.
    async fn end_segment(&mut self, number: PartNumber, now: Now) {
        let mut lost = 0;
        for (model, id) in std::mem::take(&mut self.active) {
            let entry = self.ledger.get(model, id).copied();
            if let Some(entry) = entry.filter(|entry| entry.place.part == number) {
                lost += u64::from(entry.expires > now.seconds);
                self.remove(&entry);
            }
        }
        Counts::add(&self.shared.counts.lost, lost);
        Counts::add(&self.shared.counts.seals, 1);
        let Some(disk) = &mut self.disk else { return };
        if let Err(why) = disk.remove_segment(number).await {
            self.fails(&why);
        }
    }

    /// Values beyond their bound leave the memory, cold ones first.
    fn cool(&mut self, now: Now) {
        while self.hot.is_over() {
            let Some(coldest) = self.coldest_value(now) else { return };
            self.forget_value(&coldest);
        }
    }

    /// The coldest of a few values.
    fn coldest_value(&mut self, now: Now) -> Option<Warm> {
        let numbers: [u64; SAMPLE] = std::array::from_fn(|_| self.draw());
        let drawn = numbers.iter().filter_map(|number| self.hot.draw(*number));
        drawn.min_by(|a, b| self.warmth(a.id, now).total_cmp(&self.warmth(b.id, now)))
    }

    /// How warm a value has to be to be offered, by now: what lies in memory has cooled since.
    pub(crate) fn refresh_floor(&mut self, now: Now) {
        if let Some(coldest) = self.coldest_value(now) {
            let floor = if self.hot.is_nearly_full() {
                self.warmth(coldest.id, now)
            } else {
                0.0
            };
            self.shared.set_floor(floor);
        }
    }

    fn warmth(&self, id: EntryId, now: Now) -> f32 {
        let slot = self.shared.slots.get(id);
        slot.map_or(0.0, |slot| slot.heat(&self.shared.decay, now.tick))
    }

    fn forget_value(&mut self, warm: &Warm) {
        self.hot.remove(warm.id);
        let map = self.shared.map.pin();
        let prompt = &warm.key.prompt;
        let is_in_tree = self.disk.as_ref().is_some_and(|disk| !disk.dirty.contains_key(prompt));
        if is_in_tree {
            map.remove(prompt);
        } else if let Some(front) = map.get(prompt) {
            let value = None;
            let front = Front { value, ..front.clone() };
            map.insert(*prompt, front);
        }
    }

    /// A value was read from its part: it stays in memory if it is warmer than what would have to leave.
    pub(crate) fn warm(&mut self, key: &Key, place: Place, value: Arc<[u8]>, now: Now) {
        let Some(entry) = self.find(key).filter(|entry| entry.place == place) else {
            return;
        };
        let Ok(len) = u32::try_from(value.len()) else { return };
        while !self.hot.fits(len) {
            let Some(coldest) = self.coldest_value(now) else { return };
            let floor = self.warmth(coldest.id, now);
            // Workers offer nothing that is colder, until this is looked at again.
            self.shared.set_floor(floor);
            if floor >= self.warmth(entry.id, now) {
                return;
            }
            self.forget_value(&coldest);
        }
        let Some(stamp) = self.shared.slots.get(entry.id).and_then(|slot| slot.stamp()) else {
            return;
        };
        let (id, key) = (entry.id, entry.key);
        self.hot.insert(Warm { id, key, len });
        let value = Some(value);
        self.shared.map.pin().insert(key.prompt, Front { entry, stamp, value });
    }

    /// Makes room for so many bytes of files: parts without life go first, then those with the least of it.
    async fn make_disk_room(&mut self, bytes: u64, now: Now) -> bool {
        while let Some(disk) = &self.disk {
            if disk.has_room(bytes) {
                return true;
            }
            let share = |it: &crate::disk::Sealing<D::File>| it.live as f64 / it.part.bytes().max(1) as f64;
            let least = disk.parts.iter().min_by(|a, b| share(a.1).total_cmp(&share(b.1)));
            let Some(number) = least.map(|(number, _)| *number) else {
                return false;
            };
            self.give_up(number, now).await;
            // What cannot be removed makes no room, however many entries go for it.
            if self.disk.as_ref().is_some_and(Disk::is_untidy) {
                return false;
            }
        }
        false
    }

    /// Removes a part with all entries that lie in it.
    async fn give_up(&mut self, number: PartNumber, now: Now) {
        let lying: Vec<_> = self
            .ledger
            .iter()
            .filter(|it| it.place.part == number)
            .copied()
            .collect();
        Counts::add(&self.shared.counts.evicted_part, lying.len() as u64);
        for entry in &lying {
            self.evict(entry, now);
        }
        self.remove_part(number).await;
    }

    async fn remove_part(&mut self, number: PartNumber) {
        let Some(disk) = &mut self.disk else { return };
        if let Err(why) = disk.remove_part(number).await {
            self.fails(&why);
        }
    }

    fn is_commit_due(&self) -> bool {
        let Some(disk) = &self.disk else { return false };
        let changes = disk.dirty.len();
        let many = changes >= MANY && changes as u64 >= disk.index.tree().len() / SHARE;
        let late = changes > 0 && disk.now.saturating_sub(disk.committed_at) >= COMMIT_AFTER;
        disk.may_try() && (many || late || self.commit_soon)
    }

    /// Commits the index; what the tree has and nobody needs in memory leaves it.
    pub(crate) async fn commit(&mut self, now: Now) {
        let bound = self.disk.as_ref().map_or(0, Disk::commit_bound);
        if !self.make_disk_room(bound, now).await {
            return self.fails(&"the bound leaves no room for a commit of the index");
        }
        let shared = Arc::clone(&self.shared);
        let Some(disk) = &mut self.disk else { return };
        let entry = |key: &Key| shared.map.pin().get(&key.prompt).map(|front| front.entry);
        let heat = |entry: &Entry| match shared.slots.get(entry.id) {
            Some(slot) if slot.is_pinned() => f32::INFINITY,
            Some(slot) => slot.heat(&shared.decay, now.tick),
            None => 0.0,
        };
        let evicted = match disk.commit(entry, heat).await {
            Ok(committed) => committed.evicted,
            // A reader that holds on lets go soon.
            Err(IndexError::Held) => return,
            Err(IndexError::Uncertain) => return self.rebuild_index(now).await,
            Err(why) => return self.fails(&why),
        };
        self.works();
        self.committed();
        for entry in evicted {
            self.evict(&entry, now);
        }
        self.keep_bound(now);
    }

    /// Writes the index anew.
    async fn rebuild_index(&mut self, now: Now) {
        let entries: Vec<_> = self.ledger.iter().copied().collect();
        let Some(disk) = &mut self.disk else { return };
        let options = Options {
            buckets: disk.index.buckets(),
            versions: HashVersions::default(),
        };
        let covered = disk.covered();
        let sealed = entries
            .into_iter()
            .filter(|entry| disk.parts.contains_key(&entry.place.part));
        let sealed: Vec<_> = sealed.collect();
        match disk.index.rebuild(options, covered, sealed).await {
            Ok(evicted) => {
                self.committed();
                for entry in evicted {
                    self.evict(&entry, now);
                }
            }
            Err(why) => self.fails(&why),
        }
    }

    /// Readers have the new tree.
    fn committed(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        self.free.append(&mut disk.retired);
        self.commit_soon = false;
        let map = self.shared.map.pin();
        for (prompt, _) in disk.dirty.drain() {
            let is_served_by_tree = map.get(&prompt).is_some_and(|front| front.value.is_none());
            if is_served_by_tree {
                map.remove(&prompt);
            }
        }
    }

    /// One step of tidying up: a part without life goes, those with little of it are made one anew.
    async fn compact(&mut self, now: Now) {
        let Some(disk) = &self.disk else { return };
        if !disk.may_try() {
            return;
        }
        self.tidy().await;
        let Some(disk) = &self.disk else { return };
        let dead: Vec<_> = disk
            .parts
            .iter()
            .filter(|(_, it)| it.entries == 0)
            .map(|(number, _)| *number)
            .collect();
        for number in dead {
            self.remove_part(number).await;
        }
        let Some(disk) = &self.disk else { return };
        let unclean = disk
            .parts
            .iter()
            .find(|(_, it)| it.unclean)
            .map(|(number, it)| (*number, it.part.form()));
        if let Some((number, form)) = unclean {
            return self.renew(&[number], form, now).await;
        }
        if disk.plan.compaction && disk.wants_compaction() {
            let rules = Rules {
                most: disk.plan.segment(),
                ..Rules::default()
            };
            let shares = self.shares(now);
            match compact::choose(&shares, &rules) {
                Some(Step::Remove(number)) => self.remove_part(number).await,
                Some(Step::Copy { from, form }) => self.renew(&from, form, now).await,
                None => {}
            }
        }
    }

    /// Removes files that could not be removed before.
    async fn tidy(&mut self) {
        let Some(disk) = self.disk.as_mut().filter(|disk| disk.is_untidy()) else {
            return;
        };
        if let Err(why) = disk.tidy().await {
            self.fails(&why);
        }
    }

    /// How much of each part lives.
    fn shares(&mut self, now: Now) -> Vec<Share> {
        let mut heat = std::collections::HashMap::<PartNumber, f32>::new();
        for entry in self.ledger.iter() {
            *heat.entry(entry.place.part).or_default() += self.warmth(entry.id, now);
        }
        let Some(disk) = &mut self.disk else { return Vec::new() };
        disk.looked_at = disk.now;
        let shares = disk.parts.iter().map(|(number, it)| {
            let mean = heat.get(number).copied().unwrap_or(0.0) / it.entries.max(1) as f32;
            Share::of(&it.part, it.entries, it.live, mean)
        });
        shares.collect()
    }

    /// Makes one part of what lives in these, and removes them.
    /// Where there is no room for it, the first of them goes with all that lives in it: that makes room.
    async fn renew(&mut self, from: &[PartNumber], form: Form, now: Now) {
        let Some(first) = from.first().copied() else { return };
        let (mut rows, mut entries) = (Vec::new(), Vec::new());
        for number in from {
            match self.living(*number, now.seconds).await {
                Ok((mut some, mut theirs)) => {
                    rows.append(&mut some);
                    entries.append(&mut theirs);
                }
                Err(why) => {
                    self.notes.say(Note::PartDamaged(*number, why.to_string()));
                    self.fails(&why);
                    // What cannot be read is a miss.
                    return self.give_up(*number, now).await;
                }
            }
        }
        // Making room for the copy might take the very parts that are copied.
        let has_room = self.disk.as_ref().is_some_and(|disk| disk.has_room(part::bound(&rows)));
        if !has_room && !rows.is_empty() {
            return self.give_up(first, now).await;
        }
        let done = rows.is_empty() || self.seal_rows(rows, &entries, form, now).await;
        if done {
            Counts::add(&self.shared.counts.compactions, 1);
            for number in from {
                self.give_up(*number, now).await;
            }
        }
    }

    /// The rows of a part that entries lie in.
    async fn living(&self, number: PartNumber, now: Seconds) -> io::Result<(Vec<Row>, Vec<Entry>)> {
        let Some(it) = self.disk.as_ref().and_then(|disk| disk.parts.get(&number)) else {
            return Ok((Vec::new(), Vec::new()));
        };
        let lying = self
            .ledger
            .iter()
            .filter(|entry| entry.place.part == number && entry.expires > now);
        let by_prompt: std::collections::HashMap<_, _> = lying.map(|entry| (entry.key.prompt, *entry)).collect();
        let known = it.part.rows().await?;
        let mut wanted = Vec::new();
        let mut entries = Vec::new();
        for (at, row) in known.iter().enumerate() {
            if let Some(entry) = by_prompt.get(&row.prompt).filter(|entry| entry.place == row.place) {
                wanted.push(at);
                entries.push(*entry);
            }
        }
        let mut rows = it.part.answers(&wanted).await?;
        for (row, entry) in rows.iter_mut().zip(&entries) {
            let hits = self.shared.slots.get(entry.id).map_or(0, |slot| slot.hits());
            row.hits = row.hits.saturating_add(hits);
        }
        Ok((rows, entries))
    }
}

#[cfg(test)]
#[path = "upkeep_tests.rs"]
mod tests;
