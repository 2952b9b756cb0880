//! An answer's text, as it comes, taken apart into text and calls of tools.
//!
//! It knows no tokens: a mark that is a control token comes in as its spelling. It never lets out a character that may
//! belong to a call until that is decided, and nothing of a call's wrapping. Invariants: what comes out does not depend on
//! how the text was cut into pieces; each call is of one of the request's tools, and all of its arguments joined are one
//! JSON object, unless the answer was cut short or the model was not held to the grammar.

use super::Style;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text of the answer.
    Text(String),
    /// A call of this tool begins.
    Call(String),
    /// More of its arguments.
    Arguments(String),
}

/// The splitter of one answer.
#[derive(Debug)]
pub(crate) struct Splitter {
    style: Style,
    names: Vec<String>,
    /// The token that stands for the style's mark, if one does.
    open: Option<u32>,
    state: State,
    /// Text that is not decided yet; in [`State::Call`] that of the call's wrapping.
    held: String,
    calls: u32,
    /// Something other than blanks was let out since the last call.
    told: bool,
}

/// Where the text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before anything but blanks.
    Start,
    /// In text, in which a mark may come.
    Text,
    /// Behind a mark at this offset of what is held: text until the name of a tool is complete.
    Head(usize),
    /// Behind the name.
    Name,
    /// In the arguments.
    Arguments(Scan),
    /// Behind the arguments, within the call's own object.
    Rest(Scan),
    /// Behind a call.
    Behind,
}

/// How deep in JSON's brackets, and whether in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scan {
    depth: u32,
    string: bool,
    escaped: bool,
}

impl Scan {
    const INSIDE: Self = Self {
        depth: 1,
        string: false,
        escaped: false,
    };

    /// One more byte; whether the outermost bracket is closed with it.
    fn feed(&mut self, byte: u8) -> bool {
        match (self.string, byte) {
            (true, _) if self.escaped => self.escaped = false,
            (true, b'\\') => self.escaped = true,
            (true, b'"') => self.string = false,
            (true, _) => {}
            (false, b'"') => self.string = true,
            (false, b'{' | b'[') => self.depth += 1,
            (false, b'}' | b']') => self.depth -= 1,
            (false, _) => {}
        }
        self.depth == 0
    }

    /// The end of the outermost bracket in `text`, if it comes.
    fn end(&mut self, text: &str) -> Option<usize> {
        text.bytes().position(|byte| self.feed(byte)).map(|at| at + 1)
    }
}

/// What a beginning can be.
enum Match<T> {
    /// This, up to the offset.
    Whole(T, usize),
    /// Perhaps, with more text.
    Open,
    /// Not.
    No,
}

impl Splitter {
    /// For calls of tools with these names, written in `style`. `open`: the control token that stands for its mark.
    pub(crate) fn new(style: Style, open: Option<u32>, names: Vec<String>) -> Self {
        Self {
            style,
            names,
            open,
            state: State::Start,
            held: String::new(),
            calls: 0,
            told: false,
        }
    }

