//! The Prometheus text format, version 0.0.4, which every scraper reads.
//!
//! Nothing here knows a metric. Invariants: a family is announced once, its samples follow it without a gap, the buckets
//! of a histogram are cumulative and end with `+Inf`, and any label value is escaped.

use crate::put;

use super::cell::Merged;

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The unit in which nanoseconds are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
}

/// Label names and values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A document that is being written.
pub(super) struct Text<'o> {
    out: &'o mut Vec<u8>,
    /// Pairs that every sample has, as they are written.
    common: Vec<u8>,
}

/// A family that is being written.
pub(super) struct Family<'t, 'o> {
    text: &'t mut Text<'o>,
    name: &'t str,
}

impl<'o> Text<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, common: Labels<'_>) -> Self {
        let mut pairs = Vec::new();
        write_pairs(&mut pairs, common);
        Self { out, common: pairs }
    }

    /// Announces a family; `help` is one line.
    pub(super) fn family<'t>(&'t mut self, name: &'t str, kind: Kind, help: &str) -> Family<'t, 'o> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"] {
            self.out.extend_from_slice(part.as_bytes());
        }
        Family { text: self, name }
    }
}

impl Family<'_, '_> {
    /// A whole number.
    pub(super) fn add(&mut self, labels: Labels<'_>, value: u64) -> &mut Self {
        self.start("", labels, None);
        put::decimal(self.text.out, value);
        self.end()
    }

    /// A share between 0 and 1; of nothing it is 0.
    pub(super) fn add_ratio(&mut self, labels: Labels<'_>, part: u64, whole: u64) -> &mut Self {
        self.start("", labels, None);
        let ratio = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        self.text.out.extend_from_slice(ratio.to_string().as_bytes());
        self.end()
    }

    /// A duration.
    pub(super) fn add_nanos(&mut self, labels: Labels<'_>, nanos: u64, unit: Unit) -> &mut Self {
        self.start("", labels, None);
        write_nanos(self.text.out, nanos, unit);
        self.end()
    }

    /// The buckets, sum and count of a histogram.
    pub(super) fn add_histogram(&mut self, labels: Labels<'_>, merged: &Merged, unit: Unit) -> &mut Self {
        let mut bound = Vec::new();
        let mut cumulative = 0;
        for (index, count) in merged.counts[..=merged.bounds.len()].iter().enumerate() {
            cumulative += count;
            bound.clear();
            match merged.bounds.get(index) {
                Some(&nanos) => write_nanos(&mut bound, nanos, unit),
                None => bound.extend_from_slice(b"+Inf"),
            }
            self.start("_bucket", labels, Some(&bound));
            put::decimal(self.text.out, cumulative);
            self.end();
        }
        self.start("_sum", labels, None);
        write_nanos(self.text.out, merged.sum, unit);
        self.end();
        self.start("_count", labels, None);
        put::decimal(self.text.out, cumulative);
        self.end()
    }

    fn start(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&[u8]>) {
        let out = &mut *self.text.out;
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(suffix.as_bytes());
        let open = out.len();
        out.push(b'{');
        write_pairs(out, labels);
        out.extend_from_slice(&self.text.common);
        if let Some(bound) = bound {
            out.extend_from_slice(b"le=\"");
            out.extend_from_slice(bound);
            out.extend_from_slice(b"\",");
        }
        // Each pair ends with a comma: the last one becomes the brace. Without pairs there are no braces at all.
        if out.len() == open + 1 {
            out.truncate(open);
        } else if let Some(last) = out.last_mut() {
            *last = b'}';
        }
        out.push(b' ');
    }

    fn end(&mut self) -> &mut Self {
        self.text.out.push(b'\n');
        self
    }
}

