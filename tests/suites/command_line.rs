//! The other commands of the binary.
//!
//! Invariant: what a command prints for a program is on standard output, what it tells a person on standard error.

use std::{path::Path, process::Command};

use serde_json::json;
use zerohop_tests::{
    gateway::{Settings, binary, root, to_its_end},
    scratch::Scratch,
};

#[test]
fn run_answers_a_prompt() {
    let ended = to_its_end(Command::new(binary()).current_dir(root()).args([
        "run",
        "--prompt",
        "What is the capital of France?",
    ]));
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.output.contains("Paris"), "{ended:?}");
}

#[test]
fn model_inspect() {
    for (path, code, told) in [
        (root().join("models/tiny"), 0, "tiny"),
        (root().join("docs"), 2, "docs"),
    ] {
        let ended = to_its_end(Command::new(binary()).args(["model", "inspect"]).arg(&path));
        assert_eq!(ended.status.code(), Some(code), "{}: {ended:?}", path.display());
        assert!(format!("{}{}", ended.output, ended.errors).contains(told), "{ended:?}");
    }
}

#[test]
fn config_check_and_print() {
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    let good = Settings::default().with("/server/listen", json!(["127.0.0.1:21998"]));
    let good = scratch
        .write("good.yaml", good.text())
        .unwrap_or_else(|error| panic!("{error}"));
    let bad = scratch
        .write("bad.yaml", "server: {lissten: []}\n")
        .unwrap_or_else(|error| panic!("{error}"));
    let run = |command: &[&str], file: &Path| to_its_end(Command::new(binary()).arg("config").args(command).arg(file));
    assert!(run(&["check"], &good).status.success());
    let refused = run(&["check"], &bad);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        refused.errors.contains("bad.yaml:1:10") && refused.errors.contains("lissten"),
        "{refused:?}"
    );
    let printed = run(&["print", "--config"], &good);
    assert!(printed.status.success(), "{printed:?}");
    // What is printed is a configuration itself, with every default written out.
    let again = scratch
        .write("again.yaml", &printed.output)
        .unwrap_or_else(|error| panic!("{error}"));
    let twice = run(&["print", "--config"], &again);
    assert_eq!(twice.output, printed.output, "{twice:?}");
    assert!(printed.output.contains("max_connections"), "{}", printed.output);
}

#[test]
fn help_and_version() {
    for (arguments, told) in [
        (&["--help"][..], "serve"),
        (&["serve", "--help"], "--config"),
        (&["--version"], "zerohop "),
    ] {
        let ended = to_its_end(Command::new(binary()).args(arguments));
        assert!(
            ended.status.success() && ended.output.contains(told),
            "{arguments:?}: {ended:?}"
        );
    }
}
