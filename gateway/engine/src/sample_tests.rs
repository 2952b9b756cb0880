use proptest::prelude::*;

use super::*;

impl Sampler {
    /// Without a mask and without a history.
    fn free(&mut self, logits: &[f32], how: &Sampling, index: u64) -> Option<u32> {
        self.draw(logits, None, how, &History::default(), index)
    }

    /// How many tokens the last draw from the best kept.
    pub(crate) fn kept(&self) -> usize {
        self.weights.len()
    }
}

fn sampling(temperature: f32, top_p: f32, top_k: Option<u32>, seed: u64) -> Sampling {
    Sampling {
        temperature,
        top_p,
        top_k,
        seed,
        ..Sampling::default()
    }
}

#[test]
fn greedy_and_degenerate_rows() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let cases: [(&str, &[f32], Option<u32>); 8] = [
        ("the greatest", &[0.0, 3.0, 1.0], Some(1)),
        ("ties go to the lowest id", &[1.0, 2.0, 2.0, 2.0], Some(1)),
        ("signed zeros are equal", &[-0.0, 0.0], Some(0)),
        ("NaN is never drawn", &[NAN, -5.0, NAN], Some(1)),
        ("infinity wins", &[9.0, INF, INF], Some(1)),
        ("masked ids stay out", &[-INF, -9.0, -INF], Some(1)),
        ("nothing but NaN", &[NAN, NAN], None),
        ("nothing but masked ids", &[-INF, -INF], None),
    ];
    let greedy = [
        sampling(0.0, 1.0, None, 1),
        sampling(-1.0, 0.5, Some(2), 1),
        sampling(1.0, 1.0, Some(1), 1),
        sampling(1.0, 0.0, None, 1),
        sampling(f32::NAN, 1.0, None, 1),
    ];
    for (name, logits, want) in cases {
        for how in &greedy {
            assert_eq!(Sampler::default().free(logits, how, 0), want, "{name}, {how:?}");
        }
    }
    // The rows with exactly one candidate give it under every kind of sampling.
    for how in [
        sampling(2.0, 1.0, None, 7),
        sampling(2.0, 0.9, None, 7),
        sampling(2.0, 1.0, Some(2), 7),
    ] {
        for index in 0..50 {
            assert_eq!(
                Sampler::default().free(&[-INF, -9.0, NAN, -INF], &how, index),
                Some(1),
                "{how:?}"
            );
        }
    }
}

/// Frequencies of many draws against the exact distribution, by the chi-squared statistic.
fn check_distribution(name: &str, logits: &[f32], how: &Sampling, expected: &[f64]) {
    const DRAWS: u64 = 40_000;
    let mut counts = vec![0u64; logits.len()];
    let mut sampler = Sampler::default();
    for index in 0..DRAWS {
        counts[sampler.free(logits, how, index).expect("a token") as usize] += 1;
    }
    let mut chi_squared = 0.0;
    for (id, (&count, &probability)) in counts.iter().zip(expected).enumerate() {
        if probability == 0.0 {
            assert_eq!(count, 0, "{name}: id {id} must never be drawn");
        } else {
            let mean = probability * DRAWS as f64;
            chi_squared += (count as f64 - mean).powi(2) / mean;
        }
    }
    // 99.99 % quantile for 5 degrees of freedom is 25.7; the seeds are fixed, so this does not vary.
    assert!(
        chi_squared < 25.7,
        "{name}: chi² {chi_squared}, {counts:?} against {expected:?}"
    );
}

/// Once such a temperature was inverted to infinity, every weight became NaN, and the answer was made of padding.
#[test]
fn a_temperature_too_small_to_invert_is_greedy() {
    for temperature in [f32::from_bits(1), 1e-40, 2.9e-39, f32::MIN_POSITIVE] {
        let how = sampling(temperature, 1.0, None, 3);
        let drawn = Sampler::default().free(&[0.0, 2.0, 1.0], &how, 0);
        assert_eq!(drawn, Some(1), "{temperature:e}");
    }
}

