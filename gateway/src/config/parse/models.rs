//! `models`: what is served, and under which names.
//!
//! Loads no model. Invariant: a name means one model.

use std::{collections::HashMap, ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    super::{
        Backend, Model, ModelPath, Onnx, Provider,
        field::{At, Field, join},
        node::quoted,
        raw,
    },
    Reader,
};

/// The words of `backend.onnx.provider`.
pub(in crate::config) const PROVIDERS: [(&str, Provider); 3] = [
    ("auto", Provider::Auto),
    ("cpu", Provider::Cpu),
    ("cuda", Provider::Cuda),
];

/// Most models, and most aliases of one.
const MAX_MODELS: usize = 256;
/// Bounds of a model's key-value memory, in bytes.
const KV_MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 42;

/// Every name of a model, with the model's index.
pub(super) type Names = HashMap<Arc<str>, usize>;

impl Reader<'_> {
    /// The models and their names. Without any, the bundled ones.
    pub(super) fn models(&mut self, field: Field<Vec<At<raw::Model>>>) -> (Vec<Model>, Names) {
        let list = match field.given() {
            Some(list) if list.value.len() > MAX_MODELS => {
                list.fault(&mut self.problems, format_args!("give at most {MAX_MODELS} models"));
                Vec::new()
            }
            Some(list) => list.value,
            None => Vec::new(),
        };
        let mut names = Names::new();
        if list.is_empty() {
            let models = BUNDLED.map(bundled).to_vec();
            for (index, model) in models.iter().enumerate() {
                names.insert(Arc::clone(&model.id), index);
            }
            return (models, names);
        }
        // A bad model keeps its index, so that its names still count as known.
        let models = list.into_iter().enumerate();
        let models = models
            .filter_map(|(index, raw)| self.model(index, raw, &mut names))
            .collect();
        (models, names)
    }

    fn model(&mut self, index: usize, raw: At<raw::Model>, names: &mut Names) -> Option<Model> {
        let owner = raw.with(());
        let raw = raw.value;
        let id = raw.id.required(&owner, "id", "NAME", &mut self.problems);
        let id = id.and_then(|id| self.name(&id, index, names));
        let aliases = raw
            .aliases
            .given()
            .map(|list| self.aliases(&list, index, names))
            .unwrap_or_default();
        let context = raw.max_context.set();
        let max_context = context.and_then(|given| self.in_range(&given, given.value, CONTEXT, |n| n.to_string()));
        let version = raw.version.set().and_then(|version| self.label(&version));
        let example = "{onnx: {path: FOLDER}}";
        let backend = raw.backend.required(&owner, "backend", example, &mut self.problems);
        let (backend, deadline) = backend.and_then(|backend| self.backend(backend)).unzip();
        Some(Model {
            id: id?,
            aliases,
            backend: backend?,
            max_context: max_context.map(|tokens| tokens as usize),
            deadline: deadline.flatten(),
            version,
        })
    }

    fn aliases(&mut self, list: &At<Vec<At<String>>>, index: usize, names: &mut Names) -> Vec<Arc<str>> {
        if list.value.len() > MAX_MODELS {
            list.fault(&mut self.problems, format_args!("give at most {MAX_MODELS} aliases"));
            return Vec::new();
        }
        list.value
            .iter()
            .filter_map(|alias| self.name(alias, index, names))
            .collect()
    }

    /// A name that no other model has.
    fn name(&mut self, given: &At<String>, index: usize, names: &mut Names) -> Option<Arc<str>> {
        let name = self.label(given)?;
        if &*name == "*" {
            given.fault(&mut self.problems, "`*` means every model: give another name");
            return None;
        }
        if let Some(owner) = names.get(&name) {
            let text = if *owner == index {
                format!("{} is there twice for this model: remove one", quoted(&name))
            } else {
                format!(
                    "{} is already a name of models[{owner}]: each name means one model",
                    quoted(&name)
                )
            };
            given.fault(&mut self.problems, text);
            return None;
        }
        names.insert(Arc::clone(&name), index);
        Some(name)
    }

    /// Where it runs, and within which time its answers must be complete.
    fn backend(&mut self, raw: At<raw::Backend>) -> Option<(Backend, Option<Duration>)> {
        let owner = raw.with(());
        // With `http` instead, that key has been refused already: one fault, one line.
        if matches!(raw.value.onnx, Field::Absent) && self.problems.name(&join(&owner.key, "http")) {
            return None;
        }
        let onnx = raw
            .value
            .onnx
            .required(&owner, "onnx", "{path: FOLDER}", &mut self.problems)?;
        let owner = onnx.with(());
        let raw = onnx.value;
        let path = raw.path.required(&owner, "path", "FOLDER", &mut self.problems);
        let path = path.map(|path| self.folder_of(&path));
        let defaults = defaults();
        let onnx = Onnx {
            path: defaults.path,
            provider: self.word(raw.provider, &PROVIDERS, defaults.provider),
            threads: self.whole(raw.threads, 1..=1_024, defaults.threads as u32) as usize,
            max_batch: self.whole(raw.max_batch, 1..=1_024, defaults.max_batch as u32) as usize,
            kv_memory: self.size(raw.kv_memory, KV_MEMORY, defaults.kv_memory as u64) as usize,
            queue: self.whole(raw.queue, 1..=65_536, defaults.queue as u32) as usize,
        };
        let deadline = raw.deadline.set().and_then(|given| self.time(&given, DEADLINE));
        Some((Backend::Onnx(Onnx { path: path?, ..onnx }), deadline))
    }

    fn folder_of(&mut self, path: &At<String>) -> ModelPath {
        let folder = self.path(path);
        if path.value.is_empty() || !self.surroundings.is_folder(&folder) {
            let text = format!(
                "there is no folder {}: give the folder that holds the model's files",
                folder.display()
            );
            path.fault(&mut self.problems, text);
        }
        ModelPath::Folder(folder)
    }
}

/// Bounds of a deadline: a shorter one is met by no answer.
const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86_400);

/// Bounds of `max_context`, in tokens.
const CONTEXT: RangeInclusive<u32> = 16..=1 << 24;

/// What holds for a model in this process, but for its path.
fn defaults() -> Onnx {
    Onnx {
        path: ModelPath::Bundled(BUNDLED[0]),
        provider: Provider::Auto,
        threads: 1,
        max_batch: 16,
        kv_memory: 256 << 20,
        queue: 256,
    }
}

/// What is served without `models`: a model for answers, and one for vectors.
const BUNDLED: [&str; 2] = ["tiny", "tiny-embed"];

fn bundled(name: &'static str) -> Model {
    Model {
        id: name.into(),
        aliases: Vec::new(),
        backend: Backend::Onnx(Onnx {
            path: ModelPath::Bundled(name),
            ..defaults()
        }),
        max_context: None,
        deadline: None,
        version: None,
    }
}
