//! What a reload does to the epochs of models.

use zerohop_engine::{Job, JobHandle, Rejected, Stats, Submit};

use super::*;

/// An engine that does nothing.
struct Idle;

impl Submit for Idle {
    fn submit(&self, _: Job) -> Result<JobHandle, Rejected> {
        Err(Rejected::NotRunning)
    }
}

impl Engines for Idle {
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

fn config(text: &str) -> Config {
    let path = std::env::temp_dir().join(format!("zerohop-fleet-{}-{}.yaml", std::process::id(), text.len()));
    std::fs::write(&path, text).expect("a file");
    let source = config::Source {
        file: Some(path.clone()),
        listen: Vec::new(),
    };
    let config = config::load(&source, &Machine).expect("a good configuration");
    std::fs::remove_file(path).expect("removable");
    config
}

fn entry(files: Option<FilesDigest>) -> Entry {
    let config = config("");
    Entry {
        config: config.models[0].clone(),
        served: Arc::new(ServedModel {
            id: "tiny".into(),
            created: 0,
            context: 2048,
            version: "1".into(),
            epoch: None,
            era: Era::first(),
            deadline: None,
            engine: Arc::new(Idle),
            metrics: Arc::new([ModelMetrics::new()]),
        }),
        engine: None,
        files,
    }
}

#[test]
fn an_epoch_follows_rules_and_version_and_its_era_ends() {
    let folder = std::env::temp_dir().join(format!("zerohop-fleet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let digest = files_digest(&folder).expect("readable");
    let mut entry = entry(Some(digest));
    let mut reload = |text: &str| {
        let old = Arc::clone(&entry.served);
        entry.served = in_epoch(&old, epoch(&entry, &config(text)));
        entry.served.era.begin();
        assert!(entry.served.era.holds());
        let is_same = Arc::ptr_eq(&old, &entry.served);
        assert_eq!(is_same, old.era.holds(), "{text}");
        assert_eq!(is_same, old.epoch == entry.served.epoch, "{text}");
        entry.served.epoch
    };
    let first = reload("");
    assert!(first.is_some());
    assert_eq!(reload("logging: {level: warn}"), first);
    assert_eq!(
        reload("cache: {policy: all, ttl: 1h, scope: public}"),
        first,
        "no part of it"
    );
    let second = reload("cache: {context_hash_version: 2}");
    assert_ne!(second, first);
    assert_eq!(reload(""), first, "and back");
    assert_eq!(reload("cache: {type: off}"), None);
    assert_eq!(reload(""), first);

    let rules = folder.join("rules.yaml");
    std::fs::write(&rules, "rules: [{trigger: \"age:\", tokens: [\"0-120\"]}]\n").expect("a file");
    let with_rules = format!("safety: {{constraints: {{rules_path: {}}}}}", rules.display());
    let third = reload(&with_rules);
    assert_ne!(third, first);
    std::fs::write(&rules, "rules: [{trigger: \"age:\", tokens: [\"0-99\"]}]\n").expect("a file");
    let fourth = reload(&with_rules);
    assert!(fourth != third && fourth != first);
    std::fs::remove_dir_all(&folder).expect("removable");
}

#[test]
fn what_is_not_kept_has_no_epoch() {
    assert_eq!(epoch(&entry(None), &config("")), None);
}
