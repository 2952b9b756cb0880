use std::{future::Future, time::Duration};

use proptest::prelude::*;

use super::{
    frame::{self, ALIGN, Decoded, Unfit, decode, encode, parse, size},
    log::*,
    sample_tests::{answer, any_answer},
};
use crate::{
    files::{File, Files, Open, SimDisk, SimFiles, disk::ready, sim::Fault},
    types::{Answer, PartNumber, Place},
};

const PART: PartNumber = PartNumber(7);
const SMALL: u64 = 512 << 10;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn read_all(files: &SimFiles, from: u64) -> (Vec<(Answer, Place)>, u64) {
    ready(async {
        let file = files.open(&name(PART), Open::Existing).await.unwrap();
        let mut replay = replay(&file, PART, from).await.unwrap();
        let mut found = Vec::new();
        while let Some(frame) = replay.next().await.unwrap() {
            found.push((frame.to_answer(), frame.place));
        }
        assert_eq!(replay.next().await.unwrap(), None);
        (found, replay.offset())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn frames_are_read_as_they_were_written(answer in any_answer(), part: u32, offset in 0..1_u64 << 40) {
        let (part, offset) = (PartNumber(part), offset * 8);
        let mut bytes = vec![9; 3];
        let place = encode(&answer, part, offset, 1 << 20, &mut bytes).unwrap();
        let bytes = &bytes[3..];
        prop_assert_eq!((bytes.len(), bytes.len() % ALIGN), (size(&answer), 0));
        prop_assert_eq!(decode(bytes, part, offset, 1 << 20), Decoded::Answer(bytes.len()));
        let frame = parse(bytes, part, offset).unwrap();
        prop_assert_eq!(&frame.to_answer(), &answer);
        prop_assert_eq!(frame.place, place);
        let start = (place.offset - offset) as usize;
        prop_assert_eq!(&bytes[start..start + place.len as usize], &answer.body[..]);
        // Elsewhere it is none.
        for (part, offset) in [(PartNumber(part.0 ^ 1), offset), (part, offset ^ 8)] {
            prop_assert_eq!(decode(bytes, part, offset, 1 << 20), Decoded::Nothing);
        }
        // Cut off, it may come or it is none; it is never taken.
        for cut in [0, 1, 15, 16, 103, 104, bytes.len() - 1].into_iter().filter(|cut| *cut < bytes.len()) {
            let found = decode(&bytes[..cut], part, offset, bytes.len() as u64);
            prop_assert!(matches!(found, Decoded::Needs(_)), "{:?} of {}", found, cut);
            prop_assert_eq!(decode(&bytes[..cut], part, offset, bytes.len() as u64 - 8), if cut < 16 { Decoded::Needs(16) } else { Decoded::Nothing });
        }
    }

    #[test]
    fn a_damaged_frame_is_none(answer in any_answer(), bit: prop::sample::Index) {
        let mut bytes = Vec::new();
        let place = encode(&answer, PART, 64, 1 << 20, &mut bytes).unwrap();
        // The padding says nothing.
        let told = (place.offset - 64) as usize + place.len as usize;
        let bit = bit.index(told * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!matches!(decode(&bytes, PART, 64, bytes.len() as u64), Decoded::Answer(_)));
    }

    #[test]
    fn any_bytes_are_read_without_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..300), magic: bool, most: u64) {
        if magic && bytes.len() > 16 {
            bytes[..4].copy_from_slice(b"ZHF1");
            bytes[8..12].copy_from_slice(&[248, 0, 0, 0]);
            bytes[12] = 1;
        }
        prop_assert!(!matches!(decode(&bytes, PART, 0, most), Decoded::Answer(_) | Decoded::Skip(_)));
        let _never_panics = parse(&bytes, PART, 0);
    }
}

#[test]
fn what_fits_no_frame_is_refused() {
    let plain = answer(1, 100);
    let long = size(&plain);
    let name = "m".repeat(70_000);
    for (answer, most, expected) in [
        (plain.clone(), long, None),
        (plain.clone(), long - 1, Some(Unfit::TooLong(long))),
        (
            Answer {
                model: name,
                ..plain.clone()
            },
            1 << 20,
            Some(Unfit::TooLong(70_208)),
        ),
        (
            Answer {
                body: vec![0xff],
                ..plain.clone()
            },
            long,
            Some(Unfit::NotText("body")),
        ),
        (
            Answer {
                request: Some(vec![0xc0]),
                ..plain
            },
            long + 8,
            Some(Unfit::NotText("request")),
        ),
    ] {
        let mut out = vec![1];
        assert_eq!(encode(&answer, PART, 0, most, &mut out).err(), expected);
        assert_eq!(out.len() == 1, expected.is_some());
    }
}

