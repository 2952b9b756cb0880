//! Reads a part.
//!
//! It changes nothing. Invariant: a body that is returned is the one that was sealed at that place, whatever happened to the file
//! since; so are the columns of a row.

use std::{io, ops::Range};

use bytes::Bytes;
use parquet::{
    data_type::{ByteArrayType, DataType, FixedLenByteArrayType, Int32Type, Int64Type},
    file::metadata::ColumnChunkMetaData,
};

use super::{
    Form, Known, Row, WINDOW,
    chunk::{self, Chunk},
    damaged, invalid, open_value,
    schema::{self, Column},
    tail::Tail,
};
use crate::{
    files::{File, Files, Open},
    types::{Context, NEVER, PartNumber, Place, PromptHash, Usage},
};

/// What a file begins with.
const MAGIC: &[u8] = b"PAR1";
/// Bytes before each value of a plain page.
const PREFIX: u64 = 4;

/// A page of the body column.
#[derive(Debug, Clone, Copy)]
struct Page {
    /// Where it ends in the file, and where its header begins.
    end: u64,
    start: u64,
    first_row: usize,
}

/// A part that is open.
#[derive(Debug)]
pub struct Part<F> {
    file: F,
    number: PartNumber,
    form: Form,
    size: u64,
    rows: usize,
    columns: Vec<ColumnChunkMetaData>,
    sums: Vec<u32>,
    pages: Vec<Page>,
}

impl<F: File> Part<F> {
    /// Opens a part; footer and offset index are read, nothing else.
    ///
    /// # Errors
    /// What the files say; in one line `InvalidData` where it is no part, damaged or of another number, `Unsupported` where it is
    /// of a newer version.
    pub async fn open<D: Files<File = F>>(files: &D, number: PartNumber) -> io::Result<Self> {
        Self::open_file(files.open(&super::name(number), Open::Existing).await?, number).await
    }

    pub(super) async fn open_file(file: F, number: PartNumber) -> io::Result<Self> {
        let size = file.size().await?;
        let tail = Tail::read(&file, size, number).await?;
        let group = tail.metadata.row_group(0);
        let rows = usize::try_from(group.num_rows()).map_err(|_| invalid("a count of rows that is none"))?;
        let columns = group.columns().to_vec();
        let index = tail.metadata.page_index_for_row_group(0);
        let locations = index.offset_index(Column::Body as usize);
        let locations = locations.map_or(&[][..], |index| index.page_locations());
        let pages = locations.iter().map(|page| {
            let start = page.offset.cast_unsigned();
            Page {
                start,
                end: start + u64::from(page.compressed_page_size.cast_unsigned()),
                first_row: page.first_row_index as usize,
            }
        });
        let part = Self {
            number,
            form: tail.form,
            size,
            rows,
            pages: pages.collect(),
            columns,
            sums: tail.sums,
            file,
        };
        part.check_layout(tail.start)?;
        Ok(part)
    }

    /// Whether chunks and pages lie one behind the other and make up all of the file before its tail.
    fn check_layout(&self, tail: u64) -> io::Result<()> {
        let mut end = MAGIC.len() as u64;
        for column in Column::ALL {
            let range = self.range(column);
            if range.start != end {
                return Err(invalid("columns that do not follow one another"));
            }
            end = range.end;
        }
        let body = self.range(Column::Body);
        let follow = self
            .pages
            .windows(2)
            .all(|two| two[0].end == two[1].start && two[0].first_row < two[1].first_row);
        let first = self.pages.first().map(|page| (page.start, page.first_row));
        let last = self
            .pages
            .last()
            .is_some_and(|page| page.end == body.end && page.first_row < self.rows);
        if end != tail || first != Some((body.start, 0)) || !follow || !last {
            return Err(invalid("pages that do not follow one another"));
        }
        Ok(())
    }

    /// Its form.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> PartNumber {
        self.number
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows_count(&self) -> usize {
        self.rows
    }

