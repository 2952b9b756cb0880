//! What a submission carries through the kernel and a completion brings back: operation, generation, slot.
//!
//! No I/O here. Invariant: a token whose generation is not the slot's present one names a connection of the past.

use crate::ConnId;

/// The kinds of submissions. Each gets exactly one final completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    /// Multishot accept; the slot is the listener.
    Accept = 1,
    /// Multishot receive.
    Recv = 2,
    /// A send, whose bytes the ring owns meanwhile.
    Send = 3,
    /// A cancellation; its own answer carries no news.
    Cancel = 4,
    /// The poll on the wake-up descriptor.
    Wake = 5,
    /// A zero-copy send; the slot is its entry. Its completions come to the worker's side under the connection's token,
    /// the answer as `Send` and the notification as `ZeroCopy`.
    ZeroCopy = 6,
    /// A read of a file; the slot is its entry.
    Read = 7,
    /// The cancellation of a read that nobody waits for; its answer carries no news.
    GiveUp = 8,
}

/// `user_data`: operation in bits 56 to 63, the low 24 bits of the generation in 32 to 55, the slot in 0 to 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

const GENERATION_MASK: u32 = 0x00ff_ffff;

impl Token {
    pub(crate) fn new(op: Op, generation: u32, slot: u32) -> Self {
        Self((op as u64) << 56 | u64::from(generation & GENERATION_MASK) << 32 | u64::from(slot))
    }

    pub(crate) fn of(op: Op, conn: ConnId) -> Self {
        Self::new(op, conn.generation, conn.slot)
    }

    /// `None` for a number that no submission of ours carried.
    pub(crate) fn op(self) -> Option<Op> {
        match (self.0 >> 56) as u8 {
            1 => Some(Op::Accept),
            2 => Some(Op::Recv),
            3 => Some(Op::Send),
            4 => Some(Op::Cancel),
            5 => Some(Op::Wake),
            6 => Some(Op::ZeroCopy),
            7 => Some(Op::Read),
            8 => Some(Op::GiveUp),
            _ => None,
        }
    }

    /// The same slot and generation under another operation.
    pub(crate) fn with(self, op: Op) -> Self {
        Self(self.0 & 0x00ff_ffff_ffff_ffff | (op as u64) << 56)
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Whether it was made for this generation (compared in the 24 bits that a token keeps).
    pub(crate) fn is_of(self, generation: u32) -> bool {
        (self.0 >> 32) as u32 & GENERATION_MASK == generation & GENERATION_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        let ops = [
            Op::Accept,
            Op::Recv,
            Op::Send,
            Op::Cancel,
            Op::Wake,
            Op::ZeroCopy,
            Op::Read,
        ];
        for op in ops.into_iter().chain([Op::GiveUp]) {
            for (generation, slot) in [(0, 0), (1, u32::MAX), (GENERATION_MASK, 7), (u32::MAX, 1 << 20)] {
                let token = Token::of(op, ConnId { slot, generation });
                assert_eq!(token.op(), Some(op));
                assert_eq!(token.slot(), slot);
                assert!(token.is_of(generation));
                assert!(!token.is_of(generation.wrapping_add(1)));
            }
        }
        assert_eq!(Token(u64::MAX).op(), None);
    }
}
