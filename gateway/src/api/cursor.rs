//! A body read as text, from its first byte to its last, straight into what a request needs.
//!
//! Nothing here explains a fault, and nothing here decides that there is one: `None` means that the body is broken, or
//! so unusual that it is left to the parser of [`super::tape`], which reads it from the start. Invariant: what is read
//! without doubt is read as the tape has it; every byte that the cursor has passed was checked, skipped values as well.

use simd_json::{Node, StaticNode};
use zerohop_simd::Level;

use super::{
    fault::Path,
    fields::{Field, MAX_STOPS},
    tape::{Json, MAX_DEPTH, Value},
};

/// Most values in a field that is read as a whole, as the options of a request are.
const MAX_NODES: usize = 24;

/// A place in a body that is text.
pub(crate) struct Cursor<'a, 's> {
    text: &'a str,
    at: usize,
    /// Objects and arrays that the place is in.
    depth: usize,
    level: Level,
    /// What the last string with escapes says.
    unescaped: &'s mut String,
}

/// An object that is being read.
#[derive(Default)]
pub(crate) struct Entries<'a> {
    begun: bool,
    /// A key that was read and is to be given again.
    again: Option<&'a str>,
    /// The tag was looked up ahead and is still to come.
    tag_to_come: bool,
}

/// An array that is being read.
#[derive(Default)]
pub(crate) struct Items {
    begun: bool,
}

impl<'a, 's> Cursor<'a, 's> {
    /// At the start of `body`; `None` if it is not UTF-8.
    pub(crate) fn new(body: &'a [u8], level: Level, unescaped: &'s mut String) -> Option<Self> {
        Some(Self {
            text: simdutf8::basic::from_utf8(body).ok()?,
            at: 0,
            depth: 0,
            level,
            unescaped,
        })
    }

