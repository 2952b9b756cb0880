//! The columns of a part: names and types as other programs see them, and how each is written.
//!
//! Plain values, no I/O. Invariant: a file is read only if its columns are exactly these.

use std::{io, sync::Arc};

use parquet::{
    basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties, WriterVersion},
    schema::types::{ColumnPath, Type},
};

use super::{Form, invalid};
use crate::types::FinishReason;

/// The columns, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Tenant,
    Model,
    Prompt,
    Context,
    Created,
    Expires,
    Hits,
    Finish,
    PromptTokens,
    CompletionTokens,
    GenerationMs,
    Request,
    Body,
    BodyBytes,
    BodyCrc,
}

impl Column {
    pub(super) const ALL: [Self; 15] = [
        Self::Tenant,
        Self::Model,
        Self::Prompt,
        Self::Context,
        Self::Created,
        Self::Expires,
        Self::Hits,
        Self::Finish,
        Self::PromptTokens,
        Self::CompletionTokens,
        Self::GenerationMs,
        Self::Request,
        Self::Body,
        Self::BodyBytes,
        Self::BodyCrc,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant_ns",
            Self::Model => "model",
            Self::Prompt => "prompt_hash",
            Self::Context => "context_fingerprint",
            Self::Created => "created_at",
            Self::Expires => "expires_at",
            Self::Hits => "hits",
            Self::Finish => "finish_reason",
            Self::PromptTokens => "prompt_tokens",
            Self::CompletionTokens => "completion_tokens",
            Self::GenerationMs => "generation_ms",
            Self::Request => "request",
            Self::Body => "body",
            Self::BodyBytes => "body_bytes",
            Self::BodyCrc => "body_crc32c",
        }
    }

    fn path(self) -> ColumnPath {
        ColumnPath::from(self.name())
    }

    fn field(self) -> Result<Type, ParquetError> {
        let unsigned = |bits| Some(LogicalType::integer(bits, false));
        let moment = Some(LogicalType::timestamp(true, TimeUnit::MILLIS));
        let (physical, logical, len) = match self {
            Self::Tenant => (Physical::INT64, unsigned(64), -1),
            Self::Created | Self::Expires => (Physical::INT64, moment, -1),
            Self::Prompt => (Physical::FIXED_LEN_BYTE_ARRAY, None, 32),
            Self::Context => (Physical::FIXED_LEN_BYTE_ARRAY, None, 16),
            Self::Model | Self::Finish | Self::Request | Self::Body => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), -1)
            }
            Self::Hits
            | Self::PromptTokens
            | Self::CompletionTokens
            | Self::GenerationMs
            | Self::BodyBytes
            | Self::BodyCrc => (Physical::INT32, unsigned(32), -1),
        };
        // Nothing stands for "never" and "not kept".
        let repetition = match self {
            Self::Expires | Self::Request => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        Type::primitive_type_builder(self.name(), physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_length(len)
            .build()
    }
}

/// All columns.
pub(super) fn schema() -> Result<Type, ParquetError> {
    let fields = Column::ALL.into_iter().map(|column| column.field().map(Arc::new));
    Type::group_type_builder("answers")
        .with_fields(fields.collect::<Result<_, _>>()?)
        .build()
}

/// How the columns are written.
pub(super) fn properties(form: Form) -> Result<WriterProperties, ParquetError> {
    let body = Column::Body.path();
    let mut properties = WriterProperties::builder()
        // Pages of version 2 have a part that is never compressed.
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(format!("zerohop {}", env!("CARGO_PKG_VERSION")))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_column_statistics_enabled(body.clone(), EnabledStatistics::None)
        .set_column_statistics_enabled(Column::Request.path(), EnabledStatistics::None)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_column_compression(Column::Request.path(), Compression::ZSTD(ZstdLevel::try_new(3)?));
    for column in [Column::Model, Column::Finish] {
        properties = properties.set_column_dictionary_enabled(column.path(), true);
    }
    for column in [Column::Prompt, Column::Context, Column::BodyCrc] {
        properties = properties.set_column_compression(column.path(), Compression::UNCOMPRESSED);
    }
    let properties = match form {
        Form::Plain => properties
            .set_column_compression(body.clone(), Compression::UNCOMPRESSED)
            .set_column_data_page_size_limit(body.clone(), 64 << 10)
            .set_column_data_page_row_count_limit(body, 64),
        Form::Cold => properties
            .set_column_compression(body.clone(), Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_column_data_page_row_count_limit(body, 1),
    };
    Ok(properties.build())
}

/// How the column says it.
pub(super) fn finish_name(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "stop",
        FinishReason::StopSequence => "stop_sequence",
        FinishReason::Tools => "tools",
        FinishReason::Length => "length",
    }
}

/// What the column says.
pub(super) fn finish(name: &[u8]) -> io::Result<FinishReason> {
    use FinishReason::{Length, Stop, StopSequence, Tools};
    let mut all = [Stop, StopSequence, Tools, Length].into_iter();
    let found = all.find(|finish| finish_name(*finish).as_bytes() == name);
    found.ok_or_else(|| invalid("a finish reason that is none"))
}
