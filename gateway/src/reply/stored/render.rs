//! From the stored form to the bytes of a reply.
//!
//! The body is written by what writes live replies. Invariant: nothing in a body differs between two hits of one
//! [`Shape`], so that it may be kept and sent again behind a head of its own.

use super::read::{Stored, unescaped};
use crate::{
    api::{Dialect, Places, StreamOptions},
    date::HttpDate,
    http::{Chunk, RequestId, StreamFraming, Version, write::whole},
    reply::{
        CacheNote, Connection, JSON, Progress, ReplyMeta, anthropic,
        choice::{Called, Choice, Words},
        openai,
    },
};

/// All of a request on which the body of a replayed reply depends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    dialect: Dialect,
    stream: Option<StreamOptions>,
    model: String,
    /// Calls are told in the words of old.
    functions: bool,
}

impl Shape {
    /// Of a request in this dialect, for a stream or (`None`) a document, that names the model so.
    #[must_use]
    pub fn new(dialect: Dialect, stream: Option<StreamOptions>, model: impl Into<String>) -> Self {
        // Anthropic's streams carry usage whatever is asked, so one body serves all.
        let stream = stream.map(|options| match dialect {
            Dialect::Anthropic => StreamOptions::default(),
            Dialect::OpenAi => options,
        });
        Self {
            dialect,
            stream,
            model: model.into(),
            functions: false,
        }
    }

    /// The same, for a request whose tools came as `functions` or (`false`) did not.
    #[must_use]
    pub fn with_functions(self, functions: bool) -> Self {
        Self { functions, ..self }
    }

    /// Whether the body is a stream of events.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.stream.is_some()
    }
}

/// Appends a whole reply: a head that tells what `note` says, and a body that [`Stored::body`] made. A stream has its
/// length told like a document, since it is known: it needs no chunks, and its connection goes on in HTTP/1.0 too.
///
/// Takes 133 ns with a document of 806 bytes, 266 ns with a stream of 8,335 (CPU time, the least of 100 rounds of
/// `cargo run --release -p zerohop --example stored`).
pub fn hit(
    connection: &Connection,
    date: &HttpDate,
    shape: &Shape,
    note: CacheNote,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Progress {
    let text = note.text();
    let fields = text.fields();
    if shape.is_stream() {
        let mut extra = [
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
            ("", ""),
            ("", ""),
        ];
        extra[2..2 + fields.len()].copy_from_slice(&fields);
        let head = connection.head(200, date, &extra[..2 + fields.len()]);
        whole(out, &head, "text/event-stream; charset=utf-8", body);
    } else {
        whole(out, &connection.head(200, date, &fields), JSON, body);
    }
    connection.after()
}

impl Stored<'_> {
    /// Appends the body of the reply to a request of this shape, without any framing of chunks.
    pub fn body(&self, shape: &Shape, out: &mut Vec<u8>) {
        let meta = self.meta(shape);
        match (shape.dialect, shape.stream) {
            (Dialect::Anthropic, None) => anthropic::document(&meta, &[self.choice()], self.usage, out),
            (Dialect::OpenAi, None) => openai::document(&meta, &[self.choice()], self.usage, out),
            (Dialect::Anthropic, Some(_)) => self.anthropic_stream(&meta, out),
            (Dialect::OpenAi, Some(options)) => self.openai_stream(&meta, options, out),
        }
    }

    /// What the writers of bodies ask of a reply. They never look at its connection.
    fn meta(&self, shape: &Shape) -> ReplyMeta {
        ReplyMeta {
            dialect: shape.dialect,
            id: self.id,
            model: shape.model.clone(),
            model_version: unescaped(self.version),
            created: self.created,
            stream: shape.stream,
            choices: 1,
            logprobs: false,
            places: Places {
                functions: shape.functions,
                ..Places::default()
            },
            connection: Connection {
                version: Version::Http11,
                keep_alive: true,
                head_only: false,
                request_id: RequestId::from_bits(0, 0),
            },
        }
    }

    /// The answer as a document's writer takes it.
    fn choice(&self) -> Choice {
        let calls = self.calls.iter().map(|call| Called {
            id: call.id,
            name: unescaped(call.name),
            arguments: unescaped(call.arguments.text),
        });
        let mut choice = Choice::default();
        choice.finish = Some(self.finish.clone());
        choice.text = self.text.text.into();
        choice.calls = calls.collect();
        choice
    }

    fn anthropic_stream(&self, meta: &ReplyMeta, out: &mut Vec<u8>) {
        let mut chunk = Chunk::open(out, StreamFraming::UntilClose);
        let mut choice = Choice::default();
        anthropic::start(meta, self.began, &mut chunk);
        for piece in self.text.pieces() {
            anthropic::text(Words::Escaped(piece), &mut choice, &mut chunk);
        }
        for call in &self.calls {
            anthropic::call(&unescaped(call.name), call.id, &mut choice, &mut chunk);
            for piece in call.arguments.pieces() {
                anthropic::arguments(Words::Escaped(piece), &choice, &mut chunk);
            }
        }
        anthropic::finish(&self.finish, self.usage, &choice, &mut chunk);
    }

    fn openai_stream(&self, meta: &ReplyMeta, options: StreamOptions, out: &mut Vec<u8>) {
        let mut chunk = Chunk::open(out, StreamFraming::UntilClose);
        let mut choice = Choice::default();
        let head = openai::chunk_head(meta);
        let stream = openai::Stream::new(&head, options, meta.places.functions, 0);
        stream.start(&mut chunk);
        for piece in self.text.pieces() {
            stream.text(Words::Escaped(piece), None, &mut chunk);
        }
        for call in &self.calls {
            choice.call(&unescaped(call.name), call.id);
            stream.call(&choice.calls, &mut chunk);
            for piece in call.arguments.pieces() {
                stream.arguments(Words::Escaped(piece), &choice.calls, &mut chunk);
            }
        }
        stream.finish(&self.finish, &mut chunk);
        stream.end(self.usage, &mut chunk);
    }
}
