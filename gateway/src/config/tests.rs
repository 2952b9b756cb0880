//! Configurations: bad ones with every line that is said about them, good ones with what they mean.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;
use zerohop_cache::Probation;
use zerohop_engine::{Allow, Rule, TextClass, TextSet, When};

use super::{
    Access, Backend, Buckets, Cache, CachePlace, CacheStore, Config, ControlSocket, HalfLife, Heat, KeyDigest,
    KeySource, Level, Library, LogFormat, Model, ModelPath, ModelSet, Onnx, Problems, Provider, RequestMemory, Rules,
    Source, Surroundings, Tenant, Workers, ZeroCopy, field::Known, load, parse::parse, raw,
};
use crate::{
    keep::{Keeping, Policy},
    key::Scope,
};

#[path = "tests/cache.rs"]
mod cache;
mod steering;

/// Cases: `--- title`, the file, then `=>` and the answer.
const BAD: &str = include_str!("tests/bad.txt");
/// Every key of today, none with its default.
const FULL: &str = include_str!("tests/full.yaml");
/// Every later key, each stating what the product does today.
const LATER: &str = include_str!("tests/later.yaml");
/// Every key of a file of safety rules.
const RULES: &str = include_str!("tests/rules.yaml");
/// The same form as [`BAD`].
const BAD_RULES: &str = include_str!("tests/bad_rules.txt");
const GUIDE: &str = include_str!("../../../docs/configuration.md");
const FOLDER: &str = "/etc/zerohop";

/// A machine of the tests' own.
struct Fake;

