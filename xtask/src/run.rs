//! The first run: set up, build, and serve, or answer one prompt, or show both dialects.
//!
//! Nothing here configures the product beyond the address. Invariant: what runs is the same release binary that an
//! operator runs.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    process::Command,
};

use clap::Args;
use serde_json::{Value, json};
use zerohop_tests::{
    gateway::Gateway,
    http::{self, Client},
    sse,
};

use crate::{
    failure::{Doing, Failure, Outcome},
    harness,
    place::{self, Place},
    setup::{self, Library},
    shell,
};

/// Where the first run serves.
const ADDRESS: &str = "127.0.0.1:8080";

/// Arguments of `run`.
#[derive(Args)]
pub(crate) struct Options {
    /// Answer this prompt on the terminal, without a server
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Start on a free port, send one request in each dialect, stream the answers, and stop
    #[arg(long, conflicts_with = "prompt")]
    demo: bool,
    /// Arguments for `zerohop serve` (or `zerohop run`), after `--`
    #[arg(last = true, value_name = "ARGUMENTS")]
    product: Vec<String>,
}

/// Runs the product.
pub(crate) fn run(place: &Place, options: &Options) -> Outcome {
    let library = setup::setup(place)?;
    build(place)?;
    if options.demo {
        return demo(place, &library);
    }
    let mut command = Command::new(place.binary());
    command.env("ORT_DYLIB_PATH", &library.path).current_dir(&place.root);
    match &options.prompt {
        Some(prompt) => command.args(["run", "--prompt", prompt]),
        None => command.arg("serve"),
    };
    let chosen = ["--listen", "--config"]
        .iter()
        .any(|name| options.product.iter().any(|given| given.starts_with(name)));
    if options.prompt.is_none() && !chosen {
        command.args(["--listen", ADDRESS]);
    }
    command.args(&options.product);
    let error = command.exec();
    Err(Failure::new(format!(
        "cannot start {}: {error}",
        place.binary().display()
    )))
}

/// Builds the product in release.
pub(crate) fn build(place: &Place) -> Outcome {
    let mut cargo = Command::new(place::cargo());
    cargo
        .args(["build", "--release", "--package", "zerohop"])
        .current_dir(&place.root);
    shell::run(&mut cargo)
        .map_err(|failure| failure.remedy("a compiler error above is ours; a missing `cc` is Debian's build-essential"))
}

/// A request of the demonstration.
struct Question {
    dialect: &'static str,
    path: &'static str,
    body: Value,
    /// What a right answer contains.
    expected: &'static str,
}

fn questions() -> [Question; 2] {
    [
        Question {
            dialect: "Anthropic",
            path: "/v1/messages",
            body: json!({"model": "tiny", "max_tokens": 64, "temperature": 0, "stream": true,
                "messages": [{"role": "user", "content": "What is the capital of France?"}]}),
            expected: "Paris",
        },
        Question {
            dialect: "OpenAI",
            path: "/v1/chat/completions",
            body: json!({"model": "tiny", "max_completion_tokens": 64, "temperature": 0, "stream": true,
                "messages": [{"role": "user", "content": "What is the capital of Japan?"}]}),
            expected: "Tokyo",
        },
    ]
}

/// Asks a gateway of its own one question in each dialect.
pub(crate) fn demo(place: &Place, library: &Library) -> Outcome {
    harness::guarded(|| {
        let gateway = Gateway::start(&harness::settings(place, library));
        shell::say(format!("serving the bundled model on http://{}", gateway.address()));
        questions().iter().try_for_each(|question| ask(&gateway, question))
    })
}

fn ask(gateway: &Gateway, question: &Question) -> Outcome {
    let asked = question
        .body
        .pointer("/messages/0/content")
        .and_then(Value::as_str)
        .unwrap_or_default();
    shell::say(format!(
        "\n{} dialect, POST {}\n  > {asked}",
        question.dialect, question.path
    ));
    let answer = stream(gateway, question)?;
    if answer.contains(question.expected) {
        return Ok(());
    }
    Err(
        Failure::new(format!("the answer {answer:?} does not say {:?}", question.expected))
            .remedy("cargo xtask model tiny makes the model anew"),
    )
}

/// Writes the answer as it comes; gives the whole of it.
fn stream(gateway: &Gateway, question: &Question) -> Outcome<String> {
    let mut client = Client::connect(gateway.address());
    client.send(http::post_bytes(question.path, question.body.to_string().as_bytes()));
    let head = client.head();
    if head.status != 200 {
        return Err(Failure::new(format!(
            "POST {} was answered {}",
            question.path, head.status
        )));
    }
    let (mut parser, mut answer, mut screen) = (sse::Parser::default(), String::new(), io::stdout().lock());
    let screen_broke = || String::from("write to standard output");
    write!(screen, "  < ").doing(screen_broke)?;
    while let Some(piece) = client.piece() {
        for text in parser.feed(&piece).iter().filter_map(sse::delta) {
            write!(screen, "{text}")
                .and_then(|()| screen.flush())
                .doing(screen_broke)?;
            answer.push_str(&text);
        }
    }
    writeln!(screen).doing(screen_broke)?;
    Ok(answer)
}
