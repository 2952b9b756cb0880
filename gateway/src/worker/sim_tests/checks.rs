//! What must hold after every turn of a worker: its books, its ring's and the engines' say the same.
//!
//! Nothing here changes anything. Invariant: each check names itself in its message, so that a table can say which one
//! found what.

use std::collections::BTreeSet;

use zerohop_ring::{Io, sim::Sim};

use super::{
    super::{
        Worker,
        conn::peek::{Seen, Stand},
    },
    engine::{Desk, Ledger},
    ensure,
    facts::Facts,
};

/// Most input that a connection may hold: what it takes before it pauses, and what was on its way then.
const INPUT_BOUND: usize = 160 * 1024;

/// How a worker stood before a turn.
pub(super) struct Before {
    /// Connections within the limit, over all workers.
    pub(super) welcome: usize,
    refused: u64,
    accepted: u64,
    pub(super) memory_refusals: u64,
}

impl Before {
    pub(super) fn of(worker: &Worker<Sim>, welcome: usize) -> Self {
        let metrics = worker.local.metrics();
        Self {
            welcome,
            refused: metrics.connections_refused.get(),
            accepted: metrics.connections_accepted.get(),
            memory_refusals: metrics.memory_refusals.get(),
        }
    }
}

/// Connections of a worker that are within the limit.
pub(super) fn welcome(worker: &Worker<Sim>) -> usize {
    seen(worker).iter().filter(|conn| conn.welcome).count()
}

/// The connections of a worker.
pub(super) fn seen(worker: &Worker<Sim>) -> Vec<Seen> {
    let conns = worker.conns.iter().flatten();
    conns.map(|conn| conn.seen(&worker.local)).collect()
}

/// Everything, for the worker that has just turned.
pub(super) fn after_turn(
    index: usize,
    worker: &mut Worker<Sim>,
    before: &Before,
    welcome_elsewhere: usize,
    facts: &Facts,
    ledger: &Ledger,
    desks: &[Desk],
) {
    let seen = seen(worker);
    books(index, worker, &seen);
    admission(index, worker, before, welcome_elsewhere, facts);
    for conn in &seen {
        connection(index, conn, worker);
    }
    timers(index, worker, &seen);
    jobs(index, &seen, ledger, desks);
}

/// Slots, buffers and gauges.
fn books(index: usize, worker: &Worker<Sim>, seen: &[Seen]) {
    let held = worker.io.held_buffers();
    ensure!(held == 0, "buffers", "worker {index} keeps {held} receive buffers");
    let lost = worker.io.lost_buffers();
    ensure!(
        lost == 0,
        "buffers",
        "the pool of worker {index} has lost {lost} receive buffers"
    );
    let (known, open) = (worker.io.known(), worker.open);
    ensure!(
        known == open,
        "slots",
        "worker {index} counts {open} connections, its ring {known}"
    );
    ensure!(
        seen.len() == open,
        "slots",
        "worker {index} counts {open} connections and has {}",
        seen.len()
    );
    let metrics = worker.local.metrics();
    let gauge = metrics.connections_open.get();
    ensure!(
        gauge == open as u64,
        "metrics",
        "worker {index} shows {gauge} connections of {open}"
    );
    let begun = |conn: &&Seen| matches!(conn.stand, Stand::Body | Stand::Answering);
    let (begun, gauge) = (seen.iter().filter(begun).count(), metrics.requests_in_flight.get());
    ensure!(
        gauge == begun as u64,
        "metrics",
        "worker {index} shows {gauge} requests in flight of {begun}"
    );
    let (held, counted) = (
        metrics.memory_held.get(),
        seen.iter().map(|conn| conn.counted as u64).sum::<u64>(),
    );
    ensure!(
        held == counted,
        "memory",
        "worker {index} counts {held} bytes where its connections hold {counted}"
    );
    ensure!(
        worker.touched.is_empty(),
        "settle",
        "worker {index} has not settled what it touched"
    );
}

/// Connections are refused when there are too many, and only then.
fn admission(index: usize, worker: &Worker<Sim>, before: &Before, elsewhere: usize, facts: &Facts) {
    let metrics = worker.local.metrics();
    let (refused, accepted) = (metrics.connections_refused.get(), metrics.connections_accepted.get());
    let after = welcome(worker) + elsewhere;
    let most = facts.max_connections;
    ensure!(
        after <= most,
        "admission",
        "{after} connections where {most} may be open"
    );
    let strangers = seen(worker).iter().filter(|conn| !conn.welcome).count();
    if refused > before.refused && strangers > 0 && !facts.has_few_slots() {
        let new = (accepted - before.accepted) as usize;
        let peak = before.welcome + new;
        ensure!(
            peak >= most,
            "admission",
            "worker {index} refused one where {peak} of {most} were open"
        );
    }
    if accepted == before.accepted && !facts.has_few_slots() {
        ensure!(
            refused == before.refused,
            "metrics",
            "worker {index} counts a refusal without a connection"
        );
    }
}

/// One connection and what its ring does for it.
fn connection(index: usize, conn: &Seen, worker: &mut Worker<Sim>) {
    let Some(hand) = worker.io.in_hand(conn.id) else {
        super::fail(
            "generation",
            format_args!("worker {index} has {conn:?}, which its ring does not know"),
        );
    };
    let which = format_args!("worker {index}, {conn:?}, {hand:?}");
    ensure!(!conn.unsettled, "settle", "an end that was not asked for: {which}");
    ensure!(conn.closing == hand.closing, "settle", "closing or not: {which}");
    ensure!(conn.input <= INPUT_BOUND, "bounds", "too much input: {which}");
    if conn.closing {
        return;
    }
    ensure!(conn.sending == hand.sending, "settle", "sending or not: {which}");
    ensure!(
        conn.sending || !conn.unsent,
        "settle",
        "output that does not leave: {which}"
    );
    // One that only flushes need not care.
    if conn.stand != Stand::Over {
        ensure!(conn.receiving == hand.receiving, "settle", "receiving or not: {which}");
    }
}

/// Every connection is looked at in time.
fn timers(index: usize, worker: &Worker<Sim>, seen: &[Seen]) {
    let now = worker.io.now();
    let open = seen.iter().filter(|conn| !conn.closing);
    for conn in open {
        let Some(at) = conn.deadline else {
            super::fail("deadline", format_args!("worker {index} waits for ever for {conn:?}"));
        };
        ensure!(at > now, "deadline", "worker {index} missed {at} at {now} of {conn:?}");
        let next = worker.timers.next();
        ensure!(
            next.is_some_and(|next| next <= at),
            "deadline",
            "worker {index} wakes at {next:?} for {conn:?}"
        );
    }
}

/// The jobs that an engine computes for a worker are those that connections wait for, and its mail is read.
fn jobs(index: usize, seen: &[Seen], ledger: &Ledger, desks: &[Desk]) {
    let waited: BTreeSet<u64> = seen
        .iter()
        .flat_map(|conn| conn.tickets.iter().map(|ticket| ticket.0))
        .collect();
    let open: BTreeSet<u64> = ledger.open(index).map(|(_, entry)| entry.ticket.0).collect();
    ensure!(
        waited == open,
        "jobs",
        "worker {index} waits for {waited:?} of {open:?}"
    );
    for desk in desks {
        ensure!(
            desk.is_read(index),
            "mail",
            "worker {index} leaves mail of {} unread",
            desk.model
        );
    }
}
