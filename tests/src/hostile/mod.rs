//! Scripted clients that break the rules of HTTP: what they send, and what must come of it, read from `tests/hostile`.
//!
//! [`case`] reads the table, [`client`] plays one case against a server. Nothing here judges. Invariant: a case says
//! everything that its client sends and sees, so the same case can be played against any server.

pub mod case;
pub mod client;

pub use case::{Case, End, Reply, Step};
pub use client::{Delivery, Seen, play};
