//! The heat map of the buckets: for a terminal of 100 columns, or as CSV.
//!
//! Invariant: a map has at most [`ROWS`] rows of [`COLUMNS`] cells, however many buckets there are; a cell stands for as many
//! neighbouring buckets as any other.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Deserialize;
use serde_json::json;

use super::ask::Asker;
use crate::cli::Failure;

const COLUMNS: usize = 64;
const ROWS: usize = 16;
/// From cold to hot; the first has no heat at all.
const SHADES: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// The same as colours of a terminal of 256.
const COLOURS: [u8; 10] = [0, 17, 18, 54, 90, 126, 162, 197, 208, 226];

#[derive(Deserialize)]
struct Bucket {
    model: String,
    bucket: u32,
    entries: u64,
    bytes: u64,
    pinned: u64,
    heat: f64,
    hottest: f64,
}

/// The buckets of a model.
#[derive(Default)]
struct Model {
    heat: Vec<(u32, f64)>,
    entries: u64,
}

/// Shows the buckets of all models, or of one.
pub(super) fn show(
    asker: &mut Asker,
    model: Option<&str>,
    csv: bool,
    colour: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut request = json!({"command": "cache.heat"});
    if let Some(model) = model {
        request["model"] = model.into();
    }
    let mut models: BTreeMap<String, Model> = BTreeMap::new();
    let mut written = Ok(());
    if csv {
        writeln!(out, "model,bucket,entries,bytes,pinned,heat,hottest")?;
    }
    let told = asker.ask_each(&request, |entry| {
        let Ok(bucket) = serde_json::from_str::<Bucket>(entry) else {
            written = Err(io::Error::other("the gateway tells of buckets otherwise"));
            return false;
        };
        if csv {
            written = line(&bucket, out);
            return written.is_ok();
        }
        let model = models.entry(bucket.model).or_default();
        model.heat.push((bucket.bucket, bucket.heat));
        model.entries += bucket.entries;
        true
    });
    written?;
    let buckets = told?["buckets"]
        .as_u64()
        .and_then(|buckets| usize::try_from(buckets).ok())
        .unwrap_or(0);
    if csv {
        return Ok(());
    }
    if models.is_empty() {
        return Ok(writeln!(out, "no entries")?);
    }
    for (name, model) in &models {
        map(name, model, buckets, colour, out)?;
    }
    Ok(())
}

fn line(bucket: &Bucket, out: &mut dyn Write) -> io::Result<()> {
    let name = match bucket.model.contains([',', '"']) {
        true => format!("\"{}\"", bucket.model.replace('"', "\"\"")),
        false => bucket.model.clone(),
    };
    let Bucket {
        bucket,
        entries,
        bytes,
        pinned,
        heat,
        hottest,
        ..
    } = bucket;
    writeln!(out, "{name},{bucket},{entries},{bytes},{pinned},{heat:.3},{hottest:.3}")
}

fn map(name: &str, model: &Model, buckets: usize, colour: bool, out: &mut dyn Write) -> io::Result<()> {
    let each = buckets.div_ceil(COLUMNS * ROWS).max(1);
    let mut cells = vec![0.0_f64; buckets.div_ceil(each)];
    for (bucket, heat) in &model.heat {
        if let Some(cell) = cells.get_mut(*bucket as usize / each) {
            *cell += heat;
        }
    }
    let hottest = cells.iter().copied().fold(0.0, f64::max);
    let shown: String = name.chars().take(24).collect();
    writeln!(
        out,
        "{shown}: entries {}, buckets {buckets} ({each} a cell), hottest cell {hottest:.1}",
        model.entries
    )?;
    for (row, cells) in cells.chunks(COLUMNS).enumerate() {
        write!(out, "{:>8} |", row * COLUMNS * each)?;
        for cell in cells {
            let shade = shade(*cell, hottest);
            match colour {
                true => write!(out, "\x1b[48;5;{}m{}\x1b[0m", COLOURS[shade], SHADES[shade])?,
                false => write!(out, "{}", SHADES[shade])?,
            }
        }
        writeln!(out, "| {:>10.1}", cells.iter().sum::<f64>())?;
    }
    Ok(())
}

/// The shade of a cell: by the logarithm of its heat, since few cells have most of it.
fn shade(heat: f64, hottest: f64) -> usize {
    const LAST: usize = SHADES.len() - 1;
    if heat <= 0.0 || hottest <= 0.0 {
        return 0;
    }
    let part = heat.ln_1p() / hottest.ln_1p();
    // `as` saturates.
    ((part * LAST as f64).ceil() as usize).clamp(1, LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_rise_with_heat() {
        assert_eq!(
            (shade(0.0, 5.0), shade(0.0, 0.0), shade(1e-9, 5.0), shade(5.0, 5.0)),
            (0, 0, 1, 9)
        );
        let rising: Vec<_> = (1..=64).map(|heat| shade(f64::from(heat), 64.0)).collect();
        assert!(rising.is_sorted() && rising[0] < 3 && rising[63] == 9, "{rising:?}");
    }

    #[test]
    fn a_map_fits_a_hundred_columns() {
        for buckets in [1024, 2048, 1 << 20, 1 << 22, 100, 1] {
            let model = Model {
                heat: vec![(0, 1e6), (buckets as u32 - 1, 3.5)],
                entries: 1 << 28,
            };
            let mut out = Vec::new();
            map(&"m".repeat(300), &model, buckets, false, &mut out).expect("memory");
            let text = String::from_utf8(out).expect("text");
            assert!(text.lines().count() <= ROWS + 1, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
            assert!(
                buckets == 1 || text.contains('@') && text.lines().last().is_some_and(|line| line.contains("3.5")),
                "{text}"
            );
            assert!(!text.contains('\x1b'));
        }
    }

    #[test]
    fn names_of_models_are_quoted_where_they_must_be() {
        let bucket = |model: &str| Bucket {
            model: model.into(),
            bucket: 7,
            entries: 2,
            bytes: 600,
            pinned: 1,
            heat: 1.5,
            hottest: 1.0,
        };
        for (model, wanted) in [
            ("tiny", "tiny,7,2,600,1,1.500,1.000\n"),
            ("a,\"b\"", "\"a,\"\"b\"\"\",7,2,600,1,1.500,1.000\n"),
        ] {
            let mut out = Vec::new();
            line(&bucket(model), &mut out).expect("memory");
            assert_eq!(String::from_utf8(out).expect("text"), wanted);
        }
    }
}
