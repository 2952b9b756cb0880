//! How long masks take: `cargo run --release -p zerohop-engine --example grammar -- ROUNDS [TOKENIZER.JSON]`.
//!
//! Five schemas, each followed along an instance by the longest token that the mask allows, over vocabularies of 32,000
//! and 262,144 tokens: made up ones, or in place of the larger the given file. A line of JSON for each schema and
//! vocabulary: the median over the rounds of each step's time, in nanoseconds. `cargo xtask bench grammar` makes the table.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use serde_json::{Value, json};
use zerohop_engine::{Form, Grammars};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(9), |n| n.parse())?;
    let large = match arguments.next() {
        Some(path) => (path.clone(), std::fs::read(path)?),
        None => ("made up".to_owned(), tokenizer(262_144)),
    };
    for (name, tokenizer) in [("made up".to_owned(), tokenizer(32_000)), large] {
        let begun = Instant::now();
        let grammars = Grammars::new(&tokenizer, &[0])?;
        let load = begun.elapsed().as_nanos() as u64;
        for (schema, form, instance) in schemas() {
            let measured = measure(&grammars, &form, &instance, rounds)?;
            let mut line =
                json!({"schema": schema, "tokenizer": name, "vocabulary": grammars.vocabulary(), "load": load});
            line.as_object_mut().ok_or("an object")?.extend(measured);
            println!("{line}");
        }
    }
    Ok(())
}

/// Compile time, and the time of each mask along the instance: medians over the rounds, in nanoseconds.
fn measure(
    grammars: &Grammars,
    form: &Form,
    instance: &str,
    rounds: usize,
) -> Result<serde_json::Map<String, Value>, Failure> {
    let begun = Instant::now();
    drop(grammars.start(form, true)?);
    let compile = begun.elapsed().as_nanos() as u64;
    let mut steps: Vec<Vec<u64>> = Vec::new();
    for _ in 0..rounds {
        let mut walk = grammars.start(form, true)?.ok_or("the form binds")?;
        let mut rest = instance.as_bytes();
        for step in 0.. {
            let begun = Instant::now();
            let mask = walk.mask()?;
            let time = begun.elapsed().as_nanos() as u64;
            if steps.len() == step {
                steps.push(Vec::new());
            }
            steps[step].push(time);
            let token = longest(grammars, mask, rest)
                .ok_or_else(|| format!("stuck before {:?}", String::from_utf8_lossy(rest)))?;
            rest = &rest[grammars.bytes(token).len()..];
            if walk.commit(token) || rest.is_empty() {
                break;
            }
        }
    }
    let medians: Vec<u64> = steps
        .into_iter()
        .map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        })
        .collect();
    let Value::Object(measured) = json!({"compile": compile, "masks": medians}) else {
        return Err("an object".into());
    };
    Ok(measured)
}

/// The longest allowed token that the text begins with.
fn longest(grammars: &Grammars, mask: &[u32], text: &[u8]) -> Option<u32> {
    let ids = (0..grammars.vocabulary() as u32).filter(|&id| mask[id as usize / 32] >> (id % 32) & 1 == 1);
    let fit = ids.filter(|&id| !grammars.bytes(id).is_empty() && text.starts_with(grammars.bytes(id)));
    fit.max_by_key(|&id| grammars.bytes(id).len())
}

/// A tokenizer of so many tokens: the bytes, what JSON is made of, and made-up words with and without a blank.
fn tokenizer(size: usize) -> Vec<u8> {
    const SYLLABLES: [&str; 32] = [
        "an", "er", "in", "on", "al", "ti", "es", "re", "st", "ar", "en", "ro", "la", "co", "de", "ne", "li", "ra",
        "io", "ma", "si", "ch", "lo", "ho", "me", "pe", "ri", "to", "ca", "mo", "un", "is",
    ];
    let mut pieces: Vec<String> = ('\0'..='\u{1FF}')
        .filter(|&c| matches!(u32::from(c), 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF | 0x100..=0x143))
        .map(String::from)
        .collect();
    pieces.extend(
        [
            "\":\"", "\",\"", "\":", ",\"", "{\"", "\"}", "[\"", "\"]", "\":{\"", "\":[", "},{\"", "true", "false",
            "null",
        ]
        .map(String::from),
    );
    pieces.extend((10..1000).map(|n| n.to_string()));
    // Counted in base 32, one syllable a digit: short words first.
    let mut n = 0usize;
    while pieces.len() < size - 1 {
        let (mut word, mut digits) = (String::new(), n);
        loop {
            word.push_str(SYLLABLES[digits % 32]);
            digits /= 32;
            if digits == 0 {
                break;
            }
            digits -= 1;
        }
        // All syllables have two letters, so that no word comes twice.
        pieces.extend([word.clone(), format!("Ġ{word}"), word[..1].to_uppercase() + &word[1..]]);
        n += 1;
    }
    pieces.truncate(size - 1);
    let vocab: serde_json::Map<String, Value> = pieces
        .into_iter()
        .enumerate()
        .map(|(id, piece)| (piece, (id + 1).into()))
        .collect();
    let json = json!({
        "version": "1.0", "normalizer": null, "post_processor": null,
        "added_tokens": [{"id": 0, "content": "<end>", "special": true, "normalized": false, "single_word": false,
            "lstrip": false, "rstrip": false}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    json.to_string().into_bytes()
}

/// Name, form, and an instance in the schema's order.
fn schemas() -> [(&'static str, Form, String); 5] {
    let object = |schema: Value| Form::Schema(schema.to_string());
    let many = |item: &str, count: usize| vec![item; count].join(",");
    let person = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "age", "email", "tags"], "additionalProperties": false});
    let order = json!({"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object", "properties": {
        "kind": {"enum": ["book", "disc", "game", "tool"]}, "count": {"type": "integer", "minimum": 1, "maximum": 999},
        "price": {"type": "number"}, "gift": {"type": "boolean"}}, "required": ["kind", "count", "price", "gift"],
        "additionalProperties": false}}}, "required": ["items"], "additionalProperties": false});
    let dated = json!({"type": "array", "items": {"type": "object", "properties": {
        "at": {"type": "string", "format": "date-time"}, "id": {"type": "string", "format": "uuid"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}}, "required": ["at", "id", "code"],
        "additionalProperties": false}});
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["label", "children"], "additionalProperties": false}}});
    let leaf = r#"{"label":"a merinoal tree","children":[]}"#;
    [
        (
            "flat object",
            object(person),
            format!(
                r#"{{"name":"Lorica Mane","age":42,"email":"mane@example.org","tags":[{}]}}"#,
                many("\"stone horizon\"", 12)
            ),
        ),
        (
            "array of records",
            object(order),
            format!(
                r#"{{"items":[{}]}}"#,
                many(r#"{"kind":"game","count":17,"price":12.5,"gift":true}"#, 8)
            ),
        ),
        (
            "formats and a pattern",
            object(dated),
            format!(
                "[{}]",
                many(
                    r#"{"at":"2026-03-04T05:06:07Z","id":"01234567-89ab-4cde-8f01-23456789abcd","code":"AB-1234"}"#,
                    4
                )
            ),
        ),
        (
            "recursive tree",
            object(tree),
            format!(
                r#"{{"label":"root","children":[{},{{"label":"inner","children":[{}]}}]}}"#,
                many(leaf, 4),
                many(leaf, 4)
            ),
        ),
        (
            "any JSON object",
            Form::Object,
            format!(
                r#"{{"notes":[{}],"deep":{{"a":{{"b":[1,2.5,null,true]}}}}}}"#,
                many("\"mano rista, una riserva\"", 10)
            ),
        ),
    ]
}
