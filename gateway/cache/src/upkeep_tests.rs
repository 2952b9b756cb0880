//! Lives of a cache on a simulated disk, from a seed: puts, hits, purges, pins, time, failures and power cuts in any order.

use std::{collections::HashMap, time::Duration};

use super::{super::Filter, *};
use crate::{
    disk::{Folders, Plan},
    files::{File, Open, SimDisk, SimFiles, disk::ready, sim::Fault},
    front::{Reader, Value},
    heat::{Decay, SECOND},
    index::View,
    segment::log::Durability,
    types::{Context, FinishReason, NEVER, PromptHash, Usage},
};

const BASE: Seconds = 1_000_000;
const KEYS: u64 = 600;
/// Small enough for many segments, parts and evictions in a life; an index takes most of it.
const BYTES: u64 = 16 << 20;

const PLAN: Plan = Plan {
    bytes: BYTES,
    hot_bytes: 400 << 10,
    compaction: true,
    durability: Durability::Batch,
    buckets: 1024,
};

fn hash(number: u64) -> PromptHash {
    let mut bytes = [0x5a; 32];
    // Few buckets, so that the index stays small beside the answers.
    bytes[..8].copy_from_slice(&(number % 60).to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    PromptHash(bytes)
}

/// Models are numbered in the order in which a run meets them.
fn key(run: &Run, number: u64) -> Key {
    Key {
        model: run.store.shared.model(name(number)).unwrap(),
        context: Context([(number % 5) as u8; 16]),
        prompt: hash(number),
    }
}

/// A body that tells its key and its round.
fn body(number: u64, round: u64, len: usize) -> Vec<u8> {
    let text = format!("{number} {round} ");
    text.bytes().cycle().take(len.max(text.len())).collect()
}

fn name(number: u64) -> &'static str {
    ["one", "two"][(number % 2) as usize]
}

fn answer(number: u64, round: u64, len: usize, expires: Seconds) -> Answer {
    Answer {
        model: name(number).into(),
        tenant: number % 3 + 1,
        prompt: hash(number),
        context: Context([(number % 5) as u8; 16]),
        created: BASE,
        expires,
        finish: FinishReason::Stop,
        usage: Usage::default(),
        generation_ms: 5,
        request: None,
        body: body(number, round, len),
    }
}

/// A process that uses the disk.
struct Run {
    store: Store<SimFiles>,
    reader: Reader,
}

