//! Golden bytes of event streams, and the same events found again by a reader of chunks.

use super::*;
use crate::http::{BodyReader, Framing};

fn write(framing: StreamFraming, f: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"before|".to_vec();
    f(&mut out);
    let text = String::from_utf8(out).expect("text").split_off("before|".len());
    assert!(framing != StreamFraming::NoBody || text.is_empty());
    text
}

fn check(events: impl Fn(&mut Chunk<'_>), chunked: &str, plain: &str) {
    let out = |framing| {
        write(framing, |out| {
            let mut chunk = Chunk::open(out, framing);
            events(&mut chunk);
            chunk.close();
        })
    };
    assert_eq!(out(StreamFraming::Chunked), chunked);
    assert_eq!(out(StreamFraming::UntilClose), plain);
    assert_eq!(out(StreamFraming::NoBody), "");
}

#[test]
fn events_in_chunks() {
    check(
        |chunk| chunk.event("ping", b"{}"),
        "00000016\r\nevent: ping\ndata: {}\n\n\r\n",
        "event: ping\ndata: {}\n\n",
    );
    check(
        |chunk| chunk.data(b"[DONE]"),
        "0000000e\r\ndata: [DONE]\n\n\r\n",
        "data: [DONE]\n\n",
    );
    check(
        |chunk| chunk.comment("keep-alive"),
        "0000000e\r\n: keep-alive\n\n\r\n",
        ": keep-alive\n\n",
    );
    check(
        |chunk| {
            chunk.event_with("a", |out| out.extend_from_slice(b"1"));
            chunk.data_with(|out| out.extend_from_slice(b"2"));
            chunk.comment("3");
        },
        "00000020\r\nevent: a\ndata: 1\n\ndata: 2\n\n: 3\n\n\r\n",
        "event: a\ndata: 1\n\ndata: 2\n\n: 3\n\n",
    );
    check(|_| {}, "", "");
    check(|chunk| chunk.data(b""), "00000008\r\ndata: \n\n\r\n", "data: \n\n");
}

#[test]
fn data_cannot_forge_events() {
    check(
        |chunk| chunk.data(b"a\nevent: x\r\nb\rc\n"),
        "0000002f\r\ndata: a\ndata: event: x\ndata: b\ndata: c\ndata: \n\n\r\n",
        "data: a\ndata: event: x\ndata: b\ndata: c\ndata: \n\n",
    );
    check(
        |chunk| {
            chunk.event("a\nb", b"");
            chunk.comment("x\n\ndata: y");
        },
        "00000021\r\nevent: a?b\ndata: \n\n: x??data: y\n\n\r\n",
        "event: a?b\ndata: \n\n: x??data: y\n\n",
    );
}

#[test]
fn ends() {
    for (framing, expected) in [
        (StreamFraming::Chunked, "0\r\n\r\n"),
        (StreamFraming::UntilClose, ""),
        (StreamFraming::NoBody, ""),
    ] {
        assert_eq!(write(framing, |out| end(out, framing)), expected);
        assert_eq!(write(framing, |out| Chunk::open(out, framing).close_last()), expected);
    }
    let last = write(StreamFraming::Chunked, |out| {
        let mut chunk = Chunk::open(out, StreamFraming::Chunked);
        chunk.data(b"x");
        chunk.close_last();
    });
    assert_eq!(last, "00000009\r\ndata: x\n\n\r\n0\r\n\r\n");
}

#[test]
fn a_dropped_chunk_is_finished() {
    let text = write(StreamFraming::Chunked, |out| {
        Chunk::open(out, StreamFraming::Chunked).data(b"x")
    });
    assert_eq!(text, "00000009\r\ndata: x\n\n\r\n");
}

#[test]
fn a_size_of_more_digits_is_made_room_for() {
    let mut out = b"00000000\r\nrest".to_vec();
    write_size(&mut out, 0, 0x1_2345_6789);
    assert_eq!(out, b"123456789\r\nrest");
    let mut out = b"00000000\r\nrest".to_vec();
    write_size(&mut out, 0, 0xffff_fff0);
    assert_eq!(out, b"fffffff0\r\nrest");
}

#[test]
fn a_chunk_reader_finds_the_events_again() {
    let framing = StreamFraming::Chunked;
    let mut out = Vec::new();
    let mut expected = Vec::new();
    for number in 0..200_usize {
        let data = "x".repeat(number * 7);
        let mut chunk = Chunk::open(&mut out, framing);
        for _ in 0..number % 3 {
            chunk.event("e", data.as_bytes());
            expected.extend_from_slice(format!("event: e\ndata: {data}\n\n").as_bytes());
        }
        chunk.close();
    }
    end(&mut out, framing);
    let mut body = Vec::new();
    let mut reader = BodyReader::new(Framing::Chunked, 1 << 20).expect("in range");
    let fed = reader.feed(&out, &mut body).expect("valid chunks");
    assert_eq!((fed.consumed, fed.done, body), (out.len(), true, expected));
}
