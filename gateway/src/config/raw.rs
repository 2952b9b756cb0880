//! The configuration as it stands in the file: every key there is, by section, with the type of its value.
//!
//! Meaning, ranges and defaults are `parse`'s. Invariant: a key that is not declared here is refused, and a key under
//! `later` is refused unless its value states what the product does anyway.

use super::{
    field::{Address, Amount, At, AutoOr, Field, Known, Later, Now, Read, TokenItem, field, join, no_field, pairs},
    node::Node,
    problem::Problems,
};

/// The key of a field: its name, or the one in brackets behind it, where that is no name in Rust.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:ident) => {
        stringify!($key)
    };
}

/// Declares a section: its fields, then the keys that a later version gives a meaning to, each with the values (besides
/// null) that may be written today.
macro_rules! section {
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident $(($key:ident))?: $type:ty,)* }
        later { $($later:ident: [$($now:expr),*],)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(super) struct $name {
            $(pub(super) $field: Field<$type>,)*
        }

        impl $name {
            const NAMES: &[&str] = &[$(key!($field $($key)?),)*];
            const LATER: &[Later] = &[$(Later { name: stringify!($later), now: &[$($now),*] },)*];
        }

        impl Read for $name {
            const WANTED: &'static str = "a section of keys";

            fn read(node: &Node, key: &str, problems: &mut Problems) -> Option<Self> {
                #[allow(unused_mut, reason = "a section may have later keys only")]
                let mut section = Self::default();
                pairs::<Self>(node, key, problems, |entry, name, key, problems| match name {
                    $(key!($field $($key)?) => section.$field = field(entry, key, problems),)*
                    _ => no_field(entry, &key, Self::NAMES, Self::LATER, problems),
                })?;
                Some(section)
            }

            fn keys(key: &str, tell: &mut dyn FnMut(Known<'_>)) {
                $(<$type>::keys(&join(key, key!($field $($key)?)), tell);)*
                for later in Self::LATER {
                    tell(Known { key: &join(key, later.name), later: true });
                }
            }
        }
    };
}

/// Reads the whole document.
pub(super) fn read(document: &Node, problems: &mut Problems) -> Option<Root> {
    Root::read(document, "", problems)
}

/// Reads a document of safety rules.
pub(super) fn read_rules(document: &Node, problems: &mut Problems) -> Option<RuleDocument> {
    RuleDocument::read(document, "", problems)
}

