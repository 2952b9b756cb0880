//! The prefix cache's index: which blocks of keys and values are kept for which beginnings of prompts.
//!
//! A prompt is a chain of blocks of equal length. A block is found by the block before it and its own tokens, compared in
//! full, so that a hit is certain and not a matter of hashes. Pure: it knows neither where the blocks lie nor what is in
//! them, and takes no time but a counter. Invariant: of a chain the blocks nearest to the beginning are used last, so a
//! block never goes before those that follow it, and every block in the index can be found.

use std::collections::{BTreeMap, HashMap};

/// Where the keys and values of a block lie; given out by the index, below its bound.
pub(crate) type Place = u32;

/// A block in the index, never used twice. 0 is the beginning of every prompt.
type Id = u64;
const BEGINNING: Id = 0;

struct Block {
    id: Id,
    place: Place,
    /// When it was last used; unique.
    used: u64,
}

/// The blocks that are kept.
pub(crate) struct Prefixes {
    /// Tokens of a block.
    length: usize,
    /// By the block before and the tokens. The hasher is seeded by chance, since clients choose the tokens.
    blocks: HashMap<(Id, Box<[u32]>), Block>,
    /// The keys of `blocks` in the order in which they were used.
    order: BTreeMap<u64, (Id, Box<[u32]>)>,
    free: Vec<Place>,
    next_id: Id,
    clock: u64,
}

impl Prefixes {
    /// For at most `places` blocks of `length` tokens.
    pub(crate) fn new(length: usize, places: usize) -> Self {
        Self {
            length,
            blocks: HashMap::new(),
            order: BTreeMap::new(),
            // The lowest first.
            free: (0..u32::try_from(places).unwrap_or(u32::MAX)).rev().collect(),
            next_id: BEGINNING + 1,
            clock: 0,
        }
    }

    /// Tokens of a block.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// How many blocks are kept.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// How many more fit without giving one up.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Places of the blocks that begin `tokens`, as many as are kept, and marks them as used.
    pub(crate) fn find(&mut self, tokens: &[u32]) -> Vec<Place> {
        let chain = self.chain(tokens);
        let places = chain.iter().map(|(_, place)| *place).collect();
        self.touch(tokens, chain.len());
        places
    }

    /// Keeps the blocks of `tokens` that are not kept yet, as long as `room` says that there is memory for one more and a
    /// place is free. Returns the number of the block in `tokens` and its place, for each that is new.
    pub(crate) fn insert(&mut self, tokens: &[u32], mut room: impl FnMut() -> bool) -> Vec<(usize, Place)> {
        let chain = self.chain(tokens);
        let mut before = chain.last().map_or(BEGINNING, |(id, _)| *id);
        let mut added = Vec::new();
        for (number, block) in tokens.chunks_exact(self.length).enumerate().skip(chain.len()) {
            if self.free.is_empty() || !room() {
                break;
            }
            let Some(place) = self.free.pop() else { break };
            let id = self.next_id;
            self.next_id += 1;
            self.clock += 1;
            let key = (before, Box::from(block));
            self.order.insert(self.clock, key.clone());
            let used = self.clock;
            self.blocks.insert(key, Block { id, place, used });
            added.push((number, place));
            before = id;
        }
        self.touch(tokens, chain.len() + added.len());
        added
    }

    /// Gives up the block that was not used for longest. Its place, which may be given out again.
    pub(crate) fn evict(&mut self) -> Option<Place> {
        let (_, key) = self.order.pop_first()?;
        let block = self.blocks.remove(&key)?;
        self.free.push(block.place);
        Some(block.place)
    }

    /// The blocks that begin `tokens`, as far as they are kept.
    fn chain(&self, tokens: &[u32]) -> Vec<(Id, Place)> {
        let mut before = BEGINNING;
        let mut chain = Vec::new();
        for block in tokens.chunks_exact(self.length) {
            let Some(found) = self.blocks.get(&(before, Box::from(block))) else {
                break;
            };
            before = found.id;
            chain.push((found.id, found.place));
        }
        chain
    }

