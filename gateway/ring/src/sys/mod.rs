//! The only place of this crate with `unsafe`: memory that the kernel borrows, and the calls that std does not offer.
//!
//! Its functions are safe to call in any order with any values: what the kernel may touch is owned in here until the
//! completion that ends the loan. It decides nothing about connections.

#![allow(unsafe_code)]

pub(crate) mod arena;
pub(crate) mod cpu;
pub(crate) mod epoll;
pub(crate) mod event;
pub(crate) mod heap;
pub(crate) mod map;
pub(crate) mod message;
pub(crate) mod net;
pub(crate) mod pool;
pub(crate) mod reads;
pub(crate) mod ring;
pub(crate) mod zero_copy;

use std::io;

/// The result of a libc call that answers −1 and `errno` on failure.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// As [`check`], for calls that answer a size.
fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `size_of::<T>()` as the kernel's length type.
fn size_of<T>() -> libc::socklen_t {
    std::mem::size_of::<T>() as libc::socklen_t
}

/// Forbids `io_uring_setup` to the calling thread for good, by seccomp, as container policies do.
#[cfg(test)]
pub(crate) fn forbid_io_uring() -> io::Result<()> {
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut filter = [
        // The number of the call lies at offset 0 of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: no memory is involved.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the kernel reads the live program and its four statements.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) })?;
    Ok(())
}
