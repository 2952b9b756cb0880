//! `guard` on an interface: attached, told where the gateway listens and whom to keep out, read.
//!
//! It sees nothing but what the program counts. Invariants: the program is attached by a link that this process owns, so
//! that it is gone when the process is, however that ended; another program that is attached stays.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, RingBuf, lpm_trie::Key},
    programs::{TestRun, TestRunOptions, Xdp, links::FdLink, xdp},
};
use zerohop_abi::guard::{self, Door, Event, MAX_DOORS, Settings, Verdict};

use crate::{Blocklist, Prefix, Refusal, sys::Plain};

/// Where a program may be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, else in the stack.
    Auto,
    /// In the driver.
    Native,
    /// In the stack, which every interface can.
    Generic,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardOptions {
    /// Name of the interface.
    pub interface: String,
    /// Where.
    pub mode: XdpMode,
    /// SYNs that one source may send a second, and at once; `None`: any number.
    pub syn_rate: Option<u32>,
}

/// Where it is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XdpUsed {
    /// In the driver.
    Native,
    /// In the stack; and why, if it was not asked for.
    Generic(Option<String>),
}

/// What it has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardStats {
    /// The interface.
    pub interface: String,
    /// Whether it sits in the driver.
    pub native: bool,
    /// Packets, by name of the verdict.
    pub verdicts: Vec<(&'static str, u64)>,
    /// Blocked prefixes.
    pub prefixes: u64,
}

/// A packet that was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Who sent it.
    pub source: IpAddr,
    /// The gateway's port.
    pub port: u16,
    /// Why: `blocked` or `limited`.
    pub why: &'static str,
}

/// The program on an interface; dropping it takes the program away.
pub struct Guard {
    options: GuardOptions,
    used: XdpUsed,
    maps: Maps,
    view: Arc<GuardView>,
    blocked: Blocklist,
    _link: FdLink,
    ebpf: Ebpf,
}

impl Guard {
    /// Loads the program, tells it all, then attaches it; `object` is [`crate::GUARD`].
    ///
    /// # Errors
    /// What the kernel refused; nothing is attached then.
    pub fn attach(
        object: &[u8],
        options: GuardOptions,
        listen: &[SocketAddr],
        blocklist: Blocklist,
    ) -> Result<Self, Refusal> {
        let mut ebpf = EbpfLoader::new()
            .load(object)
            .map_err(|error| Refusal::of("make the maps of the guard", &error))?;
        let loaded = program(&mut ebpf)?.load();
        loaded.map_err(|error| Refusal::of("load the guard", &error))?;
        doors(&mut ebpf, listen)?;
        let mut maps = Maps::take(&mut ebpf)?;
        maps.change(&options, &Blocklist::default(), &blocklist)?;
        let verdicts = taken(&mut ebpf, guard::VERDICTS)?;
        let (link, used) = attach(&mut ebpf, &options)?;
        let view = GuardView {
            verdicts,
            interface: options.interface.clone(),
            native: used == XdpUsed::Native,
            prefixes: AtomicUsize::new(blocklist.len()),
        };
        Ok(Self {
            options,
            used,
            maps,
            view: Arc::new(view),
            blocked: blocklist,
            _link: link,
            ebpf,
        })
    }

    /// Replaces the blocked prefixes and the rate of SYNs. There is no moment without those that stay.
    ///
    /// # Errors
    /// What the kernel refused; then the old ones stay.
    pub fn change(&mut self, syn_rate: Option<u32>, blocklist: Blocklist) -> Result<(), Refusal> {
        let options = GuardOptions {
            syn_rate,
            ..self.options.clone()
        };
        self.maps.change(&options, &self.blocked, &blocklist)?;
        self.view.prefixes.store(blocklist.len(), Ordering::Relaxed);
        self.blocked = blocklist;
        self.options = options;
        Ok(())
    }

    /// Where it is attached.
    #[must_use]
    pub fn used(&self) -> &XdpUsed {
        &self.used
    }

    /// What it has seen, for other threads.
    #[must_use]
    pub fn view(&self) -> Arc<GuardView> {
        Arc::clone(&self.view)
    }

    /// Some of the packets that were dropped since the last call; the oldest first, at most as many as the ring holds.
    pub fn dropped(&mut self) -> Vec<Dropped> {
        const MOST: usize = guard::EVENTS_BYTES as usize / size_of::<Event>();
        let mut found = Vec::new();
        while found.len() < MOST
            && let Some(entry) = self.maps.events.next()
        {
            found.extend(dropped(&entry));
        }
        found
    }