#[test]
fn names_have_numbers() {
    for (file, expected) in [
        ("active-7.seg", Some(7)),
        ("active-0.seg", Some(0)),
        ("active-07.seg", None),
        ("active-+7.seg", None),
        ("active-.seg", None),
        ("active-4294967296.seg", None),
        ("active-7.seg.old", None),
        ("part-7.parquet", None),
    ] {
        assert_eq!(number(file), expected.map(PartNumber), "{file}");
    }
    assert_eq!(number(&name(PartNumber(u32::MAX))), Some(PartNumber(u32::MAX)));
}

#[test]
fn a_segment_takes_what_fits_and_gives_it_back() {
    let disk = SimDisk::new(1);
    let files = disk.folder("log");
    let mut put = Vec::new();
    ready(async {
        let mut log = Log::create(&files, PART, SMALL, Durability::Batch).await.unwrap();
        assert!(Log::create(&files, PART, SMALL, Durability::Batch).await.is_err());
        let huge = answer(0, SMALL as usize - 4096);
        assert!(matches!(
            log.append(&huge, at(0)),
            Err(Refused::Unfit(Unfit::TooLong(_)))
        ));
        for number in 0.. {
            let answer = answer(number, (number as usize * 997) % 9000);
            let now = at(number);
            match log.append(&answer, now) {
                Ok(place) => put.push((answer, place)),
                Err(error) => {
                    assert_eq!(error, Refused::Full);
                    break;
                }
            }
            if log.has_batch() {
                log.write().await.unwrap();
            }
            if log.due(now) {
                log.flush().await.unwrap();
                assert_eq!((log.lasting(), log.deadline()), (log.end(), None));
            }
            // What waits and what is written can be read alike.
            for (answer, place) in put.iter().rev().take(20) {
                assert_eq!(log.read(*place).await.unwrap(), answer.body);
            }
        }
        assert!(log.is_full() && put.len() > 80);
        log.flush().await.unwrap();
        // A last small one may fit, and its skip always does.
        while let Ok(place) = log.append(&answer(9, 0), at(0)) {
            put.push((answer(9, 0), place));
            log.flush().await.unwrap();
        }
        assert!(log.end() <= SMALL);
        let counts = log.counts();
        assert_eq!((counts.bytes_written, log.written()), (log.end(), log.end()));
        let other = Place {
            part: PartNumber(8),
            ..put[0].1
        };
        assert!(log.read(other).await.is_err());
        let damaged = Place {
            crc: put[0].1.crc ^ 1,
            ..put[0].1
        };
        assert_eq!(
            log.read(damaged).await.unwrap_err().kind(),
            std::io::ErrorKind::InvalidData
        );
        let beyond = Place {
            offset: log.end(),
            ..put[0].1
        };
        assert_eq!(
            log.read(beyond).await.unwrap_err().kind(),
            std::io::ErrorKind::UnexpectedEof
        );
        assert_eq!(read_all(&files, 0), (put.clone(), log.end()));
    });
    // From each frame on, too.
    for from in (0..put.len()).step_by(17) {
        let (answer, place) = &put[from];
        let before = frame::HEAD + answer.model.len() + answer.request.as_ref().map_or(0, Vec::len);
        let start = place.offset - before as u64;
        assert_eq!(read_all(&files, start).0, put[from..]);
        assert_eq!(
            read_all(&files, start + 1),
            (Vec::new(), start + 1),
            "no frame begins there"
        );
    }
    // A frame that was damaged is the end.
    let (_, place) = &put[40];
    assert!(disk.damage("log", &name(PART), place.offset as usize, 1));
    assert_eq!(read_all(&files, 0).0, put[..40]);
}

#[test]
fn answers_are_due_as_the_durability_says() {
    for (durability, due_after, syncs) in [
        (Durability::None, 50, 0),
        (Durability::Batch, 50, 1),
        (Durability::Sync, 0, 1),
    ] {
        let files = SimDisk::new(1).folder("log");
        let mut log = ready(Log::create(&files, PART, SMALL, durability)).unwrap();
        assert!(!log.due(at(1000)) && log.deadline().is_none());
        log.append(&answer(1, 10), at(100)).unwrap();
        log.append(&answer(2, 10), at(120)).unwrap();
        assert_eq!(log.deadline(), Some(at(100 + due_after)));
        assert!(log.due(at(100 + due_after)) && (due_after == 0 || !log.due(at(99 + due_after))));
        ready(log.flush()).unwrap();
        assert!(!log.due(at(1000)));
        ready(log.flush()).unwrap();
        let counts = log.counts();
        assert_eq!(
            (counts.syncs, counts.writes, counts.bytes_written),
            (syncs, 1, BLOCK as u64)
        );
    }
}

#[test]
fn steady_load_writes_little_more_than_it_puts() {
    let files = SimDisk::new(1).folder("log");
    let mut log = ready(Log::create(&files, PART, 8 << 20, Durability::Batch)).unwrap();
    // 2,000 answers a second of about 1.9 KB.
    for number in 0..3500 {
        let now = Duration::from_micros(number * 500);
        log.append(&answer(number, 1000 + (number as usize * 131) % 1800), now)
            .unwrap();
        if log.has_batch() {
            ready(log.write()).unwrap();
        }
        if log.due(now) {
            ready(log.flush()).unwrap();
        }
    }
    ready(log.flush()).unwrap();
    let counts = log.counts();
    let amplification = counts.bytes_written as f64 / counts.bytes_put as f64;
    assert!(
        counts.bytes_put > 6 << 20 && (1.0..=1.05).contains(&amplification),
        "{counts:?}"
    );
}

