//! Masks: which tokens may come next, so that an answer has the form that was asked for and keeps to the safety rules.
//!
//! A [`Form`] becomes a [`Compiled`] grammar in the preparation pool; a [`Guide`] follows one answer through it; the
//! [`Helper`] computes the masks of a batch while the model runs. It never changes logits and never draws. Invariant: as
//! long as only tokens of a guide's masks are drawn, the text so far can be completed to one that fits.

mod apart;
mod bare;
mod cache;
mod compiler;
mod form;
mod guide;
mod helper;
mod rules;
mod schema;
mod tokens;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use llguidance::{Matcher, ParserFactory, earley::SlicedBiasComputer, toktrie::InferenceCapabilities};

pub use self::bare::{Grammars, Walk};
pub use self::rules::{
    Allow, Fired, Lint, MAX_RULES, MAX_TRIGGER, Rule, RuleError, RuleFile, RuleSet, TextClass, TextSet, Warning, When,
};
use self::{
    cache::{Cache, Key},
    compiler::{Compiler, Fault},
};
pub(crate) use self::{
    guide::Guide,
    helper::Helper,
    rules::{ActiveRules, Counts, Watch},
};
use crate::{
    job::{Event, Form, Generate, Part},
    model::Prompts,
    stats::{Counters, add},
};

/// What to do with a schema that cannot be guaranteed in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Strictness {
    /// Refuse it.
    Strict,
    /// Guarantee what can be guaranteed, and nothing that contradicts it.
    Lenient,
}

/// Why a form is refused, or why an answer cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// A line for the client.
    pub(crate) reason: String,
    /// Whether it is a safety rule's doing.
    pub(crate) is_by_rule: bool,
}

impl Refusal {
    /// One line, whatever names of the client's are in it.
    fn new(reason: impl Into<String>) -> Self {
        const LONGEST: usize = 500;
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        Self {
            reason: reason.into().chars().map(plain).take(LONGEST).collect(),
            is_by_rule: false,
        }
    }

    /// What the client hears of it.
    pub(crate) fn event(&self, request: &Generate) -> Event {
        let part = match request.form {
            Form::Free => Part::Messages,
            _ => Part::Form,
        };
        Event::Refused {
            part,
            reason: self.reason.clone(),
        }
    }

    /// Counts it.
    pub(crate) fn count(&self, counters: &Counters) {
        add(&counters.refused, 1);
        add(&counters.safety_rejections, usize::from(self.is_by_rule));
    }

    fn by_rule(reason: String) -> Self {
        Self {
            reason,
            is_by_rule: true,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// A grammar at its start, for this model's tokens.
pub(crate) struct Compiled {
    /// A lock, since a matcher is for one thread at a time; held for a copy.
    start: Mutex<Matcher>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Compiled {
    /// A matcher of its own for one answer: no state is shared, so no answer can use up another's bounds.
    fn matcher(&self) -> Matcher {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).deep_clone()
    }
}

/// What all grammars of one model share.
pub(crate) struct Masks {
    prompts: Arc<Prompts>,
    factory: Arc<ParserFactory>,
    compiler: Compiler,
    cache: Mutex<Cache>,
}

impl Masks {
    /// For a model whose turns end with `ends`.
    ///
    /// # Errors
    /// The library's words; not for a vocabulary that has loaded.
    pub(crate) fn new(prompts: &Arc<Prompts>, ends: &[u32]) -> Result<Self, String> {
        let environment = tokens::environment(prompts, ends);
        let slices = SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .map_err(|error| error.to_string())?;
        factory.quiet();
        compiler::set_limits(factory.limits_mut());
        Ok(Self {
            prompts: Arc::clone(prompts),
            factory: Arc::new(factory),
            compiler: Compiler::default(),
            cache: Mutex::default(),
        })
    }

    /// Whether a form is compiled already, so that [`Self::compile`] of it as a strict one takes no time.
    pub(crate) fn knows(&self, form: &Form) -> bool {
        let key = Key::new(form, Strictness::Strict);
        let known = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key);
        known.is_some_and(|outcome| outcome.is_ok())
    }

    /// Compiles a form, or finds it compiled; `None` for a free one. Takes milliseconds, at most [`compiler::PATIENCE`].
    ///
    /// # Errors
    /// Why this form cannot be guaranteed.
    pub(crate) fn compile(&self, form: &Form, strictness: Strictness) -> Result<Option<Arc<Compiled>>, Refusal> {
        if *form == Form::Free {
            return Ok(None);
        }
        let key = Key::new(form, strictness);
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cache().get(&key) {
            return known.map(Some);
        }
        let Some(source) = form::source(form, strictness)? else {
            return Ok(None);
        };
        let outcome = match self.compiler.compile(&self.factory, source, compiler::PATIENCE) {
            Ok(matcher) => Ok(Arc::new(Compiled {
                start: Mutex::new(matcher),
            })),
            Err(Fault::Never(refusal)) => Err(refusal),
            // Not kept: on a quieter machine it may do.
            Err(Fault::NotNow(refusal)) => return Err(refusal),
        };
        cache().put(&key, outcome.clone());
        outcome.map(Some)
    }
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
