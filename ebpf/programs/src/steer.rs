//! Chooses the worker of each new connection among the sockets of its address (`sk_reuseport`), and another one for
//! connections whose listener closes before it accepted them (`migrate`).
//!
//! It never refuses a connection. Invariant: whatever goes wrong leaves the choice to the kernel's own hash.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(
    internal_features,
    reason = "the target has atomic addition, but not what core's atomics ask for"
)]

mod common;
mod counts;
mod steer_maps;

use core::{
    intrinsics::{AtomicOrdering, atomic_xadd},
    ptr::{addr_of, addr_of_mut, read_volatile},
};

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::sk_reuseport, programs::SkReuseportContext};
use counts::count;
use steer_maps::{CHOSEN, COUNTS, GROUPS, HOMES, SETTINGS, SOCKETS, WORKERS};
use zerohop_abi::steer::{
    CLOSED, Count, Group, MAX_WORKERS, Policy, Settings, is_overloaded, least, rank, ranked, with_unseen,
};

/// What a program of this kind answers so that the connection goes on.
const SK_PASS: u32 = 1;
const AF_INET: u32 = 2;

/// The program.
#[sk_reuseport(migrate)]
pub fn steer(ctx: SkReuseportContext) -> u32 {
    let outcome = match choose(&ctx) {
        Ok(count) | Err(count) => count,
    };
    count(&COUNTS, outcome as u32);
    SK_PASS
}

/// Chooses a socket; what kind of choice it was, or why there was none.
#[inline(always)]
fn choose(ctx: &SkReuseportContext) -> Result<Count, Count> {
    let first = first_slot(ctx).ok_or(Count::NoGroup)?;
    let settings = SETTINGS.get(0).copied().ok_or(Count::NoWorker)?;
    let (worker, how) = worker(&settings, ctx.hash()).ok_or(Count::NoWorker)?;
    SOCKETS
        .select_reuseport(ctx, first + worker)
        .map_err(|_| Count::NoSocket)?;
    note(worker);
    if ctx.migrating_sk().is_some() {
        count(&COUNTS, Count::Migrated as u32);
    }
    Ok(how)
}

/// Where the sockets of this address begin: a socket of another address would be refused by the kernel.
#[inline(always)]
fn first_slot(ctx: &SkReuseportContext) -> Option<u32> {
    // SAFETY: the kernel gives a socket of the group with every call.
    let socket = unsafe { (*ctx.md).__bindgen_anon_3.sk };
    /// Each field by an access of its own, of its own size and offset: the verifier admits no other.
    macro_rules! field {
        ($($field:tt)+) => {{
            // SAFETY: the kernel lets a program read this field of any socket; what it means is up to the family.
            unsafe { read_volatile(addr_of!((*socket).$($field)+)) }
        }};
    }
    // A listener that closes has lost a port that the kernel chose for it; what it leaves behind still has it.
    // SAFETY: as above; null where nothing moves.
    let moving = unsafe { (*ctx.md).__bindgen_anon_4.migrating_sk };
    let own = field!(src_port);
    let port = if moving.is_null() {
        own
    } else {
        // SAFETY: it is no null pointer, and a program may read the field.
        unsafe { read_volatile(addr_of!((*moving).src_port)) }
    };
    let family = field!(family);
    let of4 = field!(src_ip4);
    let of6 = [
        field!(src_ip6[0]),
        field!(src_ip6[1]),
        field!(src_ip6[2]),
        field!(src_ip6[3]),
    ];
    let group = Group {
        family,
        port,
        address: if family == AF_INET { [of4, 0, 0, 0] } else { of6 },
    };
    // SAFETY: the value is a number that does not change while the program is attached.
    unsafe { GROUPS.get(&group) }.copied()
}

/// The worker to choose, and how it was found.
#[inline(always)]
fn worker(settings: &Settings, hash: u32) -> Option<(u32, Count)> {
    // The loop comes before anything branches, since the verifier follows it once for each way that leads there.
    let first = first(settings.workers, hash);
    let (least_score, least) = ranked(first, hash);
    let home = home();
    let home_rank = if home < settings.workers {
        rank_of(home, hash)
    } else {
        CLOSED
    };
    let at_home = home_rank < CLOSED
        && (settings.policy == Policy::Cpu as u32
            || settings.policy == Policy::Local as u32
                && !is_overloaded(ranked(home_rank, hash).0, least_score, settings.margin));
    if first >= CLOSED {
        None
    } else if at_home {
        Some((home, Count::Home))
    } else {
        Some((least, Count::Least))
    }
}

/// The worker that runs on this CPU; beyond all workers if none does.
#[inline(always)]
fn home() -> u32 {
    // SAFETY: the helper has no conditions.
    let cpu = unsafe { bpf_get_smp_processor_id() } as u32;
    HOMES.get(cpu).copied().unwrap_or(0).wrapping_sub(1)
}

/// The first rank of all workers; [`CLOSED`] if none takes connections.
#[inline(always)]
fn first(workers: u32, hash: u32) -> u64 {
    let mut best = CLOSED;
    for worker in 0..MAX_WORKERS {
        if worker >= workers {
            break;
        }
        best = least(best, rank_of(worker, hash));
    }
    best
}

/// The rank of a worker, by what it says and what was chosen since.
#[inline(always)]
fn rank_of(worker: u32, hash: u32) -> u64 {
    let (Some(row), Some(chosen)) = (WORKERS.get_ptr(worker), CHOSEN.get_ptr(worker)) else {
        return CLOSED;
    };
    // SAFETY: each field is one word of a map's element, which others write while it is read: an old value is good too.
    let open = unsafe { read_volatile(addr_of!((*row).open)) };
    // SAFETY: as above.
    let alive = unsafe { read_volatile(addr_of!((*row).alive)) };
    // SAFETY: as above.
    let score = unsafe { read_volatile(addr_of!((*row).score)) };
    // SAFETY: as above. Read before the choices, so that what is seen is never more than what was chosen here.
    let seen = unsafe { read_volatile(addr_of!((*row).seen)) };
    // SAFETY: as above.
    let count = unsafe { read_volatile(addr_of!((*chosen).count)) };
    rank(with_unseen(score, count, seen), worker, hash, open & alive & 1)
}

/// Counts a choice, at once, so that the next one of a burst knows of it.
#[inline(always)]
fn note(worker: u32) {
    if let Some(chosen) = CHOSEN.get_ptr_mut(worker) {
        // SAFETY: a word of a map's element.
        let count = unsafe { addr_of_mut!((*chosen).count) };
        // SAFETY: every CPU adds to it by this instruction only.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(count, 1) };
    }
}
