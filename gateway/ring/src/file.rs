//! Files that a worker reads from, and one read on its way: what the makers share of both.
//!
//! It reads nothing itself. Invariant: the bytes of a [`Reading`] are those of its file from its offset on, without a gap,
//! and a read is answered with all that was asked for or with an error, never with less.

use std::{
    fmt,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use crate::{Completion, IoStats, ReadToken, sim::Contents};

/// The greatest position in a file (`off_t`); beyond it lies the number that means "where the descriptor stands" to io_uring.
const END: u64 = i64::MAX as u64;

/// A file to read from, shared by all who do: an owned descriptor that nobody moves, or simulated contents. Whoever has a
/// read in flight keeps it open.
pub struct ReadFile(Source);

enum Source {
    Real(File),
    Simulated(Box<dyn Contents>),
}

impl ReadFile {
    /// A file for the real makers. The descriptor should be open for reading only, which nothing here checks.
    ///
    /// # Errors
    /// `InvalidInput` for what is no regular file: a read of anything else may wait for ever. Else what the kernel said.
    pub fn new(file: impl Into<OwnedFd>) -> io::Result<Self> {
        let file = File::from(file.into());
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Self(Source::Real(file)))
    }

    /// A file for the simulated maker.
    pub fn simulated(contents: impl Contents) -> Self {
        Self(Source::Simulated(Box::new(contents)))
    }

    /// `None`: it is simulated.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Source::Real(file) => Some(file.as_fd()),
            Source::Simulated(_) => None,
        }
    }

    /// `None`: it is real.
    pub(crate) fn contents(&self) -> Option<&dyn Contents> {
        match &self.0 {
            Source::Real(_) => None,
            Source::Simulated(contents) => Some(&**contents),
        }
    }
}

impl fmt::Debug for ReadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Real(file) => f.debug_tuple("ReadFile").field(file).finish(),
            Source::Simulated(_) => f.write_str("ReadFile(simulated)"),
        }
    }
}

/// A read that was asked for and not answered.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) token: ReadToken,
    pub(crate) file: Arc<ReadFile>,
    offset: u64,
    len: usize,
    /// What has come; its room holds the whole.
    pub(crate) buf: Vec<u8>,
    /// Without a thread it would have to wait for the disk, so one does: the kernel's or the maker's.
    pub(crate) threaded: bool,
}

/// What a kernel's answer makes of a read.
#[derive(Debug)]
pub(crate) enum Next {
    /// The rest is asked for.
    Again,
    Over(io::Result<()>),
}

impl Reading {
    /// `Err`: the read is answered without a look at the file, since nothing or something impossible was asked for.
    /// `real`: which kind of file the maker can read.
    pub(crate) fn new(
        token: ReadToken,
        file: &Arc<ReadFile>,
        (offset, len): (u64, usize),
        mut buf: Vec<u8>,
        real: bool,
    ) -> Result<Self, io::Result<Vec<u8>>> {
        let kind = if offset > END || len as u64 > END - offset {
            Some(io::ErrorKind::InvalidInput)
        } else if file.descriptor().is_some() != real {
            Some(io::ErrorKind::Unsupported)
        } else {
            buf.clear();
            buf.try_reserve_exact(len).err().map(|_| io::ErrorKind::OutOfMemory)
        };
        match kind {
            Some(kind) => Err(Err(kind.into())),
            None if len == 0 => Err(Ok(buf)),
            None => Ok(Self {
                token,
                file: Arc::clone(file),
                offset,
                len,
                buf,
                threaded: false,
            }),
        }
    }

    /// Bytes that have not come; never more than the room that the buffer has left.
    pub(crate) fn missing(&self) -> usize {
        self.len.saturating_sub(self.buf.len())
    }

    /// Where they begin in the file.
    pub(crate) fn position(&self) -> u64 {
        self.offset + self.buf.len() as u64
    }

    /// What follows from an answer: a count (whose bytes are in the buffer already), or a negated errno.
    pub(crate) fn after(&mut self, result: i32) -> Next {
        match result {
            _ if self.missing() == 0 => Next::Over(Ok(())),
            0 => Next::Over(Err(io::ErrorKind::UnexpectedEof.into())),
            1.. => Next::Again,
            _ => match -result {
                libc::EINTR => Next::Again,
                libc::EAGAIN | libc::EOPNOTSUPP if !self.threaded => {
                    self.threaded = true;
                    Next::Again
                }
                errno => Next::Over(Err(io::Error::from_raw_os_error(errno))),
            },
        }
    }

