//! `cargo xtask ebpf`: the programs for the kernel, built by the one tool chain that is known to build them.
//!
//! They are written in Rust for the target `bpfel-unknown-none`, which no stable tool chain brings core for. Debian's
//! `rustc-web` comes with the source of its own core, and its LLVM as a shared library, which `bpf-linker` is built
//! against. The objects are committed, so nobody needs any of this to build the gateway. Invariant: the committed
//! objects are what these sources give with the tools that `ebpf/objects/TOOLCHAIN` names.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{
    failure::{Doing, Failure, Outcome},
    place::{self, Place},
    python::hex,
    shell,
};

/// The programs.
const PROGRAMS: [&str; 3] = ["guard", "pass", "steer"];
/// Debian's compiler with the source of its core; they bring libllvm22.
const PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];
const LINKER: &str = "0.13.0";
const TARGET: &str = "bpfel-unknown-none";

/// Arguments of `ebpf`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Install what is missing: Debian packages rustc-web and rust-web-src (137 MB to fetch, 760 MB on disk; as root),
    /// and bpf-linker from crates.io into the target folder (about a minute to build)
    #[arg(long)]
    install: bool,
    /// Change nothing: build, and compare with what is committed
    #[arg(long)]
    check: bool,
}

/// Builds the programs.
pub(crate) fn ebpf(place: &Place, options: &Options) -> Outcome {
    if options.install {
        install(place)?;
    }
    if options.check {
        return match unusable(place) {
            Some(why) => Err(Failure::new(why)),
            None => check(place),
        };
    }
    let tools = Tools::find(place)?;
    let built = tools.build(place)?;
    for (name, path) in PROGRAMS.iter().zip(&built) {
        fs::copy(path, object(&place.root, name)).doing(|| format!("copy {}", path.display()))?;
    }
    let text = toolchain(&place.root, &tools.versions()?)?;
    let path = place.root.join("ebpf/objects/TOOLCHAIN");
    fs::write(&path, &text).doing(|| format!("write {}", path.display()))?;
    shell::say(text);
    Ok(())
}

/// Why the committed programs cannot be compared here; `None` if they can.
pub(crate) fn unusable(place: &Place) -> Option<String> {
    let versions = Tools::find(place).and_then(|tools| tools.versions());
    let committed = fs::read_to_string(place.root.join("ebpf/objects/TOOLCHAIN")).unwrap_or_default();
    match versions {
        Err(failure) => Some(failure.to_string().replace('\n', " ")),
        Ok(versions) if !committed.starts_with(&versions) => {
            Some("the tool chain is not that of ebpf/objects/TOOLCHAIN".into())
        }
        Ok(_) => None,
    }
}

/// Builds the programs, and compares them with those that are committed.
pub(crate) fn check(place: &Place) -> Outcome {
    let built = Tools::find(place)?.build(place)?;
    for (name, path) in PROGRAMS.iter().zip(&built) {
        let read = |path: &Path| fs::read(path).doing(|| format!("read {}", path.display()));
        if read(path)? != read(&object(&place.root, name))? {
            let what = format!("ebpf/objects/{name}.bpf.o is not what its sources give");
            return Err(Failure::new(what).remedy("cargo xtask ebpf"));
        }
    }
    shell::say(format!("{} programs are what their sources give", PROGRAMS.len()));
    Ok(())
}

/// Whether this process may load programs and make network namespaces, and has the tool for it.
pub(crate) fn may_load() -> bool {
    /// `CAP_NET_ADMIN`, `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF`.
    const CAPABILITIES: [u32; 4] = [12, 21, 38, 39];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let may = effective.is_some_and(|set| CAPABILITIES.iter().all(|bit| set >> bit & 1 == 1));
    may && shell::exists("ip")
}

fn object(root: &Path, name: &str) -> PathBuf {
    root.join(format!("ebpf/objects/{name}.bpf.o"))
}

/// What is committed beside the objects: first the versions, then the sums.
fn toolchain(root: &Path, versions: &str) -> Outcome<String> {
    let mut text = versions.to_owned();
    let _ = writeln!(text, "sources {}", sources(root)?);
    for name in PROGRAMS {
        let path = object(root, name);
        let bytes = fs::read(&path).doing(|| format!("read {}", path.display()))?;
        let _ = writeln!(text, "{name}.bpf.o {}", hex(&Sha256::digest(&bytes)));
    }
    Ok(text)
}

/// The sum of everything that the objects are made of.
fn sources(root: &Path) -> Outcome<String> {
    let mut files = vec![
        root.join("ebpf/programs/Cargo.lock"),
        root.join("ebpf/programs/Cargo.toml"),
    ];
    for folder in ["ebpf/abi/src", "ebpf/programs/src"] {
        let folder = root.join(folder);
        let entries = fs::read_dir(&folder).doing(|| format!("list {}", folder.display()))?;
        files.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
    }
    files.sort();
    let mut sum = Sha256::new();
    for path in files {
        sum.update(fs::read(&path).doing(|| format!("read {}", path.display()))?);
    }
    Ok(hex(&sum.finalize()))
}

/// The tools.
struct Tools {
    rustc: PathBuf,
    linker: PathBuf,
}

