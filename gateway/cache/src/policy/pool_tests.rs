//! Tests of [`super`].

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use proptest::prelude::*;

use super::*;

const MODEL: ModelNumber = ModelNumber(0);

/// What the tests say of entries: the warm and the hit ones, the pinned and the expired ones.
#[derive(Default)]
struct Said {
    heat: BTreeMap<u32, f32>,
    hit: BTreeSet<u32>,
    pinned: BTreeSet<u32>,
    expired: BTreeSet<u32>,
}

impl Entries for Said {
    fn warmth(&self, id: EntryId) -> Option<f32> {
        let heat = self.heat.get(&id.0).copied().unwrap_or(1.0);
        let warmth = if self.expired.contains(&id.0) { -1.0 } else { heat };
        (!self.pinned.contains(&id.0)).then_some(warmth)
    }

    fn was_hit(&self, id: EntryId, _since: Tick) -> bool {
        self.hit.contains(&id.0)
    }
}

/// Entries `0..count` of 100 bytes, each with itself as the word of its hash.
fn pools(probation: bool, count: u32) -> Pools {
    let mut pools = Pools::new(probation, 1);
    (0..count).for_each(|id| admit(&mut pools, id));
    pools
}

fn admit(pools: &mut Pools, id: u32) {
    pools.admit(MODEL, EntryId(id), (u64::from(id), 100), id);
}

fn in_main(pools: &Pools, id: u32) -> bool {
    matches!(pools.members[id as usize].part, Part::Main { .. })
}

/// The next to go, evicted.
fn evict(pools: &mut Pools, said: &Said) -> Option<u32> {
    let id = pools.victim(MODEL, said)?;
    pools.evict(id)?;
    Some(id.0)
}

#[test]
fn who_is_new_goes_in_the_order_of_coming_unless_it_was_asked_for() {
    let mut pools = pools(true, 20);
    let said = Said {
        hit: [1, 2].into(),
        pinned: [3].into(),
        expired: [2].into(),
        ..Said::default()
    };
    let gone: Vec<_> = (0..4).map(|_| evict(&mut pools, &said)).collect();
    // 1 was hit and 3 is pinned: they stay. 2 was hit too, but nobody can be answered with it any more.
    assert_eq!(gone, [0, 2, 4, 5].map(Some));
    assert!(in_main(&pools, 1) && in_main(&pools, 3) && !in_main(&pools, 6));
    assert_eq!(
        pools.passed,
        Passed {
            promoted: 1,
            returned: 0
        }
    );
}

#[test]
fn who_comes_back_soon_needs_no_probation() {
    let mut pools = pools(true, 20);
    let said = Said::default();
    assert_eq!(evict(&mut pools, &said), Some(0));
    admit(&mut pools, 0);
    assert!(in_main(&pools, 0));
    assert_eq!(
        pools.passed,
        Passed {
            promoted: 0,
            returned: 1
        }
    );
    // Nor does one whose answer was made anew, wherever it was.
    for id in [7, 7, 0] {
        pools.replace(EntryId(id));
        admit(&mut pools, id);
        assert!(in_main(&pools, id));
    }
    // One that was purged comes as if it had never been there, and so does one after as many departures as there are members.
    pools.remove(EntryId(8));
    admit(&mut pools, 8);
    assert!(!in_main(&pools, 8));
    let gone = evict(&mut pools, &said).unwrap();
    for id in 100..140 {
        admit(&mut pools, id);
        evict(&mut pools, &said);
    }
    admit(&mut pools, gone);
    assert!(!in_main(&pools, gone));
}

#[test]
fn probation_keeps_a_tenth() {
    let mut pools = pools(false, 100);
    pools.probation = true;
    let said = Said::default();
    for id in 100..110 {
        admit(&mut pools, id);
        // Up to a tenth, who is new is spared.
        assert!(evict(&mut pools, &said).unwrap() < 100);
    }
    let unproved = |pools: &Pools| (pools.pools[0].probation_bytes, pools.pools[0].main_bytes);
    assert_eq!(unproved(&pools), (1000, 9000));
    admit(&mut pools, 110);
    assert_eq!(evict(&mut pools, &said), Some(100));
    assert_eq!(unproved(&pools), (1000, 9000));
}

#[test]
fn without_probation_all_come_into_the_main_part_bit_by_bit() {
    let mut pools = pools(true, 20);
    pools.probation = false;
    let said = Said {
        pinned: [0].into(),
        ..Said::default()
    };
    for left in [12, 4, 0, 0] {
        assert!(pools.victim(MODEL, &said).is_some());
        assert_eq!(pools.pools[0].unproved, left);
    }
    admit(&mut pools, 20);
    assert!((0..=20).all(|id| in_main(&pools, id)));
}

