//! What keeps the gateway from starting: one line that says what, where and how to mend it, and exit code 2.
//!
//! Invariant: nothing else is printed on standard error (the log is set to errors), and nothing at all on standard
//! output.

use std::{fs, path::Path, process::Command};

use serde_json::json;
use zerohop_tests::{
    gateway::{Settings, binary, root, to_its_end},
    port::Port,
    scratch::Scratch,
};

/// Starts the gateway with this configuration and these variables, and expects a refusal that holds `told`.
fn check(name: &str, config: &str, environment: &[(&str, &str)], told: &[&str]) {
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    let file = scratch
        .write("zerohop.yaml", config)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(binary());
    command
        .arg("serve")
        .arg("--config")
        .arg(&file)
        .envs(environment.iter().copied());
    expect_refusal(name, &mut command, told);
}

fn expect_refusal(name: &str, command: &mut Command, told: &[&str]) {
    let ended = to_its_end(command);
    assert_eq!(ended.status.code(), Some(2), "{name}: {ended:?}");
    assert_eq!(ended.output, "", "{name}");
    assert_eq!(
        ended.errors.trim_end().lines().count(),
        1,
        "{name}: not one line: {}",
        ended.errors
    );
    for part in told {
        assert!(ended.errors.contains(part), "{name}: no {part:?} in {}", ended.errors);
    }
}

/// The usual configuration on a port of its own, with a log of nothing but errors.
fn settings(port: &Port) -> Settings {
    let quiet = Settings::default().with("/logging/level", "error");
    quiet.with("/server/listen", json!([port.address().to_string()]))
}

fn port() -> Port {
    Port::take().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn configurations() {
    let port = port();
    let usual = settings(&port);
    for (name, config, told) in [
        ("no YAML", String::from("server: [\n"), vec!["zerohop.yaml:1:9", "YAML"]),
        (
            "an unknown key",
            String::from("server:\n  lissten: []\n"),
            vec!["zerohop.yaml:2:3", "lissten"],
        ),
        (
            "a wrong type",
            String::from("server:\n  max_connections: many\n"),
            vec!["zerohop.yaml:2:", "max_connections"],
        ),
        (
            "a wrong unit",
            String::from("server:\n  max_body_bytes: 32MBits\n"),
            vec!["zerohop.yaml:2:", "max_body_bytes"],
        ),
        (
            "a later key",
            usual.clone().with("/cache/type", "zram").text(),
            vec!["cache.type", "not yet"],
        ),
        (
            "a cache of files without a place",
            usual.clone().with("/cache/type", "ssd").text(),
            vec!["cache.type", "local"],
        ),
        (
            "a cache of files that is too small",
            usual
                .clone()
                .with("/cache", json!({"type": "ssd", "size_mb": 63, "local": {"path": "c"}}))
                .text(),
            vec!["cache.size_mb", "63", "64"],
        ),
        ("an alias of two", twice(&usual), vec!["tiny"]),
        (
            "a bad address",
            usual.clone().with("/server/listen", json!(["nowhere"])).text(),
            vec!["nowhere"],
        ),
        (
            "the world without keys",
            usual.clone().with("/server/listen", json!(["0.0.0.0:21999"])).text(),
            vec!["0.0.0.0:21999", "tenants", "allow_anonymous"],
        ),
        (
            "keys that are not there",
            usual
                .with("/tenants", json!([{"name": "a", "keys_env": "NOT_SET_ANYWHERE"}]))
                .text(),
            vec!["NOT_SET_ANYWHERE"],
        ),
    ] {
        check(name, &config, &[], &told);
    }
}

/// Two models of one name.
fn twice(usual: &Settings) -> String {
    let model = json!({"id": "tiny", "backend": {"onnx": {"path": root().join("models/tiny")}}});
    usual.clone().with("/models", json!([model, model])).text()
}

#[test]
fn a_file_that_cannot_be_read() {
    let mut command = Command::new(binary());
    command.args(["serve", "--config", "no-such-file.yaml"]);
    expect_refusal("no file", &mut command, &["no-such-file.yaml"]);
}

#[test]
fn a_port_in_use() {
    let port = port();
    let _taken = std::net::TcpListener::bind(port.address()).unwrap_or_else(|error| panic!("{error}"));
    check(
        "a port in use",
        &settings(&port).text(),
        &[],
        &[&port.address().to_string(), "in use"],
    );
}

#[test]
fn a_library_that_is_missing_or_no_library() {
    let port = port();
    let model = root().join("models/tiny/tokenizer.json");
    for (name, path) in [
        ("missing", Path::new("/nowhere/libonnxruntime.so")),
        ("no library", model.as_path()),
    ] {
        let path = path.display().to_string();
        check(
            name,
            &settings(&port).text(),
            &[("ORT_DYLIB_PATH", &path)],
            &[&path, "cargo xtask setup"],
        );
        let config = settings(&port).with("/engine/onnxruntime", path.as_str()).text();
        check(name, &config, &[], &[&path, "engine.onnxruntime"]);
    }
}

#[test]
fn damaged_models() {
    let port = port();
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("{error}"));
    let names = ["model.onnx", "tokenizer.json", "config.json"];
    for damaged in names {
        for (how, contents) in [
            ("missing", None),
            ("empty", Some(Vec::new())),
            ("cut short", Some(half(damaged))),
        ] {
            let folder = scratch.path().join(format!("{damaged}-{how}"));
            fs::create_dir(&folder).unwrap_or_else(|error| panic!("{error}"));
            copy_model(&folder, damaged, contents.as_deref());
            let config = settings(&port)
                .with("/models/0/backend/onnx/path", folder.to_string_lossy().as_ref())
                .text();
            check(
                &format!("{damaged} {how}"),
                &config,
                &[],
                &[damaged, &folder.to_string_lossy()],
            );
        }
    }
    let nowhere = settings(&port).with("/models/0/backend/onnx/path", "nowhere").text();
    check("no folder", &nowhere, &[], &["nowhere"]);
}

fn half(name: &str) -> Vec<u8> {
    let bytes = fs::read(root().join("models/tiny").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    bytes[..bytes.len() / 2].to_vec()
}

/// The bundled model with one file replaced, or left out.
fn copy_model(to: &Path, damaged: &str, contents: Option<&[u8]>) {
    let entries = fs::read_dir(root().join("models/tiny")).unwrap_or_else(|error| panic!("{error}"));
    for entry in entries.filter_map(Result::ok).filter(|entry| entry.path().is_file()) {
        let name = entry.file_name();
        if name != damaged {
            fs::copy(entry.path(), to.join(&name)).unwrap_or_else(|error| panic!("{}: {error}", name.display()));
        }
    }
    if let Some(contents) = contents {
        fs::write(to.join(damaged), contents).unwrap_or_else(|error| panic!("{error}"));
    }
}
