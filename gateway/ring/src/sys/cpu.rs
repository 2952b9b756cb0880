//! Which cores this process may use, pinning a thread to one, and the way back.

use std::io;

use super::check;

/// Room for 8,192 cores, the kernel's own limit (`CONFIG_NR_CPUS`).
const WORDS: usize = 128;
const BITS: usize = u64::BITS as usize;

/// The cores that this thread may run on, ascending (affinity mask; containers and taskset shrink it).
///
/// # Errors
/// What the kernel said.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let mask = mask_of(0)?;
    Ok((0..WORDS * BITS)
        .filter(|core| mask[core / BITS] >> (core % BITS) & 1 == 1)
        .collect())
}

/// Pins the calling thread to one core.
///
/// # Errors
/// `InvalidInput` for a core beyond the kernel's limit; else what the kernel said (a core that is offline or not allowed:
/// `EINVAL`).
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut mask = [0u64; WORDS];
    let word = mask.get_mut(core / BITS).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (core % BITS);
    set_mask(&mask)
}

/// Lets the calling thread run wherever the process's first thread may, which nobody pins.
pub(crate) fn unpin() -> io::Result<()> {
    let process = libc::pid_t::try_from(std::process::id()).map_err(|_| io::ErrorKind::InvalidInput)?;
    set_mask(&mask_of(process)?)
}

/// Of the calling thread, if `thread` is 0.
fn mask_of(thread: libc::pid_t) -> io::Result<[u64; WORDS]> {
    let mut mask = [0u64; WORDS];
    // SAFETY: the kernel writes at most the given number of bytes into the array.
    check(unsafe { libc::sched_getaffinity(thread, size_of_val(&mask), mask.as_mut_ptr().cast()) })?;
    Ok(mask)
}

fn set_mask(mask: &[u64; WORDS]) -> io::Result<()> {
    // SAFETY: the kernel reads the given number of bytes of the array.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(mask), mask.as_ptr().cast()) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_pinned_to_an_allowed_core_has_only_that() {
        let cores = allowed_cores().unwrap();
        let last = *cores.last().unwrap();
        let seen = std::thread::spawn(move || {
            pin_to_core(last).unwrap();
            let pinned = allowed_cores().unwrap();
            unpin().unwrap();
            (pinned, allowed_cores().unwrap())
        });
        assert_eq!(seen.join().unwrap(), (vec![last], cores.clone()));
        assert!(pin_to_core(usize::MAX).is_err());
        assert_eq!(allowed_cores().unwrap(), cores, "only the calling thread is pinned");
    }
}