impl Surroundings for Fake {
    fn env(&self, name: &str) -> Option<String> {
        let known = [
            ("KEYS_A", "sk-first,sk-second"),
            ("KEYS_B", "sk-third"),
            ("NOTHING", " , "),
            ("BLANK", "sk-fine,sk secret"),
        ];
        let found = known.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<String> {
        let text = match path.strip_prefix(FOLDER).ok().and_then(Path::to_str) {
            Some("keys.txt") => "# of the team\nsk-fourth\nsk-fifth\n",
            Some("shared.txt") => "sk-second\n",
            Some("empty.txt") => "# none yet\n",
            Some("zerohop.yaml") => "server: {port: 80}\n",
            Some("full.yaml") => FULL,
            Some("rules.yaml") => RULES,
            Some("blocked.txt") => "192.0.2.0/24 # a\n2001:db8::/32\n",
            Some("bad-blocked.txt") => "192.0.2.0/24\n192.0.2.1/24\n",
            Some("bad-rules.yaml") => "rules:\n  - {trigger: a}\n",
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        assert!(text.len() as u64 <= limit);
        Ok(text.into())
    }

    fn is_folder(&self, path: &Path) -> bool {
        ["models/a", "models/b"]
            .iter()
            .any(|folder| path == Path::new(FOLDER).join(folder))
    }

    fn is_file(&self, path: &Path) -> bool {
        path == Path::new("/opt/libonnxruntime.so")
    }

    fn cores(&self) -> Vec<usize> {
        vec![0, 1, 2, 3, 6]
    }

    fn memory(&self) -> Option<u64> {
        Some(16 << 30)
    }
}

fn read(text: &str) -> Result<Config, Problems> {
    parse("zerohop.yaml", text, Path::new(FOLDER), &[], &Fake)
}

fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

#[test]
fn bad_configurations_get_every_line_they_deserve() {
    let cases: Vec<&str> = BAD.split("\n--- ").skip(1).collect();
    assert!(cases.len() >= 60, "{} cases", cases.len());
    for case in cases {
        let (title, body) = case.split_once('\n').expect("a case has a title");
        let (text, wanted) = body
            .split_once("\n=>\n")
            .unwrap_or_else(|| panic!("{title}: no answer"));
        let answer = match read(&format!("{text}\n")) {
            Ok(_) => "accepted".to_owned(),
            Err(problems) => problems.to_string(),
        };
        assert_eq!(answer, wanted.trim_end(), "{title}");
    }
}

#[test]
fn without_a_file_the_bundled_models_are_served_here() {
    let config = Config::defaults(&Fake).expect("the defaults are good");
    for text in ["", "# only words\n", "server:\nmetrics:\n", "models: []\n", "{}"] {
        assert_eq!(good(text), config, "{text:?}");
    }
    assert_eq!(config.server.listen, ["127.0.0.1:8080".parse().expect("an address")]);
    assert_eq!(config.access, Access::Anonymous { explicit: false });
    let memory = RequestMemory {
        bytes: 2 << 30,
        eighth_of: Some(16 << 30),
    };
    assert_eq!(config.server.memory, memory);
    let onnx = Onnx {
        path: ModelPath::Bundled("tiny"),
        provider: Provider::Auto,
        threads: 1,
        max_batch: 16,
        kv_memory: 256 << 20,
        queue: 256,
    };
    let tiny = Model {
        id: "tiny".into(),
        aliases: Vec::new(),
        backend: Backend::Onnx(onnx),
        max_context: None,
        deadline: None,
        version: None,
    };
    let Backend::Onnx(onnx) = tiny.backend.clone();
    let encoder = Model {
        id: "tiny-embed".into(),
        backend: Backend::Onnx(Onnx {
            path: ModelPath::Bundled("tiny-embed"),
            ..onnx
        }),
        ..tiny.clone()
    };
    assert_eq!(config.models, [tiny, encoder]);
    let printed = config.to_yaml();
    let wanted = "\
server:
  listen:
  - 127.0.0.1:8080
  allow_anonymous: false
  admin: null
  strict: false
  workers: auto
  max_connections: 5000
  keepalive_timeout: 30s
  max_connection_age: 1h
  read_timeout: 10s
  max_header_bytes: 16KiB
  max_body_bytes: 32MiB
  memory: auto
  zero_copy: auto
  control_socket: auto
  drain_timeout: 10m
steering:
  mode: auto
  policy: local
models: []
engine:
  onnxruntime: auto
  cuda: auto
  huge_pages: auto
cache:
  type: memory
  size_mb: 256
  compaction:
    enabled: true
  context_hash_version: 1
  policy: deterministic
  tools: false
  single_flight: true
  scope: tenant
  ttl: null
  buckets: auto
  heat:
    decay: 0.95
    interval: 5s
    half_life: adaptive
    probation: auto
safety:
  constraints:
    enabled: false
    rules_path: null
tenants: []
memory:
  alignment: 64
logging:
  level: info
  format: auto
metrics:
  labels:
    instance_id: auto
    region: null
  prometheus:
    enabled: true
";
    assert_eq!(printed, wanted);
}

#[test]
fn every_key_is_read() {
    let config = good(FULL);
    let addresses: Vec<String> = config.server.listen.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["192.0.2.7:8080", "[2001:db8::7]:8080", "127.0.0.1:0"]);
    assert_eq!(config.server.admin, Some("127.0.0.1:9090".parse().expect("an address")));
    assert_eq!(config.server.workers, Workers::Cores(vec![0, 6]));
    let connections = config.server.connections;
    assert_eq!(connections.max, 100);
    assert_eq!(connections.keepalive_timeout, Duration::from_secs(45));
    assert_eq!(connections.max_age, Duration::from_secs(7_200));
    assert_eq!(connections.read_timeout, Duration::from_millis(2_500));
    let requests = config.server.requests;
    assert_eq!(requests.max_header_bytes, 8_192);
    assert_eq!(requests.max_body_bytes, 2_000_000);
    assert!(requests.strict);
    let memory = RequestMemory {
        bytes: 512 << 20,
        eighth_of: None,
    };
    assert_eq!(
        (config.server.memory, config.server.zero_copy),
        (memory, ZeroCopy::Always)
    );
    assert_eq!(
        config.server.control,
        ControlSocket::Path("/etc/zerohop/run/control.sock".into())
    );
    assert_eq!(config.server.drain_timeout, Duration::from_secs(60));
    let Backend::Onnx(onnx) = &config.models[0].backend;
    assert_eq!(onnx.path, ModelPath::Folder(PathBuf::from("/etc/zerohop/models/a")));
    assert_eq!(onnx.provider, Provider::Cpu);
    assert_eq!(
        (onnx.threads, onnx.max_batch, onnx.kv_memory, onnx.queue),
        (2, 8, 64 << 20, 32)
    );
    let model = &config.models[0];
    assert_eq!(model.deadline, Some(Duration::from_secs(90)));
    assert_eq!(&*model.id, "claude-3-haiku-20240307");
    assert_eq!(model.aliases, [Arc::from("haiku"), Arc::from("off")]);
    assert_eq!(
        (model.max_context, model.version.as_deref()),
        (Some(2_048), Some("1.10"))
    );
    assert_eq!(config.models[1].max_context, Some(2_048), "merged from the anchor");
    assert_eq!(
        config.engine.onnxruntime,
        Library::File("/opt/libonnxruntime.so".into())
    );
    assert_eq!(
        config.engine.cuda.as_deref(),
        Some(&*Path::new(FOLDER).join("models/b")),
        "any folder that is there"
    );
    let cache = Cache {
        store: CacheStore {
            place: CachePlace::Ssd {
                index: "/fast/cache_index.bin".into(),
                data: "/etc/zerohop/cache/cache_data.parquet".into(),
            },
            size_mb: 1024,
            hot_mb: 16,
            compaction: false,
            buckets: Buckets::Own(4096),
            heat: Heat {
                decay: 0.9,
                interval: Duration::from_secs(10),
                half_life: HalfLife::Literal,
                probation: Probation::On,
            },
        },
        keeping: Keeping {
            policy: Policy::All,
            tools: true,
            ttl: Some(Duration::from_secs(12 * 3600)),
        },
        single_flight: false,
        scope: Scope::Key,
        hash_version: 3,
    };
    assert_eq!(config.cache, Some(cache));
    assert_eq!(config.memory.alignment, 128);
    assert_eq!(
        (config.logging.level, config.logging.format),
        (Level::Debug, LogFormat::Json)
    );
    assert_eq!(config.metrics.instance_id.as_deref(), Some("node-7"));
    assert_eq!(config.metrics.region.as_deref(), Some("eu"));
    assert!(config.metrics.prometheus);
    let digests = |keys: &[&[u8]]| {
        let set: BTreeSet<KeyDigest> = keys.iter().map(|key| KeyDigest::of(key)).collect();
        set.into_iter().collect::<Vec<_>>()
    };
    let tenants = [
        Tenant {
            name: "team-a".into(),
            source: KeySource::Env("KEYS_A".into()),
            keys: digests(&[b"sk-first", b"sk-second"]),
            models: ModelSet::All,
        },
        Tenant {
            name: "team-b".into(),
            source: KeySource::File("/etc/zerohop/keys.txt".into()),
            keys: digests(&[b"sk-fourth", b"sk-fifth"]),
            models: ModelSet::Only([0].into()),
        },
    ];
    assert_eq!(config.access, Access::Tenants(tenants.into()));
}

#[test]
fn the_examples_hold_every_key() {
    let said = |text: &str| {
        let mut said = BTreeSet::new();
        collect("", &super::node::read(text).expect("an example is YAML"), &mut said);
        said
    };
    let (full, later) = (said(FULL), said(LATER));
    raw::known_keys(&mut |Known { key, later: is_later }| match is_later {
        true => assert!(later.contains(key), "tests/later.yaml lacks {key}"),
        // Shorthands for what FULL writes in full.
        false => assert!(
            full.contains(key) || ["server.port", "server.allow_anonymous", "cache.local.path"].contains(&key),
            "{key}"
        ),
    });
}

/// Every key of a document, elements of lists as `[]`.
fn collect(key: &str, node: &super::node::Node, said: &mut BTreeSet<String>) {
    use super::node::Value;
    said.insert(key.to_owned());
    match &node.value {
        Value::List(list) => list.iter().for_each(|node| collect(&format!("{key}[]"), node, said)),
        Value::Section(entries) => {
            for entry in entries {
                let Value::Text(name) = &entry.key.value else { continue };
                collect(&super::field::join(key, name), &entry.node, said);
            }
        }
        _ => {}
    }
}

#[test]
fn stating_what_is_so_anyway_is_accepted() {
    assert_eq!(good(LATER).server, good("").server);
}

#[test]
fn a_port_means_every_address() {
    let config = good("server: {port: 8081, allow_anonymous: true}\n");
    let addresses: Vec<String> = config.server.listen.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["0.0.0.0:8081", "[::]:8081"]);
    assert_eq!(config.access, Access::Anonymous { explicit: true });
}

