//! Request bodies of each dialect against serde_json: whether a body is JSON, what an accepted one means, and whether the
//! same document in another spelling fares the same; and the ways of reading one against each other.
//!
//! Invariant: an accepted request means what its document says, read entry by entry, whichever way it was read.

use zerohop::{
    api::{
        ChatRequest, CountRequest, Ignored, Scratch, anthropic,
        openai::{self, CompletionRequest},
    },
    doors::{self, Level, Way},
    error::ApiError,
};
use zerohop_engine::{Conversation, Prompt, Role};

use crate::{
    json::{Json, respelled},
    same,
    wishes::{self, Plain},
};

pub(crate) type Read<T> = fn(&[u8], &mut Scratch, bool) -> Result<(T, Ignored), ApiError>;

/// A way into the product, see [`doors`].
type Door<T> = fn(Way, &[u8], &mut Scratch, bool) -> doors::Read<T>;

/// The tape, the product and, where it has no doubts, the one pass with each set of instructions read the same.
fn ways<T: PartialEq + std::fmt::Debug>(data: &[u8], read: Door<T>, strict: bool) {
    let tape = read(Way::Tape, data, &mut Scratch::default(), strict);
    for level in Level::all() {
        let mut scratch = doors::scratch(level);
        same(
            "the product",
            &read(Way::Product, data, &mut scratch, strict),
            &tape,
            data,
        );
        let direct = read(Way::Direct, data, &mut scratch, strict);
        if direct.is_some() {
            same(level.name(), &direct, &tape, data);
        }
    }
}

pub(crate) fn check_messages(data: &[u8]) {
    for strict in [false, true] {
        ways(data, doors::messages, strict);
        if let Some((request, json)) = check(data, anthropic::messages, strict) {
            meaning(&request, &json, &["max_tokens"], data);
            same("stop", &request.stop, &texts(json.get("stop_sequences")), data);
            let streams = json.get("stream").is_some_and(Json::is_true);
            same(
                "stream",
                &request.stream.map(|options| options.include_usage),
                &streams.then_some(true),
                data,
            );
            same("seed", &request.seed, &None, data);
            prompt(&request.conversation, conversation(&json, &system(&json), true), data);
            wishes::tools(&request.conversation, &json, true, data);
            wishes::format(&request, &json, data);
        }
    }
}

pub(crate) fn check_count(data: &[u8]) {
    for strict in [false, true] {
        ways(data, doors::count_tokens, strict);
        if let Some((request, json)) = check::<CountRequest>(data, anthropic::count_tokens, strict) {
            same(
                "model",
                &Some(request.model.as_str()),
                &json.get("model").and_then(Json::text),
                data,
            );
            prompt(&request.conversation, conversation(&json, &system(&json), true), data);
            wishes::tools(&request.conversation, &json, true, data);
        }
    }
}

pub(crate) fn check_chat(data: &[u8]) {
    for strict in [false, true] {
        ways(data, doors::chat, strict);
        if let Some((request, json)) = check(data, openai::chat, strict) {
            meaning(&request, &json, &["max_completion_tokens", "max_tokens"], data);
            assert!(request.max_tokens != Some(0), "no tokens at all");
            let stop = json.get("stop");
            let stops = stop
                .and_then(Json::text)
                .map_or_else(|| texts(stop), |text| vec![text.to_owned()]);
            same("stop", &request.stop, &stops, data);
            let options = json.get("stream_options");
            let usage = options
                .and_then(|options| options.get("include_usage"))
                .is_some_and(Json::is_true);
            let streams = json.get("stream").is_some_and(Json::is_true);
            same(
                "stream",
                &request.stream.map(|options| options.include_usage),
                &streams.then_some(usage),
                data,
            );
            same("seed", &request.seed.is_some(), &json.get("seed").is_some(), data);
            prompt(&request.conversation, conversation(&json, &[], false), data);
            wishes::tools(&request.conversation, &json, false, data);
            wishes::extras(&request, &json, data);
        }
    }
}

pub(crate) fn check_completions(data: &[u8]) {
    for strict in [false, true] {
        let Some((request, json)) = check::<CompletionRequest>(data, openai::completions, strict) else {
            continue;
        };
        let model = json.get("model").and_then(Json::text);
        same("model", &Some(request.model.as_str()), &model, data);
        same(
            "prompts",
            &request.prompts,
            &json.get("prompt").map_or_else(Vec::new, prompts),
            data,
        );
        let limit = json.get("max_tokens").and_then(Json::float).map_or(16, clamped);
        same("max_tokens", &request.max_tokens, &limit, data);
        same(
            "echo",
            &request.echo,
            &json.get("echo").is_some_and(Json::is_true),
            data,
        );
        let choices = json.get("n").and_then(Json::float).map_or(1, clamped);
        same("n", &request.choices(), &choices, data);
        let best_of = json.get("best_of").and_then(Json::float).map_or(choices, clamped);
        same("best_of", &best_of, &choices, data);
        let logprobs = request.extras.as_ref().and_then(|extras| extras.logprobs);
        same(
            "logprobs",
            &logprobs,
            &json.get("logprobs").and_then(Json::float).map(clamped),
            data,
        );
    }
}

