//! Medians and spreads.
//!
//! Invariant: of no samples there is no figure.

/// A median with the least and the greatest sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

/// Of these samples; `None` without any.
pub(super) fn spread(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let mut samples: Vec<f64> = samples.into_iter().collect();
    samples.sort_by(f64::total_cmp);
    let (least, greatest) = (*samples.first()?, *samples.last()?);
    let middle = samples.len() / 2;
    let median = match samples.len() % 2 {
        1 => samples[middle],
        _ => f64::midpoint(samples[middle - 1], samples[middle]),
    };
    Some(Spread {
        median,
        least,
        greatest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (samples, expected) in [
            (&[][..], None),
            (&[3.0], Some((3.0, 3.0, 3.0))),
            (&[3.0, 1.0], Some((2.0, 1.0, 3.0))),
            (&[9.0, 1.0, 2.0], Some((2.0, 1.0, 9.0))),
        ] {
            let found = spread(samples.iter().copied()).map(|spread| (spread.median, spread.least, spread.greatest));
            assert_eq!(found, expected);
        }
    }
}
