use std::collections::BTreeMap;

use super::{
    disk_tests::{Chance, Disk, now},
    *,
};
use crate::types::{Context, EntryId, Key, NEVER, Place, PromptHash};

pub(super) const OPTIONS: Options = Options {
    buckets: 1024,
    versions: HashVersions { prompt: 3, context: 7 },
};

/// The `n`th key: few contexts, and buckets 0 to `spread` - 1.
pub(super) fn key(model: u16, n: u64, spread: u64) -> Key {
    let mut chance = Chance(n);
    let mut prompt = [0; 32];
    for part in prompt.chunks_mut(8) {
        part.copy_from_slice(&chance.next().to_le_bytes());
    }
    let word = (chance.next() & !0xff_ffff) | (n % spread);
    prompt[..8].copy_from_slice(&word.to_le_bytes());
    Key {
        model: ModelNumber(model),
        context: Context([(n % 5) as u8; 16]),
        prompt: PromptHash(prompt),
    }
}

pub(super) fn entry(key: Key, n: u64) -> Entry {
    let mut chance = Chance(n ^ 0xabc);
    Entry {
        key,
        id: EntryId(chance.next() as u32),
        place: Place {
            part: PartNumber(chance.next() as u32),
            offset: chance.next() >> 16,
            len: chance.next() as u32,
            crc: chance.next() as u32,
        },
        created: n as u32,
        expires: NEVER - n as u32,
        heat: chance.below(1000) as f32 / 7.0,
    }
}

pub(super) fn same(entry: &Entry) -> f32 {
    entry.heat
}

pub(super) fn covered(n: u64) -> Covered {
    Covered {
        segment: PartNumber(n as u32 / 7),
        offset: n,
    }
}

pub(super) fn create(disk: &Disk) -> IndexWriter<Disk> {
    now(IndexWriter::create(disk.clone(), View::Copied, OPTIONS)).unwrap()
}

pub(super) fn open(disk: &Disk) -> Result<(IndexWriter<Disk>, Opened), IndexError> {
    now(IndexWriter::open(disk.clone(), View::Copied))
}

fn puts(entries: impl IntoIterator<Item = Entry>) -> Vec<Change> {
    entries.into_iter().map(Change::Put).collect()
}

/// Random changes, and the same in a map.
fn change(chance: &mut Chance, all: &mut BTreeMap<Key, Entry>, models: usize, spread: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..chance.below(200) {
        let key = key(chance.below(models) as u16, chance.below(600) as u64, spread);
        if chance.below(3) == 0 {
            all.remove(&key);
            changes.push(Change::Remove(key));
        } else {
            let entry = entry(key, chance.next());
            all.insert(key, entry);
            changes.push(Change::Put(entry));
        }
    }
    changes
}

#[test]
fn a_tree_is_what_was_put_and_not_removed() {
    // Three levels of tables too; 600 keys a model never fill a bucket of 100.
    for (seed, buckets) in [(1, 1024), (2, 2048), (3, 65_536), (4, 131_072)] {
        let (mut chance, mut all, disk) = (Chance(seed), BTreeMap::new(), Disk::new());
        let options = Options { buckets, ..OPTIONS };
        let mut writer = now(IndexWriter::create(disk.clone(), View::Copied, options)).unwrap();
        let reader = writer.reader();
        for name in ["a", "b"] {
            writer.model(name).unwrap();
        }
        for round in 1..=12 {
            let changes = change(&mut chance, &mut all, 2, 300_007);
            let committed = now(writer.commit(changes, covered(round), same)).unwrap();
            assert_eq!((committed.entries, committed.evicted), (all.len() as u64, Vec::new()));
            for n in 0..600 {
                for model in 0..2 {
                    let key = key(model, n, 300_007);
                    assert_eq!(reader.get(&key), all.get(&key).copied());
                    let bucket: Vec<_> = writer.tree().bucket(key.model, &key.prompt).collect();
                    assert!(bucket.is_sorted_by(|left, right| left.key < right.key));
                    assert_eq!(bucket.iter().any(|entry| entry.key == key), all.contains_key(&key));
                }
            }
            let mut entries: Vec<_> = writer.tree().entries().collect();
            entries.sort_by_key(|entry| entry.key);
            assert_eq!(entries, all.values().copied().collect::<Vec<_>>());
            assert_eq!(writer.tree().verify().unwrap().entries, all.len() as u64);
            if round % 4 == 0 {
                let opened;
                (writer, opened) = open(&disk).unwrap();
                let expected = Opened {
                    models: vec!["a".into(), "b".into()],
                    covered: covered(round),
                    entries: all.len() as u64,
                    buckets,
                    versions: OPTIONS.versions,
                };
                assert_eq!(opened, expected);
                break;
            }
        }
        // A writer that opened goes on from there.
        let changes = change(&mut chance, &mut all, 2, 300_007);
        assert_eq!(
            now(writer.commit(changes, covered(99), same)).unwrap().entries,
            all.len() as u64
        );
        assert_eq!(open(&disk).unwrap().1.entries, all.len() as u64);
    }
}

