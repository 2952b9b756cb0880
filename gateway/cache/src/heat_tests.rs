//! Tests of [`super`].

use proptest::prelude::*;

use super::*;

/// The rule as it is written: a table of entries, swept at each interval's end.
fn swept(hits: &[(usize, Tick)], entries: usize, interval: Tick, until: Tick) -> Vec<f32> {
    let mut heat = vec![0.0f32; entries];
    let mut hits = hits.iter().peekable();
    for now in 0..=until {
        if now > 0 && now % interval == 0 {
            for heat in &mut heat {
                *heat *= 0.95;
                if *heat < FROZEN {
                    *heat = 0.0;
                }
            }
        }
        while let Some((entry, _)) = hits.next_if(|(_, at)| *at == now) {
            heat[*entry] += UNIT;
        }
    }
    heat
}

proptest! {
    #[test]
    fn the_literal_rule_is_the_swept_table_to_the_bit(
        mut hits in prop::collection::vec((0usize..5, 0u32..20_000), 0..60),
        interval in 1u32..700,
    ) {
        hits.sort_by_key(|(_, at)| *at);
        let until = 20_000;
        let decay = Decay::literal(0.95, interval);
        let mut lazy = [(0.0f32, 0); 5];
        for (entry, at) in &hits {
            let (heat, since) = lazy[*entry];
            lazy[*entry] = (decay.cooled(heat, since, *at) + UNIT, *at);
        }
        let now: Vec<f32> = lazy.iter().map(|(heat, since)| decay.cooled(*heat, *since, until)).collect();
        prop_assert_eq!(now, swept(&hits, 5, interval, until));
    }

    #[test]
    fn cooling_in_two_steps_is_cooling_in_one(heat in 0.0f32..1e6, a in 0u32..100_000, b in 0u32..100_000, c in 0u32..100_000) {
        let mut times = [a, b, c];
        times.sort_unstable();
        let decay = Decay::adaptive(0.95, 5 * SECOND);
        let once = decay.cooled(heat, times[0], times[2]);
        let twice = decay.cooled(decay.cooled(heat, times[0], times[1]), times[1], times[2]);
        prop_assert!((once - twice).abs() <= 1e-4 * once.max(1e-20), "{} {}", once, twice);
    }
}

#[test]
fn half_lives() {
    // 5 s × ln 2 / ln(1/0.95) = 67.6 s.
    let decay = Decay::adaptive(0.95, 5 * SECOND);
    assert_eq!(decay.half_life(), Some(6756));
    for (residence, half_life) in [(0, 100), (99, 100), (12_345, 12_345), (Tick::MAX, 2_160_000)] {
        decay.adapt(residence);
        assert_eq!(decay.half_life(), Some(half_life));
        assert!((decay.cooled(8.0, 7, 7 + half_life) - 4.0).abs() < 1e-5);
    }
    let literal = Decay::literal(0.95, 5 * SECOND);
    literal.adapt(77);
    assert_eq!(literal.half_life(), None);
}

/// A clock that steps back cools nothing and heats nothing.
#[test]
fn time_that_goes_back_changes_nothing() {
    for decay in [Decay::literal(0.95, 500), Decay::adaptive(0.95, 500)] {
        assert_eq!(decay.cooled(3.0, 9000, 4), 3.0);
    }
}
