//! LMDB, as the look-ups are measured against it.
//!
//! It writes once and then only reads. The one file of the crate's examples with unsafe code.

use std::{fs, path::Path};

use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, types::Bytes};

use super::Outcome;

/// A new environment in a new folder, of 1 GiB at most.
#[allow(unsafe_code)]
pub(super) fn open(folder: &Path) -> Outcome<Env> {
    fs::create_dir(folder)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(1 << 30);
    // SAFETY: the folder was made just now, inside one that only this process knows: nobody else opens, writes or shortens
    // the files under the map.
    Ok(unsafe { options.open(folder) }?)
}

/// A table with these entries.
pub(super) fn fill<'a>(env: &'a Env, entries: &[([u8; 48], [u8; 34])]) -> Outcome<Database<'a, Bytes, Bytes>> {
    let made = env.create_databases_and_commit(env.write_txn()?, |opener, writing| -> heed::Result<_> {
        let table = opener.create_database::<Bytes, Bytes>(writing, None)?;
        Ok(CommitOrAbort::<_, ()>::Commit(table))
    })?;
    let CommitOrAbort::Commit(table) = made else {
        return Err("LMDB made no table".into());
    };
    let mut writing = env.write_txn()?;
    for (key, value) in entries {
        table.put(&mut writing, key, value)?;
    }
    writing.commit()?;
    Ok(table)
}
