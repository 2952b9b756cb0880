//! What is said in a flight, in order: one writer appends, any number of cursors read, and none waits for another.
//!
//! It knows nothing of flights. Invariant: a cursor meets every entry behind its place exactly once, in the order of
//! their making, and an entry lives as long as the beginning of the log or a cursor before it does.

use std::sync::{Arc, OnceLock};

/// Entries that are allocated together.
const SLOTS: usize = 32;

/// Some entries, and where the next ones are.
#[derive(Debug)]
pub(super) struct Segment<T> {
    slots: [OnceLock<T>; SLOTS],
    next: OnceLock<Arc<Self>>,
}

impl<T> Segment<T> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: [const { OnceLock::new() }; SLOTS],
            next: OnceLock::new(),
        })
    }
}

impl<T> Drop for Segment<T> {
    /// One segment after the other: a long log that is let go at once is no deep recursion.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut segment) = next.and_then(Arc::into_inner) {
            next = segment.next.take();
        }
    }
}

/// The end at which entries are appended.
#[derive(Debug)]
pub(super) struct Writer<T> {
    segment: Arc<Segment<T>>,
    at: usize,
}

/// A place in the log.
#[derive(Debug)]
pub(super) struct Cursor<T> {
    segment: Arc<Segment<T>>,
    at: usize,
}

/// The beginning of a log, from which cursors start. It keeps all that was said.
#[derive(Debug)]
pub(super) struct Beginning<T>(Arc<Segment<T>>);

/// A log in which nothing was said.
pub(super) fn log<T>() -> (Writer<T>, Beginning<T>) {
    let segment = Segment::new();
    let beginning = Beginning(Arc::clone(&segment));
    (Writer { segment, at: 0 }, beginning)
}

impl<T> Clone for Beginning<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Beginning<T> {
    pub(super) fn cursor(&self) -> Cursor<T> {
        Cursor {
            segment: Arc::clone(&self.0),
            at: 0,
        }
    }
}

impl<T> Writer<T> {
    pub(super) fn push(&mut self, entry: T) {
        if self.at == SLOTS {
            let next = Segment::new();
            // There is one writer, and it comes here once a segment.
            let _first = self.segment.next.set(Arc::clone(&next));
            *self = Self { segment: next, at: 0 };
        }
        let _first = self.segment.slots[self.at].set(entry);
        self.at += 1;
    }
}

impl<T> Cursor<T> {
    /// The entry here, if it was said.
    pub(super) fn peek(&mut self) -> Option<&T> {
        if self.at == SLOTS {
            let next = Arc::clone(self.segment.next.get()?);
            *self = Self { segment: next, at: 0 };
        }
        self.segment.slots[self.at].get()
    }

    /// Goes behind the entry that was peeked at.
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cursor: &mut Cursor<usize>) -> Vec<usize> {
        let mut found = Vec::new();
        while let Some(entry) = cursor.peek() {
            found.push(*entry);
            cursor.advance();
        }
        found
    }

    #[test]
    fn every_cursor_meets_all_entries_in_order() {
        let (mut writer, beginning) = log();
        let mut early = beginning.cursor();
        assert!(read(&mut early).is_empty());
        for entry in 0..1000 {
            writer.push(entry);
            if entry % 7 == 0 {
                assert_eq!(read(&mut early).last(), Some(&entry));
            }
            if entry % 100 == 0 {
                assert_eq!(read(&mut beginning.cursor()), Vec::from_iter(0..=entry));
            }
        }
        assert_eq!(read(&mut early).len(), 5, "994 is the last multiple of seven");
        // Without a beginning what was read is let go, and what was not stays.
        let mut late = beginning.cursor();
        drop(beginning);
        assert_eq!(read(&mut late).len(), 1000);
        writer.push(1000);
        drop(writer);
        assert_eq!((read(&mut late), read(&mut early)), (vec![1000], vec![1000]));
    }

    #[test]
    fn a_long_log_is_let_go_without_recursion() {
        let (mut writer, beginning) = log();
        (0..3_000_000).for_each(|entry| writer.push(entry));
        drop(writer);
        drop(beginning);
    }

    #[test]
    fn entries_cross_threads() {
        let (mut writer, beginning) = log();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let mut cursor = beginning.cursor();
                scope.spawn(move || {
                    let mut next = 0;
                    while next < 20_000 {
                        match read(&mut cursor) {
                            some if some.is_empty() => std::thread::yield_now(),
                            some => {
                                assert_eq!(some, Vec::from_iter(next..next + some.len()));
                                next += some.len();
                            }
                        }
                    }
                });
            }
            (0..20_000).for_each(|entry| writer.push(entry));
        });
    }
}
