//! What acts on connections before a worker does: steering, and the guard in front of it, looked after by the control thread.
//!
//! Invariant: nothing here keeps the gateway from serving; what cannot be had is told in one line.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use zerohop_steer::{Change, Dropped, GUARD, Guard, GuardOptions, Rung, Steering};

use super::threads::Workers;
use crate::{
    config::{self, Xdp},
    log::Log,
    worker,
};

/// Steering and guard.
pub(super) struct Network {
    steering: Arc<Steering>,
    guard: Option<Guard>,
    /// Packets that were dropped since the last line about them.
    untold: Vec<Dropped>,
    told: Option<Instant>,
}

impl Network {
    /// Says how connections are steered, and attaches the guard, if there is to be one.
    pub(super) fn new(steering: Steering, wanted: &config::Steering, doors: &[SocketAddr], log: &Log) -> Self {
        log.info(format_args!("{steering}"));
        let guard = wanted.xdp.as_ref().and_then(|xdp| {
            let options = GuardOptions {
                interface: xdp.interface.clone(),
                mode: xdp.mode,
                syn_rate: xdp.syn_rate,
            };
            match Guard::attach(GUARD, options, doors, xdp.blocked()) {
                Ok(guard) => {
                    log.info(format_args!("{guard}"));
                    Some(guard)
                }
                Err(refusal) => {
                    log.warn(format_args!(
                        "no guard, every packet reaches the network stack: {refusal}"
                    ));
                    None
                }
            }
        });
        Self {
            steering: Arc::new(steering),
            guard,
            untold: Vec::new(),
            told: None,
        }
    }

    /// What workers show of it.
    pub(super) fn shown(&self) -> worker::Network {
        worker::Network {
            steering: Some(Arc::clone(&self.steering)),
            guard: self.guard.as_ref().map(Guard::view),
        }
    }

    /// Once a second: takes hanging workers out of the choice, and tells of dropped packets.
    pub(super) fn look(&mut self, workers: &Workers, log: &Log) {
        for change in self.steering.look() {
            match change {
                Change::Hangs(worker) => {
                    log.error(format_args!("worker {worker} hangs: it is given no new connections"))
                }
                Change::Turns(worker) => log.info(format_args!("worker {worker} turns again")),
            }
        }
        if self.steering.rung() == Rung::Ebpf {
            workers.wake();
        }
        self.tell_dropped(log);
    }

    /// A line at most every ten seconds, however many packets are dropped.
    fn tell_dropped(&mut self, log: &Log) {
        const INTERVAL: u64 = 10;
        const MOST: usize = 1024;
        let Some(guard) = &mut self.guard else { return };
        self.untold.extend(guard.dropped());
        self.untold.truncate(MOST);
        let rests = self.told.is_some_and(|told| told.elapsed().as_secs() < INTERVAL);
        if let Some(last) = self.untold.last()
            && !rests
        {
            let mut sources: Vec<_> = self.untold.iter().map(|dropped| dropped.source).collect();
            sources.sort_unstable();
            sources.dedup();
            log.warn(format_args!(
                "the guard drops packets for port {}: of {} sources in a sample of {}, the last {} ({})",
                last.port,
                sources.len(),
                self.untold.len(),
                last.source,
                last.why
            ));
            self.untold.clear();
            self.told = Some(Instant::now());
        }
    }

    /// Puts in force what a reload can change.
    pub(super) fn change(&mut self, wanted: &config::Steering, log: &Log) {
        if let Err(refusal) = self.steering.set_policy(wanted.policy) {
            log.error(format_args!("the policy of steering stays: {refusal}"));
        }
        let Some(guard) = &mut self.guard else { return };
        let rate = wanted.xdp.as_ref().and_then(|xdp| xdp.syn_rate);
        let blocked = wanted.xdp.as_ref().map(Xdp::blocked).unwrap_or_default();
        match guard.change(rate, blocked) {
            Ok(()) => log.info(format_args!("{guard}")),
            Err(refusal) => log.error(format_args!("the guard stays as it is: {refusal}")),
        }
    }
}