#[test]
fn the_main_part_loses_cold_ones() {
    let mut pools = pools(false, 1000);
    let heat = (0..1000).map(|id| (id, id as f32)).collect();
    let mut said = Said {
        heat,
        ..Said::default()
    };
    // The chance that sixteen are all of the warmer half is 1 in 65,536.
    for _ in 0..100 {
        assert!(pools.victim(MODEL, &said).unwrap().0 < 500);
    }
    // The last one that is not pinned is found, and then nobody is.
    said.pinned = (0..1000).filter(|id| *id != 777).collect();
    assert_eq!(pools.victim(MODEL, &said), Some(EntryId(777)));
    said.pinned.insert(777);
    assert_eq!(pools.victim(MODEL, &said), None);
}

#[test]
fn models_do_not_touch_each_other() {
    let mut pools = pools(true, 10);
    let other = ModelNumber(3);
    (10..20).for_each(|id| pools.admit(other, EntryId(id), (u64::from(id), 100), 0));
    let said = Said::default();
    assert_eq!(pools.victim(other, &said), Some(EntryId(10)));
    assert_eq!(pools.victim(ModelNumber(1), &said), None);
    assert_eq!(pools.victim(ModelNumber(9), &said), None);
    // Nor are departures of one known to the other.
    assert_eq!(evict(&mut pools, &said), Some(0));
    pools.admit(other, EntryId(0), (0, 100), 0);
    assert!(!in_main(&pools, 0));
}

impl Pools {
    /// Members of a model by part, as the structures say it; panics where they contradict each other.
    fn parts(&self, number: usize) -> (Vec<u32>, BTreeSet<u32>) {
        let Some(pool) = self.pools.get(number) else {
            return Default::default();
        };
        let (mut probation, mut before, mut at) = (Vec::new(), NONE, pool.oldest);
        while at != NONE {
            let Part::Probation { older, newer } = self.members[at as usize].part else {
                panic!("{at} is not in probation")
            };
            assert_eq!(older, before);
            probation.push(at);
            (before, at) = (at, newer);
        }
        assert_eq!((pool.newest, pool.unproved), (before, probation.len()));
        for (place, id) in pool.main.iter().enumerate() {
            let place = place as u32;
            assert_eq!(self.members[id.0 as usize].part, Part::Main { place });
        }
        let main: BTreeSet<u32> = pool.main.iter().map(|id| id.0).collect();
        let sum = |ids: &mut dyn Iterator<Item = u32>| -> u64 {
            ids.map(|id| u64::from(self.members[id as usize].bytes)).sum()
        };
        assert_eq!(pool.probation_bytes, sum(&mut probation.iter().copied()));
        assert_eq!(pool.main_bytes, sum(&mut main.iter().copied()));
        (probation, main)
    }
}

proptest! {
    /// Whatever comes, goes and is asked: all who came and did not go are in one part of their model, and the one to go is one of
    /// them that is not pinned.
    #[test]
    fn members_are_where_they_belong(steps in prop::collection::vec((0u32..40, 0u16..3, 0u8..8, 0u64..5000), 1..400)) {
        let mut pools = Pools::new(true, 3);
        let mut said = Said::default();
        let mut there = BTreeMap::new();
        for (id, model, what, bytes) in steps {
            match what {
                0 => { said.hit.insert(id); }
                1 => { said.pinned.insert(id); }
                2 => { said.pinned.remove(&id); }
                3 => pools.probation = bytes % 2 == 0,
                4 => { prop_assert_eq!(pools.remove(EntryId(id)).is_some(), there.remove(&id).is_some()); }
                5 => {
                    let unpinned = there.iter().any(|(id, of)| *of == model && !said.pinned.contains(id));
                    let victim = pools.victim(ModelNumber(model), &said);
                    prop_assert_eq!(victim.is_some(), unpinned);
                    if let Some(victim) = victim {
                        prop_assert_eq!(there.remove(&victim.0), Some(model));
                        prop_assert!(!said.pinned.contains(&victim.0));
                        prop_assert!(pools.evict(victim).is_some());
                    }
                }
                _ => if let Entry::Vacant(place) = there.entry(id) {
                    said.hit.remove(&id);
                    pools.admit(ModelNumber(model), EntryId(id), (u64::from(id), bytes), 0);
                    place.insert(model);
                }
            }
            for number in 0..3 {
                let (probation, main) = pools.parts(usize::from(number));
                let all: BTreeSet<u32> = probation.iter().copied().chain(main).collect();
                let expected = there.iter().filter(|(_, of)| **of == number).map(|(id, _)| *id).collect();
                prop_assert_eq!(all, expected);
            }
        }
    }
}
