use super::*;

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
            assert_eq!(Sampler::default().draw(logits, how, 0), want, "{name}, {how:?}");
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
                Sampler::default().draw(&[-INF, -9.0, NAN, -INF], &how, index),
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
        counts[sampler.draw(logits, how, index).expect("a token") as usize] += 1;
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
        let drawn = Sampler::default().draw(&[0.0, 2.0, 1.0], &how, 0);
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
        .filter_map(|index| sampler.draw(&logits, &how, index))
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
        let one: Vec<_> = (0..100).map(|index| forward.draw(&logits, &how, index)).collect();
        let mut other: Vec<_> = (0..100)
            .rev()
            .map(|index| backward.draw(&logits, &how, index))
            .collect();
        other.reverse();
        assert_eq!(one, other, "{how:?}");
        let seeded = Sampling { seed: 6, ..how };
        let third: Vec<_> = (0..100).map(|index| forward.draw(&logits, &seeded, index)).collect();
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

#[test]
fn exp_is_close_to_e() {
    for step in 0..870_000 {
        let x = -(step as f32) / 10_000.0;
        let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
        // The error of x·log2(e) itself grows with x.
        let bound = 3e-7 + f64::from(x.abs()) * 1.3e-7;
        assert!((got / want - 1.0).abs() < bound, "e^{x}: {got}, not {want}");
    }
    for (x, want) in [
        (0.0, 1.0),
        (-0.0, 1.0),
        (f32::NEG_INFINITY, 0.0),
        (f32::NAN, 0.0),
        (-1e30, 0.0),
    ] {
        assert_eq!(exp(x), want, "e^{x}");
    }
}
