//! The version of a model: a hash over its graph and the data files that the graph refers to.
//!
//! It reads just enough of the ONNX format (protocol buffers) to find the names of those files and never interprets a
//! tensor. Invariant: equal versions mean equal weights; a file that is missing or leaves the directory is a problem.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::{Component, Path},
};

use sha2::{Digest, Sha256};

use super::problem::{Problem, read, reason};

/// Hexadecimal digits of a version.
const VERSION_DIGITS: usize = 12;

/// The version of `dir/model.onnx` with its external data.
pub(crate) fn version(dir: &Path) -> Result<String, Problem> {
    let path = dir.join("model.onnx");
    let graph = read(&path, "the model's graph")?;
    let damaged = || {
        Problem::new(
            &path,
            "not an ONNX model, or cut short",
            "fetch or export the model again",
        )
    };
    let files = external_files(&graph).ok_or_else(damaged)?;
    let mut hash = Sha256::new();
    hash.update(&graph);
    drop(graph);
    for file in files {
        let relative = Path::new(&file);
        let inside = relative
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside {
            let what = format!("refers to weights outside its folder: {file}");
            return Err(Problem::new(&path, what, "export the model with its data beside it"));
        }
        let data = dir.join(relative);
        add_file(&data, &mut hash).map_err(|error| {
            let remedy = "model.onnx refers to it for its weights: put it beside model.onnx";
            Problem::new(&data, reason(&error), remedy)
        })?;
    }
    let mut version: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    version.truncate(VERSION_DIGITS);
    Ok(version)
}

fn add_file(path: &Path, hash: &mut Sha256) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            n => hash.update(&buffer[..n]),
        }
    }
}

// Field numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.external_data,
// StringStringEntryProto.key and .value.
const GRAPH: u64 = 7;
const INITIALIZER: u64 = 5;
/// GraphProto.input, ValueInfoProto.name.
const INPUT: u64 = 11;
const NAME: u64 = 1;
const EXTERNAL_DATA: u64 = 13;
const KEY: u64 = 1;
const VALUE: u64 = 2;

/// The names of the graph's inputs. `None`: not a well-formed message with a graph.
pub(crate) fn inputs(model: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut has_graph = false;
    for graph in messages(model, GRAPH) {
        has_graph = true;
        for input in messages(graph?, INPUT) {
            names.push(text(input?, NAME)??.to_owned());
        }
    }
    has_graph.then_some(names)
}

/// The data files of the graph's initializers. `None`: not a well-formed message with a graph.
fn external_files(model: &[u8]) -> Option<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    let mut has_graph = false;
    for graph in messages(model, GRAPH) {
        has_graph = true;
        for tensor in messages(graph?, INITIALIZER) {
            for entry in messages(tensor?, EXTERNAL_DATA) {
                let entry = entry?;
                if text(entry, KEY)? == Some("location") {
                    files.insert(text(entry, VALUE)??.to_owned());
                }
            }
        }
    }
    has_graph.then_some(files)
}

/// The last field `number` of a message, as text.
fn text(message: &[u8], number: u64) -> Option<Option<&str>> {
    let mut found = None;
    for field in messages(message, number) {
        found = Some(std::str::from_utf8(field?).ok()?);
    }
    Some(found)
}

/// The length-delimited fields `number` of a message; `None` once where it is malformed.
fn messages(message: &[u8], number: u64) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(message);
    std::iter::from_fn(move || {
        loop {
            let bytes = rest.take().filter(|bytes| !bytes.is_empty())?;
            let Some((field, value, behind)) = field(bytes) else {
                return Some(None);
            };
            rest = Some(behind);
            if field == number
                && let Some(value) = value
            {
                return Some(Some(value));
            }
        }
    })
}

/// A field's number, its bytes if it is length-delimited, and what follows.
#[allow(clippy::type_complexity)]
fn field(bytes: &[u8]) -> Option<(u64, Option<&[u8]>, &[u8])> {
    let (tag, rest) = varint(bytes)?;
    let number = tag >> 3;
    match tag & 7 {
        0 => Some((number, None, varint(rest)?.1)),
        1 => Some((number, None, rest.get(8..)?)),
        2 => {
            let (len, rest) = varint(rest)?;
            let (value, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            Some((number, Some(value), rest))
        }
        5 => Some((number, None, rest.get(4..)?)),
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7F).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(number: u64, body: &[u8]) -> Vec<u8> {
        assert!(body.len() < 128);
        [&[(number << 3 | 2) as u8, body.len() as u8], body].concat()
    }

    #[test]
    fn finds_external_files() {
        let entry = |key: &str, value: &str| {
            tagged(
                EXTERNAL_DATA,
                &[tagged(KEY, key.as_bytes()), tagged(VALUE, value.as_bytes())].concat(),
            )
        };
        let tensor = |file: &str| {
            tagged(
                INITIALIZER,
                &[vec![0x08, 0x96, 0x01], entry("location", file), entry("offset", "7")].concat(),
            )
        };
        let whole = tagged(GRAPH, &[tensor("b.data"), tensor("a.data"), tensor("b.data")].concat());
        let files = external_files(&whole).expect("well-formed");
        assert_eq!(files.into_iter().collect::<Vec<_>>(), ["a.data", "b.data"]);
        for cut in 1..whole.len() {
            assert_eq!(external_files(&whole[..cut]), None, "cut at {cut}");
        }
        assert_eq!(external_files(b""), None, "no graph");
        assert_eq!(external_files(b"garbage, no model"), None);
    }

    #[test]
    fn finds_inputs() {
        let input = |name: &str| tagged(INPUT, &tagged(NAME, name.as_bytes()));
        let whole = tagged(GRAPH, &[input("input_ids"), input("past.0.key")].concat());
        let names = inputs(&whole).expect("well-formed");
        assert_eq!(names, ["input_ids", "past.0.key"]);
        assert_eq!(inputs(&whole[..whole.len() - 1]), None, "cut short");
        assert_eq!(inputs(b""), None, "no graph");
    }

    #[test]
    fn weights_beside_the_graph_count() {
        let dir = std::env::temp_dir().join(format!("zerohop-weights-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let refer = |file: &str| {
            let location = [tagged(KEY, b"location"), tagged(VALUE, file.as_bytes())].concat();
            let graph = tagged(GRAPH, &tagged(INITIALIZER, &tagged(EXTERNAL_DATA, &location)));
            std::fs::write(dir.join("model.onnx"), graph).expect("a file");
            version(&dir).map_err(|problem| problem.to_string())
        };
        let missing = refer("a.data").expect_err("no such file");
        assert!(
            missing.contains("a.data: no such file; model.onnx refers to it"),
            "{missing}"
        );
        for outside in ["../a.data", "/etc/passwd"] {
            let error = refer(outside).expect_err("outside");
            assert!(error.contains("outside its folder"), "{error}");
        }
        let mut versions = BTreeSet::new();
        for content in ["one", "two"] {
            std::fs::write(dir.join("a.data"), content).expect("a file");
            versions.insert(refer("a.data").expect("complete"));
        }
        assert!(
            versions.len() == 2 && versions.iter().all(|v| v.len() == VERSION_DIGITS),
            "{versions:?}"
        );
        std::fs::remove_dir_all(&dir).expect("removable");
    }
}
