//! A folder of one test, removed at its end.
//!
//! Invariant: two of them never coincide, in one process or in several.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// The folder; it goes when this goes.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new, empty folder in the system's place for temporary files.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> io::Result<Self> {
        fs::create_dir_all(env::temp_dir())?;
        Self::within(&env::temp_dir())
    }

    /// The same in memory where the system has a place for it: for tests that wait for a disk thousands of times.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn in_memory() -> io::Result<Self> {
        Self::within(Path::new("/dev/shm")).or_else(|_| Self::new())
    }

    fn within(folder: &Path) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("zerohop-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        // A folder left by a killed process that had our id.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into it.
    ///
    /// # Errors
    /// If that fails.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, contents)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is in the folder for temporary files: no reason to fail.
        fs::remove_dir_all(&self.path).ok();
    }
}
