use std::io::Write as _;

use ort::value::{Tensor, TensorRef};

use super::*;
use crate::{Runtime, history::History, logprob, model::tests::letters, sample::Sampler};

/// A builder for the CPU provider, or a line that says why `test` is skipped.
fn builder(test: &str) -> Option<SessionBuilder> {
    let environment = std::env::var_os("ORT_DYLIB_PATH");
    match Runtime::find(None, environment.as_deref()) {
        Ok(runtime) => Some(Session::builder(&runtime.environment).expect("a builder")),
        Err(error) => {
            let _ = writeln!(std::io::stdout().lock(), "SKIPPED {test}: {error}");
            None
        }
    }
}

/// A row of a batch.
struct Row {
    logits: Vec<f32>,
    mask: Vec<u32>,
    request: Request,
}

/// The ids, and with `top` the log probabilities: of the id, and the best with theirs.
type Ran = (Vec<i64>, Vec<(f32, Vec<(u32, f32)>)>);

fn run(session: &mut Session, kind: Kind, rows: &[Row]) -> Ran {
    let count = rows.len() as i64;
    let logits: Vec<f32> = rows.iter().flat_map(|row| row.logits.iter().copied()).collect();
    let mask: Vec<u8> = rows
        .iter()
        .flat_map(|row| row.mask.iter().flat_map(|word| word.to_le_bytes()))
        .collect();
    fn column<T: ort::value::PrimitiveTensorElementType + Clone + std::fmt::Debug + 'static>(
        rows: &[Row],
        of: impl Fn(&Request) -> T,
    ) -> Tensor<T> {
        let values: Vec<T> = rows.iter().map(|row| of(&row.request)).collect();
        Tensor::from_array(([values.len() as i64, 1], values)).expect("a column")
    }
    let inputs = ort::inputs! {
        "logits" => TensorRef::from_array_view(([count, kind.vocabulary as i64], &logits[..])).expect("logits"),
        "mask" => TensorRef::from_array_view(([count, mask_bytes(kind.vocabulary) as i64], &mask[..])).expect("a mask"),
        "scale" => column(rows, |request| request.scale),
        "chance" => column(rows, |request| request.chance),
        "keep" => column(rows, |request| request.keep),
        "share" => column(rows, |request| request.share),
        "min_p" => column(rows, |request| request.min_p),
    };
    let outputs = session.run(inputs).expect("a run");
    let ids = outputs["id"].try_extract_tensor::<i64>().expect("ids").1.to_vec();
    let mut told = Vec::new();
    if let Some(top) = kind.top {
        let own = outputs["logprob"]
            .try_extract_tensor::<f32>()
            .expect("log probabilities")
            .1;
        let best = outputs["top_ids"].try_extract_tensor::<i64>().expect("ids").1;
        let best = best.iter().map(|&id| id as u32);
        let theirs = outputs["top_logprobs"]
            .try_extract_tensor::<f32>()
            .expect("log probabilities")
            .1;
        let best: Vec<(u32, f32)> = best.zip(theirs.iter().copied()).collect();
        told = own.iter().copied().zip(best.chunks(top).map(<[_]>::to_vec)).collect();
    }
    (ids, told)
}

/// Chance for a test: the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        (uniform(17, self.0) * bound as f64) as u64
    }

    /// A row as a model gives it (steep) or a worse one (flat, with ties, some that are no numbers).
    fn logits(&mut self, width: usize) -> Vec<f32> {
        let kind = self.below(4);
        let mut row: Vec<f32> = (0..width)
            .map(|_| match kind {
                0 => self.below(7) as f32 - 3.0,
                1 => self.below(1 << 24) as f32 / (1 << 21) as f32,
                // Exponentially rarer towards the top.
                _ => -2.0 * (uniform(3, self.below(1 << 40)) + 1e-9).ln() as f32 * if kind == 2 { 1.0 } else { 3.0 },
            })
            .collect();
        for odd in [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0, f32::INFINITY] {
            let often = if odd == f32::INFINITY { 40 } else { 3 };
            if self.below(often) == 0 {
                let at = self.below(width as u64) as usize;
                row[at] = odd;
            }
        }
        row
    }

    fn mask(&mut self, width: usize) -> Vec<u32> {
        let kind = self.below(6);
        let mut words = vec![0; width.div_ceil(32)];
        for id in 0..width {
            let allowed = match kind {
                0 | 1 => true,
                2 => self.below(2) == 0,
                3 => self.below(20) == 0,
                4 => id == width / 2,
                _ => self.below(width as u64 + 1) == 0,
            };
            words[id / 32] |= u32::from(allowed) << (id % 32);
        }
        words
    }

    fn sampling(&mut self) -> Sampling {
        let pick = |chance: &mut Self, values: &[f32]| values[chance.below(values.len() as u64) as usize];
        Sampling {
            temperature: pick(self, &[0.0, 0.3, 0.7, 1.0, 1.0, 2.5, 1e-40]),
            top_k: match self.below(4) {
                0 => Some(1 + self.below(64) as u32),
                1 => Some(64),
                2 => Some(10),
                _ => None,
            },
            top_p: pick(self, &[1.0, 1.0, 0.99, 0.95, 0.5, 0.1, 0.0]),
            min_p: pick(self, &[0.0, 0.0, 0.0, 0.05, 0.5]),
            seed: self.below(1 << 40),
            ..Sampling::default()
        }
    }
}

