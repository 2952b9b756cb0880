//! `GET /v1/models` and `GET /v1/models/{id}`: one document that the clients of both vendors read.
//!
//! Only reads a query and writes. Invariant: a page is a contiguous part of the list, in the list's order.

use super::Writer;
use crate::{
    api::Dialect,
    date,
    error::{ApiError, ErrorKind},
};

/// A model as the documents tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCard {
    /// The name to ask for.
    pub id: String,
    /// The name to show.
    pub display_name: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's context in tokens.
    pub context: u32,
}

/// Which part of the list is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// At most this many, 1 to 1,000; `None`: all.
    pub limit: Option<usize>,
    /// Begin behind this id.
    pub after: Option<String>,
    /// End before this id.
    pub before: Option<String>,
}

impl Page {
    /// Entries of a page when the query does not say (Anthropic; OpenAI has no pages).
    const DEFAULT: usize = 20;

    /// Reads the query of the target, without its question mark. Parameters that are not about pages are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for a limit out of range and for both cursors at once.
    pub fn parse(query: &str, dialect: Dialect) -> Result<Self, ApiError> {
        let mut page = Self {
            limit: (dialect == Dialect::Anthropic).then_some(Self::DEFAULT),
            ..Self::default()
        };
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "limit" => page.limit = Some(limit(value)?),
                "after_id" => page.after = Some(decode(value)),
                "before_id" => page.before = Some(decode(value)),
                _ => {}
            }
        }
        if page.after.is_some() && page.before.is_some() {
            return Err(fault("after_id", "only one of after_id and before_id is allowed"));
        }
        Ok(page)
    }

    /// The part of `models` that is asked for, and whether there is more in the same direction.
    fn of<'a>(&self, models: &'a [ModelCard]) -> Result<(&'a [ModelCard], bool), ApiError> {
        let at = |name: &str, id: &str| {
            models
                .iter()
                .position(|model| model.id == id)
                .ok_or_else(|| fault(name, "no such model"))
        };
        let limit = self.limit.unwrap_or(usize::MAX);
        match (&self.after, &self.before) {
            (_, Some(before)) => {
                let models = &models[..at("before_id", before)?];
                let start = models.len().saturating_sub(limit);
                Ok((&models[start..], start > 0))
            }
            (after, None) => {
                let start = after
                    .as_deref()
                    .map_or(Ok(0), |after| at("after_id", after).map(|at| at + 1))?;
                let models = &models[start..];
                let end = models.len().min(limit);
                Ok((&models[..end], end < models.len()))
            }
        }
    }
}

fn fault(name: &str, what: &str) -> ApiError {
    ApiError::new(ErrorKind::InvalidRequest, format!("{name}: {what}")).at(name)
}

fn limit(value: &str) -> Result<usize, ApiError> {
    value
        .parse()
        .ok()
        .filter(|limit| (1..=1000).contains(limit))
        .ok_or_else(|| fault("limit", "Input should be a valid integer between 1 and 1000"))
}

/// A value of a query or a segment of a path without its percent signs; what is no valid escape, or no UTF-8 when
/// decoded, stays as it is (then no model has that name).
#[must_use]
pub fn decode(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let hex = hex.filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                out.push(decoded);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| value.into())
}

/// Writes the list.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if a cursor names no model; then nothing is written.
pub fn write_list(models: &[ModelCard], page: &Page, out: &mut Vec<u8>) -> Result<(), ApiError> {
    let (models, has_more) = page.of(models)?;
    Writer(out).raw(r#"{"object":"list","data":["#);
    for (index, model) in models.iter().enumerate() {
        Writer(out).raw(if index > 0 { "," } else { "" });
        write_model(model, out);
    }
    Writer(out)
        .raw(r#"],"has_more":"#)
        .raw(if has_more { "true" } else { "false" })
        .raw(r#","first_id":"#)
        .string_or_null(models.first().map(|model| model.id.as_str()))
        .raw(r#","last_id":"#)
        .string_or_null(models.last().map(|model| model.id.as_str()))
        .raw("}");
    Ok(())
}

/// Writes one model.
pub fn write_model(model: &ModelCard, out: &mut Vec<u8>) {
    Writer(out)
        .raw(r#"{"id":"#)
        .string(&model.id)
        .raw(r#","object":"model","created":"#)
        .number(model.created)
        .raw(r#","owned_by":"zerohop","type":"model","display_name":"#)
        .string(&model.display_name)
        .raw(r#","created_at":""#)
        .with(|out| date::rfc3339_seconds(out, model.created))
        .raw(r#"","lifecycle":"active","max_input_tokens":"#)
        .number(model.context)
        .raw(r#","max_tokens":"#)
        .number(model.context)
        .raw(r#","max_model_len":"#)
        .number(model.context)
        .raw(r#","capabilities":null,"line":null,"deprecated_at":null,"retires_at":null}"#);
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
