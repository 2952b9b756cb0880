//! Binds what the configuration says: for every worker its own socket on every address.
//!
//! Accepts nothing. Invariant: an address that some other process serves is an error, though `SO_REUSEPORT` would let two
//! processes of one user share it in silence.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use crate::{config::Server, worker::Surface};

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
}

/// Binds every address once for each of `workers` workers.
///
/// # Errors
/// With the address, and with what to do about it.
pub(super) fn bind(server: &Server, workers: usize) -> Result<Bound, StartError> {
    let api = if server.admin.is_some() {
        Surface::Api
    } else {
        Surface::Full
    };
    let wanted = server.listen.iter().map(|address| (*address, api));
    let wanted: Vec<_> = wanted
        .chain(server.admin.map(|address| (address, Surface::Admin)))
        .collect();
    let mut bound = Bound {
        workers: (0..workers)
            .map(|_| Sockets {
                listeners: Vec::new(),
                surfaces: Vec::new(),
            })
            .collect(),
        addresses: Vec::new(),
    };
    for (mut address, surface) in wanted {
        if address.port() != 0 {
            is_free(address).map_err(|error| refused(address, &error))?;
        }
        for worker in &mut bound.workers {
            let listener = zerohop_ring::listen(address, true, BACKLOG).map_err(|error| refused(address, &error))?;
            address = listener.local_addr().map_err(|error| refused(address, &error))?;
            worker.listeners.push(listener);
            worker.surfaces.push(surface);
        }
        if surface != Surface::Admin {
            bound.addresses.push(address);
        }
    }
    Ok(bound)
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
