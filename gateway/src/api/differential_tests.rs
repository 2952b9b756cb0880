//! The direct pass against the tape: bodies of every kind, right and wrong, mean the same to both, down to the words of
//! a fault.

use std::fmt::Debug;

use super::*;
use crate::doors::{self, Level, Read, Way};

/// Numbers without pattern, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    /// Once in `times`.
    fn seldom(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// What was seen in a run, so that it is known to have tried something.
#[derive(Debug, Default)]
struct Tally {
    bodies: usize,
    /// Read in one pass.
    direct: usize,
    /// Read by the tape after a doubt.
    doubts: usize,
    refused: usize,
}

/// Scratch memory for each kind of instructions, kept from body to body as a worker does.
struct Bench {
    scratches: Vec<Scratch>,
    tally: Tally,
}

impl Bench {
    fn new() -> Self {
        Self {
            scratches: Level::all().map(doors::scratch).collect(),
            tally: Tally::default(),
        }
    }

    /// Both ways agree about this body, wherever it is sent.
    fn check(&mut self, body: &[u8]) {
        for strict in [false, true] {
            self.check_at(doors::messages, body, strict);
            self.check_at(doors::chat, body, strict);
            self.check_at(doors::count_tokens, body, strict);
        }
    }

    fn check_at<T: PartialEq + Debug>(
        &mut self,
        read: fn(Way, &[u8], &mut Scratch, bool) -> Read<T>,
        body: &[u8],
        strict: bool,
    ) {
        let shown = || String::from_utf8_lossy(&body[..body.len().min(3000)]).into_owned();
        let wanted = read(Way::Tape, body, &mut self.scratches[0], strict).expect("the tape always answers");
        let mut directly = false;
        for scratch in &mut self.scratches {
            if let Some(found) = read(Way::Direct, body, scratch, strict) {
                // As text, which tells zeros of different sign apart.
                assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{}", shown());
                directly = true;
            }
        }
        let product = read(Way::Product, body, self.scratches.last_mut().unwrap(), strict);
        assert_eq!(product, Some(wanted), "{}", shown());
        if directly {
            let valid = serde_json::from_slice::<serde_json::Value>(body);
            // Its limit of depth is one lower.
            let fine = valid
                .as_ref()
                .err()
                .is_none_or(|error| error.to_string().contains("recursion limit"));
            assert!(fine, "{}: {valid:?}", shown());
        }
        self.tally.bodies += 1;
        match (directly, product) {
            (true, _) => self.tally.direct += 1,
            (false, Some(Ok(_))) => self.tally.doubts += 1,
            _ => self.tally.refused += 1,
        }
    }
}

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "10",
    "100.0",
    "0.5",
    "1.0",
    "0.0",
    "-0.0",
    "0.7",
    "1e2",
    "1E+2",
    "1e-2",
    "0e0",
    "01",
    "1.",
    ".5",
    "-",
    "+1",
    "1e",
    "1e+",
    "0.30000000000000004",
    "123456789012345",
    "1234567890123456",
    "0.123456789012345",
    "999999999999999.9",
    "123456789012345678",
    "999999999999999999",
    "1000000000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "100000000000000000000000",
    "4294967295",
    "4294967296",
    "1e99",
    "1e100",
    "1e308",
    "1e309",
    "-1e400",
    "1e-400",
    "5e-324",
    "1.7976931348623157e308",
    "0.000000000000000000000000000001",
    "2.5e-3",
    "1e0001",
    "0.1e1",
    "1.5",
    "-1.5",
    "20",
    "-2",
    "179769313486231580793728971405301",
    "0.1000000000000000055511151231257827021181583404541015625",
    "1a",
    "0x1",
    "1_0",
];

const STRINGS: &[&str] = &[
    "",
    "hi",
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "text",
    "thinking",
    "redacted_thinking",
    "refusal",
    "image",
    "none",
    "auto",
    "adaptive",
    "disabled",
    "enabled",
    "json_object",
    "x-anthropic-billing-header: a",
    "a\\nb",
    "\\\"q\\\"",
    "\\\\",
    "\\/",
    "日本語のテキスト",
    "\\u00e4\\u8a9e",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\\ude00\\ud83d",
    "\\u0000",
    "\\u12",
    "\\q",
    "\\",
    "us\\u0065r",
    "te\\u0078t",
    "\u{1}",
    "\t",
    "ü",
    "😀",
    "a text that is longer than one vector of the widest kind, and then some more of it to be sure",
    "a text that is longer than one vector\\n\\n\\\\of the widest kind, and then some \\u8a9e more of it to be sure",
];