#[test]
fn any_part_of_a_key_tells_entries_apart() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    writer.model("b").unwrap();
    let here = key(0, 11, 4);
    now(writer.commit(puts([entry(here, 1)]), covered(1), same)).unwrap();
    assert_eq!(writer.tree().get(&here), Some(entry(here, 1)));
    for byte in 0..32 {
        let mut other = here;
        other.prompt.0[byte] ^= 1;
        assert_eq!(writer.tree().get(&other), None, "prompt byte {byte}");
        other = here;
        other.context.0[byte % 16] ^= 0x80;
        assert_eq!(writer.tree().get(&other), None, "context byte {}", byte % 16);
    }
    for model in [1, 2, u16::MAX] {
        let model = ModelNumber(model);
        assert_eq!(writer.tree().get(&Key { model, ..here }), None);
    }
    // Equal tags in one leaf, and all of a leaf's places.
    let twins = (0..LEAF_ENTRIES as u8).map(|n| {
        let mut key = here;
        (key.context.0[0], key.prompt.0[12]) = (n % 3, n);
        entry(key, u64::from(n))
    });
    let twins: Vec<_> = twins.collect();
    now(writer.commit(vec![Change::Remove(here)], covered(2), same)).unwrap();
    now(writer.commit(puts(twins.clone()), covered(3), same)).unwrap();
    assert!(twins.iter().all(|twin| writer.tree().get(&twin.key) == Some(*twin)));
}

#[test]
fn only_what_changed_is_written() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    now(writer.commit(puts((0..5000).map(|n| entry(key(0, n, 1024), n))), covered(1), same)).unwrap();
    let kept = entry(key(0, 17, 1024), 17);
    let colder = Entry { heat: 0.5, ..kept };
    // Changes, and how many pages: leaves, tables (one for 256 buckets, and the root), the directory, a meta slot.
    let cases = [
        (vec![], covered(1), 0),
        (vec![], covered(2), 1),
        (puts([kept]), covered(3), 1),
        (vec![Change::Remove(key(0, 5_001, 1024))], covered(4), 1),
        (puts([colder]), covered(5), 5),
        (puts([kept, colder, kept, colder, kept]), covered(6), 5),
        (vec![Change::Remove(kept.key), Change::Put(kept)], covered(7), 1),
        (
            puts([18, 19, 300].map(|n| entry(key(0, n, 1024), n + 1))),
            covered(8),
            8,
        ),
    ];
    for (changes, covered, pages) in cases {
        let before = disk.written();
        let committed = now(writer.commit(changes.clone(), covered, same)).unwrap();
        assert_eq!(committed.pages_written, pages, "{changes:?}");
        assert_eq!(committed.bytes_written, pages * PAGE as u64);
        assert_eq!(disk.written() - before, committed.bytes_written);
    }
    // Pages of older trees are used again: the file does not grow with the number of commits.
    let bytes = writer.file_bytes();
    for n in 0..500 {
        let changes = puts([Entry { heat: n as f32, ..kept }]);
        now(writer.commit(changes, covered(n), same)).unwrap();
    }
    assert_eq!(writer.file_bytes(), bytes);
    assert!(writer.tree().verify().is_ok());
}

