//! Every committed input through its target: what was found once stays found, without an engine.
//!
//! Invariant: each target has inputs, and each folder of inputs a target.

use std::{fs, panic, path::Path};

use zerohop_fuzz::TARGETS;

#[test]
fn committed_inputs_pass() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpus.join(target.name);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut count = 0;
        for file in files.flatten() {
            let input = fs::read(file.path()).unwrap_or_else(|error| panic!("{}: {error}", file.path().display()));
            let passed = panic::catch_unwind(|| (target.run)(&input));
            assert!(passed.is_ok(), "{} fails", file.path().display());
            count += 1;
        }
        assert!(count > 0, "{} has no inputs", target.name);
    }
    let folders = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(folders.count(), TARGETS.len(), "a folder without a target");
}
