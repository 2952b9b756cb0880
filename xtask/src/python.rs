//! Python virtual environments under the target folder, made once for each content of a requirements file.
//!
//! Nothing here touches the user's own Python packages. Invariant: a finished environment carries a stamp with the sum
//! of its requirements; without it the environment is made anew.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{
    failure::{Doing, Failure, Outcome},
    place::Place,
    shell,
};

/// Where to find Python, for every message that misses it.
pub(crate) const PYTHON_REMEDY: &str =
    "install Python 3.9 or newer with pip and venv (Debian: apt-get install python3-pip python3-venv)";

/// The python of an environment `name` that holds exactly `requirements`.
pub(crate) fn environment(place: &Place, name: &str, requirements: &Path) -> Outcome<PathBuf> {
    let folder = place.target.join("venv").join(name);
    let python = folder.join("bin/python");
    let wanted = fs::read(requirements).doing(|| format!("read {}", requirements.display()))?;
    let wanted = hex(&Sha256::digest(&wanted));
    let stamp = folder.join("requirements.sha256");
    if python.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    if !shell::exists("python3") {
        return Err(Failure::new("python3 is not installed").remedy(PYTHON_REMEDY));
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).doing(|| format!("remove {}", folder.display()))?;
    }
    shell::output(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        .map_err(|failure| failure.remedy(PYTHON_REMEDY))?;
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ]);
    shell::run(pip.arg(requirements))
        .map_err(|failure| failure.remedy("check that pip reaches a package index (pip config list)"))?;
    fs::write(&stamp, wanted).doing(|| format!("write {}", stamp.display()))?;
    Ok(python)
}

/// Has pip download one package of this requirement, without what it depends on, as a wheel into `folder`.
///
/// # Errors
/// pip's words; what helps is the caller's to say.
pub(crate) fn download(requirement: &str, folder: &Path, arguments: &[&str]) -> Outcome {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
        .args(["--no-deps", "--only-binary=:all:"])
        .args(arguments)
        .arg("--dest")
        .arg(folder)
        .arg(requirement);
    shell::output(&mut pip).map(drop)
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
