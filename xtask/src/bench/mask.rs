//! Masks and greedy sampling: what is allowed of a row of logits, by every set of instructions, on one core, interleaved.
//!
//! The work is that of the example `mask` of zerohop-simd; here it is pinned and told. Nothing here passes or fails by a
//! figure. Invariant: every ratio is one of times of the same round.

use clap::Args;
use serde_json::Value;

use super::{example, machine, report, statistics::spread};
use crate::{
    failure::{Failure, Outcome},
    place::Place,
};

/// Arguments of `bench mask`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often each row is measured, for about 0.2 ms of CPU time each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// The core to run on
    #[arg(long, default_value_t = 1)]
    core: u32,
}

/// One measured row.
struct Row {
    vocabulary: u64,
    allowed: u64,
    masked: bool,
    level: String,
    work: String,
    nanos: Vec<f64>,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    let lines = example::run(
        place,
        "zerohop-simd",
        "mask",
        options.core,
        &[options.rounds.to_string()],
    )?;
    let rows = example::rows(&lines, row)?;
    report::publish(place, "mask", &section(&rows, options)?)
}

fn row(line: &Value) -> Row {
    let count = |name: &str| line[name].as_u64().unwrap_or_default();
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let nanos = line["nanos"].as_array().into_iter().flatten();
    Row {
        vocabulary: count("vocabulary"),
        allowed: count("allowed"),
        masked: line["masked"].as_bool().unwrap_or_default(),
        level: text("level"),
        work: text("work"),
        nanos: nanos.filter_map(Value::as_f64).collect(),
    }
}

fn section(rows: &[Row], options: &Options) -> Outcome<String> {
    let mut out = format!(
        "## Mask and sample\n\n`cargo xtask bench mask`, {} rounds, interleaved, pinned to core {}, {}. CPU time of the thread; the row \
         is in the cache, as a run of the model leaves it; allowed tokens lie at random places. `greedy` finds the best allowed \
         token, `best 40` those that `top_k` needs as well, `weights` the sums of all weights, which sampling with a temperature needs. Groups of 512 tokens without an \
         allowed one are skipped, which is why few tokens are cheaper. Ratios are to half the vocabulary allowed, in the same \
         round: median, least and greatest.\n",
        options.rounds,
        options.core,
        machine()
    );
    for vocabulary in rows.chunk_by(|left, right| left.vocabulary == right.vocabulary) {
        let mut cells = Vec::new();
        for group in vocabulary.chunk_by(|left, right| (&left.level, &left.work) == (&right.level, &right.work)) {
            let half = group.iter().find(|row| row.allowed * 2 == row.vocabulary);
            let half = half.ok_or_else(|| Failure::new("nothing was measured of half a vocabulary"))?;
            for row in group {
                cells.push(row_cells(row, half)?);
            }
        }
        out += &format!(
            "\n### {} tokens\n\n",
            vocabulary.first().map_or(0, |row| row.vocabulary)
        );
        out += &report::table(&["level", "work", "allowed", "least µs", "median µs", "ratio"], &cells);
    }
    Ok(out)
}

fn row_cells(row: &Row, half: &Row) -> Outcome<Vec<String>> {
    let none = || Failure::new(format!("nothing was measured of {} {}", row.level, row.work));
    let own = spread(row.nanos.iter().copied()).ok_or_else(none)?;
    let ratio = spread(row.nanos.iter().zip(&half.nanos).map(|(own, half)| own / half)).ok_or_else(none)?;
    Ok(vec![
        row.level.clone(),
        row.work.clone(),
        if row.masked {
            row.allowed.to_string()
        } else {
            "all, without a mask".into()
        },
        format!("{:.1}", own.least / 1e3),
        format!("{:.1}", own.median / 1e3),
        format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.greatest),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_table() {
        let line = |allowed: u32, masked: bool, nanos: &str| {
            format!(
                r#"{{"vocabulary":1000,"allowed":{allowed},"masked":{masked},"level":"plain","work":"greedy","nanos":{nanos}}}"#
            )
        };
        let lines = [
            line(5, true, "[500.0,1000.0,400.0]"),
            line(500, true, "[1000.0,1000.0,1000.0]"),
            line(1000, false, "[2000.0]"),
        ];
        let options = Options { rounds: 3, core: 1 };
        let section = section(&example::rows(&lines.join("\n"), row).unwrap(), &options).unwrap();
        for row in [
            "### 1000 tokens\n",
            "| plain | greedy | 5 | 0.4 | 0.5 | 0.50 (0.40 to 1.00) |",
            "| plain | greedy | all, without a mask | 2.0 | 2.0 | 2.00 (2.00 to 2.00) |",
        ] {
            assert!(section.contains(row), "{section}");
        }
        let alone = example::rows(&lines[0], row).unwrap();
        assert!(
            super::section(&alone, &options).is_err(),
            "without half there is no ratio"
        );
    }
}
