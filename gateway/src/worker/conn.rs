//! One connection's state machine: bytes in, bytes out, and what it wants of the outside.
//!
//! It never touches a socket: [`super::Worker`] asks it for output, closing and receiving after each event. It answers
//! one request at a time; what a client pipelines waits in `input`.
//!
//! Invariants: `input` holds at most [`INPUT_HIGH`] bytes beyond one request's head while a reply is under way (then
//! receiving is paused), and `out` grows beyond [`OUT_HIGH`] only by the reply under way, so one client cannot fill the
//! worker's memory.

use std::{io, mem, net::SocketAddr, time::Duration};

use zerohop_engine::{Mail, Ticket};
use zerohop_ring::{ConnId, Nanos};

use super::{
    answer::{Call, Outcome},
    answering::Answering,
    fetching::{Fetching, Read},
    local::{Limits, Local},
    routes::{self, Surface},
    timer::Deadline,
};
use crate::{
    clock::nanos,
    error::{ApiError, ErrorKind},
    http::{BodyReader, Framing, Head, HeadReader, Parsed, body, write},
};

/// Unconsumed input above which receiving is paused.
const INPUT_HIGH: usize = 64 * 1024;
/// Unsent output above which no further pipelined request is begun, and with which a client is cut off when memory is
/// short.
const OUT_HIGH: usize = 64 * 1024;
/// A buffer with more room than this is not kept between requests.
const KEEP_CAPACITY: usize = 64 * 1024;
/// A send that makes no end within this time belongs to a client that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long input is thrown away after a last reply, so that a client which is still sending reads it instead of a reset.
const LINGER: Duration = Duration::from_secs(1);
/// A stream that is silent for this long gets a sign of life; proxies often cut after 60 s.
const SILENCE: Duration = Duration::from_secs(15);
/// How long a connection that is idle when the gateway begins to drain may still bring a request.
const DRAIN_GRACE: Duration = Duration::from_millis(200);
/// Bytes of a request so far that memory is always there for, short or not: that of a usual small one in two segments.
const SMALL: usize = 8 * 1024;
/// When a client may come again that found the gateway short of memory.
const SHORT_OF_MEMORY: Duration = Duration::from_secs(2);
/// Slowest body that is waited for, in bytes a second, counted after `read_timeout`.
const MIN_BODY_RATE: u64 = 16 * 1024;

/// Where the connection stands between bytes.
enum State {
    /// Before or within a request head.
    Head,
    /// Within a request body.
    Body(Box<Gathering>),
    /// The request's stored answer is being read.
    Fetching(Box<Fetching>),
    /// The request is with an engine.
    Answering(Box<Answering>),
    /// The last reply is written. `linger`: the client may still be sending.
    Over { linger: bool },
}

/// A request whose body is coming.
struct Gathering {
    call: Call,
    reader: BodyReader,
    body: Vec<u8>,
    since: Nanos,
}

/// What is asked of the outside about receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    On,
    Pausing,
    Off,
}

/// How the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Close {
    /// It does not, or only when `State::Over` is flushed.
    No,
    /// At once, with a reset.
    Abort,
    /// It was asked for.
    Asked,
}

/// A connection.
pub(crate) struct Conn {
    id: ConnId,
    peer: SocketAddr,
    surface: Surface,
    opened: Nanos,
    state: State,
    reader: HeadReader,
    input: Vec<u8>,
    out: Vec<u8>,
    /// The buffer that the last send gave back.
    spare: Vec<u8>,
    sending_since: Option<Nanos>,
    receiving: Receiving,
    close: Close,
    deadline: Deadline,
    /// When the present wait began: for a request, or for the next piece of an answer.
    waiting_since: Nanos,
    /// When the first bytes of an unfinished head came.
    head_since: Option<Nanos>,
    /// Replies so far.
    replies: u64,
    /// Reads so far.
    reads: u64,
    /// FIN was sent.
    finished: bool,
    /// When an idle connection ends, for a gateway that drains.
    idle_until: Option<Nanos>,
    /// It is within `max_connections`.
    welcome: bool,
    /// Bytes of the send in flight.
    sending: usize,
    /// Bytes that the worker's budget counts for it.
    counted: usize,
}

