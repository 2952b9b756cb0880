//! From the tree to typed fields: each field knows its place and its full key, and a fault in one hides no other.
//!
//! Ranges and cross checks are not made here. Invariant: a field that is [`Field::Bad`] has a problem that says why.

use std::fmt;

use super::{
    node::{Entry, Node, Value, quoted},
    problem::{Place, Problems},
    raw,
};

/// A value of the file, its place and its full key, such as `models[0].backend.onnx.path`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct At<T> {
    pub(super) place: Place,
    pub(super) key: String,
    pub(super) value: T,
}

impl<T> At<T> {
    /// The place and the key, with another value.
    pub(super) fn with<U>(&self, value: U) -> At<U> {
        At {
            place: self.place,
            key: self.key.clone(),
            value,
        }
    }

    /// Adds a fault of this value.
    pub(super) fn fault(&self, problems: &mut Problems, text: impl fmt::Display) {
        problems.add(self.place, &self.key, text);
    }
}

/// What the file says of a key.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Field<T> {
    /// Nothing.
    #[default]
    Absent,
    /// Something that is no such value; the problem is told.
    Bad,
    /// This.
    Given(At<T>),
}

impl<T> Field<T> {
    fn read(node: &Node, key: String, problems: &mut Problems) -> Self
    where
        T: Read,
    {
        match T::read(node, &key, problems) {
            None => Self::Bad,
            Some(value) => Self::Given(At {
                place: node.place,
                key,
                value,
            }),
        }
    }

    /// The value, if one was given and is good.
    pub(super) fn given(self) -> Option<At<T>> {
        match self {
            Self::Given(at) => Some(at),
            Self::Absent | Self::Bad => None,
        }
    }

    /// The section, or an empty one.
    pub(super) fn section(self) -> T
    where
        T: Default,
    {
        self.given().map(|at| at.value).unwrap_or_default()
    }

    /// The value; if the key is absent, a fault at `owner`.
    pub(super) fn required(self, owner: &At<()>, name: &str, example: &str, problems: &mut Problems) -> Option<At<T>> {
        if matches!(self, Self::Absent) {
            owner.fault(problems, format_args!("`{name}` is missing: add `{name}: {example}`"));
        }
        self.given()
    }
}

impl<T> Field<Option<T>> {
    /// The value, if one other than null was given and is good.
    pub(super) fn set(self) -> Option<At<T>> {
        let At { place, key, value } = self.given()?;
        Some(At {
            place,
            key,
            value: value?,
        })
    }
}

/// A type that a field may have.
pub(super) trait Read: Sized {
    /// How such a value is asked for.
    const WANTED: &'static str;

    /// Reads it; `None` after telling a problem.
    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self>;

    /// Tells each key at and below `key`.
    fn keys(key: &str, tell: &mut dyn FnMut(Known<'_>)) {
        tell(Known { key, later: false });
    }
}

/// A key of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known<'a> {
    /// In full; elements of lists have `[]`.
    pub(super) key: &'a str,
    /// Whether only its present behaviour may be stated.
    pub(super) later: bool,
}

/// Tells that `node` is not what is wanted.
fn unfit<T: Read>(node: &Node, key: &str, problems: &mut Problems) -> Option<T> {
    let wanted = T::WANTED;
    match &node.value {
        Value::Null => problems.add(
            node.place,
            key,
            format_args!("there is no value: give {wanted}, or leave the key out"),
        ),
        value => problems.add(node.place, key, format_args!("{value} is not possible: give {wanted}")),
    }
    None
}

impl Read for bool {
    const WANTED: &'static str = "true or false";

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match node.value {
            Value::Bool(value) => Some(value),
            _ => unfit(node, key, problems),
        }
    }
}

impl Read for i128 {
    const WANTED: &'static str = "a whole number";

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Whole(value) => Some(*value),
            // Beyond 64 bits a number arrives as real; its bound is told, not its kind.
            Value::Real(value) if value.fract() == 0.0 && value.abs() >= BEYOND => Some(*value as i128),
            Value::Text(text) if text.trim().parse::<i128>().is_ok() => {
                let text = format!("{} is text: write the number without quotes", node.value);
                problems.add(node.place, key, text);
                None
            }
            _ => unfit(node, key, problems),
        }
    }
}

