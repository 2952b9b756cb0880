use std::future::Future;

use super::{
    disk_tests::{Chance, Disk, now},
    writer_tests::{OPTIONS, covered, create, entry, key, open, same},
    *,
};

/// All that a tree says.
type Told = (Vec<String>, Covered, Vec<Entry>);

fn told(disk: &Disk) -> Result<Told, IndexError> {
    let (writer, opened) = open(disk)?;
    assert_eq!(writer.tree().verify().unwrap().entries, opened.entries);
    Ok((opened.models, opened.covered, writer.tree().entries().collect()))
}

/// Commits, and one new index among them, until all is done or power goes; adds what was told after each.
fn live(
    writer: &mut IndexWriter<Disk>,
    chance: &mut Chance,
    told: &mut Vec<Told>,
    from: u64,
) -> Result<(), IndexError> {
    for round in from..from + 5 {
        if chance.below(3) == 0 {
            writer.model(&format!("model {round}"))?;
        }
        let models = writer.models().len();
        let changes: Vec<_> = (0..chance.below(60))
            .map(|_| {
                let key = key(chance.below(models) as u16, chance.below(80) as u64, 7);
                match chance.below(3) {
                    0 => Change::Remove(key),
                    _ => Change::Put(entry(key, chance.next())),
                }
            })
            .collect();
        // What it will be, from a twin whose disk is sound.
        let names: Vec<_> = writer.models().map(str::to_owned).collect();
        let old: Vec<_> = writer.tree().entries().collect();
        let twin = IndexWriter::build(
            Disk::new(),
            View::Copied,
            OPTIONS,
            names.clone(),
            covered(0),
            old.clone(),
        );
        let (mut twin, _) = now(twin).unwrap();
        now(twin.commit(changes.clone(), covered(round), same)).unwrap();
        told.push((names, covered(round), twin.tree().entries().collect()));
        if round % 5 == 3 {
            now(writer.rebuild(OPTIONS, covered(round), twin.tree().entries().collect::<Vec<_>>()))?;
        } else {
            now(writer.commit(changes, covered(round), same))?;
        }
    }
    Ok(())
}

#[test]
fn power_may_go_at_any_step() {
    let (mut deaths, mut before, mut after) = (0, 0, 0);
    for seed in 0..5 {
        for step in 1.. {
            let mut chance = Chance(seed * 1000);
            let disk = Disk::new();
            let mut writer = create(&disk);
            writer.model("first").unwrap();
            now(writer.commit(Vec::new(), covered(0), same)).unwrap();
            let mut states = vec![told(&disk).unwrap()];
            disk.die_at(disk.steps() + step);
            if live(&mut writer, &mut chance, &mut states, 1).is_ok() {
                break;
            }
            deaths += 1;
            // What lasted is the state before the commit that power interrupted, or after.
            let [.., old, new] = states.as_slice() else {
                panic!("no commit began")
            };
            for lost in 0..4 {
                let left = disk.after(&mut Chance(seed * 77 + step * 5 + lost));
                let found = told(&left).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                assert!(found == *old || found == *new, "seed {seed}, step {step}, loss {lost}");
                (before, after) = (before + u32::from(found == *old), after + u32::from(found == *new));
                // And it can be gone on with from there, until power goes once more.
                let (mut writer, _) = open(&left).unwrap();
                let mut states = vec![found];
                left.die_at(left.steps() + 1 + (step * 3 + lost) % 40);
                if live(&mut writer, &mut chance, &mut states, 100).is_err() {
                    let left = left.after(&mut Chance(lost));
                    let found = told(&left).unwrap();
                    assert!(
                        states[states.len() - 2..].contains(&found),
                        "seed {seed}, step {step}, again"
                    );
                }
            }
        }
    }
    assert!(
        deaths > 100 && before > 100 && after > 50,
        "{deaths} deaths, {before} before, {after} after"
    );
}

#[test]
fn power_may_go_while_the_first_index_is_made() {
    let mut whole = 0;
    for step in 1..100 {
        let disk = Disk::new();
        disk.die_at(step);
        let done = now(IndexWriter::create(disk.clone(), View::Copied, OPTIONS)).is_ok();
        for lost in 0..8 {
            match open(&disk.after(&mut Chance(step * 31 + lost))) {
                Ok((_, opened)) => {
                    assert_eq!(opened.entries, 0);
                    whole += 1;
                }
                Err(IndexError::Missing) if !done => {}
                Err(error) => panic!("step {step}: {error}"),
            }
        }
        if done {
            assert!(whole >= 8);
            return;
        }
    }
    panic!("it was never done");
}

#[test]
fn a_commit_that_is_dropped_on_its_way_leaves_the_writer_uncertain() {
    // A disk that never answers: the future is polled once and dropped.
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    let changes = vec![Change::Put(entry(key(0, 1, 4), 1))];
    disk.stall(true);
    let mut commit = Box::pin(writer.commit(changes.clone(), covered(1), same));
    let waker = std::task::Waker::noop();
    assert!(
        commit
            .as_mut()
            .poll(&mut std::task::Context::from_waker(waker))
            .is_pending()
    );
    drop(commit);
    disk.stall(false);
    let refused = now(writer.commit(changes, covered(1), same));
    assert!(matches!(refused, Err(IndexError::Uncertain)));
    assert_eq!(open(&disk).unwrap().1.entries, 0);
}
