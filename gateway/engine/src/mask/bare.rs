//! Masks over a tokenizer alone, without a model: to measure them, and to try forms and rules.
//!
//! Runs nothing. Invariant: the masks are those that an engine with this tokenizer would use.

use std::sync::Arc;

use super::{Counts, Guide, Masks, RuleError, RuleFile, RuleSet, Strictness};
use crate::{job::Form, model::Prompts};

/// The grammars of a tokenizer.
pub struct Grammars {
    masks: Masks,
}

impl Grammars {
    /// Of a tokenizer.json, for a model whose turns end with `ends`.
    ///
    /// # Errors
    /// What is wrong with the file, in a line.
    pub fn new(tokenizer: &[u8], ends: &[u32]) -> Result<Self, String> {
        let prompts = Arc::new(Prompts::without_template(tokenizer)?);
        Ok(Self {
            masks: Masks::new(&prompts, ends)?,
        })
    }

    /// An answer of this form at its start; `None` for a free form. `strict`: refuse a schema that cannot be guaranteed in
    /// full.
    ///
    /// # Errors
    /// Why the form is refused.
    pub fn start(&self, form: &Form, strict: bool) -> Result<Option<Walk>, String> {
        let strictness = if strict {
            Strictness::Strict
        } else {
            Strictness::Lenient
        };
        let compiled = self.masks.compile(form, strictness).map_err(|refusal| refusal.reason)?;
        Ok(compiled.map(|compiled| Walk(Guide::new(Some(&compiled), None))))
    }

    /// Safety rules for this tokenizer.
    ///
    /// # Errors
    /// The first rule that does not fit.
    pub fn rules(&self, file: &RuleFile) -> Result<RuleSet, RuleError> {
        RuleSet::new(file, &self.masks, &Counts::default())
    }

    /// The tokens of a text by itself.
    #[must_use]
    pub fn ids(&self, text: &str) -> Vec<u32> {
        self.masks.prompts.vocabulary().plain(text)
    }

    /// The bytes that a token stands for.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.masks.prompts.vocabulary().text().get(id)
    }

    /// One more than the highest id.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.masks.prompts.vocabulary().size()
    }
}

/// An answer on its way through its form.
pub struct Walk(Guide);

impl Walk {
    /// One bit for each token that may come next, from the lowest bit of the first word.
    ///
    /// # Errors
    /// Why the answer cannot go on.
    pub fn mask(&mut self) -> Result<&[u32], String> {
        self.0.compute();
        match self.0.fault() {
            Some(refusal) => Err(refusal.reason.clone()),
            None => Ok(self.0.mask().unwrap_or_default()),
        }
    }

    /// Takes a token of the mask, no end token. True: the form is complete.
    pub fn commit(&mut self, token: u32) -> bool {
        self.0.commit(token, &[])
    }
}
