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
    /// Bytes of values in memory now.
    hot_bytes,
    /// Bytes of files now: index, segment and parts.
    disk_bytes,
    /// Parts now.
    parts,
    /// Bytes of answers that were appended to segments.
    appended_bytes,
    /// Bytes written to segments.
    segment_bytes_written,
    /// Bytes written to parts.
    part_bytes_written,
    /// Bytes written to the index.
    index_bytes_written,
    /// Segments sealed.
    seals,
    /// Parts made of older ones.
    compactions,
    /// Commits of the index.
    commits,
    /// Evicted because their part had to give way.
    evicted_part,
    /// Entries lost because a file could not be written or read.
    lost,
    /// Failures of the disk.
    disk_errors,
    /// 1 while new entries are on probation, 0 while not.
    probation,
    /// Entries that passed probation, having been hit.
    promoted,
    /// Entries that came without probation, since they were evicted from it a short while ago.
    returned,
    /// Look-ups that the shadows were compared by last.
    shadow_looks,
    /// Of them hits in the shadow with probation.
    shadow_hits_with,
    /// Of them hits in the shadow without.
    shadow_hits_without,
    /// Hits that the shadows did not see: the writer is behind.
    shadow_lost,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, by: u64) {
        count.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(count: &AtomicU64, to: u64) {
        count.store(to, Ordering::Relaxed);
    }
}
