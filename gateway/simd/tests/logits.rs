//! Rows of logits: each level gives the plain one's bits, and the plain one what a naive reading gives.
//!
//! Invariant: what is compared with is written here without groups, lanes or blocks.
#![forbid(unsafe_code)]

use proptest::prelude::*;
use zerohop_simd::{BLOCK, Level, allows, floor_of_best, weight};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// All that the scans say of a row, by every level, against the naive reading.
fn check(logits: &[f32], mask: Option<&[u32]>, floor: f32, scale: f32) {
    let allowed = |id: usize| allows(mask, id) && logits[id] > -INF;
    let better = |best: Option<usize>, id: usize| match best {
        Some(best) if logits[id] <= logits[best] => Some(best),
        _ => Some(id),
    };
    let best = (0..logits.len()).filter(|&id| allowed(id)).fold(None, better);
    let reaching: Vec<u32> = (0..logits.len())
        .filter(|&id| allowed(id) && logits[id] >= floor)
        .map(|id| id as u32)
        .collect();
    let greatest = best.map_or(0.0, |best| logits[best]);
    let mut plain = Vec::new();
    Level::PLAIN.sums(logits, mask, greatest, scale, &mut plain);
    for (block, &sum) in plain.iter().enumerate() {
        let ids = (block * BLOCK..logits.len()).take(BLOCK).filter(|&id| allowed(id));
        let want: f64 = ids.map(|id| f64::from(weight(logits[id], greatest, scale))).sum();
        assert!(
            (f64::from(sum) - want).abs() <= 1e-5 * want,
            "block {block}: {sum}, not {want}"
        );
    }
    for level in Level::all() {
        let name = level.name();
        let (mut maxima, mut sums, mut ids) = (vec![1.0], vec![1.0], Vec::new());
        let found = level.greatest(logits, mask, &mut maxima);
        let bits = |(id, logit): (u32, f32)| (id, logit.to_bits());
        let want = best.map(|id| (id as u32, logits[id].to_bits()));
        assert_eq!(found.map(bits), want, "{name}");
        level.reaching(logits, mask, &maxima, floor, &mut ids);
        assert_eq!(ids, reaching, "{name} from {floor}");
        for count in [0, 1, 2, 7, 40, 2000] {
            let mut best = Vec::new();
            level.reaching(logits, mask, &maxima, floor_of_best(&maxima, count), &mut best);
            let all = (0..logits.len()).filter(|&id| allowed(id)).count();
            assert!(
                best.len() >= count.min(all),
                "{name}: {} of {all}, not {count}",
                best.len()
            );
        }
        level.sums(logits, mask, greatest, scale, &mut sums);
        let same = sums
            .iter()
            .map(|sum| sum.to_bits())
            .eq(plain.iter().map(|sum| sum.to_bits()));
        assert!(same, "{name}: {sums:?}, not {plain:?}");
    }
}

#[test]
fn rows_that_are_told_apart() {
    /// A row, its mask, and what is best.
    type Case<'a> = (&'a str, Vec<f32>, Option<&'a [u32]>, Option<u32>);
    let mut late = vec![0.0; 2000];
    (late[700], late[1999], late[600]) = (2.0, 2.0, NAN);
    let cases: [Case; 13] = [
        ("nothing", vec![], None, None),
        ("the greatest", vec![0.0, 3.0, 1.0], None, Some(1)),
        ("ties go to the lowest id", vec![1.0, 2.0, 2.0], None, Some(1)),
        ("ties across groups too", late.clone(), None, Some(700)),
        ("ties by the mask", late, Some(&[u32::MAX; 20]), Some(0)),
        ("signed zeros are equal", vec![-0.0, 0.0], None, Some(0)),
        ("NaN is never best", vec![NAN, -5.0, NAN], None, Some(1)),
        ("infinity is", vec![9.0, INF, INF, NAN], None, Some(1)),
        ("only NaN and -∞", vec![NAN, -INF], None, None),
        ("masked", vec![3.0, 1.0, 2.0], Some(&[0b110]), Some(2)),
        (
            "bits behind the end",
            vec![3.0, 1.0, 2.0],
            Some(&[!0b111, u32::MAX]),
            None,
        ),
        ("no words", vec![3.0, 1.0], Some(&[]), None),
        ("least numbers", vec![f32::MIN, -INF], None, Some(0)),
    ];
    for (name, logits, mask, want) in cases {
        for level in Level::all() {
            let found = level.greatest(&logits, mask, &mut Vec::new());
            assert_eq!(found.map(|(id, _)| id), want, "{name}, {}", level.name());
        }
        for (floor, scale) in [(-INF, 1.0), (0.0, 0.5), (2.0, 30.0), (INF, 1e30)] {
            check(&logits, mask, floor, scale);
        }
    }
}

/// Numbers of all kinds, mostly those of a model.
fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        20 => -30.0f32..30.0,
        // Many ties.
        10 => (-3i8..3).prop_map(f32::from),
        1 => any::<f32>(),
        1 => prop_oneof![Just(NAN), Just(INF), Just(-INF), Just(-0.0), Just(f32::MIN), Just(f32::MAX)],
    ]
}

fn word() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0), 2 => any::<u32>(), 1 => Just(u32::MAX), 1 => (0..32u32).prop_map(|bit| 1 << bit)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_level_gives_the_same_bits(
        logits in prop::collection::vec(logit(), 0..1700),
        mask in prop::option::of(prop::collection::vec(word(), 0..60)),
        floor in logit(),
        scale in prop_oneof![Just(1.0f32), 0.01f32..50.0],
    ) {
        check(&logits, mask.as_deref(), if floor.is_nan() { 0.0 } else { floor }, scale);
    }
}

#[test]
fn weights_are_close_to_e() {
    for step in 0..870_000 {
        let x = -(step as f32) / 10_000.0;
        let (got, want) = (f64::from(weight(x, 0.0, 1.0)), f64::from(x).exp());
        // The error of x·log2(e) itself grows with x.
        let bound = 3e-7 + f64::from(x.abs()) * 1.3e-7;
        assert!((got / want - 1.0).abs() < bound, "e^{x}: {got}, not {want}");
    }
    for (x, want) in [(0.0, 1.0), (-0.0, 1.0), (-INF, 0.0), (NAN, 0.0), (-1e30, 0.0)] {
        assert_eq!(weight(x, 0.0, 1.0), want, "e^{x}");
    }
}
