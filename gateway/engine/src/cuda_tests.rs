use std::fs;

use super::*;

/// A folder of its own that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("zerohop-cuda-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn with(&self, file: &str) -> &Self {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, "no library").expect("a file");
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn libraries_are_looked_for_where_wheels_and_toolkits_have_them() {
    let at = Folder::new("places");
    for file in [
        "site/onnxruntime/capi/libonnxruntime.so.1.31.1",
        "site/nvidia/cu13/lib/libcudart.so.13",
        "site/nvidia/curand/lib/libcurand.so.10",
        "site/nvidia/empty/include/none.h",
        "toolkit/lib64/libcudart.so.13",
        "flat/libcudart.so.13",
        "flat/nvidia/cu13/lib/libcublas.so.13",
    ] {
        at.with(file);
    }
    /// The configured folder, the runtime library, and the folders that are looked into.
    type Case<'a> = (Option<&'a str>, &'a str, &'a [&'a str]);
    let cases: [Case; 5] = [
        (
            None,
            "site/onnxruntime/capi/libonnxruntime.so.1.31.1",
            &[
                "site/onnxruntime/capi",
                "site/nvidia/cu13/lib",
                "site/nvidia/curand/lib",
            ],
        ),
        (None, "flat/libonnxruntime.so.1.31.1", &["flat", "flat/nvidia/cu13/lib"]),
        // What is configured is the only place.
        (
            Some("toolkit"),
            "flat/libonnxruntime.so.1.31.1",
            &["toolkit", "toolkit/lib64"],
        ),
        (
            Some("site"),
            "flat/x",
            &["site", "site/nvidia/cu13/lib", "site/nvidia/curand/lib"],
        ),
        (
            Some("site/nvidia"),
            "flat/x",
            &["site/nvidia", "site/nvidia/cu13/lib", "site/nvidia/curand/lib"],
        ),
    ];
    for (configured, runtime, want) in cases {
        let configured = configured.map(|folder| at.0.join(folder));
        let found = folders(configured.as_deref(), &at.0.join(runtime));
        // Those of the machine come last.
        let found: Vec<_> = found
            .iter()
            .filter_map(|folder| folder.strip_prefix(&at.0).ok())
            .map(|folder| folder.display().to_string().trim_end_matches('/').to_owned())
            .collect();
        assert_eq!(found, want, "{configured:?}, {runtime}");
    }
}

#[test]
fn a_library_that_is_missing_or_broken_is_one_line_with_a_remedy() {
    let at = Folder::new("broken");
    at.with("libcudart.so.13");
    let folder = std::slice::from_ref(&at.0);
    for (name, words) in [(CUDART, "too short"), ("libcublas.so.13", "no such file")] {
        let error = load(name, folder, false).expect_err("no library");
        let line = error.to_string();
        assert!(line.contains(name) && line.contains(words), "{line}");
        assert!(
            line.contains(&at.0.display().to_string()) && !line.contains('\n'),
            "{line}"
        );
        assert!(error.remedy().contains("engine.cuda"), "{line}");
    }
    let by_name = load("libcudart.so.13", &[], true);
    if let Err(error) = by_name {
        assert!(error.to_string().contains("LD_LIBRARY_PATH"), "{error}");
    }
}

#[test]
fn the_first_library_that_loads_is_taken() {
    let at = Folder::new("order");
    at.with("libc.so.6");
    // The broken one comes first, the system's own after it.
    assert!(load("libc.so.6", &[], true).is_ok());
    assert!(load("libc.so.6", std::slice::from_ref(&at.0), false).is_err());
    assert!(load("libc.so.6", std::slice::from_ref(&at.0), true).is_ok());
}
