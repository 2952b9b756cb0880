//! `cache import`: recorded pairs from a file to a running gateway, in batches.
//!
//! Judges no pair but by whether it is JSON: the gateway does. Invariant: each line of the file is stored, refused with a
//! reason or bad, and the summary says how many of each there were.

use std::{io::Write, path::Path, time::Instant};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    args::Api,
    ask::Asker,
    lines::{Line, Lines},
    tally::{Faults, bar},
};
use crate::{
    cli::Failure,
    server::control::{MAX_LINE, MOST_PAIRS},
};

/// Bytes of a batch, unless one pair alone has more.
const BATCH: usize = 1 << 20;
/// Pairs of a batch.
const PAIRS: usize = if MOST_PAIRS < 512 { MOST_PAIRS } else { 512 };
/// Longest line: a batch of it alone is a line of the protocol.
const LONGEST: usize = MAX_LINE - (64 << 10);

/// What holds for all pairs that say nothing else.
pub(super) struct Whose {
    pub(super) api: Option<Api>,
    pub(super) tenant: Option<String>,
    pub(super) key: Option<String>,
}

/// Pairs that are sent together.
struct Batch {
    /// What a line of the protocol begins with.
    head: String,
    line: String,
    /// The lines of the file that they stand on.
    numbers: Vec<u64>,
}

#[derive(Deserialize)]
struct Refused {
    index: usize,
    refused: String,
}

#[derive(Default)]
struct Sums {
    stored: u64,
    not_given: u64,
    refused: Faults,
    bad: Faults,
}

/// Puts the pairs of a file.
pub(super) fn import(asker: &mut Asker, file: &Path, whose: &Whose, out: &mut dyn Write) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Start(format!("{}: {error}", file.display()));
    let (mut lines, length) = Lines::open(file, LONGEST).map_err(failed)?;
    let before = asker.ask(&json!({"command": "cache.stat"}))?;
    let (bar, begun) = (bar(length), Instant::now());
    let (mut sums, mut batch) = (Sums::default(), Batch::new(whose));
    loop {
        let fault = match lines.next().map_err(failed)? {
            None => break,
            Some(Line::TooLong) => Some(format!("longer than {LONGEST} bytes")),
            Some(Line::Text(text)) => match pair(text) {
                Ok(pair) => {
                    if batch.is_full_with(pair) {
                        batch.send(asker, file, &bar, &mut sums)?;
                    }
                    batch.add(pair);
                    None
                }
                Err(why) => Some(why),
            },
        };
        match fault {
            Some(why) => sums.bad.tell(&bar, (file, lines.number()), "bad", &why),
            None => batch.numbers.push(lines.number()),
        }
        bar.set_position(lines.bytes());
    }
    batch.send(asker, file, &bar, &mut sums)?;
    bar.finish_and_clear();
    let took = begun.elapsed().as_secs_f64();
    let after = asker.ask(&json!({"command": "cache.stat"}))?;
    summary(&sums, took, (&before, &after), out)?;
    match sums.refused.count + sums.bad.count {
        0 => Ok(()),
        count => Err(Failure::Work(format!("{count} lines were not put"))),
    }
}

/// The text of a line, if it is a JSON object.
fn pair(line: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    match raw.get().starts_with('{') {
        true => Ok(raw.get()),
        false => Err("no JSON object".into()),
    }
}

impl Batch {
    fn new(whose: &Whose) -> Self {
        let mut fields = json!({"command": "cache.import"});
        let path = whose.api.map(|api| api.path().to_owned());
        for (name, value) in [("path", &path), ("tenant", &whose.tenant), ("api_key", &whose.key)] {
            if let Some(value) = value {
                fields[name] = value.as_str().into();
            }
        }
        let fields = fields.to_string();
        let head = format!("{},\"pairs\":[", fields.strip_suffix('}').unwrap_or(&fields));
        Self {
            line: head.clone(),
            head,
            numbers: Vec::new(),
        }
    }

    fn is_full_with(&self, pair: &str) -> bool {
        !self.numbers.is_empty() && (self.line.len() + pair.len() > BATCH || self.numbers.len() >= PAIRS)
    }

    fn add(&mut self, pair: &str) {
        if !self.numbers.is_empty() {
            self.line.push(',');
        }
        // A line of the file is a line of the protocol: JSON has no line breaks but as blanks, and there are none inside.
        self.line.push_str(pair);
    }

    /// Sends what there is, and begins anew.
    fn send(
        &mut self,
        asker: &mut Asker,
        file: &Path,
        bar: &indicatif::ProgressBar,
        sums: &mut Sums,
    ) -> Result<(), Failure> {
        if self.numbers.is_empty() {
            return Ok(());
        }
        self.line.push_str("]}");
        let numbers = &self.numbers;
        let told = asker.ask_line(&self.line, |entry| {
            if let Ok(Refused { index, refused }) = serde_json::from_str(entry) {
                let number = numbers.get(index).copied().unwrap_or(0);
                sums.refused.tell(bar, (file, number), &refused, &refused);
            }
            true
        })?;
        sums.stored += told["stored"].as_u64().unwrap_or(0);
        sums.not_given += told["not_given"].as_u64().unwrap_or(0);
        bar.set_message(format!("stored {}", sums.stored));
        self.line.clear();
        self.line.push_str(&self.head);
        self.numbers.clear();
        Ok(())
    }
}

fn summary(sums: &Sums, took: f64, stats: (&Value, &Value), out: &mut dyn Write) -> Result<(), Failure> {
    let number = |path: &str| {
        let of = |stat: &Value| stat.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        of(stats.1).saturating_sub(of(stats.0))
    };
    let pairs = sums.stored + sums.refused.count + sums.bad.count;
    writeln!(
        out,
        "pairs {pairs}: stored {}, refused {}, bad lines {}; {took:.1} s, {:.0} a second",
        sums.stored,
        sums.refused.count,
        sums.bad.count,
        pairs as f64 / took.max(1e-9)
    )?;
    for (why, count) in sums.refused.kinds() {
        writeln!(out, "refused {count}: {why}")?;
    }
    if sums.not_given > 0 {
        let policy = stats.1["policy"].as_str().unwrap_or("off");
        writeln!(
            out,
            "{} of the stored ones are not given under cache.policy {policy}",
            sums.not_given
        )?;
    }
    let evicted = number("/removed/bucket_full") + number("/removed/size");
    let large = number("/puts/too_large");
    if evicted + large > 0 {
        writeln!(
            out,
            "meanwhile {evicted} entries were evicted, and {large} did not fit the bound"
        )?;
    }
    Ok(())
}