/// The prompts of a completion, as the API describes the four forms.
fn prompts(json: &Json) -> Vec<Prompt> {
    let tokens = |items: &[Json]| Prompt::Tokens(items.iter().filter_map(Json::float).map(clamped).collect());
    match json.list() {
        None => json
            .text()
            .map(|text| Prompt::Text(text.to_owned()))
            .into_iter()
            .collect(),
        Some(items) if items.first().is_some_and(|item| item.float().is_some()) => vec![tokens(items)],
        Some(items) => items
            .iter()
            .filter_map(|item| match item.list() {
                Some(items) => Some(tokens(items)),
                None => item.text().map(|text| Prompt::Text(text.to_owned())),
            })
            .collect(),
    }
}

/// What holds of every dialect; an accepted request with its document.
pub(crate) fn check<T: PartialEq + std::fmt::Debug + Plain>(
    data: &[u8],
    read: Read<T>,
    strict: bool,
) -> Option<(T, Json)> {
    let mut scratch = Scratch::default();
    let ours = read(data, &mut scratch, strict);
    same("again", &read(data, &mut scratch, strict), &ours, data);
    let json = match Json::read(data) {
        Ok(json) => json,
        Err(error) => {
            // serde_json has a range for numbers and a depth of its own.
            let own = ["out of range", "recursion"]
                .iter()
                .any(|limit| error.to_string().contains(limit));
            let refused = ours
                .as_ref()
                .is_err_and(|error| is_about_json(error, data) != Some(false));
            assert!(
                own || refused,
                "serde_json: {error}; the product: {ours:?}; {}",
                data.escape_ascii()
            );
            return None;
        }
    };
    if json.depth() < 120 {
        let refused = ours
            .as_ref()
            .is_err_and(|error| is_about_json(error, data) == Some(true));
        assert!(
            !refused,
            "good JSON, and the product: {ours:?}; {}",
            data.escape_ascii()
        );
        let other = respelled(&json);
        // What is kept as it was spelled is spelled in one way first.
        let plain = |mut read: Result<(T, Ignored), ApiError>| {
            if let Ok((request, _)) = &mut read {
                request.plain();
            }
            read
        };
        let ours = plain(read(data, &mut scratch, strict));
        let anew = plain(read(other.as_bytes(), &mut scratch, strict));
        same("spelled anew", &anew, &ours, data);
    }
    ours.ok().map(|(request, _)| (request, json))
}

/// The body is refused as no JSON, and the reason is one that a scan of it found. `None` if the body has words of the
/// product's own, which it may have from a message.
fn is_about_json(error: &ApiError, data: &[u8]) -> Option<bool> {
    const NO_REASON: &str = "invalid syntax";
    const ABOUT: [&str; 5] = [
        "not valid JSON",
        "Invalid JSON",
        "parse the JSON",
        "is empty",
        "nested deeper",
    ];
    let body = String::from_utf8_lossy(data);
    if body.contains(NO_REASON) || ABOUT.iter().any(|part| body.contains(part)) {
        return None;
    }
    assert!(
        !error.message.contains(NO_REASON),
        "refused without a reason: {error:?}"
    );
    Some(error.status() == 400 && ABOUT.iter().any(|part| error.message.contains(part)))
}

/// What both dialects have in common.
fn meaning(request: &ChatRequest, json: &Json, limits: &[&str], data: &[u8]) {
    same(
        "model",
        &Some(request.model.as_str()),
        &json.get("model").and_then(Json::text),
        data,
    );
    let limit = limits.iter().find_map(|name| json.get(name)).and_then(Json::float);
    same("max_tokens", &request.max_tokens, &limit.map(clamped), data);
    #[expect(clippy::cast_possible_truncation, reason = "as the product reads it")]
    let number = |name: &str| json.get(name).and_then(Json::float).map(|value| value as f32);
    same("temperature", &request.temperature, &number("temperature"), data);
    same(
        "top_p",
        &request.top_p,
        &number("top_p").map(|top_p| top_p.max(f32::MIN_POSITIVE)),
        data,
    );
    let top_k = json.get("top_k").and_then(Json::float).filter(|&top_k| top_k > 0.0);
    same("top_k", &request.top_k, &top_k.map(clamped), data);
}

/// To 32 bits, as the product takes numbers that are too large.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, as is meant"
)]
pub(crate) fn clamped(value: f64) -> u32 {
    value as u32
}

fn texts(list: Option<&Json>) -> Vec<String> {
    let items = list.and_then(Json::list).unwrap_or_default();
    items.iter().filter_map(Json::text).map(String::from).collect()
}

