//! The end-to-end suites: each starts the built gateway with the bundled model and is its client.
//!
//! Nothing here knows the product's code. Invariant: a test that cannot run on a machine says so aloud.
#![forbid(unsafe_code)]

mod ask;
mod bad_input;
mod batch;
mod cached;
mod cancel;
mod command_line;
mod completions;
mod control;
mod embeddings;
mod flights;
mod hostile;
mod memory;
mod on_disk;
mod protocol;
mod readers;
mod refusals;
mod reload;
mod safety;
mod steering;
mod tools;
mod wire;
mod zero_copy;
