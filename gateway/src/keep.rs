//! Which answers may be kept, which requests may be answered by one, and for how long one is good.
//!
//! Pure: chance and time are arguments, nothing is stored or looked up here. Invariants: a client can only make it stricter
//! than the operator's policy; an answer that was cut short, refused, cancelled or that a limit ended is never kept.

use std::time::Duration;

use zerohop_cache::{FinishReason, Seconds, types::NEVER};
use zerohop_engine::Finish;

use crate::{
    api::{ChatRequest, Extras},
    http::CacheControl,
    reply::stored::MAX_BYTES,
};

/// Which requests have answers that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// None.
    Off,
    /// Those that get the same answer each time: greedy ones, and those that give a seed.
    Deterministic,
    /// Also those whose answer is drawn: until it is too old, everyone who asks the same hears the same.
    All,
}

impl Policy {
    /// As the configuration writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Deterministic => "deterministic",
            Self::All => "all",
        }
    }
}

/// The operator's part of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// Which requests.
    pub policy: Policy,
    /// Keep answers that call tools too.
    pub tools: bool,
    /// How long an answer is good; `None`: for ever.
    pub ttl: Option<Duration>,
}

/// What a request may have of stored answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// It may be answered by one, of at most this age.
    pub look_up: Option<Age>,
    /// Its answer may become one, if [`Keeping::keeps`] says so when it is there.
    pub store: bool,
    /// There is to be no other answer: without one, the reply is [`crate::error::ErrorKind::NotCached`].
    pub only_stored: bool,
}

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// As old as the operator lets it be; stale ones where he does.
    Any,
    /// At most so many seconds, and not stale.
    AtMost(u32),
}

impl Keeping {
    /// What this request may have.
    #[must_use]
    pub fn plan(&self, request: &ChatRequest, said: CacheControl) -> Plan {
        let kind = self.covers(request);
        let age = match said.max_age {
            // What is made anew is the only thing that young.
            Some(0) => None,
            Some(age) => Some(Age::AtMost(age)),
            None => Some(Age::Any),
        };
        Plan {
            look_up: age.filter(|_| kind && !said.no_cache),
            store: kind && !said.no_store,
            only_stored: said.only_if_cached,
        }
    }

    /// Whether answers to requests of this kind are kept at all.
    fn covers(&self, request: &ChatRequest) -> bool {
        let extras = request.extras.as_deref();
        // The stored form holds one answer, without probabilities.
        let fits = extras.is_none_or(|Extras { choices, logprobs, .. }| *choices == 1 && logprobs.is_none());
        let wanted = match self.policy {
            Policy::Off => false,
            Policy::Deterministic => request.seed.is_some() || request.temperature == Some(0.0),
            Policy::All => true,
        };
        fits && wanted
    }

    /// Whether an answer that ended so, in a stored form of so many bytes, is kept.
    #[must_use]
    pub fn keeps(&self, finish: &Finish, bytes: usize) -> Option<FinishReason> {
        let reason = match finish {
            Finish::EndOfTurn => FinishReason::Stop,
            Finish::Stop(_) | Finish::StopToken(_) => FinishReason::StopSequence,
            Finish::ToolCalls if self.tools => FinishReason::Tools,
            // A longer answer might have been had another time.
            Finish::ToolCalls | Finish::MaxTokens | Finish::ContextFull => return None,
        };
        (bytes <= MAX_BYTES).then_some(reason)
    }

    /// When an answer of the time `created` becomes stale. `draw`, from 0 to 1 by chance, spreads it by a tenth to either
    /// side, so that what was made at one time does not end at one time.
    #[must_use]
    pub fn expires(&self, created: Seconds, draw: f64) -> Seconds {
        let Some(ttl) = self.ttl else { return NEVER };
        let spread = 0.9 + 0.2 * draw.clamp(0.0, 1.0);
        let seconds = (ttl.as_secs_f64() * spread).max(1.0);
        // `as` saturates; a time that is not far enough away to be never.
        created.saturating_add(seconds as Seconds).min(NEVER - 1)
    }
}

/// How good a stored answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Answer with it.
    Fresh,
    /// Answer with it and make it anew beside: it ends soon, and this request is the one that was drawn to care.
    RefreshEarly,
    /// Answer with it and make it anew beside: it ended a short while ago.
    StaleWhileRevalidate,
    /// Only where making a new one fails.
    StaleIfError,
    /// As good as none.
    Gone,
}

/// Share of its life for which a stale answer may be given while a new one is made, and bound of that in seconds.
const WHILE_REVALIDATE: (Seconds, Seconds) = (10, 60);
/// Bound in seconds of how long a stale answer may stand in for a failure; its share is the whole of its life.
const IF_ERROR: Seconds = 24 * 3600;

/// How good an answer is at the time `now` that was made at `created`, took `generation_ms` and is good until `expires`.
///
/// The nearer its end, and the longer it took to make, the likelier a request is to renew it before (Vattani, Chierichetti
/// and Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015): `draw` is from 0 to 1 by chance, 0
/// excluded.
#[must_use]
pub fn freshness(created: Seconds, expires: Seconds, now: Seconds, generation_ms: u32, draw: f64) -> Freshness {
    if expires == NEVER {
        return Freshness::Fresh;
    }
    if now < expires {
        let early = -(f64::from(generation_ms) / 1000.0) * draw.clamp(f64::MIN_POSITIVE, 1.0).ln();
        return match f64::from(expires - now) <= early {
            true => Freshness::RefreshEarly,
            false => Freshness::Fresh,
        };
    }
    let (stale, life) = (now - expires, expires.saturating_sub(created));
    let (share, most) = WHILE_REVALIDATE;
    if stale < (life / share).min(most) {
        Freshness::StaleWhileRevalidate
    } else if stale < life.min(IF_ERROR) {
        Freshness::StaleIfError
    } else {
        Freshness::Gone
    }
}

impl Age {
    /// What is left of an answer's freshness for a request that says how old it may be.
    #[must_use]
    pub fn allows(self, freshness: Freshness, created: Seconds, now: Seconds) -> Freshness {
        match (self, freshness) {
            (Self::Any, _) => freshness,
            (Self::AtMost(age), Freshness::Fresh | Freshness::RefreshEarly) if now.saturating_sub(created) <= age => {
                freshness
            }
            (Self::AtMost(_), _) => Freshness::Gone,
        }
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
