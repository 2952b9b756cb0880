//! What the head of a reply tells of the cache of answers: `x-cache`, and `age` where the answer is not new.
//!
//! It decides nothing. Invariant: an age is told exactly where the answer was made for an earlier request.

use crate::put;

/// How an answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheNote {
    word: &'static str,
    /// In seconds.
    age: Option<u64>,
}

impl CacheNote {
    /// Nothing is told: there is no cache.
    pub const NONE: Self = Self::new("", None);
    /// The answer is made for this request, and may be kept.
    pub const MISS: Self = Self::new("miss", None);
    /// The answer is being made for another request, and this one follows it.
    pub const JOIN: Self = Self::new("join", None);
    /// The cache is neither asked nor filled.
    pub const BYPASS: Self = Self::new("bypass", None);

    /// The answer is kept, and `age` seconds old.
    #[must_use]
    pub const fn hit(age: u64) -> Self {
        Self::new("hit", Some(age))
    }

    /// The same, and past its time.
    #[must_use]
    pub const fn stale(age: u64) -> Self {
        Self::new("stale", Some(age))
    }

    const fn new(word: &'static str, age: Option<u64>) -> Self {
        Self { word, age }
    }

    /// Its text, which the fields borrow.
    pub(super) fn text(self) -> NoteText {
        let mut digits = [b'0'; 20];
        let start = put::decimal_right(&mut digits, self.age.unwrap_or_default());
        NoteText {
            note: self,
            digits,
            start,
        }
    }
}

/// A note with the digits of its age.
pub(super) struct NoteText {
    note: CacheNote,
    digits: [u8; 20],
    start: usize,
}

impl NoteText {
    /// The header fields: none, `x-cache`, or `x-cache` and `age`.
    pub(super) fn fields(&self) -> Fields<'_> {
        // Digits are ASCII, so the empty text is never given.
        let age = std::str::from_utf8(&self.digits[self.start..]).unwrap_or_default();
        let count = match (self.note.word.is_empty(), self.note.age) {
            (true, _) => 0,
            (false, None) => 1,
            (false, Some(_)) => 2,
        };
        Fields {
            all: [("x-cache", self.note.word), ("age", age)],
            count,
        }
    }
}

/// Up to two header fields.
pub(super) struct Fields<'a> {
    all: [(&'a str, &'a str); 2],
    count: usize,
}

impl<'a> std::ops::Deref for Fields<'a> {
    type Target = [(&'a str, &'a str)];

    fn deref(&self) -> &Self::Target {
        &self.all[..self.count]
    }
}
