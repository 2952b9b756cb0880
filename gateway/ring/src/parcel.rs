//! What a send carries: up to three parts, the middle one possibly in an [`Arena`](crate::Arena).
//!
//! It copies nothing but a short body. Invariant: the parts go out in order, as if they were one buffer.

use crate::Piece;

/// A body shorter than this is copied behind its head and sent as one buffer; a longer one is sent from where it lies.
/// Below it the copy costs less than the longer way through the kernel: `cargo xtask bench zc` measures both.
pub const VECTOR_FROM: usize = 16 << 10;

/// The parts of a reply. A plain buffer becomes one by `into()`.
#[derive(Debug, Default)]
pub struct Parcel {
    /// The beginning; comes back with `Sent` for reuse.
    pub head: Vec<u8>,
    /// The large part, in an arena; shared, so one stored reply serves many requests.
    pub body: Option<Piece>,
    /// What follows the body.
    pub foot: Vec<u8>,
}

impl From<Vec<u8>> for Parcel {
    fn from(head: Vec<u8>) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }
}

impl Parcel {
    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts in order; absent ones are empty.
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        [&self.head, self.body.as_deref().unwrap_or_default(), &self.foot]
    }

    /// Whether it is one buffer.
    pub(crate) fn is_single(&self) -> bool {
        self.body.is_none() && self.foot.is_empty()
    }

    /// Copies a body that is too short to be worth its own way behind the head.
    pub(crate) fn gathered(self) -> Self {
        if self.is_single() || self.body.as_ref().is_some_and(|body| body.len() >= VECTOR_FROM) {
            return self;
        }
        self.into_one().into()
    }

    /// All parts in the head's buffer.
    pub(crate) fn into_one(mut self) -> Vec<u8> {
        if let Some(body) = self.body {
            self.head.extend_from_slice(&body);
        }
        self.head.append(&mut self.foot);
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, ArenaOptions};

    #[test]
    fn short_bodies_are_gathered() {
        let arena = Arena::new(ArenaOptions {
            size: 1,
            alignment: 64,
            poison: false,
        })
        .unwrap();
        for (body, single) in [(0, true), (1, true), (VECTOR_FROM - 1, true), (VECTOR_FROM, false)] {
            let parcel = Parcel {
                head: b"head".to_vec(),
                body: arena.store(&[&vec![b'b'; body]]),
                foot: b"foot".to_vec(),
            };
            let (whole, len) = (parcel.parts().concat(), parcel.len());
            let gathered = parcel.gathered();
            assert_eq!((gathered.is_single(), gathered.len()), (single, len), "{body}");
            assert_eq!(gathered.parts().concat(), whole, "{body}");
        }
        assert!(Parcel::default().is_empty());
    }
}
