//! The maps of `steer`, which chooses the worker of a new connection.
//!
//! Invariant: each number has one writer (the worker, the control thread, or the program), so that none of them waits for
//! another.

use crate::laid_out;

/// Name of the program in its object.
pub const PROGRAM: &str = "steer";
/// Hash of [`Group`] to the first slot of that group in [`SOCKETS`].
pub const GROUPS: &str = "GROUPS";
/// Sockets: those of a group lie in a row, by worker.
pub const SOCKETS: &str = "SOCKETS";
/// Array of [`Worker`], mapped by the workers.
pub const WORKERS: &str = "WORKERS";
/// Array of [`Chosen`], mapped by the workers.
pub const CHOSEN: &str = "CHOSEN";
/// Array of `u32` by CPU: the worker that runs on it plus 1, or 0.
pub const HOMES: &str = "HOMES";
/// Array of one [`Settings`].
pub const SETTINGS: &str = "SETTINGS";
/// Array of a count for each CPU, by [`Count`].
pub const COUNTS: &str = "COUNTS";

/// Most workers.
pub const MAX_WORKERS: u32 = 256;
/// Most addresses.
pub const MAX_GROUPS: u32 = 128;
/// Most CPUs: the kernel's own limit.
pub const MAX_CPUS: u32 = 8192;

/// Open connections that weigh as much as a request in progress.
pub const REQUEST_WEIGHT: u64 = 8;

/// An address with its own group of sockets. All words as the kernel shows them of a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// `AF_INET` or `AF_INET6`.
    pub family: u32,
    /// In the machine's order.
    pub port: u32,
    /// In the network's order; IPv4 has the first word.
    pub address: [u32; 4],
}
laid_out!(Group, size 24, align 4, fields u32, u32, [u32; 4]);

/// What a worker says of itself. One cache line.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// [`score`] of what it has accepted. Written by the worker.
    pub score: u64,
    /// Of the choices in [`Chosen::count`], those that count no more: they are in `score`, or came to nothing. Written by
    /// the worker.
    pub seen: u64,
    /// Turns of its loop. Written by the worker.
    pub beats: u64,
    /// 1: takes new connections; 0: drains. Written by the worker.
    pub open: u64,
    /// 1: its heart beats; 0: it hangs. Written by the control thread.
    pub alive: u64,
    /// Fills the line.
    pub unused: [u64; 3],
}
laid_out!(Worker, size 64, align 8, fields u64, u64, u64, u64, u64, [u64; 3]);

/// How often a worker was chosen. One cache line, since every CPU adds to it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Choices since the program was loaded. Written by the program.
    pub count: u64,
    /// Fills the line.
    pub unused: [u64; 7],
}
laid_out!(Chosen, size 64, align 8, fields u64, [u64; 7]);

/// How to choose. Written by the control thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many workers there are; 0: choose none.
    pub workers: u32,
    /// A [`Policy`].
    pub policy: u32,
    /// By how much the CPU's own worker may exceed the least, besides an eighth of the least.
    pub margin: u64,
}
laid_out!(Settings, size 16, align 8, fields u32, u32, u64);

/// Who is chosen.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The worker of the CPU on which the packet arrived, unless it exceeds the least by more than the margin.
    Local = 0,
    /// The worker with the least to do.
    Least = 1,
    /// The worker of the CPU, whatever it has to do.
    Cpu = 2,
}

/// What the program counts.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The CPU's own worker was chosen.
    Home = 0,
    /// The worker with the least was chosen.
    Least = 1,
    /// A connection of a listener that closed found another worker (counted besides).
    Migrated = 2,
    /// Left to the kernel's hash: the address is not known.
    NoGroup = 3,
    /// Left to the kernel's hash: no worker takes connections.
    NoWorker = 4,
    /// Left to the kernel's hash: the chosen worker has no socket there.
    NoSocket = 5,
}

impl Count {
    /// Every count, with its name.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Home, "home"),
        (Self::Least, "least"),
        (Self::Migrated, "migrated"),
        (Self::NoGroup, "no_group"),
        (Self::NoWorker, "no_worker"),
        (Self::NoSocket, "no_socket"),
    ];
}

/// What a worker has to do, in open connections.
#[inline(always)]
#[must_use]
pub const fn score(connections: u64, requests: u64) -> u64 {
    connections.saturating_add(requests.saturating_mul(REQUEST_WEIGHT))
}

