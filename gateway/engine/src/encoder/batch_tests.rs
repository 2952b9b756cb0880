//! The batch with a made-up model: turns, company, cuts, and every way in which a job ends.

use std::{
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Instant,
};

use super::*;
use crate::{
    admission::Admission,
    job::{JobHandle, Ticket, mailbox},
    stats::Counters,
};

/// A vector says which input it is of; 9 has none, 8 fails the run.
struct Fake {
    runs: Vec<Vec<Vec<u32>>>,
    shares: bool,
}

impl Vectors for Fake {
    fn run(&mut self, inputs: &[&[u32]]) -> Result<Vec<Option<Vec<f32>>>, String> {
        self.runs.push(inputs.iter().map(|ids| ids.to_vec()).collect());
        if inputs.iter().any(|ids| ids[0] == 8) {
            return Err("broken".into());
        }
        let vector = |ids: &&[u32]| (ids[0] != 9).then(|| vec![ids[0] as f32, ids.len() as f32, 1.0]);
        Ok(inputs.iter().map(vector).collect())
    }

    fn shares(&self, length: usize) -> bool {
        self.shares && length > 1
    }
}

struct World {
    batch: Batch<Fake>,
    mail: rtrb::Consumer<Mail>,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    handles: Vec<JobHandle>,
}

impl World {
    fn new(places: usize, shares: bool) -> Self {
        let admission = Arc::new(Admission::new(places, 8));
        let counters = Arc::new(Counters::default());
        let (mailbox, mail) = mailbox(64, Box::new(|| {}));
        let shared = Shared {
            admission: Arc::clone(&admission),
            counters: Arc::clone(&counters),
        };
        let outbox = Outbox::new(vec![mailbox], Arc::clone(&admission));
        let fake = Fake {
            runs: Vec::new(),
            shares,
        };
        Self {
            batch: Batch::new(fake, places, outbox, shared),
            mail,
            admission,
            counters,
            handles: Vec::new(),
        }
    }

    /// Hands in a job whose ticket is the number of jobs before.
    fn push(&mut self, inputs: &[&[u32]], dimensions: Option<usize>, deadline: Option<Instant>) -> Arc<AtomicBool> {
        let (handle, cancelled) = JobHandle::new();
        self.admission.enter().expect("room");
        let address = Address {
            ticket: Ticket(self.handles.len() as u64),
            mailbox: 0,
            cancelled: Arc::clone(&cancelled),
            accepted: Instant::now(),
            deadline,
        };
        self.handles.push(handle);
        let inputs = inputs.iter().map(|ids| ids.to_vec()).collect();
        self.batch.push(Encoding::new(address, inputs, dimensions));
        cancelled
    }

    /// Runs until nothing is left; what came, by ticket.
    fn finish(&mut self) -> Vec<(u64, Event)> {
        while !self.batch.is_idle() {
            let _ = self.batch.step();
        }
        let mut events = Vec::new();
        while let Ok(mail) = self.mail.pop() {
            events.push((mail.ticket.0, mail.event));
        }
        events
    }
}

#[test]
fn jobs_take_turns_and_share_runs_of_one_length() {
    let mut world = World::new(4, true);
    world.push(&[&[1, 1], &[2, 2, 2], &[3, 3]], None, None);
    world.push(&[&[4, 4, 4], &[5], &[6, 6]], None, None);
    let events = world.finish();
    let runs = &world.batch.vectors.runs;
    let want: [&[&[u32]]; 3] = [&[&[1, 1], &[3, 3], &[6, 6]], &[&[4, 4, 4], &[2, 2, 2]], &[&[5]]];
    assert_eq!(runs.len(), want.len());
    for (run, want) in runs.iter().zip(want) {
        assert_eq!(run, want);
    }
    let [
        (
            0,
            Event::Embedded {
                vectors: first,
                input_tokens: 7,
            },
        ),
        (1, Event::Embedded { vectors: second, .. }),
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    let ids = |vectors: &[Vec<f32>]| vectors.iter().map(|vector| vector[0] as u32).collect::<Vec<_>>();
    assert_eq!((ids(first), ids(second)), (vec![1, 2, 3], vec![4, 5, 6]), "in order");
    let stats = world.counters.snapshot(&world.admission);
    assert_eq!((stats.embedded, stats.finished, stats.steps, stats.open), (6, 2, 3, 0));
}

#[test]
fn what_does_not_share_runs_alone_and_a_run_is_bounded() {
    let mut world = World::new(4, false);
    world.push(&[&[1, 1], &[2, 2]], None, None);
    world.finish();
    assert_eq!(world.batch.vectors.runs.len(), 2);
    let mut world = World::new(4, true);
    let long = vec![7; RUN_TOKENS / 2];
    world.push(&[&long, &long, &long], None, None);
    let huge = vec![7; RUN_TOKENS * 2];
    world.push(&[&huge], None, None);
    world.finish();
    let sizes: Vec<usize> = world.batch.vectors.runs.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1, 1]);
}

