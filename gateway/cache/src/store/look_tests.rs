use std::{collections::HashSet, sync::Arc};

use super::*;
use crate::{
    files::disk::ready,
    front::Shared,
    heat::{Decay, SECOND},
    ledger::OVERHEAD,
    policy::Probation,
    store::{Filter, Limits},
    types::{Answer, Context, FinishReason, NEVER, PromptHash, Usage},
};

fn store(buckets: u32) -> (Store, Arc<Shared>) {
    let shared = Arc::new(Shared::new(Decay::literal(0.5, 5 * SECOND), 1_000));
    let limits = Limits {
        bytes: 1 << 24,
        buckets,
    };
    (Store::new(Arc::clone(&shared), limits, Probation::Off, 1), shared)
}

fn put(store: &mut Store, model: &str, number: u64, now: Now) -> PromptHash {
    let mut prompt = PromptHash([7; 32]);
    prompt.0[..8].copy_from_slice(&number.to_le_bytes());
    let answer = Answer {
        model: model.into(),
        tenant: number % 3,
        prompt,
        context: Context([0; 16]),
        created: 1_000,
        expires: NEVER,
        finish: FinishReason::Stop,
        usage: Usage::default(),
        generation_ms: 5,
        request: None,
        body: vec![b'x'; 10],
    };
    store.put(answer, now);
    prompt
}

/// Every entry, and how many pages they came in.
fn all(store: &Store, most: usize, now: Now) -> (Vec<Listed>, usize) {
    let (mut entries, mut pages, mut from) = (Vec::new(), 0, Some(Cursor::default()));
    while let Some(cursor) = from {
        let page = store.look(cursor, most, now);
        assert!(page.entries.len() < most + 100, "{} of {most}", page.entries.len());
        entries.extend(page.entries);
        from = page.next;
        pages += 1;
    }
    (entries, pages)
}

#[test]
fn pages_of_any_size_list_each_entry_once() {
    let (mut store, shared) = store(1024);
    let now = shared.now(1_000, 0);
    for (model, count) in [("a", 300), ("empty", 1), ("b", 2_000)] {
        // The model is part of what is hashed, so no two entries have one hash.
        let offset = model.bytes().map(u64::from).sum::<u64>() << 32;
        for number in 0..count {
            put(&mut store, model, offset + number, now);
        }
    }
    assert_eq!(ready(store.purge(&Filter::Model("empty".into()), now)), 1);
    // Numbers of models are those of their first put.
    let totals: Vec<_> = store.totals().iter().map(|total| total.entries).collect();
    assert_eq!(totals, [300, 0, 2_000]);
    let mut whole = HashSet::new();
    for (most, pages_at_least) in [(1, 1_000), (64, 20), (100_000, 1)] {
        let (entries, pages) = all(&store, most, now);
        assert!(pages >= pages_at_least, "{pages} pages of {most}");
        let seen: Vec<_> = entries
            .iter()
            .map(|listed| (listed.entry.key.model, listed.entry.key.prompt))
            .collect();
        let unique: HashSet<_> = seen.iter().copied().collect();
        assert_eq!((seen.len(), unique.len()), (2_300, 2_300), "pages of {most}");
        assert!(whole.is_empty() || whole == unique);
        whole = unique;
        for listed in entries {
            assert_eq!(u64::from(listed.bucket), listed.entry.key.prompt.word() % 1024);
            assert_eq!(
                (listed.cost, listed.heat, listed.pinned, listed.made_in),
                (10 + OVERHEAD, 1.0, false, 5)
            );
        }
    }
}

#[test]
fn an_empty_cache_has_one_empty_page() {
    let (store, shared) = store(1 << 20);
    let page = store.look(Cursor::default(), 10, shared.now(1_000, 0));
    assert_eq!((page.entries.len(), page.next), (0, None));
}

#[test]
fn empty_buckets_end_a_page_too() {
    let (mut store, shared) = store(1 << 20);
    let now = shared.now(1_000, 0);
    put(&mut store, "a", (1 << 20) - 1, now);
    let (entries, pages) = all(&store, 10, now);
    assert_eq!((entries.len(), pages), (1, (1 << 20) / BUCKETS + 1));
}

#[test]
fn what_is_told_is_of_now() {
    let (mut store, shared) = store(1024);
    let now = shared.now(1_000, 0);
    let prompt = put(&mut store, "a", 1, now);
    ready(store.pin(&Filter::Prompt(prompt), true, now));
    let (entries, _) = all(&store, 10, shared.now(1_010, 0));
    assert_eq!((entries[0].heat, entries[0].pinned, entries[0].tenant), (0.25, true, 1));
}
