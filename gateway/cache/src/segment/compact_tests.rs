use super::{
    compact::*,
    part::{Form, Part, Row, seal},
    sample_tests::answer,
};
use crate::{
    files::{Files, SimDisk, SimFiles, disk::ready},
    types::PartNumber,
};

const MIB: u64 = 1 << 20;

/// A part of 10 MiB of which so much lives, with this heat.
fn share(number: u32, form: Form, live_percent: u64, heat: f32) -> Share {
    let live_bytes = 10 * MIB * live_percent / 100;
    Share {
        number: PartNumber(number),
        form,
        bytes: 10 * MIB,
        live_bytes,
        plain_bytes: if form == Form::Cold { 3 * live_bytes } else { live_bytes },
        heat,
    }
}

#[test]
fn the_step_that_is_worth_most_comes_first() {
    use Form::{Cold, Plain};
    let copy = |from: &[u32], form| {
        let from = from.iter().map(|number| PartNumber(*number)).collect();
        Some(Step::Copy { from, form })
    };
    let remove = |number| Some(Step::Remove(PartNumber(number)));
    for (parts, expected) in [
        (vec![], None),
        (
            vec![
                share(1, Plain, 100, 9.0),
                share(2, Plain, 31, 0.05),
                share(3, Cold, 31, 0.0),
            ],
            None,
        ),
        (
            vec![share(1, Plain, 5, 1.0), share(2, Plain, 0, 1.0), share(3, Cold, 0, 1.0)],
            remove(2),
        ),
        (vec![share(1, Plain, 0, f32::NAN)], remove(1)),
        // Mostly dead ones together, the worst first, by what they become.
        (
            vec![
                share(1, Plain, 29, 1.0),
                share(2, Plain, 31, 1.0),
                share(3, Plain, 2, 1.0),
            ],
            copy(&[3, 1], Plain),
        ),
        (
            vec![
                share(1, Plain, 20, 0.01),
                share(2, Plain, 10, 1.0),
                share(3, Cold, 20, 1.0),
            ],
            copy(&[2, 3], Plain),
        ),
        (
            vec![
                share(1, Plain, 5, 0.01),
                share(2, Plain, 10, 1.0),
                share(3, Cold, 20, 0.0),
            ],
            copy(&[1, 3], Cold),
        ),
        // Cold ones only when none is mostly dead.
        (
            vec![share(1, Plain, 90, 0.01), share(2, Plain, 10, 1.0)],
            copy(&[2], Plain),
        ),
        (
            vec![
                share(1, Plain, 90, 0.01),
                share(2, Plain, 80, 1.0),
                share(3, Plain, 99, 0.0),
            ],
            copy(&[1, 3], Cold),
        ),
        (vec![share(1, Plain, 90, f32::NAN)], None),
    ] {
        assert_eq!(choose(&parts, &Rules::default()), expected, "{parts:?}");
    }
    // At most so much at a time, by what it takes in memory; one part alone may have more.
    let rules = Rules {
        most: 8 * MIB,
        ..Rules::default()
    };
    let parts: Vec<_> = (1..6)
        .map(|number| share(number, Plain, 20 + u64::from(number), 1.0))
        .collect();
    assert_eq!(choose(&parts, &rules), copy(&[1, 2, 3], Plain));
    let parts = [
        share(1, Cold, 10, 1.0),
        share(2, Cold, 20, 1.0),
        share(3, Cold, 11, 1.0),
    ];
    assert_eq!(choose(&parts, &rules), copy(&[1, 3], Plain));
    assert_eq!(choose(&[share(1, Plain, 100, 0.0)], &rules), copy(&[1], Cold));
    let never = Rules { cold: 0.0, ..rules };
    assert_eq!(choose(&[share(1, Plain, 100, 0.0)], &never), None);
}

/// Entries of one part: which live, and how hot they are.
struct Kept {
    part: Part<<SimFiles as Files>::File>,
    rows: Vec<(Row, bool)>,
    heat: f32,
}

