//! What the section `steering` means: which worker takes a connection, and what is kept out before it gets there.
//!
//! Plain values. Invariant: an [`Xdp`] names an interface; a gateway without a guard has none.

use std::path::PathBuf;

pub use zerohop_steer::{Blocklist, Mode as SteeringMode, Policy as SteeringPolicy, XdpMode};

/// Steering of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// The best that is tried; a running gateway cannot change it.
    pub mode: SteeringMode,
    /// Whom the program chooses.
    pub policy: SteeringPolicy,
    /// What is kept out; `None`: nothing.
    pub xdp: Option<Xdp>,
}

/// The program in front of the network stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xdp {
    /// On this interface; a running gateway cannot change it.
    pub interface: String,
    /// In the driver or in the stack; a running gateway cannot change it.
    pub mode: XdpMode,
    /// New connections a second that one source may ask for; `None`: any number.
    pub syn_rate: Option<u32>,
    /// The file of blocked prefixes, and what it held when the configuration was read.
    pub blocklist: Option<(PathBuf, Blocklist)>,
}

impl Xdp {
    /// Blocked prefixes.
    #[must_use]
    pub fn blocked(&self) -> Blocklist {
        self.blocklist
            .as_ref()
            .map(|(_, list)| list.clone())
            .unwrap_or_default()
    }
}
