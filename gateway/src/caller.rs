//! Who asks: from the key in a request's headers to a tenant and the models that the key opens.
//!
//! Reads no socket and keeps no key: a presented key is hashed and its digest compared. Invariant: a [`Caller`] is made for a
//! client by [`Callers::admit`] only, so code that holds one need not check again; [`Callers::of_tenant`] makes one for the
//! operator, who may name anyone.

use std::{collections::HashMap, fmt, sync::Arc};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::{
    config::{Access, KeyDigest, ModelSet},
    error::{ApiError, ErrorKind},
    key::{Namespace, Scope, Spaces},
    resolve::ModelIndex,
};

/// Longest value of a header that is taken for a key, in bytes; no configured key comes near it.
const MAX_PRESENTED: usize = 4096;

/// Someone who may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    tenant: Option<Arc<str>>,
    models: ModelSet,
    space: Namespace,
}

impl Caller {
    /// Whose key it was; `None` where no key is needed.
    #[must_use]
    pub fn tenant(&self) -> Option<&Arc<str>> {
        self.tenant.as_ref()
    }

    /// Whose stored answers it may be given.
    #[must_use]
    pub fn space(&self) -> &Namespace {
        &self.space
    }

    /// Whether the key opens this model.
    #[must_use]
    pub fn may_use(&self, model: ModelIndex) -> bool {
        self.models.has(model.get())
    }
}

/// The headers that may hold a key, as they came. Both may be there, in either dialect.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// Of `authorization`.
    pub authorization: Option<&'a [u8]>,
    /// Of `x-api-key`.
    pub x_api_key: Option<&'a [u8]>,
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Option<&[u8]>| value.map(|_| "…");
        f.debug_struct("Credentials")
            .field("authorization", &shown(self.authorization))
            .field("x_api_key", &shown(self.x_api_key))
            .finish()
    }
}

/// Decides who is let in.
///
/// A key is looked up by a digest salted for this process. What the time of a look-up tells is at most how many digests
/// share a prefix that only this process can compute; within such a group every digest is compared in constant time.
pub struct Callers {
    salt: [u8; 32],
    scope: Scope,
    /// Ascending by digest; empty where no key is needed.
    locks: Vec<Lock>,
    callers: Who,
}

/// Who may ask.
enum Who {
    /// Anyone, as this caller.
    Anyone(Caller),
    /// Whoever has a key, by tenant; the name space is that of the key.
    Tenants(Vec<Caller>),
}

impl Who {
    /// How many; `None`: anyone.
    fn count(&self) -> Option<usize> {
        match self {
            Self::Anyone(_) => None,
            Self::Tenants(callers) => Some(callers.len()),
        }
    }
}

struct Lock {
    digest: [u8; 32],
    caller: usize,
    space: Namespace,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers")
            .field("locks", &self.locks.len())
            .field("callers", &self.callers.count())
            .finish_non_exhaustive()
    }
}

impl Callers {
    /// The callers of this configuration; `salt` is secret, and random for each process.
    #[must_use]
    pub fn new(access: &Access, salt: [u8; 32], spaces: &Spaces) -> Self {
        let Access::Tenants(tenants) = access else {
            let anyone = Caller {
                tenant: None,
                models: ModelSet::All,
                space: spaces.of("", b""),
            };
            return Self {
                salt,
                scope: spaces.scope,
                locks: Vec::new(),
                callers: Who::Anyone(anyone),
            };
        };
        let mut locks: Vec<Lock> = Vec::new();
        for (caller, tenant) in tenants.iter().enumerate() {
            locks.extend(tenant.keys.iter().map(|key| Lock {
                digest: salted(&salt, key),
                caller,
                space: spaces.of(&tenant.name, key.bytes()),
            }));
        }
        locks.sort_unstable_by_key(|lock| lock.digest);
        let callers = tenants.iter().map(|tenant| Caller {
            tenant: Some(Arc::clone(&tenant.name)),
            models: tenant.models.clone(),
            space: spaces.of(&tenant.name, b""),
        });
        Self {
            salt,
            scope: spaces.scope,
            locks,
            callers: Who::Tenants(callers.collect()),
        }
    }

    /// Who it is that presents these headers.
    ///
    /// # Errors
    /// [`ErrorKind::Authentication`]: no key, two different ones, or one that nobody has.
    pub fn admit(&self, credentials: Credentials<'_>) -> Result<Caller, ApiError> {
        let callers = match &self.callers {
            Who::Anyone(caller) => return Ok(caller.clone()),
            Who::Tenants(callers) => callers,
        };
        let key = presented(credentials).map_err(|message| ApiError::new(ErrorKind::Authentication, message))?;
        let lock = self.find(&salted(&self.salt, &key));
        lock.map(|lock| Caller {
            space: lock.space,
            ..callers[lock.caller].clone()
        })
        .ok_or_else(|| ApiError::new(ErrorKind::Authentication, INVALID))
    }

