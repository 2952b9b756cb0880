//! Look-ups in the cache's index: against LMDB and redb, on one core, interleaved.
//!
//! The work is that of the example `lookup` of the cache; here it is pinned and told. Nothing here passes or fails by a figure.
//! Invariant: every ratio is one of times of the same round.

use clap::Args;
use serde_json::Value;

use super::{example, machine, report, statistics::spread};
use crate::{
    failure::{Failure, Outcome},
    place::Place,
};

/// What the others are compared with.
const BASE: &str = "index";

/// Arguments of `bench index`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often each way is measured, for about 0.2 s of CPU time each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// The core to run on
    #[arg(long, default_value_t = 1)]
    core: u32,
}

/// One way of looking up.
struct Row {
    case: String,
    way: String,
    nanos: Vec<f64>,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    let lines = example::run(
        place,
        "zerohop-cache",
        "lookup",
        options.core,
        &[options.rounds.to_string()],
    )?;
    let lines = example::rows(&lines, Value::clone)?;
    report::publish(place, "index", &section(&lines, options)?)
}

fn section(lines: &[Value], options: &Options) -> Outcome<String> {
    let Some((work, lines)) = lines.split_last() else {
        return Err(Failure::new("nothing was measured"));
    };
    let rows: Vec<_> = lines.iter().map(row).collect();
    let mut cells = Vec::new();
    for case in rows.chunk_by(|left, right| left.case == right.case) {
        let base = case.iter().find(|row| row.way == BASE);
        let base = base.ok_or_else(|| Failure::new(format!("nothing was measured of {BASE}")))?;
        for row in case {
            cells.push(told(row, base)?);
        }
    }
    let count = |name: &str| work[name].as_f64().unwrap_or_default();
    let millis = |name: &str| [0, 1].map(|at| work[name][at].as_f64().unwrap_or_default() / 1e6);
    let ([commit, commit_wall], [open, open_wall]) = (millis("commit"), millis("open"));
    Ok(format!(
        "## The index of the cache\n\n`cargo xtask bench index`, {} rounds, interleaved, pinned to core {}, {}. CPU time of the \
         thread for a look-up among {} entries, by keys of 48 bytes; which key is next follows from what was found. LMDB and redb \
         hold the same keys with values of 34 bytes, LMDB with a reading transaction kept open, redb with all in its cache. \
         Ratios are to the index in the same round: median, least and greatest.\n\n{}\n\
         The file has {} buckets and {:.0} MB. A commit of {} changes at random, which touch {:.0} % of the leaves: {} pages \
         written in {commit:.0} ms of CPU time, {commit_wall:.0} ms on the clock with its syncs. Opening with every page checked: \
         {open:.0} ms of CPU time, {open_wall:.0} ms on the clock.\n",
        options.rounds,
        options.core,
        machine(),
        count("entries"),
        report::table(&["keys", "way", "least ns", "median ns", "ratio"], &cells),
        count("buckets"),
        count("file_bytes") / 1e6,
        count("changes"),
        100.0 * count("pages_written") / count("buckets"),
        count("pages_written"),
    ))
}

fn row(line: &Value) -> Row {
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let nanos = line["nanos"].as_array().into_iter().flatten();
    Row {
        case: text("case"),
        way: text("way"),
        nanos: nanos.filter_map(Value::as_f64).collect(),
    }
}

fn told(row: &Row, base: &Row) -> Outcome<Vec<String>> {
    let none = || Failure::new(format!("nothing was measured of {}", row.way));
    let own = spread(row.nanos.iter().copied()).ok_or_else(none)?;
    let ratio = spread(row.nanos.iter().zip(&base.nanos).map(|(own, base)| own / base)).ok_or_else(none)?;
    Ok(vec![
        row.case.clone(),
        row.way.clone(),
        format!("{:.0}", own.least),
        format!("{:.0}", own.median),
        format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.greatest),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_table() {
        let lines = r#"{"case":"there","way":"index","nanos":[100.0,200.0,400.0]}
            {"case":"there","way":"LMDB","nanos":[300.0,400.0,400.0]}
            {"entries":1000,"buckets":2000,"file_bytes":3000000,"changes":20,"pages_written":500,"commit":[4000000,5000000],"open":[6000000,7000000]}"#;
        let lines = example::rows(lines, Value::clone).unwrap();
        let options = Options { rounds: 3, core: 1 };
        let section = section(&lines, &options).unwrap();
        assert!(section.contains("| there | index | 100 | 200 | 1.00 (1.00 to 1.00) |"));
        assert!(section.contains("| there | LMDB | 300 | 400 | 2.00 (1.00 to 3.00) |"));
        assert!(section.contains("touch 25 % of the leaves: 500 pages written in 4 ms of CPU time, 5 ms on the clock"));
        assert!(section.contains("6 ms of CPU time, 7 ms on the clock"));
        assert!(super::section(&[], &options).is_err());
    }
}
