//! Reading single fields: types, ranges and the neutral values of what is not honoured yet. Common to both dialects.
//!
//! Nothing here knows a field's name. Invariant: a reader returns a value in range or a fault at its path; `null` is read
//! as absent by [`Field::present`] before any reader sees it.

use super::{
    fault::{Expected, Fault, Path, What, shown},
    source::Source,
    tape::{Entries, Items, Json, Value},
};

/// Most stop texts of a request.
pub(crate) const MAX_STOPS: usize = 16;
/// Most bytes of a stop text.
pub(crate) const MAX_STOP_BYTES: usize = 256;
/// Most messages of a request.
pub(crate) const MAX_MESSAGES: usize = 100_000;
/// Most bytes of an id.
pub(crate) const MAX_NAME_BYTES: usize = 256;
/// Most bytes of a schema, a grammar, a pattern or the arguments of a call.
pub(crate) const MAX_RAW_BYTES: usize = 256 << 10;
/// Most bytes of a model's name.
pub(crate) const MAX_MODEL_BYTES: usize = 256;

/// Fields that were accepted and not looked at because nobody knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ignored {
    /// How many.
    pub count: u32,
    /// The path of the first one.
    pub first: Option<String>,
}

impl Ignored {
    /// Counts the unknown field at `path`, or refuses it.
    pub(crate) fn meet(&mut self, path: &Path<'_>, strict: bool) -> Result<(), Fault> {
        if strict {
            return Err(path.is(What::Extra));
        }
        self.count += 1;
        if self.first.is_none() {
            self.first = Some(match path {
                // Most are at the top, and formatting takes longer than the rest.
                Path::Key(Path::Root, key) => shown(key).into_owned(),
                _ => path.to_string(),
            });
        }
        Ok(())
    }

    /// Counts what `inner` has as well, which was met later.
    #[inline]
    pub(crate) fn then(&mut self, inner: Self) {
        if inner.count == 0 {
            return;
        }
        self.count += inner.count;
        if self.first.is_none() {
            self.first = inner.first;
        }
    }
}

/// What becomes of unknown fields.
pub(crate) struct Unknown<'i> {
    strict: bool,
    /// One was named that comes before all that are counted here.
    named: bool,
    pub(crate) ignored: &'i mut Ignored,
}

impl<'i> Unknown<'i> {
    pub(crate) fn new(strict: bool, ignored: &'i mut Ignored) -> Self {
        Self {
            strict,
            named: false,
            ignored,
        }
    }

    /// For what is counted by itself, to come behind what is counted here.
    pub(crate) fn behind<'o>(&self, ignored: &'o mut Ignored) -> Unknown<'o> {
        Unknown {
            strict: self.strict,
            named: self.named || self.ignored.first.is_some(),
            ignored,
        }
    }

    /// Counts the unknown field at `path`, if that is allowed.
    pub(crate) fn meet(&mut self, path: &Path<'_>) -> Option<()> {
        if self.named && !self.strict {
            self.ignored.count += 1;
            return Some(());
        }
        self.ignored.meet(path, self.strict).ok()
    }
}

/// A value and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Field<'v, 'p> {
    pub(crate) json: Json<'v>,
    pub(crate) path: &'p Path<'p>,
}

impl<'v, 'p> Field<'v, 'p> {
    pub(crate) fn new(value: Value<'v>, path: &'p Path<'p>) -> Self {
        Self {
            json: value.json(),
            path,
        }
    }

    /// The field, unless it is `null`.
    #[inline(always)]
    pub(crate) fn present(self) -> Option<Self> {
        (!matches!(self.json, Json::Null)).then_some(self)
    }

    fn is_not(&self, expected: Expected) -> Fault {
        self.path.is_not(expected, self.json)
    }

    #[inline(always)]
    pub(crate) fn bool(self) -> Result<bool, Fault> {
        match self.json {
            Json::Bool(value) => Ok(value),
            _ => Err(self.is_not(Expected::Bool)),
        }
    }

