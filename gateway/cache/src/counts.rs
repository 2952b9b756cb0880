//! What the cache counts, for the metrics and the operator.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters, written where things happen.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// The counters of one moment, all since the cache was opened but where they say "now".
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Answers put.
    puts,
    /// Answers not taken: the writer is behind.
    puts_refused,
    /// Answers not taken: larger than the bound allows.
    puts_too_large,
    /// Entries now.
    entries,
    /// Bytes of values now.
    bytes,
    /// Bytes that wait for the writer now.
    waiting_bytes,
    /// Evicted because their bucket was full.
    evicted_bucket,
    /// Evicted because the size bound was reached.
    evicted_size,
    /// Removed by the operator.
    purged,
    /// Pinned now.
    pinned,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, by: u64) {
        count.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(count: &AtomicU64, to: u64) {
        count.store(to, Ordering::Relaxed);
    }
}
