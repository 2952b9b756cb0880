//! The harness: starts the built gateway as a user would, speaks HTTP to it byte by byte, and reads what it counts.
//!
//! Nothing here is linked with the product: what a test sees is what a client or an operator sees. Invariant: every
//! wait has a deadline, every read a bound, and every started process ends with its test.
#![forbid(unsafe_code)]

pub mod gateway;
pub mod golden;
pub mod hostile;
pub mod http;
pub mod metrics;
pub mod net;
pub mod port;
pub mod scratch;
pub mod sse;
pub mod tcp;
pub mod wait;

/// Says aloud that a test cannot run on this machine, in the form that `cargo xtask test` counts and compares with
/// `tests/skips.txt`.
#[expect(clippy::print_stdout, reason = "the test runner reads it")]
pub fn skip(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
}
