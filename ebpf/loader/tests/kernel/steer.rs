//! Which worker gets which connection.

use std::{net::SocketAddr, os::fd::AsFd, time::Duration};

use socket2::Socket;
use zerohop_steer::{Change, Group, Mode, Policy, Rung, STEER, Seat, Steering, Wanted};

use crate::net::{Net, SERVER4, SERVER6, begin, connect, lacks, listen, pin, wait_for, waiting};

const CORES: [usize; 2] = [0, 1];
const LIMIT: Duration = Duration::from_secs(5);

/// `steer` that leaves all to the kernel's hash: what holds with it does not test `steer`.
fn pass() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../objects/pass.bpf.o")).unwrap()
}

/// Two workers' sockets on both families, steered.
struct Bench {
    /// By address, then by worker.
    sockets: Vec<Vec<Socket>>,
    addresses: Vec<SocketAddr>,
    steering: Steering,
    seats: Vec<Seat>,
    time: u64,
    open: [u64; 2],
}

impl Bench {
    /// To be called where the server is.
    fn new(object: &[u8], mode: Mode, policy: Policy) -> Self {
        let mut addresses = Vec::new();
        let mut sockets = Vec::new();
        for ip in [SERVER4, SERVER6] {
            let mut address = SocketAddr::new(ip.parse().unwrap(), 0);
            let mut group = Vec::new();
            for _ in CORES {
                group.push(listen(address));
                address = group[0].local_addr().unwrap().as_socket().unwrap();
            }
            addresses.push(address);
            sockets.push(group);
        }
        let groups: Vec<Group<'_>> = addresses
            .iter()
            .zip(&sockets)
            .map(|(address, group)| Group {
                address: *address,
                sockets: group.iter().map(AsFd::as_fd).collect(),
            })
            .collect();
        let steering = Steering::attach(object, Wanted { mode, policy }, &CORES, &groups);
        let seats = (0..CORES.len()).filter_map(|worker| steering.seat(worker)).collect();
        Self {
            sockets,
            addresses,
            steering,
            seats,
            time: 0,
            open: [0; 2],
        }
    }

    fn steered(policy: Policy) -> Self {
        let bench = Self::new(STEER, Mode::Ebpf, policy);
        assert_eq!(bench.steering.rung(), Rung::Ebpf, "{}", bench.steering);
        bench
    }

    /// Accepts what waits, as workers do, until so many have arrived; by worker.
    fn accept(&mut self, connections: usize) -> [usize; 2] {
        let mut found = [0; 2];
        wait_for("the connections to arrive", || {
            for (worker, found) in found.iter_mut().enumerate() {
                let new: usize = self.sockets.iter().map(|group| waiting(&group[worker]).len()).sum();
                *found += new;
                self.open[worker] += new as u64;
                if let Some(seat) = self.seats.get_mut(worker) {
                    (0..new).for_each(|_| seat.arrived());
                }
            }
            self.publish([0, 0]);
            (found.iter().sum::<usize>() >= connections).then_some(())
        });
        found
    }

    /// What workers say after a turn: what they have open, and these requests.
    fn publish(&mut self, requests: [u64; 2]) {
        self.time += 1_000_000;
        for (worker, seat) in self.seats.iter_mut().enumerate() {
            seat.publish(self.time, self.open[worker], requests[worker]);
        }
    }

