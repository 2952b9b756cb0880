//! Receive buffers of the makers that fill them themselves (epoll, sim): a bounded number, allocated when first needed.
//! The ring has its own, since its kernel writes to them.
//!
//! Invariant: a buffer is vacant or lent, never both; buffers of whole pages begin at pages, as the ring's do.

use crate::BufId;

/// Bytes of a page, the greatest alignment that is promised.
const PAGE: usize = 4096;

/// Memory that never moves, and where in it the buffer begins.
struct Buffer {
    memory: Box<[u8]>,
    start: usize,
}

impl Buffer {
    fn new(size: usize) -> Self {
        if !size.is_multiple_of(PAGE) {
            return Self {
                memory: vec![0; size].into_boxed_slice(),
                start: 0,
            };
        }
        let memory = vec![0; size + PAGE - 1].into_boxed_slice();
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start }
    }

    fn bytes(&self, size: usize) -> &[u8] {
        &self.memory[self.start..][..size]
    }

    fn bytes_mut(&mut self, size: usize) -> &mut [u8] {
        &mut self.memory[self.start..][..size]
    }
}

pub(crate) struct Pool {
    buffers: Vec<Buffer>,
    /// Numbers of buffers that are not lent; the last returned is the next used, since its memory is warm.
    vacant: Vec<u32>,
    bound: usize,
    size: usize,
}

impl Pool {
    pub(crate) fn new(bound: u16, size: u32) -> Self {
        Self {
            buffers: Vec::new(),
            vacant: Vec::new(),
            bound: usize::from(bound),
            size: size as usize,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    pub(crate) fn free(&self) -> usize {
        self.vacant.len() + self.bound - self.buffers.len()
    }

    /// A vacant buffer to receive into; it counts as lent until `give_back`.
    pub(crate) fn lend(&mut self) -> Option<(u32, &mut [u8])> {
        let id = match self.vacant.pop() {
            Some(id) => id,
            None if self.buffers.len() < self.bound => {
                self.buffers.push(Buffer::new(self.size));
                (self.buffers.len() - 1) as u32
            }
            None => return None,
        };
        Some((id, self.buffers[id as usize].bytes_mut(self.size)))
    }

    pub(crate) fn bytes(&self, buf: &BufId) -> &[u8] {
        self.buffers
            .get(buf.id as usize)
            .and_then(|buffer| buffer.bytes(self.size).get(..buf.len as usize))
            .unwrap_or_default()
    }

    pub(crate) fn give_back(&mut self, id: u32) {
        debug_assert!(!self.vacant.contains(&id), "a buffer was given back twice");
        self.vacant.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_whole_pages_begin_at_pages() {
        for size in [64, 1000, 4096, 8192, 12_288, 1 << 20] {
            let mut pool = Pool::new(4, size);
            for at in 0..4 {
                let (id, memory) = pool.lend().expect("a vacant buffer");
                assert_eq!(memory.len(), size as usize);
                memory.fill(at);
                let lent = memory.as_ptr();
                assert!(
                    !size.is_multiple_of(4096) || lent.addr().is_multiple_of(4096),
                    "{lent:?}"
                );
                let bytes = pool.bytes(&BufId { id, len: size });
                assert_eq!((bytes.as_ptr(), bytes), (lent, vec![at; size as usize].as_slice()));
                assert!(
                    pool.bytes(&BufId { id, len: size + 1 }).is_empty(),
                    "not beyond its end"
                );
            }
            assert!(pool.lend().is_none());
        }
    }
}