    /// The tenant of this name, as the operator has it.
    ///
    /// # Errors
    /// With a reason: nobody is called so, or its answers lie in several name spaces.
    pub fn of_tenant(&self, name: &str) -> Result<Caller, String> {
        let index = self.index_of(name)?;
        let Who::Tenants(callers) = &self.callers else {
            return Err(NO_TENANTS.into());
        };
        let mut spaces = self
            .locks
            .iter()
            .filter(|lock| lock.caller == index)
            .map(|lock| lock.space);
        match (spaces.next(), spaces.next()) {
            (Some(_), Some(_)) if self.scope == Scope::Key => Err(format!(
                "cache.scope is key, and the tenant {name:?} has several keys: give the one that is meant"
            )),
            (Some(space), _) => Ok(Caller {
                space,
                ..callers[index].clone()
            }),
            (None, _) => Err(format!("the tenant {name:?} has no key")),
        }
    }

    /// The first words of the name spaces that are this tenant's own.
    ///
    /// # Errors
    /// With a reason: nobody is called so, or name spaces are shared.
    pub fn spaces_of(&self, name: &str) -> Result<Vec<u64>, String> {
        let index = self.index_of(name)?;
        if self.scope == Scope::Public {
            return Err("cache.scope is public: all tenants share their answers".into());
        }
        let own = self.locks.iter().filter(|lock| lock.caller == index);
        let mut words: Vec<u64> = own.map(|lock| lock.space.word()).collect();
        words.sort_unstable();
        words.dedup();
        Ok(words)
    }

    /// The tenants by the first words of the name spaces that are their own.
    #[must_use]
    pub fn tenants_by_space(&self) -> HashMap<u64, Arc<str>> {
        let Who::Tenants(callers) = &self.callers else {
            return HashMap::new();
        };
        let own = self.locks.iter().filter(|_| self.scope != Scope::Public);
        own.filter_map(|lock| Some((lock.space.word(), Arc::clone(callers[lock.caller].tenant()?))))
            .collect()
    }

    fn index_of(&self, name: &str) -> Result<usize, String> {
        let Who::Tenants(callers) = &self.callers else {
            return Err(NO_TENANTS.into());
        };
        let names: Vec<&str> = callers.iter().filter_map(|caller| caller.tenant.as_deref()).collect();
        let found = names.iter().position(|known| *known == name);
        found.ok_or_else(|| format!("there is no tenant {name:?}: there are {}", names.join(", ")))
    }

    /// Whose lock this digest opens.
    fn find(&self, digest: &[u8; 32]) -> Option<&Lock> {
        let prefix = |digest: &[u8; 32]| [digest[0], digest[1]];
        let start = self.locks.partition_point(|lock| prefix(&lock.digest) < prefix(digest));
        let group = self.locks[start..]
            .iter()
            .take_while(|lock| prefix(&lock.digest) == prefix(digest));
        let mut found = None;
        for lock in group {
            if lock.digest.ct_eq(digest).into() {
                found = Some(lock);
            }
        }
        found
    }
}

const NO_TENANTS: &str = "the configuration has no tenants";
const INVALID: &str = "the API key is not valid here: check it with the operator";
const NONE: &str = "no API key: send it as `x-api-key: KEY` or as `authorization: Bearer KEY`";

fn salted(salt: &[u8; 32], key: &KeyDigest) -> [u8; 32] {
    Sha256::new()
        .chain_update(salt)
        .chain_update(key.bytes())
        .finalize()
        .into()
}

/// The digest of the one key in these headers, or what to tell the client.
fn presented(credentials: Credentials<'_>) -> Result<KeyDigest, &'static str> {
    let digest = |key: &[u8]| {
        if key.len() <= MAX_PRESENTED {
            Ok(KeyDigest::of(key))
        } else {
            Err(INVALID)
        }
    };
    let api_key = credentials
        .x_api_key
        .map(<[u8]>::trim_ascii)
        .filter(|key| !key.is_empty());
    let authorization = credentials
        .authorization
        .map(<[u8]>::trim_ascii)
        .filter(|value| !value.is_empty());
    let bearer = authorization.and_then(bearer);
    match (api_key, bearer) {
        (Some(one), Some(other)) => {
            let (one, other) = (digest(one)?, digest(other)?);
            let same: Choice = one.bytes().ct_eq(other.bytes());
            if bool::from(same) {
                Ok(one)
            } else {
                Err("two different API keys, in `x-api-key` and in `authorization`: send one of them")
            }
        }
        (Some(key), None) | (None, Some(key)) => digest(key),
        (None, None) if authorization.is_some() => {
            Err("`authorization` holds no bearer key: send `authorization: Bearer KEY`, or `x-api-key: KEY`")
        }
        (None, None) => Err(NONE),
    }
}

/// The key of `Bearer KEY`; the scheme's case does not matter (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || !key.first()?.is_ascii_whitespace() {
        return None;
    }
    Some(key.trim_ascii())
}

#[cfg(test)]
mod tests;
