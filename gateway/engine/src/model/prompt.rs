//! A conversation to token ids: the chat template's text, cut at the control tokens that the template itself wrote.
//!
//! A client can spell a control token in a message. Before rendering, every such spelling, and every end of a message
//! that could become part of one, is broken by a character that occurs nowhere else; what is still whole after
//! rendering is the template's own and becomes an id, everything else is encoded as text without that character.
//! Invariant: no byte of a message, a tool or a call becomes part of a control token.

use std::{borrow::Cow, ops::RangeInclusive};

use aho_corasick::{AhoCorasick, MatchKind};
use memchr::memmem;

use super::{
    template::{Template, TemplateMessage},
    tools::{self, Structured},
    vocabulary::{Control, Vocabulary},
};
use crate::{
    calls::{self, Fault, Format},
    job::{Conversation, Message, Part, Role},
};

/// Template and tokenizer of a model, as one function from conversations to ids.
pub(crate) struct Prompts {
    template: Template,
    vocabulary: Vocabulary,
    spellings: Spellings,
    format: Format,
    /// Before a text that is no conversation.
    lead: Vec<u32>,
}

/// A prompt in ids.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<u32>,
    /// Whether the model continues a message that has begun.
    pub(crate) continues: bool,
}

impl Prompts {
    pub(super) fn new(template: Template, vocabulary: Vocabulary) -> Result<Self, String> {
        let spellings = Spellings::new(vocabulary.controls())?;
        let format = tools::detect(&template, vocabulary.controls());
        Ok(Self {
            lead: vocabulary.lead().to_vec(),
            template,
            vocabulary,
            spellings,
            format,
        })
    }

    /// Settles what stands before a text. `add`, where the model's maker states it, says whether the token `bos` does;
    /// otherwise the tokenizer's post-processor knows; of one without a word on it, the chat template shows it.
    pub(super) fn set_lead(&mut self, bos: Option<u32>, add: Option<bool>) {
        let greeting = Conversation::from(vec![Message::new(Role::User, "Hello")]);
        let begins = |bos: &u32| {
            let shown = self.encode(&greeting);
            shown.is_ok_and(|prompt| prompt.ids.first() == Some(bos))
        };
        self.lead = match (add, bos) {
            (Some(false), _) => Vec::new(),
            (Some(true), Some(bos)) => vec![bos],
            _ if !self.vocabulary.lead().is_empty() => self.vocabulary.lead().to_vec(),
            _ => bos.filter(begins).into_iter().collect(),
        };
    }

    /// What stands before a text that is no conversation.
    pub(crate) fn lead(&self) -> &[u32] {
        &self.lead
    }

    /// The ids of a text as it stands, behind what begins one. Control tokens spelled in it stay text.
    ///
    /// # Errors
    /// The tokenizer's own reason.
    pub(crate) fn encode_text(&self, text: &str) -> Result<Vec<u32>, Fault> {
        let mut ids = self.lead.clone();
        let encoded = self.vocabulary.encode(&[text], &mut ids);
        encoded.map_err(|reason| (Part::Prompt, reason))?;
        Ok(ids)
    }

    /// Checks that all ids are tokens.
    ///
    /// # Errors
    /// The first that is none.
    pub(crate) fn check_tokens(&self, ids: &[u32]) -> Result<(), Fault> {
        match self.vocabulary.first_unknown(ids) {
            Some(id) => Err((Part::Prompt, format!("{id} is no token of this model"))),
            None => Ok(()),
        }
    }

    /// How the model writes calls of tools.
    pub(crate) fn format(&self) -> &Format {
        &self.format
    }

    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The ids of a conversation up to where the model writes: a new message, or the last one if it is the assistant's.
    ///
    /// # Errors
    /// What is at fault: a tool, or the messages with the template's own words if it refuses.
    pub(crate) fn encode(&self, conversation: &Conversation) -> Result<Encoded, Fault> {
        calls::check(&conversation.tools)?;
        if self.format.native || !tools::has_any(conversation) {
            return self.encode_as_is(conversation);
        }
        self.encode_as_is(&calls::text::without_tools(conversation, self.format.system))
    }