    pub(crate) fn outcome(self, result: io::Result<()>) -> io::Result<Vec<u8>> {
        result.map(|()| self.buf)
    }
}

/// The answer to a read, counted.
pub(crate) fn answer(token: ReadToken, outcome: io::Result<Vec<u8>>, stats: &mut IoStats) -> Completion {
    match &outcome {
        Ok(bytes) => {
            stats.file_reads += 1;
            stats.file_bytes_read += bytes.len() as u64;
        }
        Err(_) => stats.file_read_errors += 1,
    }
    Completion::Read { token, outcome }
}

/// The answer to a read beyond the bound, counted.
pub(crate) fn refuse(token: ReadToken, stats: &mut IoStats) -> Completion {
    stats.file_reads_refused += 1;
    let outcome = Err(io::ErrorKind::ResourceBusy.into());
    Completion::Read { token, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnId;

    fn reading(offset: u64, len: usize) -> Result<Reading, io::Result<Vec<u8>>> {
        let conn = ConnId { slot: 0, generation: 0 };
        let file = Arc::new(ReadFile::simulated(vec![]));
        Reading::new(ReadToken { conn, tag: 0 }, &file, (offset, len), Vec::new(), false)
    }

    #[test]
    fn what_an_answer_makes_of_a_read() {
        enum Is {
            Again,
            Done,
            Failed(io::ErrorKind),
        }
        // Bytes that came before, of ten; whether a thread waits; the answer, of which a count adds to them.
        for (before, threaded, result, wanted) in [
            (0, false, 10, Is::Done),
            (7, false, 3, Is::Done),
            (0, false, 3, Is::Again),
            (0, true, 3, Is::Again),
            (0, false, 0, Is::Failed(io::ErrorKind::UnexpectedEof)),
            (9, true, 0, Is::Failed(io::ErrorKind::UnexpectedEof)),
            (3, false, -libc::EINTR, Is::Again),
            (3, true, -libc::EINTR, Is::Again),
            (3, false, -libc::EAGAIN, Is::Again),
            (3, true, -libc::EAGAIN, Is::Failed(io::ErrorKind::WouldBlock)),
            (0, false, -libc::EOPNOTSUPP, Is::Again),
            (0, true, -libc::EOPNOTSUPP, Is::Failed(io::ErrorKind::Unsupported)),
            (3, false, -libc::EACCES, Is::Failed(io::ErrorKind::PermissionDenied)),
        ] {
            let mut reading = reading(5, 10).unwrap();
            reading.threaded = threaded;
            reading.buf.resize(before + usize::try_from(result).unwrap_or(0), 0);
            let is_right = match (reading.after(result), wanted) {
                (Next::Again, Is::Again) | (Next::Over(Ok(())), Is::Done) => true,
                (Next::Over(Err(error)), Is::Failed(kind)) => error.kind() == kind,
                _ => false,
            };
            assert!(is_right, "{result} after {before}");
            assert_eq!(reading.position(), 5 + reading.buf.len() as u64);
            let waits = matches!(-result, libc::EAGAIN | libc::EOPNOTSUPP);
            assert!(!waits || reading.threaded, "a thread waits next");
        }
    }

    #[test]
    fn positions_that_no_file_has_are_refused() {
        for (offset, len, fits) in [
            (END - 1, 1, true),
            (END, 1, false),
            (END + 1, 0, false),
            (u64::MAX, 1, false),
            (1, usize::MAX, false),
        ] {
            match reading(offset, len) {
                Ok(_) => assert!(fits, "{offset} {len}"),
                Err(outcome) => {
                    assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::InvalidInput);
                    assert!(!fits, "{offset} {len}");
                }
            }
        }
    }

    #[test]
    fn only_regular_files_are_read() {
        let (pipe, _writer) = io::pipe().unwrap();
        let error = ReadFile::new(pipe).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let directory = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(ReadFile::new(directory).is_err());
        let regular = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert!(ReadFile::new(regular).is_ok());
    }
}
