//! A replay against the live reply to the same events, the form to the byte, and what damaged bytes do.

use std::time::Duration;

use proptest::prelude::*;
use zerohop_engine::{Event, Finish, Usage};

use super::*;
use crate::{
    api::{Dialect, Places, StreamOptions},
    date::HttpDate,
    http::{IdSource, RequestId, Version},
    reply::{CacheNote, Connection, Progress, Reply, ReplyMeta},
};

const NOW: u64 = 1_700_000_000;

/// HTTP/1.0, so that the live stream is not cut into chunks either.
fn meta(dialect: Dialect, stream: Option<StreamOptions>) -> ReplyMeta {
    ReplyMeta {
        dialect,
        id: (u64::MAX - 5, 77),
        model: "my \"model\"".into(),
        model_version: "1a\\2b".into(),
        created: NOW,
        stream,
        choices: 1,
        logprobs: false,
        places: Places::default(),
        connection: connection(Version::Http10),
    }
}

fn connection(version: Version) -> Connection {
    Connection {
        version,
        keep_alive: true,
        head_only: false,
        request_id: RequestId::from_bits(0, 0),
    }
}

fn started() -> Event {
    Event::Started {
        input_tokens: 12,
        cached_tokens: 4,
        queued: Duration::ZERO,
    }
}

fn text(text: &str) -> Event {
    Event::Text {
        text: text.into(),
        tokens: 1,
        logprobs: Vec::new(),
    }
}

fn call(name: &str) -> Event {
    Event::Call { name: name.into() }
}

fn arguments(text: &str) -> Event {
    Event::Arguments {
        text: text.into(),
        tokens: 1,
    }
}

fn finished(finish: Finish) -> Event {
    let usage = Usage {
        input_tokens: 12,
        cached_tokens: 8,
        output_tokens: 3,
    };
    Event::Finished { finish, usage }
}

/// The live body, and what was recorded beside it.
fn live(meta: ReplyMeta, events: &[Event]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut reply = Reply::new(meta);
    let mut recorder = Recorder::of(&reply).expect("recordable");
    let (mut out, mut ids, mut form) = (Vec::new(), IdSource::new([1, 2]), None);
    for event in events {
        reply.on(0, event, &mut ids, &HttpDate::at(NOW), &mut out);
        let now = recorder.on(event, &reply);
        assert!(form.is_none() || now.is_none(), "one form");
        form = form.or(now);
    }
    let at = memchr::memmem::find(&out, b"\r\n\r\n").expect("a head") + 4;
    (out.split_off(at), form)
}

fn shapes() -> [(Dialect, Option<StreamOptions>); 5] {
    let stream = |include_usage| Some(StreamOptions { include_usage });
    [
        (Dialect::Anthropic, None),
        (Dialect::Anthropic, stream(false)),
        (Dialect::OpenAi, None),
        (Dialect::OpenAi, stream(false)),
        (Dialect::OpenAi, stream(true)),
    ]
}

/// Whatever the recorded reply's shape was, the form is one, and replays each live reply to the byte.
fn replays(events: &[Event]) {
    let forms = shapes().map(|(dialect, stream)| live(meta(dialect, stream), events).1.expect("a form"));
    let json: serde_json::Value = serde_json::from_slice(&forms[0]).expect("JSON");
    assert_eq!(json["v"], 1);
    for form in &forms {
        assert_eq!(form, &forms[0]);
    }
    let stored = Stored::read(&forms[0]).expect("sound");
    assert_eq!((stored.created(), stored.usage().cached_tokens), (NOW, 8));
    for (dialect, stream) in shapes() {
        let (wanted, _) = live(meta(dialect, stream), events);
        let mut body = Vec::new();
        stored.body(&Shape::new(dialect, stream, "my \"model\""), &mut body);
        assert_eq!(
            String::from_utf8(body).unwrap(),
            String::from_utf8(wanted).unwrap(),
            "{dialect:?} {stream:?}"
        );
    }
}

/// The same stored answer, for a request that offered `functions`.
#[test]
fn a_replay_is_in_the_words_of_its_request() {
    let events = [
        started(),
        call("f"),
        arguments("{\"a\":"),
        arguments("1}"),
        finished(Finish::ToolCalls),
    ];
    let form = live(meta(Dialect::OpenAi, None), &events).1.expect("a form");
    let stored = Stored::read(&form).expect("sound");
    for (dialect, stream) in shapes() {
        let mut asked = meta(dialect, stream);
        asked.places.functions = dialect == Dialect::OpenAi;
        let shape = Shape::new(dialect, stream, "my \"model\"").with_functions(asked.places.functions);
        let (wanted, recorded) = live(asked, &events);
        assert_eq!(recorded.as_ref(), Some(&form), "the stored form knows nothing of it");
        let mut body = Vec::new();
        stored.body(&shape, &mut body);
        let body = String::from_utf8(body).expect("text");
        assert_eq!(body, String::from_utf8(wanted).expect("text"));
        assert_eq!(body.contains("function_call"), dialect == Dialect::OpenAi, "{body}");
    }
}