#[test]
fn loopback_needs_no_word() {
    for address in [
        "127.0.0.1:1",
        "127.9.9.9:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
        "127.0.0.1:0",
    ] {
        good(&format!("server: {{listen: [\"{address}\"]}}\n"));
    }
    for address in [
        "0.0.0.0:1",
        "[::]:1",
        "10.0.0.1:1",
        "[::ffff:10.0.0.1]:1",
        "[fe80::1]:1",
    ] {
        assert!(
            read(&format!("server: {{listen: [\"{address}\"]}}\n")).is_err(),
            "{address}"
        );
    }
}

#[test]
fn tenants_open_every_address() {
    let config = good("server: {port: 80}\ntenants: [{name: a, keys_env: KEYS_A}]\n");
    assert!(matches!(config.access, Access::Tenants(tenants) if tenants.len() == 1));
}

#[test]
fn addresses_of_the_command_line_replace_those_of_the_file() {
    let file = Some(PathBuf::from("/etc/zerohop/zerohop.yaml"));
    let addresses = |listen: &[&str]| listen.iter().map(|text| text.parse().expect("an address")).collect();
    let check = |listen: &[&str], wanted: Result<(), &str>| {
        let source = Source {
            file: file.clone(),
            listen: addresses(listen),
        };
        let outcome = load(&source, &Fake).map(|config| assert_eq!(config.server.listen, source.listen));
        assert_eq!(
            outcome.map_err(|problems| problems.to_string()),
            wanted.map_err(ToOwned::to_owned)
        );
    };
    check(&["127.0.0.1:8081", "[::1]:8081"], Ok(()));
    check(
        &["0.0.0.0:8081"],
        Err(
            "--listen: 0.0.0.0:8081 can be reached by others, and without tenants anyone may ask: add `tenants`, or \
             listen on 127.0.0.1, or set server.allow_anonymous: true",
        ),
    );
    check(
        &["127.0.0.1:81", "127.0.0.1:81"],
        Err("--listen: 127.0.0.1:81 is there twice: remove one"),
    );
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let source = Source {
        file: Some("nowhere.yaml".into()),
        listen: Vec::new(),
    };
    let problems = load(&source, &Fake).expect_err("there is no such file");
    assert_eq!(
        problems.to_string(),
        "nowhere.yaml: the configuration cannot be read: entity not found"
    );
}

