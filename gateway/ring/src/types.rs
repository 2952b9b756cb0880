//! The operation table: what a worker may ask of the outside, and what the outside may answer.
//!
//! Nothing here knows a system call. Invariant: for each connection the completions come in an order that the table of
//! [`Io`] documents, and none comes after [`Completion::Closed`].

use std::{io, net::SocketAddr, sync::Arc};

use crate::{Parcel, ReadFile};

/// Monotonic time in nanoseconds since an origin that the maker chooses.
pub type Nanos = u64;

/// A listening socket, in the order in which it was given to the maker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u16);

/// A connection: its slot (below `max_connections`, so usable as an index) and the generation of that slot, so that the
/// id of a past connection never names a present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    /// Index below `max_connections`.
    pub slot: u32,
    /// Counts the connections that this slot has carried.
    pub generation: u32,
}

/// A received chunk of bytes, lent by the maker: read it with [`Io::bytes`], return it with [`Io::give_back`], soon, in
/// the same turn of the loop. It is not `Clone`: it can be given back once.
#[derive(Debug)]
#[must_use = "a receive buffer must be given back"]
pub struct BufId {
    /// Which buffer, in the maker's own numbering.
    pub(crate) id: u32,
    /// How many bytes were received into it; never 0.
    pub(crate) len: u32,
}

/// Whose read of a file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadToken {
    /// The connection that waits for it; with that it is given up.
    pub conn: ConnId,
    /// The worker's own number, handed back as it is: which request, which of its reads.
    pub tag: u64,
}

/// A new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Where it was accepted.
    pub listener: ListenerId,
    /// Its id until [`Completion::Closed`].
    pub conn: ConnId,
    /// The client's address.
    pub peer: SocketAddr,
}

/// Why receiving ended.
#[derive(Debug)]
pub enum RecvEnd {
    /// The client sent FIN.
    Eof,
    /// [`Io::pause_recv`] took effect; [`Io::recv`] starts it again.
    Paused,
    /// The connection broke (reset, time-out of the kernel).
    Failed(io::Error),
}

/// An answer of the outside.
#[derive(Debug)]
pub enum Completion {
    /// A connection was accepted. Receiving does not start before [`Io::recv`].
    Accepted(Accepted),
    /// A connection was accepted and closed at once since `max_connections` slots were taken, after the bytes given as
    /// `overflow_reply` were offered to it once without waiting.
    Refused {
        /// Where it was accepted.
        listener: ListenerId,
    },
    /// Accepting ended on this listener: because of [`Io::stop_accept`] (`None`), or an error that will not pass.
    AcceptEnded {
        /// Which listener.
        listener: ListenerId,
        /// Why; `None` when it was asked for.
        error: Option<io::Error>,
    },
    /// Bytes from the client.
    Received {
        /// From whom.
        conn: ConnId,
        /// The bytes; see [`BufId`].
        buf: BufId,
    },
    /// No more bytes will come until [`Io::recv`] is called again (for `Paused`) or ever (else).
    RecvEnded {
        /// For whom.
        conn: ConnId,
        /// Why.
        end: RecvEnd,
    },
    /// The send is over: all bytes are with the kernel, or the connection broke. Short writes are completed by the
    /// maker and never seen here.
    Sent {
        /// To whom.
        conn: ConnId,
        /// The head that was given to [`Io::send`], contents unspecified, for reuse; an empty one if the kernel still
        /// reads it (a zero-copy send, whose bytes the maker keeps until the kernel's notification).
        buf: Vec<u8>,
        /// Bytes sent (the whole parcel), or why not.
        result: io::Result<usize>,
    },
    /// A read of a file is over.
    Read {
        /// Whose.
        token: ReadToken,
        /// All the bytes that were asked for, in the buffer that was given to [`Io::read`], or why not: `UnexpectedEof`
        /// where the file ends before, `ResourceBusy` beyond `max_reads` in flight, `InvalidInput` for a place that no
        /// file has, `Unsupported` for a file of the other kind (simulated or not), else what the kernel said.
        outcome: io::Result<Vec<u8>>,
    },
    /// Every loan of this connection is back (but the bytes of zero-copy sends and the buffers of reads, which the maker
    /// keeps apart until the kernel has let go of them) and its descriptor is closed; the slot may be used again by a later
    /// [`Completion::Accepted`].
    Closed {
        /// Which connection.
        conn: ConnId,
    },
    /// Somebody called the [`Wake`] of this maker since the last turn (at least once).
    Woken,
}

/// Wakes a worker that sleeps in [`Io::turn`], from any thread. Cheap when the worker is awake: a system call is made
/// only if it sleeps or is about to.
pub trait Wake: Send + Sync + 'static {
    /// After this returns, the worker's current or next [`Io::turn`] returns with [`Completion::Woken`].
    fn wake(&self);
}

