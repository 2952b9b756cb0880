//! Lines: a bounded line in, its fields as raw JSON, and lines out.
//!
//! Knows no command. Invariant: no field of a line is lost: unknown ones can be named, and one that is there twice is refused.

use std::{
    borrow::Cow,
    fmt,
    io::{self, BufRead, Read, Write},
};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Longest line of a client in bytes, its end counted: a batch of an import is one line.
pub(crate) const MAX_LINE: usize = 8 << 20;
/// Bytes of a line's buffer that are kept for the next one.
const KEEP: usize = 64 << 10;

/// The fields of a line.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object such as {\"command\":\"status\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields: Self::Value = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    if fields.iter().any(|(before, _)| *before == name) {
                        return Err(serde::de::Error::custom(format_args!("`{name}` is there twice")));
                    }
                    fields.push((name, map.next_value()?));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Object).map(Self)
    }
}

/// A name that is borrowed where nothing in it is escaped.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Fields<'a> {
    /// Those of this line.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("the line is no request: {error}"))
    }

    /// What they are called.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// The field of this name.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// A text.
    pub(super) fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, String> {
        self.value::<Name<'a>>(name, "text")
            .map(|found| found.map(|Name(text)| text))
    }

    /// A switch; false where it is not there.
    pub(super) fn switch(&self, name: &str) -> Result<bool, String> {
        Ok(self.value(name, "true or false")?.unwrap_or(false))
    }

    fn value<T: Deserialize<'a>>(&self, name: &str, wanted: &str) -> Result<Option<T>, String> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(raw.get())
            .map(Some)
            .map_err(|_| format!("`{name}` has to be {wanted}"))
    }
}

/// How reading a line ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is there.
    Line,
    /// The client has said all.
    End,
    /// It is longer than [`MAX_LINE`].
    TooLong,
}

/// Reads the next line into `line`, without its end.
pub(super) fn next(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Ended> {
    line.clear();
    line.shrink_to(KEEP);
    from.by_ref().take(MAX_LINE as u64).read_until(b'\n', line)?;
    match line.last() {
        None => Ok(Ended::End),
        Some(b'\n') => {
            line.pop();
            Ok(Ended::Line)
        }
        // A last line may lack its end.
        Some(_) if line.len() < MAX_LINE => Ok(Ended::Line),
        Some(_) => Ok(Ended::TooLong),
    }
}

/// Where the lines of a reply go.
pub(super) struct Lines<'a> {
    out: io::BufWriter<&'a mut dyn Write>,
    /// The client is to be left: the process ends.
    ends: &'a dyn Fn() -> bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(out: &'a mut dyn Write, ends: &'a dyn Fn() -> bool) -> Self {
        Self {
            out: io::BufWriter::with_capacity(64 << 10, out),
            ends,
        }
    }

    /// One of the many lines of a reply.
    pub(super) fn entry(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.write("entry", value)
    }

    /// A page of a listing is out: what was written leaves, and a process that ends gives up.
    pub(super) fn page(&mut self) -> io::Result<()> {
        if (self.ends)() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.out.flush()
    }

    /// The last line.
    pub(super) fn last(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        self.write(name, value)?;
        self.out.flush()
    }

    fn write(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        write!(self.out, "{{\"{name}\":")?;
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"}\n")
    }
}
