//! Files with the bytes that a reply must have.
//!
//! Invariant: a golden file changes only when a person runs the tests with `ZEROHOP_BLESS=1`, and then shows in the
//! diff; a missing one fails.

use std::{env, fs, path::PathBuf};

/// Compares `found` with the file `golden/NAME.txt`.
///
/// # Panics
/// If they differ, with the first line that does.
pub fn check(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(format!("{name}.txt"));
    if env::var_os("ZEROHOP_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap_or(&path))
            .and_then(|()| fs::write(&path, found))
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
    let expected = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("golden/{name}.txt: {error}; ZEROHOP_BLESS=1 writes what is found"));
    let lines = expected
        .lines()
        .zip(found.lines())
        .position(|(left, right)| left != right);
    let line = lines.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    assert!(
        expected == found,
        "golden/{name}.txt, line {}:\nexpected: {}\nfound:    {}\n--- all that was found\n{found}",
        line + 1,
        expected.lines().nth(line).unwrap_or("(nothing)"),
        found.lines().nth(line).unwrap_or("(nothing)"),
    );
}

/// A head and body with what differs from run to run replaced: ids, times, the server's version.
#[must_use]
pub fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        out.push_str(&normal_line(line));
    }
    out
}

/// Prefixes of ids; what follows of letters, digits, `-` and `_` becomes `ID`.
const IDS: [&str; 4] = ["req_", "msg_", "cmpl-", "fp_"];

/// JSON keys whose value is a time.
const TIMES: [&str; 2] = ["\"created\":", "\"created_at\":"];

fn normal_line(line: &str) -> String {
    if line.starts_with("date: ") {
        return String::from("date: TIME\r\n");
    }
    let id = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let line = IDS
        .iter()
        .fold(line.to_owned(), |line, prefix| replaced(&line, prefix, id, "ID"));
    TIMES.iter().fold(line, |line, key| {
        replaced(&line, key, |character| !",}".contains(character), "TIME")
    })
}

/// After each `prefix`, the longest run of characters that `fits` becomes `by`.
fn replaced(text: &str, prefix: &str, fits: impl Fn(char) -> bool, by: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(prefix) {
        let (before, after) = rest.split_at(at + prefix.len());
        let end = after.find(|character| !fits(character)).unwrap_or(after.len());
        out.push_str(before);
        out.push_str(by);
        rest = &after[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_varies_is_replaced() {
        for (text, expected) in [
            ("request-id: req_01Ab-_9\r\n", "request-id: req_ID\r\n"),
            ("date: Mon, 01 Jan 2024 00:00:00 GMT\r\n", "date: TIME\r\n"),
            (
                "{\"id\":\"msg_1\",\"created\":17,\"a\":1}",
                "{\"id\":\"msg_ID\",\"created\":TIME,\"a\":1}",
            ),
            ("{\"created_at\":\"2024-01-01T00:00:00Z\"}\n", "{\"created_at\":TIME}\n"),
            ("content-length: 5\r\n\r\nhello", "content-length: 5\r\n\r\nhello"),
        ] {
            assert_eq!(normal(text), expected);
        }
    }
}
