//! Tests of [`super`].

use super::*;
use crate::heat::SECOND;

/// Room for 512 entries of 300 bytes, all keys followed.
fn trial() -> Trial {
    let decay = Decay::adaptive(0.95, 5 * SECOND);
    Trial::new((512, 512 * 300), (&decay, 1), 0)
}

/// SplitMix64's last step: words that are spread as those of hashes are.
fn word(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Keys that probation is good for: half of the look-ups are of 480 hot keys, the others of keys that never come again.
fn scanned(n: u64) -> u64 {
    if n.is_multiple_of(2) {
        word(n) % 480
    } else {
        1_000_000 + n
    }
}

/// And those that it is bad for: each key comes twice, the second time after 400 others.
fn late(n: u64) -> u64 {
    let (block, place) = (n / 800, n % 800);
    2_000_000 + block * 400 + place % 400
}

/// Whether there is probation after so many look-ups, ten a second, from `first` on.
fn run(trial: &mut Trial, mut on: bool, key: fn(u64) -> u64, (first, count): (u64, u64)) -> bool {
    for n in first..first + count {
        let at = n as Tick * 10;
        trial.look(Look {
            word: word(key(n)),
            bytes: 300,
            at,
        });
        on = trial.verdict(on, at);
    }
    on
}

#[test]
fn probation_goes_where_it_is_better() {
    let mut trial = trial();
    let on = run(&mut trial, false, scanned, (0, 20_000));
    assert!(on, "{:?}", trial.compared());
    let off = !run(&mut trial, on, late, (20_000, 40_000));
    assert!(off, "{:?}", trial.compared());
    assert!(
        run(&mut trial, false, scanned, (60_000, 40_000)),
        "{:?}",
        trial.compared()
    );
}

#[test]
fn what_is_alike_changes_nothing() {
    for on in [false, true] {
        // Both hit always, then both never.
        for key in [(|n| n % 100) as fn(u64) -> u64, |n| n] {
            assert_eq!(run(&mut trial(), on, key, (0, 20_000)), on);
        }
    }
}

/// By the number of look-ups where they come fast, by the clock where they come slowly, and never by a few.
#[test]
fn it_is_judged_now_and_then() {
    let look = |trial: &mut Trial, count: u64| {
        (0..count).for_each(|n| {
            trial.look(Look {
                word: word(n),
                bytes: 300,
                at: 0,
            })
        });
    };
    for (looks, at, judged) in [
        (ENOUGH - 1, WHILE - 1, false),
        (ENOUGH, 0, true),
        (FEW, WHILE, true),
        (FEW - 1, WHILE, false),
    ] {
        let mut trial = trial();
        look(&mut trial, looks);
        trial.verdict(false, at);
        assert_eq!(trial.compared().is_some(), judged, "{looks} look-ups in {at}");
    }
}

#[test]
fn the_share_follows_the_number_of_entries() {
    for (entries, share) in [
        (0, 0),
        (511, 0),
        (1023, 0),
        (1024, 1),
        (8192, 4),
        (32_768, 6),
        (1 << 28, 6),
    ] {
        assert_eq!(Share::of(entries), Share(share), "{entries}");
    }
    let followed = (0..64_000).filter(|n| Share(6).has(word(*n))).count();
    assert!((900..1100).contains(&followed), "{followed}");
    assert!((0..1000).all(|n| Share(0).has(word(n)) && !Share::NONE.has(word(n))));
    assert!(!Share::NONE.has(0) && Share::from_bits(Share(6).bits()) == Share(6));
}

#[test]
fn a_shadow_keeps_its_bound() {
    let decay = Decay::literal(0.95, 5 * SECOND);
    for probation in [false, true] {
        let mut shadow = Shadow::new(probation, &decay, 1);
        for n in 0..5000 {
            let look = Look {
                word: word(word(n) % 30),
                bytes: word(n) % 2000,
                at: n as Tick,
            };
            shadow.look(look, 10_000);
            let sum: u64 = shadow.ids.values().map(|id| shadow.husks[id.0 as usize].bytes).sum();
            assert!(shadow.bytes <= 10_000 && shadow.bytes == sum);
        }
        // What can never fit evicts nobody.
        let there = shadow.ids.len();
        shadow.look(
            Look {
                word: 1,
                bytes: 10_001,
                at: 5000,
            },
            10_000,
        );
        assert_eq!(shadow.ids.len(), there);
        assert!(shadow.hits > 0 && shadow.husks.len() == there + shadow.free.len());
    }
}