#[test]
fn a_replay_is_the_live_reply() {
    use Finish::{ContextFull, EndOfTurn, MaxTokens, Stop, StopToken, ToolCalls};
    for events in [
        vec![started(), finished(EndOfTurn)],
        vec![started(), text("Hello"), text(" wörld 😀"), finished(MaxTokens)],
        vec![
            started(),
            text("a\"b"),
            text("\\"),
            text("n\n\r\t\0\u{1f}"),
            finished(ContextFull),
        ],
        vec![started(), text("x"), finished(Stop("\n\"END\\\u{1}ä".into()))],
        vec![started(), text("x"), finished(StopToken(7))],
        vec![
            started(),
            text("I call."),
            call("we\"ather"),
            arguments("{\"ci"),
            arguments("ty\":\"Z\\u00fcrich\n\"}"),
            call("time"),
            arguments("{}"),
            finished(ToolCalls),
        ],
        // Cut short within a call, and before the first of its arguments.
        vec![started(), call("f"), arguments("{\"a\":"), finished(MaxTokens)],
        vec![started(), call("f"), finished(MaxTokens)],
    ] {
        replays(&events);
    }
}

#[test]
fn the_form_to_the_byte() {
    let events = [
        started(),
        text("é\n"),
        text("b"),
        call("f"),
        arguments("{}"),
        finished(Finish::ToolCalls),
    ];
    let (_, form) = live(meta(Dialect::OpenAi, None), &events);
    let wanted = concat!(
        r#"{"v":1,"id":"fffffffffffffffa000000000000004d","created":1700000000,"version":"1a\\2b","#,
        r#""input_tokens":12,"cached_tokens":8,"output_tokens":3,"began":[12,4],"#,
        r#""finish":"tool_calls","stop_sequence":null,"stop_token":null,"#,
        r#""text_bytes":5,"text_cuts":[4,1],"text":"é\nb","#,
        r#""calls":[{"id":"ID","name":"f","bytes":2,"cuts":[2],"arguments":"{}"}]}"#,
    );
    let (high, low) = IdSource::new([1, 2]).bits();
    let wanted = wanted.replace("ID", &format!("{high:016x}{low:016x}"));
    assert_eq!(String::from_utf8(form.expect("a form")).unwrap(), wanted);
}

#[test]
fn what_is_not_recorded() {
    let plain = || meta(Dialect::OpenAi, None);
    for other in [
        ReplyMeta { choices: 2, ..plain() },
        ReplyMeta {
            logprobs: true,
            ..plain()
        },
    ] {
        assert!(Recorder::of(&Reply::new(other)).is_none());
    }
    let many = |count: usize, piece: &str| {
        let mut events = vec![started()];
        events.extend((0..count).map(|_| text(piece)));
        events.push(finished(Finish::EndOfTurn));
        live(plain(), &events).1
    };
    assert!(many(MAX_PIECES, "a").is_some());
    assert!(many(MAX_PIECES + 1, "a").is_none());
    assert!(many(1, &"a".repeat(MAX_BYTES - 1000)).is_some());
    assert!(many(1, &"a".repeat(MAX_BYTES)).is_none());
    for events in [
        vec![started(), text("a"), Event::TimedOut],
        vec![started(), call("f"), text("a"), finished(Finish::EndOfTurn)],
        vec![started(), arguments("a"), finished(Finish::EndOfTurn)],
        vec![started(), started(), finished(Finish::EndOfTurn)],
        vec![text("a"), finished(Finish::EndOfTurn)],
    ] {
        assert_eq!(live(plain(), &events).1, None, "{events:?}");
    }
}

#[test]
fn memory_is_told_and_given_back() {
    let reply = Reply::new(meta(Dialect::OpenAi, None));
    let mut recorder = Recorder::of(&reply).expect("recordable");
    recorder.on(&started(), &reply);
    recorder.on(&text(&"a".repeat(10_000)), &reply);
    assert!(recorder.held() >= 10_000);
    assert!(recorder.on(&finished(Finish::EndOfTurn), &reply).is_some());
    assert!(recorder.held() < 100);
}

#[test]
fn damage_is_found() {
    let events = [started(), text("a\n"), text("bä"), finished(Finish::EndOfTurn)];
    let form = live(meta(Dialect::OpenAi, None), &events).1.expect("a form");
    let form = String::from_utf8(form).expect("text");
    for (from, to) in [
        ("\"v\":1", "\"v\":2"),
        ("[3,3]", "[2,4]"),
        ("[3,3]", "[3,4]"),
        ("[3,3]", "[3,3,]"),
        ("[3,3]", "[3]"),
        ("[3,3]", "[5,1]"),
        ("[3,3]", "[03,3]"),
        ("[3,3]", "[3,99999999999999999999999]"),
        ("a\\nbä", "a\"xbä"),
        ("a\\nbä", "a\\xbä"),
        ("a\\nbä", "a\nxbä"),
        ("end_turn", "end"),
        ("null,\"stop_token\"", "\"x\",\"stop_token\""),
        ("\"output_tokens\":3", "\"output_tokens\":4294967296"),
        ("]}", "]} "),
        ("]}", "{]}"),
    ] {
        let damaged = form.replacen(from, to, 1);
        assert_ne!(damaged, form, "{from}");
        assert_eq!(Stored::read(damaged.as_bytes()), Err(Damaged), "{from} to {to}");
    }
    for length in 0..form.len() {
        assert_eq!(Stored::read(&form.as_bytes()[..length]), Err(Damaged), "{length}");
    }
}

