//! The models in this process: load, keep over a reload, let go.
//!
//! Runs on the control thread only. Invariant: an engine is dropped (and its threads joined) here and nowhere else, so no
//! worker ever waits for one to end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use zerohop_engine::{
    Encoder, EncoderConfig, EncoderEngine, Engine, EngineConfig, Kind, Model, ModelOptions, Provider, RuleSet, Runtime,
};

use super::{StartError, threads::Workers};
use crate::{
    config::{self, Backend, Config, Library, Machine, ModelPath, Onnx},
    key::{Epoch, EpochParts, FilesDigest, files_digest},
    log::Log,
    metrics::ModelMetrics,
    snapshot::{Engines, Era, ServedModel},
};

/// A model and what it was made from.
struct Entry {
    config: config::Model,
    served: Arc<ServedModel>,
    /// If it makes answers: safety rules are for these.
    engine: Option<Arc<Engine>>,
    /// The contents of its folder when it was loaded; `None` where its answers are not kept.
    files: Option<FilesDigest>,
}

/// All models.
pub(super) struct Fleet {
    runtime: Runtime,
    entries: Vec<Entry>,
    /// Models of past configurations that requests may still use.
    retired: Vec<Arc<ServedModel>>,
}

impl Fleet {
    /// Loads the library and every model.
    ///
    /// # Errors
    /// The first that fails.
    pub(super) fn load(config: &Config, workers: &Workers, log: &Log) -> Result<Self, StartError> {
        let runtime = runtime(&config.engine)?;
        log.info(format_args!("{runtime}"));
        let mut this = Self {
            runtime,
            entries: Vec::new(),
            retired: Vec::new(),
        };
        this.change(config, workers, log)?;
        Ok(this)
    }

    /// In the order of the configuration that was loaded last.
    pub(super) fn models(&self) -> Vec<Arc<ServedModel>> {
        self.entries.iter().map(|entry| Arc::clone(&entry.served)).collect()
    }

    /// Makes the fleet that of `config`: what is unchanged stays, what is new is loaded. On an error nothing changes.
    ///
    /// # Errors
    /// The first model that cannot be loaded.
    pub(super) fn change(&mut self, config: &Config, workers: &Workers, log: &Log) -> Result<(), StartError> {
        let mut entries = Vec::with_capacity(config.models.len());
        for model in &config.models {
            let kept = self.entries.iter().find(|entry| same_engine(&entry.config, model));
            let (served, engine, files) = match kept {
                Some(entry) => (renamed(&entry.served, model), entry.engine.clone(), entry.files),
                None => {
                    // Before it is loaded: a file that is changed meanwhile is rather found under no epoch than under a wrong one.
                    let files = files(model, config);
                    let (served, engine) = serve(&self.runtime, model, workers, log)?;
                    // What is wrong with a model is better told by its loading.
                    (served, engine, files?)
                }
            };
            entries.push(Entry {
                config: model.clone(),
                served,
                engine,
                files,
            });
        }
        let rules = rules(config.safety.as_ref(), &entries, log)?;
        for entry in &mut entries {
            entry.served = in_epoch(&entry.served, epoch(entry, config));
        }
        for (entry, rules) in entries.iter().zip(rules) {
            if let Some(engine) = &entry.engine {
                // First, so that no answer under these rules is kept as one of the epoch before.
                entry.served.era.begin();
                engine.use_rules(rules);
            }
        }
        let old = std::mem::replace(&mut self.entries, entries);
        let kept = |old: &Entry| self.entries.iter().any(|new| Arc::ptr_eq(&old.served, &new.served));
        let gone = old.into_iter().filter(|old| !kept(old));
        self.retired.extend(gone.map(|entry| entry.served));
        Ok(())
    }

    /// Lets go of retired models that no request uses any more.
    pub(super) fn retire(&mut self) {
        self.retired.retain(|model| Arc::strong_count(model) > 1);
    }
}

