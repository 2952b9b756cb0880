//! The table's form: one case, its script and its outcome, as `tests/hostile/README.md` has it.
//!
//! Nothing here opens a connection. Invariant: what cannot be read is a panic with file and line, never a case left out.

use std::fmt;

/// A request that is asked for behind each case, to see whether anybody still listens.
pub const NEXT: &str = "GET /ready HTTP/1.1\r\nhost: a\r\n\r\n";

/// A body of 64 bytes that is a request to count tokens.
pub const ASK: &str = r#"{"model":"tiny","messages":[{"role":"user","content":"Hi you"}]}"#;

/// Short names for what many cases send.
const NAMES: [(&str, &str); 6] = [
    ("get", "GET /health HTTP/1.1\r\nhost: a\r\n"),
    ("post", "POST /v1/messages/count_tokens HTTP/1.1\r\nhost: a\r\n"),
    ("ask", ASK),
    ("chunked", "transfer-encoding: chunked\r\n"),
    ("next", NEXT),
    ("crlf", "\r\n"),
];

/// One scripted client.
#[derive(Debug, Clone)]
pub struct Case {
    /// `FILE:LINE`, for messages.
    pub place: String,
    /// What the case is about; unique in the table.
    pub name: String,
    /// Its bytes matter as they are cut, so it is played in one way only.
    pub as_cut: bool,
    /// What the client does, and the replies that it waits for between.
    pub steps: Vec<Step>,
    /// How it ends.
    pub end: End,
}

/// What a client does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes one by one, over and over, until it is answered or cut off.
    Drip(Vec<u8>),
    /// Waits for this reply.
    Reply(Reply),
    /// Says that it sends no more, and reads on.
    Finish,
    /// Breaks the connection.
    Reset,
}

/// A reply, as far as a case tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// The status; 0 for bytes without a head, as HTTP/0.9 has them.
    pub status: u16,
    /// `error.type` of its body.
    pub kind: Option<String>,
    /// A part of its message.
    pub text: Option<String>,
    /// It has no body, whatever its head says: it answers HEAD.
    pub bodiless: bool,
}

impl Reply {
    /// Whether `seen` is what this asks for.
    #[must_use]
    pub fn admits(&self, seen: &Self) -> bool {
        let message = seen.text.as_deref().unwrap_or_default();
        self.status == seen.status
            && self.kind == seen.kind
            && self.text.as_ref().is_none_or(|text| message.contains(text.as_str()))
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if let Some(kind) = &self.kind {
            write!(f, " {kind}")?;
        }
        self.text.as_ref().map_or(Ok(()), |text| write!(f, ": {text}"))
    }
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It does not: the next request on it is answered.
    Keeps,
    /// The server ends it, and what follows is not answered.
    Closes,
    /// The server breaks it.
    Resets,
    /// The client broke it, and the server has let it go.
    Left,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keeps => "keeps",
            Self::Closes => "closes",
            Self::Resets => "resets",
            Self::Left => "left",
        })
    }
}

impl Case {
    /// The replies that its client must see.
    pub fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.steps.iter().filter_map(|step| match step {
            Step::Reply(reply) => Some(reply),
            _ => None,
        })
    }

    /// What it sends, if that is all that it does.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for step in &self.steps {
            match step {
                Step::Send(bytes) => all.extend_from_slice(bytes),
                Step::Reply(_) => {}
                Step::Drip(_) | Step::Finish | Step::Reset => return None,
            }
        }
        Some(all)
    }
}

/// Reads one file of the table.
///
/// # Panics
/// If it does not have the form.
#[must_use]
pub fn read(file: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut open: Option<Case> = None;
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        if word == "case" {
            assert!(open.is_none(), "{place}: the case before has no end");
            open = Some(Case {
                place,
                name: rest.trim().to_owned(),
                as_cut: false,
                steps: Vec::new(),
                end: End::Keeps,
            });
            continue;
        }
        let case = open
            .as_mut()
            .unwrap_or_else(|| panic!("{place}: {line:?} stands in no case"));
        if let Some(end) = end_of(word) {
            case.end = end;
            cases.extend(open.take());
        } else {
            step(case, &place, word, rest);
        }
    }
    assert!(open.is_none(), "{file}: the last case has no end");
    cases
}

fn end_of(word: &str) -> Option<End> {
    [End::Keeps, End::Closes, End::Resets, End::Left]
        .into_iter()
        .find(|end| end.to_string() == word)
}

