//! How long the key of a request takes: `cargo run --release -p zerohop --example key`.
//!
//! Prints nanoseconds of this thread's CPU time, the least of many rounds; `-- instructions ROUNDS BYTES` makes that many
//! keys of one request and prints nothing, to be counted from outside; `-- files FOLDER` times the digest of a model's
//! files. Invariant: the requests are ones that a worker reads.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::{hint::black_box, path::Path, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use zerohop::{
    api::{ChatRequest, Ignored, Scratch, openai},
    key::{Epoch, EpochParts, KeyMaker, Namespace, Scope, Secret, Sent, Whose, files_digest},
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let maker = &mut Maker::new();
    if let [word, rounds, bytes] = &arguments[..]
        && word == "instructions"
    {
        let number = |text: &str| text.parse().expect("a number");
        let case = Case::new(&chat(number(bytes)));
        for _ in 0..number(rounds) {
            maker.key(&case);
        }
        return;
    }
    if let [word, folder] = &arguments[..]
        && word == "files"
    {
        let begun = thread_time();
        black_box(files_digest(Path::new(folder)).expect("readable"));
        println!("files: {} ms", (thread_time() - begun).as_millis());
        return;
    }
    for bytes in [400, 2_000, 8_000, 32_000] {
        measure(&format!("chat of {bytes} B"), maker, &Case::new(&chat(bytes)));
    }
    measure("30 tools of 1 kB", maker, &Case::new(&with_tools(30)));
    let unknown = chat(400).replacen('{', r#"{"vendor": {"a": [1, 2.5, "x"]}, "#, 1);
    measure("chat of 400 B, a field that nobody knows", maker, &Case::new(&unknown));
}

/// A system text, a question, and a body of about so many bytes in all.
fn chat(bytes: usize) -> String {
    let frame = r#"{"model": "tiny", "temperature": 0, "max_tokens": 256, "stream": true, "messages": [{"role": "system", "content": "You are a helpful assistant. Answer in one sentence."}, {"role": "user", "content": ""}]}"#;
    let text = "What does the contract say about notice periods? ".repeat(bytes / 40);
    let text = &text[..bytes.saturating_sub(frame.len())];
    frame.replace(r#""content": ""}"#, &format!(r#""content": "{text}"}}"#))
}

fn with_tools(count: usize) -> String {
    let tool = |index: usize| {
        let text = "Reads what is asked for and tells it in a few words. ".repeat(14);
        format!(
            r#"{{"type": "function", "function": {{"name": "tool_{index}", "description": "{text}", "parameters": {{"type": "object", "properties": {{"path": {{"type": "string", "description": "Where it lies"}}, "lines": {{"type": "integer"}}}}, "required": ["path"]}}}}}}"#
        )
    };
    let tools: Vec<String> = (0..count).map(tool).collect();
    chat(400).replacen('{', &format!(r#"{{"tools": [{}], "#, tools.join(", ")), 1)
}

struct Case {
    body: String,
    request: ChatRequest,
    ignored: Ignored,
}

impl Case {
    fn new(body: &str) -> Self {
        let (request, ignored) = openai::chat(body.as_bytes(), &mut Scratch::default(), false).expect("a good body");
        Self {
            body: body.into(),
            request,
            ignored,
        }
    }
}

struct Maker {
    keys: KeyMaker,
    scratch: Scratch,
    space: Namespace,
    epoch: Epoch,
}

impl Maker {
    fn new() -> Self {
        let here = files_digest(&std::env::current_dir().expect("a folder").join(".cargo")).expect("readable");
        Self {
            keys: KeyMaker::default(),
            scratch: Scratch::default(),
            space: Namespace::new(&Secret::new([7; 32]), Scope::Tenant, "team-a", b""),
            epoch: Epoch::of(&EpochParts {
                files: here,
                context: 2048,
                rules: None,
                version: 1,
            }),
        }
    }

    fn key(&mut self, case: &Case) {
        let whose = Whose {
            space: &self.space,
            model: "claude-3-haiku-20240307",
            epoch: &self.epoch,
        };
        let sent = Sent {
            ignored: &case.ignored,
            body: case.body.as_bytes(),
            scratch: &mut self.scratch,
        };
        black_box(self.keys.chat(&whose, black_box(&case.request), sent));
    }
}

/// The least of many rounds.
fn measure(name: &str, maker: &mut Maker, case: &Case) {
    const KEYS: u32 = 1_000;
    let mut least = Duration::MAX;
    for _ in 0..60 {
        let begun = thread_time();
        (0..KEYS).for_each(|_| maker.key(case));
        least = least.min(thread_time() - begun);
    }
    println!("{name} ({} B): {} ns", case.body.len(), (least / KEYS).as_nanos());
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
