//! The programs in the kernel that runs here, in network namespaces of our own: nothing touches the machine's interfaces.
//!
//! Invariant: a test that may not load programs says so aloud.
#![forbid(unsafe_code)]

mod guard;
mod net;
mod packets;
mod steer;