/// A job with many inputs once would have kept everybody else waiting.
#[test]
fn a_short_job_waits_for_one_run_of_each_other() {
    let mut world = World::new(4, false);
    let many: Vec<&[u32]> = vec![&[1, 1]; 100];
    world.push(&many, None, None);
    world.push(&[&[2, 2, 2]], None, None);
    let events = world.finish();
    assert_eq!(events[0].0, 1);
    assert_eq!(world.batch.vectors.runs[1], [[2, 2, 2]]);
}

#[test]
fn vectors_are_cut_and_brought_to_length_one() {
    let mut world = World::new(1, true);
    world.push(&[&[3, 3, 3, 3]], Some(2), None);
    let events = world.finish();
    let [(0, Event::Embedded { vectors, .. })] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(vectors[..], [[0.6, 0.8]]);
}

#[test]
fn each_end_has_its_answer_and_frees_its_place() {
    let mut world = World::new(2, true);
    world.push(&[&[9, 1], &[9, 2], &[1, 1]], None, None);
    world.push(&[&[1, 1]], None, None);
    let given_up = world.push(&[&[2, 2]], None, None);
    world.push(&[&[2, 2]], None, Some(Instant::now()));
    world.push(&[&[8, 8, 8]], None, None);
    world.push(&[&[3, 3]], None, None);
    given_up.store(true, Ordering::Release);
    let events = world.finish();
    let of = |ticket: u64| {
        events
            .iter()
            .filter(move |event| event.0 == ticket)
            .map(|event| &event.1)
            .collect::<Vec<_>>()
    };
    assert!(
        matches!(&of(0)[..], [Event::Refused { part: Part::Prompt, reason }] if reason.contains("input 0")),
        "{events:?}"
    );
    assert!(matches!(&of(1)[..], [Event::Embedded { .. }]), "{events:?}");
    assert!(of(2).is_empty());
    assert!(matches!(&of(3)[..], [Event::TimedOut]), "{events:?}");
    assert!(
        matches!(&of(4)[..], [Event::Failed { reason }] if reason == "broken"),
        "{events:?}"
    );
    assert!(matches!(&of(5)[..], [Event::Embedded { .. }]), "{events:?}");
    let stats = world.counters.snapshot(&world.admission);
    let counts = (
        stats.refused,
        stats.finished,
        stats.cancelled,
        stats.timed_out,
        stats.failed,
    );
    assert_eq!((counts, stats.open, stats.waiting), ((1, 2, 1, 1, 1), 0, 0));
}

#[test]
fn a_stopped_encoder_answers_everybody() {
    let mut world = World::new(1, true);
    world.push(&[&[1, 1], &[2, 2, 2]], None, None);
    world.push(&[&[1, 1]], None, None);
    let _ = world.batch.step();
    world.batch.fail_all("closed");
    world.batch.outbox().flush();
    let events = world.finish();
    let failed = |ticket| {
        (
            ticket,
            Event::Failed {
                reason: "closed".into(),
            },
        )
    };
    assert_eq!(events, [failed(0), failed(1)]);
    let stats = world.counters.snapshot(&world.admission);
    assert_eq!((stats.open, stats.waiting), (0, 0));
}