    /// The spelling of a control token that begins a call; of any other token, nothing.
    pub(crate) fn spelling(&self, token: u32) -> Option<&'static str> {
        (self.open == Some(token)).then(|| self.style.open())
    }

    /// How many calls have begun.
    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    /// Takes more text, and appends what is certain to `out`.
    pub(crate) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// The text is over: what is still held is text, but for blanks around calls.
    pub(crate) fn finish(&mut self, out: &mut Vec<Piece>) {
        match self.state {
            State::Start | State::Text | State::Head(_) => {
                let blank = self.held.trim().is_empty();
                if !(blank && self.calls > 0 && !self.told) {
                    self.let_out(self.held.len(), out);
                }
            }
            // The wrapping of a call, complete or cut short.
            State::Name | State::Arguments(_) | State::Rest(_) | State::Behind => {}
        }
        self.held.clear();
    }

    /// Decides one more thing; whether there may be another.
    fn step(&mut self, out: &mut Vec<Piece>) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Text => self.text(out),
            State::Head(from) => self.head(from, out),
            State::Name => self.name(out),
            State::Arguments(scan) => self.arguments(scan, out),
            State::Rest(scan) => self.rest(scan),
            State::Behind => self.behind(),
        }
    }

    /// Llama's calls need no mark, but stand only where an answer begins.
    fn start(&mut self) -> bool {
        if self.style != Style::Llama {
            self.state = State::Text;
            return true;
        }
        let blanks = self.held.len() - self.held.trim_start().len();
        let begun = &self.held[blanks..];
        self.state = match literal(begun, self.style.open()) {
            Match::Whole((), at) => State::Head(blanks + at),
            Match::Open => return false,
            Match::No if begun.starts_with('{') => State::Head(blanks),
            Match::No => State::Text,
        };
        true
    }

    /// Lets text out up to a mark, or up to where one may begin; blanks before that wait with it.
    fn text(&mut self, out: &mut Vec<Piece>) -> bool {
        if self.style == Style::Llama {
            let blanks = self.calls > 0;
            let certain = if blanks { self.held.trim_end() } else { &self.held };
            self.let_out(certain.len(), out);
            return false;
        }
        let mark = self.style.open();
        if let Some(at) = self.held.find(mark) {
            let before = self.held[..at].trim_end().len();
            self.let_out(before, out);
            self.state = State::Head(at - before + mark.len());
            return true;
        }
        let longest = mark.len().min(self.held.len() + 1);
        let partly = (1..longest).rev().find(|&len| self.held.ends_with(&mark[..len]));
        let certain = self.held[..self.held.len() - partly.unwrap_or(0)].trim_end().len();
        self.let_out(certain, out);
        false
    }

    /// The wrapping up to the name of a tool. If it is none, everything from the mark on is text.
    fn head(&mut self, from: usize, out: &mut Vec<Piece>) -> bool {
        match name(&self.held[from..], self.style) {
            Match::Open => false,
            Match::Whole(name, at) if self.names.contains(&name) => {
                self.held.drain(..from + at);
                self.calls += 1;
                self.told = false;
                self.state = State::Name;
                out.push(Piece::Call(name));
                true
            }
            Match::Whole(..) | Match::No => {
                self.let_out(from, out);
                self.state = State::Text;
                true
            }
        }
    }

    /// From the name to the arguments. A call without any has none, so that all arguments are an object.
    fn name(&mut self, out: &mut Vec<Piece>) -> bool {
        match key(&self.held, self.style.arguments()) {
            Match::Open => false,
            Match::Whole((), at) => {
                self.held.drain(..at);
                self.state = State::Arguments(Scan {
                    depth: 0,
                    ..Scan::INSIDE
                });
                true
            }
            Match::No => {
                out.push(Piece::Arguments("{}".into()));
                self.state = State::Rest(Scan::INSIDE);
                true
            }
        }
    }

    fn arguments(&mut self, mut scan: Scan, out: &mut Vec<Piece>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        // The first byte opens the object, so the depth is at least 1 behind it.
        let end = scan.end(&self.held);
        let rest = self.held.split_off(end.unwrap_or(self.held.len()));
        out.push(Piece::Arguments(std::mem::replace(&mut self.held, rest)));
        self.state = match end {
            Some(_) => State::Rest(Scan::INSIDE),
            None => State::Arguments(scan),
        };
        end.is_some()
    }

    /// To the end of the call's own object, whatever else the model writes into it.
    fn rest(&mut self, mut scan: Scan) -> bool {
        match scan.end(&self.held) {
            Some(at) => {
                self.held.drain(..at);
                self.state = State::Behind;
                true
            }
            None => {
                self.held.clear();
                self.state = State::Rest(scan);
                false
            }
        }
    }

    /// What may stand behind a call: the mark of its end, or the next one of the list.
    fn behind(&mut self) -> bool {
        let blanks = self.held.len() - self.held.trim_start().len();
        let begun = &self.held[blanks..];
        let (next, state) = match self.style {
            Style::Hermes => (literal(begun, "</tool_call>"), State::Text),
            Style::Mistral if begun.starts_with(',') => (Match::Whole((), 1), State::Head(0)),
            Style::Mistral => (literal(begun, "]"), State::Text),
            Style::Llama => (Match::No, State::Text),
        };
        match next {
            Match::Open => return false,
            Match::Whole((), at) => {
                self.held.drain(..blanks + at);
                self.state = state;
            }
            Match::No => self.state = State::Text,
        }
        true
    }

    fn let_out(&mut self, len: usize, out: &mut Vec<Piece>) {
        if len == 0 {
            return;
        }
        let rest = self.held.split_off(len);
        self.told = true;
        out.push(Piece::Text(std::mem::replace(&mut self.held, rest)));
    }
}

/// Whether `text` begins with `what`.
fn literal(text: &str, what: &str) -> Match<()> {
    if text.starts_with(what) {
        Match::Whole((), what.len())
    } else if what.starts_with(text) {
        Match::Open
    } else {
        Match::No
    }
}

/// Whether `text`, blanks aside, is these parts in a row; the offset behind them.
fn parts(text: &str, parts: &[&str]) -> Match<()> {
    let mut at = 0;
    for part in parts {
        at = text.len() - text[at..].trim_start().len();
        match literal(&text[at..], part) {
            Match::Whole((), len) => at += len,
            other => return other,
        }
    }
    Match::Whole((), at)
}

/// The name of the tool in a call that begins with `text`, if it is complete.
fn name(text: &str, style: Style) -> Match<String> {
    // Another call of the list comes without its bracket.
    let bracket = style == Style::Mistral && !text.trim_start().starts_with('{') && !text.trim_start().is_empty();
    let open = if bracket { "[" } else { "" };
    let at = match parts(text, &[open, "{", "\"name\"", ":", "\""]) {
        Match::Whole((), at) => at,
        Match::Open => return Match::Open,
        Match::No => return Match::No,
    };
    let mut string = Scan {
        depth: 1,
        string: true,
        escaped: false,
    };
    for (index, byte) in text.bytes().enumerate().skip(at) {
        string.feed(byte);
        if !string.string {
            return match serde_json::from_str(&text[at - 1..=index]) {
                Ok(name) => Match::Whole(name, index + 1),
                Err(_) => Match::No,
            };
        }
    }
    Match::Open
}

/// The way from the name to the arguments, up to and without the bracket that opens them.
fn key(text: &str, key: &str) -> Match<()> {
    let quoted = format!("\"{key}\"");
    match parts(text, &[",", &quoted, ":", "{"]) {
        Match::Whole((), at) => Match::Whole((), at - 1),
        other => other,
    }
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
