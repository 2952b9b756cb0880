//! What is shown of steering and of the guard in front of it.
//!
//! Invariant: of a step that has no program, and without a guard, there is nothing but the step's name.

use zerohop_steer::{GuardStats, Rung, SteeringStats};

use super::text::{Kind, Text};

/// The families of both.
pub(super) fn render(text: &mut Text<'_>, steering: Option<&SteeringStats>, guard: Option<&GuardStats>) {
    if let Some(steering) = steering {
        steered(text, steering);
    }
    if let Some(guard) = guard {
        guarded(text, guard);
    }
}

fn steered(text: &mut Text<'_>, steering: &SteeringStats) {
    let mut family = text.family(
        "zerohop_steering_mode",
        Kind::Gauge,
        "What chooses the worker of a connection: 1 for what does.",
    );
    for (rung, name) in Rung::ALL {
        family.add(&[("mode", name)], u64::from(rung == steering.rung));
    }
    if steering.workers.is_empty() {
        return;
    }
    type Row = (&'static str, Kind, &'static str, fn(&zerohop_steer::WorkerStats) -> u64);
    const ROWS: [Row; 3] = [
        (
            "zerohop_steering_load",
            Kind::Gauge,
            "What a worker has to do, as steering sees it: its connections, and its requests eightfold.",
            |worker| worker.score,
        ),
        (
            "zerohop_steering_chosen_total",
            Kind::Counter,
            "Times that steering chose a worker.",
            |worker| worker.chosen,
        ),
        (
            "zerohop_steering_open",
            Kind::Gauge,
            "1: the worker is given new connections; 0: it drains or hangs.",
            |worker| u64::from(worker.open && worker.alive),
        ),
    ];
    for (name, kind, help, value) in ROWS {
        let mut family = text.family(name, kind, help);
        for (index, worker) in steering.workers.iter().enumerate() {
            family.add(&[("worker", &index.to_string())], value(worker));
        }
    }
    let mut family = text.family(
        "zerohop_steering_outcomes_total",
        Kind::Counter,
        "Runs of the steering program, by what came of them; no_... were left to the kernel's hash.",
    );
    for (name, count) in &steering.outcomes {
        family.add(&[("outcome", name)], *count);
    }
}

fn guarded(text: &mut Text<'_>, guard: &GuardStats) {
    let mode = if guard.native { "native" } else { "generic" };
    text.family(
        "zerohop_xdp_attached",
        Kind::Gauge,
        "Always 1: the guard is attached; where and how are labels.",
    )
    .add(&[("interface", &guard.interface), ("mode", mode)], 1);
    text.family(
        "zerohop_xdp_blocked_prefixes",
        Kind::Gauge,
        "Prefixes from which nothing reaches the gateway.",
    )
    .add(&[], guard.prefixes);
    let mut family = text.family(
        "zerohop_xdp_packets_total",
        Kind::Counter,
        "Packets that the guard saw, by what became of them; blocked and limited were dropped.",
    );
    for (verdict, count) in &guard.verdicts {
        family.add(&[("verdict", verdict)], *count);
    }
}
