//! The judgement of what a client has got, and of how its connection ended.
//!
//! Nothing here sends or reads. Invariant: the rules are those that stand in [`super`], and no others.

use zerohop_ring::{
    Nanos,
    sim::{Net, WireId},
};

use super::{
    super::{
        engine::Ledger,
        ensure,
        facts::Facts,
        fail,
        replies::{self, Reply},
        requests::{Ask, Request},
    },
    Client, Life, SECOND,
};

/// How long an idle connection stays when the gateway drains.
const DRAIN_GRACE: Nanos = 200_000_000;

impl Client {
    /// Takes the replies that are there, and judges them.
    pub(super) fn judge(&mut self, ended: bool, ledger: &Ledger, facts: &Facts, now: Nanos) {
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
        let entries = ledger.of(self.number, self.answered);
        if let Some(entry) = entries.first() {
            let right = facts.models_of(request, began, now).contains(&Ok(entry.model));
            ensure!(
                right,
                "model",
                "{whose:?} asked for {} and {} answers",
                request.model,
                entry.model
            );
            return replies::judge(reply, request, &entries);
        }
        if reply.status == 408 {
            let waited = now - began;
            ensure!(
                waited >= facts.read_timeout,
                "timeout",
                "{self:?} was given {waited} ns"
            );
            let late = self
                .completed
                .get(self.answered)
                .is_none_or(|at| now - at <= facts.crossing);
            ensure!(late, "timeout", "{self:?} had sent everything long before");
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
    pub(super) fn wait(&mut self, now: Nanos, wire: WireId, net: &Net, facts: &Facts) {
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
        if let Some(since) = facts.ending_since().filter(|_| !begun) {
            let idle = now - self.moved.max(since);
            let bound = DRAIN_GRACE + facts.crossing;
            ensure!(idle <= bound, "drain", "{self:?} is idle for {idle} ns and not let go");
        }
    }

    /// FIN came, and everything before it is read and judged.
    pub(super) fn ended(&mut self, now: Nanos, wire: WireId, net: &Net, ledger: &Ledger, facts: &Facts) {
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
            let entries = ledger.of(self.number, self.answered);
            ensure!(
                entries.is_empty(),
                "end",
                "{self:?}: FIN instead of the answer to {entries:?}"
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
    pub(super) fn was_reset(&mut self, now: Nanos, wire: WireId, ledger: &Ledger, facts: &Facts) {
        let refused_body = self.last_said && self.sent < self.to_send.len();
        let begun = !ledger.of(self.number, self.answered).is_empty();
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
    pub(in super::super) fn last_check(&self) {
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
