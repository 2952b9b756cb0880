//! The unsafe part: plain values in maps, maps in memory, and the socket option that nobody wraps.
//!
//! It decides nothing. Invariant: what is handed out is valid for as long as it can be held, whatever the kernel's
//! programs write meanwhile.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::atomic::AtomicU64,
};

use aya::Pod;
use memmap2::{MmapOptions, MmapRaw};
use zerohop_abi::{guard, steer};

/// A value as it lies in a map.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Plain<T>(pub(crate) T);

// SAFETY: `repr(C)`, numbers only, no padding (asserted where it is declared), any bits are a value.
unsafe impl Pod for Plain<steer::Group> {}
// SAFETY: as above.
unsafe impl Pod for Plain<steer::Settings> {}
// SAFETY: as above.
unsafe impl Pod for Plain<steer::Worker> {}
// SAFETY: as above.
unsafe impl Pod for Plain<guard::Door> {}
// SAFETY: as above.
unsafe impl Pod for Plain<guard::Settings> {}

/// Bytes of a row.
const ROW: usize = 64;
/// Bytes of a word.
const WORD: usize = 8;

/// An array map of rows of eight words, in this process's memory: reading and writing it costs no system call.
#[derive(Debug)]
pub(crate) struct Rows {
    map: MmapRaw,
    rows: usize,
}

impl Rows {
    /// Maps the first `rows` rows of an array that was made with `BPF_F_MMAPABLE` and rows of this size.
    ///
    /// # Errors
    /// What the kernel said; it refuses to map beyond the array.
    pub(crate) fn new(array: BorrowedFd<'_>, rows: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(rows * ROW).map_raw(array.as_raw_fd())?;
        Ok(Self { map, rows })
    }

    /// A word, by row and by its offset in the row in bytes.
    ///
    /// # Panics
    /// If there is no such word: a bug of the caller.
    pub(crate) fn word(&self, row: usize, offset: usize) -> &AtomicU64 {
        assert!(row < self.rows && offset < ROW && offset.is_multiple_of(WORD));
        // SAFETY: within the mapping, by the line above.
        let word = unsafe { self.map.as_mut_ptr().add(row * ROW + offset) };
        // SAFETY: aligned, since mappings begin at a page and the offset is a multiple of the size of a word; mapped as
        // long as `self` lives; and written by single instructions only, here and in the kernel.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }
}

/// Gives the socket's group a classic program that chooses the socket by its index in the group.
///
/// # Errors
/// What the kernel said.
pub(crate) fn attach_classic(socket: BorrowedFd<'_>, program: &[(u16, u8, u8, u32)]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the structure of the given size, and the `len` statements that it points to; both live.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, sync::atomic::Ordering};

    use super::*;

    #[test]
    fn words_of_a_mapped_file_are_where_their_bytes_are() {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(std::env::temp_dir().join(format!("zerohop-rows-{}", std::process::id())))
            .unwrap();
        std::fs::remove_file(std::env::temp_dir().join(format!("zerohop-rows-{}", std::process::id()))).unwrap();
        file.set_len(3 * ROW as u64).unwrap();
        let rows = Rows::new(file.as_fd(), 3).unwrap();
        rows.word(2, 16).store(0x0102_0304_0506_0708, Ordering::Relaxed);
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 2 * 64 + 16).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 0x0102_0304_0506_0708);
        assert!(std::panic::catch_unwind(|| rows.word(3, 0)).is_err());
        assert!(std::panic::catch_unwind(|| rows.word(0, 64)).is_err());
        assert!(std::panic::catch_unwind(|| rows.word(0, 4)).is_err());
    }
}
