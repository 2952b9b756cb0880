//! The target of a request: a path, or an absolute URI of which the path counts, or `*` (RFC 9112, section 3.2).
//!
//! Nothing is decoded or normalised here. Invariant: a [`Target`]'s texts are visible ASCII without `#`.

use std::net::Ipv6Addr;

use crate::error::{ApiError, ErrorKind};

use super::bad;

/// A request target, taken apart.
pub(super) struct Target<'b> {
    pub(super) path: &'b str,
    pub(super) query: Option<&'b str>,
    /// Of a target in absolute form.
    pub(super) authority: Option<&'b str>,
}

impl<'b> Target<'b> {
    pub(super) fn parse(method: &str, target: &'b str) -> Result<Self, ApiError> {
        if method == "CONNECT" {
            return Err(ApiError::new(
                ErrorKind::MethodNotAllowed,
                "CONNECT is not supported: this is not a proxy",
            ));
        }
        if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(bad("the request target holds characters that a URI may not have"));
        }
        if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
            return Ok(Self::split(target, None));
        }
        let Some(rest) = after_scheme(target) else {
            return Err(bad("the request target is neither a path nor an http URI"));
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !is_host(authority.as_bytes()) {
            return Err(bad("the authority of the request target is malformed"));
        }
        if path.starts_with('/') {
            return Ok(Self::split(path, Some(authority)));
        }
        // Without a path the root is meant; the one `/` that is certainly there is the scheme's.
        let root = target.find('/').map_or("", |at| &target[at..=at]);
        Ok(Self {
            path: root,
            query: path.strip_prefix('?'),
            authority: Some(authority),
        })
    }

    fn split(target: &'b str, authority: Option<&'b str>) -> Self {
        let (path, query) = target
            .split_once('?')
            .map_or((target, None), |(path, query)| (path, Some(query)));
        Self { path, query, authority }
    }
}

fn after_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")).then_some(rest)
}

/// Whether this is a host with or without a port (RFC 3986, section 3.2): a name that is not empty, or an IPv6 address in
/// brackets; then, behind a colon, digits of a port or none. User information is not part of it.
pub(super) fn is_host(authority: &[u8]) -> bool {
    let (host_is_good, port) = match authority.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|&byte| byte == b']') else {
                return false;
            };
            (is_address(&rest[..end]), &rest[end + 1..])
        }
        None => {
            let end = authority
                .iter()
                .position(|&byte| byte == b':')
                .unwrap_or(authority.len());
            (end > 0 && is_name(&authority[..end]), &authority[end..])
        }
    };
    host_is_good && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

/// An IPv6 address, also one with a zone (RFC 6874), as a client on the same link may send it.
fn is_address(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let (address, zone) = text
        .split_once("%25")
        .map_or((text, None), |(address, zone)| (address, Some(zone)));
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(|zone| !zone.is_empty() && is_name(zone.as_bytes()))
}

fn is_name(name: &[u8]) -> bool {
    let escapes = name.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    let are_whole = |at: usize| {
        name.get(at + 1..at + 3)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    name.iter()
        .all(|&byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte))
        && escapes.map(|(at, _)| at).all(are_whole)
}

fn is_port(digits: &[u8]) -> bool {
    let number = digits.iter().try_fold(0_u32, |number, &digit| {
        let grown = number * 10 + u32::from(digit.wrapping_sub(b'0'));
        (digit.is_ascii_digit() && grown <= u32::from(u16::MAX)).then_some(grown)
    });
    number.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once any mixture of host characters passed, such as two ports, or brackets that were never closed.
    #[test]
    fn hosts() {
        for good in [
            "a",
            "a:",
            "a:0",
            "a:80",
            "a:65535",
            "a:0080",
            "a-b_c.d~e",
            "1.2.3.4:5",
            "a,b;c=d",
            "a%2fb",
            "[::1]",
            "[::1]:80",
            "[fe80::1%25eth0]:1",
            "[::ffff:1.2.3.4]",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":",
            ":80",
            "a:b",
            "a:1:2",
            "a:65536",
            "a:99999999999",
            "a:-1",
            "a:+1",
            "[",
            "[]",
            "[::1",
            "[::1]a",
            "[::1]:b",
            "[a]",
            "[1.2.3.4]",
            "[::1%25]",
            "[::1%eth0]",
            "::1",
            "a]",
            "a[b]",
            "a%2",
            "a%zz",
            "%",
            "u@a",
            "a/b",
            "a b",
            "a\u{e9}",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