/// Writes bodies.
struct Writer<'d> {
    dice: &'d mut Dice,
    out: String,
    /// How likely white space is: once in so many places.
    spacing: usize,
}

impl Writer<'_> {
    fn space(&mut self) {
        if self.dice.seldom(self.spacing) {
            let space = self.dice.one(&[
                " ",
                " ",
                " ",
                "\n",
                "\t",
                "\r\n",
                "  ",
                "\n                                        ",
                "\u{b}",
            ]);
            // The last is none, so that it is seldom.
            self.out += if space == "\u{b}" && !self.dice.seldom(40) {
                " "
            } else {
                space
            };
        }
    }

    fn token(&mut self, token: &str) {
        self.space();
        self.out += token;
        self.space();
    }

    fn string(&mut self, text: &str) {
        self.token(&format!("\"{text}\""));
    }

    fn any_string(&mut self) {
        let mut text = String::new();
        for _ in 0..1 + self.dice.below(2) {
            text += self.dice.one(STRINGS);
        }
        // Seldom one that is none.
        let broken = ["\\ud83d", "\\ude00\\ud83d", "\\u0000", "\\u12", "\\q", "\u{1}", "\t"];
        if (broken.iter().any(|broken| text.contains(broken)) || text.ends_with('\\')) && !self.dice.seldom(12) {
            text = "plain".into();
        }
        if text.is_empty() && !self.dice.seldom(8) {
            text = "some".into();
        }
        self.string(&text);
    }

    fn list(&mut self, count: usize, mut item: impl FnMut(&mut Self)) {
        self.token("[");
        for at in 0..count {
            if at > 0 {
                self.token(",");
            }
            item(self);
        }
        self.token("]");
    }

    fn entries(&mut self, names: &[&str], mut value: impl FnMut(&mut Self, &str)) {
        self.token("{");
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                self.token(",");
            }
            self.string(name);
            self.token(":");
            value(self, name);
        }
        self.token("}");
    }

    /// Anything.
    fn value(&mut self, depth: usize) {
        match self.dice.below(if depth == 0 { 5 } else { 7 }) {
            0 => self.token("null"),
            1 => {
                let word = self.dice.one(&["true", "false"]);
                self.token(word);
            }
            2 => {
                let number = if self.dice.seldom(4) {
                    self.dice.one(NUMBERS)
                } else {
                    "1"
                };
                self.token(number);
            }
            3 | 4 => self.any_string(),
            5 => {
                let count = self.dice.below(4);
                self.list(count, |writer| writer.value(depth - 1));
            }
            _ => {
                let names = self.names(&["type", "text", "a", "b", "include_usage", "format", "x\\u0061"], 3);
                self.entries(&names, |writer, _| writer.value(depth - 1));
            }
        }
    }

    /// Some of these names, seldom one twice.
    fn names<'n>(&mut self, of: &[&'n str], most: usize) -> Vec<&'n str> {
        let mut names = Vec::new();
        for _ in 0..self.dice.below(most + 1) {
            let name = self.dice.one(of);
            if !names.contains(&name) || self.dice.seldom(60) {
                names.push(name);
            }
        }
        names
    }

    fn shuffled<'n>(&mut self, mut names: Vec<&'n str>) -> Vec<&'n str> {
        if self.dice.seldom(3) {
            for at in (1..names.len()).rev() {
                names.swap(at, self.dice.below(at + 1));
            }
        }
        names
    }

    fn block(&mut self) {
        let mut names = vec!["type", "text"];
        names.extend(self.names(
            &[
                "cache_control",
                "citations",
                "thinking",
                "signature",
                "refusal",
                "note",
                "text",
                "type",
            ],
            2,
        ));
        if !self.dice.seldom(5) {
            names.truncate(2);
        }
        let names = self.shuffled(names);
        self.entries(&names, |writer, name| match name {
            "type" if !writer.dice.seldom(30) => {
                let kind = match writer.dice.below(16) {
                    0 => writer.dice.one(&["thinking", "refusal", "redacted_thinking", "image"]),
                    _ => "text",
                };
                writer.string(kind);
            }
            "text" | "refusal" if !writer.dice.seldom(30) => writer.any_string(),
            _ => writer.value(2),
        });
    }

    fn content(&mut self) {
        match self.dice.below(24) {
            0 => self.value(2),
            1..=14 => self.any_string(),
            _ => {
                let count = 1 + self.dice.below(3);
                self.list(count, Self::block);
            }
        }
    }

    fn message(&mut self) {
        let mut names = vec!["role", "content"];
        if self.dice.seldom(5) {
            names.extend(self.names(
                &[
                    "name",
                    "refusal",
                    "tool_calls",
                    "function_call",
                    "audio",
                    "annotations",
                    "role",
                    "content",
                    "id",
                ],
                2,
            ));
        }
        if self.dice.seldom(40) {
            names.remove(0);
        }
        let names = self.shuffled(names);
        self.entries(&names, |writer, name| match name {
            "role" if !writer.dice.seldom(40) => {
                let role = match writer.dice.below(30) {
                    0 => writer.dice.one(&["developer", "tool", "us\\u0065r"]),
                    _ => writer.dice.one(&["user", "user", "assistant", "system"]),
                };
                writer.string(role);
            }
            "content" => writer.content(),
            "refusal" | "function_call" | "audio" | "tool_calls" if !writer.dice.seldom(3) => writer.token("null"),
            _ => writer.value(1),
        });
    }

    /// A value that might stand at this name of a body.
    fn field(&mut self, name: &str) {
        if self.dice.seldom(25) {
            return self.value(3);
        }
        match name {
            "model" => self.string("m"),
            "messages" => {
                let count = 1 + self.dice.below(4);
                self.list(count, Self::message);
            }
            "system" => self.content(),
            "stop" | "stop_sequences" => {
                let count = self.dice.below(4);
                self.list(count, |writer| writer.string("\\n\\nHuman:"));
            }
            "stream" => self.token("true"),
            "stream_options" => {
                let names = self.names(&["include_usage", "include_obfuscation", "x"], 2);
                self.entries(&names, |writer, _| {
                    let value = writer.dice.one(&["true", "false", "null", "1"]);
                    writer.token(value);
                });
            }
            "max_tokens" | "max_completion_tokens" | "top_k" | "seed" | "n" => {
                let number = if self.dice.seldom(4) {
                    self.dice.one(NUMBERS)
                } else {
                    "1"
                };
                self.token(number);
            }
            "temperature" | "top_p" => {
                let number = self.dice.one(&[
                    "0",
                    "0.5",
                    "1",
                    "1.0",
                    "0.25",
                    "0.0",
                    "1e-1",
                    "2",
                    "0.30000000000000004",
                ]);
                self.token(number);
            }
            "metadata" | "user" | "unknown" | "cache_control" => self.value(3),
            _ if self.dice.seldom(6) => self.value(3),
            _ => self.token("null"),
        }
    }

    fn body(&mut self, anthropic: bool) {
        let known: Vec<&str> = if anthropic {
            anthropic::TOP.entries().map(|(name, _)| *name).collect()
        } else {
            openai::TOP.entries().map(|(name, _)| *name).collect()
        };
        let mut names = vec!["model", "messages", "max_tokens"];
        names.extend(self.names(&known, 3));
        if self.dice.seldom(2) {
            names.extend(self.names(
                &[
                    "system",
                    "stop",
                    "stop_sequences",
                    "stream",
                    "temperature",
                    "unknown",
                    "mod\\u0065l",
                    "tools",
                ],
                3,
            ));
        }
        let mut seen = Vec::new();
        names.retain(|name| {
            let first = !seen.contains(name);
            seen.push(*name);
            first
        });
        if self.dice.seldom(30) {
            names.push("model");
        }
        let names = self.shuffled(names);
        self.entries(&names, |writer, name| writer.field(name));
    }
}

