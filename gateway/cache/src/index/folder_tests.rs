//! A folder of the file system, with calls that wait: for tests and measurements that need a real file.

use std::{
    fs,
    future::{Future, ready},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::door::{File, Files, Open};

/// A folder of its own, removed with everything in it when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Folder(Arc<Owned>);

struct Owned(PathBuf);

impl Drop for Owned {
    fn drop(&mut self) {
        // What is left behind is in the system's folder for that.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    pub(super) fn new(name: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("zerohop-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(Arc::new(Owned(path))))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.0
    }
}

impl Files for Folder {
    type File = FolderFile;

    fn open(&self, name: &str, how: Open) -> impl Future<Output = io::Result<FolderFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options.create_new(how == Open::New).create(how == Open::Either);
        ready(options.open(self.path().join(name)).map(FolderFile))
    }

    fn rename(&self, from: &str, to: &str) -> impl Future<Output = io::Result<()>> {
        ready(fs::rename(self.path().join(from), self.path().join(to)))
    }

    fn remove(&self, name: &str) -> impl Future<Output = io::Result<()>> {
        ready(fs::remove_file(self.path().join(name)))
    }

    fn list(&self) -> impl Future<Output = io::Result<Vec<(String, u64)>>> {
        let list = || {
            let mut found = Vec::new();
            for file in fs::read_dir(self.path())? {
                let file = file?;
                found.push((file.file_name().to_string_lossy().into_owned(), file.metadata()?.len()));
            }
            found.sort();
            Ok(found)
        };
        ready(list())
    }

    fn sync_folder(&self) -> impl Future<Output = io::Result<()>> {
        ready(fs::File::open(self.path()).and_then(|folder| folder.sync_all()))
    }
}

pub(super) struct FolderFile(fs::File);

impl File for FolderFile {
    fn write_at(&self, bytes: Vec<u8>, offset: u64) -> impl Future<Output = (io::Result<()>, Vec<u8>)> {
        ready((self.0.write_all_at(&bytes, offset), bytes))
    }

    fn read_at(&self, len: usize, offset: u64) -> impl Future<Output = io::Result<Vec<u8>>> {
        let mut bytes = vec![0; len];
        ready(self.0.read_exact_at(&mut bytes, offset).map(|()| bytes))
    }

    fn sync(&self) -> impl Future<Output = io::Result<()>> {
        ready(self.0.sync_data())
    }

    fn reserve(&self, len: u64) -> impl Future<Output = io::Result<()>> {
        let size = self.0.metadata().map(|metadata| metadata.len());
        ready(size.and_then(|size| self.0.set_len(size.max(len))))
    }

    fn size(&self) -> impl Future<Output = io::Result<u64>> {
        ready(self.0.metadata().map(|metadata| metadata.len()))
    }
}