/// What a worker has to do, with the choices that it has not seen yet. Without a branch, as the next ones: the kernel's
/// verifier follows each way through a loop, and would find too many.
#[inline(always)]
#[must_use]
pub const fn with_unseen(score: u64, chosen: u64, seen: u64) -> u64 {
    let unseen = chosen.wrapping_sub(seen);
    // The worker may have seen more than this CPU has read: then there is nothing unseen.
    score.wrapping_add(unseen & !sign(unseen))
}

/// Scores stop here.
const MOST: u64 = (1 << 53) - 1;
/// The rank of a worker that takes nothing: above all others.
pub const CLOSED: u64 = 1 << 62;

/// A worker's place among others: the lowest is to be chosen. Among equals the hash decides, so that no worker is preferred.
/// `open` is 1 or 0.
#[inline(always)]
#[must_use]
pub const fn rank(score: u64, worker: u32, hash: u32, open: u64) -> u64 {
    let turned = ((worker ^ hash) & (MAX_WORKERS - 1)) as u64;
    let rank = least(score, MOST) * MAX_WORKERS as u64 + turned;
    let closed = open.wrapping_sub(1);
    (rank & !closed) | (CLOSED & closed)
}

/// The score and the worker of a rank.
#[inline(always)]
#[must_use]
pub const fn ranked(rank: u64, hash: u32) -> (u64, u32) {
    let worker = (rank as u32 ^ hash) & (MAX_WORKERS - 1);
    (rank / MAX_WORKERS as u64, worker)
}

/// The lower of two numbers that are less than 2^63 apart.
#[inline(always)]
#[must_use]
pub const fn least(a: u64, b: u64) -> u64 {
    b ^ ((a ^ b) & sign(a.wrapping_sub(b)))
}

/// All ones for a number that is negative, read with a sign.
#[inline(always)]
const fn sign(number: u64) -> u64 {
    ((number as i64) >> 63) as u64
}

/// Whether a worker that has this much to do is overloaded, as against the least.
#[inline(always)]
#[must_use]
pub const fn is_overloaded(score: u64, least: u64, margin: u64) -> bool {
    score > least.wrapping_add(margin).wrapping_add(least >> 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_count_until_they_are_seen() {
        for (score, chosen, seen, expected) in [
            (0, 0, 0, 0),
            (5, 10, 10, 5),
            (5, 13, 10, 8),
            (5, 10, 11, 5),
            (5, 1, u64::MAX, 7),
            (5, u64::MAX, 1, 5),
        ] {
            assert_eq!(with_unseen(score, chosen, seen), expected, "{score} {chosen} {seen}");
        }
    }

    #[test]
    fn the_least_is_ranked_first_and_found_again() {
        for (scores, hash, expected) in [
            (&[5, 3, 4][..], 0, 1),
            (&[5, 3, 4], 0xdead_beef, 1),
            (&[2, 2], 0, 0),
            (&[2, 2], 1, 1),
            (&[2, 2], 0xffff_fff0, 0),
            (&[u64::MAX / 2, MOST, 7], 3, 2),
        ] {
            let ranks = scores
                .iter()
                .zip(0..)
                .map(|(score, worker)| rank(*score, worker, hash, 1));
            let best = ranks.fold(CLOSED, least);
            let (score, worker) = ranked(best, hash);
            assert_eq!(
                (score, worker),
                (scores[expected as usize], expected),
                "{scores:?} {hash}"
            );
        }
        assert_eq!(rank(0, 3, 9, 0), CLOSED);
        assert!(rank(MOST, MAX_WORKERS - 1, 0, 1) < CLOSED);
        for (a, b) in [(0, 1), (1, 0), (4, 4), (0, CLOSED), (CLOSED, 9)] {
            assert_eq!(least(a, b), a.min(b));
        }
    }

    #[test]
    fn overload_is_a_margin_and_a_share_beyond_the_least() {
        for (score, least, margin, expected) in [
            (0, 0, 16, false),
            (16, 0, 16, false),
            (17, 0, 16, true),
            (816, 800, 16, false),
            (916, 800, 16, false),
            (917, 800, 16, true),
        ] {
            assert_eq!(
                is_overloaded(score, least, margin),
                expected,
                "{score} {least} {margin}"
            );
        }
        assert_eq!(score(3, 2), 19);
        assert_eq!(score(u64::MAX, 2), u64::MAX);
    }

    #[test]
    fn counts_are_numbered_in_order() {
        for (at, (count, _)) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at);
        }
    }
}
