//! Rust source without what is not code.
//!
//! Not a parser: it knows comments, strings, raw strings and characters, no more. Invariant: the result has the same
//! lines as the source, so a line number in one is a line number in the other.

/// The source with comments and the insides of literals replaced by blanks.
pub(super) fn only(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (length, kept) = token(rest, out.chars().next_back());
        let (token, after) = rest.split_at(length.max(first.len_utf8()));
        match kept {
            true => out.push_str(token),
            false => out.extend(
                token
                    .chars()
                    .map(|character| if character == '\n' { '\n' } else { ' ' }),
            ),
        }
        rest = after;
    }
    out
}

/// Length of what `rest` begins with, and whether it is code. `before` is the character in front of it.
fn token(rest: &str, before: Option<char>) -> (usize, bool) {
    let in_word = before.is_some_and(|character| character.is_alphanumeric() || character == '_');
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    if rest.starts_with('"') {
        return (string(rest), false);
    }
    if !in_word && let Some(length) = raw_string(rest) {
        return (length, false);
    }
    if rest.starts_with('\'')
        && let Some(length) = character(rest)
    {
        return (length, false);
    }
    (1, true)
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and so on, with or without `b` in front.
fn raw_string(rest: &str) -> Option<usize> {
    let start = if rest.starts_with("br") || rest.starts_with("cr") {
        2
    } else {
        usize::from(rest.starts_with('r'))
    };
    let hashes = rest[start..].bytes().take_while(|byte| *byte == b'#').count();
    let open = start + hashes;
    if start == 0 || !rest[open..].starts_with('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let end = rest[open + 1..]
        .find(&close)
        .map_or(rest.len(), |at| open + 1 + at + close.len());
    Some(end)
}

/// A character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut characters = rest.char_indices().skip(1);
    let (_, first) = characters.next()?;
    let (at, second) = characters.next()?;
    match (first, second) {
        ('\\', _) => rest[at + second.len_utf8()..]
            .find('\'')
            .map(|end| at + second.len_utf8() + end + 1),
        (_, '\'') => Some(at + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        for (source, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            ("f(\"a\\\"b\") g", "f(      ) g"),
            ("r#\"a\"b\"# c", "         c"),
            ("br\"a\" c", "      c"),
            ("var\"a\"", "var   "),
            ("'a' b '\\'' c '\\u{1}' d", "    b      c         d"),
            ("&'a str 'b: loop", "&'a str 'b: loop"),
            ("\"é\nü\" x", "  \n   x"),
        ] {
            let found = only(source);
            assert_eq!(found, expected, "{source}");
            assert_eq!(found.lines().count(), source.lines().count());
        }
    }
}
