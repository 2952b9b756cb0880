//! Signals as messages of a channel.
//!
//! Nothing runs in a signal handler but `signal-hook`'s own pipe write. Invariant: no signal that asks for something is
//! lost while the control thread is busy; equal ones may become one.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use crossbeam_channel::{Receiver, bounded};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals,
};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGHUP.
    Reload,
    /// SIGTERM or SIGINT.
    Terminate,
}

/// The exit status of a process that was told to end while it was still loading.
const NOT_STARTED: i32 = 1;

/// Begins to catch them. While `loading` is true nothing is served yet, so a signal to terminate ends the process at once.
pub(super) fn signals(loading: &Arc<AtomicBool>) -> io::Result<Receiver<Signal>> {
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, NOT_STARTED, Arc::clone(loading))?;
    }
    let mut caught = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let (send, receive) = bounded(16);
    thread::Builder::new().name("zerohop-signals".into()).spawn(move || {
        for signal in caught.forever() {
            let meaning = if signal == SIGHUP {
                Signal::Reload
            } else {
                Signal::Terminate
            };
            if send.send(meaning).is_err() {
                return;
            }
        }
    })?;
    Ok(receive)
}
