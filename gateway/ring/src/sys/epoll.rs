//! epoll, as thin as possible.
//!
//! Nothing blocks but [`Epoll::wait`]. Closing a descriptor takes it out of the set.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    time::Duration,
};

use super::check;

/// Events taken by one wait.
const EVENTS: usize = 512;

/// What the kernel tells about a descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    /// The number given with the descriptor.
    pub(crate) key: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The other side has sent FIN or the connection broke: after the last bytes there is an end to be read.
    pub(crate) ended: bool,
}

/// How a descriptor is watched.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Watch {
    /// Told once for each new readiness, of both kinds.
    Edges,
    /// Told once for each new readiness to read.
    ReadEdges,
    /// Told as long as something can be read.
    ReadLevel,
}

pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Box<[libc::epoll_event]>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just made this descriptor for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS].into_boxed_slice(),
        })
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, watch: Watch, key: u64) -> io::Result<()> {
        let events = match watch {
            Watch::Edges => libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET,
            Watch::ReadEdges => libc::EPOLLIN | libc::EPOLLET,
            Watch::ReadLevel => libc::EPOLLIN,
        };
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: key,
        };
        // SAFETY: the kernel reads one live `epoll_event`.
        let added =
            unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) };
        check(added).map(drop)
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let none = std::ptr::null_mut();
        // SAFETY: a removal reads no event (kernel 2.6.9).
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), none) }).map(drop)
    }

    /// Waits for events, at most `timeout` (`None`: for ever). A signal ends the wait without events.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<impl Iterator<Item = Event> + use<'_>> {
        let room = self.events.len() as libc::c_int;
        let at = self.events.as_mut_ptr();
        let result = match timeout {
            None => {
                // SAFETY: the kernel writes at most `room` events into the live slice.
                check(unsafe { libc::epoll_wait(self.fd.as_raw_fd(), at, room, -1) })
            }
            Some(Duration::ZERO) => {
                // SAFETY: as above.
                check(unsafe { libc::epoll_wait(self.fd.as_raw_fd(), at, room, 0) })
            }
            Some(timeout) => self.wait_precisely(timeout),
        };
        let count = match result {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(self.events[..count].iter().map(|event| {
            let (events, key) = (event.events, event.u64);
            let has = |bits: libc::c_int| events & bits as u32 != 0;
            let broken = has(libc::EPOLLERR | libc::EPOLLHUP);
            let ended = broken || has(libc::EPOLLRDHUP);
            Event {
                key,
                readable: ended || has(libc::EPOLLIN),
                writable: broken || has(libc::EPOLLOUT),
                ended,
            }
        }))
    }

    /// `epoll_pwait2` counts nanoseconds (kernel 5.11); without it the wait is rounded up to whole milliseconds.
    fn wait_precisely(&mut self, timeout: Duration) -> io::Result<libc::c_int> {
        let room = self.events.len() as libc::c_int;
        let at = self.events.as_mut_ptr();
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        let (fd, none) = (self.fd.as_raw_fd(), std::ptr::null::<libc::sigset_t>());
        // SAFETY: the kernel writes at most `room` events into the live slice and reads one live time.
        let waited = unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, at, room, &raw const time, none, 0usize) };
        match check(waited as libc::c_int) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                let millis = timeout.as_nanos().div_ceil(1_000_000);
                let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
                // SAFETY: as above.
                check(unsafe { libc::epoll_wait(fd, at, room, millis) })
            }
            result => result,
        }
    }
}
