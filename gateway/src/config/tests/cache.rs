//! The section `cache`: places, defaults, and what a reload may change.

use zerohop_cache::Probation;

use super::{super::CachePlace, good};
use crate::{
    keep::{Keeping, Policy},
    key::Scope,
};

#[test]
fn a_cache_has_a_place_or_is_none() {
    let cache = |text: &str| good(&format!("cache: {text}\n")).cache;
    let default = good("").cache.expect("on without a word");
    assert_eq!(default.store.place, CachePlace::Memory);
    assert_eq!((default.store.size_mb, default.store.compaction), (256, true));
    let keeping = Keeping {
        policy: Policy::Deterministic,
        tools: false,
        ttl: None,
    };
    assert_eq!((default.keeping, default.scope), (keeping, Scope::Tenant));
    assert!(default.single_flight);
    for text in ["{}", "{type: memory, ttl: null, index_path: null, local: {path: null}}"] {
        assert_eq!(cache(text), Some(default.clone()), "{text}");
    }
    // Whatever else stands there.
    for text in [
        "{type: off}",
        "{type: off, local: {path: x}, index_path: y, policy: all}",
    ] {
        assert_eq!(cache(text), None, "{text}");
    }
    let ssd = |text: &str| cache(text).expect("on").store.place;
    let place = CachePlace::Ssd {
        index: "/etc/zerohop/c/cache_index.bin".into(),
        data: "/etc/zerohop/c/cache_data.parquet".into(),
    };
    assert_eq!(ssd("{type: ssd, local: {path: c}}"), place);
    assert_eq!(
        ssd("{type: ssd, index_path: c/cache_index.bin, data_path: /etc/zerohop/c/cache_data.parquet/}"),
        place
    );
    assert_eq!(
        cache("{policy: off}").map(|cache| cache.keeping.policy),
        Some(Policy::Off)
    );
}

#[test]
fn the_literal_rule_has_nothing_beside_it() {
    for (text, expected) in [
        ("{}", Probation::Auto),
        ("{half_life: adaptive}", Probation::Auto),
        ("{half_life: literal}", Probation::Off),
        ("{half_life: literal, probation: auto}", Probation::Auto),
        ("{probation: off}", Probation::Off),
        ("{probation: on}", Probation::On),
    ] {
        let cache = good(&format!("cache: {{heat: {text}}}\n")).cache;
        assert_eq!(cache.map(|cache| cache.store.heat.probation), Some(expected), "{text}");
    }
}

#[test]
fn only_the_store_of_the_cache_needs_a_restart() {
    let base = good("");
    let check = |text: &str, wanted: &[&str]| {
        assert_eq!(base.needs_restart(&good(&format!("cache: {text}\n"))), wanted, "{text}");
    };
    check(
        "{policy: all, tools: true, ttl: 1h, scope: public, context_hash_version: 2, single_flight: false}",
        &[],
    );
    let store = ["the store of cache.*"];
    check("{type: off}", &store);
    check("{type: ssd, local: {path: c}}", &store);
    check("{size_mb: 257}", &store);
    check("{hot_mb: 65}", &store);
    check("{buckets: 1024}", &store);
    check("{compaction: {enabled: false}}", &store);
    check("{heat: {decay: 0.5}}", &store);
}