struct Life {
    disk: SimDisk,
    /// All that was ever put under a key, in order, since it was purged last.
    put: HashMap<u64, Vec<Vec<u8>>>,
    chance: u64,
    clock: Duration,
    round: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            disk: SimDisk::new(seed),
            put: HashMap::new(),
            chance: seed,
            clock: Duration::from_secs(1),
            round: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % bound
    }

    fn now(&self, reader: &Reader) -> Now {
        reader.now((u64::from(BASE) + self.clock.as_secs(), self.clock.subsec_nanos()))
    }

    fn open(&mut self) -> Result<Run, crate::OpenError> {
        let shared = Arc::new(super::super::Shared::new(Decay::literal(0.95, 5 * SECOND), BASE));
        let reader = Reader {
            shared: Arc::clone(&shared),
        };
        let now = self.now(&reader);
        let folders = Folders {
            home: self.disk.folder("home"),
            data: self.disk.folder("data"),
            view: View::Copied,
        };
        let notes = Notes::nobody();
        let opened = ready(Disk::open(folders, PLAN, &shared, (now.seconds, &notes)))?;
        let mut store = Store::on_disk(shared, opened, (Probation::Auto, 7), now, notes);
        store.set_clock(self.clock);
        ready(store.begin(now));
        Ok(Run { store, reader })
    }

    fn step(&mut self, run: &mut Run) {
        let now = self.now(&run.reader);
        run.store.set_clock(self.clock);
        let number = self.below(KEYS);
        match self.below(100) {
            0 => {
                let removed = ready(run.store.purge(&Filter::Prompt(hash(number)), now));
                assert!(removed <= 1);
                let disk = run.store.disk.as_ref().unwrap();
                // A disk that fails keeps what was purged, maybe until after the next start.
                if disk.is_well() && !disk.is_untidy() {
                    self.put.remove(&number);
                }
                assert!(run.reader.look_up(&key(run, number)).is_none());
            }
            1 => {
                let pin = self.below(2) == 0;
                ready(run.store.pin(&Filter::Prompt(hash(number)), pin, now));
            }
            2..20 => {
                if let Some(found) = run.reader.look_up(&key(run, number)) {
                    run.reader.hit(&found.sighting, now);
                    let value = self.read(run, number);
                    if let (Value::There(..), Some(value)) = (&found.value, value) {
                        run.store
                            .warm(&key(run, number), found.sighting.entry.place, value, now);
                    }
                }
            }
            _ => self.put(run, number, now),
        }
        ready(run.store.upkeep(now));
        let pause = [0, 1, 20, 3000][self.below(4) as usize];
        self.clock += Duration::from_millis(pause);
    }

    fn put(&mut self, run: &mut Run, number: u64, now: Now) {
        self.round += 1;
        let len = self.below(20_000) as usize + 20;
        let expires = if self.below(10) == 0 { now.seconds + 60 } else { NEVER };
        let answer = answer(number, self.round, len, expires);
        if run.store.wants_segment(&answer) {
            ready(run.store.seal(now));
        }
        self.put.entry(number).or_default().push(answer.body.clone());
        run.store.put(answer, now);
    }

    /// What readers are answered with under a key: something that was put under it, or nothing.
    fn read(&self, run: &Run, number: u64) -> Option<Arc<[u8]>> {
        let value = ready(run.store.read(&key(run, number)))?;
        let known = self.put.get(&number).into_iter().flatten();
        assert!(
            known.clone().any(|body| **body == *value),
            "key {number} has an answer that was never put"
        );
        Some(value)
    }

    fn judge(&self, run: &Run) {
        for number in 0..KEYS {
            self.read(run, number);
        }
        let store = &run.store;
        let disk = store.disk.as_ref().unwrap();
        assert!(store.ledger.bytes() <= store.limits.bytes);
        assert!(disk.used() <= BYTES, "{} bytes of files", disk.used());
        for (number, it) in &disk.parts {
            let lying = store.ledger.iter().filter(|entry| entry.place.part == *number);
            let (count, live) = lying.fold((0, 0), |(count, live), entry| {
                (count + 1, live + u64::from(entry.place.len))
            });
            assert_eq!((it.entries, it.live), (count, live), "part {}", number.0);
        }
        let in_files = |folder: &'static str| -> u64 {
            let files = ready(self.disk.folder(folder).list()).unwrap();
            files.iter().map(|(_, bytes)| bytes).sum()
        };
        let files = in_files("home") + in_files("data");
        assert!(files <= BYTES, "{files} bytes in the folders");
    }
}

/// Without failures: nothing is lost but by eviction, and a restart finds what was there.
#[test]
fn a_restart_finds_what_was_there() {
    for seed in 0..20 {
        let mut life = Life::new(seed);
        for _ in 0..3 {
            let mut run = life.open().unwrap();
            for _ in 0..600 {
                life.step(&mut run);
            }
            life.judge(&run);
            let counts = run.store.shared.counts.read();
            assert_eq!((counts.disk_errors, counts.lost), (0, 0), "seed {seed}: {counts:?}");
            assert!(counts.seals > 0 && counts.commits > 0, "{counts:?}");
            let now = life.now(&run.reader);
            ready(run.store.close(now));
            let lasts = |number: &u64| {
                run.store
                    .find(&key(&run, *number))
                    .is_some_and(|it| it.expires == NEVER)
            };
            let before: Vec<_> = (0..KEYS)
                .map(|number| life.read(&run, number).filter(|_| lasts(&number)))
                .collect();
            drop(run);
            let run = life.open().unwrap();
            let (mut back, mut gone) = (0, 0);
            for (number, before) in before.iter().enumerate() {
                match (before, life.read(&run, number as u64)) {
                    (Some(before), Some(after)) => assert_eq!(*before, after, "seed {seed}, key {number}"),
                    // Evicted from the segment, which still has it.
                    (None, Some(_)) => back += 1,
                    (Some(_), None) => gone += 1,
                    (None, None) => {}
                }
            }
            // Those that came back push others out.
            assert!(gone <= back, "seed {seed}: {gone} gone, {back} back");
            life.judge(&run);
        }
    }
}

