//! Several workers on one simulated network with scripted engines and clients, and the scheduler that drives them.
//!
//! The scheduler alone lets time pass: while anybody can go on (a kernel, a worker, an engine, a client) chance says who;
//! else time advances to the next thing that happens to anybody. Invariant: one seed gives one run, and after every step
//! the checks hold.

mod incidents;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use crossbeam_channel::Sender;
use zerohop_ring::{
    ConnId, Io, Nanos, Options, Wake,
    sim::{Fault, Net, Operation, Sim, What, WireId},
};

use self::incidents::{is_the_moment, snapshot};
use super::{
    super::{Command, Local, Shared, Surface, Worker},
    Chance,
    checks::{self, Before},
    clients::{Acted, Client, Leave, Life},
    coverage::{Coverage, Deed, Table, Trouble},
    engine::{Desk, Fate, Ledger, Whose},
    ensure,
    facts::Facts,
    fail,
    plan::{Ambush, DRAIN_BOUND, Edition, Incident, Plan},
};
use crate::{
    clock::Clock,
    config::Config,
    log::{Format, Level, Log, system_clock},
    metrics::Common,
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
            // Those that were cancelled are noticed sooner or later.
            for _ in 0..200 {
                desk.work();
            }
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

    fn work(&mut self, index: usize, now: Nanos) {
        let desk = &mut self.desks[index];
        desk.next = now + 1 + self.chance.draw() % self.plan.pace;
        let worked = desk.work();
        let ledger = self.ledger.lock().expect("one thread");
        let wire = |whose: &Whose| self.clients[whose.0].wire;
        for whose in &worked.blocked {
            wire(whose)
                .iter()
                .for_each(|wire| self.coverage.struck(*wire, Trouble::MailboxFull));
        }
        for whose in &worked.mailed {
            let Some(wire) = wire(whose) else { continue };
            let entry = &ledger.entries[whose];
            if entry.over && matches!(entry.fate, Fate::Failed { .. } | Fate::TimedOut { .. }) {
                self.coverage.struck(wire, Trouble::EngineFailed);
            }
            let seldom = &mut self.coverage.table.seldom;
            seldom[0] += u64::from(whose.2 > 0 && entry.over);
            seldom[1] += u64::from(!entry.calls.is_empty() && entry.over);
            seldom[2] += u64::from(entry.told_logprobs);
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
}
