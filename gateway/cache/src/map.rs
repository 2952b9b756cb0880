//! The index file as memory, read only: the one file of the crate with unsafe code.
//!
//! It never writes through the map and never gives out more than one page at a time. Invariant, kept by the index's writer,
//! which alone writes to the file: the file never becomes shorter, and a page that a tree leads to is not rewritten while
//! anybody holds that tree ([`crate::index::Tree`]). Free pages may change under the map at any time; nobody has a reference
//! into them, since none is ever made to a page that no held tree leads to. (Trees lead where they should: each was checked
//! whole when it was opened, or written by this process.)

use std::{fs::File, io, os::unix::fs::MetadataExt};

use memmap2::{MmapOptions, MmapRaw};

use crate::index::{PAGE, Page};

/// A mapped file of whole pages.
#[derive(Debug)]
pub(crate) struct Map {
    raw: MmapRaw,
    pages: u32,
}

impl Map {
    /// Maps all whole pages that the file has now, and has the kernel read them in first (`MAP_POPULATE`), so that a worker
    /// does not wait for the disk at its first look-up.
    ///
    /// # Errors
    /// `PermissionDenied` for a file that others than its owner may open: they could shorten it under the map. What the kernel
    /// says when it cannot map.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            let why = "the index may be opened by others than its owner; chmod 600 it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let pages = u32::try_from(metadata.len() / PAGE as u64).unwrap_or(u32::MAX);
        let raw = MmapOptions::new()
            .len(pages as usize * PAGE)
            .populate()
            .map_raw_read_only(file)?;
        Ok(Self { raw, pages })
    }

    /// How many pages are mapped.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// A page of a tree that the caller holds; none beyond the map.
    pub(crate) fn page(&self, at: u32) -> Option<&Page> {
        if at >= self.pages {
            return None;
        }
        let offset = at as usize * PAGE;
        // SAFETY: `offset` is below the length that was mapped, `pages * PAGE` bytes, by the test above.
        let start = unsafe { self.raw.as_ptr().add(offset) };
        // SAFETY: `PAGE` bytes from `start` on are mapped for as long as `self` lives, readable and initialised (a file's bytes
        // always are); an array of bytes has no alignment. The file is not shortened, and the bytes do not change while the
        // reference lives: the page is in use by a tree that the caller holds (see the head of this file).
        Some(unsafe { &*start.cast::<Page>() })
    }
}