/// The operation table. One value serves one worker thread; it is not shared.
///
/// Calls only enqueue: nothing blocks but [`Io::turn`]. A full submission queue is the maker's own business (it submits
/// what it has and goes on). Calls that name a connection which is closing or closed do nothing; the worker will find
/// `Closed` among its completions.
pub trait Io {
    /// The monotonic clock, read once a turn: constant between two turns.
    fn now(&self) -> Nanos;

    /// Seconds and nanoseconds since 1970, from the same reading as [`Io::now`].
    fn unix_time(&self) -> (u64, u32);

    /// A handle that wakes this worker.
    fn waker(&self) -> Arc<dyn Wake>;

    /// Starts accepting on every listener.
    fn start_accept(&mut self);

    /// Stops accepting everywhere: connections already in the kernel's queue are accepted first where the maker can
    /// (so that a drain refuses none), then each listener answers `AcceptEnded` and is closed.
    fn stop_accept(&mut self);

    /// Starts or resumes receiving: `Received` follows whenever bytes come, until `RecvEnded`.
    fn recv(&mut self, conn: ConnId);

    /// Asks that receiving stop (backpressure). `Received` may still come until `RecvEnded { end: Paused }`. A `recv`
    /// before that answer was handed out takes the request back, and the answer may then be left out.
    fn pause_recv(&mut self, conn: ConnId);

    /// The bytes of a received chunk.
    fn bytes(&self, buf: &BufId) -> &[u8];

    /// Returns a receive buffer.
    fn give_back(&mut self, buf: BufId);

    /// Sends the whole parcel, then answers `Sent`. At most one send is in flight for a connection; a second call
    /// before `Sent` is a bug of the worker and panics. An empty parcel is answered at once.
    fn send(&mut self, conn: ConnId, parcel: impl Into<Parcel>);

    /// Sends FIN after what is in flight; receiving goes on and nothing is answered. For a last reply that the client
    /// must be able to read while it still sends: a close with unread bytes resets the connection and may take the
    /// reply away.
    fn finish(&mut self, conn: ConnId);

    /// Closes: sends FIN after what is in flight (or RST with `abort`), cancels what is under way, and answers
    /// `Closed` when every loan is back. A send in flight is completed (or cancelled with `abort`) first and still
    /// answers `Sent`; nothing else of this connection is answered any more (what was answered before the call is still
    /// handed out). A close without `abort` waits for a slow
    /// reader as long as it takes: a second call with `abort` cuts it short.
    fn close(&mut self, conn: ConnId, abort: bool);

    /// Reads `len` bytes of a file from `offset` on into `buf` (whose contents are lost, and whose room is enlarged if it is
    /// less), then answers `Read`. Any number of a connection's reads may be in flight, at most `max_reads` of all
    /// connections together; they are answered in any order. Short reads are completed by the maker and never seen. The
    /// file need not be kept by the caller. A read of nothing is answered at once, with nothing.
    ///
    /// The close of the connection gives its reads up: they are not answered. What the kernel has begun goes on and counts
    /// in flight until it is over.
    fn read(&mut self, token: ReadToken, file: &Arc<ReadFile>, offset: u64, len: usize, buf: Vec<u8>);

    /// Submits what was asked for, waits until something completes or `deadline` passes (`None`: for ever), and appends
    /// the completions to `out`. Returns without completions when the deadline passed.
    ///
    /// # Errors
    /// Only what makes going on impossible; the worker must stop.
    fn turn(&mut self, deadline: Option<Nanos>, out: &mut Vec<Completion>) -> io::Result<()>;

    /// What the maker has counted since it was made, for the metrics.
    fn stats(&self) -> IoStats;
}

/// Counters of a maker, all since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoStats {
    /// System calls made by [`Io::turn`] (enter, epoll_wait, recv, send, accept).
    pub syscalls: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Turns that slept.
    pub sleeps: u64,
    /// Times that the receive buffers ran out.
    pub buffers_exhausted: u64,
    /// Sends that the kernel took only in part and that the maker completed.
    pub short_sends: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Sends that the kernel copied from, as ever.
    pub plain_sends: u64,
    /// Sends handed over without a copy.
    pub zero_copy_sends: u64,
    /// Of those, the ones from registered memory.
    pub registered_sends: u64,
    /// Notifications that the kernel or the card had copied after all.
    pub copied_sends: u64,
    /// Zero-copy sends that the kernel refused, sent plainly instead.
    pub refused_sends: u64,
    /// Zero-copy sends whose bytes the kernel may still read, now.
    pub held_sends: u64,
    /// Bytes of those that lie in no arena, now.
    pub held_bytes: u64,
    /// Reads of files answered with their bytes.
    pub file_reads: u64,
    /// Bytes of those.
    pub file_bytes_read: u64,
    /// Reads of files that failed.
    pub file_read_errors: u64,
    /// Reads of files beyond `max_reads`.
    pub file_reads_refused: u64,
}
