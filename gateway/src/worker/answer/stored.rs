//! Requests that a stored answer serves.
//!
//! It asks [`crate::keep`] what is allowed and [`super::super::kept`] what there is. Invariant: a reply made here tells
//! `x-cache: hit` and the age of its answer, and is counted and logged like any other.

use std::sync::Arc;

use zerohop_cache::Key;

use super::{Admitted, Outcome, Request};
use crate::{
    api::{ChatRequest, Dialect, Ignored},
    error::{ApiError, ErrorKind},
    http::CacheControl,
    keep::Plan,
    key::Keyed,
    metrics::CacheOutcome,
    reply::{
        CacheNote, Progress,
        stored::{Shape, hit},
    },
    resolve::ModelIndex,
    worker::{
        kept::{Circumstances, Hit, whose},
        local::Local,
        record::Generation,
    },
};

/// A request that was read.
pub(super) struct Asked<'a> {
    pub(super) said: CacheControl,
    pub(super) body: &'a [u8],
    pub(super) request: &'a ChatRequest,
    pub(super) index: ModelIndex,
    pub(super) ignored: &'a Ignored,
}

/// What became of a request that a stored answer might serve.
pub(super) enum Stored {
    /// The reply is written.
    Given(Progress),
    /// It wanted nothing else.
    Refused(ApiError),
    /// It is to be answered anew, and the answer kept under this key, if there is one; the reply's head tells the note.
    None(Option<Keyed>, CacheNote),
}

/// What beside its body decides how a request is answered; `None` where no answers are kept.
pub(super) fn circumstances(by: &Admitted, dialect: Dialect, said: CacheControl) -> Option<Circumstances> {
    by.snapshot.kept.as_ref()?;
    Some(Circumstances::new(&by.snapshot, by.caller.space(), dialect, said))
}

impl Request {
    /// Writes the reply to a request whose very bytes came before, if they did.
    pub(super) fn recall(
        &mut self,
        circumstances: &Circumstances,
        by: &Admitted,
        body: &[u8],
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Option<Progress> {
        let clock = local.cache_clock();
        let date = *local.date();
        let (hit, age) = local.answers()?.recall(circumstances, &by.caller, body, clock)?;
        self.record.tenant = by.caller.tenant().cloned();
        let progress = self.send(hit, age, &date, out);
        let model = Arc::clone(&hit.model);
        let (usage, streamed) = (hit.usage, hit.shape.is_stream());
        self.record.streamed = streamed;
        let mut generation = Generation::new(model, local.worker(), local.clock());
        generation.replayed(usage);
        self.record.generation = Some(generation);
        Some(progress)
    }

    /// Answers a request from the store where that is allowed and there is something.
    pub(super) fn stored(
        &mut self,
        circumstances: Option<Circumstances>,
        by: &Admitted,
        asked: &Asked<'_>,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Stored {
        let (plan, keyed) = plan(by, asked, local);
        if let (Some(age), Some((keyed, key)), Some(circumstances)) = (plan.look_up, keyed, circumstances) {
            let clock = local.cache_clock();
            let date = *local.date();
            let model = Arc::clone(by.snapshot.model(asked.index));
            let shape = Shape::new(self.dialect, asked.request.stream, asked.request.model.as_str());
            let extras = asked.request.extras.as_deref();
            let shape = shape.with_functions(extras.is_some_and(|extras| extras.places.functions));
            let hit = local.answers().and_then(|answers| {
                let found = answers.look_up(&key, age, clock)?;
                answers.replay((found, age), shape, (asked.index, model), clock)
            });
            if let Some(hit) = hit {
                let progress = self.send(&hit, clock.age(&hit.found), &date, out);
                if let Some(generation) = &mut self.record.generation {
                    generation.replayed(hit.usage);
                }
                // One that began under an older snapshot would be kept for nobody, and its model with it.
                let is_present = local.snapshot().epoch == by.snapshot.epoch;
                if let Some(answers) = local.answers().filter(|_| is_present) {
                    answers.remember(circumstances, asked.body, hit);
                }
                return Stored::Given(progress);
            }
            local.metrics().cached(CacheOutcome::Miss);
            return anew(plan, Some(keyed), CacheNote::MISS);
        }
        let keyed = keyed.map(|(keyed, _)| keyed);
        if by.snapshot.kept.is_none() {
            return anew(plan, keyed, CacheNote::NONE);
        }
        local.metrics().cached(CacheOutcome::Bypass);
        anew(plan, keyed, CacheNote::BYPASS)
    }

    fn send(&self, hit: &Hit, age: u64, date: &crate::date::HttpDate, out: &mut Vec<u8>) -> Progress {
        self::hit(&self.connection, date, &hit.shape, CacheNote::hit(age), &hit.body, out)
    }

    /// A stored answer was written.
    pub(super) fn given(mut self, progress: Progress, out: &[u8], local: &mut Local) -> Outcome {
        local.metrics().cached(CacheOutcome::Hit);
        self.connection.keep_alive = progress == Progress::Done;
        self.written(200, out, local)
    }
}

/// Nothing stored is given.
fn anew(plan: Plan, keyed: Option<Keyed>, note: CacheNote) -> Stored {
    if plan.only_stored {
        let what = "no stored answer serves this request (cache-control: only-if-cached)";
        return Stored::Refused(ApiError::new(ErrorKind::NotCached, what));
    }
    Stored::None(keyed.filter(|_| plan.store), note)
}

/// What the request may have of stored answers, and its key.
fn plan(by: &Admitted, asked: &Asked<'_>, local: &mut Local) -> (Plan, Option<(Keyed, Key)>) {
    let nothing = Plan {
        look_up: None,
        store: false,
        only_stored: asked.said.only_if_cached,
    };
    let Some((kept, (whose, model))) =
        by.snapshot
            .kept
            .as_ref()
            .zip(whose(&by.snapshot, by.caller.space(), asked.index))
    else {
        return (nothing, None);
    };
    let plan = kept.keeping.plan(asked.request, asked.said);
    if plan.look_up.is_none() && !plan.store {
        return (plan, None);
    }
    let keyed = local
        .answers_and_scratch()
        .and_then(|(answers, scratch)| answers.key(&whose, asked.request, (asked.body, asked.ignored, scratch)));
    let Some(keyed) = keyed else { return (nothing, None) };
    let key = Key {
        model,
        context: keyed.context,
        prompt: keyed.prompt,
    };
    (plan, Some((keyed, key)))
}
