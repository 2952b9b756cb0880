//! Fuzz targets: what reads bytes from outside, each beside a slow and plain reading of the same bytes.
//!
//! A target panics when the product is wrong, and for no other input. Nothing here is fast or lenient. Invariant: an oracle
//! shares no code with what it checks.
#![forbid(unsafe_code)]

mod body;
mod config;
mod embeddings;
mod head;
mod json;
mod masks;
mod reply;
mod requests;
mod sse;
mod stored;
mod template;
mod wishes;

use std::fmt::{Debug, Write};

/// One of them.
#[derive(Debug)]
pub struct Target {
    /// Its name, and that of its folder of inputs.
    pub name: &'static str,
    /// Runs it on one input.
    ///
    /// # Panics
    /// If the product is wrong.
    pub run: fn(&[u8]),
}

/// All of them; `tests/fuzz/corpus` has a folder of inputs for each.
pub const TARGETS: [Target; 15] = [
    target("head", head::check),
    target("body", body::check_fixed),
    target("chunked", body::check_chunked),
    target("messages", requests::check_messages),
    target("count", requests::check_count),
    target("chat", requests::check_chat),
    target("completions", requests::check_completions),
    target("embeddings", embeddings::check),
    target("sse", sse::check),
    target("reply", reply::check),
    target("stored", stored::check),
    target("config", config::check),
    target("rules", masks::check_rules),
    target("schema", masks::check_schema),
    target("template", template::check),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// Lengths into which an input is cut, drawn from the input itself so that a failure repeats.
struct Cuts(u64);

impl Cuts {
    fn of(data: &[u8], round: u64) -> Self {
        // FNV-1a.
        let hash = data.iter().fold(0xcbf2_9ce4_8422_2325 ^ round, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash | 1)
    }

    /// Between 1 and `most`.
    fn next(&mut self, most: usize) -> usize {
        // xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        1 + (self.0 >> 33) as usize % most.max(1)
    }
}

/// Fails with both sides and the input, as text.
fn same<T: PartialEq + Debug>(what: &str, ours: &T, theirs: &T, input: &[u8]) {
    if ours != theirs {
        let mut shown = String::new();
        for &byte in input {
            write!(shown, "{}", byte.escape_ascii()).unwrap_or_default();
        }
        panic!("{what}: the product says {ours:?}, the oracle {theirs:?}, of {shown}");
    }
}
