use serde_json::json;

use super::*;

fn table(decoder: &Value, pieces: &[&str]) -> TextTable {
    let decoding = Decoding::parse(decoder).expect("a decoder that is supported");
    TextTable::new(&decoding, pieces.iter().map(|piece| Some((*piece).to_owned()))).expect("a small table")
}

/// Joined deltas, each checked to be whole characters by being a `str`.
fn stream(table: &TextTable, ids: &[u32], continues: bool) -> (Vec<String>, String) {
    let mut stream = table.stream(continues);
    let mut deltas = Vec::new();
    for &id in ids {
        let mut out = String::new();
        stream.push(table.get(id), &mut out);
        deltas.push(out);
    }
    let mut rest = String::new();
    stream.finish(&mut rest);
    let all = deltas.concat() + &rest;
    (deltas, all)
}

#[test]
fn byte_level_table_is_the_inverse_of_gpt2s() {
    let mut sorted: Vec<u8> = ('\0'..='\u{1FF}').filter_map(byte_of).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..=255).collect::<Vec<u8>>(), "each byte once");
    for (character, byte) in [
        ('Ġ', b' '),
        ('Ċ', b'\n'),
        ('a', b'a'),
        ('ÿ', 0xFF),
        ('Ā', 0),
        ('Ń', 0xAD),
    ] {
        assert_eq!(byte_of(character), Some(byte), "{character}");
    }
}

#[test]
fn characters_are_never_cut() {
    let byte_level = json!({"type": "ByteLevel"});
    let fallback = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    // 😀 is F0 9F 98 80; in GPT-2's table ð Ł ĺ Ģ.
    // Name, decoder, tokens, deltas, all of it.
    type Case<'a> = (&'a str, &'a Value, &'a [&'a str], &'a [&'a str], &'a str);
    let cases: [Case<'_>; 9] = [
        (
            "an emoji in four tokens",
            &byte_level,
            &["ð", "Ł", "ĺ", "Ģ"],
            &["", "", "", "😀"],
            "😀",
        ),
        (
            "text on both sides",
            &byte_level,
            &["aðŁ", "ĺĢb"],
            &["a", "😀b"],
            "a😀b",
        ),
        (
            "blanks and lines",
            &byte_level,
            &["Hello", "ĠworldĊ"],
            &["Hello", " world\n"],
            "Hello world\n",
        ),
        ("an unfinished end", &byte_level, &["a", "ðŁ"], &["a", ""], "a\u{FFFD}"),
        (
            "an interrupted character",
            &byte_level,
            &["ðŁ", "x"],
            &["", "\u{FFFD}x"],
            "\u{FFFD}x",
        ),
        (
            "a stray continuation",
            &byte_level,
            &["Ģ", "x"],
            &["\u{FFFD}", "x"],
            "\u{FFFD}x",
        ),
        (
            "an added token with a blank",
            &byte_level,
            &["<a b>", "x"],
            &["<a b>", "x"],
            "<a b>x",
        ),
        (
            "byte fallback",
            &fallback,
            &["▁Hi", "<0xE6>", "<0x97>", "<0xA5>", "▁x"],
            &["Hi", "", "", "日", " x"],
            "Hi日 x",
        ),
        (
            "no byte token",
            &fallback,
            &["<0xZZ>", "▁▁y"],
            &["<0xZZ>", "  y"],
            "<0xZZ>  y",
        ),
    ];
    for (name, decoder, pieces, deltas, all) in cases {
        let ids: Vec<u32> = (0..pieces.len() as u32).collect();
        let (got, joined) = stream(&table(decoder, pieces), &ids, false);
        assert_eq!(got, deltas, "{name}");
        assert_eq!(joined, all, "{name}");
    }
    let strips = table(&fallback, &["▁", "▁Hi"]);
    assert_eq!(
        stream(&strips, &[0, 1], false).1,
        " Hi",
        "one leading blank is the decoder's"
    );
    assert_eq!(
        stream(&strips, &[1], true).1,
        " Hi",
        "none where a message is continued"
    );
    assert_eq!(strips.get(99), b"", "an id outside the vocabulary has no text");
}

#[test]
fn any_bytes_in_any_pieces_give_the_lossy_text() {
    let bytes: Vec<u8> = b"a\xF0\x9F\x98\x80\xF0\x9Fz\xE6\x97\xFF\xC0\x80\xED\xA0\x80\xE6\x97\xA5\xF4".to_vec();
    let want = String::from_utf8_lossy(&bytes);
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let mut stream = TextStream {
                pending: [0; 3],
                held: 0,
                strip: 0,
            };
            let mut out = String::new();
            for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                stream.push(piece, &mut out);
            }
            stream.finish(&mut out);
            assert_eq!(out, want, "cut at {first} and {second}");
        }
    }
}

#[test]
fn decoders_that_are_not_supported_are_named() {
    let cases = [
        (json!(null), "it has no decoder"),
        (json!({"type": "WordPiece"}), "its decoder WordPiece is not supported"),
        (
            json!({"type": "Sequence", "decoders": [{"type": "CTC"}]}),
            "its decoder CTC is not supported",
        ),
        (
            json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}),
            "a Replace decoder whose pattern is not plain text",
        ),
    ];
    for (decoder, want) in cases {
        assert_eq!(Decoding::parse(&decoder), Err(want.to_owned()));
    }
}
