//! What the real model cannot do on demand: a scripted one that fails, panics and knows its places.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use super::*;
use crate::{
    job::{Echo, Event, Finish, Generate, JobHandle, Mail, Prompt, Sampling, Ticket, mailbox},
    model::tests::letters,
    sequence::Address,
};

const WIDTH: usize = 32;
const END: u32 = 0;

/// A model whose next token is the sum of all tokens in its place, so that one wrong copy, length or place shows.
struct Script {
    extent: Extent,
    places: Vec<Vec<u32>>,
    logits: Vec<f32>,
    faults: Arc<Mutex<HashMap<usize, Fault>>>,
    runs: usize,
    cut: Cut,
    block: usize,
    blocks: Vec<Vec<u32>>,
    /// Tokens for which each place has memory, and the most over all places and blocks that there may be.
    committed: Vec<usize>,
    capacity: usize,
}

/// What a run does instead of its work.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Error,
    Panic,
    Nan,
}

impl Script {
    fn next(place: &[u32]) -> u32 {
        1 + place.iter().sum::<u32>() % (WIDTH as u32 - 1)
    }

    fn begin(&mut self) -> Result<bool, SysError> {
        self.runs += 1;
        let fault = self.faults.lock().expect("no panic while locked").remove(&self.runs);
        match fault {
            Some(Fault::Error) => Err(SysError("scripted".into())),
            Some(Fault::Panic) => panic!("scripted"),
            other => Ok(other == Some(Fault::Nan)),
        }
    }

    /// A place takes memory up to its length.
    fn commit(&mut self, slot: usize) {
        self.committed[slot] = self.committed[slot].max(self.places[slot].len());
        let kept = self.blocks.iter().map(Vec::len).sum::<usize>();
        let all = self.committed.iter().sum::<usize>() + kept;
        assert!(all <= self.capacity, "{all} tokens in memory for {}", self.capacity);
    }

    fn row(&mut self, row: usize, slot: usize, broken: bool) {
        let next = Self::next(&self.places[slot]) as usize;
        let logits = &mut self.logits[row * WIDTH..][..WIDTH];
        logits.fill(if broken { f32::NAN } else { 0.0 });
        if !broken {
            logits[next] = 1.0;
        }
    }
}

impl Steps for Script {
    fn extent(&self) -> Extent {
        self.extent
    }
    fn width(&self) -> usize {
        WIDTH
    }
    fn decode(&mut self, tokens: &[u32], lengths: &[u32]) -> Result<(), SysError> {
        let broken = self.begin()?;
        for (slot, (&token, &length)) in tokens.iter().zip(lengths).enumerate() {
            self.places[slot].truncate(length as usize);
            assert_eq!(
                self.places[slot].len(),
                length as usize,
                "the place holds what the row says"
            );
            self.places[slot].push(token);
            self.commit(slot);
            // Only the first row of a broken run is broken.
            self.row(slot, slot, broken && slot == 0);
        }
        Ok(())
    }
    fn prefill(&mut self, slot: usize, start: usize, tokens: &[u32], rows: Rows) -> Result<(), SysError> {
        let broken = self.begin()?;
        assert!(tokens.len() <= self.extent.chunk);
        match self.cut {
            Cut::AtChunks => assert!(start.is_multiple_of(self.extent.chunk), "cut at the chunk"),
            Cut::Free => assert!(tokens.len() > 1 || start == 0, "no token alone"),
        }
        self.places[slot].truncate(start);
        assert_eq!(self.places[slot].len(), start);
        for (row, token) in tokens.iter().enumerate() {
            self.places[slot].push(*token);
            if rows == Rows::All {
                self.row(row, slot, broken);
            }
        }
        self.commit(slot);
        if rows == Rows::Last {
            self.row(0, slot, broken);
        }
        Ok(())
    }
    fn logits(&mut self, row: usize) -> Result<&[f32], SysError> {
        Ok(&self.logits[row * WIDTH..][..WIDTH])
    }
    fn copy(&mut self, from: usize, to: usize, tokens: usize) {
        self.places[to] = self.places[from][..tokens].to_vec();
        // What moves is there twice for a moment.
        self.committed[to] = self.committed[to].max(tokens);
    }
    fn page(&self) -> usize {
        1
    }
    fn release(&mut self, slot: usize, from: usize) {
        self.places[slot].truncate(from);
        self.committed[slot] = self.committed[slot].min(from);
    }
    fn block(&self) -> usize {
        self.block
    }
    fn blocks(&self) -> usize {
        self.blocks.len()
    }
    fn store(&mut self, slot: usize, start: usize, block: usize) {
        self.blocks[block] = self.places[slot][start..][..self.block].to_vec();
        self.commit(slot);
    }
    fn load(&mut self, block: usize, slot: usize, start: usize) {
        self.places[slot].truncate(start);
        assert_eq!(self.places[slot].len(), start);
        self.places[slot].extend(&self.blocks[block]);
        self.commit(slot);
    }
    fn release_block(&mut self, block: usize) {
        self.blocks[block].clear();
    }
}

