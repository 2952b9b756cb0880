//! Anonymous memory straight from the kernel: page-aligned, zeroed, touched only when used.
//!
//! Invariant: `base` stays mapped for `len` bytes until the value is dropped or leaked.

use std::{io, ptr::NonNull};

#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
}

impl Map {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nobody can reach it through us any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
