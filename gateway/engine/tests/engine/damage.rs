//! Model directories that do not fit: each fault is one line with its place and its remedy.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;
use zerohop_engine::{Model, ModelOptions, Provider, Runtime, inspect};

use crate::{
    skip::skipped,
    support::{model_dir, runtime},
};

/// A copy of the bundled model that a test may damage.
pub(crate) struct Copy(pub(crate) PathBuf);

impl Copy {
    fn folder() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("zerohop-model-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        Self(dir)
    }

    pub(crate) fn new() -> Self {
        let copy = Self::folder();
        for file in ["model.onnx", "tokenizer.json", "config.json", "chat_template.jinja"] {
            fs::copy(model_dir().join(file), copy.0.join(file)).expect("a copy");
        }
        copy
    }

    /// A copy of the files in `dir`, folders left out.
    pub(crate) fn of(dir: &Path) -> Self {
        let copy = Self::folder();
        for entry in fs::read_dir(dir).expect("a folder") {
            let entry = entry.expect("an entry");
            if entry.path().is_file() {
                fs::copy(entry.path(), copy.0.join(entry.file_name())).expect("a copy");
            }
        }
        copy
    }

    pub(crate) fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(file), content).expect("a file");
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.0.join(file)).expect("a file");
    }

    fn edit_json(&self, file: &str, edit: impl FnOnce(&mut Value)) {
        let text = fs::read(self.0.join(file)).expect("a file");
        let mut value = serde_json::from_slice(&text).expect("JSON");
        edit(&mut value);
        self.write(file, value.to_string());
    }

    pub(crate) fn config(&self, key: &str, value: impl Into<Value>) {
        self.edit_json("config.json", |config| config[key] = value.into());
    }

    pub(crate) fn no_config(&self, key: &str) {
        self.edit_json("config.json", |config| {
            config.as_object_mut().expect("an object").remove(key);
        });
    }

    /// Replaces bytes of the graph by as many others.
    fn edit_graph(&self, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.0.join("model.onnx")).expect("a file");
        edit(&mut bytes);
        self.write("model.onnx", bytes);
    }

    fn rename(&self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        self.edit_graph(|bytes| {
            let places = find(bytes, from.as_bytes());
            assert!(!places.is_empty());
            for at in places {
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            }
        });
    }

    /// Replaces the first occurrence only: nodes come before inputs and outputs.
    fn first(&self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        self.edit_graph(|bytes| {
            let at = find(bytes, from.as_bytes())[0];
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        });
    }

    /// Declares another element type (onnx.proto: 1 f32, 6 i32, 7 i64) for an input or output.
    fn retype(&self, name: &str, from: u8, to: u8) {
        self.edit_graph(|bytes| {
            // ValueInfoProto: name = 1, type = 2 { tensor_type = 1 { elem_type = 1 … } }, all lengths below 128.
            let pattern = [&[0x0A, name.len() as u8], name.as_bytes(), &[0x12]].concat();
            let place = find(bytes, &pattern)
                .into_iter()
                .map(|at| at + pattern.len() + 3)
                .find(|&at| bytes[at..][..2] == [0x08, from]);
            bytes[place.expect("its declaration") + 1] = to;
        });
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Vec<usize> {
    bytes
        .windows(part.len())
        .enumerate()
        .filter(|(_, window)| window == &part)
        .map(|(at, _)| at)
        .collect()
}

fn problems(runtime: &Runtime, dir: &Path) -> Vec<String> {
    let report = inspect(runtime, dir);
    let loaded = Model::load(runtime, dir, &ModelOptions::default());
    let first = loaded.err().map(|problem| problem.to_string());
    let lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert_eq!(first.as_ref(), lines.first(), "loading and inspecting agree");
    assert_eq!(report.fits(), lines.is_empty());
    for line in &lines {
        assert!(
            !line.contains('\n') && line.contains("; "),
            "one line with a remedy: {line}"
        );
        assert!(report.to_string().contains(line));
    }
    lines
}

type Damage = (&'static str, fn(&Copy), &'static [&'static str]);

/// What is done, and what the problems must say, in order.
const DAMAGES: &[Damage] = &[
    ("nothing", |_| {}, &[]),
    (
        "no graph",
        |c| c.remove("model.onnx"),
        &["model.onnx: no such file; a model directory needs it"],
    ),
    (
        "an empty graph",
        |c| c.write("model.onnx", ""),
        &["model.onnx: not an ONNX model, or cut short; fetch"],
    ),
    (
        "no graph at all",
        |c| c.write("model.onnx", "hello"),
        &["model.onnx: not an ONNX model, or cut short"],
    ),
    (
        "half a graph",
        |c| c.edit_graph(|b| b.truncate(b.len() / 2)),
        &["model.onnx: not an ONNX model, or cut short"],
    ),
    (
        "one byte less",
        |c| c.edit_graph(|b| b.truncate(b.len() - 1)),
        &["model.onnx: not an ONNX model, or cut short"],
    ),
    (
        "an unknown operator",
        |c| c.rename("GroupQueryAttention", "GroupQueryAttentioN"),
        &["model.onnx: ONNX Runtime"],
    ),
    (
        "an input by another name",
        |c| c.rename("logit_rows", "logit_rowz"),
        &[
            "input `logit_rows` is missing",
            "input `logit_rowz` is not part of the contract",
        ],
    ),
    (
        "an output by another name",
        |c| c.rename("present.1.value", "present.1.valuE"),
        &[
            "output `present.1.value` is missing",
            "output `present.1.valuE` is not part of the contract",
        ],
    ),
    (
        "an input of another type",
        |c| c.retype("logit_rows", 7, 6),
        &["input `logit_rows` must be i64, is i32"],
    ),
    (
        "a layer that reads the keys of another",
        |c| c.first("past.1.key", "past.2.key"),
        &["model.onnx: a trial run at position 1 of 2048 failed: a prompt in pieces"],
    ),
    (
        "keys and values of another size",
        |c| c.rename("past.0.key", "past.9.key"),
        &["input `past.0.key`"],
    ),
    (
        "no tokenizer",
        |c| c.remove("tokenizer.json"),
        &["tokenizer.json: no such file"],
    ),
    (
        "a tokenizer that is not JSON",
        |c| c.write("tokenizer.json", "{"),
        &["tokenizer.json: not JSON: "],
    ),
    (
        "no tokenizer in it",
        |c| c.write("tokenizer.json", "{}"),
        &["tokenizer.json: it has no decoder"],
    ),
    (
        "a tokenizer without its model",
        |c| c.edit_json("tokenizer.json", |t| t["model"] = Value::Null),
        &["tokenizer.json: not a tokenizer: "],
    ),
    (
        "another model's tokenizer",
        |c| {
            c.edit_json("tokenizer.json", |t| {
                t["model"]["merges"] = Value::Array(Vec::new());
                t["model"]["vocab"]
                    .as_object_mut()
                    .expect("a vocabulary")
                    .retain(|_, id| id.as_u64() < Some(300));
            });
        },
        &["tokenizer.json: has 300 tokens, but `vocab_size` in config.json is 2048"],
    ),
    (
        "no configuration",
        |c| c.remove("config.json"),
        &["config.json: no such file"],
    ),
    (
        "a configuration that is not JSON",
        |c| c.write("config.json", "vocab"),
        &["config.json: not a model's config"],
    ),
    (
        "a number that is text",
        |c| c.config("vocab_size", "2048"),
        &["config.json: not a model's config"],
    ),
    (
        "no vocabulary",
        |c| c.no_config("vocab_size"),
        &["config.json: `vocab_size` is missing"],
    ),
    (
        "no context",
        |c| c.no_config("max_position_embeddings"),
        &["`max_position_embeddings` is missing"],
    ),
    (
        "no end",
        |c| c.no_config("eos_token_id"),
        &["config.json: `eos_token_id` is missing"],
    ),
    (
        "a context of none",
        |c| c.config("max_position_embeddings", 0),
        &["`max_position_embeddings` is 0, not 2 to"],
    ),
    (
        "a context beyond the graph's positions",
        |c| c.config("max_position_embeddings", 100_000),
        &["model.onnx: a trial run at position 99999 of 100000 failed: "],
    ),
    (
        "other layers",
        |c| c.config("num_hidden_layers", 9),
        &["`num_hidden_layers` is 9, but model.onnx has"],
    ),
    (
        "other heads",
        |c| c.config("head_dim", 8),
        &["`head_dim` is 8, but model.onnx has"],
    ),
    (
        "another vocabulary",
        |c| c.config("vocab_size", 2047),
        &[
            "`vocab_size` is 2047, but model.onnx has 2048",
            "tokenizer.json: has 2048 tokens, but `vocab_size`",
        ],
    ),
    (
        "an end that is no token",
        |c| c.config("eos_token_id", 9999),
        &["`eos_token_id` 9999 is no token of"],
    ),
    (
        "no template",
        |c| c.remove("chat_template.jinja"),
        &["chat_template.jinja: no such file, and no `chat_template`"],
    ),
    (
        "a template in the tokenizer's configuration",
        |c| {
            let template = fs::read_to_string(c.0.join("chat_template.jinja")).expect("a file");
            c.remove("chat_template.jinja");
            c.write(
                "tokenizer_config.json",
                serde_json::json!({"chat_template": template}).to_string(),
            );
        },
        &[],
    ),
    (
        "a broken tokenizer configuration",
        |c| c.write("tokenizer_config.json", "[]"),
        &["tokenizer_config.json: not a tokenizer's config"],
    ),
    (
        "a template with a fault",
        |c| c.write("chat_template.jinja", "a\n{% if %}"),
        &["chat_template.jinja: ", "line 2"],
    ),
    (
        "a template that is not text",
        |c| c.write("chat_template.jinja", [0xFF]),
        &["chat_template.jinja: not UTF-8"],
    ),
    (
        "a template that refuses",
        |c| c.write("chat_template.jinja", "{{ raise_exception('no') }}"),
        &["chat_template.jinja: refuses a greeting: no"],
    ),
    (
        "a template that says nothing",
        |c| c.write("chat_template.jinja", ""),
        &["chat_template.jinja: gives an empty prompt"],
    ),
    (
        "everything",
        |c| {
            c.rename("logit_rows", "logit_rowz");
            c.remove("tokenizer.json");
            c.no_config("eos_token_id");
            c.write("chat_template.jinja", "{% if %}");
        },
        &[
            "`logit_rows`",
            "`logit_rowz`",
            "`eos_token_id`",
            "tokenizer.json",
            "chat_template.jinja",
        ],
    ),
];

#[test]
fn each_fault_is_named() {
    let name = "each_fault_is_named";
    let Some(runtime) = runtime(name) else { return };
    if !model_dir().join("model.onnx").is_file() {
        skipped(name, &format!("no model in {}", model_dir().display()));
        return;
    }
    for (what, damage, want) in DAMAGES {
        let copy = Copy::new();
        damage(&copy);
        let lines = problems(&runtime, &copy.0);
        let all = lines.join("\n");
        assert_eq!(lines.is_empty(), want.is_empty(), "{what}: {all}");
        let mut rest = all.as_str();
        for part in *want {
            let Some(at) = rest.find(part) else {
                panic!("{what}: {part:?} is missing in {rest:?} of:\n{all}")
            };
            rest = &rest[at + part.len()..];
        }
    }
    let missing = model_dir().join("no/such/folder");
    assert!(problems(&runtime, &missing)[0].contains("no such folder; give the path of a model directory"));
}

#[test]
fn providers() {
    let Some(runtime) = runtime("providers") else { return };
    let load = |provider| {
        let options = ModelOptions {
            provider,
            ..ModelOptions::default()
        };
        Model::load(&runtime, &model_dir(), &options)
    };
    let has_cuda = runtime
        .path()
        .with_file_name("libonnxruntime_providers_cuda.so")
        .is_file();
    let error = load(Provider::Cuda).expect_err("the model is for the CPU").to_string();
    let words = match has_cuda {
        false => "provider cuda cannot be had: no libonnxruntime_providers_cuda.so beside ",
        // Without libraries or a device; and with them, the model's own fault.
        true if error.contains("cannot be had") => "provider cuda cannot be had: no ",
        true => "keys and values are f32, and attention on CUDA takes f16",
    };
    assert!(error.contains(words) && error.contains("; "), "{error}");
    if !model_dir().join("model.onnx").is_file() {
        skipped("providers", "no model for the other providers");
        return;
    }
    assert_eq!(load(Provider::Cpu).expect("loads").provider(), "cpu, as configured");
    let auto = load(Provider::Auto).expect("loads");
    assert!(auto.provider().starts_with("cpu: "), "says why: {}", auto.provider());
    assert_eq!(auto.version().len(), 12);
}
