//! The configuration written back as YAML: every key that has a meaning today, with the value in force.
//!
//! Reads nothing. Invariant: what is written is read again as the same [`Config`].

use serde::Serialize;

use super::{
    Access, Backend, Buckets, Cache, CachePlace, Config, ControlSocket, KeySource, Library, Model, ModelPath, ModelSet,
    Steering, Tenant, Workers,
    parse::{
        FORMATS, HALF_LIVES, HUGE_PAGES, LEVELS, MODES, POLICIES, PROBATIONS, PROVIDERS, SCOPES, STEERING_POLICIES,
        XDP_MODES, ZERO_COPY,
    },
    units::{show_duration, show_size},
};

/// The whole configuration.
pub(super) fn print(config: &Config) -> String {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    // Writing plain values into memory has nothing to fail on.
    serde_saphyr::to_string_with_options(&Root::of(config), options).unwrap_or_else(|error| format!("# {error}\n"))
}

#[derive(Serialize)]
struct Root {
    server: Server,
    steering: PrintedSteering,
    models: Vec<PrintedModel>,
    engine: Engine,
    cache: PrintedCache,
    safety: Safety,
    tenants: Vec<PrintedTenant>,
    memory: Memory,
    logging: Logging,
    metrics: Metrics,
}

#[derive(Serialize)]
struct Server {
    listen: Vec<String>,
    allow_anonymous: bool,
    admin: Option<String>,
    strict: bool,
    workers: AutoOr<Vec<usize>>,
    max_connections: usize,
    keepalive_timeout: String,
    max_connection_age: String,
    read_timeout: String,
    max_header_bytes: String,
    max_body_bytes: String,
    memory: String,
    zero_copy: &'static str,
    control_socket: String,
    drain_timeout: String,
}

#[derive(Serialize)]
struct PrintedSteering {
    mode: &'static str,
    policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    xdp: Option<PrintedXdp>,
}

