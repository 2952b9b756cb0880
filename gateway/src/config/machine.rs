//! What a configuration refers to outside its file: environment, other files, cores.
//!
//! Nothing here is changed, only looked at. Invariant: the rest of `config` reaches the machine through
//! [`Surroundings`] only, so it is tested without one.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// What a configuration may look at.
pub trait Surroundings {
    /// An environment variable; `None` if it is not set, or not text.
    fn env(&self, name: &str) -> Option<String>;
    /// A text file of at most `limit` bytes.
    ///
    /// # Errors
    /// With a message for the user: missing, unreadable, too large, not UTF-8.
    fn read(&self, path: &Path, limit: u64) -> io::Result<String>;
    /// Whether this is a folder.
    fn is_folder(&self, path: &Path) -> bool;
    /// Whether this is a file.
    fn is_file(&self, path: &Path) -> bool;
    /// The cores that this process may use, ascending; empty if that cannot be found out.
    fn cores(&self) -> Vec<usize>;
    /// Bytes of memory that this process may use: the machine's, or less if its control group says so. `None`: it cannot
    /// be found out.
    fn memory(&self) -> Option<u64>;
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Surroundings for Machine {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
        if text.len() as u64 > limit {
            return Err(io::Error::other(format!("it is larger than {limit} bytes")));
        }
        Ok(text)
    }

    fn is_folder(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn cores(&self) -> Vec<usize> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .and_then(core_list)
            .unwrap_or_default()
    }

    fn memory(&self) -> Option<u64> {
        let machine = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total);
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limits = groups
            .lines()
            .filter_map(group_path)
            .flat_map(|group| limits_of(&group));
        machine.into_iter().chain(limits).min()
    }
}

/// The machine's memory in bytes, as `/proc/meminfo` tells it in KiB.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The folder of a control group that bounds memory, of a line of `/proc/self/cgroup`: that of version 2 (`0::/path`), or
/// the controller `memory` of version 1.
fn group_path(line: &str) -> Option<PathBuf> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let root = match controllers {
        "" => "/sys/fs/cgroup",
        "memory" => "/sys/fs/cgroup/memory",
        _ => return None,
    };
    Some(Path::new(root).join(path.trim_start_matches('/')))
}

/// The limits of a control group and of those above it; "max" is none.
fn limits_of(group: &Path) -> Vec<u64> {
    let above = group
        .ancestors()
        .take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    let files = above.flat_map(|folder| ["memory.max", "memory.limit_in_bytes"].map(|name| folder.join(name)));
    files
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
        .collect()
}

impl Machine {
    /// The folder of the bundled model of this name: beside the program, where an installation has it, or in the tree that the
    /// program was built in.
    ///
    /// # Errors
    /// All places that were looked at.
    pub fn bundled_model(name: &str) -> Result<PathBuf, String> {
        let program = std::env::current_exe()
            .and_then(std::fs::canonicalize)
            .unwrap_or_default();
        let places = bundled_places(&program, name);
        let found = places.iter().find(|place| place.join("tokenizer.json").is_file());
        found.cloned().ok_or_else(|| {
            let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            format!(
                "the bundled model {name} is not there: looked in {}; name a model of yours in the configuration",
                places.join(", ")
            )
        })
    }
}

/// Where the bundled model of this program may be.
fn bundled_places(program: &Path, name: &str) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new(""));
    let near = ["models", "../share/zerohop/models", "../../models"];
    let places = near.iter().map(|place| folder.join(place));
    places
        .chain([PathBuf::from("models")])
        .map(|place| place.join(name))
        .collect()
}

/// Reads a list of cores as Linux writes it: `0-3,8`.
fn core_list(text: &str) -> Option<Vec<usize>> {
    const MOST: usize = 1 << 16;
    let mut cores = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_read() {
        for (text, cores) in [
            ("\t0-3,8\n", Some(vec![0, 1, 2, 3, 8])),
            ("5", Some(vec![5])),
            ("", None),
            ("a-b", None),
            ("0-99999999", None),
        ] {
            assert_eq!(core_list(text), cores, "{text:?}");
        }
    }

    #[test]
    fn this_machine_has_cores() {
        assert!(!Machine.cores().is_empty());
    }

    #[test]
    fn memory_is_found() {
        assert_eq!(
            total("MemTotal:       24620468 kB\nMemFree: 1 kB\n"),
            Some(24_620_468 << 10)
        );
        assert_eq!(total("MemFree: 1 kB\n"), None);
        for (line, path) in [
            (
                "0::/system.slice/zerohop.service",
                Some("/sys/fs/cgroup/system.slice/zerohop.service"),
            ),
            ("0::/", Some("/sys/fs/cgroup/")),
            ("9:memory:/docker/1", Some("/sys/fs/cgroup/memory/docker/1")),
            ("3:cpu,cpuacct:/docker/1", None),
            ("", None),
        ] {
            assert_eq!(group_path(line), path.map(PathBuf::from), "{line:?}");
        }
        assert!(Machine.memory().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let path = std::env::current_exe().expect("a test is a program");
        assert!(Machine.read(&path, 16).is_err());
        assert!(Machine.read(Path::new("/proc/self/comm"), 64).is_ok());
        assert!(Machine.read(Path::new("/nowhere/at/all"), 64).is_err());
    }
}
