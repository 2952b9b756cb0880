//! Programs for node with their npm packages, pinned by lock files.
//!
//! Invariant: packages lie under the target folder, and are installed anew only when the lock file is new.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    failure::{Doing, Failure, Outcome},
    place::Place,
    shell,
};

/// Copies `program` from the folder `from` of the repository beside its packages in the folder `to` under the target
/// folder, since node looks for packages beside the file that imports them; installs them if the lock file is new.
pub(crate) fn install(place: &Place, from: &str, to: &str, program: &str) -> Outcome<PathBuf> {
    if !shell::exists("npm") {
        return Err(
            Failure::new("npm is not installed").remedy("install Node.js 20 or newer (Debian: apt-get install npm)")
        );
    }
    let (from, to) = (place.root.join(from), place.target.join(to));
    fs::create_dir_all(&to).doing(|| format!("create {}", to.display()))?;
    let lock = "package-lock.json";
    let same = |name: &str| Some(fs::read(from.join(name)).ok()? == fs::read(to.join(name)).ok()?);
    let installed = to.join("node_modules/.package-lock.json").exists() && same(lock) == Some(true);
    for name in ["package.json", program] {
        fs::copy(from.join(name), to.join(name)).doing(|| format!("copy {name}"))?;
    }
    if !installed {
        fs::copy(from.join(lock), to.join(lock)).doing(|| format!("copy {lock}"))?;
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
            .current_dir(&to);
        if let Err(failure) = shell::run(&mut npm) {
            // Or the next run would take a half-made folder for a whole one.
            fs::remove_file(to.join(lock)).ok();
            return Err(failure.remedy("check that npm reaches a package registry (npm ping)"));
        }
    }
    Ok(to)
}
