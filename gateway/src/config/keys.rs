//! Tenants' keys: found in the environment or a file, and known from then on by their digest only.
//!
//! Never prints or keeps a key. Invariant: a [`KeyDigest`] is the SHA-256 of a key of 1 to 512 visible ASCII characters,
//! so that comparing two takes the same time whatever they hold.

use std::fmt;

use sha2::{Digest, Sha256};

/// Longest key, in bytes.
pub(crate) const MAX_KEY: usize = 512;
/// Most keys of one tenant.
const MAX_KEYS: usize = 10_000;

const WANTED: &str = "give keys of visible characters, one a line or with commas between";

/// What is kept of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Of this key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

/// The digests of the keys in `text`, which stand apart by commas or line ends; lines that begin with `#` are skipped.
/// Ascending, none twice. `from` is what a message calls the text.
///
/// # Errors
/// What is wrong with the text, without any of it.
pub(super) fn digests(text: &str, from: &str) -> Result<Vec<KeyDigest>, String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let keys = lines
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|key| !key.is_empty());
    let mut digests = Vec::new();
    for (index, key) in keys.enumerate() {
        if index >= MAX_KEYS {
            return Err(format!(
                "{from} holds more than {MAX_KEYS} keys: divide it among several tenants"
            ));
        }
        if key.len() > MAX_KEY {
            return Err(format!(
                "key {} of {from} is longer than {MAX_KEY} characters: {WANTED}",
                index + 1
            ));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "key {} of {from} holds a blank or a character beyond ASCII: {WANTED}",
                index + 1
            ));
        }
        digests.push(KeyDigest::of(key.as_bytes()));
    }
    if digests.is_empty() {
        return Err(format!("{from} holds no key: {WANTED}"));
    }
    digests.sort_unstable();
    digests.dedup();
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_and_never_shown() {
        let a = KeyDigest::of(b"alpha");
        let b = KeyDigest::of(b"beta");
        let mut both = vec![a, b];
        both.sort_unstable();
        for text in ["alpha,beta", "alpha\nbeta\n", "# ours\n alpha ,\r\n\nbeta,beta,"] {
            assert_eq!(digests(text, "it"), Ok(both.clone()), "{text:?}");
        }
        for (text, wanted) in [
            ("", "it holds no key"),
            (" ,\n# alpha\n", "it holds no key"),
            ("alpha,be ta", "key 2 of it holds a blank or a character beyond ASCII"),
            ("ключ", "key 1 of it holds a blank or a character beyond ASCII"),
        ] {
            assert_eq!(
                digests(text, "it").unwrap_err(),
                format!("{wanted}: {WANTED}"),
                "{text:?}"
            );
        }
        assert!(digests(&"x".repeat(513), "it").is_err());
        assert!(digests(&"x\n".repeat(10_001), "it").is_err());
        assert!(!format!("{a:?}").contains("alpha"));
        assert!(!format!("{a:?}").contains("8e")); // the digest itself is not shown either
    }
}
