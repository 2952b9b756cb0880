//! What the gateway and its programs in the kernel share: keys, values, and the rules that both sides reckon with.
//!
//! Compiled twice, for the machine and for BPF. No pointer, no allocation, no call of the kernel. Invariant: a type that
//! lies in a map has a fixed size without hidden padding, asserted here at compile time for both targets.
#![no_std]
#![forbid(unsafe_code)]

pub mod guard;
pub mod steer;

/// Fails to compile unless the type has this size and alignment, and its fields fill it.
macro_rules! laid_out {
    ($type:ty, size $size:literal, align $align:literal, fields $($field:ty),+) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            assert!(align_of::<$type>() == $align);
            assert!(0 $(+ size_of::<$field>())+ == $size);
        };
    };
}
use laid_out;
