//! Several workers on one simulated network with scripted engines and clients, and the scheduler that drives them.
//!
//! The scheduler alone lets time pass: while anybody can go on (a kernel, a worker, an engine, a client) chance says who;
//! else time advances to the next thing that happens to anybody. Invariant: one seed gives one run, and after every step
//! the checks hold.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use crossbeam_channel::Sender;
use zerohop_engine::mailbox;
use zerohop_ring::{
    ConnId, Io, Nanos, Options, Wake,
    sim::{Fault, Faults, Net, Operation, Sim, What, WireId},
};

use super::{
    super::{
        Command, Local, Phase, Shared, Surface, Worker,
        conn::peek::{Seen, Stand},
    },
    Chance,
    checks::{self, Before},
    clients::{Acted, Client, Leave, Life},
    coverage::{Coverage, Deed, Table, Trouble},
    engine::{Desk, Fate, Ledger, Scripted},
    ensure,
    facts::Facts,
    fail,
    plan::{Ambush, DRAIN_BOUND, Edition, Incident, Plan},
};
use crate::{
    caller::Callers,
    clock::Clock,
    config::Config,
    log::{Format, Level, Log, system_clock},
    metrics::{Common, ModelMetrics},
    resolve::Resolver,
    snapshot::{Engines, ServedModel, Snapshot},
};

/// More steps no run takes.
const MOST_STEPS: u64 = 400_000;
/// A gateway that is told to stop is gone by then.
const STOP_BOUND: Nanos = 3_000_000_000;

/// Who may go on.
#[derive(Debug, Clone, Copy)]
enum Actor {
    Kernel(usize),
    Worker(usize),
    Engine(usize),
    Client(usize),
}

/// A worker and the control thread's hold on it.
struct Seat {
    worker: Option<Worker<Sim>>,
    commands: Sender<Command>,
    waker: Arc<dyn Wake>,
    starved_until: Nanos,
}

impl Seat {
    fn tell(&self, command: Command) {
        if self.worker.is_some() {
            ensure!(
                self.commands.send(command).is_ok(),
                "world",
                "a worker without its commands"
            );
            self.waker.wake();
        }
    }
}

pub(super) struct World {
    pub(super) net: Net,
    chance: Chance,
    seats: Vec<Seat>,
    desks: Vec<Desk>,
    engines_made: usize,
    clients: Vec<Client>,
    by_wire: BTreeMap<WireId, usize>,
    ledger: Arc<Mutex<Ledger>>,
    facts: Facts,
    coverage: Coverage,
    incidents: VecDeque<(Nanos, Incident)>,
    shared: Arc<Shared>,
    plan: Plan,
    epoch: u64,
    ambush: Option<Ambush>,
}

/// What a run came to.
pub(super) struct Summary {
    pub(super) digest: u64,
    pub(super) table: Table,
}

/// Whether a connection is where an ambush waits for it.
fn is_the_moment(ambush: Ambush, seen: &[Seen]) -> bool {
    seen.iter().any(|conn| match ambush {
        Ambush::BeforePause => conn.input > 32 << 10,
        Ambush::BeforeFinish => conn.stand == Stand::Over && conn.sending && !conn.closing,
    })
}

fn served(model: &'static str, engine: &Arc<Scripted>, workers: usize) -> Arc<ServedModel> {
    Arc::new(ServedModel {
        id: model.into(),
        created: 0,
        context: 100,
        version: "sim".into(),
        engine: Arc::clone(engine) as Arc<dyn Engines>,
        metrics: (0..workers).map(|_| ModelMetrics::new()).collect(),
    })
}

