//! Bodies of `/v1/embeddings` against serde_json: whether a body is JSON, and what an accepted one means.
//!
//! Invariant: an accepted request means what its document says, and has no empty input.

use zerohop::api::{VectorFormat, embeddings::embeddings};
use zerohop_engine::{Input, MAX_INPUTS};

use crate::{
    json::Json,
    requests::{self, clamped},
    same,
};

pub(crate) fn check(data: &[u8]) {
    for strict in [false, true] {
        let Some((request, json)) = requests::check(data, embeddings, strict) else {
            continue;
        };
        let text = |name: &str| json.get(name).and_then(Json::text);
        same("model", &Some(request.model.as_str()), &text("model"), data);
        let base64 = request.format == VectorFormat::Base64;
        same(
            "encoding_format",
            &base64,
            &(text("encoding_format") == Some("base64")),
            data,
        );
        let dimensions = json.get("dimensions").and_then(Json::float).map(clamped);
        same("dimensions", &request.dimensions, &dimensions, data);
        same("input", &request.inputs, &inputs(json.get("input")), data);
        assert!(!request.inputs.is_empty() && request.inputs.len() <= MAX_INPUTS);
    }
}

fn inputs(input: Option<&Json>) -> Vec<Input> {
    let Some(list) = input.and_then(Json::list) else {
        return input.map(one).into_iter().collect();
    };
    match list.first() {
        Some(Json::Number(_)) => vec![tokens(list)],
        _ => list.iter().map(one).collect(),
    }
}

fn one(item: &Json) -> Input {
    match (item.text(), item.list()) {
        (Some(text), _) if !text.is_empty() => Input::Text(text.to_owned()),
        (_, Some(list)) if !list.is_empty() => tokens(list),
        _ => panic!("accepted an input that is nothing: {item:?}"),
    }
}

fn tokens(list: &[Json]) -> Input {
    let id = |item: &Json| item.float().map_or_else(|| panic!("{item:?} is no token"), clamped);
    Input::Tokens(list.iter().map(id).collect())
}