/// A message as the oracle has it.
#[derive(Debug, PartialEq)]
struct Turn {
    role: Role,
    text: String,
    /// It says something, if only that it is empty.
    told: bool,
    calls: Vec<(String, String, Json)>,
    answers: Option<String>,
}

impl Turn {
    fn new(role: Role, texts: &[String]) -> Self {
        Self {
            role,
            text: texts.join("\n"),
            told: !texts.is_empty(),
            calls: Vec::new(),
            answers: None,
        }
    }
}

/// Compares prompts: neighbours of one role are one message, but for results of tools.
fn prompt(ours: &Conversation, turns: Vec<Turn>, data: &[u8]) {
    let mut messages: Vec<Turn> = Vec::new();
    for turn in turns {
        match messages.last_mut() {
            Some(last) if last.role == turn.role && turn.role != Role::Tool => {
                if !last.text.is_empty() && turn.told {
                    last.text += "\n\n";
                }
                last.text += &turn.text;
                last.calls.extend(turn.calls);
            }
            _ => messages.push(turn),
        }
    }
    messages.iter_mut().for_each(|turn| turn.told = true);
    let ours = ours.messages.iter().map(|message| Turn {
        role: message.role,
        text: message.content.clone(),
        told: true,
        calls: wishes::calls_of(message),
        answers: message.call_id.clone(),
    });
    same("prompt", &ours.collect::<Vec<_>>(), &messages, data);
}

/// The system prompt of the Messages API, without the client's own version.
fn system(json: &Json) -> Vec<String> {
    let Some(system) = json.get("system") else {
        return Vec::new();
    };
    let mut texts = content(system, &[]);
    if system.list().is_some() {
        texts.retain(|text| !text.starts_with("x-anthropic-billing-header:"));
    }
    texts
}

/// The turns with `system` before them. Turns that say nothing count in one API, as empty ones, and not in the other.
fn conversation(json: &Json, system: &[String], anthropic: bool) -> Vec<Turn> {
    let lead = (!system.is_empty()).then(|| Turn::new(Role::System, system));
    let messages = json.get("messages").and_then(Json::list).unwrap_or_default();
    let turns = messages.iter().flat_map(|message| match anthropic {
        true => blocks(message),
        false => vec![turn(message)],
    });
    let says = |turn: &Turn| !anthropic || turn.role == Role::Tool || !turn.text.is_empty() || !turn.calls.is_empty();
    lead.into_iter().chain(turns).filter(says).collect()
}

/// A message of the Chat Completions API.
fn turn(message: &Json) -> Turn {
    let role = wishes::role(message);
    let content = message.get("content").map(|json| content(json, &["refusal"]));
    let mut texts = content.unwrap_or_default();
    if role == Role::Assistant {
        texts.extend(message.get("refusal").and_then(Json::text).map(String::from));
    }
    Turn {
        calls: if role == Role::Assistant {
            wishes::calls(message, false)
        } else {
            Vec::new()
        },
        answers: wishes::answered(message),
        ..Turn::new(role, &texts)
    }
}

/// A message of the Messages API: results of tools are messages of their own, in their places among the texts.
fn blocks(message: &Json) -> Vec<Turn> {
    let role = wishes::role(message);
    let mut turns = vec![Turn {
        calls: wishes::calls(message, true),
        ..Turn::new(role, &[])
    }];
    let whole = message.get("content").map(std::slice::from_ref).unwrap_or_default();
    let parts = message.get("content").and_then(Json::list).unwrap_or(whole);
    let mut texts = Vec::new();
    for part in parts {
        match wishes::result(part) {
            Some((id, text)) => {
                close(&mut turns, role, &mut texts);
                turns.push(Turn {
                    answers: Some(id),
                    ..Turn::new(Role::Tool, &[text])
                });
            }
            None => texts.extend(content(&Json::List(vec![part.clone()]), &[])),
        }
    }
    close(&mut turns, role, &mut texts);
    turns
}

/// The texts so far are a turn.
fn close(turns: &mut Vec<Turn>, role: Role, texts: &mut Vec<String>) {
    let turn = Turn::new(role, &std::mem::take(texts));
    match turns.last_mut() {
        Some(last) if last.role == role => {
            last.text = turn.text;
            last.told = turn.told;
        }
        _ => turns.push(turn),
    }
}

/// The texts of a content, which is one or a list of blocks; other blocks than of text say nothing.
fn content(json: &Json, others: &[&str]) -> Vec<String> {
    if let Some(text) = json.text() {
        return vec![text.to_owned()];
    }
    let block = |block: &Json| {
        // A text as a list of one.
        if let Some(text) = block.text() {
            return Some(text.to_owned());
        }
        let kind = block.get("type").and_then(Json::text)?;
        let named = kind == "text" || others.contains(&kind);
        block.get(kind).filter(|_| named).and_then(Json::text).map(String::from)
    };
    json.list().unwrap_or_default().iter().filter_map(block).collect()
}
