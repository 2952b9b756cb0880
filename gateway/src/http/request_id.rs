//! Ids of requests and answers, from a seeded generator.
//!
//! They name things in logs and replies; they keep no secret. Invariant: one [`IdSource`] gives no id twice within
//! 2^64 calls, and the same seed gives the same ids.

use std::{fmt, ops::Deref};

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// 24 digits to base 62 for 128 bits, 12 for each half; different bits give different digits.
///
/// Each half is read as a binary fraction and its digits are taken from the front, so that the first ones are evenly
/// spread. Twelve digits part 62^12 > 2^64 fractions.
#[must_use]
pub fn base62(high: u64, low: u64) -> [u8; 24] {
    let mut text = [0; 24];
    for (half, mut fraction) in text.chunks_exact_mut(12).zip([high, low]) {
        for digit in half {
            let product = u128::from(fraction) * 62;
            *digit = DIGITS[(product >> 64) as usize];
            fraction = product as u64;
        }
    }
    text
}

/// The id of a request: `req_` and 24 digits to base 62.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId([u8; RequestId::LEN]);

impl RequestId {
    /// Its length in bytes.
    pub const LEN: usize = 28;

    /// The id of these bits.
    #[must_use]
    pub fn from_bits(high: u64, low: u64) -> Self {
        let mut text = *b"req_000000000000000000000000";
        text[4..].copy_from_slice(&base62(high, low));
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The bytes are ASCII by construction, so the empty text is never given.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text as ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl Deref for RequestId {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// A stream of ids for one worker. Two sources with different random seeds do not meet in practice (128 bits).
#[derive(Debug, Clone)]
pub struct IdSource {
    seed: [u64; 2],
    count: u64,
}

impl IdSource {
    /// A source with this seed.
    #[must_use]
    pub fn new(seed: [u64; 2]) -> Self {
        Self { seed, count: 0 }
    }

    /// The next 128 bits. The first half is a bijection of the call's number, so it does not repeat within 2^64 calls.
    pub fn bits(&mut self) -> (u64, u64) {
        self.count = self.count.wrapping_add(1);
        let step = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let high = mix(self.seed[0].wrapping_add(step));
        (high, mix(self.seed[1].wrapping_add(step) ^ high.rotate_left(32)))
    }

    /// The next id.
    pub fn request_id(&mut self) -> RequestId {
        let (high, low) = self.bits();
        RequestId::from_bits(high, low)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014; constants
/// of Stafford's variant 13): a bijection in which every input bit moves every output bit.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn known_bits_give_known_text() {
        for (high, low, expected) in [
            (0, 0, "req_000000000000000000000000"),
            (1 << 63, 1, "req_V0000000000000000000002o"),
            (u64::MAX, u64::MAX, "req_zzzzzzzzzzxBzzzzzzzzzzxB"),
        ] {
            assert_eq!(RequestId::from_bits(high, low).as_str(), expected);
        }
    }

    #[test]
    fn neighbouring_bits_give_different_texts() {
        let edges = [
            0,
            1,
            2,
            3,
            u64::MAX - 1,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            (1 << 63) + 1,
        ];
        let texts: HashSet<_> = edges
            .iter()
            .flat_map(|&a| edges.iter().map(move |&b| base62(a, b)))
            .collect();
        assert_eq!(texts.len(), edges.len() * edges.len());
    }

    #[test]
    fn a_seed_replays_and_no_id_repeats() {
        let draw = |seed| {
            let mut source = IdSource::new(seed);
            (0..50_000).map(|_| source.request_id()).collect::<Vec<_>>()
        };
        let ids = draw([1, 2]);
        assert_eq!(ids, draw([1, 2]));
        let distinct: HashSet<_> = ids.iter().chain(&draw([1, 3])).chain(&draw([2, 2])).copied().collect();
        assert_eq!(distinct.len(), 150_000);
    }

    #[test]
    fn first_digits_are_evenly_spread() {
        let mut source = IdSource::new([7, 7]);
        let mut seen = [0_u32; 256];
        for _ in 0..62_000 {
            seen[usize::from(source.request_id().as_bytes()[4])] += 1;
        }
        for &digit in DIGITS {
            let count = seen[usize::from(digit)];
            assert!((800..1_200).contains(&count), "{}: {count}", char::from(digit));
        }
    }
}
