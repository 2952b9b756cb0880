//! Reading requests: ours against the parsers that could be used instead, on one core, interleaved.
//!
//! The work is that of the example `parse` of the gateway; here it is pinned and told. Nothing here passes or fails by
//! a figure. Invariant: every ratio is one of times of the same round.

use clap::Args;
use serde_json::Value;

use super::{example, machine, report, statistics::spread};
use crate::{
    failure::{Failure, Outcome},
    place::Place,
};

/// What the others are compared with.
const BASE: &str = "simd-json tape, buffers reused";

/// Arguments of `bench parse`.
#[derive(Args)]
pub(crate) struct Options {
    /// How often each way is measured, for about 0.3 ms of CPU time each
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// The core to run on
    #[arg(long, default_value_t = 1)]
    core: u32,
}

/// One way of reading one body.
struct Row {
    body: String,
    about: String,
    bytes: f64,
    way: String,
    nanos: Vec<f64>,
}

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    let lines = example::run(place, "zerohop", "parse", options.core, &[options.rounds.to_string()])?;
    let rows = example::rows(&lines, row)?;
    report::publish(place, "parse", &section(&rows, options)?)
}

fn row(line: &Value) -> Row {
    let count = |name: &str| line[name].as_f64().unwrap_or_default();
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let bytes = count("bytes");
    let nanos = line["nanos"].as_array().into_iter().flatten();
    Row {
        body: format!("{}, {}", text("body"), text("dialect")),
        about: format!(
            "{bytes} bytes, {:.0} % of them beyond ASCII, {} backslashes",
            100.0 * count("beyond_ascii") / bytes,
            count("backslashes")
        ),
        bytes,
        way: text("way"),
        nanos: nanos.filter_map(Value::as_f64).collect(),
    }
}

fn section(rows: &[Row], options: &Options) -> Outcome<String> {
    let mut out = format!(
        "## Reading a request\n\n`cargo xtask bench parse`, {} rounds, interleaved, pinned to core {}, {}. CPU time of the thread, \
         warm. `zerohop` is what a worker calls: fully validated bytes to the internal request, which is made and dropped \
         within the time; the tape is a mere list of tokens, made from a copy since it is unescaped in place. Ratios are to \
         the tape in the same round: median, least and greatest.\n",
        options.rounds,
        options.core,
        machine()
    );
    let bodies = rows.chunk_by(|left, right| left.body == right.body);
    for body in bodies {
        let (Some(first), Some(base)) = (body.first(), body.iter().find(|row| row.way == BASE)) else {
            return Err(Failure::new(format!("nothing was measured of {BASE}")));
        };
        out += &format!("\n### {}\n\n{}\n\n", first.body, first.about);
        let cells: Vec<_> = body.iter().map(|row| cells(row, base)).collect::<Outcome<_>>()?;
        out += &report::table(&["way", "least µs", "median µs", "GB/s", "ratio"], &cells);
    }
    Ok(out)
}

fn cells(row: &Row, base: &Row) -> Outcome<Vec<String>> {
    let none = || Failure::new(format!("nothing was measured of {}", row.way));
    let own = spread(row.nanos.iter().copied()).ok_or_else(none)?;
    let ratio = spread(row.nanos.iter().zip(&base.nanos).map(|(own, base)| own / base)).ok_or_else(none)?;
    Ok(vec![
        row.way.clone(),
        format!("{:.3}", own.least / 1e3),
        format!("{:.3}", own.median / 1e3),
        format!("{:.2}", row.bytes / own.median),
        format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.greatest),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_table() {
        let line = |way: &str, nanos: &str| {
            format!(
                r#"{{"body":"1 B","dialect":"OpenAI","bytes":100,"beyond_ascii":25,"backslashes":3,"way":"{way}","nanos":{nanos}}}"#
            )
        };
        let lines = format!(
            "{}\n{}\n",
            line("ours", "[50.0,100.0,40.0]"),
            line(BASE, "[100.0,100.0,100.0]")
        );
        let options = Options { rounds: 3, core: 1 };
        let section = section(&example::rows(&lines, row).unwrap(), &options).unwrap();
        assert!(
            section.contains("### 1 B, OpenAI\n\n100 bytes, 25 % of them beyond ASCII, 3 backslashes"),
            "{section}"
        );
        assert!(
            section.contains("| ours | 0.040 | 0.050 | 2.00 | 0.50 (0.40 to 1.00) |"),
            "{section}"
        );
        let alone = example::rows(&line("ours", "[1.0]"), row).unwrap();
        assert!(
            super::section(&alone, &options).is_err(),
            "without a base there is no ratio"
        );
    }
}