    /// Size of its file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.size
    }

    /// Bytes of its file that bodies take, with the heads of their pages.
    pub(in crate::segment) fn body_chunk(&self) -> u64 {
        let range = self.range(Column::Body);
        range.end - range.start
    }

    /// Bytes that its columns have when nothing is compressed.
    pub(in crate::segment) fn plain_bytes(&self) -> u64 {
        let sizes = self.columns.iter().map(ColumnChunkMetaData::uncompressed_size);
        sizes.map(i64::unsigned_abs).sum()
    }

    /// Its file.
    #[must_use]
    pub fn file(&self) -> &F {
        &self.file
    }

    /// What the key columns say of each row, in order. Nothing of the bodies is read, only where they lie.
    ///
    /// # Errors
    /// What the file says; `InvalidData` where a column is damaged.
    pub async fn rows(&self) -> io::Result<Vec<Known>> {
        let places = self.places().await?;
        let models = self.column::<ByteArrayType>(Column::Model).await?;
        let tenants = self.column::<Int64Type>(Column::Tenant).await?;
        let prompts = self.column::<FixedLenByteArrayType>(Column::Prompt).await?;
        let contexts = self.column::<FixedLenByteArrayType>(Column::Context).await?;
        let created = self.column::<Int64Type>(Column::Created).await?;
        let (expires, expire) = self.chunk_values::<Int64Type>(Column::Expires).await?;
        let hits = self.column::<Int32Type>(Column::Hits).await?;
        let finishes = self.column::<ByteArrayType>(Column::Finish).await?;
        let prompt_tokens = self.column::<Int32Type>(Column::PromptTokens).await?;
        let completion_tokens = self.column::<Int32Type>(Column::CompletionTokens).await?;
        let generation = self.column::<Int32Type>(Column::GenerationMs).await?;

        let mut expires = expires.into_iter();
        let known = places.into_iter().enumerate().map(|(row, place)| {
            let model =
                std::str::from_utf8(models[row].data()).map_err(|_| invalid("a model's name that is no text"))?;
            Ok(Known {
                model: model.to_owned(),
                tenant: tenants[row].cast_unsigned(),
                prompt: PromptHash(fixed(prompts[row].data())?),
                context: Context(fixed(contexts[row].data())?),
                created: seconds(created[row])?,
                expires: match expire[row] {
                    0 => NEVER,
                    _ => seconds(expires.next().ok_or_else(|| invalid("a time is missing"))?)?,
                },
                hits: hits[row].cast_unsigned(),
                finish: schema::finish(finishes[row].data())?,
                usage: Usage {
                    prompt: prompt_tokens[row].cast_unsigned(),
                    completion: completion_tokens[row].cast_unsigned(),
                },
                generation_ms: generation[row].cast_unsigned(),
                place,
            })
        });
        known.collect()
    }

    /// The body at this place, decompressed where the part is cold.
    ///
    /// # Errors
    /// What the file says; `UnexpectedEof` for a place that is not of this part; else as [`open_value`].
    pub async fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        self.check_place(place)?;
        let bytes = self.file.read_at(place.len as usize, place.offset).await?;
        open_value(self.form, place, bytes)
    }

    /// These rows as they were sealed; their numbers ascend. All of the part's requests are in memory meanwhile.
    ///
    /// # Errors
    /// As [`Self::rows`] and [`Self::read`]; `InvalidInput` for a row that there is not, or out of order.
    pub async fn answers(&self, wanted: &[usize]) -> io::Result<Vec<Row>> {
        let ascend = wanted.windows(2).all(|two| two[0] < two[1]);
        if !ascend || wanted.last().is_some_and(|last| *last >= self.rows) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "rows that ascend are wanted",
            ));
        }
        let mut requests = self.requests().await?.into_iter();
        let mut known = self.rows().await?.into_iter();
        let mut values = self.values();
        let (mut rows, mut at) = (Vec::with_capacity(wanted.len()), 0);
        for row in wanted {
            let (request, known) = (requests.nth(row - at), known.nth(row - at));
            at = row + 1;
            let known = known.ok_or_else(|| invalid("a row is missing"))?;
            let body = values.get(known.place).await?;
            rows.push(known.into_row(request.flatten(), body));
        }
        Ok(rows)
    }

    /// Reads and checks all of it.
    ///
    /// # Errors
    /// The first thing that is not as it was sealed.
    pub async fn verify(&self) -> io::Result<()> {
        if self.file.read_at(MAGIC.len(), 0).await? != MAGIC {
            return Err(invalid("its beginning is damaged"));
        }
        for column in Column::ALL {
            if sum(&self.file, self.range(column)).await? != self.sums[column as usize] {
                return Err(invalid("a column is damaged"));
            }
        }
        self.requests().await?;
        let known = self.rows().await?;
        let mut values = self.values();
        for row in &known {
            values.get(row.place).await?;
        }
        Ok(())
    }

    /// Where the bodies lie, row by row.
    async fn places(&self) -> io::Result<Vec<Place>> {
        let sizes = self.column::<Int32Type>(Column::BodyBytes).await?;
        let crcs = self.column::<Int32Type>(Column::BodyCrc).await?;
        let prefix = match self.form {
            Form::Plain => PREFIX,
            Form::Cold => 0,
        };
        let mut places = Vec::with_capacity(self.rows);
        for (at, page) in self.pages.iter().enumerate() {
            let next = self.pages.get(at + 1).map_or(self.rows, |next| next.first_row);
            let rows = page.first_row..next;
            let sizes = sizes[rows.clone()].iter().map(|size| size.cast_unsigned());
            let total: u64 = sizes.clone().map(|size| prefix + u64::from(size)).sum();
            // The values are the end of the page; before them is its header.
            let start = page.end.checked_sub(total).filter(|start| *start > page.start);
            let fits = self.form == Form::Plain || rows.len() == 1;
            let mut offset = start
                .filter(|_| fits)
                .ok_or_else(|| invalid("a page that does not hold its values"))?;
            for (len, crc) in sizes.zip(&crcs[rows]) {
                places.push(Place {
                    part: self.number,
                    offset: offset + prefix,
                    len,
                    crc: crc.cast_unsigned(),
                });
                offset += prefix + u64::from(len);
            }
        }
        Ok(places)
    }

    /// The canonical requests, row by row.
    pub(super) async fn requests(&self) -> io::Result<Vec<Option<Vec<u8>>>> {
        let (values, kept) = self.chunk_values::<ByteArrayType>(Column::Request).await?;
        let mut values = values.into_iter();
        let request = |kept: &i16| match kept {
            0 => None,
            _ => values.next().map(|request| request.data().to_vec()),
        };
        Ok(kept.iter().map(request).collect())
    }

    /// Reads values in order, many at a time.
    pub(super) fn values(&self) -> Values<'_, F> {
        Values {
            part: self,
            base: 0,
            bytes: Bytes::new(),
        }
    }

    fn check_place(&self, place: Place) -> io::Result<()> {
        let body = self.range(Column::Body);
        let end = place.offset.saturating_add(place.len.into());
        if place.part != self.number || place.offset < body.start || end > body.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn range(&self, column: Column) -> Range<u64> {
        let (start, len) = self.columns[column as usize].byte_range();
        start..start.saturating_add(len)
    }

    /// The values of a column that each row has.
    async fn column<T: DataType>(&self, column: Column) -> io::Result<Vec<T::T>> {
        Ok(self.chunk_values::<T>(column).await?.0)
    }

    async fn chunk_values<T: DataType>(&self, column: Column) -> io::Result<(Vec<T::T>, Vec<i16>)> {
        let range = self.range(column);
        let bytes = self
            .file
            .read_at((range.end - range.start) as usize, range.start)
            .await?;
        let chunk = Chunk::checked(range.start, bytes, self.sums[column as usize])?;
        chunk::values::<T>(chunk, &self.columns[column as usize], self.rows)
    }
}

