//! Name spaces: whose answers a caller may see, and the secret that keeps them apart.
//!
//! A name space is told by nobody: it is derived from the configuration and a secret of this cache, never from what a client
//! sends. Invariant: name spaces of different tenants, keys or scopes are different, and cannot be guessed from outside.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The secret's file in a cache's folder.
const FILE: &str = "cache_secret";
/// Bytes of a secret.
const LEN: usize = 32;

/// Who shares answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Requests with one key.
    Key,
    /// All keys of one tenant.
    Tenant,
    /// Everyone who may use the model.
    Public,
}

/// What name spaces are derived with.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; LEN]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file or its folder.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// It has another number of bytes than a secret.
    #[error(
        "{}: a secret has {LEN} bytes, this file has {len}: put the right file back, or remove it together with the \
         cache's other files", path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes that it has.
        len: u64,
    },
    /// Others than its owner may read or change it.
    #[error("{}: others may read or change it (mode {mode:03o}): `chmod 600` it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is no ordinary file.
    #[error("{}: not an ordinary file", path.display())]
    NoFile {
        /// What was found there.
        path: PathBuf,
    },
}

impl Secret {
    /// A secret of these bytes, which are random.
    #[must_use]
    pub fn new(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// The secret in this folder, which exists; without one, `fresh` (random bytes) becomes it. Entries under another secret
    /// are never found again. When several processes begin at once, all of them return the one that was there first.
    ///
    /// # Errors
    /// A file that cannot be read, made or trusted; nothing is repaired.
    pub fn of_folder(folder: &Path, fresh: [u8; LEN]) -> Result<Self, SecretError> {
        let path = folder.join(FILE);
        match Self::read(&path) {
            Err(SecretError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match Self(fresh).write(folder, &path) {
            Ok(()) => Ok(Self(fresh)),
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(&path),
            Err(error) => Err(SecretError::Io { path, error }),
        }
    }

    fn read(path: &Path) -> Result<Self, SecretError> {
        let failed = |error| SecretError::Io {
            path: path.to_owned(),
            error,
        };
        // Before it is opened: a pipe in its place would hang the start.
        let about = std::fs::metadata(path).map_err(failed)?;
        if !about.is_file() {
            return Err(SecretError::NoFile { path: path.to_owned() });
        }
        let mut file = File::open(path).map_err(failed)?;
        let path = path.to_owned();
        let mode = about.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Open { path, mode });
        }
        if about.len() != LEN as u64 {
            return Err(SecretError::Length { path, len: about.len() });
        }
        let mut bytes = [0; LEN];
        match file.read_exact(&mut bytes) {
            Ok(()) => Ok(Self(bytes)),
            Err(error) => Err(SecretError::Io { path, error }),
        }
    }

    /// Makes the file, whole or not at all, and never in place of another.
    fn write(&self, folder: &Path, path: &Path) -> io::Result<()> {
        let half = folder.join(format!("{FILE}.{}.tmp", std::process::id()));
        let made = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&half)?;
            file.write_all(&self.0)?;
            file.sync_all()?;
            std::fs::hard_link(&half, path)?;
            File::open(folder)?.sync_all()
        };
        let made = made();
        // Of no use any more, and in nobody's way if it stays.
        let _gone = std::fs::remove_file(&half);
        made
    }
}

/// Makes the name spaces of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spaces {
    /// What they are derived with.
    pub secret: Secret,
    /// Who shares one.
    pub scope: Scope,
}

impl Spaces {
    /// That of a tenant (empty where nobody needs a key) and one of its keys, by its digest.
    #[must_use]
    pub fn of(&self, tenant: &str, key: &[u8]) -> Namespace {
        Namespace::new(&self.secret, self.scope, tenant, key)
    }
}

/// Whose answers a caller may see.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Namespace([u8; 32]);

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({:016x}…)", self.word())
    }
}

impl Namespace {
    /// That of a tenant (empty where nobody needs a key) and, for [`Scope::Key`], of the digest of one of its keys (empty
    /// where nobody needs one).
    #[must_use]
    pub fn new(secret: &Secret, scope: Scope, tenant: &str, key: &[u8]) -> Self {
        let (word, tenant, key): (&[u8], _, _) = match scope {
            Scope::Key => (b"key", tenant.as_bytes(), key),
            Scope::Tenant => (b"tenant", tenant.as_bytes(), &b""[..]),
            Scope::Public => (b"public", &b""[..], &b""[..]),
        };
        let mut hash = blake3::Hasher::new_keyed(&secret.0);
        for part in [tenant, word, key] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(*hash.finalize().as_bytes())
    }

    /// The whole of it.
    #[must_use]
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first eight bytes as a number, as entries carry them.
    #[must_use]
    pub fn word(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| self.0[at]))
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
