//! The maps of `steer`.
//!
//! Invariant: names, types and sizes are those of `zerohop_abi::steer`.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, HashMap, PerCpuArray, ReusePortSockArray},
};
use zerohop_abi::steer::{Chosen, Count, Group, MAX_CPUS, MAX_GROUPS, MAX_WORKERS, Settings, Worker};

#[map]
pub static GROUPS: HashMap<Group, u32> = HashMap::with_max_entries(MAX_GROUPS, 0);
/// The loader gives it the size that is needed.
#[map]
pub static SOCKETS: ReusePortSockArray = ReusePortSockArray::with_max_entries(MAX_WORKERS, 0);
#[map]
pub static WORKERS: Array<Worker> = Array::with_max_entries(MAX_WORKERS, BPF_F_MMAPABLE);
#[map]
pub static CHOSEN: Array<Chosen> = Array::with_max_entries(MAX_WORKERS, BPF_F_MMAPABLE);
#[map]
pub static HOMES: Array<u32> = Array::with_max_entries(MAX_CPUS, 0);
#[map]
pub static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);
#[map]
pub static COUNTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Count::ALL.len() as u32, 0);