    #[inline(always)]
    pub(crate) fn str(self) -> Result<&'v str, Fault> {
        match self.json {
            Json::Str(text) => Ok(text),
            _ => Err(self.is_not(Expected::Str)),
        }
    }

    #[inline(always)]
    pub(crate) fn array(self) -> Result<Items<'v>, Fault> {
        match self.json {
            Json::Array(items) => Ok(items),
            _ => Err(self.is_not(Expected::Array)),
        }
    }

    #[inline(always)]
    pub(crate) fn object(self) -> Result<Entries<'v>, Fault> {
        match self.json {
            Json::Object(entries) => Ok(entries),
            _ => Err(self.is_not(Expected::Object)),
        }
    }

    /// An integer, also one written as `100.0`; what exceeds 64 bits is taken for the nearest bound.
    #[inline(always)]
    pub(crate) fn int(self) -> Result<i128, Fault> {
        match self.json {
            Json::Int(value) => Ok(value),
            #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, as documented")]
            Json::Float(value) if value.fract() == 0.0 => Ok(value as i128),
            Json::Float(_) => Err(self.path.is(What::Fraction)),
            _ => Err(self.is_not(Expected::Int)),
        }
    }

    /// An integer of at least `least`; what exceeds 32 bits is taken for the largest.
    #[inline(always)]
    pub(crate) fn at_least(self, least: u32) -> Result<u32, Fault> {
        let value = self.int()?;
        if value < i128::from(least) {
            return Err(self.path.is(What::Below(least.into(), value.to_string())));
        }
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// A number between two bounds, both included.
    #[inline(always)]
    pub(crate) fn number(self, least: i64, most: i64) -> Result<f32, Fault> {
        #[expect(clippy::cast_precision_loss, reason = "a bound far from 2^53")]
        let (low, high) = (least as f64, most as f64);
        let value = match self.json {
            #[expect(clippy::cast_precision_loss, reason = "compared with small bounds only")]
            Json::Int(value) => value as f64,
            Json::Float(value) => value,
            _ => return Err(self.is_not(Expected::Number)),
        };
        // As written, so that 3 is not told as 3.0 and 1e300 not in 301 digits.
        let written = || match self.json {
            Json::Int(value) => value.to_string(),
            _ => format!("{value:?}"),
        };
        if value < low {
            return Err(self.path.is(What::Below(least, written())));
        }
        if value > high {
            return Err(self.path.is(What::Above(most, written())));
        }
        #[expect(clippy::cast_possible_truncation, reason = "sampling works in f32")]
        Ok(value as f32)
    }

    /// `top_p`: 0 keeps only the most probable token, as the smallest positive number does.
    #[inline(always)]
    pub(crate) fn top_p(self) -> Result<f32, Fault> {
        Ok(self.number(0, 1)?.max(f32::MIN_POSITIVE))
    }

    /// A model's name.
    #[inline(always)]
    pub(crate) fn model(self) -> Result<String, Fault> {
        match self.text()? {
            "" => Err(self.path.breaks("must not be empty")),
            name if name.len() > MAX_MODEL_BYTES => Err(self.path.breaks("must have at most 256 bytes")),
            name => Ok(name.into()),
        }
    }

    /// Text that may go to the model: anything without NUL.
    #[inline(always)]
    pub(crate) fn text(self) -> Result<&'v str, Fault> {
        let text = self.str()?;
        match memchr::memchr(0, text.as_bytes()) {
            None => Ok(text),
            Some(_) => Err(self.path.breaks("must not contain a NUL character (U+0000)")),
        }
    }

    /// An integer of 32 bits.
    pub(crate) fn id(self) -> Result<u32, Fault> {
        let value = self.int()?;
        u32::try_from(value).map_err(|_| {
            self.path.is(if value < 0 {
                What::Below(0, value.to_string())
            } else {
                What::Above(u32::MAX.into(), value.to_string())
            })
        })
    }

    /// Text that names something, in at most [`MAX_NAME_BYTES`].
    pub(crate) fn name(self) -> Result<&'v str, Fault> {
        match self.text()? {
            "" => Err(self.path.breaks("must not be empty")),
            name if name.len() > MAX_NAME_BYTES => Err(self.path.breaks("must have at most 256 bytes")),
            name => Ok(name),
        }
    }

    /// The name of a tool.
    pub(crate) fn tool_name(self) -> Result<&'v str, Fault> {
        let name = self.text()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
            return Ok(name);
        }
        Err(self
            .path
            .breaks("must be 1 to 64 letters, digits, underscores and dashes"))
    }

    /// The text of an object, as it stands in the body.
    pub(crate) fn raw<'t>(self, source: Option<&Source<'t>>) -> Result<&'t str, Fault> {
        let entries = self.object()?;
        match source.and_then(|source| source.text(entries)) {
            Some(text) if text.len() > MAX_RAW_BYTES => Err(self.path.breaks("must have at most 262,144 bytes")),
            Some(text) => Ok(text),
            None => Err(self.path.breaks("cannot be read in one pass")),
        }
    }

    /// Reads the entries of an object that have one of `names`, each at most once: `read` gets the number of the name, and no
    /// `null`. Others are counted, or refused where `strict`.
    pub(crate) fn entries(
        self,
        names: &[&str],
        ignored: &mut Ignored,
        strict: bool,
        mut read: impl FnMut(usize, Field<'v, '_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut seen = Seen::default();
        for (key, value) in self.object()? {
            let path = self.path.key(key);
            let Some(number) = names.iter().position(|name| *name == key) else {
                ignored.meet(&path, strict)?;
                continue;
            };
            seen.once(number as u8, &path)?;
            if let Some(field) = Field::new(value, &path).present() {
                read(number, field)?;
            }
        }
        Ok(())
    }

    /// A list of stop texts.
    pub(crate) fn stops(self) -> Result<Vec<String>, Fault> {
        let items = self.array()?;
        if items.len() > MAX_STOPS {
            return Err(self.path.breaks("must have at most 16 entries"));
        }
        items
            .enumerate()
            .map(|(index, item)| Field::new(item, &self.path.index(index)).stop())
            .collect()
    }

    /// One stop text.
    #[inline(always)]
    pub(crate) fn stop(self) -> Result<String, Fault> {
        match self.text()? {
            "" => Err(self.path.breaks("must not be empty")),
            stop if stop.len() > MAX_STOP_BYTES => Err(self.path.breaks("must have at most 256 bytes")),
            stop => Ok(stop.into()),
        }
    }

    /// A field that is only acceptable with a value that asks for nothing.
    pub(crate) fn only(self, neutral: Neutral) -> Result<(), Fault> {
        let asks_nothing = match (neutral, self.json) {
            (_, Json::Null) | (Neutral::False, Json::Bool(false)) => true,
            (Neutral::Empty, Json::Array(items)) => items.len() == 0,
            (Neutral::Empty, Json::Object(entries)) => entries.is_empty(),
            (Neutral::Word(wanted), Json::Str(value)) => value == wanted,
            _ => false,
        };
        if asks_nothing {
            return Ok(());
        }
        Err(self.path.is(What::FieldNotYet))
    }
}

