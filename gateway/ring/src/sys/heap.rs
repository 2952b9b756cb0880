//! How the C library's allocator treats large buffers, which come and go with clients by the thousand.
//!
//! Nothing here allocates. Elsewhere than with glibc both functions do nothing. Invariant: calling them changes when memory
//! goes back to the system and never what a program sees.

/// Blocks from this size up are mappings of their own, which go back to the system when they are freed and grow without
/// being copied. glibc begins with this value and raises it with each block that is freed, up to 32 MiB; from then on
/// what a thousand slow readers held is never given back (377 MiB of 412 in `cargo xtask bench memory`).
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 << 10;

/// Fixes the size from which a block is a mapping of its own. Call it once, early.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)] {
        // SAFETY: sets a number in the allocator, under its lock.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives what is free in the heap back to the system. It takes the allocator's locks for about a millisecond for ten
/// MiB, so call it seldom and not from a worker.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: gives back whole pages that no block lies in, under the allocator's locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_works_on() {
        map_large_blocks();
        let mut blocks: Vec<Vec<u8>> = (0..200).map(|at| vec![at; 1000 * usize::from(at)]).collect();
        blocks.retain(|block| block.len() % 3000 == 0);
        trim_heap();
        for block in &mut blocks {
            block.resize(block.len() + 300_000, 9);
        }
        let sums = blocks
            .iter()
            .map(|block| block.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        let expected = (0..200u64).step_by(3).map(|at| at * at * 1000 + 2_700_000);
        assert!(sums.eq(expected));
    }
}
