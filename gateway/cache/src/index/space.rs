//! Which pages of the file are free, and when those of an older tree become so.
//!
//! No I/O. Invariant: a page is given out only if neither the last committed tree nor one that a reader may still hold leads to
//! it.
//!
//! Why that holds: readers reach a tree through one `ArcSwap` only, and hold it while they read. A commit puts a new tree in the
//! old one's place and brings the old one here, with the pages that the new one no longer leads to. From then on nobody can come
//! to the old tree but from somebody who holds it. So once it has no other owner, which `Arc::get_mut` tells (it also orders
//! their reads before what we do next), nobody has it and nobody ever will. A page that one commit lets go of may be in all
//! trees before it, therefore trees are asked from the oldest on, and a held one keeps the pages of all after it.

use std::{collections::VecDeque, sync::Arc};

/// The pages of one file.
#[derive(Debug)]
pub(super) struct Space<T> {
    /// A bit for each page, set if it is taken.
    taken: Vec<u64>,
    /// No word before this one has a free page.
    first: usize,
    retired: VecDeque<(Arc<T>, Vec<u32>)>,
}

impl<T> Space<T> {
    /// All free but the first `kept`.
    pub(super) fn new(kept: u32) -> Self {
        let mut space = Self {
            taken: Vec::new(),
            first: 0,
            retired: VecDeque::new(),
        };
        for page in 0..kept {
            space.mark(page);
        }
        space
    }

    /// Takes a page; false if it was taken already.
    pub(super) fn mark(&mut self, page: u32) -> bool {
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        if self.taken.len() <= word {
            self.taken.resize(word + 1, 0);
        }
        let free = self.taken[word] & bit == 0;
        self.taken[word] |= bit;
        free
    }

    /// Takes the first free page: pages that are taken one after the other tend to lie together, and are written as one.
    pub(super) fn take(&mut self) -> u32 {
        let full = |word: &&u64| **word == u64::MAX;
        self.first += self.taken[self.first..].iter().take_while(full).count();
        let bit = self.taken.get(self.first).map_or(0, |word| word.trailing_ones());
        let page = self.first as u32 * 64 + bit;
        self.mark(page);
        page
    }

    /// Gives back a page that no tree leads to.
    pub(super) fn give(&mut self, page: u32) {
        let word = page as usize / 64;
        self.taken[word] &= !(1 << (page % 64));
        self.first = self.first.min(word);
    }

    /// Keeps `pages`, which were of `tree` and are not of the one after it, until nobody can read them.
    pub(super) fn retire(&mut self, tree: Arc<T>, pages: Vec<u32>) {
        self.retired.push_back((tree, pages));
    }

    /// Keeps the trees of another file, `last` and those before it, until nobody reads them: so it is never a reader who has to
    /// unmap that file.
    pub(super) fn inherit(&mut self, older: Self, last: Arc<T>) {
        let trees = older.retired.into_iter().map(|(tree, _)| tree);
        self.retired.extend(trees.chain([last]).map(|tree| (tree, Vec::new())));
    }

    /// Frees what nobody can read any more.
    pub(super) fn reclaim(&mut self) {
        while let Some((tree, _)) = self.retired.front_mut()
            && Arc::get_mut(tree).is_some()
            && let Some((_, pages)) = self.retired.pop_front()
        {
            pages.into_iter().for_each(|page| self.give(page));
        }
    }

    /// How many older trees are kept.
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Pages taken, those of older trees included.
    pub(super) fn used(&self) -> u32 {
        self.taken.iter().map(|word| word.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_page_is_taken() {
        let mut space = Space::<()>::new(2);
        let taken: Vec<_> = (0..200).map(|_| space.take()).collect();
        assert_eq!(taken, (2..202).collect::<Vec<_>>());
        space.give(150);
        space.give(7);
        assert!(!space.mark(8));
        assert_eq!([space.take(), space.take(), space.take()], [7, 150, 202]);
        assert_eq!(space.used(), 203);
    }

    #[test]
    fn a_held_tree_keeps_its_pages_and_those_of_all_after_it() {
        let mut space = Space::new(2);
        let pages: Vec<_> = (0..3).map(|_| space.take()).collect();
        let trees: Vec<_> = (0..3).map(Arc::new).collect();
        for (tree, page) in trees.iter().zip(&pages) {
            space.retire(tree.clone(), vec![*page]);
        }
        let mut held: Vec<_> = trees.into_iter().map(Some).collect();
        let mut left = Vec::new();
        for out in [1, 0, 2] {
            held[out] = None;
            space.reclaim();
            left.push(space.used() - 2);
        }
        assert_eq!(left, [3, 1, 0]);
    }

    #[test]
    fn trees_of_another_file_are_kept_and_free_no_page_of_this_one() {
        let (mut older, mut space) = (Space::new(2), Space::new(2));
        let (first, last) = (Arc::new(1), Arc::new(2));
        let page = older.take();
        older.retire(first.clone(), vec![page]);
        assert_eq!(space.take(), page);
        space.inherit(older, last.clone());
        space.reclaim();
        assert_eq!([&first, &last].map(Arc::strong_count), [2, 2]);
        let unread = [Arc::downgrade(&first), Arc::downgrade(&last)];
        drop((first, last));
        assert!(unread.iter().all(|tree| tree.strong_count() == 1));
        drop(unread);
        space.reclaim();
        assert_eq!(space.retired(), 0);
        assert_eq!(space.used(), 3);
    }
}
