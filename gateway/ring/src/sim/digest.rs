//! A digest of a run: equal runs have equal ones.
//!
//! Keeps nothing of what went into it. Invariant: the same bytes in the same order give the same digest.

use std::fmt::{self, Write};

/// FNV-1a, 64 bits.
pub(super) struct Digest(pub(super) u64);

impl Digest {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// Bytes in a line of the trace: how many, and their digest.
pub(super) struct Summary<'a>(pub(super) &'a [u8]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digest = Digest::new();
        digest.add(self.0);
        write!(f, "{} {:016x}", self.0.len(), digest.0)
    }
}
