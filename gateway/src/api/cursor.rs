//! A body read as text, from its first byte to its last, straight into what a request needs.
//!
//! Nothing here explains a fault, and nothing here decides that there is one: `None` means that the body is broken, or
//! so unusual that it is left to the parser of [`super::tape`], which reads it from the start. Invariant: what is read
//! without doubt is read as the tape has it; every byte that the cursor has passed was checked, skipped values as well.

use simd_json::{Node, StaticNode};
use zerohop_engine::Role;
use zerohop_simd::{Finder, Level};

use super::{
    fault::Path,
    fields::{Field, MAX_STOPS},
    number::{self, Scalar},
    tape::{Json, MAX_DEPTH, Value},
};

mod skip;

/// Most values in a field that is read as a whole, as the options of a request are.
const MAX_NODES: usize = 24;

/// For objects whose keys nobody can guess: no text, so that it stands nowhere.
pub(crate) const NO_GUESS: &str = "\0:";

/// A place in a body that is text.
pub(crate) struct Cursor<'a, 's> {
    text: &'a str,
    at: usize,
    /// Objects and arrays that the place is in.
    depth: u32,
    level: Level,
    finder: Finder<'a>,
    /// What the last string with escapes says.
    unescaped: &'s mut String,
}

/// An object that is being read.
#[derive(Default)]
pub(crate) struct Entries<'a> {
    begun: bool,
    left: bool,
    /// A key that was read and is to be given again.
    again: Option<&'a str>,
    /// The tag was looked up ahead and is still to come.
    tag_to_come: bool,
}

impl Entries<'_> {
    /// The object was read to its end, so that no doubt ended the keys.
    #[inline]
    pub(crate) fn end(&self) -> Option<()> {
        self.left.then_some(())
    }
}

/// An array that is being read.
#[derive(Default)]
pub(crate) struct Items {
    begun: bool,
    left: bool,
}

impl Items {
    /// The array was read to its end, so that no doubt ended the items.
    #[inline]
    pub(crate) fn end(&self) -> Option<()> {
        self.left.then_some(())
    }
}

impl<'a, 's> Cursor<'a, 's> {
    /// At the start of `body`; `None` if it is not UTF-8.
    pub(crate) fn new(body: &'a [u8], level: Level, unescaped: &'s mut String) -> Option<Self> {
        Some(Self {
            text: simdutf8::basic::from_utf8(body).ok()?,
            at: 0,
            depth: 0,
            level,
            finder: Finder::new(level, body),
            unescaped,
        })
    }

