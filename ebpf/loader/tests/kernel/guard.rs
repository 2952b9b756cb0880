//! The guard on a cable, with real traffic.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    time::{Duration, Instant},
};

use zerohop_steer::{Blocklist, GUARD, Guard, GuardOptions, XdpMode, XdpUsed};

use crate::net::{INTERFACE, Net, SERVER4, SERVER6, begin, connect, lacks, listen, wait_for, waiting};

const PATIENCE: Duration = Duration::from_secs(10);
/// Beyond the first time at which an unanswered SYN is sent again it is known that it was dropped.
const DROPPED: Duration = Duration::from_millis(300);

fn options(mode: XdpMode, syn_rate: Option<u32>) -> GuardOptions {
    GuardOptions {
        interface: INTERFACE.into(),
        mode,
        syn_rate,
    }
}

fn list(text: &str) -> Blocklist {
    Blocklist::read(text).unwrap()
}

fn count(guard: &Guard, verdict: &str) -> u64 {
    let stats = guard.view().stats();
    stats.verdicts.into_iter().find(|(name, _)| *name == verdict).unwrap().1
}

#[test]
fn a_blocked_prefix_gets_no_answer_and_others_do() {
    if lacks("a_blocked_prefix_gets_no_answer_and_others_do") {
        return;
    }
    for (mode, native) in [(XdpMode::Auto, true), (XdpMode::Generic, false)] {
        let net = Net::new();
        net.server(|| {
            let doors: [SocketAddr; 2] = [SERVER4, SERVER6].map(|ip| SocketAddr::new(ip.parse().unwrap(), 8080));
            let _open = doors.map(listen);
            let ssh = listen(SocketAddr::new(SERVER4.parse().unwrap(), 22));
            let blocked = list("10.99.1.0/24\nfd99:0:1::/48\n");
            let mut guard = Guard::attach(GUARD, options(mode, None), &doors, blocked).unwrap();
            assert_eq!(*guard.used() == XdpUsed::Native, native, "{guard}");
            assert!(net.link().contains("prog/xdp"), "{}", net.link());
            let ask = |from: &str, to: SocketAddr, limit| {
                net.client(|| connect(Some(from), to, limit).map(drop).map_err(|error| error.kind()))
            };
            assert_eq!(ask("10.99.0.2", doors[0], PATIENCE), Ok(()));
            assert_eq!(ask("fd99::2", doors[1], PATIENCE), Ok(()));
            assert_eq!(ask("10.99.1.2", doors[0], DROPPED), Err(ErrorKind::TimedOut));
            assert_eq!(ask("fd99:0:1::2", doors[1], DROPPED), Err(ErrorKind::TimedOut));
            let ssh = ssh.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(ask("10.99.1.2", ssh, PATIENCE), Ok(()), "the operator is not cut off");
            assert!(count(&guard, "blocked") >= 2, "{:?}", guard.view().stats());
            guard.change(None, list("10.99.2.0/24\nfd99:0:1::/48\n")).unwrap();
            assert_eq!(ask("10.99.1.2", doors[0], PATIENCE), Ok(()), "no longer blocked");
            assert_eq!(ask("10.99.2.2", doors[0], DROPPED), Err(ErrorKind::TimedOut));
            assert_eq!(
                ask("fd99:0:1::2", doors[1], DROPPED),
                Err(ErrorKind::TimedOut),
                "still blocked"
            );
            drop(guard);
            assert!(!net.link().contains("prog/xdp"), "{}", net.link());
            assert_eq!(ask("10.99.2.2", doors[0], PATIENCE), Ok(()), "nothing is left");
        });
    }
}

/// SYNs that were sent again in this namespace, since there was no answer.
fn repeated_syns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names
        .split(' ')
        .zip(values.split(' '))
        .find(|(name, _)| *name == "TCPSynRetrans");
    found.unwrap().1.parse().unwrap()
}

#[test]
fn a_flood_of_one_source_leaves_another_unharmed() {
    if lacks("a_flood_of_one_source_leaves_another_unharmed") {
        return;
    }
    const FLOOD: usize = 20_000;
    const RATE: u32 = 50;
    let net = Net::new();
    net.server(|| {
        let door = SocketAddr::new(SERVER4.parse().unwrap(), 8080);
        let listener = listen(door);
        let guard = Guard::attach(GUARD, options(XdpMode::Auto, Some(RATE)), &[door], Blocklist::default()).unwrap();
        let started = Instant::now();
        let repeated = net.client(|| {
            for at in 0..FLOOD {
                drop(begin(Some("10.99.1.2"), door));
                // Another client, in the midst of it.
                if at % 1_000 == 0 {
                    connect(Some("10.99.0.2"), door, PATIENCE).unwrap();
                }
            }
            repeated_syns()
        });
        let lasted = started.elapsed();
        wait_for("the other client's connections", || {
            (waiting(&listener).len() >= FLOOD / 1_000).then_some(())
        });
        let (passed, limited) = (count(&guard, "passed"), count(&guard, "limited"));
        let most = u64::from(RATE) * (lasted.as_secs() + 2);
        assert!(
            limited + most >= FLOOD as u64,
            "{limited} dropped, {passed} passed in {lasted:?}"
        );
        assert!(limited < FLOOD as u64);
        assert_eq!(repeated, 0, "SYNs of the other client that had to be sent again");
    });
}

#[test]
fn what_is_attached_already_stays() {
    if lacks("what_is_attached_already_stays") {
        return;
    }
    let net = Net::new();
    net.server(|| {
        let door = SocketAddr::new(SERVER4.parse().unwrap(), 8080);
        let first = Guard::attach(GUARD, options(XdpMode::Auto, None), &[door], Blocklist::default()).unwrap();
        let second = Guard::attach(GUARD, options(XdpMode::Auto, None), &[door], Blocklist::default());
        let refusal = second.map(drop).unwrap_err().to_string();
        assert!(refusal.contains("another program"), "{refusal}");
        assert!(net.link().contains("prog/xdp"));
        drop(first);
        for (name, part) in [("nosuch0", "nosuch0"), ("", "")] {
            let options = GuardOptions {
                interface: name.into(),
                ..options(XdpMode::Auto, None)
            };
            let refusal = Guard::attach(GUARD, options, &[door], Blocklist::default())
                .map(drop)
                .unwrap_err();
            assert!(refusal.to_string().contains(part), "{refusal}");
        }
        let options = GuardOptions {
            interface: "lo".into(),
            ..options(XdpMode::Native, None)
        };
        let refusal = Guard::attach(GUARD, options, &[door], Blocklist::default())
            .map(drop)
            .unwrap_err();
        assert!(refusal.to_string().contains("the driver has no such mode"), "{refusal}");
    });
}
