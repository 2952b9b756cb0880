//! `steering`: which worker takes a connection, and the program in front of the network stack.
//!
//! Attaches nothing. Invariant: what is said of that program without an interface for it is a fault, not without effect.

use super::{
    super::{
        Problems, Steering, SteeringMode, SteeringPolicy, Xdp, XdpMode,
        field::{Amount, At},
        node::quoted,
        problem::Place,
        raw,
        steering::Blocklist,
    },
    Reader,
};

/// The words of `mode`.
pub(in crate::config) const MODES: [(&str, SteeringMode); 5] = [
    ("auto", SteeringMode::Auto),
    ("ebpf", SteeringMode::Ebpf),
    ("cpu", SteeringMode::Cpu),
    ("hash", SteeringMode::Hash),
    ("off", SteeringMode::Off),
];
/// The words of `policy`.
pub(in crate::config) const STEERING_POLICIES: [(&str, SteeringPolicy); 3] = [
    ("local", SteeringPolicy::Local),
    ("least", SteeringPolicy::Least),
    ("cpu", SteeringPolicy::Cpu),
];
/// The words of `xdp.mode`.
pub(in crate::config) const XDP_MODES: [(&str, XdpMode); 3] = [
    ("auto", XdpMode::Auto),
    ("native", XdpMode::Native),
    ("generic", XdpMode::Generic),
];

/// Longest name of an interface, in bytes: the kernel's own limit.
const LONGEST_NAME: usize = 15;
/// Highest `syn_rate`.
const MOST_SYNS: u32 = 1_000_000;
/// Largest file of prefixes: the most that are possible, at their longest.
const MAX_BLOCKLIST: u64 = 8 << 20;

impl Reader<'_> {
    /// The section.
    pub(super) fn steering(&mut self, raw: raw::Steering) -> Steering {
        Steering {
            mode: self.word(raw.mode, &MODES, SteeringMode::Auto),
            policy: self.word(raw.policy, &STEERING_POLICIES, SteeringPolicy::Local),
            xdp: self.xdp(raw.xdp.section()),
        }
    }

    fn xdp(&mut self, raw: raw::Xdp) -> Option<Xdp> {
        let interface = raw.interface.set();
        let rate = raw.syn_rate.set();
        let blocklist = raw.blocklist.set();
        let Some(interface) = interface else {
            const TEXT: &str = "there is no interface to do this on: add `interface: NAME`";
            if let Some(rate) = rate {
                rate.fault(&mut self.problems, TEXT);
            }
            if let Some(blocklist) = blocklist {
                blocklist.fault(&mut self.problems, TEXT);
            }
            self.word(raw.mode, &XDP_MODES, XdpMode::Auto);
            return None;
        };
        self.interface(&interface);
        Some(Xdp {
            interface: interface.value,
            mode: self.word(raw.mode, &XDP_MODES, XdpMode::Auto),
            syn_rate: rate.and_then(|rate| self.rate(&rate)),
            blocklist: blocklist.and_then(|path| {
                let file = self.path(&path);
                Some((file.clone(), self.blocklist(&file)?))
            }),
        })
    }

    fn interface(&mut self, given: &At<String>) {
        let name = given.value.as_str();
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains(odd) {
            let text = format!("{} names no interface: give a name such as eth0", quoted(name));
            given.fault(&mut self.problems, text);
        }
    }

    /// A number of SYNs a second, with or without the unit.
    fn rate(&mut self, given: &At<Amount>) -> Option<u32> {
        let text = given.value.0.trim();
        let number = text.strip_suffix("/s").unwrap_or(text).trim().parse().ok();
        let rate = number.filter(|rate| (1..=MOST_SYNS).contains(rate));
        if rate.is_none() {
            let text = format!(
                "{} is not possible: give a number a second from 1 to {MOST_SYNS}, such as 2000/s",
                quoted(text)
            );
            given.fault(&mut self.problems, text);
        }
        rate
    }

    fn blocklist(&mut self, path: &std::path::Path) -> Option<Blocklist> {
        let mut problems = Problems::of(&path.display().to_string());
        match self.surroundings.read(path, MAX_BLOCKLIST) {
            Err(error) => problems.whole(format!("the blocked prefixes cannot be read: {error}")),
            Ok(text) => match Blocklist::read(&text) {
                Ok(list) => return Some(list),
                Err(error) => {
                    let place = Place {
                        line: u32::try_from(error.line).unwrap_or(u32::MAX),
                        column: 1,
                    };
                    problems.bare(place, error.text);
                }
            },
        }
        self.problems.append(problems);
        None
    }
}
