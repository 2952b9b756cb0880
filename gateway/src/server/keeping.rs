//! Where answers are kept: opened with the gateway, and what a snapshot says of it.
//!
//! It answers nothing. Invariant: a reload changes which answers are kept and found, never where they lie.

use std::{path::Path, sync::Arc};

use zerohop_cache::{Cache, Limits, Notes, OnDisk, Options, heat::Decay, segment::log::Durability};

use super::{StartError, secret};
use crate::{
    config::{self, Buckets, CachePlace, CacheStore, HalfLife},
    key::Secret,
    log::Log,
    snapshot::{Kept, ServedModel},
};

/// An answer of usual size with all that it costs, in bytes: from it follows how many buckets a bound asks for.
const USUAL: u64 = 2048;

/// Opens what the configuration asks for, with what its name spaces are derived with. `None` where answers are not kept: the
/// configuration says so, or the files cannot be used, which the log tells; the gateway serves without them then.
///
/// # Errors
/// If the kernel gives no random bytes, or no thread.
pub(super) fn open(wanted: Option<&config::Cache>, log: &Log) -> Result<(Option<Arc<Cache>>, Secret), StartError> {
    let fresh = secret()?;
    let Some(wanted) = wanted else {
        return Ok((None, Secret::new(fresh)));
    };
    let options = options(&wanted.store)?;
    match &wanted.store.place {
        CachePlace::Memory => {
            let cache = Cache::in_memory(options);
            let cache = cache.map_err(|error| StartError::new(format!("cannot start the cache's writer: {error}")))?;
            Ok((Some(Arc::new(cache)), Secret::new(fresh)))
        }
        CachePlace::Ssd { index, data } => {
            let home = index.parent().unwrap_or(Path::new("/"));
            let to = log.clone();
            let notes = Notes::to(move |note| {
                if note.is_fault() {
                    to.warn(format_args!("cache: {note}"));
                } else {
                    to.info(format_args!("cache: {note}"));
                }
            });
            let opened = on_disk(options, &wanted.store, (home, data), notes).and_then(|cache| {
                let secret = Secret::of_folder(home, fresh).map_err(|error| error.to_string())?;
                Ok((cache, secret))
            });
            match opened {
                Ok((cache, secret)) => Ok((Some(Arc::new(cache)), secret)),
                Err(why) => {
                    log.warn(format_args!("answers are not kept: {why}"));
                    Ok((None, Secret::new(fresh)))
                }
            }
        }
    }
}

fn options(store: &CacheStore) -> Result<Options, StartError> {
    let bytes = u64::from(store.size_mb) << 20;
    let ticks = u32::try_from(store.heat.interval.as_millis() / 10).unwrap_or(u32::MAX);
    Ok(Options {
        limits: Limits {
            bytes,
            buckets: buckets(store.buckets, bytes),
        },
        decay: match store.heat.half_life {
            HalfLife::Adaptive => Decay::adaptive(store.heat.decay, ticks),
            HalfLife::Literal => Decay::literal(store.heat.decay, ticks),
        },
        probation: store.heat.probation,
        seed: u64::from_le_bytes(*secret()?.first_chunk().unwrap_or(&[0; 8])),
    })
}

/// Opens the files of a cache that no gateway has open, for a command that is told the notes; `None` for one that has none.
///
/// # Errors
/// Why not, in a line.
pub(crate) fn files(wanted: &config::Cache, notes: Notes) -> Result<Option<Cache>, String> {
    let CachePlace::Ssd { index, data } = &wanted.store.place else {
        return Ok(None);
    };
    let home = index.parent().unwrap_or(Path::new("/"));
    if !index.is_file() && !data.is_dir() {
        return Err(format!("there is no cache in {}", home.display()));
    }
    let options = options(&wanted.store).map_err(|error| error.to_string())?;
    on_disk(options, &wanted.store, (home, data), notes).map(Some)
}

/// Opens a cache in these two folders.
fn on_disk(options: Options, store: &CacheStore, (home, data): (&Path, &Path), notes: Notes) -> Result<Cache, String> {
    let place = OnDisk {
        home: home.to_owned(),
        data: data.to_owned(),
        hot_bytes: u64::from(store.hot_mb) << 20,
        compaction: store.compaction,
        durability: Durability::Batch,
        notes,
    };
    Cache::on_disk(options, place).map_err(|error| format!("cache in {}: {error}", home.display()))
}

/// What a snapshot with these models says.
pub(super) fn kept(cache: &Cache, wanted: &config::Cache, models: &[Arc<ServedModel>]) -> Kept {
    Kept {
        keeping: wanted.keeping,
        single_flight: wanted.single_flight,
        numbers: models.iter().map(|model| cache.model(&model.id)).collect(),
    }
}

/// Buckets of a model: as many as stay under two thirds full when the bound is full of usual answers.
fn buckets(wanted: Buckets, bytes: u64) -> u32 {
    const MOST: u64 = 1 << 22;
    match wanted {
        Buckets::Own(buckets) => buckets,
        Buckets::Auto => {
            let needed = (bytes / USUAL * 3 / 2).div_ceil(100).next_power_of_two();
            needed.clamp(1024, MOST) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_the_bound() {
        for (mib, expected) in [(1u64, 1024), (100, 1024), (256, 2048), (1024, 8192), (1 << 24, 1 << 22)] {
            assert_eq!(buckets(Buckets::Auto, mib << 20), expected, "{mib} MiB");
        }
        assert_eq!(buckets(Buckets::Own(4096), 1), 4096);
    }
}