    /// Whether the program lets a frame of Ethernet pass: runs it without a network. It counts as any other.
    ///
    /// # Errors
    /// What the kernel said: it refuses frames shorter than an Ethernet header.
    pub fn passes(&self, frame: &[u8]) -> Result<bool, Refusal> {
        let program = self.ebpf.program(guard::PROGRAM).ok_or_else(no_program)?;
        let program: &Xdp = program.try_into().map_err(|_| no_program())?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        let result = program
            .test_run(options)
            .map_err(|error| Refusal::of("try a packet", &error))?;
        Ok(result.return_value == XDP_PASS)
    }
}

/// What a program answers of a packet that goes on.
const XDP_PASS: u32 = 2;

/// What a guard has seen; reading it waits for nobody.
pub struct GuardView {
    verdicts: PerCpuArray<MapData, u64>,
    interface: String,
    native: bool,
    prefixes: AtomicUsize,
}

impl GuardView {
    /// What it has seen so far.
    #[must_use]
    pub fn stats(&self) -> GuardStats {
        let sum = |verdict: Verdict| Some(self.verdicts.get(&(verdict as u32), 0).ok()?.iter().sum());
        GuardStats {
            interface: self.interface.clone(),
            native: self.native,
            verdicts: Verdict::ALL
                .into_iter()
                .filter_map(|(verdict, name)| Some((name, sum(verdict)?)))
                .collect(),
            prefixes: self.prefixes.load(Ordering::Relaxed) as u64,
        }
    }
}

/// One line for the log.
impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard on {}", self.options.interface)?;
        match &self.used {
            XdpUsed::Native => f.write_str(" in the driver")?,
            XdpUsed::Generic(None) => f.write_str(" in the stack")?,
            XdpUsed::Generic(Some(why)) => write!(f, " in the stack ({why})")?,
        }
        write!(f, ", {} blocked prefixes", self.blocked.len())?;
        match self.options.syn_rate {
            Some(rate) => write!(f, ", {rate} new connections a second and source"),
            None => Ok(()),
        }
    }
}

/// The maps that are used while the program runs.
struct Maps {
    settings: Array<MapData, Plain<Settings>>,
    block4: LpmTrie<MapData, [u8; 4], u32>,
    block6: LpmTrie<MapData, [u8; 16], u32>,
    events: RingBuf<MapData>,
}

impl Maps {
    fn take(ebpf: &mut Ebpf) -> Result<Self, Refusal> {
        Ok(Self {
            settings: taken(ebpf, guard::SETTINGS)?,
            block4: taken(ebpf, guard::BLOCK4)?,
            block6: taken(ebpf, guard::BLOCK6)?,
            events: taken(ebpf, guard::EVENTS)?,
        })
    }

    /// From one list to another. New prefixes come first, so that none that stays is ever missing.
    fn change(&mut self, options: &GuardOptions, old: &Blocklist, new: &Blocklist) -> Result<(), Refusal> {
        let added: Vec<Prefix> = new.without(old).collect();
        for (at, prefix) in added.iter().enumerate() {
            if let Err(error) = self.insert(*prefix) {
                for before in &added[..at] {
                    // What cannot be taken back blocks too much, and is gone with the next list.
                    let _ = self.remove(*before);
                }
                return Err(Refusal::of(format!("block {prefix}"), &error));
            }
        }
        let (prefixes4, prefixes6) = new.by_family();
        let (syn_cost, syn_credit) = options.syn_rate.map_or((0, 0), |rate| {
            const SECOND: u64 = 1_000_000_000;
            (SECOND / u64::from(rate.max(1)), SECOND)
        });
        let settings = Settings {
            syn_cost,
            syn_credit,
            prefixes4,
            prefixes6,
        };
        self.settings
            .set(0, Plain(settings), 0)
            .map_err(|error| Refusal::of("set the guard", &error))?;
        for prefix in old.without(new) {
            self.remove(prefix)
                .map_err(|error| Refusal::of(format!("unblock {prefix}"), &error))?;
        }
        Ok(())
    }

    fn insert(&mut self, prefix: Prefix) -> Result<(), MapError> {
        let length = u32::from(prefix.length());
        match prefix.address() {
            IpAddr::V4(ip) => self.block4.insert(&Key::new(length, ip.octets()), 1, 0),
            IpAddr::V6(ip) => self.block6.insert(&Key::new(length, ip.octets()), 1, 0),
        }
    }

    fn remove(&mut self, prefix: Prefix) -> Result<(), MapError> {
        let length = u32::from(prefix.length());
        match prefix.address() {
            IpAddr::V4(ip) => self.block4.remove(&Key::new(length, ip.octets())),
            IpAddr::V6(ip) => self.block6.remove(&Key::new(length, ip.octets())),
        }
    }
}

