//! The try behind the probe: a small ring receives one byte by multishot, so that every part that a worker needs was used.

use std::{io, io::Write, os::fd::AsFd, os::unix::net::UnixStream, time::Duration};

use crate::{
    ConnId, Level,
    sys::ring::{Ring, Size},
    token::{Op, Token},
};

/// Longer than any kernel needs to move one byte, short enough for a start.
const PATIENCE: Duration = Duration::from_secs(1);

/// # Errors
/// `EINVAL` when the kernel lacks something of this level; else why there can be no ring.
pub(crate) fn try_level(level: Level) -> io::Result<()> {
    let mut ring = Ring::new(
        level,
        Size {
            submissions: 8,
            completions: 16,
            buffers: 2,
            buffer_size: 64,
            held_bytes: 0,
            reads: 0,
        },
    )?;
    let (mut ours, theirs) = UnixStream::pair()?;
    ours.write_all(b"x")?;
    ring.recv(theirs.as_fd(), Token::of(Op::Recv, ConnId { slot: 0, generation: 0 }));
    ring.enter(1, Some(PATIENCE))?;
    let mut cqes = Vec::new();
    ring.reap(&mut cqes);
    match cqes.first() {
        Some(cqe) if cqe.result == 1 && cqe.buffer.is_some() => Ok(()),
        Some(cqe) if cqe.result < 0 => Err(io::Error::from_raw_os_error(-cqe.result)),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}
