//! Log probabilities of tokens under the model: before bias, penalties, mask and temperature.
//!
//! It chooses nothing. Invariant: they depend on the row alone, and are finite and at most 0.

use zerohop_simd::{Level, floor_of_best};

use crate::{job::Logprob, model::TextTable, sample::better};

/// What is told of a token that the model holds for impossible: a number, since JSON has no infinity.
pub(crate) const LEAST: f32 = -9999.0;

/// The log probability of `token` and those of the `top` best ones, best first, of equal ones the lowest id first. Costs
/// one pass over the row for the sum, and for `top` another over its few best groups.
pub(crate) fn of(logits: &[f32], token: u32, top: usize, text: &TextTable) -> Logprob {
    let level = Level::best();
    let (mut maxima, mut sums) = (Vec::new(), Vec::new());
    let norm = level.greatest(logits, None, &mut maxima).map(|(_, best)| {
        level.sums(logits, None, best, 1.0, &mut sums);
        let total: f64 = sums.iter().map(|&sum| f64::from(sum)).sum();
        f64::from(best) + total.ln()
    });
    let of = |logit: Option<f32>| match (logit, norm) {
        // Of infinities no sum can be taken; they share all that there is.
        (Some(f32::INFINITY), _) => 0.0,
        (Some(logit), Some(norm)) if f64::from(logit) - norm > LEAST.into() => {
            ((f64::from(logit) - norm) as f32).min(0.0)
        }
        // NaN as well.
        _ => LEAST,
    };
    let mut ids = Vec::new();
    if top > 0 {
        let floor = floor_of_best(&maxima, top);
        level.reaching(logits, None, &maxima, floor, &mut ids);
    }
    let mut best: Vec<(f32, u32)> = ids.into_iter().map(|id| (logits[id as usize], id)).collect();
    if best.len() > top && top > 0 {
        best.select_nth_unstable_by(top - 1, better);
        best.truncate(top);
    }
    best.sort_unstable_by(better);
    Logprob {
        token,
        bytes: text.get(token).to_vec(),
        logprob: Some(of(logits.get(token as usize).copied())),
        top: best
            .into_iter()
            .map(|(logit, id)| (id, text.get(id).to_vec(), of(Some(logit))))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::letters;

    /// The same by f64 throughout.
    fn plain(logits: &[f32], token: usize) -> f64 {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits
            .iter()
            .filter(|logit| !logit.is_nan())
            .map(|&logit| f64::from(logit - best).exp())
            .sum();
        f64::from(logits[token] - best) - sum.ln()
    }

    #[test]
    fn they_are_a_log_softmax() {
        let mut row: Vec<f32> = (0..3001).map(|id| ((id * 7919) % 2003) as f32 / 100.0 - 9.0).collect();
        (row[5], row[6], row[7]) = (f32::NAN, f32::NEG_INFINITY, 30.0);
        (row[900], row[800]) = (12.5, 12.5);
        let text = letters(26);
        let mut order: Vec<u32> = (0..3001).filter(|&id| row[id as usize] > f32::NEG_INFINITY).collect();
        order.sort_by(|&a, &b| better(&(row[a as usize], a), &(row[b as usize], b)));
        for (token, top) in [(0, 0), (7, 1), (9, 5), (800, 20), (3000, 64), (1, 2999), (1, 5000)] {
            let told = of(&row, token, top, &text);
            let close = |got: f32, id: u32| (f64::from(got) - plain(&row, id as usize)).abs() < 1e-5;
            assert!(told.logprob.is_some_and(|got| close(got, token)), "{told:?}");
            assert_eq!(told.top.len(), top.min(order.len()));
            for ((id, bytes, got), want) in told.top.iter().zip(&order) {
                assert_eq!(id, want, "of {top}");
                assert_eq!(bytes, text.get(*id));
                assert!(close(*got, *id), "{id}: {got}");
            }
        }
    }

    #[test]
    fn what_is_no_probability() {
        const INF: f32 = f32::INFINITY;
        let cases: [(&[f32], u32, f32); 7] = [
            (&[1.0, -INF], 1, LEAST),
            (&[1.0, f32::NAN], 1, LEAST),
            (&[1.0, f32::NAN], 0, 0.0),
            (&[INF, 3.0], 0, 0.0),
            (&[INF, 3.0], 1, LEAST),
            (&[f32::NAN], 0, LEAST),
            (&[1.0], 7, LEAST),
        ];
        for (row, token, want) in cases {
            let told = of(row, token, 2, &letters(2));
            assert_eq!(told.logprob, Some(want), "{row:?}");
            assert!(
                told.top.iter().all(|(_, _, got)| (LEAST..=0.0).contains(got)),
                "{told:?}"
            );
        }
    }
}