/// After a power cut at any call of the disk what is found was put under its key, and what was put more than a moment before
/// the cut and is not found was evicted, not lost: the newest answer, if any.
#[test]
fn power_cuts_lose_the_last_moment_at_most() {
    for seed in 0..40 {
        let mut life = Life::new(1000 + seed);
        let mut last_steps = 400;
        for _ in 0..4 {
            let Ok(mut run) = life.open() else {
                life.disk = life.disk.crash();
                continue;
            };
            let dies = life.disk.steps() + 20 + life.below(last_steps);
            life.disk.die_at(dies);
            let before = life.disk.steps();
            let mut alive = Vec::new();
            for _ in 0..500 {
                if life.disk.steps() >= dies {
                    break;
                }
                alive = lasting(&run);
                life.step(&mut run);
            }
            last_steps = (life.disk.steps() - before).max(50);
            drop(run);
            life.disk = life.disk.crash();
            let run = life.open().unwrap();
            life.judge(&run);
            let found = alive
                .iter()
                .filter(|number| run.store.find(&key(&run, **number)).is_some())
                .count();
            // The call that power left in may have been an eviction, a purge or a new answer in the place of an old one.
            assert!(found + 60 >= alive.len(), "seed {seed}: {found} of {}", alive.len());
        }
    }
}

/// Keys whose answer lasts by now.
fn lasting(run: &Run) -> Vec<u64> {
    let disk = run.store.disk.as_ref().unwrap();
    let (log, lasting) = disk
        .log
        .as_ref()
        .map_or((PartNumber(0), 0), |log| (log.number(), log.lasting()));
    let lasts = |number: &u64| {
        let entry = run.store.find(&key(run, *number))?;
        let end = entry.place.offset + u64::from(entry.place.len);
        let never = entry.expires == NEVER;
        (never && (entry.place.part != log || end <= lasting)).then_some(())
    };
    (0..KEYS).filter(|number| lasts(number).is_some()).collect()
}

/// A disk that fails costs answers, never a wrong one, and the store goes on when it works again.
#[test]
fn failures_of_the_disk_are_survived() {
    for seed in 0..40 {
        let mut life = Life::new(2000 + seed);
        let mut run = life.open().unwrap();
        for round in 0..6 {
            let at = life.disk.steps() + life.below(60);
            let fault = [Fault::Io, Fault::Full, Fault::ReadOnly][round % 3];
            life.disk.fail_at(at, fault);
            for _ in 0..100 {
                life.step(&mut run);
            }
            for number in 0..KEYS {
                life.read(&run, number);
            }
            // Beyond the longest pause.
            life.clock += Duration::from_secs(400);
        }
        let now = life.now(&run.reader);
        run.store.set_clock(life.clock);
        ready(run.store.upkeep(now));
        let before = run.store.shared.counts.read().puts;
        life.put(&mut run, 3, now);
        assert_eq!(run.store.shared.counts.read().puts, before + 1, "seed {seed}");
        let now = life.now(&run.reader);
        // What is planned and was not met.
        life.disk.fail_at(u64::MAX, Fault::Io);
        ready(run.store.close(now));
        let run = life.open().unwrap();
        for number in 0..KEYS {
            life.read(&run, number);
        }
    }
}