    /// Marks the first `count` blocks of `tokens` as used, the last of them first.
    fn touch(&mut self, tokens: &[u32], count: usize) {
        let mut before = BEGINNING;
        let time = self.clock + count as u64;
        self.clock = time;
        for (number, block) in (0u64..).zip(tokens.chunks_exact(self.length).take(count)) {
            let key = (before, Box::from(block));
            let Some(found) = self.blocks.get_mut(&key) else { return };
            before = found.id;
            self.order.remove(&found.used);
            found.used = time - number;
            self.order.insert(found.used, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for this many more.
    fn room(mut count: usize) -> impl FnMut() -> bool {
        move || {
            let there = count > 0;
            count -= usize::from(there);
            there
        }
    }

    #[test]
    fn a_beginning_is_found_as_far_as_it_is_kept() {
        let mut prefixes = Prefixes::new(2, 10);
        assert!(prefixes.find(&[1, 2, 3, 4]).is_empty());
        assert_eq!(prefixes.insert(&[1, 2, 3, 4, 5], room(9)), [(0, 0), (1, 1)]);
        assert_eq!(prefixes.insert(&[1, 2, 9, 9], room(9)), [(1, 2)]);
        let table: &[(&[u32], &[Place])] = &[
            (&[1, 2, 3, 4, 5, 6], &[0, 1]),
            (&[1, 2, 3, 4], &[0, 1]),
            (&[1, 2, 3], &[0]),
            (&[1, 2, 9, 9, 3, 4], &[0, 2]),
            (&[1], &[]),
            (&[], &[]),
            // The same tokens behind another beginning are another block.
            (&[3, 4], &[]),
            (&[9, 9, 3, 4], &[]),
        ];
        for (tokens, places) in table {
            assert_eq!(prefixes.find(tokens), *places, "{tokens:?}");
        }
    }

    #[test]
    fn bounds_hold() {
        let mut prefixes = Prefixes::new(1, 3);
        assert_eq!(prefixes.insert(&[1, 2], room(1)), [(0, 0)], "no memory for the second");
        assert_eq!(
            prefixes.insert(&[1, 2, 3, 4], room(9)).len(),
            2,
            "no place for the fourth"
        );
        assert_eq!((prefixes.len(), prefixes.find(&[1, 2, 3, 4])), (3, vec![0, 1, 2]));
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_the_end_before_the_beginning() {
        let mut prefixes = Prefixes::new(1, 10);
        prefixes.insert(&[1, 2, 3], room(9));
        prefixes.insert(&[7, 8], room(9));
        prefixes.find(&[1, 2]);
        let gone: Vec<_> = std::iter::from_fn(|| prefixes.evict()).collect();
        // 3 was used least; then 8, the end of the other chain, before 7; then 2 before 1.
        assert_eq!(gone, [2, 4, 3, 1, 0]);
        assert_eq!(prefixes.len(), 0);
        assert_eq!(prefixes.insert(&[5], room(9)).len(), 1, "places are used again");
    }

    /// Whatever happens, each block in the index is found from the beginning.
    #[test]
    fn nothing_is_kept_that_cannot_be_found() {
        let mut prefixes = Prefixes::new(2, 12);
        let mut state = 1u32;
        let mut chance = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for _ in 0..2000 {
            let tokens: Vec<u32> = (0..chance(12)).map(|_| chance(2)).collect();
            match chance(4) {
                0 => drop(prefixes.find(&tokens)),
                1 => drop(prefixes.evict()),
                _ => drop(prefixes.insert(&tokens, room(3))),
            }
            assert_eq!(prefixes.order.len(), prefixes.blocks.len());
            let ids: Vec<Id> = prefixes.blocks.values().map(|block| block.id).collect();
            for (before, _) in prefixes.blocks.keys() {
                assert!(*before == BEGINNING || ids.contains(before));
            }
            let mut places: Vec<Place> = prefixes.blocks.values().map(|block| block.place).collect();
            places.extend(&prefixes.free);
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..12), "each place once");
        }
    }
}
