//! How long a look-up in the index takes at a million entries, beside LMDB and redb: `cargo xtask bench index` runs it and makes
//! the table.
//!
//! Prints one JSON object a line, with a time in nanoseconds for each round. CPU time of this thread; a round measures every way
//! once, so that what disturbs the machine disturbs all alike. Invariant: all ways hold the same keys of 48 bytes and values of
//! 34, in files that are in memory; which key is looked up next follows from what was found, so that waits for memory are not
//! hidden behind one another.
#![deny(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    future::Future,
    hint::black_box,
    path::Path,
    pin::pin,
    task::{Context as Polling, Poll, Waker},
    time::Instant,
};

use redb::ReadableDatabase;
use rustix::time::{ClockId, clock_gettime};
use zerohop_cache::{
    Context, Entry, EntryId, Key, ModelNumber, PartNumber, Place, PromptHash, files as door,
    index::{Change, Covered, HashVersions, IndexWriter, Options, View, buckets_for},
    types::NEVER,
};

#[path = "../../src/index/folder_tests.rs"]
mod folder;
mod lmdb;

use folder::Folder;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const ENTRIES: u64 = 1_000_000;
/// More than the processor's caches hold.
const SWEPT_BYTES: usize = 128 << 20;
const NOTHING: &str = "making the key alone";
const TABLE: redb::TableDefinition<&[u8; 48], &[u8; 34]> = redb::TableDefinition::new("entries");

/// What is looked up, and what the caches hold before.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    present: bool,
    /// Look-ups in a row.
    lookups: u64,
    /// How often, each time after the caches were swept; or once, and they are as the look-ups before left them.
    sweeps: u64,
}

const CASES: [Case; 3] = [
    Case {
        name: "present, one after the other",
        present: true,
        lookups: 200_000,
        sweeps: 0,
    },
    Case {
        name: "absent, one after the other",
        present: false,
        lookups: 200_000,
        sweeps: 0,
    },
    Case {
        name: "present, 500 after the caches were swept",
        present: true,
        lookups: 500,
        sweeps: 10,
    },
];

/// One way of looking up: a byte of what was found, or nothing.
type Way<'a> = (&'static str, Box<dyn Fn(&Key) -> Option<u8> + 'a>);