/// CRC-32C of a range.
pub(super) async fn sum<F: File>(file: &F, range: Range<u64>) -> io::Result<u32> {
    let (mut at, mut crc) = (range.start, 0);
    while at < range.end {
        let bytes = file.read_at((range.end - at).min(WINDOW as u64) as usize, at).await?;
        crc = crc32c::crc32c_append(crc, &bytes);
        at += bytes.len() as u64;
    }
    Ok(crc)
}

/// Reads values that lie one behind the other.
pub(super) struct Values<'p, F> {
    part: &'p Part<F>,
    base: u64,
    bytes: Bytes,
}

impl<F: File> Values<'_, F> {
    /// The body at this place, as [`Part::read`].
    pub(super) async fn get(&mut self, place: Place) -> io::Result<Vec<u8>> {
        self.part.check_place(place)?;
        let (end, len) = (place.offset + u64::from(place.len), place.len as usize);
        if place.offset < self.base || end > self.base + self.bytes.len() as u64 {
            let left = self.part.range(Column::Body).end - place.offset;
            let most = (len.max(WINDOW) as u64).min(left) as usize;
            self.bytes = self.part.file.read_at(most, place.offset).await?.into();
            self.base = place.offset;
        }
        let at = (place.offset - self.base) as usize;
        let bytes = self.bytes.get(at..at + len).ok_or_else(|| damaged(place))?;
        open_value(self.part.form, place, bytes.to_vec())
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> io::Result<[u8; N]> {
    bytes.try_into().map_err(|_| invalid("a hash of another length"))
}

fn seconds(millis: i64) -> io::Result<u32> {
    u32::try_from(millis / 1000).map_err(|_| invalid("a time that is none"))
}
