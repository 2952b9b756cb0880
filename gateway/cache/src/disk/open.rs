//! Opening a cache's folders: what is there after whatever happened to the process or the machine before.
//!
//! It never appends to an old segment and never trusts a part that is not whole. Invariant: what it gives are entries whose
//! answers were put under their keys and lie where they say; of several under one key the one that was put last and is whole.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::Arc,
    time::Duration,
};

use super::{Disk, Plan};
use crate::{
    counts::Counts,
    files::{File, Files, Open},
    front::Shared,
    heat::UNIT,
    index::{self, Covered, HashVersions, IndexError, IndexWriter, View},
    note::{Note, Notes},
    segment::{
        frame,
        log::{self, Written},
        part::{self, Form, Row},
    },
    slots::MOST,
    types::{Entry, EntryId, Key, PartNumber, Place, PromptHash, Seconds},
};

/// An entry as it was found.
#[derive(Debug, Clone)]
pub(crate) struct Recovered {
    pub(crate) entry: Entry,
    /// `None` where only the index told of it.
    pub(crate) tenant: Option<u64>,
    /// Milliseconds; 0 where that is not known.
    pub(crate) made_in: u32,
    pub(crate) pinned: bool,
}

/// What was found.
pub(crate) struct Opened<D: Files> {
    pub(crate) disk: Disk<D>,
    pub(crate) entries: Vec<Recovered>,
    /// The lowest id that nobody has, neither here nor in the tree.
    pub(crate) next_id: u32,
}

/// Why the folders cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The index.
    #[error("{0}")]
    Index(#[from] IndexError),
    /// Another process has them.
    #[error("another gateway uses them")]
    Busy,
    /// The bound is too low.
    #[error("{0} bytes are too few for a cache on disk: at least {LEAST}", LEAST = super::LEAST)]
    Small(u64),
}

/// The two folders.
pub(crate) struct Folders<D> {
    pub(crate) home: D,
    pub(crate) data: D,
    pub(crate) view: View,
}

impl<D: Files + Clone> Disk<D> {
    /// Opens the folders, with `now` in seconds since 1970: expired answers are left out.
    ///
    /// # Errors
    /// If they cannot be read or written, or a newer program wrote them. Nothing is lost then.
    pub(crate) async fn open(
        folders: Folders<D>,
        plan: Plan,
        shared: &Arc<Shared>,
        (now, notes): (Seconds, &Notes),
    ) -> Result<Opened<D>, OpenError> {
        part::clear(&folders.data).await?;
        let segments = numbered(&folders.home, log::number).await?;
        let parts = numbered(&folders.data, part::number).await?;
        let (index, covered) = open_index(&folders, &plan, notes).await?;
        index.models().for_each(|name| {
            shared.model(name);
        });
        let last = segments.iter().chain(&parts).map(|number| number.0).max();
        let disk = Self {
            home: folders.home,
            data: folders.data,
            plan,
            index,
            log: None,
            parts: BTreeMap::new(),
            dirty: HashMap::new(),
            retired: Vec::new(),
            now: Duration::ZERO,
            committed_at: Duration::ZERO,
            looked_at: Duration::ZERO,
            leftovers: Vec::new(),
            next: last.map_or(1, |last| last + 1).max(covered.segment.0),
            failures: 0,
            try_again: Duration::ZERO,
            counted: Written::default(),
            shared: Arc::clone(shared),
        };
        let mut opening = Opening {
            disk,
            found: HashMap::new(),
            next_id: 0,
            now,
            notes,
        };
        opening.parts(&parts).await?;
        opening.tree();
        for number in parts.range(covered.segment..) {
            opening.rows(*number).await;
        }
        for number in segments {
            opening.segment(number).await?;
        }
        Ok(Opened {
            disk: opening.disk,
            entries: opening.found.into_values().collect(),
            next_id: opening.next_id,
        })
    }
}

/// The files of a folder that have a number.
async fn numbered<D: Files>(
    folder: &D,
    number: impl Fn(&str) -> Option<PartNumber>,
) -> io::Result<BTreeSet<PartNumber>> {
    let files = folder.list().await?;
    Ok(files.iter().filter_map(|(name, _)| number(name)).collect())
}

/// The index that is there, or a new one where that is of no use.
async fn open_index<D: Files + Clone>(
    folders: &Folders<D>,
    plan: &Plan,
    notes: &Notes,
) -> Result<(IndexWriter<D>, Covered), OpenError> {
    let why = match IndexWriter::open(folders.home.clone(), folders.view.clone()).await {
        Ok((index, opened)) => return Ok((index, opened.covered)),
        Err(why @ (IndexError::Missing | IndexError::Damaged(_))) => why,
        Err(why) => return Err(why.into()),
    };
    if matches!(why, IndexError::Damaged(_)) {
        notes.say(Note::IndexRebuilt(why.to_string()));
    }
    let options = index::Options {
        buckets: plan.buckets,
        versions: HashVersions::default(),
    };
    let index = IndexWriter::create(folders.home.clone(), folders.view.clone(), options).await?;
    Ok((index, Covered::NOTHING))
}

struct Opening<'n, D: Files> {
    disk: Disk<D>,
    found: HashMap<PromptHash, Recovered>,
    next_id: u32,
    now: Seconds,
    notes: &'n Notes,
}

