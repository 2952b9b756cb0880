//! The target of a request: a path, or an absolute URI of which the path counts (RFC 9112, section 3.2).
//!
//! Nothing is decoded or normalised here. Invariant: a [`Target`]'s texts are visible ASCII without `#`.

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
        if target.starts_with('/') {
            return Ok(Self::split(target, None));
        }
        let Some(rest) = after_scheme(target) else {
            return Err(bad("the request target is neither a path nor an http URI"));
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() || !authority.bytes().all(is_host_byte) {
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

/// Whether a byte may stand in a host with port (RFC 3986, section 3.2.2; user information is not part of it).
pub(super) fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(&byte)
}