    fn encode_as_is(&self, conversation: &Conversation) -> Result<Encoded, Fault> {
        let messages = &conversation.messages;
        let fault = |reason: String| (Part::Messages, reason);
        let mut structured = Structured::read(conversation, self.format.style)?;
        let contents = || messages.iter().map(|message| message.content.as_str());
        let continues = messages.last().is_some_and(|message| message.role == Role::Assistant);
        if messages.last().is_some_and(|message| !message.calls.is_empty()) {
            return Err(fault("the results of the last calls are missing".into()));
        }
        let texts = messages.iter().map(|message| message.content.as_str());
        let [wall, end] = unused_characters(texts.chain(structured.texts()))
            .ok_or_else(|| fault("the messages use every noncharacter of Unicode".into()))?;
        structured.guard(&self.template, |text| self.spellings.guard(text, wall));
        let mut guarded: Vec<Cow<'_, str>> = contents().map(|text| self.spellings.guard(text, wall)).collect();
        if continues && let Some(last) = guarded.last_mut() {
            last.to_mut().push(end);
        }
        let shown: Vec<TemplateMessage<'_>> = messages
            .iter()
            .zip(&guarded)
            .enumerate()
            .map(|(index, (message, content))| structured.message(index, message.role, content))
            .collect();
        let rendered = self.template.render(&shown, structured.told(), !continues);
        let mut rendered = rendered.map_err(fault)?;
        if continues {
            let cut = rendered
                .rfind(end)
                .ok_or_else(|| fault("the template leaves out the message to be continued".into()))?;
            rendered.truncate(cut);
        }
        let ids = self.ids(&rendered, wall, end).map_err(fault)?;
        Ok(Encoded { ids, continues })
    }

    /// Encodes a rendered text: whole control tokens as ids, the rest as text.
    fn ids(&self, rendered: &str, wall: char, end: char) -> Result<Vec<u32>, String> {
        let mut ids = Vec::with_capacity(rendered.len() / 3);
        let encode_text = |text: &str, ids: &mut Vec<u32>| {
            // A template may repeat the content that is to be continued; its end is no text.
            let parts: Vec<&str> = text.split([wall, end]).filter(|part| !part.is_empty()).collect();
            self.vocabulary.encode(&parts, ids)
        };
        let (mut rest, mut at) = (rendered, 0);
        for (range, control) in self.spellings.genuine(rendered) {
            let text = &rest[..range.start.saturating_sub(at)];
            let text = if control.strips_before { text.trim_end() } else { text };
            encode_text(text, &mut ids)?;
            ids.push(control.id);
            let behind = &rendered[range.end..];
            rest = if control.strips_behind {
                behind.trim_start()
            } else {
                behind
            };
            at = rendered.len() - rest.len();
        }
        encode_text(rest, &mut ids)?;
        Ok(ids)
    }
}

/// What may stand for a border: noncharacters first, which no text should have, then private characters.
const UNUSUAL: [RangeInclusive<char>; 2] = ['\u{FDD0}'..='\u{FDEF}', '\u{F0000}'..='\u{F0FFF}'];

/// Whether a character may stand for a border.
pub(super) fn is_unusual(character: char) -> bool {
    UNUSUAL.iter().any(|range| range.contains(&character))
}

/// Two unusual characters that occur in none of the texts. One pass over them, since a client writes them.
fn unused_characters<'a>(texts: impl Iterator<Item = &'a str>) -> Option<[char; 2]> {
    let [first, second] = UNUSUAL;
    let (mut in_first, mut in_second) = ([false; 0x20], [false; 0x1000]);
    for character in texts.flat_map(str::chars) {
        if second.contains(&character) {
            in_second[character as usize - *second.start() as usize] = true;
        } else if first.contains(&character) {
            in_first[character as usize - *first.start() as usize] = true;
        }
    }
    let used = in_first.into_iter().chain(in_second);
    let mut unused = first
        .chain(second)
        .zip(used)
        .filter_map(|(character, used)| (!used).then_some(character));
    Some([unused.next()?, unused.next()?])
}

/// The spellings of all control tokens, prepared for searching.
struct Spellings {
    controls: Vec<Control>,
    /// Every occurrence, also overlapping ones.
    all: AhoCorasick,
    /// The occurrences that a tokenizer takes: from the left, the longest.
    longest: AhoCorasick,
    /// Sorted, to ask whether a text begins one.
    forward: Vec<Vec<u8>>,
    /// Reversed and sorted, to ask whether a text ends one.
    backward: Vec<Vec<u8>>,
    /// All in one text, divided by NUL, to ask whether a text lies within one.
    joined: String,
    /// Bytes of the longest.
    longest_bytes: usize,
}

