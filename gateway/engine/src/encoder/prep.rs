//! The encoder's preparation pool: texts to tokens, away from the workers and from the encoder's own thread.
//!
//! It sends no mail itself (a mailbox has one producer). Invariant: for each job that goes in, one message comes out, unless
//! the job was cancelled; what reaches the batch fits the model.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender};

use super::{batch::Encoding, config::Cuts, tokens::Tokens};
use crate::{
    admission::Admission,
    driver::Inbox,
    job::{Embed, Event, Input, JobKind, Mail, Part},
    prep::Accepted,
    sequence::Address,
    stats::{Counters, add},
};

/// Most inputs of a job.
pub const MAX_INPUTS: usize = 2048;

/// Most tokens of all inputs of a job together.
const MAX_TOKENS: usize = 300_000;

/// Most bytes of one text, and of all texts of a job: tokenising takes time in which others wait for this thread. A text of
/// a whole context of 8192 tokens has about 40 KB.
const MAX_TEXT: usize = 256 * 1024;
const MAX_TEXTS: usize = 4 << 20;

/// What a model takes.
pub(super) struct Limits {
    pub(super) vocabulary: usize,
    pub(super) context: usize,
    /// Numbers of a vector.
    pub(super) size: usize,
    pub(super) cuts: Cuts,
}

/// What a thread of the pool needs.
#[derive(Clone)]
pub(super) struct Preparer {
    pub(super) tokens: Arc<Tokens>,
    pub(super) limits: Arc<Limits>,
    pub(super) admission: Arc<Admission>,
    pub(super) counters: Arc<Counters>,
    pub(super) jobs: Receiver<Accepted>,
    pub(super) engine: Sender<Inbox<Encoding>>,
}

impl Preparer {
    /// Prepares jobs until nobody can hand in any more.
    pub(super) fn run(&self) {
        while let Ok(job) = self.jobs.recv() {
            let Address { ticket, mailbox, .. } = job.address;
            let address = job.address.clone();
            let prepared = if self.admission.is_running() {
                catch_unwind(AssertUnwindSafe(|| self.prepare(job)))
                    .unwrap_or_else(|_| Err(Some(self.failed("preparing the inputs panicked"))))
            } else {
                Err(Some(self.failed(self.admission.why_stopped())))
            };
            let message = match prepared {
                _ if address.is_cancelled() => None,
                Ok(encoding) => Some(Inbox::Ready(encoding)),
                Err(None) => None,
                Err(Some(event)) => {
                    let at = Instant::now();
                    Some(Inbox::Mail(mailbox, Mail { ticket, event, at }))
                }
            };
            if !matches!(message, Some(Inbox::Ready(_))) {
                self.admission.stop_waiting();
            }
            match message {
                // The channel has room for every open job. Without an engine nobody reads the answer either.
                Some(message) => {
                    if self.engine.send(message).is_err() {
                        self.admission.close();
                    }
                }
                None => {
                    self.admission.close();
                    add(&self.counters.cancelled, 1);
                }
            }
        }
    }

    fn failed(&self, reason: &str) -> Event {
        add(&self.counters.failed, 1);
        Event::Failed { reason: reason.into() }
    }

    fn refused(&self, part: Part, reason: impl Into<String>) -> Event {
        add(&self.counters.refused, 1);
        let reason = reason.into();
        Event::Refused { part, reason }
    }

    /// The job for the batch, or the answer at once; `Err(None)`: it was cancelled.
    fn prepare(&self, job: Accepted) -> Result<Box<Encoding>, Option<Event>> {
        let JobKind::Embed(Embed { inputs, dimensions }) = job.kind else {
            let reason = "this model makes embeddings, not answers";
            return Err(Some(self.refused(Part::Model, reason)));
        };
        let dimensions = self.dimensions(dimensions).map_err(Some)?;
        self.check_size(&inputs).map_err(Some)?;
        let mut all = Vec::with_capacity(inputs.len());
        let mut total = 0;
        for (index, input) in inputs.into_iter().enumerate() {
            if job.address.is_cancelled() {
                return Err(None);
            }
            let ids = self.ids(index, input).map_err(Some)?;
            total += ids.len();
            if total > MAX_TOKENS {
                let reason = format!("all inputs together have more than {MAX_TOKENS} tokens");
                return Err(Some(self.refused(Part::Prompt, reason)));
            }
            all.push(ids);
        }
        add(&self.counters.prompt_tokens, total);
        Ok(Box::new(Encoding::new(job.address, all, dimensions)))
    }

    fn dimensions(&self, wish: Option<u32>) -> Result<Option<usize>, Event> {
        let Some(wish) = wish.map(|wish| wish as usize) else {
            return Ok(None);
        };
        let size = self.limits.size;
        let fits = wish == size
            || match &self.limits.cuts {
                Cuts::None => false,
                Cuts::Any => (1..size).contains(&wish),
                Cuts::These(these) => these.contains(&wish),
            };
        if fits {
            return Ok(Some(wish));
        }
        let reason = match &self.limits.cuts {
            Cuts::None => format!("this model makes vectors of {size} numbers, which cannot be shortened"),
            Cuts::Any => format!("this model makes vectors of 1 to {size} numbers, not {wish}"),
            Cuts::These(these) => format!("this model makes vectors of {these:?} or {size} numbers, not {wish}"),
        };
        Err(self.refused(Part::Dimensions, reason))
    }

    /// Refuses what would take too long to tokenise.
    fn check_size(&self, inputs: &[Input]) -> Result<(), Event> {
        if inputs.is_empty() || inputs.len() > MAX_INPUTS {
            return Err(self.refused(
                Part::Prompt,
                format!("give 1 to {MAX_INPUTS} inputs, not {}", inputs.len()),
            ));
        }
        let bytes = |input: &Input| match input {
            Input::Text(text) => text.len(),
            Input::Tokens(_) => 0,
        };
        if let Some(index) = inputs.iter().position(|input| bytes(input) > MAX_TEXT) {
            return Err(self.refused(Part::Prompt, format!("input {index} has more than {MAX_TEXT} bytes")));
        }
        if inputs.iter().map(bytes).sum::<usize>() > MAX_TEXTS {
            let reason = format!("all inputs together have more than {MAX_TEXTS} bytes");
            return Err(self.refused(Part::Prompt, reason));
        }
        Ok(())
    }

    /// The tokens of an input, if the model can take them.
    fn ids(&self, index: usize, input: Input) -> Result<Vec<u32>, Event> {
        let refused = |reason: String| self.refused(Part::Prompt, reason);
        let ids = match input {
            Input::Tokens(ids) => ids,
            Input::Text(text) if text.is_empty() => return Err(refused(format!("input {index} is empty"))),
            Input::Text(text) => self
                .tokens
                .encode(&text)
                .map_err(|error| refused(format!("input {index} cannot be tokenised: {error}")))?,
        };
        if ids.is_empty() {
            return Err(refused(format!("input {index} has no tokens")));
        }
        let vocabulary = self.limits.vocabulary;
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            let reason = format!(
                "input {index} has token {id}, but this model has tokens 0 to {}",
                vocabulary - 1
            );
            return Err(refused(reason));
        }
        if ids.len() > self.limits.context {
            add(&self.counters.refused, 1);
            return Err(Event::TooLong {
                input_tokens: u32::try_from(ids.len()).unwrap_or(u32::MAX),
                limit: self.limits.context as u32,
            });
        }
        Ok(ids)
    }
}
