//! The next tokens of a run: drawn where the logits are as far as that can be done, and else by the host.
//!
//! A row is left to the host for what a graph cannot do (penalties, bias, `top_k` above its bound, more log probabilities
//! than it tells), where the graph says so (a nucleus that is too wide), and where nobody draws on a device. Each is counted.
//! Invariant: who draws changes no token.

use std::collections::VecDeque;

use crate::{
    head::{Request, Verdict},
    job::Logprob,
    model::TextTable,
    ort_sys::{Drawer, SysError, Told},
    sample::Sampler,
    sequence::{Drawn, Rules, Sequence},
    stats::{Counters, add},
    steps::Steps,
};

/// What a run gave a row.
pub(crate) enum Next {
    /// A new token; `None`: there is none to draw.
    New(Option<Drawn>),
    /// A token that the answer has already, computed once more.
    Known,
}

/// Draws; keeps its buffers between steps.
pub(crate) struct Drawing {
    sampler: Sampler,
    /// Words of a mask that is made for one draw.
    words: Vec<u32>,
    /// Ids that may be drawn: those that have a token.
    drawable: usize,
    drawn: VecDeque<Next>,
}

impl Drawing {
    /// For ids below `drawable` and up to `rows` rows.
    pub(crate) fn new(drawable: usize, rows: usize) -> Self {
        Self {
            sampler: Sampler::default(),
            words: Vec::new(),
            drawable,
            drawn: VecDeque::with_capacity(rows),
        }
    }

    /// The tokens that [`Drawing::rows`] drew, in the order of the rows.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Next> {
        self.drawn.drain(..)
    }

    /// Draws for all rows of a decode run, each of which has one more token computed.
    pub(crate) fn rows<S: Steps>(
        &mut self,
        steps: &mut S,
        rows: &mut [Sequence],
        rules: &Rules,
        counters: &Counters,
    ) -> Result<(), SysError> {
        self.drawn.clear();
        if let Some(drawer) = steps.drawer() {
            drawer.forget();
            for (index, row) in rows.iter().enumerate() {
                self.ask(drawer, index, row, rules);
            }
            steps.draw(rows.len())?;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            row.computed += 1;
            let next = match row.repeat() {
                true => Next::Known,
                false => Next::New(self.draw(steps, index, row, rules, counters)?),
            };
            self.drawn.push_back(next);
        }
        add(&counters.device_bytes, steps.take_fetched());
        Ok(())
    }

    /// Draws for a sequence whose prompt is computed, from row `row` of the run.
    pub(crate) fn one<S: Steps>(
        &mut self,
        steps: &mut S,
        row: usize,
        sequence: &mut Sequence,
        rules: &Rules,
        counters: &Counters,
    ) -> Result<Next, SysError> {
        if sequence.repeat() {
            return Ok(Next::Known);
        }
        if let Some(drawer) = steps.drawer() {
            drawer.forget();
            // Where every token of a piece has its row, the host wants to see them anyway.
            if row == 0 {
                self.ask(drawer, row, sequence, rules);
                steps.draw(1)?;
            }
        }
        let drawn = self.draw(steps, row, sequence, rules, counters)?;
        add(&counters.device_bytes, steps.take_fetched());
        Ok(Next::New(drawn))
    }

    /// Keeps the log probabilities of a prompt's tokens behind each of the next `count`, which a run has just computed.
    pub(crate) fn tell_prompt<S: Steps>(
        &mut self,
        steps: &mut S,
        count: usize,
        sequence: &mut Sequence,
        rules: &Rules,
    ) -> Result<(), SysError> {
        for row in 0..count {
            sequence.tell_prompt(row, &steps.logits(row)?[..self.drawable], rules);
        }
        Ok(())
    }

    /// Asks for what the device can do.
    fn ask(&mut self, drawer: &mut Drawer, row: usize, sequence: &Sequence, rules: &Rules) {
        let told = sequence.request.logprobs;
        if let Some(top) = told
            && drawer.tells().is_none_or(|most| top as usize > most)
        {
            return;
        }
        let kind = drawer.kind();
        let Some(request) = Request::of(&sequence.request.sampling, sequence.index(), kind) else {
            return;
        };
        let mask = sequence.mask(sequence.constraint(), self.drawable, rules, &mut self.words);
        drawer.ask(row, &request, mask, told.is_some());
    }

    /// What the device drew, or else what the host draws.
    fn draw<S: Steps>(
        &mut self,
        steps: &mut S,
        row: usize,
        sequence: &Sequence,
        rules: &Rules,
        counters: &Counters,
    ) -> Result<Option<Drawn>, SysError> {
        match steps.drawer().and_then(|drawer| drawer.verdict(row)) {
            Some((Verdict::Token(token), told)) => {
                let top = sequence.request.logprobs.map_or(0, |top| top as usize);
                let logprob = told.map(|told| logprob(token, &told, top, &rules.text));
                // Of infinite logits the device takes no sum.
                if logprob.as_ref().is_none_or(Option::is_some) {
                    add(&counters.device_draws, 1);
                    return Ok(Some(Drawn {
                        token,
                        logprob: logprob.flatten(),
                    }));
                }
            }
            Some((Verdict::None, _)) => {
                add(&counters.device_draws, 1);
                return Ok(None);
            }
            Some((Verdict::Host, _)) => add(&counters.wide_draws, 1),
            None => {}
        }
        add(&counters.host_draws, 1);
        let logits = &steps.logits(row)?[..self.drawable];
        Ok(sequence.draw(logits, rules, &mut self.sampler, &mut self.words))
    }
}

/// Log probabilities as the device tells them; `None`: it does not know them.
fn logprob(token: u32, told: &Told<'_>, top: usize, text: &TextTable) -> Option<Logprob> {
    let best = told.ids.iter().zip(told.logprobs).take(top);
    let best: Vec<_> = best
        .map(|(&id, &logprob)| (id as u32, text.get(id as u32).to_vec(), logprob))
        .collect();
    let known = told.own.is_finite() && best.iter().all(|(_, _, logprob)| logprob.is_finite());
    known.then(|| Logprob {
        token,
        bytes: text.get(token).to_vec(),
        logprob: Some(told.own),
        top: best,
    })
}
