//! Hit ratios of the cache on public traces, beside LRU, S3-FIFO, SIEVE and W-TinyLFU.
//!
//! The replay is the example `traces` of the cache; here it is told. A missed limit is told in the table, and fails the test
//! `hit_ratios_keep_their_limits`, not this. Invariant: all of a line got the same requests and the same room.

use std::time::Instant;

use clap::Args;
use serde_json::Value;

use super::{example, report};
use crate::{
    failure::{Failure, Outcome},
    place::Place,
    shell,
};

/// Requests of a quick run.
const QUICK: u64 = 600_000;

/// Arguments of `bench traces`.
#[derive(Args)]
pub(crate) struct Options {
    /// The first 600,000 requests of each trace only, as the test has them; shown, and not written down
    #[arg(long)]
    quick: bool,
    /// The core to run on
    #[arg(long, default_value_t = 1)]
    core: u32,
}

/// Columns: the name of the example, and that of the table.
const POLICIES: [(&str, &str); 9] = [
    ("lru", "LRU"),
    ("s3_fifo", "S3-FIFO"),
    ("tiny_lfu", "W-TinyLFU"),
    ("sieve", "SIEVE"),
    ("infinite", "no bound"),
    ("literal", "heat as written"),
    ("never", "adaptive heat"),
    ("always", "with probation"),
    ("default", "**default**"),
];

/// Measures and publishes.
pub(crate) fn bench(place: &Place, options: &Options) -> Outcome {
    if std::env::var_os("ZEROHOP_TEST_DATA").is_none() {
        let failure = Failure::new("ZEROHOP_TEST_DATA names no folder with the traces");
        return Err(failure.remedy("name one whose folder `traces` has files that docs/cache.md lists, then again"));
    }
    let most = options.quick.then(|| QUICK.to_string());
    let begun = Instant::now();
    let lines = example::run(place, "zerohop-cache", "traces", options.core, most.as_slice())?;
    shell::say(format!("built and replayed in {:.0} s", begun.elapsed().as_secs_f64()));
    let section = section(&example::rows(&lines, Value::clone)?)?;
    if options.quick {
        shell::say(format!("\n{section}"));
        return Ok(());
    }
    report::publish(place, "traces", &section)
}

fn section(lines: &[Value]) -> Outcome<String> {
    if lines.is_empty() {
        return Err(Failure::new("no trace is there"));
    }
    let mut head = vec!["trace", "requests", "room"];
    head.extend(POLICIES.iter().map(|(_, name)| *name));
    head.extend(["probation", "limits"]);
    let rows: Vec<_> = lines.iter().map(row).collect();
    let missed: Vec<_> = lines.iter().flat_map(breaches).collect();
    let verdict = if missed.is_empty() {
        "All limits are kept.".to_owned()
    } else {
        format!("Missed: {}.", missed.join("; "))
    };
    Ok(format!(
        "## Hit ratios on public traces\n\n`cargo xtask bench traces`. Percent of requests; each trace with room for 5 % and for 10 % \
         of its keys, all answers of one size. Ours is the cache as it runs, driven step by step at the times of the trace, or \
         where it has none at an even rate: 10 requests a second for web07 and web12, 100 for scarab, adapt-size and multi1, \
         1,000 for orm-busy. The others are small ones of the example's own, as their papers have them (W-TinyLFU with a window \
         of 1 %, not adapted). *No bound* is what a cache that never evicts would hit. *Heat as written*: `half_life: \
         literal`; *adaptive heat*: `probation: off`; *with probation*: `probation: on`; *default*: shadows decide, and \
         *probation* is the share of the requests during which they decided for it.\n\nLimits of the default: not below LRU - 1 \
         anywhere, not below S3-FIFO - 2 on web07, web12, scarab and adapt-size, not below LRU + 0.5 on the requests to a language \
         model. {verdict}\n\n{}",
        report::table(&head, &rows)
    ))
}

fn row(line: &Value) -> Vec<String> {
    let number = |name: &str| line[name].as_f64().unwrap_or_default();
    let mut cells = vec![
        line["trace"].as_str().unwrap_or_default().to_owned(),
        format!("{:.0}", number("requests")),
        format!("{:.0} ({:.0} %)", number("capacity"), number("percent")),
    ];
    cells.extend(POLICIES.iter().map(|(name, _)| format!("{:.1}", number(name))));
    cells.push(format!("{:.0} %", number("on")));
    let kept = breaches(line).is_empty();
    cells.push(if kept { "kept" } else { "missed" }.to_owned());
    cells
}

fn breaches(line: &Value) -> Vec<String> {
    let told = line["breaches"].as_array().into_iter().flatten();
    told.filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_table() {
        let line = |breaches: &str| {
            let text = format!(
                r#"{{"trace":"web","requests":1000,"distinct":200,"percent":5,"capacity":10,"lru":10.04,"s3_fifo":11,"sieve":12,
                "tiny_lfu":13,"infinite":80,"literal":14,"never":15,"always":16,"default":17.46,"on":62.5,"breaches":{breaches}}}"#
            );
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let kept = section(&[line("[]")]).unwrap();
        let row =
            "| web | 1000 | 10 (5 %) | 10.0 | 11.0 | 13.0 | 12.0 | 80.0 | 14.0 | 15.0 | 16.0 | 17.5 | 62 % | kept |";
        assert!(kept.contains(row), "{kept}");
        assert!(kept.contains("All limits are kept."));
        let missed = section(&[line("[]"), line(r#"["web at 5 %: bad"]"#)]).unwrap();
        assert!(
            missed.contains("| missed |") && missed.contains("Missed: web at 5 %: bad."),
            "{missed}"
        );
        assert!(section(&[]).is_err());
    }
}