#[test]
fn a_tree_that_is_never_let_go_stops_the_writer_before_the_disk_is_full() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    let reader = writer.reader();
    let held = reader.tree();
    let mut commit = |n| now(writer.commit(puts([entry(key(0, n, 1), n)]), covered(n), same));
    let done = (0..).take_while(|n| commit(*n).is_ok()).count();
    assert_eq!(done, RETIRED);
    let steps = disk.steps();
    assert!(matches!(commit(200), Err(IndexError::Held)));
    assert_eq!((disk.steps(), held.len()), (steps, 0));
    drop(held);
    assert_eq!(commit(200).unwrap().entries, RETIRED as u64 + 1);
}

#[test]
fn a_full_bucket_gives_up_its_coldest() {
    let mut writer = create(&Disk::new());
    writer.model("a").unwrap();
    let one_bucket = |n: u64| Entry {
        heat: n as f32,
        ..entry(key(0, n, 1), n)
    };
    now(writer.commit(puts((0..100).map(one_bucket)), covered(1), same)).unwrap();
    // By the heat of now, not of then: 40 and 41 have cooled most.
    let heat = |entry: &Entry| {
        if [40, 41].contains(&entry.created) {
            -1.0
        } else {
            entry.heat
        }
    };
    let committed = now(writer.commit(puts((100..103).map(one_bucket)), covered(2), heat)).unwrap();
    let gone: Vec<_> = committed.evicted.iter().map(|entry| entry.created).collect();
    assert_eq!((gone, committed.entries), (vec![40, 41, 0], 100));
    assert_eq!(writer.tree().get(&key(0, 40, 1)), None);
    assert_eq!(writer.tree().get(&key(0, 102, 1)), Some(one_bucket(102)));
    assert_eq!(writer.tree().verify().unwrap().entries, 100);
}

#[test]
fn an_emptied_index_has_no_pages_but_its_directory() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    now(writer.commit(puts((0..50).map(|n| entry(key(0, n, 9), n))), covered(1), same)).unwrap();
    let removes = (0..50).map(|n| Change::Remove(key(0, n, 9))).collect();
    assert_eq!(now(writer.commit(removes, covered(2), same)).unwrap().entries, 0);
    let verified = writer.tree().verify().unwrap();
    assert_eq!(verified, Verified { pages: 1, entries: 0 });
    assert!(writer.tree().is_empty() && open(&disk).unwrap().0.tree().is_empty());
}

#[test]
fn names_keep_their_numbers() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    for n in 0..MODELS {
        assert_eq!(writer.model(&format!("model {n}")).unwrap(), ModelNumber(n as u16));
    }
    assert_eq!(writer.model("model 77").unwrap(), ModelNumber(77));
    assert!(matches!(writer.model("one more"), Err(IndexError::Models)));
    for name in [String::new(), "x".repeat(NAME + 1)] {
        assert!(matches!(writer.model(&name), Err(IndexError::Name(len)) if len == name.len()));
    }
    let last = key(MODELS as u16 - 1, 1, 4);
    now(writer.commit(puts([entry(last, 1)]), covered(1), same)).unwrap();
    let (mut writer, opened) = open(&disk).unwrap();
    assert_eq!(opened.models.len(), MODELS);
    assert_eq!(writer.model("model 333").unwrap(), ModelNumber(333));
    assert_eq!(writer.tree().get(&last), Some(entry(last, 1)));
}

