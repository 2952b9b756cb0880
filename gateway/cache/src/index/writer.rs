//! The writer: opens the file and commits.
//!
//! One in a process, and one process for a folder: the store holds its lock. Its futures do not need to be sent between threads.
//! Invariant: the meta slot of the last committed tree and all pages of that tree stay as they are until the next tree is whole on
//! the disk; after a failure that leaves it uncertain which of two trees the disk has, nothing is written any more.

use std::{io, sync::Arc};

use arc_swap::ArcSwap;

use super::{
    Change, Covered, Damage, HashVersions, IndexError, MODELS, NAME, NAME_OF_FILE, RETIRED, View,
    changes::sort,
    check::{Loaded, Model, load},
    meta::{Found, Meta, SLOTS},
    page::{PAGE, Page},
    pages::Pages,
    sink::{Sink, room},
    space::Space,
    stage::{Stage, Staged},
    tree::{Reader, Tree},
};
use crate::{
    files::{File, Files, Open},
    types::{Entry, ModelNumber},
};

/// Pages that the directory has at most.
const SLOTS_OF_DIRECTORY: u64 = 16;

/// What an opened index says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Names, in the order of their numbers.
    pub models: Vec<String>,
    /// What came to the log later is not in the tree. It may be one commit older than what the last one said, where the newest
    /// tree was damaged: the log must be kept from the commit before the last one on for that to be no loss.
    pub covered: Covered,
    /// Entries of all models.
    pub entries: u64,
    /// Buckets of each model.
    pub buckets: u32,
    /// As it was made.
    pub versions: HashVersions,
}

/// What a commit came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Committed {
    /// Pages written, the meta slot among them.
    pub pages_written: u64,
    /// The same in bytes.
    pub bytes_written: u64,
    /// Entries of all models now.
    pub entries: u64,
    /// Entries that their bucket had no room for: the coldest of it.
    pub evicted: Vec<Entry>,
}

/// The file as it is now.
pub(super) struct Inner<T> {
    pub(super) file: T,
    /// Pages that it has room for.
    pub(super) capacity: u32,
    pub(super) meta: Meta,
    pub(super) models: Vec<Model>,
    pub(super) space: Space<Tree>,
    /// What readers are given.
    pub(super) tree: Arc<Tree>,
}

/// The one writer of an index.
pub struct IndexWriter<F: Files> {
    pub(super) files: F,
    pub(super) view: View,
    pub(super) inner: Inner<F::File>,
    pub(super) current: Arc<ArcSwap<Tree>>,
    pub(super) uncertain: bool,
}

