//! Where readers find pages: in the mapped file, or in memory.
//!
//! Never writes. Invariant: the pages of a tree stay as they are while it is held; those in memory are never changed at all, the
//! mapped ones by [`super::space`].

use std::{fs, io, path::PathBuf, sync::Arc};

use super::{
    meta::SLOTS,
    page::{PAGE, Page},
};
use crate::{files::File, map::Map};

/// How readers are to see the file.
#[derive(Debug, Clone)]
pub enum View {
    /// Mapped, from this folder, which must be the one that the `Files` are of. They must write through the page cache.
    Mapped(PathBuf),
    /// Copied to memory page by page: for a disk that no path leads to.
    Copied,
}

/// The pages of a file, at one time.
#[derive(Debug, Clone)]
pub(super) enum Pages {
    Mapped(Arc<Map>),
    Copied(Arc<Vec<Arc<Page>>>),
}

impl Pages {
    /// Those of `file`, which is called `name`.
    pub(super) async fn of(view: &View, name: &str, file: &impl File) -> io::Result<Self> {
        match view {
            View::Mapped(folder) => Self::mapped(folder, name),
            View::Copied => {
                let pages = file.size().await? / PAGE as u64;
                let mut held = Vec::new();
                for at in 0..pages {
                    let bytes = file.read_at(PAGE, at * PAGE as u64).await?;
                    let page = bytes.try_into().map_err(|_| io::ErrorKind::UnexpectedEof)?;
                    held.push(Arc::new(page));
                }
                Ok(Self::Copied(Arc::new(held)))
            }
        }
    }

    fn mapped(folder: &std::path::Path, name: &str) -> io::Result<Self> {
        let file = fs::File::open(folder.join(name))?;
        Ok(Self::Mapped(Arc::new(Map::of(&file)?)))
    }

    /// With what was written since. A map shows that by itself, unless the file has grown beyond it.
    pub(super) fn with(&self, view: &View, name: &str, written: Vec<(u32, Arc<Page>)>, end: u32) -> io::Result<Self> {
        match (self, view) {
            (Self::Mapped(map), View::Mapped(folder)) if map.pages() < end => Self::mapped(folder, name),
            (Self::Mapped(_), _) => Ok(self.clone()),
            (Self::Copied(held), _) => {
                let mut held = held.to_vec();
                for (at, page) in written {
                    let at = at as usize;
                    if held.len() <= at {
                        held.resize_with(at + 1, || Arc::new([0; PAGE]));
                    }
                    held[at] = page;
                }
                Ok(Self::Copied(Arc::new(held)))
            }
        }
    }

    /// A page of a tree; none for the numbers of meta slots, which no tree has.
    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&Page> {
        (at >= SLOTS).then(|| self.any(at)).flatten()
    }

    /// Any page, meta slots too.
    #[inline]
    pub(super) fn any(&self, at: u32) -> Option<&Page> {
        match self {
            Self::Mapped(map) => map.page(at),
            Self::Copied(held) => held.get(at as usize).map(|page| &**page),
        }
    }
}
