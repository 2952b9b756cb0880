//! What the parts of the cache speak of: keys, entries, places of values, and the columns of a record.
//!
//! Plain values, no I/O. Invariant: a [`Key`] is compared in full wherever it decides what is answered.

/// Seconds since 1970, as entries carry them; good until 2106.
pub type Seconds = u32;

/// Never expires.
pub const NEVER: Seconds = Seconds::MAX;

/// Keyed BLAKE3 over everything that could change the answer, tenant and model included. The identity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptHash(pub [u8; 32]);

impl PromptHash {
    /// The first eight bytes as a number: spread evenly, so it serves as a hash and chooses buckets.
    #[must_use]
    pub fn word(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| self.0[at]))
    }
}

/// BLAKE3 over the first three messages, 128 bits: locality, statistics and invalidation by how a conversation begins; never
/// identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context(pub [u8; 16]);

/// A model, in the order in which the cache met their names; stable for the life of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelNumber(pub u16);

/// What an entry is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Whose answer it is: each model has a tree of its own.
    pub model: ModelNumber,
    /// Orders the entries of a bucket.
    pub context: Context,
    /// Identity, and which bucket.
    pub prompt: PromptHash,
}

/// An entry's place in the arrays that readers write to (heat, pins, tombstones), the same from its put to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

/// A file of values, in the order of their making: `active-<n>.seg` while it is written to, `part-<n>.parquet` once sealed.
/// A number names one file for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartNumber(pub u32);

/// Where a value lies: one contiguous range of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub part: PartNumber,
    /// Bytes from its start, below 2^48.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// CRC-32C of the bytes: tells torn ones, proves nothing against an attacker.
    pub crc: u32,
}

/// An entry of the index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// What it is found by.
    pub key: Key,
    /// Its place in the arrays.
    pub id: EntryId,
    /// Where its value lies.
    pub place: Place,
    /// When its answer was made.
    pub created: Seconds,
    /// From when on it is stale; [`NEVER`] for never.
    pub expires: Seconds,
    /// Its heat when the index was last written, so that it survives a restart.
    pub heat: f32,
}

/// Why a generation ended, as the column says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FinishReason {
    /// The model ended its turn.
    Stop = 0,
    /// A stop text or token of the request.
    StopSequence = 1,
    /// Tools are to be called.
    Tools = 2,
    /// The limit of tokens.
    Length = 3,
}

/// Tokens of the request that made the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: u32,
    /// Of the answer.
    pub completion: u32,
}

/// An answer as it is put and as the columns of a part hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The model's name: numbers are local to one cache's files.
    pub model: String,
    /// First eight bytes of the tenant's name space, to select by; not secret, not identity.
    pub tenant: u64,
    /// Identity.
    pub prompt: PromptHash,
    /// How the conversation begins.
    pub context: Context,
    /// When it was made.
    pub created: Seconds,
    /// From when on it is stale.
    pub expires: Seconds,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens.
    pub usage: Usage,
    /// How long making it took, milliseconds: what a hit saves.
    pub generation_ms: u32,
    /// The request in its canonical form, where the configuration keeps it.
    pub request: Option<Vec<u8>>,
    /// The stored form of the reply: UTF-8 JSON, opaque here.
    pub body: Vec<u8>,
}