impl<F: Files> IndexWriter<F> {
    /// Opens what is there and checks every page of it: about 8 KiB in 2 µs from memory, else as fast as the disk reads.
    ///
    /// # Errors
    /// [`IndexError::Missing`], [`IndexError::Newer`], [`IndexError::Damaged`]: an index can be built anew from the data.
    pub async fn open(files: F, view: View) -> Result<(Self, Opened), IndexError> {
        let file = match files.open(NAME_OF_FILE, Open::Existing).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(IndexError::Missing),
            file => file?,
        };
        let capacity = (file.size().await? / PAGE as u64).try_into().unwrap_or(u32::MAX);
        let pages = Pages::of(&view, NAME_OF_FILE, &file).await?;
        let (meta, loaded) = newest(&pages)?;
        let opened = Opened {
            models: loaded.models.iter().map(|model| model.name.clone()).collect(),
            covered: meta.covered,
            entries: meta.entries,
            buckets: meta.buckets,
            versions: meta.versions,
        };
        let inner = Inner {
            file,
            capacity,
            tree: Arc::new(tree(pages, &meta, &loaded.models)),
            meta,
            models: loaded.models,
            space: loaded.space,
        };
        Ok((Self::with(files, view, inner), opened))
    }

    pub(super) fn with(files: F, view: View, inner: Inner<F::File>) -> Self {
        let current = Arc::new(ArcSwap::new(inner.tree.clone()));
        Self {
            files,
            view,
            inner,
            current,
            uncertain: false,
        }
    }

    /// A way to the newest tree, for a worker.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader {
            current: self.current.clone(),
        }
    }

    /// The last committed tree: its buckets, to choose the coldest of; all its entries; whether it is whole.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// Buckets of each model.
    #[must_use]
    pub fn buckets(&self) -> u32 {
        self.inner.meta.buckets
    }

    /// Bytes of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        u64::from(self.inner.capacity) * PAGE as u64
    }

    /// Bytes that the file grows by at most in a commit that changes so many buckets.
    #[must_use]
    pub fn growth(&self, buckets: u64) -> u64 {
        let models = self.inner.models.len() as u64;
        let tables = models * (u64::from(self.buckets()) / 256 + u64::from(self.buckets()) / 65_536 + 2);
        let directory = SLOTS_OF_DIRECTORY;
        let wanted = u64::from(self.inner.space.used()) + buckets + tables + directory;
        let capacity = u64::from(self.inner.capacity);
        if wanted <= capacity {
            return 0;
        }
        (room(wanted) - capacity) * PAGE as u64
    }

    /// Names, in the order of their numbers, those since the last commit too.
    pub fn models(&self) -> impl ExactSizeIterator<Item = &str> {
        self.inner.models.iter().map(|model| model.name.as_str())
    }

    /// The number of a model, a new one for a new name: that lasts from the next commit on.
    ///
    /// # Errors
    /// [`IndexError::Name`], [`IndexError::Models`].
    pub fn model(&mut self, name: &str) -> Result<ModelNumber, IndexError> {
        let models = &mut self.inner.models;
        if let Some(at) = models.iter().position(|model| model.name == name) {
            return Ok(ModelNumber(at as u16));
        }
        check_name(name)?;
        if models.len() == MODELS {
            return Err(IndexError::Models);
        }
        models.push(Model::new(name.to_owned()));
        Ok(ModelNumber((models.len() - 1) as u16))
    }

    /// Makes a new tree of the last one and these changes, and gives it to the readers once it lasts.
    ///
    /// Of several changes to one key the last counts. Every entry of a page that is written takes the heat that `heat` gives
    /// for it. Written are the changed leaves, the tables above them, the directory and a meta slot; all but the last at once,
    /// then a sync, then the last, and a sync. In memory: the changes, and 1 MiB.
    ///
    /// # Errors
    /// [`IndexError::UnknownModel`], [`IndexError::Offset`] and [`IndexError::Held`] before anything is written. After [`IndexError::Io`] the
    /// last tree still stands, and the same may be tried again, unless [`IndexError::Uncertain`] is the answer.
    pub async fn commit(
        &mut self,
        mut changes: Vec<Change>,
        covered: Covered,
        heat: impl FnMut(&Entry) -> f32,
    ) -> Result<Committed, IndexError> {
        if self.uncertain {
            return Err(IndexError::Uncertain);
        }
        check(&changes, self.inner.models.len())?;
        self.inner.space.reclaim();
        if self.inner.space.retired() >= RETIRED {
            return Err(IndexError::Held);
        }
        sort(&mut changes, u64::from(self.buckets() - 1));

        // Until it is known how it ends: the future may be dropped on the way.
        self.uncertain = true;
        let ready = match self.inner.stage(&self.view, &changes, covered, heat).await {
            Ok(ready) => ready,
            Err(error) => {
                self.uncertain = false;
                return Err(error.into());
            }
        };
        let inner = &mut self.inner;
        if ready.pages_written == 0 && covered == inner.meta.covered {
            self.uncertain = false;
            return Ok(Committed {
                entries: inner.meta.entries,
                ..Committed::default()
            });
        }
        let at = u64::from(ready.staged.meta.slot()) * PAGE as u64;
        inner.file.write_at(ready.slot.to_vec(), at).await.0?;
        inner.file.sync().await?;
        self.uncertain = false;
        Ok(self.publish(ready))
    }

    fn publish(&mut self, ready: Ready) -> Committed {
        let (inner, staged) = (&mut self.inner, ready.staged);
        let new = Arc::new(tree(ready.pages, &staged.meta, &inner.models));
        let old = std::mem::replace(&mut inner.tree, new.clone());
        drop(self.current.swap(new));
        inner.space.retire(old, staged.freed);
        inner.meta = staged.meta;
        let pages_written = ready.pages_written + 1;
        Committed {
            pages_written,
            bytes_written: pages_written * PAGE as u64,
            entries: inner.meta.entries,
            evicted: staged.evicted,
        }
    }
}

