//! The Completions API's shapes: the text completion and the chunks of its stream, for any number of prompts.
//!
//! Sends nothing and reads no clock. Invariants: answers are told by their index, prompt by prompt; offsets count
//! characters of an answer's own text, from 0; faults and the head of a stream are those of [`Reply`].

use zerohop_engine::{Event, Finish, Logprob, Usage};

use super::{
    CacheNote, Progress, Reply, ReplyMeta, State, logprobs,
    openai::{reason, write_usage},
};
use crate::{
    api::Dialect,
    date::HttpDate,
    error::ApiError,
    http::{Chunk, StreamFraming, write::stream_head},
    json::{self, Writer},
};

/// A reply in the making.
#[derive(Debug)]
pub struct CompletionReply {
    /// What is common to all replies; its answers are not used.
    base: Reply,
    answers: Vec<Answer>,
    /// Answers to each prompt.
    per_prompt: usize,
}

/// One answer.
#[derive(Debug, Default)]
struct Answer {
    begun: bool,
    finish: Option<Finish>,
    usage: Usage,
    /// Of a document: the escaped text so far.
    text: Vec<u8>,
    logprobs: Lists,
    /// Characters of the text that its tokens stand for so far.
    offset: u64,
}

/// Log probabilities, as four lists of equal length without their brackets.
#[derive(Debug, Default)]
struct Lists {
    tokens: Vec<u8>,
    token_logprobs: Vec<u8>,
    top_logprobs: Vec<u8>,
    text_offset: Vec<u8>,
}

impl CompletionReply {
    /// See [`Reply::tell`].
    pub fn tell(&mut self, note: CacheNote) {
        self.base.tell(note);
    }

    /// A reply to which nothing has happened; `meta.choices` are the answers to all prompts, `per_prompt` those to each.
    #[must_use]
    pub fn new(meta: ReplyMeta, per_prompt: u32) -> Self {
        Self {
            answers: (0..meta.choices).map(|_| Answer::default()).collect(),
            base: Reply::new(meta),
            per_prompt: per_prompt.max(1) as usize,
        }
    }

    /// As [`Reply::fail`].
    pub fn fail(&mut self, error: &ApiError, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        self.base.fail(error, date, out)
    }

