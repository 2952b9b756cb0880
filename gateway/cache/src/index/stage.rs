//! The pages of a commit, from the leaves up to the directory.
//!
//! It writes where no tree is and touches no meta slot. Invariant: whatever it changed of the tables in memory can be taken back,
//! so a commit that fails leaves nothing behind.

use std::{collections::BTreeSet, io, sync::Arc};

use super::{
    changes::{Change, bucket_of, fit, merge},
    check::Model,
    meta::{Meta, RECORDS, directory},
    page::{FAN, Leaf, Page, Slot, table},
    sink::Sink,
    tree::Tree,
};
use crate::{
    files::File,
    types::{Entry, ModelNumber},
};

/// One slot of a table in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    model: ModelNumber,
    level: usize,
    at: usize,
}

/// What a commit came to, before its meta slot.
pub(super) struct Staged {
    pub(super) meta: Meta,
    /// Pages that the new tree no longer leads to.
    pub(super) freed: Vec<u32>,
    /// What full buckets gave up.
    pub(super) evicted: Vec<Entry>,
    pub(super) copies: Vec<(u32, Arc<Page>)>,
}

/// A commit in the making.
pub(super) struct Stage<'a, F> {
    pub(super) models: &'a mut [Model],
    pub(super) sink: Sink<'a, F, Tree>,
    before: Vec<(Spot, Slot)>,
}

impl<'a, F: File> Stage<'a, F> {
    pub(super) fn new(models: &'a mut [Model], sink: Sink<'a, F, Tree>) -> Self {
        Self {
            models,
            sink,
            before: Vec::new(),
        }
    }

    /// Applies sorted changes to `old` and writes all pages that differ, with the heat that entries have now.
    pub(super) async fn run(
        &mut self,
        old: Option<&Tree>,
        mut meta: Meta,
        changes: &[Change],
        names_changed: bool,
        mut heat: impl FnMut(&Entry) -> f32,
    ) -> io::Result<Staged> {
        let mask = u64::from(meta.buckets - 1);
        let place = |change: &Change| (change.key().model, bucket_of(change, mask));
        let mut evicted = Vec::new();
        for changes in changes.chunk_by(|left, right| place(left) == place(right)) {
            let (model, bucket) = place(&changes[0]);
            let leaf = old.and_then(|tree| tree.leaf(model, bucket));
            let count = leaf.map_or(0, |leaf| leaf.entries().len());
            let mut merged = merge(leaf.into_iter().flat_map(Leaf::entries), changes);
            if !merged.changed {
                continue;
            }
            for entry in &mut merged.entries {
                entry.heat = heat(entry);
            }
            evicted.extend(fit(&mut merged.entries));
            meta.entries = meta.entries + merged.entries.len() as u64 - count as u64;
            self.leaf(&meta, model, bucket, &merged.entries).await?;
        }
        self.tables().await?;
        let mut freed: Vec<_> = self.before.iter().map(|(_, slot)| slot.page).collect();
        if names_changed || !self.before.is_empty() {
            freed.extend(meta.directory.iter().map(|slot| slot.page));
            self.directory(&mut meta).await?;
        }
        freed.retain(|page| *page != 0);
        Ok(Staged {
            meta,
            freed,
            evicted,
            copies: self.sink.finish().await?,
        })
    }

    async fn leaf(&mut self, meta: &Meta, model: ModelNumber, bucket: u32, entries: &[Entry]) -> io::Result<()> {
        let slot = if entries.is_empty() {
            Slot::EMPTY
        } else {
            self.sink.put(&Leaf::write(model, bucket, entries)).await?
        };
        self.models[usize::from(model.0)].levels(meta.buckets);
        let at = bucket as usize;
        self.set(Spot { model, level: 0, at }, slot);
        Ok(())
    }

    /// All tables above what has changed, level by level.
    async fn tables(&mut self) -> io::Result<()> {
        let mut changed: BTreeSet<_> = self.before.iter().map(|(spot, _)| *spot).collect();
        loop {
            let above: BTreeSet<_> = changed.iter().filter_map(|spot| self.above(*spot)).collect();
            if above.is_empty() {
                return Ok(());
            }
            for spot in &above {
                let below = &self.models[usize::from(spot.model.0)].levels[spot.level - 1];
                let children = &below[spot.at * FAN..below.len().min((spot.at + 1) * FAN)];
                let slot = if children.iter().all(|child| *child == Slot::EMPTY) {
                    Slot::EMPTY
                } else {
                    self.sink.put(&table(children)).await?
                };
                self.set(*spot, slot);
            }
            changed = above;
        }
    }

    fn above(&self, spot: Spot) -> Option<Spot> {
        let level = spot.level + 1;
        let levels = self.models[usize::from(spot.model.0)].levels.len();
        (level < levels).then_some(Spot {
            level,
            at: spot.at / FAN,
            ..spot
        })
    }

    async fn directory(&mut self, meta: &mut Meta) -> io::Result<()> {
        meta.models = self.models.len() as u32;
        meta.directory.clear();
        for models in self.models.chunks(RECORDS) {
            let page = directory(models.iter().map(|model| (model.name.as_str(), model.root())));
            meta.directory.push(self.sink.put(&page).await?);
        }
        Ok(())
    }

    fn set(&mut self, spot: Spot, slot: Slot) {
        let place = &mut self.models[usize::from(spot.model.0)].levels[spot.level][spot.at];
        self.before.push((spot, std::mem::replace(place, slot)));
    }

    /// Takes all of it back, and returns the pages that were taken for it.
    pub(super) fn undo(self) -> Vec<u32> {
        for (spot, slot) in self.before.into_iter().rev() {
            self.models[usize::from(spot.model.0)].levels[spot.level][spot.at] = slot;
        }
        self.sink.taken
    }
}
