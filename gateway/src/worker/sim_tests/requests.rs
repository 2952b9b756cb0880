//! What clients ask: each request with its bytes, and what must be known of it to judge a reply.
//!
//! Nothing here is sent. Invariant: a prompt names its client and its request, so a reply to another is seen.

use super::{
    Chance,
    plan::{ALIASES, KEYS, MAX_BODY, MODELS},
};
use crate::api::Dialect;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Health {
        head: bool,
    },
    Ready,
    /// A path that nobody has.
    Nothing,
    /// A method that the path does not have.
    Method,
    Models,
    Model,
    BadJson,
    /// A body above the limit.
    TooLarge,
    /// No HTTP at all.
    Broken,
    Count,
    Chat {
        dialect: Dialect,
        stream: bool,
        usage: bool,
    },
}

/// A request of a client.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) ask: Ask,
    /// The name of the model as the client writes it.
    pub(super) model: &'static str,
    pub(super) key: Option<&'static str>,
    /// Its body has a field that nobody knows.
    pub(super) unknown_field: bool,
    pub(super) http10: bool,
    /// The client says that it is its last.
    pub(super) last: bool,
    pub(super) expect: bool,
    pub(super) prompt: String,
    pub(super) max_tokens: u32,
    /// Answers that are asked for.
    pub(super) choices: usize,
    /// Tools are offered.
    pub(super) tools: bool,
    /// Log probabilities are asked for.
    pub(super) logprobs: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) head_len: usize,
}

/// What prompts are made of: letters, what JSON escapes, and what UTF-8 spreads over bytes.
const WORDS: [&str; 8] = [
    "plain ",
    "\"quoted\" ",
    "back\\slash ",
    "line\nbreak ",
    "žluť ",
    "字 ",
    "\u{1F600} ",
    "\u{7f}\t",
];

/// The tools that requests offer.
pub(super) const TOOLS: [&str; 2] = ["look_up", "add"];

fn prompt(client: usize, request: usize, chance: &mut Chance) -> String {
    let mut text = format!("c{client}r{request}:");
    for _ in 0..chance.below(40) {
        text.push_str(WORDS[chance.below(WORDS.len())]);
    }
    text
}

/// Client and request of a prompt.
pub(super) fn whose(prompt: &str) -> Option<(usize, usize)> {
    let (client, rest) = prompt.strip_prefix('c')?.split_once('r')?;
    let (request, _) = rest.split_once(':')?;
    Some((client.parse().ok()?, request.parse().ok()?))
}

impl Request {
    /// Any request; `last` may end its connection.
    pub(super) fn new(client: usize, number: usize, last: bool, keyed: bool, chance: &mut Chance) -> Self {
        let ask = match chance.below(if last { 22 } else { 20 }) {
            0 => Ask::Health { head: chance.one_in(3) },
            1 => Ask::Ready,
            2 => Ask::Nothing,
            3 => Ask::Method,
            4 => Ask::Models,
            5 => Ask::Model,
            6 => Ask::BadJson,
            7 => Ask::Count,
            20 => Ask::TooLarge,
            21 => Ask::Broken,
            kind => Ask::Chat {
                dialect: if kind % 2 == 0 {
                    Dialect::Anthropic
                } else {
                    Dialect::OpenAi
                },
                stream: !chance.one_in(3),
                usage: chance.one_in(2),
            },
        };
        let names = [MODELS.as_slice(), ALIASES.as_slice(), &["nobody"]].concat();
        let key = match (keyed, chance.below(8)) {
            (true, 0) => None,
            (true, 1) => Some(KEYS[2]),
            (true, draw) => Some(KEYS[draw % 2]),
            (false, _) => None,
        };
        let mut this = Self {
            ask,
            model: names[chance.below(names.len())],
            key,
            unknown_field: chance.one_in(6),
            http10: last && chance.one_in(4) && ask != Ask::TooLarge,
            last: last && chance.one_in(3),
            expect: false,
            prompt: prompt(client, number, chance),
            max_tokens: 1 + chance.below(1000) as u32,
            choices: 1,
            tools: matches!(ask, Ask::Chat { .. }) && chance.one_in(4),
            logprobs: false,
            bytes: Vec::new(),
            head_len: 0,
        };
        if let Ask::Chat {
            dialect: Dialect::OpenAi,
            ..
        } = ask
        {
            this.choices = if chance.one_in(4) { 2 + chance.below(2) } else { 1 };
            this.logprobs = chance.one_in(4);
        }
        this.write(chance);
        this
    }

