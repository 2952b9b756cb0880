//! Finds ONNX Runtime, or fetches it: the one thing that the product needs and cargo cannot bring.
//!
//! Nothing here loads the library. Invariant: a fetched library is in place only whole and with the pinned sum; it
//! arrives under its final name by one rename.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{
    cuda,
    failure::{Doing, Failure, Outcome},
    place::Place,
    python::{self, PYTHON_REMEDY, hex},
    shell,
};

/// The wheel that is fetched. Its library needs glibc 2.28 and libstdc++ only.
const VERSION: &str = "1.31.1";
/// Oldest library that has the API the engine uses (1.24), as (major, minor).
const OLDEST: (u32, u32) = (1, 24);

/// A machine that the pinned wheel exists for.
struct Pin {
    /// As Rust names the processor.
    arch: &'static str,
    /// As pip names the platform.
    platform: &'static str,
    /// SHA-256 of the library inside the wheel (of CPython 3.11; Python's version does not matter to the library).
    sha256: &'static str,
}

const PINS: [Pin; 2] = [
    Pin {
        arch: "x86_64",
        platform: "manylinux_2_28_x86_64",
        sha256: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3",
    },
    Pin {
        arch: "aarch64",
        platform: "manylinux_2_28_aarch64",
        sha256: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467",
    },
];

/// What a user does who has no package index.
const BY_HAND: &str = "set ORT_DYLIB_PATH to a libonnxruntime.so of version 1.24 or newer";

/// A library that is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Library {
    /// The file.
    pub(crate) path: PathBuf,
    origin: Origin,
}

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    Environment,
    Python,
    Fetched,
}

impl Library {
    /// Where it is and who put it there.
    pub(crate) fn describe(&self) -> String {
        let origin = match self.origin {
            Origin::Environment => "named by ORT_DYLIB_PATH",
            Origin::Python => "of python3's onnxruntime package",
            Origin::Fetched => "fetched and checked",
        };
        format!("{} ({origin})", self.path.display())
    }
}

/// What is fetched.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fetch ONNX Runtime with CUDA and NVIDIA's libraries into this folder
    #[arg(long, value_name = "DIR")]
    cuda: Option<PathBuf>,
}

/// Fetches what is wanted, and says where it is.
pub(crate) fn perform(place: &Place, options: &Options) -> Outcome {
    match &options.cuda {
        None => setup(place).map(|library| shell::say(format!("ONNX Runtime: {}", library.describe()))),
        Some(folder) => cuda::setup(folder).map(|library| {
            shell::say(format!(
                "ONNX Runtime with CUDA: set engine.onnxruntime to {}",
                library.display()
            ));
        }),
    }
}

/// Finds the library, fetching it if need be. Doing it again changes nothing.
pub(crate) fn setup(place: &Place) -> Outcome<Library> {
    if let Some(library) = named(env::var_os("ORT_DYLIB_PATH"))? {
        return Ok(library);
    }
    if let Some(library) = of_python() {
        return Ok(library);
    }
    let pin = pin(env::consts::ARCH)?;
    let path = place.onnxruntime().join(format!("libonnxruntime.so.{VERSION}"));
    if !path.exists() {
        fetch(pin, &path)?;
    } else if sum(&path)? != pin.sha256 {
        shell::say(format!("{} is damaged: fetching it again", path.display()));
        fetch(pin, &path)?;
    }
    Ok(Library {
        path,
        origin: Origin::Fetched,
    })
}

/// The library that the user named, which must exist.
fn named(variable: Option<OsString>) -> Outcome<Option<Library>> {
    let Some(path) = variable.filter(|value| !value.is_empty()).map(PathBuf::from) else {
        return Ok(None);
    };
    if !path.is_file() {
        return Err(
            Failure::new(format!("ORT_DYLIB_PATH names {}, which is no file", path.display()))
                .remedy("correct it, or unset it to have the library fetched"),
        );
    }
    Ok(Some(Library {
        path,
        origin: Origin::Environment,
    }))
}

/// The library of an installed Python package, if it is new enough.
fn of_python() -> Option<Library> {
    const FIND: &str = "import importlib.util as u; s = u.find_spec('onnxruntime'); \
                        print(s.submodule_search_locations[0] if s else '')";
    let output = Command::new("python3")
        .args(["-c", FIND])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let folder = folder.trim();
    if folder.is_empty() {
        return None;
    }
    let found = fs::read_dir(Path::new(folder).join("capi")).ok()?;
    let path = found
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| is_new_enough(path))?;
    Some(Library {
        path,
        origin: Origin::Python,
    })
}

/// Whether the file's name carries a version that the engine can use.
fn is_new_enough(path: &Path) -> bool {
    let version = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_prefix("libonnxruntime.so."));
    let mut numbers = version
        .unwrap_or_default()
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= OLDEST)
}

