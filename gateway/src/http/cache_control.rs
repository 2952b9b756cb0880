//! `cache-control` of a request (RFC 9111, section 5.2.1): the four directives that the gateway honours.
//!
//! Keeps nothing of the text. Invariant: a directive can only make it stricter what may be stored or answered from memory;
//! what is unknown or malformed asks for nothing.

/// What a request says about stored answers. The default says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheControl {
    /// `no-store`: the answer is not to be kept.
    pub no_store: bool,
    /// `no-cache`: the answer is to be made anew; it may be kept.
    pub no_cache: bool,
    /// `only-if-cached`: a stored answer or none.
    pub only_if_cached: bool,
    /// `max-age`: a stored answer is to be no older than this, in seconds, and not stale.
    pub max_age: Option<u32>,
}

impl CacheControl {
    /// Adds what one more header field says; of two ages the lower holds.
    pub fn add(&mut self, value: &[u8]) {
        let mut rest = value;
        while !rest.is_empty() {
            let (directive, behind) = split(rest);
            self.directive(directive.trim_ascii());
            rest = behind;
        }
    }

    fn directive(&mut self, text: &[u8]) {
        let (name, argument) = match memchr::memchr(b'=', text) {
            None => (text, None),
            Some(at) => (&text[..at], Some(&text[at + 1..])),
        };
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        } else if is("max-age")
            && let Some(age) = argument.and_then(seconds)
        {
            self.max_age = Some(self.max_age.map_or(age, |before| before.min(age)));
        }
    }
}

/// The first element of a list, and what is behind its comma. Commas within quotes are no borders.
fn split(list: &[u8]) -> (&[u8], &[u8]) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, &byte) in list.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return (&list[..at], &list[at + 1..]),
            _ => {}
        }
    }
    (list, &[])
}

/// Whole seconds, also in quotes (RFC 9111, section 5.2); more than can be counted is the most that can.
fn seconds(argument: &[u8]) -> Option<u32> {
    let digits = argument
        .strip_prefix(b"\"")
        .map_or(Some(argument), |rest| rest.strip_suffix(b"\""))?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0_u32, |age, digit| {
        age.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOTHING: CacheControl = CacheControl {
        no_store: false,
        no_cache: false,
        only_if_cached: false,
        max_age: None,
    };
    const NO_STORE: CacheControl = CacheControl {
        no_store: true,
        ..NOTHING
    };
    const NO_CACHE: CacheControl = CacheControl {
        no_cache: true,
        ..NOTHING
    };

    fn of(values: &[&str]) -> CacheControl {
        let mut all = CacheControl::default();
        values.iter().for_each(|value| all.add(value.as_bytes()));
        all
    }

    fn aged(age: u32) -> CacheControl {
        CacheControl {
            max_age: Some(age),
            ..NOTHING
        }
    }

    #[test]
    fn directives() {
        let check = |values: &[&str], wanted: CacheControl| assert_eq!(of(values), wanted, "{values:?}");
        check(&[], NOTHING);
        check(&[""], NOTHING);
        check(&[" , ,\t,"], NOTHING);
        check(&["no-store"], NO_STORE);
        check(&["No-Store"], NO_STORE);
        check(&["no-cache"], NO_CACHE);
        check(&["no-cache=\"x, no-store\""], NO_CACHE);
        check(
            &["only-if-cached"],
            CacheControl {
                only_if_cached: true,
                ..NOTHING
            },
        );
        let all = CacheControl {
            no_store: true,
            no_cache: true,
            only_if_cached: true,
            max_age: Some(7),
        };
        check(&["no-store,NO-CACHE ,\tonly-if-cached, max-age=7"], all);
        check(&["no-store", "max-age=9, no-cache", "only-if-cached,max-age=7"], all);
        check(&["max-age=0"], aged(0));
        check(&["MAX-AGE=00012"], aged(12));
        check(&["max-age=\"60\""], aged(60));
        check(&["max-age=7, max-age=5, max-age=6"], aged(5));
        check(&["max-age=99999999999999999999"], aged(u32::MAX));
    }

    #[test]
    fn what_is_unknown_or_malformed_asks_for_nothing() {
        for value in [
            "max-age",
            "max-age=",
            "max-age=-1",
            "max-age=+1",
            "max-age=1.5",
            "max-age=1 0",
            "max-age=\"1",
            "max-age=1\"",
            "max-age=\"\"",
            "max-age = 1",
            "max-stale",
            "max-stale=100",
            "private, public",
            "nostore",
            "no-stored",
            "no_store",
            "no store",
            "x=\"no-store, no-cache\"",
            "x=\"\\\", no-store\"",
            "x=\"no-store, and no end",
            "\u{e9}",
        ] {
            assert_eq!(of(&[value]), NOTHING, "{value}");
        }
        assert_eq!(of(&["x=\"a\", no-store"]), NO_STORE);
        assert_eq!(of(&["x=\"\\\\\", no-store"]), NO_STORE);
        assert_eq!(of(&["max-age=x, no-store"]), NO_STORE);
    }

    proptest! {
        #[test]
        fn more_words_never_loosen(first in "[ -~]{0,40}", second in "[a-z,=\"0-9 -]{0,40}") {
            let (one, both) = (of(&[&first]), of(&[&first, &second]));
            prop_assert!(both.no_store >= one.no_store);
            prop_assert!(both.no_cache >= one.no_cache);
            prop_assert!(both.only_if_cached >= one.only_if_cached);
            prop_assert!(both.max_age.unwrap_or(u32::MAX) <= one.max_age.unwrap_or(u32::MAX));
        }
    }
}
