//! Finds and loads ONNX Runtime, a shared library that the user or `cargo xtask setup` put somewhere.
//!
//! It never downloads anything and never takes a second library when the one that was named is unusable. Invariant: a
//! [`Runtime`] is a loaded library of a version that this build can use; there is at most one library in a process.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use ort::environment::Environment;

use crate::ort_sys;

/// Oldest ONNX Runtime 1.x whose interface this build can call (cargo feature `api-24` of `ort`).
pub const OLDEST_MINOR: u32 = 24;

/// Where a library was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// The configuration names it (`engine.onnxruntime`).
    Configuration,
    /// The environment names it (`ORT_DYLIB_PATH`).
    Environment,
    /// It lies in `lib/` beside the program.
    BesideProgram,
    /// `cargo xtask setup` put it into the build folder.
    Setup,
    /// The installed Python package has it.
    Python,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "engine.onnxruntime",
            Self::Environment => "ORT_DYLIB_PATH",
            Self::BesideProgram => "lib/ beside the program",
            Self::Setup => "cargo xtask setup",
            Self::Python => "the Python package",
        })
    }
}

/// Why there is no library. Each is one line: what, where, how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// No library in any of the places.
    #[error(
        "no ONNX Runtime library (libonnxruntime.so): looked in {looked}; run `cargo xtask setup`, or set `engine.onnxruntime: PATH`"
    )]
    NotFound {
        /// The places.
        looked: String,
    },
    /// The named file is not there.
    #[error("{path}: no such file, named by {by}; run `cargo xtask setup`, or set `engine.onnxruntime: PATH`")]
    Missing {
        /// What was named.
        path: String,
        /// Who named it.
        by: FoundBy,
    },
    /// The file is no ONNX Runtime, or one that this system cannot load.
    #[error(
        "{path}: not a usable ONNX Runtime library ({reason}), named by {by}; run `cargo xtask setup`, or set `engine.onnxruntime: PATH`"
    )]
    Unusable {
        /// What was named.
        path: String,
        /// Who named it.
        by: FoundBy,
        /// The loader's words.
        reason: String,
    },
    /// Too old.
    #[error(
        "{path}: ONNX Runtime {found} is too old (needs 1.{OLDEST_MINOR} or newer), named by {by}; run `cargo xtask setup`, or set `engine.onnxruntime: PATH`"
    )]
    TooOld {
        /// What was named.
        path: String,
        /// Who named it.
        by: FoundBy,
        /// Its version.
        found: String,
    },
    /// This process already runs another one.
    #[error("{path}: this process already uses {loaded}; restart it to change the ONNX Runtime library")]
    AnotherLoaded {
        /// What was named.
        path: String,
        /// What is loaded.
        loaded: String,
    },
}

/// The loaded library. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) environment: Environment,
    path: PathBuf,
    version: String,
    found_by: FoundBy,
    cuda_folder: Option<PathBuf>,
    huge_pages: bool,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("path", &self.path)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            version,
            found_by,
            ..
        } = self;
        write!(f, "ONNX Runtime {version}, {} (found by {found_by})", path.display())
    }
}

/// The one library of this process: `ort` keeps it in a static of its own.
static LOADED: Mutex<Option<Runtime>> = Mutex::new(None);

impl Runtime {
    /// Finds the library and loads it. In order: `configured`; `environment` (the value of `ORT_DYLIB_PATH`, which the
    /// caller reads); `lib/` beside the program; the build folder's `onnxruntime/`; the installed Python package. A
    /// folder stands for the library in it.
    ///
    /// # Errors
    /// [`RuntimeError`]: nothing found, or what was found first cannot be used.
    pub fn find(configured: Option<&Path>, environment: Option<&OsStr>) -> Result<Self, RuntimeError> {
        let program = std::env::current_exe().ok();
        let folder = program.as_deref().and_then(Path::parent);
        let (path, found_by) = locate(configured, environment, folder, ask_python)?;
        Self::load(&path, found_by)
    }

