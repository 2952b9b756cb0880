//! Commands on stored answers: what there is, which go, which stay.
//!
//! Listings come from the cache's writer page by page, values from a reader as workers have it. Invariant: a command keeps
//! the writer no longer at a time than a page takes, and never holds more than one page of entries.

use serde::Serialize;
use serde_json::{json, value::RawValue};
use zerohop_cache::{Cache, Cursor, Listed, Page, PartNumber, Value, types::NEVER};

use super::{
    Failure, Outcome, Site,
    line::{Fields, Lines},
    select::{self, Selection, digits},
    to_value,
};

/// Entries of a page, about.
const PAGE: usize = 1024;

fn cache(site: &Site) -> Result<&Cache, Failure> {
    let off = "no answers are kept: cache.type is off";
    site.cache.as_deref().ok_or_else(|| Failure::refused(off))
}

#[derive(Serialize)]
struct Model<'a> {
    model: &'a str,
    entries: u64,
    bytes: u64,
}

/// `cache.stat`.
pub(super) fn stat(site: &Site, _: &Fields<'_>, _: &mut Lines<'_>) -> Outcome {
    let cache = cache(site)?;
    let stats = cache.stats();
    let [hits, misses, bypasses] = site.shared.cache_requests();
    let (models, totals) = (cache.models(), cache.totals());
    let models: Vec<_> = models
        .iter()
        .zip(totals)
        .map(|(model, total)| Model {
            model,
            entries: total.entries,
            bytes: total.bytes,
        })
        .collect();
    let snapshot = site.shared.snapshot();
    let policy = snapshot.kept.as_ref().map(|kept| kept.keeping.policy.name());
    Ok(json!({
        "entries": stats.entries,
        "bytes": stats.bytes,
        "bound_bytes": site.cache_bytes,
        "pinned": stats.pinned,
        "waiting_bytes": stats.waiting_bytes,
        "policy": policy,
        "half_life_s": cache.half_life().map(|time| time.as_secs_f64()),
        "requests": {"hit": hits, "miss": misses, "bypass": bypasses},
        "puts": {"kept": stats.puts, "writer_behind": stats.puts_refused, "too_large": stats.puts_too_large},
        "removed": {"bucket_full": stats.evicted_bucket, "size": stats.evicted_size, "purged": stats.purged},
        "models": to_value(&models),
    }))
}

/// `cache.purge`.
pub(super) fn purge(site: &Site, fields: &Fields<'_>, _: &mut Lines<'_>) -> Outcome {
    let cache = cache(site)?;
    let selection = Selection::read(site, cache, fields).map_err(Failure::Refused)?;
    let removed: usize = selection.filters().into_iter().map(|filter| cache.purge(filter)).sum();
    Ok(json!({"removed": removed}))
}

/// `cache.pin` and `cache.unpin`.
pub(super) fn pin(site: &Site, fields: &Fields<'_>, pinned: bool) -> Outcome {
    let cache = cache(site)?;
    let selection = Selection::read(site, cache, fields).map_err(Failure::Refused)?;
    let filters = selection.filters().into_iter();
    let changed: usize = filters.map(|filter| cache.pin(filter, pinned)).sum();
    Ok(json!({"changed": changed, "pinned": cache.stats().pinned}))
}

#[derive(Serialize)]
struct File<'a> {
    file: &'a str,
    entries: u64,
    bytes: u64,
    /// Null: it is whole.
    damage: Option<&'a str>,
}

/// `cache.verify`: every file of the cache, read to its end.
pub(super) fn verify(site: &Site, _: &Fields<'_>, out: &mut Lines<'_>) -> Outcome {
    let cache = cache(site)?;
    let (mut files, mut damaged, mut after) = (0, 0, None);
    while let Some(checked) = cache.check(after) {
        files += 1;
        damaged += usize::from(checked.damage.is_some());
        out.entry(&File {
            file: &checked.file,
            entries: checked.entries,
            bytes: checked.bytes,
            damage: checked.damage.as_deref(),
        })?;
        after = Some(checked.number);
    }
    Ok(json!({"files": files, "damaged": damaged}))
}

/// `cache.compact`: parts with anything dead in them are made anew.
pub(super) fn compact(site: &Site, _: &Fields<'_>, _: &mut Lines<'_>) -> Outcome {
    let cache = cache(site)?;
    let before = cache.stats().disk_bytes;
    let (mut renewed, mut after) = (0, PartNumber(0));
    while let Some(number) = cache.renew(after) {
        (renewed, after) = (renewed + 1, number);
    }
    let stats = cache.stats();
    Ok(json!({"renewed": renewed, "parts": stats.parts, "bytes_before": before, "bytes": stats.disk_bytes}))
}

