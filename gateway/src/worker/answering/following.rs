//! A request that has no job of its own: it makes its reply of what is said in a flight, in its own dialect and form.
//!
//! It keeps nothing and counts nothing of what the model does; that is the leader's. Invariants: nothing of two generations
//! is ever in one reply; a request leads in place of one that failed at most once, and only while nothing of its reply has
//! been written.

use std::{mem, sync::Arc, time::Instant};

use zerohop_engine::{Event, JobKind, Rejected};
use zerohop_ring::{ConnId, Nanos};

use super::{Answering, Part, Pending, Told};
use crate::{
    access::Outcome as Ended,
    flight::{Again, Follow, Lead, Said},
    key::Keyed,
    metrics::FlightPart,
    reply::{CacheNote, Progress, Reply},
    worker::{answer::overload, kept::Keeper, local::Local, record::Record},
};

/// What a request has while it follows.
pub(crate) struct Following {
    follow: Follow,
    /// What its answer is kept by, if it has to lead.
    keyed: Keyed,
    /// When it gives up, by the worker's time and by the engine's.
    deadline: Option<(Nanos, Instant)>,
    /// It has turned to another flight once.
    has_turned: bool,
}

impl Following {
    pub(in crate::worker) fn new(follow: Follow, keyed: Keyed, deadline: Option<(Nanos, Instant)>) -> Self {
        Self {
            follow,
            keyed,
            deadline,
            has_turned: false,
        }
    }

    /// Whether it may turn to another flight now.
    fn may_turn(&self, now: Nanos) -> bool {
        !self.has_turned && self.deadline.is_none_or(|(at, _)| now < at)
    }
}

impl Answering {
    /// One that follows.
    pub(in crate::worker) fn following(following: Following, reply: Reply, record: Record) -> Self {
        Self {
            part: Part::Follows(Box::new(following)),
            ..Self::new(Vec::new(), Told::Chat(reply), record)
        }
    }

    /// When it gives up, if it follows and has a deadline: the engine knows that of the leader alone.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match &self.part {
            Part::Follows(following) => following.deadline.map(|(at, _)| at),
            Part::Alone | Part::Leads(_) => None,
        }
    }

    /// Its deadline is over; whether the connection can take another request.
    pub(crate) fn time_out(&mut self, out: &mut Vec<u8>, local: &mut Local) -> bool {
        self.part = Part::Alone;
        self.hear(&Event::TimedOut, out, local).unwrap_or(false)
    }

    /// Writes what has been said meanwhile in the flight that it follows, for this connection; when that completes the
    /// reply, whether the connection can take another request.
    pub(crate) fn follow(&mut self, conn: ConnId, out: &mut Vec<u8>, local: &mut Local) -> Option<bool> {
        let mut following = match mem::replace(&mut self.part, Part::Alone) {
            Part::Follows(following) => following,
            other => {
                self.part = other;
                return None;
            }
        };
        loop {
            let may_turn = following.may_turn(local.now());
            let Some(said) = following.follow.peek() else {
                break;
            };
            if said.is_failure() && may_turn && self.reply.begin_again() {
                following.has_turned = true;
                match following.follow.again() {
                    Again::Leader(lead, generate) => {
                        let kind = JobKind::Generate(generate);
                        return self.promoted(lead, kind, (conn, *following), out, local);
                    }
                    Again::Follower(follow) => {
                        following.follow = follow;
                        self.record.generation.iter_mut().for_each(|it| it.begin_again());
                    }
                    // Then the failure is told.
                    Again::Nothing => {}
                }
                continue;
            }
            let end = match said {
                Said::Event(event) => self.hear(event, out, local),
                Said::Rejected(rejected) => Some(self.turned_away(rejected, out, local)),
            };
            following.follow.advance();
            if end.is_some() {
                return end;
            }
        }
        self.part = Part::Follows(following);
        None
    }

    /// Writes what an event of another's job adds to the reply.
    fn hear(&mut self, event: &Event, out: &mut Vec<u8>, local: &mut Local) -> Option<bool> {
        if let Some(generation) = &mut self.record.generation {
            generation.followed(event, local.clock());
        }
        let before = (out.len(), self.reply.is_streaming());
        let (ids, date) = local.ids_and_date();
        let progress = match &mut self.reply {
            Told::Chat(reply) => reply.on(0, event, ids, date, out),
            Told::Completion(reply) => reply.on(0, event, date, out),
        };
        self.written(progress, event, before, out, local)
    }

    /// It leads from now on, in place of a generation that failed.
    fn promoted(
        &mut self,
        lead: Lead,
        kind: JobKind,
        (conn, following): (ConnId, Following),
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Option<bool> {
        local.metrics().flew(FlightPart::Promoted);
        let Some(generation) = &mut self.record.generation else {
            // No request comes here without its model; the flight fails for all.
            return Some(false);
        };
        generation.begin_again();
        let model = Arc::clone(&generation.model);
        let deadline = following.deadline.map(|(_, at)| at);
        match Pending::hand_in(kind, conn, deadline, &model, local) {
            Ok(job) => {
                self.jobs.push(job);
                if let Told::Chat(reply) = &mut self.reply {
                    reply.tell(CacheNote::MISS);
                    self.keeper = Keeper::new(reply, following.keyed, model, local).map(Box::new);
                }
                self.part = Part::Leads(lead);
                None
            }
            Err(rejected) => {
                let end = self.turned_away(&rejected, out, local);
                // Nothing was kept, so nothing stays.
                let _stay = lead.end(Said::Rejected(rejected), false);
                local.flying().told();
                Some(end)
            }
        }
    }

    /// The engine did not take the job; whether the connection can take another request.
    fn turned_away(&mut self, rejected: &Rejected, out: &mut Vec<u8>, local: &mut Local) -> bool {
        let error = overload(rejected);
        let before = out.len();
        let progress = self.reply.fail(&error, local.date(), out);
        self.record.bytes_out += (out.len() - before) as u64;
        self.record.outcome = Ended::Error(error.kind);
        self.record.status = error.status();
        local.finish(&self.record);
        progress == Progress::Done
    }
}
