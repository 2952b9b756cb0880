//! Triggers, found in a text that comes token by token: one automaton (Aho and Corasick 1975) over all of them.
//!
//! A token may complete a trigger and go on behind it, past the point where the rule has to bind. Such tokens are known
//! for each state of the automaton and are not to be drawn. Invariant: if none of [`Triggers::crossing`] is drawn, every
//! trigger in an answer ends where a token ends, so that [`Triggers::found`] sees it.

use std::collections::HashMap;

use aho_corasick::{
    Anchored,
    automaton::{Automaton, StateID},
    nfa::contiguous::NFA,
};

use crate::model::TextTable;

/// Bytes of all triggers.
const MAX_BYTES: usize = 16 * 1024;

/// How far the text so far is into the triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(StateID);

/// The triggers of a rule set, each with the index of its rule.
pub(super) struct Triggers {
    automaton: NFA,
    start: StateID,
    rules: Vec<usize>,
    /// By state, if there are any: ascending.
    crossing: HashMap<StateID, Box<[u32]>>,
    /// Those that hold a whole trigger: in every state that is not in `crossing`.
    whole: Box<[u32]>,
}

impl Triggers {
    /// For tokens `0..size` of this table.
    ///
    /// # Errors
    /// Too many bytes.
    pub(super) fn new(triggers: &[(usize, &str)], text: &TextTable, size: usize) -> Result<Self, String> {
        if triggers.iter().map(|(_, trigger)| trigger.len()).sum::<usize>() > MAX_BYTES {
            return Err(format!(
                "the triggers up to here have more than {MAX_BYTES} bytes together"
            ));
        }
        let automaton = NFA::new(triggers.iter().map(|(_, trigger)| trigger)).map_err(|error| error.to_string())?;
        let start = automaton.start_state(Anchored::No).map_err(|error| error.to_string())?;
        let mut this = Self {
            automaton,
            start,
            rules: triggers.iter().map(|(rule, _)| *rule).collect(),
            crossing: HashMap::new(),
            whole: Box::default(),
        };
        let ids = 0..size as u32;
        this.whole = ids.clone().filter(|&id| this.holds_whole(text.get(id))).collect();
        let mut sorted: Vec<u32> = ids.filter(|&id| !text.get(id).is_empty()).collect();
        sorted.sort_unstable_by_key(|&id| text.get(id));
        this.find_crossing(triggers, text, &sorted);
        Ok(this)
    }

    fn holds_whole(&self, bytes: &[u8]) -> bool {
        let Some((_, before)) = bytes.split_last() else {
            return false;
        };
        let mut state = self.start;
        before.iter().any(|&byte| {
            state = self.automaton.next_state(Anchored::No, state, byte);
            self.automaton.is_match(state)
        })
    }

    /// For each beginning of a trigger that the text may end with: the tokens that begin with the rest and go on.
    fn find_crossing(&mut self, triggers: &[(usize, &str)], text: &TextTable, sorted: &[u32]) {
        let mut rests: HashMap<&[u8], Vec<&[u8]>> = HashMap::new();
        for (_, trigger) in triggers {
            let bytes = trigger.as_bytes();
            for cut in 1..bytes.len() {
                rests.entry(&bytes[..cut]).or_default().push(&bytes[cut..]);
            }
            // Behind a whole one, another may have begun.
            rests.entry(bytes).or_default();
        }
        for beginning in rests.keys() {
            // A text that ends with this ends with each of its ends too.
            let ends = (0..beginning.len()).filter_map(|from| rests.get(&beginning[from..]));
            let tokens = ends.flatten().flat_map(|rest| begin_with(sorted, text, rest));
            let mut ids: Vec<u32> = tokens.chain(self.whole.iter().copied()).collect();
            ids.sort_unstable();
            ids.dedup();
            if ids.len() > self.whole.len() {
                let Place(state) = self.feed(Place(self.start), beginning);
                self.crossing.insert(state, ids.into());
            }
        }
    }

    /// Before any text.
    pub(super) fn start(&self) -> Place {
        Place(self.start)
    }

    /// Behind more text.
    pub(super) fn feed(&self, place: Place, bytes: &[u8]) -> Place {
        let step = |state, &byte: &u8| self.automaton.next_state(Anchored::No, state, byte);
        Place(bytes.iter().fold(place.0, step))
    }

    /// The first rule whose trigger ends here.
    pub(super) fn found(&self, Place(state): Place) -> Option<usize> {
        if !self.automaton.is_match(state) {
            return None;
        }
        let matches = 0..self.automaton.match_len(state);
        matches
            .map(|index| self.rules[self.automaton.match_pattern(state, index).as_usize()])
            .min()
    }

    /// The tokens that would go past the end of a trigger, ascending.
    pub(super) fn crossing(&self, Place(state): Place) -> &[u32] {
        self.crossing.get(&state).unwrap_or(&self.whole)
    }
}

/// The tokens whose bytes begin with `rest` and go on.
fn begin_with<'a>(sorted: &'a [u32], text: &'a TextTable, rest: &'a [u8]) -> impl Iterator<Item = u32> + 'a {
    let from = sorted.partition_point(|&id| text.get(id) <= rest);
    sorted[from..]
        .iter()
        .copied()
        .take_while(move |&id| text.get(id).starts_with(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::pieces;

    /// Against the definition, for every text of a few tokens.
    #[test]
    fn no_trigger_is_passed_unseen() {
        let words = ["a", "b", "ab", "ba", "aab", "bab", "abab", "c", "bc", "abc", "", "cab"];
        let text = pieces(&words);
        let sets: [&[&str]; 5] = [
            &["ab"],
            &["aba", "b"],
            &["abc", "bca"],
            &["c", "cab"],
            &["bb", "aa", "abab"],
        ];
        for set in sets {
            let numbered: Vec<(usize, &str)> = set.iter().copied().enumerate().collect();
            let triggers = Triggers::new(&numbered, &text, words.len()).expect("few");
            let mut texts: Vec<(String, Place)> = vec![(String::new(), triggers.start())];
            for _ in 0..4 {
                let mut longer = Vec::new();
                for (before, place) in &texts {
                    for (id, word) in words.iter().enumerate() {
                        let after = format!("{before}{word}");
                        // A trigger that ends behind `before` and before the end of `after`.
                        let passed = set
                            .iter()
                            .any(|trigger| (before.len() + 1..after.len()).any(|end| after[..end].ends_with(trigger)));
                        let crosses = triggers.crossing(*place).contains(&(id as u32));
                        assert_eq!(crosses, passed, "{set:?}: {before:?} + {word:?}");
                        let next = triggers.feed(*place, word.as_bytes());
                        let ends = set.iter().position(|trigger| after.ends_with(trigger));
                        assert_eq!(triggers.found(next), ends, "{set:?}: {after:?}");
                        if !crosses {
                            longer.push((after, next));
                        }
                    }
                }
                longer.truncate(400);
                texts = longer;
            }
        }
    }
}