    /// A small request with a large head.
    pub(super) fn filler(chance: &mut Chance) -> Self {
        let mut this = Self {
            ask: Ask::Health { head: false },
            model: "",
            key: None,
            unknown_field: false,
            http10: false,
            last: false,
            expect: false,
            prompt: String::new(),
            max_tokens: 0,
            choices: 1,
            tools: false,
            logprobs: false,
            bytes: Vec::new(),
            head_len: 0,
        };
        this.head(
            "GET",
            "/health",
            &format!("x-filler: {}\r\n", "f".repeat(1000 + chance.below(1500))),
        );
        this
    }

    fn write(&mut self, chance: &mut Chance) {
        match self.ask {
            Ask::Health { head } => self.head(if head { "HEAD" } else { "GET" }, "/health", ""),
            Ask::Ready => self.head("GET", "/ready", ""),
            Ask::Method => self.head("GET", "/v1/messages", ""),
            Ask::Models => self.head("GET", "/v1/models", ""),
            Ask::Model => self.head("GET", &format!("/v1/models/{}", self.model), ""),
            Ask::Nothing => self.post("/v1/nothing", "{}", chance),
            Ask::BadJson => self.post("/v1/messages", "{\"model\":\"alpha\",", chance),
            Ask::TooLarge => self.post("/v1/messages", &"x".repeat(MAX_BODY + 1 + chance.below(9000)), chance),
            Ask::Broken => {
                self.bytes = b"GET /health HTTP/1.1\r\nno colon here\r\n\r\n".to_vec();
                self.head_len = self.bytes.len();
            }
            Ask::Count => self.post("/v1/messages/count_tokens", &self.body(false, false), chance),
            Ask::Chat { dialect, stream, usage } => {
                let path = match dialect {
                    Dialect::Anthropic => "/v1/messages",
                    Dialect::OpenAi => "/v1/chat/completions",
                };
                let usage = usage && stream && dialect == Dialect::OpenAi;
                self.post(path, &self.body(stream, usage), chance);
            }
        }
    }

    fn body(&self, stream: bool, usage: bool) -> String {
        let prompt = serde_json::to_string(&self.prompt).expect("a text");
        let (model, max_tokens) = (self.model, self.max_tokens);
        let mut body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":{prompt}}}]"#);
        if self.ask != Ask::Count {
            body += &format!(r#","max_tokens":{max_tokens},"stream":{stream}"#);
        }
        if usage {
            body += r#","stream_options":{"include_usage":true}"#;
        }
        if self.choices > 1 {
            body += &format!(r#","n":{}"#, self.choices);
        }
        if self.logprobs {
            body += r#","logprobs":true,"top_logprobs":1"#;
        }
        if self.tools {
            let tool = |name: &str| match self.ask {
                Ask::Chat {
                    dialect: Dialect::OpenAi,
                    ..
                } => format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#),
                _ => format!(r#"{{"name":"{name}","input_schema":{{}}}}"#),
            };
            body += &format!(r#","tools":[{},{}]"#, tool(TOOLS[0]), tool(TOOLS[1]));
        }
        if self.unknown_field {
            body += r#","flavour":"vanilla""#;
        }
        body + "}"
    }

    fn head(&mut self, method: &str, path: &str, extra: &str) {
        let version = if self.http10 { "1.0" } else { "1.1" };
        let key = match self.key {
            Some(key) if self.max_tokens.is_multiple_of(2) => format!("x-api-key: {key}\r\n"),
            Some(key) => format!("authorization: Bearer {key}\r\n"),
            None => String::new(),
        };
        let last = if self.last { "connection: close\r\n" } else { "" };
        self.bytes = format!("{method} {path} HTTP/{version}\r\nhost: sim\r\n{key}{last}{extra}\r\n").into_bytes();
        self.head_len = self.bytes.len();
    }

    fn post(&mut self, path: &str, body: &str, chance: &mut Chance) {
        let chunked = !self.http10 && chance.one_in(3);
        self.expect = !self.http10 && chance.one_in(6);
        let expect = if self.expect { "expect: 100-continue\r\n" } else { "" };
        if !chunked {
            self.head("POST", path, &format!("{expect}content-length: {}\r\n", body.len()));
            return self.bytes.extend_from_slice(body.as_bytes());
        }
        self.head("POST", path, &format!("{expect}transfer-encoding: chunked\r\n"));
        for piece in body.as_bytes().chunks(1 + chance.below(700)) {
            self.bytes
                .extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            self.bytes.extend_from_slice(piece);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.bytes.extend_from_slice(b"0\r\n\r\n");
    }

    /// Whether the client wants the connection to go on behind the reply.
    pub(super) fn keeps_alive(&self) -> bool {
        !self.last && !self.http10
    }
}
