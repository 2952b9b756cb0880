//! Which tokens a sequence has already, for the penalties on them.
//!
//! It never looks at logits. Invariant: a request without penalties keeps nothing and pays nothing; what is kept is
//! bounded by the vocabulary and by the context.

use crate::job::Sampling;

/// The tokens of a prompt and its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// Ids in order, and how often the answer has each: 0 for those of the prompt alone. `None`: nobody asks.
    counts: Option<Vec<(u32, u32)>>,
}

impl History {
    /// Of a prompt without an answer yet.
    pub(crate) fn new(sampling: &Sampling, prompt: &[u32]) -> Self {
        let repetition = sampling.repetition_penalty != 1.0;
        let answer = sampling.frequency_penalty != 0.0 || sampling.presence_penalty != 0.0;
        if !repetition && !answer {
            return Self::default();
        }
        // Only repetition counts the prompt.
        let mut counts: Vec<(u32, u32)> = match repetition {
            true => prompt.iter().map(|&token| (token, 0)).collect(),
            false => Vec::new(),
        };
        counts.sort_unstable();
        counts.dedup();
        Self { counts: Some(counts) }
    }

    /// One more token of the answer.
    pub(crate) fn push(&mut self, token: u32) {
        let Some(counts) = &mut self.counts else { return };
        match counts.binary_search_by_key(&token, |&(id, _)| id) {
            Ok(at) => counts[at].1 += 1,
            Err(at) => counts.insert(at, (token, 1)),
        }
    }

    /// Each token that counts, with how often the answer has it; nothing where no penalty is asked for.
    pub(crate) fn counts(&self) -> &[(u32, u32)] {
        self.counts.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts() {
        let repetition = Sampling {
            repetition_penalty: 1.1,
            ..Sampling::default()
        };
        let presence = Sampling {
            presence_penalty: 0.1,
            ..Sampling::default()
        };
        /// Penalties, the prompt, the answer, and the counts.
        type Case<'a> = (&'a Sampling, &'a [u32], &'a [u32], &'a [(u32, u32)]);
        let cases: [Case; 4] = [
            (&Sampling::default(), &[1, 2], &[3, 3], &[]),
            (&repetition, &[9, 2, 9], &[], &[(2, 0), (9, 0)]),
            (&repetition, &[9, 2], &[5, 9, 5, 1], &[(1, 1), (2, 0), (5, 2), (9, 1)]),
            (&presence, &[9, 2], &[5, 9, 5], &[(5, 2), (9, 1)]),
        ];
        for (sampling, prompt, answer, want) in cases {
            let mut history = History::new(sampling, prompt);
            for &token in answer {
                history.push(token);
            }
            assert_eq!(history.counts(), want, "{prompt:?} {answer:?}");
        }
    }
}
