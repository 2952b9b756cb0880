//! The tail of a part: offset index and footer, found from the end of the file and checked as a whole before it is parsed.
//!
//! It knows nothing of rows. Invariant: what [`Tail::read`] returns was written as the tail of this part by a version that this
//! one understands, to the bit.
//!
//! The checksum stands within what it covers, in the value of one key of the footer's metadata: a line of fixed width, found by
//! how it begins. It is counted with zeros in its place.

use std::{io, ops::Range};

use bytes::Bytes;
use crc32c::crc32c;
use parquet::file::metadata::{KeyValue, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::{
    Form, invalid,
    schema::{self, Column},
};
use crate::{files::File, types::PartNumber};

/// The format that is written, and the newest that is read.
const FORMAT: u32 = 1;
/// How the line begins.
const BEGINNING: &[u8] = b"zerohop part, format ";
/// Bytes at the end of a file among which the line is looked for: a footer has 2 KiB to 4 KiB.
const LAST: u64 = 64 << 10;
/// Bytes that a tail has at least: the end of every Parquet file.
const LEAST: u64 = 12;

/// What the tail says.
pub(super) struct Tail {
    pub(super) metadata: ParquetMetaData,
    pub(super) form: Form,
    /// Where it begins: behind the last chunk.
    pub(super) start: u64,
    /// CRC-32C of each chunk.
    pub(super) sums: Vec<u32>,
}

/// What the footer is to say of the part, with the checksum left open.
pub(super) fn pairs(number: PartNumber, form: Form, sums: &[u32]) -> [KeyValue; 4] {
    let sums: Vec<_> = sums.iter().map(|sum| format!("{sum:08x}")).collect();
    let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    [
        pair("zerohop.number", number.0.to_string()),
        pair("zerohop.form", form.name().to_owned()),
        pair("zerohop.crc32c", sums.join(" ")),
        // The last one, since the last one is looked for.
        pair("zerohop.part", line(0, 0)),
    ]
}

fn line(len: u64, crc: u32) -> String {
    let beginning = String::from_utf8_lossy(BEGINNING);
    format!("{beginning}{FORMAT:04}, tail {len:010}, crc32c {crc:08x}")
}

/// Where the line stands in these bytes.
fn find(bytes: &[u8]) -> Option<Range<usize>> {
    let start = bytes.windows(BEGINNING.len()).rposition(|window| window == BEGINNING)?;
    let end = start + line(0, 0).len();
    (end <= bytes.len()).then_some(start..end)
}

/// Writes length and checksum into a tail that was just made.
pub(super) fn complete(tail: &mut [u8]) -> io::Result<()> {
    let at = find(tail).ok_or_else(|| invalid("a footer without its line"))?;
    let len = tail.len() as u64;
    tail[at.clone()].copy_from_slice(line(len, 0).as_bytes());
    let crc = crc32c(tail);
    tail[at].copy_from_slice(line(len, crc).as_bytes());
    Ok(())
}

impl Tail {
    /// Reads the tail of a file of this size.
    pub(super) async fn read<F: File>(file: &F, size: u64, number: PartNumber) -> io::Result<Self> {
        let why = |why: &str| invalid(format!("part {}: {why}", number.0));
        let last = file.read_at(size.min(LAST) as usize, size - size.min(LAST)).await?;
        let at = find(&last).ok_or_else(|| why("it is no part, or damaged"))?;
        let found = &last[at];
        let format = digits(found, BEGINNING.len()..BEGINNING.len() + 4, 10);
        if let Some(newer) = format.filter(|format| *format > FORMAT.into()) {
            let told = format!("its format {newer} is newer than {FORMAT}, the newest that this version reads");
            // Not damage: whoever tidies up must leave it alone.
            return Err(io::Error::new(io::ErrorKind::Unsupported, why(&told)));
        }
        let (len, crc) = fields(found).ok_or_else(|| why("it is damaged"))?;
        if !(LEAST..=size).contains(&len) {
            return Err(why("it is damaged"));
        }
        let start = size - len;
        let mut tail = file.read_at(len as usize, start).await?;
        let at = find(&tail).ok_or_else(|| why("it is damaged"))?;
        let open = line(len, 0);
        tail[at].copy_from_slice(open.as_bytes());
        if crc32c(&tail) != crc {
            return Err(why("its footer is damaged"));
        }
        Self::parse(&tail.into(), start, size, number).map_err(|error| why(&error.to_string()))
    }

    fn parse(tail: &Bytes, start: u64, size: u64, number: PartNumber) -> io::Result<Self> {
        let mut reader = ParquetMetaDataReader::new()
            .with_column_index_policy(PageIndexPolicy::Skip)
            .with_offset_index_policy(PageIndexPolicy::Required);
        reader.try_parse_sized(tail, size)?;
        let metadata = reader.finish()?;
        let about = metadata.file_metadata();
        if *about.schema() != schema::schema()? || metadata.num_row_groups() != 1 {
            return Err(invalid("its columns are not those of this version"));
        }
        let pairs = about.key_value_metadata().map_or(&[][..], Vec::as_slice);
        let value = |key: &str| {
            let pair = pairs.iter().find(|pair| pair.key == key);
            pair.and_then(|pair| pair.value.as_deref()).unwrap_or_default()
        };
        let written = value("zerohop.number");
        if written != number.0.to_string() {
            return Err(invalid(format!("it was written as part {written}")));
        }
        let mut forms = [Form::Plain, Form::Cold].into_iter();
        let form = forms.find(|form| form.name() == value("zerohop.form"));
        let sums = value("zerohop.crc32c")
            .split(' ')
            .map(|sum| u32::from_str_radix(sum, 16));
        let sums: Vec<_> = sums
            .collect::<Result<_, _>>()
            .map_err(|_| invalid("checksums that are none"))?;
        let form = form.filter(|_| sums.len() == Column::ALL.len());
        Ok(Self {
            form: form.ok_or_else(|| invalid("its footer lacks its own data"))?,
            metadata,
            start,
            sums,
        })
    }
}

/// Length and checksum as the line has them, if it is one as [`line`] writes it.
fn fields(found: &[u8]) -> Option<(u64, u32)> {
    let end = found.len();
    let len = digits(found, end - 27..end - 17, 10)?;
    let crc = u32::try_from(digits(found, end - 8..end, 16)?).ok()?;
    (found == line(len, crc).as_bytes()).then_some((len, crc))
}

fn digits(text: &[u8], at: Range<usize>, radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text.get(at)?).ok()?;
    u64::from_str_radix(text, radix).ok()
}
