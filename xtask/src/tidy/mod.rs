//! House rules that no compiler checks.
//!
//! Nothing here changes a file. Invariant: every rule is a line of a table in [`rules`], with a test beside it.

mod code;
mod rules;

use std::{fs, path::Path, process::Command};

use crate::{
    failure::{Doing, Failure, Outcome},
    place::Place,
    shell,
};

/// A file of the repository, as the rules see it.
pub(crate) struct File<'a> {
    /// From the repository's root, with `/`.
    path: &'a str,
    text: &'a str,
    /// The text with comments and the insides of strings blanked; equal to it where the file is not Rust.
    code: &'a str,
}

/// A breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    line: usize,
    what: String,
}

/// Checks every file that git tracks, or would.
pub(crate) fn tidy(place: &Place) -> Outcome {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&place.root);
    let listed = shell::output(&mut git)?;
    let (mut files, mut breaches) = (0, 0);
    for path in String::from_utf8_lossy(&listed)
        .split('\0')
        .filter(|path| !path.is_empty())
    {
        for breach in check(&place.root, path)? {
            shell::say(format!("{path}:{}: {}", breach.line, breach.what));
            breaches += 1;
        }
        files += 1;
    }
    if breaches > 0 {
        return Err(Failure::new(format!("{breaches} breaches of the house rules")));
    }
    shell::say(format!("{files} files keep the house rules"));
    Ok(())
}

fn check(root: &Path, path: &str) -> Outcome<Vec<Breach>> {
    let full = root.join(path);
    // Deleted in the work tree, or a link: nothing to read.
    if !full.is_file() {
        return Ok(Vec::new());
    }
    let bytes = fs::read(&full).doing(|| format!("read {path}"))?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(Vec::new());
    };
    let code = if path.ends_with(".rs") {
        code::only(&text)
    } else {
        text.clone()
    };
    let file = File {
        path,
        text: &text,
        code: &code,
    };
    let linked = |target: &str| full.parent().is_some_and(|folder| folder.join(target).exists());
    Ok(rules::breaches(&file, linked))
}
