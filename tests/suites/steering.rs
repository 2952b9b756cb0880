//! Which worker takes a connection, and what is kept out, in a network namespace of the test's own.
//!
//! Invariant: whatever the kernel refuses, the gateway serves.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::json;
use socket2::Socket;
use zerohop_tests::{
    gateway::{Gateway, Settings, binary},
    http::{self, Client},
    metrics::Metrics,
    net::{Net, begin, lacks_bpf, pin},
    scratch::Scratch,
    wait::{find_within, wait_for},
};

use crate::ask::{CHAT, chat, text_of};

const CAPITAL: &str = "What is the capital of France?";
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn two_workers(mode: &str, policy: &str) -> Settings {
    Settings::default()
        .with("/server/workers", json!([0, 1]))
        .with("/steering/mode", mode)
        .with("/steering/policy", policy)
}

fn serves(gateway: &Gateway) {
    let response = http::post(gateway.address(), CHAT, &chat(CAPITAL));
    assert!(text_of(&response).contains("Paris"), "{}", gateway.log());
}

/// Connections accepted so far, by worker, as told on one connection that is open already.
struct Accepted(Client);

impl Accepted {
    fn of(gateway: &Gateway) -> Self {
        Self(Client::connect(gateway.address()))
    }

    fn count(&mut self) -> [usize; 2] {
        self.0.send(http::request_bytes("GET", "/metrics"));
        let metrics = Metrics::parse(&self.0.response().text());
        ["0", "1"].map(|worker| {
            metrics.sum("zerohop_connections_accepted_total", &[&format!("worker=\"{worker}\"")]) as usize
        })
    }

    /// Waits until so many more than before are accepted; how many by each.
    fn since(&mut self, before: [usize; 2], connections: usize) -> [usize; 2] {
        wait_for("connections to be accepted", || {
            let now = self.count();
            let split = [now[0] - before[0], now[1] - before[1]];
            (split[0] + split[1] >= connections).then_some(split)
        })
    }
}

fn burst(gateway: &Gateway, connections: usize) -> Vec<Socket> {
    (0..connections).map(|_| begin(LOCALHOST, gateway.address())).collect()
}

