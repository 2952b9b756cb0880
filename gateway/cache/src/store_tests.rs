//! Tests of [`super`], through a reader as workers have it.

use std::{sync::atomic::AtomicBool, thread};

use proptest::prelude::*;

use super::*;
use crate::{
    files::disk::ready,
    front::{Found, Reader, Value},
    heat::{Decay, SECOND},
    types::{FinishReason, NEVER, Seconds, Usage},
};

const BASE: Seconds = 1_000;

fn store(bytes: u64, buckets: u32) -> (Store, Reader) {
    store_with(bytes, buckets, Probation::Off)
}

fn store_with(bytes: u64, buckets: u32, probation: Probation) -> (Store, Reader) {
    let shared = Arc::new(Shared::new(Decay::literal(0.95, 5 * SECOND), BASE));
    let reader = Reader {
        shared: Arc::clone(&shared),
    };
    (Store::new(shared, Limits { bytes, buckets }, probation, 1), reader)
}

fn hash(number: u64) -> PromptHash {
    let mut bytes = [0x5a; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    PromptHash(bytes)
}

fn answer(number: u64, body: &[u8]) -> Answer {
    Answer {
        model: "tiny".into(),
        tenant: number % 3,
        prompt: hash(number),
        context: Context([(number % 2) as u8; 16]),
        created: BASE,
        expires: NEVER,
        finish: FinishReason::Stop,
        usage: Usage::default(),
        generation_ms: 5,
        request: None,
        body: body.to_vec(),
    }
}

fn key(number: u64) -> Key {
    Key {
        model: ModelNumber(0),
        context: Context([(number % 2) as u8; 16]),
        prompt: hash(number),
    }
}

fn at(reader: &Reader, seconds: u32) -> Now {
    reader.now((u64::from(BASE + seconds), 0))
}

fn found(reader: &Reader, number: u64) -> Option<Found> {
    reader.look_up(&key(number))
}

fn value(found: &Found) -> Arc<[u8]> {
    match &found.value {
        Value::Here(bytes) => Arc::clone(bytes),
        Value::There(..) => panic!("a cache in memory has no parts"),
    }
}

#[test]
fn what_is_put_is_found_under_its_whole_key_only() {
    let (mut store, reader) = store(1 << 20, 1024);
    let now = at(&reader, 0);
    store.put(answer(7, b"seven"), now);
    assert_eq!(&*value(&found(&reader, 7).unwrap()), b"seven");
    assert!(found(&reader, 8).is_none());
    let other_context = Key {
        context: Context([9; 16]),
        ..key(7)
    };
    let other_model = Key {
        model: ModelNumber(1),
        ..key(7)
    };
    let mut last_byte = key(7);
    last_byte.prompt.0[31] ^= 1;
    for key in [other_context, other_model, last_byte] {
        assert!(reader.look_up(&key).is_none(), "{key:?}");
    }
}

#[test]
fn a_second_put_takes_the_first_ones_place() {
    let (mut store, reader) = store(1 << 20, 1024);
    let now = at(&reader, 0);
    store.put(answer(7, b"old"), now);
    let old = found(&reader, 7).unwrap();
    store.put(answer(7, b"new"), now);
    let new = found(&reader, 7).unwrap();
    assert_eq!((&*value(&old), &*value(&new)), (&b"old"[..], &b"new"[..]));
    assert!(!reader.lives(&old.sighting) && reader.lives(&new.sighting));
    assert_eq!(store.ledger.len(), 1);
}

#[test]
fn a_full_bucket_evicts_its_own_coldest() {
    let (mut store, reader) = store(1 << 30, 1024);
    // All in bucket 5, and one elsewhere that is as cold.
    let of_bucket = |n: u64| 5 + n * 1024;
    store.put(answer(6, b"elsewhere"), at(&reader, 0));
    for n in 0..BUCKET as u64 {
        store.put(answer(of_bucket(n), b"x"), at(&reader, 0));
    }
    for n in (0..BUCKET as u64).filter(|n| *n != 41) {
        reader.hit(&found(&reader, of_bucket(n)).unwrap().sighting, at(&reader, 1));
    }
    store.put(answer(of_bucket(100), b"x"), at(&reader, 2));
    assert!(found(&reader, of_bucket(41)).is_none());
    assert!(found(&reader, 6).is_some());
    let alive = (0..101).filter(|n| found(&reader, of_bucket(*n)).is_some()).count();
    assert_eq!(alive, BUCKET);
}

#[test]
fn the_operator_selects() {
    let filters = [
        (Filter::All, 12),
        (Filter::Prompt(hash(4)), 1),
        (Filter::Prompt(hash(400)), 0),
        (Filter::Model("tiny".into()), 12),
        (Filter::Model("other".into()), 0),
        (Filter::Tenant(1), 4),
        (Filter::Context(Context([1; 16])), 6),
    ];
    for (filter, count) in filters {
        let (mut store, reader) = store(1 << 20, 1024);
        let now = at(&reader, 0);
        (0..12).for_each(|n| store.put(answer(n, b"x"), now));
        assert_eq!(ready(store.pin(&filter, true, now)), count, "{filter:?}");
        assert_eq!(ready(store.pin(&filter, true, now)), 0, "{filter:?} twice");
        assert_eq!(ready(store.purge(&filter, now)), count, "{filter:?}");
        let alive = (0..12).filter(|n| found(&reader, *n).is_some()).count();
        assert_eq!(alive, 12 - count, "{filter:?}");
        assert_eq!((store.pinned_bytes, reader.shared.counts.read().pinned), (0, 0));
    }
}

#[test]
fn pinned_entries_stay_and_leave_room_for_others() {
    let cost = 1000 + crate::ledger::OVERHEAD;
    let (mut store, reader) = store(10 * cost, 1024);
    let now = at(&reader, 0);
    (0..10).for_each(|n| store.put(answer(n, &[1; 1000]), now));
    assert_eq!(ready(store.pin(&Filter::All, true, now)), 5);
    let pinned: Vec<u64> = (0..10)
        .filter(|n| {
            reader
                .shared
                .slots
                .get(found(&reader, *n).unwrap().sighting.entry.id)
                .unwrap()
                .is_pinned()
        })
        .collect();
    (10..60).for_each(|n| store.put(answer(n, &[1; 1000]), at(&reader, 100)));
    assert!(pinned.iter().all(|n| found(&reader, *n).is_some()));
    assert_eq!(store.ledger.len(), 10);
    // One that could only fit if pinned ones went.
    store.put(answer(99, &vec![1; 5 * cost as usize]), at(&reader, 100));
    assert!(found(&reader, 99).is_none());
    assert_eq!(reader.shared.counts.read().puts_too_large, 1);
}

#[test]
fn what_has_expired_goes_first() {
    let cost = 10 + crate::ledger::OVERHEAD;
    let (mut store, reader) = store(3 * cost, 1024);
    for n in 0..3 {
        let expires = if n == 1 { BASE + 5 } else { NEVER };
        store.put(
            Answer {
                expires,
                ..answer(n, &[1; 10])
            },
            at(&reader, 0),
        );
    }
    (0..9).for_each(|_| reader.hit(&found(&reader, 1).unwrap().sighting, at(&reader, 1)));
    store.put(answer(3, &[1; 10]), at(&reader, 6));
    assert!(found(&reader, 1).is_none());
}

/// Two hot answers among many that come once: with probation they stay, and what was hit or came back is not on it.
#[test]
fn probation_lets_what_comes_once_pass() {
    let cost = 10 + crate::ledger::OVERHEAD;
    let (mut store, reader) = store_with(20 * cost, 1024, Probation::On);
    for n in 0..500 {
        let now = at(&reader, n);
        for hot in [1, 2] {
            match found(&reader, hot) {
                Some(found) => reader.hit(&found.sighting, now),
                None => store.put(answer(hot, &[1; 10]), now),
            }
        }
        store.put(answer(1000 + u64::from(n), &[1; 10]), now);
    }
    let counts = reader.shared.counts.read();
    assert_eq!((counts.puts, counts.probation), (502, 1));
    assert!(counts.promoted >= 2, "{counts:?}");
    // The one that left a moment ago is let in at once.
    let gone = (1000..1500).rev().find(|n| found(&reader, *n).is_none());
    store.put(answer(gone.unwrap(), &[1; 10]), at(&reader, 500));
    assert_eq!(reader.shared.counts.read().returned, counts.returned + 1);
}

/// Readers tell of hits, the shadows compare, and probation begins where it pays; what nobody took is counted.
#[test]
fn shadows_see_what_readers_tell() {
    let cost = 10 + crate::ledger::OVERHEAD;
    let (mut store, reader) = store_with(100 * cost, 1024, Probation::Auto);
    let mut chance = 1u64;
    for n in 0..30_000u32 {
        let now = at(&reader, n / 10);
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = if n % 2 == 0 {
            (chance >> 33) % 90
        } else {
            1000 + u64::from(n)
        };
        match found(&reader, number) {
            Some(found) => reader.hit(&found.sighting, now),
            None => store.put(answer(number, &[1; 10]), now),
        }
    }
    let counts = reader.shared.counts.read();
    assert_eq!((counts.probation, counts.shadow_lost), (1, 0), "{counts:?}");
    assert!(
        counts.shadow_hits_with > counts.shadow_hits_without && counts.shadow_looks > 0,
        "{counts:?}"
    );
    let hot = (0..90).find_map(|n| found(&reader, n)).unwrap();
    (0..5000).for_each(|_| reader.hit(&hot.sighting, at(&reader, 3000)));
    assert_eq!(reader.shared.counts.read().shadow_lost, 5000 - 4096);
    store.idle();
    reader.hit(&hot.sighting, at(&reader, 3000));
    assert_eq!(reader.shared.counts.read().shadow_lost, 5000 - 4096);
}

proptest! {
    /// Whatever is put, hit and purged: the bound holds, the parts agree, and what is found is what was put last.
    #[test]
    fn the_bound_holds(
        steps in prop::collection::vec((0u64..60, 0usize..2000, 0u8..8), 1..300),
        probation in prop::sample::select(vec![Probation::Off, Probation::On, Probation::Auto]),
    ) {
        let bytes = 20_000;
        let (mut store, reader) = store_with(bytes, 1024, probation);
        let mut last = std::collections::HashMap::new();
        for (time, (number, size, what)) in steps.into_iter().enumerate() {
            let now = at(&reader, time as u32);
            match what {
                0 => { ready(store.purge(&Filter::Prompt(hash(number)), now)); last.remove(&number); }
                1 => { ready(store.pin(&Filter::Prompt(hash(number)), size % 2 == 0, now)); }
                2 | 3 => if let Some(found) = found(&reader, number) { reader.hit(&found.sighting, now) },
                _ => {
                    let body = vec![time as u8; size];
                    store.put(answer(number, &body), now);
                    last.insert(number, body);
                }
            }
            prop_assert!(store.ledger.bytes() <= bytes);
            prop_assert!(store.pinned_bytes <= bytes / 2);
            prop_assert_eq!(store.ledger.len(), reader.shared.map.len());
            prop_assert_eq!(store.ledger.len(), store.policy.len());
            prop_assert_eq!(store.ledger.bytes(), store.ledger.iter().map(cost).sum::<u64>());
            for number in 0..60 {
                if let Some(found) = found(&reader, number) {
                    prop_assert_eq!(Some(&*value(&found)), last.get(&number).map(|body| &body[..]));
                }
            }
        }
        prop_assert_eq!(store.free.len() + store.ledger.len(), store.next as usize);
    }
}

/// Eight readers beside a writer that puts, evicts and purges: each answer found is one that was put under its key.
#[test]
fn readers_beside_the_writer_see_only_what_was_put() {
    const KEYS: u64 = 64;
    let shared = Arc::new(Shared::new(Decay::literal(0.95, 5 * SECOND), BASE));
    let reader = Reader {
        shared: Arc::clone(&shared),
    };
    let body = |number: u64, round: u64| [number.to_le_bytes(), round.to_le_bytes()].concat().repeat(40);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let limits = Limits {
                bytes: 40_000,
                buckets: 1024,
            };
            let mut store = Store::<DiskFiles>::new(shared, limits, Probation::Auto, 1);
            for round in 0..4000 {
                let number = (round * 7) % KEYS;
                store.put(answer(number, &body(number, round)), at(&reader, round as u32));
                if round % 5 == 0 {
                    ready(store.purge(&Filter::Prompt(hash(round % KEYS)), at(&reader, 0)));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        for _ in 0..8 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for number in 0..KEYS {
                        let Some(found) = found(&reader, number) else { continue };
                        reader.hit(&found.sighting, at(&reader, 0));
                        let round = u64::from_le_bytes(*value(&found)[8..].first_chunk().unwrap());
                        assert_eq!(&*value(&found), &body(number, round)[..]);
                    }
                }
            });
        }
    });
}