fn no_program() -> Refusal {
    Refusal::new("load the guard", "the object holds none of that name")
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, Refusal> {
    let program = ebpf.program_mut(guard::PROGRAM).ok_or_else(no_program)?;
    program.try_into().map_err(|_| no_program())
}

fn no_map(name: &str) -> Refusal {
    Refusal::new("use the guard", format!("the object has no map {name} of that kind"))
}

fn taken<T: TryFrom<Map>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Refusal> {
    let map = ebpf.take_map(name).ok_or_else(|| no_map(name))?;
    T::try_from(map).map_err(|_| no_map(name))
}

/// Tells the program where the gateway listens.
fn doors(ebpf: &mut Ebpf, listen: &[SocketAddr]) -> Result<(), Refusal> {
    if listen.len() > MAX_DOORS as usize {
        return Err(Refusal::new(
            "guard",
            format!("there are more than {MAX_DOORS} addresses"),
        ));
    }
    let map = ebpf.map_mut(guard::DOORS).ok_or_else(|| no_map(guard::DOORS))?;
    let mut doors: HashMap<_, Plain<Door>, u32> = map.try_into().map_err(|_| no_map(guard::DOORS))?;
    for address in listen {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let door = Door {
            address: ip.octets(),
            port: u32::from(address.port()),
        };
        doors
            .insert(Plain(door), 1, 0)
            .map_err(|error| Refusal::of(format!("guard {address}"), &error))?;
    }
    Ok(())
}

/// Attaches in the driver or in the stack.
fn attach(ebpf: &mut Ebpf, options: &GuardOptions) -> Result<(FdLink, XdpUsed), Refusal> {
    let name = &options.interface;
    let program = program(ebpf)?;
    let native = match options.mode {
        XdpMode::Generic => None,
        XdpMode::Auto | XdpMode::Native => match link(program, name, xdp::XdpMode::Driver) {
            Ok(link) => return Ok((link, XdpUsed::Native)),
            Err(refusal) if options.mode == XdpMode::Native || is_final(&refusal) => return Err(refusal),
            Err(refusal) => Some(refusal.to_string()),
        },
    };
    link(program, name, xdp::XdpMode::Skb).map(|link| (link, XdpUsed::Generic(native)))
}

/// Whether the other mode would meet the same refusal.
fn is_final(refusal: &Refusal) -> bool {
    matches!(refusal.errno(), Some(libc::EPERM | libc::EBUSY | libc::ENODEV))
}

fn link(program: &mut Xdp, name: &str, mode: xdp::XdpMode) -> Result<FdLink, Refusal> {
    let place = match mode {
        xdp::XdpMode::Driver => "in its driver",
        _ => "in the stack",
    };
    let doing = || format!("guard {name} {place}");
    // The library would take a name with a zero byte for a bug of ours.
    if name.contains('\0') {
        return Err(Refusal::new(doing(), "no interface has that name"));
    }
    let id = program
        .attach(name, mode)
        .map_err(|error| Refusal::of(doing(), &error))?;
    // The library falls back to an attachment that outlives its process, and tells it only so.
    if !format!("{id:?}").contains("FdLink") {
        // It was ours a moment ago; where that fails there is nothing else to do.
        let _ = program.detach(id);
        return Err(Refusal::new(
            doing(),
            "the kernel gives no link that ends with the process",
        ));
    }
    let link = program.take_link(id).map_err(|error| Refusal::of(doing(), &error))?;
    FdLink::try_from(link).map_err(|error| Refusal::of(doing(), &error))
}

/// An event as it lies in the ring.
fn dropped(bytes: &[u8]) -> Option<Dropped> {
    let source: [u8; 16] = *bytes.first_chunk()?;
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let (port, verdict) = (word(16)?, word(20)?);
    let (_, why) = Verdict::ALL.into_iter().find(|(known, _)| *known as u32 == verdict)?;
    Some(Dropped {
        source: Ipv6Addr::from(source).to_canonical(),
        port: port as u16,
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let mut bytes = [0; 24];
        bytes[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
        bytes[16..20].copy_from_slice(&8080_u32.to_ne_bytes());
        bytes[20..].copy_from_slice(&(Verdict::Limited as u32).to_ne_bytes());
        let expected = Dropped {
            source: "192.0.2.1".parse().unwrap(),
            port: 8080,
            why: "limited",
        };
        assert_eq!(dropped(&bytes), Some(expected));
        assert_eq!(dropped(&bytes[..23]), None);
        bytes[20] = 99;
        assert_eq!(dropped(&bytes), None);
    }
}