fn main() -> Outcome {
    let rounds = std::env::args().nth(1).map_or(Ok(10), |rounds| rounds.parse())?;
    let home = Folder::new("lookup")?;
    let mut writer = build(&home)?;
    let reader = writer.reader();

    let lmdb = lmdb::open(&home.path().join("lmdb"))?;
    let lmdb_table = lmdb::fill(&lmdb, &sorted())?;
    let lmdb_reading = lmdb.read_txn()?;
    let redb = redb(home.path())?;
    let redb_table = redb.begin_read()?.open_table(TABLE)?;

    let ways: [Way; 4] = [
        ("index", Box::new(|key| Some(reader.get(key)?.id.0 as u8))),
        (
            "LMDB",
            Box::new(|key| Some(lmdb_table.get(&lmdb_reading, &bytes(key)).ok()??[0])),
        ),
        (
            "redb",
            Box::new(|key| Some(redb_table.get(&bytes(key)).ok()??.value()[0])),
        ),
        (NOTHING, Box::new(|key| Some(key.prompt.0[9]))),
    ];
    let sweep = vec![1_u8; SWEPT_BYTES];
    for case in CASES {
        let mut nanos = vec![Vec::new(); ways.len()];
        // The first round warms, and is not told.
        for round in 0..=rounds {
            for ((name, way), nanos) in ways.iter().zip(&mut nanos) {
                let (time, found) = measure(way, case, &sweep, round);
                let expected = if case.present {
                    case.lookups * case.sweeps.max(1)
                } else {
                    0
                };
                assert!(
                    *name == NOTHING || found == expected,
                    "{name}: {found} of {expected} found"
                );
                if round > 0 {
                    nanos.push(time);
                }
            }
        }
        for ((name, _), nanos) in ways.iter().zip(nanos) {
            println!(r#"{{"case":"{}","way":"{name}","nanos":{nanos:?}}}"#, case.name);
        }
    }
    writer_work(&home, &mut writer)
}

/// Nanoseconds a look-up, and how many found something.
fn measure(way: &dyn Fn(&Key) -> Option<u8>, case: Case, sweep: &[u8], round: u64) -> (f64, u64) {
    let (mut chance, mut found, mut nanos) = (Chance(round), 0, 0);
    let first = if case.present { 0 } else { ENTRIES };
    for _ in 0..case.sweeps.max(1) {
        if case.sweeps > 0 {
            black_box(sweep.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
        }
        let before = cpu_nanos();
        for _ in 0..case.lookups {
            let answer = black_box(way(&key(first + chance.next() % ENTRIES)));
            found += u64::from(answer.is_some());
            chance.0 ^= u64::from(answer.unwrap_or(1));
        }
        nanos += cpu_nanos() - before;
    }
    (nanos as f64 / (case.lookups * case.sweeps.max(1)) as f64, found)
}

/// What the writer takes: a commit of 2 % of the entries at random, and opening with every page checked; CPU time, and time on the clock.
fn writer_work(home: &Folder, writer: &mut IndexWriter<Folder>) -> Outcome {
    let mut chance = Chance(7);
    let changes = (0..ENTRIES / 50).map(|n| Change::Put(entry(chance.next() % ENTRIES, n as u32)));
    let changes = changes.collect();
    let (start, cpu) = (Instant::now(), cpu_nanos());
    let covered = Covered {
        segment: PartNumber(1),
        offset: 0,
    };
    let committed = now(writer.commit(changes, covered, |entry| entry.heat))?;
    let commit = [cpu_nanos() - cpu, start.elapsed().as_nanos() as u64];
    let (start, cpu) = (Instant::now(), cpu_nanos());
    let (opened, said) = now(IndexWriter::open(home.clone(), View::Mapped(home.path().to_owned())))?;
    let open = [cpu_nanos() - cpu, start.elapsed().as_nanos() as u64];
    println!(
        r#"{{"entries":{},"buckets":{},"file_bytes":{},"changes":{},"pages_written":{},"commit":{commit:?},"open":{open:?}}}"#,
        said.entries,
        said.buckets,
        opened.file_bytes(),
        ENTRIES / 50,
        committed.pages_written,
    );
    Ok(())
}

fn build(home: &Folder) -> Outcome<IndexWriter<Folder>> {
    let options = Options {
        buckets: buckets_for(ENTRIES),
        versions: HashVersions::default(),
    };
    let entries = (0..ENTRIES).map(|n| entry(n, 0));
    let view = View::Mapped(home.path().to_owned());
    let built = IndexWriter::build(
        home.clone(),
        view,
        options,
        vec!["model".into()],
        Covered::NOTHING,
        entries,
    );
    let (writer, evicted) = now(built)?;
    match evicted.len() {
        0 => Ok(writer),
        some => Err(format!("{some} entries had no room").into()),
    }
}

fn redb(home: &Path) -> Outcome<redb::Database> {
    let database = redb::Builder::new().set_cache_size(1 << 30).create(home.join("redb"))?;
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(TABLE)?;
        for (key, value) in sorted() {
            table.insert(&key, &value)?;
        }
    }
    writing.commit()?;
    Ok(database)
}

/// In the order of keys, as a bulk load has them.
fn sorted() -> Vec<([u8; 48], [u8; 34])> {
    let pair = |n| {
        let mut value = [0; 34];
        value[0] = entry(n, 0).id.0 as u8;
        (bytes(&key(n)), value)
    };
    let mut all: Vec<_> = (0..ENTRIES).map(pair).collect();
    all.sort_unstable();
    all
}

fn bytes(key: &Key) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[..32].copy_from_slice(&key.prompt.0);
    bytes[32..].copy_from_slice(&key.context.0);
    bytes
}

/// The `n`th key, made anew each time: a list of them would be waited for as the index is.
fn key(n: u64) -> Key {
    let mut chance = Chance(n << 8);
    let mut prompt = [0; 32];
    for part in prompt.chunks_exact_mut(8) {
        part.copy_from_slice(&chance.next().to_le_bytes());
    }
    Key {
        model: ModelNumber(0),
        context: Context([(n % 100) as u8; 16]),
        prompt: PromptHash(prompt),
    }
}

fn entry(n: u64, created: u32) -> Entry {
    Entry {
        key: key(n),
        id: EntryId(n as u32),
        place: Place {
            part: PartNumber(1),
            offset: n * 2048,
            len: 2048,
            crc: n as u32,
        },
        created,
        expires: NEVER,
        heat: 1.0,
    }
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

fn cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs what never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Polling::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the calls of this folder block"),
    }
}