#[derive(Serialize)]
struct PrintedXdp {
    interface: String,
    mode: &'static str,
    syn_rate: Option<String>,
    blocklist: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AutoOr<T> {
    Auto(&'static str),
    Own(T),
}

#[derive(Serialize)]
struct PrintedModel {
    id: String,
    aliases: Vec<String>,
    backend: PrintedBackend,
    max_context: Option<usize>,
    version: Option<String>,
}

#[derive(Serialize)]
struct PrintedBackend {
    onnx: PrintedOnnx,
}

#[derive(Serialize)]
struct PrintedOnnx {
    path: String,
    provider: &'static str,
    threads: usize,
    max_batch: usize,
    kv_memory: String,
    queue: usize,
    deadline: Option<String>,
}

#[derive(Serialize)]
struct Engine {
    onnxruntime: String,
    cuda: String,
    huge_pages: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PrintedCache {
    Off { r#type: &'static str },
    On(Box<PrintedStore>),
}

#[derive(Serialize)]
struct PrintedStore {
    r#type: &'static str,
    size_mb: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_mb: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_path: Option<String>,
    compaction: Compaction,
    context_hash_version: u32,
    policy: &'static str,
    tools: bool,
    single_flight: bool,
    scope: &'static str,
    ttl: Option<String>,
    buckets: AutoOr<u32>,
    heat: PrintedHeat,
}

#[derive(Serialize)]
struct Compaction {
    enabled: bool,
}

#[derive(Serialize)]
struct PrintedHeat {
    decay: f32,
    interval: String,
    half_life: &'static str,
    probation: &'static str,
}

#[derive(Serialize)]
struct Safety {
    constraints: Constraints,
}

#[derive(Serialize)]
struct Constraints {
    enabled: bool,
    rules_path: Option<String>,
}

#[derive(Serialize)]
struct PrintedTenant {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys_file: Option<String>,
    models: Vec<String>,
}

#[derive(Serialize)]
struct Memory {
    alignment: usize,
}

#[derive(Serialize)]
struct Logging {
    level: &'static str,
    format: &'static str,
}

#[derive(Serialize)]
struct Metrics {
    labels: Labels,
    prometheus: Prometheus,
}

#[derive(Serialize)]
struct Labels {
    instance_id: String,
    region: Option<String>,
}

#[derive(Serialize)]
struct Prometheus {
    enabled: bool,
}

impl Root {
    fn of(config: &Config) -> Self {
        let tenants = match &config.access {
            Access::Anonymous { .. } => &[],
            Access::Tenants(tenants) => &tenants[..],
        };
        let metrics = &config.metrics;
        Self {
            server: Server::of(config),
            steering: PrintedSteering::of(&config.steering),
            // The bundled model has no path to write: it is what stands for an empty list.
            models: config.models.iter().filter_map(PrintedModel::of).collect(),
            engine: Engine {
                onnxruntime: match &config.engine.onnxruntime {
                    Library::Auto => "auto".into(),
                    Library::File(path) => path.display().to_string(),
                },
                cuda: match &config.engine.cuda {
                    None => "auto".into(),
                    Some(folder) => folder.display().to_string(),
                },
                huge_pages: word(&HUGE_PAGES, config.engine.huge_pages),
            },
            cache: PrintedCache::of(config.cache.as_ref()),
            safety: Safety {
                constraints: Constraints {
                    enabled: config.safety.is_some(),
                    rules_path: config.safety.as_ref().map(|rules| rules.path.display().to_string()),
                },
            },
            tenants: tenants.iter().map(|tenant| PrintedTenant::of(tenant, config)).collect(),
            memory: Memory {
                alignment: config.memory.alignment,
            },
            logging: Logging {
                level: word(&LEVELS, config.logging.level),
                format: word(&FORMATS, config.logging.format),
            },
            metrics: Metrics {
                labels: Labels {
                    instance_id: metrics.instance_id.as_deref().unwrap_or("auto").into(),
                    region: metrics.region.as_deref().map(Into::into),
                },
                prometheus: Prometheus {
                    enabled: metrics.prometheus,
                },
            },
        }
    }
}

impl Server {
    fn of(config: &Config) -> Self {
        let server = &config.server;
        let connections = &server.connections;
        Self {
            listen: server.listen.iter().map(ToString::to_string).collect(),
            allow_anonymous: config.access == Access::Anonymous { explicit: true },
            admin: server.admin.map(|address| address.to_string()),
            strict: server.requests.strict,
            workers: match &server.workers {
                Workers::Auto => AutoOr::Auto("auto"),
                Workers::Cores(cores) => AutoOr::Own(cores.clone()),
            },
            max_connections: connections.max,
            keepalive_timeout: show_duration(connections.keepalive_timeout),
            max_connection_age: show_duration(connections.max_age),
            read_timeout: show_duration(connections.read_timeout),
            max_header_bytes: show_size(server.requests.max_header_bytes as u64),
            max_body_bytes: show_size(server.requests.max_body_bytes as u64),
            memory: match server.memory.eighth_of {
                Some(_) => "auto".into(),
                None => show_size(server.memory.bytes),
            },
            zero_copy: word(&ZERO_COPY, server.zero_copy),
            control_socket: match &server.control {
                ControlSocket::Auto => "auto".to_owned(),
                ControlSocket::Off => "off".to_owned(),
                ControlSocket::Path(path) => path.display().to_string(),
            },
            drain_timeout: show_duration(server.drain_timeout),
        }
    }
}

impl PrintedSteering {
    fn of(steering: &Steering) -> Self {
        Self {
            mode: word(&MODES, steering.mode),
            policy: word(&STEERING_POLICIES, steering.policy),
            xdp: steering.xdp.as_ref().map(|xdp| PrintedXdp {
                interface: xdp.interface.clone(),
                mode: word(&XDP_MODES, xdp.mode),
                syn_rate: xdp.syn_rate.map(|rate| format!("{rate}/s")),
                blocklist: xdp.blocklist.as_ref().map(|(path, _)| path.display().to_string()),
            }),
        }
    }
}

impl PrintedCache {
    fn of(cache: Option<&Cache>) -> Self {
        let Some(cache) = cache else {
            return Self::Off { r#type: "off" };
        };
        let (store, heat) = (&cache.store, &cache.store.heat);
        let (r#type, paths) = match &store.place {
            CachePlace::Memory => ("memory", None),
            CachePlace::Ssd { index, data } => ("ssd", Some((index, data))),
        };
        let (index_path, data_path) = paths
            .map(|(index, data)| (index.display().to_string(), data.display().to_string()))
            .unzip();
        Self::On(Box::new(PrintedStore {
            r#type,
            size_mb: store.size_mb,
            hot_mb: paths.map(|_| store.hot_mb),
            index_path,
            data_path,
            compaction: Compaction {
                enabled: store.compaction,
            },
            context_hash_version: cache.hash_version,
            policy: word(&POLICIES, cache.keeping.policy),
            tools: cache.keeping.tools,
            single_flight: cache.single_flight,
            scope: word(&SCOPES, cache.scope),
            ttl: cache.keeping.ttl.map(show_duration),
            buckets: match store.buckets {
                Buckets::Auto => AutoOr::Auto("auto"),
                Buckets::Own(number) => AutoOr::Own(number),
            },
            heat: PrintedHeat {
                decay: heat.decay,
                interval: show_duration(heat.interval),
                half_life: word(&HALF_LIVES, heat.half_life),
                probation: word(&PROBATIONS, heat.probation),
            },
        }))
    }
}

impl PrintedModel {
    fn of(model: &Model) -> Option<Self> {
        let Backend::Onnx(onnx) = &model.backend;
        let ModelPath::Folder(path) = &onnx.path else {
            return None;
        };
        Some(Self {
            id: model.id.to_string(),
            aliases: model.aliases.iter().map(ToString::to_string).collect(),
            backend: PrintedBackend {
                onnx: PrintedOnnx {
                    path: path.display().to_string(),
                    provider: word(&PROVIDERS, onnx.provider),
                    threads: onnx.threads,
                    max_batch: onnx.max_batch,
                    kv_memory: show_size(onnx.kv_memory as u64),
                    queue: onnx.queue,
                    deadline: model.deadline.map(show_duration),
                },
            },
            max_context: model.max_context,
            version: model.version.as_deref().map(Into::into),
        })
    }
}

impl PrintedTenant {
    fn of(tenant: &Tenant, config: &Config) -> Self {
        let (keys_env, keys_file) = match &tenant.source {
            KeySource::Env(name) => (Some(name.clone()), None),
            KeySource::File(path) => (None, Some(path.display().to_string())),
        };
        let models = match &tenant.models {
            ModelSet::All => vec!["*".into()],
            ModelSet::Only(models) => models
                .iter()
                .map(|index| config.models[*index].id.to_string())
                .collect(),
        };
        Self {
            name: tenant.name.to_string(),
            keys_env,
            keys_file,
            models,
        }
    }
}

/// The word for this value.
fn word<T: PartialEq + Copy>(words: &[(&'static str, T)], value: T) -> &'static str {
    words
        .iter()
        .find(|(_, other)| *other == value)
        .map_or("", |(word, _)| word)
}
