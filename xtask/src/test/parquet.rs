//! Parts of the cache, read by the programs that read Parquet.
//!
//! Nothing here knows what they must find: the suite lies in tests/parquet. Invariant: the programs are pinned and installed
//! under the target folder, and what they read was written just now.

use std::{fs, process::Command};

use super::{Context, count::Counts};
use crate::{
    failure::{Doing, Outcome},
    place, python, shell,
};

/// pyarrow, pandas, Polars and DuckDB, by pytest.
pub(super) fn parts(context: &Context, counts: &mut Counts) -> Outcome {
    let suite = context.place.root.join("tests/parquet");
    let python = python::environment(context.place, "parquet", &suite.join("requirements.txt"))?;
    let folder = context.place.target.join("tmp/parts");
    if folder.exists() {
        fs::remove_dir_all(&folder).doing(|| format!("remove {}", folder.display()))?;
    }
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["run", "--release", "--quiet", "--package", "zerohop-cache"])
        .args(["--example", "parts", "--"])
        .arg(&folder)
        .current_dir(&context.place.root);
    shell::run(&mut cargo)?;
    let mut pytest = Command::new(python);
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-rs"])
        .arg(&suite)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ZEROHOP_PARTS", &folder)
        .current_dir(&context.place.root);
    let status = shell::lines(&mut pytest, |line| {
        counts.line(line);
        true
    })?;
    counts.verdict(shell::success(&pytest, status))
}