    fn outcome(&self, name: &str) -> u64 {
        let outcomes = self.steering.stats().outcomes;
        outcomes.into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Outcomes that leave the choice to the kernel.
    fn fallbacks(&self) -> u64 {
        ["no_group", "no_worker", "no_socket"]
            .map(|name| self.outcome(name))
            .iter()
            .sum()
    }
}

/// Connects so many times to each address, from this core, one after the other.
fn connects(net: &Net, addresses: &[SocketAddr], core: usize, count: usize) -> Vec<Socket> {
    net.client(|| {
        pin(core);
        let each = addresses
            .iter()
            .flat_map(|address| std::iter::repeat_n(*address, count));
        each.map(|address| connect(None, address, LIMIT).unwrap()).collect()
    })
}

/// The claims about `least`, by an object that should keep them.
fn balances(object: &[u8]) -> Result<(), String> {
    let net = Net::new();
    net.server(|| {
        let mut bench = Bench::new(object, Mode::Ebpf, Policy::Least);
        assert_eq!(bench.steering.rung(), Rung::Ebpf, "{}", bench.steering);
        let addresses = bench.addresses.clone();
        for round in 0..4 {
            let address = addresses[round % 2];
            let held: Vec<Socket> = net.client(|| (0..100).map(|_| begin(None, address)).collect());
            let split = bench.accept(100);
            if split.iter().any(|count| !(45..=55).contains(count)) {
                return Err(format!("burst {round} of 100 splits {split:?}"));
            }
            drop(held);
            bench.open = [0; 2];
            bench.publish([0, 0]);
        }
        bench.publish([20, 0]);
        let held = connects(&net, &addresses, 0, 25);
        let split = bench.accept(50);
        if split != [0, 50] {
            return Err(format!(
                "beside a worker with 20 requests 50 connections split {split:?}"
            ));
        }
        drop(held);
        Ok(())
    })
}

#[test]
fn a_burst_splits_evenly_and_a_busy_worker_gets_less() {
    if lacks("a_burst_splits_evenly_and_a_busy_worker_gets_less") {
        return;
    }
    assert_eq!(balances(STEER), Ok(()));
    let without = balances(&pass());
    assert!(
        without.is_err(),
        "the kernel's hash does that too, so the test shows nothing"
    );
}

#[test]
fn each_new_connection_is_one_run_of_the_program() {
    if lacks("each_new_connection_is_one_run_of_the_program") {
        return;
    }
    let net = Net::new();
    let _counting = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
    for policy in [Policy::Local, Policy::Least, Policy::Cpu] {
        net.server(|| {
            let mut bench = Bench::steered(policy);
            let before = bench.steering.runs().unwrap();
            let _held = connects(&net, &bench.addresses.clone(), 1, 40);
            bench.accept(80);
            assert_eq!(bench.steering.runs().unwrap() - before, 80, "{policy}");
            assert_eq!(
                bench.outcome("home") + bench.outcome("least"),
                80,
                "{policy}: on both families"
            );
            assert_eq!(bench.fallbacks(), 0, "{policy}");
        });
    }
}

#[test]
fn the_core_of_the_packet_has_its_worker() {
    if lacks("the_core_of_the_packet_has_its_worker") {
        return;
    }
    let net = Net::new();
    net.server(|| {
        for (mode, rung) in [(Mode::Ebpf, Rung::Ebpf), (Mode::Cpu, Rung::Classic)] {
            let mut bench = Bench::new(STEER, mode, Policy::Cpu);
            assert_eq!(bench.steering.rung(), rung, "{}", bench.steering);
            for (core, expected) in [(0, [40, 0]), (1, [0, 40])] {
                let _held = connects(&net, &bench.addresses.clone(), core, 20);
                assert_eq!(bench.accept(40), expected, "{rung}, core {core}");
            }
        }
    });
}

#[test]
fn local_keeps_to_the_core_until_its_worker_is_overloaded() {
    if lacks("local_keeps_to_the_core_until_its_worker_is_overloaded") {
        return;
    }
    let net = Net::new();
    net.server(|| {
        let mut bench = Bench::steered(Policy::Local);
        let address = [bench.addresses[0]];
        let mut held = connects(&net, &address, 0, 10);
        assert_eq!(bench.accept(10), [10, 0], "a few stay at home");
        held.extend(connects(&net, &address, 0, 90));
        let split = bench.accept(90);
        assert!(split[0] > 35 && split[1] > 25, "more spread: {split:?}");
        bench.publish([20, 0]);
        held.extend(connects(&net, &address, 0, 20));
        assert_eq!(bench.accept(20), [0, 20], "a busy worker gets none");
        bench.open = [0; 2];
        bench.publish([0, 0]);
        held.extend(connects(&net, &address, 0, 10));
        assert_eq!(bench.accept(10), [10, 0], "at home again");
        bench.steering.set_policy(Policy::Least).unwrap();
        held.extend(connects(&net, &address, 0, 10));
        assert_eq!(bench.accept(10), [0, 10], "another policy is in force at once");
    });
}

#[test]
fn a_worker_that_drains_or_hangs_gets_none() {
    if lacks("a_worker_that_drains_or_hangs_gets_none") {
        return;
    }
    let net = Net::new();
    net.server(|| {
        let mut bench = Bench::steered(Policy::Least);
        let addresses = bench.addresses.clone();
        let ask = |bench: &mut Bench| {
            let _held = connects(&net, &addresses, 1, 10);
            let split = bench.accept(20);
            bench.open = [0; 2];
            split
        };
        bench.seats[1].set_open(false);
        assert_eq!(ask(&mut bench), [20, 0]);
        bench.seats[1].set_open(true);
        assert!(ask(&mut bench)[1] > 0);
        bench.steering.look();
        let mut changes = Vec::new();
        for _ in 0..4 {
            bench.seats[0].publish(bench.time, 0, 0);
            changes.extend(bench.steering.look());
        }
        assert_eq!(changes, [Change::Hangs(1)]);
        let _held = connects(&net, &addresses, 1, 10);
        wait_for("20 at worker 0", || {
            let waiting: usize = bench.sockets.iter().map(|group| waiting(&group[0]).len()).sum();
            bench.open[0] += waiting as u64;
            (bench.open[0] == 20).then_some(())
        });
        bench.publish([0, 0]);
        assert_eq!(bench.steering.look(), [Change::Turns(1)]);
        for seat in &bench.seats {
            seat.set_open(false);
        }
        let before = bench.outcome("no_worker");
        ask(&mut bench);
        assert_eq!(
            bench.outcome("no_worker") - before,
            20,
            "the kernel chooses where nobody is open"
        );
    });
}

#[test]
fn what_a_listener_leaves_behind_finds_another_worker() {
    if lacks("what_a_listener_leaves_behind_finds_another_worker") {
        return;
    }
    let net = Net::new();
    net.server(|| {
        let mut bench = Bench::steered(Policy::Cpu);
        let address = [bench.addresses[1]];
        let held = connects(&net, &address, 0, 20);
        bench.seats[0].set_open(false);
        bench.sockets[1].remove(0);
        let arrived = wait_for("what waited to move", || {
            let arrived = waiting(&bench.sockets[1][0]);
            (!arrived.is_empty()).then_some(arrived)
        });
        assert_eq!((arrived.len(), bench.outcome("migrated")), (20, 20));
        drop(held);
        bench.seats[0].set_open(true);
        let _held = connects(&net, &address, 0, 5);
        assert_eq!(
            bench.outcome("no_socket"),
            5,
            "a socket that is gone leaves the choice to the kernel"
        );
    });
}

#[test]
fn choices_that_come_to_nothing_are_forgotten() {
    if lacks("choices_that_come_to_nothing_are_forgotten") {
        return;
    }
    let net = Net::new();
    net.server(|| {
        let mut bench = Bench::steered(Policy::Least);
        bench.publish([0, 0]);
        let address = bench.addresses[0];
        // SYNs of an address that answers nothing: its replies have nowhere to go.
        net.client(|| {
            for _ in 0..30 {
                drop(begin(None, address));
            }
        });
        for _ in 0..3 {
            bench.time += 2_000_000_000;
            bench.publish([0, 0]);
        }
        let chosen: u64 = bench.steering.stats().workers.iter().map(|worker| worker.chosen).sum();
        assert_eq!(chosen, 30);
        bench.publish([1, 0]);
        let before = bench.steering.stats().workers[1].chosen;
        let _held = connects(&net, &[address], 0, 5);
        let now = bench.steering.stats().workers[1].chosen;
        assert_eq!(now - before, 5, "one request outweighs what is forgotten");
    });
}
