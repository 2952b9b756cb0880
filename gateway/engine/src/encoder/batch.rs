//! The encoder's batch: which inputs share the next run, and when a job is complete.
//!
//! A run has inputs of one length, so nothing is padded. The job whose turn it is chooses the length, jobs take turns, and
//! whoever has inputs of that length comes along, up to [`RUN_TOKENS`]: so a job of one input waits for no more runs than
//! there are jobs, however many inputs the others have. Invariant: an input's vector does not depend on its company.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::contract::{RUN_TOKENS, Vectors, normalised};
use crate::{
    batch::Shared,
    driver::Work,
    job::{Event, Mail, Part},
    outbox::Outbox,
    sequence::Address,
    stats::{add, add_time},
};

/// A job of which all inputs are tokens.
pub(super) struct Encoding {
    pub(super) address: Address,
    /// None of them empty or longer than the context.
    inputs: Vec<Vec<u32>>,
    /// Of the vectors that are asked for.
    dimensions: Option<usize>,
    /// Empty where it is still to be computed.
    vectors: Vec<Vec<f32>>,
    left: usize,
    admitted: Instant,
}

impl Encoding {
    pub(super) fn new(address: Address, inputs: Vec<Vec<u32>>, dimensions: Option<usize>) -> Self {
        Self {
            admitted: address.accepted,
            vectors: vec![Vec::new(); inputs.len()],
            left: inputs.len(),
            address,
            inputs,
            dimensions,
        }
    }

    /// The inputs that are still to be computed.
    fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        let empty = |index: &usize| self.vectors[*index].is_empty();
        (0..self.inputs.len()).filter(empty)
    }

    fn tokens(&self) -> usize {
        self.inputs.iter().map(Vec::len).sum()
    }
}

/// All jobs of an encoder.
pub(super) struct Batch<V> {
    vectors: V,
    /// Jobs with a place; the first has the turn.
    running: VecDeque<Encoding>,
    /// Bounded by the admission.
    waiting: VecDeque<Encoding>,
    places: usize,
    outbox: Outbox,
    shared: Shared,
}

/// An input of the next run: of which running job, and which of its inputs.
type Chosen = (usize, usize);

impl<V: Vectors> Batch<V> {
    pub(super) fn new(vectors: V, places: usize, outbox: Outbox, shared: Shared) -> Self {
        Self {
            vectors,
            running: VecDeque::new(),
            waiting: VecDeque::new(),
            places,
            outbox,
            shared,
        }
    }

