//! What happens to the gateway from outside its connections: reloads, starvation, clock steps, drain, stop, ambushes.
//!
//! As the control thread does it, in the same order. Invariant: what happens is noted in the facts before a worker can act
//! on it.

use std::sync::Arc;

use zerohop_engine::mailbox;
use zerohop_ring::sim::Faults;

use super::{
    super::{
        super::{
            Command, Phase,
            conn::peek::{Seen, Stand},
        },
        clients::Life,
        coverage::{Deed, Trouble},
        engine::{Desk, Scripted},
        plan::{Ambush, Edition, Incident, MODELS},
    },
    World,
};
use crate::{
    caller::Callers,
    config::Config,
    key::{Scope, Secret, Spaces},
    metrics::ModelMetrics,
    resolve::Resolver,
    snapshot::{Engines, Era, ServedModel, Snapshot},
};

fn served(model: &'static str, engine: &Arc<Scripted>, workers: usize) -> Arc<ServedModel> {
    Arc::new(ServedModel {
        id: model.into(),
        created: 0,
        context: 100,
        version: "sim".into(),
        epoch: None,
        era: Era::first(),
        deadline: None,
        engine: Arc::clone(engine) as Arc<dyn Engines>,
        metrics: (0..workers).map(|_| ModelMetrics::new()).collect(),
    })
}

pub(super) fn snapshot(epoch: u64, config: &Config, strict: bool, models: Vec<Arc<ServedModel>>) -> Snapshot {
    Snapshot {
        epoch,
        kept: None,
        callers: Callers::new(
            &config.access,
            [0; 32],
            &Spaces {
                secret: Secret::new([0; 32]),
                scope: Scope::Tenant,
            },
        ),
        resolver: Resolver::of(&config.models),
        models,
        strict,
    }
}

/// Whether a connection is where an ambush waits for it.
pub(super) fn is_the_moment(ambush: Ambush, seen: &[Seen]) -> bool {
    seen.iter().any(|conn| match ambush {
        Ambush::BeforePause => conn.input > 32 << 10,
        Ambush::BeforeFinish => conn.stand == Stand::Over && conn.sending && !conn.closing,
    })
}

impl World {
    /// Puts the last edition in force, as the control thread does: engines that are new first get their mailboxes.
    pub(super) fn publish(&mut self) {
        let (_, edition) = self.facts.editions.last().expect("an edition").clone();
        let names: Vec<_> = edition.models.iter().map(|(name, _)| *name).collect();
        let models = names
            .iter()
            .map(|name| served(name, &self.engine(name), self.seats.len()))
            .collect();
        for desk in self.desks.iter_mut().filter(|desk| !names.contains(&desk.model)) {
            desk.engine = None;
        }
        self.epoch += 1;
        let config = edition.config(&self.plan.config);
        self.shared
            .publish(snapshot(self.epoch, &config, edition.strict, models));
        self.seats.iter().for_each(|seat| seat.waker.wake());
    }

    /// The engine of a model, made if there is none.
    fn engine(&mut self, model: &'static str) -> Arc<Scripted> {
        let there = self
            .desks
            .iter()
            .find(|desk| desk.model == model && desk.engine.is_some());
        if let Some(engine) = there.and_then(|desk| desk.engine.clone()) {
            return engine;
        }
        self.engines_made += 1;
        let engine = Scripted::new(
            self.engines_made,
            model,
            self.plan.places,
            &self.ledger,
            &mut self.chance,
        );
        let boxes = self.seats.iter().map(|seat| {
            let waker = Arc::clone(&seat.waker);
            let (mailbox, receiver) = mailbox(self.plan.mailbox, Box::new(move || waker.wake()));
            seat.tell(Command::Mailbox(receiver));
            mailbox
        });
        let desk = Desk::new(engine, boxes.collect());
        let engine = desk.engine.clone().expect("a new engine");
        self.desks.push(desk);
        engine
    }