#[test]
fn draws_follow_the_distribution() {
    let probabilities = [0.05f64, 0.4, 0.1, 0.25, 0.15, 0.05];
    let logits: Vec<f32> = probabilities.iter().map(|p| p.ln() as f32).collect();
    let normalised = |weights: [f64; 6]| {
        let total: f64 = weights.iter().sum();
        weights.map(|weight| weight / total)
    };
    let [_, b, c, d, e, _] = probabilities;
    let cases = [
        ("all", sampling(1.0, 1.0, None, 3), probabilities),
        (
            "hot",
            sampling(2.0, 1.0, None, 4),
            normalised(probabilities.map(f64::sqrt)),
        ),
        (
            "cold",
            sampling(0.5, 1.0, None, 5),
            normalised(probabilities.map(|p| p * p)),
        ),
        (
            "top 3",
            sampling(1.0, 1.0, Some(3), 6),
            normalised([0.0, b, 0.0, d, e, 0.0]),
        ),
        ("top k of everything", sampling(1.0, 1.0, Some(6), 7), probabilities),
        ("top 0 keeps all", sampling(1.0, 1.0, Some(0), 8), probabilities),
        (
            "nucleus of exactly two",
            sampling(1.0, 0.6499, None, 9),
            normalised([0.0, b, 0.0, d, 0.0, 0.0]),
        ),
        (
            "nucleus that needs a third",
            sampling(1.0, 0.66, None, 10),
            normalised([0.0, b, 0.0, d, e, 0.0]),
        ),
        (
            "nucleus of one",
            sampling(1.0, 0.1, None, 11),
            [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        ),
        (
            "at least 0.3 of the best",
            Sampling {
                min_p: 0.3,
                ..sampling(1.0, 1.0, None, 14)
            },
            normalised([0.0, b, 0.0, d, e, 0.0]),
        ),
        (
            "all are probable enough",
            Sampling {
                min_p: 0.1,
                ..sampling(1.0, 1.0, None, 15)
            },
            probabilities,
        ),
        // 70 % of the best three is 0.56, which the first two have; of all it would be three.
        (
            "nucleus before min_p",
            Sampling {
                min_p: 0.3,
                ..sampling(1.0, 0.9, Some(4), 16)
            },
            normalised([0.0, b, 0.0, d, e, 0.0]),
        ),
        // Of the best four (0.9 together) 80 % is 0.72: three are needed.
        (
            "nucleus within top k",
            sampling(1.0, 0.8, Some(4), 12),
            normalised([0.0, b, 0.0, d, e, 0.0]),
        ),
        (
            "nucleus within top k, all four",
            sampling(1.0, 0.95, Some(4), 13),
            normalised([0.0, b, c, d, e, 0.0]),
        ),
    ];
    for (name, how, expected) in cases {
        check_distribution(name, &logits, &how, &expected);
    }
}

#[test]
fn a_wide_nucleus_is_found_in_parts() {
    // 4,000 equal candidates: the nucleus grows past the first sorted part several times, and keeps the lowest ids.
    let logits = vec![1.0f32; 4000];
    let how = sampling(1.0, 0.5, None, 1);
    let mut sampler = Sampler::default();
    let drawn: Vec<u32> = (0..4000)
        .filter_map(|index| sampler.free(&logits, &how, index))
        .collect();
    assert_eq!(drawn.len(), 4000);
    assert!(drawn.iter().all(|&id| id < 2000), "{:?}", drawn.iter().max());
    assert!(drawn.iter().any(|&id| id > 1900) && drawn.iter().any(|&id| id < 100));
}

#[test]
fn a_draw_depends_on_seed_and_number_alone() {
    let logits: Vec<f32> = (0..500).map(|id| ((id * 37) % 101) as f32 / 30.0).collect();
    for how in [
        sampling(1.0, 1.0, None, 5),
        sampling(1.3, 0.9, None, 5),
        sampling(0.8, 0.95, Some(40), 5),
    ] {
        let mut forward = Sampler::default();
        let mut backward = Sampler::default();
        let one: Vec<_> = (0..100).map(|index| forward.free(&logits, &how, index)).collect();
        let mut other: Vec<_> = (0..100)
            .rev()
            .map(|index| backward.free(&logits, &how, index))
            .collect();
        other.reverse();
        assert_eq!(one, other, "{how:?}");
        let seeded = Sampling { seed: 6, ..how };
        let third: Vec<_> = (0..100).map(|index| forward.free(&logits, &seeded, index)).collect();
        assert_ne!(one, third, "another seed");
    }
}

#[test]
fn uniform_numbers_are_uniform() {
    let mut buckets = [0u32; 16];
    let mut sum = 0.0;
    for seed in 0..64 {
        for index in 0..1024 {
            let u = uniform(seed, index);
            assert!((0.0..1.0).contains(&u));
            buckets[(u * 16.0) as usize] += 1;
            sum += u;
        }
    }
    assert!((sum / 65536.0 - 0.5f64).abs() < 0.005, "{sum}");
    assert!(buckets.iter().all(|&n| (3800..4400).contains(&n)), "{buckets:?}");
}

/// A row as a test wants it: some ties, some that are no numbers.
fn row(width: usize) -> Vec<f32> {
    let mut row: Vec<f32> = (0..width).map(|id| ((id * 7919) % 1009) as f32 / 80.0 - 6.0).collect();
    for (at, value) in [(3, f32::NAN), (9, f32::NEG_INFINITY), (70, 7.5), (600, 7.5)] {
        if let Some(place) = row.get_mut(at) {
            *place = value;
        }
    }
    row
}

fn words(width: usize, allowed: impl Fn(usize) -> bool) -> Vec<u32> {
    let mut words = vec![0; width.div_ceil(32)];
    for id in (0..width).filter(|&id| allowed(id)) {
        words[id / 32] |= 1 << (id % 32);
    }
    words
}

/// Every kind of sampling.
fn ways() -> Vec<Sampling> {
    let all = sampling(1.1, 1.0, None, 21);
    let best = sampling(0.9, 0.9, Some(40), 22);
    vec![
        sampling(0.0, 1.0, None, 20),
        all.clone(),
        sampling(0.7, 0.95, None, 23),
        sampling(1.0, 1.0, Some(17), 24),
        sampling(3.0, 1.0, Some(700), 27),
        best.clone(),
        Sampling {
            min_p: 0.02,
            ..all.clone()
        },
        Sampling { min_p: 0.02, ..best },
        Sampling {
            frequency_penalty: 0.5,
            presence_penalty: -0.25,
            repetition_penalty: 1.3,
            logit_bias: vec![(5, 4.0), (70, -100.0), (12, f32::NEG_INFINITY)],
            ..all
        },
    ]
}

/// A mask must be the same as logits of -∞: nothing else about the draw may change.
#[test]
fn a_mask_is_as_good_as_no_logit() {
    for width in [1, 31, 64, 100, 513, 3000] {
        let row = row(width);
        for (name, mask) in [
            ("every third", words(width, |id| id % 3 == 0)),
            ("one", words(width, |id| id == width / 2)),
            ("the first", words(width, |id| id < 40)),
            ("none", words(width, |_| false)),
            ("no words", Vec::new()),
            ("words of others too", vec![u32::MAX; 200]),
        ] {
            let masked: Vec<f32> = (0..width)
                .map(|id| {
                    if allows(Some(&mask), id) {
                        row[id]
                    } else {
                        f32::NEG_INFINITY
                    }
                })
                .collect();
            for how in ways() {
                for index in 0..40 {
                    let drawn = Sampler::default().draw(&row, Some(&mask), &how, &History::default(), index);
                    let want = Sampler::default().free(&masked, &how, index);
                    assert_eq!(drawn, want, "{name} of {width}, {how:?}");
                    let allowed = drawn.is_none_or(|id| (id as usize) < width && allows(Some(&mask), id as usize));
                    assert!(allowed, "{name} of {width}, {how:?}: {drawn:?}");
                }
            }
        }
    }
}

#[test]
fn every_level_draws_the_same() {
    let (row, mask) = (row(3000), words(3000, |id| id % 2 == 0));
    for how in ways() {
        for mask in [None, Some(&mask[..])] {
            for index in 0..200 {
                let draw = |level| Sampler::at(level).draw(&row, mask, &how, &History::default(), index);
                let plain = draw(Level::PLAIN);
                assert!(plain.is_some());
                for level in Level::all() {
                    assert_eq!(draw(level), plain, "{} {how:?}", level.name());
                }
            }
        }
    }
}

/// Tokens that a fixed seed draws, as written down once: they must be the same after a restart, on any machine and in any
/// later version.
#[test]
fn a_seed_means_the_same_tokens_for_ever() {
    let row = row(3000);
    let mut sampler = Sampler::default();
    let drawn: Vec<Vec<u32>> = ways()
        .iter()
        .map(|how| (0..4).filter_map(|index| sampler.free(&row, how, index)).collect())
        .collect();
    assert_eq!(drawn, KNOWN);
}

const KNOWN: [[u32; 4]; 9] = [
    [70, 70, 70, 70],
    [2079, 1188, 8, 2460],
    [2183, 686, 2579, 2948],
    [2783, 2816, 33, 1286],
    [1484, 1623, 2269, 1076],
    [521, 1042, 1042, 1596],
    [1801, 2869, 70, 357],
    [521, 1042, 1042, 1596],
    [2084, 1207, 8, 2460],
];

#[test]
fn bias_and_penalties() {
    let penalties = |repetition_penalty, frequency_penalty, presence_penalty| Sampling {
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        ..sampling(0.0, 1.0, None, 0)
    };
    let bias = |logit_bias: &[(u32, f32)]| Sampling {
        logit_bias: logit_bias.to_vec(),
        ..sampling(0.0, 1.0, None, 0)
    };
    let none = || penalties(1.0, 0.0, 0.0);
    /// How, the logits, the prompt, the answer, and the logits that are drawn from.
    type Case<'a> = (&'a str, Sampling, &'a [f32], &'a [u32], &'a [u32], &'a [f32]);
    let cases: [Case; 10] = [
        ("nothing", none(), &[1.0, 2.0], &[0], &[1], &[1.0, 2.0]),
        (
            "bias",
            bias(&[(1, -3.0), (0, 0.5)]),
            &[1.0, 2.0],
            &[],
            &[],
            &[1.5, -1.0],
        ),
        (
            "bias behind the end",
            bias(&[(7, 9.0)]),
            &[1.0, 2.0],
            &[],
            &[],
            &[1.0, 2.0],
        ),
        (
            "repetition",
            penalties(2.0, 0.0, 0.0),
            &[3.0, -3.0, 3.0],
            &[0],
            &[1],
            &[1.5, -6.0, 3.0],
        ),
        (
            "repetition below 1",
            penalties(0.5, 0.0, 0.0),
            &[3.0, -3.0],
            &[0, 1],
            &[],
            &[6.0, -1.5],
        ),
        (
            "frequency",
            penalties(1.0, 0.5, 0.0),
            &[3.0, 3.0, 3.0],
            &[0],
            &[1, 2, 1],
            &[3.0, 2.0, 2.5],
        ),
        (
            "presence",
            penalties(1.0, 0.0, 0.5),
            &[3.0, 3.0, 3.0],
            &[0],
            &[1, 2, 1],
            &[3.0, 2.5, 2.5],
        ),
        (
            "a reward",
            penalties(1.0, -0.5, -1.0),
            &[3.0, 3.0],
            &[],
            &[1, 1],
            &[3.0, 5.0],
        ),
        (
            "all, the bias first",
            Sampling {
                logit_bias: vec![(0, 1.0)],
                ..penalties(2.0, 0.25, 0.5)
            },
            &[3.0, 1.0],
            &[1],
            &[0, 0],
            &[1.0, 0.5],
        ),
        (
            "-∞ stays",
            penalties(2.0, 0.5, 0.5),
            &[f32::NEG_INFINITY, 1.0],
            &[],
            &[0],
            &[f32::NEG_INFINITY, 1.0],
        ),
    ];
    for (name, how, logits, prompt, answer, want) in cases {
        let mut history = History::new(&how, prompt);
        answer.iter().for_each(|&token| history.push(token));
        let mut room = vec![9.0; 7];
        assert_eq!(edit(logits, &how, &history, &mut room), want, "{name}");
        // And they are what is drawn from.
        let drawn = Sampler::default().draw(logits, None, &how, &history, 0);
        assert_eq!(
            drawn,
            Sampler::default().free(want, &sampling(0.0, 1.0, None, 0), 0),
            "{name}"
        );
    }
}

