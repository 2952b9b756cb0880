//! The maps of `guard`, which sees packets before the network stack does.
//!
//! Invariant: an address is 16 bytes in the network's order, IPv4 as `::ffff:a.b.c.d`.

use crate::laid_out;

/// Name of the program in its object.
pub const PROGRAM: &str = "guard";
/// Hash of [`Door`] to 1: where the gateway listens.
pub const DOORS: &str = "DOORS";
/// Blocked prefixes of IPv4: a trie of 4 bytes.
pub const BLOCK4: &str = "BLOCK4";
/// Blocked prefixes of IPv6: a trie of 16 bytes.
pub const BLOCK6: &str = "BLOCK6";
/// Hash of a source to the time, in nanoseconds, at which its SYNs so far are paid for; the least used go first.
pub const SOURCES: &str = "SOURCES";
/// Array of one [`Settings`].
pub const SETTINGS: &str = "SETTINGS";
/// Array of a count for each CPU, by [`Verdict`].
pub const VERDICTS: &str = "VERDICTS";
/// Ring of [`Event`]: some of the packets that were dropped.
pub const EVENTS: &str = "EVENTS";
/// Array of a time for each CPU: when it last told an event.
pub const TOLD: &str = "TOLD";

/// Most addresses.
pub const MAX_DOORS: u32 = 128;
/// Most prefixes of each family.
pub const MAX_PREFIXES: u32 = 1 << 17;
/// Sources whose SYNs are metered at a time.
pub const MAX_SOURCES: u32 = 1 << 16;
/// Bytes of the ring of events.
pub const EVENTS_BYTES: u32 = 1 << 16;
/// A CPU tells of a dropped packet at most once in this time, in nanoseconds.
pub const EVENT_INTERVAL: u64 = 20_000_000;

/// Headers of IPv6 that are followed to TCP.
pub const MAX_EXTENSIONS: usize = 6;
/// VLAN tags that are followed to IP.
pub const MAX_TAGS: usize = 3;

/// Where the gateway listens; the address is zero where it listens on all of the family.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// In the network's order. All of IPv4 is `::ffff:0.0.0.0`.
    pub address: [u8; 16],
    /// In the machine's order.
    pub port: u32,
}
laid_out!(Door, size 20, align 4, fields [u8; 16], u32);

/// What to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Nanoseconds that a SYN costs its source; 0: SYNs are not metered.
    pub syn_cost: u64,
    /// Nanoseconds that a source may be behind.
    pub syn_credit: u64,
    /// Blocked prefixes of IPv4.
    pub prefixes4: u32,
    /// Blocked prefixes of IPv6.
    pub prefixes6: u32,
}
laid_out!(Settings, size 24, align 8, fields u64, u64, u32, u32);

/// A packet that was dropped.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who sent it.
    pub source: [u8; 16],
    /// The port of the gateway.
    pub port: u32,
    /// Why: a [`Verdict`].
    pub verdict: u32,
}
laid_out!(Event, size 24, align 4, fields [u8; 16], u32, u32);

/// What became of a packet, and why.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passed: not TCP for the gateway.
    Other = 0,
    /// Passed: for the gateway.
    Passed = 1,
    /// Dropped: for the gateway, from a blocked prefix.
    Blocked = 2,
    /// Dropped: a SYN for the gateway above its source's rate.
    Limited = 3,
    /// Passed: a later fragment, which has no port.
    Fragment = 4,
    /// Passed: the headers end early, or are none that lead to TCP.
    Unreadable = 5,
}

impl Verdict {
    /// Every verdict, with its name.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Other, "other"),
        (Self::Passed, "passed"),
        (Self::Blocked, "blocked"),
        (Self::Limited, "limited"),
        (Self::Fragment, "fragment"),
        (Self::Unreadable, "unreadable"),
    ];

    /// Whether the packet goes on to the network stack.
    #[inline(always)]
    #[must_use]
    pub const fn passes(self) -> bool {
        !matches!(self, Self::Blocked | Self::Limited)
    }
}

/// Meters a SYN: `paid` is the time at which its source's SYNs so far are paid for. The new such time if it may pass.
///
/// A source that was silent for long starts from now; one that sends faster than it pays falls behind, and beyond the
/// credit it is dropped, at no cost to it: it passes again as soon as time has caught up.
#[inline(always)]
#[must_use]
pub const fn meter(paid: u64, now: u64, cost: u64, credit: u64) -> Option<u64> {
    let behind = if paid > now { paid } else { now };
    let then = behind.wrapping_add(cost);
    if then > now.wrapping_add(credit) {
        None
    } else {
        Some(then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_passes_its_rate_and_a_burst() {
        let (cost, credit) = (100, 1_000);
        let mut paid = 0;
        let mut passed = |now| match meter(paid, now, cost, credit) {
            Some(then) => {
                paid = then;
                true
            }
            None => false,
        };
        let burst = (0..50).filter(|_| passed(10_000)).count();
        assert_eq!(burst, 10);
        assert!(!passed(10_099));
        assert!(passed(10_100));
        let later = (0..1_000).filter(|tick| passed(10_100 + tick * 10)).count();
        assert_eq!(later, 99, "one for each 100 of 10,000, less the one before");
        let rested = (0..50).filter(|_| passed(1_000_000)).count();
        assert_eq!(rested, 10, "rest earns no more than the burst");
    }

    #[test]
    fn verdicts_are_numbered_in_order() {
        for (at, (verdict, _)) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, at);
        }
    }
}
