//! What the section `cache` means: where answers are kept, which, for whom and for how long.
//!
//! Plain values. Invariant: a [`Cache`] has a place for what it keeps; a gateway that keeps nothing has none.

use std::{path::PathBuf, time::Duration};

use zerohop_cache::Probation;

use crate::{keep::Keeping, key::Scope};

/// Stored answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Where they lie; a running gateway cannot change it.
    pub store: CacheStore,
    /// Which are kept, and how long they are good.
    pub keeping: Keeping,
    /// Requests that ask the same at the same time share one generation.
    pub single_flight: bool,
    /// Who shares them.
    pub scope: Scope,
    /// Part of every key: another number begins anew, the old one finds its entries again. At least 1.
    pub hash_version: u32,
}

/// Where answers lie, and which of them stay.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheStore {
    /// The place.
    pub place: CachePlace,
    /// Bound of all entries, in MiB; at least 1.
    pub size_mb: u32,
    /// Values of files that are kept in memory too, in MiB; beside them are those of the last segment.
    pub hot_mb: u32,
    /// Give back the room of entries that are gone.
    pub compaction: bool,
    /// Buckets of each model.
    pub buckets: Buckets,
    /// How entries cool.
    pub heat: Heat,
}

/// A place of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachePlace {
    /// The memory of this process; they end with it.
    Memory,
    /// Files.
    Ssd {
        /// The index, `…/cache_index.bin`; the secret of the name spaces lies beside it.
        index: PathBuf,
        /// The folder of the parts, `…/cache_data.parquet`.
        data: PathBuf,
    },
}

/// Buckets of each model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    /// As many as the size bound asks for.
    Auto,
    /// So many: a power of two, at least 1024.
    Own(u32),
}

/// How entries cool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heat {
    /// What is left of heat after an interval; between 0 and 1.
    pub decay: f32,
    /// The interval.
    pub interval: Duration,
    /// Whether that is the whole rule.
    pub half_life: HalfLife,
    /// Whether answers that are new have to prove themselves.
    pub probation: Probation,
}

/// What holds of the rule by which entries cool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalfLife {
    /// It begins as the rule's and follows how long entries stay.
    Adaptive,
    /// The rule as written.
    Literal,
}
