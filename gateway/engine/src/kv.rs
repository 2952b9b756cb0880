//! The books of the memory for keys and values, in tokens.
//!
//! Address space is reserved for every place in full, but memory is only taken where tokens were written, and counted here:
//! the places' tokens and the blocks of the prefix cache share one bound. Pure: it says what has to be given back, and the
//! batch does it. Invariant: `used() <= capacity()` as long as whoever grows a place has seen before that nothing is short.

/// How much memory each place has, and how much there may be in all.
pub(crate) struct Books {
    capacity: usize,
    /// Tokens for which a place has memory, a multiple of `unit`; that stays when a sequence leaves.
    committed: Vec<usize>,
    /// Tokens that share a page of memory: nothing smaller can be given back.
    unit: usize,
    /// Tokens of a whole place.
    longest: usize,
    /// Tokens in blocks of the prefix cache.
    kept: usize,
}

impl Books {
    /// For `capacity` tokens over all of `places` of `longest` tokens, of which `unit` share a page.
    pub(crate) fn new(capacity: usize, places: usize, longest: usize, unit: usize) -> Self {
        Self {
            capacity,
            committed: vec![0; places],
            unit: unit.max(1),
            longest,
            kept: 0,
        }
    }

    /// Tokens for which there may be memory.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens for which there is memory.
    pub(crate) fn used(&self) -> usize {
        self.committed.iter().sum::<usize>() + self.kept
    }

    fn rounded(&self, tokens: usize) -> usize {
        tokens.next_multiple_of(self.unit).min(self.longest)
    }

    /// Whether these places can hold so many tokens if nothing else has any memory.
    pub(crate) fn can_hold(&self, wanted: &[(usize, usize)]) -> bool {
        let tokens: usize = wanted.iter().map(|&(_, tokens)| self.rounded(tokens)).sum();
        tokens <= self.capacity
    }

    /// Tokens by which memory is short if each of these places is to hold so many, and `blocks` more tokens are to be
    /// kept in the prefix cache; 0 if there is enough.
    pub(crate) fn short(&self, wanted: impl IntoIterator<Item = (usize, usize)>, blocks: usize) -> usize {
        let growth = |(place, tokens): (usize, usize)| self.rounded(tokens).saturating_sub(self.committed[place]);
        let more: usize = wanted.into_iter().map(growth).sum::<usize>() + blocks;
        (self.used() + more).saturating_sub(self.capacity)
    }

    /// A place is about to hold `tokens`.
    pub(crate) fn grow(&mut self, place: usize, tokens: usize) {
        self.committed[place] = self.committed[place].max(self.rounded(tokens));
    }

    /// What a place holds beyond `tokens` is given back. Returns from which token on, if there is anything.
    pub(crate) fn shrink(&mut self, place: usize, tokens: usize) -> Option<usize> {
        let keep = self.rounded(tokens);
        if self.committed[place] <= keep {
            return None;
        }
        self.committed[place] = keep;
        Some(keep)
    }

    /// Tokens in blocks of the prefix cache.
    pub(crate) fn set_kept(&mut self, tokens: usize) {
        self.kept = tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_pages() {
        let mut books = Books::new(100, 3, 62, 8);
        assert_eq!(books.short([(0, 33), (1, 60)], 0), 2, "40 and 62 of 100");
        assert!(books.can_hold(&[(0, 33), (2, 55)]) && !books.can_hold(&[(0, 33), (1, 57)]));
        books.grow(0, 33);
        assert_eq!(
            (books.used(), books.short([(0, 40)], 0)),
            (40, 0),
            "the page is there already"
        );
        books.grow(0, 5);
        assert_eq!(books.used(), 40, "memory stays");
        books.set_kept(48);
        assert_eq!((books.used(), books.short([(1, 8)], 0)), (88, 0));
        assert_eq!(books.short([(1, 9)], 0), 4);
        assert_eq!(books.short([], 16), 4);
        assert_eq!(books.shrink(0, 17), Some(24));
        assert_eq!(books.shrink(0, 17), None);
        assert_eq!((books.used(), books.short([(1, 9)], 0)), (72, 0));
    }
}
