//! What a seed decides before a run begins: how many of everything, which faults, which limits, what happens when; and
//! the editions of the configuration that reloads bring.
//!
//! Nothing here runs. Invariant: the same seed gives the same plan.

use std::{sync::Arc, time::Duration};

use zerohop_ring::{Nanos, sim::Faults};

use super::{
    Chance,
    requests::{Ask, Request},
};
use crate::config::{Access, Config, KeyDigest, KeySource, Machine, Model, ModelSet, Tenant};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Names that models may have.
pub(super) const MODELS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// Names that models may have beside their own.
pub(super) const ALIASES: [&str; 2] = ["small", "large"];
/// Keys that tenants may have; the last opens nothing ever.
pub(super) const KEYS: [&str; 3] = ["key-red", "key-blue", "key-nobody"];
/// Largest body.
pub(super) const MAX_BODY: usize = 4096;

/// Something that happens to the gateway from outside its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incident {
    /// Models are loaded: requests are welcome.
    Ready,
    /// Another edition is published.
    Reload,
    /// A worker gets no turns for this long.
    Starve(usize, Nanos),
    /// Somebody sets the wall clock.
    Clock(i64),
    /// This engine ends and takes no more jobs.
    EngineStops(usize),
    Drain,
    Stop,
    /// Clients of this worker reset their connections.
    Cut(usize),
    /// The end of an ambush.
    Calm,
}

/// A moment at which the worst is to happen to a worker: it gets no turns, and the network resets what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambush {
    /// A connection is about to be paused.
    BeforePause,
    /// A last reply is on its way.
    BeforeFinish,
}

/// What a seed has decided.
pub(super) struct Plan {
    pub(super) faults: Faults,
    pub(super) workers: usize,
    pub(super) clients: usize,
    pub(super) keyed: bool,
    /// One in so many clients sends more than the gateway takes at a time.
    pub(super) floods: usize,
    /// Jobs that an engine takes at a time.
    pub(super) places: usize,
    /// Longest pause of an engine between two steps.
    pub(super) pace: Nanos,
    /// Mails that fit between an engine and a worker.
    pub(super) mailbox: usize,
    pub(super) recv_buffers: u16,
    pub(super) config: Config,
    pub(super) incidents: Vec<(Nanos, Incident)>,
    pub(super) ambush: Option<Ambush>,
}

/// Each fault by itself with a chance of its own, or none.
fn some_faults(chance: &mut Chance) -> Faults {
    let mut some = |most: usize| if chance.one_in(2) { chance.below(most) as u16 } else { 0 };
    Faults {
        short_reads: some(600),
        short_writes: some(600),
        resets: 0,
        exhaustion: some(300),
        full_queue: some(300),
        ended_receives: some(300),
        late_cancels: some(600),
        shortages: some(200),
        held_completions: some(400),
        stalls: some(30),
        clock_steps: some(30),
        lost_tails: some(2048),
        // No worker reads a file yet.
        short_file_reads: 0,
        failed_reads: 0,
        slow_reads: 0,
        delay: MICRO..=[10 * MICRO, 200 * MICRO, 2 * MILLI, 20 * MILLI][chance.below(4)],
    }
}

fn faults(chance: &mut Chance) -> Faults {
    match chance.below(8) {
        0 => Faults::NONE,
        1 => Faults {
            lost_tails: 512,
            ..Faults::ROUGH
        },
        2 => Faults::HOSTILE,
        3..=5 => Faults {
            resets: [4, 12, 120][chance.below(3)],
            lost_tails: [0, 1024, 1024][chance.below(3)],
            ..some_faults(chance)
        },
        _ => some_faults(chance),
    }
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let chance = &mut Chance(seed ^ 0x5eed);
        let workers = 1 + chance.below(4);
        let mut config = Config::defaults(&Machine).expect("the defaults");
        config.server.requests.max_body_bytes = MAX_BODY;
        let connections = &mut config.server.connections;
        if chance.one_in(2) {
            connections.read_timeout = Duration::from_millis(200 + chance.below(400) as u64);
            connections.keepalive_timeout = Duration::from_millis(100 + chance.below(400) as u64);
        }
        if chance.one_in(6) {
            connections.max_age = Duration::from_millis(1 + chance.below(60) as u64);
        }
        if chance.one_in(6) {
            connections.max = 1 + chance.below(5);
        }
        if chance.one_in(6) {
            config.server.memory.bytes = [20_000, 120_000, 250_000][chance.below(3)] + chance.draw() % 200_000;
        }
        Self {
            faults: faults(chance),
            workers,
            clients: 1 + chance.below(40),
            keyed: chance.one_in(3),
            floods: [3, 10, 20][chance.below(3)],
            places: 1 + chance.below(6),
            pace: [1, 2, 5, 40][chance.below(4)] * MILLI,
            mailbox: 2 + chance.below(30),
            recv_buffers: 1 << (1 + chance.below(7)),
            config,
            incidents: incidents(workers, chance),
            ambush: [Some(Ambush::BeforePause), Some(Ambush::BeforeFinish), None, None][chance.below(4)],
        }
    }
}

