//! A cache's files, as its writer has them: the index, the active segment and the parts.
//!
//! It does what it is told and never decides which entries stay; the [store](crate::store) does. Two folders: one has
//! `cache_index.bin`, `cache.lock` and the active segment, the other nothing but parts, so that data frame tools open it whole.
//! Invariants: files take no more than [`Plan::bytes`] in all, also while one is being made; every file that an entry lies in is
//! there until no entry lies in it; after a crash at any point the same folders open to answers that were put, each under its
//! own key.
//!
//! What the tree does not know yet is known from the data: a commit covers all parts whose number is lower than
//! [`Covered::segment`]; later ones are read by their key columns in the order of their numbers, and then segments, frame by frame.

mod open;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

pub use open::OpenError;
pub(crate) use open::{Folders, Opened};

use crate::{
    counts::Counts,
    files::Files,
    front::{PartFile, Shared},
    index::{Change, Committed, Covered, IndexError, IndexWriter, MODELS, NAME},
    segment::{
        frame,
        log::{self, BATCH, BLOCK, Durability, Log, Refused, SEGMENT, Written},
        part::{self, Form, Part, Row, Sealed},
    },
    types::{Answer, Entry, EntryId, Key, PartNumber, Place, PromptHash},
};

/// How long nothing is tried after the first failure of the disk; it doubles with each further one, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How often parts are looked at, to make some anew.
const LOOK: Duration = Duration::from_secs(10);

/// Keys that may wait for a commit; only while commits fail there are so many, and then nothing more is taken.
const MOST_DIRTY: usize = 1 << 22;

/// Smallest bound of a cache on disk, bytes: an index of few entries takes 8 MiB for each model, beside segment and parts.
pub const LEAST: u64 = 64 << 20;

/// What the files may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// All files together, bytes; at least [`LEAST`].
    pub(crate) bytes: u64,
    /// Values in memory beside those of the active segment, bytes.
    pub(crate) hot_bytes: u64,
    /// Whether parts are made anew of what lives in older ones.
    pub(crate) compaction: bool,
    /// What a crash may take.
    pub(crate) durability: Durability,
    /// Buckets of a new index.
    pub(crate) buckets: u32,
}

impl Plan {
    /// Bytes of a segment: an eighth of the bound, up to 64 MiB.
    pub(crate) fn segment(&self) -> u64 {
        let block = BLOCK as u64;
        (self.bytes / 8 / block * block).clamp(4 * BATCH as u64, SEGMENT)
    }
}

/// A part and what of it lives.
pub(crate) struct Sealing<F> {
    pub(crate) part: Part<F>,
    /// Bytes of values that entries have.
    pub(crate) live: u64,
    /// Entries.
    pub(crate) entries: usize,
    /// What was purged is still in it: it is made anew whatever lives.
    pub(crate) unclean: bool,
}

/// A file that is of no use any more.
struct Leftover {
    in_home: bool,
    name: String,
    bytes: u64,
}

/// The files.
pub(crate) struct Disk<D: Files> {
    pub(crate) home: D,
    pub(crate) data: D,
    pub(crate) plan: Plan,
    pub(crate) index: IndexWriter<D>,
    /// `None` after a failure, until it is tried again.
    pub(crate) log: Option<Log<D::File>>,
    pub(crate) parts: BTreeMap<PartNumber, Sealing<D::File>>,
    /// Keys whose entry the tree has not, or has otherwise.
    pub(crate) dirty: HashMap<PromptHash, Key>,
    /// Ids that the tree still has, free after the next commit.
    pub(crate) retired: Vec<EntryId>,
    /// By the writer's clock.
    pub(crate) now: Duration,
    pub(crate) committed_at: Duration,
    /// When parts were last looked at for compaction.
    pub(crate) looked_at: Duration,
    /// Files that are to go and could not be removed yet.
    leftovers: Vec<Leftover>,
    next: u32,
    failures: u32,
    try_again: Duration,
    counted: Written,
    shared: Arc<Shared>,
}

impl<D: Files + Clone> Disk<D> {
    /// A number that no file had.
    pub(crate) fn number(&mut self) -> PartNumber {
        let number = PartNumber(self.next);
        self.next += 1;
        number
    }

    /// Bytes of all files.
    pub(crate) fn used(&self) -> u64 {
        let parts: u64 = self.parts.values().map(|it| it.part.bytes()).sum();
        let segment = self.log.as_ref().map_or(0, |_| self.plan.segment());
        let leftovers: u64 = self.leftovers.iter().map(|it| it.bytes).sum();
        self.index.file_bytes() + parts + segment + leftovers
    }

