//! Where answers are kept: opened with the gateway, and what a snapshot says of it.
//!
//! It answers nothing. Invariant: a reload changes which answers are kept and found, never where they lie.

use std::sync::Arc;

use zerohop_cache::{Cache, Limits, Options, heat::Decay};

use super::{StartError, secret};
use crate::{
    config::{self, Buckets, CachePlace, HalfLife},
    snapshot::{Kept, ServedModel},
};

/// An answer of usual size with all that it costs, in bytes: from it follows how many buckets a bound asks for.
const USUAL: u64 = 2048;

/// Opens what the configuration asks for; `None` where answers are not kept.
///
/// # Errors
/// If it cannot be had.
pub(super) fn open(wanted: Option<&config::Cache>) -> Result<Option<Arc<Cache>>, StartError> {
    let Some(wanted) = wanted else { return Ok(None) };
    let store = &wanted.store;
    let bytes = u64::from(store.size_mb) << 20;
    let ticks = u32::try_from(store.heat.interval.as_millis() / 10).unwrap_or(u32::MAX);
    let options = Options {
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
    };
    let cache = match &store.place {
        CachePlace::Memory => Cache::in_memory(options),
        CachePlace::Ssd { .. } => {
            return Err(StartError::new(
                "cache.type: ssd is not supported yet: answers are kept in memory only; set it to memory, or off",
            ));
        }
    };
    let cache = cache.map_err(|error| StartError::new(format!("cannot start the cache's writer: {error}")))?;
    Ok(Some(Arc::new(cache)))
}

/// What a snapshot with these models says.
pub(super) fn kept(cache: &Cache, wanted: &config::Cache, models: &[Arc<ServedModel>]) -> Kept {
    Kept {
        keeping: wanted.keeping,
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
