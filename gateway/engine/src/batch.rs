//! Continuous batching: sequences join and leave the running batch at every step.
//!
//! A step is one decode run over all running sequences, then pieces of waiting prompts up to one chunk of tokens, so a
//! long prompt delays the running streams by no more than that. Pieces are cut at multiples of the chunk from the
//! prompt's start, whatever else runs, so that the arithmetic of a prompt does not depend on its company.
//!
//! Sequences that decode are in places `0..n` without holes: the model computes no padding. A leave is closed by the
//! prompt that is ready in the same step, or else by moving the last sequence (a copy of its keys and values): at most
//! one copy a leave and one a join. It never waits for mail or for jobs. Invariant: after a step, row `i` of `rows` is in
//! place `i`, and the sequence that prefills, if any, is in a place beyond.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::{
    admission::Admission,
    extent::Extent,
    job::{Event, Mail},
    ort_sys::{Bound, SysError},
    outbox::Outbox,
    sample::Sampler,
    sequence::{Address, Rules, Sequence},
    stats::{Counters, add, add_time},
};

/// What a batch needs of a model. The product's maker is [`Bound`]; tests script one that fails.
pub(crate) trait Steps: Send {
    /// Places, tokens of each, and tokens of a piece.
    fn extent(&self) -> Extent;
    /// Width of a row of logits.
    fn width(&self) -> usize;
    /// One token for each of the first places; a row of logits each. See [`Bound::decode`].
    fn decode(&mut self, tokens: &[u32], lengths: &[u32]) -> Result<&[f32], SysError>;
    /// Tokens of one place; with `last`, the last one's logits. See [`Bound::prefill`].
    fn prefill(&mut self, slot: usize, start: usize, tokens: &[u32], last: bool) -> Result<&[f32], SysError>;
    /// Copies the first tokens of a place to another.
    fn copy(&mut self, from: usize, to: usize, tokens: usize);
}

impl Steps for Bound {
    fn extent(&self) -> Extent {
        Bound::extent(self)
    }
    fn width(&self) -> usize {
        self.dimensions().vocabulary
    }
    fn decode(&mut self, tokens: &[u32], lengths: &[u32]) -> Result<&[f32], SysError> {
        Bound::decode(self, tokens, lengths)?;
        Ok(self.logits())
    }
    fn prefill(&mut self, slot: usize, start: usize, tokens: &[u32], last: bool) -> Result<&[f32], SysError> {
        Bound::prefill(self, slot, start, tokens, last)?;
        Ok(self.logits())
    }
    fn copy(&mut self, from: usize, to: usize, tokens: usize) {
        Bound::copy(self, from, to, tokens);
    }
}

/// What a batch shares with the rest of the engine.
pub(crate) struct Shared {
    pub(crate) admission: Arc<Admission>,
    pub(crate) counters: Arc<Counters>,
}

/// The running batch of one model.
pub(crate) struct Batch<S> {
    steps: S,
    extent: Extent,
    width: usize,
    /// Ids that may be drawn: those that have a token.
    drawable: usize,
    rules: Rules,
    rows: Vec<Sequence>,
    prefilling: Option<(usize, Sequence)>,
    ready: VecDeque<Sequence>,
    sampler: Sampler,
    outbox: Outbox,
    shared: Shared,
    tokens: Vec<u32>,
    lengths: Vec<u32>,
    drawn: Vec<Option<u32>>,
    run_time: Duration,
    sample_time: Duration,
}

impl<S: Steps> Batch<S> {
    pub(crate) fn new(steps: S, rules: Rules, drawable: usize, outbox: Outbox, shared: Shared) -> Self {
        let (extent, width) = (steps.extent(), steps.width());
        let capacity = extent.slots * extent.context;
        shared.counters.kv_capacity.store(capacity as u64, Relaxed);
        Self {
            steps,
            extent,
            width,
            drawable: drawable.min(width),
            rules,
            rows: Vec::with_capacity(extent.slots),
            prefilling: None,
            ready: VecDeque::new(),
            sampler: Sampler::default(),
            outbox,
            shared,
            tokens: Vec::with_capacity(extent.slots),
            lengths: Vec::with_capacity(extent.slots),
            drawn: Vec::with_capacity(extent.slots),
            run_time: Duration::ZERO,
            sample_time: Duration::ZERO,
        }
    }

