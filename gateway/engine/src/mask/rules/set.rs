//! A rule file for the tokens of one model.
//!
//! Made when a file is loaded, and never changed: answers in progress keep the one they began with. Invariant: every rule
//! of a set has at least one token that may come first.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use aho_corasick::AhoCorasick;
use llguidance::toktrie::SimpleVob;

use super::{Allow, MAX_RULES, MAX_TRIGGER, Rule, RuleError, RuleFile, When, triggers::Triggers, value, watch::Watch};
use crate::{
    job::{Conversation, Form, Prompt, Role},
    mask::{Compiled, Masks, Strictness},
    model::Prompts,
};

/// How often each rule has bound, by its name, over all sets of an engine.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<BTreeMap<Arc<str>, Arc<AtomicU64>>>);

impl Counts {
    fn of(&self, name: &Arc<str>) -> Arc<AtomicU64> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counts.entry(Arc::clone(name)).or_default())
    }

    /// Every rule that there is or was.
    pub(crate) fn snapshot(&self) -> Vec<(Arc<str>, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|(name, count)| (Arc::clone(name), count.load(Relaxed)))
            .collect()
    }
}

/// The rules of a file for one model.
pub struct RuleSet {
    pub(super) file: RuleFile,
    pub(super) rules: Vec<Compact>,
    pub(super) triggers: Triggers,
    /// Triggers that may stand anywhere, and their rules.
    contained: Option<(AhoCorasick, Vec<usize>)>,
    pub(super) prompts: Arc<Prompts>,
}

/// A rule, ready.
pub(super) struct Compact {
    pub(super) allowed: Allowed,
    /// `None`: until the value is complete.
    pub(super) max_tokens: Option<u32>,
    pub(super) fired: Arc<AtomicU64>,
    /// What may come first.
    pub(super) first: SimpleVob,
    pub(super) is_endless: bool,
}

/// What may follow a trigger.
pub(super) enum Allowed {
    /// These tokens.
    Ids(SimpleVob),
    /// A text: see [`value::Value`].
    Text {
        within: Arc<Compiled>,
        alone: Option<Arc<Compiled>>,
    },
}

/// A rule that binds the beginning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    /// Its index in the file.
    pub rule: usize,
    /// The tokens that may come first, ascending.
    pub tokens: Vec<u32>,
}

impl RuleSet {
    pub(crate) fn new(file: &RuleFile, masks: &Masks, counts: &Counts) -> Result<Self, RuleError> {
        let fault = |rule: usize, reason: String| RuleError { rule, reason };
        if file.rules.len() > MAX_RULES {
            return Err(fault(MAX_RULES, format!("a file has at most {MAX_RULES} rules")));
        }
        let mut rules = Vec::with_capacity(file.rules.len());
        let mut triggers = Vec::new();
        let mut contained = (Vec::new(), Vec::new());
        for (index, rule) in file.rules.iter().enumerate() {
            if rule.trigger.is_empty() || rule.trigger.len() > MAX_TRIGGER {
                return Err(fault(index, format!("a trigger has 1 to {MAX_TRIGGER} bytes")));
            }
            let ready = Compact::new(rule, masks, counts.of(&rule.name)).map_err(|reason| fault(index, reason))?;
            rules.push(ready);
            match rule.when {
                When::Ends => triggers.push((index, rule.trigger.as_str())),
                When::Contains => {
                    contained.0.push(rule.trigger.as_str());
                    contained.1.push(index);
                }
            }
        }
        let last = file.rules.len().saturating_sub(1);
        let vocabulary = masks.prompts.vocabulary();
        let triggers =
            Triggers::new(&triggers, vocabulary.text(), vocabulary.size()).map_err(|reason| fault(last, reason))?;
        let contained = match contained {
            (texts, _) if texts.is_empty() => None,
            (texts, indices) => Some((
                AhoCorasick::new(texts).map_err(|error| fault(last, error.to_string()))?,
                indices,
            )),
        };
        Ok(Self {
            file: file.clone(),
            rules,
            triggers,
            contained,
            prompts: Arc::clone(&masks.prompts),
        })
    }

    /// The rule, if any, that binds the beginning of an answer to this.
    #[must_use]
    pub fn fires(&self, conversation: &Conversation) -> Option<Fired> {
        let rule = self.first_rule(&Prompt::Chat(conversation.clone()))?;
        let mut tokens = Vec::new();
        self.rules[rule].first.iter_set_entries(|id| tokens.push(id as u32));
        Some(Fired { rule, tokens })
    }

    /// The tokens that may come first behind the trigger of a rule, ascending.
    #[must_use]
    pub fn first_tokens(&self, rule: usize) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.rules[rule].first.iter_set_entries(|id| tokens.push(id as u32));
        tokens
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &RuleFile {
        &self.file
    }

