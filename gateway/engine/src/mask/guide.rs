//! What binds one answer: where it is in its grammar, and which tokens may come next.
//!
//! It belongs to one answer and shares no state with another. Invariant: a mask holds exactly the tokens that the form
//! and the safety rules allow together, whenever and on whatever thread it is computed; it is never empty: that is a
//! fault, which ends the answer.

use std::time::Duration;

use llguidance::{Matcher, api::StopReason, toktrie::SimpleVob};

use super::{Compiled, Refusal, Watch};

/// The constraints of one answer.
pub(crate) struct Guide {
    form: Option<Matcher>,
    watch: Option<Watch>,
    /// For the next token, once it is computed; `None`: every token is allowed.
    mask: Option<SimpleVob>,
    is_computed: bool,
    fault: Option<Refusal>,
    /// Time on a processor that its masks have taken.
    spent: Duration,
}

impl Guide {
    /// At the start of an answer.
    pub(crate) fn new(form: Option<&Compiled>, watch: Option<Watch>) -> Self {
        Self {
            form: form.map(Compiled::matcher),
            watch,
            mask: None,
            is_computed: false,
            fault: None,
            spent: Duration::ZERO,
        }
    }

    /// Whether there is a mask to compute before the next token.
    pub(crate) fn wants_mask(&self) -> bool {
        let binds = self.form.is_some() || self.watch.as_ref().is_some_and(Watch::binds);
        binds && !self.is_computed && self.fault.is_none()
    }

    /// Computes the mask of the next token, if that is not done.
    pub(crate) fn compute(&mut self) {
        if self.is_computed || self.fault.is_some() {
            return;
        }
        self.is_computed = true;
        let begun = work();
        match self.allowed() {
            Ok(mask) => self.mask = mask,
            Err(refusal) => self.fault = Some(refusal),
        }
        self.spend(begun);
    }

    /// Counts the work since then, and gives up on a form that takes more than its share: everybody waits for the masks of a
    /// step, and an ambiguous grammar's cost grows with the answer.
    fn spend(&mut self, begun: Duration) {
        self.spent += work().saturating_sub(begun);
        if self.spent > SHARE && self.fault.is_none() {
            self.fault = Some(Refusal::new(
                "the form takes too much time to be followed: make it simpler",
            ));
        }
    }

    fn allowed(&mut self) -> Result<Option<SimpleVob>, Refusal> {
        let form = match &mut self.form {
            Some(form) => {
                let mask = form.compute_mask_or_eos();
                Some(mask.map_err(|_| stuck(form.stop_reason()))?)
            }
            None => None,
        };
        match &mut self.watch {
            Some(watch) => watch.restrict(form),
            None => Ok(form),
        }
    }

    /// One bit for each token that may come next, from the lowest bit of the first word; `None`: every token. Only after
    /// [`Guide::compute`].
    pub(crate) fn mask(&self) -> Option<&[u32]> {
        debug_assert!(
            self.is_computed || self.fault.is_some(),
            "a mask is computed before it is used"
        );
        self.mask.as_ref().map(SimpleVob::as_slice)
    }

    /// Why the answer cannot go on.
    pub(crate) fn fault(&self) -> Option<&Refusal> {
        self.fault.as_ref()
    }

    /// Whether a mask binds the token that was drawn last.
    pub(crate) fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    /// Takes the token that was drawn, no end token, and its bytes. True: the form is complete and nothing can follow.
    pub(crate) fn commit(&mut self, token: u32, bytes: &[u8]) -> bool {
        self.is_computed = false;
        self.mask = None;
        if let Some(watch) = &mut self.watch {
            watch.commit(token, bytes);
        }
        let Some(form) = &mut self.form else {
            return false;
        };
        let begun = work();
        if form.consume_token(token).is_err() {
            self.fault = Some(stuck(form.stop_reason()));
            return false;
        }
        let complete = form.is_stopped() && form.stop_reason().is_ok();
        self.spend(begun);
        complete
    }
}

/// Time on a processor for all masks of one answer. Of 1.5 million masks of real schemas one took 38 µs on average, so this is
/// what 26,000 tokens take.
const SHARE: Duration = Duration::from_secs(1);

/// Time that this thread had on a processor: waiting for one counts for nobody.
fn work() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What a matcher that can go no further means for the client.
fn stuck(reason: StopReason) -> Refusal {
    Refusal::new(match reason {
        StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
            "the form is too complex to be followed from here: make it simpler"
        }
        StopReason::NoExtensionBias => "no token of this model's vocabulary fits the form here",
        _ => "the form cannot be followed from here",
    })
}
