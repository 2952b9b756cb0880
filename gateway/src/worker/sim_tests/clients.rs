//! The clients: what each sends and when, how it reads, how it leaves; and the judgement of what it gets, at every read.
//!
//! # Which outcomes are right
//!
//! A client that did nothing wrong gets, for each request in order, one whole reply: that of the engine's ledger if an
//! engine was handed the job, else what an edition of the configuration that was in force meanwhile says. Besides:
//!
//! - 503 to a request that found the gateway short of memory before an engine was handed it; a client that lets more than
//!   64 KiB pile up then is cut off.
//! - 503 while models are loaded, and from `/ready` while the gateway drains; 503 to a connection beyond the limit.
//! - 408 to a request that was not whole `read_timeout` after it began. 413 and 400 to a body or a head that is none.
//! - Behind a reply that says `connection: close`, and behind any whole reply once the gateway drains, FIN: what was
//!   pipelined behind it is not answered, and was not begun. Between requests, FIN after `keepalive_timeout`
//!   (`read_timeout` before the first), or once the gateway drains; a request that crosses it may meet a reset, without
//!   one byte of a reply.
//! - A stream whose engine failed ends with an error event and FIN, without the end that a whole one has.
//! - A reset, or silence cut anywhere: only if the network reset this wire, the gateway was told to stop, nobody listened
//!   any more, or the client left (in whichever way: FIN means that it is gone), did not read for 30 s, or went on
//!   sending a body that was refused; or if what it had pipelined behind the last reply took longer than the second for
//!   which the gateway throws such bytes away, which only the slowest networks can make it.
//!
//! Invariant: a job that an engine accepted is answered whole to a client that is there, also when the gateway drains.

mod judge;

use zerohop_ring::{
    ListenerId, Nanos,
    sim::{Net, WireId, WireState},
};

use super::{
    Chance,
    engine::Ledger,
    facts::Facts,
    plan::Plan,
    requests::{Ask, Request},
};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// How a client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    Reset,
    /// FIN, before it has got everything.
    Finish,
    /// Not a word more, and nothing read.
    Vanish,
}

/// When it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Sent(usize),
    Got(usize),
}

/// What a client has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Waiting,
    Open,
    Left(Leave),
    Over,
}

/// What a client's step did that others count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acted {
    Nothing,
    Connected,
    Left(Leave),
}

pub(super) struct Client {
    pub(super) number: usize,
    pub(super) wire: Option<WireId>,
    pub(super) life: Life,
    /// When it acts next; `None`: never again.
    pub(super) next: Option<Nanos>,
    /// It takes its time.
    pub(super) slow: bool,
    requests: Vec<Request>,
    /// Where each request begins in what is sent, and where the last ends.
    starts: Vec<usize>,
    pipelines: bool,
    /// Waits for `100 Continue` before bodies that asked for it.
    waits: bool,
    /// Stops sending here, and waits.
    stuck_at: Option<usize>,
    leaves: Option<(When, Leave)>,
    /// Stays until the gateway closes.
    stays: bool,
    /// Has all, and has sent FIN.
    finished: bool,
    to_send: Vec<u8>,
    sent: usize,
    connected: Nanos,
    /// When the first byte of each request left.
    began: Vec<Nanos>,
    /// When the last one did.
    completed: Vec<Nanos>,
    got: Vec<u8>,
    got_in_all: usize,
    /// Requests answered.
    pub(super) answered: usize,
    continued: bool,
    /// A reply said that it is the last, or a stream broke.
    last_said: bool,
    /// When something last went or came.
    moved: Nanos,
    patience: Nanos,
}

