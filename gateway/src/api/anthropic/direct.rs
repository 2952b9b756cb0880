//! The Messages API in one pass over the text of a body.
//!
//! Nothing here refuses a body: `None` leaves it to the walk over the tape, which begins anew. Invariant: what is read
//! here is what that walk reads; all rules on single fields are its own.

use zerohop_engine::Role;

use super::{BILLING_HEADER, BLOCKS, Block, Name, ROLES, TOP, Walk};
use crate::api::{
    cursor::Cursor,
    fault::Path,
    fields::{Field, Ignored, MAX_MESSAGES, Prompt, Seen},
};

/// Where the texts of blocks go.
struct Sink<'p> {
    prompt: &'p mut Prompt,
    role: Role,
    /// The message has begun.
    begun: bool,
    /// Blocks with a billing header are left out.
    system: bool,
}

impl Sink<'_> {
    fn text(&mut self, text: &str) {
        if self.system && text.starts_with(BILLING_HEADER) {
            return;
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.prompt.begin(self.role);
        }
        self.prompt.text(text);
    }
}

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
            (Name::System, b'[') => {
                let mut prompt = Prompt::default();
                let mut sink = Sink {
                    prompt: &mut prompt,
                    role: Role::System,
                    begun: false,
                    system: true,
                };
                self.ignored.then(self.content(cursor, path, &mut sink)?.0);
                self.system = prompt;
            }
            (Name::StopSequences, b'[') => self.stop = cursor.stops(path)?,
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
        let (mut count, mut more) = (0, true);
        while cursor.item(&mut items)? {
            (more && count < MAX_MESSAGES).then_some(())?;
            more = self.turn(cursor, &path.index(count), &mut prompt)?;
            count += 1;
        }
        (count > 0).then_some(prompt)
    }

    /// A message; `false`: none may follow.
    fn turn(&mut self, cursor: &mut Cursor<'_, '_>, path: &Path<'_>, prompt: &mut Prompt) -> Option<bool> {
        let mut entries = cursor.object()?;
        let role = ROLES.get(cursor.tag(&mut entries, "role")?)?;
        let mut empty = None;
        // The walk over the tape reads a message's content after its other fields.
        let mut within = Ignored::default();
        while let Some(key) = cursor.key(&mut entries)? {
            match key {
                "role" => cursor.tag_again(&mut entries)?,
                "content" if empty.is_some() => return None,
                "content" => {
                    let path = path.key("content");
                    let mut sink = Sink {
                        prompt,
                        role,
                        begun: false,
                        system: false,
                    };
                    empty = Some(match cursor.peek()? {
                        b'[' => {
                            let (ignored, none) = self.content(cursor, &path, &mut sink)?;
                            within = ignored;
                            none
                        }
                        _ => match cursor.string()? {
                            "" => true,
                            text => {
                                sink.text(text);
                                false
                            }
                        },
                    });
                }
                _ => {
                    self.ignored.meet(&path.key(key), self.strict).ok()?;
                    cursor.skip()?;
                }
            }
        }
        self.ignored.then(within);
        match (empty?, role) {
            (false, _) => Some(true),
            // An empty last answer to continue is an answer to begin.
            (true, Role::Assistant) => Some(false),
            (true, Role::User | Role::System) => None,
        }
    }

    /// A list of blocks: what was ignored in it, and whether it is empty.
    fn content(&self, cursor: &mut Cursor<'_, '_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<(Ignored, bool)> {
        let mut ignored = Ignored::default();
        let mut items = cursor.array()?;
        let mut count = 0;
        while cursor.item(&mut items)? {
            self.piece(cursor, &path.index(count), sink, &mut ignored)?;
            count += 1;
        }
        Some((ignored, count == 0))
    }

    fn piece(
        &self,
        cursor: &mut Cursor<'_, '_>,
        path: &Path<'_>,
        sink: &mut Sink<'_>,
        ignored: &mut Ignored,
    ) -> Option<()> {
        let mut entries = cursor.object()?;
        let kind = BLOCKS.get(cursor.tag(&mut entries, "type")?)?;
        let mut told = false;
        while let Some(key) = cursor.key(&mut entries)? {
            match (key, kind) {
                (_, Block::NotYet) => return None,
                ("type", _) => cursor.tag_again(&mut entries)?,
                ("text", Block::Text) => {
                    let text = cursor.string()?;
                    (!told && !text.is_empty()).then_some(())?;
                    sink.text(text);
                    told = true;
                }
                ("cache_control" | "citations", Block::Text)
                | ("thinking" | "signature" | "data" | "cache_control", Block::Thinking) => cursor.skip()?,
                _ => {
                    ignored.meet(&path.key(key), self.strict).ok()?;
                    cursor.skip()?;
                }
            }
        }
        match kind {
            Block::Text => told.then_some(()),
            Block::Thinking => (sink.role == Role::Assistant).then_some(()),
            Block::NotYet => None,
        }
    }
}
