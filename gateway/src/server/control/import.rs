//! `cache.import`: recorded pairs of request and response, put under the key that a live request would have.
//!
//! A request is read, resolved and keyed by the same code as one of a client. Invariants: what a live request could not be
//! given is refused with its reason, a pair at a time; live answers keep their place in the writer's queue, since an import
//! has at most [`TURN`] of its own in it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{json, value::RawValue};
use zerohop_cache::{Answer, Cache, Usage};
use zerohop_engine::{Finish, Form};

use super::{
    Failure, Outcome, Site,
    line::{Fields, Lines},
};
use crate::{
    api::{ChatRequest, Dialect, Scratch, anthropic, is_object, openai},
    caller::{Caller, Credentials},
    http::{CacheControl, IdSource},
    keep::{Keeping, Policy},
    key::{KeyMaker, Sent},
    log::system_clock,
    reply::stored::{Named, Recorded},
    server::secret,
    snapshot::Snapshot,
    worker::{Phase, whose},
};

/// Answers of an import that wait for the writer at a time.
const TURN: usize = 128;
/// Most pairs of a line.
pub(crate) const MOST: usize = 4096;
/// Longest reason that is told, in characters.
const TOLD: usize = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair<'a> {
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow)]
    response: &'a RawValue,
    #[serde(borrow)]
    path: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tenant: Option<Cow<'a, str>>,
    made_ms: Option<u32>,
}

/// What the pairs of a line have in common.
struct Import<'a> {
    cache: &'a Cache,
    snapshot: &'a Snapshot,
    keeping: Keeping,
    path: Option<Dialect>,
    /// Of the line, where it names somebody, or nobody needs a key.
    caller: Option<Caller>,
    keys: KeyMaker,
    scratch: Scratch,
    ids: IdSource,
    /// Seconds since 1970.
    now: u32,
}

/// `cache.import`.
pub(super) fn import(site: &Site, fields: &Fields<'_>, out: &mut Lines<'_>) -> Outcome {
    let cache = site.cache.as_deref();
    let cache = cache.ok_or_else(|| Failure::refused("no answers are kept: cache.type is off"))?;
    if site.shared.phase() == Phase::Loading {
        return Err(Failure::refused(
            "the models are being loaded: try again when the gateway is ready",
        ));
    }
    let Some(pairs) = fields.raw("pairs") else {
        return Err(Failure::refused(
            "`pairs` is missing: give a list of {\"request\": …, \"response\": …}",
        ));
    };
    let pairs: Vec<&RawValue> =
        serde_json::from_str(pairs.get()).map_err(|_| Failure::refused("`pairs` has to be a list"))?;
    if pairs.len() > MOST {
        return Err(Failure::Refused(format!(
            "{} pairs are more than the {MOST} of a line",
            pairs.len()
        )));
    }
    let snapshot = site.shared.snapshot();
    let mut import = Import::new(cache, &snapshot, fields).map_err(Failure::Refused)?;
    let (mut stored, mut not_given) = (0, 0);
    for (index, pair) in pairs.iter().enumerate() {
        match import.pair(pair.get()) {
            Ok(given) => {
                stored += 1;
                not_given += usize::from(!given);
            }
            Err(why) => out.entry(&json!({"index": index, "refused": short(&why)}))?,
        }
        if index % TURN == TURN - 1 {
            // When this is answered, the writer has done all that was put before.
            let _turn = cache.totals();
        }
    }
    Ok(json!({"stored": stored, "refused": pairs.len() - stored, "not_given": not_given}))
}

/// What is told of a reason, which may quote much of a body.
fn short(why: &str) -> String {
    match why.char_indices().nth(TOLD) {
        None => why.to_owned(),
        Some((end, _)) => format!("{}…", &why[..end]),
    }
}

fn dialect(path: &str) -> Result<Dialect, String> {
    match path {
        "/v1/messages" => Ok(Dialect::Anthropic),
        "/v1/chat/completions" => Ok(Dialect::OpenAi),
        _ => Err(format!("`path` is {path:?}: give /v1/messages or /v1/chat/completions")),
    }
}

