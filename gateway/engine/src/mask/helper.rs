//! The thread that computes masks while the model runs.
//!
//! Guides go to it before a run and come back after it; there is no lock, and no more than one batch of them is away. It
//! starts when it is first needed. Invariant: after [`Helper::finish`] every guide is with its row, and its mask is
//! computed.

use std::{
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::Guide;

/// Stack of the thread: grammars nest.
const STACK: usize = 16 << 20;

/// Guides, each with the number of its row.
type Guides = Vec<(usize, Box<Guide>)>;

/// Times of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Spent on masks, on whatever thread.
    pub(crate) masks: Duration,
    /// By which they were later than the model.
    pub(crate) wait: Duration,
}

/// The batch's end of it.
#[derive(Default)]
pub(crate) struct Helper {
    thread: Option<Thread>,
    /// Kept between steps for its memory.
    guides: Guides,
    is_away: bool,
}

struct Thread {
    work: Option<Sender<Guides>>,
    done: Receiver<(Guides, Duration)>,
    handle: Option<JoinHandle<()>>,
}

impl Helper {
    /// Takes the guides of the rows that want a mask and begins. A single row's is computed by [`Helper::finish`]: the
    /// way to another thread and back costs more.
    pub(crate) fn begin<'a>(&mut self, rows: impl ExactSizeIterator<Item = &'a mut Option<Box<Guide>>>) {
        self.take_back();
        if rows.len() < 2 {
            return;
        }
        let wanting = rows
            .enumerate()
            .filter(|(_, guide)| guide.as_ref().is_some_and(|guide| guide.wants_mask()));
        self.guides
            .extend(wanting.filter_map(|(row, guide)| Some((row, guide.take()?))));
        if self.guides.is_empty() {
            return;
        }
        if self.thread.is_none() {
            // Without a thread the masks are computed after the run: the same masks, later.
            self.thread = Thread::start().ok();
        }
        if let Some(thread) = &self.thread
            && let Some(work) = &thread.work
        {
            self.is_away = work.send(std::mem::take(&mut self.guides)).is_ok();
        }
    }

    /// Gives every guide back to its row, with its mask.
    pub(crate) fn finish<'a>(&mut self, rows: impl Iterator<Item = &'a mut Option<Box<Guide>>>) -> Times {
        let begun = Instant::now();
        let mut times = Times::default();
        times.masks += self.take_back();
        let mut back = self.guides.drain(..).peekable();
        for (row, place) in rows.enumerate() {
            if let Some((_, guide)) = back.next_if(|(index, _)| *index == row) {
                *place = Some(guide);
            }
            if let Some(guide) = place
                && guide.wants_mask()
            {
                let begun = Instant::now();
                guide.compute();
                times.masks += begun.elapsed();
            }
        }
        times.wait = begun.elapsed();
        times
    }

    /// Waits for what is away. Returns how long its masks took.
    fn take_back(&mut self) -> Duration {
        if !std::mem::take(&mut self.is_away) {
            return Duration::ZERO;
        }
        let Some(Ok((guides, time))) = self.thread.as_ref().map(|thread| thread.done.recv()) else {
            return Duration::ZERO;
        };
        self.guides = guides;
        time
    }
}

impl Thread {
    fn start() -> std::io::Result<Self> {
        let (work, orders) = bounded::<Guides>(1);
        let (results, done) = bounded(1);
        let run = move || {
            for mut guides in orders {
                let begun = Instant::now();
                for (_, guide) in &mut guides {
                    guide.compute();
                }
                if results.send((guides, begun.elapsed())).is_err() {
                    return;
                }
            }
        };
        let handle = Builder::new().name("zh-mask".into()).stack_size(STACK).spawn(run)?;
        Ok(Self {
            work: Some(work),
            done,
            handle: Some(handle),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.work = None;
        // What it may still hold has no row any more.
        while self.done.recv().is_ok() {}
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}
