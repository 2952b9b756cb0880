//! `POST /v1/embeddings`: the body, to texts or tokens of which vectors are wanted.
//!
//! Read by the tape alone: what takes time with this request is the model. Invariant: an [`EmbedRequest`] has 1 to
//! [`MAX_INPUTS`] inputs, none of them empty; what cannot be honoured was refused.

use zerohop_engine::{Input, MAX_INPUTS};

use super::{
    Dialect, Scratch,
    fault::{Expected, Fault, Path, What},
    fields::{Field, Ignored, Neutral, Seen},
    names::Names,
    tape::{Items, Json, Value},
};
use crate::error::ApiError;

/// How a vector is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VectorFormat {
    /// A list of numbers.
    #[default]
    Float,
    /// 32-bit floating-point numbers, lowest byte first, as base64.
    Base64,
}

/// A request for vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedRequest {
    /// The model's name as the client wrote it.
    pub model: String,
    /// In order.
    pub inputs: Vec<Input>,
    /// Keep this many of a vector's numbers; at least 1.
    pub dimensions: Option<u32>,
    /// How vectors are written.
    pub format: VectorFormat,
}

/// The names that a body may have. What is not here is unknown.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Name {
    Model,
    Input,
    EncodingFormat,
    Dimensions,
    User,
    AddSpecialTokens,
    TruncatePromptTokens,
    Normalize,
}

static TOP: Names<Name, 8> = Names::new([
    ("model", Name::Model),
    ("input", Name::Input),
    ("encoding_format", Name::EncodingFormat),
    ("dimensions", Name::Dimensions),
    ("user", Name::User),
    ("add_special_tokens", Name::AddSpecialTokens),
    ("truncate_prompt_tokens", Name::TruncatePromptTokens),
    ("normalize", Name::Normalize),
]);

/// Reads the body. `strict` refuses unknown fields.
///
/// # Errors
/// [`crate::error::ErrorKind::InvalidRequest`] with the path of the first fault.
pub fn embeddings(body: &[u8], scratch: &mut Scratch, strict: bool) -> Result<(EmbedRequest, Ignored), ApiError> {
    scratch
        .with(body, |root, _| read(root, strict))
        .map_err(|fault| fault.into_error(Dialect::OpenAi))
}

fn read(root: Value<'_>, strict: bool) -> Result<(EmbedRequest, Ignored), Fault> {
    let (mut ignored, mut seen) = (Ignored::default(), Seen::default());
    let (mut model, mut inputs, mut dimensions, mut format) = (None, None, None, VectorFormat::default());
    for (key, value) in Field::new(root, &Path::Root).object()? {
        let path = Path::Root.key(key);
        let Some(name) = TOP.get(key) else {
            ignored.meet(&path, strict)?;
            continue;
        };
        seen.once(name as u8, &path)?;
        let Some(field) = Field::new(value, &path).present() else {
            continue;
        };
        match name {
            Name::Model => model = Some(field.model()?),
            Name::Input => inputs = Some(input(field)?),
            Name::EncodingFormat => format = encoding_format(field)?,
            Name::Dimensions => dimensions = Some(field.at_least(1)?),
            // A hint to the vendor's own service.
            Name::User => {}
            // Extensions of open servers: marks are always added, texts never cut, vectors always of length 1.
            Name::AddSpecialTokens | Name::Normalize => always(field)?,
            Name::TruncatePromptTokens => field.only(Neutral::Null)?,
        }
    }
    let missing = |name: &str| Path::Root.key(name).is(What::Missing);
    let request = EmbedRequest {
        model: model.ok_or_else(|| missing("model"))?,
        inputs: inputs.ok_or_else(|| missing("input"))?,
        dimensions,
        format,
    };
    Ok((request, ignored))
}

fn encoding_format(field: Field<'_, '_>) -> Result<VectorFormat, Fault> {
    const NAMES: &[&str] = &["float", "base64"];
    match field.str()? {
        "float" => Ok(VectorFormat::Float),
        "base64" => Ok(VectorFormat::Base64),
        other => Err(field.path.is(What::OneOf(NAMES, other.into()))),
    }
}

fn always(field: Field<'_, '_>) -> Result<(), Fault> {
    match field.bool()? {
        true => Ok(()),
        false => Err(field.path.is(What::ValueNotYet("false".into()))),
    }
}

/// A text, texts, tokens, or lists of tokens; the first item of a list says which.
fn input(field: Field<'_, '_>) -> Result<Vec<Input>, Fault> {
    match field.json {
        Json::Str(_) => Ok(vec![text(field)?]),
        Json::Array(items) => match { items }.next().map(Value::json) {
            None => Err(field.path.breaks("must not be empty")),
            Some(Json::Int(_) | Json::Float(_)) => Ok(vec![tokens(items, field.path)?]),
            Some(Json::Array(_)) => each(items, field.path, |item| tokens(item.array()?, item.path)),
            Some(_) => each(items, field.path, text),
        },
        _ => Err(field.path.is_not(Expected::Inputs, field.json)),
    }
}

fn each(
    items: Items<'_>,
    path: &Path<'_>,
    read: impl Fn(Field<'_, '_>) -> Result<Input, Fault>,
) -> Result<Vec<Input>, Fault> {
    if items.len() > MAX_INPUTS {
        return Err(path.breaks("must have at most 2048 entries"));
    }
    let items = items.enumerate();
    items
        .map(|(index, item)| read(Field::new(item, &path.index(index))))
        .collect()
}

fn text(field: Field<'_, '_>) -> Result<Input, Fault> {
    match field.text()? {
        "" => Err(field.path.breaks("must not be empty")),
        text => Ok(Input::Text(text.into())),
    }
}

/// Numbers beyond 32 bits become the largest, which no model has.
fn tokens(items: Items<'_>, path: &Path<'_>) -> Result<Input, Fault> {
    if items.len() == 0 {
        return Err(path.breaks("must not be empty"));
    }
    let ids = items
        .enumerate()
        .map(|(index, item)| Field::new(item, &path.index(index)).at_least(0));
    Ok(Input::Tokens(ids.collect::<Result<_, _>>()?))
}

#[cfg(test)]
#[path = "embeddings_tests.rs"]
mod tests;