/// All bytes of both folders.
fn bytes_on(disk: &SimDisk) -> Vec<u8> {
    let mut all = Vec::new();
    for folder in ["home", "data"] {
        let files = disk.folder(folder);
        for (name, len) in ready(files.list()).unwrap() {
            let file = ready(files.open(&name, Open::Existing)).unwrap();
            all.extend(ready(file.read_at(len as usize, 0)).unwrap());
        }
    }
    all
}

/// Once only the part with the newest answer was made anew, and older answers under the key stayed in theirs.
#[test]
fn what_is_purged_leaves_the_files_with_all_that_was_put_before_it() {
    let mut life = Life::new(5);
    let mut run = life.open().unwrap();
    let now = life.now(&run.reader);
    run.store.set_clock(life.clock);
    for text in ["the first secret", "the second secret", "the third secret"] {
        let mut answer = answer(3, 1, 20, NEVER);
        answer.body = text.into();
        run.store.put(answer, now);
        for number in 10..20 {
            life.put(&mut run, number, now);
        }
        // The last one stays in the segment.
        if !text.contains("third") {
            ready(run.store.seal(now));
        }
    }
    ready(run.store.close(now));
    let is_there = |life: &Life| bytes_on(&life.disk).windows(6).any(|window| window == b"secret");
    assert!(is_there(&life));
    assert_eq!(ready(run.store.purge(&Filter::Prompt(hash(3)), now)), 1);
    assert!(!is_there(&life));
    // What lives is there as before.
    for number in 10..20 {
        assert!(life.read(&run, number).is_some(), "{number}");
    }
}

/// Once a part of a newer version was taken for a damaged one, and removed.
#[test]
fn what_a_newer_version_wrote_is_left_alone() {
    let mut life = Life::new(6);
    let mut run = life.open().unwrap();
    let now = life.now(&run.reader);
    life.put(&mut run, 1, now);
    ready(run.store.seal(now));
    life.put(&mut run, 2, now);
    ready(run.store.close(now));
    drop(run);
    let data = life.disk.folder("data");
    let (part, len) = ready(data.list()).unwrap().remove(0);
    let file = ready(data.open(&part, Open::Existing)).unwrap();
    let bytes = ready(file.read_at(len as usize, 0)).unwrap();
    let line = b"zerohop part, format";
    let at = bytes.windows(line.len()).rposition(|window| window == line).unwrap();
    let write = |text: &[u8]| ready(file.write_at(text.to_vec(), (at + 21) as u64)).0.unwrap();
    write(b"0002");
    let refused = |life: &mut Life| life.open().err().map(|why| why.to_string()).unwrap();
    assert!(refused(&mut life).contains("format 2 is newer"));
    write(b"0001");
    // A segment as well.
    let home = life.disk.folder("home");
    let names: Vec<_> = ready(home.list()).unwrap().into_iter().map(|(name, _)| name).collect();
    let segment = names.iter().find(|name| log::number(name).is_some()).unwrap();
    let file = ready(home.open(segment, Open::Existing)).unwrap();
    ready(file.write_at(b"ZHF2".to_vec(), 0)).0.unwrap();
    assert!(refused(&mut life).contains("format is not the one"));
    ready(file.write_at(b"ZHF1".to_vec(), 0)).0.unwrap();
    let run = life.open().unwrap();
    for number in [1, 2] {
        assert!(life.read(&run, number).is_some(), "{number}");
    }
}

