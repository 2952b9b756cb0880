//! Tests of [`super`].

use super::*;
use crate::heat::SECOND;

fn left(since: Tick, unproved: bool, probation: bool) -> Left {
    Left {
        since,
        unproved,
        probation,
    }
}

#[test]
fn the_half_life_follows_how_long_entries_stay() {
    let decay = Decay::adaptive(0.95, 5 * SECOND);
    let mut residence = Residence::of(&decay);
    let now = 100_000;
    // Who leaves probation says nothing of how long entries stay.
    residence.note(left(now - 1, true, true), now, &decay);
    assert_eq!(decay.half_life(), Some(6756));
    for (probation, half_life) in [(false, 1000), (true, 500), (false, 1000)] {
        (0..1000).for_each(|_| residence.note(left(now - 1000, false, probation), now, &decay));
        let told = decay.half_life().unwrap();
        assert!(told.abs_diff(half_life) <= 1, "{told}");
    }
    // One eviction weighs little, and small steps add up.
    residence.note(left(0, false, false), now, &decay);
    assert!((2500..2600).contains(&decay.half_life().unwrap()));
    (0..1000).for_each(|_| residence.note(left(now - 990, false, false), now, &decay));
    assert!(decay.half_life().unwrap().abs_diff(990) <= 1);
}

#[test]
fn the_literal_rule_stays_as_it_is_written() {
    let decay = Decay::literal(0.95, 5 * SECOND);
    let mut residence = Residence::of(&decay);
    (0..100).for_each(|_| residence.note(left(0, false, false), 12_345, &decay));
    assert_eq!(decay.half_life(), None);
}

/// Only where the shadows decide are there any, and their share follows the cache.
#[test]
fn shadows_begin_when_the_bound_is_reached() {
    let decay = Decay::adaptive(0.95, 5 * SECOND);
    for mode in [Probation::Off, Probation::On, Probation::Auto] {
        let (counts, notes) = (Counts::default(), Notes::new());
        let mut policy = Policy::new(mode, &decay, 1);
        policy.publish(&counts, &notes);
        assert!(!notes.wants(0), "{mode:?}");
        for (entries, wanted) in [(100_000, 1 << 57), (70_000, 1 << 57), (2_000, 1 << 61)] {
            policy.full((entries, 1 << 28), &decay, 0);
            policy.publish(&counts, &notes);
            let follows = notes.wants(wanted) && !notes.wants(wanted << 2);
            assert_eq!(follows, mode == Probation::Auto, "{mode:?}, {entries}");
        }
        assert_eq!(counts.read().probation, u64::from(mode == Probation::On));
    }
}
