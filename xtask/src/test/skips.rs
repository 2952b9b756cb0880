//! Which tests may be skipped on which machine: `tests/skips.txt` against what was skipped.
//!
//! Nothing here skips. Invariant: on a given machine exactly one set of skipped tests is right. A test that skips
//! although the machine has what it needs is a failure, and so is one that is listed and ran all the same, for then the
//! list, or the look at the machine, is wrong.

use std::{collections::BTreeSet, env, fs, path::Path};

use crate::{
    differential, ebpf,
    failure::{Doing, Failure, Outcome},
    fuzz,
    place::Place,
    shell, tune,
};

/// Something that a machine may lack, and how we look whether it does.
struct Fact {
    name: &'static str,
    here: fn() -> bool,
}

const FACTS: [Fact; 10] = [
    // Public traces and schemas, too large to be committed.
    Fact {
        name: "test-data",
        here: || env::var_os("ZEROHOP_TEST_DATA").is_some_and(|folder| Path::new(&folder).is_dir()),
    },
    // The kernel's switch: absent before 6.6, where the system calls are always there; 2 forbids them to all.
    Fact {
        name: "io-uring",
        here: || fs::read_to_string("/proc/sys/kernel/io_uring_disabled").map_or(true, |value| value.trim() == "0"),
    },
    Fact {
        name: "cargo-deny",
        here: || shell::exists("cargo-deny"),
    },
    // Its weights are not part of the repository.
    Fact {
        name: "gemma3-270m",
        here: || {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../target/models/gemma3-270m/model.onnx")
                .is_file()
        },
    },
    // Versions of it differ in what they refuse.
    Fact {
        name: "nginx-1.22",
        here: || differential::unusable().is_none(),
    },
    Fact {
        name: "c++",
        here: fuzz::can_build,
    },
    // The compiler for programs in the kernel, of the versions that made the committed ones.
    Fact {
        name: "bpf-tool-chain",
        here: || Place::find().is_ok_and(|place| ebpf::unusable(&place).is_none()),
    },
    // The capabilities that loading programs and making network namespaces take, and the tool for the latter.
    Fact {
        name: "bpf",
        here: ebpf::may_load,
    },
    Fact {
        name: "nvidia-gpu",
        here: || Path::new("/dev/nvidia0").exists(),
    },
    // Root's, as a rule; a container may forbid it to root too.
    Fact {
        name: "own-network",
        here: tune::own_network,
    },
];

/// Compares the names of skipped tests with the list.
pub(super) fn compare(place: &Place, found: &[String]) -> Outcome {
    let path = place.root.join("tests/skips.txt");
    let list = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let lacks = |fact: &str| {
        FACTS
            .iter()
            .find(|known| known.name == fact)
            .map(|known| !(known.here)())
    };
    differences(&list, found, lacks)
}

fn differences(list: &str, found: &[String], lacks: impl Fn(&str) -> Option<bool>) -> Outcome {
    let mut allowed = BTreeSet::new();
    for line in list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let malformed = || Failure::new(format!("tests/skips.txt: {line:?} is not `NAME without FACT`"));
        let (name, fact) = line.split_once(" without ").ok_or_else(malformed)?;
        if lacks(fact).ok_or_else(malformed)? {
            allowed.insert(name);
        }
    }
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let unexpected: Vec<_> = found.difference(&allowed).copied().collect();
    let stale: Vec<_> = allowed.difference(&found).copied().collect();
    let say = |names: &[&str], why: &str| {
        if names.is_empty() {
            String::new()
        } else {
            format!("{} {why}", names.join(", "))
        }
    };
    let told = [
        say(
            &unexpected,
            "skipped, which tests/skips.txt does not allow on this machine",
        ),
        say(&stale, "listed in tests/skips.txt as skipped on this machine, but not"),
    ];
    match told.iter().all(String::is_empty) {
        true => Ok(()),
        false => Err(Failure::new(
            told.into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_allowed_tests_are_skipped() {
        let list = "# why\n\na without gpu\nb without data\n";
        let lacks = |fact: &str| match fact {
            "gpu" => Some(true),
            "data" => Some(false),
            _ => None,
        };
        for (list, found, expected) in [
            (list, &["a"][..], None),
            (list, &["a", "b"], Some("b skipped")),
            (list, &["a", "c"], Some("c skipped")),
            (list, &[], Some("a listed")),
            ("a without luck", &["a"], Some("is not")),
            ("a", &["a"], Some("is not")),
        ] {
            let found: Vec<String> = found.iter().map(|name| (*name).to_owned()).collect();
            let told = differences(list, &found, lacks)
                .err()
                .map(|failure| failure.to_string());
            match (told, expected) {
                (None, None) => {}
                (Some(told), Some(expected)) => assert!(told.contains(expected), "{told}"),
                (told, expected) => panic!("{found:?}: {told:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn the_committed_list_can_be_read() {
        let list = include_str!("../../../tests/skips.txt");
        let names = |fact: &str| FACTS.iter().any(|known| known.name == fact).then_some(false);
        assert!(differences(list, &[], names).is_ok());
    }
}
