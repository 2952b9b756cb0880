//! A committed tree, and the readers' way to the newest one.
//!
//! Nothing here writes or waits. Invariant: a tree answers from its own pages only, which stay as they are while it is held, so a
//! look-up sees one commit and never parts of two.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::{
    check::{self, Damage, Verified},
    meta::Meta,
    page::{Leaf, child},
    pages::Pages,
};
use crate::types::{Entry, Key, ModelNumber, PromptHash};

/// One committed tree. Holding it keeps all of its pages from being used again, so long holders make the file grow.
#[derive(Debug)]
pub struct Tree {
    pub(super) pages: Pages,
    pub(super) meta: Meta,
    /// The root's page of each model; 0 for none.
    roots: Box<[u32]>,
    mask: u64,
    levels: u32,
}

impl Tree {
    pub(super) fn new(pages: Pages, meta: Meta, roots: Box<[u32]>) -> Self {
        Self {
            mask: u64::from(meta.buckets - 1),
            levels: meta.levels(),
            pages,
            meta,
            roots,
        }
    }

    /// The entry with exactly this key.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.leaf(key.model, self.bucket_of(&key.prompt))?.find(key)
    }

    /// All entries of the bucket that this prompt hash falls into, sorted by (context, prompt hash).
    pub fn bucket(&self, model: ModelNumber, prompt: &PromptHash) -> impl Iterator<Item = Entry> + use<'_> {
        let leaf = self.leaf(model, self.bucket_of(prompt));
        leaf.into_iter().flat_map(Leaf::entries)
    }

    /// All entries, by model, bucket, context and prompt hash.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + use<'_> {
        let models = (0..self.roots.len()).map(|model| ModelNumber(model as u16));
        models.flat_map(|model| self.entries_of(model))
    }

    /// All entries of one model.
    pub fn entries_of(&self, model: ModelNumber) -> impl Iterator<Item = Entry> + use<'_> {
        let any = self.roots.get(usize::from(model.0)).is_some_and(|root| *root != 0);
        let buckets = if any { self.meta.buckets } else { 0 };
        let leaves = (0..buckets).filter_map(move |bucket| self.leaf(model, bucket));
        leaves.flat_map(Leaf::entries)
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.meta.entries
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meta.entries == 0
    }

    /// Reads every page of it and checks its hash and its form. About 8 KiB in 2 µs from memory; not for a worker.
    ///
    /// # Errors
    /// The first page that is not what it should be.
    pub fn verify(&self) -> Result<Verified, Damage> {
        check::load::<Self>(&self.pages, &self.meta).map(|loaded| loaded.verified)
    }

    pub(super) fn bucket_of(&self, prompt: &PromptHash) -> u32 {
        (prompt.word() & self.mask) as u32
    }

    #[inline]
    pub(super) fn leaf(&self, model: ModelNumber, bucket: u32) -> Option<Leaf<'_>> {
        let mut page = *self.roots.get(usize::from(model.0))?;
        for level in (0..self.levels).rev() {
            page = child(self.pages.get(page)?, (bucket >> (8 * level)) as u8);
        }
        Leaf::read(self.pages.get(page)?, model, bucket)
    }
}

/// The way to the newest tree; one for each worker, made by cloning. It stays good while the writer commits and builds anew.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(super) current: Arc<ArcSwap<Tree>>,
}

impl Reader {
    /// The entry with exactly this key, in the tree that was the newest when the call began. Takes no lock and never waits.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.current.load().get(key)
    }

    /// The newest tree, for several look-ups that must agree. Drop it soon: see [`Tree`].
    #[must_use]
    pub fn tree(&self) -> Guard<Arc<Tree>> {
        self.current.load()
    }
}
