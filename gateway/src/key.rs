//! The key of an answer: everything that could change it, hashed under a secret of the caller's name space.
//!
//! It is computed over the internal request, that is over what goes to the model, so the two dialects and the streamed and
//! the plain form of one request have one identity. Nothing here looks an answer up or decides whether one may be kept.
//! Invariants: requests that could be answered differently have different keys, whatever they have in common; each field is
//! written behind its length or in a fixed number of bytes, so no two requests are written alike; a new field of a request
//! does not compile until it is decided on here.

mod canonical;
mod compact;
mod epoch;
mod space;

pub use self::{
    canonical::canonical_json,
    epoch::{Epoch, EpochParts, FilesDigest, FilesError, files_digest},
    space::{Namespace, Scope, Secret, SecretError, Spaces},
};

use zerohop_cache::{Context, PromptHash};
use zerohop_engine::{Conversation, Form, Message, Role, Tool, ToolCall, ToolChoice, Tools};

use crate::api::{ChatRequest, Extras, Ignored, Scratch, StreamOptions};

/// The layout of what is hashed; another layout gets another number, so that its keys are found under neither.
const LAYOUT: u8 = 2;
/// Messages that the context covers.
const CONTEXT_MESSAGES: usize = 3;
/// Capacity in bytes that a [`KeyMaker`] keeps for the next request.
const KEEP: usize = 1 << 20;

/// What the answer of a request is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keyed {
    /// Identity, compared in full.
    pub prompt: PromptHash,
    /// How the conversation begins; never identity.
    pub context: Context,
    /// First eight bytes of the name space, to select by.
    pub tenant: u64,
}

/// For whom, and by which model.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// Whose answers the caller may see.
    pub space: &'a Namespace,
    /// The id of the model that answers, never an alias.
    pub model: &'a str,
    /// What that model is made of.
    pub epoch: &'a Epoch,
}

/// What of a body its readers did not know, if there was any: it stays part of the identity.
pub struct Sent<'a> {
    /// As the reader of the body returned it.
    pub ignored: &'a Ignored,
    /// The body itself.
    pub body: &'a [u8],
    /// To read it again, where something was ignored.
    pub scratch: &'a mut Scratch,
}

/// Makes keys, with buffers that are kept from request to request: one for each worker.
#[derive(Debug, Default)]
pub struct KeyMaker {
    buffer: Vec<u8>,
    unknown: Vec<u8>,
}

impl KeyMaker {
    /// The key of this request. `None`: the body has something that nobody knows and that cannot be written in its
    /// canonical form, so no answer may be kept.
    #[must_use]
    pub fn chat(&mut self, whose: &Whose<'_>, request: &ChatRequest, sent: Sent<'_>) -> Option<Keyed> {
        let Sent { ignored, body, scratch } = sent;
        self.unknown.clear();
        if ignored.count > 0 && !canonical_json(body, scratch, &mut self.unknown) {
            return None;
        }
        let messages = &request.conversation.messages;
        let (first, rest) = messages.split_at(messages.len().min(CONTEXT_MESSAGES));
        let out = &mut self.buffer;
        out.clear();
        first.iter().for_each(|message| put_message(out, message));
        // The whole digest stands for these messages below; half of it is the context.
        let first_digest = *blake3::hash(out).as_bytes();
        out.clear();
        out.push(LAYOUT);
        out.extend_from_slice(whose.epoch.bytes());
        out.extend_from_slice(&first_digest);
        put_request(out, request, first.len(), rest);
        put_text(out, whose.model);
        put_bytes(out, &self.unknown);
        let prompt = blake3::keyed_hash(whose.space.bytes(), out);
        self.trim();
        Some(Keyed {
            prompt: PromptHash(*prompt.as_bytes()),
            context: Context(std::array::from_fn(|at| first_digest[at])),
            tenant: whose.space.word(),
        })
    }

    /// Gives back what one unusually large request needed.
    fn trim(&mut self) {
        for buffer in [&mut self.buffer, &mut self.unknown] {
            if buffer.capacity() > KEEP {
                *buffer = Vec::new();
            }
        }
    }
}

/// The context of a conversation that begins with these messages, of which the first three count.
#[must_use]
pub fn context(messages: &[Message]) -> Context {
    let mut out = Vec::new();
    let first = messages.iter().take(CONTEXT_MESSAGES);
    first.for_each(|message| put_message(&mut out, message));
    let digest = blake3::hash(&out);
    Context(std::array::from_fn(|at| digest.as_bytes()[at]))
}

