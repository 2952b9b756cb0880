//! Counts by CPU.
//!
//! Invariant: counting cannot fail.

use aya_ebpf::maps::PerCpuArray;

/// Adds one to this CPU's count.
#[inline(always)]
pub(crate) fn count(counts: &PerCpuArray<u64>, which: u32) {
    if let Some(count) = counts.get_ptr_mut(which) {
        // SAFETY: the element is this CPU's own, and a program is not interrupted by itself on its CPU.
        unsafe { *count += 1 };
    }
}
