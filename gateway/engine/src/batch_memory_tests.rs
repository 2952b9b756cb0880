//! Stories of memory that was short.

use super::*;

/// Once a prompt that lost its place while it was being told was told twice over.
#[test]
fn a_prompt_is_told_once() {
    for cut in [Cut::AtChunks, Cut::Free] {
        let mut bench = Bench::with(&Settings {
            slots: 4,
            chunk: 8,
            cut,
            block: 8,
            capacity: 200,
        });
        let mut handles = Vec::new();
        // Answers that take the memory away while the prompts behind them are computed.
        for ticket in 0..2 {
            handles.push(bench.push(ticket, &[3 + ticket as u32; 40], 60));
        }
        while bench.batch.rows.len() < 2 {
            bench.step().expect("runs");
        }
        let prompt: Vec<u32> = (0..90).map(|token| token % 31).collect();
        for ticket in 2..4 {
            handles.push(bench.push_told(ticket, &prompt, 20, Echo::Prompt));
        }
        while !bench.batch.is_idle() {
            bench.step().expect("runs");
        }
        for ticket in 2..4 {
            let told = bench.events[&ticket].iter().find_map(|event| match event {
                Event::Echo { logprobs, .. } => Some(logprobs.iter().map(|told| told.token).collect::<Vec<_>>()),
                _ => None,
            });
            assert_eq!(told.as_ref(), Some(&prompt), "job {ticket}, {cut:?}");
            assert_eq!(bench.text(ticket), expected(&prompt, 20), "job {ticket}");
        }
        let stats = bench.shared.counters.snapshot(&bench.shared.admission);
        assert!(stats.preempted > 0, "{stats:?}");
    }
}

/// Once the memory that sequences had left in their places kept the prefix cache empty for good.
#[test]
fn places_that_nobody_uses_make_room_for_the_prefix_cache() {
    let mut bench = Bench::with(&Settings {
        slots: 6,
        chunk: 8,
        cut: Cut::Free,
        block: 8,
        capacity: 200,
    });
    let _many: Vec<JobHandle> = (0..6)
        .map(|ticket| bench.push(ticket, &[5, ticket as u32], 60))
        .collect();
    while !bench.batch.is_idle() {
        bench.step().expect("runs");
    }
    let prompt: Vec<u32> = (0..40).collect();
    for ticket in 6..8 {
        let _handle = bench.push(ticket, &prompt, 5);
        while !bench.batch.is_idle() {
            bench.step().expect("runs");
        }
    }
    let Some(Event::Finished { usage, .. }) = bench.last(7) else {
        panic!("it is over")
    };
    assert_eq!(usage.cached_tokens, 32);
}