/// Loads the library.
pub(crate) fn runtime(engine: &config::Engine) -> Result<Runtime, StartError> {
    let configured: Option<&Path> = match &engine.onnxruntime {
        Library::Auto => None,
        Library::File(path) => Some(path),
    };
    Runtime::find(configured, std::env::var_os("ORT_DYLIB_PATH").as_deref())
        .map(|runtime| {
            runtime
                .with_cuda_folder(engine.cuda.clone())
                .with_huge_pages(engine.huge_pages)
        })
        .map_err(|error| StartError::new(error.to_string()))
}

/// The folder of a model's files.
pub(super) fn folder(onnx: &Onnx) -> Result<PathBuf, StartError> {
    match &onnx.path {
        ModelPath::Folder(path) => Ok(path.clone()),
        ModelPath::Bundled(name) => Machine::bundled_model(name).map_err(StartError::new),
    }
}

/// How a model's files are loaded.
fn options(model: &config::Model, onnx: &Onnx) -> ModelOptions {
    ModelOptions {
        provider: match onnx.provider {
            config::Provider::Auto => Provider::Auto,
            config::Provider::Cpu => Provider::Cpu,
            config::Provider::Cuda => Provider::Cuda,
        },
        threads: onnx.threads,
        max_context: model.max_context,
        ..ModelOptions::default()
    }
}

/// Loads the files of a model that makes answers.
pub(super) fn model(runtime: &Runtime, model: &config::Model) -> Result<Model, StartError> {
    let Backend::Onnx(onnx) = &model.backend;
    Model::load(runtime, &folder(onnx)?, &options(model, onnx)).map_err(|error| failed(model, &error))
}

fn failed(model: &config::Model, error: &dyn std::fmt::Display) -> StartError {
    StartError::new(format!("model {}: {error}", model.id))
}

/// How an engine for this model runs.
pub(super) fn engine_config(onnx: &Onnx) -> EngineConfig {
    EngineConfig {
        max_batch: onnx.max_batch,
        kv_memory: onnx.kv_memory,
        queue: onnx.queue,
        ..EngineConfig::default()
    }
}

fn serve(
    runtime: &Runtime,
    wanted: &config::Model,
    workers: &Workers,
    log: &Log,
) -> Result<(Arc<ServedModel>, Option<Arc<Engine>>), StartError> {
    let Backend::Onnx(onnx) = &wanted.backend;
    let Started {
        engine,
        decoder,
        version,
        context,
        told,
        notes,
    } = match Kind::of(&folder(onnx)?) {
        Kind::Answers => start_decoder(runtime, wanted, onnx, workers)?,
        Kind::Vectors => start_encoder(runtime, wanted, onnx, workers)?,
    };
    log.info(format_args!("model {}: version {version}, {told}", wanted.id));
    for note in &notes {
        log.warn(format_args!("model {}: {note}", wanted.id));
    }
    let served = Arc::new(ServedModel {
        id: Arc::clone(&wanted.id),
        created: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        context: u32::try_from(context).unwrap_or(u32::MAX),
        version: wanted.version.as_deref().map_or(version, str::to_owned),
        epoch: None,
        era: Era::first(),
        deadline: wanted.deadline,
        engine,
        metrics: (0..workers.len()).map(|_| ModelMetrics::new()).collect(),
    });
    Ok((served, decoder))
}

/// The safety rules for each model; what is strange about them goes to the log. Nothing is in force yet.
fn rules(rules: Option<&config::Rules>, entries: &[Entry], log: &Log) -> Result<Vec<Option<Arc<RuleSet>>>, StartError> {
    let compile = |entry: &Entry| {
        let (Some(rules), Some(engine)) = (rules, &entry.engine) else {
            return Ok(None);
        };
        let id = &entry.config.id;
        let set = engine
            .compile_rules(&rules.file)
            .map_err(|error| StartError::new(format!("{}: model {id}: {error}", rules.place(error.rule))))?;
        for lint in set.lint() {
            let place = rules.place(lint.rule);
            log.warn(format_args!(
                "{place}: model {id}: rule {}: {}",
                lint.rule + 1,
                lint.warning
            ));
        }
        Ok(Some(set))
    };
    entries.iter().map(compile).collect()
}