    /// The next byte that is not white space.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        match self.text.as_bytes().get(self.at) {
            Some(&byte) if byte > b' ' => Some(byte),
            _ => self.peek_far(),
        }
    }

    #[inline(never)]
    fn peek_far(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        // One space behind a colon or comma is how many encoders write.
        if let Some(&byte) = bytes.get(self.at + 1)
            && byte > b' '
            && bytes[self.at] == b' '
        {
            self.at += 1;
            return Some(byte);
        }
        self.at = self.level.space(bytes, self.at);
        bytes.get(self.at).copied()
    }

    /// Passes this byte, which is not white space, and what white space is before it.
    #[inline(always)]
    fn pass(&mut self, byte: u8) -> Option<()> {
        if self.text.as_bytes().get(self.at) != Some(&byte) {
            (self.peek_far()? == byte).then_some(())?;
        }
        self.at += 1;
        Some(())
    }

    /// Nothing follows.
    pub(crate) fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    #[inline(always)]
    fn open(&mut self, bracket: u8) -> Option<()> {
        self.pass(bracket)?;
        self.depth += 1;
        (self.depth <= MAX_DEPTH as u32).then_some(())
    }

    #[inline(always)]
    fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// Enters an object.
    #[inline(always)]
    pub(crate) fn object(&mut self) -> Option<Entries<'a>> {
        self.open(b'{')?;
        Some(Entries::default())
    }

    /// The object's next key, with the place at its value, which must be read or skipped before the next call. `None`: the
    /// object was left, which [`Entries::end`] tells from a doubt. `guess` is a key that is likely, with quotes and colon.
    #[inline(always)]
    pub(crate) fn key(&mut self, entries: &mut Entries<'a>, guess: &'static str) -> Option<&'a str> {
        if let Some(key) = entries.again.take() {
            return Some(key);
        }
        match self.text.as_bytes().get(self.at..)? {
            [b',', b'"', ..] if entries.begun => self.at += 1,
            [b'"', ..] if !entries.begun => {}
            [b'}', ..] => return self.leave(entries),
            _ => self.key_far(entries)?,
        }
        entries.begun = true;
        if self.literally(guess) {
            return Some(bare(guess));
        }
        let key = self.word()?;
        self.pass(b':')?;
        Some(key)
    }

    /// Goes to a key's quote in any other case than that it is the next byte, or leaves the object.
    #[inline(never)]
    fn key_far(&mut self, entries: &mut Entries<'a>) -> Option<()> {
        match self.peek()? {
            b',' if entries.begun => {
                self.at += 1;
                (self.peek()? == b'"').then_some(())
            }
            b'"' if !entries.begun => Some(()),
            b'}' => self.leave(entries),
            _ => None,
        }
    }

    #[inline(always)]
    fn leave<T>(&mut self, entries: &mut Entries<'a>) -> Option<T> {
        self.close();
        entries.left = true;
        None
    }

    /// Enters a message that begins as most do, with a usual role and then its content, which is the next value.
    #[inline(always)]
    pub(crate) fn usual_turn(&mut self) -> Option<(Entries<'a>, Role)> {
        const HEADS: [(&str, Role); 6] = [
            (r#"{"role":"user","content":"#, Role::User),
            (r#"{"role":"assistant","content":"#, Role::Assistant),
            (r#"{"role":"system","content":"#, Role::System),
            (r#"{"role": "user", "content": "#, Role::User),
            (r#"{"role": "assistant", "content": "#, Role::Assistant),
            (r#"{"role": "system", "content": "#, Role::System),
        ];
        let (_, role) = HEADS.into_iter().find(|(head, _)| self.literally(head))?;
        self.depth += 1;
        (self.depth <= MAX_DEPTH as u32).then_some(())?;
        let entries = Entries {
            begun: true,
            ..Entries::default()
        };
        Some((entries, role))
    }

    /// Passes this text if it stands here byte for byte.
    #[inline(always)]
    fn literally(&mut self, text: &str) -> bool {
        let same = self
            .text
            .as_bytes()
            .get(self.at..)
            .is_some_and(|here| here.starts_with(text.as_bytes()));
        if same {
            self.at += text.len();
        }
        same
    }

    /// The string at `key` (with quotes and colon) in the object that was just entered, wherever in it that stands. When
    /// the key comes by afterwards, [`Self::tag_again`] passes it.
    #[inline(always)]
    pub(crate) fn tag(&mut self, entries: &mut Entries<'a>, key: &'static str) -> Option<&'a str> {
        let first = self.key(entries, key)?;
        if first == bare(key) {
            return self.word();
        }
        self.tag_ahead(entries, first, bare(key))
    }

    #[inline(never)]
    fn tag_ahead(&mut self, entries: &mut Entries<'a>, first: &'a str, name: &str) -> Option<&'a str> {
        let (at, depth) = (self.at, self.depth);
        let mut ahead = Entries {
            begun: true,
            ..Entries::default()
        };
        self.skip()?;
        while self.key(&mut ahead, NO_GUESS)? != name {
            self.skip()?;
        }
        let tag = self.word()?;
        (self.at, self.depth) = (at, depth);
        entries.again = Some(first);
        entries.tag_to_come = true;
        Some(tag)
    }

    /// Passes the tag that [`Self::tag`] has told already; `None` if it is another one.
    pub(crate) fn tag_again(&mut self, entries: &mut Entries<'a>) -> Option<()> {
        std::mem::take(&mut entries.tag_to_come).then_some(())?;
        self.skip()
    }

    /// Enters an array.
    #[inline(always)]
    pub(crate) fn array(&mut self) -> Option<Items> {
        self.open(b'[')?;
        Some(Items::default())
    }

    /// Goes to the array's next item, which must be read or skipped before the next call. `false`: the array was left,
    /// which [`Items::end`] tells from a doubt.
    #[inline(always)]
    pub(crate) fn item(&mut self, items: &mut Items) -> bool {
        match self.peek() {
            Some(b',') if items.begun => {
                self.at += 1;
                // What is no value is met when it is read.
                true
            }
            Some(b']') => {
                self.close();
                items.left = true;
                false
            }
            Some(_) if !items.begun => {
                items.begun = true;
                true
            }
            _ => false,
        }
    }

    /// A string without escapes.
    #[inline(always)]
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        self.pass(b'"')?;
        let start = self.at;
        let end = self.finder.find(start);
        (self.text.as_bytes().get(end) == Some(&b'"')).then(|| self.at = end + 1)?;
        self.text.get(start..end)
    }

    /// A string without NUL.
    #[inline]
    pub(crate) fn string(&mut self) -> Option<&str> {
        self.pass(b'"')?;
        let start = self.at;
        let end = self.finder.find(start);
        match self.text.as_bytes().get(end)? {
            b'"' => {
                self.at = end + 1;
                self.text.get(start..end)
            }
            b'\\' => self.unescaped(start, end),
            _ => None,
        }
    }

    /// The string that begins at `start` and has its first escape at `end`.
    fn unescaped(&mut self, start: usize, end: usize) -> Option<&str> {
        self.unescaped.clear();
        self.unescaped.push_str(self.text.get(start..end)?);
        let taken = self.level.unescape(self.text.get(end..)?, self.unescaped).ok()?;
        self.at = end + taken;
        Some(self.unescaped)
    }

    /// A list of stop texts.
    pub(crate) fn stops(&mut self, path: &Path<'_>) -> Option<Vec<String>> {
        let mut items = self.array()?;
        let mut stops = Vec::new();
        while self.item(&mut items) {
            (stops.len() < MAX_STOPS).then_some(())?;
            let json = Json::Str(self.string()?);
            stops.push(Field { json, path }.stop().ok()?);
        }
        items.end()?;
        Some(stops)
    }

    /// A value with at most [`MAX_NODES`] others in it, handed to `read` as the field at `path`, unless it is `null`.
    #[inline(always)]
    pub(crate) fn field(&mut self, path: &Path<'_>, read: impl FnOnce(Field<'_, '_>) -> Option<()>) -> Option<()> {
        match self.peek()? {
            b'"' => {
                let json = Json::Str(self.string()?);
                read(Field { json, path })
            }
            b'{' | b'[' => {
                let mut nodes = Nodes::new();
                self.nodes(&mut nodes)?;
                read(Field::new(Value::new(nodes.nodes.get(..nodes.len)?), path))
            }
            _ => match self.scalar()? {
                Scalar::Null => Some(()),
                scalar => read(Field {
                    json: scalar.json(),
                    path,
                }),
            },
        }
    }

    /// Any value, as nodes of a tape.
    fn nodes(&mut self, nodes: &mut Nodes<'a>) -> Option<()> {
        match self.peek()? {
            b'"' => nodes.push(Node::String(self.word()?)),
            b'{' => {
                let mut entries = self.object()?;
                let (place, mut len) = (nodes.len, 0);
                nodes.push(Node::Object { len: 0, count: 0 })?;
                while let Some(key) = self.key(&mut entries, NO_GUESS) {
                    nodes.push(Node::String(key))?;
                    self.nodes(nodes)?;
                    len += 1;
                }
                entries.end()?;
                let count = nodes.len - place - 1;
                nodes.nodes[place] = Node::Object { len, count };
                Some(())
            }
            b'[' => {
                let mut items = self.array()?;
                let (place, mut len) = (nodes.len, 0);
                nodes.push(Node::Array { len: 0, count: 0 })?;
                while self.item(&mut items) {
                    self.nodes(nodes)?;
                    len += 1;
                }
                items.end()?;
                let count = nodes.len - place - 1;
                nodes.nodes[place] = Node::Array { len, count };
                Some(())
            }
            _ => nodes.push(Node::Static(match self.scalar()? {
                Scalar::Null => StaticNode::Null,
                Scalar::Bool(value) => StaticNode::Bool(value),
                Scalar::Unsigned(value) => StaticNode::U64(value),
                Scalar::Signed(value) => StaticNode::I64(value),
                Scalar::Float(value) => StaticNode::F64(value),
            })),
        }
    }

    /// A number, a truth value or `null`.
    #[inline]
    fn scalar(&mut self) -> Option<Scalar> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let (scalar, len) = match rest {
            [b't', b'r', b'u', b'e', ..] => (Scalar::Bool(true), 4),
            [b'f', b'a', b'l', b's', b'e', ..] => (Scalar::Bool(false), 5),
            [b'n', b'u', b'l', b'l', ..] => (Scalar::Null, 4),
            _ => {
                let (number, len) = number::read(rest)?;
                (number, len)
            }
        };
        self.at += len;
        Some(scalar)
    }

    /// A truth value, or `null`, which is `false`.
    pub(crate) fn switch(&mut self) -> Option<bool> {
        self.peek()?;
        match self.scalar()? {
            Scalar::Bool(value) => Some(value),
            Scalar::Null => Some(false),
            Scalar::Unsigned(_) | Scalar::Signed(_) | Scalar::Float(_) => None,
        }
    }
}

/// A key without its quotes and colon.
#[inline(always)]
fn bare(key: &'static str) -> &'static str {
    key.get(1..key.len() - 2).unwrap_or_default()
}

/// The nodes of one small value.
struct Nodes<'a> {
    nodes: [Node<'a>; MAX_NODES],
    len: usize,
}

impl<'a> Nodes<'a> {
    fn new() -> Self {
        Self {
            nodes: [Node::Static(StaticNode::Null); MAX_NODES],
            len: 0,
        }
    }

    fn push(&mut self, node: Node<'a>) -> Option<()> {
        *self.nodes.get_mut(self.len)? = node;
        self.len += 1;
        Some(())
    }
}
