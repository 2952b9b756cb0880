//! Memory that large replies are sent from: a memfd mapped in regions, which a ring can register with the kernel.
//!
//! It never moves a piece and never writes to one that somebody holds. A piece lies within one region, since a vectored
//! send from registered memory must (Linux 6.15). Invariant: a range is with the allocator or belongs to exactly one
//! [`Piece`]; it comes back when the last clone of that piece is dropped, the ring's own clones included, which it keeps
//! until the kernel has said that it reads the bytes no more.

use std::{
    fmt, io,
    ops::Deref,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc, Mutex, MutexGuard,
        mpsc::{self, Receiver, Sender},
    },
};

use offset_allocator::{Allocation, Allocator};

use super::check;

/// Bytes of a region: what is pinned at a time when a ring registers it (about 0.1 ms), and the longest piece.
pub const REGION: usize = 4 << 20;
/// Pieces in a region; a region that has as many takes no more until one is dropped.
const PIECES: u32 = 1 << 13;
/// What the bytes of a dropped piece become in a poisoned arena: `ë` in Latin-1, in no reply by itself.
pub const POISON: u8 = 0xeb;

/// How an arena is made.
#[derive(Debug, Clone, Copy)]
pub struct ArenaOptions {
    /// Bytes of address space, rounded up to whole regions; memory is used as pieces are stored.
    pub size: usize,
    /// Every piece begins at a multiple of this: a power of two, 16 to 4096.
    pub alignment: usize,
    /// Overwrites the bytes of a dropped piece with [`POISON`], so that whoever still reads them is found out.
    pub poison: bool,
}

/// A store of immutable pieces, shared by the workers. Cloning shares it.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

struct Inner {
    map: Mapping,
    regions: Box<[Region]>,
    alignment: usize,
    poison: bool,
}

struct Region {
    free: Mutex<Free>,
    /// Where dropped pieces go; no lock is taken for that.
    dropped: Sender<Allocation>,
}

struct Free {
    /// Made when the region is first used.
    allocator: Option<Allocator>,
    dropped: Receiver<Allocation>,
}

/// Bytes in an arena, immutable from `store` to the last drop. Cloning shares them.
#[derive(Clone)]
pub struct Piece {
    held: Arc<Held>,
}

struct Held {
    arena: Arc<Inner>,
    region: usize,
    /// From the start of the arena.
    start: usize,
    len: usize,
    allocation: Allocation,
}

impl Arena {
    /// # Errors
    /// `InvalidInput` for an option out of range; else what the kernel said.
    pub fn new(options: ArenaOptions) -> io::Result<Self> {
        if !options.alignment.is_power_of_two() || !(16..=4096).contains(&options.alignment) {
            let what = "the alignment of an arena must be a power of two, 16 to 4096";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let regions = options.size.div_ceil(REGION).clamp(1, usize::from(u16::MAX));
        Ok(Self {
            inner: Arc::new(Inner {
                map: Mapping::new(regions * REGION)?,
                regions: (0..regions).map(|_| Region::new()).collect(),
                alignment: options.alignment,
                poison: options.poison,
            }),
        })
    }

    /// Stores the parts one after the other as one piece. `None`: no region has room, or it is longer than [`REGION`];
    /// the caller keeps the bytes elsewhere. Takes locks: not for a worker's path.
    #[must_use]
    pub fn store(&self, parts: &[&[u8]]) -> Option<Piece> {
        (0..self.inner.regions.len()).find_map(|region| {
            // A region whose allocator panicked counts as full.
            let free = self.inner.regions[region].free.lock();
            self.store_in(region, free.ok()?, parts)
        })
    }

    /// As [`Arena::store`], without waiting: a region at which somebody else is counts as full.
    #[must_use]
    pub(crate) fn try_store(&self, bytes: &[u8]) -> Option<Piece> {
        (0..self.inner.regions.len()).find_map(|region| {
            let free = self.inner.regions[region].free.try_lock();
            self.store_in(region, free.ok()?, &[bytes])
        })
    }

    /// As [`Arena::store`], in the region of `near` and without waiting: `None` too if somebody else is at it.
    #[must_use]
    pub(crate) fn store_near(&self, near: &Piece, bytes: &[u8]) -> Option<Piece> {
        let free = self.inner.regions[near.held.region].free.try_lock();
        self.store_in(near.held.region, free.ok()?, &[bytes])
    }

    fn store_in(&self, region: usize, mut free: MutexGuard<'_, Free>, parts: &[&[u8]]) -> Option<Piece> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 || len > REGION {
            return None;
        }
        let units = u32::try_from(len.div_ceil(self.inner.alignment)).ok()?;
        let allocation = free.allocate(units, self.inner.alignment)?;
        drop(free);
        let start = region * REGION + allocation.offset as usize * self.inner.alignment;
        let mut at = start;
        for part in parts {
            self.inner.map.write(at, part);
            at += part.len();
        }
        Some(Piece {
            held: Arc::new(Held {
                arena: Arc::clone(&self.inner),
                region,
                start,
                len,
                allocation,
            }),
        })
    }

