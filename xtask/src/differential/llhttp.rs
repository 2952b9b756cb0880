//! What llhttp makes of the cases: a parser without a server, run in node.
//!
//! Invariant: it is given each case whole, with the next request behind it, as the servers are.

use std::{
    fmt::Write as _,
    fs::File,
    process::{Command, Stdio},
};

use serde_json::Value;
use zerohop_tests::{
    hostile::{Case, case::NEXT},
    scratch::Scratch,
};

use super::verdict::{Verdict, Way};
use crate::{
    failure::{Doing, Failure, Outcome},
    npm,
    place::Place,
    shell,
};

/// Its verdict on each case.
pub(super) fn verdicts(place: &Place, cases: &[Case]) -> Outcome<Vec<Verdict>> {
    if !shell::exists("node") {
        return Err(
            Failure::new("node is not installed").remedy("install Node.js 20 or newer (Debian: apt-get install npm)")
        );
    }
    let program = npm::install(place, "tests/hostile/llhttp", "llhttp", "llhttp.mjs")?;
    let mut lines = String::new();
    for case in cases {
        for byte in case.bytes().unwrap_or_default().iter().chain(NEXT.as_bytes()) {
            write!(lines, "{byte:02x}").map_err(|error| Failure::new(error.to_string()))?;
        }
        lines.push('\n');
    }
    let scratch = Scratch::new().doing(|| String::from("make a folder"))?;
    let input = scratch.write("cases", lines).doing(|| String::from("write a file"))?;
    let input = File::open(&input).doing(|| String::from("read a file"))?;
    let mut node = Command::new("node");
    node.arg(program.join("llhttp.mjs")).stdin(Stdio::from(input));
    let output = shell::output(&mut node)?;
    let output = String::from_utf8_lossy(&output);
    let verdicts: Vec<Verdict> = output.lines().map(verdict).collect::<Outcome<_>>()?;
    if verdicts.len() != cases.len() {
        return Err(Failure::new(format!(
            "llhttp judged {} of {} cases",
            verdicts.len(),
            cases.len()
        )));
    }
    Ok(verdicts)
}

fn verdict(line: &str) -> Outcome<Verdict> {
    let broken = || Failure::new(format!("llhttp answered {line:?}"));
    let json: Value = serde_json::from_str(line).map_err(|_| broken())?;
    let requests = json["requests"].as_array().ok_or_else(broken)?;
    let stopped = json["stopped"].as_str().ok_or_else(broken)?;
    let next = requests.last().is_some_and(|target| target == "/ready");
    let (next, end) = match stopped {
        "OK" if next => (1, Way::Keeps),
        "OK" => (0, Way::Waits),
        "TUNNEL" => (0, Way::Tunnels),
        "CLOSED_CONNECTION" => (0, Way::Closes),
        _ => (0, Way::Refuses),
    };
    Ok(Verdict {
        requests: requests.len() - next,
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_answers_are_read() {
        for (line, expected) in [
            (r#"{"requests":["/a","/ready"],"stopped":"OK"}"#, Some("1 keeps")),
            (r#"{"requests":["/a"],"stopped":"OK"}"#, Some("1 waits")),
            (r#"{"requests":["/a"],"stopped":"CLOSED_CONNECTION"}"#, Some("1 closes")),
            (r#"{"requests":[],"stopped":"INVALID_METHOD"}"#, Some("0 refuses")),
            (r#"{"requests":["a:1"],"stopped":"TUNNEL"}"#, Some("1 tunnels")),
            ("nonsense", None),
        ] {
            let verdict = verdict(line).ok().map(|verdict| verdict.to_string());
            assert_eq!(verdict.as_deref(), expected, "{line}");
        }
    }
}