impl Spellings {
    /// A control token of a single character cannot be broken, so it is never taken from rendered text.
    fn new(controls: &[Control]) -> Result<Self, String> {
        let controls: Vec<Control> = controls
            .iter()
            .filter(|control| control.spelling.chars().nth(1).is_some())
            .cloned()
            .collect();
        let patterns = || controls.iter().map(|control| control.spelling.as_bytes());
        let build = |kind| AhoCorasick::builder().match_kind(kind).build(patterns());
        let sorted = |mut texts: Vec<Vec<u8>>| {
            texts.sort_unstable();
            texts
        };
        Ok(Self {
            all: build(MatchKind::Standard).map_err(|error| error.to_string())?,
            longest: build(MatchKind::LeftmostLongest).map_err(|error| error.to_string())?,
            forward: sorted(patterns().map(<[u8]>::to_vec).collect()),
            backward: sorted(patterns().map(|text| text.iter().rev().copied().collect()).collect()),
            joined: patterns().map(String::from_utf8_lossy).collect::<Vec<_>>().join("\0"),
            longest_bytes: patterns().map(<[u8]>::len).max().unwrap_or(0),
            controls,
        })
    }

    /// The control tokens that stand whole in a rendered text.
    fn genuine<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (std::ops::Range<usize>, &'a Control)> {
        self.longest
            .find_iter(text)
            .map(|found| (found.range(), &self.controls[found.pattern().as_usize()]))
    }

    /// `text` with `wall` wherever it spells a control token or could become part of one.
    fn guard<'a>(&self, text: &'a str, wall: char) -> Cow<'a, str> {
        let mut walls = self.places(text);
        if walls.is_empty() {
            return Cow::Borrowed(text);
        }
        walls.sort_unstable();
        walls.dedup();
        let mut out = String::with_capacity(text.len() + walls.len() * wall.len_utf8());
        let mut at = 0;
        for place in walls {
            out.push_str(&text[at..place]);
            out.push(wall);
            at = place;
        }
        out.push_str(&text[at..]);
        Cow::Owned(out)
    }

    fn places(&self, text: &str) -> Vec<usize> {
        // Behind the first character of every whole spelling.
        let mut places: Vec<usize> = self
            .all
            .find_overlapping_iter(text)
            .map(|found| after_first(text, found.start()))
            .collect();
        // What a template may put next to it: the text as it is, or without the blanks at its ends.
        let trimmed = text.trim();
        let start = text.len() - text.trim_start().len();
        for (from, part) in [(0, text), (start, trimmed)] {
            self.border_places(from, part, text, &mut places);
        }
        places
    }

    /// Walls for `part` (at `from` in `text`), so that nothing before or behind it completes a control token with it.
    fn border_places(&self, from: usize, part: &str, text: &str, places: &mut Vec<usize>) {
        let bytes = part.as_bytes();
        let reversed: Vec<u8> = bytes.iter().take(self.longest_bytes).rev().copied().collect();
        for len in 1..=bytes.len().min(self.longest_bytes.saturating_sub(1)) {
            if begins_one(&self.forward, &bytes[bytes.len() - len..]) {
                places.push(after_first(text, from + part.len() - len));
            }
            if begins_one(&self.backward, &reversed[reversed.len() - len..]) {
                places.push(before_last(text, from + len));
            }
        }
        let within = !part.is_empty() && part.len() < self.longest_bytes;
        if within && memmem::find(self.joined.as_bytes(), bytes).is_some() {
            places.extend([from, from + part.len()]);
        }
    }
}

/// Whether `part` is the beginning of one of the sorted texts.
fn begins_one(sorted: &[Vec<u8>], part: &[u8]) -> bool {
    let at = sorted.partition_point(|text| text.as_slice() < part);
    sorted.get(at).is_some_and(|text| text.starts_with(part))
}

/// The border behind the character that begins at `at`.
fn after_first(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(0, char::len_utf8)
}

/// The border before the character that ends at `end`.
fn before_last(text: &str, end: usize) -> usize {
    end - text[..end].chars().next_back().map_or(0, char::len_utf8)
}

#[cfg(test)]
#[path = "prompt_tests.rs"]
pub(super) mod tests;
