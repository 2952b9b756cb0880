//! Compiled grammars by what they were compiled from.
//!
//! Bounded in number and in bytes; what was used least lately goes first. Invariant: what is found was compiled from
//! exactly what is asked for (a SHA-256 stands for it).

use std::{collections::HashMap, sync::Arc};

use sha2::{Digest, Sha256};

use super::{Compiled, Refusal, Strictness};
use crate::job::Form;

/// Grammars kept.
const MOST: usize = 256;
/// Their bytes, as [`cost`] estimates them.
const MOST_BYTES: usize = 64 << 20;

/// What a grammar was compiled from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    digest: [u8; 32],
    bytes: usize,
}

impl Key {
    pub(super) fn new(form: &Form, strictness: Strictness) -> Self {
        let mut hash = Sha256::new();
        let mut bytes = 0;
        let mut put = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
            bytes += part.len();
        };
        put(&[strictness as u8]);
        match form {
            Form::Free => put(b"free"),
            Form::Object => put(b"object"),
            Form::Schema(text) => [b"schema".as_slice(), text.as_bytes()].into_iter().for_each(put),
            Form::Regex(text) => [b"regex".as_slice(), text.as_bytes()].into_iter().for_each(put),
            Form::Grammar(text) => [b"grammar".as_slice(), text.as_bytes()].into_iter().for_each(put),
            Form::Choice(texts) => {
                put(b"choice");
                texts.iter().for_each(|text| put(text.as_bytes()));
            }
        }
        Self {
            digest: hash.finalize().into(),
            bytes,
        }
    }

    /// An estimate of what the compiled grammar holds: measured schemas take 10 to 40 times their text, and the lexer's
    /// tables some 100 kB.
    fn cost(&self) -> usize {
        100_000 + 40 * self.bytes
    }
}

/// A grammar, or why there is none.
type Outcome = Result<Arc<Compiled>, Refusal>;

/// The cache.
#[derive(Default)]
pub(super) struct Cache {
    entries: HashMap<Key, (u64, Outcome)>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

impl Cache {
    pub(super) fn get(&mut self, key: &Key) -> Option<Outcome> {
        self.clock += 1;
        let (used, outcome) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(outcome.clone())
    }

    pub(super) fn put(&mut self, key: &Key, outcome: Outcome) {
        self.clock += 1;
        self.bytes += key.cost();
        if let Some(_same) = self.entries.insert(key.clone(), (self.clock, outcome)) {
            self.bytes -= key.cost();
        }
        while self.entries.len() > MOST || (self.bytes > MOST_BYTES && self.entries.len() > 1) {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.entries.remove(&oldest);
            self.bytes -= oldest.cost();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_their_parts_are_told_apart() {
        let forms = [
            Form::Object,
            Form::Schema("a".into()),
            Form::Regex("a".into()),
            Form::Grammar("a".into()),
            Form::Choice(vec!["a".into(), "b".into()]),
            Form::Choice(vec!["ab".into()]),
            Form::Choice(vec!["a".into(), "b".into(), String::new()]),
        ];
        let mut keys = Vec::new();
        for form in &forms {
            keys.extend([Strictness::Strict, Strictness::Lenient].map(|strictness| Key::new(form, strictness)));
        }
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }

    #[test]
    fn the_least_lately_used_goes_first() {
        let key = |n: usize| Key::new(&Form::Schema(n.to_string()), Strictness::Strict);
        let mut cache = Cache::default();
        for n in 0..MOST {
            cache.put(&key(n), Err(Refusal::new(n.to_string())));
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(&key(MOST), Err(Refusal::new("new")));
        assert!(cache.get(&key(1)).is_none(), "it was used before all others");
        assert_eq!(cache.get(&key(0)).map(|outcome| outcome.is_err()), Some(true));
        assert_eq!(cache.entries.len(), MOST);
        let large = Key::new(&Form::Schema("x".repeat(MOST_BYTES / 40)), Strictness::Strict);
        cache.put(&large, Err(Refusal::new("large")));
        assert_eq!(cache.entries.len(), 1, "nothing beside it fits");
        assert!(cache.get(&large).is_some());
        assert_eq!(cache.bytes, large.cost());
    }
}
