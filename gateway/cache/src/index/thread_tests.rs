use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{
    disk_tests::{Chance, now},
    folder_tests::Folder,
    writer_tests::{OPTIONS, covered, entry, key, same},
    *,
};

const READERS: usize = 8;
const ROUNDS: u64 = 120;
const SPREAD: u64 = 60;

fn view(folder: &Folder) -> View {
    View::Mapped(folder.path().to_owned())
}

/// The last round, up to this one, that puts the key; each key comes back every third round, and there are more each round.
fn put_in(n: u64, round: u64) -> Option<u64> {
    let puts = |round: u64| n < round * 25 && (round + n).is_multiple_of(3);
    (1..=round).rev().take(3).find(|round| puts(*round))
}

/// What this round puts: all that an entry holds follows from the key and the round.
fn of_round(n: u64, round: u64) -> Entry {
    Entry {
        created: round as u32,
        ..entry(key(0, n, SPREAD), n ^ (round << 32))
    }
}

/// Single look-ups: nothing torn, nothing older than what was done before.
fn look_up(reader: &Reader, done: &AtomicU64, chance: &mut Chance) {
    let before = done.load(Ordering::Acquire);
    let n = chance.next() % (ROUNDS * 25);
    let found = reader.get(&key(0, n, SPREAD));
    match found {
        Some(found) => {
            let round = u64::from(found.created);
            assert_eq!(found, of_round(n, round));
            assert!(
                put_in(n, before).is_none_or(|least| round >= least),
                "key {n}: an old answer"
            );
        }
        None => assert_eq!(put_in(n, before), None, "key {n} is lost"),
    }
}

/// A held tree: all of it is of one commit, however many come meanwhile.
fn walk(reader: &Reader) {
    let tree = reader.tree();
    let entries: Vec<_> = tree.entries().collect();
    let round = entries.iter().map(|entry| u64::from(entry.created)).max().unwrap_or(0);
    assert_eq!(entries.len() as u64, tree.len());
    let expected: Vec<_> = (0..round * 25)
        .filter_map(|n| Some(of_round(n, put_in(n, round)?)))
        .collect();
    assert_eq!(entries.len(), expected.len());
    assert!(expected.iter().all(|entry| tree.get(&entry.key) == Some(*entry)));
}

#[test]
fn eight_readers_see_whole_commits_while_the_file_changes_and_grows() {
    let folder = Folder::new("readers").unwrap();
    let mut writer = now(IndexWriter::create(folder.clone(), view(&folder), OPTIONS)).unwrap();
    writer.model("a").unwrap();
    let (done, start) = (AtomicU64::new(0), Barrier::new(READERS + 1));
    let first = writer.file_bytes();
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (mine, done, start) = (writer.reader(), &done, &start);
            scope.spawn(move || {
                let mut chance = Chance(reader as u64);
                start.wait();
                while done.load(Ordering::Acquire) < ROUNDS {
                    if reader < 2 {
                        walk(&mine);
                    }
                    (0..200).for_each(|_| look_up(&mine, done, &mut chance));
                }
                walk(&mine);
            });
        }
        start.wait();
        for round in 1..=ROUNDS {
            let changed = (0..round * 25).filter(|n| put_in(*n, round) == Some(round));
            let changes: Vec<_> = changed.map(|n| Change::Put(of_round(n, round))).collect();
            // Where a walk was put to sleep by a busy machine, the commit is tried again.
            while let Err(error) = now(writer.commit(changes.clone(), covered(round), same)) {
                assert!(matches!(error, IndexError::Held), "{error}");
                thread::yield_now();
            }
            if round == ROUNDS / 2 {
                let entries: Vec<_> = writer.tree().entries().collect();
                now(writer.rebuild(OPTIONS, covered(round), entries)).unwrap();
            }
            done.store(round, Ordering::Release);
        }
    });
    assert!(writer.file_bytes() > first);
    let all = writer.tree().verify().unwrap();
    drop(writer);
    let (writer, opened) = now(IndexWriter::open(folder.clone(), view(&folder))).unwrap();
    assert_eq!((opened.covered, opened.entries), (covered(ROUNDS), all.entries));
    walk(&writer.reader());
}

#[test]
fn a_file_that_others_may_open_is_not_mapped() {
    let folder = Folder::new("mode").unwrap();
    drop(now(IndexWriter::create(folder.clone(), view(&folder), OPTIONS)).unwrap());
    let path = folder.path().join(NAME_OF_FILE);
    for (mode, opens) in [(0o600, true), (0o640, false), (0o602, false), (0o400 | 0o200, true)] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        match now(IndexWriter::open(folder.clone(), view(&folder))) {
            Ok(_) => assert!(opens, "{mode:o}"),
            Err(IndexError::Io(error)) => {
                assert!(
                    !opens && error.kind() == io::ErrorKind::PermissionDenied,
                    "{mode:o}: {error}"
                );
            }
            Err(error) => panic!("{mode:o}: {error}"),
        }
    }
    fs::write(&path, []).unwrap();
    let empty = now(IndexWriter::open(folder.clone(), view(&folder))).err();
    assert!(matches!(empty, Some(IndexError::Damaged(_))), "{empty:?}");
}
