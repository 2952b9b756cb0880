//! Writes a part, verifies it, and only then gives it its name.
//!
//! It runs on the cache writer's thread. Invariant: a file with a part's name was read back whole, value by value, and synced
//! before it got that name; when anything fails, there is none.

use std::{
    io::{self, Write},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use crc32c::crc32c;
use parquet::{
    column::{
        page::{CompressedPage, PageWriteSpec, PageWriter},
        writer::{ColumnCloseResult, ColumnWriter, get_column_writer},
    },
    data_type::{ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type},
    errors::{ParquetError, Result},
    file::{
        properties::WriterPropertiesPtr,
        writer::{SerializedFileWriter, SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite},
    },
    schema::types::SchemaDescriptor,
};

use super::{
    Form, MOST_BODY, Part, Row, Sealed, WINDOW, invalid,
    read::sum,
    schema::{self, Column},
    tail,
};
use crate::{
    files::{File, Files, Open},
    types::{NEVER, PartNumber, Place},
};

/// Seals these rows, in their order, as the part of this number. The bodies of a cold part are in memory compressed meanwhile.
///
/// # Errors
/// `InvalidInput` for no rows, or text that is none or too long; `AlreadyExists`; what the files say; `InvalidData` if what was
/// written is not what is read back. No part is there then, unless not even removing it was possible.
pub async fn seal<D: Files>(files: &D, number: PartNumber, rows: Vec<Row>, form: Form) -> io::Result<Sealed> {
    check(&rows)?;
    let (name, unfinished) = (super::name(number), super::unfinished(number));
    match files.open(&name, Open::Existing).await {
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // What a crash left of it.
    match files.remove(&unfinished).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = files.open(&unfinished, Open::New).await?;
    let published = async {
        let sealed = make(file, number, &rows, form).await?;
        files.rename(&unfinished, &name).await?;
        files.sync_folder().await?;
        Ok(sealed)
    };
    let outcome = published.await;
    if outcome.is_err() {
        // Whichever name it has; that there is no such file is no news.
        let _ = files.remove(&unfinished).await;
        let _ = files.remove(&name).await;
    }
    outcome
}

fn check(rows: &[Row]) -> io::Result<()> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if rows.is_empty() || i32::try_from(rows.len()).is_err() {
        return refused("a part has at least one row, and less than 2^31");
    }
    for Row { answer, .. } in rows {
        let request = answer.request.as_deref().unwrap_or_default();
        for text in [&answer.body, request] {
            if text.len() > MOST_BODY {
                return refused("a body or request of more than 64 MiB");
            }
            if simdutf8::basic::from_utf8(text).is_err() {
                return refused("a body or request that is not UTF-8");
            }
        }
    }
    Ok(())
}

/// Writes the file and reads it back.
async fn make<F: File>(file: F, number: PartNumber, rows: &[Row], form: Form) -> io::Result<Sealed> {
    write(&file, number, rows, form).await?;
    file.sync().await?;
    let part = Part::open_file(file, number).await?;
    let places = compare(&part, rows).await?;
    Ok(Sealed {
        number,
        form: part.form(),
        places,
        bytes: part.bytes(),
    })
}

/// Reads back every value of every column; where the bodies lie.
async fn compare<F: File>(part: &Part<F>, rows: &[Row]) -> io::Result<Vec<Place>> {
    let other = || invalid("what was written is not what is read back");
    let (known, requests) = (part.rows().await?, part.requests().await?);
    if known.len() != rows.len() || requests.len() != rows.len() {
        return Err(other());
    }
    let mut values = part.values();
    for ((row, known), request) in rows.iter().zip(&known).zip(&requests) {
        let body = values.get(known.place).await?;
        if !known.is_of(row) || *request != row.answer.request || body != row.answer.body {
            return Err(other());
        }
    }
    Ok(known.into_iter().map(|known| known.place).collect())
}

async fn write<F: File>(file: &F, number: PartNumber, rows: &[Row], form: Form) -> io::Result<()> {
    let mut out = Out::new(file);
    let schema = Arc::new(schema::schema()?);
    let properties = Arc::new(schema::properties(form)?);
    let mut writer = SerializedFileWriter::new(out.sink.clone(), schema.clone(), properties.clone())?;
    let mut group = writer.next_row_group()?;
    keys(&mut group, rows)?;
    requests(&mut group, rows, &mut out).await?;
    let stored = match form {
        Form::Plain => plain(&mut group, rows, &mut out).await?,
        Form::Cold => cold(&mut group, rows, &SchemaDescriptor::new(schema), properties)?,
    };
    let sizes: Vec<_> = stored.iter().map(|stored| stored.size.cast_signed()).collect();
    let sums: Vec<_> = stored.iter().map(|stored| stored.crc.cast_signed()).collect();
    put::<Int32Type>(&mut group, &sizes, None)?;
    put::<Int32Type>(&mut group, &sums, None)?;
    group.close()?;
    writer.flush()?;
    out.write_all().await?;

    let columns = writer.flushed_row_groups().iter().flat_map(|group| group.columns());
    let mut sums = Vec::with_capacity(Column::ALL.len());
    for (start, len) in columns.map(|column| column.byte_range()) {
        sums.push(sum(file, start..start + len).await?);
    }
    for pair in tail::pairs(number, form, &sums) {
        writer.append_key_value_metadata(pair);
    }
    writer.finish()?;
    out.sink.with(|tail| tail::complete(tail))?;
    out.write_all().await
}

type Group<'a> = SerializedRowGroupWriter<'a, Sink>;

/// Writes the next column; `levels` are 1 where a row has a value, or absent if each has.
fn put<T: DataType>(group: &mut Group<'_>, values: &[T::T], levels: Option<&[i16]>) -> Result<()> {
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn no_column() -> ParquetError {
    ParquetError::General("there are fewer columns than are written".to_owned())
}

/// Writes the columns before the request.
fn keys(group: &mut Group<'_>, rows: &[Row]) -> Result<()> {
    let answers = || rows.iter().map(|row| &row.answer);
    let millis = |seconds: u32| i64::from(seconds) * 1000;
    let expires = || answers().map(|answer| answer.expires);
    let expire: Vec<_> = expires().map(|expires| i16::from(expires != NEVER)).collect();
    let expires: Vec<_> = expires().filter(|expires| *expires != NEVER).map(millis).collect();

    let words = |word: &dyn Fn(&Row) -> u32| rows.iter().map(|row| word(row).cast_signed()).collect::<Vec<i32>>();
    let hashes = |hash: &dyn Fn(&Row) -> Vec<u8>| {
        rows.iter()
            .map(|row| hash(row).into())
            .collect::<Vec<FixedLenByteArray>>()
    };
    let tenants: Vec<_> = answers().map(|answer| answer.tenant.cast_signed()).collect();
    let models: Vec<_> = answers().map(|answer| ByteArray::from(answer.model.as_str())).collect();
    let created: Vec<_> = answers().map(|answer| millis(answer.created)).collect();
    let finishes: Vec<_> = answers()
        .map(|answer| ByteArray::from(schema::finish_name(answer.finish)))
        .collect();

    put::<Int64Type>(group, &tenants, None)?;
    put::<ByteArrayType>(group, &models, None)?;
    put::<FixedLenByteArrayType>(group, &hashes(&|row| row.answer.prompt.0.to_vec()), None)?;
    put::<FixedLenByteArrayType>(group, &hashes(&|row| row.answer.context.0.to_vec()), None)?;
    put::<Int64Type>(group, &created, None)?;
    put::<Int64Type>(group, &expires, Some(&expire))?;
    put::<Int32Type>(group, &words(&|row| row.hits), None)?;
    put::<ByteArrayType>(group, &finishes, None)?;
    put::<Int32Type>(group, &words(&|row| row.answer.usage.prompt), None)?;
    put::<Int32Type>(group, &words(&|row| row.answer.usage.completion), None)?;
    put::<Int32Type>(group, &words(&|row| row.answer.generation_ms), None)
}

/// Writes the canonical requests.
async fn requests<F: File>(group: &mut Group<'_>, rows: &[Row], out: &mut Out<'_, F>) -> io::Result<()> {
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    for row in rows {
        let writer = column.typed::<ByteArrayType>();
        match &row.answer.request {
            Some(request) => writer.write_batch(&[ByteArray::from(request.clone())], Some(&[1]), None)?,
            None => writer.write_batch(&[], Some(&[0]), None)?,
        };
        out.write_windows().await?;
    }
    Ok(column.close()?)
}

/// A body as it lies in the file.
struct Stored {
    size: u32,
    crc: u32,
}

/// Writes the bodies as they are.
async fn plain<F: File>(group: &mut Group<'_>, rows: &[Row], out: &mut Out<'_, F>) -> io::Result<Vec<Stored>> {
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    let mut stored = Vec::with_capacity(rows.len());
    for row in rows {
        let body = &row.answer.body;
        // One by one: a page is cut behind a call.
        column
            .typed::<ByteArrayType>()
            .write_batch(&[ByteArray::from(body.clone())], None, None)?;
        stored.push(Stored {
            size: body.len() as u32,
            crc: crc32c(body),
        });
        out.write_windows().await?;
    }
    column.close()?;
    Ok(stored)
}

/// Writes the bodies, each as a page of its own that is compressed. They are gathered in memory, since what a page has become
/// is told by nobody but who writes it, and is needed for the columns that follow.
fn cold(
    group: &mut Group<'_>,
    rows: &[Row],
    columns: &SchemaDescriptor,
    properties: WriterPropertiesPtr,
) -> Result<Vec<Stored>> {
    let mut pages = TrackedWrite::new(Vec::new());
    let mut stored = Vec::with_capacity(rows.len());
    let watched = Watched {
        pages: SerializedPageWriter::new(&mut pages),
        stored: &mut stored,
    };
    let column = get_column_writer(columns.column(Column::Body as usize), properties, Box::new(watched));
    let closed = bodies(column, rows)?;
    group.append_column(&Bytes::from(pages.into_inner()?), closed)?;
    Ok(stored)
}

fn bodies(column: ColumnWriter<'_>, rows: &[Row]) -> Result<ColumnCloseResult> {
    let ColumnWriter::ByteArrayColumnWriter(mut column) = column else {
        return Err(no_column());
    };
    for row in rows {
        column.write_batch(&[ByteArray::from(row.answer.body.clone())], None, None)?;
    }
    column.close()
}

/// Sees what each page has become.
struct Watched<'a> {
    pages: SerializedPageWriter<'a, Vec<u8>>,
    stored: &'a mut Vec<Stored>,
}

impl PageWriter for Watched<'_> {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        self.stored.push(Stored {
            size: page.data().len() as u32,
            crc: crc32c(page.data()),
        });
        self.pages.write_page(page)
    }

    fn close(&mut self) -> Result<()> {
        self.pages.close()
    }
}