/// Every kind of head gives the host's ids, in batches of rows that want different things.
#[test]
fn the_device_draws_what_the_host_draws() {
    let Some(builder) = builder("the_device_draws_what_the_host_draws") else {
        return;
    };
    let mut chance = Chance(0);
    let (mut tokens, mut nothing, mut asked) = (0, 0, 0);
    for vocabulary in [1, 2, 7, 31, 63, 64, 65, 100, 320, 1001, 4096, 50_257] {
        for whole in [false, true] {
            let kind = Kind {
                vocabulary,
                whole,
                top: None,
            };
            let mut session = load(kind, &builder).expect("a head");
            // The last is as wide as a real one, and no multiple of anything.
            let rounds = if vocabulary < 10_000 { 40 } else { 3 };
            for _ in 0..rounds {
                let (mut rows, mut wanted) = (Vec::new(), Vec::new());
                while rows.len() < 8 {
                    let (sampling, index) = (chance.sampling(), chance.below(1000));
                    let Some(request) = Request::of(&sampling, index, kind) else {
                        assert!(!whole, "a whole head takes {sampling:?}");
                        continue;
                    };
                    let (logits, mask) = (chance.logits(vocabulary), chance.mask(vocabulary));
                    let mut host = Sampler::default();
                    let id = host.draw(&logits, Some(&mask), &sampling, &History::default(), index);
                    wanted.push((id, host.kept(), sampling));
                    rows.push(Row { logits, mask, request });
                }
                let (ids, _) = run(&mut session, kind, &rows);
                for ((id, (want, kept, sampling)), row) in ids.into_iter().zip(wanted).zip(&rows) {
                    match (Verdict::from(id), want) {
                        (Verdict::Token(id), Some(want)) => {
                            tokens += 1;
                            assert_eq!(id, want, "{kind:?}, {sampling:?}, {:?}", row.request);
                        }
                        (Verdict::None, None) => nothing += 1,
                        (Verdict::Host, Some(_)) => {
                            asked += 1;
                            let wide = row.request.keep > CANDIDATES as i64 && kept > CANDIDATES;
                            assert!(wide, "{kind:?}, {sampling:?}: {kept} are kept");
                        }
                        other => panic!("{other:?}: {kind:?}, {sampling:?}"),
                    }
                }
            }
        }
    }
    assert!(
        tokens > 5000 && nothing > 100 && asked > 10,
        "{tokens}, {nothing}, {asked}"
    );
}

#[test]
fn log_probabilities_are_those_of_the_host() {
    let Some(builder) = builder("log_probabilities_are_those_of_the_host") else {
        return;
    };
    let mut chance = Chance(500);
    let text = letters(26);
    for (vocabulary, top) in [(1, 1), (33, 5), (1001, 20)] {
        let kind = Kind {
            vocabulary,
            whole: false,
            top: Some(top),
        };
        let mut session = load(kind, &builder).expect("a head");
        for _ in 0..50 {
            let mut logits = chance.logits(vocabulary);
            // Of infinities the device takes no sum.
            logits
                .iter_mut()
                .filter(|logit| **logit == f32::INFINITY)
                .for_each(|logit| *logit = 9.0);
            let greedy = Sampling {
                temperature: 0.0,
                ..Sampling::default()
            };
            let row = Row {
                mask: vec![u32::MAX; vocabulary.div_ceil(32)],
                request: Request::of(&greedy, 0, kind).expect("greedy"),
                logits,
            };
            let (ids, told) = run(&mut session, kind, std::slice::from_ref(&row));
            let Verdict::Token(id) = Verdict::from(ids[0]) else {
                continue;
            };
            let want = logprob::of(&row.logits, id, top, &text);
            let close = |a: f32, b: f32| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
            let (own, best) = &told[0];
            assert!(
                want.logprob.is_some_and(|want| close(*own, want)),
                "{own}, not {want:?}"
            );
            let possible = want.top.iter().filter(|(_, _, logprob)| *logprob > logprob::LEAST);
            for ((id, logprob), (wanted, _, expected)) in best.iter().zip(possible) {
                assert!(id == wanted && close(*logprob, *expected), "{best:?}, not {want:?}");
            }
        }
    }
}

#[test]
fn what_only_the_host_can() {
    let kind = |whole| Kind {
        vocabulary: 1000,
        whole,
        top: None,
    };
    let with = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::default();
        change(&mut sampling);
        sampling
    };
    let cases: [(&str, Sampling, [bool; 2]); 9] = [
        ("greedy", with(|how| how.temperature = 0.0), [true, true]),
        ("all", with(|_| {}), [false, true]),
        ("top 64", with(|how| how.top_k = Some(64)), [true, true]),
        ("top 65", with(|how| how.top_k = Some(65)), [false, false]),
        ("top p", with(|how| how.top_p = 0.9), [false, true]),
        ("min p", with(|how| how.min_p = 0.1), [false, true]),
        ("bias", with(|how| how.logit_bias = vec![(1, 1.0)]), [false, false]),
        ("repetition", with(|how| how.repetition_penalty = 1.1), [false, false]),
        ("presence", with(|how| how.presence_penalty = 1.1), [false, false]),
    ];
    for (name, sampling, can) in cases {
        for (whole, can) in [false, true].into_iter().zip(can) {
            assert_eq!(Request::of(&sampling, 3, kind(whole)).is_some(), can, "{name}, {whole}");
        }
    }
}