fn incidents(workers: usize, chance: &mut Chance) -> Vec<(Nanos, Incident)> {
    let mut found = Vec::new();
    let at = |most: Nanos, chance: &mut Chance| chance.draw() % most;
    let ready = if chance.one_in(8) { at(20 * MILLI, chance) } else { 0 };
    found.push((ready, Incident::Ready));
    for _ in 0..chance.below(4) {
        found.push((at(60 * MILLI, chance), Incident::Reload));
    }
    for _ in 0..chance.below(4) {
        let long = if chance.one_in(3) { 600 } else { 60 };
        let starved = Incident::Starve(chance.below(workers), at(long * MILLI, chance));
        found.push((at(60 * MILLI, chance), starved));
    }
    // The whole machine stands still now and then.
    for _ in 0..[0, 0, 1, 3][chance.below(4)] {
        let (begin, long) = (at(100 * MILLI, chance), at(400 * MILLI, chance));
        found.extend((0..workers).map(|worker| (begin, Incident::Starve(worker, long))));
    }
    for _ in 0..chance.below(2) {
        let step = (chance.draw() % (4 * 86_400)) as i64 - 2 * 86_400;
        found.push((at(60 * MILLI, chance), Incident::Clock(step)));
    }
    if chance.one_in(6) {
        found.push((
            at(60 * MILLI, chance),
            Incident::EngineStops(chance.below(MODELS.len())),
        ));
    }
    // An operator may be impatient.
    for _ in 0..[0, 0, 0, 1, 1, 2][chance.below(6)] {
        found.push((at(80 * MILLI, chance), Incident::Drain));
    }
    for _ in 0..[0, 0, 0, 0, 0, 1, 1, 2][chance.below(8)] {
        found.push((at(100 * MILLI, chance), Incident::Stop));
    }
    found.sort_by_key(|(at, _)| *at);
    found
}

/// How long a gateway that drains may take: the longest wait for a client, and some.
pub(super) const DRAIN_BOUND: Nanos = 60 * SECOND;

/// A tenant of an edition: its key, and the models that it opens (`None`: all).
#[derive(Debug, Clone)]
struct Guest {
    key: &'static str,
    opens: Option<Vec<usize>>,
}

/// What a configuration says of models and tenants.
#[derive(Debug, Clone)]
pub(super) struct Edition {
    /// Names with their aliases, in the order of the configuration.
    pub(super) models: Vec<(&'static str, Vec<&'static str>)>,
    guests: Option<Vec<Guest>>,
    pub(super) strict: bool,
}

impl Edition {
    pub(super) fn new(keyed: bool, chance: &mut Chance) -> Self {
        let mut names = MODELS.to_vec();
        for at in (1..names.len()).rev() {
            names.swap(at, chance.below(at + 1));
        }
        names.truncate(1 + chance.below(names.len()));
        let mut models: Vec<_> = names.into_iter().map(|name| (name, Vec::new())).collect();
        for alias in ALIASES {
            if !chance.one_in(4) {
                let at = chance.below(models.len());
                models[at].1.push(alias);
            }
        }
        let guests = keyed.then(|| {
            let all = KEYS[..2].iter().map(|key| Guest {
                key,
                opens: (!chance.one_in(3)).then(|| subset(models.len(), chance)),
            });
            let mut all: Vec<_> = all.collect();
            if chance.one_in(4) {
                all.remove(chance.below(2));
            }
            all
        });
        Self {
            models,
            guests,
            strict: chance.one_in(3),
        }
    }

    /// The configuration that says so.
    pub(super) fn config(&self, base: &Config) -> Config {
        let model = |(name, aliases): &(&str, Vec<&str>)| Model {
            id: (*name).into(),
            aliases: aliases.iter().map(|alias| Arc::from(*alias)).collect(),
            ..base.models[0].clone()
        };
        let tenant = |guest: &Guest| Tenant {
            name: guest.key.into(),
            source: KeySource::Env("KEYS".into()),
            keys: vec![KeyDigest::of(guest.key.as_bytes())],
            models: match &guest.opens {
                None => ModelSet::All,
                Some(some) => ModelSet::Only(some.as_slice().into()),
            },
        };
        Config {
            models: self.models.iter().map(model).collect(),
            access: match &self.guests {
                None => Access::Anonymous { explicit: true },
                Some(guests) => Access::Tenants(guests.iter().map(tenant).collect()),
            },
            ..base.clone()
        }
    }

    /// What this edition makes of a request whose path is known: the statuses of the stages before the engine, or the
    /// model whose engine answers.
    pub(super) fn verdict(&self, request: &Request) -> Result<&'static str, u16> {
        let guest = self.guest(request.key)?;
        match request.ask {
            Ask::BadJson => return Err(400),
            Ask::Chat { .. } | Ask::Count if self.strict && request.unknown_field => return Err(400),
            _ => {}
        }
        let named = |(name, aliases): &(&str, Vec<&str>)| *name == request.model || aliases.contains(&request.model);
        let index = self.models.iter().position(named).ok_or(404_u16)?;
        match guest {
            Some(Guest { opens: Some(some), .. }) if !some.contains(&index) => Err(403),
            _ => Ok(self.models[index].0),
        }
    }

    /// The models that a list shows to this key.
    pub(super) fn visible(&self, key: Option<&str>) -> Result<Vec<&'static str>, u16> {
        let guest = self.guest(key)?;
        let opens = |index: &usize| {
            guest
                .and_then(|guest| guest.opens.as_ref())
                .is_none_or(|some| some.contains(index))
        };
        let all = self.models.iter().enumerate();
        Ok(all
            .filter(|(index, _)| opens(index))
            .map(|(_, model)| model.0)
            .collect())
    }

    fn guest(&self, key: Option<&str>) -> Result<Option<&Guest>, u16> {
        let Some(guests) = &self.guests else { return Ok(None) };
        let found = guests.iter().find(|guest| Some(guest.key) == key);
        found.map(Some).ok_or(401)
    }
}

/// At least one of the first `count` numbers, ascending.
fn subset(count: usize, chance: &mut Chance) -> Vec<usize> {
    let mut some: Vec<_> = (0..count).filter(|_| chance.one_in(2)).collect();
    if some.is_empty() {
        some.push(chance.below(count));
    }
    some
}
