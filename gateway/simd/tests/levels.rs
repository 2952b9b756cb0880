//! Each level answers as the plain one does: every place, alignment and tail, and dense mixtures.
//!
//! Invariant: what is compared with is itself compared with an independent parser where it says text.
#![forbid(unsafe_code)]

use proptest::prelude::*;
use zerohop_simd::{Finder, Level, Stop};

/// All levels give the plain one's answers for the text behind an opening quote.
fn check(text: &str) {
    let mut wanted = String::from("é");
    let result = Level::PLAIN.unescape(text, &mut wanted);
    for level in Level::all() {
        let mut found = String::from("é");
        assert_eq!(level.unescape(text, &mut found), result, "{} {text:?}", level.name());
        assert_eq!(found, wanted, "{} {text:?}", level.name());
    }
}

/// All levels find the plain one's places, from each start.
fn check_places(bytes: &[u8]) {
    for level in Level::all() {
        // Forwards in steps, and with a step back between.
        let mut finder = Finder::new(level, bytes);
        for at in (0..=bytes.len()).step_by(7).flat_map(|at| [at, at / 3, at]) {
            assert_eq!(
                finder.find(at),
                Level::PLAIN.special(bytes, at),
                "{} {at} {bytes:?}",
                level.name()
            );
        }
        let mut finder = Finder::new(level, bytes);
        for at in 0..=bytes.len() {
            assert_eq!(
                finder.find(at),
                Level::PLAIN.special(bytes, at),
                "{} {at} {bytes:?}",
                level.name()
            );
        }
    }
    for at in 0..=bytes.len() + 1 {
        let special = Level::PLAIN.special(bytes, at);
        let space = Level::PLAIN.space(bytes, at);
        for level in Level::all() {
            assert_eq!(level.special(bytes, at), special, "{} {at} {bytes:?}", level.name());
            assert_eq!(level.space(bytes, at), space, "{} {at} {bytes:?}", level.name());
        }
    }
}

#[test]
fn every_byte_is_told_apart() {
    for byte in 0..=u8::MAX {
        let special = byte < 0x20 || byte == b'"' || byte == b'\\';
        let space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        for level in Level::all() {
            for before in [0, 3, 15, 16, 40, 70] {
                let mut bytes = vec![b'a'; before];
                bytes.push(byte);
                bytes.extend([b'b'; 70]);
                let wanted = if special { before } else { bytes.len() };
                assert_eq!(level.special(&bytes, 0), wanted, "{} {byte} {before}", level.name());
                let mut bytes = vec![b' '; before];
                bytes.push(byte);
                let wanted = if space { bytes.len() } else { before };
                assert_eq!(level.space(&bytes, 0), wanted, "{} {byte} {before}", level.name());
            }
        }
    }
}

#[test]
fn every_length_and_every_place() {
    for len in 0..200 {
        check_places(&vec![b'x'; len]);
        check_places(&vec![b'\n'; len]);
        check(&"x".repeat(len));
        for tail in [
            "\"",
            "\"rest\\",
            "\\n\"",
            "\\",
            "\\u",
            "\\u12",
            "\u{1}",
            "\\\u{1}\"",
            "\\q\"",
            "\\é\"",
            "\\u00e9\"",
            "\\ud83d\\ude00\"",
            "\\ud83d\"",
            "\\u0000\"",
            "\\\"",
            "\\\\\"",
            "\\\\\\\"x",
        ] {
            check(&format!("{}{tail}", "x".repeat(len)));
            check(&format!("{}{tail}{}", "é".repeat(len), "y\\n".repeat(30)));
        }
    }
}

#[test]
fn runs_of_backslashes() {
    for before in 0..70 {
        for run in 0..140 {
            check(&format!("{}{}n\"tail\"", "x".repeat(before), "\\".repeat(run)));
        }
    }
}

/// Every second unit and its neighbours are characters or halves of one, as an independent parser has it.
#[test]
fn every_unit() {
    for first in 0..=0xFFFF_u32 {
        for rest in ["", "\\ude00", "\\u0041"] {
            let text = format!("\\u{first:04x}{rest}\"");
            let theirs: Result<String, _> = char::decode_utf16(
                [
                    Some(first as u16),
                    rest.get(2..).and_then(|digits| u16::from_str_radix(digits, 16).ok()),
                ]
                .into_iter()
                .flatten(),
            )
            .collect();
            let mut ours = String::new();
            match (Level::best().unescape(&text, &mut ours), theirs) {
                (Ok(_), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
                (Err(Stop::Nul), _) => assert_eq!(first, 0, "{text}"),
                (Err(Stop::Surrogate), Err(_)) => {}
                (ours, theirs) => panic!("{text}: {ours:?}, {theirs:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn dense_mixtures(pieces in prop::collection::vec(prop::sample::select(&[
        "a", "é", "語", "😀", "\\n", "\\\"", "\\\\", "\\/", "\\u00e9", "\\u8a9e", "\\uD83D\\uDE00", "\\t", "xxxxxxxxxxxxxxxx", " ",
        "\\ud800", "\\u0000", "\\u12", "\\x", "\\", "\"", "\u{1f}", "\u{7f}",
    ][..]), 0..120)) {
        check(&pieces.concat());
    }

    #[test]
    fn mostly_right(pieces in prop::collection::vec(prop::sample::select(&[
        "a", "é", "語", "😀", "\\n", "\\\"", "\\\\", "\\/", "\\u00e9", "\\u8a9e", "\\uD83D\\uDE00", "\\t", "xxxxxxxxxxxxxxxx", " ",
    ][..]), 0..200)) {
        check(&format!("{}\"", pieces.concat()));
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..150)) {
        check_places(&bytes);
    }

    #[test]
    fn blanks(bytes in "[ \\n\\r\\ta\"]{0,150}") {
        check_places(bytes.as_bytes());
    }
}
