//! A file of blocked prefixes: one a line, `#` begins a comment.
//!
//! Invariant: a prefix has no bits beyond its length, and none stands in a list twice.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use zerohop_abi::guard::MAX_PREFIXES;

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Its first address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Bits that all its addresses share.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Reads `ADDRESS/LENGTH`, or one address.
    fn read(text: &str) -> Result<Self, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("{text:?} is no address or prefix: write 192.0.2.0/24 or 2001:db8::/32"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(length) => length
                .parse()
                .ok()
                .filter(|length| (1..=most).contains(length))
                .ok_or_else(|| format!("{text:?} has no length from 1 to {most}"))?,
        };
        let first = first(address, length);
        if first != address {
            return Err(format!("{text:?} has bits beyond its length: write {first}/{length}"));
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The address without the bits beyond this length, which is at least 1.
fn first(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() & (u32::MAX << (32 - u32::from(length)))).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << (128 - u32::from(length)))).into(),
    }
}

/// Blocked prefixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocklist(BTreeSet<Prefix>);

/// A line that is no prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlocklistError {
    /// From 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl fmt::Display for BlocklistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl std::error::Error for BlocklistError {}

impl Blocklist {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is no prefix, or one that is too many.
    pub fn read(text: &str) -> Result<Self, BlocklistError> {
        let mut prefixes = BTreeSet::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let fault = |text| BlocklistError { line: at + 1, text };
            prefixes.insert(Prefix::read(line).map_err(fault)?);
            if prefixes.len() > MAX_PREFIXES as usize {
                return Err(fault(format!("a list holds at most {MAX_PREFIXES} prefixes")));
            }
        }
        Ok(Self(prefixes))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of this list that the other one has not.
    pub(crate) fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Prefix> + 'a {
        self.0.difference(&other.0).copied()
    }

    /// How many are of IPv4, and of IPv6.
    pub(crate) fn by_family(&self) -> (u32, u32) {
        let of4 = self.0.iter().filter(|prefix| prefix.address.is_ipv4()).count();
        (of4 as u32, (self.0.len() - of4) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_prefixes_or_faults() {
        for (text, expected) in [
            ("", Ok(vec![])),
            ("# none\n\n", Ok(vec![])),
            ("192.0.2.0/24 # a\n192.0.2.0/24\n", Ok(vec!["192.0.2.0/24"])),
            ("10.0.0.1\n::1\n", Ok(vec!["10.0.0.1/32", "::1/128"])),
            ("2001:db8::/32\n128.0.0.0/1", Ok(vec!["128.0.0.0/1", "2001:db8::/32"])),
            ("\nabc", Err((2, "no address"))),
            ("10.0.0.1/24", Err((1, "write 10.0.0.0/24"))),
            ("0.0.0.0/0", Err((1, "1 to 32"))),
            ("10.0.0.0/33", Err((1, "1 to 32"))),
            ("::/129", Err((1, "1 to 128"))),
            ("10.0.0.0/-1", Err((1, "1 to 32"))),
            ("10.0.0.0/8/8", Err((1, "1 to 32"))),
        ] {
            match (Blocklist::read(text), expected) {
                (Ok(list), Ok(expected)) => {
                    let found: Vec<String> = list.0.iter().map(ToString::to_string).collect();
                    assert_eq!(found, expected, "{text:?}");
                }
                (Err(error), Err((line, part))) => {
                    assert_eq!(error.line, line, "{text:?}");
                    assert!(error.text.contains(part), "{text:?}: {error}");
                }
                (found, _) => panic!("{text:?}: {found:?}"),
            }
        }
    }
}
