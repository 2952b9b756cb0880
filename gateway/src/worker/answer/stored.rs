//! Requests that a stored answer serves, or one that is being made for another request.
//!
//! It asks [`crate::keep`] what is allowed, [`super::super::kept`] what there is and [`crate::flight`] what is being made.
//! Invariants: a reply made here tells `x-cache: hit` and the age of its answer, and is counted and logged like any other;
//! what may not be kept is not shared either.

use std::sync::Arc;

use zerohop_cache::{Found, Key, Value};
use zerohop_ring::ConnId;

use super::{Admitted, Outcome, Request};
use crate::{
    api::{ChatRequest, Dialect, Ignored},
    error::{ApiError, ErrorKind},
    flight::{Conn, Follow, Joined, Lead, Seat, Wish},
    http::CacheControl,
    keep::{Age, Plan},
    key::Keyed,
    metrics::{CacheOutcome, FlightPart},
    reply::{
        CacheNote, Progress,
        stored::{Shape, hit},
    },
    resolve::ModelIndex,
    worker::{
        fetching::{Fetched, Wanted},
        kept::{Circumstances, Clock, Hit, whose},
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
    /// What became of reading its stored answer, where that was tried.
    pub(super) fetched: Option<Fetched>,
}

/// What became of a request that a stored answer might serve.
pub(super) enum Stored {
    /// The reply is written.
    Given(Progress),
    /// It wanted nothing else.
    Refused(ApiError),
    /// The answer lies there.
    Elsewhere(Wanted),
    /// Its answer is to be made, or is being made.
    None(Anew),
}

/// How a request that no stored answer serves is answered.
pub(super) struct Anew {
    /// What the answer is kept under, if it is.
    pub(super) keyed: Option<Keyed>,
    /// What the reply's head tells.
    pub(super) note: CacheNote,
    pub(super) share: Share,
}

/// Whether a request shares a generation.
pub(super) enum Share {
    /// It does not.
    Nothing,
    /// Others can follow its own.
    Lead(Lead),
    /// It follows another's, whose answer would be kept under this key.
    Follow(Follow, Keyed),
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
        conn: ConnId,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Stored {
        let (plan, keyed) = plan(by, asked, local);
        if let (Some(age), Some((keyed, key)), Some(circumstances)) = (plan.look_up, keyed, circumstances) {
            let clock = local.cache_clock();
            match self.look_up((&key, age, clock), &circumstances, by, asked, out, local) {
                Looked::Given(progress) => return Stored::Given(progress),
                Looked::Elsewhere(wanted) => return Stored::Elsewhere(wanted),
                Looked::Nothing => {}
            }
            if plan.only_stored {
                local.metrics().cached(CacheOutcome::Miss);
                return Stored::Refused(not_stored());
            }
            let mut joined = join(plan, by, asked, (&key, Some((age, clock))), conn, local);
            // It was stored between the two looks, and before its flight was over: it is there now.
            if let Some(Joined::Stored) = joined {
                match self.look_up((&key, age, clock), &circumstances, by, asked, out, local) {
                    Looked::Given(progress) => return Stored::Given(progress),
                    Looked::Elsewhere(wanted) => return Stored::Elsewhere(wanted),
                    Looked::Nothing => {}
                }
                joined = Some(Joined::Alone);
            }
            local.metrics().cached(match joined {
                Some(Joined::Follower(_)) => CacheOutcome::Join,
                _ => CacheOutcome::Miss,
            });
            return anew(plan, keyed, joined, CacheNote::MISS, local);
        }
        let note = match by.snapshot.kept.is_some() {
            true => CacheNote::BYPASS,
            false => CacheNote::NONE,
        };
        if note == CacheNote::BYPASS {
            local.metrics().cached(CacheOutcome::Bypass);
        }
        if plan.only_stored {
            return Stored::Refused(not_stored());
        }
        let Some((keyed, key)) = keyed else {
            return Stored::None(Anew {
                keyed: None,
                note,
                share: Share::Nothing,
            });
        };
        let joined = join(plan, by, asked, (&key, None), conn, local);
        anew(plan, keyed, joined, note, local)
    }

    /// Writes the reply of what is stored under this key, if there is something fresh.
    fn look_up(
        &mut self,
        (key, age, clock): (&Key, Age, Clock),
        circumstances: &Circumstances,
        by: &Admitted,
        asked: &Asked<'_>,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Looked {
        let date = *local.date();
        let model = Arc::clone(by.snapshot.model(asked.index));
        let shape = Shape::new(self.dialect, asked.request.stream, asked.request.model.as_str());
        let extras = asked.request.extras.as_deref();
        let shape = shape.with_functions(extras.is_some_and(|extras| extras.places.functions));
        let Some((answers, found)) = local
            .answers()
            .and_then(|answers| answers.look_up(key, age, clock).map(|found| (answers, found)))
        else {
            return Looked::Nothing;
        };
        let value = match at_hand(&found, asked.fetched.as_ref()) {
            Ok(value) => value,
            Err(wanted) => return wanted.map_or(Looked::Nothing, Looked::Elsewhere),
        };
        let Some(hit) = answers.replay((found.sighting, &value, age), shape, (asked.index, model), clock) else {
            return Looked::Nothing;
        };
        if let Value::There(..) = found.value {
            answers.offer(&found.sighting, &value, clock);
        }
        let progress = self.send(&hit, clock.age(&hit.found), &date, out);
        if let Some(generation) = &mut self.record.generation {
            generation.replayed(hit.usage);
        }
        // One that began under an older snapshot would be kept for nobody, and its model with it.
        let is_present = local.snapshot().epoch == by.snapshot.epoch;
        if let Some(answers) = local.answers().filter(|_| is_present) {
            answers.remember(circumstances.clone(), asked.body, hit);
        }
        Looked::Given(progress)
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

/// What a look-up came to.
enum Looked {
    /// The reply is written.
    Given(Progress),
    /// The answer lies there.
    Elsewhere(Wanted),
    Nothing,
}

/// The bytes of what was found; else where to read them, unless that was tried and came to nothing.
fn at_hand(found: &Found, fetched: Option<&Fetched>) -> Result<Arc<[u8]>, Option<Wanted>> {
    let (part, place) = match &found.value {
        Value::Here(value) => return Ok(Arc::clone(value)),
        Value::There(part, place) => (part, *place),
    };
    match fetched {
        Some(Fetched::Value(read, value)) if *read == place => Ok(Arc::clone(value)),
        // Read where it no longer lies, or not at all: a miss, so that no request waits twice.
        Some(_) => Err(None),
        None => Err(Some(Wanted {
            file: Arc::clone(&part.file),
            form: part.form,
            place,
        })),
    }
}

/// Nothing stored is given.
fn anew(plan: Plan, keyed: Keyed, joined: Option<Joined>, note: CacheNote, local: &mut Local) -> Stored {
    let (note, share, part) = match joined {
        None => (note, Share::Nothing, None),
        Some(Joined::Follower(follow)) => {
            let share = Share::Follow(follow, keyed);
            (CacheNote::JOIN, share, Some(FlightPart::Follower))
        }
        Some(Joined::Leader(lead)) => (note, Share::Lead(lead), Some(FlightPart::Leader)),
        Some(Joined::Stored | Joined::Alone) => (note, Share::Nothing, Some(FlightPart::Alone)),
    };
    part.into_iter().for_each(|part| local.metrics().flew(part));
    let keyed = Some(keyed).filter(|_| plan.store);
    Stored::None(Anew { keyed, note, share })
}

fn not_stored() -> ApiError {
    let what = "no stored answer serves this request (cache-control: only-if-cached)";
    ApiError::new(ErrorKind::NotCached, what)
}

/// Joins the flight of this key; `None` where nothing may be shared. `stored` is how to look again for an answer; without it the
/// request wants one that is made anew.
fn join(
    plan: Plan,
    by: &Admitted,
    asked: &Asked<'_>,
    (key, stored): (&Key, Option<(Age, Clock)>),
    conn: ConnId,
    local: &mut Local,
) -> Option<Joined> {
    let single = by.snapshot.kept.as_ref().is_some_and(|kept| kept.single_flight);
    // Under rules that are not those of the key any more, two requests of one key may have different answers.
    if !single || !plan.store || !by.snapshot.model(asked.index).era.holds() {
        return None;
    }
    let worker = local.worker();
    let conn = Conn {
        slot: conn.slot,
        generation: conn.generation,
    };
    let flights = local.flying().flights().clone();
    let wish = if stored.is_some() { Wish::Any } else { Wish::Anew };
    Some(flights.join(key, Seat { worker, conn }, wish, || {
        let found = stored.zip(local.answers());
        found.is_some_and(|((age, clock), answers)| answers.look_up(key, age, clock).is_some())
    }))
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
