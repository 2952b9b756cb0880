//! Deadlines of connections: one each, moved often, expiring seldom.
//!
//! A deadline that moves later costs one store in the connection; the heap entry stays where it is and is pushed again
//! when it comes up too early. Nothing here reads a clock.
//!
//! Invariant: for each connection with a deadline the heap holds one armed entry that is not later than it. An entry that
//! an earlier one replaced is dropped when it comes up, so that the heap stays within a few entries a connection.

use std::{cmp::Reverse, collections::BinaryHeap};

use zerohop_ring::{ConnId, Nanos};

/// A connection's deadline, kept in the connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadline {
    /// When the connection must be looked at; `None`: never.
    at: Option<Nanos>,
    /// The heap entry of this connection that counts.
    armed: Option<Nanos>,
}

/// The heap of one worker.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u32, u32)>>,
}

/// What to do with an entry that came up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The deadline has passed.
    Expired,
    /// It was moved or taken away; the entry is dealt with.
    Moved,
}

impl Timers {
    /// Sets, moves or (with `None`) takes away the deadline of a connection.
    pub(crate) fn set(&mut self, conn: ConnId, deadline: &mut Deadline, at: Option<Nanos>) {
        deadline.at = at;
        if let Some(at) = at
            && deadline.armed.is_none_or(|armed| at < armed)
        {
            deadline.armed = Some(at);
            self.heap.push(Reverse((at, conn.slot, conn.generation)));
        }
    }

    /// When to look again; `None`: no deadline at all.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next connection whose entry has come up, and the entry's time.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<(ConnId, Nanos)> {
        let Reverse((at, ..)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap
            .pop()
            .map(|Reverse((at, slot, generation))| (ConnId { slot, generation }, at))
    }

    /// Decides about an entry that [`Timers::pop`] gave.
    pub(crate) fn due(&mut self, conn: ConnId, entry: Nanos, deadline: &mut Deadline, now: Nanos) -> Due {
        if deadline.armed != Some(entry) {
            return Due::Moved;
        }
        deadline.armed = None;
        match deadline.at {
            Some(at) if at <= now => {
                deadline.at = None;
                Due::Expired
            }
            at => {
                self.set(conn, deadline, at);
                Due::Moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONN: ConnId = ConnId { slot: 3, generation: 1 };

    #[test]
    fn a_deadline_that_moves_later_keeps_one_entry() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        for at in 10..1_000 {
            timers.set(CONN, &mut deadline, Some(at));
        }
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(timers.pop(10), Some((CONN, 10)));
        assert_eq!(timers.due(CONN, 10, &mut deadline, 10), Due::Moved);
        assert_eq!(timers.next(), Some(999));
        assert_eq!(timers.pop(998), None);
        assert_eq!(timers.pop(999), Some((CONN, 999)));
        assert_eq!(timers.due(CONN, 999, &mut deadline, 999), Due::Expired);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_deadline_that_moves_earlier_or_goes_away_is_seen() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        timers.set(CONN, &mut deadline, Some(100));
        timers.set(CONN, &mut deadline, Some(50));
        assert_eq!(timers.pop(50), Some((CONN, 50)));
        assert_eq!(timers.due(CONN, 50, &mut deadline, 50), Due::Expired);
        timers.set(CONN, &mut deadline, None);
        assert_eq!(timers.pop(100), Some((CONN, 100)));
        assert_eq!(timers.due(CONN, 100, &mut deadline, 100), Due::Moved);
        assert_eq!(timers.next(), None);
    }

    /// Once each replaced entry was pushed again when it came up, so a busy keep-alive connection gained an entry every
    /// ten seconds for as long as it lived.
    #[test]
    fn a_busy_connection_does_not_gather_entries() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        for now in 0..10_000 {
            timers.set(CONN, &mut deadline, Some(now + 10));
            timers.set(CONN, &mut deadline, Some(now + 30));
            while let Some((conn, entry)) = timers.pop(now) {
                assert_eq!(timers.due(conn, entry, &mut deadline, now), Due::Moved);
            }
            assert!(timers.heap.len() <= 4, "{} entries at {now}", timers.heap.len());
        }
    }
}