fn pin(arch: &str) -> Outcome<&'static Pin> {
    PINS.iter()
        .find(|pin| pin.arch == arch)
        .ok_or_else(|| Failure::new(format!("no ONNX Runtime is pinned for {arch}")).remedy(BY_HAND))
}

/// Downloads the wheel beside the final place, takes the library out, checks it, and renames it.
fn fetch(pin: &Pin, path: &Path) -> Outcome {
    let folder = path
        .parent()
        .ok_or_else(|| Failure::new("the target folder has no parent"))?;
    let scratch = folder.join(format!("download-{}", std::process::id()));
    fs::create_dir_all(&scratch).doing(|| format!("create {}", scratch.display()))?;
    let done = fetch_into(pin, &scratch, path);
    fs::remove_dir_all(&scratch).doing(|| format!("remove {}", scratch.display()))?;
    done
}

fn fetch_into(pin: &Pin, scratch: &Path, path: &Path) -> Outcome {
    if !shell::exists("python3") {
        return Err(
            Failure::new("python3 is not installed, and ONNX Runtime comes by its pip")
                .remedy(format!("{PYTHON_REMEDY}, or {BY_HAND}")),
        );
    }
    shell::say(format!("fetching onnxruntime {VERSION} (about 23 MB)"));
    // Named outright, so that any Python may do the download and all get the same bytes.
    let machine = [
        "--implementation",
        "cp",
        "--python-version",
        "3.11",
        "--platform",
        pin.platform,
    ];
    python::download(&format!("onnxruntime=={VERSION}"), scratch, &machine).map_err(|failure| {
        failure.remedy(format!(
            "check that pip is installed and reaches an index, or {BY_HAND}"
        ))
    })?;
    let unpacked = scratch.join("libonnxruntime.so");
    unpack(&wheel_in(scratch)?, &unpacked)?;
    let found = sum(&unpacked)?;
    if found != pin.sha256 {
        return Err(Failure::new(format!(
            "the downloaded library has SHA-256 {found}, not the pinned {}",
            pin.sha256
        ))
        .remedy(format!("ask your package index why, or {BY_HAND}")));
    }
    fs::rename(&unpacked, path).doing(|| format!("put {} in place", path.display()))
}

pub(crate) fn wheel_in(folder: &Path) -> Outcome<PathBuf> {
    let entries = fs::read_dir(folder).doing(|| format!("read {}", folder.display()))?;
    let mut wheels = entries.filter_map(Result::ok).map(|entry| entry.path());
    wheels
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| Failure::new("pip ended well but left no wheel behind"))
}

/// Takes the one library out of the wheel, which is a zip file, by Python's own reader.
fn unpack(wheel: &Path, to: &Path) -> Outcome {
    const UNPACK: &str = "import shutil, sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as source, open(sys.argv[3], 'wb') as to:\n    \
        shutil.copyfileobj(source, to)";
    let member = format!("onnxruntime/capi/libonnxruntime.so.{VERSION}");
    shell::output(
        Command::new("python3")
            .args(["-c", UNPACK])
            .arg(wheel)
            .arg(member)
            .arg(to),
    )
    .map(drop)
}

/// SHA-256 of a file, in hexadecimal digits.
pub(crate) fn sum(path: &Path) -> Outcome<String> {
    let bytes = fs::read(path).doing(|| format!("read {}", path.display()))?;
    Ok(hex(&Sha256::digest(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_file_names() {
        let cases = [
            ("libonnxruntime.so.1.31.1", true),
            ("libonnxruntime.so.1.24.0", true),
            ("libonnxruntime.so.2.0", true),
            ("libonnxruntime.so.1.23.2", false),
            ("libonnxruntime.so.1", false),
            ("libonnxruntime.so", false),
            ("libonnxruntime_providers_shared.so", false),
        ];
        for (name, expected) in cases {
            assert_eq!(is_new_enough(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn a_named_library_must_exist() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let cases = [
            (None, Ok(None)),
            (Some(OsString::new()), Ok(None)),
            (Some(here.clone().into_os_string()), Ok(Some(here))),
            (Some(OsString::from("/nowhere/lib.so")), Err("/nowhere/lib.so")),
        ];
        for (variable, expected) in cases {
            match (named(variable.clone()), expected) {
                (Ok(found), Ok(path)) => assert_eq!(found.map(|library| library.path), path),
                (Err(failure), Err(text)) => assert!(failure.to_string().contains(text), "{failure}"),
                (found, expected) => panic!("{variable:?}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn other_processors_are_told_what_to_do() {
        for arch in ["x86_64", "aarch64"] {
            assert_eq!(pin(arch).map(|pin| pin.sha256.len()).ok(), Some(64));
        }
        assert!(
            pin("riscv64")
                .err()
                .is_some_and(|failure| failure.to_string().contains("ORT_DYLIB_PATH"))
        );
    }
}
