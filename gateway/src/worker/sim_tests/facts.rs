//! What the simulation knows of the gateway's surroundings, and what is right by that: editions of the configuration,
//! phases, limits, which wires the network has reset.
//!
//! It looks at no reply. Invariant: a request is judged by every edition and phase that was in force while it was under
//! way, and by no other.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashSet},
};

use zerohop_ring::{Nanos, sim::WireId};

use super::{
    super::Phase,
    ensure,
    plan::{Edition, Incident, Plan},
    requests::{Ask, Request},
};
use crate::clock::nanos;

pub(super) struct Facts {
    /// Since when each edition has been in force.
    pub(super) editions: Vec<(Nanos, Edition)>,
    phases: Vec<(Nanos, Phase)>,
    pub(super) read_timeout: Nanos,
    pub(super) keepalive_timeout: Nanos,
    pub(super) max_age: Nanos,
    pub(super) max_connections: usize,
    few_slots: bool,
    /// What is sent within this time before an end is noticed may have crossed it.
    pub(super) crossing: Nanos,
    /// Requests may find the gateway short of memory.
    pub(super) memory_is_short: bool,
    /// What is sent may be under way for a second and more.
    pub(super) network_is_slow: bool,
    ending: Option<Nanos>,
    stopped: Option<Nanos>,
    accepted: BTreeSet<WireId>,
    broken: BTreeSet<WireId>,
    ids: RefCell<HashSet<String>>,
}

impl Facts {
    pub(super) fn new(plan: &Plan, first: Edition, few_slots: bool) -> Self {
        let connections = &plan.config.server.connections;
        Self {
            editions: vec![(0, first)],
            phases: vec![(0, Phase::Loading)],
            read_timeout: nanos(connections.read_timeout),
            keepalive_timeout: nanos(connections.keepalive_timeout),
            max_age: nanos(connections.max_age),
            max_connections: connections.max,
            few_slots,
            crossing: crossing(plan),
            memory_is_short: plan.config.server.memory.bytes < 1 << 20,
            network_is_slow: plan.faults.stalls > 0 && *plan.faults.delay.end() >= 20_000_000,
            ending: None,
            stopped: None,
            accepted: BTreeSet::new(),
            broken: BTreeSet::new(),
            ids: RefCell::default(),
        }
    }

    pub(super) fn phase(&mut self, now: Nanos, phase: Phase) {
        self.phases.push((now, phase));
    }

    /// The gateway was told to end.
    pub(super) fn end(&mut self, now: Nanos, stopped: bool) {
        self.ending.get_or_insert(now);
        if stopped {
            self.stopped.get_or_insert(now);
        }
    }

    pub(super) fn accepted(&mut self, wire: WireId) {
        self.accepted.insert(wire);
    }

    pub(super) fn broke(&mut self, wire: WireId) {
        self.broken.insert(wire);
    }

    pub(super) fn ending_since(&self) -> Option<Nanos> {
        self.ending
    }

    pub(super) fn stopped_since(&self) -> Option<Nanos> {
        self.stopped
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(super) fn has_few_slots(&self) -> bool {
        self.few_slots
    }

    /// No worker has taken this connection, since nobody listens any more or no slot was left.
    pub(super) fn was_refused(&self, wire: WireId) -> bool {
        !self.accepted.contains(&wire) && (self.ending.is_some() || self.few_slots)
    }

    pub(super) fn was_reset(&self, wire: WireId) -> bool {
        self.broken.contains(&wire)
    }

    /// Connections are few enough that one may be refused.
    pub(super) fn may_overflow(&self) -> bool {
        self.few_slots || self.max_connections < 100
    }

    /// No id is given twice.
    pub(super) fn new_id(&self, id: &str) {
        let new = self.ids.borrow_mut().insert(id.to_owned());
        ensure!(new, "framing", "the id {id} was given twice");
    }

    /// The editions in force at some time from `began` to `now`.
    fn editions(&self, began: Nanos, now: Nanos) -> impl Iterator<Item = &Edition> {
        in_force(&self.editions, began, now)
    }

    /// The engines whose answer to this request is right, or statuses.
    pub(super) fn models_of(&self, request: &Request, began: Nanos, now: Nanos) -> Vec<Result<&'static str, u16>> {
        self.editions(began, now)
            .map(|edition| edition.verdict(request))
            .collect()
    }

    /// The lists of models that are right.
    pub(super) fn lists(&self, request: &Request, began: Nanos, now: Nanos) -> Vec<Vec<&'static str>> {
        self.editions(began, now)
            .filter_map(|edition| edition.visible(request.key).ok())
            .collect()
    }

    /// The statuses that are right for a request that no engine was handed.
    pub(super) fn statuses(&self, request: &Request, began: Nanos, now: Nanos) -> Vec<u16> {
        let phases: Vec<_> = in_force(&self.phases, began, now).copied().collect();
        let loading = phases.contains(&Phase::Loading);
        let unguarded = match request.ask {
            Ask::Health { .. } => Some(200),
            Ask::Nothing => Some(404),
            Ask::Method => Some(405),
            Ask::Broken => Some(400),
            _ => None,
        };
        if let Some(status) = unguarded {
            return vec![status];
        }
        if request.ask == Ask::Ready {
            let status = |phase: &Phase| if *phase == Phase::Ready { 200 } else { 503 };
            return phases.iter().map(status).collect();
        }
        let of = |edition: &Edition| match request.ask {
            Ask::Models => edition.visible(request.key).err().or(Some(200)),
            Ask::TooLarge => edition.visible(request.key).err().or(Some(413)),
            Ask::Model => edition.verdict(request).err().or(Some(200)),
            _ => edition.verdict(request).err(),
        };
        let mut right: Vec<_> = self.editions(began, now).filter_map(of).collect();
        right.extend(loading.then_some(503));
        right
    }
}

/// Both ways of the slowest bytes, those of a cancellation, whatever turns the worker misses meanwhile, and a client that
/// looks seldom.
fn crossing(plan: &Plan) -> Nanos {
    const SELDOM: Nanos = 500_000_000;
    let missed = plan.incidents.iter().map(|(_, incident)| match incident {
        Incident::Starve(_, long) => *long,
        _ => 0,
    });
    let travels = if plan.faults.stalls > 0 { 2 * 101 } else { 2 };
    (travels + 20) * plan.faults.delay.end() + missed.sum::<Nanos>() + SELDOM
}

/// What was in force at some time from `began` to `now`.
fn in_force<T>(all: &[(Nanos, T)], began: Nanos, now: Nanos) -> impl Iterator<Item = &T> {
    let first = all.iter().rposition(|(since, _)| *since <= began).unwrap_or(0);
    let later = all[first..].iter().take_while(move |(since, _)| *since <= now);
    later.map(|(_, value)| value)
}
