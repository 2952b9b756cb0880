//! Requests that are known by their bytes, each with what was made of it.
//!
//! It knows nothing of answers. Invariants: something is found only by all the bytes of its request and under equal
//! circumstances; what is kept never exceeds the bound, whatever requests come.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

/// So many places, each for the last request that fell on it.
const PLACES: usize = 4096;

/// What can be kept.
pub(super) trait Weigh {
    /// Bytes that it holds.
    fn bytes(&self) -> usize;
}

/// The table.
pub(super) struct Seen<C, T> {
    places: Vec<Option<Known<C, T>>>,
    /// Seeded for this process. Whoever finds requests that fall on one place makes them slower, not wrong.
    hasher: RandomState,
    bytes: usize,
    bound: usize,
    /// The place that is given up next when room is needed.
    hand: usize,
}

struct Known<C, T> {
    circumstances: C,
    request: Box<[u8]>,
    made: T,
}

impl<C: PartialEq, T: Weigh> Seen<C, T> {
    /// For so many bytes of requests and what is made of them.
    pub(super) fn new(bound: usize) -> Self {
        Self {
            places: (0..PLACES).map(|_| None).collect(),
            hasher: RandomState::default(),
            bytes: 0,
            bound,
            hand: 0,
        }
    }

    /// The place of this request, if it is known.
    pub(super) fn find(&self, circumstances: &C, request: &[u8]) -> Option<usize> {
        let place = self.place(request);
        let known = self.places[place].as_ref()?;
        (known.circumstances == *circumstances && *known.request == *request).then_some(place)
    }

    /// What was made of the request at this place.
    pub(super) fn at(&self, place: usize) -> Option<&T> {
        self.places[place].as_ref().map(|known| &known.made)
    }

    pub(super) fn forget(&mut self, place: usize) {
        if let Some(known) = self.places[place].take() {
            self.bytes -= known.bytes();
        }
    }

    pub(super) fn clear(&mut self) {
        (0..PLACES).for_each(|place| self.forget(place));
    }

    /// Knows a request, in the place of the one that fell there before; others give up theirs in turn until it has room.
    pub(super) fn insert(&mut self, circumstances: C, request: &[u8], made: T) {
        let place = self.place(request);
        let known = Known {
            circumstances,
            request: request.into(),
            made,
        };
        self.forget(place);
        if known.bytes() > self.bound {
            return;
        }
        while self.bytes + known.bytes() > self.bound {
            self.forget(self.hand);
            self.hand = (self.hand + 1) % PLACES;
        }
        self.bytes += known.bytes();
        self.places[place] = Some(known);
    }

    fn place(&self, request: &[u8]) -> usize {
        (self.hasher.hash_one(request) % PLACES as u64) as usize
    }
}

impl<C, T: Weigh> Known<C, T> {
    fn bytes(&self) -> usize {
        self.request.len() + self.made.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weigh for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    fn found(seen: &Seen<u8, usize>, circumstances: u8, request: &[u8]) -> Option<usize> {
        seen.find(&circumstances, request)
            .and_then(|place| seen.at(place).copied())
    }

    #[test]
    fn all_bytes_and_circumstances_count() {
        let mut seen = Seen::new(1000);
        seen.insert(1, b"request", 7);
        assert_eq!(found(&seen, 1, b"request"), Some(7));
        for (circumstances, request) in [
            (2, &b"request"[..]),
            (1, b"requesu"),
            (1, b"request "),
            (1, b"reques"),
            (1, b""),
        ] {
            assert_eq!(found(&seen, circumstances, request), None);
        }
        seen.insert(1, b"request", 8);
        assert_eq!((found(&seen, 1, b"request"), seen.bytes), (Some(8), 15));
        seen.clear();
        assert_eq!((found(&seen, 1, b"request"), seen.bytes), (None, 0));
    }

    /// Once a full table took in nothing new, and so served the requests of its first minutes for ever.
    #[test]
    fn the_bound_holds_and_new_requests_find_room() {
        let mut seen = Seen::new(10_000);
        for number in 0..20_000u64 {
            let request = number.to_le_bytes();
            seen.insert(0, &request, (number % 900) as usize);
            assert!(seen.bytes <= 10_000);
            assert_eq!(found(&seen, 0, &request), Some((number % 900) as usize));
        }
        let held = seen.places.iter().flatten().map(Known::bytes).sum::<usize>();
        assert_eq!(held, seen.bytes);
        seen.insert(0, b"too large", 10_000);
        assert_eq!(found(&seen, 0, b"too large"), None);
    }
}
