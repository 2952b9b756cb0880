//! One escape of a JSON string.
//!
//! Nothing here is fast. Invariant: what is read is a character; half of a surrogate pair is refused.

/// Why the reading of a string stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// No closing quote.
    Unterminated,
    /// A control character that is not escaped.
    Control,
    /// A backslash before anything that it may not stand before.
    Escape,
    /// Half of a surrogate pair.
    Surrogate,
    /// U+0000, well written: no text of a request may have it.
    Nul,
}

/// What the character behind a backslash stands for; 0: none, or `u`.
pub(crate) const SHORT: [u8; 128] = {
    let mut table = [0; 128];
    let pairs = [
        (b'"', b'"'),
        (b'\\', b'\\'),
        (b'/', b'/'),
        (b'b', 0x08),
        (b'f', 0x0C),
        (b'n', b'\n'),
        (b'r', b'\r'),
        (b't', b'\t'),
    ];
    let mut at = 0;
    while at < pairs.len() {
        table[pairs[at].0 as usize] = pairs[at].1;
        at += 1;
    }
    table
};

/// The character that the escape at the start of `bytes` (its backslash) stands for, and how many bytes it has.
pub(crate) fn read(bytes: &[u8]) -> Result<(char, usize), Stop> {
    let &kind = bytes.get(1).ok_or(Stop::Unterminated)?;
    if kind == b'u' {
        return unicode(bytes);
    }
    match SHORT.get(usize::from(kind)) {
        None | Some(0) => Err(Stop::Escape),
        Some(&byte) => Ok((char::from(byte), 2)),
    }
}

fn unicode(bytes: &[u8]) -> Result<(char, usize), Stop> {
    let first = unit(bytes).ok_or(Stop::Escape)?;
    if let Some(char) = char::from_u32(first) {
        return Ok((char, 6));
    }
    let second = bytes.get(6..).and_then(unit).ok_or(Stop::Surrogate)?;
    match (first, second) {
        (0xD800..=0xDBFF, 0xDC00..=0xDFFF) => {
            let scalar = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            Ok((char::from_u32(scalar).ok_or(Stop::Surrogate)?, 12))
        }
        _ => Err(Stop::Surrogate),
    }
}

/// Escapes that [`units`] reads at once.
const UNITS: usize = 64;

/// Appends the characters of the `\uXXXX` at the start of `bytes`, as long as each is a character other than U+0000 by
/// itself, and not more than [`UNITS`]; returns how many bytes they have. Text in another script is often written in
/// escapes throughout.
pub(crate) fn units(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let mut text = [0; 3 * UNITS];
    let (mut written, mut taken) = (0, 0);
    for escape in bytes.as_chunks::<6>().0.iter().take(UNITS) {
        let Some(unit @ (1..0xD800 | 0xE000..)) = unit(escape) else {
            break;
        };
        let Some(place) = text.get_mut(written..).and_then(|rest| rest.first_chunk_mut::<3>()) else {
            break;
        };
        written += encode(unit, place);
        taken += 6;
    }
    out.extend_from_slice(&text[..written]);
    taken
}

/// Writes a character below U+10000 as UTF-8; returns its length.
#[inline(always)]
fn encode(unit: u32, place: &mut [u8; 3]) -> usize {
    let low = |bits: u32| bits.to_le_bytes()[0];
    let tail = |bits: u32| 0x80 | low(bits & 0x3F);
    match unit {
        0..0x80 => {
            place[0] = low(unit);
            1
        }
        0x80..0x800 => {
            [place[0], place[1]] = [0xC0 | low(unit >> 6), tail(unit)];
            2
        }
        _ => {
            *place = [0xE0 | low(unit >> 12), tail(unit >> 6), tail(unit)];
            3
        }
    }
}

/// The UTF-16 unit of the `\uXXXX` at the start of `bytes`.
fn unit(bytes: &[u8]) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = bytes.first_chunk::<6>()? else {
        return None;
    };
    let mut unit = 0;
    let mut all = 0;
    for &digit in digits {
        let value = HEX[usize::from(digit)];
        all |= value;
        unit = unit << 4 | u32::from(value);
    }
    (all < NO_DIGIT).then_some(unit)
}

const NO_DIGIT: u8 = 0x10;

/// The values of hexadecimal digits.
const HEX: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0_u8;
    while value < 16 {
        let digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        table[digit as usize] = value;
        table[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    table
};