#[test]
fn a_failed_write_breaks_the_segment_and_keeps_what_lasted() {
    for fault in [Fault::Io, Fault::ReadOnly, Fault::Full] {
        for late in 1..=2 {
            let disk = SimDisk::new(5);
            let files = disk.folder("log");
            let mut log = ready(Log::create(&files, PART, SMALL, Durability::Batch)).unwrap();
            let first = log.append(&answer(1, 500), at(0)).unwrap();
            ready(log.flush()).unwrap();
            let lasting = log.lasting();
            let second = log.append(&answer(2, 500), at(0)).unwrap();
            disk.fail_at(disk.steps() + late, fault);
            assert!(ready(log.flush()).is_err());
            assert!(log.is_broken() && log.lasting() == lasting);
            assert_eq!(log.append(&answer(3, 500), at(0)), Err(Refused::Broken));
            assert!(ready(log.flush()).is_err() && log.lasting() == lasting);
            assert_eq!(ready(log.read(first)).unwrap(), answer(1, 500).body);
            if late == 1 {
                assert_eq!(ready(log.read(second)).unwrap(), answer(2, 500).body);
            }
            let after = read_all(&disk.crash().folder("log"), 0).0;
            assert_eq!(after.first(), Some(&(answer(1, 500), first)));
        }
    }
    // No room from the start: nothing is left behind.
    let disk = SimDisk::new(5);
    disk.set_room(1000);
    let files = disk.folder("log");
    let error = ready(Log::create(&files, PART, SMALL, Durability::Batch)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(ready(files.list()).unwrap(), []);
    for capacity in [0, BATCH as u64 - BLOCK as u64, SMALL + 1, 1 << 33] {
        assert!(ready(Log::create(&files, PART, capacity, Durability::None)).is_err());
    }
}

/// Puts until power goes; what was put, and how many of them lasted.
async fn live(
    files: &SimFiles,
    seed: u64,
    durability: Durability,
    put: &mut Vec<(Answer, Place)>,
    lasted: &mut usize,
) -> std::io::Result<()> {
    let mut log = Log::create(files, PART, 2 * BATCH as u64, durability).await?;
    for number in 0..120 {
        let answer = answer(seed * 1000 + number, ((seed + number) as usize * 7919) % 1500);
        let now = at(number * 5);
        let Ok(place) = log.append(&answer, now) else { break };
        put.push((answer, place));
        if log.has_batch() {
            log.write().await?;
        }
        if log.due(now) {
            log.flush().await?;
            *lasted = put.len();
        }
    }
    log.flush().await?;
    *lasted = put.len();
    Ok(())
}

#[test]
fn power_may_go_at_any_step() {
    let (mut deaths, mut torn) = (0, 0);
    for seed in 0..100 {
        for step in 1.. {
            let disk = SimDisk::new(seed * 100 + step);
            disk.die_at(step);
            let files = disk.folder("log");
            let (mut put, mut lasted) = (Vec::new(), 0);
            let durability = if seed % 3 == 0 {
                Durability::Sync
            } else {
                Durability::Batch
            };
            if ready(live(&files, seed, durability, &mut put, &mut lasted)).is_ok() {
                break;
            }
            deaths += 1;
            let disk = disk.crash();
            let after = disk.folder("log");
            let found = match ready(after.list()).unwrap().is_empty() {
                true => Vec::new(),
                false => read_all(&after, 0).0,
            };
            // What is there is the beginning of what was put, to the byte; and what lasted is there.
            assert!(found.len() >= lasted, "seed {seed}, step {step}");
            assert_eq!(found, put[..found.len()], "seed {seed}, step {step}");
            torn += usize::from(found.len() < put.len() && found.len() > lasted);
        }
    }
    assert!(deaths > 3000 && torn > 60, "{deaths}, {torn}");
}

#[test]
fn one_long_answer_goes_through() {
    fn now<T>(future: impl Future<Output = T>) -> T {
        ready(future)
    }
    let files = SimDisk::new(1).folder("log");
    let mut log = now(Log::create(&files, PART, SEGMENT, Durability::Batch)).unwrap();
    let long = answer(1, 40 << 20);
    let places = [answer(0, 10), long.clone(), answer(2, 10)].map(|answer| log.append(&answer, at(0)).unwrap());
    now(log.write()).unwrap();
    assert_eq!(now(log.read(places[1])).unwrap(), long.body);
    now(log.flush()).unwrap();
    let found = read_all(&files, 0).0;
    assert!(found.iter().map(|(_, place)| *place).eq(places) && found[1].0 == long);
    assert!(now(log.file().size()).unwrap() == SEGMENT);
}
