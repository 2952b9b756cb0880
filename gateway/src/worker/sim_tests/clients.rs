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

use zerohop_ring::{
    ListenerId, Nanos,
    sim::{Net, WireId, WireState},
};

use super::{
    Chance,
    engine::Ledger,
    ensure,
    facts::Facts,
    fail,
    plan::Plan,
    replies::{self, Reply},
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
            stuck_at: chance.one_in(12).then(|| chance.below(to_send.len())),
            leaves: chance.one_in(4).then_some((when, how)),
            stays: chance.one_in(4),
            finished: false,
            connected: 0,
            sent: 0,
            began: Vec::new(),
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
    }

    /// Takes the replies that are there, and judges them.
    fn judge(&mut self, ended: bool, ledger: &Ledger, facts: &Facts, now: Nanos) {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        loop {
            if self.got.is_empty() {
                return;
            }
            ensure!(!self.last_said, "framing", "{self:?} got bytes behind the last reply");
            if self.answered == 0 && facts.may_overflow() {
                match overflow(&self.got) {
                    Some(true) => return self.overflow(),
                    None => return,
                    Some(false) => {}
                }
            }
            let Some(request) = self.current() else {
                fail(
                    "reply",
                    format_args!("{self:?} got bytes for a request it has not sent"),
                );
            };
            if request.expect && !self.continued && self.got.starts_with(CONTINUE) {
                self.continued = true;
                self.got.drain(..CONTINUE.len());
                continue;
            }
            let Some(reply) = replies::read(&self.got, request, ended) else {
                return;
            };
            let broke = self.judge_one(&reply, request, ledger, facts, now);
            if broke {
                self.last_said = true;
                self.answered += 1;
                self.got.clear();
                return;
            }
            if !reply.whole {
                return;
            }
            facts.new_id(&reply.request_id);
            self.check_close(&reply, request, facts, now);
            self.last_said = reply.close;
            self.got.drain(..reply.used);
            self.answered += 1;
            self.continued = false;
        }
    }

    /// A connection goes on unless somebody has a reason to end it.
    fn check_close(&self, reply: &Reply, request: &Request, facts: &Facts, now: Nanos) {
        if !reply.close {
            return ensure!(
                request.keeps_alive(),
                "close",
                "{self:?} asked for the end and was told to go on"
            );
        }
        let refused_body = reply.status >= 400 && request.bytes.len() > request.head_len;
        let short = facts.memory_is_short && reply.status == 503;
        let broken = request.ask == Ask::Broken || reply.status == 408 || short;
        let ending = facts.ending_since().is_some() || now - self.connected > facts.max_age;
        let right = !request.keeps_alive() || refused_body || broken || ending;
        ensure!(right, "close", "{self:?} was told to end behind {:?}", request.ask);
    }

    /// Judges a reply, whole or not; whether it is a stream that broke.
    fn judge_one(&self, reply: &Reply, request: &Request, ledger: &Ledger, facts: &Facts, now: Nanos) -> bool {
        let whose = (self.number, self.answered);
        let began = self.began[self.answered];
        if let Some(entry) = ledger.entries.get(&whose) {
            let right = facts.models_of(request, began, now).contains(&Ok(entry.model));
            ensure!(
                right,
                "model",
                "{whose:?} asked for {} and {} answers",
                request.model,
                entry.model
            );
            return replies::judge(reply, request, entry);
        }
        if reply.status == 408 {
            let waited = now - began;
            ensure!(
                waited >= facts.read_timeout,
                "timeout",
                "{self:?} was given {waited} ns"
            );
            ensure!(reply.close, "framing", "408 and the connection goes on");
            return false;
        }
        if facts.memory_is_short && reply.status == 503 && reply.retry_after && reply.close {
            return false;
        }
        let wanted = facts.statuses(request, began, now);
        ensure!(
            wanted.contains(&reply.status),
            "status",
            "{self:?} got {} where {wanted:?} is right, for {:?}",
            reply.status,
            request.ask
        );
        if reply.whole {
            let body = String::from_utf8_lossy(&reply.body);
            match request.ask {
                _ if reply.status >= 400 => replies::error(&body, request),
                Ask::Models => {
                    let lists = facts.lists(request, began, now);
                    let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
                    let ids = value["data"].as_array().map(Vec::as_slice).unwrap_or_default();
                    let ids: Vec<_> = ids.iter().filter_map(|model| model["id"].as_str()).collect();
                    ensure!(lists.contains(&ids), "body", "{ids:?} where {lists:?} is right");
                }
                Ask::Model => ensure!(
                    body.contains(&format!("\"id\":\"{}\"", request.model)),
                    "body",
                    "{body}"
                ),
                Ask::Health { head: false } => ensure!(body == r#"{"status":"ok"}"#, "body", "{body}"),
                Ask::Ready => ensure!(body == r#"{"status":"ready"}"#, "body", "{body}"),
                _ => {}
            }
        }
        false
    }

    /// A connection beyond the limit.
    fn overflow(&mut self) {
        self.last_said = true;
        self.got.clear();
    }

    /// The connection is open: is it right that it still is?
    fn wait(&mut self, now: Nanos, wire: WireId, net: &Net, facts: &Facts) {
        if self.is_done() && !self.stays && !self.finished {
            // As a client does that needs nothing more.
            net.finish(wire);
            self.finished = true;
            self.moved = now;
        }
        let waited = now - self.moved;
        let begun = self.current().is_some();
        let whole = begun && self.sent >= self.starts[self.answered + 1];
        let bound = match () {
            // FIN is under way, or the client's.
            () if self.last_said || self.finished => 2 * SECOND,
            () if whole => 0,
            () if begun => facts.read_timeout + SECOND,
            () => facts.keepalive_timeout.max(facts.read_timeout),
        };
        let bound = bound + 8 * SECOND;
        ensure!(
            waited <= bound,
            "waiting",
            "{self:?} has waited {waited} ns, longer than {bound}"
        );
    }

    /// FIN came, and everything before it is read and judged.
    fn ended(&mut self, now: Nanos, wire: WireId, net: &Net, ledger: &Ledger, facts: &Facts) {
        let got = String::from_utf8_lossy(&self.got);
        if facts.was_refused(wire) {
            // Of the reply to a connection for which the ring has no slot, as much comes as leaves at once.
            ensure!(
                self.got.is_empty() || overflow(&self.got).is_none(),
                "end",
                "{self:?} got {got}"
            );
            return self.over();
        }
        ensure!(self.got.is_empty(), "end", "{self:?}: FIN within a reply: {got}");
        if !self.is_done() {
            let right = facts.ending_since().is_some() || self.may_be_idle(now, facts);
            ensure!(right, "end", "{self:?}: FIN before everything was answered");
            let entry = ledger.entries.get(&(self.number, self.answered));
            ensure!(
                entry.is_none(),
                "end",
                "{self:?}: FIN instead of the answer to {entry:?}"
            );
        }
        net.finish(wire);
        self.over();
    }

    /// The gateway may have taken the connection for idle: what it waited for since the last reply took long enough, and
    /// what has been sent of the next request may have crossed the end.
    fn may_be_idle(&self, now: Nanos, facts: &Facts) -> bool {
        let before = self.answered.checked_sub(1).map(|at| self.began[at]);
        let (since, patience) = match before {
            Some(began) => (began, facts.keepalive_timeout),
            None => (self.connected, facts.read_timeout),
        };
        let crosses = self
            .began
            .get(self.answered)
            .is_none_or(|began| now - began <= facts.crossing);
        now - since >= patience && crosses
    }

    /// A reset came.
    fn was_reset(&mut self, now: Nanos, wire: WireId, ledger: &Ledger, facts: &Facts) {
        let refused_body = self.last_said && self.sent < self.to_send.len();
        let begun = ledger.entries.contains_key(&(self.number, self.answered));
        let idle = facts.ending_since().is_some() || self.may_be_idle(now, facts);
        let crossed = self.got.is_empty() && !begun && !self.is_done() && idle;
        let pipelined = self.starts.get(self.answered + 1).is_some_and(|end| self.sent > *end);
        let outlived = facts.network_is_slow && pipelined;
        let unread = self.slow && now - self.moved >= 30 * SECOND;
        let right = facts.was_reset(wire)
            || facts.has_stopped()
            || refused_body
            || crossed
            || unread
            || outlived
            || facts.was_refused(wire);
        ensure!(
            right,
            "reset",
            "{self:?} did nothing wrong and was reset; it has {}",
            String::from_utf8_lossy(&self.got)
        );
        self.over();
    }

    fn over(&mut self) {
        self.life = Life::Over;
        self.next = None;
    }

    /// Nothing of the gateway is left: this client must have come to an end.
    pub(super) fn last_check(&self) {
        let ended = matches!(self.life, Life::Over | Life::Left(_) | Life::Waiting);
        ensure!(ended, "end", "{self:?} was left alone");
    }
}

/// Whether this is the reply to a connection beyond the limit; `None`: it may become one.
fn overflow(got: &[u8]) -> Option<bool> {
    const STATUS: &[u8] = b"HTTP/1.1 503 ";
    let known = got.len().min(STATUS.len());
    if got[..known] != STATUS[..known] {
        return Some(false);
    }
    let text = String::from_utf8_lossy(got);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    (body.len() >= length).then(|| body.contains("too many connections"))
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