    /// How many regions there are.
    pub(crate) fn regions(&self) -> usize {
        self.inner.regions.len()
    }

    /// The memory of a region, to be registered. It stays mapped as long as any clone of the arena or a piece lives.
    pub(crate) fn region(&self, region: usize) -> libc::iovec {
        libc::iovec {
            iov_base: self.inner.map.at(region * REGION).as_ptr().cast(),
            iov_len: REGION,
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} regions)", self.regions())
    }
}

impl Region {
    fn new() -> Self {
        let (dropped, receiver) = mpsc::channel();
        Self {
            free: Mutex::new(Free {
                allocator: None,
                dropped: receiver,
            }),
            dropped,
        }
    }
}

impl Free {
    fn allocate(&mut self, units: u32, alignment: usize) -> Option<Allocation> {
        let units_in_all = (REGION / alignment) as u32;
        let allocator = self
            .allocator
            .get_or_insert_with(|| Allocator::with_max_allocs(units_in_all, PIECES));
        while let Ok(allocation) = self.dropped.try_recv() {
            allocator.free(allocation);
        }
        allocator.allocate(units)
    }
}

impl Piece {
    pub(crate) fn region(&self) -> usize {
        self.held.region
    }

    pub(crate) fn arena(&self) -> Arena {
        Arena {
            inner: Arc::clone(&self.held.arena),
        }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.held.arena.map.read(self.held.start, self.held.len)
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes at {})", self.held.len, self.held.start)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.arena.poison {
            self.arena.map.fill(self.start, self.len, POISON);
        }
        // The receiver lives as long as the arena, which this value still holds.
        let _ = self.arena.regions[self.region].dropped.send(self.allocation);
    }
}

