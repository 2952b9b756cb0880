//! An engine: one model, the thread that runs its batch, and the pool that prepares prompts.
//!
//! It starts no work of its own and owns no socket. Without work its threads sleep. Invariant: see [`crate::job`]; when
//! the engine closes, every unfinished job gets its `Failed`.

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::{
    admission::Admission,
    batch::{Batch, Shared},
    driver::{self, Inbox},
    extent::Extent,
    job::{Job, JobHandle, Mailbox, Rejected, Submit},
    mask::{ActiveRules, Masks, RuleError, RuleFile, RuleSet},
    model::Model,
    ort_sys::{Bound, Cache, Place},
    outbox::Outbox,
    prep::{Accepted, Preparer},
    sequence::{Address, Cut, Rules, Sequence},
    stats::{Counters, Stats, add},
    steps::Steps,
};

/// How an engine serves its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Sequences that run at once.
    pub max_batch: usize,
    /// Jobs that may wait beside them, in preparation or for a place.
    pub queue: usize,
    /// Tokens of prompts that are computed between two decode steps.
    pub prefill_chunk: usize,
    /// Bytes for keys and values, at most; on a device exactly so many.
    pub kv_memory: usize,
    /// Threads that prepare prompts.
    pub prep_threads: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_batch: 16,
            queue: 256,
            prefill_chunk: 128,
            kv_memory: 256 << 20,
            prep_threads: 2,
        }
    }
}

/// Why an engine does not start. One line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A number that cannot be meant.
    #[error("engine: `{key}` must be at least 1; set it to a number of 1 or more")]
    Zero {
        /// Which.
        key: &'static str,
    },
    /// Not one sequence fits.
    #[error(
        "{model}: one sequence of {context} tokens needs {need} bytes of KV memory, `kv_memory` is {have}; raise `kv_memory` or lower `max_context`"
    )]
    KvMemory {
        /// The model's folder.
        model: String,
        /// Its context.
        context: usize,
        /// What one sequence needs.
        need: usize,
        /// What is allowed.
        have: usize,
    },
    /// The system refuses memory or threads.
    #[error("{model}: the engine cannot start: {reason}; free memory or lower `kv_memory`")]
    System {
        /// The model's folder.
        model: String,
        /// Its words.
        reason: String,
    },
}

/// What an engine is, for logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// Beginning of a hash over the weights.
    pub version: String,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// Ids that the model can produce.
    pub vocabulary: usize,
    /// What it runs on and why.
    pub provider: String,
    /// Sequences that run at once.
    pub slots: usize,
    /// Bytes for keys and values, at most; on the host memory is taken as tokens need it, on a device at once.
    pub kv_bytes: usize,
    /// What an operator should know though it is no fault.
    pub notes: Vec<String>,
}

/// A running engine. Closes when dropped.
pub struct Engine {
    info: EngineInfo,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    mailboxes: usize,
    masks: Arc<Masks>,
    rules: Arc<ActiveRules>,
    /// Taken away by `close`, so that nothing can come in after it.
    jobs: RwLock<Option<Sender<Accepted>>>,
    inbox: Sender<Inbox<Sequence>>,
    threads: Mutex<Threads>,
}

/// Threads that compile grammars. One that is slow to compile, which can take seconds, keeps one of them.
const GRAMMAR_THREADS: usize = 3;