impl<'a> Import<'a> {
    fn new(cache: &'a Cache, snapshot: &'a Snapshot, fields: &Fields<'_>) -> Result<Self, String> {
        let kept = snapshot.kept.as_ref().ok_or("no answers are kept: cache.type is off")?;
        let (tenant, key) = (fields.text("tenant")?, fields.text("api_key")?);
        let caller = match (tenant, key) {
            (Some(_), Some(_)) => return Err("`tenant` and `api_key` contradict each other: give one".into()),
            (Some(tenant), None) => Some(snapshot.callers.of_tenant(&tenant)?),
            (None, Some(key)) => Some(admit(snapshot, Some(key.as_bytes()))?),
            // Whoever is let in without a key; otherwise the pairs have to say whose they are.
            (None, None) => admit(snapshot, None).ok(),
        };
        let seed = secret().map_err(|error| error.to_string())?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| seed[at + byte]));
        Ok(Self {
            cache,
            snapshot,
            keeping: kept.keeping,
            path: fields.text("path")?.map(|path| dialect(&path)).transpose()?,
            caller,
            keys: KeyMaker::default(),
            scratch: Scratch::default(),
            ids: IdSource::new([word(0), word(8)]),
            now: u32::try_from(system_clock().0).unwrap_or(u32::MAX),
        })
    }

    /// Puts one pair; whether the policy in force would give its answer.
    fn pair(&mut self, pair: &str) -> Result<bool, String> {
        let pair: Pair<'_> = serde_json::from_str(pair).map_err(|error| format!("no pair: {error}"))?;
        let recorded = Recorded::read(pair.response.get())?;
        let dialect = match pair.path.as_deref().map(dialect).transpose()? {
            Some(dialect) => dialect,
            None => self.path.unwrap_or(recorded.dialect),
        };
        let caller = match &pair.tenant {
            Some(tenant) => self.snapshot.callers.of_tenant(tenant)?,
            None => self.caller.clone().ok_or(
                "nobody is named whose answer it is: give `tenant` with the pair, or --tenant or --key-env for all",
            )?,
        };
        let body = pair.request.get().as_bytes();
        let strict = self.snapshot.strict;
        let read = match dialect {
            Dialect::Anthropic => anthropic::messages(body, &mut self.scratch, strict),
            Dialect::OpenAi => openai::chat(body, &mut self.scratch, strict),
        };
        let (request, ignored) = read.map_err(|error| format!("the request: {}", error.message))?;
        let index = self.snapshot.resolver.resolve(&request.model, &caller);
        let index = index.map_err(|error| format!("the request: {}", error.message))?;
        let whose = whose(self.snapshot, caller.space(), index);
        let (whose, _) = whose.ok_or_else(|| format!("answers of the model {} are not kept", request.model))?;
        let given = self.may_be_kept(&request, &recorded)?;
        let sent = Sent {
            ignored: &ignored,
            body,
            scratch: &mut self.scratch,
        };
        let keyed = self.keys.chat(&whose, &request, sent);
        let keyed = keyed.ok_or("the request has fields that nobody knows and that have no canonical form")?;
        let (finish, usage) = (recorded.finish.clone(), recorded.usage);
        let model = self.snapshot.model(index);
        let named = Named {
            id: self.ids.bits(),
            created: self.now.into(),
            version: &model.version,
        };
        let form = recorded
            .stored(named, &mut self.ids)
            .ok_or("the answer is too long to be kept")?;
        let finish = self.keeping.keeps(&finish, form.len()).ok_or(match finish {
            Finish::ToolCalls => "answers that call tools are not kept: cache.tools is false",
            _ => "the answer was cut off by a limit, and such ones are not kept",
        })?;
        let draw = (self.ids.bits().0 >> 11) as f64 / (1_u64 << 53) as f64;
        let answer = Answer {
            model: model.id.as_ref().to_owned(),
            tenant: keyed.tenant,
            prompt: keyed.prompt,
            context: keyed.context,
            created: self.now,
            expires: self.keeping.expires(self.now, draw),
            finish,
            usage: Usage {
                prompt: usage.input_tokens,
                completion: usage.output_tokens,
            },
            generation_ms: pair.made_ms.unwrap_or(0),
            request: None,
            body: form,
        };
        match self.cache.put_in_turn(answer) {
            true => Ok(given),
            false => Err("the cache's writer has ended".into()),
        }
    }

    /// Whether the policy in force gives such an answer; an error if none does.
    fn may_be_kept(&self, request: &ChatRequest, recorded: &Recorded) -> Result<bool, String> {
        let all = Keeping {
            policy: Policy::All,
            ..self.keeping
        };
        let said = CacheControl::default();
        if !all.plan(request, said).store {
            return Err(
                "the request asks for several answers, log probabilities or too long a form: its answers are not kept"
                    .into(),
            );
        }
        let offered = &request.conversation.tools.list;
        if let Some(name) = recorded
            .called()
            .find(|name| !offered.iter().any(|tool| tool.name == *name))
        {
            return Err(format!("the answer calls {name:?}, which is no tool of the request"));
        }
        let form = request.extras.as_ref().map_or(&Form::Free, |extras| &extras.form);
        let text = recorded.text();
        let holds = match form {
            Form::Free => true,
            Form::Object => is_object(text.trim()),
            Form::Choice(texts) => texts.iter().any(|choice| choice == text),
            Form::Schema(_) | Form::Regex(_) | Form::Grammar(_) => {
                return Err(
                    "the request binds the answer's form by a schema or grammar, which an import cannot check".into(),
                );
            }
        };
        if !holds && recorded.called().next().is_none() {
            return Err("the answer has not the form that the request asks for".into());
        }
        Ok(self.keeping.plan(request, said).look_up.is_some())
    }
}

/// Whoever has this key.
fn admit(snapshot: &Snapshot, key: Option<&[u8]>) -> Result<Caller, String> {
    let credentials = Credentials {
        authorization: None,
        x_api_key: key,
    };
    let admitted = snapshot.callers.admit(credentials);
    admitted.map_err(|error| error.message.into_owned())
}
