//! A folder of the file system: through io_uring where the kernel lets us, else by plain calls that block the writer's thread.
//!
//! It never runs on a worker, and drops no future that is in flight: whoever awaits one awaits it to its end. Invariant: both ways
//! do the same to the files; files are made readable and writable by their owner only (0600), folders that are missing too (0700).

use std::{
    fmt, fs,
    future::Future,
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    pin::pin,
    task::{Context, Poll, Waker},
};

use rustix::fs::{FallocateFlags, fallocate};
use tokio_uring::{
    Runtime,
    buf::BoundedBuf,
    fs::{self as ring, File as RingFile},
};

use zerohop_ring::ReadFile;

use super::{File, Files, Open};

/// Submissions that fit the writer's ring; it has one or two in flight.
const ENTRIES: u32 = 64;

/// Runs the cache writer's futures on the thread that made it.
pub enum Executor {
    /// With a ring of its own.
    Ring(Runtime),
    /// By plain calls; why there is no ring, if one was wanted.
    Calls(Option<io::Error>),
}

impl fmt::Debug for Executor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring(_) => out.write_str("Ring"),
            Self::Calls(why) => out.debug_tuple("Calls").field(why).finish(),
        }
    }
}

impl Executor {
    /// With a ring where kernel and container allow one (Linux 5.19, which then has every operation used here), else with plain
    /// calls and the reason, which is the caller's to tell.
    #[must_use]
    pub fn start() -> Self {
        // Not deferred task run: tokio-uring waits for the ring by epoll and would wait for ever.
        let mut builder = tokio_uring::uring_builder();
        builder.setup_coop_taskrun();
        match Runtime::new(tokio_uring::builder().entries(ENTRIES).uring_builder(&builder)) {
            Ok(runtime) => Self::Ring(runtime),
            Err(why) => Self::Calls(Some(why)),
        }
    }

    /// With plain calls.
    #[must_use]
    pub fn calls() -> Self {
        Self::Calls(None)
    }

    /// Runs a future to its end.
    ///
    /// # Panics
    /// Without a ring, if the future waits for anything but files of this module, which never wait then.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match self {
            Self::Ring(runtime) => runtime.block_on(future),
            Self::Calls(_) => ready(future),
        }
    }

    /// A folder, made where it is missing. What it gives is used on this thread only, within [`Self::block_on`].
    ///
    /// # Errors
    /// If the folder can neither be found nor made.
    pub fn folder(&self, path: impl Into<PathBuf>) -> io::Result<DiskFiles> {
        let path = path.into();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(DiskFiles {
            path,
            ring: matches!(self, Self::Ring(_)),
        })
    }
}

/// Runs a future that never waits, as those of plain calls and of the simulated disk.
///
/// # Panics
/// If it waits.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("files without a ring never wait"),
    }
}

/// A folder of the file system.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    path: PathBuf,
    ring: bool,
}

impl DiskFiles {
    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn at(&self, name: &str) -> io::Result<PathBuf> {
        let plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
        let path = plain.then(|| self.path.join(name));
        path.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no plain file name")))
    }
}

impl Files for DiskFiles {
    type File = DiskFile;

    async fn open(&self, name: &str, how: Open) -> io::Result<DiskFile> {
        let path = self.at(name)?;
        let (new, either) = (how == Open::New, how == Open::Either);
        if self.ring {
            let mut options = ring::OpenOptions::new();
            options.read(true).write(true).create_new(new).create(either);
            return options.mode(0o600).open(path).await.map(DiskFile::Ring);
        }
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(new).create(either);
        options.mode(0o600).open(path).map(DiskFile::Calls)
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.at(from)?, self.at(to)?);
        match self.ring {
            true => ring::rename(from, to).await,
            false => fs::rename(from, to),
        }
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.at(name)?;
        match self.ring {
            true => ring::remove_file(path).await,
            false => fs::remove_file(path),
        }
    }

    /// By plain calls: there is no ring operation that lists.
    async fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for file in fs::read_dir(&self.path)? {
            let file = file?;
            let metadata = file.metadata()?;
            // What has another kind of name, or is a folder, is none of ours.
            if let (true, Ok(name)) = (metadata.is_file(), file.file_name().into_string()) {
                found.push((name, metadata.len()));
            }
        }
        found.sort();
        Ok(found)
    }

    fn readable(&self, name: &str) -> io::Result<Option<ReadFile>> {
        ReadFile::new(fs::File::open(self.at(name)?)?).map(Some)
    }

    async fn sync_folder(&self) -> io::Result<()> {
        match self.ring {
            true => RingFile::open(&self.path).await?.sync_all().await,
            false => fs::File::open(&self.path)?.sync_all(),
        }
    }
}

/// An open file of a [`DiskFiles`].
pub enum DiskFile {
    /// Through the ring.
    Ring(RingFile),
    /// By plain calls.
    Calls(fs::File),
}

impl fmt::Debug for DiskFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("DiskFile")
    }
}

impl File for DiskFile {
    async fn write_at(&self, bytes: Vec<u8>, offset: u64) -> (io::Result<()>, Vec<u8>) {
        match self {
            Self::Ring(file) => file.write_all_at(bytes, offset).await,
            Self::Calls(file) => (file.write_all_at(&bytes, offset), bytes),
        }
    }

    async fn read_at(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        match self {
            // A slice of nothing cannot be made.
            _ if len == 0 => Ok(Vec::new()),
            Self::Ring(file) => {
                let (outcome, bytes) = file.read_exact_at(Vec::with_capacity(len).slice(..len), offset).await;
                outcome.map(|()| bytes.into_inner())
            }
            Self::Calls(file) => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, offset).map(|()| bytes)
            }
        }
    }

    async fn sync(&self) -> io::Result<()> {
        match self {
            Self::Ring(file) => file.sync_data().await,
            Self::Calls(file) => file.sync_data(),
        }
    }

    async fn reserve(&self, len: u64) -> io::Result<()> {
        let size = self.size().await?;
        if size >= len {
            return Ok(());
        }
        let outcome = match self {
            Self::Ring(file) => file.fallocate(0, len, 0).await,
            Self::Calls(file) => fallocate(file, FallocateFlags::empty(), 0, len).map_err(io::Error::from),
        };
        match outcome {
            // The file system has no such thing: its last byte makes it as long, with a hole before.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.write_at(vec![0], len - 1).await.0,
            outcome => outcome,
        }
    }

    async fn size(&self) -> io::Result<u64> {
        match self {
            Self::Ring(file) => Ok(file.statx().await?.stx_size),
            Self::Calls(file) => Ok(file.metadata()?.len()),
        }
    }
}
