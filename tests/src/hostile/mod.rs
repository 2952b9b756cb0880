//! Scripted clients that break the rules of HTTP: what they send, and what must come of it, read from `tests/hostile`.
//!
//! [`case`] reads the table, [`client`] plays one case against a server. Nothing here judges. Invariant: a case says
//! everything that its client sends and sees, so the same case can be played against any server.

pub mod case;
pub mod client;

use std::fs;

use crate::gateway::{Settings, root};

pub use case::{Case, End, Reply, Step};
pub use client::{Delivery, Seen, play};

/// Files of the table, without their ending.
pub const FILES: [&str; 8] = [
    "lengths",
    "codings",
    "chunks",
    "lines",
    "targets",
    "versions",
    "fields",
    "connections",
];

/// The cases of a file.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn cases(file: &str) -> Vec<Case> {
    let path = root().join("tests/hostile").join(format!("{file}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    case::read(file, &text)
}

/// What the gateway of the table has beside `settings`: short waits, since many of the cases end by one, and small
/// bounds, so that a case can reach them.
#[must_use]
pub fn settings(settings: Settings) -> Settings {
    settings
        .with("/server/read_timeout", "2s")
        .with("/server/max_header_bytes", "8KiB")
        .with("/server/max_body_bytes", "64KiB")
}
