//! Puts a table into a file of results, such as bench/RESULTS.md.
//!
//! Invariant: a report replaces its own section and no other; made twice, the file is the same but for the figures.

use std::fs;

use crate::{
    failure::{Doing, Outcome},
    place::Place,
    shell,
};

/// A file that is made of sections.
pub(crate) struct Book {
    /// Where, from the root.
    pub(crate) path: &'static str,
    /// What stands before the first section.
    pub(crate) opening: &'static str,
}

const RESULTS: Book = Book {
    path: "bench/RESULTS.md",
    opening: "# Results\n\nWritten by `cargo xtask bench`; compare ratios, not absolute figures.\n",
};

/// Shows the section and writes it into the results under its name.
pub(super) fn publish(place: &Place, name: &str, section: &str) -> Outcome {
    publish_in(place, &RESULTS, name, section)
}

/// The same for another book.
pub(crate) fn publish_in(place: &Place, book: &Book, name: &str, section: &str) -> Outcome {
    shell::say(format!("\n{section}"));
    let path = place.root.join(book.path);
    let old = if path.exists() {
        fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?
    } else {
        String::new()
    };
    fs::write(&path, replaced(&old, book.opening, name, section)).doing(|| format!("write {}", path.display()))?;
    shell::say(format!("written to {}", path.display()));
    Ok(())
}

fn replaced(old: &str, opening: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"));
    let new = format!("{begin}{}\n{end}", section.trim_end());
    match (old.find(&begin), old.find(&end)) {
        (Some(from), Some(to)) if from < to => format!("{}{new}{}", &old[..from], &old[to + end.len()..]),
        _ if old.is_empty() => {
            format!("{opening}\n{new}")
        }
        _ => format!("{}\n\n{new}", old.trim_end()),
    }
}

/// A Markdown table.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(head.to_vec());
    out += &line(head.iter().map(|_| "---").collect());
    for row in rows {
        out += &line(row.iter().map(String::as_str).collect());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_itself_only() {
        let first = replaced("", "# Results\n", "a", "## A\n\none\n");
        let second = replaced(&first, "", "b", "## B\n\ntwo\n");
        let third = replaced(&second, "", "a", "## A\n\nthree\n");
        assert!(first.starts_with("# Results\n"));
        assert!(second.contains("one") && second.contains("two"));
        assert!(!third.contains("one") && third.contains("two") && third.contains("three"));
        assert_eq!(replaced(&third, "", "a", "## A\n\nthree\n"), third);
        assert!(third.find("three") < third.find("two"), "sections keep their place");
    }

    #[test]
    fn tables() {
        assert_eq!(
            table(&["a", "b"], &[vec!["1".into(), "2".into()]]),
            "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
        );
    }
}
