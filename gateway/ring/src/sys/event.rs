//! The eventfd behind a wake-up.
//!
//! Nothing here blocks.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::check;

pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to the counter of an eventfd, which wakes whoever watches it. It can only fail when the counter is full,
/// and then it is readable anyway.
pub(crate) fn signal(event: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: the kernel reads eight bytes of a live integer.
    unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// Whether an eventfd is readable now.
#[cfg(test)]
pub(crate) fn is_signalled(event: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: event.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live `pollfd`.
    check(unsafe { libc::poll(&raw mut poll, 1, 0) }).is_ok_and(|ready| ready == 1)
}
