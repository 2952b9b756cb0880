//! Finding one special byte after the other in one text.
//!
//! In the short strings of which a document has most, the next special byte lies in the 64 bytes that were looked at
//! for the one before, and is found with a shift and a count. Invariant: the answer is that of [`Level::special`],
//! whatever was asked before.

use crate::Level;

/// Finds special bytes, best from the left to the right.
#[derive(Debug, Clone)]
pub struct Finder<'a> {
    bytes: &'a [u8],
    level: Level,
    /// Where the last look began, and what it saw.
    start: usize,
    specials: u64,
}

impl<'a> Finder<'a> {
    /// Over these bytes.
    #[must_use]
    pub fn new(level: Level, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            level,
            start: 0,
            specials: 0,
        }
    }

    /// As [`Level::special`], for a place that is not behind the end.
    #[must_use]
    #[inline(always)]
    pub fn find(&mut self, at: usize) -> usize {
        let offset = at.wrapping_sub(self.start);
        if offset < 64 {
            let rest = self.specials >> offset;
            if rest != 0 {
                return at + rest.trailing_zeros() as usize;
            }
        }
        self.look(at)
    }

    #[inline(never)]
    fn look(&mut self, at: usize) -> usize {
        (self.start, self.specials) = self.level.look(self.bytes, at);
        self.start + self.specials.trailing_zeros() as usize
    }
}
