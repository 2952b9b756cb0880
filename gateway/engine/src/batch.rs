//! Continuous batching: sequences join and leave the running batch at every step.
//!
//! A step is one decode run over all running sequences, then pieces of waiting prompts, as many tokens as take about as
//! long as the decode run ([`Pace`]), or one chunk if nobody runs. The arithmetic of a prompt must not depend on its
//! company: either the model computes the same whatever the cut (tried when it was loaded), or prompts are cut at
//! multiples of the chunk only.
//!
//! Sequences that decode are in places `0..n` without holes: the model computes no padding. A leave is closed by the
//! prompt that is ready in the same step, or else by moving the last sequence (a copy of its keys and values): at most
//! one copy a leave and one a join. When memory for keys and values is short, whoever came last goes back to the queue and
//! is computed again later, by the same runs, so with the same answer. It never waits for mail or for jobs. Invariant:
//! after a step, row `i` of `rows` is in place `i`, and the sequence that prefills, if any, is in a place beyond.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::{
    admission::Admission,
    drawing::{Drawing, Next},
    driver::Work,
    extent::Extent,
    mask::Helper,
    memory::Memory,
    ort_sys::{ALL_ROWS, Rows, SysError},
    outbox::Outbox,
    pace::Pace,
    sequence::{Cut, Rules, Sequence},
    stats::{Counters, add, add_time},
    steps::Steps,
    telling::{advance, begin, fail, time_out},
};

/// What a batch shares with the rest of the engine.
pub(crate) struct Shared {
    pub(crate) admission: Arc<Admission>,
    pub(crate) counters: Arc<Counters>,
}

/// The running batch of one model.
pub(crate) struct Batch<S> {
    steps: S,
    extent: Extent,
    memory: Memory,
    pace: Pace,
    rules: Rules,
    rows: Vec<Sequence>,
    /// How many sequences have had a place.
    arrivals: u64,
    prefilling: Option<(usize, Sequence)>,
    ready: VecDeque<Sequence>,
    masks: Helper,
    drawing: Drawing,
    outbox: Outbox,
    shared: Shared,
    tokens: Vec<u32>,
    lengths: Vec<u32>,
    /// Tokens that each place is to hold, while room is made for them.
    wanted: Vec<(usize, usize)>,
    run_time: Duration,
    sample_time: Duration,
}

impl<S: Steps> Batch<S> {
    /// `capacity`: tokens whose keys and values may be kept, at least one context.
    pub(crate) fn new(
        steps: S,
        capacity: usize,
        rules: Rules,
        drawable: usize,
        outbox: Outbox,
        shared: Shared,
    ) -> Self {
        let (extent, width) = (steps.extent(), steps.width());
        shared.counters.kv_capacity.store(capacity as u64, Relaxed);
        Self {
            memory: Memory::new(&steps, capacity),
            pace: Pace::new(extent.chunk),
            steps,
            extent,
            rules,
            rows: Vec::with_capacity(extent.slots),
            arrivals: 0,
            prefilling: None,
            ready: VecDeque::new(),
            masks: Helper::default(),
            drawing: Drawing::new(drawable.min(width), extent.slots),
            outbox,
            shared,
            tokens: Vec::with_capacity(extent.slots),
            lengths: Vec::with_capacity(extent.slots),
            wanted: Vec::with_capacity(extent.slots + 1),
            run_time: Duration::ZERO,
            sample_time: Duration::ZERO,
        }
    }

    /// Takes a prepared job; it gets a place as soon as one is free.
    pub(crate) fn push(&mut self, sequence: Sequence) {
        self.ready.push_back(sequence);
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
        self.drop_late(begun);
        self.close_holes();
        self.make_room_for_tokens();
        let decoded = self.decode();
        let prefilled = self.prefill(begun);
        self.close_holes();
        self.set_gauges();
        self.outbox.flush();
        self.count_step(begun);
        decoded.and(prefilled)
    }

