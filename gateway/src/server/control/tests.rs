//! Lines in and lines out, over a socket of the test's own, and the rules of the socket's file.

use std::{
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{socket::CLIENTS, *};
use crate::{
    caller::Callers,
    config::{Access, Config, Machine},
    key::{Scope, Secret, Spaces},
    log::{Format, Level, system_clock},
    metrics::Common,
    resolve::Resolver,
    snapshot::Snapshot,
};

/// A path of the test's own.
fn path() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!(
        "zh-{}-{}.sock",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    std::env::temp_dir().join(name)
}

/// A gateway without models or a cache.
fn site() -> Site {
    let config = Config::defaults(&Machine).expect("the defaults are good");
    let spaces = Spaces {
        secret: Secret::new([1; 32]),
        scope: Scope::Tenant,
    };
    let snapshot = Snapshot {
        epoch: 1,
        callers: Callers::new(&Access::Anonymous { explicit: false }, [0; 32], &spaces),
        resolver: Resolver::of(&[]),
        models: Vec::new(),
        kept: None,
        strict: false,
    };
    let labels = Common {
        instance_id: "test".into(),
        region: None,
        start_time: 0,
    };
    let (log, _writer) =
        Log::start(std::io::sink(), Format::Json, Level::Error, system_clock).expect("a thread for the log");
    Site {
        shared: Arc::new(worker::Shared::new(&config, 1, labels, snapshot)),
        cache: None,
        cache_bytes: 0,
        addresses: vec!["127.0.0.1:1".into()],
        log,
        metrics: Arc::new(ControlMetrics::new(&names())),
        started: Instant::now(),
    }
}

fn started(path: &std::path::Path) -> Control {
    let socket = bind(path).expect("a socket");
    Control::start(socket, site()).expect("a thread")
}

fn ask(stream: &UnixStream, line: &str) -> String {
    let mut stream = stream;
    writeln!(stream, "{line}").expect("it listens");
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).expect("it answers");
    reply
}

#[test]
fn every_line_has_one_last_line() {
    let path = path();
    let _control = started(&path);
    let stream = UnixStream::connect(&path).expect("a socket");
    let all = names().join(", ");
    let off = "no answers are kept: cache.type is off";
    let table = [
        ("", String::new()),
        ("x", "the line is no request: expected value at line 1 column 1".into()),
        (
            "[]",
            "the line is no request: invalid type: sequence, expected an object such as {\"command\":\"status\"} at \
             line 1 column 0"
                .into(),
        ),
        ("{}", format!("no `command`: give one of {all}")),
        (r#"{"command":7}"#, "`command` has to be text".into()),
        (r#"{"command":"stop"}"#, format!("no command \"stop\": there are {all}")),
        (
            r#"{"command":"status","command":"status"}"#,
            "the line is no request: `command` is there twice at line 1 column 29".into(),
        ),
        (
            r#"{"command":"status","verbose":true}"#,
            "status has no field \"verbose\": it takes no fields".into(),
        ),
        (
            r#"{"command":"cache.purge","modell":"m"}"#,
            "cache.purge has no field \"modell\": it takes key, model, tenant, space, prefix, all".into(),
        ),
        (r#"{"command":"cache.stat"}"#, off.into()),
        (r#"{"command":"cache.purge","all":true}"#, off.into()),
        (r#"{"command":"cache.import","pairs":[]}"#, off.into()),
    ];
    for (line, wanted) in table {
        if line.is_empty() {
            continue;
        }
        let wanted = format!("{}\n", serde_json::json!({ "error": wanted }));
        assert_eq!(ask(&stream, line), wanted, "{line}");
    }
    let status = ask(&stream, r#" {"command":"status"} "#);
    assert!(status.starts_with(r#"{"ok":{"version":""#), "{status}");
    assert!(status.contains(r#""phase":"loading""#), "{status}");
}

#[test]
fn a_last_line_may_lack_its_end_and_a_long_one_is_refused() {
    let path = path();
    let _control = started(&path);
    let mut stream = UnixStream::connect(&path).expect("a socket");
    stream.write_all(br#"{"command":"status"}"#).expect("it listens");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply).expect("it answers");
    assert!(reply.starts_with(r#"{"ok":"#), "{reply}");
    let mut stream = UnixStream::connect(&path).expect("a socket");
    // It closes on what it does not read.
    let _sent = stream.write_all(&vec![b' '; MAX_LINE + 1]);
    let mut reply = String::new();
    let _read = BufReader::new(&stream).read_line(&mut reply);
    assert_eq!(
        reply,
        format!("{{\"error\":\"the line is longer than {MAX_LINE} bytes\"}}\n")
    );
}

#[test]
fn clients_are_bounded_and_their_places_given_back() {
    let path = path();
    let _control = started(&path);
    let connect = || UnixStream::connect(&path).expect("a socket");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
    // Each is served when it has had an answer.
    clients
        .iter()
        .for_each(|client| assert!(ask(client, r#"{"command":"status"}"#).contains("ok")));
    let mut reply = String::new();
    BufReader::new(connect()).read_line(&mut reply).expect("it answers");
    assert!(reply.contains("clients are connected already"), "{reply}");
    drop(clients.pop());
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let client = connect();
        let mut stream = &client;
        // Turned away before it is read: the write may fail.
        let _sent = writeln!(stream, r#"{{"command":"status"}}"#);
        let mut reply = String::new();
        let _read = BufReader::new(stream).read_line(&mut reply);
        if reply.starts_with(r#"{"ok""#) {
            break;
        }
        assert!(Instant::now() < deadline, "{reply}");
        std::thread::yield_now();
    }
}

#[test]
fn a_dead_processes_socket_is_replaced_and_a_living_ones_is_not() {
    let path = path();
    let control = started(&path);
    let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let refused = bind(&path).expect_err("it lives").to_string();
    assert!(refused.contains("another process listens there"), "{refused}");
    assert!(
        ask(
            &UnixStream::connect(&path).expect("a socket"),
            r#"{"command":"status"}"#
        )
        .contains("ok")
    );
    drop(control);
    assert!(!path.exists(), "it takes its file with it");
    // As a killed process leaves it.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    let control = started(&path);
    assert!(
        ask(
            &UnixStream::connect(&path).expect("a socket"),
            r#"{"command":"status"}"#
        )
        .contains("ok")
    );
    drop(control);
    std::fs::write(&path, "precious").expect("a file");
    let refused = bind(&path).expect_err("no socket").to_string();
    assert!(refused.contains("no socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "precious");
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn the_end_waits_for_no_client() {
    let path = path();
    let control = started(&path);
    let silent = UnixStream::connect(&path).expect("a socket");
    assert!(ask(&silent, r#"{"command":"status"}"#).contains("ok"));
    let begun = Instant::now();
    drop(control);
    assert!(begun.elapsed() < Duration::from_secs(10));
    let mut rest = String::new();
    assert_eq!(BufReader::new(&silent).read_line(&mut rest).unwrap_or(0), 0);
}
