//! The door to the disk: one folder and its files, as the cache writer's thread uses them.
//!
//! Nothing else of the crate opens, writes or removes a file (readers map the index and are given descriptors of parts). Futures
//! are polled on the writer's own thread only. Invariant: what was written and then synced is there after a crash; what was not
//! synced may be there wholly, partly, in any order, or not at all, and the simulated maker makes use of that.
//!
//! - [`disk`]: a folder of the file system, through io_uring or plain calls.
//! - [`sim`]: a simulated disk, from a seed.

pub mod disk;
pub mod sim;

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;

use std::{future::Future, io};

use zerohop_ring::ReadFile;

pub use disk::{DiskFiles, Executor};
pub use sim::{SimDisk, SimFiles};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// It must be there.
    Existing,
    /// It must not be there yet; readable and writable by its owner only (0600).
    New,
    /// Made where it is missing.
    Either,
}

/// A folder. Names are plain file names, without a separator.
pub trait Files: 'static {
    /// An open file of it.
    type File: File;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str, how: Open) -> impl Future<Output = io::Result<Self::File>>;

    /// Gives a file a new name, in the place of one that has it.
    fn rename(&self, from: &str, to: &str) -> impl Future<Output = io::Result<()>>;

    /// Removes a file; one that is open stays readable to those who have it.
    fn remove(&self, name: &str) -> impl Future<Output = io::Result<()>>;

    /// The files of the folder with their sizes in bytes, sorted by name.
    fn list(&self) -> impl Future<Output = io::Result<Vec<(String, u64)>>>;

    /// A file as workers read from it; `None` where they cannot.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn readable(&self, _name: &str) -> io::Result<Option<ReadFile>> {
        Ok(None)
    }

    /// Makes what was created, renamed or removed last through a crash.
    fn sync_folder(&self) -> impl Future<Output = io::Result<()>>;
}

/// An open file.
pub trait File: 'static {
    /// Writes all bytes at this offset, and gives the buffer back for reuse.
    fn write_at(&self, bytes: Vec<u8>, offset: u64) -> impl Future<Output = (io::Result<()>, Vec<u8>)>;

    /// Reads exactly `len` bytes at this offset.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends before.
    fn read_at(&self, len: usize, offset: u64) -> impl Future<Output = io::Result<Vec<u8>>>;

    /// Makes what was written last through a crash.
    fn sync(&self) -> impl Future<Output = io::Result<()>>;

    /// Makes the file at least this long, with its blocks on the disk where the file system can.
    fn reserve(&self, len: u64) -> impl Future<Output = io::Result<()>>;

    /// Its size in bytes.
    fn size(&self) -> impl Future<Output = io::Result<u64>>;
}