impl Conn {
    pub(crate) fn new(id: ConnId, peer: SocketAddr, surface: Surface, local: &mut Local) -> Self {
        let welcome = local.connection_opened();
        let mut this = Self {
            id,
            peer,
            surface,
            opened: local.now(),
            state: State::Head,
            reader: HeadReader::default(),
            input: Vec::new(),
            out: Vec::new(),
            spare: Vec::new(),
            sending_since: None,
            receiving: Receiving::On,
            close: Close::No,
            deadline: Deadline::default(),
            waiting_since: local.now(),
            head_since: None,
            replies: 0,
            reads: 0,
            finished: false,
            idle_until: None,
            welcome,
            sending: 0,
            counted: 0,
        };
        if !welcome {
            local.write_overflow(&mut this.out);
            this.state = State::Over { linger: true };
        }
        this
    }

    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    /// It is closed: what was counted for it is free.
    pub(crate) fn closed(&self, local: &mut Local) {
        local.connection_closed(self.welcome);
        let _ = local.budget().change(self.counted, 0);
    }

    /// Counts what the connection holds by now; false if that is more than there is for it.
    pub(crate) fn is_within(&mut self, local: &mut Local) -> bool {
        let state = match &self.state {
            State::Body(gathering) => gathering.body.capacity(),
            State::Answering(answering) => answering.held(),
            State::Fetching(fetching) => fetching.held(),
            State::Head | State::Over { .. } => 0,
        };
        let buffers = self.input.capacity() + self.out.capacity() + self.spare.capacity() + self.sending;
        let before = mem::replace(&mut self.counted, size_of::<Self>() + buffers + state);
        local.budget().change(before, self.counted)
    }

    /// Memory is short: gives up what can be given up. A request that is still being read is refused unless it is small, and
    /// so are vectors that are still to come; a
    /// client who lets replies pile up is cut off; any other goes on, since it holds little.
    pub(crate) fn give_up(&mut self, local: &mut Local) {
        let error = || {
            let text = "the gateway is short of memory for requests";
            ApiError::new(ErrorKind::Unavailable, text).retry_after(SHORT_OF_MEMORY)
        };
        match mem::replace(&mut self.state, State::Over { linger: true }) {
            State::Body(gathering) if gathering.body.capacity() > SMALL => {
                local.metrics().memory_refusals.increment();
                gathering.call.refuse_early(Some(&error()), &mut self.out, local);
                self.over(true, local);
            }
            State::Head if self.input.capacity() > SMALL => {
                local.metrics().memory_refusals.increment();
                let input = mem::take(&mut self.input);
                self.refuse(&error(), &input, local);
            }
            State::Answering(answering) if answering.promises_much(SMALL) => {
                local.metrics().memory_refusals.increment();
                let reusable = answering.refuse(&error(), &mut self.out, local);
                self.replied(reusable, local);
            }
            state => {
                let piles_up = self.out.len() + self.sending > OUT_HIGH;
                self.state = state;
                if piles_up {
                    local.metrics().memory_refusals.increment();
                    self.abort(local);
                    (self.out, self.input) = (Vec::new(), Vec::new());
                }
            }
        }
    }

    pub(crate) fn deadline(&mut self) -> &mut Deadline {
        &mut self.deadline
    }

    /// The slot in which the connection of a ticket lies; whether it is still the same request is seen there.
    pub(crate) fn slot_of(ticket: Ticket) -> usize {
        (ticket.0 >> 32) as usize
    }

    /// Bytes from the client.
    pub(crate) fn received(&mut self, bytes: &[u8], local: &mut Local) {
        if self.input.is_empty() {
            let used = self.consume(bytes, local);
            self.input.extend_from_slice(&bytes[used..]);
        } else {
            self.input.extend_from_slice(bytes);
            self.pump(local);
        }
    }

    /// An engine's event, which is given back if it belongs to a past request.
    pub(crate) fn mail(&mut self, mail: Mail, local: &mut Local) -> Option<Mail> {
        let State::Answering(answering) = &mut self.state else {
            return Some(mail);
        };
        let Some(choice) = answering.choice_of(mail.ticket) else {
            return Some(mail);
        };
        if let Some(reusable) = answering.event(choice, mail, &mut self.out, local) {
            self.replied(reusable, local);
            self.pump(local);
        }
        None
    }

    /// There may be news in the flight that its request follows.
    pub(crate) fn heard(&mut self, local: &mut Local) {
        if self.catch_up(local) {
            self.pump(local);
        }
    }

    /// Takes what was said in the flight that its request follows; whether that completes the reply.
    fn catch_up(&mut self, local: &mut Local) -> bool {
        let State::Answering(answering) = &mut self.state else {
            return false;
        };
        let end = answering.follow(self.id, &mut self.out, local);
        if let Some(reusable) = end {
            self.replied(reusable, local);
        }
        end.is_some()
    }