/// Everything but the first messages, which `first` counts and a digest stands for.
fn put_request(out: &mut Vec<u8>, request: &ChatRequest, first: usize, rest: &[Message]) {
    let ChatRequest {
        // The form of the reply, not its content: a stored answer is told in either dialect.
        dialect: _,
        // What the client calls the model; the model's own id is hashed.
        model: _,
        conversation:
            Conversation {
                messages: _,
                tools,
                template_arguments,
            },
        temperature,
        top_p,
        top_k,
        seed,
        max_tokens,
        stop,
        // One identity for both modes: a stored answer is replayed as either.
        stream: None | Some(StreamOptions { include_usage: _ }),
        extras,
    } = request;
    // The defaults are those of the engine's job, see the worker.
    put_float(out, temperature.unwrap_or(1.0));
    put_float(out, top_p.unwrap_or(1.0));
    put_option(out, *top_k);
    match seed {
        None => out.push(0),
        Some(seed) => {
            out.push(1);
            out.extend_from_slice(&seed.to_le_bytes());
        }
    }
    put_option(out, *max_tokens);
    put_count(out, stop.len());
    stop.iter().for_each(|stop| put_text(out, stop));
    match extras {
        Some(extras) => put_extras(out, extras),
        None => put_extras(out, &Extras::default()),
    }
    put_tools(out, tools);
    // Templates see it read, like the schemas of tools.
    match template_arguments.as_str() {
        "" => out.push(0),
        arguments => {
            out.push(1);
            put_with(out, |out| compact::json(out, arguments));
        }
    }
    put_count(out, first);
    put_count(out, rest.len());
    rest.iter().for_each(|message| put_message(out, message));
}

fn put_extras(out: &mut Vec<u8>, extras: &Extras) {
    let Extras {
        choices,
        min_p,
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        logit_bias,
        min_tokens,
        stop_tokens,
        ignore_eos,
        logprobs,
        form,
        // Words of a fault.
        places: _,
    } = extras;
    put_number(out, *choices);
    for value in [*min_p, *repetition_penalty, *frequency_penalty, *presence_penalty] {
        put_float(out, value);
    }
    put_count(out, logit_bias.len());
    for (token, bias) in logit_bias {
        put_number(out, *token);
        put_float(out, *bias);
    }
    put_number(out, *min_tokens);
    put_count(out, stop_tokens.len());
    stop_tokens.iter().for_each(|token| put_number(out, *token));
    out.push(u8::from(*ignore_eos));
    put_option(out, *logprobs);
    match form {
        Form::Free => out.push(0),
        Form::Object => out.push(1),
        Form::Schema(schema) => {
            out.push(2);
            put_with(out, |out| compact::json(out, schema));
        }
        Form::Regex(pattern) => {
            out.push(3);
            put_text(out, pattern);
        }
        Form::Choice(texts) => {
            out.push(4);
            put_count(out, texts.len());
            texts.iter().for_each(|text| put_text(out, text));
        }
        Form::Grammar(grammar) => {
            out.push(5);
            put_text(out, grammar);
        }
    }
}

fn put_tools(out: &mut Vec<u8>, tools: &Tools) {
    let Tools { list, choice, parallel } = tools;
    put_count(out, list.len());
    for tool in list {
        let Tool {
            name,
            description,
            parameters,
            strict,
        } = tool;
        put_text(out, name);
        put_text(out, description);
        // The model sees the schema read and written again: spacing and spelling do not reach it, the order of keys does.
        put_with(out, |out| compact::json(out, parameters));
        out.push(u8::from(*strict));
    }
    match choice {
        ToolChoice::Auto => out.push(0),
        ToolChoice::None => out.push(1),
        ToolChoice::Required => out.push(2),
        ToolChoice::Named(name) => {
            out.push(3);
            put_text(out, name);
        }
    }
    out.push(u8::from(*parallel));
}

fn put_message(out: &mut Vec<u8>, message: &Message) {
    let Message {
        role,
        content,
        calls,
        call_id,
    } = message;
    out.push(match role {
        Role::System => 0,
        Role::User => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
    });
    put_text(out, content);
    put_count(out, calls.len());
    for call in calls {
        let ToolCall { id, name, arguments } = call;
        put_text(out, id);
        put_text(out, name);
        // What is no JSON reaches the model as it stands.
        let is_json = compact::is_json(arguments);
        out.push(u8::from(is_json));
        match is_json {
            true => put_with(out, |out| compact::json(out, arguments)),
            false => put_text(out, arguments),
        }
    }
    match call_id {
        None => out.push(0),
        Some(id) => {
            out.push(1);
            put_text(out, id);
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// What `write` appends, behind its length.
fn put_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    put_count(out, 0);
    let start = out.len();
    write(out);
    let len = (out.len() - start) as u64;
    out[at..start].copy_from_slice(&len.to_le_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u64).to_le_bytes());
}

fn put_number(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_option(out: &mut Vec<u8>, number: Option<u32>) {
    out.push(u8::from(number.is_some()));
    put_number(out, number.unwrap_or(0));
}

/// The bits of a finite number; the two zeros are one.
fn put_float(out: &mut Vec<u8>, value: f32) {
    out.extend_from_slice(&(value + 0.0).to_bits().to_le_bytes());
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
