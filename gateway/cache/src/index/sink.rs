//! New pages on their way to the file.
//!
//! It knows nothing of trees. Invariant: pages that follow one another are written as one, at most [`RUN`] bytes at a time; none is
//! written where a page is taken.

use std::sync::Arc;

use super::{
    page::{PAGE, Page, Slot},
    space::Space,
};
use crate::files::File;

/// Bytes of a write at most.
const RUN: usize = 1 << 20;
/// Pages that a file is made longer by at least.
const GROWTH: u32 = 64;

/// Pages of one commit.
pub(super) struct Sink<'a, F, T> {
    file: &'a F,
    space: &'a mut Space<T>,
    /// Pages that the file has room for.
    capacity: &'a mut u32,
    /// Kept apart for readers that have no map.
    copies: Option<Vec<(u32, Arc<Page>)>>,
    run: Vec<u8>,
    /// The page that `run` begins at.
    start: u32,
    /// All pages taken, in the order of taking.
    pub(super) taken: Vec<u32>,
}

impl<'a, F: File, T> Sink<'a, F, T> {
    pub(super) fn new(file: &'a F, space: &'a mut Space<T>, capacity: &'a mut u32, copies: bool) -> Self {
        Self {
            file,
            space,
            capacity,
            copies: copies.then(Vec::new),
            run: Vec::new(),
            start: 0,
            taken: Vec::new(),
        }
    }

    /// Gives the page a place, and writes it before long.
    pub(super) async fn put(&mut self, page: &Page) -> std::io::Result<Slot> {
        let at = self.space.take();
        self.taken.push(at);
        if let Some(copies) = &mut self.copies {
            copies.push((at, Arc::new(*page)));
        }
        let follows = self.start as usize + self.run.len() / PAGE == at as usize;
        if !follows || self.run.len() >= RUN {
            self.flush().await?;
        }
        if self.run.is_empty() {
            self.start = at;
        }
        self.run.extend_from_slice(page);
        Ok(Slot::of(at, page))
    }

    /// Pages that the file has room for.
    pub(super) fn capacity(&self) -> u32 {
        *self.capacity
    }

    /// Writes what waits.
    async fn flush(&mut self) -> std::io::Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        let end = self.start + (self.run.len() / PAGE) as u32;
        if end > *self.capacity {
            let room = u32::try_from(room(end.into())).unwrap_or(u32::MAX);
            self.file.reserve(u64::from(room) * PAGE as u64).await?;
            *self.capacity = room;
        }
        let run = std::mem::take(&mut self.run);
        let offset = u64::from(self.start) * PAGE as u64;
        let (outcome, mut run) = self.file.write_at(run, offset).await;
        run.clear();
        self.run = run;
        outcome
    }

    /// Writes what waits and makes all of it last; returns the copies.
    pub(super) async fn finish(&mut self) -> std::io::Result<Vec<(u32, Arc<Page>)>> {
        self.flush().await?;
        self.file.sync().await?;
        Ok(self.copies.take().unwrap_or_default())
    }
}

/// Pages that a file which needs so many is given: an eighth more, since readers map it anew whenever it has grown.
pub(super) fn room(pages: u64) -> u64 {
    pages + (pages / 8).max(GROWTH.into())
}
