//! Answers that were given before, kept on this machine: found by a key that covers everything that could change the
//! answer, told from memory or read as one range of a file, evicted by how cold they are.
//!
//! ```text
//!                    look up: delta ─ tree (mapped)        value: hot memory ─ or (part, offset, length) through the ring
//! workers ──────────────────────────────────────────────────────────────────────────────────────────────────────
//! cache writer       put ─ log (active segment) ─ seal ─ Parquet part ─ compact;  commit of the tree, by time or change
//! ```
//!
//! It knows nothing of dialects: a value is bytes to it. It opens no socket and never blocks a reader. Invariant: what is
//! found under a key is exactly what was put under it, or nothing; a torn or damaged page, frame or part is a miss.
//!
//! - [`types`]: keys, entries, places and the columns of a record.
//! - [`files`]: the door to the disk, with a real maker and a simulated one.
//! - [`heat`]: how entries cool.
//! - [`index`]: the tree, its one writer and its readers.
//! - [`segment`]: the log that answers are appended to, and the parts that they are sealed into.

#![deny(unsafe_code)]

mod cache;
mod counts;
mod disk;
pub mod files;
mod front;
pub mod heat;
mod hot;
pub mod index;
mod ledger;
#[allow(unsafe_code)]
mod map;
mod note;
mod policy;
pub mod segment;
mod slots;
mod stepped;
mod store;
pub mod types;

pub use cache::{Cache, Checked, OnDisk, Options, Putter};
pub use counts::Stats;
pub use disk::{LEAST, OpenError};
pub use files::{Executor, File, Files, Open};
pub use front::{Found, Now, PartFile, Reader, Sighting, Value};
pub use note::{Note, Notes};
pub use policy::Probation;
pub use slots::Stamp;
pub use stepped::Stepped;
pub use store::{Cursor, Filter, Limits, Listed, Page, Total};
pub use types::{
    Answer, Context, Entry, EntryId, FinishReason, Key, ModelNumber, PartNumber, Place, PromptHash, Seconds, Usage,
};
