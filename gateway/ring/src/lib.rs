//! The one door through which a worker reaches sockets, files and time.
//!
//! [`Io`] is a closed table of operations with three makers: [`Uring`], [`Epoll`] (where a container or the
//! kernel forbids io_uring; also the honest control in benches) and [`sim::Sim`] (a seeded network that replays). All three
//! pass the same operation table. This crate never parses what it carries and never decides when to close.
//!
//! # Which maker, and on which kernel
//!
//! [`probe`] tries once and its [`Choice`] makes a maker in each worker's own thread. A [`Uring`] needs Linux 6.0:
//!
//! | since | what |
//! |---|---|
//! | 5.11 | waits with a time-out (`IORING_FEAT_EXT_ARG`) |
//! | 5.18 | the ring's own descriptor registered; without it each enter looks it up |
//! | 5.19 | multishot accept, provided-buffer rings, cooperative task run |
//! | 6.0 | multishot receive, single issuer: the minimum |
//! | 6.1 | deferred task run: the first level worth having, and that of all long-term kernels since |
//! | 6.6 | no submission index array |
//! | 6.2 | zero-copy sends that say whether they copied after all; without them every send is plain |
//! | 6.15 | waits that are not accounted as waiting for I/O; vectored zero-copy sends from registered memory, else unregistered |
//!
//! Below that, or where a container's policy or the sysctl `kernel.io_uring_disabled` forbids io_uring, [`Epoll`] serves;
//! it needs nothing newer than 5.11 for precise deadlines (before that they are rounded up to a millisecond).
//!
//! A maker may open `max_connections` descriptors, one for each listener, and three more. Files are opened by whoever makes
//! a [`ReadFile`].
//!
//! Invariant: memory that the kernel may still read or write belongs to a slot of the maker until the completion that
//! ends the loan, whatever the worker does in between.

#![deny(unsafe_code)]

mod accept;
mod clock;
mod epoll;
mod file;
mod options;
mod parcel;
mod pool;
mod probe;
pub mod sim;
mod slots;
mod spin;
mod sys;
mod token;
mod types;
mod uring;
mod wake;

pub use epoll::Epoll;
pub use file::ReadFile;
pub use options::{Options, ZeroCopy};
pub use parcel::{Parcel, VECTOR_FROM};
pub use probe::{AnyIo, Backend, Choice, Level, probe};
pub use sys::{
    arena::{Arena, ArenaOptions, POISON, Piece, REGION},
    cpu::{allowed_cores, pin_to_core},
    heap::{map_large_blocks, trim_heap},
    net::{is_unknown_option, listen},
};
pub use types::{Accepted, BufId, Completion, ConnId, Io, IoStats, ListenerId, Nanos, ReadToken, RecvEnd, Wake};
pub use uring::Uring;