    /// As [`Reply::is_streaming`].
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.base.is_streaming()
    }

    /// As [`Reply::keep_alive`].
    pub fn keep_alive(&self, out: &mut Vec<u8>) {
        self.base.keep_alive(out);
    }

    /// Bytes of the answers that are kept until they are told.
    #[must_use]
    pub fn held(&self) -> usize {
        let lists = |lists: &Lists| lists.parts().iter().map(|list| list.capacity()).sum::<usize>();
        let answers = self.answers.iter();
        answers
            .map(|answer| answer.text.capacity() + lists(&answer.logprobs))
            .sum()
    }

    /// Appends what this event adds to the reply, of the answer with this index.
    pub fn on(&mut self, index: usize, event: &Event, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let (begun, open) = self.answers.get(index).map_or((true, false), |answer| {
            (answer.begun, answer.begun && answer.finish.is_none())
        });
        let progress = match (event, &self.base.state) {
            (_, &State::Over(end)) => end,
            (Event::Started { .. }, _) if !begun => self.start(index, date, out),
            (Event::Echo { text, logprobs } | Event::Text { text, logprobs, .. }, _) if open => {
                self.text(index, text, logprobs, out)
            }
            (Event::Finished { finish, usage }, _) if open => self.finish(index, finish, *usage, date, out),
            (fault, _) => {
                let error = self.fault(fault);
                self.base.fail(&error, date, out)
            }
        };
        if progress != Progress::More {
            self.base.state = State::Over(progress);
        }
        progress
    }

    #[cold]
    fn fault(&self, event: &Event) -> ApiError {
        match event {
            // The vendor speaks of messages, which these are not.
            &Event::TooLong { input_tokens, limit } => ApiError::text_too_long(input_tokens, limit),
            event => self.base.fault(event),
        }
    }

    fn start(&mut self, index: usize, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        self.answers[index].begun = true;
        let base = &mut self.base;
        if base.meta.stream.is_none() {
            base.state = State::Gathering;
        } else if !base.is_streaming() {
            let framing = stream_head(out, &base.meta.connection.head(200, date, &base.note.text().fields()));
            base.chunk_head = head(&base.meta);
            base.state = State::Streaming(framing);
        }
        Progress::More
    }

    /// More text, of the prompt or of the answer to it.
    fn text(&mut self, index: usize, text: &str, tokens: &[Logprob], out: &mut Vec<u8>) -> Progress {
        let told = self.base.meta.logprobs;
        let answer = &mut self.answers[index];
        match self.base.state {
            State::Streaming(framing) => {
                let mut lists = Lists::default();
                if told {
                    lists.extend(tokens, &mut answer.offset);
                }
                let mut chunk = Chunk::open(out, framing);
                self.chunk(index, None, &lists, &mut chunk, |out| json::escaped(out, text));
            }
            _ => {
                json::escaped(&mut answer.text, text);
                if told {
                    answer.logprobs.extend(tokens, &mut answer.offset);
                }
            }
        }
        Progress::More
    }

    /// An answer is complete; the reply is when all are.
    fn finish(&mut self, index: usize, finish: &Finish, usage: Usage, date: &HttpDate, out: &mut Vec<u8>) -> Progress {
        let answer = &mut self.answers[index];
        (answer.finish, answer.usage) = (Some(finish.clone()), usage);
        let whole = self.answers.iter().all(|answer| answer.finish.is_some());
        match self.base.state {
            State::Streaming(framing) => self.stream_finish(index, finish, whole, framing, out),
            _ if whole => {
                let answers = std::mem::take(&mut self.answers);
                let usage = usage_of(&answers, self.per_prompt);
                let meta = &self.base.meta;
                let note = self.base.note.text();
                meta.connection.json_noted(200, date, &note.fields(), out, |out| {
                    document(meta, &answers, usage, out);
                })
            }
            _ => Progress::More,
        }
    }

    fn stream_finish(
        &self,
        index: usize,
        finish: &Finish,
        whole: bool,
        framing: StreamFraming,
        out: &mut Vec<u8>,
    ) -> Progress {
        let mut chunk = Chunk::open(out, framing);
        self.chunk(
            index,
            Some(reason(finish, false)),
            &Lists::default(),
            &mut chunk,
            |_| {},
        );
        if !whole {
            return Progress::More;
        }
        if self.base.options().include_usage {
            chunk.data_with(|out| {
                Writer(out).raw(&self.base.chunk_head).raw(r#"],"usage":"#);
                write_usage(usage_of(&self.answers, self.per_prompt), out);
                Writer(out).raw("}");
            });
        }
        chunk.data(b"[DONE]");
        chunk.close_last();
        match framing {
            StreamFraming::UntilClose => Progress::DoneClose,
            StreamFraming::Chunked | StreamFraming::NoBody => self.base.meta.connection.after(),
        }
    }

    /// A chunk of the answer with this index: `text` writes its text, escaped.
    fn chunk(
        &self,
        index: usize,
        finish: Option<&str>,
        lists: &Lists,
        chunk: &mut Chunk<'_>,
        text: impl FnOnce(&mut Vec<u8>),
    ) {
        chunk.data_with(|out| {
            let mut writer = Writer(out);
            writer
                .raw(&self.base.chunk_head)
                .raw(r#"{"index":"#)
                .number(index as u64);
            writer.raw(r#","text":""#).with(text).raw(r#"","logprobs":"#);
            lists.write(self.base.meta.logprobs && finish.is_none(), &mut writer);
            writer.raw(r#","finish_reason":"#).string_or_null(finish).raw("}]");
            // With usage asked for, all chunks but the last say that theirs is not it.
            writer.raw(if self.base.options().include_usage {
                r#","usage":null}"#
            } else {
                "}"
            });
        });
    }
}

/// From the first brace to the list of choices.
fn head(meta: &ReplyMeta) -> Vec<u8> {
    debug_assert_eq!(meta.dialect, Dialect::OpenAi);
    let mut out = Vec::with_capacity(256);
    let mut writer = Writer(&mut out);
    writer.raw(r#"{"id":"#);
    meta.write_id(&mut writer, "cmpl-");
    writer
        .raw(r#","object":"text_completion","created":"#)
        .number(meta.created);
    writer.raw(r#","model":"#).string(&meta.model);
    writer.raw(r#","system_fingerprint":"fp_"#);
    json::escaped(&mut out, &meta.model_version);
    Writer(&mut out).raw(r#"","choices":["#);
    out
}

fn document(meta: &ReplyMeta, answers: &[Answer], usage: Usage, out: &mut Vec<u8>) {
    out.extend_from_slice(&head(meta));
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let mut writer = Writer(out);
        writer.raw(r#"{"index":"#).number(index as u64);
        writer.raw(r#","text":""#).raw(&answer.text).raw(r#"","logprobs":"#);
        answer.logprobs.write(meta.logprobs, &mut writer);
        writer
            .raw(r#","finish_reason":"#)
            .string_or_null(answer.finish.as_ref().map(|finish| reason(finish, false)))
            .raw("}");
    }
    Writer(out).raw(r#"],"usage":"#);
    write_usage(usage, out);
    Writer(out).raw("}");
}

/// What all answers used: each prompt once, and as much of it from the cache as none of its answers had to compute.
fn usage_of(answers: &[Answer], per_prompt: usize) -> Usage {
    answers.chunks(per_prompt).fold(Usage::default(), |mut all, group| {
        let usages = || group.iter().map(|answer| answer.usage);
        all.input_tokens += usages().map(|usage| usage.input_tokens).max().unwrap_or(0);
        all.cached_tokens += usages().map(|usage| usage.cached_tokens).min().unwrap_or(0);
        all.output_tokens += usages().map(|usage| usage.output_tokens).sum::<u32>();
        all
    })
}

impl Lists {
    fn parts(&self) -> [&Vec<u8>; 4] {
        [
            &self.tokens,
            &self.token_logprobs,
            &self.top_logprobs,
            &self.text_offset,
        ]
    }

    /// Appends these tokens, the first of which begins at `offset`.
    fn extend(&mut self, tokens: &[Logprob], offset: &mut u64) {
        for token in tokens {
            let lists = [
                &mut self.tokens,
                &mut self.token_logprobs,
                &mut self.top_logprobs,
                &mut self.text_offset,
            ];
            for list in lists {
                if !list.is_empty() {
                    list.push(b',');
                }
            }
            Writer(&mut self.tokens).string(&spelling(&token.bytes));
            match token.logprob {
                Some(value) => {
                    logprobs::number(&mut self.token_logprobs, value);
                    top(token, value, &mut self.top_logprobs);
                }
                None => {
                    self.token_logprobs.extend_from_slice(b"null");
                    self.top_logprobs.extend_from_slice(b"null");
                }
            }
            Writer(&mut self.text_offset).number(*offset);
            // Each character has one byte that begins it.
            *offset += token.bytes.iter().filter(|&byte| byte & 0xC0 != 0x80).count() as u64;
        }
    }

    fn write(&self, told: bool, writer: &mut Writer<'_>) {
        if !told {
            writer.raw("null");
            return;
        }
        writer.raw(r#"{"tokens":["#).raw(&self.tokens);
        writer.raw(r#"],"token_logprobs":["#).raw(&self.token_logprobs);
        writer.raw(r#"],"top_logprobs":["#).raw(&self.top_logprobs);
        writer.raw(r#"],"text_offset":["#).raw(&self.text_offset).raw("]}");
    }
}

/// The most probable tokens with the one that came, each spelling once: of two tokens with one, the likelier is told.
fn top(token: &Logprob, value: f32, out: &mut Vec<u8>) {
    let mut told: Vec<String> = Vec::with_capacity(token.top.len() + 1);
    let own = [(token.token, token.bytes.clone(), value)];
    let has_own = token.top.iter().any(|(id, ..)| *id == token.token);
    out.push(b'{');
    for (_, bytes, value) in token.top.iter().chain(own.iter().filter(|_| !has_own)) {
        let spelled = spelling(bytes);
        if told.contains(&spelled) {
            continue;
        }
        if !told.is_empty() {
            out.push(b',');
        }
        Writer(out).string(&spelled).raw(":");
        logprobs::number(out, *value);
        told.push(spelled);
    }
    out.push(b'}');
}

/// A token as text; of one that is no whole characters its bytes, in hexadecimal digits.
fn spelling(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |mut out, byte| {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
            out
        }),
    }
}

#[cfg(test)]
#[path = "completions_tests.rs"]
mod tests;