/// The value, besides `null`, with which a field asks for nothing.
#[derive(Clone, Copy)]
pub(crate) enum Neutral {
    /// There is none.
    Null,
    /// An empty array or object.
    Empty,
    /// `false`
    False,
    /// This string.
    Word(&'static str),
}

/// The value of the entry with this name; a fault if there are two.
pub(crate) fn find<'v>(entries: Entries<'v>, name: &str, object: &Path<'_>) -> Result<Option<Value<'v>>, Fault> {
    let mut found = None;
    for (_, value) in entries.filter(|(key, _)| *key == name) {
        if found.replace(value).is_some() {
            return Err(object.key(name).is(What::Duplicate));
        }
    }
    Ok(found)
}

/// The string at this name, in an object where it must be.
pub(crate) fn tag<'v>(entries: Entries<'v>, name: &str, object: &Path<'_>) -> Result<&'v str, Fault> {
    let path = object.key(name);
    let value = find(entries, name, object)?.ok_or_else(|| path.is(What::Missing))?;
    Field::new(value, &path).str()
}

/// Which names of an object were seen, by the number of each known one.
#[derive(Default)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Notes the name with this number, below 64; a fault if it was there before: two readers of one body could
    /// otherwise act on different values.
    pub(crate) fn once(&mut self, number: u8, path: &Path<'_>) -> Result<(), Fault> {
        match self.first(number) {
            true => Ok(()),
            false => Err(path.is(What::Duplicate)),
        }
    }

    /// Notes the name with this number, below 64; whether it was not there before.
    #[inline]
    pub(crate) fn first(&mut self, number: u8) -> bool {
        let bit = 1_u64 << number;
        let first = self.0 & bit == 0;
        self.0 |= bit;
        first
    }
}
