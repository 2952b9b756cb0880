//! Tables of names that are known when the program is built.
//!
//! A name is found with two loads, a multiplication and one comparison; the table's factor is sought by the compiler.
//! Invariant: each name of a table has a slot of its own, or the program does not build.

/// Far more than the names of any table, so that a factor is found soon.
const SLOTS: usize = 512;
const SHIFT: u32 = u64::BITS - SLOTS.trailing_zeros();

/// What each of `N` names means.
pub(crate) struct Names<T: 'static, const N: usize> {
    entries: [(&'static str, T); N],
    prints: [Print; N],
    /// For each slot the entry that is there, or any.
    slots: [u8; SLOTS],
    factor: u64,
}

impl<T: Copy, const N: usize> Names<T, N> {
    /// A table of names that all differ. Meant for a `static`; the search is bounded.
    pub(crate) const fn new(entries: [(&'static str, T); N]) -> Self {
        assert!(N > 0 && N <= 64, "the number of an entry fits `Seen`");
        let mut prints = [Print::of(""); N];
        let mut at = 0;
        while at < N {
            prints[at] = Print::of(entries[at].0);
            at += 1;
        }
        let mut factor = 0x9E37_79B9_7F4A_7C15_u64;
        let mut tries = 0;
        while tries < 10_000 {
            if let Some(slots) = place(&prints, factor) {
                return Self {
                    entries,
                    prints,
                    slots,
                    factor,
                };
            }
            // Any sequence of odd numbers that differ in their upper bits.
            factor = factor.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(2);
            tries += 1;
        }
        panic!("a name is there twice, or two have the same ends and length");
    }

    /// What this name means.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<T> {
        let print = Print::of(name);
        let entry = usize::from(self.slots[print.slot(self.factor)]);
        if *self.prints.get(entry)? != print {
            return None;
        }
        let (known, meaning) = self.entries[entry];
        (print.is_whole() || known == name).then_some(meaning)
    }
}

/// The slots of the entries with this factor, if no two share one.
const fn place<const N: usize>(prints: &[Print; N], factor: u64) -> Option<[u8; SLOTS]> {
    let mut slots = [u8::MAX; SLOTS];
    let mut at = 0;
    while at < N {
        let slot = prints[at].slot(factor);
        if slots[slot] != u8::MAX {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 64 entries")]
        {
            slots[slot] = at as u8;
        }
        at += 1;
    }
    Some(slots)
}

/// A name's length and both of its ends.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Print {
    head: u64,
    tail: u64,
    len: usize,
}

impl Print {
    #[inline]
    const fn of(name: &str) -> Self {
        let bytes = name.as_bytes();
        let (head, tail) = if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
            (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
        } else if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
            (u32::from_le_bytes(*head) as u64, u32::from_le_bytes(*tail) as u64)
        } else if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
            (u16::from_le_bytes(*head) as u64, u16::from_le_bytes(*tail) as u64)
        } else if let [byte] = bytes {
            (*byte as u64, 0)
        } else {
            (0, 0)
        };
        Self {
            head,
            tail,
            len: bytes.len(),
        }
    }

    /// The ends meet or overlap, so that names with equal prints are equal.
    #[inline]
    const fn is_whole(self) -> bool {
        self.len <= 16
    }

    #[inline]
    const fn slot(self, factor: u64) -> usize {
        let mixed = self.head ^ self.tail.rotate_left(21) ^ self.len as u64;
        (mixed.wrapping_mul(factor) >> SHIFT) as usize
    }
}

/// Tests go through all names.
#[cfg(test)]
impl<T, const N: usize> Names<T, N> {
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&&'static str, &T)> {
        self.entries.iter().map(|(name, meaning)| (name, meaning))
    }
}

#[cfg(test)]
impl<'a, T, const N: usize> IntoIterator for &'a Names<T, N> {
    type Item = (&'a &'static str, &'a T);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.entries())
    }
}

#[cfg(test)]
impl<T, const N: usize> std::ops::Index<&str> for Names<T, N> {
    type Output = T;

    fn index(&self, name: &str) -> &T {
        let found = self.entries().find(|(known, _)| **known == name);
        found.expect("a known name").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_nothing_else() {
        const TABLE: Names<u8, 9> = Names::new([
            ("n", 1),
            ("in", 2),
            ("top", 3),
            ("role", 4),
            ("top_p", 5),
            ("top_k", 6),
            ("messages", 7),
            ("max_tokens", 8),
            ("max_completion_tokens", 9),
        ]);
        for (name, meaning) in TABLE.entries {
            assert_eq!(TABLE.get(name), Some(meaning), "{name}");
            for other in [
                format!("{name}x"),
                format!("x{name}"),
                name[1..].to_owned(),
                name.to_uppercase(),
                format!("{name}\0"),
            ] {
                let known = TABLE.entries.iter().find(|(known, _)| *known == other);
                assert_eq!(TABLE.get(&other), known.map(|&(_, meaning)| meaning), "{other}");
            }
        }
        assert_eq!(TABLE.get(""), None);
    }
}