fn step(case: &mut Case, place: &str, word: &str, rest: &str) {
    match word {
        ">" => {
            let bytes = unescape(place, rest);
            match case.steps.last_mut() {
                Some(Step::Send(before)) => before.extend(bytes),
                _ => case.steps.push(Step::Send(bytes)),
            }
        }
        "drip" => case.steps.push(Step::Drip(unescape(place, rest))),
        "<" => case.steps.push(Step::Reply(reply(place, rest))),
        "finish" => case.steps.push(Step::Finish),
        "reset" => case.steps.push(Step::Reset),
        "as-cut" => case.as_cut = true,
        _ => panic!("{place}: {word:?} is no step"),
    }
}

/// `STATUS`, `STATUS TYPE` or `STATUS TYPE: PART OF THE MESSAGE`; `STATUS without body` answers HEAD.
fn reply(place: &str, text: &str) -> Reply {
    let (head, message) = text
        .split_once(": ")
        .map_or((text, None), |(head, text)| (head, Some(text)));
    let (status, kind) = head
        .split_once(' ')
        .map_or((head, None), |(status, kind)| (status, Some(kind)));
    let status = status
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{place}: {status:?} is no status"));
    let bodiless = kind == Some("without body");
    Reply {
        status,
        kind: kind.filter(|_| !bodiless).map(String::from),
        text: message.map(String::from),
        bodiless,
    }
}

/// Text with `\r \n \t \s \0 \\ \xNN`, `\{NAME}` for a name above, and `\*COUNT(TEXT)` for a repetition.
fn unescape(place: &str, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = escape(place, &rest[at + 1..], &mut out);
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Writes what one escape stands for; gives what is behind it.
fn escape<'a>(place: &str, text: &'a str, out: &mut Vec<u8>) -> &'a str {
    let wrong = || -> ! { panic!("{place}: an escape is malformed at {text:?}") };
    let single = match text.as_bytes().first() {
        Some(b'r') => b'\r',
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b's') => b' ',
        Some(b'0') => 0,
        Some(b'\\') => b'\\',
        Some(b'x') => {
            let byte = text.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            out.push(byte.unwrap_or_else(|| wrong()));
            return &text[3..];
        }
        Some(b'{') => {
            let (name, behind) = text[1..].split_once('}').unwrap_or_else(|| wrong());
            let known = NAMES
                .iter()
                .find(|(known, _)| *known == name)
                .unwrap_or_else(|| wrong());
            out.extend_from_slice(known.1.as_bytes());
            return behind;
        }
        Some(b'*') => {
            let (count, rest) = text[1..].split_once('(').unwrap_or_else(|| wrong());
            let count: usize = count.parse().unwrap_or_else(|_| wrong());
            let (inner, behind) = rest.split_once(')').unwrap_or_else(|| wrong());
            out.extend(unescape(place, inner).repeat(count));
            return behind;
        }
        _ => wrong(),
    };
    out.push(single);
    &text[1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        for (text, expected) in [
            (r"a\r\n\tb\s", &b"a\r\n\tb "[..]),
            (r"\0\x7f\xff\\", b"\0\x7f\xff\\"),
            (r"\*3(ab\n)c", b"ab\nab\nab\nc"),
            (r"\{crlf}x", b"\r\nx"),
        ] {
            assert_eq!(unescape("here", text), expected, "{text}");
        }
    }

    #[test]
    fn a_case_is_read_whole() {
        let cases = read(
            "f",
            "# about\ncase one thing\n  # why\n  > a\\r\n  > b\n  < 400 some_error: told so\n  finish\n  closes\n\
             case another\n  as-cut\n  > a\n  < 200 without body\n  keeps\n",
        );
        assert_eq!(cases.len(), 2);
        assert_eq!((cases[0].name.as_str(), cases[0].place.as_str()), ("one thing", "f:2"));
        assert_eq!(cases[0].steps[0], Step::Send(b"a\rb".to_vec()));
        let told = Reply {
            status: 400,
            kind: Some(String::from("some_error")),
            text: Some(String::from("we told so")),
            bodiless: false,
        };
        assert!(cases[0].replies().all(|reply| reply.admits(&told)));
        assert!(!cases[0].replies().any(|reply| reply.admits(&Reply {
            status: 401,
            ..told.clone()
        })));
        assert_eq!((cases[0].end, cases[0].bytes()), (End::Closes, None));
        assert!(cases[1].as_cut && cases[1].replies().all(|reply| reply.bodiless));
    }
}