    /// The next byte that is not white space.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        match self.text.as_bytes().get(self.at) {
            Some(&byte) if byte > b' ' => Some(byte),
            _ => self.peek_far(),
        }
    }

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

    /// Passes this byte, which is not white space.
    #[inline]
    fn pass(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Nothing follows.
    pub(crate) fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    #[inline]
    fn open(&mut self, bracket: u8) -> Option<()> {
        self.pass(bracket)?;
        self.depth += 1;
        (self.depth <= MAX_DEPTH).then_some(())
    }

    #[inline]
    fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// Enters an object.
    pub(crate) fn object(&mut self) -> Option<Entries<'a>> {
        self.open(b'{')?;
        Some(Entries::default())
    }

    /// The object's next key, with the place at its value, which must be read or skipped before the next call. `None`
    /// within: the object was left.
    #[inline]
    pub(crate) fn key(&mut self, entries: &mut Entries<'a>) -> Option<Option<&'a str>> {
        if let Some(key) = entries.again.take() {
            return Some(Some(key));
        }
        match self.peek()? {
            b'}' => {
                self.close();
                return Some(None);
            }
            b',' if entries.begun => self.at += 1,
            b'"' if !entries.begun => {}
            _ => return None,
        }
        entries.begun = true;
        let key = self.word()?;
        self.pass(b':')?;
        Some(Some(key))
    }

    /// The string at `name` in the object that was just entered, wherever in it that stands. When the key comes by
    /// afterwards, [`Self::tag_again`] passes it.
    #[inline]
    pub(crate) fn tag(&mut self, entries: &mut Entries<'a>, name: &str) -> Option<&'a str> {
        let key = self.key(entries)??;
        if key == name {
            return self.word();
        }
        self.tag_ahead(entries, key, name)
    }

    fn tag_ahead(&mut self, entries: &mut Entries<'a>, first: &'a str, name: &str) -> Option<&'a str> {
        let (at, depth) = (self.at, self.depth);
        let mut ahead = Entries {
            begun: true,
            ..Entries::default()
        };
        self.skip()?;
        while self.key(&mut ahead)?? != name {
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
    pub(crate) fn array(&mut self) -> Option<Items> {
        self.open(b'[')?;
        Some(Items::default())
    }

    /// Whether the array has another item; then the place is at it, and it must be read or skipped before the next
    /// call. Otherwise the array was left.
    #[inline]
    pub(crate) fn item(&mut self, items: &mut Items) -> Option<bool> {
        match self.peek()? {
            b']' => {
                self.close();
                return Some(false);
            }
            b',' if items.begun => {
                self.at += 1;
                // A bracket here would be taken for the end.
                (self.peek()? != b']').then_some(())?;
            }
            _ if !items.begun => {}
            _ => return None,
        }
        items.begun = true;
        Some(true)
    }

    /// A string without escapes.
    #[inline]
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        self.pass(b'"')?;
        let start = self.at;
        let end = self.level.special(self.text.as_bytes(), start);
        (self.text.as_bytes().get(end) == Some(&b'"')).then(|| self.at = end + 1)?;
        self.text.get(start..end)
    }

    /// A string without NUL.
    #[inline]
    pub(crate) fn string(&mut self) -> Option<&str> {
        self.pass(b'"')?;
        let start = self.at;
        let end = self.level.special(self.text.as_bytes(), start);
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
        while self.item(&mut items)? {
            (stops.len() < MAX_STOPS).then_some(())?;
            let json = Json::Str(self.string()?);
            stops.push(Field { json, path }.stop().ok()?);
        }
        Some(stops)
    }

    /// A value with at most [`MAX_NODES`] others in it, handed to `read`.
    pub(crate) fn value<T>(&mut self, read: impl FnOnce(Json<'_>) -> Option<T>) -> Option<T> {
        match self.peek()? {
            b'"' => read(Json::Str(self.string()?)),
            b'{' | b'[' => {
                let mut nodes = Nodes {
                    nodes: [Node::Static(StaticNode::Null); MAX_NODES],
                    len: 0,
                };
                self.nodes(&mut nodes)?;
                read(Value::new(nodes.nodes.get(..nodes.len)?).json())
            }
            _ => {
                let scalar = self.scalar()?;
                read(Value::new(&[Node::Static(scalar)]).json())
            }
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
                while let Some(key) = self.key(&mut entries)? {
                    nodes.push(Node::String(key))?;
                    self.nodes(nodes)?;
                    len += 1;
                }
                let count = nodes.len - place - 1;
                nodes.nodes[place] = Node::Object { len, count };
                Some(())
            }
            b'[' => {
                let mut items = self.array()?;
                let (place, mut len) = (nodes.len, 0);
                nodes.push(Node::Array { len: 0, count: 0 })?;
                while self.item(&mut items)? {
                    self.nodes(nodes)?;
                    len += 1;
                }
                let count = nodes.len - place - 1;
                nodes.nodes[place] = Node::Array { len, count };
                Some(())
            }
            _ => nodes.push(Node::Static(self.scalar()?)),
        }
    }

    /// A number, a truth value or `null`.
    fn scalar(&mut self) -> Option<StaticNode> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let (node, len) = match rest {
            [b't', b'r', b'u', b'e', ..] => (StaticNode::Bool(true), 4),
            [b'f', b'a', b'l', b's', b'e', ..] => (StaticNode::Bool(false), 5),
            [b'n', b'u', b'l', b'l', ..] => (StaticNode::Null, 4),
            _ => super::number::read(rest)?,
        };
        self.at += len;
        Some(node)
    }

    /// `null`, and nothing else.
    pub(crate) fn null(&mut self) -> Option<()> {
        (self.peek()? == b'n').then_some(())?;
        self.skip()
    }

    /// Any value, checked and left.
    pub(crate) fn skip(&mut self) -> Option<()> {
        // One bit for each level that the value has opened, the innermost lowest; set: an object.
        let (mut objects, mut levels) = (0_u128, 0);
        loop {
            match self.peek()? {
                b'"' => self.skip_string()?,
                bracket @ (b'{' | b'[') => {
                    let object = bracket == b'{';
                    self.open(bracket)?;
                    if self.peek()? == if object { b'}' } else { b']' } {
                        self.close();
                    } else {
                        objects = objects << 1 | u128::from(object);
                        levels += 1;
                        if object {
                            self.skip_key()?;
                        }
                        continue;
                    }
                }
                _ => {
                    self.scalar()?;
                }
            }
            // Behind a value.
            loop {
                if levels == 0 {
                    return Some(());
                }
                let object = objects & 1 == 1;
                match (self.peek()?, object) {
                    (b'}', true) | (b']', false) => {
                        self.close();
                        objects >>= 1;
                        levels -= 1;
                    }
                    (b',', _) => {
                        self.at += 1;
                        if object {
                            self.skip_key()?;
                        }
                        break;
                    }
                    _ => return None,
                }
            }
        }
    }

    fn skip_key(&mut self) -> Option<()> {
        (self.peek()? == b'"').then_some(())?;
        self.skip_string()?;
        self.pass(b':')
    }

    /// The string whose quote is at hand.
    fn skip_string(&mut self) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at + 1..)?;
        self.at += 1 + self.level.skip(rest).ok()?;
        Some(())
    }
}

/// The nodes of one small value.
struct Nodes<'a> {
    nodes: [Node<'a>; MAX_NODES],
    len: usize,
}

impl<'a> Nodes<'a> {
    fn push(&mut self, node: Node<'a>) -> Option<()> {
        *self.nodes.get_mut(self.len)? = node;
        self.len += 1;
        Some(())
    }
}
