//! Body bytes to a flat list of JSON values, with buffers that are kept from request to request.
//!
//! SIMD finds the structure and validates the UTF-8 in the same pass; strings are unescaped into [`Scratch`]'s own copy,
//! so the body itself stays as it came and a fault can be found in it again (see [`super::locate`]). Nothing here knows
//! a field. Invariant: a [`Value`] is only ever seen of a body that is valid JSON as a whole, at most [`MAX_DEPTH`] deep.

use simd_json::{Buffers, ErrorType, INPUT_PADDING, Node, StaticNode, Tape};

use zerohop_simd::Level;

use super::{cursor::Cursor, fault::Fault, locate};

/// Levels of arrays and objects within each other. Real requests have about ten (a tool's schema).
pub(crate) const MAX_DEPTH: usize = 128;

/// Bytes outside strings that a body may have, so that its tape stays below 96 MiB. 100,000 messages of one block
/// each have 3 million.
const MAX_STRUCTURE: usize = 4 << 20;

/// Capacity, in bytes of input and in values, that a [`Scratch`] keeps.
const KEEP_BYTES: usize = 1 << 20;
const KEEP_VALUES: usize = 1 << 16;

/// What parsing needs and can reuse: one for each worker.
pub struct Scratch {
    buffers: Buffers,
    padded: Vec<u8>,
    tape: Tape<'static>,
    level: Level,
    unescaped: String,
}

impl Default for Scratch {
    fn default() -> Self {
        Self::at(Level::best())
    }
}

impl Scratch {
    /// For the direct pass with these instructions.
    pub(crate) fn at(level: Level) -> Self {
        Self {
            buffers: Buffers::with_max_depth(0, MAX_DEPTH),
            padded: Vec::new(),
            tape: Tape(Vec::new()),
            level,
            unescaped: String::new(),
        }
    }

    /// Reads `body` as text, in one pass and without a tape. `None`: [`Self::with`] has to say what it is.
    pub(crate) fn directly<T>(
        &mut self,
        body: &[u8],
        read: impl FnOnce(&mut Cursor<'_, '_>) -> Option<T>,
    ) -> Option<T> {
        if has_too_many_values(body) {
            return None;
        }
        let mut cursor = Cursor::new(body, self.level, &mut self.unescaped)?;
        let result = read(&mut cursor);
        if self.unescaped.capacity() > KEEP_BYTES {
            self.unescaped = String::new();
        }
        result
    }

    /// Parses `body` and hands its root and its text to `read`; the values end with the call.
    pub(crate) fn with<T>(
        &mut self,
        body: &[u8],
        read: impl for<'a> FnOnce(Value<'a>, &'a [u8]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if has_too_many_values(body) {
            return Err(Fault::at_root("has too many values"));
        }
        self.padded.clear();
        self.padded.reserve(body.len() + INPUT_PADDING);
        self.padded.extend_from_slice(body);
        self.padded.resize(body.len() + INPUT_PADDING, 0);

        let mut tape: Tape<'_> = std::mem::replace(&mut self.tape, Tape(Vec::new()));
        let parsed = simd_json::fill_tape_padded(&mut self.padded, body.len(), &mut self.buffers, &mut tape);
        let result = match parsed {
            Ok(()) => read(Value(&tape.0), body),
            Err(error) => Err(locate::explain(
                body,
                error.index(),
                *error.error() == ErrorType::DepthLimitExceeded,
            )),
        };
        self.tape = tape.reset();
        self.trim();
        result
    }

    /// Gives back what one unusually large body needed.
    fn trim(&mut self) {
        if self.padded.capacity() > KEEP_BYTES || self.tape.0.capacity() > KEEP_VALUES {
            *self = Self::at(self.level);
        }
    }
}

/// Whether the tape of this body could be larger than is allowed.
fn has_too_many_values(body: &[u8]) -> bool {
    body.len() > MAX_STRUCTURE && structure(body) > MAX_STRUCTURE
}

/// How many bytes lie outside strings and are not white space: an upper bound of the places that the parser indexes.
fn structure(body: &[u8]) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some(&byte) = body.get(at) {
        count += usize::from(!byte.is_ascii_whitespace());
        at += 1;
        if byte == b'"' {
            at = string_end(body, at);
        }
    }
    count
}

/// The place behind the quote that ends the string whose first byte is at `at`; the body's end if none does.
pub(super) fn string_end(body: &[u8], mut at: usize) -> usize {
    while let Some(found) = body.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if body[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    body.len()
}

/// A value: its node and, after it, the nodes of what it holds.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a>(&'a [Node<'a>]);

/// What a [`Value`] is.
#[derive(Clone, Copy)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    /// An integer that fits 64 bits, with or without sign.
    Int(i128),
    /// Any other finite number.
    Float(f64),
    Str(&'a str),
    Array(Items<'a>),
    Object(Entries<'a>),
}

impl<'a> Value<'a> {
    /// The value that these nodes begin with.
    pub(crate) fn new(nodes: &'a [Node<'a>]) -> Self {
        Self(nodes)
    }

    /// It and what it holds.
    pub(super) fn nodes(self) -> &'a [Node<'a>] {
        self.0
    }

    pub(crate) fn json(self) -> Json<'a> {
        match self.0.first() {
            Some(&Node::String(text)) => Json::Str(text),
            Some(&Node::Object { count, .. }) => Json::Object(Entries(inside(self.0, count))),
            Some(&Node::Array { len, count }) => Json::Array(Items {
                nodes: inside(self.0, count),
                left: len,
            }),
            Some(&Node::Static(StaticNode::Bool(value))) => Json::Bool(value),
            Some(&Node::Static(StaticNode::U64(value))) => Json::Int(value.into()),
            Some(&Node::Static(StaticNode::I64(value))) => Json::Int(value.into()),
            Some(&Node::Static(StaticNode::F64(value))) => Json::Float(value),
            Some(&Node::Static(StaticNode::Null)) | None => Json::Null,
        }
    }
}

fn inside<'a>(nodes: &'a [Node<'a>], count: usize) -> &'a [Node<'a>] {
    nodes.get(1..=count).unwrap_or_default()
}

/// Takes the first value off `nodes`.
fn take<'a>(nodes: &mut &'a [Node<'a>]) -> Option<Value<'a>> {
    let count = match nodes.first()? {
        Node::Object { count, .. } | Node::Array { count, .. } => *count,
        Node::String(_) | Node::Static(_) => 0,
    };
    let (value, rest) = nodes.split_at_checked(1 + count)?;
    *nodes = rest;
    Some(Value(value))
}

/// The values of an array, in order.
#[derive(Clone, Copy)]
pub(crate) struct Items<'a> {
    nodes: &'a [Node<'a>],
    left: usize,
}

impl Items<'_> {
    /// How many are still to come.
    pub(crate) fn len(&self) -> usize {
        self.left
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let value = take(&mut self.nodes)?;
        self.left -= 1;
        Some(value)
    }
}

/// The entries of an object, in order, duplicates included.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a>(&'a [Node<'a>]);

impl<'a> Entries<'a> {
    /// Those that are still to come.
    pub(super) fn nodes(self) -> &'a [Node<'a>] {
        self.0
    }
}

impl Entries<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<(&'a str, Value<'a>)> {
        let Some(Value([Node::String(key), ..])) = take(&mut self.0) else {
            return None;
        };
        Some((key, take(&mut self.0)?))
    }
}

#[cfg(test)]
#[path = "tape_tests.rs"]
mod tests;
