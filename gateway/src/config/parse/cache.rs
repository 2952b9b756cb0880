//! `cache`: where answers are kept, which, for whom and for how long.
//!
//! Opens no file. Invariant: what the section names and this version does not have is refused, never taken for something
//! else; with `type: off` everything else is still checked, and then of no effect.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use zerohop_cache::Probation;

use super::{
    super::{
        Buckets, Cache, CachePlace, CacheStore, HalfLife, Heat,
        field::{Amount, At, Field, word},
        raw,
    },
    Reader,
};
use crate::{
    keep::{Keeping, Policy},
    key::Scope,
};

/// Where answers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Memory,
    Ssd,
    Zram,
    Off,
}

/// The words of `type`.
const TYPES: [(&str, Type); 4] = [
    ("memory", Type::Memory),
    ("ssd", Type::Ssd),
    ("zram", Type::Zram),
    ("off", Type::Off),
];
/// The words of `compression`: whether hot entries are compressed.
const COMPRESSION: [(&str, bool); 2] = [("none", false), ("lz4", true)];
/// The words of `policy`.
pub(in crate::config) const POLICIES: [(&str, Policy); 3] = [
    (Policy::Deterministic.name(), Policy::Deterministic),
    (Policy::All.name(), Policy::All),
    (Policy::Off.name(), Policy::Off),
];
/// The words of `scope`.
pub(in crate::config) const SCOPES: [(&str, Scope); 3] = [
    ("key", Scope::Key),
    ("tenant", Scope::Tenant),
    ("public", Scope::Public),
];
/// The words of `heat.half_life`.
pub(in crate::config) const HALF_LIVES: [(&str, HalfLife); 2] =
    [("adaptive", HalfLife::Adaptive), ("literal", HalfLife::Literal)];
/// The words of `heat.probation`.
pub(in crate::config) const PROBATIONS: [(&str, Probation); 3] = [
    ("auto", Probation::Auto),
    ("on", Probation::On),
    ("off", Probation::Off),
];

/// Bounds of `size_mb`: 16 TiB.
const SIZE: RangeInclusive<u32> = 1..=1 << 24;
const DEFAULT_SIZE: u32 = 256;
/// Fewest MiB of a cache in files.
const LEAST_OF_FILES: u32 = (zerohop_cache::LEAST >> 20) as u32;
/// Bounds of `hot_mb`: 1 TiB.
const HOT: RangeInclusive<u32> = 0..=1 << 20;
const DEFAULT_HOT: u32 = 64;
const VERSION: RangeInclusive<u32> = 1..=1_000_000_000;
/// Bounds of `ttl`.
const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10 * 365 * 86_400);
/// Bounds of `buckets`: of the upper one, each has a page of 8 KiB or more, 8 GiB in all.
const BUCKETS: RangeInclusive<u32> = 1 << 10..=1 << 20;
/// Bounds of `heat.decay`: above, an entry would take days to be cold.
const DECAY: RangeInclusive<f32> = 0.01..=0.999;
const DEFAULT_DECAY: f32 = 0.95;
/// Bounds of `heat.interval`.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

const INDEX: &str = "cache_index.bin";
const DATA: &str = "cache_data.parquet";

