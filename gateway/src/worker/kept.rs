//! Stored answers, as one worker has them: it looks them up, replays them, and hands new ones to the cache's writer.
//!
//! It parses nothing and decides nothing of policy ([`crate::keep`] does). Invariants: an answer is given only under a key that
//! was compared in full, and only while its entry lives; what is recalled by a request's raw bytes was compared with all of
//! them, for the same snapshot, name space, route and directives.

use std::sync::Arc;

use zerohop_cache::{Answer, Cache, Found, Key, ModelNumber, Putter, Reader, Sighting, Usage as Counted};
use zerohop_engine::{Event, Mail, Usage};

use super::{
    local::Local,
    seen::{Seen, Weigh},
};
use crate::{
    api::{ChatRequest, Dialect, Ignored, Scratch},
    caller::Caller,
    http::CacheControl,
    keep::{Age, Freshness, freshness},
    key::{KeyMaker, Keyed, Namespace, Sent, Whose},
    reply::{
        Reply,
        stored::{Recorder, Shape, Stored},
    },
    resolve::ModelIndex,
    snapshot::{ServedModel, Snapshot},
};

/// Longest body that is known by its bytes.
const LONGEST: usize = 16 << 10;
/// Longest rendered reply that is kept ready.
const LARGEST: usize = 64 << 10;
/// Bytes of bodies and replies that are kept ready in all, by each worker.
const READY: usize = 8 << 20;

/// A worker's access to the cache.
pub(super) struct Answers {
    reader: Reader,
    putter: Putter,
    keys: KeyMaker,
    seen: Seen<Circumstances, Hit>,
}

/// An answer that is given again, ready to send.
pub(super) struct Hit {
    /// Without its bytes, which would stay in memory when it is evicted.
    pub(super) found: Sighting,
    /// How old it may be for this request.
    age: Age,
    pub(super) shape: Shape,
    pub(super) body: Arc<[u8]>,
    pub(super) usage: Usage,
    pub(super) model: Arc<ServedModel>,
    /// The same, in the snapshot under which it was found.
    pub(super) index: ModelIndex,
}

/// What of a request beside its body decides how it is answered.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Circumstances {
    epoch: u64,
    space: Namespace,
    dialect: Dialect,
    said: CacheControl,
}

impl Circumstances {
    pub(super) fn new(snapshot: &Snapshot, space: &Namespace, dialect: Dialect, said: CacheControl) -> Self {
        Self {
            epoch: snapshot.epoch,
            space: *space,
            dialect,
            said,
        }
    }
}

impl Weigh for Hit {
    fn bytes(&self) -> usize {
        self.body.len()
    }
}

impl Answers {
    /// `None` where the cache is closing.
    pub(super) fn new(cache: &Cache) -> Option<Self> {
        Some(Self {
            reader: cache.reader(),
            putter: cache.putter()?,
            keys: KeyMaker::default(),
            seen: Seen::new(READY),
        })
    }

    /// The answer to a request that came before, byte for byte, if `caller` may use its model; with its age in seconds.
    ///
    /// A name space can be shared by callers who may use different models, so that is asked again.
    pub(super) fn recall(
        &mut self,
        circumstances: &Circumstances,
        caller: &Caller,
        body: &[u8],
        clock: Clock,
    ) -> Option<(&Hit, u64)> {
        if body.len() > LONGEST {
            return None;
        }
        let place = self.seen.find(circumstances, body)?;
        let hit = self.seen.at(place).filter(|hit| caller.may_use(hit.index))?;
        if !self.reader.lives(&hit.found) || clock.judge(&hit.found, hit.age) != Freshness::Fresh {
            self.seen.forget(place);
            return None;
        }
        let hit = self.seen.at(place)?;
        self.reader.hit(&hit.found, self.reader.now(clock.unix));
        Some((hit, clock.age(&hit.found)))
    }

    /// The key of a request. `None`: no answer to it may be kept.
    pub(super) fn key(
        &mut self,
        whose: &Whose<'_>,
        request: &ChatRequest,
        (body, ignored, scratch): (&[u8], &Ignored, &mut Scratch),
    ) -> Option<Keyed> {
        self.keys.chat(whose, request, Sent { ignored, body, scratch })
    }

    /// The answer under this key, if there is a fresh one.
    pub(super) fn look_up(&mut self, key: &Key, age: Age, clock: Clock) -> Option<Found> {
        let found = self.reader.look_up(key)?;
        // Made anew a little early by one request of many: that one takes it as a miss.
        (clock.judge(&found.sighting, age) == Freshness::Fresh).then_some(found)
    }

    /// Makes the reply of what was found. `None`: it cannot be read, and is as good as none.
    pub(super) fn replay(
        &mut self,
        (found, value, age): (Sighting, &[u8], Age),
        shape: Shape,
        (index, model): (ModelIndex, Arc<ServedModel>),
        clock: Clock,
    ) -> Option<Hit> {
        let stored = Stored::read(value).ok()?;
        let mut body = Vec::new();
        stored.body(&shape, &mut body);
        let usage = stored.usage();
        self.reader.hit(&found, self.reader.now(clock.unix));
        Some(Hit {
            found,
            age,
            shape,
            body: body.into(),
            usage,
            model,
            index,
        })
    }