/// What the Parquet writer has made and the file does not have yet.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn with<T>(&self, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|made| made.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Brings it there, in writes of [`WINDOW`] that follow one another.
struct Out<'f, F> {
    file: &'f F,
    sink: Sink,
    buffer: Vec<u8>,
    at: u64,
}

impl<'f, F: File> Out<'f, F> {
    fn new(file: &'f F) -> Self {
        Self {
            file,
            sink: Sink::default(),
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// Writes what makes up whole windows.
    async fn write_windows(&mut self) -> io::Result<()> {
        if self.sink.with(|made| made.len()) < WINDOW {
            return Ok(());
        }
        let made = self.sink.with(mem::take);
        let whole = made.len() - made.len() % WINDOW;
        self.write(&made[..whole]).await?;
        let mut rest = made;
        rest.drain(..whole);
        self.sink.with(|made| *made = rest);
        Ok(())
    }

    /// Writes all of it.
    async fn write_all(&mut self) -> io::Result<()> {
        let made = self.sink.with(mem::take);
        self.write(&made).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for window in bytes.chunks(WINDOW) {
            let mut buffer = mem::take(&mut self.buffer);
            buffer.clear();
            buffer.extend_from_slice(window);
            let (outcome, buffer) = self.file.write_at(buffer, self.at).await;
            outcome?;
            self.buffer = buffer;
            self.at += window.len() as u64;
        }
        Ok(())
    }
}