/// The mapping of the memfd. Its methods are safe for this file only: a range may be written by the one who has it from
/// the allocator, and read by those who hold its piece.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Kept so that the memory can be found in `/proc` under its name.
    _fd: OwnedFd,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared access reads ranges that nobody writes (see the invariant of the file).
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> io::Result<Self> {
        // SAFETY: the name is a live C string.
        let fd = check(unsafe { libc::memfd_create(c"zerohop-arena".as_ptr(), libc::MFD_CLOEXEC) })?;
        // SAFETY: the kernel has just made this descriptor for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = libc::off_t::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: no memory is involved.
        check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, len, _fd: fd })
    }

    fn at(&self, start: usize) -> NonNull<u8> {
        assert!(start <= self.len, "within the mapping");
        // SAFETY: `start` is within the mapping.
        unsafe { self.base.add(start) }
    }

    fn range(&self, start: usize, len: usize) -> NonNull<u8> {
        assert!(len <= self.len && start <= self.len - len, "within the mapping");
        self.at(start)
    }

    fn read(&self, start: usize, len: usize) -> &[u8] {
        let at = self.range(start, len).as_ptr();
        // SAFETY: in range, initialised (a memfd begins as zeros), and nobody writes to a range that a piece holds.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    fn write(&self, start: usize, bytes: &[u8]) {
        let at = self.range(start, bytes.len()).as_ptr();
        // SAFETY: in range; the caller has the range from the allocator, so nobody reads it; it is not in `bytes`, which
        // is a range that somebody can read.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    }

    fn fill(&self, start: usize, len: usize, byte: u8) {
        let at = self.range(start, len).as_ptr();
        // SAFETY: in range; the last piece of this range is being dropped, so nobody reads it.
        unsafe { std::ptr::write_bytes(at, byte, len) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nobody can reach it through us any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(size: usize, poison: bool) -> Arena {
        Arena::new(ArenaOptions {
            size,
            alignment: 64,
            poison,
        })
        .unwrap()
    }

    #[test]
    fn pieces_keep_their_bytes_until_the_last_clone() {
        let arena = arena(1, true);
        let one = arena.store(&[b"head", b"", b"body"]).unwrap();
        let two = arena.store(&[&[7; 100]]).unwrap();
        assert_eq!(&*one, b"headbody");
        assert_eq!(&*two, [7; 100]);
        assert!(one.as_ptr().addr().is_multiple_of(64) && two.as_ptr().addr().is_multiple_of(64));
        let (clone, start) = (one.clone(), one.held.start);
        drop(one);
        assert_eq!(&*clone, b"headbody");
        drop(clone);
        assert_eq!(
            arena.inner.map.read(start, 8),
            [POISON; 8],
            "whoever still reads it finds out"
        );
        assert_eq!(&*two, [7; 100]);
    }

    #[test]
    fn full_is_told_and_passes() {
        let arena = arena(2 * REGION, false);
        assert!(arena.store(&[&vec![1; REGION + 1]]).is_none(), "longer than a region");
        assert!(arena.store(&[]).is_none(), "nothing");
        let first = arena.store(&[&vec![1; REGION]]).unwrap();
        let second = arena.store(&[&vec![2; REGION]]).unwrap();
        assert_ne!(first.region(), second.region());
        assert!(arena.store(&[b"x"]).is_none());
        drop(first);
        let third = arena.store(&[b"x"]).unwrap();
        assert!(arena.store_near(&second, b"y").is_none(), "its region is full");
        assert_eq!(arena.store_near(&third, b"y").as_deref(), Some(&b"y"[..]));
    }

    /// Many small pieces meet the bound of a region's allocator, which says so instead of failing.
    #[test]
    fn the_number_of_pieces_is_bounded() {
        let arena = arena(1, false);
        let pieces: Vec<_> = std::iter::from_fn(|| arena.store(&[b"small"])).collect();
        assert!(
            pieces.len() > 1000 && pieces.len() <= PIECES as usize,
            "{}",
            pieces.len()
        );
        assert!(pieces.iter().all(|piece| **piece == *b"small"));
        drop(pieces);
        assert!(
            arena.store(&[&vec![3; REGION]]).is_some(),
            "all came back, in one range"
        );
    }

    #[test]
    fn workers_share_it() {
        let arena = arena(8 * REGION, true);
        std::thread::scope(|scope| {
            for worker in 0..4u8 {
                let arena = &arena;
                scope.spawn(move || {
                    let mut kept = std::collections::VecDeque::new();
                    for round in 0..2_000usize {
                        let byte = worker * 60 + (round % 60) as u8;
                        kept.push_back((byte, arena.store(&[&vec![byte; 1 + round * 37 % 9000]]).unwrap()));
                        if kept.len() > 20 {
                            let (byte, piece) = kept.pop_front().unwrap();
                            assert!(piece.iter().all(|it| *it == byte));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn options_out_of_range() {
        for alignment in [0, 8, 48, 8192] {
            let made = Arena::new(ArenaOptions {
                size: 1,
                alignment,
                poison: false,
            });
            assert_eq!(made.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{alignment}");
        }
    }
}
