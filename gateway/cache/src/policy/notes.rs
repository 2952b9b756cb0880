//! How readers tell the writer of hits that the shadows have to see: a bounded queue that nobody waits at.
//!
//! Only hits on keys of the share are told, of a usual cache one in 64. Invariant: a reader never waits; what the queue cannot
//! take is counted by whoever sends it, and both shadows miss it alike.

use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_channel::{Receiver, Sender, TryIter, bounded};

use super::{Look, Share};

/// Hits that may wait for the writer.
const WAITING: usize = 4096;

/// The queue, and which keys it is for.
pub(crate) struct Notes {
    share: AtomicU32,
    sender: Sender<Look>,
    receiver: Receiver<Look>,
}

impl Notes {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = bounded(WAITING);
        Self {
            share: AtomicU32::new(Share::NONE.bits()),
            sender,
            receiver,
        }
    }

    /// Tells readers which keys count from now on.
    pub(super) fn follow(&self, share: Share) {
        self.share.store(share.bits(), Ordering::Relaxed);
    }

    /// Whether look-ups of this key are to be told.
    pub(crate) fn wants(&self, word: u64) -> bool {
        Share::from_bits(self.share.load(Ordering::Relaxed)).has(word)
    }

    /// Tells of a hit; false if it is lost.
    pub(crate) fn tell(&self, look: Look) -> bool {
        self.sender.try_send(look).is_ok()
    }

    /// What was told and not yet taken: at most as much as the queue holds now, and what comes meanwhile.
    pub(crate) fn take(&self) -> std::iter::Take<TryIter<'_, Look>> {
        self.receiver.try_iter().take(WAITING)
    }
}
