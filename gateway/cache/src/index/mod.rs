//! The index: a tree of fixed pages in one file, with one writer and any number of readers that never wait.
//!
//! Three levels, per model: a table of buckets, chosen by the prompt hash, and in each bucket one leaf of up to 100 entries
//! sorted by (context, prompt hash). A commit copies the pages that it changes and then writes the older of two meta slots; so
//! whenever the power fails, the file opens to the tree before or after. Readers look up in the mapped file; hits write nothing
//! here (heat, pins and tombstones lie elsewhere, by entry id). It knows nothing of values and of what is worth keeping, except
//! that a bucket that would hold too much loses its coldest. Invariant: what is found under a key was put under it, whole, and is
//! of one committed tree.
//!
//! # Format 1 of `cache_index.bin`
//!
//! Pages of 8192 bytes; numbers are little-endian. A slot is a page number (0 for none) and what that page must hold, the
//! first 28 bytes of its BLAKE3: so a meta slot vouches for the whole tree, and opening checks all of it.
//!
//! ```text
//!  page 0, 1   meta slots, written in turn; the whole one with the greater commit number counts, if its tree is whole
//!  page 2 …    directory, tables and leaves, in no order
//!
//!  slot (32 bytes)         0        4                                                          32
//!                          ├ page ──┼ first 28 bytes of the page's BLAKE3 ─────────────────────┤
//!
//!  meta slot               0   8        12         16        24       28      32       36 40      48       56      60      64
//!                          ├ magic ┼ format ┼ page size ┼ commit ┼ buckets ┼ models ┼ part ┼ 0 ┼ offset ┼ entries ┼ prompt ┼ context ┤
//!                          64: 16 slots of the directory's pages    576: zeros    8160: BLAKE3 of the 8160 bytes before
//!                          magic is "ZHINDEX\0"; part and offset: up to where the log is covered; prompt and context: versions
//!                          of the two hashes. Magic, format and checksum lie there in every format.
//!
//!  directory page          32 records of 256 bytes, in the order of model numbers:
//!                          0        32              33                                                   256
//!                          ├ root ──┼ name's length ┼ name, UTF-8, then zeros ────────────────────────────┤
//!
//!  table (root or below)   256 slots. Of 1024 to 65,536 buckets: bucket >> 8 chooses in the root, bucket & 255 in the next;
//!                          of more, one more level above. bucket = first 8 bytes of the prompt hash, modulo the number of buckets
//!
//!  leaf                    0     1       2       4        8    16                     240              8140    8192
//!                          ├ 'L' ┼ count ┼ model ┼ bucket ┼ 0 ─┼ 112 tags of 2 bytes ─┼ 100 rows of 79 ─┼ 0 ───┤
//!                          tag: the last two bytes of the prompt hash
//!
//!  row (79 bytes)          0         16                     45   49     53       59       63    67        71        75     79
//!                          ├ context ┼ prompt hash [1..30] ─┼ id ┼ part ┼ offset ┼ length ┼ crc ┼ created ┼ expires ┼ heat ┤
//!                          the first byte of the prompt hash is the bucket's lowest; offset has 48 bits, heat is an f32
//! ```

mod build;
mod changes;
mod check;
mod meta;
mod page;
mod pages;
mod sink;
mod space;
mod stage;
mod tree;
mod writer;

#[cfg(test)]
#[path = "crash_tests.rs"]
mod crash_tests;
#[cfg(test)]
#[path = "damage_tests.rs"]
mod damage_tests;
#[cfg(test)]
#[path = "disk_tests.rs"]
mod disk_tests;
#[cfg(test)]
#[path = "folder_tests.rs"]
mod folder_tests;
#[cfg(test)]
#[path = "thread_tests.rs"]
mod thread_tests;
#[cfg(test)]
#[path = "writer_tests.rs"]
mod writer_tests;

use std::io;

pub use changes::Change;
pub use check::{Damage, Verified};
pub use meta::{FORMAT, MODELS, NAME};
pub(crate) use page::Page;
pub use page::{LEAF_ENTRIES, PAGE};
pub use pages::View;
pub use tree::{Reader, Tree};
pub use writer::{Committed, IndexWriter, Opened};