    /// A read is over; one that nobody waits for any more is let go.
    pub(crate) fn fetched(&mut self, tag: u64, outcome: io::Result<Vec<u8>>, local: &mut Local) {
        if self.reads == tag {
            self.fetch_over(Some(outcome), local);
        }
    }

    /// Answers the request whose stored answer was to be read: `None` where it did not come in time.
    fn fetch_over(&mut self, outcome: Option<io::Result<Vec<u8>>>, local: &mut Local) {
        match mem::replace(&mut self.state, State::Head) {
            State::Fetching(fetching) => {
                let (call, body, fetched) = fetching.over(outcome);
                let outcome = call.resume(fetched, &body, self.id, &mut self.out, local);
                self.begun(outcome, local);
                self.pump(local);
            }
            state => self.state = state,
        }
    }

    /// The read to ask for, with its number, if there is one.
    pub(crate) fn take_read(&mut self) -> Option<(u64, Read)> {
        let State::Fetching(fetching) = &mut self.state else {
            return None;
        };
        let read = fetching.take()?;
        self.reads += 1;
        Some((self.reads, read))
    }

    /// A send is over.
    pub(crate) fn sent(&mut self, mut buf: Vec<u8>, result: &io::Result<usize>, local: &mut Local) {
        self.sending_since = None;
        self.sending = 0;
        if result.is_err() {
            return self.abort(local);
        }
        if buf.capacity() <= KEEP_CAPACITY {
            buf.clear();
            self.spare = buf;
        }
        self.waiting_since = self.waiting_since.max(local.now());
        self.pump(local);
    }

    /// Receiving stopped as asked.
    pub(crate) fn paused(&mut self) {
        self.receiving = Receiving::Off;
    }

    /// The client is gone: it sent FIN, or the connection broke. A reply that is already written still leaves.
    pub(crate) fn gone(&mut self, local: &mut Local) {
        self.receiving = Receiving::Off;
        match mem::replace(&mut self.state, State::Over { linger: false }) {
            State::Answering(answering) => {
                answering.client_gone(local);
                self.close = Close::Abort;
            }
            State::Body(gathering) => gathering.call.client_gone(local),
            State::Fetching(fetching) => {
                fetching.client_gone(local);
                self.close = Close::Abort;
            }
            State::Head | State::Over { .. } => {}
        }
    }

    /// Its deadline passed.
    pub(crate) fn expired(&mut self, local: &mut Local) {
        if self
            .sending_since
            .is_some_and(|since| local.now() >= since.saturating_add(nanos(SEND_TIMEOUT)))
        {
            return self.abort(local);
        }
        match mem::replace(&mut self.state, State::Over { linger: false }) {
            State::Head if self.head_since.is_none() => {}
            State::Head => {
                let error = ApiError::new(ErrorKind::RequestTimeout, "the request head did not come in time");
                let input = mem::take(&mut self.input);
                self.refuse(&error, &input, local);
            }
            State::Body(gathering) => {
                let error = ApiError::new(ErrorKind::RequestTimeout, "the request body did not come in time");
                gathering.call.refuse_early(Some(&error), &mut self.out, local);
                self.state = State::Over { linger: true };
            }
            State::Answering(mut answering) if answering.deadline().is_some_and(|at| at <= local.now()) => {
                let reusable = answering.time_out(&mut self.out, local);
                self.replied(reusable, local);
                self.pump(local);
            }
            State::Answering(mut answering) => {
                answering.keep_alive(&mut self.out);
                self.state = State::Answering(answering);
            }
            State::Fetching(fetching) => {
                self.state = State::Fetching(fetching);
                self.fetch_over(None, local);
            }
            State::Over { .. } => {}
        }
        self.waiting_since = local.now();
    }

    /// The gateway is going down: an idle connection ends after a moment, in which a request that was already on its way
    /// is still answered; another ends after the reply under way.
    pub(crate) fn drain(&mut self, local: &mut Local) {
        self.idle_until = Some(local.now().saturating_add(nanos(DRAIN_GRACE)));
    }

    /// Ends at once.
    pub(crate) fn abort(&mut self, local: &mut Local) {
        self.gone(local);
        self.close = Close::Abort;
    }

    /// What is to be sent now, if anything.
    pub(crate) fn take_output(&mut self, now: Nanos) -> Option<Vec<u8>> {
        if self.sending_since.is_some() || self.out.is_empty() || self.close != Close::No {
            return None;
        }
        self.sending_since = Some(now);
        self.sending = self.out.capacity();
        let next = mem::take(&mut self.spare);
        Some(mem::replace(&mut self.out, next))
    }

