//! What an operator should know of rules that can be loaded and hardly mean what they say.
//!
//! Judges a file for one model. Invariant: a warning never keeps a file from loading.

use std::fmt;

use super::{Allow, RuleSet, When, set::Allowed};

/// A rule that allows more than this share of the vocabulary hardly restricts.
const NEARLY_ALL: f64 = 0.9;

/// What is strange about a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The model's tokens cannot spell the trigger.
    Dead,
    /// These ids are no tokens of the model.
    UnknownIds(Vec<u32>),
    /// Wherever this rule's trigger stands, the earlier rule's stands too.
    Shadowed {
        /// Index of the earlier rule.
        by: usize,
    },
    /// So many of all tokens may come first.
    NearlyEverything {
        /// Allowed.
        allowed: usize,
        /// Tokens of the model.
        of: usize,
    },
    /// It binds the rest of the answer.
    Endless,
}

/// A warning about a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// Its index in the file.
    pub rule: usize,
    /// What is strange.
    pub warning: Warning,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dead => f.write_str("dead: this model's tokens cannot spell the trigger"),
            Self::UnknownIds(ids) => write!(f, "these ids are no tokens of this model: {ids:?}"),
            Self::Shadowed { by } => {
                write!(
                    f,
                    "dead: wherever its trigger stands, rule {} binds first: put this one before it",
                    by + 1
                )
            }
            Self::NearlyEverything { allowed, of } => {
                write!(f, "allows nearly everything: {allowed} of {of} tokens may come first")
            }
            Self::Endless => f.write_str("binds the rest of the answer: give `max_tokens` or `until`"),
        }
    }
}

impl RuleSet {
    /// Everything strange, in the order of the file.
    #[must_use]
    pub fn lint(&self) -> Vec<Lint> {
        let mut lints = Vec::new();
        for rule in 0..self.file.rules.len() {
            lints.extend(self.warnings(rule).into_iter().map(|warning| Lint { rule, warning }));
        }
        lints
    }

    fn warnings(&self, index: usize) -> Vec<Warning> {
        let (rule, ready) = (&self.file.rules[index], &self.rules[index]);
        let vocabulary = self.prompts.vocabulary();
        let mut warnings = Vec::new();
        let spelled: Vec<u8> = vocabulary
            .plain(&rule.trigger)
            .iter()
            .flat_map(|&id| vocabulary.text().get(id))
            .copied()
            .collect();
        // Some tokenizers put a blank before a text.
        if spelled.strip_prefix(b" ").unwrap_or(&spelled)
            != rule.trigger.strip_prefix(' ').unwrap_or(&rule.trigger).as_bytes()
        {
            warnings.push(Warning::Dead);
        }
        if let Allow::Ids(ids) = &rule.allow {
            let unknown: Vec<u32> = ids
                .iter()
                .copied()
                .filter(|&id| id as usize >= vocabulary.size())
                .collect();
            if !unknown.is_empty() {
                warnings.push(Warning::UnknownIds(unknown));
            }
        }
        if let Some(by) = (0..index).find(|&earlier| self.shadows(earlier, index)) {
            warnings.push(Warning::Shadowed { by });
        }
        let (allowed, of) = (ready.first.num_set(), vocabulary.size());
        if allowed as f64 > NEARLY_ALL * of as f64 {
            warnings.push(Warning::NearlyEverything { allowed, of });
        }
        if ready.is_endless && matches!(ready.allowed, Allowed::Text { .. }) {
            warnings.push(Warning::Endless);
        }
        warnings
    }

    /// Whether the earlier rule binds wherever the later could.
    fn shadows(&self, earlier: usize, later: usize) -> bool {
        let (earlier, later) = (&self.file.rules[earlier], &self.file.rules[later]);
        match (earlier.when, later.when) {
            (When::Ends, When::Ends) => later.trigger.ends_with(&earlier.trigger),
            (When::Contains, When::Contains) => later.trigger.contains(&earlier.trigger),
            _ => false,
        }
    }
}