#[test]
fn more_problems_than_are_listed_are_counted() {
    let mut text = String::from("logging:\n");
    (0..60).for_each(|n| text += &format!("  wrong{n}: 1\n"));
    let problems = read(&text).expect_err("no such keys");
    let lines: Vec<String> = problems.to_string().lines().map(ToOwned::to_owned).collect();
    assert_eq!(problems.list().len(), 60);
    assert_eq!(lines.len(), 51);
    assert_eq!(lines[50], "zerohop.yaml: 10 more problems");
}

#[test]
fn documents_that_unfold_without_end_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..9 {
        let last = n - 1;
        let aliases = vec![format!("*a{last}"); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{aliases}]\n");
    }
    let deep = format!("a: {}\n", "[".repeat(100_000));
    let deep_block: String = (0..200).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    for text in [bomb, deep, deep_block] {
        let problems = read(&text).expect_err("too much").to_string();
        assert!(problems.contains("too deeply or too large"), "{problems}");
    }
}

#[test]
fn what_is_printed_means_the_same() {
    let empty = "";
    let open = "server: {port: 80, allow_anonymous: true, workers: auto}\nmetrics: {prometheus: {enabled: false}}\n";
    let off = "cache: {type: off, size_mb: 7}\n";
    let ssd = "cache: {type: ssd, local: {path: /var/lib/zerohop}, policy: off}\n";
    for text in [empty, open, FULL, off, ssd] {
        let config = good(text);
        let printed = config.to_yaml();
        assert_eq!(good(&printed), config, "{printed}");
        assert!(!printed.contains("sk-"), "{printed}");
    }
    let shown = format!("{:?}", good(FULL));
    assert!(!shown.contains("sk-"), "{shown}");
}

#[test]
fn the_guide_tells_of_every_key() {
    raw::known_keys(&mut |Known { key, later }| {
        let row = format!("| `{key}` |");
        let mention = format!("`{key}`");
        let told = if later {
            GUIDE.contains(&mention)
        } else {
            GUIDE.contains(&row)
        };
        assert!(told, "docs/configuration.md does not tell of {key} (later: {later})");
    });
}

#[test]
fn the_examples_of_the_guide_are_good() {
    let examples = GUIDE.split("```yaml\n").skip(1);
    let examples: Vec<&str> = examples
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert!(examples.len() >= 3, "{} examples", examples.len());
    for example in examples {
        good(example);
    }
}

proptest! {
    #[test]
    fn any_name_survives_printing(id in "[^\\s\\p{C}]{1,20}", alias in "[!-~]{1,12}", region in "\\PC{1,20}") {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let text = format!(
            "models: [{{id: {}, aliases: [{}], backend: {{onnx: {{path: models/a}}}}}}]\n\
             metrics: {{labels: {{region: {}}}}}\n",
            quoted(&id), quoted(&alias), quoted(&region),
        );
        // Names that are not allowed are refused, whatever they are; that is another test's matter.
        if let Ok(config) = read(&text) {
            let printed = config.to_yaml();
            prop_assert_eq!(read(&printed).map_err(|problems| problems.to_string()), Ok(config), "{}", printed);
        }
    }

    #[test]
    fn nothing_that_is_written_makes_it_panic(text in "[ -~\n\u{e9}]{0,200}", cut in 0..FULL.len(), put in "[ -~\n]{0,3}") {
        let _refused = read(&text);
        let cut = (cut..).find(|at| FULL.is_char_boundary(*at)).unwrap_or(0);
        let changed = format!("{}{put}{}", &FULL[..cut], &FULL[cut..]);
        if let Err(problems) = read(&changed) {
            prop_assert!(!problems.list().is_empty());
            prop_assert_eq!(problems.to_string().lines().count(), problems.list().len().min(51));
        }
    }
}

