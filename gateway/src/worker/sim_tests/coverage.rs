//! Which operations met which faults: the table that says whether the simulation looks everywhere.
//!
//! A cell counts how often an operation was done on a connection that a fault had struck, the strike at the operation
//! itself included. Faults of the whole gateway (starvation, reload, drain, a step of the clock) strike every connection
//! that is open. Nothing here decides what happens. Invariant: cells that cannot be met are named, each with its reason,
//! in [`IMPOSSIBLE`]; every other one must be.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use zerohop_ring::sim::{Fault, Notice, Operation, What, WireId};

/// What is done on a connection: by the worker through its ring, or to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Ring(Operation),
    /// A job was handed to an engine.
    Submit,
    /// Mail of an engine came for it.
    Mail,
    /// Its deadline passed.
    Deadline,
    /// The configuration was replaced while it was open.
    Reload,
    Drain,
    Stop,
}

const DEEDS: [(Deed, &str); 16] = [
    (Deed::Ring(Operation::Accept), "accept"),
    (Deed::Ring(Operation::Recv), "recv"),
    (Deed::Ring(Operation::Pause), "pause"),
    (Deed::Ring(Operation::Resume), "resume"),
    (Deed::Ring(Operation::GiveBack), "give back"),
    (Deed::Ring(Operation::Send), "send"),
    (Deed::Ring(Operation::Read), "read"),
    (Deed::Ring(Operation::Finish), "finish"),
    (Deed::Ring(Operation::Close), "close"),
    (Deed::Ring(Operation::Abort), "abort"),
    (Deed::Submit, "submit"),
    (Deed::Mail, "mail"),
    (Deed::Deadline, "deadline"),
    (Deed::Reload, "reload"),
    (Deed::Drain, "drain"),
    (Deed::Stop, "stop"),
];

/// What may go wrong with a connection: in the network and the kernel, or around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Ring(Fault),
    SlowClient,
    Vanished,
    HalfClose,
    ClientReset,
    /// The worker got no turns.
    Starved,
    EngineFull,
    EngineFailed,
    MailboxFull,
    /// The worker refused a request for want of memory.
    MemoryShort,
    Reload,
    Drain,
    Stop,
}

const TROUBLES: [(Trouble, &str); 27] = [
    (Trouble::Ring(Fault::ShortRead), "short read"),
    (Trouble::Ring(Fault::ShortWrite), "short write"),
    (Trouble::Ring(Fault::Reset), "reset"),
    (Trouble::Ring(Fault::LostTail), "lost tail"),
    (Trouble::Ring(Fault::Exhaustion), "no buffer"),
    (Trouble::Ring(Fault::FullQueue), "full SQ"),
    (Trouble::Ring(Fault::HeldCompletion), "full CQ"),
    (Trouble::Ring(Fault::EndedReceive), "ended recv"),
    (Trouble::Ring(Fault::LateCancel), "late cancel"),
    (Trouble::Ring(Fault::Shortage), "shortage"),
    (Trouble::Ring(Fault::Stall), "stall"),
    (Trouble::Ring(Fault::ClockStep), "clock step"),
    (Trouble::Ring(Fault::ShortFileRead), "short file read"),
    (Trouble::Ring(Fault::FailedRead), "failed read"),
    (Trouble::Ring(Fault::SlowRead), "slow read"),
    (Trouble::SlowClient, "slow client"),
    (Trouble::Vanished, "vanished"),
    (Trouble::HalfClose, "half-close"),
    (Trouble::ClientReset, "client reset"),
    (Trouble::Starved, "starved"),
    (Trouble::EngineFull, "engine full"),
    (Trouble::EngineFailed, "engine failed"),
    (Trouble::MailboxFull, "mailbox full"),
    (Trouble::MemoryShort, "memory short"),
    (Trouble::Reload, "reload"),
    (Trouble::Drain, "drain"),
    (Trouble::Stop, "stop"),
];

/// Deeds (all of them, if none is named) that a trouble cannot precede, and why.
const IMPOSSIBLE: [(&[&str], &[&str], &str); 3] = [
    (
        &["accept"],
        &[
            "short read",
            "no buffer",
            "ended recv",
            "late cancel",
            "engine full",
            "engine failed",
            "mailbox full",
        ],
        "nothing is received, cancelled or computed for a connection before it is accepted",
    ),
    // These two go when workers read answers from files; what is then not met, or still called impossible, fails the tests.
    (&["read"], &[], "no worker reads a file yet"),
    (
        &[],
        &["short file read", "failed read", "slow read"],
        "no worker reads a file yet",
    ),
];

/// The table of many runs.
#[derive(Debug, Clone)]
pub(super) struct Table {
    cells: [[u64; TROUBLES.len()]; DEEDS.len()],
    pub(super) runs: u64,
    pub(super) requests: u64,
    /// How often an engine was asked for something that few ask for, in the order of [`SELDOM`].
    pub(super) seldom: [u64; SELDOM.len()],
}