struct Bench {
    batch: Batch<Script>,
    mail: rtrb::Consumer<Mail>,
    faults: Arc<Mutex<HashMap<usize, Fault>>>,
    shared: Shared,
    events: HashMap<u64, Vec<Event>>,
    /// Of the next jobs.
    deadline: Option<Instant>,
}

/// What a bench has, where it matters.
struct Settings {
    slots: usize,
    chunk: usize,
    cut: Cut,
    block: usize,
    /// Tokens of memory.
    capacity: usize,
}

impl Bench {
    /// One that cuts at chunks, with memory for everything.
    fn new(slots: usize, chunk: usize) -> Self {
        Self::with(&Settings {
            slots,
            chunk,
            cut: Cut::AtChunks,
            block: chunk,
            capacity: 200 * (slots + 1),
        })
    }

    fn with(settings: &Settings) -> Self {
        let Settings {
            slots,
            chunk,
            cut,
            block,
            capacity,
        } = *settings;
        let extent = Extent {
            slots,
            context: 200,
            chunk,
        };
        let faults = Arc::new(Mutex::new(HashMap::new()));
        let script = Script {
            extent,
            places: vec![Vec::new(); slots],
            logits: vec![0.0; slots.max(ALL_ROWS) * WIDTH],
            faults: Arc::clone(&faults),
            runs: 0,
            cut,
            block,
            blocks: vec![Vec::new(); capacity / block],
            committed: vec![0; slots],
            capacity,
        };
        let (mailbox, mail) = mailbox(10_000, Box::new(|| {}));
        let admission = Arc::new(Admission::new(slots, 1000));
        let counters = Arc::new(Counters::default());
        let shared = || Shared {
            admission: Arc::clone(&admission),
            counters: Arc::clone(&counters),
        };
        let outbox = Outbox::new(vec![mailbox], Arc::clone(&admission));
        let rules = Rules {
            ends: vec![END],
            context: extent.context,
            text: Arc::new(letters(WIDTH)),
            cut,
        };
        Self {
            batch: Batch::new(script, capacity, rules, WIDTH, outbox, shared()),
            mail,
            faults,
            shared: shared(),
            events: HashMap::new(),
            deadline: None,
        }
    }

    fn push(&mut self, ticket: u64, prompt: &[u32], max_tokens: u32) -> JobHandle {
        self.push_told(ticket, prompt, max_tokens, Echo::None)
    }

    /// The same, perhaps with the log probabilities of the prompt.
    fn push_told(&mut self, ticket: u64, prompt: &[u32], max_tokens: u32, echo: Echo) -> JobHandle {
        self.shared.admission.enter().expect("room");
        let (handle, cancelled) = JobHandle::new();
        let address = Address {
            ticket: Ticket(ticket),
            mailbox: 0,
            cancelled,
            accepted: Instant::now(),
            deadline: self.deadline,
        };
        let greedy = Sampling {
            temperature: 0.0,
            ..Sampling::default()
        };
        let stream = letters(WIDTH).stream(false);
        let request = Generate {
            sampling: greedy,
            max_tokens: Some(max_tokens),
            echo,
            logprobs: (echo == Echo::Prompt).then_some(0),
            ..Generate::new(Prompt::Tokens(prompt.to_vec()))
        };
        let mut sequence = Sequence::new(address, prompt.to_vec(), request, stream, None);
        sequence.echo = (echo == Echo::Prompt).then(String::new);
        self.batch.push(sequence);
        handle
    }

    fn step(&mut self) -> Result<(), SysError> {
        let result = self.batch.step();
        self.read();
        result
    }

    fn read(&mut self) {
        while let Ok(mail) = self.mail.pop() {
            self.events.entry(mail.ticket.0).or_default().push(mail.event);
        }
    }