/// 2⁶³.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

/// Text that is meant as an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address(pub(super) String);

impl Read for Address {
    const WANTED: &'static str = "IP:PORT, such as 127.0.0.1:8080 or [::1]:8080";

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(Self(text.clone())),
            _ => unfit(node, key, problems),
        }
    }
}

impl Read for String {
    const WANTED: &'static str = "text";

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            // The number's own spelling is lost by now, so it cannot be taken as text.
            value @ (Value::Bool(_) | Value::Whole(_) | Value::Real(_)) => {
                problems.add(node.place, key, format_args!("{value} is not text: put it in quotes"));
                None
            }
            _ => unfit(node, key, problems),
        }
    }
}

/// A number, or text that holds one with a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Amount(pub(super) String);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Read for Amount {
    const WANTED: &'static str = "a number, with a unit or without";

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(Self(text.clone())),
            Value::Whole(number) => Some(Self(number.to_string())),
            Value::Real(number) => Some(Self(number.to_string())),
            _ => unfit(node, key, problems),
        }
    }
}

/// A token's number, or a set of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenItem {
    Id(i128),
    Text(String),
}

impl Read for TokenItem {
    const WANTED: &'static str =
        "a token's id, such as 17, or a set of texts in quotes, such as \"0-120\" or \"digits\"";

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(Self::Text(text.clone())),
            Value::Whole(number) => Some(Self::Id(*number)),
            _ => unfit(node, key, problems),
        }
    }
}

/// The word `auto`, or a list of numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AutoOr<T> {
    Auto,
    Own(T),
}

impl<T: Read> Read for AutoOr<T> {
    const WANTED: &'static str = T::WANTED;

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) if text == "auto" => Some(Self::Auto),
            value @ (Value::Text(_) | Value::Whole(_)) => {
                let text = format!("{value} is not possible: give auto or {}, such as [0, 2]", T::WANTED);
                problems.add(node.place, key, text);
                None
            }
            _ => T::read(node, key, problems).map(Self::Own),
        }
    }
}

impl<T: Read> Read for Option<T> {
    const WANTED: &'static str = T::WANTED;

    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        match node.value {
            Value::Null => Some(None),
            _ => T::read(node, key, problems).map(Some),
        }
    }

    fn keys(key: &str, tell: &mut dyn FnMut(Known<'_>)) {
        T::keys(key, tell);
    }
}

impl<T: Read> Read for Vec<At<T>> {
    const WANTED: &'static str = "a list";

    /// Bad elements are told and left out, so that the others are still checked.
    fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
        let list = match &node.value {
            Value::List(list) => list,
            value @ (Value::Text(_) | Value::Whole(_)) => {
                let text = format_args!("{value} is not possible: give a list, such as [{value}]");
                problems.add(node.place, key, text);
                return None;
            }
            _ => return unfit(node, key, problems),
        };
        let elements = list.iter().enumerate();
        let read = elements.filter_map(|(index, node)| Field::read(node, format!("{key}[{index}]"), problems).given());
        Some(read.collect())
    }

    fn keys(key: &str, tell: &mut dyn FnMut(Known<'_>)) {
        tell(Known { key, later: false });
        T::keys(&format!("{key}[]"), &mut |known| {
            if !known.key.ends_with("[]") {
                tell(known);
            }
        });
    }
}

/// Hands each pair of a section to `pair`, with its full key. `None` after telling that it is no section.
pub(super) fn pairs<T: Read>(
    node: &Node,
    key: &str,
    problems: &mut Problems,
    mut pair: impl FnMut(&Entry, &str, String, &mut Problems),
) -> Option<()> {
    match &node.value {
        Value::Null => Some(()),
        Value::Section(entries) => {
            for entry in entries {
                match &entry.key.value {
                    Value::Text(name) => pair(entry, name, join(key, name), problems),
                    other => {
                        let text = format!("{other} cannot be a key: keys are names, such as `server`");
                        problems.bare(entry.key.place, text);
                    }
                }
            }
            Some(())
        }
        value if key.is_empty() => {
            let text = format!("{value} is no configuration: give sections, such as `server:`");
            problems.bare(node.place, text);
            None
        }
        _ => unfit::<T>(node, key, problems).map(|_| ()),
    }
}

