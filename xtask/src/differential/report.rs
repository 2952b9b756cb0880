//! Writes bench/DIFFERENTIAL.md: every difference under its reason, then what everybody made of every case.
//!
//! Invariant: made twice with the same programs, the file is the same.

use std::fs;

use super::{PEERS, Row, known::Known, nginx};
use crate::{
    failure::{Doing, Outcome},
    place::Place,
    shell,
};

const FILE: &str = "bench/DIFFERENTIAL.md";

const ABOUT: &str = "\
Written by `cargo xtask differential`. Each case of [tests/hostile](../tests/hostile/README.md) in which the client only
sends, with one good request behind it, against the gateway and

- `nginx`: one that answers each request itself;
- `nginx-body`: one that reads the whole body and hands the request on;
- `llhttp`: the parser of Node.js in its strict mode, without a server.

An outcome is the number of requests that were taken, the one behind the case not counted, and how it went on: `keeps`
(that one was taken too), `closes` (the last was to be the last), `refuses` (no request), `waits` (for more bytes, until time
is up), `tunnels` (another protocol follows).
";

/// Shows the differences and writes the file.
pub(super) fn publish(place: &Place, rows: &[Row], known: &Known) -> Outcome {
    let mut out = format!("# Differential\n\n{ABOUT}\n{}\n", versions(place)?);
    let differing = rows.iter().filter(|row| row.differences().next().is_some()).count();
    out += &format!(
        "{} cases; in {differing} somebody differs from the gateway.\n\n## Differences\n",
        rows.len()
    );
    for (number, reason) in known.reasons().iter().enumerate() {
        out += &section(reason, rows, |peer, case, theirs| {
            known.reason(peer, case, theirs) == Some(number)
        });
    }
    out += &section("Not in the list, and so a failure:", rows, |peer, case, theirs| {
        known.reason(peer, case, theirs).is_none()
    });
    shell::say(&out);
    out += "\n## All cases\n\n";
    out += &line(["case", "zerohop"].into_iter().chain(PEERS));
    out += &line(["---"; 5].into_iter());
    for row in rows {
        let [plain, reading, parsed] = row.theirs.map(|theirs| theirs.to_string());
        out += &line([row.case.as_str(), &row.ours.to_string(), &plain, &reading, &parsed].into_iter());
    }
    fs::write(place.root.join(FILE), out).doing(|| format!("write {FILE}"))?;
    shell::say(format!("written to {FILE}"));
    Ok(())
}

/// The differences that `belongs` admits, under their reason; nothing if there are none.
fn section(reason: &str, rows: &[Row], belongs: impl Fn(&str, &str, &str) -> bool) -> String {
    let mut table = String::new();
    for row in rows {
        let mut cells = PEERS.map(|_| String::new());
        for (peer, theirs) in row.differences() {
            if belongs(peer, &row.case, &theirs.to_string())
                && let Some(cell) = PEERS.iter().position(|known| *known == peer)
            {
                cells[cell] = theirs.to_string();
            }
        }
        if cells.iter().any(|cell| !cell.is_empty()) {
            let [plain, reading, parsed] = &cells;
            table += &line([row.case.as_str(), &row.ours.to_string(), plain, reading, parsed].into_iter());
        }
    }
    if table.is_empty() {
        return table;
    }
    let head = line(["case", "zerohop"].into_iter().chain(PEERS)) + &line(["---"; 5].into_iter());
    format!("\n{reason}\n\n{head}{table}")
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn versions(place: &Place) -> Outcome<String> {
    let nginx = nginx::version().unwrap_or_else(|| String::from("no nginx"));
    let lock = place.root.join("tests/hostile/llhttp/package.json");
    let lock = fs::read_to_string(&lock).doing(|| format!("read {}", lock.display()))?;
    let package: serde_json::Value = serde_json::from_str(&lock).unwrap_or_default();
    let undici = package["dependencies"]["undici"].as_str().unwrap_or("unknown");
    Ok(format!("{nginx}; llhttp as undici {undici} carries it.\n"))
}