    fn text(&self, ticket: u64) -> String {
        let events = self.events.get(&ticket).map_or(&[][..], Vec::as_slice);
        events
            .iter()
            .filter_map(|event| match event {
                Event::Text { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn last(&self, ticket: u64) -> Option<&Event> {
        self.events.get(&ticket)?.last()
    }
}

/// What the scripted model says to a prompt.
fn expected(prompt: &[u32], max_tokens: u32) -> String {
    let mut place = prompt.to_vec();
    for _ in 0..max_tokens {
        place.push(Script::next(&place));
    }
    let table = letters(WIDTH);
    let ids = &place[prompt.len()..];
    ids.iter()
        .map(|&id| String::from_utf8_lossy(table.get(id)).into_owned())
        .collect()
}

fn job(index: u64) -> (Vec<u32>, u32) {
    let length = [1, 9, 30, 4, 17, 8][index as usize % 6] + index as usize % 3;
    let prompt = (0..length as u64)
        .map(|i| ((i * 7 + index * 13) % WIDTH as u64) as u32)
        .collect();
    (prompt, [3, 20, 1, 11, 40][index as usize % 5])
}

/// Sixty jobs of all sizes, of which some are given up, in a batch of this kind.
fn joins_and_leaves(settings: &Settings) -> crate::Stats {
    let slots = settings.slots;
    let mut bench = Bench::with(settings);
    let mut handles = HashMap::new();
    for index in 0..60 {
        let (prompt, max_tokens) = job(index);
        handles.insert(index, bench.push(index, &prompt, max_tokens));
    }
    let mut step = 0u64;
    while !bench.batch.is_idle() {
        bench.step().expect("no fault is scripted");
        step += 1;
        if step.is_multiple_of(3) {
            handles.remove(&(step * 5 % 60));
        }
        assert!(step < 10_000);
    }
    for &index in handles.keys() {
        let (prompt, max_tokens) = job(index);
        let text = bench.text(index);
        assert_eq!(text, expected(&prompt, max_tokens), "job {index}, {slots} places");
        let (finish, started) = (Finish::MaxTokens, |event: &&Event| {
            matches!(event, Event::Started { .. })
        });
        assert!(matches!(bench.last(index), Some(Event::Finished { finish: end, .. }) if *end == finish));
        assert_eq!(bench.events[&index].iter().filter(started).count(), 1, "job {index}");
    }
    let stats = bench.shared.counters.snapshot(&bench.shared.admission);
    assert_eq!(stats.open, 0, "{stats:?}");
    assert_eq!(stats.finished + stats.cancelled, 60, "{stats:?}");
    assert!(stats.cancelled > 0 && stats.finished >= handles.len() as u64);
    assert_eq!((stats.running, stats.kv_tokens, stats.waiting), (0, 0, 0));
    assert_eq!(stats.peak_batch, slots.min(stats.peak_batch as usize) as u64);
    assert!(stats.kv_committed <= stats.kv_capacity, "{stats:?}");
    stats
}

#[test]
fn joins_leaves_and_cancels_never_mix_places() {
    for (slots, chunk) in [(1, 4), (3, 8), (5, 16), (16, 128)] {
        for cut in [Cut::AtChunks, Cut::Free] {
            let stats = joins_and_leaves(&Settings {
                slots,
                chunk,
                cut,
                block: if cut == Cut::Free { chunk.min(16) } else { chunk },
                capacity: 200 * (slots + 1),
            });
            assert!(slots > 5 || stats.peak_batch == slots as u64, "{stats:?}");
            assert_eq!(stats.preempted, 0, "there is memory for all");
        }
    }
}

/// With memory for hardly more than one sequence, those who came last are computed again, and nobody can tell.
#[test]
fn short_memory_costs_time_and_nothing_else() {
    let mut preempted = 0;
    for (slots, capacity) in [(3, 200), (8, 200), (16, 260)] {
        for cut in [Cut::AtChunks, Cut::Free] {
            let stats = joins_and_leaves(&Settings {
                slots,
                chunk: 8,
                cut,
                block: 8,
                capacity,
            });
            preempted += stats.preempted;
        }
    }
    assert!(preempted > 10, "{preempted}");
}

/// Only what the cache does not have is computed, and the answers are those of a cold start.
#[test]
fn a_prompt_that_was_there_is_not_computed_again() {
    for cut in [Cut::AtChunks, Cut::Free] {
        let mut bench = Bench::with(&Settings {
            slots: 2,
            chunk: 8,
            cut,
            block: 8,
            capacity: 1000,
        });
        let long: Vec<u32> = (0..40).map(|token| token % 30).collect();
        let with = |count: usize, more: &[u32]| [&long[..count], more].concat();
        // The prompt, and how many tokens of it are there already.
        let table = [
            (with(30, &[]), 0),
            (with(30, &[]), 24),
            (with(24, &[9, 9, 9]), 24),
            (with(16, &[5; 20]), 16),
            (with(7, &[5; 3]), 0),
            // A beginning that is there as a whole: two tokens are left to compute.
            (with(24, &[]), 16),
            (with(24, &[1]), 16),
            (with(26, &[]), 24),
            (with(30, &[1]), 24),
            (with(40, &[]), 24),
            (with(40, &[]), 32),
        ];
        for (ticket, (prompt, cached)) in (0u64..).zip(table) {
            let before = bench.shared.counters.snapshot(&bench.shared.admission);
            let _handle = bench.push(ticket, &prompt, 5);
            while !bench.batch.is_idle() {
                bench.step().expect("runs");
            }
            let after = bench.shared.counters.snapshot(&bench.shared.admission);
            let computed = after.prefill_tokens - before.prefill_tokens;
            assert_eq!(computed as usize, prompt.len() - cached, "job {ticket}");
            assert_eq!(
                after.cached_tokens - before.cached_tokens,
                cached as u64,
                "job {ticket}"
            );
            assert_eq!(bench.text(ticket), expected(&prompt, 5), "job {ticket}");
            let Some(Event::Finished { usage, .. }) = bench.last(ticket) else {
                panic!("job {ticket} is over")
            };
            assert_eq!(
                (usage.cached_tokens as usize, usage.input_tokens as usize),
                (cached, prompt.len())
            );
        }
    }
}

#[test]
fn what_is_late_is_told_so() {
    let mut bench = Bench::new(1, 8);
    let _running = bench.push(0, &[1, 2, 3], 50);
    bench.step().expect("runs");
    bench.deadline = Some(Instant::now());
    let _waiting = bench.push(1, &[1, 2, 3], 50);
    bench.deadline = Some(Instant::now() + Duration::from_secs(3600));
    let _early = bench.push(2, &[3, 2, 1], 5);
    bench.step().expect("runs");
    assert_eq!(bench.last(1), Some(&Event::TimedOut), "late before it began");
    bench.batch.rows[0].address.deadline = Some(Instant::now());
    bench.step().expect("runs");
    assert_eq!(bench.last(0), Some(&Event::TimedOut), "late in the middle");
    while !bench.batch.is_idle() {
        bench.step().expect("runs");
    }
    assert_eq!(bench.text(2), expected(&[3, 2, 1], 5));
    let stats = bench.shared.counters.snapshot(&bench.shared.admission);
    assert_eq!((stats.timed_out, stats.open, stats.waiting), (2, 0, 0));
}

#[test]
fn no_token_is_computed_alone() {
    for (rest, most, want) in [
        (1, 8, Some(1)),
        (5, 8, Some(5)),
        (9, 8, Some(7)),
        (10, 8, Some(8)),
        (3, 2, None),
        (4, 2, Some(2)),
        (9, 1, None),
        (1, 0, None),
    ] {
        assert_eq!(piece(rest, most), want, "{rest} with room for {most}");
    }
}

#[test]
fn a_step_computes_at_most_one_chunk_of_prompts() {
    let mut bench = Bench::new(4, 8);
    let _running = bench.push(0, &[1, 2], 100);
    bench.step().expect("runs");
    let _long = bench.push(1, &[3; 30], 5);
    let _short = bench.push(2, &[4; 3], 5);
    for step in 1..=8 {
        let before = bench.text(0).len();
        bench.step().expect("runs");
        assert_eq!(
            bench.text(0).len(),
            before + 1,
            "the running stream goes on in step {step}"
        );
        // 30 tokens take 8, 8, 8 and 6; with 2 left of that step's 8, the next prompt of 3 waits for the one after.
        assert_eq!(bench.events.contains_key(&1), step >= 4, "step {step}");
        assert_eq!(bench.events.contains_key(&2), step >= 5, "step {step}");
    }
}

#[test]
fn faults_fail_whom_they_touch_and_nobody_else() {
    // Runs: 1 and 2 are the prompts of jobs 0 and 1 (one step), 3 the first decode of both.
    let mut bench = Bench::new(2, 64);
    let _handles: Vec<JobHandle> = (0..3).map(|ticket| bench.push(ticket, &[5, 6], 4)).collect();
    bench.step().expect("prompts");
    bench.faults.lock().expect("lock").insert(3, Fault::Error);
    assert_eq!(bench.step(), Err(SysError("scripted".into())));
    for ticket in [0, 1] {
        let want = Event::Failed {
            reason: "a decode step failed: scripted".into(),
        };
        assert_eq!(bench.last(ticket), Some(&want));
    }
    bench.batch.self_test().expect("works again");
    while !bench.batch.is_idle() {
        bench.step().expect("works again");
    }
    assert_eq!(bench.text(2), expected(&[5, 6], 4), "the one that waited is served");

    // A prompt that fails takes no running stream with it.
    let _running = bench.push(3, &[7], 6);
    bench.step().expect("a prompt");
    let _bad = bench.push(4, &[8, 9], 6);
    let runs = bench.batch.steps.runs;
    bench.faults.lock().expect("lock").insert(runs + 2, Fault::Error);
    bench.step().expect_err("the prompt's run fails");
    assert!(matches!(bench.last(4), Some(Event::Failed { .. })));
    bench.batch.self_test().expect("works again");

    // A row that is not numbers fails alone, and its place is closed.
    let _beside = bench.push(5, &[1, 1, 1], 5);
    bench.step().expect("a prompt");
    let runs = bench.batch.steps.runs;
    bench.faults.lock().expect("lock").insert(runs + 1, Fault::Nan);
    while !bench.batch.is_idle() {
        bench.step().expect("no error");
    }
    assert_eq!(
        bench.last(3),
        Some(&Event::Failed {
            reason: "the model's logits are not numbers".into()
        })
    );
    assert_eq!(bench.text(5), expected(&[1, 1, 1], 5));
    assert_eq!(bench.shared.admission.open(), 0);
}

#[test]
fn a_panic_leaves_a_batch_that_can_be_failed() {
    // In the first prompt's run, the second's, and in the first decode of both.
    for (run, failed) in [(1, vec![0]), (2, vec![0, 1]), (3, vec![0, 1])] {
        let mut bench = Bench::new(2, 64);
        let _handles: Vec<JobHandle> = (0..4).map(|ticket| bench.push(ticket, &[5, 6], 4)).collect();
        bench.faults.lock().expect("lock").insert(run, Fault::Panic);
        while !bench.batch.is_idle() {
            let step = std::panic::AssertUnwindSafe(|| bench.batch.step());
            if std::panic::catch_unwind(step).is_err() {
                bench.batch.fail_running("panicked");
                bench.batch.self_test().expect("works again");
            }
        }
        bench.read();
        for ticket in 0..4 {
            let want = Event::Failed {
                reason: "panicked".into(),
            };
            if failed.contains(&ticket) {
                assert_eq!(bench.last(ticket), Some(&want), "job {ticket}, panic in run {run}");
            } else {
                assert_eq!(
                    bench.text(ticket),
                    expected(&[5, 6], 4),
                    "job {ticket}, panic in run {run}"
                );
            }
        }
        assert_eq!(bench.shared.admission.open(), 0);
    }
}

/// The engine's thread around it: a fault that lasts stops the engine, and everyone is told.
#[test]
fn a_lasting_fault_stops_the_engine() {
    for fault in [Fault::Error, Fault::Panic] {
        let mut bench = Bench::new(2, 64);
        let handles: Vec<JobHandle> = (0..5).map(|ticket| bench.push(ticket, &[5, 6], 4)).collect();
        bench
            .faults
            .lock()
            .expect("lock")
            .extend((3..50).map(|run| (run, fault)));
        let Bench {
            batch,
            mut mail,
            shared,
            ..
        } = bench;
        let (sender, messages) = crossbeam_channel::bounded(1);
        let admission = Arc::clone(&shared.admission);
        let gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::driver::run(batch, messages, admission);
                gone.store(true, Ordering::Release);
            });
            let mut reasons = Vec::new();
            let end = Instant::now() + Duration::from_secs(60);
            while reasons.len() < handles.len() {
                assert!(Instant::now() < end, "{} of {} told", reasons.len(), handles.len());
                while let Ok(mail) = mail.pop() {
                    if let Event::Failed { reason } = mail.event {
                        reasons.push(reason);
                    }
                }
                std::thread::yield_now();
            }
            // Whom a run failed hears of that run; at least one waited behind them.
            assert!(
                reasons
                    .iter()
                    .any(|reason| reason == "the engine has stopped after a fault"),
                "{reasons:?}"
            );
            assert!(!shared.admission.is_running());
            assert!(!gone.load(Ordering::Acquire), "it stays to answer those who come late");
            drop(sender);
        });
        assert_eq!(shared.admission.open(), 0);
    }
}

#[path = "batch_memory_tests.rs"]
mod memory;
