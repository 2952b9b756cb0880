//! Examples of the crates as measuring programs: built, and pinned to a core.
//!
//! What they measure and say is theirs. Invariant: what runs was just built.

use std::process::Command;

use serde_json::Value;

use crate::{
    failure::{Failure, Outcome},
    place::{self, Place},
    shell,
};

/// Builds the example `name` of `package`.
pub(super) fn build(place: &Place, package: &str, name: &str) -> Outcome {
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["build", "--release", "--package", package, "--example", name])
        .current_dir(&place.root);
    shell::run(&mut cargo)
}

/// Builds an example, runs it on `core` with these arguments, and returns what it wrote.
pub(super) fn run(place: &Place, package: &str, name: &str, core: u32, arguments: &[String]) -> Outcome<String> {
    if !shell::exists("taskset") {
        return Err(Failure::new("taskset is not installed").remedy("apt-get install util-linux (Debian), then again"));
    }
    build(place, package, name)?;
    let mut example = Command::new("taskset");
    example
        .args(["--cpu-list", &core.to_string()])
        .arg(place.binary().with_file_name("examples").join(name))
        .args(arguments);
    shell::say(format!("$ {}", shell::shown(&example)));
    let output = shell::output(&mut example)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Lines of JSON, each as `row` reads it.
pub(super) fn rows<T>(lines: &str, row: impl Fn(&Value) -> T) -> Outcome<Vec<T>> {
    let read = |line: &str| {
        let line = serde_json::from_str(line);
        line.map_err(|error| Failure::new(format!("a line of the example is no JSON: {error}")))
    };
    lines.lines().map(|line| Ok(row(&read(line)?))).collect()
}