    /// Loads the library at `path`.
    fn load(path: &Path, found_by: FoundBy) -> Result<Self, RuntimeError> {
        let path = std::fs::canonicalize(path).map_err(|_| RuntimeError::Missing {
            path: path.display().to_string(),
            by: found_by,
        })?;
        let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(runtime) = &*loaded {
            if runtime.path == path {
                return Ok(runtime.clone());
            }
            return Err(RuntimeError::AnotherLoaded {
                path: path.display().to_string(),
                loaded: runtime.path.display().to_string(),
            });
        }
        let unusable = |reason: String| RuntimeError::Unusable {
            path: path.display().to_string(),
            by: found_by,
            reason: one_line(&reason),
        };
        let version = ort_sys::library_version(&path).map_err(|error| unusable(error.to_string()))?;
        if !new_enough(&version) {
            return Err(RuntimeError::TooOld {
                path: path.display().to_string(),
                by: found_by,
                found: version,
            });
        }
        let environment = ort::init_from(&path)
            .map_err(|error| unusable(error.to_string()))?
            .with_name("zerohop")
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let runtime = Self {
            environment,
            path: path.clone(),
            version,
            found_by,
            cuda_folder: None,
            huge_pages: true,
        };
        *loaded = Some(runtime.clone());
        Ok(runtime)
    }

    /// Has the libraries for CUDA looked for in this folder and nowhere else: in it, in its `lib` and `lib64`, and in those
    /// of NVIDIA's wheels (`nvidia/*/lib`). `None`: in the usual places.
    #[must_use]
    pub fn with_cuda_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.cuda_folder = folder;
        self
    }

    pub(crate) fn cuda_folder(&self) -> Option<&Path> {
        self.cuda_folder.as_deref()
    }

    /// Whether the weights of models are put on huge pages once they are loaded, where the kernel does that.
    #[must_use]
    pub fn with_huge_pages(mut self, huge_pages: bool) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    pub(crate) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// The file, resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, such as `1.31.1`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How it was found.
    #[must_use]
    pub fn found_by(&self) -> FoundBy {
        self.found_by
    }
}

/// Whether this build can call a library of that version.
fn new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    major > 1 || (major == 1 && minor >= OLDEST_MINOR)
}

/// Errors of the loader may span lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first place that has a library. A place that is *named* must have it.
fn locate(
    configured: Option<&Path>,
    environment: Option<&OsStr>,
    program_folder: Option<&Path>,
    ask_python: impl FnOnce() -> Option<PathBuf>,
) -> Result<(PathBuf, FoundBy), RuntimeError> {
    let named = [
        (configured, FoundBy::Configuration),
        (environment.map(Path::new), FoundBy::Environment),
    ];
    for (path, by) in named {
        if let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) {
            let found = library_at(path).ok_or_else(|| RuntimeError::Missing {
                path: path.display().to_string(),
                by,
            })?;
            return Ok((found, by));
        }
    }
    let mut looked = Vec::new();
    if let Some(folder) = program_folder {
        // Tests and examples lie one folder deeper than the program.
        let places = [
            ("lib", FoundBy::BesideProgram),
            ("../onnxruntime", FoundBy::Setup),
            ("../../onnxruntime", FoundBy::Setup),
        ];
        for (place, by) in places {
            let place = folder.join(place);
            if let Some(found) = library_at(&place) {
                return Ok((found, by));
            }
            looked.push(place.display().to_string());
        }
    }
    if let Some(found) = ask_python().as_deref().and_then(library_at) {
        return Ok((found, FoundBy::Python));
    }
    looked.push("the Python package onnxruntime".into());
    Err(RuntimeError::NotFound {
        looked: looked.join(", "),
    })
}

/// The library that a path means: the file itself, or the newest `libonnxruntime.so*` in a folder.
fn library_at(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_path_buf());
    }
    let entries = std::fs::read_dir(path).ok()?;
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.strip_prefix("libonnxruntime.so")?;
            let numbers: Vec<u32> = version.split('.').filter_map(|n| n.parse().ok()).collect();
            path.is_file().then_some((numbers, path))
        })
        .max()
        .map(|(_, path)| path)
}

/// Where the installed Python package keeps its library. Asks without importing the package.
fn ask_python() -> Option<PathBuf> {
    const QUESTION: &str = "import importlib.util as u, os, sys\n\
        s = u.find_spec('onnxruntime')\n\
        sys.exit(1) if s is None else print(os.path.join(os.path.dirname(s.origin), 'capi'))";
    let answer = Command::new("python3").args(["-c", QUESTION]).output().ok()?;
    let folder = String::from_utf8(answer.stdout).ok()?;
    answer.status.success().then(|| PathBuf::from(folder.trim_end()))
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