    /// What follows an answer to this prompt.
    pub(crate) fn watch(self: &Arc<Self>, prompt: &Prompt) -> Watch {
        let rule = self.first_rule(prompt);
        let continued = match prompt {
            Prompt::Chat(conversation) => match conversation.messages.last() {
                Some(last) if last.role == Role::Assistant => last.content.clone().into_bytes(),
                _ => Vec::new(),
            },
            prompt => self.tail(prompt),
        };
        Watch::new(Arc::clone(self), &continued, rule)
    }

    /// The first rule in the file's order whose trigger stands in the prompt as it must.
    fn first_rule(&self, prompt: &Prompt) -> Option<usize> {
        let at_end = self
            .triggers
            .found(self.triggers.feed(self.triggers.start(), &self.tail(prompt)));
        let within = self.contained.as_ref().and_then(|(automaton, rules)| {
            let find = |text: &str| {
                let found = automaton.find_overlapping_iter(text);
                found.map(|found| rules[found.pattern().as_usize()]).min()
            };
            match prompt {
                Prompt::Chat(conversation) => conversation
                    .messages
                    .iter()
                    .filter_map(|message| find(&message.content))
                    .min(),
                Prompt::Text(text) => find(text),
                Prompt::Tokens(ids) => find(&String::from_utf8_lossy(&self.bytes(ids))),
            }
        });
        at_end.into_iter().chain(within).min()
    }

    /// The end of what the model answers to: the last message as its author wrote it, or the end of the text. No trigger
    /// is longer.
    fn tail(&self, prompt: &Prompt) -> Vec<u8> {
        let end = |bytes: &[u8]| bytes[bytes.len().saturating_sub(MAX_TRIGGER)..].to_vec();
        match prompt {
            Prompt::Chat(conversation) => conversation
                .messages
                .last()
                .map(|message| end(message.content.as_bytes()))
                .unwrap_or_default(),
            Prompt::Text(text) => end(text.as_bytes()),
            // A token with text has at least a byte.
            Prompt::Tokens(ids) => end(&self.bytes(ids)),
        }
    }

    fn bytes(&self, ids: &[u32]) -> Vec<u8> {
        let text = self.prompts.vocabulary().text();
        ids.iter().flat_map(|&id| text.get(id)).copied().collect()
    }
}

impl Compact {
    fn new(rule: &Rule, masks: &Masks, fired: Arc<AtomicU64>) -> Result<Self, String> {
        if let Allow::Ids(ids) = &rule.allow {
            let size = masks.prompts.vocabulary().size();
            let mut set = SimpleVob::alloc(size);
            ids.iter()
                .filter(|&&id| (id as usize) < size)
                .for_each(|&id| set.allow_token(id));
            if set.is_zero() {
                return Err(format!(
                    "none of these ids is a token of this model: its ids are 0 to {}",
                    size - 1
                ));
            }
            return Ok(Self {
                first: set.clone(),
                allowed: Allowed::Ids(set),
                max_tokens: Some(rule.max_tokens.unwrap_or(1)),
                fired,
                is_endless: false,
            });
        }
        let value = value::value(rule)?.ok_or("it allows nothing")?;
        let compile = |form: &Form| {
            let compiled = masks
                .compile(form, Strictness::Strict)
                .map_err(|refusal| refusal.reason)?;
            compiled.ok_or_else(|| "it allows everything".to_owned())
        };
        let within = compile(&value.within)?;
        let alone = value.alone.as_ref().map(compile).transpose()?;
        let first = within.matcher().compute_mask_or_eos();
        let first = first.map_err(|_| "no token of this model can follow the trigger")?;
        Ok(Self {
            allowed: Allowed::Text { within, alone },
            max_tokens: rule.max_tokens,
            fired,
            first,
            is_endless: value.is_endless,
        })
    }
}

/// The rules in force for an engine.
#[derive(Default)]
pub(crate) struct ActiveRules {
    /// Looked at once for each job that is prepared.
    set: RwLock<Option<Arc<RuleSet>>>,
    counts: Counts,
}

impl ActiveRules {
    /// Those in force; `None` if there are none.
    pub(crate) fn get(&self) -> Option<Arc<RuleSet>> {
        self.set.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn compile(&self, file: &RuleFile, masks: &Masks) -> Result<Arc<RuleSet>, RuleError> {
        RuleSet::new(file, masks, &self.counts).map(Arc::new)
    }

    pub(crate) fn replace(&self, set: Option<Arc<RuleSet>>) {
        // Without a rule nothing need be watched.
        let set = set.filter(|set| !set.file.rules.is_empty());
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = set;
    }

    pub(crate) fn fired(&self) -> Vec<(Arc<str>, u64)> {
        self.counts.snapshot()
    }
}