    pub(super) fn push(&mut self, job: Encoding) {
        self.waiting.push_back(job);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// One run of the model, and the mail that it gives. Jobs whose run fails have failed, and the reason is returned.
    pub(super) fn step(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        self.drop_ended(begun);
        self.admit();
        let mut run_time = Duration::ZERO;
        let chosen = self.choose();
        let mut result = Ok(());
        if !chosen.is_empty() {
            let inputs: Vec<&[u32]> = chosen
                .iter()
                .map(|&(job, input)| self.running[job].inputs[input].as_slice())
                .collect();
            let tokens = inputs.iter().map(|input| input.len()).sum();
            let running = Instant::now();
            let vectors = self.vectors.run(&inputs);
            run_time = running.elapsed();
            result = match vectors {
                Ok(vectors) => {
                    self.count(chosen.len(), tokens);
                    self.take(&chosen, vectors);
                    Ok(())
                }
                Err(reason) => {
                    self.fail(&chosen, &reason);
                    Err(reason)
                }
            };
            self.leave();
        }
        let counters = &self.shared.counters;
        counters
            .running
            .store(self.running.len() as u64, std::sync::atomic::Ordering::Relaxed);
        let whole = begun.elapsed();
        add_time(&counters.run_nanos, run_time);
        add_time(&counters.own_nanos, whole.saturating_sub(run_time));
        counters.step_time.record(whole);
        self.outbox.flush();
        result
    }

    /// Runs the model on one token, without a job.
    pub(super) fn self_test(&mut self) -> Result<(), String> {
        self.vectors.run(&[&[0]]).map(drop)
    }

    fn count(&self, inputs: usize, tokens: usize) {
        let counters = &self.shared.counters;
        add(&counters.steps, 1);
        add(&counters.prefill_chunks, 1);
        add(&counters.prefill_tokens, tokens);
        add(&counters.embedded, inputs);
        counters
            .peak_batch
            .fetch_max(inputs as u64, std::sync::atomic::Ordering::Relaxed);
    }

    /// Lets go of jobs that are given up or late, wherever they are.
    fn drop_ended(&mut self, now: Instant) {
        let late = |job: &Encoding| job.address.deadline.is_some_and(|deadline| deadline <= now);
        let over = |job: &Encoding| job.address.is_cancelled() || late(job);
        for running in [true, false] {
            let list = if running { &mut self.running } else { &mut self.waiting };
            if !list.iter().any(over) {
                continue;
            }
            let (ended, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(list).into_iter().partition(over);
            *list = kept;
            for job in ended {
                if !running {
                    self.shared.admission.stop_waiting();
                }
                if job.address.is_cancelled() {
                    add(&self.shared.counters.cancelled, 1);
                    self.shared.admission.close();
                } else {
                    add(&self.shared.counters.timed_out, 1);
                    self.end(&job.address, Event::TimedOut);
                }
            }
        }
    }

    /// Gives free places to those who wait, in order.
    fn admit(&mut self) {
        while self.running.len() < self.places
            && let Some(mut job) = self.waiting.pop_front()
        {
            job.admitted = Instant::now();
            self.shared.admission.stop_waiting();
            let queued = job.admitted.saturating_duration_since(job.address.accepted);
            self.shared.counters.queue_time.record(queued);
            self.running.push_back(job);
        }
    }

    /// The inputs of the next run.
    fn choose(&self) -> Vec<Chosen> {
        let Some(first) = self.running.front() else {
            return Vec::new();
        };
        let Some(length) = first.missing().next().map(|index| first.inputs[index].len()) else {
            return Vec::new();
        };
        let most = match self.vectors.shares(length) {
            true => (RUN_TOKENS / length).max(1),
            false => 1,
        };
        let jobs = self.running.iter().enumerate();
        let fitting = jobs.flat_map(|(job, encoding)| {
            let same = move |input: &usize| encoding.inputs[*input].len() == length;
            encoding.missing().filter(same).map(move |input| (job, input))
        });
        fitting.take(most).collect()
    }

    /// Puts vectors where they belong.
    fn take(&mut self, chosen: &[Chosen], vectors: Vec<Option<Vec<f32>>>) {
        for (&(job, input), vector) in chosen.iter().zip(vectors) {
            let encoding = &mut self.running[job];
            if encoding.left == 0 {
                // Another input of the job has ended it.
                continue;
            }
            let cut = vector.and_then(|mut vector| match encoding.dimensions {
                Some(size) if size < vector.len() => {
                    vector.truncate(size);
                    normalised(vector)
                }
                _ => Some(vector),
            });
            match cut {
                Some(vector) => {
                    encoding.vectors[input] = vector;
                    encoding.left -= 1;
                }
                None => {
                    encoding.left = 0;
                    let reason =
                        format!("the model gives input {input} no vector: its numbers are all 0 or not finite");
                    let address = encoding.address.clone();
                    add(&self.shared.counters.refused, 1);
                    let part = Part::Prompt;
                    self.end(&address, Event::Refused { part, reason });
                }
            }
        }
    }

    /// All jobs of a run that failed have failed.
    fn fail(&mut self, chosen: &[Chosen], reason: &str) {
        for &(job, _) in chosen {
            if std::mem::take(&mut self.running[job].left) > 0 {
                let address = self.running[job].address.clone();
                self.failed(&address, reason);
            }
        }
    }

    /// Sends off complete jobs, and passes the turn on.
    fn leave(&mut self) {
        self.running.rotate_left(1);
        for _ in 0..self.running.len() {
            let Some(job) = self.running.pop_front() else { return };
            if job.left > 0 {
                self.running.push_back(job);
                continue;
            }
            self.shared.admission.record_service(job.admitted.elapsed());
            // A job that has ended already lacks a vector.
            if job.missing().next().is_none() {
                add(&self.shared.counters.finished, 1);
                let input_tokens = u32::try_from(job.tokens()).unwrap_or(u32::MAX);
                let vectors = job.vectors;
                self.end(&job.address, Event::Embedded { vectors, input_tokens });
            }
        }
    }

    /// Answers every job with a failure.
    pub(super) fn fail_all(&mut self, reason: &str) {
        self.fail_running(reason);
        for job in std::mem::take(&mut self.waiting) {
            self.shared.admission.stop_waiting();
            self.failed(&job.address, reason);
        }
    }

    /// Answers every job that has a place with a failure.
    pub(super) fn fail_running(&mut self, reason: &str) {
        for job in std::mem::take(&mut self.running) {
            if job.left > 0 {
                self.failed(&job.address, reason);
            }
        }
    }

    fn failed(&mut self, address: &Address, reason: &str) {
        add(&self.shared.counters.failed, 1);
        self.end(address, Event::Failed { reason: reason.into() });
    }

    /// The job's last mail.
    fn end(&mut self, address: &Address, event: Event) {
        let mail = Mail {
            ticket: address.ticket,
            event,
            at: Instant::now(),
        };
        self.outbox.send(address.mailbox, mail, None);
    }
}

impl<V: Vectors> Work for Batch<V> {
    type Job = Encoding;

    fn push(&mut self, job: Encoding) {
        Self::push(self, job);
    }
    fn is_idle(&self) -> bool {
        Self::is_idle(self)
    }
    fn outbox(&mut self) -> &mut Outbox {
        Self::outbox(self)
    }
    fn step(&mut self) -> bool {
        Self::step(self).is_ok()
    }
    fn self_test(&mut self) -> bool {
        Self::self_test(self).is_ok()
    }
    fn fail_running(&mut self, reason: &str) {
        Self::fail_running(self, reason);
    }
    fn fail_all(&mut self, reason: &str) {
        Self::fail_all(self, reason);
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