    /// Knows a request by its bytes until the next snapshot.
    pub(super) fn remember(&mut self, circumstances: Circumstances, body: &[u8], hit: Hit) {
        if body.len() <= LONGEST && hit.body.len() <= LARGEST {
            self.seen.insert(circumstances, body, hit);
        }
    }

    /// Another snapshot is in force: nothing that was made under the old one is found again, and it holds models.
    pub(super) fn begin_snapshot(&mut self) {
        self.seen.clear();
    }

    /// Offers a value that was read from its part to the memory, if it is warm enough for it.
    pub(super) fn offer(&self, found: &Sighting, value: &Arc<[u8]>, clock: Clock) {
        if self.reader.is_worth_keeping(found, self.reader.now(clock.unix)) {
            self.putter.warm(found.entry.key, found.entry.place, Arc::clone(value));
        }
    }

    /// Hands an answer to the writer. What that does not take (false) is counted by the cache.
    pub(super) fn put(&self, answer: Answer) -> bool {
        self.putter.put(answer)
    }

    /// Whether an answer that was made at `created` or later is found under this key.
    pub(super) fn has(&self, key: &Key, created: u32) -> bool {
        let found = self.reader.look_up(key);
        found.is_some_and(|found| found.sighting.entry.created >= created)
    }
}

/// The time of a request, and its chance.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// Seconds and nanoseconds since 1970.
    pub(super) unix: (u64, u32),
    /// From 0 to 1.
    pub(super) draw: f64,
}

impl Clock {
    fn seconds(self) -> u32 {
        u32::try_from(self.unix.0).unwrap_or(u32::MAX)
    }

    fn judge(self, found: &Sighting, age: Age) -> Freshness {
        let (created, expires) = (found.entry.created, found.entry.expires);
        let now = self.seconds();
        age.allows(freshness(created, expires, now, found.made_in, self.draw), created, now)
    }

    /// Age in seconds.
    pub(super) fn age(self, found: &Sighting) -> u64 {
        u64::from(self.seconds().saturating_sub(found.entry.created))
    }
}

/// Keeps the answer of a request that is with an engine.
pub(super) struct Keeper {
    recorder: Recorder,
    keyed: Keyed,
    model: Arc<ServedModel>,
    /// When the request was handed in, by the worker's clock.
    begun: std::time::Duration,
}

impl Keeper {
    /// `None` for replies that have no stored form.
    pub(super) fn new(reply: &Reply, keyed: Keyed, model: Arc<ServedModel>, local: &Local) -> Option<Self> {
        Some(Self {
            recorder: Recorder::of(reply)?,
            keyed,
            model,
            begun: local.clock(),
        })
    }

    /// Bytes that it holds.
    pub(super) fn held(&self) -> usize {
        self.recorder.held()
    }

    /// Takes note of an event that the reply has taken; keeps the answer when that completes it. When it was made, if it was
    /// handed to the cache.
    pub(super) fn event(&mut self, mail: &Mail, reply: &Reply, local: &mut Local) -> Option<u32> {
        let body = self.recorder.on(&mail.event, reply)?;
        let snapshot = Arc::clone(local.snapshot());
        let (Event::Finished { finish, usage }, Some(kept)) = (&mail.event, &snapshot.kept) else {
            return None;
        };
        // Rules that changed meanwhile may have made another answer than the key stands for.
        let is_of_key = self.model.era.holds();
        let finish = kept.keeping.keeps(finish, body.len()).filter(|_| is_of_key)?;
        let created = u32::try_from(local.unix_seconds()).unwrap_or(u32::MAX);
        let took = local.clock().saturating_sub(self.begun).as_millis();
        let expires = kept.keeping.expires(created, local.chance());
        let taken = local.keep(Answer {
            model: self.model.id.as_ref().to_owned(),
            tenant: self.keyed.tenant,
            prompt: self.keyed.prompt,
            context: self.keyed.context,
            created,
            expires,
            finish,
            usage: Counted {
                prompt: usage.input_tokens,
                completion: usage.output_tokens,
            },
            generation_ms: u32::try_from(took).unwrap_or(u32::MAX),
            request: None,
            body,
        });
        taken.then_some(created)
    }
}

/// Whose answers a request may see, by the model that it names; `None` where none are kept.
pub(crate) fn whose<'a>(
    snapshot: &'a Snapshot,
    space: &'a Namespace,
    index: ModelIndex,
) -> Option<(Whose<'a>, ModelNumber)> {
    let number = *snapshot.kept.as_ref()?.numbers.get(index.get())?;
    let model = snapshot.model(index);
    let whose = Whose {
        space,
        model: &model.id,
        epoch: model.epoch.as_ref()?,
    };
    Some((whose, number?))
}