/// What the documentation of [`Sampling`] says, word by word, with every id sorted and every weight summed in f64; and how
/// near a border the draw came, as a share of all.
fn plain(logits: &[f32], mask: Option<&[u32]>, how: &Sampling, index: u64) -> Option<(u32, f64)> {
    let mut kept: Vec<(f32, u32)> = (0u32..)
        .zip(logits)
        .filter(|&(id, &logit)| allows(mask, id as usize) && logit > f32::NEG_INFINITY)
        .map(|(id, &logit)| (logit, id))
        .collect();
    kept.sort_by(better);
    let &(best, first) = kept.first()?;
    if how.temperature <= 0.0 {
        return Some((first, 1.0));
    }
    let weight = |logit: f32| f64::from(weight(logit, best, how.temperature.recip()));
    let top_k = how.top_k.map(|k| k as usize).filter(|&k| k > 0 && k < logits.len());
    kept.truncate(top_k.unwrap_or(usize::MAX));
    let total: f64 = kept.iter().map(|&(logit, _)| weight(logit)).sum();
    let mut nearest = f64::INFINITY;
    if how.top_p < 1.0 {
        let (mut mass, wanted) = (0.0, f64::from(how.top_p) * total);
        let mut count = 0;
        for &(logit, _) in &kept {
            nearest = nearest.min((mass - wanted).abs() / total);
            count += usize::from(mass < wanted);
            mass += weight(logit);
        }
        kept.truncate(count);
    }
    kept.retain(|&(logit, _)| weight(logit) >= f64::from(how.min_p));
    if top_k.is_none() && how.top_p >= 1.0 && how.min_p == 0.0 {
        kept.sort_by_key(|&(_, id)| id);
    }
    let mass: f64 = kept.iter().map(|&(logit, _)| weight(logit)).sum();
    let target = uniform(how.seed, index) * mass;
    let mut sum = 0.0;
    let mut drawn = None;
    for &(logit, id) in &kept {
        sum += weight(logit);
        nearest = nearest.min((sum - target).abs() / mass);
        if drawn.is_none() && sum > target {
            drawn = Some(id);
        }
    }
    drawn.or(kept.last().map(|&(_, id)| id)).map(|id| (id, nearest))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn draws_are_what_the_words_say(
        logits in prop::collection::vec(
            prop_oneof![8 => -12.0f32..12.0, 4 => (-3i8..3).prop_map(f32::from), 1 => Just(f32::NAN)], 1..900),
        mask in prop::option::of(prop::collection::vec(any::<u32>(), 0..30)),
        temperature in prop_oneof![1 => Just(0.0f32), 6 => 0.05f32..3.0],
        top_k in prop_oneof![1 => Just(None), 2 => (0u32..1000).prop_map(Some)],
        top_p in prop_oneof![1 => Just(1.0f32), 2 => 0.01f32..1.0],
        min_p in prop_oneof![1 => Just(0.0f32), 2 => 0.0f32..1.0],
        seed in any::<u64>(),
    ) {
        let how = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::default() };
        let mut sampler = Sampler::default();
        for index in 0..8 {
            let drawn = sampler.draw(&logits, mask.as_deref(), &how, &History::default(), index);
            match plain(&logits, mask.as_deref(), &how, index) {
                // At a border, rounding may decide.
                Some((_, nearest)) if nearest < 1e-5 => prop_assert!(drawn.is_some()),
                want => prop_assert_eq!(drawn, want.map(|(id, _)| id)),
            }
        }
    }
}
