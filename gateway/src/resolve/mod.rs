//! Request → model: the name that a client wrote, or one of its aliases, to the model that answers.
//!
//! Pure: looks at no load and no clock. Invariant: a [`ModelIndex`] is one of the models it was made from.

use std::{collections::HashMap, sync::Arc};

use crate::{
    caller::Caller,
    config::Model,
    error::{ApiError, ErrorKind},
};

/// Longest part of an unknown name that is repeated to the client, in characters.
const SHOWN: usize = 256;

/// Which model: an index of [`crate::config::Config::models`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelIndex(usize);

impl ModelIndex {
    /// The number itself.
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }
}

/// Every name that a client may use.
#[derive(Debug, Clone)]
pub struct Resolver {
    by_name: HashMap<Arc<str>, ModelIndex, foldhash::fast::RandomState>,
    ids: Vec<Arc<str>>,
}

impl Resolver {
    /// The ids and aliases of these models, none of which means two.
    #[must_use]
    pub fn of(models: &[Model]) -> Self {
        let mut by_name = HashMap::default();
        for (index, model) in models.iter().enumerate() {
            for name in std::iter::once(&model.id).chain(&model.aliases) {
                by_name.insert(Arc::clone(name), ModelIndex(index));
            }
        }
        let ids = models.iter().map(|model| Arc::clone(&model.id)).collect();
        Self { by_name, ids }
    }

    /// The model that `name` means to this caller.
    ///
    /// # Errors
    /// [`ErrorKind::ModelNotFound`] for a name that nobody has, [`ErrorKind::Permission`] for a model that the caller's
    /// key does not open; both at `model`.
    pub fn resolve(&self, name: &str, caller: &Caller) -> Result<ModelIndex, ApiError> {
        let Some(index) = self.by_name.get(name) else {
            return Err(refused(ErrorKind::ModelNotFound, "model: ", name));
        };
        if !caller.may_use(*index) {
            return Err(refused(ErrorKind::Permission, "this key does not open model: ", name));
        }
        Ok(*index)
    }

    /// The models that this caller may use, in the order of the configuration, with their ids.
    pub fn visible<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = (ModelIndex, &'a str)> {
        let all = self.ids.iter().enumerate();
        let all = all.map(|(index, id)| (ModelIndex(index), &**id));
        all.filter(|(index, _)| caller.may_use(*index))
    }
}

fn refused(kind: ErrorKind, what: &str, name: &str) -> ApiError {
    let message = match name.char_indices().nth(SHOWN) {
        None => format!("{what}{name}"),
        Some((end, _)) => format!("{what}{}…", &name[..end]),
    };
    ApiError::new(kind, message).at("model")
}

#[cfg(test)]
mod tests;
