//! Finds workers that hang: their loop does not turn although they were woken.
//!
//! A sleeping worker is woken at each look, so that a standing loop means a hanging one. Invariant: a worker that turns is
//! alive at the next look.

/// Looks without a turn after which a worker counts as hanging.
const MOST_MISSED: u32 = 3;

/// What changed at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// This worker hangs: it gets no new connections.
    Hangs(usize),
    /// This worker turns again.
    Turns(usize),
}

/// What is known of one worker's loop.
#[derive(Debug, Clone, Copy, Default)]
struct Heart {
    beats: u64,
    missed: u32,
}

/// What is known of all workers.
#[derive(Debug)]
pub(crate) struct Watch(Vec<Heart>);

impl Watch {
    pub(crate) fn new(workers: usize) -> Self {
        Self(vec![Heart::default(); workers])
    }

    /// Looks once; `beats` says how often a worker's loop has turned. What changed.
    pub(crate) fn look(&mut self, beats: impl Fn(usize) -> u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for (worker, heart) in self.0.iter_mut().enumerate() {
            let now = beats(worker);
            let hung = heart.missed >= MOST_MISSED;
            heart.missed = if now == heart.beats { heart.missed + 1 } else { 0 };
            heart.beats = now;
            match heart.missed {
                MOST_MISSED => changes.push(Change::Hangs(worker)),
                0 if hung => changes.push(Change::Turns(worker)),
                _ => {}
            }
            // No need to count for ever.
            heart.missed = heart.missed.min(MOST_MISSED + 1);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_hangs_after_three_looks_without_a_turn() {
        let mut watch = Watch::new(2);
        let mut changes = Vec::new();
        for beats in [[1, 1], [2, 1], [3, 1], [4, 1], [5, 1], [6, 1], [7, 1], [8, 2], [8, 3]] {
            changes.push(watch.look(|worker| beats[worker]));
        }
        let expected = [
            vec![],
            vec![],
            vec![],
            vec![Change::Hangs(1)],
            vec![],
            vec![],
            vec![],
            vec![Change::Turns(1)],
            vec![],
        ];
        assert_eq!(changes, expected);
    }
}
