//! The bodies that are read: made up, but as chat clients send them.
//!
//! Invariant: a body is the same in every run, and exactly as long as its name says.

use zerohop::json;

/// Who wrote the body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Anthropic,
    OpenAi,
}

impl Dialect {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "Anthropic",
            Self::OpenAi => "OpenAI",
        }
    }
}

/// A body and what it is called.
pub(crate) struct Body {
    pub(crate) name: &'static str,
    pub(crate) dialect: Dialect,
    pub(crate) bytes: Vec<u8>,
}

/// All, from the shortest to the longest; the last are as encoders write them that escape all that is not ASCII.
pub(crate) fn all() -> Vec<Body> {
    let mut bodies = Vec::new();
    for (name, length, escape_all) in [
        ("385 B", 385, false),
        ("8.4 KB", 8_420, false),
        ("263 KB", 263_212, false),
        ("263 KB, ASCII only", 263_212, true),
    ] {
        for dialect in [Dialect::Anthropic, Dialect::OpenAi] {
            let bytes = make(dialect, length, escape_all);
            assert_eq!(bytes.len(), length);
            bodies.push(Body { name, dialect, bytes });
        }
    }
    bodies
}

/// What people and models write: prose, code with quotes and line ends, other scripts.
const PIECES: [&str; 12] = [
    "Could you look at this again and tell me what changes? ",
    "这个函数在并发情况下会出错吗？请用中文解释一下原因。",
    "fn main() {\n    println!(\"{}\", total);\n}\n",
    "その結果は正しいと思いますが、もう一度確認してください。",
    "The second paragraph repeats the first one, only longer, and adds nothing that matters. ",
    "C:\\Users\\me\\notes.txt\n\n",
    "그 다음 단계는 무엇입니까? ",
    "- first\n- second\n- \"third\"\n",
    "Мы проверили это вчера вечером. ",
    "Done 👍 ",
    "由于缓存没有命中，所以第二次请求的延迟比第一次高得多。",
    "An answer in plain words: yes, but not before the lock is released. ",
];

/// With it, a third of the bytes are beyond ASCII.
const SEED: u64 = 11;

/// The first message of a short conversation.
const SHORT: &str = "请把这句话翻译成英文：\n\"由于缓存没有命中，所以慢了。\"";

/// Numbers without pattern.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }

    fn text(&mut self, length: usize) -> String {
        let mut text = String::new();
        while text.len() < length {
            text += PIECES[self.below(PIECES.len())];
        }
        text
    }
}

fn make(dialect: Dialect, length: usize, escape_all: bool) -> Vec<u8> {
    let mut out = Out {
        bytes: head(dialect),
        escape_all,
    };
    let mut dice = Dice(SEED);
    let (short, size) = match length {
        0..1_000 => (true, 60),
        1_000..100_000 => (false, 500),
        _ => (false, 4_000),
    };
    // The last message fills up what is left.
    let foot = format!("\"}}]{}", foot(dialect));
    let rest = |out: &Out| length.saturating_sub(out.bytes.len() + foot.len());
    let mut number = 0;
    while rest(&out) > if short { 140 } else { 8 * size } {
        let text = if short { SHORT.to_owned() } else { dice.text(size) };
        out.message(number, &text, dialect, !short && number % 4 == 1);
        number += 1;
    }
    // A conversation ends with the user.
    if number % 2 == 1 {
        out.message(number, "OK.", dialect, false);
    }
    out.raw("{\"role\":\"user\",\"content\":\"");
    loop {
        let before = out.bytes.len();
        out.inside(PIECES[dice.below(PIECES.len())]);
        if out.bytes.len() + foot.len() > length {
            out.bytes.truncate(before);
            break;
        }
    }
    let fill = rest(&out);
    out.raw(&"Please go on. ".repeat(fill)[..fill]);
    out.raw(&foot);
    out.bytes
}

fn head(dialect: Dialect) -> Vec<u8> {
    match dialect {
        Dialect::Anthropic => br#"{"model":"qwen3-8b","max_tokens":1024,"temperature":0.7,"messages":["#.to_vec(),
        Dialect::OpenAi => {
            br#"{"model":"qwen3-8b","max_completion_tokens":1024,"temperature":0.7,"messages":["#.to_vec()
        }
    }
}

/// Names that mean something, hints, and one that nobody knows.
fn foot(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => r#","stream":true,"metadata":{"user_id":"u-81f2"},"trace":"a1"}"#,
        Dialect::OpenAi => r#","stream":true,"stream_options":{"include_usage":true},"user":"u-81f2","trace":"a1"}"#,
    }
}

struct Out {
    bytes: Vec<u8>,
    escape_all: bool,
}

impl Out {
    fn raw(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn message(&mut self, number: usize, text: &str, dialect: Dialect, blocks: bool) {
        let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
        self.raw("{\"role\":\"");
        self.raw(role);
        self.raw("\",\"content\":");
        if blocks {
            let middle = text.floor_char_boundary(text.len() / 2);
            self.raw("[{\"type\":\"text\",\"text\":\"");
            self.inside(&text[..middle]);
            self.raw("\"},{\"type\":\"text\",\"text\":\"");
            self.inside(&text[middle..]);
            self.raw(match dialect {
                Dialect::Anthropic => "\",\"cache_control\":{\"type\":\"ephemeral\"}}]",
                Dialect::OpenAi => "\",\"note\":null}]",
            });
        } else {
            self.raw("\"");
            self.inside(text);
            self.raw("\"");
        }
        self.raw("},");
    }

    /// The inside of a string.
    fn inside(&mut self, text: &str) {
        if !self.escape_all {
            return json::escaped(&mut self.bytes, text);
        }
        for char in text.chars() {
            if char.is_ascii() {
                json::escaped(&mut self.bytes, char.encode_utf8(&mut [0; 4]));
            } else {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    self.raw(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}
