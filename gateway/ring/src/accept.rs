//! What the real makers share about listeners and refusals: which errors pass, which end accepting, when to try again.
//!
//! No system call of its own but those on a connection just accepted. Invariant: a listener that is `Ended` has no
//! descriptor.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
};

use crate::{Accepted, Completion, ConnId, ListenerId, Nanos, slots::Slots, sys};

/// How long accepting rests when the process or the machine has no descriptor or memory left; a connection that closes
/// ends the rest earlier. Meanwhile clients wait in the kernel's queue.
pub(crate) const REST: Nanos = 100_000_000;

/// What a listener does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not yet started.
    Idle,
    /// The kernel tells about connections.
    Armed,
    /// Out of descriptors or memory until this time.
    Resting(Nanos),
    /// `stop_accept` was called; the kernel has not answered yet.
    Stopping,
    /// Closed.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Listener {
    /// `None` when `Ended`.
    pub(crate) socket: Option<TcpListener>,
    pub(crate) state: State,
}

impl Listener {
    pub(crate) fn all(sockets: Vec<TcpListener>) -> Vec<Self> {
        sockets
            .into_iter()
            .map(|socket| Self {
                socket: Some(socket),
                state: State::Idle,
            })
            .collect()
    }

    pub(crate) fn end(&mut self, id: ListenerId, error: Option<io::Error>, out: &mut Vec<Completion>) {
        self.socket = None;
        self.state = State::Ended;
        out.push(Completion::AcceptEnded { listener: id, error });
    }
}

/// What an error of accept means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// One connection was lost, or nothing at all: go on.
    Passing,
    /// Nothing more can be accepted for now.
    Shortage,
    /// The listener is unusable.
    Final,
}

pub(crate) fn judge(errno: i32) -> Trouble {
    match errno {
        libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS => Trouble::Shortage,
        // What accept(2) tells about a connection that broke before it was accepted.
        libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::ECANCELED | libc::EPERM | libc::EPROTO => {
            Trouble::Passing
        }
        libc::ENETDOWN | libc::ENOPROTOOPT | libc::EHOSTDOWN | libc::ENONET | libc::EHOSTUNREACH => Trouble::Passing,
        libc::ENETUNREACH | libc::ETIMEDOUT | libc::ECONNRESET => Trouble::Passing,
        _ => Trouble::Final,
    }
}

/// Gives an accepted connection a slot, or refuses it. `make` builds the maker's own record of it.
pub(crate) fn admit<T>(
    conns: &mut Slots<T>,
    listener: ListenerId,
    socket: OwnedFd,
    overflow_reply: &[u8],
    make: impl FnOnce(OwnedFd, SocketAddr) -> T,
    out: &mut Vec<Completion>,
) -> Option<ConnId> {
    use std::os::fd::AsFd;
    if conns.is_full() {
        sys::net::refuse(socket, overflow_reply);
        out.push(Completion::Refused { listener });
        return None;
    }
    // Without a peer it was reset before we came: there is nobody to tell.
    let peer = sys::net::peer(socket.as_fd()).ok()?;
    let conn = conns.insert(make(socket, peer)).ok()?;
    out.push(Completion::Accepted(Accepted { listener, conn, peer }));
    Some(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_of_accept_means() {
        for (errno, trouble) in [
            (libc::EMFILE, Trouble::Shortage),
            (libc::ENFILE, Trouble::Shortage),
            (libc::ENOMEM, Trouble::Shortage),
            (libc::ENOBUFS, Trouble::Shortage),
            (libc::ECONNABORTED, Trouble::Passing),
            (libc::EINTR, Trouble::Passing),
            (libc::EAGAIN, Trouble::Passing),
            (libc::EBADF, Trouble::Final),
            (libc::EINVAL, Trouble::Final),
            (libc::ENOTSOCK, Trouble::Final),
        ] {
            assert_eq!(judge(errno), trouble, "{errno}");
        }
    }
}
