//! Every committed input through its target: what was found once stays found, without an engine.
//!
//! Invariant: each target has inputs, and each folder of inputs a target.

use std::{fs, panic, path::Path};

use zerohop_fuzz::TARGETS;
use zerohop_tests::hostile::{self, Case, Step};

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

/// What the hostile clients send goes through the oracles too, as heads and as chunks.
#[test]
fn the_hostile_clients_pass() {
    let run = |name: &str, input: &[u8], case: &Case| {
        let target = TARGETS.iter().find(|target| target.name == name);
        let target = target.unwrap_or_else(|| panic!("no target {name}"));
        let passed = panic::catch_unwind(|| (target.run)(input));
        assert!(passed.is_ok(), "{}: {} fails in {name}", case.place, case.name);
    };
    for case in hostile::FILES.iter().flat_map(|file| hostile::cases(file)) {
        for step in &case.steps {
            let Step::Send(bytes) = step else { continue };
            for limit in 0..3 {
                run("head", &[&[limit], &bytes[..]].concat(), &case);
            }
            for (at, _) in bytes
                .windows(4)
                .enumerate()
                .filter(|(_, window)| window == b"\r\n\r\n")
                .take(8)
            {
                run("chunked", &[&[255], &bytes[at + 4..]].concat(), &case);
            }
        }
    }
}
