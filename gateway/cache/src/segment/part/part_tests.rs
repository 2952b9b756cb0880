use std::io::{ErrorKind, Write};

use super::{super::sample_tests::answer, *};
use crate::files::{Executor, File, Open, SimDisk, SimFiles, disk::ready, sim::Fault};

const PART: PartNumber = PartNumber(7);
const FORMS: [Form; 2] = [Form::Plain, Form::Cold];

/// Chance from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    /// Bytes of a body: 1.3 KB at the median, none at times, up to 1 MB rarely.
    fn size(&mut self) -> usize {
        let usual = 300 + self.below(2000);
        let size = match self.below(1000) {
            0 => 0,
            1 => self.below(1_000_000),
            2..100 => usual * (1 + self.below(8)),
            _ => usual,
        };
        size as usize
    }
}

fn row(number: u64, size: usize) -> Row {
    let mut answer = answer(number, size);
    // Exactly as many bytes, also fewer than the sample has at least.
    answer.body.truncate(size);
    Row {
        answer,
        hits: (number * 31 % 7) as u32,
    }
}

fn rows(seed: u64, count: u64) -> Vec<Row> {
    let mut chance = Chance(seed);
    (0..count).map(|number| row(number + seed, chance.size())).collect()
}

fn sealed(files: &SimFiles, rows: &[Row], form: Form) -> Sealed {
    ready(seal(files, PART, rows.to_vec(), form)).unwrap()
}

fn file_bytes(files: &SimFiles) -> Vec<u8> {
    ready(async {
        let file = files.open(&name(PART), Open::Existing).await.unwrap();
        file.read_at(file.size().await.unwrap() as usize, 0).await.unwrap()
    })
}

#[test]
fn rows_come_back_in_both_forms() {
    for (form, seed, count) in FORMS
        .into_iter()
        .flat_map(|form| [(form, 1, 1), (form, 2, 64), (form, 3, 65), (form, 4, 5000)])
    {
        let files = SimDisk::new(seed).folder("parts");
        let rows = rows(seed, count);
        let sealed = sealed(&files, &rows, form);
        assert_eq!((sealed.number, sealed.form), (PART, form));
        assert!(sealed.bytes <= bound(&rows), "{} of {}", sealed.bytes, bound(&rows));
        let all = file_bytes(&files);
        assert_eq!(all.len() as u64, sealed.bytes);
        ready(async {
            let part = Part::open(&files, PART).await.unwrap();
            assert_eq!(
                (part.form(), part.rows_count(), part.bytes()),
                (form, rows.len(), sealed.bytes)
            );
            part.verify().await.unwrap();
            let known = part.rows().await.unwrap();
            assert!(known.iter().zip(&rows).all(|(known, row)| known.is_of(row)));
            assert!(known.iter().map(|known| known.place).eq(sealed.places.iter().copied()));
            for (row, place) in rows.iter().zip(&sealed.places) {
                // As a worker does: one range of the file.
                let range = place.offset as usize..place.offset as usize + place.len as usize;
                let value = open_value(form, *place, all[range].to_vec()).unwrap();
                assert_eq!(value, row.answer.body);
            }
            for (row, place) in rows.iter().zip(&sealed.places).step_by(97) {
                assert_eq!(part.read(*place).await.unwrap(), row.answer.body);
            }
            let every: Vec<_> = (0..rows.len()).collect();
            assert_eq!(part.answers(&every).await.unwrap(), rows);
            let third: Vec<_> = (0..rows.len()).skip(1).step_by(3).collect();
            let found = part.answers(&third).await.unwrap();
            assert!(found.iter().eq(third.iter().map(|row| &rows[*row])));
        });
    }
}

#[test]
fn a_plain_value_is_the_body_as_it_is() {
    let files = SimDisk::new(1).folder("parts");
    let rows = rows(9, 500);
    let sealed = sealed(&files, &rows, Form::Plain);
    let all = file_bytes(&files);
    for (row, place) in rows.iter().zip(&sealed.places) {
        let at = place.offset as usize;
        assert_eq!(all[at - 4..at], (row.answer.body.len() as u32).to_le_bytes());
        assert_eq!(all[at..at + row.answer.body.len()], row.answer.body);
    }
    assert_eq!(ready(files.list()).unwrap(), [(name(PART), sealed.bytes)]);
}

