//! The first step of the ladder: `steer` loaded, its maps filled, attached to every group of sockets.
//!
//! Invariant: when it is attached, its maps are complete; if it cannot be attached to one group, it is attached to none.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap, Map, MapData, PerCpuArray, ReusePortSockArray},
    programs::SkReuseport,
};
use zerohop_abi::steer::{self, Count, MAX_CPUS, MAX_GROUPS, MAX_WORKERS, Settings};

use crate::{
    Group, Policy, Refusal,
    seat::Table,
    sys::{Plain, Rows},
};

/// By how much a core's own worker may exceed the least under `local`, in open connections.
const MARGIN: u64 = 16;

/// The attached program.
pub(crate) struct Program {
    /// Keeps the program and the maps that are not below.
    _ebpf: Ebpf,
    table: Arc<Table>,
    settings: Mutex<Array<MapData, Plain<Settings>>>,
    counts: PerCpuArray<MapData, u64>,
    workers: usize,
}

impl Program {
    /// Loads and attaches this object.
    pub(crate) fn attach(
        object: &[u8],
        policy: Policy,
        cores: &[usize],
        groups: &[Group<'_>],
    ) -> Result<Self, Refusal> {
        check(cores, groups)?;
        let mut ebpf = EbpfLoader::new()
            .map_max_entries(steer::SOCKETS, (groups.len() * cores.len()) as u32)
            .load(object)
            .map_err(|error| Refusal::of("make the maps of the steering program", &error))?;
        load(&mut ebpf)?;
        let this = Self {
            table: Arc::new(Table {
                workers: rows(&ebpf, steer::WORKERS)?,
                chosen: rows(&ebpf, steer::CHOSEN)?,
            }),
            settings: Mutex::new(taken(&mut ebpf, steer::SETTINGS)?),
            counts: taken(&mut ebpf, steer::COUNTS)?,
            workers: cores.len(),
            _ebpf: {
                homes(&mut ebpf, cores)?;
                sockets(&mut ebpf, cores.len(), groups)?;
                ebpf
            },
        };
        for worker in 0..cores.len() {
            this.table.set_alive(worker, true);
            crate::Seat::new(Arc::clone(&this.table), worker).set_open(true);
        }
        this.set_policy(policy)?;
        this.bind(groups)?;
        Ok(this)
    }

    /// Puts a policy in force.
    pub(crate) fn set_policy(&self, policy: Policy) -> Result<(), Refusal> {
        let settings = Settings {
            workers: self.workers as u32,
            policy: steer::Policy::from(policy) as u32,
            margin: MARGIN,
        };
        self.settings()
            .set(0, Plain(settings), 0)
            .map_err(|error| Refusal::of("set the policy of the steering program", &error))
    }

    fn settings(&self) -> MutexGuard<'_, Array<MapData, Plain<Settings>>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// What the program has counted, over all CPUs.
    pub(crate) fn outcomes(&self) -> Vec<(&'static str, u64)> {
        let sum = |count: Count| Some(self.counts.get(&(count as u32), 0).ok()?.iter().sum());
        Count::ALL
            .into_iter()
            .filter_map(|(count, name)| Some((name, sum(count)?)))
            .collect()
    }

    /// How often the kernel ran the program, if it counts that.
    pub(crate) fn runs(&self) -> Option<u64> {
        Some(self.program().ok()?.info().ok()?.run_count())
    }

    fn bind(&self, groups: &[Group<'_>]) -> Result<(), Refusal> {
        for (at, group) in groups.iter().enumerate() {
            let Some(socket) = group.sockets.first() else { continue };
            if let Err(error) = self.program()?.attach(socket) {
                for before in groups[..at].iter().filter_map(|group| group.sockets.first()) {
                    // It falls to the kernel's hash; a program that stays attached would only do the same.
                    let _ = SkReuseport::detach(before);
                }
                let doing = format!("attach the steering program to {}", group.address);
                return Err(Refusal::of(doing, &error));
            }
        }
        Ok(())
    }

    fn program(&self) -> Result<&SkReuseport, Refusal> {
        let program = self._ebpf.program(steer::PROGRAM);
        program
            .and_then(|program| program.try_into().ok())
            .ok_or_else(no_program)
    }
}

fn check(cores: &[usize], groups: &[Group<'_>]) -> Result<(), Refusal> {
    let few = |what: &str, most: u32| Err(Refusal::new("steer", format!("there are more than {most} {what}")));
    if cores.len() > MAX_WORKERS as usize {
        return few("workers", MAX_WORKERS);
    }
    if groups.len() > MAX_GROUPS as usize {
        return few("addresses", MAX_GROUPS);
    }
    if cores.iter().any(|core| *core >= MAX_CPUS as usize) {
        return few("CPUs", MAX_CPUS);
    }
    if groups.iter().any(|group| group.sockets.len() != cores.len()) {
        return Err(Refusal::new("steer", "an address has not one socket for each worker"));
    }
    Ok(())
}

fn no_program() -> Refusal {
    Refusal::new("load the steering program", "the object holds none of that name")
}

fn load(ebpf: &mut Ebpf) -> Result<(), Refusal> {
    let program = ebpf.program_mut(steer::PROGRAM).ok_or_else(no_program)?;
    let program: &mut SkReuseport = program.try_into().map_err(|_| no_program())?;
    program
        .load()
        .map_err(|error| Refusal::of("load the steering program", &error))
}

fn no_map(name: &str) -> Refusal {
    Refusal::new(
        "use the steering program",
        format!("the object has no map {name} of that kind"),
    )
}

fn rows(ebpf: &Ebpf, name: &'static str) -> Result<Rows, Refusal> {
    let Some(Map::Array(map)) = ebpf.map(name) else {
        return Err(no_map(name));
    };
    Rows::new(map.fd().as_fd(), MAX_WORKERS as usize).map_err(|error| Refusal::of(format!("map {name}"), &error))
}

/// A map that we keep for ourselves.
fn taken<T: TryFrom<Map>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Refusal> {
    let map = ebpf.take_map(name).ok_or_else(|| no_map(name))?;
    T::try_from(map).map_err(|_| no_map(name))
}

/// A map that is filled once.
fn filled<'a, T: TryFrom<&'a mut Map>>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<T, Refusal> {
    let map = ebpf.map_mut(name).ok_or_else(|| no_map(name))?;
    T::try_from(map).map_err(|_| no_map(name))
}

fn homes(ebpf: &mut Ebpf, cores: &[usize]) -> Result<(), Refusal> {
    let mut homes: Array<_, u32> = filled(ebpf, steer::HOMES)?;
    for (worker, core) in cores.iter().enumerate() {
        set(&mut homes, *core as u32, worker as u32 + 1)?;
    }
    Ok(())
}

fn set<V: Pod>(array: &mut Array<&mut MapData, V>, index: u32, value: V) -> Result<(), Refusal> {
    array
        .set(index, value, 0)
        .map_err(|error| Refusal::of("tell the steering program where workers run", &error))
}

/// The sockets of each group in a row of their own: the kernel refuses a choice across groups.
fn sockets(ebpf: &mut Ebpf, workers: usize, groups: &[Group<'_>]) -> Result<(), Refusal> {
    let refused =
        |group: &Group<'_>, error: &aya::maps::MapError| Refusal::of(format!("steer {}", group.address), error);
    let mut sockets: ReusePortSockArray<_> = filled(ebpf, steer::SOCKETS)?;
    for (at, group) in groups.iter().enumerate() {
        for (worker, socket) in group.sockets.iter().enumerate() {
            let slot = (at * workers + worker) as u32;
            sockets
                .set(slot, &Raw(*socket), 0)
                .map_err(|error| refused(group, &error))?;
        }
    }
    let mut known: HashMap<_, Plain<steer::Group>, u32> = filled(ebpf, steer::GROUPS)?;
    for (at, group) in groups.iter().enumerate() {
        known
            .insert(Plain(key(group.address)), (at * workers) as u32, 0)
            .map_err(|error| refused(group, &error))?;
    }
    Ok(())
}

/// A socket as the map wants it.
struct Raw<'a>(BorrowedFd<'a>);

impl AsRawFd for Raw<'_> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

/// An address as the kernel shows it of a socket.
fn key(address: SocketAddr) -> steer::Group {
    let mut words = [0; 4];
    let family = match address.ip() {
        IpAddr::V4(ip) => {
            words[0] = u32::from_ne_bytes(ip.octets());
            libc::AF_INET
        }
        IpAddr::V6(ip) => {
            for (word, bytes) in words.iter_mut().zip(ip.octets().chunks_exact(4)) {
                *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            libc::AF_INET6
        }
    };
    steer::Group {
        family: family as u32,
        port: u32::from(address.port()),
        address: words,
    }
}
