//! One column of a part, read as a whole, checked, and then decoded.
//!
//! It reads no file. Invariant: the Parquet reader is given bytes whose checksum holds, and sees no others.

use std::{io, sync::Arc};

use bytes::{Buf, Bytes, buf::Reader};
use parquet::{
    column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader},
    data_type::DataType,
    errors::{ParquetError, Result},
    file::{
        metadata::ColumnChunkMetaData,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
};

use super::invalid;

/// The bytes of a column, where they lie in the file.
pub(super) struct Chunk {
    start: u64,
    bytes: Bytes,
}

impl Chunk {
    /// The bytes that lie at `start`, if this is their checksum.
    pub(super) fn checked(start: u64, bytes: Vec<u8>, sum: u32) -> io::Result<Self> {
        if crc32c::crc32c(&bytes) != sum {
            return Err(invalid("a column is damaged"));
        }
        let bytes = bytes.into();
        Ok(Self { start, bytes })
    }

    fn behind(&self, start: u64) -> Result<Bytes> {
        let at = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| *at <= self.bytes.len());
        at.map(|at| self.bytes.slice(at..)).ok_or_else(beyond)
    }
}

fn beyond() -> ParquetError {
    ParquetError::EOF("beyond the column".to_owned())
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.behind(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut bytes = self.behind(start)?;
        if length > bytes.len() {
            return Err(beyond());
        }
        Ok(bytes.split_to(length))
    }
}

/// The values of a column of so many rows; where it is optional, which rows have one too (1, else 0).
pub(super) fn values<T: DataType>(
    chunk: Chunk,
    metadata: &ColumnChunkMetaData,
    rows: usize,
) -> io::Result<(Vec<T::T>, Vec<i16>)> {
    let decode = || -> Result<_> {
        let descriptor = metadata.column_descr_ptr();
        let optional = descriptor.max_def_level() > 0;
        let pages = SerializedPageReader::new(Arc::new(chunk), metadata, rows, None)?;
        let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(get_column_reader(descriptor, Box::new(pages)));
        let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::new());
        let mut read = 0;
        while read < rows {
            let levels = optional.then_some(&mut levels);
            let (records, ..) = reader.read_records(rows - read, levels, None, &mut values)?;
            if records == 0 {
                return Err(ParquetError::EOF("fewer rows than the footer says".to_owned()));
            }
            read += records;
        }
        Ok((values, levels))
    };
    decode().map_err(|error| invalid(error.to_string()))
}