    /// A worker gets no turns while the network resets connections and takes away what was not read.
    pub(super) fn spring(&mut self, index: usize) {
        let now = self.net.now();
        let long = 1 + self.chance.draw() % 30_000_000;
        self.net.set_faults(Faults {
            resets: 300,
            lost_tails: 1024,
            ..self.plan.faults.clone()
        });
        self.happen(Incident::Starve(index, long));
        let half = now + long / 2;
        self.incidents
            .extend([(half, Incident::Cut(index)), (now + long, Incident::Calm)]);
        let more = [
            Some(Incident::Stop),
            Some(Incident::Drain),
            Some(Incident::Reload),
            None,
            None,
        ];
        let meanwhile = more[self.chance.below(more.len())].map(|incident| (half, incident));
        self.incidents.extend(meanwhile);
        self.incidents.make_contiguous().sort_by_key(|(at, _)| *at);
    }

    /// Some clients of a worker reset their connections.
    fn cut(&mut self, index: usize) {
        for (wire, _) in self.wires_of(index) {
            let client = &mut self.clients[self.by_wire[&wire]];
            if client.life == Life::Open && self.chance.one_in(3) {
                client.cut(wire, &self.net);
                self.coverage.struck(wire, Trouble::ClientReset);
            }
        }
    }

    /// A trouble and a deed of the whole gateway, or of one worker: for every connection that it has or will have.
    pub(super) fn everywhere(&mut self, only: Option<usize>, trouble: Trouble, deed: Option<Deed>) {
        let mine = |worker: usize| only.is_none_or(|only| only == worker);
        for wire in self.by_wire.keys() {
            if self.net.carried(*wire).is_some_and(|(worker, _)| mine(worker)) {
                deed.iter().for_each(|deed| self.coverage.did(*wire, *deed));
                self.coverage.struck(*wire, trouble);
            }
            if self.net.queued(*wire).is_some_and(|queue| queue.is_none_or(mine)) {
                self.coverage.struck(*wire, trouble);
            }
        }
    }

    pub(super) fn happen(&mut self, incident: Incident) {
        let now = self.net.now();
        self.net.note(format_args!("{incident:?}"));
        match incident {
            Incident::Ready if self.facts.ending_since().is_none() => {
                self.shared.set_phase(Phase::Ready);
                self.facts.phase(now, Phase::Ready);
            }
            Incident::Ready => {}
            Incident::Reload => {
                let edition = Edition::new(self.plan.keyed, &mut self.chance);
                self.facts.editions.push((now, edition));
                self.publish();
                self.everywhere(None, Trouble::Reload, Some(Deed::Reload));
            }
            Incident::Starve(index, long) => {
                self.seats[index].starved_until = now + long;
                self.everywhere(Some(index), Trouble::Starved, None);
            }
            Incident::Cut(index) => self.cut(index),
            Incident::Calm => self.net.set_faults(self.plan.faults.clone()),
            Incident::Clock(seconds) => self.net.set_wall_clock(seconds),
            Incident::EngineStops(index) => {
                let model = MODELS[index];
                let desks = self.desks.iter().filter(|desk| desk.model == model);
                desks
                    .filter_map(|desk| desk.engine.as_ref())
                    .for_each(|engine| engine.stop());
            }
            Incident::Drain | Incident::Stop => {
                let stops = incident == Incident::Stop;
                self.shared.set_phase(Phase::Draining);
                self.facts.phase(now, Phase::Draining);
                self.facts.end(now, stops);
                let command = || if stops { Command::Stop } else { Command::Drain };
                self.seats.iter().for_each(|seat| seat.tell(command()));
                let (trouble, deed) = if stops {
                    (Trouble::Stop, Deed::Stop)
                } else {
                    (Trouble::Drain, Deed::Drain)
                };
                self.everywhere(None, trouble, Some(deed));
            }
        }
    }
}