/// An engine of either kind, and what is told of it.
struct Started {
    engine: Arc<dyn Engines>,
    /// The same, if it makes answers.
    decoder: Option<Arc<Engine>>,
    version: String,
    context: usize,
    told: String,
    notes: Vec<String>,
}

fn start_decoder(
    runtime: &Runtime,
    wanted: &config::Model,
    onnx: &Onnx,
    workers: &Workers,
) -> Result<Started, StartError> {
    let loaded = model(runtime, wanted)?;
    let engine =
        Engine::start(loaded, &engine_config(onnx), workers.mailboxes()).map_err(|error| failed(wanted, &error))?;
    let engine = Arc::new(engine);
    let info = engine.info().clone();
    let huge_mib = engine.stats().huge_bytes >> 20;
    Ok(Started {
        engine: Arc::clone(&engine) as Arc<dyn Engines>,
        decoder: Some(engine),
        told: format!(
            "{}, context {}, {} sequences at once, {} MiB on huge pages",
            info.provider, info.context, info.slots, huge_mib
        ),
        version: info.version,
        context: info.context,
        notes: info.notes,
    })
}

fn start_encoder(
    runtime: &Runtime,
    wanted: &config::Model,
    onnx: &Onnx,
    workers: &Workers,
) -> Result<Started, StartError> {
    let loaded =
        Encoder::load(runtime, &folder(onnx)?, &options(wanted, onnx)).map_err(|error| failed(wanted, &error))?;
    let config = EncoderConfig {
        max_batch: onnx.max_batch,
        queue: onnx.queue,
        ..EncoderConfig::default()
    };
    let engine = EncoderEngine::start(loaded, &config, workers.mailboxes()).map_err(|error| failed(wanted, &error))?;
    let info = engine.info().clone();
    Ok(Started {
        engine: Arc::new(engine),
        decoder: None,
        told: format!(
            "{}, context {}, vectors of {} numbers",
            info.provider, info.context, info.size
        ),
        version: info.version,
        context: info.context,
        notes: info.notes,
    })
}

/// Whether a model of one configuration can be served by the engine of another.
fn same_engine(one: &config::Model, other: &config::Model) -> bool {
    one.backend == other.backend && one.max_context == other.max_context && one.id == other.id
}

/// The same engine under what the new configuration says of names, versions and deadlines.
fn renamed(served: &Arc<ServedModel>, wanted: &config::Model) -> Arc<ServedModel> {
    let version = wanted.version.as_deref().unwrap_or(&served.version);
    if *version == *served.version && wanted.deadline == served.deadline {
        return Arc::clone(served);
    }
    Arc::new(ServedModel {
        id: Arc::clone(&wanted.id),
        version: version.to_owned(),
        deadline: wanted.deadline,
        ..ServedModel::clone(served)
    })
}

/// The contents of a model's folder, where answers are kept.
fn files(model: &config::Model, config: &Config) -> Result<Option<FilesDigest>, StartError> {
    let Backend::Onnx(onnx) = &model.backend;
    let folder = folder(onnx)?;
    if config.cache.is_none() || Kind::of(&folder) != Kind::Answers {
        return Ok(None);
    }
    files_digest(&folder).map(Some).map_err(|error| failed(model, &error))
}

/// What the answers of a model depend on from now on.
fn epoch(entry: &Entry, config: &Config) -> Option<Epoch> {
    Some(Epoch::of(&EpochParts {
        files: entry.files?,
        context: entry.served.context,
        rules: config.safety.as_ref().map(|rules| &*rules.file),
        version: config.cache.as_ref()?.hash_version,
    }))
}

/// The same model in this epoch, and in an era of its own if that is another one.
fn in_epoch(served: &Arc<ServedModel>, epoch: Option<Epoch>) -> Arc<ServedModel> {
    if served.epoch == epoch {
        return Arc::clone(served);
    }
    Arc::new(ServedModel {
        epoch,
        era: served.era.next(),
        ..ServedModel::clone(served)
    })
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
