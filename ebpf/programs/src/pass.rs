//! `steer` that chooses nothing, so that the kernel's hash is in force: with it the tests of `steer` must fail.
//!
//! It has the name and the maps of `steer`, to be loaded in its place.
#![no_std]
#![no_main]

mod common;
mod steer_maps;

use aya_ebpf::{macros::sk_reuseport, programs::SkReuseportContext};

/// What a program of this kind answers so that the connection goes on.
const SK_PASS: u32 = 1;

/// Counts nothing, chooses nothing.
#[sk_reuseport(migrate)]
pub fn steer(_: SkReuseportContext) -> u32 {
    SK_PASS
}