/// What breaks a body, or makes another of it.
fn mutate(body: &mut Vec<u8>, dice: &mut Dice) {
    const PIECES: &[&str] = &[
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "true",
        "0",
        "-",
        "e",
        "\\u",
        " ",
        "\0",
        "\n",
        "\"role\":\"user\",",
        "[[[",
        "]]]",
    ];
    let at = dice.below(body.len() + 1);
    let until = (at + dice.below(12)).min(body.len());
    match dice.below(6) {
        0 => body.truncate(at),
        1 => drop(body.drain(at..until)),
        2 => {
            let copy = body[at..until].to_vec();
            body.splice(at..at, copy);
        }
        3 if at < body.len() => body[at] = u8::try_from(dice.below(256)).unwrap(),
        4 if at < body.len() => body[at] ^= 1 << dice.below(8),
        _ => drop(body.splice(at..at, dice.one(PIECES).bytes())),
    }
}

/// Bodies of this many seeds from the first on, each as written and changed in places.
fn run(first: u64, count: u64) -> Tally {
    let mut bench = Bench::new();
    for seed in first..first + count {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D);
        let spacing = [2, 8, 1000, 1_000_000][dice.below(4)];
        let anthropic = dice.seldom(2);
        let mut writer = Writer {
            dice: &mut dice,
            out: String::new(),
            spacing,
        };
        writer.body(anthropic);
        let body = writer.out.into_bytes();
        bench.check(&body);
        let mut other = body.clone();
        mutate(&mut other, &mut dice);
        bench.check(&other);
    }
    bench.tally
}

