//! Which entries a command is about.
//!
//! Reads the fields and looks names up. Invariant: a name that means nothing is refused, so that a slip of the pen is not
//! taken for an empty cache; nothing means all entries but `all` itself.

use zerohop_cache::{Cache, Context, Filter, Listed, PromptHash};

use super::{Site, line::Fields};

/// The fields that name entries, of which a line has exactly one.
pub(super) const FIELDS: &[&str] = &["key", "model", "tenant", "space", "prefix", "all"];

/// Some of the entries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    Key(PromptHash),
    Model(String),
    /// Those of name spaces, by their first words.
    Spaces(Vec<u64>),
    Prefix(Context),
}

impl Selection {
    /// What a line names.
    pub(super) fn read(site: &Site, cache: &Cache, fields: &Fields<'_>) -> Result<Self, String> {
        let named: Vec<&str> = fields.names().filter(|name| FIELDS.contains(name)).collect();
        let [named] = named[..] else {
            return Err(format!("name the entries by exactly one of {}", FIELDS.join(", ")));
        };
        if named == "all" {
            return match fields.switch("all")? {
                true => Ok(Self::All),
                false => Err("`all` is true, or left out".into()),
            };
        }
        let text = fields.text(named)?.unwrap_or_default();
        match named {
            "key" => hex(named, &text).map(|bytes| Self::Key(PromptHash(bytes))),
            "prefix" => hex(named, &text).map(|bytes| Self::Prefix(Context(bytes))),
            "space" => hex(named, &text).map(|bytes| Self::Spaces(vec![u64::from_be_bytes(bytes)])),
            "tenant" => site.shared.snapshot().callers.spaces_of(&text).map(Self::Spaces),
            _ => model(cache, &text).map(Self::Model),
        }
    }

    /// The same as filters of the cache, which together name them.
    pub(super) fn filters(self) -> Vec<Filter> {
        match self {
            Self::All => vec![Filter::All],
            Self::Key(key) => vec![Filter::Prompt(key)],
            Self::Model(model) => vec![Filter::Model(model)],
            Self::Spaces(words) => words.into_iter().map(Filter::Tenant).collect(),
            Self::Prefix(context) => vec![Filter::Context(context)],
        }
    }

    /// Whether an entry is one of them; `models` are the models' names by their numbers.
    pub(super) fn has(&self, listed: &Listed, models: &[String]) -> bool {
        let key = &listed.entry.key;
        match self {
            Self::All => true,
            Self::Key(prompt) => key.prompt == *prompt,
            Self::Model(name) => models.get(usize::from(key.model.0)) == Some(name),
            Self::Spaces(words) => words.contains(&listed.tenant),
            Self::Prefix(context) => key.context == *context,
        }
    }
}

/// The model of this name, if the cache has ever met it.
pub(super) fn model(cache: &Cache, name: &str) -> Result<String, String> {
    let models = cache.models();
    if models.iter().any(|model| model == name) {
        return Ok(name.to_owned());
    }
    Err(match models.len() {
        0 => format!("no answers of a model {name:?} are kept, nor of any other"),
        _ => format!(
            "no answers of a model {name:?} are kept: there are those of {}",
            models.join(", ")
        ),
    })
}

/// So many bytes in hexadecimal digits.
fn hex<const N: usize>(field: &str, text: &str) -> Result<[u8; N], String> {
    let wrong = || format!("`{field}` has to be {} hexadecimal digits", 2 * N);
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return Err(wrong());
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub(super) fn digits(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(crate::put::HEX[usize::from(half)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_there_and_back() {
        assert_eq!(hex("key", "00fFa1"), Ok([0, 255, 0xa1]));
        assert_eq!(digits(&[0, 255, 0xa1]), "00ffa1");
        for wrong in ["", "00ff", "00ffa1a", "00ffg1", "00ffé"] {
            let why = hex::<3>("key", wrong).unwrap_err();
            assert_eq!(why, "`key` has to be 6 hexadecimal digits", "{wrong}");
        }
    }
}
