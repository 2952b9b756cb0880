//! The text of single values of a body, as the client wrote them.
//!
//! A tape does not know where its values stand in the body, but it has them in the body's order: counting the values of
//! the text up to one of the tape finds it. Nothing here copies. Invariant: what [`Source::text`] gives is the value that
//! was asked for, byte for byte, or nothing.

use std::cell::Cell;

use simd_json::Node;

use super::tape::{Entries, Value, string_end};

/// A body that was read to a tape, with its tape.
#[derive(Clone, Default)]
pub(crate) struct Source<'t> {
    body: &'t [u8],
    nodes: &'t [Node<'t>],
    /// Where the last search ended, since values are asked for in their order.
    place: Cell<Place>,
}

/// A value by its number on the tape; its first byte is the next one here that can begin a value.
#[derive(Clone, Copy, Default)]
struct Place {
    node: usize,
    at: usize,
}

impl<'t> Source<'t> {
    /// Of a body and the root of its tape.
    pub(crate) fn new(root: Value<'t>, body: &'t [u8]) -> Self {
        Self {
            body,
            nodes: root.nodes(),
            place: Cell::default(),
        }
    }

    /// The text of the object with these entries; `None` if it is none of this tape.
    pub(crate) fn text(&self, entries: Entries<'_>) -> Option<&'t str> {
        let (first, inside) = (self.nodes.as_ptr().addr(), entries.nodes().as_ptr().addr());
        // The object's own node is the one before its entries.
        let node = (inside.checked_sub(first)? / size_of::<Node<'_>>()).checked_sub(1)?;
        matches!(self.nodes.get(node)?, Node::Object { .. }).then_some(())?;
        let start = self.find(node)?;
        let text = self.body.get(start..object_end(self.body, start)?)?;
        std::str::from_utf8(text).ok()
    }

    /// Where the value with this number begins.
    fn find(&self, node: usize) -> Option<usize> {
        let mut place = self.place.get();
        if place.node > node {
            place = Place::default();
        }
        loop {
            match *self.body.get(place.at)? {
                b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b'}' | b']' => place.at += 1,
                _ if place.node == node => break,
                byte => {
                    place.at = behind(self.body, place.at, byte);
                    place.node += 1;
                }
            }
        }
        self.place.set(place);
        Some(place.at)
    }
}

/// Behind the string or the scalar that begins at `at` with this byte, or behind the bracket that is there.
fn behind(body: &[u8], at: usize, byte: u8) -> usize {
    match byte {
        b'"' => string_end(body, at + 1),
        b'{' | b'[' => at + 1,
        _ => {
            let rest = &body[at..];
            let ends = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b'}' | b']');
            at + rest.iter().position(ends).unwrap_or(rest.len())
        }
    }
}

/// Behind the object that begins at `at`.
fn object_end(body: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match *body.get(at)? {
            b'"' => {
                at = string_end(body, at + 1);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Scratch, tape::Json};

    /// The texts of all objects of a body, outermost first.
    fn objects(body: &str) -> Vec<String> {
        fn go(source: &Source<'_>, value: Value<'_>, found: &mut Vec<String>) {
            match value.json() {
                Json::Object(entries) => {
                    found.push(source.text(entries).expect("an object of the body").to_owned());
                    entries.for_each(|(_, value)| go(source, value, found));
                }
                Json::Array(items) => items.for_each(|value| go(source, value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        let mut scratch = Scratch::default();
        let read = scratch.with(body.as_bytes(), |root, body| {
            let source = Source::new(root, body);
            go(&source, root, &mut found);
            // Again from the start, with the place at the end.
            let mut again = Vec::new();
            go(&source, root, &mut again);
            assert_eq!(again, found);
            Ok(())
        });
        assert_eq!(read, Ok(()), "{body}");
        found
    }

    #[test]
    fn objects_are_told_byte_for_byte() {
        let inner = [
            r#"{ "b\"}" : [1, -2.50e+1 ,"]", {"c":null}] }"#,
            r#"{"c":null}"#,
            "{}",
            "{ \t\n}",
        ];
        let [first, second, third, fourth] = inner;
        let body = format!("\n [true,\"{{\\\\\",{first} ,[],[[{third}]],\t{fourth}, \"ä\" ]");
        assert_eq!(objects(&body), [first, second, third, fourth]);
        assert_eq!(objects(&format!(" {third} ")), [third]);
        assert_eq!(objects("[1,2]"), Vec::<String>::new());
    }

    #[test]
    fn other_tapes_have_no_text() {
        let mut scratch = Scratch::default();
        let read = scratch.with(b"[{\"a\":1}]", |root, _| {
            let Json::Array(mut items) = root.json() else {
                unreachable!()
            };
            let Some(Json::Object(entries)) = items.next().map(Value::json) else {
                unreachable!()
            };
            assert_eq!(Source::default().text(entries), None);
            Ok(())
        });
        assert_eq!(read, Ok(()));
    }
}