/// What few requests ask for, and answers have.
pub(super) const SELDOM: [&str; 3] = ["several answers", "a call of a tool", "log probabilities"];

impl Default for Table {
    fn default() -> Self {
        Self {
            cells: [[0; TROUBLES.len()]; DEEDS.len()],
            runs: 0,
            requests: 0,
            seldom: [0; SELDOM.len()],
        }
    }
}

fn impossible(deed: &str, trouble: &str) -> Option<&'static str> {
    let named = |names: &[&str], name: &str| names.is_empty() || names.contains(&name);
    let mut rules = IMPOSSIBLE.iter();
    rules
        .find(|(deeds, troubles, _)| named(deeds, deed) && named(troubles, trouble))
        .map(|(.., why)| *why)
}

impl Table {
    pub(super) fn add(&mut self, other: &Self) {
        let mine = self.cells.iter_mut().flatten();
        mine.zip(other.cells.iter().flatten())
            .for_each(|(mine, more)| *mine += more);
        self.runs += other.runs;
        self.requests += other.requests;
        self.seldom
            .iter_mut()
            .zip(other.seldom)
            .for_each(|(mine, more)| *mine += more);
    }

    /// The cells that should have been met and were not, and what no answer had.
    pub(super) fn missing(&self) -> Vec<String> {
        let seldom = SELDOM.iter().zip(self.seldom).filter(|(_, count)| *count == 0);
        let mut found: Vec<_> = seldom.map(|(name, _)| (*name).to_owned()).collect();
        for (row, (_, deed)) in self.cells.iter().zip(DEEDS) {
            for (count, (_, trouble)) in row.iter().zip(TROUBLES) {
                if *count == 0 && impossible(deed, trouble).is_none() {
                    found.push(format!("{deed} × {trouble}"));
                }
            }
        }
        found
    }

    /// Cells that are called impossible and were met.
    pub(super) fn surprising(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (row, (_, deed)) in self.cells.iter().zip(DEEDS) {
            for (count, (_, trouble)) in row.iter().zip(TROUBLES) {
                if *count > 0 && impossible(deed, trouble).is_some() {
                    found.push(format!("{deed} × {trouble}"));
                }
            }
        }
        found
    }
}

/// As a Markdown table, one row a trouble.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::from("| fault |");
        DEEDS.iter().try_for_each(|(_, deed)| write!(line, " {deed} |"))?;
        writeln!(f, "{line}\n|---|{}", "--:|".repeat(DEEDS.len()))?;
        for (column, (_, trouble)) in TROUBLES.iter().enumerate() {
            write!(f, "| {trouble} |")?;
            for (row, (_, deed)) in self.cells.iter().zip(DEEDS) {
                match impossible(deed, trouble) {
                    Some(_) => write!(f, " - |")?,
                    None => write!(f, " {} |", row[column])?,
                }
            }
            writeln!(f)?;
        }
        for (deeds, troubles, why) in IMPOSSIBLE {
            let list = |names: &[&str], all: &str| {
                if names.is_empty() {
                    all.to_owned()
                } else {
                    names.join(", ")
                }
            };
            writeln!(
                f,
                "\n`-` {} × {}: {why}",
                list(deeds, "every operation"),
                list(troubles, "every fault")
            )?;
        }
        Ok(())
    }
}

/// Gathers what a run meets.
#[derive(Default)]
pub(super) struct Coverage {
    pub(super) table: Table,
    /// The troubles of each wire, a bit each.
    marks: BTreeMap<WireId, u32>,
}

impl Coverage {
    pub(super) fn notice(&mut self, notice: Notice) {
        match notice.what {
            What::Did(operation) => notice
                .wire
                .iter()
                .for_each(|wire| self.did(*wire, Deed::Ring(operation))),
            What::Struck(fault, during) => {
                notice
                    .wire
                    .iter()
                    .for_each(|wire| self.struck(*wire, Trouble::Ring(fault)));
                if let Some(operation) = during {
                    self.count(Deed::Ring(operation), bit(Trouble::Ring(fault)));
                }
            }
        }
    }

    pub(super) fn struck(&mut self, wire: WireId, trouble: Trouble) {
        *self.marks.entry(wire).or_default() |= bit(trouble);
    }

    pub(super) fn did(&mut self, wire: WireId, deed: Deed) {
        let marks = self.marks.get(&wire).copied().unwrap_or(0);
        self.count(deed, marks);
    }

    fn count(&mut self, deed: Deed, marks: u32) {
        let row = DEEDS.iter().position(|(it, _)| *it == deed).expect("a row");
        for (column, cell) in self.table.cells[row].iter_mut().enumerate() {
            *cell += u64::from(marks >> column & 1);
        }
    }
}

fn bit(trouble: Trouble) -> u32 {
    let column = TROUBLES.iter().position(|(it, _)| *it == trouble).expect("a column");
    1 << column
}
