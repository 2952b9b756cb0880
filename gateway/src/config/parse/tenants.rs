//! `tenants`: who has keys, and which models they open.
//!
//! No key leaves this place but as a digest. Invariant: a key belongs to one tenant.

use std::{collections::HashMap, sync::Arc};

use super::{
    super::{
        KeyDigest, KeySource, ModelSet, Tenant,
        field::{At, Field, nearest},
        keys,
        node::quoted,
        raw,
    },
    Reader,
    models::Names,
};

/// Most tenants.
const MAX_TENANTS: usize = 10_000;
/// Longest name, in characters.
const MAX_TENANT_NAME: usize = 64;
/// Largest file of keys, in bytes.
const MAX_KEYS_FILE: u64 = 1 << 20;

/// What is taken already, each with the index of its tenant.
#[derive(Default)]
struct Taken {
    names: HashMap<String, usize>,
    keys: HashMap<KeyDigest, usize>,
}

impl Reader<'_> {
    /// The tenants; those with a fault are left out, the fault is told.
    pub(super) fn tenants(&mut self, field: Field<Vec<At<raw::Tenant>>>, models: &Names) -> Vec<Tenant> {
        let Some(list) = field.given() else {
            return Vec::new();
        };
        if list.value.len() > MAX_TENANTS {
            list.fault(&mut self.problems, format_args!("give at most {MAX_TENANTS} tenants"));
            return Vec::new();
        }
        let mut taken = Taken::default();
        let tenants = list.value.into_iter().enumerate();
        tenants
            .filter_map(|(index, raw)| self.tenant(index, raw, models, &mut taken))
            .collect()
    }

    fn tenant(&mut self, index: usize, raw: At<raw::Tenant>, models: &Names, taken: &mut Taken) -> Option<Tenant> {
        let owner = raw.with(());
        let raw = raw.value;
        let name = raw.name.required(&owner, "name", "NAME", &mut self.problems);
        let name = name.and_then(|name| self.tenant_name(&name, index, taken));
        let keys = self.keys(&owner, raw.keys_env, raw.keys_file);
        let models = match raw.models.given() {
            Some(list) => self.model_set(&list, models),
            None => Some(ModelSet::All),
        };
        let (at, source, keys) = keys?;
        for key in &keys {
            if let Some(other) = taken.keys.insert(*key, index).filter(|other| *other != index) {
                let text = format!("it holds a key of tenants[{other}] as well: a key belongs to one tenant");
                at.fault(&mut self.problems, text);
                return None;
            }
        }
        Some(Tenant {
            name: name?,
            source,
            keys,
            models: models?,
        })
    }

    fn tenant_name(&mut self, given: &At<String>, index: usize, taken: &mut Taken) -> Option<Arc<str>> {
        let name = &given.value;
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > MAX_TENANT_NAME || !name.chars().all(fine) {
            let text = format!(
                "{} is not possible: give up to {MAX_TENANT_NAME} letters, digits, dots, dashes and underscores",
                quoted(name)
            );
            given.fault(&mut self.problems, text);
            return None;
        }
        if let Some(other) = taken.names.insert(name.clone(), index) {
            let text = format!("{} is already the name of tenants[{other}]: give another", quoted(name));
            given.fault(&mut self.problems, text);
        }
        Some(name.as_str().into())
    }

    /// The keys, and where they were asked for.
    fn keys(
        &mut self,
        owner: &At<()>,
        env: Field<Option<String>>,
        file: Field<Option<String>>,
    ) -> Option<(At<()>, KeySource, Vec<KeyDigest>)> {
        let bad = matches!(env, Field::Bad) || matches!(file, Field::Bad);
        match (env.set(), file.set()) {
            (Some(env), Some(_)) => {
                env.fault(
                    &mut self.problems,
                    "`keys_env` and `keys_file` contradict each other: keep one of them",
                );
                None
            }
            (Some(env), None) => self.keys_of_env(&env),
            (None, Some(file)) => self.keys_of_file(&file),
            (None, None) => {
                if !bad {
                    let text = "it has no keys: add `keys_env: VARIABLE` or `keys_file: PATH`";
                    owner.fault(&mut self.problems, text);
                }
                None
            }
        }
    }

    fn keys_of_env(&mut self, env: &At<String>) -> Option<(At<()>, KeySource, Vec<KeyDigest>)> {
        let name = &env.value;
        let valid = !name.is_empty() && !name.contains(['=', '\0']);
        let Some(text) = valid.then(|| self.surroundings.env(name)).flatten() else {
            let text = format!(
                "the environment has no variable {}: set it to the keys, with commas between",
                quoted(name)
            );
            env.fault(&mut self.problems, text);
            return None;
        };
        let keys = self.digests(env, &text, &format!("the variable {}", quoted(name)))?;
        Some((env.with(()), KeySource::Env(name.clone()), keys))
    }

    fn keys_of_file(&mut self, file: &At<String>) -> Option<(At<()>, KeySource, Vec<KeyDigest>)> {
        let path = self.path(file);
        let text = match self.surroundings.read(&path, MAX_KEYS_FILE) {
            Ok(text) => text,
            Err(error) => {
                let text = format!("{} cannot be read: {error}", path.display());
                file.fault(&mut self.problems, text);
                return None;
            }
        };
        let keys = self.digests(file, &text, &path.display().to_string())?;
        Some((file.with(()), KeySource::File(path), keys))
    }

    fn digests(&mut self, at: &At<String>, text: &str, from: &str) -> Option<Vec<KeyDigest>> {
        let digests = keys::digests(text, from);
        if let Err(fault) = &digests {
            at.fault(&mut self.problems, fault);
        }
        digests.ok()
    }

    fn model_set(&mut self, list: &At<Vec<At<String>>>, names: &Names) -> Option<ModelSet> {
        if let [all] = &list.value[..]
            && all.value == "*"
        {
            return Some(ModelSet::All);
        }
        if list.value.is_empty() {
            let text = "the list opens no model: name some, or leave the key out for all";
            list.fault(&mut self.problems, text);
            return None;
        }
        let mut models: Vec<usize> = Vec::new();
        for name in &list.value {
            match names.get(name.value.as_str()) {
                Some(index) => models.push(*index),
                None if name.value == "*" => {
                    name.fault(&mut self.problems, "`*` means every model: give it alone, or remove it");
                }
                None => {
                    let near = nearest(&name.value, names.keys().map(|name| &**name));
                    let mend = near.map_or_else(
                        || "give an id or an alias of `models`".to_owned(),
                        |near| format!("did you mean `{near}`?"),
                    );
                    name.fault(
                        &mut self.problems,
                        format_args!("there is no model {}: {mend}", quoted(&name.value)),
                    );
                }
            }
        }
        models.sort_unstable();
        models.dedup();
        (!models.is_empty()).then(|| ModelSet::Only(models.into()))
    }
}