/// Long runs (`cargo xtask test --long`) try a thousand times as many.
fn rounds(ordinary: u64) -> u64 {
    match std::env::var("ZEROHOP_LONG") {
        Ok(long) if !long.is_empty() => ordinary * 1000,
        _ => ordinary,
    }
}

#[test]
fn made_up_bodies_mean_the_same_both_ways() {
    let tally = run(0, rounds(20_000));
    // Each outcome is met often, or the bodies are no good.
    let share = |count: usize| 100 * count / tally.bodies;
    assert!(share(tally.direct) >= 5, "{tally:?}");
    assert!(share(tally.refused) >= 10, "{tally:?}");
    assert!(tally.doubts > 0 && tally.doubts < tally.direct, "{tally:?}");
}

/// Bodies with a bit of everything.
const RICH: [&str; 2] = [
    r#"{"model":"m\/x","max_tokens":1024,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a\n\u8a9e 😀"},{"content":[{"text":"b","type":"text","cache_control":{"a":[1,-2.5e3,{}]}},{"type":"thinking","thinking":"t"}],"role":"assistant","x":null}, {"role":"user","content":"c"}],"temperature":0.25,"stop_sequences":["a"],"stream":true,"thinking":{"type":"disabled"},"metadata":{"user_id":"\ud83d\ude00"},"foo":[true,false,null]}"#,
    r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a\"b"}],"name":"n"},{"role":"assistant","content":null,"refusal":null,"tool_calls":[]},{"role":"user","content":"日本"}],"model":"m","stream":true,"stream_options":{"include_usage":true},"stop":"\n\n","seed":18446744073709551615,"n":1,"response_format":{"type":"text"},"user":"u","x":{"y":[0.1]}}"#,
];

#[test]
fn each_byte_lost_or_replaced() {
    let mut bench = Bench::new();
    for body in RICH.map(str::as_bytes) {
        bench.check(body);
        for at in 0..body.len() {
            bench.check(&body[..at]);
            let mut less = body.to_vec();
            less.remove(at);
            bench.check(&less);
            for byte in *b"\"\\{}[],:0-.eun \n\x00\x1f\x80\xff" {
                let mut other = body.to_vec();
                other[at] = byte;
                bench.check(&other);
            }
        }
    }
    assert!(
        bench.tally.direct > 100 && bench.tally.refused > 100,
        "{:?}",
        bench.tally
    );
}

#[test]
fn each_name_with_each_value() {
    let mut bench = Bench::new();
    let values = [
        "null",
        "true",
        "false",
        "\"\"",
        "\"none\"",
        "\"a\\nb\"",
        "\"\\u0000\"",
        "[]",
        "{}",
        "[1]",
        "[\"a\"]",
        "[[]]",
        "{\"type\":\"none\"}",
        "{\"type\":\"adaptive\"}",
        "{\"type\":\"text\"}",
        "{\"type\":\"enabled\",\"a\":{}}",
        "{\"format\":null,\"effort\":\"low\",\"x\":1}",
        "{\"include_usage\":true,\"include_usage\":true}",
        "{\"include_usage\":1}",
        "[{\"type\":\"text\",\"text\":\"a\"}]",
        "[\"text\"]",
        "[0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9]",
        "{\"a\":[0,1,2,3,4,5,6,7,8,9,{\"b\":[0,1,2,3,4,5,6,7,8,9]}]}",
        "{\"a\\u0062\":1}",
    ];
    let names = anthropic::TOP.entries().map(|(name, _)| *name);
    let names: Vec<&str> = names.chain(openai::TOP.entries().map(|(name, _)| *name)).collect();
    for name in names {
        for value in values.iter().chain(NUMBERS) {
            let rest = r#""messages":[{"role":"user","content":"hi"}],"model":"m","max_tokens":5"#;
            bench.check(format!("{{{rest},\"{name}\":{value}}}").as_bytes());
            bench.check(format!("{{\"stream\":true,\"{name}\":{value}, {rest}}}").as_bytes());
        }
    }
    assert!(bench.tally.direct > 1000, "{:?}", bench.tally);
}