    /// Whether to close now, and if so whether with a reset.
    pub(crate) fn take_close(&mut self) -> Option<bool> {
        let flushed = self.sending_since.is_none() && self.out.is_empty();
        let abort = match (self.close, &self.state) {
            (Close::Abort, _) => true,
            (Close::No, State::Over { linger: false }) if flushed => false,
            (Close::No | Close::Asked, _) => return None,
        };
        self.close = Close::Asked;
        Some(abort)
    }

    /// Whether to send FIN now, though the client may still be sending: it can read the last reply at once, and what it
    /// sends is thrown away until it stops.
    pub(crate) fn take_finish(&mut self) -> bool {
        let flushed = self.sending_since.is_none() && self.out.is_empty();
        let due = flushed && !self.finished && matches!(self.state, State::Over { linger: true });
        self.finished |= due;
        due
    }

    /// Whether receiving must be switched: on (`true`) or off (`false`).
    pub(crate) fn take_recv_change(&mut self) -> Option<bool> {
        // An unfinished head may grow to its own limit, which the head reader keeps.
        let wanted = self.input.len() < INPUT_HIGH || self.head_since.is_some();
        match (self.receiving, wanted, &self.state) {
            (_, _, State::Over { linger: false }) => None,
            (Receiving::On, false, _) => {
                self.receiving = Receiving::Pausing;
                Some(false)
            }
            (Receiving::Off, true, _) => {
                self.receiving = Receiving::On;
                Some(true)
            }
            _ => None,
        }
    }

    /// When to look at this connection if nothing else happens.
    pub(crate) fn next_deadline(&self, local: &Local) -> Option<Nanos> {
        if self.close != Close::No {
            return None;
        }
        let limits = local.limits();
        let waiting = match &self.state {
            State::Head => Some(self.head_deadline(limits)),
            State::Body(gathering) => Some(gathering.deadline(limits.read_timeout)),
            State::Answering(answering) => {
                let silence = self.waiting_since.saturating_add(nanos(SILENCE));
                Some(answering.deadline().map_or(silence, |at| at.min(silence)))
            }
            State::Fetching(_) => Some(Fetching::deadline(self.waiting_since)),
            State::Over { linger } => linger.then(|| self.waiting_since.saturating_add(nanos(LINGER))),
        };
        let sending = self
            .sending_since
            .map(|since| since.saturating_add(nanos(SEND_TIMEOUT)));
        // While a reply is on its way nobody waits for the client's next bytes.
        sending.or(waiting)
    }

    /// When the wait for a request, or for the rest of its head, is over.
    fn head_deadline(&self, limits: &Limits) -> Nanos {
        if let Some(since) = self.head_since {
            return since.saturating_add(nanos(limits.read_timeout));
        }
        let patience = if self.replies > 0 {
            limits.keepalive_timeout
        } else {
            limits.read_timeout
        };
        let end = self.waiting_since.saturating_add(nanos(patience));
        self.idle_until.map_or(end, |until| until.min(end))
    }

    /// Goes on with what was received earlier.
    fn pump(&mut self, local: &mut Local) {
        if self.input.is_empty() {
            return;
        }
        let mut input = mem::take(&mut self.input);
        let used = self.consume(&input, local);
        if used == input.len() {
            input.clear();
            if input.capacity() > KEEP_CAPACITY {
                input = Vec::new();
            }
        } else {
            input.drain(..used);
        }
        self.input = input;
    }

