//! The targets under libFuzzer: `ZEROHOP_FUZZ` names the one to run, the arguments are libFuzzer's own.
//!
//! Built by `cargo xtask fuzz`, which adds the counters that guide it. Invariant: it runs exactly one target.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use zerohop_fuzz::{TARGETS, Target};

static TARGET: OnceLock<&Target> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("ZEROHOP_FUZZ").unwrap_or_default();
        let target = TARGETS.iter().find(|target| target.name == name);
        TARGET.get_or_init(|| target.unwrap_or_else(|| panic!("ZEROHOP_FUZZ={name:?} names no target")));
    },
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(data);
        }
    }
);