/// A machine with one file.
struct OneFile(String);

impl Surroundings for OneFile {
    fn env(&self, _: &str) -> Option<String> {
        None
    }

    fn read(&self, _: &Path, _: u64) -> io::Result<String> {
        Ok(self.0.clone())
    }

    fn is_folder(&self, _: &Path) -> bool {
        false
    }

    fn is_file(&self, _: &Path) -> bool {
        true
    }

    fn cores(&self) -> Vec<usize> {
        Vec::new()
    }

    fn memory(&self) -> Option<u64> {
        None
    }
}

#[test]
fn bad_safety_rules_get_every_line_they_deserve() {
    let cases: Vec<&str> = BAD_RULES.split("\n--- ").skip(1).collect();
    assert!(cases.len() >= 10, "{} cases", cases.len());
    for case in cases {
        let (title, body) = case.split_once('\n').expect("a case has a title");
        let (text, wanted) = body.split_once("=>\n").unwrap_or_else(|| panic!("{title}: no answer"));
        let answer = match Rules::load(Path::new("r.yaml"), &OneFile(text.into())) {
            Ok(rules) => format!("accepted: {rules:?}"),
            Err(problems) => problems.to_string(),
        };
        assert_eq!(answer, wanted.trim_end(), "{title}");
    }
}

#[test]
fn safety_rules_mean_what_they_say() {
    let rules = good(FULL).safety.expect("they are switched on");
    assert_eq!(rules.path, Path::new(FOLDER).join("rules.yaml"));
    assert_eq!(rules.place(1), "/etc/zerohop/rules.yaml:5:5");
    let rule = |name: &str, trigger: &str, allow: Allow| Rule {
        name: name.into(),
        trigger: trigger.into(),
        when: When::Ends,
        allow,
        max_tokens: None,
        until: None,
    };
    let digits = TextSet::Class(TextClass::Digits);
    let wanted = [
        rule(
            "rule-1",
            "patient age:",
            Allow::Texts(vec![TextSet::Numbers { from: 0, to: 120 }]),
        ),
        Rule {
            max_tokens: Some(16),
            until: Some(".".into()),
            ..rule(
                "phone",
                "phone number:",
                Allow::Texts(vec![digits, TextSet::Literal("n/a".into())]),
            )
        },
        rule("rule-3", "raw ids:", Allow::Ids(vec![0, 1, 2, 5])),
        Rule {
            when: When::Contains,
            ..rule("rule-4", "code:", Allow::Regex("[A-Z]{3}".into()))
        },
        rule("rule-5", "sure?", Allow::Choice(vec!["yes".into(), "no".into()])),
        rule(
            "rule-6",
            "point:",
            Allow::Grammar("start: /[0-9]/ \",\" /[0-9]/".into()),
        ),
    ];
    assert_eq!(rules.file.rules, wanted);
    for (text, is_on) in [
        ("", false),
        (
            "safety: {constraints: {enabled: false, rules_path: nowhere.yaml}}",
            false,
        ),
        ("safety: {constraints: {rules_path: rules.yaml}}", true),
        ("safety: {constraints: {rules_path: null}}", false),
    ] {
        assert_eq!(good(text).safety.is_some(), is_on, "{text}");
    }
    for (text, wanted) in [
        (
            "safety: {constraints: {enabled: true}}",
            "zerohop.yaml:1:33: safety.constraints.enabled: there are no rules: add `rules_path: FILE`",
        ),
        (
            "safety: {constraints: {rules_path: none.yaml}}\nlogging: {level: no}",
            "zerohop.yaml:2:18: logging.level: \"no\" is not possible: give error, warn, info or debug\n\
             /etc/zerohop/none.yaml: the safety rules cannot be read: entity not found",
        ),
        (
            "safety: {constraints: {rules_path: bad-rules.yaml}}",
            "/etc/zerohop/bad-rules.yaml:2:5: rules[0]: nothing says what may follow: add `tokens`, `regex`, `choice` or \
             `grammar`",
        ),
    ] {
        assert_eq!(read(text).expect_err(text).to_string(), wanted);
    }
}