impl Kept {
    fn live(&self) -> Vec<usize> {
        let live = self.rows.iter().enumerate().filter(|(_, (_, live))| *live);
        live.map(|(row, _)| row).collect()
    }

    fn share(&self) -> Share {
        let live = self.live();
        let known = ready(self.part.rows()).unwrap();
        let bodies = live.iter().map(|row| u64::from(known[*row].place.len)).sum();
        Share::of(&self.part, live.len(), bodies, self.heat)
    }
}

#[test]
fn compaction_ends_and_loses_nothing_that_lives() {
    for size in [0, 40, 1500] {
        let files = SimDisk::new(1).folder("parts");
        let mut parts = Vec::new();
        // Of each the rows whose number is divided by some number die.
        for (number, dies) in [(0, 1), (1, 2), (2, 9), (3, 0), (4, 0), (5, 9)] {
            let rows: Vec<_> = (0..200)
                .map(|row| {
                    let mut answer = answer(number * 1000 + row, size);
                    answer.body.truncate(size);
                    Row {
                        answer,
                        hits: row as u32,
                    }
                })
                .collect();
            let number = PartNumber(number as u32);
            ready(seal(&files, number, rows.clone(), Form::Plain)).unwrap();
            let live = |row: usize| match dies {
                0 => true,
                9 => row % 10 == 3,
                dies => !row.is_multiple_of(dies),
            };
            let rows = rows.into_iter().enumerate().map(|(row, kept)| (kept, live(row)));
            parts.push(Kept {
                part: ready(Part::open(&files, number)).unwrap(),
                rows: rows.collect(),
                heat: if number.0 == 4 { 0.0 } else { 1.0 },
            });
        }
        let living = |parts: &[Kept]| {
            let mut rows: Vec<_> = parts
                .iter()
                .flat_map(|part| part.rows.iter().filter(|(_, live)| *live))
                .map(|(row, _)| row.clone())
                .collect();
            rows.sort_by_key(|row| row.answer.prompt);
            rows
        };
        let before = living(&parts);
        let mut steps = Vec::new();
        while let Some(step) = choose(&parts.iter().map(Kept::share).collect::<Vec<_>>(), &Rules::default()) {
            assert!(steps.len() < 10, "{steps:?}");
            let gone: Vec<_> = match &step {
                Step::Remove(number) => vec![*number],
                Step::Copy { from, .. } => from.clone(),
            };
            if let Step::Copy { from, form } = &step {
                let number = PartNumber(100 + steps.len() as u32);
                let kept: Vec<_> = from
                    .iter()
                    .map(|from| parts.iter().find(|kept| kept.part.number() == *from).unwrap())
                    .collect();
                let live: Vec<_> = kept.iter().map(|kept| kept.live()).collect();
                let sources: Vec<_> = kept
                    .iter()
                    .zip(&live)
                    .map(|(kept, live)| (&kept.part, &live[..]))
                    .collect();
                let sealed = ready(copy(&files, &sources, number, *form)).unwrap();
                assert_eq!(sealed.places.len(), live.iter().map(Vec::len).sum::<usize>());
                let part = ready(Part::open(&files, number)).unwrap();
                let every: Vec<_> = (0..part.rows_count()).collect();
                let rows = ready(part.answers(&every))
                    .unwrap()
                    .into_iter()
                    .map(|row| (row, true))
                    .collect();
                parts.push(Kept {
                    part,
                    rows,
                    heat: kept[0].heat,
                });
            }
            parts.retain(|kept| !gone.contains(&kept.part.number()));
            steps.push(step);
        }
        assert_eq!(living(&parts), before);
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert_eq!(steps[0], Step::Remove(PartNumber(0)));
        assert_eq!(
            steps[1],
            Step::Copy {
                from: vec![PartNumber(2), PartNumber(5)],
                form: Form::Plain
            }
        );
        assert_eq!(
            steps[2],
            Step::Copy {
                from: vec![PartNumber(4)],
                form: Form::Cold
            }
        );
    }
}