    fn set_gauges(&mut self) {
        let counters = &self.shared.counters;
        counters.kv_committed.store(self.memory.used() as u64, Relaxed);
        counters.prefix_tokens.store(self.memory.kept() as u64, Relaxed);
        add(&counters.prefix_evictions, self.memory.take_evicted());
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

    /// Ends what has passed its deadline.
    fn drop_late(&mut self, now: Instant) {
        let is_late = |sequence: &Sequence| sequence.address.deadline.is_some_and(|deadline| deadline <= now);
        for row in self.rows.iter_mut().filter(|row| !row.over && is_late(row)) {
            time_out(row, &mut self.outbox, &self.shared);
        }
        if let Some((_, mut sequence)) = self.prefilling.take_if(|(_, sequence)| is_late(sequence)) {
            time_out(&mut sequence, &mut self.outbox, &self.shared);
        }
        for _ in 0..self.ready.len() {
            let Some(mut sequence) = self.ready.pop_front() else {
                break;
            };
            if is_late(&sequence) {
                self.shared.admission.stop_waiting();
                time_out(&mut sequence, &mut self.outbox, &self.shared);
            } else {
                self.ready.push_back(sequence);
            }
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
            if self.rows[last].over {
                self.rows.pop();
            } else {
                self.take_row(index);
            }
        }
    }

    // ---- memory ---------------------------------------------------------------------------------------------------

    /// Makes sure that each row can hold one more token: whoever came last has to leave until it is so.
    fn make_room_for_tokens(&mut self) {
        while !self.room_beside_rows(1, self.prefilling.as_ref().map(|(slot, s)| (*slot, s.computed))) {
            self.preempt();
        }
    }

    /// Whether each row can hold `more` tokens than now, and one place beyond them so many.
    fn room_beside_rows(&mut self, more: usize, beyond: Option<(usize, usize)>) -> bool {
        self.want(more, beyond);
        self.memory.make_room(&mut self.steps, &self.wanted)
    }

    /// Writes down what each place is to hold: each row `more` tokens than now, and one place beyond them so many.
    fn want(&mut self, more: usize, beyond: Option<(usize, usize)>) {
        self.wanted.clear();
        let rows = self.rows.iter().enumerate();
        self.wanted
            .extend(rows.map(|(place, row)| (place, row.computed + more)));
        self.wanted.extend(beyond);
    }

    /// Sends the sequence that came last back to wait for a place. It is computed again from its beginning.
    fn preempt(&mut self) {
        let sequence = self.prefilling.take().map(|(_, sequence)| sequence);
        let sequence = sequence.or_else(|| {
            let came_last = (0..self.rows.len()).max_by_key(|&index| self.rows[index].arrival)?;
            Some(self.take_row(came_last))
        });
        // One sequence alone has room: the engine does not start with less memory.
        let Some(mut sequence) = sequence else { return };
        sequence.lose_place();
        add(&self.shared.counters.preempted, 1);
        self.shared.admission.wait_again();
        self.ready.push_front(sequence);
    }

    /// Takes a row out of the batch; the last one moves to its place.
    fn take_row(&mut self, index: usize) -> Sequence {
        let last = self.rows.len() - 1;
        if index < last {
            let tokens = self.rows[last].computed;
            self.memory.relocate(&mut self.steps, last, index, tokens);
            add(&self.shared.counters.moves, 1);
        }
        self.rows.swap_remove(index)
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
        self.masks.begin(self.rows.iter_mut().map(|row| &mut row.guide));
        let begun = Instant::now();
        let result = self.steps.decode(&self.tokens, &self.lengths);
        self.run_time += begun.elapsed();
        let times = self.masks.finish(self.rows.iter_mut().map(|row| &mut row.guide));
        add_time(&self.shared.counters.mask_nanos, times.masks);
        add_time(&self.shared.counters.mask_wait_nanos, times.wait);
        let begun = Instant::now();
        let counters = &self.shared.counters;
        let drawn = result.and_then(|()| {
            self.drawing
                .rows(&mut self.steps, &mut self.rows, &self.rules, counters)
        });
        self.sample_time += begun.elapsed();
        if let Err(error) = drawn {
            let reason = format!("a decode step failed: {error}");
            self.fail_rows(&reason);
            return Err(error);
        }
        add(&counters.decode_tokens, batch);
        counters.peak_batch.fetch_max(batch as u64, Relaxed);
        for (row, next) in self.rows.iter_mut().zip(self.drawing.take()) {
            if let Next::New(drawn) = next {
                advance(row, drawn, &self.rules, &mut self.outbox, &self.shared);
            }
        }
        Ok(())
    }

    // ---- joining --------------------------------------------------------------------------------------------------

    /// Pieces of prompts, as many as the pace allows.
    fn prefill(&mut self, now: Instant) -> Result<(), SysError> {
        let (decode_time, running) = (self.run_time, self.rows.iter().any(|row| !row.over));
        let mut budget = match self.rules.cut {
            Cut::Free => self.pace.budget(running),
            Cut::AtChunks => self.extent.chunk,
        };
        let given = budget;
        while budget > 0 {
            if self.prefilling.is_none() {
                self.prefilling = self.next_prompt(now);
            }
            let Some(tokens) = self.next_piece(budget) else { break };
            budget -= tokens;
            self.prefill_piece(tokens)?;
        }
        self.pace
            .learn(decode_time, self.run_time - decode_time, given - budget);
        Ok(())
    }

    /// How many tokens of the prompt in work are computed next; `None`: none in this step.
    fn next_piece(&mut self, budget: usize) -> Option<usize> {
        let (slot, sequence) = self.prefilling.as_ref()?;
        let rest = sequence.prompt.len() - sequence.computed;
        let most = if sequence.is_told() {
            ALL_ROWS.min(self.extent.chunk)
        } else {
            self.extent.chunk
        };
        let tokens = match self.rules.cut {
            Cut::Free => piece(rest, budget.min(most))?,
            Cut::AtChunks => Some(rest.min(most)).filter(|&tokens| tokens <= budget)?,
        };
        // One more for the answer's first token, so that it is not sent away at once.
        let beyond = Some((*slot, sequence.computed + tokens + 1));
        if !self.room_beside_rows(0, beyond) {
            self.preempt();
            return None;
        }
        Some(tokens)
    }

    /// Computes a piece of the prompt in work.
    fn prefill_piece(&mut self, count: usize) -> Result<(), SysError> {
        // It stays in `prefilling` while anything can go wrong, so that a fault finds it there.
        let Some((slot, sequence)) = &mut self.prefilling else {
            return Ok(());
        };
        let rest = sequence.prompt.len() - sequence.computed;
        let rows = match (sequence.tells_prompt(), count == rest) {
            (true, _) => Rows::All,
            (false, true) => Rows::Last,
            (false, false) => Rows::None,
        };
        let tokens = &sequence.prompt[sequence.computed..][..count];
        let begun = Instant::now();
        let result = self.steps.prefill(*slot, sequence.computed, tokens, rows);
        self.run_time += begun.elapsed();
        let begun = Instant::now();
        let counters = &self.shared.counters;
        let row = if rows == Rows::All { count - 1 } else { 0 };
        let drawn = result.and_then(|()| {
            if rows == Rows::All {
                self.drawing
                    .tell_prompt(&mut self.steps, count, sequence, &self.rules)?;
            }
            sequence.computed += count;
            if count < rest {
                return Ok(None);
            }
            self.drawing
                .one(&mut self.steps, row, sequence, &self.rules, counters)
                .map(Some)
        });
        self.sample_time += begun.elapsed();
        let drawn = match drawn {
            Ok(drawn) => drawn,
            Err(error) => {
                let reason = format!("computing the prompt failed: {error}");
                fail(sequence, &reason, &mut self.outbox, &self.shared);
                self.prefilling = None;
                return Err(error);
            }
        };
        add(&self.shared.counters.prefill_chunks, 1);
        add(&self.shared.counters.prefill_tokens, count);
        let Some(next) = drawn else { return Ok(()) };
        if let Next::New(drawn) = next {
            begin(sequence, drawn, &self.rules, &mut self.outbox, &self.shared);
        }
        // A prompt that is told was cut in its own way.
        if !sequence.is_told() {
            self.memory.keep(&mut self.steps, *slot, &sequence.prompt, &self.wanted);
        }
        self.join();
        Ok(())
    }

    /// The job that waits longest, if a place is free and its prompt fits beside the rows. It goes behind the rows, with
    /// what the prefix cache has of it.
    fn next_prompt(&mut self, now: Instant) -> Option<(usize, Sequence)> {
        let slot = self.rows.len();
        if slot >= self.extent.slots {
            return None;
        }
        let whole = (slot, self.ready.front()?.prompt.len() + 1);
        // Asked at every step while it waits, so before its prompt is looked at.
        self.want(0, Some(whole));
        if !self.memory.can_hold(&self.wanted) {
            return None;
        }
        // What is there of it becomes the newest, so that making room costs others their blocks first.
        self.memory.look_up(&self.ready.front()?.prompt);
        if !self.memory.make_room(&mut self.steps, &self.wanted) {
            return None;
        }
        let mut sequence = self.ready.pop_front()?;
        self.shared.admission.stop_waiting();
        if !sequence.is_told() {
            let blocks = self.memory.look_up(&sequence.prompt);
            sequence.computed = self.memory.load(&mut self.steps, slot, &blocks);
        }
        if sequence.arrival == 0 {
            self.arrivals += 1;
            sequence.arrival = self.arrivals;
            sequence.cached = sequence.computed;
            add(&self.shared.counters.cached_tokens, sequence.cached);
            sequence.admitted = now.max(sequence.address.accepted);
            let queued = sequence.admitted - sequence.address.accepted;
            self.shared.counters.queue_time.record(queued);
        }
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
            self.memory.relocate(&mut self.steps, slot, place, sequence.computed);
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
            Some(slot) => self.steps.prefill(slot, 0, &[0], Rows::Last).map(|_| ()),
            // Every place is used, so the last run cannot have been the failed one of this batch.
            None => Ok(()),
        }
    }
}

/// How much of `rest` tokens is computed at once with room for `most`: never a single token of several, which would take
/// other kernels than the rest. `None`: it has to wait for more room.
fn piece(rest: usize, most: usize) -> Option<usize> {
    match rest.min(most) {
        0 => None,
        all if all == rest => Some(all),
        1 => None,
        // The last token would be left alone.
        some if rest - some == 1 => (some > 2).then_some(some - 1),
        some => Some(some),
    }
}

impl<S: Steps> Work for Batch<S> {
    type Job = Sequence;

    fn push(&mut self, job: Sequence) {
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