impl<D: Files + Clone> Opening<'_, D> {
    /// Opens the parts. One that is damaged goes: its answers are misses from now on.
    async fn parts(&mut self, numbers: &BTreeSet<PartNumber>) -> Result<(), OpenError> {
        for number in numbers {
            match self.disk.take_part(*number).await {
                Ok(()) => {}
                Err(why) if why.kind() == io::ErrorKind::InvalidData => {
                    self.notes.say(Note::PartDamaged(*number, why.to_string()));
                    Counts::add(&self.disk.shared.counts.disk_errors, 1);
                    self.disk.data.remove(&part::name(*number)).await?;
                }
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    /// Takes the entries of the tree whose parts are there.
    fn tree(&mut self) {
        let tree = self.disk.index.tree();
        let mut gone = Vec::new();
        let mut next_id = 0;
        for entry in tree.entries() {
            next_id = next_id.max(entry.id.0.saturating_add(1));
            let lives = entry.expires > self.now && (entry.id.0 as usize) < MOST;
            if !lives || !self.disk.parts.contains_key(&entry.place.part) {
                gone.push(entry);
                continue;
            }
            let pinned = entry.heat == f32::INFINITY;
            let heat = if entry.heat.is_finite() { entry.heat } else { UNIT };
            let recovered = Recovered {
                entry: Entry { heat, ..entry },
                tenant: None,
                made_in: 0,
                pinned,
            };
            self.found.insert(entry.key.prompt, recovered);
        }
        self.next_id = next_id;
        gone.iter().for_each(|entry| self.leave(entry));
    }

    /// The tree has it and nobody else.
    fn leave(&mut self, entry: &Entry) {
        self.disk.dirty.insert(entry.key.prompt, entry.key);
        self.disk.retired.push(entry.id);
    }

    /// Takes the rows of a part that the tree does not know.
    async fn rows(&mut self, number: PartNumber) {
        let Some(it) = self.disk.parts.get(&number) else { return };
        let rows = match it.part.rows().await {
            Ok(rows) => rows,
            Err(why) => return self.notes.say(Note::PartDamaged(number, why.to_string())),
        };
        for row in rows {
            if row.expires <= self.now {
                continue;
            }
            let Some(model) = self.disk.shared.model(&row.model) else {
                continue;
            };
            let key = Key {
                model,
                context: row.context,
                prompt: row.prompt,
            };
            self.take(
                key,
                row.place,
                (row.created, row.expires),
                (row.tenant, row.generation_ms),
            );
        }
    }

    fn take(&mut self, key: Key, place: Place, times: (Seconds, Seconds), (tenant, made_in): (u64, u32)) {
        if self.next_id as usize >= MOST {
            return;
        }
        let entry = Entry {
            key,
            id: EntryId(self.next_id),
            place,
            created: times.0,
            expires: times.1,
            heat: UNIT,
        };
        self.next_id += 1;
        let recovered = Recovered {
            entry,
            tenant: Some(tenant),
            made_in,
            pinned: false,
        };
        self.disk.dirty.insert(key.prompt, key);
        if let Some(old) = self.found.insert(key.prompt, recovered) {
            self.leave(&old.entry);
        }
    }

    /// Seals what is whole of a segment, and removes it.
    async fn segment(&mut self, number: PartNumber) -> Result<(), OpenError> {
        let name = log::name(number);
        let file = self.disk.home.open(&name, Open::Existing).await?;
        self.refuse_newer(&file, number).await?;
        let mut rows = HashMap::new();
        let mut replay = log::replay(&file, number, 0).await?;
        while let Some(frame) = replay.next().await? {
            if frame.expires > self.now {
                let answer = frame.to_answer();
                rows.insert(answer.prompt, Row { answer, hits: 0 });
            }
        }
        let rows: Vec<_> = rows.into_values().collect();
        self.notes.say(Note::Replayed(rows.len()));
        if !rows.is_empty() {
            self.seal(rows).await?;
        }
        drop(file);
        self.disk.home.remove(&name).await?;
        self.disk.home.sync_folder().await?;
        Ok(())
    }

    /// A segment of another format is left alone.
    async fn refuse_newer(&self, file: &D::File, number: PartNumber) -> io::Result<()> {
        let size = file.size().await?;
        let first = file.read_at(size.min(4) as usize, 0).await?;
        if frame::is_of_another_format(&first) {
            let why = format!(
                "{}: its format is not the one that this version reads",
                log::name(number)
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(())
    }

    async fn seal(&mut self, mut rows: Vec<Row>) -> Result<(), OpenError> {
        rows.sort_by_key(|row| row.answer.prompt);
        let known: Vec<_> = rows
            .iter()
            .map(|row| {
                let answer = &row.answer;
                let model = self.disk.shared.model(&answer.model)?;
                let key = Key {
                    model,
                    context: answer.context,
                    prompt: answer.prompt,
                };
                Some((
                    key,
                    (answer.created, answer.expires),
                    (answer.tenant, answer.generation_ms),
                ))
            })
            .collect();
        let sealed = self.disk.seal(rows, Form::Plain).await?;
        for (known, place) in known.into_iter().zip(sealed.places) {
            if let Some((key, times, rest)) = known {
                self.take(key, place, times, rest);
            }
        }
        Ok(())
    }
}