#[cfg(test)]
use crate::files as door;
use crate::types::{Entry, ModelNumber, PartNumber};

/// The index's file.
pub const NAME_OF_FILE: &str = "cache_index.bin";
/// While it is built anew; of no use where it is found later.
const NAME_WHILE_BUILT: &str = "cache_index.new";

/// Trees that are kept for readers at most, each with the pages that the next commit changed. A look-up holds one for less than
/// a microsecond, so only a reader that forgets one meets this.
const RETIRED: usize = 64;

/// Fewest buckets of a model.
pub const MIN_BUCKETS: u32 = 1024;
/// Most buckets of a model: three levels of tables.
pub const MAX_BUCKETS: u32 = 1 << 24;

/// How many buckets keep pages under two thirds full with so many entries: 66 in the mean at most, where one bucket in 25,000
/// has more than 100 by chance.
#[must_use]
pub fn buckets_for(entries: u64) -> u32 {
    let buckets = entries.div_ceil(66).max(1).checked_next_power_of_two();
    let buckets = buckets.map_or(MAX_BUCKETS, |buckets| u32::try_from(buckets).unwrap_or(MAX_BUCKETS));
    buckets.clamp(MIN_BUCKETS, MAX_BUCKETS)
}

/// Up to where in the log a tree knows everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Covered {
    /// The segment; all before it are covered.
    pub segment: PartNumber,
    /// Bytes of it from its start.
    pub offset: u64,
}

impl Covered {
    /// The log from its start on is not in the tree.
    pub const NOTHING: Self = Self {
        segment: PartNumber(0),
        offset: 0,
    };
}

/// By which rules the hashes of keys were made. The index keeps them for its owner, to whom it falls to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HashVersions {
    /// Of prompt hashes.
    pub prompt: u32,
    /// Of contexts.
    pub context: u32,
}

/// What an index is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Buckets of each model: a power of two, [`MIN_BUCKETS`] to [`MAX_BUCKETS`]; see [`buckets_for`]. The writer keeps 32 bytes
    /// for each in memory, for every model that has entries.
    pub buckets: u32,
    /// Kept as they are.
    pub versions: HashVersions,
}

/// Why the index could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// There is none: make one.
    #[error("there is no {NAME_OF_FILE}")]
    Missing,
    /// It is whole but of another format: build it anew, or go back to the program that wrote it.
    #[error("{NAME_OF_FILE} has format {0}, this program reads {FORMAT}")]
    Newer(u32),
    /// Neither meta slot leads to a whole tree: build it anew.
    #[error("{NAME_OF_FILE} is damaged: {0}")]
    Damaged(Damage),
    /// The disk failed. What readers see is unchanged.
    #[error("{NAME_OF_FILE}: {0}")]
    Io(#[from] io::Error),
    /// The disk failed, or a commit was dropped, at a point from which on nobody knows which tree is the last on the disk: open
    /// or build anew. Readers keep the last tree.
    #[error("{NAME_OF_FILE} can no longer be written: an earlier commit has an uncertain end")]
    Uncertain,
    /// Somebody does not let go of an old tree: so that the file does not grow without end, nothing is written until they do.
    #[error("{RETIRED} old trees of {NAME_OF_FILE} are held by a reader: nothing is committed until it lets go")]
    Held,
    /// Not a power of two between the bounds.
    #[error("{0} buckets: not a power of two from {MIN_BUCKETS} to {MAX_BUCKETS}")]
    Buckets(u32),
    /// Empty or too long.
    #[error("a model's name has 1 to {NAME} bytes, not {0}")]
    Name(usize),
    /// The directory is full.
    #[error("an index has {MODELS} models at most")]
    Models,
    /// A model number that [`IndexWriter::model`] did not give.
    #[error("no model has the number {}", .0.0)]
    UnknownModel(ModelNumber),
    /// An offset beyond 48 bits.
    #[error("offset {0} of a value is beyond 48 bits")]
    Offset(u64),
}

/// Which entries a full bucket gives up first.
fn colder(left: &Entry, right: &Entry) -> std::cmp::Ordering {
    left.heat.total_cmp(&right.heat).then(left.created.cmp(&right.created))
}