#[derive(Default)]
struct Threads {
    prep: Vec<JoinHandle<()>>,
    engine: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the threads. Jobs name their mailbox by its index in `mailboxes`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(model: Model, config: &EngineConfig, mailboxes: Vec<Mailbox>) -> Result<Self, StartError> {
        let Plan {
            extent,
            capacity,
            cached,
            note,
        } = plan(&model, config)?;
        let info = EngineInfo {
            version: model.version().to_owned(),
            context: model.context(),
            vocabulary: model.vocabulary(),
            provider: model.provider().to_owned(),
            slots: extent.slots,
            kv_bytes: capacity * model.dimensions.token_bytes().unwrap_or(0),
            notes: model.notes().iter().cloned().chain(note).collect(),
        };
        let name = model.dir().display().to_string();
        let system = |reason: String| StartError::System {
            model: name.clone(),
            reason,
        };
        let Model {
            session,
            dimensions,
            prompts,
            context,
            ends,
            cut,
            place,
            heads,
            huge_bytes,
            ..
        } = model;
        let block = match cut {
            Cut::Free => BLOCK,
            Cut::AtChunks => extent.chunk,
        };
        let cache = Cache {
            block,
            blocks: cached / block,
        };
        let masks = Arc::new(Masks::new(&prompts, &ends).map_err(system)?);
        let bound = Bound::new(session, &place, dimensions, extent, cache).and_then(|bound| match heads.is_empty() {
            true => Ok(bound),
            false => bound.with_heads(heads, info.vocabulary),
        });
        let bound = bound.map_err(|error| system(error.to_string()))?;
        let rules = Rules {
            ends,
            context,
            text: Arc::clone(prompts.vocabulary().text()),
            cut,
        };
        let admission = Arc::new(Admission::new(extent.slots, config.queue));
        let counters = Arc::new(Counters::default());
        counters.huge_bytes.store(huge_bytes, Relaxed);
        let shared = Shared {
            admission: Arc::clone(&admission),
            counters: Arc::clone(&counters),
        };
        let outbox = Outbox::new(mailboxes, Arc::clone(&admission));
        let mailboxes = outbox.len();
        let batch = Batch::new(bound, capacity, rules, info.vocabulary, outbox, shared);
        // One message for each open job, and one to close.
        let (inbox, messages) = bounded(admission.bound() + 1);
        let (jobs, waiting) = bounded(admission.bound());
        let (to_compile, waiting_for_grammars) = bounded(admission.bound());
        let preparer = Preparer {
            longest: prompts.vocabulary().text().longest(),
            prompts,
            masks: Arc::clone(&masks),
            rules: Arc::default(),
            context,
            vocabulary: info.vocabulary,
            admission: Arc::clone(&admission),
            counters: Arc::clone(&counters),
            jobs: waiting,
            to_compile: Some(to_compile),
            engine: inbox.clone(),
        };
        let engine = Self {
            info,
            mailboxes,
            masks,
            rules: Arc::clone(&preparer.rules),
            jobs: RwLock::new(Some(jobs)),
            inbox,
            threads: Mutex::default(),
            admission: Arc::clone(&admission),
            counters,
        };
        // From here on a failure drops `engine`, which stops the threads that have started.
        engine
            .spawn(batch, messages, &preparer, &waiting_for_grammars, config.prep_threads)
            .map_err(|error| system(error.to_string()))?;
        Ok(engine)
    }

    fn spawn<S: Steps + 'static>(
        &self,
        batch: Batch<S>,
        messages: Receiver<Inbox<Sequence>>,
        preparer: &Preparer,
        to_compile: &Receiver<Accepted>,
        prep_threads: usize,
    ) -> std::io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let admission = Arc::clone(&self.admission);
        threads.engine = Some(named("zh-engine").spawn(move || driver::run(batch, messages, admission))?);
        for _ in 0..prep_threads {
            let preparer = preparer.clone();
            threads.prep.push(named("zh-prep").spawn(move || preparer.run())?);
        }
        for _ in 0..GRAMMAR_THREADS {
            let preparer = Preparer {
                jobs: to_compile.clone(),
                to_compile: None,
                ..preparer.clone()
            };
            threads.prep.push(named("zh-grammar").spawn(move || preparer.run())?);
        }
        Ok(())
    }

    /// What this engine is.
    #[must_use]
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.snapshot(&self.admission)
    }

    /// Makes safety rules ready for this model, and changes nothing yet.
    ///
    /// # Errors
    /// The first rule that does not fit this model.
    pub fn compile_rules(&self, file: &RuleFile) -> Result<Arc<RuleSet>, RuleError> {
        self.rules.compile(file, &self.masks)
    }

    /// Makes these the safety rules of every job that is prepared from now on; `None`: no rules. Running answers keep
    /// those that they began with.
    pub fn use_rules(&self, rules: Option<Arc<RuleSet>>) {
        self.rules.replace(rules);
    }

    /// How often each safety rule has bound an answer, by its name, those of former files included.
    #[must_use]
    pub fn rules_fired(&self) -> Vec<(Arc<str>, u64)> {
        self.rules.fired()
    }

    /// Whether it takes jobs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.admission.is_running()
    }

    /// Stops the threads; unfinished jobs get `Failed`. Returns when all have stopped, at most after the step that runs
    /// and the prompts that are being prepared, and a second for workers that do not empty their mailboxes.
    pub fn close(&self) {
        self.admission.shut();
        drop(self.jobs.write().unwrap_or_else(PoisonError::into_inner).take());
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.prep.drain(..) {
            // A panic there was caught; nothing else to learn from the result.
            let _ = thread.join();
        }
        if let Some(thread) = threads.engine.take() {
            // Fails only if the thread is gone already.
            let _ = self.inbox.send(Inbox::Close);
            let _ = thread.join();
        }
    }
}

fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into())
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

impl Submit for Engine {
    fn submit(&self, job: Job) -> Result<JobHandle, Rejected> {
        assert!(job.mailbox < self.mailboxes, "a job names a mailbox that exists");
        let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner);
        let Some(door) = jobs.as_ref() else {
            return Err(Rejected::NotRunning);
        };
        self.admission.enter().inspect_err(|rejected| {
            if matches!(rejected, Rejected::QueueFull { .. }) {
                add(&self.counters.rejected, 1);
            }
        })?;
        let (handle, cancelled) = JobHandle::new();
        let address = Address {
            ticket: job.ticket,
            mailbox: job.mailbox,
            cancelled,
            accepted: Instant::now(),
            deadline: job.deadline,
        };
        // The channel has room for every open job; it is disconnected only if no preparation thread started.
        if door.try_send(Accepted::new(job, address)).is_err() {
            self.admission.stop_waiting();
            self.admission.close();
            return Err(Rejected::NotRunning);
        }
        add(&self.counters.accepted, 1);
        Ok(handle)
    }
}

/// Tokens of a block of the prefix cache: short enough for short instructions, long enough that a block is worth a copy.
const BLOCK: usize = 16;

/// What is reserved for a model.
struct Plan {
    extent: Extent,
    /// Tokens whose keys and values may be kept.
    capacity: usize,
    /// Those of them for which the prefix cache has places.
    cached: usize,
    /// What an operator should know.
    note: Option<String>,
}

/// Of a device's memory for keys and values, one part of so many is kept for the prefix cache.
const CACHE_PART: usize = 8;

/// How much fits into the memory allowed. On the host sequences share it as they grow, so it need not hold all of them at
/// their longest, but the longest one alone. A device's memory is taken at once: as many whole places as are wanted and fit
/// beside the prefix cache's part, and the rest is the prefix cache's as well.
fn plan(model: &Model, config: &EngineConfig) -> Result<Plan, StartError> {
    let numbers = [
        ("max_batch", config.max_batch),
        ("queue", config.queue),
        ("prefill_chunk", config.prefill_chunk),
        ("prep_threads", config.prep_threads),
    ];
    if let Some((key, _)) = numbers.into_iter().find(|&(_, value)| value == 0) {
        return Err(StartError::Zero { key });
    }
    let context = model.context();
    let token = model.dimensions.token_bytes().unwrap_or(usize::MAX);
    let capacity = config.kv_memory / token.max(1);
    if capacity < context {
        return Err(StartError::KvMemory {
            model: model.dir().display().to_string(),
            context,
            need: token.saturating_mul(context),
            have: config.kv_memory,
        });
    }
    let slots = match model.place {
        Place::Host => config.max_batch,
        Place::Device(_) => whole_places(capacity, context, config.max_batch),
    };
    let note = (slots < config.max_batch).then(|| {
        format!(
            "`kv_memory` has room for {slots} sequences of {context} tokens on the device, so {slots} run at once, not the \
             {} of `max_batch`; raise `kv_memory` or lower `max_context`",
            config.max_batch
        )
    });
    let extent = Extent {
        slots,
        context,
        chunk: config.prefill_chunk.min(context),
    };
    let cached = match model.place {
        Place::Host => capacity,
        Place::Device(_) => capacity - slots * context,
    };
    Ok(Plan {
        extent,
        capacity,
        cached,
        note,
    })
}

/// Places of `context` tokens that fit into a device's memory for `capacity` tokens, which has room for one.
fn whole_places(capacity: usize, context: usize, wanted: usize) -> usize {
    let for_places = capacity - capacity / CACHE_PART;
    (for_places / context).clamp(1, wanted)
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
