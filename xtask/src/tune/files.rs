//! Every file that `tune` reads or changes, by one door: a tree under a prefix, `/` on a real machine.
//!
//! Nothing here decides what is written. Invariant: when a call that changes a file returns, the change survives a loss of
//! power (kernel settings apart, which a boot resets), so the journal and what it tells of are on disk in that order.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Nothing that is read here is larger, in bytes.
const LONGEST: u64 = 1 << 20;

/// What `tune` needs of a machine's files. Paths are absolute, as the machine itself names them.
pub(super) trait Files {
    /// The whole text.
    fn read(&self, path: &str) -> io::Result<String>;
    /// The names in a folder, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Whether anything has this name, a link that leads nowhere included.
    fn there(&self, path: &str) -> io::Result<bool>;
    /// Gives a kernel setting its value, in one write. The file must exist.
    fn set(&self, path: &str, value: &str) -> io::Result<()>;
    /// Adds to a file that only its owner may read; makes it if need be.
    fn append(&self, path: &str, text: &str) -> io::Result<()>;
    /// Makes a file that all may read, or makes it anew.
    fn create(&self, path: &str, text: &str) -> io::Result<()>;
    /// Gives a file another name in the same folder.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes a folder that all may read.
    fn make_folder(&self, path: &str) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &str) -> io::Result<()>;
}

/// The files below a prefix.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    prefix: PathBuf,
}

impl Disk {
    /// Below this folder.
    pub(super) fn new(prefix: impl Into<PathBuf>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Keeps every other `tune` out until the result is dropped.
    ///
    /// # Errors
    /// If another one is at work (`WouldBlock`), or if the folder cannot be opened.
    pub(super) fn lock(&self, folder: &str) -> io::Result<File> {
        let folder = File::open(self.at(folder))?;
        folder.try_lock().map_err(io::Error::from)?;
        Ok(folder)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.prefix.join(path.trim_start_matches('/'))
    }
}

/// A name is durable when its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        File::open(self.at(path))?.take(LONGEST + 1).read_to_string(&mut text)?;
        if text.len() as u64 > LONGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 1 MiB"));
        }
        Ok(text)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(path))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn there(&self, path: &str) -> io::Result<bool> {
        match fs::symlink_metadata(self.at(path)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.at(path))?;
        let line = format!("{}\n", value.trim_end());
        // A second write would be a second value.
        match file.write(line.as_bytes())? {
            written if written == line.len() => Ok(()),
            written => Err(io::Error::other(format!(
                "{written} bytes of {} were taken",
                line.len()
            ))),
        }
    }

    fn append(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.at(path);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        sync_folder(&path)
    }

    fn create(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.at(path);
        if path.is_file() {
            fs::remove_file(&path)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        sync_folder(&path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))?;
        sync_folder(&self.at(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))?;
        sync_folder(&self.at(path))
    }

    fn make_folder(&self, path: &str) -> io::Result<()> {
        DirBuilder::new().mode(0o755).create(self.at(path))?;
        sync_folder(&self.at(path))
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))?;
        sync_folder(&self.at(path))
    }
}
