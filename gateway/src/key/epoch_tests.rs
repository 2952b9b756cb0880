//! Epochs follow the files, the rules and the versions, and nothing else.

use std::fs;

use zerohop_engine::{Allow, Rule, When};

use super::*;

/// A folder of a model that ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("zerohop-epoch-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("inner")).expect("a folder");
        let this = Self(path);
        for (file, text) in FILES {
            this.put(file, text);
        }
        this
    }

    fn put(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).expect("a file");
    }

    fn digest(&self) -> FilesDigest {
        files_digest(&self.0).expect("readable")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

const FILES: [(&str, &str); 4] = [
    ("model.onnx", "graph"),
    ("tokenizer.json", "{}"),
    ("chat_template.jinja", "{{ x }}"),
    ("inner/weights.data", "numbers"),
];

#[test]
fn files_count_by_name_and_contents() {
    let (one, other) = (Folder::new("one"), Folder::new("other"));
    let digest = one.digest();
    assert_eq!(digest, other.digest(), "wherever they lie");
    for (file, text) in FILES {
        other.put(file, "changed");
        assert_ne!(other.digest(), digest, "{file}");
        other.put(file, text);
        assert_eq!(other.digest(), digest, "and back");
    }
    other.put(".cache", "x");
    assert_eq!(other.digest(), digest, "hidden names are left out");
    other.put("adapter.bin", "");
    let more = other.digest();
    assert_ne!(more, digest);
    fs::rename(other.0.join("adapter.bin"), other.0.join("inner/adapter.bin")).expect("movable");
    assert_ne!(other.digest(), more);
    fs::remove_file(other.0.join("inner/adapter.bin")).expect("removable");
    // What is behind a link is what is loaded.
    fs::rename(other.0.join("model.onnx"), other.0.join(".blob")).expect("movable");
    std::os::unix::fs::symlink(".blob", other.0.join("model.onnx")).expect("a link");
    assert_eq!(other.digest(), digest);
    fs::remove_file(other.0.join(".blob")).expect("removable");
    let error = files_digest(&other.0).expect_err("a link to nothing").to_string();
    assert!(error.contains("model.onnx: No such file"), "{error}");
}

#[test]
fn folders_without_end_are_refused() {
    let folder = Folder::new("loop");
    std::os::unix::fs::symlink("..", folder.0.join("inner/again")).expect("a link");
    let error = files_digest(&folder.0).expect_err("a circle").to_string();
    assert!(error.contains("too many files or folders"), "{error}");
}

#[test]
fn every_part_makes_another_epoch_and_back() {
    let digest = |byte| FilesDigest([byte; 32]);
    let rule = |trigger: &str| Rule {
        name: "r".into(),
        trigger: trigger.into(),
        when: When::Ends,
        allow: Allow::Regex("[0-9]".into()),
        max_tokens: None,
        until: None,
    };
    let (one, two) = (
        RuleFile { rules: vec![rule("a")] },
        RuleFile {
            rules: vec![rule("a"), rule("b")],
        },
    );
    let swapped = RuleFile {
        rules: vec![rule("b"), rule("a")],
    };
    let base = EpochParts {
        files: digest(1),
        context: 2048,
        rules: None,
        version: 1,
    };
    let others = [
        EpochParts {
            files: digest(2),
            ..base
        },
        EpochParts { context: 1024, ..base },
        EpochParts {
            rules: Some(&one),
            ..base
        },
        EpochParts {
            rules: Some(&two),
            ..base
        },
        EpochParts {
            rules: Some(&swapped),
            ..base
        },
        EpochParts { version: 2, ..base },
    ];
    let epochs: Vec<Epoch> = others.iter().map(Epoch::of).collect();
    for (index, epoch) in epochs.iter().enumerate() {
        assert_ne!(*epoch, Epoch::of(&base), "{index}");
        assert!(!epochs[..index].contains(epoch), "{index}");
    }
    let back = EpochParts {
        version: 1,
        ..others[5]
    };
    assert_eq!(Epoch::of(&back), Epoch::of(&base));
}
