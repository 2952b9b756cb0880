//! What left probation unasked for, by fingerprint: who comes back soon was let go too early.
//!
//! A table of sets of four, newest over oldest, so that its memory follows from its capacity alone. It forgets, and takes one in
//! a thousand or fewer for another: that costs a place in the main part, never an answer. Invariant: nothing is recalled that left
//! longer ago than as many departures as were asked for.

/// Cells of a set.
const WAYS: usize = 4;
/// Sets of the smallest table.
const FEWEST: usize = 16;
/// Cells to a departure that has to be remembered: sets fill unevenly.
const SPARE: usize = 2;
/// Sets of the largest table: 2^27 departures.
const MOST: usize = 1 << 26;

/// A departure; `print` 0 and `at` 0 where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cell {
    print: u32,
    /// The number of the departure, from 1, modulo 2^32.
    at: u32,
}

/// The departures of one pool.
#[derive(Debug, Default)]
pub(super) struct Ghost {
    /// A power of two, or none before the first departure.
    sets: Vec<[Cell; WAYS]>,
    departures: u32,
}

impl Ghost {
    /// Takes note of a departure; as many as `capacity` are to be remembered.
    pub(super) fn remember(&mut self, print: u32, capacity: usize) {
        self.fit(capacity);
        self.departures = self.departures.wrapping_add(1);
        let cell = Cell {
            print,
            at: self.departures,
        };
        self.place(cell);
    }

    /// Whether it is among the last `capacity` departures; then it is so no more.
    pub(super) fn recall(&mut self, print: u32, capacity: usize) -> bool {
        let departures = self.departures;
        let Some(set) = self.set(print) else { return false };
        let found = set
            .iter_mut()
            .find(|cell| cell.at != 0 && cell.print == print && (departures.wrapping_sub(cell.at) as usize) < capacity);
        found.map(std::mem::take).is_some()
    }

    fn set(&mut self, print: u32) -> Option<&mut [Cell; WAYS]> {
        let last = self.sets.len().checked_sub(1)?;
        self.sets.get_mut(print as usize & last)
    }

    /// Over the oldest of its set.
    fn place(&mut self, cell: Cell) {
        let departures = self.departures;
        let Some(set) = self.set(cell.print) else { return };
        let age = |cell: &Cell| {
            if cell.at == 0 {
                u32::MAX
            } else {
                departures.wrapping_sub(cell.at)
            }
        };
        if let Some(oldest) = set.iter_mut().max_by_key(|cell| age(cell)) {
            *oldest = cell;
        }
    }

    /// Makes the table as large as the capacity asks for; smaller only by far, so that it does not swing.
    fn fit(&mut self, capacity: usize) {
        let wanted = (capacity * SPARE / WAYS).next_power_of_two().clamp(FEWEST, MOST);
        if self.sets.len() >= wanted && self.sets.len() <= 4 * wanted {
            return;
        }
        let mut cells: Vec<_> = std::mem::take(&mut self.sets).into_iter().flatten().collect();
        self.sets = vec![[Cell::default(); WAYS]; wanted];
        let departures = self.departures;
        cells.retain(|cell| cell.at != 0);
        // Oldest first: where they do not fit any more, the newest stay.
        cells.sort_unstable_by_key(|cell| std::cmp::Reverse(departures.wrapping_sub(cell.at)));
        cells.into_iter().for_each(|cell| self.place(cell));
    }

    /// Bytes of the table.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fingerprints, spread as those of a hash are.
    fn print(number: u32) -> u32 {
        number.wrapping_mul(0x9e37_79b1) ^ 0x55
    }

    #[test]
    fn the_last_departures_are_recalled_once() {
        let mut ghost = Ghost::default();
        assert!(!ghost.recall(print(0), 10));
        (0..100).for_each(|n| ghost.remember(print(n), 10));
        for n in 0..100 {
            assert_eq!(ghost.recall(print(n), 10), n >= 90, "{n}");
            assert!(!ghost.recall(print(n), 10), "{n} again");
        }
    }

    #[test]
    fn memory_follows_the_capacity_and_little_is_lost() {
        let mut ghost = Ghost::default();
        for capacity in [10_000usize, 40_000, 100] {
            (0..200_000).for_each(|n| ghost.remember(print(n), capacity));
            assert!(
                ghost.bytes() <= capacity * 8 * 2 * SPARE * 4,
                "{capacity}: {}",
                ghost.bytes()
            );
            let last = 200_000 - capacity as u32 / 2;
            let kept = (last..200_000).filter(|n| ghost.recall(print(*n), capacity)).count();
            assert!(kept * 100 >= capacity / 2 * 95, "{kept} of the last {}", capacity / 2);
        }
    }

    #[test]
    fn a_table_that_grows_keeps_what_it_had() {
        let mut ghost = Ghost::default();
        (0..30).for_each(|n| ghost.remember(print(n), 30));
        ghost.remember(print(30), 10_000);
        assert!((0..=30).all(|n| ghost.recall(print(n), 10_000)));
    }
}
