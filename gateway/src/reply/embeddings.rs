//! The shape of `/v1/embeddings`: a list of vectors, in the order of the inputs.
//!
//! Only writes. Invariant: a number that is written as text reads back as the same 32 bits.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::ReplyMeta;
use crate::{api::VectorFormat, json::Writer};

/// About how many bytes a number takes, with its comma: a sign and up to nine digits; in base64 four thirds of four.
const FLOAT_BYTES: usize = 13;
const BASE64_BYTES: usize = 6;
/// What surrounds a vector.
const AROUND: usize = 64;

/// About how many bytes the reply to so many inputs has.
#[must_use]
pub fn size_of_reply(inputs: usize, numbers: usize, format: VectorFormat) -> usize {
    let each = match format {
        VectorFormat::Float => FLOAT_BYTES,
        VectorFormat::Base64 => BASE64_BYTES,
    };
    inputs.saturating_mul(numbers.saturating_mul(each) + AROUND)
}

/// The document.
pub(super) fn document(
    meta: &ReplyMeta,
    vectors: &[Vec<f32>],
    format: VectorFormat,
    input_tokens: u32,
    out: &mut Vec<u8>,
) {
    let numbers = vectors.first().map_or(0, Vec::len);
    out.reserve(size_of_reply(vectors.len(), numbers, format));
    Writer(out).raw(r#"{"object":"list","data":["#);
    let mut bytes = Vec::new();
    for (index, vector) in vectors.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        Writer(out)
            .raw(comma)
            .raw(r#"{"object":"embedding","index":"#)
            .number(index as u64)
            .raw(r#","embedding":"#);
        match format {
            VectorFormat::Float => floats(vector, out),
            VectorFormat::Base64 => {
                bytes.clear();
                bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
                Writer(out).raw("\"").raw(STANDARD.encode(&bytes)).raw("\"");
            }
        }
        out.push(b'}');
    }
    Writer(out)
        .raw(r#"],"model":"#)
        .string(&meta.model)
        .raw(r#","usage":{"prompt_tokens":"#)
        .number(input_tokens)
        .raw(r#","total_tokens":"#)
        .number(input_tokens)
        .raw("}}");
}

/// The shortest digits that read back as the same number.
fn floats(vector: &[f32], out: &mut Vec<u8>) {
    let mut buffer = zmij::Buffer::new();
    out.push(b'[');
    for (index, number) in vector.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // The engine promises finite numbers.
        out.extend_from_slice(buffer.format_finite(*number).as_bytes());
    }
    out.push(b']');
}
