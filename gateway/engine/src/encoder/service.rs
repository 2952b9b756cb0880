//! An encoder at work: one model, the thread that runs it, and the pool that prepares inputs.
//!
//! The sibling of [`crate::Engine`], with the same doors. It owns no socket, and without work its threads sleep.
//! Invariant: see [`crate::job`]; when it closes, every unfinished job gets its `Failed`.

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread::{Builder, JoinHandle},
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{
    Encoder,
    batch::{Batch, Encoding},
    contract::Vectors,
    prep::{Limits, Preparer},
};
use crate::{
    admission::Admission,
    batch::Shared,
    driver::{self, Inbox},
    engine::StartError,
    job::{Job, JobHandle, Mailbox, Rejected, Submit},
    outbox::Outbox,
    prep::Accepted,
    sequence::Address,
    stats::{Counters, Stats, add},
};

/// How an encoder serves its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderConfig {
    /// Jobs whose inputs share runs.
    pub max_batch: usize,
    /// Jobs that may wait beside them.
    pub queue: usize,
    /// Threads that prepare inputs.
    pub prep_threads: usize,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self {
            max_batch: 16,
            queue: 256,
            prep_threads: 2,
        }
    }
}

/// What an encoder is, for logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderInfo {
    /// Beginning of a hash over the weights.
    pub version: String,
    /// Most tokens of an input.
    pub context: usize,
    /// Numbers of a vector.
    pub size: usize,
    /// What it runs on and why.
    pub provider: String,
    /// Jobs whose inputs share runs.
    pub slots: usize,
    /// What an operator should know though it is no fault.
    pub notes: Vec<String>,
}

/// A running encoder. Closes when dropped.
pub struct EncoderEngine {
    info: EncoderInfo,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    mailboxes: usize,
    /// Taken away by `close`, so that nothing can come in after it.
    jobs: RwLock<Option<Sender<Accepted>>>,
    inbox: Sender<Inbox<Encoding>>,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    prep: Vec<JoinHandle<()>>,
    engine: Option<JoinHandle<()>>,
}

impl EncoderEngine {
    /// Starts the threads. Jobs name their mailbox by its index in `mailboxes`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(model: Encoder, config: &EncoderConfig, mailboxes: Vec<Mailbox>) -> Result<Self, StartError> {
        let numbers = [
            ("max_batch", config.max_batch),
            ("queue", config.queue),
            ("prep_threads", config.prep_threads),
        ];
        if let Some((key, _)) = numbers.into_iter().find(|&(_, value)| value == 0) {
            return Err(StartError::Zero { key });
        }
        let system = |error: std::io::Error| StartError::System {
            model: model.dir.display().to_string(),
            reason: error.to_string(),
        };
        let admission = Arc::new(Admission::new(config.max_batch, config.queue));
        let counters = Arc::new(Counters::default());
        let shared = Shared {
            admission: Arc::clone(&admission),
            counters: Arc::clone(&counters),
        };
        let outbox = Outbox::new(mailboxes, Arc::clone(&admission));
        // One message for each open job, and one to close.
        let (inbox, messages) = bounded(admission.bound() + 1);
        let (jobs, waiting) = bounded(admission.bound());
        let limits = Limits {
            vocabulary: model.vocabulary,
            context: model.context,
            size: model.graph.size(),
            cuts: model.cuts,
        };
        let engine = Self {
            info: EncoderInfo {
                version: model.version,
                context: model.context,
                size: limits.size,
                provider: model.provider,
                slots: config.max_batch,
                notes: model.notes,
            },
            mailboxes: outbox.len(),
            jobs: RwLock::new(Some(jobs)),
            inbox: inbox.clone(),
            threads: Mutex::default(),
            admission: Arc::clone(&admission),
            counters: Arc::clone(&counters),
        };
        let preparer = Preparer {
            tokens: model.tokens,
            limits: Arc::new(limits),
            admission,
            counters,
            jobs: waiting,
            engine: inbox,
        };
        let batch = Batch::new(model.graph, config.max_batch, outbox, shared);
        // From here on a failure drops `engine`, which stops the threads that have started.
        engine
            .spawn(batch, messages, &preparer, config.prep_threads)
            .map_err(system)?;
        Ok(engine)
    }

    fn spawn<V: Vectors + 'static>(
        &self,
        batch: Batch<V>,
        messages: Receiver<Inbox<Encoding>>,
        preparer: &Preparer,
        prep_threads: usize,
    ) -> std::io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let admission = Arc::clone(&self.admission);
        let named = |name: &str| Builder::new().name(name.into());
        threads.engine = Some(named("zh-encoder").spawn(move || driver::run(batch, messages, admission))?);
        for _ in 0..prep_threads {
            let preparer = preparer.clone();
            threads
                .prep
                .push(named("zh-encode-prep").spawn(move || preparer.run())?);
        }
        Ok(())
    }

    /// What this encoder is.
    #[must_use]
    pub fn info(&self) -> &EncoderInfo {
        &self.info
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.snapshot(&self.admission)
    }

    /// Stops the threads; unfinished jobs get `Failed`. Returns when all have stopped, at most after the run and the inputs
    /// that are being prepared, and a second for workers that do not empty their mailboxes.
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

impl Drop for EncoderEngine {
    fn drop(&mut self) {
        self.close();
    }
}

impl Submit for EncoderEngine {
    fn submit(&self, job: Job) -> Result<JobHandle, Rejected> {
        assert!(job.mailbox < self.mailboxes, "a job names a mailbox that exists");
        let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner);
        let Some(jobs) = jobs.as_ref() else {
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
        if jobs.try_send(Accepted::new(job, address)).is_err() {
            self.admission.stop_waiting();
            self.admission.close();
            return Err(Rejected::NotRunning);
        }
        add(&self.counters.accepted, 1);
        Ok(handle)
    }
}
