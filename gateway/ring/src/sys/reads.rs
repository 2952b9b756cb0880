//! Reads of files: memory that the kernel fills, and who holds it until it has.
//!
//! It decides nothing about what is read, nor when a read is over. Invariant: while a submission names the memory and the
//! descriptor of a read, its entry owns both and hands out neither.

use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, squeue, types};

use super::check_size;
use crate::{
    ConnId,
    file::Reading,
    slots::Slots,
    token::{Op, Token},
};

/// The most that one call reads; more comes in parts (the kernel's own limit is just below 2 GiB).
const READ_MAX: usize = 1 << 30;

struct Entry {
    reading: Reading,
    /// A submission names its memory.
    lent: bool,
}

/// All reads of a ring.
pub(crate) struct Reads(Slots<Entry>);

impl Reads {
    pub(crate) fn new(bound: u32) -> Self {
        Self(Slots::new(bound))
    }

    /// Takes a read. `Err` gives it back: as many are in flight as may be.
    pub(crate) fn insert(&mut self, reading: Reading) -> Result<ConnId, Reading> {
        let entry = Entry { reading, lent: false };
        self.0.insert(entry).map_err(|entry| entry.reading)
    }

    /// The reads under way, with what they are; their memory may be the kernel's.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &Reading)> {
        self.0.iter().map(|(id, entry)| (id, &entry.reading))
    }

    /// The read that a completion is about.
    pub(crate) fn present(&self, token: Token) -> Option<ConnId> {
        self.0.id_of(token.slot()).filter(|id| token.is_of(id.generation))
    }

    /// A read whose memory the kernel does not have.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Reading> {
        let entry = self.0.get_mut(id).filter(|entry| !entry.lent)?;
        Some(&mut entry.reading)
    }

    /// Hands a read back. `None` while the kernel has its memory.
    pub(crate) fn end(&mut self, id: ConnId) -> Option<Reading> {
        self.0.get(id).filter(|entry| !entry.lent)?;
        self.0.remove(id).map(|entry| entry.reading)
    }

    /// The submission that reads what is missing. `None` while there is one, or if the file is no descriptor.
    pub(crate) fn submission(&mut self, id: ConnId) -> Option<squeue::Entry> {
        let entry = self.0.get_mut(id).filter(|entry| !entry.lent)?;
        let reading = &mut entry.reading;
        let file = types::Fd(reading.file.descriptor()?.as_raw_fd());
        let position = reading.position();
        let most = room(reading);
        let start = reading.buf.spare_capacity_mut().as_mut_ptr();
        let mut read = opcode::Read::new(file, start.cast(), most as u32)
            .offset(position)
            .build();
        if reading.threaded {
            read = read.flags(squeue::Flags::ASYNC);
        }
        entry.lent = true;
        Some(read.user_data(Token::of(Op::Read, id).0))
    }

    /// Notes the completion of a submission: its loan is over, and what it has read belongs to the bytes.
    pub(crate) fn completed(&mut self, token: Token, result: i32) {
        let Some(id) = self.present(token) else { return };
        let Some(entry) = self.0.get_mut(id).filter(|entry| entry.lent) else {
            return;
        };
        entry.lent = false;
        let most = room(&entry.reading);
        let buf = &mut entry.reading.buf;
        let len = buf.len() + usize::try_from(result).unwrap_or(0).min(most);
        // SAFETY: the room behind the bytes holds `most` more, and the kernel says that it has written so many there; the
        // submission was for no more, since nothing changes a read while it is lent.
        unsafe { buf.set_len(len) };
    }
}

/// How much one call may put behind the bytes of a read.
fn room(reading: &Reading) -> usize {
    let free = reading.buf.capacity() - reading.buf.len();
    reading.missing().min(free).min(READ_MAX)
}

/// Reads once and adds what came to the bytes of a read: a count, or a negated errno. Unless the read is for a thread, it
/// takes only what is in the page cache and says `EAGAIN` instead of waiting (`EOPNOTSUPP` where the file system cannot
/// tell).
pub(crate) fn read_once(reading: &mut Reading, file: BorrowedFd<'_>) -> i32 {
    let most = room(reading);
    let position = reading.position() as libc::off64_t;
    let vector = libc::iovec {
        iov_base: reading.buf.spare_capacity_mut().as_mut_ptr().cast(),
        iov_len: most,
    };
    let flags = if reading.threaded { 0 } else { libc::RWF_NOWAIT };
    // SAFETY: the kernel reads one live vector and writes at most `most` bytes into the room behind the bytes, which holds
    // them.
    let result = unsafe { libc::preadv64v2(file.as_raw_fd(), &raw const vector, 1, position, flags) };
    match check_size(result) {
        Ok(count) => {
            let len = reading.buf.len() + count.min(most);
            // SAFETY: the kernel has just written so many bytes there.
            unsafe { reading.buf.set_len(len) };
            count as i32
        }
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}