    /// Whether so many bytes more may be written.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.used() + bytes <= self.plan.bytes
    }

    /// Whether the entry lies in a part.
    pub(crate) fn is_sealed(&self, place: &Place) -> bool {
        self.parts.contains_key(&place.part)
    }

    /// Takes an answer; its bytes wait in memory until [`Self::write`].
    pub(crate) fn append(&mut self, answer: &Answer, key: &Key) -> Result<Place, Refused> {
        // What the index could not say would be lost at the next start.
        let is_sayable = usize::from(key.model.0) < MODELS && (1..=NAME).contains(&answer.model.len());
        let Some(log) = self
            .log
            .as_mut()
            .filter(|_| is_sayable && self.dirty.len() < MOST_DIRTY)
        else {
            return Err(Refused::Broken);
        };
        let place = log.append(answer, self.now)?;
        self.dirty.insert(key.prompt, *key);
        Ok(place)
    }

    /// Whether this answer needs another segment.
    pub(crate) fn wants_segment(&self, answer: &Answer) -> bool {
        let size = frame::size(answer) as u64;
        let most = self.plan.segment() - BLOCK as u64;
        let end = self.log.as_ref().map_or(0, Log::end);
        size <= most && size > most.saturating_sub(end)
    }

    /// An entry was found in a file when the cache was opened.
    pub(crate) fn arrived(&mut self, entry: &Entry) {
        if let Some(it) = self.parts.get_mut(&entry.place.part) {
            it.live += u64::from(entry.place.len);
            it.entries += 1;
        }
    }

    /// An entry ended.
    pub(crate) fn gone(&mut self, entry: &Entry) {
        self.dirty.insert(entry.key.prompt, entry.key);
        self.retired.push(entry.id);
        if let Some(it) = self.parts.get_mut(&entry.place.part) {
            it.live -= u64::from(entry.place.len);
            it.entries -= 1;
        }
    }

    /// An entry lies elsewhere now.
    pub(crate) fn moved(&mut self, entry: &Entry, to: Place) {
        self.dirty.insert(entry.key.prompt, entry.key);
        if let Some(it) = self.parts.get_mut(&entry.place.part) {
            it.live -= u64::from(entry.place.len);
            it.entries -= 1;
        }
        if let Some(it) = self.parts.get_mut(&to.part) {
            it.live += u64::from(to.len);
            it.entries += 1;
        }
    }

    /// Writes what waits: whole batches, and all of it when its time is over.
    pub(crate) async fn write(&mut self) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let written = if log.due(self.now) {
            log.flush().await
        } else {
            log.write().await
        };
        self.count();
        written
    }

    /// Writes and syncs all that waits.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let written = log.flush().await;
        self.count();
        written
    }

    /// Carries what the log did over to the counters.
    fn count(&mut self) {
        let Some(log) = &self.log else { return };
        let (now, before) = (log.counts(), std::mem::replace(&mut self.counted, log.counts()));
        let counts = &self.shared.counts;
        Counts::add(&counts.appended_bytes, now.bytes_put - before.bytes_put);
        Counts::add(&counts.segment_bytes_written, now.bytes_written - before.bytes_written);
    }

    /// Opens a new segment, unless the disk failed a short while ago or has no room.
    pub(crate) async fn begin_segment(&mut self) -> io::Result<()> {
        if self.log.is_some() || self.now < self.try_again || !self.has_room(self.plan.segment()) {
            return Ok(());
        }
        let number = self.number();
        let log = Log::create(&self.home, number, self.plan.segment(), self.plan.durability).await?;
        self.counted = Written::default();
        self.log = Some(log);
        Ok(())
    }

    /// Takes note of a failure: nothing new is tried for a while.
    pub(crate) fn failed(&mut self) {
        let pause = PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.try_again = self.now + pause;
        self.failures += 1;
        Counts::add(&self.shared.counts.disk_errors, 1);
    }

    /// Something was written; whether that was the first time since a failure.
    pub(crate) fn worked(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Whether the last thing that was tried went well.
    pub(crate) fn is_well(&self) -> bool {
        self.failures == 0
    }

    /// Whether enough time has passed since the last failure.
    pub(crate) fn may_try(&self) -> bool {
        self.now >= self.try_again
    }

    /// Makes a part of these rows; it is there and can be read afterwards.
    pub(crate) async fn seal(&mut self, rows: Vec<Row>, form: Form) -> io::Result<Sealed> {
        let number = self.number();
        let sealed = part::seal(&self.data, number, rows, form).await?;
        Counts::add(&self.shared.counts.part_bytes_written, sealed.bytes);
        if let Err(why) = self.take_part(number).await {
            // It is there, and nothing will lie in it.
            self.leftovers.push(Leftover {
                in_home: false,
                name: part::name(number),
                bytes: sealed.bytes,
            });
            return Err(why);
        }
        Ok(sealed)
    }

    /// Knows a part of the folder, with nothing of it alive yet.
    pub(crate) async fn take_part(&mut self, number: PartNumber) -> io::Result<()> {
        let part = Part::open(&self.data, number).await?;
        if let Some(file) = self.data.readable(&part::name(number))? {
            let form = part.form();
            let file = PartFile {
                file: Arc::new(file),
                form,
            };
            self.shared.parts.pin().insert(number, Arc::new(file));
        }
        let sealing = Sealing {
            part,
            live: 0,
            entries: 0,
            unclean: false,
        };
        self.parts.insert(number, sealing);
        Ok(())
    }

    /// Removes a part; whoever reads from it goes on.
    pub(crate) async fn remove_part(&mut self, number: PartNumber) -> io::Result<()> {
        let gone = self.parts.remove(&number);
        self.shared.parts.pin().remove(&number);
        self.leftovers.push(Leftover {
            in_home: false,
            name: part::name(number),
            bytes: gone.map_or(0, |it| it.part.bytes()),
        });
        self.tidy().await
    }

    /// Removes the file of a segment that is written to no more.
    pub(crate) async fn remove_segment(&mut self, number: PartNumber) -> io::Result<()> {
        self.leftovers.push(Leftover {
            in_home: true,
            name: log::name(number),
            bytes: self.plan.segment(),
        });
        self.tidy().await
    }

    /// Removes what could not be removed before.
    pub(crate) async fn tidy(&mut self) -> io::Result<()> {
        while let Some(last) = self.leftovers.last() {
            let folder = if last.in_home { &self.home } else { &self.data };
            match folder.remove(&last.name).await {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => drop(self.leftovers.pop()),
            }
        }
        Ok(())
    }

    /// Whether files wait to be removed.
    pub(crate) fn is_untidy(&self) -> bool {
        !self.leftovers.is_empty()
    }

    /// Bytes that a commit of what is dirty adds to the index at most.
    pub(crate) fn commit_bound(&self) -> u64 {
        let mask = u64::from(self.index.buckets() - 1);
        let buckets: HashSet<_> = self
            .dirty
            .values()
            .map(|key| (key.model, key.prompt.word() & mask))
            .collect();
        self.index.growth(buckets.len() as u64)
    }

    /// What entries may cost in all: of what index, segment and the part that is being made leave, seven tenths; the rest is for
    /// what is dead in parts until they are made anew.
    pub(crate) fn entries_bound(&self) -> u64 {
        let index = self.index.file_bytes() / 4 * 5;
        self.plan.bytes.saturating_sub(2 * self.plan.segment() + index) / 10 * 7
    }

    /// What a tree of all sealed entries covers.
    pub(crate) fn covered(&self) -> Covered {
        Covered {
            segment: PartNumber(self.next),
            offset: 0,
        }
    }

    /// Whether it is time to look for parts to make anew.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.now.saturating_sub(self.looked_at) >= LOOK
    }

    /// Commits what is dirty: `entry` tells what a key has now, `heat` how warm an entry is.
    pub(crate) async fn commit(
        &mut self,
        entry: impl Fn(&Key) -> Option<Entry>,
        heat: impl FnMut(&Entry) -> f32,
    ) -> Result<Committed, IndexError> {
        let known = self.index.models().len();
        for model in self.shared.models().iter().skip(known) {
            self.index.model(model)?;
        }
        let changes = self.dirty.values().map(|key| match entry(key) {
            Some(entry) if self.is_sealed(&entry.place) => Change::Put(entry),
            // The active segment's are known by its frames.
            _ => Change::Remove(*key),
        });
        let changes = changes.collect();
        let covered = self.covered();
        let committed = self.index.commit(changes, covered, heat).await?;
        Counts::add(&self.shared.counts.commits, 1);
        Counts::add(&self.shared.counts.index_bytes_written, committed.bytes_written);
        self.committed_at = self.now;
        Ok(committed)
    }
}
