//! The ways of reading a body that are compared.
//!
//! Invariant: a way looks at every byte and gives back what it made of them, which is dropped within the measured time.

use std::borrow::Cow;

use serde::Deserialize;
use simd_json::{Buffers, INPUT_PADDING, Tape};
use sonic_rs::JsonContainerTrait as _;
use zerohop::{
    api::{Scratch, anthropic, openai},
    doors::{self, Level, Way},
};

use crate::bodies::{Body, Dialect};

/// Reads a body once; the number is any that depends on the result.
pub(crate) type Read<'b> = Box<dyn FnMut() -> usize + 'b>;

/// All ways, each with what the table calls it.
pub(crate) fn of(body: &Body) -> Vec<(String, Read<'_>)> {
    let json = &body.bytes;
    let mut ways: Vec<(String, Read<'_>)> = vec![("zerohop".into(), product(body, Scratch::default()))];
    // What machines without the newest instructions do.
    for level in Level::all().filter(|level| *level != Level::best()) {
        let name = format!("zerohop, {}", level.name());
        ways.push((name, product(body, doors::scratch(level))));
    }
    ways.extend([
        ("zerohop, tape alone".into(), by_tape(body)),
        ("simd-json tape, buffers reused".into(), tape(body)),
        (
            "sonic-rs typed".into(),
            read(|| sonic_rs::from_slice::<Typed>(json).expect("valid").weight()),
        ),
        (
            "sonic-rs Value".into(),
            read(|| {
                sonic_rs::from_slice::<sonic_rs::Value>(json)
                    .expect("valid")
                    .as_object()
                    .map_or(0, sonic_rs::Object::len)
            }),
        ),
        (
            "serde_json typed".into(),
            read(|| serde_json::from_slice::<Typed>(json).expect("valid").weight()),
        ),
        (
            "serde_json Value".into(),
            read(|| {
                serde_json::from_slice::<serde_json::Value>(json)
                    .expect("valid")
                    .as_object()
                    .map_or(0, serde_json::Map::len)
            }),
        ),
        (
            "simdutf8, validation alone".into(),
            read(|| simdutf8::basic::from_utf8(json).expect("valid").len()),
        ),
    ]);
    ways
}

fn read<'b>(read: impl FnMut() -> usize + 'b) -> Read<'b> {
    Box::new(read)
}

/// As a worker does it, with its own scratch memory.
fn product(body: &Body, mut scratch: Scratch) -> Read<'_> {
    let read = match body.dialect {
        Dialect::Anthropic => anthropic::messages,
        Dialect::OpenAi => openai::chat,
    };
    let directly = match body.dialect {
        Dialect::Anthropic => doors::messages,
        Dialect::OpenAi => doors::chat,
    };
    // What is measured is the one pass, which has no doubts about such a body.
    assert!(directly(Way::Direct, &body.bytes, &mut scratch, false).is_some());
    Box::new(move || {
        let (request, ignored) = read(&body.bytes, &mut scratch, false).expect("valid");
        request.conversation.messages.len() + ignored.count as usize
    })
}

fn by_tape(body: &Body) -> Read<'_> {
    let read = match body.dialect {
        Dialect::Anthropic => doors::messages,
        Dialect::OpenAi => doors::chat,
    };
    let mut scratch = Scratch::default();
    Box::new(move || {
        let read = read(Way::Tape, &body.bytes, &mut scratch, false);
        let (request, ignored) = read.expect("an answer").expect("valid");
        request.conversation.messages.len() + ignored.count as usize
    })
}

fn tape(body: &Body) -> Read<'_> {
    let mut buffers = Buffers::with_max_depth(0, 128);
    let mut padded = Vec::new();
    let mut kept = Tape(Vec::new());
    Box::new(move || {
        padded.clear();
        padded.extend_from_slice(&body.bytes);
        padded.resize(body.bytes.len() + INPUT_PADDING, 0);
        let mut tape: Tape<'_> = std::mem::replace(&mut kept, Tape(Vec::new()));
        simd_json::fill_tape_padded(&mut padded, body.bytes.len(), &mut buffers, &mut tape).expect("valid");
        let len = tape.0.len();
        kept = tape.reset();
        len
    })
}

/// What serde is asked for: as much as a request has, borrowed where that is possible.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Typed<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<u32>,
    temperature: Option<f32>,
    #[serde(default)]
    stream: bool,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Content<'a>,
}

/// A text or a list of blocks, told apart by their first byte: `untagged` would read each twice.
enum Content<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<Block<'a>>),
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Content<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or a list of blocks")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de>, E> {
                Ok(Content::Text(text.into()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Content<'de>, E> {
                Ok(Content::Text(text.to_owned().into()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Content<'de>, A::Error> {
                let mut blocks = Vec::new();
                while let Some(block) = items.next_element()? {
                    blocks.push(block);
                }
                Ok(Content::Blocks(blocks))
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl Typed<'_> {
    fn weight(&self) -> usize {
        let messages = self.messages.iter().map(|message| {
            message.role.len()
                + match &message.content {
                    Content::Text(text) => text.len(),
                    Content::Blocks(blocks) => blocks.iter().map(|block| block.kind.len() + block.text.len()).sum(),
                }
        });
        self.model.len()
            + messages.sum::<usize>()
            + self.max_tokens.map_or(0, |_| 1)
            + self.temperature.map_or(0, |_| 1)
            + usize::from(self.stream)
    }
}
