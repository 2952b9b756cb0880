//! What the gateway counts, read from its Prometheus text.
//!
//! Invariant: a line that is no sample and no comment is a panic.

use std::net::SocketAddr;

use crate::http;

/// One reading of `/metrics`.
#[derive(Debug, Clone)]
pub struct Metrics {
    samples: Vec<Sample>,
}

/// A sample: a name, its labels as written, its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric's name.
    pub name: String,
    /// What stands between the braces; empty without them.
    pub labels: String,
    /// The value.
    pub value: f64,
}

impl Metrics {
    /// Asks the gateway at this address.
    ///
    /// # Panics
    /// If it does not answer with metrics.
    #[must_use]
    pub fn of(address: SocketAddr) -> Self {
        let response = http::get(address, "/metrics");
        assert_eq!(response.status, 200, "{response:?}");
        Self::parse(&response.text())
    }

    /// Reads the text.
    ///
    /// # Panics
    /// If it is not in the Prometheus format.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self {
            samples: lines.map(sample).collect(),
        }
    }

    /// The sum of the samples of this name whose labels contain each of `labels` (as `key="value"`); 0 without any.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// The greatest of those samples; 0 without any.
    #[must_use]
    pub fn max(&self, name: &str, labels: &[&str]) -> f64 {
        self.matching(name, labels)
            .map(|sample| sample.value)
            .fold(0.0, f64::max)
    }

    /// Whether there is a sample of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.matching(name, &[]).next().is_some()
    }

    /// All samples, in order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    fn matching<'a>(&'a self, name: &'a str, labels: &'a [&str]) -> impl Iterator<Item = &'a Sample> {
        let fits =
            move |sample: &&Sample| sample.name == name && labels.iter().all(|label| sample.labels.contains(label));
        self.samples.iter().filter(fits)
    }
}

fn sample(line: &str) -> Sample {
    let parts = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line:?}"));
    let value = parts
        .1
        .parse()
        .unwrap_or_else(|_| panic!("no number at the end of {line:?}"));
    let (name, labels) = match parts.0.split_once('{') {
        Some((name, labels)) => {
            let labels = labels
                .strip_suffix('}')
                .unwrap_or_else(|| panic!("unclosed labels in {line:?}"));
            (name, labels)
        }
        None => (parts.0, ""),
    };
    Sample {
        name: name.to_owned(),
        labels: labels.to_owned(),
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_label() {
        let text = "# HELP a b\n# TYPE a counter\na{k=\"x\",l=\"1\"} 2\na{k=\"y\"} 3\nb 4.5\nc{le=\"+Inf\"} +Inf\n";
        let metrics = Metrics::parse(text);
        for (name, labels, sum, max) in [
            ("a", &[][..], 5.0, 3.0),
            ("a", &["k=\"x\""], 2.0, 2.0),
            ("a", &["k=\"x\"", "l=\"1\""], 2.0, 2.0),
            ("a", &["k=\"z\""], 0.0, 0.0),
            ("b", &[], 4.5, 4.5),
            ("none", &[], 0.0, 0.0),
        ] {
            assert_eq!(
                (metrics.sum(name, labels), metrics.max(name, labels)),
                (sum, max),
                "{name} {labels:?}"
            );
        }
        assert!(metrics.has("c") && !metrics.has("d"));
    }
}
