//! What a commit is to change, and a bucket with its changes applied.
//!
//! No I/O. Invariant: of several changes to one key the last counts; a bucket never holds more than a leaf can.

use std::cmp::Ordering;

use super::{LEAF_ENTRIES, colder};
use crate::types::{Entry, Key};

/// A change of one entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The entry, new or in the place of one with the same key.
    Put(Entry),
    /// No entry with this key, if there is one.
    Remove(Key),
}

impl Change {
    /// The entry's key.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Remove(key) => key,
        }
    }
}

/// The bucket and order of a change within a tree of this mask.
pub(super) fn bucket_of(change: &Change, mask: u64) -> u32 {
    (change.key().prompt.word() & mask) as u32
}

/// In the order in which the tree holds them; of changes to one key only the last.
pub(super) fn sort(changes: &mut Vec<Change>, mask: u64) {
    // The last one first, so that it is the one that `dedup` keeps.
    changes.reverse();
    let rank = |change: &Change| (change.key().model, bucket_of(change, mask), *change.key());
    changes.sort_by_key(rank);
    changes.dedup_by(|later, kept| later.key() == kept.key());
}

/// A bucket after its changes.
pub(super) struct Merged {
    pub(super) entries: Vec<Entry>,
    /// Whether anything is other than before.
    pub(super) changed: bool,
}

/// Applies sorted changes to the sorted entries of one bucket.
pub(super) fn merge(old: impl Iterator<Item = Entry>, changes: &[Change]) -> Merged {
    let mut entries = Vec::with_capacity(LEAF_ENTRIES);
    let mut changed = false;
    let mut old = old.peekable();
    for change in changes {
        while let Some(entry) = old.next_if(|entry| entry.key < *change.key()) {
            entries.push(entry);
        }
        let before = old.next_if(|entry| entry.key.cmp(change.key()) == Ordering::Equal);
        let after = match change {
            Change::Put(entry) => Some(*entry),
            Change::Remove(_) => None,
        };
        changed |= before != after;
        entries.extend(after);
    }
    entries.extend(old);
    Merged { entries, changed }
}

/// Takes the coldest out until the rest fits a leaf, and returns them.
pub(super) fn fit(entries: &mut Vec<Entry>) -> Vec<Entry> {
    let mut out = Vec::new();
    while entries.len() > LEAF_ENTRIES {
        let coldest = entries
            .iter()
            .enumerate()
            .min_by(|(_, left), (_, right)| colder(left, right));
        let Some((at, _)) = coldest else { break };
        out.push(entries.remove(at));
    }
    out
}
