//! Stored answers in files: they outlive the process, however it ends, and a folder that cannot be used costs the answers, not
//! the service.

use std::{
    collections::HashMap,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rustix::process::Signal;
use serde_json::Value;
use zerohop_tests::{
    gateway::{Ended, Gateway, Settings, binary, to_its_end},
    http::{self, Response},
    metrics::Metrics,
    scratch::Scratch,
    wait::wait_for,
};

use crate::ask::{CHAT, MESSAGES, chat, message, text_of, with};

const QUESTIONS: [&str; 4] = [
    "What is the capital of France?",
    "What is the capital of Italy?",
    "Name a colour.",
    "What is 2 + 2?",
];

fn keeping(folder: &Path) -> Settings {
    Settings::default()
        .with("/cache/type", "ssd")
        .with("/cache/local/path", folder.to_str().expect("UTF-8"))
}

fn cache_of(response: &Response) -> &str {
    response.header("x-cache").unwrap_or("nothing")
}

fn post(gateway: &Gateway, path: &str, body: &Value) -> Response {
    http::post(gateway.address(), path, body)
}

/// Asks until the answer is kept.
fn keep(gateway: &Gateway, question: &str) -> String {
    wait_for("an answer to be kept", || {
        let response = post(gateway, MESSAGES, &message(question));
        (cache_of(&response) == "hit").then(|| text_of(&response))
    })
}

fn metric(gateway: &Gateway, name: &str, labels: &[&str]) -> f64 {
    Metrics::of(gateway.address()).sum(name, labels)
}

#[test]
fn answers_outlive_the_process_however_it_ends() {
    for end in [Signal::TERM, Signal::KILL] {
        let scratch = Scratch::new().expect("a folder");
        let folder = scratch.path().join("cache");
        let mut gateway = Gateway::start(&keeping(&folder));
        let told: Vec<_> = QUESTIONS.iter().map(|question| keep(&gateway, question)).collect();
        // What was kept within the last 50 ms may be lost when the process is killed.
        wait_for("the log to be written", || {
            let written = metric(&gateway, "zerohop_cache_written_bytes_total", &[r#"file="segment""#]);
            let appended = metric(&gateway, "zerohop_cache_appended_bytes_total", &[]);
            (appended > 0.0 && written >= appended).then_some(())
        });
        gateway.signal(end);
        gateway.ended();
        let gateway = Gateway::start(&keeping(&folder));
        for (question, told) in QUESTIONS.iter().zip(&told) {
            // From the part, by either API and in either mode; then from memory.
            let questions = [
                (CHAT, with(chat(question), "max_completion_tokens", 64)),
                (MESSAGES, with(message(question), "stream", true)),
                (MESSAGES, message(question)),
            ];
            for (path, body) in &questions {
                let response = post(&gateway, path, body);
                assert_eq!(cache_of(&response), "hit", "{end:?}: {question}");
                assert_eq!(text_of(&response), *told, "{question}");
            }
        }
        let read = metric(&gateway, "zerohop_cache_reads_total", &[r#"result="ok""#]);
        assert!(read >= QUESTIONS.len() as f64, "{read} reads");
        assert_eq!(
            metric(&gateway, "zerohop_cache_reads_total", &[r#"result="failed""#]),
            0.0
        );
        // Another answer is kept beside those that were there.
        keep(&gateway, "Name an animal.");
        assert_eq!(metric(&gateway, "zerohop_cache_entries", &[]), 5.0);
    }
}

#[test]
fn a_folder_serves_one_gateway_and_the_next_serves_without_it() {
    let scratch = Scratch::new().expect("a folder");
    let first = Gateway::start(&keeping(scratch.path()));
    keep(&first, QUESTIONS[0]);
    let second = Gateway::start(&keeping(scratch.path()));
    assert!(second.log().contains("another gateway uses them"), "{}", second.log());
    let response = post(&second, MESSAGES, &message(QUESTIONS[0]));
    assert_eq!((response.status, cache_of(&response)), (200, "nothing"));
    assert!(!Metrics::of(second.address()).has("zerohop_cache_entries"));
    // The one that has it goes on.
    assert_eq!(cache_of(&post(&first, MESSAGES, &message(QUESTIONS[0]))), "hit");
}

#[test]
fn a_folder_that_cannot_be_used_costs_the_answers_only() {
    let scratch = Scratch::new().expect("a folder");
    let file = scratch.write("file", "no folder").expect("a file");
    for folder in [file.clone(), file.join("below"), "/proc/zerohop".into()] {
        let gateway = Gateway::start(&keeping(&folder));
        assert!(
            gateway.log().contains("answers are not kept: cache in"),
            "{}",
            gateway.log()
        );
        let response = post(&gateway, MESSAGES, &message(QUESTIONS[0]));
        assert_eq!((response.status, cache_of(&response)), (200, "nothing"));
    }
}

#[test]
fn damage_costs_what_is_damaged_only() {
    let scratch = Scratch::new().expect("a folder");
    let folder = scratch.path().join("cache");
    let stop = |mut gateway: Gateway| {
        gateway.signal(Signal::TERM);
        gateway.ended();
    };
    let gateway = Gateway::start(&keeping(&folder));
    let told = keep(&gateway, QUESTIONS[0]);
    stop(gateway);
    // The segment is sealed when the folder is opened again.
    stop(Gateway::start(&keeping(&folder)));

    // The index is made anew from the data.
    let index = folder.join("cache_index.bin");
    let len = fs::metadata(&index).expect("an index").len() as usize;
    fs::write(&index, vec![0x5a; len]).expect("a damaged index");
    let gateway = Gateway::start(&keeping(&folder));
    assert!(gateway.log().contains("made anew"), "{}", gateway.log());
    let response = post(&gateway, MESSAGES, &message(QUESTIONS[0]));
    assert_eq!((cache_of(&response), text_of(&response)), ("hit", told.clone()));
    stop(gateway);

    // A part that is torn is a miss, and the answer is made again.
    let parts = fs::read_dir(folder.join("cache_data.parquet")).expect("parts");
    for part in parts {
        let path = part.expect("a part").path();
        let bytes = fs::read(&path).expect("bytes");
        let torn = bytes.iter().map(|byte| byte ^ 0x55).collect::<Vec<_>>();
        fs::write(&path, torn).expect("a torn part");
    }
    let gateway = Gateway::start(&keeping(&folder));
    let response = post(&gateway, MESSAGES, &message(QUESTIONS[0]));
    assert_eq!((response.status, cache_of(&response)), (200, "miss"));
    assert_eq!(text_of(&response), told);
    keep(&gateway, QUESTIONS[0]);
}

/// Another version of the keys begins with nothing, and the first finds its answers again.
#[test]
fn a_version_of_the_keys_finds_its_own_answers_again() {
    let scratch = Scratch::new().expect("a folder");
    let version = |number: u32| keeping(scratch.path()).with("/cache/context_hash_version", number);
    let stop = |mut gateway: Gateway| {
        gateway.signal(Signal::TERM);
        gateway.ended();
    };
    let gateway = Gateway::start(&version(1));
    keep(&gateway, QUESTIONS[0]);
    stop(gateway);
    for (number, expected) in [(2, "miss"), (1, "hit")] {
        let gateway = Gateway::start(&version(number));
        let response = post(&gateway, MESSAGES, &message(QUESTIONS[0]));
        assert_eq!(cache_of(&response), expected, "version {number}");
        stop(gateway);
    }
}

/// Killed at any moment under load, again and again: each answer that is given from the files is the one that the model gave.
#[test]
fn a_gateway_that_is_killed_under_load_never_tells_anything_wrong() {
    let kills = if std::env::var("ZEROHOP_LONG").is_ok_and(|long| !long.is_empty()) {
        500
    } else {
        6
    };
    let scratch = Scratch::new().expect("a folder");
    let folder = scratch.path().join("cache");
    let settings = keeping(&folder);
    let told = Mutex::new(HashMap::<usize, String>::new());
    let mut hits = 0;
    for kill in 0..kills {
        let mut gateway = Gateway::start(&settings);
        let (asked, counted, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let address = gateway.address();
        thread::scope(|scope| {
            let ask = |client: usize| {
                let mut number = client * 7;
                while !over.load(Ordering::Relaxed) {
                    number = (number * 31 + 7) % 40;
                    let body = message(&format!("Say the number {number}.")).to_string();
                    let Some(response) = exchange(address, &body).filter(|it| it.status == 200) else {
                        continue;
                    };
                    asked.fetch_add(1, Ordering::Relaxed);
                    let text = text_of(&response);
                    let hit = cache_of(&response) == "hit";
                    counted.fetch_add(usize::from(hit), Ordering::Relaxed);
                    let mut told = told.lock().expect("no panic");
                    let first = told.entry(number).or_insert_with(|| text.clone());
                    assert_eq!(*first, text, "number {number}, a hit: {hit}");
                }
            };
            let clients: Vec<_> = (0..4).map(|client| scope.spawn(move || ask(client))).collect();
            let enough = 1 + kill * 37 % 200;
            wait_for("some answers", || {
                (asked.load(Ordering::Relaxed) >= enough).then_some(())
            });
            gateway.signal(Signal::KILL);
            gateway.ended();
            over.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().expect("no panic");
            }
        });
        hits += counted.load(Ordering::Relaxed);
    }
    assert!(hits > 0, "no answer was ever given again");
}

/// One question on a connection of its own; `None` where the gateway was killed meanwhile.
fn exchange(address: SocketAddr, body: &str) -> Option<Response> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "POST {MESSAGES} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}",
        body.len()
    );
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    (length.parse() == Ok(body.len())).then(|| Response {
        status,
        head: head.to_owned(),
        body: body.into(),
    })
}

/// Runs `zerohop cache …`.
fn command(arguments: &[&str]) -> Ended {
    to_its_end(Command::new(binary()).arg("cache").args(arguments))
}

/// All bytes of the parts.
fn bytes_of_parts(folder: &Path) -> Vec<u8> {
    let parts = fs::read_dir(folder.join("cache_data.parquet")).expect("parts");
    parts
        .flat_map(|part| fs::read(part.expect("a part").path()).expect("bytes"))
        .collect()
}

#[test]
fn the_operator_looks_after_the_files() {
    let scratch = Scratch::new().expect("a folder");
    let folder = scratch.path().join("cache");
    let stop = |mut gateway: Gateway| {
        gateway.signal(Signal::TERM);
        gateway.ended();
    };
    let gateway = Gateway::start(&keeping(&folder));
    for question in QUESTIONS {
        keep(&gateway, question);
    }
    stop(gateway);
    let gateway = Gateway::start(&keeping(&folder));
    let socket = gateway.control();
    let at = ["--socket", socket.to_str().expect("UTF-8")];
    let run = |arguments: &[&str]| {
        let ended = command(&[arguments, &at].concat());
        assert!(ended.status.success(), "{arguments:?}: {ended:?}");
        ended.output
    };
    let verified = run(&["verify"]);
    assert!(
        verified.contains("cache_index.bin") && verified.contains("part-") && !verified.contains("DAMAGED"),
        "{verified}"
    );
    let dumped = run(&["dump"]);
    let entries: Vec<Value> = dumped
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(entries.len(), QUESTIONS.len(), "{dumped}");

    // What is purged leaves the files too.
    let key = entries[0]["key"].as_str().expect("a key");
    let id = entries[0]["body"]["id"].as_str().expect("an id of the answer");
    let is_there = || {
        bytes_of_parts(&folder)
            .windows(id.len())
            .any(|window| window == id.as_bytes())
    };
    assert!(is_there(), "{id}");
    assert!(run(&["purge", "--key", key]).contains("removed 1"));
    assert!(!is_there(), "{id} is still in a part");
    assert_eq!(run(&["dump"]).lines().count(), QUESTIONS.len() - 1);
    stop(gateway);

    // The files of a stopped gateway are read directly.
    let config = scratch.write("zerohop.yaml", keeping(&folder).text()).expect("a file");
    let at = ["--config", config.to_str().expect("UTF-8")];
    for name in ["verify", "compact"] {
        let ended = command(&[&[name], &at[..]].concat());
        assert!(ended.status.success(), "{name}: {ended:?}");
    }
    let part = fs::read_dir(folder.join("cache_data.parquet"))
        .expect("parts")
        .next()
        .expect("a part")
        .expect("a part")
        .path();
    let mut bytes = fs::read(&part).expect("bytes");
    let at_body = bytes.len() / 2;
    bytes[at_body] ^= 0x10;
    fs::write(&part, bytes).expect("a damaged part");
    let ended = command(&[&["verify"], &at[..]].concat());
    assert!(!ended.status.success() && ended.output.contains("DAMAGED"), "{ended:?}");
}
