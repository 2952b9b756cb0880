//! What the simulation sees of a connection's inside.
//!
//! It changes nothing. Invariant: what is shown is what the connection itself decides by.

use super::*;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Stand {
    Head,
    Body,
    Answering,
    Over,
}

/// A look at a connection.
#[derive(Debug, Clone)]
pub(in crate::worker) struct Seen {
    pub(in crate::worker) id: ConnId,
    pub(in crate::worker) stand: Stand,
    /// Of the jobs that it waits for.
    pub(in crate::worker) tickets: Vec<Ticket>,
    /// It is within the limit of connections.
    pub(in crate::worker) welcome: bool,
    /// What the budget counts for it.
    pub(in crate::worker) counted: usize,
    pub(in crate::worker) input: usize,
    /// Something is written and not yet handed to the ring.
    pub(in crate::worker) unsent: bool,
    pub(in crate::worker) sending: bool,
    /// Receiving is on, or on its way to off.
    pub(in crate::worker) receiving: bool,
    /// The end was asked of the ring.
    pub(in crate::worker) closing: bool,
    /// The end is due and was not asked.
    pub(in crate::worker) unsettled: bool,
    pub(in crate::worker) deadline: Option<Nanos>,
}

impl Conn {
    pub(in crate::worker) fn seen(&self, local: &Local) -> Seen {
        Seen {
            id: self.id,
            stand: match &self.state {
                State::Head => Stand::Head,
                State::Body(_) => Stand::Body,
                // A fetch is part of answering: its deadline and end are the same in kind.
                State::Answering(_) | State::Fetching(_) => Stand::Answering,
                State::Over { .. } => Stand::Over,
            },
            tickets: match &self.state {
                State::Answering(answering) => answering.tickets().collect(),
                _ => Vec::new(),
            },
            welcome: self.welcome,
            counted: self.counted,
            input: self.input.len(),
            unsent: !self.out.is_empty(),
            sending: self.sending_since.is_some(),
            receiving: self.receiving != Receiving::Off,
            closing: self.close == Close::Asked,
            unsettled: self.close == Close::Abort,
            deadline: self.next_deadline(local),
        }
    }
}
