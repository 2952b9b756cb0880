//! The cache's files of values: a full log replayed, sealed in both forms, and values read from it.
//!
//! The work is that of the example `segment` of the cache; here it is pinned and told. Nothing here passes or fails by a figure.
//! Invariant: what is written for each byte of a body is counted, not estimated.

use clap::Args;
use serde_json::Value;

use super::{example, machine, report, statistics::spread};
use crate::{
    failure::{Failure, Outcome},
    place::Place,
};

/// Arguments of `bench segment`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often everything is done
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// The core to run on
    #[arg(long, default_value_t = 1)]
    core: u32,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    let rounds = options.rounds.to_string();
    let lines = example::run(place, "zerohop-cache", "segment", options.core, &[rounds])?;
    let lines = example::rows(&lines, Value::clone)?;
    report::publish(place, "segment", &section(&lines, options)?)
}

fn section(lines: &[Value], options: &Options) -> Outcome<String> {
    let Some((sizes, lines)) = lines.split_last() else {
        return Err(Failure::new("nothing was measured"));
    };
    let cells: Vec<_> = lines.iter().map(told).collect::<Outcome<_>>()?;
    let size = |name: &str| sizes[name].as_f64().unwrap_or_default();
    let per = |name: &str| size(name) / size("bodies");
    Ok(format!(
        "## Values of the cache on disk\n\n`cargo xtask bench segment`, {} rounds, pinned to core {}, {}. A log of 64 MiB with {} \
         answers of words, bodies of {:.0} bytes on average; each round writes it, replays it, seals it plain, and what it then \
         holds cold, and reads 2,000 values of each. Files are in memory when they are read. Sealing includes the sync, and that \
         every value is read back and compared. Median, least and greatest.\n\n{}\n\
         Bytes written for each byte of a body: {:.3} by the log ({:.3} for each byte of its frames), {:.3} by a plain part, {:.3} \
         by a cold one; log and plain part together {:.3}. The bound that is told before sealing is {:.3}.\n",
        options.rounds,
        options.core,
        machine(),
        size("answers"),
        size("bodies") / size("answers"),
        report::table(&["what", "CPU time", "on the clock"], &cells),
        per("log"),
        size("log") / size("frames"),
        per("plain"),
        per("cold"),
        per("log") + per("plain"),
        per("bound"),
    ))
}

/// Bytes are told as MB a second, what is done once or many times in microseconds.
fn told(line: &Value) -> Outcome<Vec<String>> {
    let what = line["what"].as_str().unwrap_or_default();
    let unit = line["unit"].as_str().unwrap_or_default();
    let of = |name: &str| -> Outcome<String> {
        let nanos = line[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
        let scaled: Vec<_> = match unit {
            "byte" => nanos.map(|nanos| 1e3 / nanos).collect(),
            _ => nanos.map(|nanos| nanos / 1e3).collect(),
        };
        let spread = spread(scaled).ok_or_else(|| Failure::new(format!("nothing was measured of {what}")))?;
        let (name, digits) = match unit {
            "byte" => ("MB/s", 0),
            "row" => ("µs a row", 2),
            _ => ("µs", 1),
        };
        let [median, least, greatest] =
            [spread.median, spread.least, spread.greatest].map(|figure| format!("{figure:.digits$}"));
        Ok(format!("{median} ({least} to {greatest}) {name}"))
    };
    Ok(vec![what.to_owned(), of("thread")?, of("clock")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_table() {
        let lines = r#"{"what":"sealed plain","unit":"byte","thread":[1.0,2.0,4.0],"clock":[2.0,2.0,2.0]}
            {"what":"a plain value read","unit":"time","thread":[1500.0],"clock":[2500.0]}
            {"answers":100,"bodies":1000,"frames":1100,"log":1200,"plain":1050,"cold":400,"bound":1300}"#;
        let lines = example::rows(lines, Value::clone).unwrap();
        let options = Options { rounds: 3, core: 1 };
        let section = section(&lines, &options).unwrap();
        for expected in [
            "| sealed plain | 500 (250 to 1000) MB/s | 500 (500 to 500) MB/s |",
            "| a plain value read | 1.5 (1.5 to 1.5) µs | 2.5 (2.5 to 2.5) µs |",
            "1.200 by the log (1.091 for each byte of its frames), 1.050 by a plain part, 0.400 by a cold one",
            "together 2.250",
        ] {
            assert!(section.contains(expected), "{section}");
        }
        assert!(super::section(&[], &options).is_err());
    }
}
