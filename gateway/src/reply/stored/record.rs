//! From the events of one answer to its stored form.
//!
//! It is fed beside the live reply and never changes it. Invariant: the form is given only of an answer that ended well,
//! all of whose events came in an order that the reply takes.

use zerohop_engine::{Event, Finish, Usage};

use super::{MAX_BYTES, MAX_PIECES, finish_word};
use crate::{
    json::{self, Writer},
    put,
    reply::{Reply, ReplyMeta, State},
};

/// Bytes of the form beside its texts and calls, generously.
const FRAME: usize = 512;

/// A text that grows piece by piece.
#[derive(Debug, Default)]
struct Pieces {
    text: Vec<u8>,
    /// The lengths of the pieces, as the form has them.
    cuts: Vec<u8>,
}

impl Pieces {
    /// Returns by how many bytes the form grows.
    fn push(&mut self, piece: &str) -> usize {
        let (before, all) = (self.text.len(), self.len());
        json::escaped(&mut self.text, piece);
        if !self.cuts.is_empty() {
            self.cuts.push(b',');
        }
        put::decimal(&mut self.cuts, (self.text.len() - before) as u64);
        self.len() - all
    }

    fn held(&self) -> usize {
        self.text.capacity() + self.cuts.capacity()
    }

    fn len(&self) -> usize {
        self.text.len() + self.cuts.len()
    }
}

#[derive(Debug)]
struct Call {
    id: (u64, u64),
    name: String,
    arguments: Pieces,
}

/// Writes down one answer.
#[derive(Debug)]
pub struct Recorder {
    id: (u64, u64),
    created: u64,
    version: String,
    began: Option<(u32, u32)>,
    text: Pieces,
    calls: Vec<Call>,
    pieces: usize,
    /// About how many bytes of the form there are.
    bytes: usize,
    /// The answer is over, or cannot be kept.
    over: bool,
}

impl Recorder {
    /// For the answer that this reply will tell. `None` where the form has no place for it: several answers, log
    /// probabilities, vectors; text completions have another reply and are not recorded; nor is a reply that has begun.
    #[must_use]
    pub fn of(reply: &Reply) -> Option<Self> {
        let ReplyMeta {
            id,
            created,
            ref model_version,
            choices: 1,
            logprobs: false,
            ..
        } = reply.meta
        else {
            return None;
        };
        if reply.vectors.is_some() || !matches!(reply.state, State::Waiting) {
            return None;
        }
        Some(Self {
            id,
            created,
            version: model_version.clone(),
            began: None,
            text: Pieces::default(),
            calls: Vec::new(),
            pieces: 0,
            bytes: FRAME,
            over: false,
        })
    }

    /// Writes down an event that `reply` was given just before; the stored form when that completes the answer. An answer
    /// that failed, or is too long ([`MAX_BYTES`], [`MAX_PIECES`]), has none.
    pub fn on(&mut self, event: &Event, reply: &Reply) -> Option<Vec<u8>> {
        if self.over {
            return None;
        }
        let taken = match event {
            &Event::Started {
                input_tokens,
                cached_tokens,
                ..
            } => self.began.replace((input_tokens, cached_tokens)).is_none(),
            Event::Finished { finish, usage } => {
                let form = self.began.map(|began| self.form(began, finish, *usage));
                self.give_up();
                return form.filter(|form| form.len() <= MAX_BYTES);
            }
            _ if self.began.is_none() => false,
            Event::Text { text, .. } if self.calls.is_empty() => self.piece(text),
            Event::Arguments { text, .. } if !self.calls.is_empty() => self.piece(text),
            Event::Call { name } => match reply.last_call() {
                Some(id) => {
                    self.calls.push(Call {
                        id,
                        name: name.clone(),
                        arguments: Pieces::default(),
                    });
                    self.counted(name.len() + size_of::<Call>())
                }
                None => false,
            },
            _ => false,
        };
        if !taken {
            self.give_up();
        }
        None
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn held(&self) -> usize {
        let calls = self
            .calls
            .iter()
            .map(|call| call.name.capacity() + call.arguments.held());
        self.version.capacity() + self.text.held() + self.calls.capacity() * size_of::<Call>() + calls.sum::<usize>()
    }

    fn piece(&mut self, text: &str) -> bool {
        let grown = match self.calls.last_mut() {
            Some(call) => call.arguments.push(text),
            None => self.text.push(text),
        };
        self.counted(grown)
    }

    /// Counts a piece of so many bytes; whether what there is may still be kept.
    fn counted(&mut self, bytes: usize) -> bool {
        self.pieces += 1;
        self.bytes += bytes;
        self.pieces <= MAX_PIECES && self.bytes <= MAX_BYTES
    }

    /// Keeps nothing more.
    fn give_up(&mut self) {
        self.over = true;
        (self.text, self.calls) = (Pieces::default(), Vec::new());
    }

    fn form(&self, began: (u32, u32), finish: &Finish, usage: Usage) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME + self.text.len());
        let mut writer = Writer(&mut out);
        writer.raw(r#"{"v":1,"id":""#).with(|out| hex(out, self.id));
        writer.raw(r#"","created":"#).number(self.created);
        writer.raw(r#","version":"#).string(&self.version);
        writer.raw(r#","input_tokens":"#).number(usage.input_tokens);
        writer.raw(r#","cached_tokens":"#).number(usage.cached_tokens);
        writer.raw(r#","output_tokens":"#).number(usage.output_tokens);
        writer.raw(r#","began":["#).number(began.0).raw(",").number(began.1);
        writer.raw(r#"],"finish":"#).string(finish_word(finish));
        let (sequence, token) = match finish {
            Finish::Stop(text) => (Some(text.as_str()), None),
            Finish::StopToken(token) => (None, Some(*token)),
            _ => (None, None),
        };
        writer.raw(r#","stop_sequence":"#).string_or_null(sequence);
        writer.raw(r#","stop_token":"#);
        match token {
            Some(token) => writer.number(token),
            None => writer.raw("null"),
        };
        writer.raw(r#","text_bytes":"#).number(self.text.text.len() as u64);
        writer.raw(r#","text_cuts":["#).raw(&self.text.cuts);
        writer.raw(r#"],"text":""#).raw(&self.text.text).raw(r#"","calls":["#);
        for (index, call) in self.calls.iter().enumerate() {
            writer.raw(if index == 0 { r#"{"id":""# } else { r#",{"id":""# });
            writer
                .with(|out| hex(out, call.id))
                .raw(r#"","name":"#)
                .string(&call.name);
            writer.raw(r#","bytes":"#).number(call.arguments.text.len() as u64);
            writer.raw(r#","cuts":["#).raw(&call.arguments.cuts);
            writer.raw(r#"],"arguments":""#).raw(&call.arguments.text).raw("\"}");
        }
        writer.raw("]}");
        out
    }
}

/// Appends 128 bits as 32 hexadecimal digits.
fn hex(out: &mut Vec<u8>, (high, low): (u64, u64)) {
    for half in [high, low] {
        out.extend((0..16).rev().map(|digit| put::HEX[(half >> (digit * 4)) as usize & 15]));
    }
}