#[test]
fn the_gateway_steers_by_load() {
    if lacks_bpf("the_gateway_steers_by_load") {
        return;
    }
    let net = Net::new();
    net.within(|| {
        let settings = two_workers("ebpf", "least");
        let gateway = Gateway::start(&settings);
        assert!(
            gateway.log().contains("steering by eBPF, policy least"),
            "{}",
            gateway.log()
        );
        let mut accepted = Accepted::of(&gateway);
        for round in 0..3 {
            let before = accepted.count();
            let held = burst(&gateway, 100);
            let split = accepted.since(before, 100);
            assert!(
                split.iter().all(|count| (45..=55).contains(count)),
                "burst {round}: {split:?}"
            );
            drop(held);
            wait_for("the connections to end", || {
                let open = Metrics::of(gateway.address());
                (open.sum("zerohop_connections_open", &[]) < 10.0).then_some(())
            });
        }
        // Requests whose bodies never end, all on one worker; then nobody chooses it who looks at load.
        gateway.rewrite(&two_workers("ebpf", "cpu"));
        gateway.signal(Signal::HUP);
        wait_for("the reload", || gateway.log().contains("reloaded in").then_some(()));
        let before = accepted.count();
        let streams: Vec<Client> = std::thread::scope(|scope| {
            let open = scope.spawn(|| {
                pin(0);
                let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{{");
                let each = (0..12).map(|_| {
                    let mut client = Client::connect(gateway.address());
                    client.send(head.as_bytes());
                    client
                });
                each.collect()
            });
            open.join().unwrap()
        });
        assert_eq!(accepted.since(before, 12), [12, 0], "by the core of the client");
        wait_for("the requests to be seen", || {
            let metrics = Metrics::of(gateway.address());
            (metrics.sum("zerohop_steering_load", &["worker=\"0\""]) >= 12.0 * 9.0).then_some(())
        });
        gateway.rewrite(&settings);
        gateway.signal(Signal::HUP);
        wait_for("the reload", || {
            (gateway.log().matches("reloaded in").count() == 2).then_some(())
        });
        let before = accepted.count();
        let held = burst(&gateway, 60);
        let split = accepted.since(before, 60);
        assert!(split[0] <= 2, "the busy worker gets fewer: {split:?}");
        drop((held, streams));
    });
}

#[test]
fn every_step_serves() {
    if lacks_bpf("every_step_serves") {
        return;
    }
    let net = Net::new();
    net.within(|| {
        for (mode, step, told) in [
            ("auto", "ebpf", "steering by eBPF, policy local"),
            ("ebpf", "ebpf", "steering by eBPF, policy local"),
            (
                "cpu",
                "cpu",
                "steering by classic BPF, by CPU (eBPF: the configuration says cpu)",
            ),
            (
                "hash",
                "hash",
                "steering by the kernel's hash (the configuration says so)",
            ),
            (
                "off",
                "off",
                "steering by one listener for all workers (the configuration says so)",
            ),
        ] {
            let gateway = Gateway::start(&two_workers(mode, "local"));
            assert!(gateway.log().contains(told), "{mode}: {}", gateway.log());
            let metrics = Metrics::of(gateway.address());
            assert!(
                metrics.sum("zerohop_steering_mode", &[&format!("mode=\"{step}\"")]) > 0.0,
                "{mode}"
            );
            (0..4).for_each(|_| serves(&gateway));
        }
    });
}

#[test]
fn an_ordinary_user_is_served_and_told_why() {
    if lacks_bpf("an_ordinary_user_is_served_and_told_why") {
        return;
    }
    let net = Net::new();
    let scratch = Scratch::new().unwrap();
    // Of root's capabilities it keeps only those that let it read the repository wherever that lies.
    let script = format!(
        "#!/bin/sh\nexec setpriv --bounding-set=-all,+dac_override,+dac_read_search \
         --inh-caps=-all,+dac_override,+dac_read_search --ambient-caps=-all,+dac_override,+dac_read_search \
         --reuid=65534 --regid=65534 --clear-groups {} \"$@\"\n",
        binary().display()
    );
    let path = scratch.write("zerohop", script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    net.within(|| {
        let settings = two_workers("auto", "local")
            .with("/steering/xdp/interface", "lo")
            .environment("ZEROHOP_BIN", &path.display().to_string());
        let gateway = Gateway::start(&settings);
        let log = gateway.log();
        let line = |part: &str| {
            log.lines()
                .find(|line| line.contains(part))
                .map(String::from)
                .unwrap_or_default()
        };
        let steering = line("steering by");
        // The step below would send everything to one worker where the card has one queue, which is told too.
        let next = [
            "steering by classic BPF, by CPU (eBPF: ",
            "one receive queue, so one worker",
        ];
        assert!(
            next.iter().any(|step| steering.contains(step)) && steering.contains("not permitted"),
            "{log}"
        );
        let guard = line("no guard");
        assert!(guard.contains("not permitted") && guard.contains("CAP_BPF"), "{log}");
        (0..4).for_each(|_| serves(&gateway));
    });
}

#[test]
fn a_blocklist_is_in_force_after_a_reload_and_gone_with_the_process() {
    if lacks_bpf("a_blocklist_is_in_force_after_a_reload_and_gone_with_the_process") {
        return;
    }
    let net = Net::new();
    let scratch = Scratch::new().unwrap();
    let list = scratch.write("blocked.txt", "127.5.0.0/16 # not this one\n").unwrap();
    net.within(|| {
        let settings = two_workers("auto", "local")
            .with("/steering/xdp/interface", "lo")
            .with("/steering/xdp/blocklist", list.display().to_string());
        let mut gateway = Gateway::start(&settings);
        assert!(gateway.log().contains("guard on lo in the stack"), "{}", gateway.log());
        assert!(net.link().contains("xdp"), "{}", net.link());
        let reaches = |from: &str| {
            let socket = begin(from.parse().unwrap(), gateway.address());
            find_within(Duration::from_millis(400), || socket.peer_addr().ok()).is_some()
        };
        assert!(!reaches("127.5.0.1"));
        assert!(reaches("127.6.0.1"));
        scratch.write("blocked.txt", "127.6.0.0/16\n").unwrap();
        gateway.signal(Signal::HUP);
        wait_for("the reload", || {
            (gateway.log().matches("reloaded in").count() == 1).then_some(())
        });
        assert!(!reaches("127.6.0.1"));
        assert!(reaches("127.5.0.1"));
        scratch.write("blocked.txt", "127.7.0.0/8\n").unwrap();
        gateway.signal(Signal::HUP);
        wait_for("the fault to be told", || {
            gateway.log().contains("blocked.txt:1:1").then_some(())
        });
        assert!(!reaches("127.6.0.1"), "a bad list changes nothing");
        let metrics = Metrics::of(gateway.address());
        assert!(metrics.sum("zerohop_xdp_packets_total", &["verdict=\"blocked\""]) >= 3.0);
        serves(&gateway);
        gateway.signal(Signal::KILL);
        gateway.ended();
        wait_for("the program to be gone", || (!net.link().contains("xdp")).then_some(()));
    });
}
