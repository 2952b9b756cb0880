//! Steps of steering, from the best to none: eBPF, classic BPF by CPU, the kernel's hash, one listener for all.
//!
//! The first one that is wanted and works is in force; nothing keeps the gateway from serving. Invariant: each step that
//! is not taken has its reason.

use std::{
    fmt, fs,
    net::SocketAddr,
    os::fd::BorrowedFd,
    path::Path,
    sync::{Mutex, PoisonError},
};

use zerohop_abi::steer;

use crate::{
    Refusal, Seat, classic,
    program::Program,
    status::{SteeringStats, WorkerStats},
    sys,
    watch::{Change, Watch},
};

/// Where the ladder begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At the best step; the classic one only where it would not send everything to one worker.
    Auto,
    /// At eBPF.
    Ebpf,
    /// At classic BPF by CPU.
    Cpu,
    /// At the kernel's hash.
    Hash,
    /// One listener, from which all workers take.
    Off,
}

/// Whom eBPF chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The worker of the core on which the packet arrived, unless it has much more to do than the least.
    Local,
    /// The one with the least to do.
    Least,
    /// The worker of the core, in any case.
    Cpu,
}

impl From<Policy> for steer::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Local => Self::Local,
            Policy::Least => Self::Least,
            Policy::Cpu => Self::Cpu,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Least => "least",
            Self::Cpu => "cpu",
        })
    }
}

/// What chooses the worker of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// The program, by load.
    Ebpf,
    /// A classic program, by CPU.
    Classic,
    /// The kernel's hash of addresses and ports.
    Hash,
    /// Nobody: all workers take from one listener.
    Single,
}

impl Rung {
    /// Every step, with its name.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Ebpf, "ebpf"),
        (Self::Classic, "cpu"),
        (Self::Hash, "hash"),
        (Self::Single, "off"),
    ];
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ebpf => "eBPF",
            Self::Classic => "classic BPF, by CPU",
            Self::Hash => "the kernel's hash",
            Self::Single => "one listener for all workers",
        })
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Where the ladder begins.
    pub mode: Mode,
    /// Whom eBPF chooses.
    pub policy: Policy,
}

/// An address, and a listening socket of it for each worker, in their order, bound in that order with `SO_REUSEPORT`.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The address.
    pub address: SocketAddr,
    /// The sockets.
    pub sockets: Vec<BorrowedFd<'a>>,
}

/// Steering as it is in force.
pub struct Steering {
    rung: Rung,
    reasons: Vec<String>,
    program: Option<Program>,
    policy: Mutex<Policy>,
    watch: Mutex<Watch>,
}

impl Steering {
    /// Goes down the ladder for workers on these cores; `object` is [`crate::STEER`] but in tests.
    ///
    /// Where all workers share one listener (see [`Self::single`]), there is nothing to steer.
    #[must_use]
    pub fn attach(object: &[u8], wanted: Wanted, cores: &[usize], groups: &[Group<'_>]) -> Self {
        let mut reasons = Vec::new();
        let hash = |reasons| Self::without_program(Rung::Hash, reasons, wanted.policy);
        if cores.len() < 2 {
            return hash(vec!["there is one worker".into()]);
        }
        if matches!(wanted.mode, Mode::Hash | Mode::Off) {
            return hash(vec!["the configuration says so".into()]);
        }
        if wanted.mode == Mode::Cpu {
            reasons.push("eBPF: the configuration says cpu".into());
        } else {
            match Program::attach(object, wanted.policy, cores, groups) {
                Ok(program) => return Self::with_program(program, wanted.policy),
                Err(refusal) => reasons.push(format!("eBPF: {refusal}")),
            }
        }
        match classic(wanted, cores, groups) {
            Ok(()) => Self::without_program(Rung::Classic, reasons, wanted.policy),
            Err(why) => {
                reasons.push(format!("classic BPF: {why}"));
                hash(reasons)
            }
        }
    }

    /// One listener for all workers, and why.
    #[must_use]
    pub fn single(why: String) -> Self {
        Self::without_program(Rung::Single, vec![why], Policy::Local)
    }

    fn with_program(program: Program, policy: Policy) -> Self {
        Self {
            rung: Rung::Ebpf,
            reasons: Vec::new(),
            watch: Mutex::new(Watch::new(program.workers())),
            program: Some(program),
            policy: Mutex::new(policy),
        }
    }

    fn without_program(rung: Rung, reasons: Vec<String>, policy: Policy) -> Self {
        Self {
            rung,
            reasons,
            program: None,
            policy: Mutex::new(policy),
            watch: Mutex::new(Watch::new(0)),
        }
    }

    /// What chooses.
    #[must_use]
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// A worker's side; `None` where the step asks nothing of workers.
    #[must_use]
    pub fn seat(&self, worker: usize) -> Option<Seat> {
        let program = self.program.as_ref().filter(|program| worker < program.workers())?;
        Some(Seat::new(program.table().clone(), worker))
    }

    /// Puts a policy in force; steps other than eBPF have none.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Refusal> {
        if let Some(program) = &self.program {
            program.set_policy(policy)?;
        }
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
        Ok(())
    }

