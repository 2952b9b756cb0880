//! Binds what the configuration says: for every worker its own socket on every address, and lets them be steered.
//!
//! Where that is not wanted or not possible, all workers share one socket. Accepts nothing. Invariant: an address that
//! some other process serves is an error, though `SO_REUSEPORT` would let two processes of one user share it in silence.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::AsFd,
};

use zerohop_steer::{Group, Seat, Steering, Wanted};

use crate::{
    config::{Config, SteeringMode},
    worker::Surface,
};

use super::StartError;

/// Connections that the kernel keeps for a socket until they are accepted; `net.core.somaxconn` caps it.
const BACKLOG: u32 = 65_535;

/// The sockets of one worker and what each shows, in the same order.
pub(super) struct Sockets {
    pub(super) listeners: Vec<TcpListener>,
    pub(super) surfaces: Vec<Surface>,
}

/// All sockets.
pub(super) struct Bound {
    /// By worker.
    pub(super) workers: Vec<Sockets>,
    /// Where requests are served; ports that were 0 are the chosen ones.
    pub(super) addresses: Vec<SocketAddr>,
    /// Where it listens at all, in the order of each worker's sockets.
    pub(super) doors: Vec<SocketAddr>,
    /// What chooses the worker of a connection.
    pub(super) steering: Steering,
}

impl Bound {
    /// What each worker is given: its sockets, and its side of steering if it has one.
    pub(super) fn seats(&mut self) -> Vec<(Sockets, Option<Seat>)> {
        let workers = std::mem::take(&mut self.workers).into_iter().enumerate();
        workers
            .map(|(index, sockets)| (sockets, self.steering.seat(index)))
            .collect()
    }
}

/// Binds every address for workers on these cores.
///
/// # Errors
/// With the address, and with what to do about it.
pub(super) fn bind(config: &Config, cores: &[usize]) -> Result<Bound, StartError> {
    if config.steering.mode == SteeringMode::Off {
        return bind_as(config, cores, Some("the configuration says so".into())).map_err(Refused::told);
    }
    match bind_as(config, cores, None) {
        Err(Refused::Sharing(error)) => {
            bind_as(config, cores, Some(format!("sockets cannot share an address: {error}")))
        }
        bound => bound,
    }
    .map_err(Refused::told)
}

/// Binds a socket for each worker or, if there is a reason not to, one for all.
fn bind_as(config: &Config, cores: &[usize], single: Option<String>) -> Result<Bound, Refused> {
    let server = &config.server;
    let api = if server.admin.is_some() {
        Surface::Api
    } else {
        Surface::Full
    };
    let wanted = server.listen.iter().map(|address| (*address, api));
    let wanted: Vec<_> = wanted
        .chain(server.admin.map(|address| (address, Surface::Admin)))
        .collect();
    let empty = || Sockets {
        listeners: Vec::new(),
        surfaces: Vec::new(),
    };
    let mut workers: Vec<Sockets> = cores.iter().map(|_| empty()).collect();
    let (mut addresses, mut doors) = (Vec::new(), Vec::new());
    for (mut address, surface) in wanted {
        if address.port() != 0 {
            is_free(address).map_err(|error| Refused::Address(address, error))?;
        }
        let listeners = listeners(&mut address, cores.len(), single.is_some())?;
        for (worker, listener) in workers.iter_mut().zip(listeners) {
            worker.listeners.push(listener);
            worker.surfaces.push(surface);
        }
        if surface != Surface::Admin {
            addresses.push(address);
        }
        doors.push(address);
    }
    let steering = match single {
        Some(why) => Steering::single(why),
        None => steer(config, cores, &doors, &workers),
    };
    Ok(Bound {
        workers,
        addresses,
        doors,
        steering,
    })
}

/// A listener for each worker: of its own, or the same one. A port that was 0 becomes the chosen one.
fn listeners(address: &mut SocketAddr, workers: usize, single: bool) -> Result<Vec<TcpListener>, Refused> {
    let mut made: Vec<TcpListener> = Vec::new();
    for _ in 0..workers {
        let listener = match made.first() {
            Some(first) if single => first.try_clone(),
            _ => zerohop_ring::listen(*address, !single, BACKLOG),
        };
        let listener = listener.map_err(|error| Refused::of(*address, error, !single))?;
        *address = listener
            .local_addr()
            .map_err(|error| Refused::Address(*address, error))?;
        made.push(listener);
    }
    Ok(made)
}

fn steer(config: &Config, cores: &[usize], doors: &[SocketAddr], workers: &[Sockets]) -> Steering {
    let groups: Vec<Group<'_>> = doors
        .iter()
        .enumerate()
        .map(|(at, address)| Group {
            address: *address,
            sockets: workers.iter().map(|worker| worker.listeners[at].as_fd()).collect(),
        })
        .collect();
    let wanted = Wanted {
        mode: config.steering.mode,
        policy: config.steering.policy,
    };
    Steering::attach(zerohop_steer::STEER, wanted, cores, &groups)
}

/// Why nobody listens.
enum Refused {
    /// This address cannot be had.
    Address(SocketAddr, io::Error),
    /// No address can be had by more than one socket.
    Sharing(io::Error),
}

impl Refused {
    fn of(address: SocketAddr, error: io::Error, sharing: bool) -> Self {
        if sharing && zerohop_ring::is_unknown_option(&error) {
            Self::Sharing(error)
        } else {
            Self::Address(address, error)
        }
    }

    fn told(self) -> StartError {
        match self {
            Self::Address(address, error) => refused(address, &error),
            Self::Sharing(error) => StartError::new(format!("sockets cannot share an address: {error}")),
        }
    }
}

/// Binds without sharing, and lets go.
fn is_free(address: SocketAddr) -> io::Result<()> {
    zerohop_ring::listen(address, false, 1).map(drop)
}

fn refused(address: SocketAddr, error: &io::Error) -> StartError {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: stop it, or choose another address with `server.listen` or `--listen`"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need the capability CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has that address",
        _ => "choose another address with `server.listen` or `--listen`",
    };
    StartError::new(format!("cannot listen on {address}: {error}: {remedy}"))
}