/// Once all parts were given up one after the other when none of them could be removed.
#[test]
fn a_disk_that_lets_nothing_be_removed_costs_one_part_at_most() {
    let mut life = Life::new(7);
    let mut run = life.open().unwrap();
    let now = life.now(&run.reader);
    run.store.set_clock(life.clock);
    for _ in 0..4 {
        for number in 0..40 {
            life.put(&mut run, number, now);
        }
        ready(run.store.seal(now));
    }
    let parts = run.store.disk.as_ref().unwrap().parts.len();
    assert!(parts > 1);
    life.disk.set_read_only(true);
    assert!(!ready(run.store.make_disk_room(BYTES, now)));
    assert_eq!(run.store.disk.as_ref().unwrap().parts.len(), parts - 1);
    life.disk.set_read_only(false);
}

/// Readers of several threads beside a writer that appends, seals, compacts, evicts, purges and commits on a real folder: each value
/// that is read where a look-up says is one that was put under its key.
#[test]
fn readers_beside_files_see_only_what_was_put() {
    use std::{
        os::unix::fs::FileExt,
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };
    let long = std::env::var("ZEROHOP_LONG").is_ok_and(|long| !long.is_empty());
    let time = Duration::from_secs(if long { 180 } else { 3 });
    let folder = std::env::temp_dir().join(format!("zerohop-races-{}", std::process::id()));
    let options = crate::Options {
        limits: super::super::Limits {
            bytes: crate::LEAST,
            buckets: 1024,
        },
        decay: Decay::literal(0.95, 5 * SECOND),
        probation: Probation::Auto,
        seed: 3,
    };
    let place = crate::OnDisk {
        home: folder.clone(),
        data: folder.join("cache_data.parquet"),
        hot_bytes: 1 << 20,
        compaction: true,
        durability: Durability::None,
        notes: Notes::nobody(),
    };
    let cache = crate::Cache::on_disk(options, place).unwrap();
    let models = [cache.model("one").unwrap(), cache.model("two").unwrap()];
    let done = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8u64)
            .map(|seed| {
                let (reader, done, data) = (cache.reader(), &done, folder.join("cache_data.parquet"));
                scope.spawn(move || {
                    let (mut word, mut found) = (seed, [0u64; 2]);
                    while !done.load(Ordering::Relaxed) {
                        word = word
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let number = (word >> 33) % KEYS;
                        let key = Key {
                            model: models[(number % 2) as usize],
                            context: Context([(number % 5) as u8; 16]),
                            prompt: hash(number),
                        };
                        let Some(it) = reader.look_up(&key) else { continue };
                        reader.hit(&it.sighting, reader.now((u64::from(BASE), 0)));
                        let value = match &it.value {
                            Value::Here(value) => value.to_vec(),
                            Value::There(part, place) => {
                                let mut bytes = vec![0; place.len as usize];
                                let path = data.join(part::name(place.part));
                                // Removed since, which those who have it open do not see.
                                let Ok(file) = std::fs::File::open(path) else { continue };
                                file.read_exact_at(&mut bytes, place.offset).unwrap();
                                part::open_value(part.form, *place, bytes).unwrap()
                            }
                        };
                        assert!(value.starts_with(format!("{number} ").as_bytes()), "key {number}");
                        found[usize::from(matches!(it.value, Value::There(..)))] += 1;
                    }
                    found
                })
            })
            .collect();
        let (putter, begun) = (cache.putter().unwrap(), Instant::now());
        let mut round = 0;
        while begun.elapsed() < time {
            round += 1;
            let number = round * 7 % KEYS;
            putter.put(answer(number, round, 200 + (round % 90) as usize * 1000, NEVER));
            if round % 500 == 0 {
                let _purged = cache.purge(Filter::Prompt(hash(number)));
            }
            // Beyond what waits for the writer nothing is taken.
            while cache.stats().waiting_bytes > 1 << 20 {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect::<Vec<_>>()
    });
    let stats = cache.stats();
    drop(cache);
    std::fs::remove_dir_all(&folder).unwrap();
    let found = found.iter().fold([0, 0], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
    assert!(found[0] > 0 && found[1] > 0, "{found:?} {stats:?}");
    assert!(stats.seals > 1 && stats.disk_errors == 0, "{stats:?}");
}