    /// Looks whether the workers' loops turn, once a second or so, and takes those that do not out of the choice until
    /// they do. Wake every worker after this, so that one that sleeps turns once before the next look.
    pub fn look(&self) -> Vec<Change> {
        let Some(program) = &self.program else {
            return Vec::new();
        };
        let table = program.table();
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = watch.look(|worker| table.beats(worker));
        for change in &changes {
            match *change {
                Change::Hangs(worker) => table.set_alive(worker, false),
                Change::Turns(worker) => table.set_alive(worker, true),
            }
        }
        changes
    }

    /// How often the kernel ran the program: it counts that while somebody asks it to (`kernel.bpf_stats_enabled`).
    #[must_use]
    pub fn runs(&self) -> Option<u64> {
        self.program.as_ref()?.runs()
    }

    /// How it stands.
    #[must_use]
    pub fn stats(&self) -> SteeringStats {
        let program = self.program.as_ref();
        let worker = |table: &crate::seat::Table, worker| WorkerStats {
            score: table.score(worker),
            chosen: table.chosen(worker),
            open: table.is_open(worker),
            alive: table.is_alive(worker),
        };
        let workers = program.map(|program| (0..program.workers()).map(|at| worker(program.table(), at)).collect());
        SteeringStats {
            rung: self.rung,
            policy: program.map(|_| *self.policy.lock().unwrap_or_else(PoisonError::into_inner)),
            reasons: self.reasons.clone(),
            workers: workers.unwrap_or_default(),
            outcomes: program.map(Program::outcomes).unwrap_or_default(),
        }
    }
}

/// One line for the log.
impl fmt::Display for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "steering by {}", self.rung)?;
        if self.program.is_some() {
            write!(
                f,
                ", policy {}",
                *self.policy.lock().unwrap_or_else(PoisonError::into_inner)
            )?;
        }
        match self.reasons.as_slice() {
            [] => Ok(()),
            reasons => write!(f, " ({})", reasons.join("; ")),
        }
    }
}

/// The second step.
fn classic(wanted: Wanted, cores: &[usize], groups: &[Group<'_>]) -> Result<(), String> {
    // Everything would go to the one CPU that the interface interrupts; the hash spreads it.
    if wanted.mode == Mode::Auto
        && let Some(name) = one_queue(Path::new("/sys/class/net"))
    {
        return Err(format!(
            "{name} has one receive queue, so one worker would get everything"
        ));
    }
    let program = classic::program(cores);
    for group in groups {
        let Some(socket) = group.sockets.first() else { continue };
        sys::attach_classic(*socket, &program).map_err(|error| {
            let refusal = Refusal::of(format!("attach it to {}", group.address), &error);
            refusal.to_string()
        })?;
    }
    Ok(())
}

/// An interface other than loopback that is up and has one receive queue.
fn one_queue(interfaces: &Path) -> Option<String> {
    let mut names: Vec<_> = fs::read_dir(interfaces).ok()?.filter_map(Result::ok).collect();
    names.sort_by_key(fs::DirEntry::file_name);
    names.into_iter().find_map(|entry| {
        let up = fs::read_to_string(entry.path().join("operstate")).is_ok_and(|state| state.trim() == "up");
        let queues = fs::read_dir(entry.path().join("queues")).ok()?;
        let receive = queues
            .filter_map(Result::ok)
            .filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-"))
            .count();
        let name = entry.file_name().to_string_lossy().into_owned();
        (up && receive == 1 && name != "lo").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_with_one_queue_is_found() {
        let folder = std::env::temp_dir().join(format!("zerohop-queues-{}", std::process::id()));
        for (name, state, queues) in [("lo", "unknown", 1), ("eth0", "up", 2), ("eth1", "down", 1)] {
            for queue in 0..queues {
                fs::create_dir_all(folder.join(format!("{name}/queues/rx-{queue}"))).unwrap();
            }
            fs::create_dir_all(folder.join(format!("{name}/queues/tx-0"))).unwrap();
            fs::write(folder.join(name).join("operstate"), format!("{state}\n")).unwrap();
        }
        assert_eq!(one_queue(&folder), None);
        fs::write(folder.join("eth1/operstate"), "up\n").unwrap();
        assert_eq!(one_queue(&folder).as_deref(), Some("eth1"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_not_wanted_is_not_tried() {
        for (mode, workers, why) in [
            (Mode::Auto, 1, "one worker"),
            (Mode::Hash, 2, "configuration"),
            (Mode::Off, 2, "configuration"),
        ] {
            let policy = Policy::Least;
            let cores: Vec<usize> = (0..workers).collect();
            let steering = Steering::attach(&[], Wanted { mode, policy }, &cores, &[]);
            assert_eq!(steering.rung(), Rung::Hash);
            assert!(steering.to_string().contains(why), "{steering}");
            assert!(steering.seat(0).is_none());
        }
    }

    #[test]
    fn an_object_that_is_none_leads_down_the_ladder() {
        let wanted = Wanted {
            mode: Mode::Ebpf,
            policy: Policy::Local,
        };
        let steering = Steering::attach(b"no object", wanted, &[0, 1], &[]);
        assert_eq!(steering.rung(), Rung::Classic);
        assert!(
            steering.to_string().contains("eBPF: cannot make the maps"),
            "{steering}"
        );
    }
}
