use super::{
    disk_tests::{Chance, Disk, now},
    meta::Meta,
    page::put,
    writer_tests::{covered, create, entry, key, open, same},
    *,
};

/// A file of two commits, and what each tree told.
fn two_commits() -> (Vec<u8>, [Vec<Entry>; 2]) {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    let told = [1, 2].map(|round| {
        // Each in its own bucket, so that the first one's leaf is of both trees.
        let changes = (0..90).map(|n| Change::Put(entry(key(0, 3 * n + round, 3), n)));
        now(writer.commit(changes.collect(), covered(round), same)).unwrap();
        writer.tree().entries().collect()
    });
    (disk.bytes(NAME_OF_FILE), told)
}

/// Opens and compares with what may be there; whether it was there.
fn right_or_refused(bytes: Vec<u8>, told: &[Vec<Entry>], what: &dyn Fn() -> String) -> bool {
    match open(&Disk::holding(NAME_OF_FILE, bytes)) {
        Ok((writer, _)) => {
            let found: Vec<_> = writer.tree().entries().collect();
            assert!(told.contains(&found), "{}: wrong entries", what());
            true
        }
        Err(IndexError::Damaged(_)) => false,
        Err(error) => panic!("{}: {error}", what()),
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_out() {
    let (bytes, told) = two_commits();
    let [first, last] = &told;
    assert_ne!(first, last);
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let (mut opened, mut refused) = (0, 0);
    // One byte in three, each with another bit.
    for at in (0..used).step_by(3) {
        let mut bytes = bytes[..used.next_multiple_of(PAGE)].to_vec();
        bytes[at] ^= 1 << (at % 8);
        match right_or_refused(bytes, &told, &|| format!("bit {} of byte {at}", at % 8)) {
            true => opened += 1,
            false => refused += 1,
        }
    }
    // In a free page or a meta slot it does not matter; in a page of both trees nothing is left to open.
    assert!(opened > 1000 && refused > 1000, "{opened} opened, {refused} refused");
}

#[test]
fn pages_that_are_lost_mixed_up_or_of_another_time_are_found_out() {
    let (mut bytes, told) = two_commits();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let pages = used.div_ceil(PAGE);
    bytes.truncate(pages * PAGE);
    let mut chance = Chance(5);
    let mut refused = 0;
    for _ in 0..400 {
        let mut bytes = bytes.clone();
        let (to, from) = (chance.below(pages), chance.below(pages));
        match chance.below(4) {
            0 => bytes[to * PAGE..][..PAGE].fill(0),
            1 => bytes.copy_within(from * PAGE..(from + 1) * PAGE, to * PAGE),
            2 => bytes.truncate(to * PAGE + chance.below(PAGE)),
            _ => bytes[to * PAGE + 512 * chance.below(16)..][..512].fill(chance.next() as u8),
        }
        refused += u32::from(!right_or_refused(bytes, &told, &|| format!("page {to} of {from}")));
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_damaged_newest_tree_gives_way_to_the_one_before() {
    let (mut bytes, [first, _]) = two_commits();
    // The second commit's number is 2: slot 0.
    bytes[100] ^= 1;
    let (mut writer, opened) = open(&Disk::holding(NAME_OF_FILE, bytes)).unwrap();
    assert_eq!(opened.covered, covered(1));
    assert_eq!(writer.tree().entries().collect::<Vec<_>>(), first);
    now(writer.commit(vec![Change::Put(entry(key(0, 9999, 3), 1))], covered(3), same)).unwrap();
    assert_eq!(writer.tree().len(), first.len() as u64 + 1);
}

#[test]
fn what_is_not_this_format_is_named() {
    let (bytes, _) = two_commits();
    let with = |at: usize, what: &[u8], sealed: bool| {
        let mut bytes = bytes.clone();
        for slot in bytes.chunks_mut(PAGE).take(2) {
            put(slot, at, what);
            if sealed {
                let checksum = blake3::hash(&slot[..PAGE - 32]);
                put(slot, PAGE - 32, checksum.as_bytes());
            }
        }
        open(&Disk::holding(NAME_OF_FILE, bytes)).err()
    };
    let newer = |error: &Option<IndexError>| matches!(error, Some(IndexError::Newer(2)));
    let damaged = |error: &Option<IndexError>| matches!(error, Some(IndexError::Damaged(_)));
    assert!(newer(&with(8, &2_u32.to_le_bytes(), true)));
    assert!(damaged(&with(8, &2_u32.to_le_bytes(), false)));
    assert!(damaged(&with(0, b"ZHINDEX!", true)));
    assert!(damaged(&with(12, &4096_u32.to_le_bytes(), true)));
    assert!(damaged(&with(24, &1000_u32.to_le_bytes(), true)));
    assert!(damaged(&with(28, &u32::MAX.to_le_bytes(), true)));
    assert!(damaged(&with(48, &7_u64.to_le_bytes(), true)));
    for bytes in [vec![], vec![0; 100], vec![0; 4 * PAGE], vec![0xff; 4 * PAGE]] {
        let error = open(&Disk::holding(NAME_OF_FILE, bytes)).err();
        assert!(damaged(&error), "{error:?}");
    }
    assert!(matches!(open(&Disk::new()).err(), Some(IndexError::Missing)));
}

#[test]
fn the_bytes_are_those_of_the_diagram() {
    let disk = Disk::new();
    let mut writer = create(&disk);
    writer.model("a").unwrap();
    let entry = entry(key(0, 2, 4), 1);
    now(writer.commit(vec![Change::Put(entry)], covered(9), same)).unwrap();
    let bytes = disk.bytes(NAME_OF_FILE);
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let meta = PAGE;
    assert_eq!(&bytes[meta..meta + 8], b"ZHINDEX\0");
    let numbers = [8, 12, 16, 24, 28, 32, 40, 48, 56, 60].map(|at| number(meta + at));
    assert_eq!(numbers, [FORMAT, 8192, 1, 1024, 1, 1, 9, 1, 3, 7]);
    let page = |slot: usize| {
        let page = number(slot) as usize * PAGE;
        let hash = blake3::hash(&bytes[page..page + PAGE]);
        assert_eq!(bytes[slot + 4..slot + 32], hash.as_bytes()[..28]);
        page
    };
    let directory = page(meta + 64);
    assert_eq!(&bytes[directory + 32..directory + 35], b"\x01a\0");
    let leaf = page(page(page(directory)) + 2 * 32);
    assert_eq!(bytes[leaf..leaf + 16], *b"L\x01\0\0\x02\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(bytes[leaf + 16..leaf + 18], entry.key.prompt.0[30..]);
    let row = leaf + 240;
    assert_eq!(bytes[row..row + 16], entry.key.context.0);
    assert_eq!(bytes[row + 16..row + 45], entry.key.prompt.0[1..30]);
    let place = entry.place;
    let numbers = [45, 49, 53, 59, 63, 67, 71, 75].map(|at| number(row + at));
    let expected = [
        entry.id.0,
        place.part.0,
        place.offset as u32,
        place.len,
        place.crc,
        1,
        entry.expires,
    ];
    assert_eq!(numbers[..7], expected);
    assert_eq!((u64::from(number(row + 55)) << 16) >> 32, place.offset >> 32);
    assert_eq!(f32::from_bits(numbers[7]), entry.heat);
    assert!(matches!(
        Meta::read(bytes[meta..meta + PAGE].try_into().unwrap()),
        meta::Found::Meta(_)
    ));
}
