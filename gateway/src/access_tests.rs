//! Lines of the access log in both forms, and how they are batched.

use super::*;
use crate::log::tests::{PATIENCE, start};

fn record<'a>() -> Record<'a> {
    Record {
        time: (784_111_777, 5_000_000),
        request_id: "req_1",
        peer: "[::1]:1234".parse().expect("an address"),
        method: "POST",
        path: "/v1/messages",
        status: 200,
        dialect: Some(Dialect::Anthropic),
        model: Some("tiny"),
        tenant: Some("team-a"),
        stream: true,
        input_tokens: Some(12),
        output_tokens: Some(34),
        bytes_in: 500,
        bytes_out: 6000,
        times: Times {
            parse: Some(12_345),
            queue: Some(1_000_000),
            first_token: Some(2_500_000),
            total: 1_234_567_890,
        },
        outcome: Outcome::Ok,
        routine: false,
    }
}

fn bare<'a>() -> Record<'a> {
    Record {
        method: "",
        path: "",
        status: 400,
        dialect: None,
        model: None,
        tenant: None,
        stream: false,
        input_tokens: None,
        output_tokens: None,
        times: Times::default(),
        outcome: Outcome::Error(ErrorKind::BadHttp),
        ..record()
    }
}

fn check(record: &Record<'_>, json: &str, human: &str) {
    for (format, expected) in [(Format::Json, json), (Format::Human, human)] {
        let mut out = Vec::new();
        record.write(&mut out, format);
        let line = String::from_utf8(out).expect("text");
        assert_eq!(line.trim_end_matches('\n'), expected);
        assert_eq!(line.matches('\n').count(), 1, "one line");
    }
    serde_json::from_str::<serde_json::Value>(json).expect("valid JSON");
}

#[test]
fn lines() {
    check(
        &record(),
        r#"{"time":"1994-11-06T08:49:37.005Z","level":"info","message":"request","request_id":"req_1","peer":"[::1]:1234","method":"POST","path":"/v1/messages","status":200,"outcome":"ok","stream":true,"total_ms":1234.567,"parse_ms":0.012,"queue_ms":1.000,"first_token_ms":2.500,"dialect":"anthropic","model":"tiny","tenant":"team-a","input_tokens":12,"output_tokens":34,"bytes_in":500,"bytes_out":6000}"#,
        "1994-11-06T08:49:37.005Z INFO  POST /v1/messages 200 ok total_ms=1234.567 parse_ms=0.012 queue_ms=1.000 \
         first_token_ms=2.500 dialect=anthropic model=tiny tenant=team-a input_tokens=12 output_tokens=34 bytes_in=500 \
         bytes_out=6000 peer=[::1]:1234 request_id=req_1",
    );
    check(
        &bare(),
        r#"{"time":"1994-11-06T08:49:37.005Z","level":"info","message":"request","request_id":"req_1","peer":"[::1]:1234","method":"","path":"","status":400,"outcome":"bad_http","stream":false,"total_ms":0.000,"bytes_in":500,"bytes_out":6000}"#,
        "1994-11-06T08:49:37.005Z INFO  - - 400 bad_http total_ms=0.000 bytes_in=500 bytes_out=6000 peer=[::1]:1234 \
         request_id=req_1",
    );
    check(
        &Record {
            status: 499,
            outcome: Outcome::ClientGone,
            model: Some("a \"b\"\n\x1b[2J{\"level\":\"error\"}"),
            ..bare()
        },
        r#"{"time":"1994-11-06T08:49:37.005Z","level":"info","message":"request","request_id":"req_1","peer":"[::1]:1234","method":"","path":"","status":499,"outcome":"client_gone","stream":false,"total_ms":0.000,"model":"a \"b\"\n\u001b[2J{\"level\":\"error\"}","bytes_in":500,"bytes_out":6000}"#,
        r#"1994-11-06T08:49:37.005Z INFO  - - 499 client_gone total_ms=0.000 model="a \"b\"\n\u{1b}[2J{\"level\":\"error\"}" bytes_in=500 bytes_out=6000 peer=[::1]:1234 request_id=req_1"#,
    );
}

#[test]
fn long_names_are_cut_between_characters() {
    let (path, model) = (format!("/{}", "p".repeat(1000)), "ü".repeat(100));
    let mut out = Vec::new();
    let method = "M".repeat(1000);
    Record {
        path: &path,
        model: Some(&model[..]),
        method: &method,
        ..record()
    }
    .write(&mut out, Format::Json);
    let line: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(line["path"], path[..MAX_PATH]);
    assert_eq!(line["model"], "ü".repeat(MAX_NAME / 2));
    assert_eq!(line["method"], method[..MAX_NAME]);
}

#[test]
fn levels() {
    for (status, routine, expected) in [
        (200, false, Level::Info),
        (200, true, Level::Debug),
        (429, false, Level::Info),
        (500, false, Level::Warn),
        (529, true, Level::Warn),
    ] {
        assert_eq!(
            Record {
                status,
                routine,
                ..record()
            }
            .level(),
            expected,
            "{status} {routine}"
        );
    }
}

#[test]
fn batches_go_when_they_are_old_or_long() {
    let (log, writer, memory) = start(Format::Human, Level::Info);
    let mut access = AccessLog::new(log.clone());
    access.flush();
    assert_eq!(access.due(), None);
    access.record(&record(), 1_000);
    access.record(&record(), 2_000);
    access.record(
        &Record {
            routine: true,
            ..record()
        },
        3_000,
    );
    assert_eq!(access.due(), Some(1_000 + BATCH_NANOS), "the first line's age counts");
    access.flush_due(999 + BATCH_NANOS);
    assert_eq!((access.lines, access.due()), (2, Some(1_000 + BATCH_NANOS)));
    access.flush_due(1_000 + BATCH_NANOS);
    assert_eq!((access.lines, access.due(), access.batch.len()), (0, None, 0));

    let mut line = Vec::new();
    record().write(&mut line, Format::Human);
    let lines_a_batch = BATCH_BYTES.div_ceil(line.len());
    for number in 1..=lines_a_batch {
        access.record(&record(), 5_000);
        assert_eq!(access.lines, (number % lines_a_batch) as u64);
    }
    assert_eq!(access.due(), None);
    access.record(&record(), 6_000);
    drop(access);
    assert!(writer.finish(PATIENCE));
    assert_eq!(memory.text().into_bytes(), line.repeat(2 + lines_a_batch + 1));
    assert_eq!(log.dropped(), 0);
}

#[test]
fn lost_batches_count_all_their_lines() {
    let (log, writer, _memory) = start(Format::Human, Level::Info);
    assert!(writer.finish(PATIENCE));
    let mut access = AccessLog::new(log.clone());
    access.record(&record(), 0);
    access.record(&record(), 0);
    access.flush();
    assert_eq!(
        (log.dropped(), access.batch.len()),
        (2, 0),
        "the batch is given up, not kept"
    );
}