#[test]
fn lists_of_stop_texts_and_of_names() {
    let mut bench = Bench::new();
    let mut with = |name: &str, value: &str| {
        let rest = r#""messages":[{"role":"user","content":"hi"}],"max_tokens":5"#;
        bench.check(format!("{{{rest},\"{name}\":{value}}}").as_bytes());
        bench.check(format!("{{{rest},\"model\":\"m\",\"{name}\":{value}}}").as_bytes());
    };
    for name in ["stop", "stop_sequences"] {
        for count in [0, 1, 15, 16, 17] {
            with(name, &format!("[{}]", vec!["\"a\""; count].join(",")));
        }
        for length in [0, 1, 255, 256, 257] {
            with(name, &format!("[\"{}\"]", "a".repeat(length)));
            with(name, &format!("[\"\\n{}\"]", "a".repeat(length)));
            with(name, &format!("\"{}\"", "a".repeat(length)));
        }
        for list in [
            "[\"a\",]",
            "[,\"a\"]",
            "[\"a\" \"b\"]",
            "[\"a\"",
            "[1]",
            "[null]",
            "[\"\\u0000\"]",
            "[[\"a\"]]",
        ] {
            with(name, list);
        }
    }
    for length in [0, 1, 255, 256, 257] {
        with("model", &format!("\"{}\"", "m".repeat(length)));
        with("model", &format!("\"\\/{}\"", "m".repeat(length)));
    }
}

#[test]
fn empty_and_missing_contents() {
    let mut bench = Bench::new();
    let contents = [
        "\"\"",
        "[]",
        "null",
        "\"a\"",
        "[{\"type\":\"text\",\"text\":\"\"}]",
        "[{\"type\":\"thinking\"}]",
        "[{\"type\":\"refusal\",\"refusal\":\"\"}]",
        "[{}]",
    ];
    let roles = ["user", "assistant", "system", "developer", "tool", "function", "x"];
    for first in contents {
        for second in contents {
            for role in roles {
                for tail in [
                    "",
                    ",\"refusal\":\"no\"",
                    ",\"refusal\":null",
                    ",\"tool_calls\":[]",
                    ",\"tool_calls\":[1]",
                    ",\"x\":1",
                ] {
                    bench.check(format!(
                        "{{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"role\":\"{role}\",\"content\":{first}{tail}}},{{\"content\":{second},\"role\":\"assistant\"{tail}}}]}}"
                    ).as_bytes());
                }
            }
        }
    }
    for messages in [
        "[]",
        "[{}]",
        "[{\"role\":\"user\"}]",
        "[{\"content\":\"a\"}]",
        "[1]",
        "{}",
        "null",
        "\"a\"",
    ] {
        bench.check(format!("{{\"model\":\"m\",\"max_tokens\":1,\"messages\":{messages}}}").as_bytes());
    }
}

#[test]
fn depth_is_counted_from_the_root() {
    let mut bench = Bench::new();
    for name in ["x", "metadata", "thinking", "messages", "system", "stop", "tools"] {
        for depth in [1, 20, 25, 126, 127, 128, 129, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                bench.check(format!("{{\"{name}\":{nested},\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"role\":\"user\",\"content\":\"a\",\"y\":1}}]}}").as_bytes());
                bench.check(format!("{{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"{name}\":{nested},\"role\":\"user\",\"content\":\"a\"}}]}}").as_bytes());
                bench.check(nested.as_bytes());
            }
        }
    }
    assert!(bench.tally.direct > 0, "{:?}", bench.tally);
}

/// 100,000 brackets are refused in words.
#[test]
fn deep_nesting_is_a_fault() {
    let mut scratch = Scratch::default();
    for body in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("{{\"x\":{}", "[".repeat(100_000)),
    ] {
        let error = anthropic::messages(body.as_bytes(), &mut scratch, false).unwrap_err();
        assert_eq!(
            (error.status(), &*error.message),
            (400, "The request body is nested deeper than 128 levels")
        );
    }
}
