//! Civil time as text: the `date` header and the time stamps of the log.
//!
//! Nothing here reads a clock: seconds since 1970 are arguments. Invariant: an [`HttpDate`] always shows the second
//! that it was last given.

use crate::put;

/// The last second that four digits of a year can show: 9999-12-31T23:59:59Z. Later ones are shown as this.
const LAST_SECOND: u64 = 253_402_300_799;
const DAY: u64 = 86_400;

/// A moment in UTC by the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    /// 0 is Thursday, the weekday of 1970-01-01.
    weekday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Civil {
    /// Days are counted from 1 March of year 0, so that a leap day ends its year: then 400 years have 146,097 days, a
    /// century one leap day less than its share, and month lengths follow from `(153 m + 2) / 5`.
    fn at(unix_seconds: u64) -> Self {
        let unix_seconds = unix_seconds.min(LAST_SECOND);
        let (unix_days, in_day) = (unix_seconds / DAY, unix_seconds % DAY);
        let days = unix_days + 719_468;
        let (era, in_era) = (days / 146_097, days % 146_097);
        let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * in_year + 2) / 153;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: in_year - (153 * march_month + 2) / 5 + 1,
            weekday: unix_days % 7,
            hour: in_day / 3_600,
            minute: in_day / 60 % 60,
            second: in_day % 60,
        }
    }
}

/// A date as HTTP wants it (RFC 9110, section 5.6.7), `Sun, 06 Nov 1994 08:49:37 GMT`, kept for the second that it
/// shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpDate {
    second: u64,
    text: [u8; HttpDate::LEN],
}

impl HttpDate {
    /// Its length in bytes.
    pub const LEN: usize = 29;

    /// The date of this second since 1970.
    #[must_use]
    pub fn at(unix_seconds: u64) -> Self {
        const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
        const MONTHS: [&[u8; 3]; 12] = [
            b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
        ];
        let civil = Civil::at(unix_seconds);
        let mut text = *b"Thu, 00 Jan 0000 00:00:00 GMT";
        text[..3].copy_from_slice(WEEKDAYS[civil.weekday as usize]);
        two_digits(&mut text, 5, civil.day);
        text[8..11].copy_from_slice(MONTHS[civil.month as usize - 1]);
        put::decimal_right(&mut text[12..16], civil.year);
        two_digits(&mut text, 17, civil.hour);
        two_digits(&mut text, 20, civil.minute);
        two_digits(&mut text, 23, civil.second);
        Self {
            second: unix_seconds,
            text,
        }
    }

    /// Shows this second from now on; costs a comparison while the second is the same.
    pub fn advance(&mut self, unix_seconds: u64) {
        if self.second != unix_seconds {
            *self = Self::at(unix_seconds);
        }
    }

    /// The text as ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.text
    }
}

fn two_digits(text: &mut [u8], at: usize, value: u64) {
    put::decimal_right(&mut text[at..at + 2], value);
}

/// Appends a time stamp as RFC 3339 has it, in UTC with milliseconds: `1994-11-06T08:49:37.123Z`.
pub fn rfc3339(out: &mut Vec<u8>, unix_seconds: u64, nanos: u32) {
    to_the_second(out, unix_seconds);
    out.push(b'.');
    put::padded(out, u64::from(nanos) / 1_000_000, 3);
    out.push(b'Z');
}

/// The same without milliseconds: `1994-11-06T08:49:37Z`.
pub fn rfc3339_seconds(out: &mut Vec<u8>, unix_seconds: u64) {
    to_the_second(out, unix_seconds);
    out.push(b'Z');
}

fn to_the_second(out: &mut Vec<u8>, unix_seconds: u64) {
    let civil = Civil::at(unix_seconds);
    put::padded(out, civil.year, 4);
    for (before, value) in [
        (b'-', civil.month),
        (b'-', civil.day),
        (b'T', civil.hour),
        (b':', civil.minute),
        (b':', civil.second),
    ] {
        out.push(before);
        put::padded(out, value, 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(second: u64) -> (String, String) {
        let mut stamp = Vec::new();
        rfc3339(&mut stamp, second, 987_654_321);
        (
            String::from_utf8(HttpDate::at(second).as_bytes().to_vec()).expect("ASCII"),
            String::from_utf8(stamp).expect("ASCII"),
        )
    }

    /// Expected values by GNU date.
    #[test]
    fn known_moments() {
        for (second, http, stamp) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00.987Z"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37.987Z"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT", "2000-02-28T23:59:59.987Z"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT", "2000-02-29T00:00:00.987Z"),
            (
                1_798_761_599,
                "Thu, 31 Dec 2026 23:59:59 GMT",
                "2026-12-31T23:59:59.987Z",
            ),
            (
                4_107_542_400,
                "Mon, 01 Mar 2100 00:00:00 GMT",
                "2100-03-01T00:00:00.987Z",
            ),
            (LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59.987Z"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59.987Z"),
        ] {
            assert_eq!(both(second), (http.to_owned(), stamp.to_owned()), "{second}");
        }
    }

    /// A second calendar, counted day by day with the rule for leap years, agrees over 500 years.
    #[test]
    fn every_day_of_five_centuries() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..182_500 {
            let civil = Civil::at(number * DAY + 43_200);
            assert_eq!(
                (civil.year, civil.month, civil.day, civil.hour),
                (year, month, day, 12),
                "day {number}"
            );
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn advancing_shows_the_new_second_only() {
        let mut date = HttpDate::at(10);
        let before = date;
        date.advance(10);
        assert_eq!(date, before);
        date.advance(11);
        assert_eq!(date, HttpDate::at(11));
    }
}
