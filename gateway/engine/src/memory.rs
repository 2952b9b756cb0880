//! The memory for keys and values as a batch uses it: places of sequences, and blocks of the prefix cache.
//!
//! When it is short, slack of places is given back first, then blocks that were not used for longest; it never decides who
//! has to leave. Invariant: keys and values are only ever written where [`Books`] has counted them, so no more memory is
//! taken than allowed, but for the moment in which a sequence moves.

use crate::{kv::Books, prefix::Prefixes, steps::Steps};

/// The books of a model's memory, and the index of its prefix cache.
pub(crate) struct Memory {
    books: Books,
    prefixes: Prefixes,
    places: usize,
    evicted: usize,
}

impl Memory {
    /// For `capacity` tokens in the places and blocks of `steps`.
    pub(crate) fn new<S: Steps>(steps: &S, capacity: usize) -> Self {
        let places = steps.extent().slots;
        Self {
            books: Books::new(capacity, places, steps.extent().context, steps.page()),
            prefixes: Prefixes::new(steps.block(), steps.blocks()),
            places,
            evicted: 0,
        }
    }

    /// Tokens for which there is memory.
    pub(crate) fn used(&self) -> usize {
        self.books.used()
    }

    /// Tokens that the prefix cache keeps.
    pub(crate) fn kept(&self) -> usize {
        self.prefixes.len() * self.prefixes.length()
    }

    /// Blocks that had to go since somebody asked.
    pub(crate) fn take_evicted(&mut self) -> usize {
        std::mem::take(&mut self.evicted)
    }

    /// Whether these places can hold so many tokens at all, whatever else has to go.
    pub(crate) fn can_hold(&self, wanted: &[(usize, usize)]) -> bool {
        self.books.can_hold(wanted)
    }

    /// Makes room so that these places can hold so many tokens; no other place is in use. False: it does not fit, and
    /// somebody has to leave.
    pub(crate) fn make_room<S: Steps>(&mut self, steps: &mut S, wanted: &[(usize, usize)]) -> bool {
        if !self.can_hold(wanted) {
            return false;
        }
        let short = |books: &Books| books.short(wanted.iter().copied(), 0);
        if short(&self.books) > 0 {
            self.give_back_slack(steps, wanted);
        }
        while short(&self.books) > 0 {
            if !self.evict(steps) {
                return false;
            }
        }
        for &(place, tokens) in wanted {
            self.books.grow(place, tokens);
        }
        true
    }

    fn give_back_slack<S: Steps>(&mut self, steps: &mut S, wanted: &[(usize, usize)]) {
        for place in 0..self.places {
            let tokens = wanted.iter().find(|(wanted, _)| *wanted == place);
            if let Some(from) = self.books.shrink(place, tokens.map_or(0, |(_, tokens)| *tokens)) {
                steps.release(place, from);
            }
        }
    }

    fn evict<S: Steps>(&mut self, steps: &mut S) -> bool {
        let Some(block) = self.prefixes.evict() else {
            return false;
        };
        steps.release_block(block as usize);
        self.evicted += 1;
        self.books.set_kept(self.kept());
        true
    }

    /// Moves the tokens of a place to another. For a moment they are there twice; if that is too much for long, the old
    /// place's memory is given back.
    pub(crate) fn relocate<S: Steps>(&mut self, steps: &mut S, from: usize, to: usize, tokens: usize) {
        steps.copy(from, to, tokens);
        self.books.grow(to, tokens);
        if self.books.used() > self.books.capacity()
            && let Some(rest) = self.books.shrink(from, 0)
        {
            steps.release(from, rest);
        }
    }

    /// How many tokens of a prompt the cache has; at least two are left to be computed, so that their arithmetic is that
    /// of any other piece, or the only one.
    pub(crate) fn look_up(&mut self, prompt: &[u32]) -> Vec<u32> {
        self.prefixes.find(&prompt[..prompt.len().saturating_sub(LEFT)])
    }

    /// Fills a place with these blocks. Returns how many tokens that were.
    pub(crate) fn load<S: Steps>(&self, steps: &mut S, place: usize, blocks: &[u32]) -> usize {
        let length = self.prefixes.length();
        for (number, &block) in blocks.iter().enumerate() {
            steps.load(block as usize, place, number * length);
        }
        blocks.len() * length
    }

    /// Keeps the prompt that was computed in this place, as far as there is room beside those who are being answered, which
    /// are in these places with so many tokens.
    pub(crate) fn keep<S: Steps>(&mut self, steps: &mut S, place: usize, prompt: &[u32], in_use: &[(usize, usize)]) {
        let length = self.prefixes.length();
        // What is there of it becomes the newest, so that it is not what has to go.
        let have = self.prefixes.find(prompt).len();
        let more = prompt.len() / length - have;
        let full = |this: &Self| this.books.short([], more * length) > 0 || this.prefixes.free() < more;
        if full(self) {
            self.give_back_slack(steps, in_use);
        }
        while full(self) && self.prefixes.len() > have {
            if !self.evict(steps) {
                break;
            }
        }
        let mut room = self.books.capacity().saturating_sub(self.books.used()) / length;
        let fits = || {
            let fits = room > 0;
            room = room.saturating_sub(1);
            fits
        };
        for (number, block) in self.prefixes.insert(prompt, fits) {
            steps.store(place, number * length, block as usize);
        }
        self.books.set_kept(self.kept());
    }
}

/// Tokens of a prompt that are always computed: the last one gives the answer's first token, and a run over a single
/// token of a prompt uses other kernels than one over several, which round differently.
const LEFT: usize = 2;