impl Client {
    pub(super) fn new(number: usize, plan: &Plan, chance: &mut Chance, ledger: &mut Ledger) -> Self {
        let count = 1 + chance.below(8);
        let floods = chance.one_in(plan.floods);
        let mut requests: Vec<_> = (0..count)
            .map(|request| Request::new(number, request, !floods && request + 1 == count, plan.keyed, chance))
            .collect();
        if floods {
            requests.extend((0..70).map(|at| {
                if chance.one_in(6) {
                    Request::new(number, count + at, false, plan.keyed, chance)
                } else {
                    Request::filler(chance)
                }
            }));
        }
        let mut starts = vec![0];
        let mut to_send = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            ledger.ask(number, at, request);
            to_send.extend_from_slice(&request.bytes);
            starts.push(to_send.len());
        }
        let how = [Leave::Reset, Leave::Finish, Leave::Vanish][chance.below(3)];
        let when = if chance.one_in(2) {
            When::Sent(chance.below(to_send.len()))
        } else {
            When::Got(chance.below(1500))
        };
        Self {
            number,
            wire: None,
            life: Life::Waiting,
            next: Some(chance.draw() % (40 * MILLI)),
            slow: chance.one_in(5),
            pipelines: floods || chance.one_in(3),
            waits: chance.one_in(2),
            // Some say nothing at all.
            stuck_at: [Some(0), Some(chance.below(to_send.len()))]
                .get(chance.below(24))
                .copied()
                .flatten(),
            leaves: chance.one_in(4).then_some((when, how)),
            stays: chance.one_in(4),
            finished: false,
            connected: 0,
            sent: 0,
            began: Vec::new(),
            completed: Vec::new(),
            got: Vec::new(),
            got_in_all: 0,
            answered: 0,
            continued: false,
            last_said: false,
            moved: 0,
            patience: MILLI / 10,
            requests,
            starts,
            to_send,
        }
    }

    /// The client does a little.
    pub(super) fn act(&mut self, net: &Net, chance: &mut Chance, ledger: &Ledger, facts: &Facts) -> Acted {
        let now = net.now();
        let Some(wire) = self.wire else {
            let wire = net.connect(ListenerId(0));
            self.wire = Some(wire);
            self.life = Life::Open;
            self.moved = now;
            self.connected = now;
            if self.slow {
                net.set_window(wire, 200 + chance.below(600));
            }
            self.rest(now, chance, true);
            return Acted::Connected;
        };
        let (sent, got) = (self.sent, self.got_in_all);
        if let Some(how) = self.leaves_now() {
            self.leave(how, wire, net);
            return Acted::Left(how);
        }
        self.send(wire, net, chance);
        let most = if self.slow {
            1 + chance.below(300)
        } else {
            1 + chance.below(8192)
        };
        let bytes = net.read(wire, most);
        self.got_in_all += bytes.len();
        self.got.extend(bytes);
        let state = net.state(wire);
        self.judge(state == WireState::Eof, ledger, facts, now);
        let moved = sent != self.sent || got != self.got_in_all;
        if moved {
            self.moved = now;
        }
        match state {
            WireState::Open => self.wait(now, wire, net, facts),
            WireState::Eof | WireState::Reset if net.unread(wire) > 0 => {}
            WireState::Eof => self.ended(now, wire, net, ledger, facts),
            WireState::Reset => self.was_reset(now, wire, ledger, facts),
        }
        if self.life == Life::Open {
            self.rest(now, chance, moved);
        }
        Acted::Nothing
    }

    /// When to act again: soon while something moves, later and later while nothing does.
    fn rest(&mut self, now: Nanos, chance: &mut Chance, moved: bool) {
        self.patience = if moved {
            MILLI / 10
        } else {
            (self.patience * 2).min(200 * MILLI)
        };
        let pace = if self.slow { 20 * MILLI } else { self.patience };
        self.next = Some(now + 1 + chance.draw() % pace.max(self.patience));
    }

    /// It resets its connection, whatever it had in mind.
    pub(super) fn cut(&mut self, wire: WireId, net: &Net) {
        self.leave(Leave::Reset, wire, net);
    }

    fn leaves_now(&self) -> Option<Leave> {
        let (when, how) = self.leaves?;
        let due = match when {
            When::Sent(count) => self.sent >= count,
            When::Got(count) => self.got_in_all >= count && self.got_in_all > 0,
        };
        due.then_some(how)
    }

    fn leave(&mut self, how: Leave, wire: WireId, net: &Net) {
        match how {
            Leave::Reset => net.reset(wire),
            Leave::Finish => net.finish(wire),
            Leave::Vanish => net.note(format_args!("client vanishes {wire:?}")),
        }
        self.life = Life::Left(how);
        self.next = None;
    }

    fn is_done(&self) -> bool {
        self.answered == self.requests.len() || self.last_said
    }

    /// The request that waits for its reply, if it has begun.
    fn current(&self) -> Option<&Request> {
        self.requests
            .get(self.answered)
            .filter(|_| self.sent > self.starts[self.answered])
    }

    fn send(&mut self, wire: WireId, net: &Net, chance: &mut Chance) {
        let mut end = self.to_send.len();
        if !self.pipelines || self.last_said {
            end = end.min(self.starts[(self.answered + 1).min(self.requests.len())]);
        }
        // Of a refused body the rest may already be on its way.
        let refused = self.answered.checked_sub(1).map(|at| self.requests[at].ask);
        if self.last_said && refused != Some(Ask::TooLarge) || self.finished {
            end = self.sent;
        }
        if let Some(request) = self.requests.get(self.answered)
            && self.waits
            && request.expect
            && !self.continued
        {
            end = end.min(self.starts[self.answered] + request.head_len);
        }
        if let Some((When::Sent(count), _)) = self.leaves {
            end = end.min(count);
        }
        end = end.min(self.stuck_at.unwrap_or(end));
        if self.sent >= end {
            return;
        }
        let piece = if self.pipelines { 4096 } else { 1 + chance.below(900) };
        let end = end.min(self.sent + piece);
        self.sent += net.write(wire, &self.to_send[self.sent..end]);
        while self.began.len() < self.requests.len() && self.starts[self.began.len()] < self.sent {
            self.began.push(net.now());
        }
        while self.completed.len() < self.requests.len() && self.starts[self.completed.len() + 1] <= self.sent {
            self.completed.push(net.now());
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "client {} on {:?} ({:?}, sent {} of {}, answered {} of {}, got {} bytes in all, last said {}, began at {:?})",
            self.number,
            self.wire,
            self.life,
            self.sent,
            self.to_send.len(),
            self.answered,
            self.requests.len(),
            self.got_in_all,
            self.last_said,
            self.began.get(self.answered)
        )
    }
}
