//! Where things lie: the repository, cargo's target folder, and what the tasks keep in it.
//!
//! Nothing here changes a file. Invariant: what a task makes lies under the target folder, so `cargo clean` removes it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{Failure, Outcome},
    shell,
};

/// The folders that tasks work in.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, wherever the user's settings put it.
    pub(crate) target: PathBuf,
}

impl Place {
    /// Asks cargo.
    pub(crate) fn find() -> Outcome<Self> {
        let root = repository()?.to_path_buf();
        let mut metadata = Command::new(cargo());
        metadata
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(&root);
        let metadata: serde_json::Value = serde_json::from_slice(&shell::output(&mut metadata)?)
            .map_err(|error| Failure::new(format!("cargo metadata answered something else than JSON: {error}")))?;
        let target = metadata["target_directory"]
            .as_str()
            .ok_or_else(|| Failure::new("cargo metadata names no target folder"))?;
        Ok(Self {
            root,
            target: PathBuf::from(target),
        })
    }

    /// The product, once built.
    pub(crate) fn binary(&self) -> PathBuf {
        self.target.join("release/zerohop")
    }

    /// Where a model that is made here lies; never in the repository.
    pub(crate) fn model(&self, name: &str) -> PathBuf {
        self.target.join("models").join(name)
    }

    /// Where `setup` puts ONNX Runtime.
    pub(crate) fn onnxruntime(&self) -> PathBuf {
        self.target.join("onnxruntime")
    }
}

/// The repository, without asking cargo.
pub(crate) fn repository() -> Outcome<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or_else(|| Failure::new("the xtask package lies in no workspace"))
}

/// The cargo that started us, so that a pinned toolchain is kept.
pub(crate) fn cargo() -> String {
    env::var("CARGO").unwrap_or_else(|_| String::from("cargo"))
}
