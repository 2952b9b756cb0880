//! What is counted of the control socket.
//!
//! Its threads are few and slow, so they share atomics. Invariant: no label comes from a client; without a control socket
//! nothing of it is shown.

use std::sync::atomic::{AtomicU64, Ordering};

use super::text::{Kind, Text};

/// Of a command: done, refused.
#[derive(Debug, Default)]
struct Counts {
    ok: AtomicU64,
    error: AtomicU64,
}

/// The counters of a control socket.
#[derive(Debug)]
pub struct ControlMetrics {
    commands: Vec<(&'static str, Counts)>,
    /// Lines that name no command.
    unknown: Counts,
    clients: AtomicU64,
    strangers: AtomicU64,
    full: AtomicU64,
}

impl ControlMetrics {
    /// For commands of these names.
    #[must_use]
    pub fn new(commands: &[&'static str]) -> Self {
        Self {
            commands: commands.iter().map(|name| (*name, Counts::default())).collect(),
            unknown: Counts::default(),
            clients: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }
    }

    /// Counts a command, by whether it was done; `None`: a line that names none.
    pub fn command(&self, name: Option<&str>, ok: bool) {
        let known = self.commands.iter().find(|(known, _)| Some(*known) == name);
        let counts = known.map_or(&self.unknown, |(_, counts)| counts);
        add(if ok { &counts.ok } else { &counts.error });
    }

    /// A client is served.
    pub fn came(&self) {
        add(&self.clients);
    }

    /// A client that was served is gone.
    pub fn went(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Somebody of another user was turned away.
    pub fn stranger(&self) {
        add(&self.strangers);
    }

    /// One too many was turned away.
    pub fn full(&self) {
        add(&self.full);
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The families of the control socket.
pub(super) fn render(text: &mut Text<'_>, control: Option<&ControlMetrics>) {
    let Some(control) = control else { return };
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut family = text.family(
        "zerohop_control_requests_total",
        Kind::Counter,
        "Commands of the control socket, by what became of them.",
    );
    let unknown = [("unknown", &control.unknown)];
    let commands = control.commands.iter().map(|(name, counts)| (*name, counts));
    for (name, counts) in commands.chain(unknown) {
        family.add(&[("command", name), ("result", "ok")], read(&counts.ok));
        family.add(&[("command", name), ("result", "error")], read(&counts.error));
    }
    text.family(
        "zerohop_control_clients",
        Kind::Gauge,
        "Clients of the control socket that are connected.",
    )
    .add(&[], read(&control.clients));
    let mut family = text.family(
        "zerohop_control_refused_total",
        Kind::Counter,
        "Clients of the control socket that were turned away, by the reason.",
    );
    family.add(&[("reason", "user")], read(&control.strangers));
    family.add(&[("reason", "full")], read(&control.full));
}
