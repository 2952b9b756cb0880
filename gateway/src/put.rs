//! Appends numbers and untrusted text to a byte vector: the few forms that replies, logs and metrics share.
//!
//! Nothing here allocates beyond the vector's own growth. Invariant: what [`header_value`] appends never ends a header line,
//! and what [`printable`] and [`quoted`] append never moves a terminal's cursor, whatever the input.

/// Appends `value` in decimal.
pub fn decimal(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let start = decimal_right(&mut digits, value);
    out.extend_from_slice(&digits[start..]);
}

/// Writes `value` in decimal to the right end of `field` and returns where it starts. Digits that do not fit are lost;
/// 20 bytes hold any value.
pub fn decimal_right(field: &mut [u8], mut value: u64) -> usize {
    let mut at = field.len();
    while at > 0 {
        at -= 1;
        field[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    at
}

/// Appends `value` as exactly `width` decimal digits (at most 20), with leading zeros; higher digits are lost.
pub fn padded(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let start = 20 - width.min(20);
    decimal_right(&mut digits[start..], value);
    out.extend_from_slice(&digits[start..]);
}

/// Appends nanoseconds as milliseconds with three decimals, rounded down: `12.345`.
pub fn millis(out: &mut Vec<u8>, nanos: u64) {
    let micros = nanos / 1_000;
    decimal(out, micros / 1_000);
    out.push(b'.');
    padded(out, micros % 1_000, 3);
}

/// Appends the text of a header value: control bytes, which could end the line, become `?`.
pub fn header_value(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    if bytes.iter().any(u8::is_ascii_control) {
        out.extend(
            bytes
                .iter()
                .map(|&byte| if byte.is_ascii_control() { b'?' } else { byte }),
        );
    } else {
        out.extend_from_slice(bytes);
    }
}

/// Appends `text` for a person at a terminal: what could move the cursor, hide or reorder other text is escaped.
pub fn printable(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        out.extend_from_slice(text.as_bytes());
    } else {
        text.chars().for_each(|char| printable_char(out, char));
    }
}

/// The same in quotes, with the quotes and backslashes in it escaped.
pub fn quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            out.push(b'\\');
        }
        printable_char(out, char);
    }
    out.push(b'"');
}

fn printable_char(out: &mut Vec<u8>, char: char) {
    if char.is_control() || is_invisible(char) {
        char.escape_default().for_each(|escaped| out.push(escaped as u8));
    } else {
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Marks of writing direction, joiners and separators (Unicode's general categories Cf, Zl and Zp, the common ones).
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Lower-case hexadecimal digits.
pub const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    fn put(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn numbers() {
        for value in [
            0,
            1,
            9,
            10,
            99,
            100,
            12_345,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            assert_eq!(put(|out| decimal(out, value)), value.to_string());
        }
        for (value, width, expected) in [
            (0, 3, "000"),
            (7, 2, "07"),
            (123, 3, "123"),
            (1234, 2, "34"),
            (5, 0, ""),
        ] {
            assert_eq!(put(|out| padded(out, value, width)), expected);
        }
        for (nanos, expected) in [
            (0, "0.000"),
            (999, "0.000"),
            (1_000, "0.001"),
            (12_345_678, "12.345"),
            (60_000_000_000, "60000.000"),
        ] {
            assert_eq!(put(|out| millis(out, nanos)), expected);
        }
    }

    #[test]
    fn header_values_stay_on_their_line() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a\r\nset-cookie: x", "a??set-cookie: x"),
            ("tab\tnul\0del\x7f", "tab?nul?del?"),
            ("naïve", "naïve"),
        ] {
            assert_eq!(put(|out| header_value(out, text)), expected);
        }
    }

    #[test]
    fn terminals_get_no_control() {
        for (text, expected) in [
            ("plain text", "plain text"),
            ("naïve 日本", "naïve 日本"),
            ("a\x1b[2Jb\r\n", r"a\u{1b}[2Jb\r\n"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("a\u{202e}b\u{200b}", r"a\u{202e}b\u{200b}"),
        ] {
            assert_eq!(put(|out| printable(out, text)), expected);
            assert_eq!(put(|out| quoted(out, text)), format!("\"{expected}\""));
        }
        assert_eq!(put(|out| quoted(out, r#"a "b" \c"#)), r#""a \"b\" \\c""#);
    }
}
