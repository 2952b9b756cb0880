//! The Messages API in one pass over the text of a body.
//!
//! Nothing here refuses a body: `None` leaves it to the walk over the tape, which begins anew. Invariant: what is read
//! here is what that walk reads; all rules on single fields are its own.

use zerohop_engine::Role;

use super::{BILLING_HEADER, BLOCKS, Block, Name, ROLES, TOP, Walk, hint};
use crate::api::{
    cursor::{Cursor, NO_GUESS},
    fault::Path,
    fields::{Ignored, MAX_MESSAGES, Seen, Unknown},
    prompt::Prompt,
};

/// The key that is likely in a message.
const CONTENT: &str = "\"content\":";

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
            (Name::System, b'[') => {
                let mut prompt = Prompt::default();
                let mut sink = Sink {
                    prompt: &mut prompt,
                    role: Role::System,
                    begun: false,
                    system: true,
                };
                let mut unknown = Unknown::new(self.strict, &mut self.ignored);
                content(cursor, path, &mut unknown, &mut sink)?;
                self.system = prompt;
            }
            (Name::StopSequences, b'[') => self.stop = cursor.stops(path)?,
            (hint!(), _) => cursor.skip()?,
            _ => cursor.field(path, |field| self.top(name, field).ok())?,
        }
        Some(())
    }

    fn list(&mut self, cursor: &mut Cursor<'_, '_>, path: &Path<'_>) -> Option<()> {
        let prompt = self.prompt.insert(Prompt::default());
        let mut unknown = Unknown::new(self.strict, &mut self.ignored);
        let mut items = cursor.array()?;
        let (mut count, mut more) = (0, true);
        while cursor.item(&mut items) {
            (more && count < MAX_MESSAGES).then_some(())?;
            more = turn(cursor, &path.index(count), &mut unknown, prompt)?;
            count += 1;
        }
        items.end()?;
        (count > 0).then_some(())
    }
}

/// A message; `false`: none may follow.
#[inline(always)]
fn turn(cursor: &mut Cursor<'_, '_>, path: &Path<'_>, unknown: &mut Unknown<'_>, prompt: &mut Prompt) -> Option<bool> {
    let (mut entries, role, mut next) = if let Some((entries, role)) = cursor.usual_turn() {
        (entries, role, Some("content"))
    } else {
        let mut entries = cursor.object()?;
        let role = ROLES.get(cursor.tag(&mut entries, "\"role\":")?)?;
        let next = cursor.key(&mut entries, CONTENT);
        (entries, role, next)
    };
    let mut empty = None;
    // The walk over the tape reads a message's content after its other fields.
    let mut within = Ignored::default();
    while let Some(key) = next {
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
                        let mut inner = unknown.behind(&mut within);
                        content(cursor, &path, &mut inner, &mut sink)?
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
                unknown.meet(&path.key(key))?;
                cursor.skip()?;
            }
        }
        next = cursor.key(&mut entries, CONTENT);
    }
    entries.end()?;
    unknown.ignored.then(within);
    match (empty?, role) {
        (false, _) => Some(true),
        // An empty last answer to continue is an answer to begin.
        (true, Role::Assistant) => Some(false),
        (true, Role::User | Role::System | Role::Tool) => None,
    }
}

/// A list of blocks; whether it is empty.
#[inline(never)]
fn content(
    cursor: &mut Cursor<'_, '_>,
    path: &Path<'_>,
    unknown: &mut Unknown<'_>,
    sink: &mut Sink<'_>,
) -> Option<bool> {
    let mut items = cursor.array()?;
    let mut count = 0;
    while cursor.item(&mut items) {
        piece(cursor, &path.index(count), unknown, sink)?;
        count += 1;
    }
    items.end()?;
    Some(count == 0)
}

/// A block.
fn piece(cursor: &mut Cursor<'_, '_>, path: &Path<'_>, unknown: &mut Unknown<'_>, sink: &mut Sink<'_>) -> Option<()> {
    let mut entries = cursor.object()?;
    let kind = BLOCKS.get(cursor.tag(&mut entries, "\"type\":")?)?;
    let mut told = false;
    while let Some(key) = cursor.key(&mut entries, "\"text\":") {
        match (key, kind) {
            (_, Block::ToolUse | Block::ToolResult | Block::NotYet) => return None,
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
                unknown.meet(&path.key(key))?;
                cursor.skip()?;
            }
        }
    }
    entries.end()?;
    match kind {
        Block::Text => told.then_some(()),
        Block::Thinking => (sink.role == Role::Assistant).then_some(()),
        Block::ToolUse | Block::ToolResult | Block::NotYet => None,
    }
}
