//! How long a hit takes from its stored form to the send buffer: `cargo run --release -p zerohop --example stored`.
//!
//! Prints nanoseconds of this thread's CPU time, the least of many rounds. Invariant: the form is one that a recorder wrote.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::{hint::black_box, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use zerohop::{
    api::{Dialect, Places, StreamOptions},
    date::HttpDate,
    http::{IdSource, RequestId, Version},
    reply::{
        CacheNote, Connection, Reply, ReplyMeta,
        stored::{Recorder, Shape, Stored, hit},
    },
};
use zerohop_engine::{Event, Finish, Usage};

const CONNECTION: fn() -> Connection = || Connection {
    version: Version::Http11,
    keep_alive: true,
    head_only: false,
    request_id: RequestId::from_bits(1, 2),
};

fn main() {
    let form = form(60);
    println!("stored form: {} bytes", form.len());
    measure("read", || {
        black_box(Stored::read(black_box(&form)).is_ok());
    });
    let stored = Stored::read(&form).expect("a recorded form");
    let date = HttpDate::at(1_700_000_000);
    let mut out = Vec::with_capacity(1 << 20);
    for (name, stream) in [("document", None), ("stream", Some(StreamOptions::default()))] {
        let shape = Shape::new(Dialect::Anthropic, stream, "model");
        measure(&format!("{name}: body"), || {
            out.clear();
            stored.body(black_box(&shape), &mut out);
        });
        let body = out.clone();
        println!("{name}: {} bytes of body", body.len());
        measure(&format!("{name}: head and copy"), || {
            out.clear();
            black_box(hit(
                &CONNECTION(),
                &date,
                &shape,
                CacheNote::hit(black_box(61)),
                &body,
                &mut out,
            ));
        });
    }
}

/// An answer of this many pieces of five bytes.
fn form(pieces: usize) -> Vec<u8> {
    let mut reply = Reply::new(ReplyMeta {
        dialect: Dialect::Anthropic,
        id: (1, 2),
        model: "model".into(),
        model_version: "1a2b".into(),
        created: 1_700_000_000,
        stream: None,
        choices: 1,
        logprobs: false,
        places: Places::default(),
        connection: CONNECTION(),
    });
    let mut events = vec![Event::Started {
        input_tokens: 12,
        cached_tokens: 4,
        queued: Duration::ZERO,
    }];
    events.extend((0..pieces).map(|_| Event::Text {
        text: " word".into(),
        tokens: 1,
        logprobs: Vec::new(),
    }));
    events.push(Event::Finished {
        finish: Finish::EndOfTurn,
        usage: Usage::default(),
    });
    let mut recorder = Recorder::of(&reply).expect("a plain answer");
    let (mut out, mut ids, date) = (Vec::new(), IdSource::new([1, 2]), HttpDate::at(0));
    let forms = events.iter().filter_map(|event| {
        reply.on(0, event, &mut ids, &date, &mut out);
        recorder.on(event, &reply)
    });
    forms.last().expect("a form")
}

fn measure(name: &str, mut run: impl FnMut()) {
    const TIMES: i64 = 2_000;
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let round = |_| {
        let begun = now();
        for _ in 0..TIMES {
            run();
        }
        (now() - begun) / TIMES
    };
    println!("{name}: {} ns", (0..100).map(round).min().unwrap_or_default());
}
