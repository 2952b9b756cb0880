//! What a batch needs of a model: runs, logits, and copies of keys and values.
//!
//! Nothing is computed here. Invariant: between a run and the next, its logits stay what they are.

use crate::{
    extent::Extent,
    ort_sys::{Bound, Drawer, Rows, SysError},
};

/// What a batch needs of a model. The product's maker is [`Bound`]; tests script one that fails.
pub(crate) trait Steps: Send {
    /// Places, tokens of each, and tokens of a piece.
    fn extent(&self) -> Extent;
    /// Width of a row of logits.
    fn width(&self) -> usize;
    /// One token for each of the first places; a row of logits each. See [`Bound::decode`].
    fn decode(&mut self, tokens: &[u32], lengths: &[u32]) -> Result<(), SysError>;
    /// Tokens of one place, and the logits of some of them. See [`Bound::prefill`].
    fn prefill(&mut self, slot: usize, start: usize, tokens: &[u32], rows: Rows) -> Result<(), SysError>;
    /// A row of the last run's logits.
    fn logits(&mut self, row: usize) -> Result<&[f32], SysError>;
    /// Who draws where the logits are. `None`: the host draws.
    fn drawer(&mut self) -> Option<&mut Drawer> {
        None
    }
    /// Has the drawer draw from the first rows of the last run's logits.
    fn draw(&mut self, rows: usize) -> Result<(), SysError> {
        let _ = rows;
        Ok(())
    }
    /// Bytes that came from a device since somebody asked.
    fn take_fetched(&mut self) -> usize {
        0
    }
    /// Copies the first tokens of a place to another.
    fn copy(&mut self, from: usize, to: usize, tokens: usize);
    /// Tokens that share a page of memory.
    fn page(&self) -> usize;
    /// Gives the memory of a place from this token on back.
    fn release(&mut self, slot: usize, from: usize);
    /// Tokens of a block of the prefix cache.
    fn block(&self) -> usize;
    /// How many blocks there are.
    fn blocks(&self) -> usize;
    /// Copies a block's length of tokens from token `start` of a place into a block.
    fn store(&mut self, slot: usize, start: usize, block: usize);
    /// Copies a block to token `start` of a place.
    fn load(&mut self, block: usize, slot: usize, start: usize);
    /// Gives the memory of a block back.
    fn release_block(&mut self, block: usize);
}

impl Steps for Bound {
    fn extent(&self) -> Extent {
        Bound::extent(self)
    }
    fn width(&self) -> usize {
        self.dimensions().vocabulary
    }
    fn decode(&mut self, tokens: &[u32], lengths: &[u32]) -> Result<(), SysError> {
        Bound::decode(self, tokens, lengths)
    }
    fn prefill(&mut self, slot: usize, start: usize, tokens: &[u32], rows: Rows) -> Result<(), SysError> {
        Bound::prefill(self, slot, start, tokens, rows)
    }
    fn logits(&mut self, row: usize) -> Result<&[f32], SysError> {
        Bound::logits(self, row)
    }
    fn drawer(&mut self) -> Option<&mut Drawer> {
        Bound::drawer(self)
    }
    fn draw(&mut self, rows: usize) -> Result<(), SysError> {
        Bound::draw(self, rows)
    }
    fn take_fetched(&mut self) -> usize {
        Bound::take_fetched(self)
    }
    fn copy(&mut self, from: usize, to: usize, tokens: usize) {
        Bound::copy(self, from, to, tokens);
    }
    fn page(&self) -> usize {
        Bound::page(self)
    }
    fn release(&mut self, slot: usize, from: usize) {
        Bound::release(self, slot, from);
    }
    fn block(&self) -> usize {
        self.cache().block
    }
    fn blocks(&self) -> usize {
        self.cache().blocks
    }
    fn store(&mut self, slot: usize, start: usize, block: usize) {
        Bound::store(self, slot, start, block);
    }
    fn load(&mut self, block: usize, slot: usize, start: usize) {
        Bound::load(self, block, slot, start);
    }
    fn release_block(&mut self, block: usize) {
        Bound::release_block(self, block);
    }
}
