//! Safety rules: behind a trigger, only certain tokens are allowed.
//!
//! A [`RuleFile`] says what an operator wants, in texts and ids; a [`RuleSet`] is the same for the tokens of one model; a
//! [`Watch`] follows one answer. Nothing is generated and taken back: a token is ruled out before it is drawn. Invariant:
//! an answer that shows a trigger goes on within the rule's set, however the tokenizer cuts the text.

mod lint;
mod number;
mod set;
mod triggers;
mod value;
mod watch;

use std::{fmt, sync::Arc};

pub use self::{
    lint::{Lint, Warning},
    set::{Fired, RuleSet},
};
pub(crate) use self::{
    set::{ActiveRules, Counts},
    watch::Watch,
};

/// All rules, in order: of those whose trigger is there, the first binds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleFile {
    /// At most 256.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// For metrics and messages; unique.
    pub name: Arc<str>,
    /// The text that makes the rule bind, case and blanks as written; never empty.
    pub trigger: String,
    /// Where the trigger must stand.
    pub when: When,
    /// What may follow.
    pub allow: Allow,
    /// Bind at most so many tokens; at least 1. `None`: one for ids, otherwise until the value is complete.
    pub max_tokens: Option<u32>,
    /// Bind until this text, which is allowed where the value could be complete; never empty. Not for ids and grammars.
    pub until: Option<String>,
}

/// Where a trigger must stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At the end of what the model answers to, or of the answer so far.
    Ends,
    /// Anywhere in the messages; the rule binds the beginning of the answer.
    Contains,
}

/// What may follow a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// These tokens; never empty.
    Ids(Vec<u32>),
    /// One of these, perhaps behind one blank; never empty.
    Texts(Vec<TextSet>),
    /// What this regular expression matches as a whole.
    Regex(String),
    /// One of these texts, perhaps behind one blank; never empty.
    Choice(Vec<String>),
    /// What this Lark grammar produces.
    Grammar(String),
}

/// A set of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextSet {
    /// The whole numbers of this range in decimal, without leading zeros. A number ends before anything but a digit.
    Numbers {
        /// The least.
        from: u64,
        /// The greatest; not less than the least.
        to: u64,
    },
    /// One or more characters of a class.
    Class(TextClass),
    /// This text.
    Literal(String),
}

/// A class of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextClass {
    /// 0 to 9.
    Digits,
    /// Letters of any script.
    Letters,
    /// Small letters.
    Lowercase,
    /// Capital letters.
    Uppercase,
    /// Letters and decimal digits of any script.
    Alphanumeric,
    /// 0 to 9, a to f, A to F.
    Hex,
    /// Blanks, tabs, line ends and their like.
    Whitespace,
    /// Punctuation.
    Punctuation,
}

impl TextClass {
    /// Every class by its name in a rule file.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("digits", Self::Digits),
        ("letters", Self::Letters),
        ("lowercase", Self::Lowercase),
        ("uppercase", Self::Uppercase),
        ("alphanumeric", Self::Alphanumeric),
        ("hex", Self::Hex),
        ("whitespace", Self::Whitespace),
        ("punctuation", Self::Punctuation),
    ];
}

/// Why rules do not fit a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// Index of the rule.
    pub rule: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}", self.rule + 1, self.reason)
    }
}

impl std::error::Error for RuleError {}

/// Rules of one file.
pub const MAX_RULES: usize = 256;
/// Bytes of a trigger.
pub const MAX_TRIGGER: usize = 256;

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
