//! The Chat Completions API in one pass over the text of a body.
//!
//! Nothing here refuses a body: `None` leaves it to the walk over the tape, which begins anew. Invariant: what is read
//! here is what that walk reads; all rules on single fields are its own.

use zerohop_engine::Role;

use super::{Name, TOP, Walk, part_name, role};
use crate::api::{
    cursor::Cursor,
    fault::Path,
    fields::{Field, Ignored, MAX_MESSAGES, Neutral, Prompt, Seen},
};

impl Walk {
    /// As [`Self::over`].
    pub(super) fn directly(cursor: &mut Cursor<'_, '_>, strict: bool) -> Option<Self> {
        let mut walk = Self {
            strict,
            ..Self::default()
        };
        let mut seen = Seen::default();
        let mut entries = cursor.object()?;
        while let Some(key) = cursor.key(&mut entries)? {
            let path = Path::Root.key(key);
            match TOP.get(key) {
                None => {
                    walk.ignored.meet(&path, strict).ok()?;
                    cursor.skip()?;
                }
                Some(name) => {
                    seen.once(name as u8, &path).ok()?;
                    walk.field(name, cursor, &path)?;
                }
            }
        }
        cursor.end()?;
        Some(walk)
    }

    fn field(&mut self, name: Name, cursor: &mut Cursor<'_, '_>, path: &Path<'_>) -> Option<()> {
        match (name, cursor.peek()?) {
            (Name::Messages, b'[') => self.prompt = Some(self.list(cursor, path)?),
            (Name::Stop, b'[') => self.stop = cursor.stops(path)?,
            (hint!(), _) => cursor.skip()?,
            _ => cursor.value(|json| match (Field { json, path }).present() {
                Some(field) => self.top(name, field).ok(),
                None => Some(()),
            })?,
        }
        Some(())
    }

    fn list(&mut self, cursor: &mut Cursor<'_, '_>, path: &Path<'_>) -> Option<Prompt> {
        let mut prompt = Prompt::default();
        let mut items = cursor.array()?;
        let mut count = 0;
        while cursor.item(&mut items)? {
            (count < MAX_MESSAGES).then_some(())?;
            self.turn(cursor, &path.index(count), &mut prompt)?;
            count += 1;
        }
        (count > 0).then_some(prompt)
    }

    fn turn(&mut self, cursor: &mut Cursor<'_, '_>, path: &Path<'_>, prompt: &mut Prompt) -> Option<()> {
        let mut entries = cursor.object()?;
        let role = role(cursor.tag(&mut entries, "role")?, path).ok()?;
        prompt.begin(role);
        let (mut content, mut refusal) = (false, false);
        // The walk over the tape reads a message's content after its other fields.
        let mut within = Ignored::default();
        while let Some(key) = cursor.key(&mut entries)? {
            match (key, role) {
                ("role", _) => cursor.tag_again(&mut entries)?,
                ("content", _) => {
                    (!std::mem::replace(&mut content, true)).then_some(())?;
                    within = self.content_directly(cursor, &path.key(key), role, prompt)?;
                }
                // One that says something goes behind the content.
                ("refusal", Role::Assistant) => {
                    (!std::mem::replace(&mut refusal, true)).then_some(())?;
                    cursor.null()?;
                }
                ("tool_calls", Role::Assistant) => empty(cursor, &path.key(key), Neutral::Empty)?,
                ("function_call" | "audio", Role::Assistant) => empty(cursor, &path.key(key), Neutral::Null)?,
                ("annotations", Role::Assistant) => cursor.skip()?,
                _ => {
                    self.ignored.meet(&path.key(key), self.strict).ok()?;
                    cursor.skip()?;
                }
            }
        }
        self.ignored.then(within);
        content.then_some(())
    }

    /// A text, a list of parts, or `null` in an answer; what was ignored in it.
    fn content_directly(
        &self,
        cursor: &mut Cursor<'_, '_>,
        path: &Path<'_>,
        role: Role,
        prompt: &mut Prompt,
    ) -> Option<Ignored> {
        let mut ignored = Ignored::default();
        match cursor.peek()? {
            b'"' => prompt.text(cursor.string()?),
            b'[' => {
                let mut items = cursor.array()?;
                let mut count = 0;
                while cursor.item(&mut items)? {
                    self.part(cursor, &path.index(count), role, prompt, &mut ignored)?;
                    count += 1;
                }
                (count > 0).then_some(())?;
            }
            _ => {
                (role == Role::Assistant).then_some(())?;
                cursor.null()?;
            }
        }
        Some(ignored)
    }

    fn part(
        &self,
        cursor: &mut Cursor<'_, '_>,
        path: &Path<'_>,
        role: Role,
        prompt: &mut Prompt,
        ignored: &mut Ignored,
    ) -> Option<()> {
        let mut entries = cursor.object()?;
        let name = part_name(cursor.tag(&mut entries, "type")?, path, role).ok()?;
        let mut told = false;
        while let Some(key) = cursor.key(&mut entries)? {
            match key {
                "type" => cursor.tag_again(&mut entries)?,
                key if key == name => {
                    (!std::mem::replace(&mut told, true)).then_some(())?;
                    prompt.text(cursor.string()?);
                }
                _ => {
                    ignored.meet(&path.key(key), self.strict).ok()?;
                    cursor.skip()?;
                }
            }
        }
        told.then_some(())
    }
}

/// A field of an earlier answer that asks for nothing.
fn empty(cursor: &mut Cursor<'_, '_>, path: &Path<'_>, neutral: Neutral) -> Option<()> {
    cursor.value(|json| Field { json, path }.only(neutral).ok())
}
