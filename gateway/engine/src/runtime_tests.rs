use std::{fs, path::Path};

use super::*;

#[path = "../tests/engine/skip.rs"]
mod skip;

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Two levels deep, since a library is also looked for beside a program's folder.
        let path = std::env::temp_dir().join(format!("zerohop-{name}-{}/program", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, content).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().unwrap_or(&self.0));
    }
}

#[test]
fn places_in_their_order() {
    let folder = Folder::new("order");
    let file = |name: &str| folder.file(name, b"");
    let configured = file("a/my.so");
    let environment = file("b/libonnxruntime.so.1.30.0");
    let program = folder.0.join("target/release");
    let python = file("python/libonnxruntime.so.1.31.1");
    let find = |configured: Option<&Path>, environment: Option<&Path>, python: Option<&Path>| {
        let python = python.map(Path::to_path_buf);
        locate(configured, environment.map(Path::as_os_str), Some(&program), || python)
    };
    let python_folder = python.parent();
    let (by_file, by_folder) = (Some(configured.as_path()), environment.parent());
    assert_eq!(
        find(by_file, by_folder, python_folder),
        Ok((configured.clone(), FoundBy::Configuration))
    );
    assert_eq!(
        find(None, by_folder, python_folder),
        Ok((environment.clone(), FoundBy::Environment))
    );
    assert_eq!(
        find(Some(Path::new("")), None, python_folder),
        Ok((python.clone(), FoundBy::Python)),
        "empty is unset"
    );
    let setup = [
        file("target/onnxruntime/libonnxruntime.so.1.9.0"),
        file("target/onnxruntime/libonnxruntime.so.1.31.1"),
        file("target/onnxruntime/libonnxruntime_providers_shared.so"),
    ];
    fs::create_dir_all(&program).expect("a folder");
    assert_eq!(
        find(None, None, python_folder),
        Ok((program.join("../onnxruntime/libonnxruntime.so.1.31.1"), FoundBy::Setup))
    );
    assert!(setup.iter().all(|path| path.is_file()));
    let beside = file("target/release/lib/libonnxruntime.so");
    assert_eq!(find(None, None, python_folder), Ok((beside, FoundBy::BesideProgram)));
}

/// These run in a process that has loaded no library, so that each gets its own error.
#[test]
fn every_fault_is_a_line_with_its_remedy() {
    let folder = Folder::new("faults");
    let text = folder.file("text.so", b"not a library at all");
    let missing = folder.0.join("missing.so");
    let by = FoundBy::Configuration;
    let mut cases = vec![
        (
            Runtime::find(Some(&missing), None),
            "missing.so: no such file, named by engine.onnxruntime",
        ),
        (
            Runtime::find(None, Some(missing.as_os_str())),
            "named by ORT_DYLIB_PATH",
        ),
        (Runtime::load(&text, by), "not a usable ONNX Runtime library"),
    ];
    let sources = [
        (
            "foreign.so",
            "int other(void) { return 1; }",
            "does not export OrtGetApiBase",
        ),
        (
            "old.so",
            "static const char *v(void) { return \"1.23.2\"; } static const void *a(unsigned n) { return 0; }\n\
             struct base { const void *(*api)(unsigned); const char *(*version)(void); };\n\
             static struct base b = {a, v}; const struct base *OrtGetApiBase(void) { return &b; }",
            "ONNX Runtime 1.23.2 is too old (needs 1.24 or newer)",
        ),
    ];
    for (name, source, want) in sources {
        match compile(&folder, name, source) {
            Ok(library) => cases.push((Runtime::load(&library, by), want)),
            Err(reason) => skip::skipped("every_fault_is_a_line_with_its_remedy", &reason),
        }
    }
    let nothing = locate(None, None, Some(&folder.0), || None).expect_err("nothing there");
    cases.push((Err(nothing), "no ONNX Runtime library (libonnxruntime.so): looked in"));
    for (result, want) in cases {
        let error = result.expect_err(want).to_string();
        assert!(error.contains(want), "{want:?} in {error}");
        assert!(
            error.contains("cargo xtask setup") && error.contains("engine.onnxruntime: PATH"),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}

fn compile(folder: &Folder, name: &str, source: &str) -> Result<PathBuf, String> {
    let source = folder.file(&format!("{name}.c"), source.as_bytes());
    let library = folder.0.join(name);
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    match status {
        Ok(status) if status.success() => Ok(library),
        Ok(status) => Err(format!("cc: {status}")),
        Err(error) => Err(format!("no C compiler (cc): {error}")),
    }
}

#[test]
fn versions() {
    for (version, fits) in [
        ("1.24.0", true),
        ("1.31.1", true),
        ("1.23.9", false),
        ("0.99.0", false),
        ("", false),
        ("2.0.0", true),
    ] {
        assert_eq!(new_enough(version), fits, "{version}");
    }
}
