//! The safety rules over one answer: which one binds, since when, and until when.
//!
//! Invariant: at most one rule binds. While it does, triggers are not looked for; the text that it allowed still counts
//! as the beginning of one.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use llguidance::{Matcher, toktrie::SimpleVob};

use super::{
    set::{Allowed, RuleSet},
    triggers::Place,
};
use crate::mask::Refusal;

/// The rules of one answer.
pub(crate) struct Watch {
    set: Arc<RuleSet>,
    place: Place,
    binding: Option<Binding>,
}

/// A rule that binds.
struct Binding {
    rule: usize,
    /// Tokens that it still binds at most.
    left: Option<u32>,
    text: Option<Text>,
}

/// Where the text behind the trigger is in its value.
struct Text {
    within: Matcher,
    alone: Option<Matcher>,
}

impl Watch {
    /// At the start of an answer that continues this text, bound by this rule.
    pub(super) fn new(set: Arc<RuleSet>, continued: &[u8], rule: Option<usize>) -> Self {
        let place = set.triggers.feed(set.triggers.start(), continued);
        let mut this = Self {
            set,
            place,
            binding: None,
        };
        if let Some(rule) = rule {
            this.bind(rule);
        }
        this
    }

    fn bind(&mut self, rule: usize) {
        let ready = &self.set.rules[rule];
        ready.fired.fetch_add(1, Relaxed);
        let text = match &ready.allowed {
            Allowed::Ids(_) => None,
            Allowed::Text { within, alone } => Some(Text {
                within: within.matcher(),
                alone: alone.as_ref().map(|alone| alone.matcher()),
            }),
        };
        self.binding = Some(Binding {
            rule,
            left: ready.max_tokens,
            text,
        });
    }

    /// Whether the next token is bound at all.
    pub(crate) fn binds(&self) -> bool {
        self.binding.is_some() || !self.set.triggers.crossing(self.place).is_empty()
    }

    /// What of `form` (`None`: everything) the rules allow.
    ///
    /// # Errors
    /// Nothing.
    pub(crate) fn restrict(&mut self, form: Option<SimpleVob>) -> Result<Option<SimpleVob>, Refusal> {
        let crossing = match &self.binding {
            // It cannot be left within a token, so none can pass a trigger unseen.
            Some(binding) if binding.text.as_ref().is_none_or(|text| text.alone.is_none()) => &[],
            _ => self.set.triggers.crossing(self.place),
        };
        let had_form = form.is_some();
        let size = self.set.prompts.vocabulary().size();
        let mut mask = match &mut self.binding {
            None if crossing.is_empty() => return Ok(form),
            None => form.unwrap_or_else(|| SimpleVob::alloc_ones(size)),
            Some(binding) => {
                let mut mask = binding.allowed(&self.set)?;
                if let Some(form) = form {
                    mask.and(&form);
                }
                mask
            }
        };
        crossing.iter().for_each(|&id| mask.disallow_token(id));
        if mask.is_zero() {
            return Err(self.nothing_left(had_form));
        }
        Ok(Some(mask))
    }

    fn nothing_left(&self, had_form: bool) -> Refusal {
        let what = match &self.binding {
            Some(binding) => format!("the safety rule {:?}", self.set.file.rules[binding.rule].name),
            None => "a safety rule's trigger".into(),
        };
        let and = if had_form {
            " together with the form that was asked for"
        } else {
            ""
        };
        Refusal::by_rule(format!("{what}{and} leaves no token that could come next"))
    }

    /// Takes a token that was drawn, with its bytes.
    pub(crate) fn commit(&mut self, token: u32, bytes: &[u8]) {
        self.place = self.set.triggers.feed(self.place, bytes);
        if self.binding.as_mut().is_some_and(|binding| binding.is_over_with(token)) {
            self.binding = None;
        }
        // A token without text leaves a trigger that was seen before at the end.
        if self.binding.is_none()
            && !bytes.is_empty()
            && let Some(rule) = self.set.triggers.found(self.place)
        {
            self.bind(rule);
        }
    }
}

impl Binding {
    fn allowed(&mut self, set: &RuleSet) -> Result<SimpleVob, Refusal> {
        let ready = &set.rules[self.rule];
        match (&ready.allowed, &mut self.text) {
            (Allowed::Ids(ids), _) => Ok(ids.clone()),
            (Allowed::Text { .. }, Some(text)) => text.within.compute_mask_or_eos().map_err(|_| {
                let name = &set.file.rules[self.rule].name;
                Refusal::by_rule(format!(
                    "no token of this model can follow here by the safety rule {name:?}"
                ))
            }),
            (Allowed::Text { .. }, None) => Err(Refusal::by_rule("a safety rule lost its place".into())),
        }
    }

    /// One more token; whether the rule binds no longer.
    fn is_over_with(&mut self, token: u32) -> bool {
        let is_last = self.left.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        let is_complete = self.text.as_mut().is_some_and(|text| {
            let over = |matcher: &mut Matcher| matcher.consume_token(token).is_err() || matcher.is_stopped();
            match &mut text.alone {
                // What the value alone does not take is behind it. A number that cannot grow still binds what follows: no
                // digit may.
                Some(alone) => alone.consume_token(token).is_err() || over(&mut text.within),
                None => over(&mut text.within),
            }
        });
        is_last || is_complete
    }
}
