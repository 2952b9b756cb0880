//! The meta slots and the directory of models as bytes.
//!
//! No I/O. Invariant: a meta slot is read only if its checksum is right, so a torn one reads as none; where magic, version and
//! checksum lie is the same in every version of the format.

use super::{
    Covered, HashVersions, MAX_BUCKETS, MIN_BUCKETS,
    page::{FAN, PAGE, Page, Slot, blank, put, take},
};

/// The format that this code writes and reads.
pub const FORMAT: u32 = 1;
/// Bytes of a model's name at most.
pub const NAME: usize = RECORD - SLOT - 1;
/// Models of an index at most.
pub const MODELS: usize = DIRECTORIES * RECORDS;
/// The first pages of the file.
pub(super) const SLOTS: u32 = 2;

const MAGIC: [u8; 8] = *b"ZHINDEX\0";
const SLOT: usize = 32;
const DIRECTORIES: usize = 16;
const DIRECTORY_AT: usize = 64;
const CHECKSUM_AT: usize = PAGE - 32;
const RECORD: usize = 256;
/// Records of a page of the directory.
pub(super) const RECORDS: usize = PAGE / RECORD;

/// What a meta slot says: one committed tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    /// Commits are counted; the odd ones lie in slot 1.
    pub(super) txid: u64,
    pub(super) buckets: u32,
    pub(super) models: u32,
    pub(super) covered: Covered,
    pub(super) entries: u64,
    pub(super) versions: HashVersions,
    /// Pages of the directory.
    pub(super) directory: Vec<Slot>,
}

/// What a slot turned out to hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Meta(Meta),
    /// Whole, in a format of this number.
    Other(u32),
    /// Nothing, or not whole.
    Nothing,
}

impl Meta {
    /// Which page it lies in.
    pub(super) fn slot(&self) -> u32 {
        (self.txid % u64::from(SLOTS)) as u32
    }

    /// How many levels of tables lie above the leaves.
    pub(super) fn levels(&self) -> u32 {
        level_sizes(self.buckets).len() as u32 - 1
    }

    pub(super) fn write(&self) -> Box<Page> {
        let mut page = blank();
        put(&mut *page, 0, &MAGIC);
        put(&mut *page, 8, &FORMAT.to_le_bytes());
        put(&mut *page, 12, &(PAGE as u32).to_le_bytes());
        put(&mut *page, 16, &self.txid.to_le_bytes());
        put(&mut *page, 24, &self.buckets.to_le_bytes());
        put(&mut *page, 28, &self.models.to_le_bytes());
        put(&mut *page, 32, &self.covered.segment.0.to_le_bytes());
        put(&mut *page, 40, &self.covered.offset.to_le_bytes());
        put(&mut *page, 48, &self.entries.to_le_bytes());
        put(&mut *page, 56, &self.versions.prompt.to_le_bytes());
        put(&mut *page, 60, &self.versions.context.to_le_bytes());
        for (at, slot) in self.directory.iter().enumerate() {
            slot.write(&mut *page, DIRECTORY_AT + SLOT * at);
        }
        let checksum = blake3::hash(&page[..CHECKSUM_AT]);
        put(&mut *page, CHECKSUM_AT, checksum.as_bytes());
        page
    }

    pub(super) fn read(page: &Page) -> Found {
        let whole = page[..8] == MAGIC && blake3::hash(&page[..CHECKSUM_AT]).as_bytes() == &page[CHECKSUM_AT..];
        if !whole {
            return Found::Nothing;
        }
        let number = |at| u32::from_le_bytes(take(page, at));
        let long = |at| u64::from_le_bytes(take(page, at));
        let (version, buckets, models) = (number(8), number(24), number(28));
        if version != FORMAT {
            return Found::Other(version);
        }
        let sensible = number(12) == PAGE as u32
            && buckets.is_power_of_two()
            && (MIN_BUCKETS..=MAX_BUCKETS).contains(&buckets)
            && models as usize <= MODELS;
        if !sensible {
            return Found::Nothing;
        }
        let directories = (models as usize).div_ceil(RECORDS);
        Found::Meta(Self {
            txid: long(16),
            buckets,
            models,
            covered: Covered {
                segment: crate::types::PartNumber(number(32)),
                offset: long(40),
            },
            entries: long(48),
            versions: HashVersions {
                prompt: number(56),
                context: number(60),
            },
            directory: (0..directories)
                .map(|at| Slot::read(page, DIRECTORY_AT + SLOT * at))
                .collect(),
        })
    }
}

/// How many slots each level of a model's tree has: as many as buckets, then one for each [`FAN`] of the level below, up to the
/// one root.
pub(super) fn level_sizes(buckets: u32) -> Vec<usize> {
    let sizes = std::iter::successors(Some(buckets as usize), |below| {
        (*below > 1).then(|| below.div_ceil(FAN))
    });
    sizes.collect()
}

/// A page of the directory: at most [`RECORDS`] names with their roots.
pub(super) fn directory<'a>(models: impl Iterator<Item = (&'a str, Slot)>) -> Box<Page> {
    let mut page = blank();
    for (at, (name, root)) in models.enumerate() {
        let record = &mut page[at * RECORD..(at + 1) * RECORD];
        root.write(record, 0);
        record[SLOT] = name.len() as u8;
        put(record, SLOT + 1, name.as_bytes());
    }
    page
}

/// A record of a page of the directory; none if it is not one.
pub(super) fn record(page: &Page, at: usize) -> Option<(String, Slot)> {
    let record = &page[at * RECORD..(at + 1) * RECORD];
    let name = record[SLOT + 1..].get(..usize::from(record[SLOT]))?;
    let name = String::from_utf8(name.to_vec()).ok()?;
    Some((name, Slot::read(record, 0)))
}
