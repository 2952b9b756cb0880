//! The Chat Completions API in one pass over the text of a body.
//!
//! Nothing here refuses a body: `None` leaves it to the walk over the tape, which begins anew. Invariant: what is read
//! here is what that walk reads; all rules on single fields are its own.

use zerohop_engine::Role;

use super::{Name, PARTS, Part, ROLES, TOP, Walk, hint};
use crate::api::{
    cursor::{Cursor, NO_GUESS},
    fault::Path,
    fields::{Ignored, MAX_MESSAGES, Seen, Unknown},
    prompt::Prompt,
};

/// The key that is likely in a message.
const CONTENT: &str = "\"content\":";

impl Walk<'_> {
    /// As [`Self::over`].
    pub(super) fn directly(&mut self, cursor: &mut Cursor<'_, '_>) -> Option<()> {
        let mut seen = Seen::default();
        let mut entries = cursor.object()?;
        while let Some(key) = cursor.key(&mut entries, NO_GUESS) {
            let path = Path::Root.key(key);
            match TOP.get(key) {
                None => {
                    self.ignored.meet(&path, self.strict).ok()?;
                    cursor.skip()?;
                }
                Some(name) => {
                    seen.first(name as u8).then_some(())?;
                    self.field(name, cursor, &path)?;
                }
            }
        }
        entries.end()?;
        cursor.end()
    }

    fn field(&mut self, name: Name, cursor: &mut Cursor<'_, '_>, path: &Path<'_>) -> Option<()> {
        match (name, cursor.peek()?) {
            (Name::Messages, b'[') => self.list(cursor, path)?,
            (Name::Stop, b'[') => self.stop = cursor.stops(path)?,
            (Name::StreamOptions, b'{') => self.stream_options = Some(self.stream_options_directly(cursor, path)?),
            (hint!(), _) => cursor.skip()?,
            _ => cursor.field(path, |field| self.top(name, field).ok())?,
        }
        Some(())
    }

    /// As [`Self::stream_options`].
    fn stream_options_directly(&mut self, cursor: &mut Cursor<'_, '_>, path: &Path<'_>) -> Option<bool> {
        let mut entries = cursor.object()?;
        let (mut told, mut usage) = (false, false);
        while let Some(key) = cursor.key(&mut entries, "\"include_usage\":") {
            match key {
                "include_usage" => {
                    (!std::mem::replace(&mut told, true)).then_some(())?;
                    usage = cursor.switch()?;
                }
                "include_obfuscation" => cursor.skip()?,
                _ => {
                    self.ignored.meet(&path.key(key), self.strict).ok()?;
                    cursor.skip()?;
                }
            }
        }
        entries.end()?;
        Some(usage)
    }

    fn list(&mut self, cursor: &mut Cursor<'_, '_>, path: &Path<'_>) -> Option<()> {
        let prompt = self.prompt.insert(Prompt::default());
        let mut unknown = Unknown::new(self.strict, &mut self.ignored);
        let mut items = cursor.array()?;
        let mut count = 0;
        while cursor.item(&mut items) {
            (count < MAX_MESSAGES).then_some(())?;
            turn(cursor, &path.index(count), &mut unknown, prompt)?;
            count += 1;
        }
        items.end()?;
        (count > 0).then_some(())
    }
}

/// A message.
#[inline(always)]
fn turn(cursor: &mut Cursor<'_, '_>, path: &Path<'_>, unknown: &mut Unknown<'_>, prompt: &mut Prompt) -> Option<()> {
    let (mut entries, role, mut next) = if let Some((entries, role)) = cursor.usual_turn() {
        (entries, role, Some("content"))
    } else {
        let mut entries = cursor.object()?;
        let role = ROLES.get(cursor.tag(&mut entries, "\"role\":")?)??;
        (role != Role::Tool).then_some(())?;
        let next = cursor.key(&mut entries, CONTENT);
        (entries, role, next)
    };
    prompt.begin(role);
    let (mut content, mut refusal, mut calls) = (false, false, false);
    // The walk over the tape reads a message's content after its other fields.
    let mut within = Ignored::default();
    while let Some(key) = next {
        match (key, role) {
            ("role", _) => cursor.tag_again(&mut entries)?,
            ("content", _) => {
                (!std::mem::replace(&mut content, true)).then_some(())?;
                let mut inner = unknown.behind(&mut within);
                content_of(cursor, &path.key(key), role, &mut inner, prompt)?;
            }
            // One that says something goes behind the content.
            ("refusal", Role::Assistant) => {
                (!std::mem::replace(&mut refusal, true)).then_some(())?;
                cursor.null()?;
            }
            ("tool_calls", Role::Assistant) => {
                (!std::mem::replace(&mut calls, true)).then_some(())?;
                cursor.field(&path.key(key), |field| {
                    let list = field.array().ok()?;
                    (list.len() == 0).then_some(())
                })?;
            }
            ("function_call" | "audio", Role::Assistant) => cursor.null()?,
            ("annotations", Role::Assistant) => cursor.skip()?,
            _ => {
                unknown.meet(&path.key(key))?;
                cursor.skip()?;
            }
        }
        next = cursor.key(&mut entries, CONTENT);
    }
    entries.end()?;
    unknown.ignored.then(within);
    content.then_some(())
}

/// A text, a list of parts, or `null` in an answer.
#[inline(always)]
fn content_of(
    cursor: &mut Cursor<'_, '_>,
    path: &Path<'_>,
    role: Role,
    unknown: &mut Unknown<'_>,
    prompt: &mut Prompt,
) -> Option<()> {
    match cursor.peek()? {
        b'"' => prompt.text(cursor.string()?),
        b'[' => {
            let mut items = cursor.array()?;
            let mut count = 0;
            while cursor.item(&mut items) {
                part(cursor, &path.index(count), role, unknown, prompt)?;
                count += 1;
            }
            items.end()?;
            (count > 0).then_some(())?;
        }
        _ => {
            (role == Role::Assistant).then_some(())?;
            cursor.null()?;
        }
    }
    Some(())
}

#[inline(never)]
fn part(
    cursor: &mut Cursor<'_, '_>,
    path: &Path<'_>,
    role: Role,
    unknown: &mut Unknown<'_>,
    prompt: &mut Prompt,
) -> Option<()> {
    let mut entries = cursor.object()?;
    let name = match (PARTS.get(cursor.tag(&mut entries, "\"type\":")?)?, role) {
        (Part::Text, _) => "text",
        (Part::Refusal, Role::Assistant) => "refusal",
        (Part::Refusal | Part::NotYet, _) => return None,
    };
    let mut told = false;
    while let Some(key) = cursor.key(&mut entries, "\"text\":") {
        match key {
            "type" => cursor.tag_again(&mut entries)?,
            key if key == name => {
                (!std::mem::replace(&mut told, true)).then_some(())?;
                prompt.text(cursor.string()?);
            }
            _ => {
                unknown.meet(&path.key(key))?;
                cursor.skip()?;
            }
        }
    }
    entries.end()?;
    told.then_some(())
}
