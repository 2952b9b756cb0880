//! Made-up bodies of both dialects: mostly right, in every way of writing them, and broken ones.

use crate::api::{anthropic, openai};

/// Numbers without pattern, the same in every run.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    /// Once in `times`.
    pub(super) fn seldom(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Numbers of every form, and what is none.
pub(super) const NUMBERS: &[&str] = &[
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
pub(super) struct Writer<'d> {
    pub(super) dice: &'d mut Dice,
    pub(super) out: String,
    /// How likely white space is: once in so many places.
    pub(super) spacing: usize,
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
                    1 if writer.dice.seldom(3) => writer.dice.one(&["tool_use", "tool_result"]),
                    _ => "text",
                };
                writer.string(kind);
            }
            "text" | "refusal" if !writer.dice.seldom(30) => writer.any_string(),
            _ => writer.value(2),
        });
    }

    /// A call or a result of the Messages API; ids of few kinds, so that they meet.
    fn called(&mut self) {
        let names = if self.dice.seldom(2) {
            vec!["type", "id", "name", "input"]
        } else {
            vec!["type", "tool_use_id", "content", "is_error"]
        };
        let kind = if names[1] == "id" { "tool_use" } else { "tool_result" };
        let names = self.shuffled(names);
        self.entries(&names, |writer, name| match name {
            _ if writer.dice.seldom(40) => writer.value(2),
            "type" => writer.string(kind),
            "id" | "tool_use_id" => writer.call_id(),
            "name" => writer.string("f"),
            "is_error" => writer.token("true"),
            "input" => writer.schema(),
            _ => writer.content(),
        });
    }

    fn call_id(&mut self) {
        let id = self.dice.one(&["c1", "c2"]);
        self.string(id);
    }

    /// An object of any kind.
    fn schema(&mut self) {
        let names = self.names(&["type", "properties", "a", "b\\n", "\\u00e4", "x"], 3);
        self.entries(&names, |writer, _| writer.value(3));
    }

    /// A tool of either dialect.
    fn tool(&mut self) {
        let flat = self.dice.seldom(2);
        let names = if flat {
            vec!["name", "description", "input_schema", "strict", "type"]
        } else {
            vec!["type", "function"]
        };
        let names = self.shuffled(names);
        self.entries(&names, |writer, name| match name {
            _ if writer.dice.seldom(40) => writer.value(2),
            "type" => writer.string(if flat { "custom" } else { "function" }),
            "function" => {
                let names = writer.shuffled(vec!["name", "parameters", "description"]);
                writer.entries(&names, |writer, name| writer.tool_field(name));
            }
            _ => writer.tool_field(name),
        });
    }

    fn tool_field(&mut self, name: &str) {
        match name {
            _ if self.dice.seldom(40) => self.value(2),
            "name" => {
                let name = self.dice.one(&["f", "g", "h", "i", "j", "a b"]);
                self.string(name);
            }
            "strict" => self.token("true"),
            "description" => self.any_string(),
            _ => self.schema(),
        }
    }

    /// A call of the Chat Completions API.
    fn tool_call(&mut self) {
        let names = self.shuffled(vec!["id", "type", "function"]);
        self.entries(&names, |writer, name| match name {
            _ if writer.dice.seldom(40) => writer.value(2),
            "id" => writer.call_id(),
            "type" => writer.string("function"),
            _ => writer.entries(&["name", "arguments"], |writer, name| {
                let text = writer.dice.one(&["{}", "{\\\"a\\\":1}", "", "{", "[]"]);
                writer.string(if name == "name" { "f" } else { text });
            }),
        });
    }

    fn content(&mut self) {
        match self.dice.below(24) {
            0 => self.value(2),
            1..=14 => self.any_string(),
            _ => {
                let count = 1 + self.dice.below(3);
                self.list(count, |writer| match writer.dice.below(12) {
                    0 => writer.called(),
                    _ => writer.block(),
                });
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
                    "tool_call_id",
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
            "tool_call_id" => writer.call_id(),
            "tool_calls" if writer.dice.seldom(2) => {
                let count = 1 + writer.dice.below(2);
                writer.list(count, Self::tool_call);
            }
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
            "max_tokens" | "max_completion_tokens" | "top_k" | "seed" => {
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
            "n" | "min_tokens" | "top_logprobs" => {
                let number = self.dice.one(&["0", "1", "2", "8", "9", "21"]);
                self.token(number);
            }
            "min_p" | "repetition_penalty" | "frequency_penalty" | "presence_penalty" => {
                let number = self.dice.one(&["0", "1", "0.5", "-2", "-0.0", "2.0", "1e-3"]);
                self.token(number);
            }
            "logprobs" | "ignore_eos" | "parallel_tool_calls" => self.token("true"),
            "tools" => {
                let count = self.dice.below(4);
                self.list(count, Self::tool);
            }
            "tool_choice" => {
                let choice = self.dice.one(&[
                    "\"auto\"",
                    "\"none\"",
                    "\"required\"",
                    "{\"type\":\"any\"}",
                    "{\"type\":\"tool\",\"name\":\"f\"}",
                    "{\"type\":\"auto\",\"disable_parallel_tool_use\":true}",
                    "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
                    "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}}",
                ]);
                self.token(choice);
            }
            "logit_bias" => {
                let names = self.names(&["1", "2", "50256", "01", "x"], 3);
                self.entries(&names, |writer, _| writer.token("-100"));
            }
            "stop_token_ids" => {
                let count = self.dice.below(4);
                self.list(count, |writer| writer.token("7"));
            }
            "response_format" | "output_format" => {
                let kind = self.dice.one(&["text", "json_object", "json_schema"]);
                let names = self.shuffled(vec!["type", "schema", "json_schema"]);
                self.entries(&names, |writer, name| match name {
                    "type" => writer.string(kind),
                    "schema" => writer.schema(),
                    _ => writer.entries(&["name", "schema"], |writer, name| match name {
                        "name" => writer.string("n"),
                        _ => writer.schema(),
                    }),
                });
            }
            "output_config" => self.entries(&["effort", "format"], |writer, name| match name {
                "effort" => writer.string("low"),
                _ => writer.field("output_format"),
            }),
            "structured_outputs" => {
                let name = self.dice.one(&["json", "regex", "choice", "grammar", "json_object"]);
                self.entries(&[name], |writer, name| match name {
                    "json" => writer.schema(),
                    "choice" => writer.token("[\"a\"]"),
                    "json_object" => writer.token("true"),
                    _ => writer.any_string(),
                });
            }
            "guided_json" | "json_schema" => self.schema(),
            "guided_regex" | "guided_grammar" => self.any_string(),
            "guided_choice" => self.token("[\"a\",\"b\"]"),
            "metadata" | "user" | "unknown" | "cache_control" => self.value(3),
            _ if self.dice.seldom(6) => self.value(3),
            _ => self.token("null"),
        }
    }

    pub(super) fn body(&mut self, anthropic: bool) {
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
pub(super) fn mutate(body: &mut Vec<u8>, dice: &mut Dice) {
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