fn write_pairs(out: &mut Vec<u8>, labels: Labels<'_>) {
    for (name, value) in labels {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"=\"");
        for &byte in value.as_bytes() {
            match byte {
                b'"' => out.extend_from_slice(br#"\""#),
                b'\\' => out.extend_from_slice(br"\\"),
                b'\n' => out.extend_from_slice(br"\n"),
                _ => out.push(byte),
            }
        }
        out.extend_from_slice(b"\",");
    }
}

/// Writes nanoseconds in a larger unit, exactly, without needless zeros.
fn write_nanos(out: &mut Vec<u8>, nanos: u64, unit: Unit) {
    let (factor, decimals) = match unit {
        Unit::Seconds => (1_000_000_000, 9),
        Unit::Millis => (1_000_000, 6),
    };
    put::decimal(out, nanos / factor);
    let rest = nanos % factor;
    if rest > 0 {
        out.push(b'.');
        put::padded(out, rest, decimals);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Histogram;

    fn check(common: Labels<'_>, write: impl FnOnce(&mut Text<'_>), expected: &str) {
        let mut out = Vec::new();
        write(&mut Text::new(&mut out, common));
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    #[test]
    fn samples() {
        check(
            &[],
            |text| {
                text.family("a_total", Kind::Counter, "Things.")
                    .add(&[], 5)
                    .add(&[("k", "v"), ("l", "w")], 6);
            },
            "# HELP a_total Things.\n# TYPE a_total counter\na_total 5\na_total{k=\"v\",l=\"w\"} 6\n",
        );
        check(
            &[("id", "a\"b\\c\nd")],
            |text| {
                text.family("g", Kind::Gauge, "Share.")
                    .add_ratio(&[], 1, 4)
                    .add_ratio(&[("x", "")], 1, 0);
            },
            "# HELP g Share.\n# TYPE g gauge\ng{id=\"a\\\"b\\\\c\\nd\"} 0.25\ng{x=\"\",id=\"a\\\"b\\\\c\\nd\"} 0\n",
        );
    }

    #[test]
    fn histograms_are_cumulative() {
        const BOUNDS: &[u64] = &[1_000_000, 2_500_000_000];
        let histogram = Histogram::new(BOUNDS);
        for nanos in [1, 1_000_001, 2_000_000_000, 3_000_000_000] {
            histogram.observe(nanos);
        }
        let merged = Merged::of(BOUNDS, [&histogram].into_iter());
        check(
            &[("r", "z")],
            |text| {
                text.family("h", Kind::Histogram, "Time.")
                    .add_histogram(&[("m", "x")], &merged, Unit::Seconds);
            },
            "# HELP h Time.\n# TYPE h histogram\n\
             h_bucket{m=\"x\",r=\"z\",le=\"0.001\"} 1\nh_bucket{m=\"x\",r=\"z\",le=\"2.5\"} 3\n\
             h_bucket{m=\"x\",r=\"z\",le=\"+Inf\"} 4\nh_sum{m=\"x\",r=\"z\"} 5.001000002\nh_count{m=\"x\",r=\"z\"} 4\n",
        );
        check(
            &[],
            |text| {
                text.family("h", Kind::Histogram, "Time.")
                    .add_histogram(&[], &merged, Unit::Millis);
            },
            "# HELP h Time.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"2500\"} 3\n\
             h_bucket{le=\"+Inf\"} 4\nh_sum 5001.000002\nh_count 4\n",
        );
    }

    #[test]
    fn durations_are_exact() {
        for (nanos, seconds, millis) in [
            (0, "0", "0"),
            (1, "0.000000001", "0.000001"),
            (100_000, "0.0001", "0.1"),
            (10_000_000_000, "10", "10000"),
            (1_234_567_890, "1.23456789", "1234.56789"),
            (u64::MAX, "18446744073.709551615", "18446744073709.551615"),
        ] {
            for (unit, expected) in [(Unit::Seconds, seconds), (Unit::Millis, millis)] {
                let mut out = Vec::new();
                write_nanos(&mut out, nanos, unit);
                assert_eq!(String::from_utf8(out).expect("text"), expected);
            }
        }
    }
}
