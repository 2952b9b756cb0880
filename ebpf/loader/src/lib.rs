//! The gateway's programs in the kernel, seen from the gateway: loaded, attached, fed and read.
//!
//! [`Steering`] decides which worker takes a new connection; it begins at the best step that is wanted and goes down until
//! one works, and says why. [`Guard`] drops packets before the network stack sees them. Nothing here accepts a connection
//! or parses a request. Invariants: without any of this the gateway serves all the same; what was attached by this process
//! ends with it, also when it is killed.
#![deny(unsafe_code)]

mod blocklist;
mod classic;
mod guard;
mod ladder;
mod program;
mod refusal;
mod seat;
mod status;
mod sys;
mod watch;

pub use blocklist::{Blocklist, BlocklistError, Prefix};
pub use guard::{Dropped, Guard, GuardOptions, GuardStats, GuardView, XdpMode, XdpUsed};
pub use ladder::{Group, Mode, Policy, Rung, Steering, Wanted};
pub use refusal::Refusal;
pub use seat::Seat;
pub use status::{SteeringStats, WorkerStats};
pub use watch::Change;

/// The program that chooses workers, as it is committed.
pub static STEER: &[u8] = aya::include_bytes_aligned!("../../objects/steer.bpf.o");
/// The program that drops packets, as it is committed.
pub static GUARD: &[u8] = aya::include_bytes_aligned!("../../objects/guard.bpf.o");