/// Calls `each` with all pages, one after the other.
fn pages(
    cache: &Cache,
    out: &mut Lines<'_>,
    mut each: impl FnMut(&Page, &mut Lines<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut from = Some(Cursor::default());
    while let Some(cursor) = from {
        let page = cache.look(cursor, PAGE);
        each(&page, out)?;
        out.page()?;
        from = page.next;
    }
    Ok(())
}

#[derive(Serialize)]
struct Bucket<'a> {
    model: &'a str,
    bucket: u32,
    entries: u64,
    bytes: u64,
    pinned: u64,
    heat: f32,
    hottest: f32,
}

/// `cache.heat`: each bucket that has entries.
pub(super) fn heat(site: &Site, fields: &Fields<'_>, out: &mut Lines<'_>) -> Outcome {
    let cache = cache(site)?;
    let only = fields.text("model").map_err(Failure::Refused)?;
    let only = only.map(|name| select::model(cache, &name)).transpose();
    let only = only.map_err(Failure::Refused)?;
    let models = cache.models();
    let (mut buckets, mut entries) = (0, 0);
    pages(cache, out, |page, out| {
        buckets = page.buckets;
        let place = |listed: &Listed| (listed.entry.key.model, listed.bucket);
        for bucket in page.entries.chunk_by(|one, two| place(one) == place(two)) {
            let first = &bucket[0];
            let Some(model) = models.get(usize::from(first.entry.key.model.0)) else {
                continue;
            };
            if only.as_ref().is_some_and(|only| only != model) {
                continue;
            }
            entries += bucket.len();
            out.entry(&Bucket {
                model,
                bucket: first.bucket,
                entries: bucket.len() as u64,
                bytes: bucket.iter().map(|listed| listed.cost).sum(),
                pinned: bucket.iter().filter(|listed| listed.pinned).count() as u64,
                heat: bucket.iter().map(|listed| listed.heat).sum(),
                hottest: bucket.iter().map(|listed| listed.heat).fold(0.0, f32::max),
            })?;
        }
        Ok(())
    })?;
    Ok(json!({"buckets": buckets, "entries": entries}))
}

#[derive(Serialize)]
struct Dumped<'a> {
    key: String,
    model: Option<&'a str>,
    space: String,
    tenant: Option<&'a str>,
    prefix: String,
    bucket: u32,
    created: u32,
    expires: Option<u32>,
    made_ms: u32,
    bytes: u64,
    heat: f32,
    pinned: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
}

/// `cache.dump`: each entry, with its stored form unless `body` is false.
pub(super) fn dump(site: &Site, fields: &Fields<'_>, out: &mut Lines<'_>) -> Outcome {
    let cache = cache(site)?;
    let selection = Selection::read(site, cache, fields).map_err(Failure::Refused)?;
    let with_body = fields.raw("body").is_none() || fields.switch("body").map_err(Failure::Refused)?;
    let (models, reader) = (cache.models(), cache.reader());
    let tenants = site.shared.snapshot().callers.tenants_by_space();
    let (mut entries, mut gone) = (0, 0);
    pages(cache, out, |page, out| {
        for listed in page.entries.iter().filter(|listed| selection.has(listed, &models)) {
            let entry = &listed.entry;
            // It may have been evicted since the page was made.
            let value = reader.look_up(&entry.key).and_then(|found| match found.value {
                Value::Here(value) => Some(value),
                Value::There(..) => cache.read(&entry.key),
            });
            let body = value.as_ref().and_then(|value| serde_json::from_slice(value).ok());
            if body.is_none() {
                gone += 1;
                continue;
            }
            entries += 1;
            out.entry(&Dumped {
                key: digits(&entry.key.prompt.0),
                model: models.get(usize::from(entry.key.model.0)).map(String::as_str),
                space: format!("{:016x}", listed.tenant),
                tenant: tenants.get(&listed.tenant).map(|name| &**name),
                prefix: digits(&entry.key.context.0),
                bucket: listed.bucket,
                created: entry.created,
                expires: (entry.expires != NEVER).then_some(entry.expires),
                made_ms: listed.made_in,
                bytes: listed.cost,
                heat: listed.heat,
                pinned: listed.pinned,
                body: body.filter(|_| with_body),
            })?;
        }
        Ok(())
    })?;
    Ok(json!({"entries": entries, "gone": gone}))
}
