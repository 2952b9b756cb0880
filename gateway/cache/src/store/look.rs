//! What an operator sees of the entries: pages of a listing, bucket by bucket, and what each model has.
//!
//! It changes nothing. Invariants: the writer spends a bounded time on a page, whatever the cache holds; a bucket is in one
//! page or in none, so an entry that stays where it is from the first page to the last is listed exactly once.

use super::Store;
use crate::{files::Files, front::Now, ledger::cost, types::Entry};

/// Most buckets that are looked at for a page: full ones end it sooner.
const BUCKETS: usize = 1 << 16;

/// Where a listing goes on. The default is its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    model: usize,
    bucket: usize,
}

/// An entry, as it is listed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Listed {
    /// The entry.
    pub entry: Entry,
    /// Its bucket among those of its model.
    pub bucket: u32,
    /// First eight bytes of its tenant's name space.
    pub tenant: u64,
    /// What it costs of the bound, in bytes.
    pub cost: u64,
    /// Its heat now.
    pub heat: f32,
    /// Whether it may not be evicted.
    pub pinned: bool,
    /// Milliseconds that making the answer took; 0 where that is not known.
    pub made_in: u32,
}

/// Part of a listing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The entries of some buckets, those of one bucket side by side.
    pub entries: Vec<Listed>,
    /// Buckets of each model.
    pub buckets: u32,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<Cursor>,
}

/// What the entries of a model come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total {
    /// How many.
    pub entries: u64,
    /// What they cost, in bytes.
    pub bytes: u64,
}

impl<D: Files + Clone> Store<D> {
    /// Entries from a place on: whole buckets, until there are `most` entries or more.
    pub(crate) fn look(&self, from: Cursor, most: usize, now: Now) -> Page {
        let buckets = self.ledger.buckets();
        let mut page = Page {
            buckets: u32::try_from(buckets).unwrap_or(u32::MAX),
            ..Page::default()
        };
        let Cursor { mut model, mut bucket } = from;
        for _ in 0..BUCKETS {
            if page.entries.len() >= most {
                break;
            }
            if bucket >= buckets {
                (model, bucket) = (model + 1, 0);
            }
            if model >= self.ledger.totals().len() {
                return page;
            }
            let entries = self.ledger.of_bucket(model, bucket);
            page.entries
                .extend(entries.filter_map(|entry| self.listed(entry, bucket, now)));
            bucket += 1;
        }
        page.next = Some(Cursor { model, bucket });
        page
    }

    fn listed(&self, entry: Entry, bucket: usize, now: Now) -> Option<Listed> {
        let slot = self.shared.slots.get(entry.id)?;
        Some(Listed {
            entry,
            bucket: u32::try_from(bucket).unwrap_or(u32::MAX),
            tenant: self.tenants.get(entry.id.0 as usize).copied()?,
            cost: cost(&entry),
            heat: slot.heat(&self.shared.decay, now.tick),
            pinned: slot.is_pinned(),
            made_in: slot.made_in(),
        })
    }

    /// What each model has, by its number.
    pub(crate) fn totals(&self) -> Vec<Total> {
        let totals = self.ledger.totals();
        totals
            .map(|(entries, bytes)| Total {
                entries: entries as u64,
                bytes,
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "look_tests.rs"]
mod tests;
