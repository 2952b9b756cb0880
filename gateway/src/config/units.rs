//! Durations and sizes as people write them: `30`, `500ms`, `1h`; `16KiB`, `2GB`.
//!
//! Knows no key. Invariant: what [`show_duration`] and [`show_size`] write, [`duration`] and [`size`] read as the same.

use std::time::Duration;

/// Units of time, in milliseconds, longest first.
const TIME: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units of size that are written, in bytes, largest first.
const BINARY: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Units of size that are read besides.
const DECIMAL: [(&str, u64); 5] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// How a duration is asked for.
pub(super) const DURATION: &str = "a duration, such as 30s, 500ms, 10m or 1h";
/// How a size is asked for.
pub(super) const SIZE: &str = "a size, such as 64KiB, 32MiB or 2GiB";

/// Reads a duration of whole milliseconds; a bare number counts seconds. `None`: it is none.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let unit = match unit {
        "" => 1_000,
        unit => TIME.iter().find(|(name, _)| *name == unit)?.1,
    };
    whole(number, unit).map(Duration::from_millis)
}

/// Reads a size in bytes. `None`: it is none.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let unit = match unit {
        "" => 1,
        unit => {
            BINARY
                .iter()
                .chain(&DECIMAL)
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))?
                .1
        }
    };
    whole(number, unit)
}

/// A number and its unit.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then(|| (number, unit.trim_start()))
}

/// `number` (digits, perhaps with a fraction) times `unit`, exactly; `None` if that is not a whole number below 2⁶⁴.
fn whole(number: &str, unit: u64) -> Option<u64> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if integer.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    let rest = fraction.is_multiple_of(scale).then(|| fraction / scale)?;
    let integer = u128::from(integer.parse::<u64>().ok()?) * u128::from(unit);
    u64::try_from(integer + rest).ok()
}

/// Writes a duration of whole milliseconds in the longest unit that fits it exactly.
pub(super) fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let fits = |(_, unit): &&(&str, u64)| ms > 0 && ms.is_multiple_of(u128::from(*unit));
    TIME.iter().find(fits).map_or_else(
        || format!("{ms}ms"),
        |(name, unit)| format!("{}{name}", ms / u128::from(*unit)),
    )
}

/// Writes a size in the largest binary unit that fits it exactly.
pub(super) fn show_size(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
    BINARY
        .iter()
        .find(fits)
        .map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read() {
        let ms = |n| Some(Duration::from_millis(n));
        for (text, wanted) in [
            ("30", ms(30_000)),
            ("0.5", ms(500)),
            ("500ms", ms(500)),
            ("1.5h", ms(5_400_000)),
            (" 10 m ", ms(600_000)),
            ("1d", ms(86_400_000)),
            ("0", ms(0)),
            ("", None),
            ("h", None),
            ("-1s", None),
            ("1.s", None),
            (".5s", None),
            ("1.2.3s", None),
            ("1h30m", None),
            ("1 S", None),
            ("0.0001s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(duration(text), wanted, "{text:?}");
        }
        for (text, wanted) in [
            ("1", Some(1)),
            ("16KiB", Some(16_384)),
            ("2GB", Some(2_000_000_000)),
            ("1.5MiB", Some(1_572_864)),
            ("3 mib", Some(3_145_728)),
            ("7B", Some(7)),
            ("16K", None),
            ("0.3B", None),
            ("1e3", None),
            ("16777216TiB", None),
            ("½MiB", None),
        ] {
            assert_eq!(size(text), wanted, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_again(ms in 0..=u64::MAX / 1000, bytes: u64, shift in 0..40_u32) {
            let (ms, bytes) = (ms >> shift, (bytes >> shift) << (shift / 2));
            let time = Duration::from_millis(ms);
            proptest::prop_assert_eq!(duration(&show_duration(time)), Some(time));
            proptest::prop_assert_eq!(size(&show_size(bytes)), Some(bytes));
        }
    }
}