impl Tools {
    fn find(place: &Place) -> Outcome<Self> {
        const REMEDY: &str = "cargo xtask ebpf --install, as root on Debian 12: `--help` says what it installs";
        let Some(rustc) = packaged("rustc-web", "bin/rustc") else {
            return Err(Failure::new("Debian's rustc-web is not installed").remedy(REMEDY));
        };
        if packaged("rust-web-src", "library/core/src/lib.rs").is_none() {
            return Err(Failure::new("Debian's rust-web-src is not installed").remedy(REMEDY));
        }
        let linker = folder(place).join("bin/bpf-linker");
        if !linker.is_file() {
            return Err(Failure::new("bpf-linker is not in the target folder").remedy(REMEDY));
        }
        Ok(Self { rustc, linker })
    }

    /// As the first lines of `TOOLCHAIN`.
    fn versions(&self) -> Outcome<String> {
        let told = shell::output(Command::new(&self.rustc).arg("-vV"))?;
        let told = String::from_utf8_lossy(&told).into_owned();
        let value = |key: &str| {
            told.lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap_or("unknown")
        };
        let linker = shell::output(Command::new(&self.linker).arg("--version"))?;
        let linker = String::from_utf8_lossy(&linker);
        Ok(format!(
            "rustc {}\nllvm {}\n{}\n",
            value("release: "),
            value("LLVM version: "),
            linker.trim()
        ))
    }

    /// Builds the programs; where each lies.
    fn build(&self, place: &Place) -> Outcome<Vec<PathBuf>> {
        let target = place.target.join("bpf");
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let ours = self.linker.parent().map(Path::to_path_buf);
        let path = std::env::join_paths(ours.into_iter().chain(std::env::split_paths(&folders)))
            .map_err(|error| Failure::new(format!("the folder of bpf-linker cannot be on the PATH: {error}")))?;
        let mut cargo = Command::new(place::cargo());
        cargo
            .args([
                "build",
                "--locked",
                "--release",
                "--target",
                TARGET,
                "-Z",
                "build-std=core",
            ])
            .current_dir(place.root.join("ebpf/programs"))
            .env("PATH", path)
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_DIR", &target)
            // Made for the compiler of the rest.
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_WRAPPER")
            .env_remove("RUSTUP_TOOLCHAIN");
        shell::run(&mut cargo)?;
        let built = target.join(TARGET).join("release");
        Ok(PROGRAMS.iter().map(|name| built.join(name)).collect())
    }
}

fn folder(place: &Place) -> PathBuf {
    place.target.join("bpf-tools")
}

/// The file of an installed Debian package whose path ends like this.
fn packaged(package: &str, end: &str) -> Option<PathBuf> {
    let listed = Command::new("dpkg").args(["-L", package]).output().ok()?;
    let listed = String::from_utf8(listed.stdout).ok()?;
    let found = listed.lines().find(|line| line.ends_with(end))?;
    Some(PathBuf::from(found))
}

fn install(place: &Place) -> Outcome {
    if PACKAGES.iter().any(|package| packaged(package, "").is_none()) {
        shell::say(
            "Debian's rustc-web and rust-web-src: a compiler with the source of its own core, beside the usual one",
        );
        shell::run(
            Command::new("apt-get")
                .args(["install", "-y", "--no-install-recommends"])
                .args(PACKAGES),
        )?;
    }
    let tools = folder(place);
    if tools.join("bin/bpf-linker").is_file() {
        return Ok(());
    }
    shell::say("bpf-linker: links what the compiler made for the kernel, by Debian's LLVM");
    let llvm = packaged("libllvm22", "/libLLVM.so.22.1")
        .ok_or_else(|| Failure::new("Debian's libllvm22 is not installed, though rustc-web needs it"))?;
    let lib = tools.join("llvm/lib");
    fs::create_dir_all(&lib).doing(|| format!("create {}", lib.display()))?;
    let link = lib.join("libLLVM.so");
    if !link.exists() {
        std::os::unix::fs::symlink(&llvm, &link).doing(|| format!("link {}", link.display()))?;
    }
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["install", "bpf-linker", "--version", LINKER, "--locked"])
        .args(["--no-default-features", "--features", "llvm-22", "--root"])
        .arg(&tools)
        .env("LLVM_PREFIX", tools.join("llvm"))
        .env("CARGO_TARGET_DIR", tools.join("build"))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    shell::run(&mut cargo)?;
    let build = tools.join("build");
    fs::remove_dir_all(&build).doing(|| format!("remove {}", build.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once built, a program must be built again when its sources change; this holds where no tool chain is at hand.
    #[test]
    fn the_committed_programs_are_those_of_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let committed = fs::read_to_string(root.join("ebpf/objects/TOOLCHAIN")).unwrap();
        let versions: String = committed.lines().take(3).map(|line| format!("{line}\n")).collect();
        assert!(versions.starts_with("rustc 1."), "{versions}");
        let expected = toolchain(root, &versions)
            .map_err(|failure| failure.to_string())
            .unwrap();
        assert_eq!(committed, expected, "build them again: cargo xtask ebpf");
    }
}
