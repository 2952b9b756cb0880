//! A whole index, written beside the old one and put into its place.
//!
//! Invariant: the file of the index's name is the old one or the new one, each whole, whenever the power fails.

use std::{io, sync::Arc};

use super::{
    Change, Covered, IndexError, MAX_BUCKETS, MIN_BUCKETS, MODELS, NAME_OF_FILE, NAME_WHILE_BUILT, Options, View,
    changes::sort,
    check::Model,
    meta::{Meta, SLOTS},
    page::PAGE,
    pages::Pages,
    sink::Sink,
    space::Space,
    stage::Stage,
    tree::Tree,
    writer::{IndexWriter, Inner, check, check_name, tree},
};
use crate::{
    files::{File, Files, Open},
    types::Entry,
};

impl<F: Files> IndexWriter<F> {
    /// An index without entries, in the place of one that is there.
    ///
    /// # Errors
    /// [`IndexError::Buckets`], [`IndexError::Io`].
    pub async fn create(files: F, view: View, options: Options) -> Result<Self, IndexError> {
        let built = Self::build(files, view, options, Vec::new(), Covered::NOTHING, []).await?;
        Ok(built.0)
    }

    /// An index of these entries, in the place of one that is there; and those that their bucket had no room for, the coldest.
    /// The number of a model is its place in `models`. Of several entries with one key the last counts.
    ///
    /// It holds about 150 bytes an entry in memory while it runs.
    ///
    /// # Errors
    /// [`IndexError::Buckets`], and those of [`IndexWriter::model`] and [`IndexWriter::commit`].
    pub async fn build(
        files: F,
        view: View,
        options: Options,
        models: Vec<String>,
        covered: Covered,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<(Self, Vec<Entry>), IndexError> {
        let new = New {
            options,
            models,
            covered,
        };
        let changes = entries.into_iter().map(Change::Put).collect();
        let (inner, evicted) = new.write(&files, &view, changes).await?;
        rename(&files).await?;
        Ok((Self::with(files, view, inner), evicted))
    }

    /// As [`IndexWriter::build`] with the models that there are; readers go over to the new tree. It also ends
    /// [`IndexError::Uncertain`].
    ///
    /// # Errors
    /// As [`IndexWriter::build`]; readers then keep what they have, and only if the last step failed is the writer uncertain.
    pub async fn rebuild(
        &mut self,
        options: Options,
        covered: Covered,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<Vec<Entry>, IndexError> {
        let new = New {
            options,
            models: self.models().map(str::to_owned).collect(),
            covered,
        };
        let changes = entries.into_iter().map(Change::Put).collect();
        let (mut inner, evicted) = new.write(&self.files, &self.view, changes).await?;
        // Until it is done, nobody knows which of the two files has the name.
        self.uncertain = true;
        rename(&self.files).await?;
        self.uncertain = false;
        self.current.store(inner.tree.clone());
        std::mem::swap(&mut self.inner, &mut inner);
        self.inner.space.inherit(inner.space, inner.tree);
        Ok(evicted)
    }
}

/// What a new file is made of, besides its entries.
struct New {
    options: Options,
    models: Vec<String>,
    covered: Covered,
}

impl New {
    /// Writes the file under its passing name.
    async fn write<F: Files>(
        self,
        files: &F,
        view: &View,
        mut changes: Vec<Change>,
    ) -> Result<(Inner<F::File>, Vec<Entry>), IndexError> {
        let Options { buckets, versions } = self.options;
        if !buckets.is_power_of_two() || !(MIN_BUCKETS..=MAX_BUCKETS).contains(&buckets) {
            return Err(IndexError::Buckets(buckets));
        }
        if self.models.len() > MODELS {
            return Err(IndexError::Models);
        }
        self.models.iter().try_for_each(|name| check_name(name))?;
        check(&changes, self.models.len())?;
        sort(&mut changes, u64::from(buckets - 1));
        let meta = Meta {
            txid: 0,
            buckets,
            models: 0,
            covered: self.covered,
            entries: 0,
            versions,
            directory: Vec::new(),
        };
        let file = fresh(files).await?;
        file.reserve(u64::from(SLOTS) * PAGE as u64).await?;
        let mut models: Vec<_> = self.models.into_iter().map(Model::new).collect();
        let mut space = Space::<Tree>::new(SLOTS);
        let mut capacity = SLOTS;
        let sink = Sink::new(&file, &mut space, &mut capacity, false);
        let mut stage = Stage::new(&mut models, sink);
        let staged = stage.run(None, meta, &changes, true, |entry| entry.heat).await?;
        let meta = staged.meta;
        file.write_at(meta.write().to_vec(), u64::from(meta.slot()) * PAGE as u64)
            .await
            .0?;
        file.sync().await?;
        let pages = Pages::of(view, NAME_WHILE_BUILT, &file).await?;
        let inner = Inner {
            file,
            capacity,
            tree: Arc::new(tree(pages, &meta, &models)),
            meta,
            models,
            space,
        };
        Ok((inner, staged.evicted))
    }
}

/// A new file of the passing name; what is left of an earlier one goes.
async fn fresh<F: Files>(files: &F) -> io::Result<F::File> {
    match files.remove(NAME_WHILE_BUILT).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    files.open(NAME_WHILE_BUILT, Open::New).await
}

async fn rename<F: Files>(files: &F) -> io::Result<()> {
    files.rename(NAME_WHILE_BUILT, NAME_OF_FILE).await?;
    files.sync_folder().await
}
