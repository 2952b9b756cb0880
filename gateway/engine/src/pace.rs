//! How much of a prompt is computed between two tokens of those who are being answered.
//!
//! Pure arithmetic on measured times; it decides when something is computed, never what. Invariant: while answers run, a
//! piece of a prompt takes about as long as the decode step beside it, so the gap between two tokens at most doubles,
//! whatever the length of the prompt.

use std::time::Duration;

/// Fewer tokens are not worth a run of the model: reading its weights takes as long as computing with them. On Gemma 3
/// 270M a piece of 4 beside one running answer makes the 99th percentile of its gaps 2.3 times as long, one of 8 2.6 times.
const LEAST: f64 = 4.0;

/// A piece is aimed at this part of a decode step, so that small errors of the measurement stay below one step.
const AIM: f64 = 0.9;

/// Smallest and largest factor by which a piece follows one measurement, which may be a bad one.
const FOLLOW: (f64, f64) = (0.5, 1.25);

/// The size of pieces, by what the last ones took.
pub(crate) struct Pace {
    chunk: usize,
    tokens: f64,
}

impl Pace {
    /// Pieces of at most `chunk` tokens.
    pub(crate) fn new(chunk: usize) -> Self {
        Self {
            chunk,
            tokens: LEAST.min(chunk as f64),
        }
    }

    /// Tokens of prompts for this step. `running`: answers wait for their next token.
    pub(crate) fn budget(&self, running: bool) -> usize {
        if running { self.tokens as usize } else { self.chunk }
    }

    /// `tokens` of prompts took `prefill` beside a decode step of `decode`.
    pub(crate) fn learn(&mut self, decode: Duration, prefill: Duration, tokens: usize) {
        // A piece that was much smaller than it might have been says little.
        if decode.is_zero() || prefill.is_zero() || (tokens as f64) < self.tokens.floor() {
            return;
        }
        let ratio = AIM * decode.as_secs_f64() / prefill.as_secs_f64();
        let tokens = self.tokens * ratio.clamp(FOLLOW.0, FOLLOW.1);
        self.tokens = tokens.clamp(LEAST.min(self.chunk as f64), self.chunk as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that needs so many microseconds for a run, and for each token of it.
    fn settled(pace: &mut Pace, decode: u64, run: u64, token: u64) -> usize {
        for _ in 0..60 {
            let tokens = pace.budget(true);
            let prefill = Duration::from_micros(run + token * tokens as u64);
            pace.learn(Duration::from_micros(decode), prefill, tokens);
        }
        pace.budget(true)
    }

    #[test]
    fn a_piece_takes_as_long_as_a_decode_step() {
        let mut pace = Pace::new(128);
        assert_eq!(pace.budget(false), 128, "nobody waits");
        let tokens = settled(&mut pace, 50_000, 10_000, 1_000);
        assert!((33..=36).contains(&tokens), "{tokens}");
        assert_eq!(
            settled(&mut pace, 1_000_000, 10_000, 1_000),
            128,
            "the chunk is the most"
        );
        assert_eq!(settled(&mut pace, 10_000, 27_000, 1_000), 4, "and four the least");
        pace.learn(Duration::from_millis(10), Duration::from_millis(1), 2);
        assert_eq!(pace.budget(true), 4, "two tokens say nothing of four");
    }

    #[test]
    fn a_small_chunk_is_a_bound_too() {
        let mut pace = Pace::new(4);
        assert_eq!((pace.budget(true), settled(&mut pace, 1, 100, 1)), (4, 4));
    }
}
