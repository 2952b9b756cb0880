//! Every page of a tree, read and checked: on opening, and when asked to verify.
//!
//! Writes nothing. Invariant: what passes is a tree of pages that each hold what their parent says, are used once, and lie in the
//! bucket where they are looked for.

use super::{
    meta::{Meta, RECORDS, level_sizes, record},
    page::{FAN, Leaf, Page, Slot, slot},
    pages::Pages,
};
use crate::{
    index::{meta::SLOTS, space::Space},
    types::{Key, ModelNumber},
};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("page {page}: {what}")]
pub struct Damage {
    /// Pages from the file's start.
    pub page: u32,
    /// In words.
    pub what: &'static str,
}

/// What was found to be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Pages, meta slots not counted.
    pub pages: u32,
    /// Entries.
    pub entries: u64,
}

/// A model as the writer keeps it in memory: its name and all slots of its tree, leaves first. No levels before the first entry.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) levels: Vec<Vec<Slot>>,
}

impl Model {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            levels: Vec::new(),
        }
    }

    /// Room for all its slots, if there is none yet.
    pub(super) fn levels(&mut self, buckets: u32) -> &mut Vec<Vec<Slot>> {
        if self.levels.is_empty() {
            let sizes = level_sizes(buckets).into_iter();
            self.levels = sizes.map(|size| vec![Slot::EMPTY; size]).collect();
        }
        &mut self.levels
    }

    pub(super) fn root(&self) -> Slot {
        self.levels.last().map_or(Slot::EMPTY, |top| top[0])
    }
}

/// A whole tree.
pub(super) struct Loaded<T> {
    pub(super) models: Vec<Model>,
    pub(super) space: Space<T>,
    pub(super) verified: Verified,
}

/// Reads all pages that `meta` leads to.
pub(super) fn load<T>(pages: &Pages, meta: &Meta) -> Result<Loaded<T>, Damage> {
    let mut walk = Walk {
        pages,
        buckets: meta.buckets,
        space: Space::new(SLOTS),
        entries: 0,
    };
    let mut models = Vec::new();
    for (at, directory) in meta.directory.iter().enumerate() {
        let page = walk.page(*directory)?;
        let records = (meta.models as usize - at * RECORDS).min(RECORDS);
        for at in 0..records {
            let what = "a model's name is no text";
            let (name, root) = record(page, at).ok_or(Damage {
                page: directory.page,
                what,
            })?;
            models.push(walk.model(name, root, ModelNumber(models.len() as u16))?);
        }
    }
    if walk.entries != meta.entries {
        return Err(Damage {
            page: meta.slot(),
            what: "it counts other entries than there are",
        });
    }
    let verified = Verified {
        pages: walk.space.used() - SLOTS,
        entries: walk.entries,
    };
    Ok(Loaded {
        models,
        space: walk.space,
        verified,
    })
}

struct Walk<'a, T> {
    pages: &'a Pages,
    buckets: u32,
    space: Space<T>,
    entries: u64,
}

impl<'a, T> Walk<'a, T> {
    /// A page that must be there, hold what its slot says, and be met for the first time.
    fn page(&mut self, slot: Slot) -> Result<&'a Page, Damage> {
        let damage = |what| Damage { page: slot.page, what };
        let page = self
            .pages
            .get(slot.page)
            .ok_or(damage("it lies beyond the end of the file"))?;
        if !slot.holds(page) {
            return Err(damage("it does not hold what was written"));
        }
        if !self.space.mark(slot.page) {
            return Err(damage("it is used twice"));
        }
        Ok(page)
    }

    fn model(&mut self, name: String, root: Slot, number: ModelNumber) -> Result<Model, Damage> {
        let mut model = Model::new(name);
        if root == Slot::EMPTY {
            return Ok(model);
        }
        let levels = model.levels(self.buckets);
        let top = levels.len() - 1;
        levels[top][0] = root;
        for level in (1..=top).rev() {
            let (below, above) = levels.split_at_mut(level);
            let children = below[level - 1].chunks_mut(FAN);
            for (children, parent) in children.zip(&above[0]) {
                if *parent == Slot::EMPTY {
                    continue;
                }
                let page = self.page(*parent)?;
                for (at, child) in children.iter_mut().enumerate() {
                    *child = slot(page, at);
                }
            }
        }
        for (bucket, leaf) in levels[0].iter().enumerate() {
            if *leaf != Slot::EMPTY {
                self.leaf(*leaf, number, bucket as u32)?;
            }
        }
        Ok(model)
    }

    fn leaf(&mut self, slot: Slot, model: ModelNumber, bucket: u32) -> Result<(), Damage> {
        let damage = |what| Damage { page: slot.page, what };
        let page = self.page(slot)?;
        let leaf = Leaf::read(page, model, bucket).ok_or(damage("it is no leaf of the bucket that leads to it"))?;
        let mask = u64::from(self.buckets - 1);
        let mut before: Option<Key> = None;
        for entry in leaf.entries() {
            if entry.key.prompt.word() & mask != u64::from(bucket) {
                return Err(damage("an entry belongs to another bucket"));
            }
            if before.is_some_and(|before| before >= entry.key) {
                return Err(damage("its entries are not in order"));
            }
            before = Some(entry.key);
            self.entries += 1;
        }
        Ok(())
    }
}