#[test]
fn heads_of_hits() {
    let common = "server: zerohop\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\n\
        request-id: req_000000000000000000000000\r\nx-request-id: req_000000000000000000000000\r\n";
    let stream = Some(StreamOptions::default());
    for (version, stream, first, last) in [
        (
            Version::Http11,
            None,
            "content-type: application/json\r\ncontent-length: 4\r\n",
            "",
        ),
        (
            Version::Http10,
            stream,
            "content-type: text/event-stream; charset=utf-8\r\ncontent-length: 4\r\n",
            "connection: keep-alive\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n",
        ),
    ] {
        for head_only in [false, true] {
            let connection = Connection {
                head_only,
                ..connection(version)
            };
            let (mut out, shape) = (Vec::new(), Shape::new(Dialect::OpenAi, stream, "m"));
            let date = HttpDate::at(NOW);
            let progress = hit(&connection, &date, &shape, CacheNote::hit(61), b"body", &mut out);
            assert_eq!(progress, Progress::Done);
            let body = if head_only { "" } else { "body" };
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("HTTP/1.1 200 OK\r\n{first}{common}{last}x-cache: hit\r\nage: 61\r\n\r\n{body}")
            );
        }
    }
}

#[test]
fn live_replies_tell_of_the_cache() {
    for (note, wanted) in [
        (CacheNote::NONE, ""),
        (CacheNote::MISS, "x-cache: miss\r\n"),
        (CacheNote::JOIN, "x-cache: join\r\n"),
        (CacheNote::BYPASS, "x-cache: bypass\r\n"),
        (CacheNote::stale(0), "x-cache: stale\r\nage: 0\r\n"),
    ] {
        for (dialect, stream) in shapes() {
            let mut reply = Reply::new(meta(dialect, stream));
            reply.tell(note);
            let (mut out, mut ids) = (Vec::new(), IdSource::new([1, 2]));
            for event in [started(), finished(Finish::EndOfTurn)] {
                reply.on(0, &event, &mut ids, &HttpDate::at(NOW), &mut out);
            }
            let out = String::from_utf8(out).unwrap();
            let (head, _) = out.split_once("\r\n\r\n").expect("a head");
            let (_, behind) = head.split_once("x-request-id: ").expect("an id");
            let told: String = behind
                .lines()
                .filter(|line| line.starts_with("x-cache") || line.starts_with("age"))
                .map(|line| format!("{line}\r\n"))
                .collect();
            assert_eq!(told, wanted);
        }
    }
}

#[test]
fn usage_makes_no_shape_of_its_own_in_anthropic_streams() {
    let shape = |dialect, include_usage| Shape::new(dialect, Some(StreamOptions { include_usage }), "m");
    assert_eq!(shape(Dialect::Anthropic, true), shape(Dialect::Anthropic, false));
    assert_ne!(shape(Dialect::OpenAi, true), shape(Dialect::OpenAi, false));
}

proptest! {
    #[test]
    fn any_answer_is_replayed(
        texts in prop::collection::vec(".{1,8}|[\"\\\\\u{0}-\u{24}é😀]{1,8}", 0..6),
        calls in prop::collection::vec(("[a-z\"\\\\]{1,6}", prop::collection::vec(".{1,8}", 0..4)), 0..3),
    ) {
        let mut events = vec![started()];
        events.extend(texts.iter().map(|piece| text(piece)));
        for (name, pieces) in &calls {
            events.push(call(name));
            events.extend(pieces.iter().map(|piece| arguments(piece)));
        }
        events.push(finished(Finish::EndOfTurn));
        replays(&events);
    }

    /// One byte of a form is changed: whatever can still be read gives JSON.
    #[test]
    fn a_changed_byte_makes_no_broken_body(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let events = [started(), text("a\n\u{1}"), text("bä"), call("f"), arguments("{\"a\":1}"), finished(Finish::ToolCalls)];
        let mut form = live(meta(Dialect::OpenAi, None), &events).1.expect("a form");
        let at = at.index(form.len());
        form[at] = byte;
        if let Ok(stored) = Stored::read(&form) {
            for dialect in [Dialect::Anthropic, Dialect::OpenAi] {
                let mut body = Vec::new();
                stored.body(&Shape::new(dialect, None, "m"), &mut body);
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
            }
        }
    }
}
