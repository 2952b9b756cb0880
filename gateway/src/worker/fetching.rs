//! A request whose stored answer is being read from its file.
//!
//! It reads nothing itself: the worker asks its ring for [`Fetching::take`] and brings what came. Invariant: a request waits for one
//! read at most; one that fails, or takes longer than [`PATIENCE`], makes it a miss, and never an error.

use std::{io, sync::Arc, time::Duration};

use zerohop_cache::{
    Place,
    segment::part::{Form, open_value},
};
use zerohop_ring::{Nanos, ReadFile};

use super::answer::Call;
use crate::clock::nanos;

/// How long a read may take: a disk that needs longer is no faster than the model.
const PATIENCE: Duration = Duration::from_millis(500);

/// A stored answer that lies in a file.
pub(super) struct Wanted {
    pub(super) file: Arc<ReadFile>,
    pub(super) form: Form,
    pub(super) place: Place,
}

/// What became of a read.
pub(super) enum Fetched {
    /// The value that lies there.
    Value(Place, Arc<[u8]>),
    /// Nothing.
    Failed,
}

/// A request that waits.
pub(crate) struct Fetching {
    call: Call,
    body: Vec<u8>,
    wanted: Wanted,
    is_asked: bool,
}

/// A read to ask the ring for.
pub(crate) struct Read {
    pub(crate) file: Arc<ReadFile>,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

impl Fetching {
    /// A request with its body, which is answered anew when the value is there.
    pub(super) fn new(call: Call, body: &[u8], wanted: Wanted) -> Self {
        Self {
            call,
            body: body.to_vec(),
            wanted,
            is_asked: false,
        }
    }

    /// Bytes that it holds, those of the read among them.
    pub(crate) fn held(&self) -> usize {
        self.body.capacity() + self.wanted.place.len as usize
    }

    /// When a wait that began at `since` is over.
    pub(crate) fn deadline(since: Nanos) -> Nanos {
        since.saturating_add(nanos(PATIENCE))
    }

    /// The read, once.
    pub(crate) fn take(&mut self) -> Option<Read> {
        let first = !std::mem::replace(&mut self.is_asked, true);
        first.then(|| Read {
            file: Arc::clone(&self.wanted.file),
            offset: self.wanted.place.offset,
            len: self.wanted.place.len as usize,
        })
    }

    /// The request and its body, and what was read: its bytes if they are those that were put there.
    pub(super) fn over(self, outcome: Option<io::Result<Vec<u8>>>) -> (Call, Vec<u8>, Fetched) {
        let Wanted { form, place, .. } = self.wanted;
        let value = outcome.and_then(|bytes| open_value(form, place, bytes.ok()?).ok());
        let fetched = value.map_or(Fetched::Failed, |value| Fetched::Value(place, value.into()));
        (self.call, self.body, fetched)
    }

    /// The client left.
    pub(super) fn client_gone(self, local: &mut super::local::Local) {
        self.call.client_gone(local);
    }
}
