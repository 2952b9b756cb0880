//! A table of packets, each run through the guard without a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerohop_steer::{Blocklist, GUARD, Guard, GuardOptions, XdpMode};

use crate::net::{Net, lacks};

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const RST: u8 = 0x04;

const DOORS: [&str; 4] = ["10.99.0.1:8080", "[fd99::1]:8080", "0.0.0.0:9000", "[::]:9001"];
const BLOCKED: &str = "192.0.2.0/24\n198.51.100.7\n2001:db8:bad::/48\n";

/// An Ethernet frame, with the tags of these VLANs.
fn frame(tags: &[u16], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in tags {
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0, 5]);
    }
    bytes.extend(kind.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn tcp(port: u16, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[..2].copy_from_slice(&40_000_u16.to_be_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[12] = 5 << 4;
    bytes[13] = flags;
    bytes
}

/// IPv4 with this many words of options, this protocol, and these 16 bits of flags and fragment offset.
fn ipv4_of(source: &str, destination: &str, options: u8, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20 + 4 * usize::from(options)];
    bytes[0] = 4 << 4 | (5 + options);
    let length = bytes.len() + payload.len();
    bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
    bytes[8] = 64;
    bytes[9] = protocol;
    let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    bytes[12..16].copy_from_slice(&octets(source));
    bytes[16..20].copy_from_slice(&octets(destination));
    bytes.extend(payload);
    bytes
}

fn ipv4(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    ipv4_of(source, destination, 0, 6, 0, payload)
}

fn ipv6(source: &str, destination: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes[0] = 6 << 4;
    bytes[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    bytes[6] = next;
    bytes[7] = 64;
    for address in [source, destination] {
        bytes.extend(address.parse::<Ipv6Addr>().unwrap().octets());
    }
    bytes.extend(payload);
    bytes
}

/// An extension header of this many bytes in front of a payload.
fn extension(next: u8, length_field: u8, bytes: usize, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; bytes];
    header[0] = next;
    header[1] = length_field;
    header.extend(payload);
    header
}

fn fragment(next: u8, offset: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![next, 0];
    header.extend((offset << 3 | 1).to_be_bytes());
    header.extend([0; 4]);
    header.extend(payload);
    header
}

/// A frame of IPv4 with a SYN to this door.
fn syn4(source: &str, destination: &str, port: u16) -> Vec<u8> {
    frame(&[], 0x0800, &ipv4(source, destination, &tcp(port, SYN)))
}

fn syn6(source: &str, destination: &str, port: u16) -> Vec<u8> {
    frame(&[], 0x86dd, &ipv6(source, destination, 6, &tcp(port, SYN)))
}

/// What stands in the table: a name, a frame, the verdict.
type Row = (&'static str, Vec<u8>, &'static str);

fn addresses() -> Vec<Row> {
    let (good, bad) = ("10.99.0.2", "192.0.2.1");
    let (good6, bad6) = ("fd99::2", "2001:db8:bad::1");
    vec![
        ("a SYN", syn4(good, "10.99.0.1", 8080), "passed"),
        ("another port", syn4(good, "10.99.0.1", 22), "other"),
        (
            "another port, from a blocked prefix",
            syn4(bad, "10.99.0.1", 22),
            "other",
        ),
        ("another address", syn4(good, "10.99.0.9", 8080), "other"),
        ("another address, blocked", syn4(bad, "10.99.0.9", 8080), "other"),
        ("any address", syn4(good, "10.99.0.9", 9000), "passed"),
        ("any address, blocked", syn4(bad, "10.99.0.9", 9000), "blocked"),
        (
            "any address of the other family",
            syn4(good, "10.99.0.9", 9001),
            "other",
        ),
        ("blocked, first", syn4("192.0.2.0", "10.99.0.1", 8080), "blocked"),
        ("blocked, last", syn4("192.0.2.255", "10.99.0.1", 8080), "blocked"),
        (
            "just below the prefix",
            syn4("192.0.1.255", "10.99.0.1", 8080),
            "passed",
        ),
        ("just above the prefix", syn4("192.0.3.0", "10.99.0.1", 8080), "passed"),
        (
            "one blocked address",
            syn4("198.51.100.7", "10.99.0.1", 8080),
            "blocked",
        ),
        (
            "beside one blocked address",
            syn4("198.51.100.6", "10.99.0.1", 8080),
            "passed",
        ),
        ("a SYN by IPv6", syn6(good6, "fd99::1", 8080), "passed"),
        ("another port by IPv6", syn6(bad6, "fd99::1", 22), "other"),
        ("any address by IPv6", syn6(good6, "fd99::77", 9001), "passed"),
        ("any address by IPv6, blocked", syn6(bad6, "fd99::77", 9001), "blocked"),
        ("any IPv4 address by IPv6", syn6(good6, "fd99::77", 9000), "other"),
        ("blocked by IPv6", syn6(bad6, "fd99::1", 8080), "blocked"),
        (
            "outside the prefix by IPv6",
            syn6("2001:db8:bae::1", "fd99::1", 8080),
            "passed",
        ),
        (
            "IPv4 as IPv6 is IPv6",
            syn6("::ffff:192.0.2.1", "fd99::1", 8080),
            "passed",
        ),
    ]
}

fn segments() -> Vec<Row> {
    let to = |flags| frame(&[], 0x0800, &ipv4("10.99.0.2", "10.99.0.1", &tcp(8080, flags)));
    let blocked = |flags| frame(&[], 0x0800, &ipv4("192.0.2.1", "10.99.0.1", &tcp(8080, flags)));
    let of = |options, protocol, fragment, payload: &[u8]| {
        let packet = ipv4_of("192.0.2.1", "10.99.0.1", options, protocol, fragment, payload);
        frame(&[], 0x0800, &packet)
    };
    let mut short_header = of(0, 6, 0, &tcp(8080, SYN));
    short_header[14] = 0x44;
    let mut wrong_version = of(0, 6, 0, &tcp(8080, SYN));
    wrong_version[14] = 0x55;
    vec![
        ("an ACK", to(ACK), "passed"),
        ("a SYN and ACK", to(SYN | ACK), "passed"),
        ("an RST", to(RST), "passed"),
        ("no flags", to(0), "passed"),
        ("a blocked ACK", blocked(ACK), "blocked"),
        ("a blocked RST", blocked(RST), "blocked"),
        ("one word of options", of(1, 6, 0, &tcp(8080, SYN)), "blocked"),
        ("the most options", of(10, 6, 0, &tcp(8080, SYN)), "blocked"),
        ("UDP", of(0, 17, 0, &tcp(8080, SYN)), "other"),
        ("ICMP", of(0, 1, 0, &[8; 8]), "other"),
        ("the first fragment", of(0, 6, 0x2000, &tcp(8080, SYN)), "blocked"),
        ("not to be fragmented", of(0, 6, 0x4000, &tcp(8080, SYN)), "blocked"),
        ("a later fragment", of(0, 6, 0x2001, &tcp(8080, SYN)), "fragment"),
        ("the last fragment", of(0, 6, 0x1fff, &tcp(8080, SYN)), "fragment"),
        ("a header shorter than a header", short_header, "unreadable"),
        ("the wrong version", wrong_version, "unreadable"),
        ("TCP cut short", of(0, 6, 0, &tcp(8080, SYN)[..19]), "unreadable"),
        ("no TCP at all", of(0, 6, 0, &[]), "unreadable"),
        (
            "options that are not there",
            of(10, 6, 0, &[])[..40].to_vec(),
            "unreadable",
        ),
    ]
}

fn links() -> Vec<Row> {
    let packet = ipv4("192.0.2.1", "10.99.0.1", &tcp(8080, SYN));
    let packet6 = ipv6("2001:db8:bad::1", "fd99::1", 6, &tcp(8080, SYN));
    let whole = frame(&[], 0x0800, &packet);
    vec![
        ("a VLAN", frame(&[0x8100], 0x0800, &packet), "blocked"),
        ("a VLAN by IPv6", frame(&[0x8100], 0x86dd, &packet6), "blocked"),
        ("a provider's VLAN", frame(&[0x88a8], 0x0800, &packet), "blocked"),
        ("two tags", frame(&[0x88a8, 0x8100], 0x0800, &packet), "blocked"),
        (
            "three tags",
            frame(&[0x88a8, 0x8100, 0x8100], 0x86dd, &packet6),
            "blocked",
        ),
        ("four tags", frame(&[0x8100; 4], 0x0800, &packet), "unreadable"),
        (
            "a tag and nothing else",
            frame(&[0x8100], 0x0800, &[])[..16].to_vec(),
            "unreadable",
        ),
        ("ARP", frame(&[], 0x0806, &[0; 28]), "other"),
        ("no payload", frame(&[], 0x0800, &[]), "unreadable"),
        ("IPv4 cut short", whole[..33].to_vec(), "unreadable"),
        (
            "IPv6 cut short",
            frame(&[], 0x86dd, &packet6)[..50].to_vec(),
            "unreadable",
        ),
        ("IPv4 said to be IPv6", frame(&[], 0x86dd, &packet), "unreadable"),
        ("IPv6 said to be IPv4", frame(&[], 0x0800, &packet6), "unreadable"),
        (
            "a full frame",
            frame(&[], 0x0800, &[packet, vec![0; 1_400]].concat()),
            "blocked",
        ),
    ]
}

fn extensions() -> Vec<Row> {
    let segment = tcp(8080, SYN);
    let of = |next, payload: &[u8]| frame(&[], 0x86dd, &ipv6("2001:db8:bad::1", "fd99::1", next, payload));
    let hops = extension(6, 0, 8, &segment);
    let chain = |count: usize| {
        let innermost = segment.clone();
        let (mut payload, mut next) = (innermost, 6);
        for _ in 0..count {
            payload = extension(next, 0, 8, &payload);
            next = 60;
        }
        of(next, &payload)
    };
    vec![
        ("hop by hop", of(0, &hops), "blocked"),
        ("routing of 24 bytes", of(43, &extension(6, 2, 24, &segment)), "blocked"),
        ("destination options", of(60, &hops), "blocked"),
        (
            "authentication of 24 bytes",
            of(51, &extension(6, 4, 24, &segment)),
            "blocked",
        ),
        (
            "the first fragment by IPv6",
            of(44, &fragment(6, 0, &segment)),
            "blocked",
        ),
        (
            "a later fragment by IPv6",
            of(44, &fragment(6, 1, &segment)),
            "fragment",
        ),
        (
            "options before a fragment",
            of(0, &extension(44, 0, 8, &fragment(6, 9, &segment))),
            "fragment",
        ),
        ("as many extensions as are followed", chain(6), "blocked"),
        ("more extensions than are followed", chain(7), "unreadable"),
        (
            "an extension longer than the packet",
            of(60, &extension(6, 255, 8, &segment)),
            "unreadable",
        ),
        ("an extension cut short", of(60, &[6, 0, 0]), "unreadable"),
        (
            "the longest extension",
            of(60, &extension(6, 100, 808, &segment)),
            "blocked",
        ),
        ("UDP by IPv6", of(17, &segment), "other"),
        ("ICMPv6", of(58, &segment), "other"),
        ("no next header", of(59, &segment), "other"),
        ("encrypted", of(50, &segment), "other"),
    ]
}

#[test]
fn packets_are_judged_as_they_deserve() {
    if lacks("packets_are_judged_as_they_deserve") {
        return;
    }
    let rows: Vec<Row> = [addresses(), segments(), links(), extensions()].concat();
    assert!(rows.len() >= 70, "{}", rows.len());
    let net = Net::new();
    net.server(|| {
        let options = GuardOptions {
            interface: "lo".into(),
            mode: XdpMode::Auto,
            syn_rate: None,
        };
        let doors = DOORS.map(|door| door.parse().unwrap());
        let guard = Guard::attach(GUARD, options, &doors, Blocklist::read(BLOCKED).unwrap()).unwrap();
        let view = guard.view();
        for (name, packet, expected) in rows {
            let before = view.stats();
            let passes = guard.passes(&packet).unwrap();
            let counted: Vec<&str> = view
                .stats()
                .verdicts
                .iter()
                .zip(&before.verdicts)
                .filter(|(now, before)| now.1 > before.1)
                .map(|(now, _)| now.0)
                .collect();
            assert_eq!(counted, [expected], "{name}");
            assert_eq!(passes, expected != "blocked", "{name}");
        }
    });
}

#[test]
fn each_source_has_its_own_rate() {
    if lacks("each_source_has_its_own_rate") {
        return;
    }
    let net = Net::new();
    net.server(|| {
        let options = GuardOptions {
            interface: "lo".into(),
            mode: XdpMode::Generic,
            syn_rate: Some(4),
        };
        let doors = DOORS.map(|door| door.parse().unwrap());
        let mut guard = Guard::attach(GUARD, options, &doors, Blocklist::default()).unwrap();
        let passed = |guard: &Guard, packet: &[u8]| (0..20).filter(|_| guard.passes(packet).unwrap()).count();
        // Some time passes between packets, so one or two more may pass.
        let few = 4..=6;
        assert!(few.contains(&passed(&guard, &syn4("10.0.0.1", "10.99.0.1", 8080))));
        assert!(
            few.contains(&passed(&guard, &syn4("10.0.0.2", "10.99.0.1", 8080))),
            "another source"
        );
        assert!(few.contains(&passed(&guard, &syn6("fd00::1", "fd99::1", 8080))));
        assert!(
            passed(&guard, &syn6("fd00::2", "fd99::1", 8080)) <= 2,
            "the same network of 64 bits"
        );
        assert!(
            few.contains(&passed(&guard, &syn6("fd00:0:0:1::2", "fd99::1", 8080))),
            "another network"
        );
        let ack = frame(&[], 0x0800, &ipv4("10.0.0.1", "10.99.0.1", &tcp(8080, ACK)));
        assert_eq!(passed(&guard, &ack), 20, "what is open stays open");
        assert_eq!(
            passed(&guard, &syn4("10.0.0.1", "10.99.0.1", 22)),
            20,
            "other ports are not metered"
        );
        let dropped = guard.dropped();
        let first: IpAddr = "10.0.0.1".parse().unwrap();
        assert!(
            dropped
                .iter()
                .any(|event| (event.source, event.port, event.why) == (first, 8080, "limited")),
            "{dropped:?}"
        );
        guard.change(None, Blocklist::default()).unwrap();
        assert_eq!(
            passed(&guard, &syn4("10.0.0.1", "10.99.0.1", 8080)),
            20,
            "no rate any more"
        );
    });
}