    /// Takes a prepared job; it gets a place as soon as one is free.
    pub(crate) fn push(&mut self, sequence: Sequence) {
        self.ready.push_back(sequence);
    }

    /// Sends an event that needs no place.
    pub(crate) fn send(&mut self, mailbox: usize, mail: Mail) {
        self.outbox.send(mailbox, mail, None);
    }

    /// Whether there is nothing to compute.
    pub(crate) fn is_idle(&self) -> bool {
        self.rows.is_empty() && self.prefilling.is_none() && self.ready.is_empty()
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// One step. Jobs whose run failed have had their [`Event::Failed`].
    ///
    /// # Errors
    /// The run's error, after which the caller should see whether the model still works ([`Batch::self_test`]).
    pub(crate) fn step(&mut self) -> Result<(), SysError> {
        let begun = Instant::now();
        self.run_time = Duration::ZERO;
        self.sample_time = Duration::ZERO;
        self.drop_cancelled();
        self.close_holes();
        let decoded = self.decode();
        let prefilled = self.prefill(begun);
        self.close_holes();
        self.set_gauges();
        self.outbox.flush();
        self.count_step(begun);
        decoded.and(prefilled)
    }

    fn set_gauges(&self) {
        let counters = &self.shared.counters;
        let sequences = self
            .rows
            .iter()
            .chain(self.prefilling.iter().map(|(_, sequence)| sequence));
        let (running, tokens) = sequences.fold((0, 0), |(n, tokens), s| (n + 1, tokens + s.computed as u64));
        counters.running.store(running, Relaxed);
        counters.kv_tokens.store(tokens, Relaxed);
    }

    fn count_step(&self, begun: Instant) {
        if self.run_time == Duration::ZERO {
            return;
        }
        let (counters, time) = (&self.shared.counters, begun.elapsed());
        add(&counters.steps, 1);
        add_time(&counters.run_nanos, self.run_time);
        add_time(&counters.sample_nanos, self.sample_time);
        add_time(
            &counters.own_nanos,
            time.saturating_sub(self.run_time + self.sample_time),
        );
        counters.step_time.record(time);
    }

    // ---- leaving --------------------------------------------------------------------------------------------------

    fn drop_cancelled(&mut self) {
        for index in 0..self.rows.len() {
            if self.rows[index].address.is_cancelled() {
                self.rows[index].over = true;
                self.forget(index);
            }
        }
        if self
            .prefilling
            .as_ref()
            .is_some_and(|(_, sequence)| sequence.address.is_cancelled())
        {
            self.prefilling = None;
            self.count_cancelled();
        }
        let before = self.ready.len();
        self.ready.retain(|sequence| !sequence.address.is_cancelled());
        for _ in self.ready.len()..before {
            self.shared.admission.stop_waiting();
            self.count_cancelled();
        }
    }

    /// A row whose client is gone.
    fn forget(&mut self, index: usize) {
        self.shared
            .admission
            .record_service(self.rows[index].admitted.elapsed());
        self.count_cancelled();
    }

    fn count_cancelled(&self) {
        add(&self.shared.counters.cancelled, 1);
        self.shared.admission.close();
    }

    /// Moves the last rows into the holes that leaves have left.
    fn close_holes(&mut self) {
        let mut index = 0;
        while index < self.rows.len() {
            if !self.rows[index].over {
                index += 1;
                continue;
            }
            let last = self.rows.len() - 1;
            if index < last && !self.rows[last].over {
                self.steps.copy(last, index, self.rows[last].computed);
                add(&self.shared.counters.moves, 1);
            }
            // If the last one is over as well, it comes to `index` and is removed in the next round.
            self.rows.swap_remove(index);
        }
    }

    // ---- decoding -------------------------------------------------------------------------------------------------

    fn decode(&mut self) -> Result<(), SysError> {
        let batch = self.rows.len();
        if batch == 0 {
            return Ok(());
        }
        self.tokens.clear();
        self.tokens.extend(self.rows.iter().map(|row| row.next));
        self.lengths.clear();
        self.lengths.extend(self.rows.iter().map(|row| row.computed as u32));
        let begun = Instant::now();
        let result = self.steps.decode(&self.tokens, &self.lengths);
        self.run_time += begun.elapsed();
        let logits = match result {
            Ok(logits) => logits,
            Err(error) => {
                let reason = format!("a decode step failed: {error}");
                self.fail_rows(&reason);
                return Err(error);
            }
        };
        let counters = &self.shared.counters;
        add(&counters.decode_tokens, batch);
        counters.peak_batch.fetch_max(batch as u64, Relaxed);
        let begun = Instant::now();
        self.drawn.clear();
        for (row, logits) in self.rows.iter().zip(logits.chunks_exact(self.width)) {
            let logits = &logits[..self.drawable];
            self.drawn
                .push(self.sampler.draw(logits, &row.request.sampling, row.index()));
        }
        self.sample_time += begun.elapsed();
        for (row, &token) in self.rows.iter_mut().zip(&self.drawn) {
            row.computed += 1;
            advance(row, token, &self.rules, &mut self.outbox, &self.shared);
        }
        Ok(())
    }

    // ---- joining --------------------------------------------------------------------------------------------------

    /// Pieces of prompts, as many as fit one chunk of tokens.
    fn prefill(&mut self, now: Instant) -> Result<(), SysError> {
        let mut budget = self.extent.chunk;
        while budget > 0 {
            if self.prefilling.is_none() {
                self.prefilling = self.next_prompt(now);
            }
            // It stays in `prefilling` while anything can go wrong, so that a fault finds it there.
            let Some((slot, sequence)) = &mut self.prefilling else {
                return Ok(());
            };
            let rest = sequence.prompt.len() - sequence.computed;
            let piece = rest.min(self.extent.chunk);
            if piece > budget {
                return Ok(());
            }
            budget -= piece;
            let last = piece == rest;
            let tokens = &sequence.prompt[sequence.computed..][..piece];
            let begun = Instant::now();
            let result = self.steps.prefill(*slot, sequence.computed, tokens, last);
            self.run_time += begun.elapsed();
            let logits = match result {
                Ok(logits) => logits,
                Err(error) => {
                    let reason = format!("computing the prompt failed: {error}");
                    fail(sequence, &reason, &mut self.outbox, &self.shared);
                    self.prefilling = None;
                    return Err(error);
                }
            };
            sequence.computed += piece;
            add(&self.shared.counters.prefill_chunks, 1);
            add(&self.shared.counters.prefill_tokens, piece);
            if last {
                let begun = Instant::now();
                let logits = &logits[..self.drawable];
                let token = self.sampler.draw(logits, &sequence.request.sampling, sequence.index());
                self.sample_time += begun.elapsed();
                begin(sequence, token, &self.rules, &mut self.outbox, &self.shared);
                self.join();
            }
        }
        Ok(())
    }

    /// The job that waits longest, if a place is free. It goes behind the rows.
    fn next_prompt(&mut self, now: Instant) -> Option<(usize, Sequence)> {
        let slot = self.rows.len();
        if slot >= self.extent.slots {
            return None;
        }
        let mut sequence = self.ready.pop_front()?;
        self.shared.admission.stop_waiting();
        sequence.admitted = now.max(sequence.address.accepted);
        let queued = sequence.admitted - sequence.address.accepted;
        self.shared.counters.queue_time.record(queued);
        Some((slot, sequence))
    }

    /// The sequence whose prompt is computed becomes a row, unless it is over: in a hole, or behind the last.
    fn join(&mut self) {
        let Some((slot, sequence)) = self.prefilling.take().filter(|(_, sequence)| !sequence.over) else {
            return;
        };
        let hole = self.rows.iter().position(|row| row.over);
        let place = hole.unwrap_or(self.rows.len());
        if place != slot {
            self.steps.copy(slot, place, sequence.computed);
            add(&self.shared.counters.moves, 1);
        }
        match hole {
            Some(hole) => self.rows[hole] = sequence,
            None => self.rows.push(sequence),
        }
    }

    // ---- failing --------------------------------------------------------------------------------------------------

    /// Fails all rows.
    fn fail_rows(&mut self, reason: &str) {
        for mut row in std::mem::take(&mut self.rows) {
            if !row.over {
                fail(&mut row, reason, &mut self.outbox, &self.shared);
            }
        }
        self.rows.reserve(self.extent.slots);
    }

    /// Fails everything that has a place; what waits, waits on.
    pub(crate) fn fail_running(&mut self, reason: &str) {
        self.fail_rows(reason);
        if let Some((_, mut sequence)) = self.prefilling.take()
            && !sequence.over
        {
            fail(&mut sequence, reason, &mut self.outbox, &self.shared);
        }
        self.set_gauges();
    }

    /// Fails everything.
    pub(crate) fn fail_all(&mut self, reason: &str) {
        self.fail_running(reason);
        for mut sequence in std::mem::take(&mut self.ready) {
            self.shared.admission.stop_waiting();
            fail(&mut sequence, reason, &mut self.outbox, &self.shared);
        }
    }

    /// Whether the model still runs: one token in a place that nobody uses.
    ///
    /// # Errors
    /// The run's error: then the engine has to stop.
    pub(crate) fn self_test(&mut self) -> Result<(), SysError> {
        let used = self.prefilling.as_ref().map(|(slot, _)| *slot);
        let free = (self.rows.len()..self.extent.slots).find(|&slot| Some(slot) != used);
        match free {
            Some(slot) => self.steps.prefill(slot, 0, &[0], true).map(|_| ()),
            // Every place is used, so the last run cannot have been the failed one of this batch.
            None => Ok(()),
        }
    }
}

/// The first token of a sequence.
fn begin(sequence: &mut Sequence, token: Option<u32>, rules: &Rules, outbox: &mut Outbox, shared: &Shared) {
    let event = Event::Started {
        input_tokens: sequence.prompt.len() as u32,
        cached_tokens: 0,
        queued: sequence.admitted - sequence.address.accepted,
    };
    let address = &sequence.address;
    let mail = Mail {
        ticket: address.ticket,
        event,
        at: sequence.admitted,
    };
    outbox.send(address.mailbox, mail, None);
    if sequence.wants_none() {
        let finish = crate::job::Finish::MaxTokens;
        let usage = sequence.usage();
        close(sequence, Event::Finished { finish, usage }, outbox, shared);
        add(&shared.counters.finished, 1);
        return;
    }
    advance(sequence, token, rules, outbox, shared);
}

/// One more token of a sequence: sends what it brought, and marks the sequence over if it ends.
fn advance(sequence: &mut Sequence, token: Option<u32>, rules: &Rules, outbox: &mut Outbox, shared: &Shared) {
    let Some(token) = token else {
        fail(sequence, "the model's logits are not numbers", outbox, shared);
        return;
    };
    let progress = sequence.take(token, rules);
    if !progress.text.is_empty() {
        let Address { ticket, mailbox, .. } = sequence.address;
        let event = Event::Text {
            text: progress.text,
            tokens: progress.tokens,
            logprobs: Vec::new(),
        };
        let mail = Mail {
            ticket,
            event,
            at: Instant::now(),
        };
        sequence.waiting_text = outbox.send(mailbox, mail, sequence.waiting_text);
    }
    if let Some(finish) = progress.finish {
        let usage = sequence.usage();
        close(sequence, Event::Finished { finish, usage }, outbox, shared);
        add(&shared.counters.finished, 1);
    }
}

fn fail(sequence: &mut Sequence, reason: &str, outbox: &mut Outbox, shared: &Shared) {
    let reason = reason.to_owned();
    close(sequence, Event::Failed { reason }, outbox, shared);
    add(&shared.counters.failed, 1);
}

/// The last event of a sequence.
fn close(sequence: &mut Sequence, event: Event, outbox: &mut Outbox, shared: &Shared) {
    sequence.over = true;
    shared.admission.record_service(sequence.admitted.elapsed());
    let Address { ticket, mailbox, .. } = sequence.address;
    let mail = Mail {
        ticket,
        event,
        at: Instant::now(),
    };
    outbox.send(mailbox, mail, None);
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
