//! A sealed part: a Parquet file that other programs open, and of which each body is one contiguous range of bytes.
//!
//! A part is written once, verified, and then given its name; it is never changed. Nothing here decides which answers are kept.
//! Invariants: what has a part's name is whole; no bytes are parsed before their checksum was found right; and a value that is
//! read is the one that was sealed at that place, or an error.
//!
//! # File, format 1
//!
//! One row group, written by the columns of [`schema`] in the order of the rows given, with the offset index behind it.
//!
//! ```text
//!  ├ PAR1 ┼ key columns, a chunk each ┼ request ┼ body: pages ───────┼ body_bytes ┼ body_crc ┼ tail: offset index, footer, PAR1 ┤
//!
//!  plain   a page of the body column: header, then u32 length and bytes of each value. 64 rows, or 64 KiB and what goes beyond
//!          with the last of them. A place is the bytes of one value.
//!  cold    a page has one row: header, then the length and bytes as one zstd frame. A place is that frame.
//!  tail    covered by a checksum that stands in it (with zeros in its own place), and holds the checksum of each chunk, the
//!          part's number, its form, and the format
//! ```
//!
//! Where a value lies follows from the offset index: the values of a page end where the page ends, and `body_bytes` has their
//! sizes. So nothing of a body is read to find it, and the CRC in `body_crc` is that of the bytes as they lie in the file.

mod chunk;
mod read;
mod schema;
mod seal;
mod tail;

#[cfg(test)]
#[path = "part/part_tests.rs"]
mod part_tests;

use std::{cell::RefCell, io};

use zstd::bulk::Decompressor;

pub use read::Part;
pub use seal::seal;

use crate::{
    files::Files,
    types::{Answer, Context, FinishReason, PartNumber, Place, PromptHash, Seconds, Usage},
};

/// Greatest size of a body, bytes: also what a frame of a cold part may grow to when it is decompressed, 4 bytes less.
pub const MOST_BODY: usize = 64 << 20;
/// Bytes read or written at a time, unless one value is longer.
const WINDOW: usize = 1 << 20;

/// How bodies lie in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    Plain,
    /// Each compressed for itself: for parts that are hardly read.
    Cold,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Cold => "cold",
        }
    }
}

/// A row to seal, and a whole row as it is read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The answer.
    pub answer: Answer,
    /// How often it was given again before it was sealed.
    pub hits: u32,
}

/// A part that was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Its number.
    pub number: PartNumber,
    /// Its form.
    pub form: Form,
    /// Where the bodies lie, in the order of the rows given.
    pub places: Vec<Place>,
    /// Size of its file.
    pub bytes: u64,
}

/// What the key columns say of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The model's name.
    pub model: String,
    /// As in [`Answer`].
    pub tenant: u64,
    /// Identity.
    pub prompt: PromptHash,
    /// How the conversation begins.
    pub context: Context,
    /// When it was made.
    pub created: Seconds,
    /// From when on it is stale.
    pub expires: Seconds,
    /// As in [`Row`].
    pub hits: u32,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens.
    pub usage: Usage,
    /// Milliseconds.
    pub generation_ms: u32,
    /// Where the body lies.
    pub place: Place,
}

impl Known {
    /// Whether these are the columns of this row.
    fn is_of(&self, row: &Row) -> bool {
        let Row { answer, hits } = row;
        let names = self.model == answer.model && self.prompt == answer.prompt && self.context == answer.context;
        let times = self.created == answer.created && self.expires == answer.expires;
        let made =
            self.finish == answer.finish && self.usage == answer.usage && self.generation_ms == answer.generation_ms;
        names && times && made && self.tenant == answer.tenant && self.hits == *hits
    }

    /// The whole row.
    fn into_row(self, request: Option<Vec<u8>>, body: Vec<u8>) -> Row {
        let answer = Answer {
            model: self.model,
            tenant: self.tenant,
            prompt: self.prompt,
            context: self.context,
            created: self.created,
            expires: self.expires,
            finish: self.finish,
            usage: self.usage,
            generation_ms: self.generation_ms,
            request,
            body,
        };
        Row {
            answer,
            hits: self.hits,
        }
    }
}

/// The name of a part's file.
#[must_use]
pub fn name(number: PartNumber) -> String {
    format!("part-{}.parquet", number.0)
}

/// The number of the part that a file of this name is.
#[must_use]
pub fn number(name: &str) -> Option<PartNumber> {
    super::numbered(name, "part-", ".parquet")
}

/// The name of the file of a part that is not whole yet. With a dot: programs that are given the folder pass over such files.
fn unfinished(number: PartNumber) -> String {
    format!(".part-{}.tmp", number.0)
}

/// Removes what a crash left of parts that were not published; how many files.
///
/// # Errors
/// What the files say.
pub async fn clear<D: Files>(files: &D) -> io::Result<usize> {
    let mut removed = 0;
    for (name, _) in files.list().await? {
        if super::numbered(&name, ".part-", ".tmp").is_some() {
            files.remove(&name).await?;
            removed += 1;
        }
    }
    if removed > 0 {
        files.sync_folder().await?;
    }
    Ok(removed)
}

/// The body in these bytes, which were read at `place` of a part of this form: what a worker does with what its ring brought.
///
/// # Errors
/// `InvalidData` where the checksum does not hold, or a frame is none, would grow beyond [`MOST_BODY`], or is not what its head
/// says.
pub fn open_value(form: Form, place: Place, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if bytes.len() != place.len as usize {
        return Err(damaged(place));
    }
    let bytes = super::checked(bytes, place)?;
    match form {
        Form::Plain => Ok(bytes),
        Form::Cold => decompressed(&bytes).ok_or_else(|| damaged(place)),
    }
}

thread_local! {
    /// Making one for each value takes longer than decompressing it: 15.6 µs a read, and 7.1 µs with one that is kept.
    static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The one value in the compressed page.
fn decompressed(frame: &[u8]) -> Option<Vec<u8>> {
    let size = zstd::zstd_safe::get_frame_content_size(frame).ok()??;
    let size = usize::try_from(size)
        .ok()
        .filter(|size| (4..=MOST_BODY + 4).contains(size))?;
    let mut page = CONTEXT.with(|context| {
        let mut context = context.try_borrow_mut().ok()?;
        if context.is_none() {
            *context = Decompressor::new().ok();
        }
        context.as_mut()?.decompress(frame, size).ok()
    })?;
    let len = u32::from_le_bytes(*page.first_chunk()?);
    if page.len() != size || size - 4 != len as usize {
        return None;
    }
    page.drain(..4);
    Some(page)
}

fn damaged(place: Place) -> io::Error {
    invalid(format!(
        "the value at {} of file {} is damaged",
        place.offset, place.part.0
    ))
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Bytes of a part's footer, and of what is written once a column.
const FIXED: u64 = 32 << 10;
/// Bytes of a row in key columns, page headers and offset index, with its lengths: 130 in the worst case that the tests find.
const EACH: u64 = 176;

/// Greatest size in bytes that a part of these rows can have, in either form.
#[must_use]
pub fn bound(rows: &[Row]) -> u64 {
    let each = rows.iter().map(|row| {
        let answer = &row.answer;
        let text = answer.body.len() + answer.request.as_ref().map_or(0, Vec::len);
        // What is compressed may grow by 1/256.
        (text + text / 256 + answer.model.len()) as u64 + EACH
    });
    each.sum::<u64>() + FIXED
}
