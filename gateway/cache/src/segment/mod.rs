//! Where answers lie on the disk: first in the active segment, then in Parquet parts.
//!
//! Nothing here decides which answers are kept, or for how long; it is told. It runs on the cache writer's thread only.
//! Invariant: a place that was given out names the same bytes for as long as its file is there, and they are checked by their
//! checksum when they are read.
//!
//! - [`frame`]: an answer as bytes of the log.
//! - [`log`]: the active segment, `active-<n>.seg`.
//! - [`part`]: sealed parts, `part-<n>.parquet`.
//! - [`compact`]: which parts are made anew.

pub mod compact;
pub mod frame;
pub mod log;
pub mod part;

#[cfg(test)]
#[path = "compact_tests.rs"]
mod compact_tests;
#[cfg(test)]
#[path = "log_tests.rs"]
mod log_tests;
#[cfg(test)]
#[path = "sample_tests.rs"]
mod sample_tests;

use std::io;

use crate::types::{PartNumber, Place};

/// The number in a file's name, written as we write it.
fn numbered(name: &str, before: &str, behind: &str) -> Option<PartNumber> {
    let digits = name.strip_prefix(before)?.strip_suffix(behind)?;
    let number = digits.parse().ok()?;
    // Neither signs nor leading zeros: a number has one name.
    (format!("{number}") == digits).then_some(PartNumber(number))
}

/// The bytes, if they are what was put there.
fn checked(bytes: Vec<u8>, place: Place) -> io::Result<Vec<u8>> {
    if crc32c::crc32c(&bytes) == place.crc {
        return Ok(bytes);
    }
    let why = format!("the value at {} of file {} is damaged", place.offset, place.part.0);
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}