#[test]
fn what_a_tree_cannot_hold_is_refused_before_anything_is_written() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    let steps = disk.steps();
    let mut far = entry(key(0, 1, 4), 1);
    far.place.offset = 1 << 48;
    let refused = now(writer.commit(puts([far]), covered(1), same));
    assert!(matches!(refused, Err(IndexError::Offset(_))));
    let refused = now(writer.commit(vec![Change::Remove(key(1, 1, 4))], covered(1), same));
    assert!(matches!(refused, Err(IndexError::UnknownModel(ModelNumber(1)))));
    assert_eq!(disk.steps(), steps);
    for buckets in [0, 512, 1000, 1025, 1 << 25] {
        let options = Options { buckets, ..OPTIONS };
        let refused = now(IndexWriter::create(Disk::new(), View::Copied, options));
        assert!(matches!(refused, Err(IndexError::Buckets(same)) if same == buckets));
    }
    let cases = [
        (0, 1024),
        (60_000, 1024),
        (67_584, 1024),
        (67_585, 2048),
        (1_000_000, 16_384),
        (u64::MAX, MAX_BUCKETS),
    ];
    for (entries, buckets) in cases {
        assert_eq!(buckets_for(entries), buckets, "{entries}");
    }
}

#[test]
fn an_index_is_built_anew_under_its_readers() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    let entries = |range: std::ops::Range<u64>| range.map(|n| entry(key(0, n, 300_007), n));
    now(writer.commit(puts(entries(0..3000)), covered(1), same)).unwrap();
    let reader = writer.reader();
    let options = Options {
        buckets: 4096,
        ..OPTIONS
    };
    let kept: Vec<_> = writer.tree().entries().filter(|entry| entry.created >= 1000).collect();
    let evicted = now(writer.rebuild(options, covered(2), kept)).unwrap();
    assert_eq!((evicted.len(), writer.buckets()), (0, 4096));
    now(writer.commit(puts(entries(3000..4000)), covered(3), same)).unwrap();
    for n in 0..4000 {
        let key = key(0, n, 300_007);
        assert_eq!(reader.get(&key), (n >= 1000).then(|| entry(key, n)));
    }
    let (opened, said) = open(&disk).unwrap();
    assert_eq!((said.buckets, said.entries, said.covered), (4096, 3000, covered(3)));
    assert_eq!(opened.tree().verify().unwrap(), writer.tree().verify().unwrap());
    // As many as a bucket can hold, the hottest.
    let full = (0..250).map(|n| Entry {
        heat: n as f32,
        ..entry(key(0, n, 1), n)
    });
    let evicted = now(writer.rebuild(OPTIONS, covered(4), full)).unwrap();
    assert_eq!((evicted.len(), writer.tree().len()), (150, 100));
    assert!(evicted.iter().all(|entry| entry.heat < 150.0));
}

#[test]
fn a_disk_that_fails_once_costs_one_commit_or_a_new_index() {
    let first = || puts((0..300).map(|n| entry(key(0, n, 40), n)));
    let second = || puts((200..900).map(|n| entry(key(0, n, 40), n + 1)));
    let mut outcomes = BTreeMap::new();
    for step in 1.. {
        let disk = Disk::new();
        let mut writer = create(&disk);
        writer.model("a").unwrap();
        now(writer.commit(first(), covered(1), same)).unwrap();
        let before: Vec<_> = writer.tree().entries().collect();
        disk.fail_at(disk.steps() + step);
        let failed = now(writer.commit(second(), covered(2), same));
        if failed.is_ok() {
            break;
        }
        assert!(matches!(failed, Err(IndexError::Io(_))));
        assert_eq!(writer.tree().entries().collect::<Vec<_>>(), before);
        let again = now(writer.commit(second(), covered(2), same));
        let outcome = match again {
            Ok(committed) => {
                assert_eq!(committed.entries, 900);
                "tried again"
            }
            Err(IndexError::Uncertain) => {
                let all: Vec<_> = before.clone();
                now(writer.rebuild(OPTIONS, covered(1), all)).unwrap();
                now(writer.commit(second(), covered(2), same)).unwrap();
                "built anew"
            }
            Err(error) => panic!("{error}"),
        };
        *outcomes.entry(outcome).or_insert(0) += 1;
        assert_eq!(open(&disk).unwrap().1.entries, 900);
        assert_eq!(
            writer.tree().verify().unwrap(),
            open(&disk).unwrap().0.tree().verify().unwrap()
        );
    }
    // The meta slot's write and its sync.
    assert_eq!(outcomes["built anew"], 2);
    assert!(outcomes["tried again"] >= 2, "{outcomes:?}");
}
