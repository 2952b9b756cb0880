use std::{
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use super::*;
use crate::job::{Finish, Ticket, Usage, mailbox};

/// One time for all mail, so that mails compare.
static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

fn text(ticket: u64, text: &str, tokens: u32) -> Mail {
    let text = text.to_owned();
    Mail {
        ticket: Ticket(ticket),
        event: Event::Text {
            text,
            tokens,
            logprobs: Vec::new(),
        },
        at: *NOW,
    }
}

fn finished(ticket: u64) -> Mail {
    Mail {
        ticket: Ticket(ticket),
        event: Event::Finished {
            finish: Finish::EndOfTurn,
            usage: Usage::default(),
        },
        at: *NOW,
    }
}

fn outbox(capacity: usize, jobs: usize) -> (Outbox, rtrb::Consumer<Mail>, Arc<AtomicUsize>, Arc<Admission>) {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wakes);
    let wake = move || {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let (mailbox, mail) = mailbox(capacity, Box::new(wake));
    let admission = Arc::new(Admission::new(jobs, 1));
    for _ in 0..jobs {
        admission.enter().expect("room");
    }
    (
        Outbox::new(vec![mailbox], Arc::clone(&admission)),
        mail,
        wakes,
        admission,
    )
}

#[test]
fn a_full_mailbox_joins_deltas_and_keeps_the_order() {
    let (mut outbox, mut mail, wakes, admission) = outbox(2, 2);
    let mut waiting = [None, None];
    let mut say = |outbox: &mut Outbox, job: usize, what: &str| {
        waiting[job] = outbox.send(0, text(job as u64, what, 1), waiting[job]);
    };
    for what in ["a", "b", "c", "d"] {
        say(&mut outbox, 0, what);
        say(&mut outbox, 1, &what.to_uppercase());
        outbox.flush();
    }
    outbox.send(0, finished(1), None);
    outbox.flush();
    assert_eq!(wakes.load(Ordering::Relaxed), 1, "one wake for all of it");
    assert_eq!((mail.pop(), mail.pop()), (Ok(text(0, "a", 1)), Ok(text(1, "A", 1))));
    assert!(!outbox.is_empty());
    assert_eq!(admission.open(), 2);
    outbox.flush();
    assert_eq!((mail.pop(), mail.pop()), (Ok(text(0, "bcd", 3)), Ok(text(1, "BCD", 3))));
    // What comes later must not join what has left.
    say(&mut outbox, 0, "e");
    outbox.flush();
    assert_eq!((mail.pop(), mail.pop()), (Ok(finished(1)), Ok(text(0, "e", 1))));
    assert!(outbox.is_empty());
    assert_eq!(admission.open(), 1, "a job is open until its last event is delivered");
    outbox.flush();
    assert_eq!(wakes.load(Ordering::Relaxed), 3, "no wake without mail");
}

#[test]
fn a_worker_that_is_gone_holds_nothing() {
    let (mut outbox, mail, _, admission) = outbox(1, 3);
    for job in 0..3 {
        outbox.send(0, finished(job), None);
    }
    outbox.flush();
    assert_eq!(admission.open(), 2, "one was delivered");
    drop(mail);
    outbox.flush();
    assert!(outbox.is_empty());
    assert_eq!(admission.open(), 0);
}
