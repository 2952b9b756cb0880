//! Which sealed answers have their values in memory.
//!
//! The writer's own list; it holds no value and decides nothing of heat. Invariant: `bytes` is the sum of the rows' lengths, and
//! `places` names where in the list each of them stands.

use std::collections::HashMap;

use crate::types::{EntryId, Key};

/// An entry whose value lies in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Warm {
    pub(crate) id: EntryId,
    pub(crate) key: Key,
    /// Bytes of the value.
    pub(crate) len: u32,
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    row: Vec<Warm>,
    places: HashMap<EntryId, usize>,
    bytes: u64,
    bound: u64,
}

impl Hot {
    /// For so many bytes of values.
    pub(crate) fn new(bound: u64) -> Self {
        Self {
            bound,
            ..Self::default()
        }
    }

    /// Bytes of values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there are more than there may be.
    pub(crate) fn is_over(&self) -> bool {
        self.bytes > self.bound
    }

    /// Whether less than a sixteenth of the room is left.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.bytes >= self.bound - self.bound / 16
    }

    /// Whether so many bytes fit.
    pub(crate) fn fits(&self, len: u32) -> bool {
        self.bytes + u64::from(len) <= self.bound
    }

    pub(crate) fn insert(&mut self, warm: Warm) {
        self.remove(warm.id);
        self.places.insert(warm.id, self.row.len());
        self.bytes += u64::from(warm.len);
        self.row.push(warm);
    }

    pub(crate) fn remove(&mut self, id: EntryId) {
        let Some(at) = self.places.remove(&id) else { return };
        let gone = self.row.swap_remove(at);
        self.bytes -= u64::from(gone.len);
        if let Some(moved) = self.row.get(at) {
            self.places.insert(moved.id, at);
        }
    }

    /// One of them, by a number drawn by chance.
    pub(crate) fn draw(&self, number: u64) -> Option<Warm> {
        let at = number.checked_rem(self.row.len() as u64)?;
        self.row.get(at as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Context, ModelNumber, PromptHash};

    #[test]
    fn bytes_are_those_of_the_rows() {
        let warm = |id: u32, len| Warm {
            id: EntryId(id),
            key: Key {
                model: ModelNumber(0),
                context: Context([0; 16]),
                prompt: PromptHash([id as u8; 32]),
            },
            len,
        };
        let mut hot = Hot::new(100);
        for id in 0..10 {
            hot.insert(warm(id, 10));
        }
        assert!(!hot.is_over() && !hot.fits(1));
        hot.insert(warm(3, 20));
        assert_eq!((hot.bytes(), hot.is_over()), (110, true));
        for id in [0, 3, 9, 9, 77] {
            hot.remove(EntryId(id));
        }
        assert_eq!((hot.bytes(), hot.row.len(), hot.places.len()), (70, 7, 7));
        for number in 0..7 {
            let drawn = hot.draw(number).unwrap();
            assert_eq!(hot.places[&drawn.id], number as usize);
        }
        assert!(Hot::new(1).draw(5).is_none());
    }
}