/// A commit that lacks its meta slot only.
struct Ready {
    staged: Staged,
    /// The meta slot.
    slot: Box<Page>,
    /// What readers are to be given.
    pages: Pages,
    /// Without the meta slot.
    pages_written: u64,
}

impl<T: File> Inner<T> {
    /// Writes all pages of a commit and has them last; of a failure nothing stays.
    async fn stage(
        &mut self,
        view: &View,
        changes: &[Change],
        covered: Covered,
        heat: impl FnMut(&Entry) -> f32,
    ) -> io::Result<Ready> {
        let names_changed = self.meta.models as usize != self.models.len();
        let meta = Meta {
            txid: self.meta.txid + 1,
            covered,
            ..self.meta.clone()
        };
        let copies = matches!(view, View::Copied);
        let sink = Sink::new(&self.file, &mut self.space, &mut self.capacity, copies);
        let mut stage = Stage::new(&mut self.models, sink);
        let staged = stage.run(Some(&self.tree), meta, changes, names_changed, heat).await;
        let ready = staged.and_then(|mut staged| {
            let slot = staged.meta.write();
            let copies = std::mem::take(&mut staged.copies);
            let copies = copies.into_iter().chain([(staged.meta.slot(), Arc::new(*slot))]);
            // Before the meta slot is written: a map that cannot be had must not leave readers behind the disk.
            let capacity = stage.sink.capacity();
            let pages = self.tree.pages.with(view, NAME_OF_FILE, copies.collect(), capacity)?;
            let pages_written = stage.sink.taken.len() as u64;
            Ok(Ready {
                staged,
                slot,
                pages,
                pages_written,
            })
        });
        if ready.is_err() {
            let taken = stage.undo();
            taken.into_iter().for_each(|page| self.space.give(page));
        }
        ready
    }
}

pub(super) fn check_name(name: &str) -> Result<(), IndexError> {
    let fits = (1..=NAME).contains(&name.len());
    fits.then_some(()).ok_or(IndexError::Name(name.len()))
}

/// Whether the tree can hold them.
pub(super) fn check(changes: &[Change], models: usize) -> Result<(), IndexError> {
    for change in changes {
        let model = change.key().model;
        if usize::from(model.0) >= models {
            return Err(IndexError::UnknownModel(model));
        }
        if let Change::Put(entry) = change
            && entry.place.offset >> 48 != 0
        {
            return Err(IndexError::Offset(entry.place.offset));
        }
    }
    Ok(())
}

pub(super) fn tree(pages: Pages, meta: &Meta, models: &[Model]) -> Tree {
    let roots = models.iter().map(|model| model.root().page).collect();
    Tree::new(pages, meta.clone(), roots)
}

/// The newest meta slot that leads to a whole tree.
fn newest(pages: &Pages) -> Result<(Meta, Loaded<Tree>), IndexError> {
    let mut found = Vec::new();
    for slot in 0..SLOTS {
        match pages.any(slot).map_or(Found::Nothing, Meta::read) {
            Found::Meta(meta) => found.push(meta),
            Found::Other(format) => return Err(IndexError::Newer(format)),
            Found::Nothing => {}
        }
    }
    found.sort_by_key(|meta| std::cmp::Reverse(meta.txid));
    let mut damage = None;
    for meta in found {
        match load(pages, &meta) {
            Ok(loaded) => return Ok((meta, loaded)),
            Err(error) => damage = damage.or(Some(error)),
        }
    }
    let none = Damage {
        page: 0,
        what: "no meta slot is whole",
    };
    Err(IndexError::Damaged(damage.unwrap_or(none)))
}