    /// Consumes what the state allows of `bytes`, which starts where the last call stopped; how many bytes that was.
    fn consume(&mut self, bytes: &[u8], local: &mut Local) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let step = match &self.state {
                _ if rest.is_empty() => None,
                State::Head if self.out.len() < OUT_HIGH => self.head(rest, local),
                State::Body(_) => self.body(rest, local),
                State::Over { .. } => Some(rest.len()),
                State::Head | State::Answering(_) | State::Fetching(_) => None,
            };
            match step {
                Some(step) => used += step,
                None => return used,
            }
        }
    }

    /// Reads a request head and, where it is at hand, the body; `None`: more bytes are needed.
    fn head(&mut self, bytes: &[u8], local: &mut Local) -> Option<usize> {
        let head = match self.reader.read(bytes, local.limits().max_header_bytes) {
            Parsed::Incomplete => {
                self.head_since.get_or_insert(local.now());
                return None;
            }
            Parsed::Bad(error) => {
                self.refuse(&error, bytes, local);
                return Some(bytes.len());
            }
            Parsed::Complete(head) => head,
        };
        self.head_since = None;
        let call = Call::begin(&head, bytes, self.peer, self.surface, self.is_last(&head, local), local);
        let rest = &bytes[head.len..];
        if let Some(body) = body::in_place(head.framing, rest, local.limits().max_body_bytes) {
            self.answer(call, body, local);
            return Some(head.len + body.len());
        }
        self.gather(call, &head, local);
        Some(head.len)
    }

    /// Whether the connection is to end after this request whatever the client says.
    fn is_last(&self, head: &Head, local: &Local) -> bool {
        let age = local.now().saturating_sub(self.opened);
        !head.keep_alive || local.is_draining() || age > nanos(local.limits().max_connection_age)
    }

    /// Begins to gather a body that is not all here, or refuses it.
    fn gather(&mut self, call: Call, head: &Head, local: &mut Local) {
        let refusal = match BodyReader::new(head.framing, local.limits().max_body_bytes) {
            Ok(reader) if !call.is_refused() => {
                if head.expect_continue {
                    write::continue_100(&mut self.out);
                }
                let expected = match head.framing {
                    Framing::Length(length) => usize::try_from(length).unwrap_or(usize::MAX).min(INPUT_HIGH),
                    Framing::None | Framing::Chunked => 0,
                };
                let body = Vec::with_capacity(expected);
                let since = local.now();
                self.state = State::Body(Box::new(Gathering {
                    call,
                    reader,
                    body,
                    since,
                }));
                return;
            }
            // What the head alone decided is told at once: a body that nobody will read is not taken in.
            Ok(_) => None,
            Err(error) => Some(error),
        };
        call.refuse_early(refusal.as_ref(), &mut self.out, local);
        self.over(true, local);
    }

    fn body(&mut self, bytes: &[u8], local: &mut Local) -> Option<usize> {
        let State::Body(gathering) = &mut self.state else {
            return None;
        };
        match gathering.reader.feed(bytes, &mut gathering.body) {
            Ok(fed) => {
                if fed.done
                    && let State::Body(gathering) = mem::replace(&mut self.state, State::Head)
                {
                    self.answer(gathering.call, &gathering.body, local);
                }
                Some(fed.consumed)
            }
            Err(error) => {
                if let State::Body(gathering) = mem::replace(&mut self.state, State::Over { linger: true }) {
                    gathering.call.refuse_early(Some(&error), &mut self.out, local);
                }
                self.over(true, local);
                Some(bytes.len())
            }
        }
    }

    fn answer(&mut self, call: Call, body: &[u8], local: &mut Local) {
        let outcome = call.answer(body, self.id, &mut self.out, local);
        self.begun(outcome, local);
    }

    fn begun(&mut self, outcome: Outcome, local: &mut Local) {
        self.waiting_since = local.now();
        match outcome {
            Outcome::Written { reusable } => self.replied(reusable, local),
            Outcome::Fetching(fetching) => self.state = State::Fetching(fetching),
            Outcome::Waiting(answering) => {
                self.state = State::Answering(answering);
                // Of a generation that is under way the beginning is there already.
                self.catch_up(local);
            }
        }
    }

    /// A reply is written in full. If it is the last one, the client may have sent more before it knew, and to close on
    /// unread bytes is a reset, which can take the reply from it (RFC 9112, section 9.6).
    fn replied(&mut self, reusable: bool, local: &mut Local) {
        self.replies += 1;
        self.waiting_since = local.now();
        if reusable && !local.is_draining() {
            self.state = State::Head;
        } else {
            self.over(true, local);
        }
    }

    /// Answers bytes that are no request, and ends.
    fn refuse(&mut self, error: &ApiError, bytes: &[u8], local: &mut Local) {
        Call::refuse_unread(error, self.peer, routes::dialect_of_head(bytes), &mut self.out, local);
        self.over(true, local);
    }

    fn over(&mut self, linger: bool, local: &mut Local) {
        self.waiting_since = local.now();
        self.state = State::Over { linger };
    }
}

impl Gathering {
    /// `read_timeout` for a start, and then as long as the bytes so far would take at the least rate.
    fn deadline(&self, read_timeout: Duration) -> Nanos {
        let earned = (self.body.len() as u64).saturating_mul(1_000_000_000) / MIN_BODY_RATE;
        self.since.saturating_add(nanos(read_timeout)).saturating_add(earned)
    }
}

#[cfg(test)]
#[path = "sim_tests/peek.rs"]
pub(super) mod peek;
