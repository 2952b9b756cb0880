//! How a plan is shown: a line for each setting, and below it why.
//!
//! Nothing here reads a setting. Invariant: no line is wider than [`WIDTH`] columns.

use super::plan::{Change, Row, State};

/// Columns of a terminal that everybody has.
pub(super) const WIDTH: usize = 100;

/// The whole table; `reasons` adds why, what not, and the source.
pub(super) fn table(rows: &[Row], reasons: bool) -> Vec<String> {
    let mut lines = vec![line("setting", "now", "wanted", "state")];
    for row in rows {
        lines.push(line(&row.name, &row.now, &row.wanted, word(&row.state)));
        if let State::Odd(why) = &row.state {
            lines.extend(wrapped("left: ", why));
        }
        if let State::Change(Change::Value(value)) = &row.state
            && value.write != row.wanted
        {
            lines.extend(wrapped("to:   ", &value.write));
        }
        if reasons {
            lines.extend(wrapped("why:  ", row.setting.why));
            lines.extend(wrapped("not:  ", row.setting.but));
            lines.extend(wrapped("read: ", row.setting.source));
        }
    }
    lines.push(summary(rows));
    lines
}

fn word(state: &State) -> &'static str {
    match state {
        State::Good => "good",
        State::Better => "better",
        State::Kept => "kept",
        State::Absent => "absent",
        State::Odd(_) => "odd",
        State::Change(_) => "to set",
    }
}

fn line(name: &str, now: &str, wanted: &str, state: &str) -> String {
    format!(
        "{:<39} {:<24} {:<24} {state}",
        fitted(name, 39),
        fitted(now, 24),
        fitted(wanted, 24)
    )
}

/// The text, its end left out if it is too long.
fn fitted(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn wrapped(head: &str, text: &str) -> Vec<String> {
    const INDENT: usize = 4;
    let room = WIDTH - INDENT - head.len();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, room)),
        }
    }
    let blank = " ".repeat(head.len());
    let lines = lines.into_iter().enumerate();
    lines
        .map(|(at, line)| format!("{:INDENT$}{}{line}", "", if at == 0 { head } else { &blank }))
        .collect()
}

fn summary(rows: &[Row]) -> String {
    let count = |word_of: &str| rows.iter().filter(|row| word(&row.state) == word_of).count();
    let words = ["to set", "good", "better", "kept", "absent", "odd"];
    let told: Vec<String> = words
        .iter()
        .map(|word| (count(word), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_at_words_and_words_at_the_edge() {
        let long = "x".repeat(200);
        for (text, lines) in [("a b", 1), (&"word ".repeat(40), 3), (&long, 1)] {
            let told = wrapped("why:  ", text);
            assert_eq!(told.len(), lines, "{text}");
            assert!(told.iter().all(|line| line.chars().count() <= WIDTH), "{told:?}");
        }
        assert!(line(&long, &long, &long, "to set").chars().count() <= WIDTH);
    }
}
