//! How large a model's tensors are, and how much of it an engine takes at once.
//!
//! Plain numbers, checked where they come in. Invariant: what they multiply to is computed without overflow.

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16: half the memory, and what attention on CUDA takes.
    F16,
}

impl Number {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// The sizes of a decoder's tensors, as its graph states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dimensions {
    /// Attention layers, each with a key and a value buffer.
    pub(crate) layers: usize,
    /// Key/value heads of a layer.
    pub(crate) kv_heads: usize,
    /// Values of a head.
    pub(crate) head_dim: usize,
    /// What keys and values are stored as.
    pub(crate) kv: Number,
    /// Width of a row of logits.
    pub(crate) vocabulary: usize,
}

impl Dimensions {
    /// Bytes of keys and values that one token occupies over all layers; `None` beyond the address space.
    pub(crate) fn token_bytes(&self) -> Option<usize> {
        [2, self.kv_heads, self.head_dim, self.kv.bytes()]
            .into_iter()
            .try_fold(self.layers, usize::checked_mul)
    }
}

/// How much of it is wanted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Sequences that have a place.
    pub(crate) slots: usize,
    /// Tokens of a place.
    pub(crate) context: usize,
    /// Longest piece of a prompt in one run.
    pub(crate) chunk: usize,
}