impl Reader<'_> {
    /// The cache; `None` where it is off.
    pub(super) fn cache(&mut self, raw: raw::Cache) -> Option<Cache> {
        let place = match raw.kind.given() {
            None => Some((Type::Memory, None)),
            // A bad word leaves unsaid what the other keys have to fit.
            Some(given) => word(&given, &TYPES, &mut self.problems).map(|kind| (kind, Some(given))),
        };
        let paths = Paths {
            index: raw.index_path.set(),
            data: raw.data_path.set(),
            local: raw.local.section().path.set(),
        };
        let sizes = match place {
            Some((Type::Ssd, _)) => LEAST_OF_FILES..=*SIZE.end(),
            _ => SIZE,
        };
        let place = place.and_then(|(kind, given)| self.place(kind, given.as_ref(), paths));
        self.compression(raw.compression);
        let store = CacheStore {
            place: CachePlace::Memory,
            size_mb: self.whole(raw.size_mb, sizes, DEFAULT_SIZE),
            hot_mb: self.whole(raw.hot_mb, HOT, DEFAULT_HOT),
            compaction: raw.compaction.section().enabled.given().is_none_or(|at| at.value),
            buckets: self.buckets(raw.buckets),
            heat: self.heat(raw.heat.section()),
        };
        let cache = Cache {
            store,
            keeping: Keeping {
                policy: self.word(raw.policy, &POLICIES, Policy::Deterministic),
                tools: raw.tools.given().is_some_and(|at| at.value),
                ttl: raw.ttl.set().and_then(|given| self.time(&given, TTL)),
            },
            single_flight: raw.single_flight.given().is_none_or(|at| at.value),
            scope: self.word(raw.scope, &SCOPES, Scope::Tenant),
            hash_version: self.whole(raw.context_hash_version, VERSION, 1),
        };
        place.map(|place| Cache {
            store: CacheStore { place, ..cache.store },
            ..cache
        })
    }

    /// Where answers lie; `None` where nowhere, or after telling a fault.
    fn place(&mut self, kind: Type, given: Option<&At<String>>, paths: Paths) -> Option<CachePlace> {
        match kind {
            Type::Off => None,
            Type::Memory => {
                for path in [paths.index, paths.data, paths.local].into_iter().flatten() {
                    let text = "a cache in memory has no files: leave the path out";
                    path.fault(&mut self.problems, text);
                }
                Some(CachePlace::Memory)
            }
            Type::Ssd => self.files(given?, paths),
            Type::Zram => {
                let text = "not yet: zram is not supported by this version: write memory or off";
                given?.fault(&mut self.problems, text);
                None
            }
        }
    }

    fn files(&mut self, given: &At<String>, paths: Paths) -> Option<CachePlace> {
        match paths {
            Paths {
                index: None,
                data: None,
                local: Some(folder),
            } => {
                if folder.value.is_empty() {
                    folder.fault(&mut self.problems, "the path is empty: give a folder");
                    return None;
                }
                let folder = self.path(&folder);
                Some(CachePlace::Ssd {
                    index: folder.join(INDEX),
                    data: folder.join(DATA),
                })
            }
            Paths {
                index: Some(index),
                data: Some(data),
                local: None,
            } => {
                let index = self.named(&index, INDEX);
                let data = self.named(&data, DATA);
                Some(CachePlace::Ssd {
                    index: index?,
                    data: data?,
                })
            }
            Paths {
                local: Some(folder), ..
            } => {
                let text = "it contradicts `index_path` and `data_path`: keep the folder or the two paths";
                folder.fault(&mut self.problems, text);
                None
            }
            Paths { index: Some(one), .. } => {
                let text =
                    format!("`data_path` is missing: add `data_path: …/{DATA}`, or write `local: {{path: FOLDER}}`");
                one.fault(&mut self.problems, text);
                None
            }
            Paths { data: Some(one), .. } => {
                let text =
                    format!("`index_path` is missing: add `index_path: …/{INDEX}`, or write `local: {{path: FOLDER}}`");
                one.fault(&mut self.problems, text);
                None
            }
            Paths { .. } => {
                let text = "there is no place for the files: add `local: {path: FOLDER}` to the section";
                given.fault(&mut self.problems, text);
                None
            }
        }
    }

    /// A path whose last part has to be this.
    fn named(&mut self, given: &At<String>, name: &str) -> Option<PathBuf> {
        let path = self.path(given);
        if path.file_name().is_some_and(|last| last == name) {
            return Some(path);
        }
        let text = format!("the path has to end in {name}, as in /var/lib/zerohop/{name}");
        given.fault(&mut self.problems, text);
        None
    }

    fn compression(&mut self, field: Field<String>) {
        let Some(given) = field.given() else { return };
        if word(&given, &COMPRESSION, &mut self.problems) == Some(true) {
            let text = "not yet: lz4 is for zram, which is not supported by this version: write none";
            given.fault(&mut self.problems, text);
        }
    }

    fn buckets(&mut self, field: Field<Amount>) -> Buckets {
        let Some(given) = field.given().filter(|given| given.value.0 != "auto") else {
            return Buckets::Auto;
        };
        let number = given.value.0.parse::<u32>().ok();
        match number.filter(|number| BUCKETS.contains(number) && number.is_power_of_two()) {
            Some(number) => Buckets::Own(number),
            None => {
                let wanted = format!("auto, or a power of two from {} to {}", BUCKETS.start(), BUCKETS.end());
                self.no_amount(&given, &wanted);
                Buckets::Auto
            }
        }
    }

    fn heat(&mut self, raw: raw::CacheHeat) -> Heat {
        let mut decay = DEFAULT_DECAY;
        if let Some(given) = raw.decay.given() {
            match given.value.0.parse::<f32>().ok().filter(|it| DECAY.contains(it)) {
                Some(value) => decay = value,
                None => {
                    let wanted = format!("a number from {} to {}, such as 0.95", DECAY.start(), DECAY.end());
                    self.no_amount(&given, &wanted);
                }
            }
        }
        let half_life = self.word(raw.half_life, &HALF_LIVES, HalfLife::Adaptive);
        // Who wants the rule as it is written wants nothing beside it.
        let usual = match half_life {
            HalfLife::Adaptive => Probation::Auto,
            HalfLife::Literal => Probation::Off,
        };
        Heat {
            decay,
            interval: self.duration(raw.interval, INTERVAL, DEFAULT_INTERVAL),
            half_life,
            probation: self.word(raw.probation, &PROBATIONS, usual),
        }
    }
}

/// What the section says of places.
struct Paths {
    index: Option<At<String>>,
    data: Option<At<String>>,
    local: Option<At<String>>,
}
