//! `zerohop`: a host gateway for GPU nodes that serve language models.
//!
//! The modules stand in the order in which a request meets them. Each stage takes one type and gives the next:
//!
//! ```text
//! bytes ─ http::Head ─ caller::Caller ─ api::ChatRequest ─ resolve::ModelIndex ─ engine Job ─ Event ─ reply bytes
//! ```
//!
//! Only [`worker`] and [`server`] know sockets; only `zerohop-engine` knows the model runtime.

#![forbid(unsafe_code)]

// The control plane: what happens before and beside requests.
pub mod cli;
pub mod config;
pub mod server;
pub mod snapshot;

// The path of a request, in order.
pub mod api;
pub mod caller;
pub mod flight;
pub mod http;
pub mod keep;
pub mod key;
pub mod reply;
pub mod resolve;
pub mod worker;

// What every stage may use.
pub mod access;
pub mod clock;
pub mod date;
pub mod error;
pub mod json;
pub mod log;
pub mod metrics;
pub mod put;

// No part of the product: for measurements and fuzzing.
#[doc(hidden)]
pub mod doors;