fn snapshot(epoch: u64, config: &Config, strict: bool, models: Vec<Arc<ServedModel>>) -> Snapshot {
    Snapshot {
        epoch,
        callers: Callers::new(&config.access, [0; 32]),
        resolver: Resolver::of(&config.models),
        models,
        strict,
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let plan = Plan::new(seed);
        let mut chance = Chance(seed ^ 0x51ed);
        let few_slots = chance.one_in(16);
        let options = |overflow_reply| Options {
            max_connections: if few_slots { 3 } else { 64 },
            recv_buffers: plan.recv_buffers,
            recv_buffer_size: 512,
            overflow_reply,
            ..Options::default()
        };
        let first = Edition::new(plan.keyed, &mut chance);
        let common = Common {
            instance_id: "sim".into(),
            region: None,
            start_time: 0,
        };
        let nothing = Config {
            models: Vec::new(),
            ..plan.config.clone()
        };
        let shared = Arc::new(Shared::new(
            &plan.config,
            plan.workers,
            common,
            snapshot(0, &nothing, false, Vec::new()),
        ));
        let (log, _) = Log::start(std::io::sink(), Format::Json, Level::Error, system_clock).expect("a log");
        let (first_io, net) =
            Sim::new(seed, plan.faults.clone(), 1, options(shared.overflow_reply())).expect("a network");
        net.hold_clock();
        net.keep_notices();
        let mut ios = vec![first_io];
        ios.extend((1..plan.workers).map(|_| Sim::join(&net, 1, options(shared.overflow_reply())).expect("a worker")));
        let seats = ios.into_iter().enumerate().map(|(index, io)| {
            let (commands, receive) = crossbeam_channel::bounded(256);
            let waker = io.waker();
            let seed = [7 + index as u8; 32];
            let local = Local::new(
                index,
                Arc::clone(&shared),
                log.clone(),
                Clock::scripted(|| Duration::ZERO),
                seed,
            );
            Seat {
                worker: Some(Worker::new(io, vec![Surface::Full], receive, local)),
                commands,
                waker,
                starved_until: 0,
            }
        });
        let mut this = Self {
            seats: seats.collect(),
            desks: Vec::new(),
            engines_made: 0,
            clients: Vec::new(),
            by_wire: BTreeMap::new(),
            ledger: Arc::default(),
            facts: Facts::new(&plan, first, few_slots),
            coverage: Coverage::default(),
            incidents: plan.incidents.iter().copied().collect(),
            chance,
            net,
            shared,
            ambush: plan.ambush,
            plan,
            epoch: 0,
        };
        this.publish();
        this.seats.iter().for_each(|seat| seat.tell(Command::Start));
        this.invite();
        this
    }

    fn invite(&mut self) {
        let ledger = &mut *self.ledger.lock().expect("one thread");
        let client = |number| Client::new(number, &self.plan, &mut self.chance, ledger);
        self.clients = (0..self.plan.clients).map(client).collect();
    }

    /// Puts the last edition in force, as the control thread does: engines that are new first get their mailboxes.
    fn publish(&mut self) {
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

    /// Runs until nothing of the gateway is left, and no client waits.
    pub(super) fn run(mut self) -> Summary {
        let mut steps = 0;
        loop {
            steps += 1;
            ensure!(
                steps < MOST_STEPS,
                "livelock",
                "no end after {steps} steps, at {}",
                self.net.now()
            );
            let settled = |client: &Client| !matches!(client.life, Life::Waiting | Life::Open);
            let clients_done = self.clients.iter().all(settled);
            let gone = self.seats.iter().all(|seat| seat.worker.is_none());
            if clients_done && gone {
                break;
            }
            if clients_done && self.incidents.is_empty() && self.facts.ending_since().is_none() {
                self.happen(Incident::Drain);
            }
            self.step();
            self.check_ending(gone);
        }
        self.last_checks();
        let mut table = self.coverage.table;
        table.runs = 1;
        table.requests = self.clients.iter().map(|client| client.answered as u64).sum();
        Summary {
            digest: self.net.digest(),
            table,
        }
    }

    /// A gateway that was told to end does so in time.
    fn check_ending(&self, gone: bool) {
        let Some(since) = self.facts.ending_since().filter(|_| !gone) else {
            return;
        };
        let waited = self.net.now() - since;
        ensure!(
            waited <= DRAIN_BOUND,
            "ending",
            "workers still run {waited} ns after they were told to end"
        );
        if let Some(stopped) = self.facts.stopped_since() {
            let waited = self.net.now() - stopped;
            ensure!(
                waited <= STOP_BOUND,
                "ending",
                "workers still run {waited} ns after they were told to stop"
            );
        }
    }

    fn last_checks(&mut self) {
        for desk in &mut self.desks {
            desk.work();
            ensure!(
                desk.running() == 0,
                "places",
                "{} still computes {} jobs",
                desk.model,
                desk.running()
            );
        }
        self.clients.iter().for_each(Client::last_check);
    }

    /// Somebody goes on, or time does.
    fn step(&mut self) {
        self.net.run_wires();
        let now = self.net.now();
        while let Some((at, incident)) = self.incidents.front().copied()
            && at <= now
        {
            self.incidents.pop_front();
            self.happen(incident);
        }
        let able = self.able(now);
        if able.is_empty() {
            let Some(next) = self.next_time() else {
                fail("deadlock", format_args!("nothing will ever happen: {:?}", self.clients));
            };
            self.net.advance(next.max(now + 1));
            return self.listen();
        }
        match able[self.chance.below(able.len())] {
            Actor::Kernel(index) => {
                if let Some(worker) = &mut self.seats[index].worker {
                    worker.io.run_kernel();
                }
            }
            Actor::Worker(index) => self.turn(index),
            Actor::Engine(index) => self.work(index, now),
            Actor::Client(index) => self.act(index),
        }
        self.listen();
    }

    /// Everybody who can go on now.
    fn able(&self, now: Nanos) -> Vec<Actor> {
        let mut able = Vec::new();
        for (index, seat) in self.seats.iter().enumerate() {
            let Some(worker) = &seat.worker else { continue };
            if worker.io.next_time().is_some_and(|at| at <= now) {
                able.push(Actor::Kernel(index));
            }
            let due = worker.deadline().is_some_and(|at| at <= now);
            if seat.starved_until <= now && (due || worker.io.is_ready()) {
                able.push(Actor::Worker(index));
            }
        }
        let desks = self.desks.iter().enumerate().filter(|(_, desk)| desk.next <= now);
        able.extend(desks.map(|(index, _)| Actor::Engine(index)));
        let clients = self.clients.iter().enumerate();
        let clients = clients.filter(|(_, client)| client.next.is_some_and(|at| at <= now));
        able.extend(clients.map(|(index, _)| Actor::Client(index)));
        able
    }

    /// When somebody can go on next.
    fn next_time(&self) -> Option<Nanos> {
        let workers = self
            .seats
            .iter()
            .filter_map(|seat| seat.worker.as_ref().map(|worker| (seat, worker)));
        let workers = workers.flat_map(|(seat, worker)| {
            let turn = if worker.io.is_ready() {
                Some(0)
            } else {
                worker.deadline()
            };
            [worker.io.next_time(), turn.map(|at| at.max(seat.starved_until))]
        });
        let desks = self
            .desks
            .iter()
            .filter(|desk| desk.running() > 0)
            .map(|desk| Some(desk.next));
        let clients = self.clients.iter().map(|client| client.next);
        let others = [self.net.next_time(), self.incidents.front().map(|(at, _)| *at)];
        workers.chain(desks).chain(clients).chain(others).flatten().min()
    }

    /// Takes what the network noticed.
    fn listen(&mut self) {
        for notice in self.net.take_notices() {
            match (notice.what, notice.wire) {
                (What::Struck(Fault::Reset, _), Some(wire)) => self.facts.broke(wire),
                (What::Did(Operation::Accept), Some(wire)) => self.facts.accepted(wire),
                _ => {}
            }
            self.coverage.notice(notice);
        }
    }

    fn wires_of(&self, index: usize) -> Vec<(WireId, ConnId)> {
        let wires = self.by_wire.keys();
        let carried = wires.filter_map(|wire| self.net.carried(*wire).map(|(worker, conn)| (*wire, worker, conn)));
        carried
            .filter(|(_, worker, _)| *worker == index)
            .map(|(wire, _, conn)| (wire, conn))
            .collect()
    }

    fn turn(&mut self, index: usize) {
        let welcome: Vec<usize> = self
            .seats
            .iter()
            .map(|seat| seat.worker.as_ref().map_or(0, checks::welcome))
            .collect();
        let all = welcome.iter().sum();
        let wires = self.wires_of(index);
        let Some(worker) = &mut self.seats[index].worker else {
            return;
        };
        let now = self.net.now();
        if worker.deadline().is_some_and(|at| at <= now) {
            let due = checks::seen(worker)
                .into_iter()
                .filter(|conn| conn.deadline.is_some_and(|at| at <= now));
            for conn in due {
                let wire = wires.iter().find(|(_, its)| *its == conn.id);
                wire.iter()
                    .for_each(|(wire, _)| self.coverage.did(*wire, Deed::Deadline));
            }
        }
        let before = Before::of(worker, all);
        self.net.note(format_args!("worker {index} turns"));
        if let Err(error) = worker.turn() {
            fail("turn", error);
        }
        let ledger = Arc::clone(&self.ledger);
        let ledger = &mut *ledger.lock().expect("one thread");
        for whose in std::mem::take(&mut ledger.fresh) {
            let Some(wire) = self.clients[whose.0].wire else {
                continue;
            };
            if ledger.entries[&whose].fate == Fate::Full {
                self.coverage.struck(wire, Trouble::EngineFull);
            }
            self.coverage.did(wire, Deed::Submit);
            let entry = &ledger.entries[&whose];
            ensure!(
                entry.worker == index,
                "job",
                "worker {index} gave mailbox {} for {whose:?}",
                entry.worker
            );
        }
        checks::after_turn(
            index,
            worker,
            &before,
            all - welcome[index],
            &self.facts,
            ledger,
            &self.desks,
        );
        let short = worker.local.metrics().memory_refusals.get() > before.memory_refusals;
        let seen = checks::seen(worker);
        if worker.has_ended() {
            let left = ledger.open(index).next();
            ensure!(left.is_none(), "jobs", "worker {index} ended and left {left:?}");
            self.seats[index].worker = None;
        }
        if self.ambush.is_some_and(|ambush| is_the_moment(ambush, &seen)) {
            self.ambush = None;
            self.spring(index);
        }
        if short {
            self.everywhere(Some(index), Trouble::MemoryShort, None);
        }
    }

    /// A worker gets no turns while the network resets connections and takes away what was not read.
    fn spring(&mut self, index: usize) {
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

    fn work(&mut self, index: usize, now: Nanos) {
        let desk = &mut self.desks[index];
        desk.next = now + 1 + self.chance.draw() % self.plan.pace;
        let worked = desk.work();
        let ledger = self.ledger.lock().expect("one thread");
        let wire = |whose: &(usize, usize)| self.clients[whose.0].wire;
        for whose in &worked.blocked {
            wire(whose)
                .iter()
                .for_each(|wire| self.coverage.struck(*wire, Trouble::MailboxFull));
        }
        for whose in &worked.mailed {
            let Some(wire) = wire(whose) else { continue };
            let entry = &ledger.entries[whose];
            if entry.over && matches!(entry.fate, Fate::Failed { .. }) {
                self.coverage.struck(wire, Trouble::EngineFailed);
            }
            self.coverage.did(wire, Deed::Mail);
        }
        if desk.is_gone() {
            let number = desk.number;
            let orphan = ledger
                .entries
                .iter()
                .find(|(_, entry)| entry.engine == number && entry.is_open());
            ensure!(orphan.is_none(), "jobs", "an engine is gone that computes {orphan:?}");
            self.desks.swap_remove(index);
        }
    }

    fn act(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let ledger = self.ledger.lock().expect("one thread");
        let acted = client.act(&self.net, &mut self.chance, &ledger, &self.facts);
        let Some(wire) = client.wire else { return };
        match acted {
            Acted::Nothing => {}
            Acted::Connected => {
                self.by_wire.insert(wire, index);
                if client.slow {
                    self.coverage.struck(wire, Trouble::SlowClient);
                }
            }
            Acted::Left(how) => self.coverage.struck(
                wire,
                match how {
                    Leave::Reset => Trouble::ClientReset,
                    Leave::Finish => Trouble::HalfClose,
                    Leave::Vanish => Trouble::Vanished,
                },
            ),
        }
    }

    /// A trouble and a deed of the whole gateway, or of one worker: for every connection that it has or will have.
    fn everywhere(&mut self, only: Option<usize>, trouble: Trouble, deed: Option<Deed>) {
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

    fn happen(&mut self, incident: Incident) {
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
                let model = super::plan::MODELS[index];
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
