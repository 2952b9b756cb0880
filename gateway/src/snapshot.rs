//! Everything that a reload replaces, as one immutable value.
//!
//! Nothing here is ever changed in place. Invariant: a request keeps what it began with, so that its parts agree; an
//! engine lives as long as a snapshot or a running request names it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use zerohop_cache::ModelNumber;
use zerohop_engine::{EncoderEngine, Engine, Stats, Submit};

use crate::{
    caller::Callers,
    clock::nanos,
    keep::Keeping,
    key::Epoch,
    metrics::{EngineGauges, ModelMetrics, ModelScrape},
    resolve::{ModelIndex, Resolver},
};

/// What requests are answered with.
pub struct Snapshot {
    /// Counts the snapshots of this process, from 1.
    pub epoch: u64,
    /// Who may ask.
    pub callers: Callers,
    /// Names to models.
    pub resolver: Resolver,
    /// In the order of the configuration, which is that of [`Resolver`].
    pub models: Vec<Arc<ServedModel>>,
    /// What answers are kept; `None`: none are.
    pub kept: Option<Kept>,
    /// Refuse unknown fields as the vendors do.
    pub strict: bool,
}

impl Snapshot {
    /// The model at this index.
    #[must_use]
    pub fn model(&self, index: ModelIndex) -> &Arc<ServedModel> {
        &self.models[index.get()]
    }
}

/// How answers are kept while a snapshot is in force.
pub struct Kept {
    /// Which ones, and for how long.
    pub keeping: Keeping,
    /// Requests that ask the same at the same time share one generation.
    pub single_flight: bool,
    /// The models' numbers in the cache, by [`ModelIndex`]; `None` where a cache has no more numbers.
    pub numbers: Vec<Option<ModelNumber>>,
}

/// From one change of what an engine's answers depend on to the next.
///
/// Safety rules come into force before the snapshot that tells of them is there, so that an answer to a request of the old
/// one may be made under the new rules. Such an answer belongs to no epoch: its era is over.
#[derive(Debug, Clone)]
pub struct Era {
    own: u64,
    /// That of the engine.
    present: Arc<AtomicU64>,
}

impl Era {
    /// The era of an engine that was just started.
    #[must_use]
    pub fn first() -> Self {
        Self {
            own: 0,
            present: Arc::new(AtomicU64::new(0)),
        }
    }

    /// The one behind this, which has not begun.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            own: self.own + 1,
            present: Arc::clone(&self.present),
        }
    }

    /// Ends every other era of the engine.
    pub fn begin(&self) {
        self.present.store(self.own, Ordering::SeqCst);
    }

    /// Whether it has begun and not ended.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.present.load(Ordering::SeqCst) == self.own
    }
}

/// A model that answers.
#[derive(Clone)]
pub struct ServedModel {
    /// Its id in the configuration.
    pub id: Arc<str>,
    /// Seconds since 1970 at which it was loaded, for model lists.
    pub created: u64,
    /// Longest prompt and answer together, in tokens.
    pub context: u32,
    /// The `model_version` label.
    pub version: String,
    /// What it is made of, for keys of stored answers; `None`: its answers are not kept.
    pub epoch: Option<Epoch>,
    /// An answer may only be kept under `epoch` if this still holds when the answer is complete.
    pub era: Era,
    /// Within which its answers must be complete; `None`: whenever they are.
    pub deadline: Option<Duration>,
    /// Where its jobs go.
    pub engine: Arc<dyn Engines>,
    /// What each worker counts for it, by worker.
    pub metrics: Arc<[ModelMetrics]>,
}

impl fmt::Debug for ServedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedModel")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ServedModel {
    /// What a scrape shows of it.
    #[must_use]
    pub fn scrape(&self) -> ModelScrape<'_> {
        let stats = self.engine.stats();
        ModelScrape {
            name: &self.id,
            version: &self.version,
            engine: EngineGauges {
                waiting: stats.waiting,
                running: stats.running,
                batch_peak: stats.peak_batch,
                steps: stats.steps,
                decode_tokens: stats.decode_tokens,
                prefill_tokens: stats.prefill_tokens,
                cancelled: stats.cancelled,
                failed: stats.failed,
                embedded: stats.embedded,
                kv_committed: stats.kv_committed,
                prefix_tokens: stats.prefix_tokens,
                cached_tokens: stats.cached_tokens,
                prefix_evictions: stats.prefix_evictions,
                preempted: stats.preempted,
                timed_out: stats.timed_out,
                device_draws: stats.device_draws,
                host_draws: stats.host_draws,
                wide_draws: stats.wide_draws,
                device_bytes: stats.device_bytes,
                huge_bytes: stats.huge_bytes,
                kv_used: stats.kv_tokens,
                kv_capacity: stats.kv_capacity,
                rejected: stats.rejected,
                run_nanos: nanos(stats.run_time),
                own_nanos: nanos(stats.own_time),
                mask_nanos: nanos(stats.mask_time),
                mask_wait_nanos: nanos(stats.mask_wait),
                masked_tokens: stats.masked_tokens,
                safety_rejections: stats.safety_rejections,
            },
            cells: &self.metrics,
            rules: self.engine.rules_fired(),
        }
    }
}

/// What the gateway wants of an engine: to hand in jobs, and to read its numbers.
pub trait Engines: Submit {
    /// The numbers of this moment.
    fn stats(&self) -> Stats;

    /// How often each safety rule has bound an answer, by its name.
    fn rules_fired(&self) -> Vec<(Arc<str>, u64)> {
        Vec::new()
    }

    /// Numbers of a vector, for engines that make vectors; 0 for others.
    fn vector_size(&self) -> usize {
        0
    }
}

impl Engines for EncoderEngine {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn vector_size(&self) -> usize {
        self.info().size
    }
}

impl Engines for Engine {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn rules_fired(&self) -> Vec<(Arc<str>, u64)> {
        Self::rules_fired(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_ends_for_good() {
        let first = Era::first();
        let again = first.clone();
        let second = first.next();
        assert!(first.holds() && again.holds() && !second.holds());
        second.begin();
        assert!(!first.holds() && !again.holds() && second.holds());
        // A change that was given up leaves no trace.
        let _given_up = second.next();
        let third = second.next();
        assert!(second.holds() && !third.holds());
        third.begin();
        assert!(!first.holds() && !second.holds() && third.holds());
        assert!(Era::first().holds(), "another engine");
    }
}