/// The full key of `name` in the section `key`.
pub(super) fn join(key: &str, name: &str) -> String {
    if key.is_empty() {
        name.to_owned()
    } else {
        format!("{key}.{name}")
    }
}

/// Reads a field of a section.
pub(super) fn field<T: Read>(entry: &Entry, key: String, problems: &mut Problems) -> Field<T> {
    Field::read(&entry.node, key, problems)
}

/// A key that a later version gives a meaning to. Until then a file may only state what the product does anyway.
#[derive(Debug, Clone, Copy)]
pub(super) struct Later {
    /// In its section.
    pub(super) name: &'static str,
    /// The values, besides null, that state the present behaviour.
    pub(super) now: &'static [Now],
}

/// A value that states the present behaviour.
#[derive(Debug, Clone, Copy)]
pub(super) enum Now {
    Is(bool),
    Word(&'static str),
    Number(f64),
    EmptyList,
    EmptySection,
}

impl Now {
    #[expect(
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "small numbers, as literally written"
    )]
    fn is(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Is(wanted), Value::Bool(given)) => wanted == *given,
            (Self::Word(wanted), Value::Text(given)) => wanted == given,
            (Self::Number(wanted), Value::Whole(given)) => wanted == *given as f64,
            (Self::Number(wanted), Value::Real(given)) => wanted == *given,
            (Self::EmptyList, Value::List(list)) => list.is_empty(),
            (Self::EmptySection, Value::Section(entries)) => entries.is_empty(),
            _ => false,
        }
    }
}

impl fmt::Display for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => write!(f, "{value}"),
            Self::Word(word) => f.write_str(word),
            Self::Number(number) => write!(f, "{number}"),
            Self::EmptyList => f.write_str("[]"),
            Self::EmptySection => f.write_str("{}"),
        }
    }
}

/// Tells what is to say of a pair that is no field: a later key, or one that nobody knows.
pub(super) fn no_field(entry: &Entry, key: &str, names: &[&str], later: &[Later], problems: &mut Problems) {
    let name = key.rsplit_once('.').map_or(key, |(_, name)| name);
    let place = entry.key.place;
    let Some(known) = later.iter().find(|known| known.name == name) else {
        let all = names.iter().copied().chain(later.iter().map(|known| known.name));
        problems.add(place, key, unknown(name, all));
        return;
    };
    if entry.node.value == Value::Null || known.now.iter().any(|now| now.is(&entry.node.value)) {
        return;
    }
    let mut text = format!("not yet: {key} is not supported by this version");
    text += ": leave it out";
    if let Some(now) = known.now.first() {
        text += &format!(", or write `{name}: {now}`");
    }
    problems.bare(place, text);
}

/// What to say of a key that is not one of `names`: the key that was perhaps meant, or all that there are.
fn unknown<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(name, names.clone()) {
        return format!("unknown key: did you mean `{near}`?");
    }
    let mut elsewhere = None;
    raw::known_keys(&mut |known| {
        let last = known.key.rsplit_once('.').map_or(known.key, |(_, last)| last);
        if last == name && elsewhere.is_none() {
            elsewhere = Some(known.key.to_owned());
        }
    });
    match elsewhere {
        Some(key) => format!("unknown key: did you mean `{key}`?"),
        None => format!(
            "unknown key: the keys here are {}",
            names.collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The candidate that `name` is most probably a slip of.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Distances cost length × length; a longer name is no slip.
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let lower = name.to_ascii_lowercase().replace('-', "_");
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .filter(|candidate| candidate.len() <= LONGEST)
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&lower, &candidate.to_ascii_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// One of a few words.
pub(super) fn word<T: Copy>(given: &At<String>, words: &[(&'static str, T)], problems: &mut Problems) -> Option<T> {
    let found = words.iter().find(|(word, _)| *word == given.value);
    if found.is_none() {
        let (last, others) = words.split_last()?;
        let others: Vec<&str> = others.iter().map(|(word, _)| *word).collect();
        let text = format!(
            "{} is not possible: give {} or {}",
            quoted(&given.value),
            others.join(", "),
            last.0
        );
        given.fault(problems, text);
    }
    found.map(|(_, value)| *value)
}
