//! JSON numbers of the usual forms, and the other values without parts.
//!
//! Nothing here refuses a number: `None` leaves it to the parser of [`super::tape`]. Invariant: what is read equals what
//! that parser reads, integers of 64 bits as such, all else rounded to the nearest `f64`.

use super::tape::Json;

/// A value that is neither text nor holds others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl Scalar {
    /// As a field has it.
    #[inline]
    pub(crate) fn json(self) -> Json<'static> {
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(value),
            Self::Unsigned(value) => Json::Int(value.into()),
            Self::Signed(value) => Json::Int(value.into()),
            Self::Float(value) => Json::Float(value),
        }
    }
}

/// No longer number is read here: a sum of digits this long is finite, whatever its exponent of two digits.
const MAX_LEN: usize = 64;

/// Up to this many digits a number is exact as an integer in an `f64`.
const EXACT_DIGITS: usize = 15;

/// Powers of ten that are exact in an `f64`, up to that of [`EXACT_DIGITS`].
const POWERS: [f64; EXACT_DIGITS + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The number at the start of `bytes`, and its length.
pub(crate) fn read(bytes: &[u8]) -> Option<(Scalar, usize)> {
    let negative = bytes.first() == Some(&b'-');
    let start = usize::from(negative);
    let (whole, at) = digits(bytes, start, 0);
    let leading_zero = bytes.get(start) == Some(&b'0') && at > start + 1;
    if at == start || leading_zero || at > MAX_LEN {
        return None;
    }
    match bytes.get(at) {
        Some(b'.' | b'e' | b'E') => fraction(bytes, start, (whole, at)),
        _ => integer(bytes.get(..at)?, start, whole).map(|node| (node, at)),
    }
}

/// Adds the digits from `at` on to `value`, as far as they fit; returns where they end.
fn digits(bytes: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0'))
        && digit < 10
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

fn integer(text: &[u8], start: usize, value: u64) -> Option<Scalar> {
    let small = text.len() - start <= 18;
    if small {
        let signed = value.cast_signed();
        return match start {
            0 => Some(Scalar::Unsigned(value)),
            // Minus zero is left to those who know what it is.
            _ => (value > 0).then_some(Scalar::Signed(-signed)),
        };
    }
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(value) = text.parse() {
        return Some(Scalar::Unsigned(value));
    }
    text.parse().ok().map(Scalar::Signed)
}

/// A number with a point or an exponent; `whole` is what stands before, and where it ends.
fn fraction(bytes: &[u8], start: usize, (whole, point): (u64, usize)) -> Option<(Scalar, usize)> {
    let (mut value, mut at, mut places) = (whole, point, 0);
    if bytes[at] == b'.' {
        (value, at) = digits(bytes, point + 1, whole);
        places = at - point - 1;
        if places == 0 {
            return None;
        }
    }
    let count = point - start + places;
    if !matches!(bytes.get(at), Some(b'e' | b'E')) && count <= EXACT_DIGITS && (value > 0 || start == 0) {
        // Both are exact, so the division rounds once.
        #[expect(clippy::cast_precision_loss, reason = "below 10^15")]
        let value = value.cast_signed() as f64 / POWERS[places];
        return Some((Scalar::Float(if start == 0 { value } else { -value }), at));
    }
    long_fraction(bytes, at)
}

/// Any other; its digits end at `at`.
fn long_fraction(bytes: &[u8], mut at: usize) -> Option<(Scalar, usize)> {
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
        let (_, end) = digits(bytes, at, 0);
        if end == at || end - at > 2 {
            return None;
        }
        at = end;
    }
    if at > MAX_LEN {
        return None;
    }
    let value: f64 = std::str::from_utf8(bytes.get(..at)?).ok()?.parse().ok()?;
    // The sign of a zero is left to those who know what becomes of it.
    (value.is_finite() && value != 0.0).then_some((Scalar::Float(value), at))
}