#[test]
fn a_part_keeps_its_name_and_refuses_what_it_cannot_hold() {
    let files = SimDisk::new(1).folder("parts");
    let rows = rows(9, 20);
    sealed(&files, &rows, Form::Plain);
    let before = file_bytes(&files);
    let refused = |number, rows: Vec<Row>| ready(seal(&files, number, rows, Form::Plain)).unwrap_err().kind();
    assert_eq!(refused(PART, rows.clone()), ErrorKind::AlreadyExists);
    assert_eq!(refused(PartNumber(8), Vec::new()), ErrorKind::InvalidInput);
    for (body, request) in [
        (vec![b'a'; MOST_BODY + 1], None),
        (vec![0xff], None),
        (Vec::new(), Some(vec![0xff])),
    ] {
        let mut bad = rows[0].clone();
        bad.answer.body = body;
        bad.answer.request = request;
        assert_eq!(
            refused(PartNumber(8), vec![rows[1].clone(), bad]),
            ErrorKind::InvalidInput
        );
    }
    assert_eq!(ready(files.list()).unwrap(), [(name(PART), before.len() as u64)]);
    assert_eq!(file_bytes(&files), before);
    for (name, expected) in [
        ("part-7.parquet", Some(7)),
        ("part-0.parquet", Some(0)),
        ("part-07.parquet", None),
        ("part-7.tmp", None),
        ("part-.parquet", None),
        ("active-7.seg", None),
    ] {
        assert_eq!(number(name), expected.map(PartNumber), "{name}");
    }
    // A place of another part, or outside the bodies.
    ready(async {
        let part = Part::open(&files, PART).await.unwrap();
        let good = part.rows().await.unwrap()[0].place;
        for place in [
            Place {
                part: PartNumber(8),
                ..good
            },
            Place { offset: 4, ..good },
            Place {
                offset: before.len() as u64 - 8,
                ..good
            },
            Place {
                offset: u64::MAX,
                ..good
            },
        ] {
            assert_eq!(part.read(place).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
        let other = Place { crc: !good.crc, ..good };
        assert_eq!(part.read(other).await.unwrap_err().kind(), ErrorKind::InvalidData);
        for wanted in [&[3, 3][..], &[4, 3], &[20]] {
            assert_eq!(part.answers(wanted).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(part.answers(&[]).await.unwrap(), []);
    });
}

/// Writes a file anew with other bytes.
fn put_file(files: &SimFiles, number: PartNumber, bytes: &[u8]) {
    ready(async {
        let _ = files.remove(&name(number)).await;
        let file = files.open(&name(number), Open::New).await.unwrap();
        file.write_at(bytes.to_vec(), 0).await.0.unwrap();
    });
}

#[test]
fn other_versions_and_names_are_refused_in_one_line() {
    let files = SimDisk::new(1).folder("parts");
    sealed(&files, &rows(9, 20), Form::Plain);
    let all = file_bytes(&files);
    let at = all
        .windows(20)
        .rposition(|window| window == b"zerohop part, format")
        .unwrap();
    let mut newer = all.clone();
    newer[at + 21..at + 25].copy_from_slice(b"0002");
    for (number, bytes, expected) in [
        (
            7,
            newer,
            "part 7: its format 2 is newer than 1, the newest that this version reads",
        ),
        (8, all.clone(), "part 8: it was written as part 7"),
        (9, all[..all.len() - 1].to_vec(), "part 9: its footer is damaged"),
        (10, b"PAR1".repeat(9), "part 10: it is no part, or damaged"),
        (11, Vec::new(), "part 11: it is no part, or damaged"),
    ] {
        put_file(&files, PartNumber(number), &bytes);
        let error = ready(Part::open(&files, PartNumber(number))).unwrap_err();
        let kind = match number {
            7 => ErrorKind::Unsupported,
            _ => ErrorKind::InvalidData,
        };
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, expected));
    }
}

/// All that can be read of a damaged part, or the error.
async fn read_all(files: &SimFiles) -> io::Result<(Vec<Row>, Vec<Vec<u8>>)> {
    let part = Part::open(files, PART).await?;
    let known = part.rows().await?;
    let mut bodies = Vec::new();
    for row in &known {
        bodies.push(part.read(row.place).await?);
    }
    let every: Vec<_> = (0..known.len()).collect();
    Ok((part.answers(&every).await?, bodies))
}

#[test]
fn damage_is_never_another_value() {
    let mut chance = Chance(5);
    for form in FORMS {
        let disk = SimDisk::new(1);
        let files = disk.folder("parts");
        let rows = rows(3, 40);
        let sealed = sealed(&files, &rows, form);
        let all = file_bytes(&files);
        let (mut same, mut refused, mut bodies_read) = (0, 0, 0);
        // Any byte, and more of the last, where the footer is.
        let any = (0..1000).map(|_| chance.below(sealed.bytes)).collect::<Vec<_>>();
        for at in any.into_iter().chain((sealed.bytes - 3000..sealed.bytes).step_by(3)) {
            let mask = 1 << (at % 8);
            assert!(disk.damage("parts", &name(PART), at as usize, mask));
            match ready(read_all(&files)) {
                Ok((answers, bodies)) => {
                    assert!(answers == rows && bodies.iter().eq(rows.iter().map(|row| &row.answer.body)));
                    same += 1;
                }
                Err(error) => {
                    assert!(!error.to_string().contains('\n'), "{error}");
                    refused += 1;
                }
            }
            // By places that were told before, as the index has them.
            if let Ok(part) = ready(Part::open(&files, PART)) {
                let row = chance.below(40) as usize;
                if let Ok(body) = ready(part.read(sealed.places[row])) {
                    assert_eq!(body, rows[row].answer.body);
                    bodies_read += 1;
                }
                // Nothing escapes who reads all.
                assert!(ready(part.verify()).is_err(), "byte {at}");
            }
            assert!(disk.damage("parts", &name(PART), at as usize, mask));
        }
        assert_eq!(file_bytes(&files), all);
        // Only page headers of bodies can be damaged unseen: they are never read.
        assert!(
            same > 0 && refused > 1000 && bodies_read > 300,
            "{same} {refused} {bodies_read}"
        );
    }
}

#[test]
fn frames_of_cold_parts_are_bounded() {
    let page = |len: u32, body: &[u8]| [&len.to_le_bytes()[..], body].concat();
    let frame = |page: &[u8]| zstd::bulk::compress(page, 3).unwrap();
    let bomb = frame(&page(MOST_BODY as u32 + 1, &vec![0; MOST_BODY + 1]));
    assert!(bomb.len() < 100_000);
    // What is flushed before its end is known does not tell its size.
    let mut unsized_frame = zstd::Encoder::new(Vec::new(), 3).unwrap();
    unsized_frame.write_all(&page(3, b"abc")).unwrap();
    unsized_frame.flush().unwrap();
    let unsized_frame = unsized_frame.finish().unwrap();
    let mut torn = frame(&page(300, &[7; 300]));
    torn.truncate(torn.len() - 1);
    for (bytes, expected) in [
        (frame(&page(3, b"abc")), Some(b"abc".to_vec())),
        (frame(&page(0, b"")), Some(Vec::new())),
        (
            frame(&page(MOST_BODY as u32, &vec![7; MOST_BODY])),
            Some(vec![7; MOST_BODY]),
        ),
        (bomb, None),
        (unsized_frame, None),
        (torn, None),
        (frame(&page(2, b"abc")), None),
        (frame(&page(4, b"abc")), None),
        (frame(b"abc"), None),
        (b"no frame".to_vec(), None),
        (Vec::new(), None),
    ] {
        let place = Place {
            part: PART,
            offset: 100,
            len: bytes.len() as u32,
            crc: crc32c::crc32c(&bytes),
        };
        assert!(
            open_value(
                Form::Cold,
                Place {
                    crc: !place.crc,
                    ..place
                },
                bytes.clone()
            )
            .is_err()
        );
        assert!(
            open_value(
                Form::Cold,
                Place {
                    len: place.len + 1,
                    ..place
                },
                bytes.clone()
            )
            .is_err()
        );
        assert_eq!(open_value(Form::Plain, place, bytes.clone()).unwrap(), bytes);
        let opened = open_value(Form::Cold, place, bytes);
        assert!(
            opened.as_ref().ok() == expected.as_ref(),
            "{:?}",
            opened.map(|body| body.len())
        );
    }
}

/// After a power cut: the part is whole, or there is none.
fn whole_or_none(files: &SimFiles, rows: &[Row]) -> bool {
    ready(async {
        let unfinished = files
            .list()
            .await
            .unwrap()
            .iter()
            .any(|(name, _)| name == ".part-7.tmp");
        assert_eq!(clear(files).await.unwrap(), usize::from(unfinished));
        match files.list().await.unwrap().as_slice() {
            [] => false,
            [(name, _)] => {
                assert_eq!(number(name), Some(PART));
                let part = Part::open(files, PART).await.unwrap();
                part.verify().await.unwrap();
                let every: Vec<_> = (0..rows.len()).collect();
                assert_eq!(part.answers(&every).await.unwrap(), rows);
                true
            }
            more => panic!("{more:?}"),
        }
    })
}

#[test]
fn power_may_go_at_any_step_of_sealing() {
    let (mut whole, mut none, mut ended) = (0, 0, 0);
    for (form, seed) in FORMS.into_iter().flat_map(|form| (0..3).map(move |seed| (form, seed))) {
        // More than one window, so that several writes go before.
        let mut rows = rows(seed, 30);
        rows.push(row(seed + 1000, 1_100_000));
        for step in 1.. {
            let disk = SimDisk::new(seed * 1000 + step);
            disk.die_at(step);
            let outcome = ready(seal(&disk.folder("parts"), PART, rows.clone(), form));
            let files = disk.crash().folder("parts");
            match whole_or_none(&files, &rows) {
                true => whole += 1,
                false => none += 1,
            }
            if let Ok(sealed) = outcome {
                assert!(ready(files.list()).unwrap() == [(name(PART), sealed.bytes)]);
                ended += 1;
                break;
            }
            if step % 4 != 0 {
                continue;
            }
            // And then again.
            let again = ready(seal(&files, PART, rows.clone(), form));
            let there = again.is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
            assert!(whole_or_none(&files, &rows), "{there}");
        }
    }
    assert!(ended == 6 && whole > 6 && none > 100, "{whole} {none}");
}

#[test]
fn a_fault_leaves_no_part() {
    for form in FORMS {
        let rows = rows(2, 60);
        for (fault, step) in [Fault::Io, Fault::Full, Fault::ReadOnly]
            .into_iter()
            .flat_map(|fault| (1..).map(move |step| (fault, step)).take(60))
        {
            let disk = SimDisk::new(step);
            let files = disk.folder("parts");
            disk.fail_at(step, fault);
            let outcome = ready(seal(&files, PART, rows.clone(), form));
            if disk.steps() < step {
                assert!(outcome.is_ok());
                continue;
            }
            let left = ready(files.list()).unwrap();
            match outcome {
                // What removes a leftover may fail for want of one.
                Ok(sealed) => assert_eq!(left, [(name(PART), sealed.bytes)]),
                Err(_) => assert_eq!(left, [], "step {step}"),
            }
        }
        // No room.
        let disk = SimDisk::new(1);
        disk.set_room(10_000);
        let files = disk.folder("parts");
        let error = ready(seal(&files, PART, rows, form)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(ready(files.list()).unwrap(), []);
    }
}

#[test]
fn parts_on_a_disk_are_their_owners() {
    use std::os::unix::fs::PermissionsExt;
    for (way, executor) in [("ring", Executor::start()), ("calls", Executor::calls())] {
        let folder = std::env::temp_dir().join(format!("zerohop-part-{way}-{}", std::process::id()));
        let rows = rows(1, 300);
        executor.block_on(async {
            let files = executor.folder(&folder).unwrap();
            let sealed = seal(&files, PART, rows.clone(), Form::Plain).await.unwrap();
            let part = Part::open(&files, PART).await.unwrap();
            part.verify().await.unwrap();
            assert_eq!(part.read(sealed.places[7]).await.unwrap(), rows[7].answer.body);
        });
        let mode = std::fs::metadata(folder.join("part-7.parquet"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn the_bound_holds_where_little_is_in_much() {
    let empty = |number: u64, model: String| {
        let mut row = row(number, 0);
        row.answer.model = model;
        row.answer.request = number.is_multiple_of(2).then(Vec::new);
        row
    };
    let mut chance = Chance(1);
    let mut noise = |len: usize| {
        (0..len)
            .map(|_| char::from(b'!' + chance.below(94) as u8))
            .collect::<String>()
    };
    let models: Vec<_> = (0..3000).map(|number| empty(number, noise(200))).collect();
    let bodies: Vec<_> = (0..3000)
        .map(|number| {
            let mut row = row(number, 0);
            row.answer.body = noise(70).into_bytes();
            row.answer.request = Some(noise(70).into_bytes());
            row
        })
        .collect();
    let mut word = || chance.below(1 << 32) as u32;
    let wild: Vec<_> = (0..20_000)
        .map(|number| {
            let mut row = empty(number * 2, String::new());
            row.hits = word();
            row.answer.tenant = u64::from(word()) << 32 | u64::from(word());
            row.answer.prompt = PromptHash(std::array::from_fn(|_| word() as u8));
            (row.answer.created, row.answer.expires) = (word(), word());
            (row.answer.usage.prompt, row.answer.usage.completion) = (word(), word());
            row.answer.generation_ms = word();
            row
        })
        .collect();
    let nothing: Vec<_> = (0..20_000).map(|number| empty(number, String::new())).collect();
    for rows in [vec![row(1, 0)], models, bodies, wild, nothing] {
        for form in FORMS {
            let files = SimDisk::new(1).folder("parts");
            let (bytes, bound) = (sealed(&files, &rows, form).bytes, bound(&rows));
            assert!(bytes <= bound, "{form:?}: {bytes} of {bound} for {} rows", rows.len());
        }
    }
}
