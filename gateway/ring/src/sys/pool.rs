//! The receive buffers of a ring: a provided-buffer ring, from which the kernel takes a buffer when bytes have come.
//!
//! It never hands out a buffer twice. Invariant: a buffer is either with the kernel (it may write to it) or lent out
//! (`lent` is set and only the worker reads it), never both.

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU16, Ordering},
};

use io_uring::{IoUring, types::BufRingEntry};

use super::map::Map;

/// The only buffer group of a ring.
pub(crate) const GROUP: u16 = 0;

#[derive(Debug)]
pub(crate) struct Pool {
    ring: Map,
    data: Map,
    /// A power of two.
    count: u16,
    size: u32,
    tail: u16,
    lent: Box<[bool]>,
    free: u32,
}

impl Pool {
    /// Registers `count` buffers of `size` bytes with a ring.
    ///
    /// The caller keeps the pool until the ring is closed with nothing in flight, or leaks it.
    pub(crate) fn register(uring: &IoUring, count: u16, size: u32) -> io::Result<Self> {
        let entries = usize::from(count) * size_of::<BufRingEntry>();
        let ring = Map::new(entries)?;
        let data = Map::new(usize::from(count) * size as usize)?;
        let address = ring.base().as_ptr() as u64;
        // SAFETY: the mapping holds `count` entries and outlives the registration (see above: the ring goes first).
        unsafe {
            uring
                .submitter()
                .register_buf_ring_with_flags(address, count, GROUP, 0)?
        };
        let lent = vec![true; usize::from(count)].into_boxed_slice();
        let mut pool = Self {
            ring,
            data,
            count,
            size,
            tail: 0,
            lent,
            free: 0,
        };
        for id in 0..count {
            pool.give_back(id);
        }
        Ok(pool)
    }

    /// Buffers with the kernel, as far as completions have told.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Notes that a completion brought this buffer. False: it did not have it (the completion must be ignored).
    pub(super) fn lend(&mut self, id: u16) -> bool {
        match self.lent.get_mut(usize::from(id)) {
            Some(lent) if !*lent => {
                *lent = true;
                self.free -= 1;
                true
            }
            _ => false,
        }
    }

    /// The first `len` bytes of a lent buffer; nothing for one that is not lent.
    pub(crate) fn bytes(&self, id: u16, len: u32) -> &[u8] {
        if len > self.size || !self.lent.get(usize::from(id)).is_some_and(|lent| *lent) {
            return &[];
        }
        let start = self.start(id).as_ptr();
        // SAFETY: `id` and `len` are in range, the mapping is initialised (zeroed by the kernel), and a lent buffer is
        // not written to by the kernel until `give_back`, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(start, len as usize) }
    }

    /// Returns a lent buffer to the kernel; nothing for one that is not lent.
    pub(crate) fn give_back(&mut self, id: u16) {
        match self.lent.get_mut(usize::from(id)) {
            Some(lent) if *lent => *lent = false,
            _ => return,
        }
        let address = self.start(id).as_ptr() as u64;
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: `at` is below `count`, so the entry lies in the mapping.
        let entry = unsafe { self.ring.base().cast::<BufRingEntry>().add(at) };
        let mut entry = entry;
        // SAFETY: the entry at the tail is not the kernel's until the tail passes it; it reads only entries before the
        // tail, and its field that the tail overlays in entry 0 is not written through this reference.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(address);
        entry.set_len(self.size);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
        // Release: the kernel, which acquires the tail, sees the entry written above.
        self.kernel_tail().store(self.tail, Ordering::Release);
    }

    fn start(&self, id: u16) -> NonNull<u8> {
        debug_assert!(id < self.count);
        let offset = usize::from(id) * self.size as usize;
        // SAFETY: every caller has found `id` in `lent`, which has `count` elements, so this stays in the mapping.
        unsafe { self.data.base().add(offset) }
    }

    fn kernel_tail(&self) -> &AtomicU16 {
        let base = self.ring.base().cast::<BufRingEntry>().as_ptr();
        // SAFETY: `base` is the first entry of a registered ring, page-aligned and initialised.
        let tail = unsafe { BufRingEntry::tail(base) };
        // SAFETY: the tail is two aligned bytes in the mapping, shared with the kernel and touched only atomically.
        unsafe { AtomicU16::from_ptr(tail.cast_mut()) }
    }
}
