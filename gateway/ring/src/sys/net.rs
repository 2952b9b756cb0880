//! The socket calls that std does not offer or that the makers need without its wrapping.
//!
//! Nothing here blocks, except that a listener left in blocking mode would (callers set it non-blocking first).

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::{
    check, check_size,
    message::{Message, PARTS},
    size_of,
};

/// Opens a listener: `SO_REUSEADDR`, close-on-exec, `TCP_NODELAY` and, where the kernel offers it, the congestion control
/// `cubic` (accepted connections inherit both); with `reuse_port` several listeners share the address and the kernel
/// spreads connections over them. An IPv6 address is IPv6 only, so that `[::]` and `0.0.0.0` can be had side by side.
///
/// cubic, since the default on some machines is bbr, with which 1 MiB replies leave 2.7 (loopback) to 5 times (veth)
/// slower; where it may not be had, the default serves.
///
/// # Errors
/// What the kernel said (address in use, no permission for the port, no such address).
pub fn listen(address: SocketAddr, reuse_port: bool, backlog: u32) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_flag(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    if reuse_port {
        set_flag(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
    }
    if address.is_ipv6() {
        set_flag(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)?;
    }
    set_flag(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    // Refused only where cubic is not built in, not loaded or not allowed; see above.
    let _ = set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"cubic");
    bind(socket.as_fd(), address)?;
    let backlog = libc::c_int::try_from(backlog).unwrap_or(libc::c_int::MAX);
    // SAFETY: no memory is involved.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(TcpListener::from(socket))
}

/// Whether [`listen`] failed since the kernel, or a sandbox in its place, does not know an option such as `SO_REUSEPORT`.
#[must_use]
pub fn is_unknown_option(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)
    )
}

fn set_option(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a live slice.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) })?;
    Ok(())
}

fn set_flag(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    set_option(socket, level, name, &1i32.to_ne_bytes())
}

fn bind(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let bind = |address: *const libc::sockaddr, length| {
        // SAFETY: `address` points to a live structure of `length` bytes.
        check(unsafe { libc::bind(socket.as_raw_fd(), address, length) }).map(drop)
    };
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            bind((&raw const raw).cast(), size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            bind((&raw const raw).cast(), size_of::<libc::sockaddr_in6>())
        }
    }
}

/// A socket address as the kernel writes it: room for both families, which begin with the family.
#[repr(C)]
union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// The other side of a connection.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let v6 = libc::sockaddr_in6 {
        sin6_family: 0,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    };
    let mut raw = RawAddress { v6 };
    let mut length = size_of::<RawAddress>();
    // SAFETY: the kernel writes at most `length` bytes into the live union.
    check(unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut raw).cast(), &raw mut length) })?;
    // SAFETY: the union was wholly initialised through its largest member.
    let family = unsafe { raw.family };
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: as above; every bit pattern is a valid address.
            let v4 = unsafe { raw.v4 };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above; every bit pattern is a valid address.
            let v6 = unsafe { raw.v6 };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Ok(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
}

/// Accepts one connection, close-on-exec; `nonblocking`: the mode of the new descriptor. The listener decides whether
/// this call waits.
pub(crate) fn accept(listener: BorrowedFd<'_>, nonblocking: bool) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    let none = std::ptr::null_mut();
    // SAFETY: with null pointers the kernel writes no address.
    let fd = check(unsafe { libc::accept4(listener.as_raw_fd(), none, std::ptr::null_mut(), flags) })?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes what the connection holds now, at most `buffer`; 0 is the end.
pub(crate) fn recv(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the kernel writes at most `length` bytes into a live, exclusively borrowed slice, during this call.
    check_size(unsafe { libc::recv(socket.as_raw_fd(), start, length, libc::MSG_DONTWAIT) })
}

/// Gives the kernel what it takes now of the parts, of which it has `sent` bytes.
pub(crate) fn send(socket: BorrowedFd<'_>, parts: [&[u8]; PARTS], sent: usize) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if let [bytes, [], []] = parts {
        let rest = &bytes[sent..];
        // SAFETY: the kernel reads at most `rest.len()` bytes of a live slice, during this call.
        return check_size(unsafe { libc::send(socket.as_raw_fd(), rest.as_ptr().cast(), rest.len(), flags) });
    }
    let message = Message::new(parts, sent);
    // SAFETY: the kernel reads a live message and the live parts that it names, during this call.
    check_size(unsafe { libc::sendmsg(socket.as_raw_fd(), message.header(), flags) })
}

/// Drops what lies in the receive queue, so that a close says FIN and not RST. Best effort.
pub(crate) fn discard_received(socket: BorrowedFd<'_>) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: with MSG_TRUNC a TCP socket copies nothing, so the null buffer is never written.
    unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 1 << 20, flags) };
}

/// Sends FIN. Best effort: a connection that is already broken has nothing to shut down.
pub(crate) fn finish(socket: BorrowedFd<'_>) {
    // SAFETY: no memory is involved.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) };
}

/// Makes the coming close send RST and drop unsent bytes. Best effort: a broken connection sends nothing anyway.
pub(crate) fn reset_on_close(socket: BorrowedFd<'_>) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let (name, value) = (libc::SO_LINGER, (&raw const linger).cast());
    // SAFETY: the kernel reads a live structure of the given size.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value,
            size_of::<libc::linger>(),
        )
    };
}

/// Refuses a connection that has no slot: offers `reply` once without waiting, then closes.
pub(crate) fn refuse(socket: OwnedFd, reply: &[u8]) {
    if !reply.is_empty() {
        // What it does not take, the client does not get: there is no slot to remember the rest in.
        let _ = send(socket.as_fd(), [reply, &[], &[]], 0);
        finish(socket.as_fd());
        discard_received(socket.as_fd());
    }
    drop(socket);
}