/// Tells every key, in order.
pub(super) fn known_keys(tell: &mut dyn FnMut(Known<'_>)) {
    Root::keys("", tell);
}

section! {
    /// The document.
    Root {
        server: Server,
        steering: Steering,
        models: Vec<At<Model>>,
        engine: Engine,
        normalize: Normalize,
        cache: Cache,
        safety: Safety,
        semantic_routing: SemanticRouting,
        layer: Layer,
        tenants: Vec<At<Tenant>>,
        memory: Memory,
        logging: Logging,
        metrics: Metrics,
    }
    later {}
}

section! {
    /// Where to listen, and the limits of connections and requests.
    Server {
        listen: Vec<At<Address>>,
        port: Option<i128>,
        allow_anonymous: bool,
        admin: Option<Address>,
        strict: bool,
        workers: AutoOr<Vec<At<i128>>>,
        max_connections: i128,
        keepalive_timeout: Amount,
        max_connection_age: Amount,
        read_timeout: Amount,
        max_header_bytes: Amount,
        max_body_bytes: Amount,
        memory: Amount,
        zero_copy: String,
        control_socket: String,
        drain_timeout: Amount,
    }
    later {
        trusted_proxies: [Now::EmptyList],
        tls: [],
    }
}

section! {
    /// Which worker takes a connection.
    Steering {
        mode: String,
        policy: String,
        xdp: Xdp,
    }
    later {}
}

section! {
    /// The program in front of the network stack.
    Xdp {
        interface: Option<String>,
        mode: String,
        syn_rate: Option<Amount>,
        blocklist: Option<String>,
    }
    later { spread: [Now::Is(false)], }
}

section! {
    /// A model and its names.
    Model {
        id: String,
        aliases: Vec<At<String>>,
        backend: Backend,
        max_context: Option<i128>,
        version: Option<String>,
    }
    later {
        equivalents: [Now::EmptyList],
        normalize: [Now::Is(false)],
        cost: [Now::Number(1.0)],
        shard: [Now::Is(false)],
    }
}

section! {
    /// Where a model runs.
    Backend { onnx: Onnx, }
    later { http: [], }
}

section! {
    /// A model that runs in this process.
    Onnx {
        path: String,
        provider: String,
        threads: i128,
        max_batch: i128,
        kv_memory: Amount,
        queue: i128,
        deadline: Option<Amount>,
    }
    later {}
}

section! {
    /// What all in-process models share.
    Engine { onnxruntime: String, cuda: String, huge_pages: String, }
    later {}
}

section! {
    /// One form of text before tokenising: not done today.
    Normalize {}
    later {
        enabled: [Now::Is(false)],
        unicode: [Now::Word("keep")],
        quotes: [Now::Word("keep")],
        dashes: [Now::Word("keep")],
        whitespace: [Now::Word("keep")],
        code_hints: [Now::Is(false)],
    }
}

section! {
    /// Stored answers.
    Cache {
        kind(type): String,
        size_mb: i128,
        hot_mb: i128,
        compression: String,
        index_path: Option<String>,
        data_path: Option<String>,
        local: CacheLocal,
        compaction: CacheCompaction,
        context_hash_version: i128,
        policy: String,
        tools: bool,
        single_flight: bool,
        scope: String,
        ttl: Option<Amount>,
        buckets: Amount,
        heat: CacheHeat,
    }
    later { templates: [Now::EmptyList], }
}

section! {
    /// A folder for both files of the cache.
    CacheLocal { path: Option<String>, }
    later {}
}

section! {
    /// Room that is given back.
    CacheCompaction { enabled: bool, }
    later {}
}

section! {
    /// How fast an entry's heat falls.
    CacheHeat {
        decay: Amount,
        interval: Amount,
        half_life: String,
        probation: String,
    }
    later {}
}

section! {
    /// Rules for answers.
    Safety { constraints: Constraints, }
    later {}
}

section! {
    /// The rules.
    Constraints {
        enabled: bool,
        rules_path: Option<String>,
    }
    later {}
}

section! {
    /// A file of safety rules, which is a document of its own.
    RuleDocument { rules: Vec<At<Rule>>, }
    later {}
}

section! {
    /// One of its rules.
    Rule {
        name: String,
        trigger: String,
        when: String,
        tokens: Vec<At<TokenItem>>,
        regex: String,
        choice: Vec<At<String>>,
        grammar: String,
        max_tokens: i128,
        until: String,
    }
    later {}
}

section! {
    /// A choice of model by what a request says: not made today.
    SemanticRouting {
        bootstrap: Bootstrap,
        collect: Collect,
    }
    later {
        enabled: [Now::Is(false)],
        adapter_path: [],
        threshold: [],
        rules: [Now::EmptySection],
        fallback_strategy: [Now::Word("requested")],
        fallback_weights: [Now::EmptySection],
        switch_budget: [],
    }
}

section! {
    /// Rules before there is an adapter.
    Bootstrap {}
    later {
        days: [],
        samples: [],
    }
}

section! {
    /// Samples for an adapter.
    Collect {}
    later {
        enabled: [Now::Is(false)],
        path: [],
        size_mb: [],
    }
}

section! {
    /// The resilience layer: off today.
    Layer {
        release: Release,
        hedge: Hedge,
        shards: Shards,
    }
    later {
        default_hint: [],
        fallback_status: [],
        error_body: [Now::Word("standard")],
        retry_budget: [],
        resume: [Now::Is(false)],
    }
}

section! {
    /// A gradual release of the layer.
    Release {}
    later {
        name: [],
        percent: [],
        probe: [],
    }
}

section! {
    /// A second attempt before the first has failed.
    Hedge {}
    later {
        after: [],
        budget: [],
    }
}

section! {
    /// Long requests over several nodes.
    Shards {}
    later {
        nodes: [Now::EmptyList],
        chunk_tokens: [],
        from_tokens: [],
        shm_size: [],
    }
}

section! {
    /// Who may ask, and for what.
    Tenant {
        name: String,
        keys_env: Option<String>,
        keys_file: Option<String>,
        models: Vec<At<String>>,
    }
    later {
        requests_per_minute: [],
        tokens_per_minute: [],
    }
}

section! {
    /// Buffers.
    Memory { alignment: i128, }
    later { lock: [Now::Is(false)], }
}

section! {
    /// The log.
    Logging {
        level: String,
        format: String,
    }
    later {}
}

section! {
    /// What is counted, and where it is read.
    Metrics {
        labels: Labels,
        prometheus: Prometheus,
        otlp: Otlp,
    }
    later { prefix: [], }
}

section! {
    /// Labels on every metric.
    Labels {
        instance_id: String,
        region: Option<String>,
    }
    later {}
}

section! {
    /// `/metrics`.
    Prometheus { enabled: bool, }
    later {}
}

section! {
    /// Sending metrics and traces away: not done today.
    Otlp {}
    later {
        endpoint: [],
        traces: [],
    }
}
